// Reads what rollgate exports with OpenTelemetry's own messages: those that its JavaScript exporters have, generated from its .proto files.
// Each line of the file is the body of one request; it becomes protobuf and comes back. What those messages have no field for, or
// another type, does not come back as it was.
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';

const root = createRequire(import.meta.url)('@opentelemetry/otlp-transformer/build/src/generated/root.js');
const Request = root.opentelemetry.proto.collector.trace.v1.ExportTraceServiceRequest;
const ids = new Set(['traceId', 'spanId', 'parentSpanId']); // OTLP writes these in hexadecimal, not in base64

function recoded(value, from, to) {
  if (Array.isArray(value)) return value.map((v) => recoded(v, from, to));
  if (value === null || typeof value !== 'object') return value;
  return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, ids.has(k) ? Buffer.from(v, from).toString(to) : recoded(v, from, to)]));
}

// An empty list and none are one in protobuf.
function sorted(value) {
  return JSON.stringify(value, (_, x) => (x && typeof x === 'object' && !Array.isArray(x)
    ? Object.fromEntries(Object.entries(x).filter(([, v]) => !(Array.isArray(v) && v.length === 0)).sort()) : x));
}

const failed = [];
let spans = 0;
for (const line of readFileSync(process.argv[2], 'utf8').trim().split('\n')) {
  const sent = JSON.parse(line);
  const bytes = Request.encode(Request.fromObject(recoded(sent, 'hex', 'base64'))).finish();
  const read = recoded(Request.toObject(Request.decode(bytes), { longs: String, bytes: String }), 'base64', 'hex');
  if (sorted(read) !== sorted(sent)) failed.push(`sent ${sorted(sent)}, read ${sorted(read)}`);
  for (const r of read.resourceSpans ?? []) for (const s of r.scopeSpans ?? []) spans += s.spans?.length ?? 0;
}
console.log(JSON.stringify({ ok: failed.length === 0, failed, spans }));

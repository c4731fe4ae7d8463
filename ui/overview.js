// Everything at a glance: numbers and curves of /metrics, engines, and where the rest of the pages begin.
import {h, clear, drawReleased, counted, number, short, bytes, ago, foreign, shortId, tableHead, wideTable} from "./dom.js";
import {ask, json, ApiError} from "./api.js";
import {newestRows, store, readMetrics, sumOf} from "./store.js";
import {sparkline, Series} from "./spark.js";
import {groupTable, queueTable, runnerTable} from "./groups.js";
import {nodeTable, readNodes} from "./nodes.js";

const EVERY_MS = 2000;
const NODES_EVERY_MS = 5000;
const FIRST_MS = 500;      // between the first looks: a curve needs three

// What is drawn over time: a rate of a counter, or a gauge as it is.
const CURVES = [
  {name: "Turns a second", rate: m => sumOf(m, "turn_engine_seconds_count")},
  {name: "Tokens a second", rate: m => sumOf(m, "generated_tokens_total")},
  {name: "Calls running", gauge: m => sumOf(m, "calls_inflight")},
  {name: "Calls waiting", gauge: m => sumOf(m, "queue_depth")},
  {name: "Errors a second (5xx)", rate: m => sumOf(m, "routed_requests_total", l => l.status && l.status.startsWith("5"))},
  {name: "Resident memory", gauge: m => sumOf(m, "process_resident_memory_bytes"), show: bytes},
];

const kept = {curves: CURVES.map(() => new Series()), last: null, at: 0};

// The mean of a histogram since the last look, in milliseconds.
function meanMs(now, before, name) {
  const n = sumOf(now, `${name}_count`) - sumOf(before, `${name}_count`);
  return n > 0 ? (1000 * (sumOf(now, `${name}_sum`) - sumOf(before, `${name}_sum`))) / n : null;
}

function millis(v) {
  return v === null ? "–" : `${Number(v.toPrecision(3))} ms`;
}

function takeMetrics(metrics) {
  const at = Date.now();
  const seconds = (at - kept.at) / 1000;
  CURVES.forEach((curve, i) => {
    let v = null;
    if (curve.gauge) v = curve.gauge(metrics);
    else if (kept.last && seconds < 30) v = Math.max(0, (curve.rate(metrics) - curve.rate(kept.last)) / seconds);
    kept.curves[i].push(v);
  });
  const before = kept.last;
  kept.last = metrics;
  kept.at = at;
  return before;
}

function tile(title, value, more) {
  return h("div.tile", h("h3", title), h("div.big", value), more && h("div.more", more));
}

function curveTiles() {
  return CURVES.map((curve, i) => {
    const values = kept.curves[i].values;
    const last = values[values.length - 1];
    const text = last === null ? "–" : (curve.show || short)(last);
    return tile(curve.name, text, sparkline(values, `${curve.name}: ${text}, and before`) || h("span.quiet", "measuring …"));
  });
}

function factRows(m, before, health) {
  const ms = name => (before ? meanMs(m, before, name) : null);
  const phases = (m.get("rollgate_sessions") || []).map(r => `${number(r.value)} ${r.labels.phase}`).join(", ");
  return [
    ["Workers", `${health.workers.ready} of ${health.workers.total} serve${health.paused ? `, ${health.paused} paused` : ""}`],
    store.unreachable.length > 0 && ["Nodes", `this one; not in these figures: ${store.unreachable.join(", ")}`],
    ["Routers", `${health.routers}, ${number(sumOf(m, "connections"))} connections`],
    ["Sessions in memory", phases || "0"],
    ["Tokens of sessions", `${number(sumOf(m, "live_tokens"))}, ${bytes(sumOf(m, "session_memory_bytes"))} in memory, ${bytes(sumOf(m, "evicted_bytes"))} in journals only`],
    ["A turn's time: queue, engine, gateway", `${millis(ms("turn_queue_seconds"))}, ${millis(ms("turn_engine_seconds"))}, ${millis(ms("turn_gateway_seconds"))}`],
    ["Journals", `${bytes(sumOf(m, "journal_bytes"))} on disk, ${number(sumOf(m, "journal_errors_total"))} failed writes`],
    ["Sinks", `${number(sumOf(m, "sink_delivered_total"))} delivered, ${number(sumOf(m, "sink_waiting"))} waiting, ${number(sumOf(m, "sink_errors_total"))} errors`],
    ["Refused for a limit", number(sumOf(m, "refusals_total"))],
    ["Processes replaced", number(sumOf(m, "process_restarts_total"))],
    ["Attempts", `${number(sumOf(m, "attempts_running"))} running; ended: ${(m.get("rollgate_attempts_total") || []).map(r => `${number(r.value)} ${r.labels.outcome}`).join(", ") || "none"}`],
  ].filter(Boolean);
}

// A number of an engine. Its row is what one worker sees; the metrics have the sum of all, by its place, for so many places of their own.
const OWN_PLACES = 15;

function ofEngine(metrics, e, name, own) {
  return number(e.place < OWN_PLACES ? sumOf(metrics, name, l => l.engine === String(e.place)) : own);
}

function engineTable(engines, metrics) {
  if (!engines) return h("p.empty", "Engines are shown to admins.");
  const names = ["engine", "kind", "state", "running", "queue", "requests", "retries", "errors", "latency", "weights", "logprobs"];
  const state = e => e.state || (e.up ? "up" : "down");
  return wideTable("Engines", "table.engines", tableHead(names, ["running", "queue", "requests", "retries", "errors", "latency"]),
    h("tbody", engines.map(e => h("tr", h("td", foreign(e.name)), h("td", e.pool && e.pool !== "policy" ? `${e.kind}, pool ${e.pool}` : e.kind), h("td", h(`span.state.${state(e) === "up" ? "good" : "bad"}`, state(e))),
      h("td.num", ofEngine(metrics, e, "engine_inflight", e.inflight)),
      h("td.num", {title: "calls that wait for a place and whose session keeps this engine"}, ofEngine(metrics, e, "engine_queued", e.queued)),
      h("td.num", ofEngine(metrics, e, "engine_requests_total", e.requests)), h("td.num", ofEngine(metrics, e, "engine_retries_total", e.retries)),
      h("td.num", ofEngine(metrics, e, "engine_errors_total", e.errors)),
      h("td.num", millis(e.latency_ms)), h("td", foreign(e.weight_version ?? "–")),
      h("td", foreign(e.logprobs && (e.logprobs.given || e.logprobs.asked) || "–"))))));
}

const NEWEST = 8;

function newest() {
  const {rows} = newestRows(NEWEST);
  if (!rows.length) return h("p.empty", store.loading ? "Reading …" : "No sessions yet.");
  return h("ul.plain", rows.map(r => h("li", h("a", {href: `#/sessions/${r.session_id}`}, shortId(r.session_id)), " ",
    h(`span.phase.${r.phase}`, r.phase), ` ${counted(r.calls, "turn")}, ${counted(r.tokens, "token")}, ${ago(r.updated_at)} ago`)));
}

// What there is of rollouts: nothing without a dispatcher or groups.
function rollouts() {
  const groups = [...store.groups.values()].sort((a, b) => b.submitted_at - a.submitted_at).slice(0, NEWEST);
  return [groups.length > 0 && h("section", h("h2", "Newest groups"), groupTable(groups)), store.queues.size > 0 && h("section", h("h2", "Queues"), queueTable([...store.queues.values()])),
    store.runners.size > 0 && h("section", h("h2", "Runners"), runnerTable([...store.runners.values()]))];
}

export function overviewPage(main) {
  const curves = h("div.tiles");
  const facts = h("dl.facts.wide");
  const engines = h("div");
  const recent = h("div");
  const work = h("div");
  const nodes = h("section", {hidden: true});
  const fault = h("p.fault", {hidden: true, role: "alert"});
  clear(main, h("div.page", h("h1", "Overview"), fault, curves, nodes, h("div.columns", h("section", h("h2", "Gateway"), facts),
    h("section", h("h2", "Last active sessions"), recent)), h("section", h("h2", "Engines"), engines), work));
  let ended = false;
  let timer = null;
  let nodeTimer = null;

  const look = async () => {
    try {
      const [text, health, told] = await Promise.all([ask("/metrics").then(a => a.text()),
        fetch(new URL("health", document.baseURI)).then(a => a.json()),
        json("/admin/engines").then(a => a.engines, e => { if (e instanceof ApiError && e.status === 403) return null; throw e; })]);
      if (ended) return;
      const metrics = readMetrics(text);
      const before = takeMetrics(metrics);
      clear(curves, curveTiles());
      clear(facts, factRows(metrics, before, health).map(([k, v]) => [h("dt", k), h("dd", v)]));
      clear(engines, engineTable(told, metrics));
      fault.hidden = true;
    } catch (error) {
      if (ended) return;
      fault.hidden = false;
      clear(fault, `The gateway does not answer: ${error.message}`);
    }
    if (!ended) timer = setTimeout(look, kept.curves[0].values.filter(v => v !== null).length > 1 ? EVERY_MS : FIRST_MS);
  };
  let asked = null;
  const drawRecent = () => {
    asked = null;
    clear(recent, newest());
    clear(work, rollouts());
  };
  const drawNodes = async () => {
    const rows = document.visibilityState === "visible" || nodes.hidden ? await readNodes().catch(() => null) : null;      // the fault is shown by look()
    if (ended) return;
    if (rows) {
      nodes.hidden = false;
      drawReleased(nodes, () => clear(nodes, h("h2", "Nodes"), nodeTable(rows)));
    }
    if (!nodes.hidden) nodeTimer = setTimeout(drawNodes, NODES_EVERY_MS);
  };
  const stop = store.listen(what => {
    if (what !== "state" && !asked) asked = setTimeout(() => drawReleased(work, drawRecent), 500);
  });
  drawRecent();
  look();
  drawNodes();
  return () => {
    ended = true;
    stop();
    clearTimeout(timer);
    clearTimeout(nodeTimer);
    clearTimeout(asked);
  };
}

// What every client program shares: the tools, the expectations, the report.
export const [base, how = 'plain'] = process.argv.slice(2);
export const stream = how === 'stream';
export const anthropicBase = base.replace(/\/v1$/, '');
export const model = 'org/some-model';
export const key = process.env.CLIENT_KEY || 'sk-none';
export const system = 'You are careful.';
export const question = 'What is the sum of the numbers in the files?';
export const firstText = 'I look at the files first.';
export const finalText = 'The sum is twelve. ☕ naïve 日本語';
export const oddArguments = { path: 'a.txt', max: 4096, note: 'café "q" \\n\n' };

export const schemas = {
  list_files: { type: 'object', properties: {} },
  read_file: {
    type: 'object',
    properties: { path: { type: 'string' }, max: { type: 'number' }, note: { type: 'string' } },
    required: ['path'],
  },
};
export const openaiTools = Object.entries(schemas).map(([name, parameters]) => ({
  type: 'function', function: { name, description: `Tool ${name}`, parameters },
}));

const files = { 'a.txt': 'seven\n', 'b.txt': 'five\n' };
const calls = [];
export function runTool(name, args) {
  calls.push([name, args]);
  if (name === 'list_files') return Object.keys(files).join('\n');
  return files[args.path] ?? `no file ${args.path}`;
}

const failed = [];
let tokens = 0;
export function check(what, good, seen) {
  if (!good) failed.push(seen === undefined ? what : `${what}: ${JSON.stringify(seen)}`);
}
export function same(what, got, want) {
  check(what, sorted(got) === sorted(want), got);
}
function sorted(v) {
  return JSON.stringify(v, (_, x) => (x && typeof x === 'object' && !Array.isArray(x)
    ? Object.fromEntries(Object.entries(x).sort()) : x));
}
export function spent(n) {
  check('usage is there', n > 0, n);
  tokens += n || 0;
}

// The task is done: three turns, these calls, that answer.
export function checkTask(turns, answer) {
  same('turns', turns, 3);
  same('answer', String(answer).trim(), finalText);
  same('calls', calls, [['list_files', {}], ['read_file', oddArguments],
    ['read_file', { path: 'b.txt' }]]);
}

export async function main(body) {
  try {
    await body();
  } catch (e) {
    failed.push(`${e?.constructor?.name}: ${e?.message}`);
    if (process.env.CLIENT_VERBOSE) console.error(e);
  }
  console.log(JSON.stringify({ ok: failed.length === 0, failed, completion_tokens: tokens }));
  process.exit(failed.length ? 1 : 0);
}

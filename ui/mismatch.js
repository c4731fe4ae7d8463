// Trainer against sampler: the difference of their logprobs by weights and position, and the tokens that differ most.
import {h, decimal, foreign, number, shortId, tableHead, wideTable} from "./dom.js";

const WORST = 16;

function places(positions, i) {
  return i + 1 < positions.length ? `${number(positions[i])}–${number(positions[i + 1] - 1)}` : `${number(positions[i])} on`;
}

// Adds tallies of several nodes. 99 % of all are below the largest p99.
function addTallies(all) {
  const known = all.filter(m => m.tokens > 0);
  const tokens = known.reduce((sum, m) => sum + m.tokens, 0);
  const mean = name => (tokens ? known.reduce((sum, m) => sum + m[name] * m.tokens, 0) / tokens : null);
  const largest = name => (tokens ? Math.max(...known.map(m => m[name])) : null);
  return {tokens, mean: mean("mean"), mean_abs: mean("mean_abs"), p99: largest("p99"), max: largest("max")};
}

// The `mismatch` of several nodes as that of one.
export function addMismatch(all) {
  const {positions, worst} = all[0];
  const versions = new Map();
  for (const v of all.flatMap(m => m.versions)) versions.set(`${v.other} ${v.version}`, [...(versions.get(`${v.other} ${v.version}`) || []), v]);
  return {positions, total: addTallies(all.map(m => m.total)),
    versions: [...versions.values()].map(same => ({...same[0], ...addTallies(same), positions: positions.map((_, i) => addTallies(same.map(v => v.positions[i])))})),
    worst: all.flatMap(m => m.worst).sort((a, b) => Math.abs(b.difference) - Math.abs(a.difference)).slice(0, Math.max(WORST, worst.length))};
}

const shownDifference = v => (typeof v === "number" ? v.toFixed(4) : "–");

// One cell: the mean of the sizes and their 99th percentile, with a ground as dark as the mean is large.
function cellOf(figures, most) {
  if (!figures || !figures.tokens) return h("td.num.quiet", "–");
  const step = Math.min(4, Math.floor((5 * figures.mean_abs) / most));
  return h(`td.num.heat${step}`, {title: `${number(figures.tokens)} tokens, mean ${shownDifference(figures.mean)}, mean size ${shownDifference(figures.mean_abs)}, p99 ${shownDifference(figures.p99)}, largest ${shownDifference(figures.max)}`},
    shownDifference(figures.mean_abs), h("div.small", `p99 ${shownDifference(figures.p99)}`));
}

function byVersion(mismatch) {
  const {versions, positions} = mismatch;
  const most = Math.max(1e-9, ...versions.flatMap(v => v.positions.map(p => p.mean_abs || 0)));
  const names = ["weights", "tokens", "mean", "mean size", "p99", "largest", ...positions.map((_, i) => places(positions, i))];
  return wideTable("Difference by weights and position in the answer", "table.mismatch", tableHead(names, names.slice(1)), h("tbody", versions.map(v => h("tr",
    h("td", v.other ? "others" : foreign(v.version)), h("td.num", number(v.tokens)), h("td.num", shownDifference(v.mean)), h("td.num", shownDifference(v.mean_abs)),
    h("td.num", shownDifference(v.p99)), h("td.num", shownDifference(v.max)), positions.map((_, i) => cellOf(v.positions[i], most))))));
}

function worstTokens(worst) {
  const names = ["difference", "sampler", "trainer", "ratio", "token in its context", "weights", "position", "session"];
  return wideTable("Tokens that differ most", "table.worst", tableHead(names, ["difference", "sampler", "trainer", "ratio", "position"]), h("tbody", worst.map(w => h("tr",
    h("td.num", shownDifference(w.difference)), h("td.num", shownDifference(w.sampled)), h("td.num", shownDifference(w.trained)), h("td.num", decimal(Number(Math.exp(w.difference).toPrecision(3)))),
    h("td.context", h("code", foreign(w.before ?? ""), h("b", {title: `id ${w.token_id}`}, foreign(w.token ?? `‹${w.token_id}›`)), foreign(w.after ?? ""))),
    h("td", foreign(w.version ?? "–"), w.reported_version && h("span.quiet", " / ", foreign(w.reported_version))), h("td.num", number(w.position)),
    h("td.done", h("a", {href: `#/sessions/${w.session_id}?at=${encodeURIComponent(w.response_id)}&tab=tokens&colour=ratio&offset=${w.position}`}, foreign(shortId(w.session_id))))))));
}

// The section of the run page; null while no trainer reported anything.
export function mismatchSection(mismatch) {
  if (!mismatch || !mismatch.total.tokens) return null;
  const {total} = mismatch;
  return h("section", h("h2", "Trainer against sampler"),
    h("p", `The trainer's logprob less the sampler's, of ${number(total.tokens)} tokens reported in this span: mean ${shownDifference(total.mean)}, mean size ${shownDifference(total.mean_abs)}, 99 % below ${shownDifference(total.p99)}, largest ${shownDifference(total.max)}.`),
    byVersion(mismatch), mismatch.worst.length > 0 && [h("h3.gap", "Tokens that differ most"), worstTokens(mismatch.worst)]);
}

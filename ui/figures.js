// Figures of a run as GET /stats counts them: sums that can be added over minutes, labels and nodes, and what follows from them.
import {decimal, number, percent, seconds, short} from "./dom.js";

// Adds two values of the same shape: numbers, or objects of numbers.
function added(a, b) {
  if (typeof b === "number") return (typeof a === "number" ? a : 0) + b;
  if (b && typeof b === "object" && !Array.isArray(b)) return Object.fromEntries([...new Set([...Object.keys(a || {}), ...Object.keys(b)])].map(k => [k, b[k] === undefined ? a[k] : added((a || {})[k], b[k])]));
  return a ?? b;
}

// The sum of several; null without any. Means in it are sums of means, and mean nothing.
export function addFigures(list) {
  return list.reduce(added, null);
}

function ratio(a, b) {
  return b > 0 ? a / b : null;
}

const measured = f => f.sessions - (f.unmeasured || 0);
const failures = f => (f.ended?.aborted || 0) + (f.ended?.expired || 0) + ["timeout", "error", "infra"].reduce((sum, k) => sum + (f.attempts?.[k] || 0), 0);

// What the run page draws: {name, title (what it counts)?, value(figures), show(value), spread(figures)?, counts: it is a sum of its step, not a mean}.
export const MEASURES = [
  {name: "Reward", value: f => ratio(f.reward_sum, f.rewarded), show: v => decimal(Math.round(v * 1000) / 1000), spread: f => deviationOf(f)},
  {name: "Pass rate", title: "Sessions with a reward of 1 or more, of those with a reward", value: f => ratio(f.passed, f.rewarded), show: percent},
  {name: "Ended", value: f => f.sessions, show: number, counts: true},
  {name: "Turns", title: "Turns of a session", value: f => ratio(f.turns, measured(f)), show: short},
  {name: "Tokens", title: "Tokens of a session", value: f => ratio(f.tokens, measured(f)), show: short},
  {name: "Run time", value: f => ratio(f.run_s, measured(f)), show: seconds},
  {name: "Truncated", value: f => ratio(f.truncated, measured(f)), show: percent},
  {name: "Failures", title: "Sessions aborted or expired, and attempts that timed out, failed or met infrastructure", value: failures, show: number, counts: true},
  {name: "Staleness", title: "Newest weights at the end less the oldest that sampled", value: f => ratio(f.staleness_sum, f.staleness_sessions), show: v => decimal(Math.round(v * 100) / 100)},
  {name: "Drift", title: "Trajectories that the template would write otherwise", value: f => ratio(f.drifted, f.trajectories), show: percent},
  {name: "Tokens trained", title: "Of those that were sampled", value: f => ratio(f.trained_tokens, f.sampled_tokens), show: percent},
];

// The standard deviation of the rewards; null without any.
function deviationOf(f) {
  const mean = ratio(f.reward_sum, f.rewarded);
  return mean === null ? null : Math.sqrt(Math.max(0, f.reward_square_sum / f.rewarded - mean * mean));
}

export function shownValue(measure, figures) {
  const value = figures ? measure.value(figures) : null;
  return value === null || value === undefined ? "–" : measure.show(value);
}

// Causes of ends and outcomes of attempts that are not zero, the most frequent first: [[name, count]].
export function causesOf(f) {
  const ends = Object.entries(f.ended || {}).map(([k, n]) => [k.replace(/_/g, " "), n]);
  const attempts = Object.entries(f.attempts || {}).filter(([k]) => k !== "ok").map(([k, n]) => [`attempt: ${k}`, n]);
  return [...ends, ...attempts].filter(([, n]) => n > 0).sort((a, b) => b[1] - a[1]);
}

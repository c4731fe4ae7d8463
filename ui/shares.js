// Where time went: shares of a session's, a group's or a run's time as one bar with its legend.
import {h, percent, seconds} from "./dom.js";

export const SHARES = ["start", "queue", "engine", "gateway", "tools", "scoring"];

// times: {start, queue, engine, gateway, tools, scoring} in seconds; null without any time.
export function timeBar(times, what = "time") {
  const whole = times ? SHARES.reduce((sum, name) => sum + (times[name] || 0), 0) : 0;
  if (!(whole > 0)) return null;
  const used = SHARES.map((title, i) => ({title, i, s: times[title] || 0})).filter(part => part.s > 0);
  return h("div.shares", h("div.sharebar", {role: "img", "aria-label": `${what}: ${used.map(p => `${p.title} ${percent(p.s / whole)}`).join(", ")}`},
    used.map(p => h(`i.share${p.i}`, {style: {flexGrow: String(p.s / whole)}, title: `${p.title}: ${seconds(p.s)}, ${percent(p.s / whole)}`}))),
  h("div.legend", used.map(p => h("span.key", h(`i.share${p.i}`, " "), `${p.title} ${percent(p.s / whole)}`, h("span.quiet", ` ${seconds(p.s)}`)))));
}

// Where time went: shares of a session's, a group's or a run's time as one bar with its legend.
import {h, percent, seconds} from "./dom.js";

export const SHARES = ["start", "queue", "engine", "gateway", "tools", "scoring"];

const SHOWN_LEAST = 0.001;

const shownShare = x => (x < SHOWN_LEAST ? `< ${percent(SHOWN_LEAST)}` : percent(x));

// times: {start, queue, engine, gateway, tools, scoring} in seconds; null without any time.
export function timeBar(times, what = "time") {
  const whole = times ? SHARES.reduce((sum, name) => sum + (times[name] || 0), 0) : 0;
  if (!(whole > 0)) return null;
  const used = SHARES.map((title, i) => ({title, i, s: times[title] || 0})).filter(part => part.s > 0);
  return h("div.shares", h("div.sharebar", {role: "img", "aria-label": `${what}: ${used.map(p => `${p.title} ${shownShare(p.s / whole)}`).join(", ")}`},
    used.map(p => h(`i.share${p.i}`, {style: {flexGrow: String(p.s / whole)}, title: `${p.title}: ${seconds(p.s)}, ${shownShare(p.s / whole)}`}))),
  h("div.legend", used.map(p => h("span.key", h(`i.share${p.i}`, " "), `${p.title} ${shownShare(p.s / whole)}`, h("span.quiet", ` ${seconds(p.s)}`)))));
}

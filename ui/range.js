// A span of time in the address (?from=..&to=.., seconds since 1970), as the run page sets it.
import {h} from "./dom.js";

// {from, to} or null.
export function readRange(query) {
  const [from, to] = ["from", "to"].map(name => Number(query.get(name) || NaN));
  return from >= 0 && to > from ? {from, to} : null;
}

export function inRange(range, at) {
  return at >= range.from && at < range.to;
}

export function hourMinute(at) {
  const t = new Date(at * 1000);
  return `${String(t.getHours()).padStart(2, "0")}:${String(t.getMinutes()).padStart(2, "0")}`;
}

// The span with a way to drop it; null without one. `rest` is the page's address without the span.
export function rangeChip(range, rest) {
  return range && h("span.chip", `ended ${hourMinute(range.from)} to ${hourMinute(range.to)} `, h("a", {href: rest, "aria-label": "Drop the span of time"}, "✕"));
}

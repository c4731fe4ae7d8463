// A curve of the last values, as an SVG: small enough to be our own.
import {svg} from "./dom.js";

const WIDTH = 220;
const HEIGHT = 44;

// values: numbers or null (unknown); the newest last. The scale begins at 0, and the curve spans what is known. Null with fewer than two values.
export function sparkline(all, title) {
  const known = all.filter(v => typeof v === "number");
  if (known.length < 2) return null;
  const values = all.slice(all.findIndex(v => typeof v === "number"));
  const top = Math.max(...known, 1e-9);
  const step = WIDTH / (values.length - 1);
  let path = "";
  let pen = false;
  values.forEach((v, i) => {
    if (typeof v !== "number") {
      pen = false;
      return;
    }
    path += `${pen ? "L" : "M"}${(i * step).toFixed(1)} ${(HEIGHT - 3 - (v / top) * (HEIGHT - 8)).toFixed(1)}`;
    pen = true;
  });
  return svg("svg", {viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "spark", role: "img", "aria-label": title, preserveAspectRatio: "none"},
    svg("line", {x1: 0, x2: WIDTH, y1: HEIGHT - 2, y2: HEIGHT - 2, class: "base"}), svg("path", {d: path, class: "curve"}));
}

// The last n values of a series, with room for those to come.
export class Series {
  constructor(n = 120) {
    this.values = new Array(n).fill(null);
  }

  push(v) {
    this.values.push(v);
    this.values.shift();
  }
}

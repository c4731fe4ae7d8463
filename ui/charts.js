// Curves over time with a span that can be selected: by dragging, or with the arrow keys.
import {h, svg, clear} from "./dom.js";
import {hourMinute} from "./range.js";

const CHART_WIDTH = 300;
const CHART_HEIGHT = 84;
const FLOOR = CHART_HEIGHT - 4;
const GAP_STEPS = 6;        // a longer silence breaks the curve

// Lists of neighbours in [{at, value}], broken where nothing was counted for long.
function runsOf(points, step) {
  const runs = [];
  for (const point of points) {
    const last = runs[runs.length - 1];
    if (last && point.at - last[last.length - 1].at <= GAP_STEPS * step) last.push(point);
    else runs.push([point]);
  }
  return runs;
}

// frame: {from, to, step}. series: [{name, points: [{at, value, spread?}]}], at most two. options: {title, show(value), range, onRange(range or null),
// cursor: an object that keeps where the keyboard is}. The element.
export function timeChart(frame, series, options) {
  const values = series.flatMap(s => s.points.flatMap(p => [p.value - (p.spread || 0), p.value + (p.spread || 0)]));
  const low = Math.min(0, ...values);
  const high = Math.max(...values, low + 1e-9);
  const x = at => ((at - frame.from) / (frame.to - frame.from)) * CHART_WIDTH;
  const y = v => FLOOR - ((v - low) / (high - low)) * (FLOOR - 8);
  const middle = p => x(p.at + frame.step / 2);
  const line = run => run.map((p, i) => `${i ? "L" : "M"}${middle(p).toFixed(1)} ${y(p.value).toFixed(1)}`).join("");
  const band = run => `${run.map((p, i) => `${i ? "L" : "M"}${middle(p).toFixed(1)} ${y(p.value + p.spread).toFixed(1)}`).join("")}${[...run].reverse().map(p => `L${middle(p).toFixed(1)} ${y(p.value - p.spread).toFixed(1)}`).join("")}Z`;
  const drawn = series.flatMap((s, i) => runsOf(s.points, frame.step).flatMap(run => [
    run.length > 1 && run.every(p => typeof p.spread === "number") && series.length === 1 && svg("path", {d: band(run), class: "band"}),
    run.length > 1 ? svg("path", {d: line(run), class: `curve series${i}`}) : svg("path", {d: `M${middle(run[0]).toFixed(1)} ${y(run[0].value).toFixed(1)}h0.01`, class: `dot series${i}`}),
  ])).filter(Boolean);
  const span = svg("rect", {y: 0, height: CHART_HEIGHT, class: "span", visibility: "hidden"});
  const cursor = svg("line", {y1: 0, y2: CHART_HEIGHT, class: "cursor", visibility: "hidden"});
  const picture = svg("svg", {viewBox: `0 0 ${CHART_WIDTH} ${CHART_HEIGHT}`, preserveAspectRatio: "none", class: "chart"},
    svg("line", {x1: 0, x2: CHART_WIDTH, y1: y(Math.max(0, low)), y2: y(Math.max(0, low)), class: "base"}), span, ...drawn, cursor);
  const readout = h("div.readout", {"aria-live": "off"});
  const element = h("div.timechart", {tabindex: 0, role: "application", "aria-label": `${options.title} over time. Left and right move, with Shift they select a span that Enter takes, Escape drops it.`}, picture, readout);
  const chart = {frame, x, span, cursor, readout, series, options, kept: options.cursor};
  drawSpan(chart, options.range);
  listenTo(element, chart);
  drawReadout(chart, null);
  return element;
}

function drawSpan(chart, range) {
  chart.span.setAttribute("visibility", range ? "visible" : "hidden");
  if (!range) return;
  const [left, right] = [chart.x(Math.max(range.from, chart.frame.from)), chart.x(Math.min(range.to, chart.frame.to))];
  chart.span.setAttribute("x", Math.min(left, right));
  chart.span.setAttribute("width", Math.max(1, Math.abs(right - left)));
}

// The values at a time; without one, where the axis begins and ends.
function drawReadout(chart, at) {
  const {frame, series, options} = chart;
  chart.cursor.setAttribute("visibility", at === null ? "hidden" : "visible");
  if (at === null) {
    clear(chart.readout, h("span", hourMinute(frame.from)), h("span", hourMinute(frame.to)));
    return;
  }
  for (const end of ["x1", "x2"]) chart.cursor.setAttribute(end, chart.x(at + frame.step / 2));
  const shown = series.map(s => {
    const point = s.points.find(p => p.at === at);
    return [series.length > 1 && `${s.name} `, point ? options.show(point.value) : "–"];
  });
  clear(chart.readout, h("span", hourMinute(at)), h("span", shown.map((text, i) => [i > 0 && ", ", text])));
}

function stepAt(frame, share) {
  const at = frame.from + share * (frame.to - frame.from);
  return Math.max(frame.from, Math.min(frame.to - frame.step, Math.floor(at / frame.step) * frame.step));
}

// A span from one step to another, both of them in it.
function spanOf(frame, a, b) {
  return {from: Math.min(a, b), to: Math.max(a, b) + frame.step};
}

function listenTo(element, chart) {
  const {frame, options} = chart;
  const under = e => {
    const box = element.querySelector("svg").getBoundingClientRect();
    return stepAt(frame, (e.clientX - box.left) / box.width);
  };
  element.addEventListener("pointerdown", e => {
    chart.pressed = under(e);
    chart.dragged = false;
    element.setPointerCapture(e.pointerId);
  });
  element.addEventListener("pointermove", e => {
    const at = under(e);
    drawReadout(chart, at);
    if (!element.hasPointerCapture(e.pointerId)) return;
    chart.dragged = chart.dragged || at !== chart.pressed;
    if (chart.dragged) drawSpan(chart, spanOf(frame, chart.pressed, at));
  });
  element.addEventListener("pointerup", e => {
    if (chart.dragged) options.onRange(spanOf(frame, chart.pressed, under(e)));
  });
  element.addEventListener("pointerleave", () => drawReadout(chart, null));
  element.addEventListener("keydown", e => pressChart(chart, e));
}

function pressChart(chart, e) {
  const {frame, options, kept} = chart;
  const moves = {ArrowLeft: -frame.step, ArrowRight: frame.step, Home: -Infinity, End: Infinity};
  if (e.key === "Escape") options.onRange(null);
  else if (e.key === "Enter" && typeof kept.anchor === "number") options.onRange(spanOf(frame, kept.anchor, kept.at));
  else if (e.key in moves) {
    const from = kept.at ?? stepAt(frame, 1);
    if (!e.shiftKey) kept.anchor = null;
    else kept.anchor ??= from;
    kept.at = Math.max(frame.from, Math.min(frame.to - frame.step, from + moves[e.key]));
    drawReadout(chart, kept.at);
    drawSpan(chart, kept.anchor === null ? options.range : spanOf(frame, kept.anchor, kept.at));
  } else return;
  e.preventDefault();
  e.stopPropagation();
}

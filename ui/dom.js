// Elements and text. What an agent wrote only ever becomes text nodes, in an element of its own direction.

// h("a.name", {href, onclick, "aria-label": ..}, children...): an element. Children: nodes, texts, lists, null.
export function h(what, ...rest) {
  const [tag, ...classes] = what.split(".");
  const el = document.createElement(tag);
  if (classes.length) el.className = classes.join(" ");
  for (const part of rest) fill(el, part);
  return el;
}

function fill(el, part) {
  if (part === null || part === undefined || part === false) return;
  if (Array.isArray(part)) for (const one of part) fill(el, one);
  else if (part instanceof Node) el.append(part);
  else if (typeof part === "object") for (const [k, v] of Object.entries(part)) setAttribute(el, k, v);
  else el.append(String(part));
}

function setAttribute(el, name, value) {
  if (value === null || value === undefined || value === false) return;
  if (name.startsWith("on")) el.addEventListener(name.slice(2), value);
  else if (name === "style") Object.assign(el.style, value);
  else if (name in el && typeof value !== "string" && name !== "list") el[name] = value;
  else el.setAttribute(name, value === true ? "" : value);
}

export function svg(tag, attributes, ...children) {
  const el = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [k, v] of Object.entries(attributes || {})) {
    if (v === null || v === undefined) continue;
    if (k.startsWith("on")) el.addEventListener(k.slice(2), v);
    else el.setAttribute(k, v);
  }
  for (const child of children) if (child !== null && child !== undefined) el.append(child);
  return el;
}

const NAMED = {9: "→", 10: "⏎", 13: "␍", 27: "␛", 0: "␀", 127: "␡"};
// Controls, marks of direction, invisible characters, lone surrogates: what could hide or reorder text.
const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb]|[\u{e0000}-\u{e0fff}]|[\ud800-\udfff]/gu;

function nameOf(c) {
  const code = c.codePointAt(0);
  if (NAMED[code]) return NAMED[code];
  if (code < 32) return String.fromCharCode(0x2400 + code);
  return `‹U+${code.toString(16).toUpperCase().padStart(4, "0")}›`;
}

// The text with everything invisible shown; line feeds and tabs stay what they are unless `all`.
export function visible(text, all = false) {
  return text.replace(HIDDEN, c => (!all && (c === "\n" || c === "\t") ? c : nameOf(c)));
}

// Text of an agent: isolated, with its own direction.
export function foreign(text, what = "bdi") {
  return h(what, visible(String(text)));
}

const CUT = 20000;
const FOLD_LINES = 14;
const FOLD_CHARACTERS = 1200;

// How much of a text stands there while it is folded: whole lines, unless the first one is very long.
function foldAt(text) {
  let at = -1;
  for (let line = 0; line < FOLD_LINES; line++) {
    at = text.indexOf("\n", at + 1);
    if (at < 0) return Math.min(text.length, FOLD_CHARACTERS);
    if (at > FOLD_CHARACTERS) return FOLD_CHARACTERS;
  }
  return at;
}

// A long text of an agent in a block; more of it on demand. `folded`: only its beginning stands there, unless the rest is short.
// Of the element `whole` is the text as it is shown, and unfold() shows all of it.
export function longText(text, className = "text", folded = false) {
  const block = h(`pre.${className}`, {dir: "auto"});
  const cut = folded && text.length > 1.3 * foldAt(text) ? foldAt(text) : CUT;
  const more = (words, n) => h("button.link", {onclick: () => show(n)}, words);
  const show = n => {
    block.replaceChildren(visible(text.slice(0, n)));
    if (n > cut) block.dataset.open = "yes";
    else delete block.dataset.open;
    if (text.length > n) block.append("\n", more(`… ${number(text.length - n)} more characters: show more`, n < CUT ? CUT : n * 10));
    else if (cut < CUT && n > cut) block.append("\n", more("fold", cut));
  };
  show(cut);
  block.whole = () => visible(text);
  block.unfold = () => show(Infinity);
  return block;
}

export function clear(el, ...children) {
  el.replaceChildren();
  fill(el, children);
  return el;
}

const PRESSED_MS = 50;

// Draws at once, or once nothing in the box is pressed any more: an element that is replaced between press and release gets no click.
export function drawReleased(box, draw) {
  if (box.matches(":active")) setTimeout(() => drawReleased(box, draw), PRESSED_MS);
  else draw();
}

// The head of a table; the names of numbers stand over them, at the end of their column.
export function tableHead(names, numbers = []) {
  return h("thead", h("tr", names.map(n => h(`th${numbers.includes(n) ? ".num" : ""}`, {scope: "col"}, n))));
}

// Marks on the parent of a scroller on which sides more can be scrolled into sight: the style sheet draws a hint there.
export function hintScroll(scroller) {
  const mark = () => {
    const data = scroller.parentElement?.dataset;
    const set = (name, on) => {
      if (data && data[name] !== on) data[name] = on;
    };
    set("before", scroller.scrollLeft > 1 ? "yes" : "no");
    set("after", scroller.scrollLeft + scroller.clientWidth < scroller.scrollWidth - 1 ? "yes" : "no");
  };
  scroller.addEventListener("scroll", mark, {passive: true});
  const sizes = new ResizeObserver(mark);
  sizes.observe(scroller);
  for (const child of scroller.children) sizes.observe(child);
  return scroller;
}

// A table that scrolls sideways if the window is too narrow for it; `name` is for screen readers.
export function wideTable(name, kind, ...rest) {
  return h("div.hinted", hintScroll(h("div.wide", {tabindex: 0, role: "region", "aria-label": name}, h(kind, h("caption.unseen", name), ...rest))));
}

// Said to screen readers.
export function announce(text) {
  document.getElementById("live").textContent = text;
}

// --- numbers and times ---

const PLAIN = new Intl.NumberFormat("en-US", {maximumFractionDigits: 0});

export function number(n) {
  return typeof n === "number" && isFinite(n) ? PLAIN.format(n) : "–";
}

// "1 turn", "2 turns".
export function counted(n, what) {
  return `${number(n)} ${what}${n === 1 ? "" : "s"}`;
}

export function short(n) {
  if (typeof n !== "number" || !isFinite(n)) return "–";
  const size = Math.abs(n);
  if (size >= 1e9) return `${(n / 1e9).toFixed(1)}G`;
  if (size >= 1e6) return `${(n / 1e6).toFixed(1)}M`;
  if (size >= 1e4) return `${(n / 1e3).toFixed(1)}k`;
  if (size >= 100 || Number.isInteger(n)) return PLAIN.format(n);
  return n.toPrecision(3).replace(/\.?0+$/, "");
}

export function bytes(n) {
  if (typeof n !== "number" || !isFinite(n)) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  for (; n >= 1024 && i + 1 < units.length; i++) n /= 1024;
  return `${n >= 100 || i === 0 ? n.toFixed(0) : n.toFixed(1)} ${units[i]}`;
}

// Into the clipboard; false if the browser refuses. A page that came over plain HTTP from another host has no
// navigator.clipboard: there the text is chosen in a field, and copied as by hand.
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const field = h("textarea.unseen", {"aria-hidden": "true"});
    (document.querySelector("dialog[open]") || document.body).append(field);
    field.value = text;
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    return done;
  }
}

export function decimal(x) {
  return typeof x === "number" ? String(Math.round(x * 1e4) / 1e4) : "–";
}

// A share as a percentage.
export function percent(x) {
  return typeof x === "number" && isFinite(x) ? `${Number((100 * x).toPrecision(3))} %` : "–";
}

// A span of time.
export function seconds(s) {
  if (typeof s !== "number" || !isFinite(s)) return "–";
  if (s < 1) return `${Number((1000 * s).toPrecision(3))} ms`;
  if (s < 60) return `${Number(s.toPrecision(3))} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${Math.floor(s % 60)} s`;
  return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
}

export function ago(seconds, now = Date.now() / 1000) {
  const s = Math.max(0, now - seconds);
  if (s < 60) return `${Math.floor(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 86400) return `${Math.floor(s / 3600)} h`;
  return `${Math.floor(s / 86400)} d`;
}

export function clock(seconds) {
  return new Date(seconds * 1000).toISOString().replace("T", " ").slice(0, 19) + " UTC";
}

// Runs fn once before the next picture, however often it is asked for.
export function perFrame(fn) {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      fn();
    });
  };
}

export function shortId(id) {
  const at = id.indexOf("-");
  return at > 0 && id.length > at + 11 ? `${id.slice(0, at + 9)}…` : id;
}

// A branch as cells, one a token, drawn on a canvas: only what is in sight is drawn, so 200,000 of them scroll like twenty.
import {h, clear, number, visible, perFrame, announce} from "./dom.js";
import {alternativesAt, pictureAt, tokenHex} from "./branch.js";
import {bitmapOf, fitted} from "./pictures.js";
import {COLOURINGS, colour, palette} from "./colours.js";

const CELL_HEIGHT = 24;
const GROUND_HEIGHT = 19;       // of a cell; below it, on the page's ground, the line under what the model wrote
const CELL_PAD = 4;
const CELL_TEXT_MAX = 48;
const ALTERNATIVES_SHOWN = 8;
const PICTURE_WIDTH = 64;
const CELL_FONT = "13px ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace";

// What stands in a cell: nothing invisible, and never so long that a line cannot hold it.
export function cellText(entry, id) {
  if (!entry || (entry.text === undefined && !entry.bytes)) return `‹${id}›`;
  if (entry.bytes) return `‹${tokenHex(entry)}›`;
  const text = entry.text;
  if (text === "") return "‹›";
  if (/^ +$/.test(text)) return text.length > 3 ? `␣×${text.length}` : "␣".repeat(text.length);
  const shown = visible(text, true).replace(/^ +| +$/g, spaces => "␣".repeat(spaces.length));
  return shown.length > CELL_TEXT_MAX ? `${shown.slice(0, CELL_TEXT_MAX)}…` : shown;
}

// How wide a token's cell is: a picture's first token shows the picture.
function cellWidth(branch, cells, i) {
  return branch.pictures.has(i) ? PICTURE_WIDTH : cells.get(branch.ids[i]).width;
}

// Where each cell stands in lines of this width: {x, lineStart (of each line its first token), lines}.
function layOut(branch, cells, width) {
  const n = branch.ids.length;
  const x = new Float32Array(n);
  const starts = [0];
  let at = 0;
  for (let i = 0; i < n; i++) {
    const cell = cells.get(branch.ids[i]);
    const wide = cellWidth(branch, cells, i);
    if (at > 0 && at + wide > width) {
      starts.push(i);
      at = 0;
    }
    x[i] = at;
    at += wide + 1;
    if (cell.breaks && i + 1 < n) {
      starts.push(i + 1);
      at = 0;
    }
  }
  return {x, lineStart: Uint32Array.from(starts), lines: starts.length};
}

export class TokenGrid {
  // options: {mode, drift (by token, for its colouring), onSelect(position), onScroll()}
  constructor(branch, options = {}) {
    this.branch = branch;
    this.options = options;
    this.mode = options.mode || "mask";
    this.selected = -1;
    this.draw = perFrame(() => this.paint());
    this.canvas = h("canvas", {"aria-hidden": "true"});
    this.space = h("div.space");
    this.scroller = h("div.cells", {tabindex: 0, role: "application",
      "aria-label": `${number(branch.ids.length)} tokens. Arrow keys move from token to token, Home and End to the ends.`},
      this.canvas, this.space);
    this.tip = h("div.tip", {hidden: true});
    this.legend = h("div.legend");
    this.element = h("div.grid", this.legend, this.scroller, this.tip);
    this.scroller.addEventListener("scroll", () => {
      this.draw();
      if (options.onScroll) options.onScroll();
    }, {passive: true});
    this.scroller.addEventListener("mousemove", e => this.hover(e));
    this.scroller.addEventListener("mouseleave", () => { this.tip.hidden = true; });
    this.scroller.addEventListener("click", e => this.click(e));
    this.scroller.addEventListener("keydown", e => this.press(e));
    this.sizes = new ResizeObserver(() => this.resize());
    this.sizes.observe(this.scroller);
    this.measure();
    this.recolour();
  }

  close() {
    this.sizes.disconnect();
  }

  measure() {
    const pen = this.canvas.getContext("2d");
    pen.font = CELL_FONT;
    this.cells = new Map();
    for (const id of new Set(this.branch.ids)) {
      const entry = this.branch.vocabulary.get(id);
      const text = cellText(entry, id);
      this.cells.set(id, {text, width: Math.ceil(pen.measureText(text).width) + 2 * CELL_PAD,
        special: !!(entry && entry.special), breaks: !!(entry && entry.text && entry.text.endsWith("\n"))});
    }
  }

  setMode(mode, drift) {
    this.mode = mode;
    if (drift !== undefined) this.options.drift = drift;
    this.recolour();
  }

  recolour() {
    this.colours = colour(this.branch, this.mode, this.options.drift);
    const used = new Set(this.colours.at);
    clear(this.legend, this.colours.pairs.map(([ground, ink], i) => used.has(i) && this.colours.names[i] &&
      h("span.key", h("i", {style: {background: ground, color: ink}}, "a"), this.colours.names[i])),
      h("span.key", h("i.under", "a"), "written by the model"), h("span.key", h("i.framed", "a"), "special"));
    this.draw();
  }

  resize() {
    const width = this.scroller.clientWidth;
    const height = this.scroller.clientHeight;
    if (!width || (width === this.width && height === this.height)) return;
    const keep = this.places ? this.tokenAtLine(Math.floor(this.scroller.scrollTop / CELL_HEIGHT)) : 0;
    const scale = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(width * scale);
    this.canvas.height = Math.round(height * scale);
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    this.scale = scale;
    this.height = height;
    if (width !== this.width) {
      this.width = width;
      this.places = layOut(this.branch, this.cells, width - 16);
      this.space.style.height = `${this.places.lines * CELL_HEIGHT + 16}px`;
      this.scroller.scrollTop = this.lineOf(keep) * CELL_HEIGHT;
    }
    this.draw();
  }

  // Marks tokens [{token, end}] as found.
  setFound(hits) {
    this.found = hits.length ? new Uint8Array(this.branch.ids.length) : null;
    for (const {token, end} of hits) this.found.fill(1, token, end);
    this.draw();
  }

  // The first token in sight.
  top() {
    return this.places ? this.tokenAtLine(Math.round(this.scroller.scrollTop / CELL_HEIGHT)) : 0;
  }

  scrollTo(token) {
    if (this.places) this.scroller.scrollTop = this.lineOf(token) * CELL_HEIGHT;
  }

  tokenAtLine(line) {
    return this.places.lineStart[Math.max(0, Math.min(line, this.places.lines - 1))];
  }

  // The last line that begins at or before the token.
  lineOf(token) {
    const starts = this.places.lineStart;
    let low = 0, high = starts.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (starts[middle] <= token) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  lineEnd(line) {
    return line + 1 < this.places.lines ? this.places.lineStart[line + 1] : this.branch.ids.length;
  }

  paint() {
    if (!this.places) return;
    const pen = this.canvas.getContext("2d");
    const top = this.scroller.scrollTop;
    const first = Math.floor(top / CELL_HEIGHT);
    const last = Math.min(this.places.lines, Math.ceil((top + this.height) / CELL_HEIGHT));
    pen.setTransform(this.scale, 0, 0, this.scale, 0, 0);
    pen.fillStyle = palette().none[0];
    pen.fillRect(0, 0, this.width, this.height);
    pen.font = CELL_FONT;
    pen.textBaseline = "middle";
    pen.direction = "ltr";
    for (let line = first; line < last; line++) this.paintLine(pen, line, 8 + line * CELL_HEIGHT - top);
  }

  paintLine(pen, line, y) {
    const {ids, turnAt} = this.branch;
    const {at, pairs} = this.colours;
    const {x} = this.places;
    const {mark, none: [, underline]} = palette();
    for (let i = this.places.lineStart[line], end = this.lineEnd(line); i < end; i++) {
      const cell = this.cells.get(ids[i]);
      const [ground, ink] = pairs[at[i]];
      const left = 8 + x[i];
      const wide = cellWidth(this.branch, this.cells, i);
      pen.fillStyle = ground;
      pen.fillRect(left, y, wide, GROUND_HEIGHT);
      pen.fillStyle = ink;
      if (!this.paintPicture(pen, i, left, y)) pen.fillText(cell.text, left + CELL_PAD, y + GROUND_HEIGHT / 2 + 0.5, wide - CELL_PAD);
      if (turnAt[i]) {
        pen.fillStyle = underline;
        pen.fillRect(left, y + GROUND_HEIGHT + 1, wide, 2);
      }
      if (cell.special) {
        pen.strokeStyle = ink;
        pen.lineWidth = 1;
        pen.strokeRect(left + 0.5, y + 0.5, wide - 1, GROUND_HEIGHT - 1);
      }
      if (this.found && this.found[i]) {
        pen.strokeStyle = mark;
        pen.lineWidth = 2;
        pen.setLineDash([4, 2]);
        pen.strokeRect(left + 1, y + 1, wide - 2, GROUND_HEIGHT - 2);
        pen.setLineDash([]);
      }
      if (i === this.selected) {
        pen.strokeStyle = mark;
        pen.lineWidth = 3;
        pen.strokeRect(left, y, wide, GROUND_HEIGHT);
      }
    }
  }

  // Whether a picture begins here and is drawn; it is asked for when it comes into sight.
  paintPicture(pen, i, left, y) {
    const picture = this.branch.pictures.get(i);
    if (!picture) return false;
    if (picture.bitmap === undefined) {
      picture.bitmap = null;
      bitmapOf(this.branch.session_id, picture.row).then(bitmap => {
        picture.bitmap = bitmap;
        if (bitmap) this.element.dataset.pictures = Number(this.element.dataset.pictures || 0) + 1;
        this.draw();
      });
    }
    if (!picture.bitmap) return false;
    const [width, height] = fitted({...picture.row, width: picture.row.width * 2, height: picture.row.height * 2}, GROUND_HEIGHT - 2);
    pen.drawImage(picture.bitmap, left + 2, y + 1, Math.min(width, PICTURE_WIDTH - 4), height);
    return true;
  }

  // The token at a point of the window, or -1.
  hit(event) {
    const box = this.scroller.getBoundingClientRect();
    const y = event.clientY - box.top + this.scroller.scrollTop - 8;
    const x = event.clientX - box.left - 8;
    const line = Math.floor(y / CELL_HEIGHT);
    if (!this.places || line < 0 || line >= this.places.lines) return -1;
    for (let i = this.places.lineStart[line], end = this.lineEnd(line); i < end; i++) {
      const from = this.places.x[i];
      if (x >= from && x < from + cellWidth(this.branch, this.cells, i)) return i;
    }
    return -1;
  }

  hover(event) {
    const at = this.hit(event);
    this.tip.hidden = at < 0;
    if (at < 0) return;
    if (at !== this.tipAt) clear(this.tip, tokenFacts(this.branch, at));
    this.tipAt = at;
    const box = this.element.getBoundingClientRect();
    this.tip.style.left = `${Math.max(0, Math.min(event.clientX - box.left + 14, box.width - this.tip.offsetWidth - 8))}px`;
    const below = event.clientY + 18 + this.tip.offsetHeight < innerHeight;
    this.tip.style.top = `${event.clientY - box.top + (below ? 18 : -this.tip.offsetHeight - 8)}px`;
  }

  click(event) {
    const at = this.hit(event);
    if (at >= 0) this.select(at, false);
  }

  select(at, scroll = true) {
    if (!this.branch.ids.length) return;
    this.selected = Math.max(0, Math.min(at, this.branch.ids.length - 1));
    if (scroll && this.places) this.reveal(this.selected);
    const entry = this.branch.vocabulary.get(this.branch.ids[this.selected]);
    announce(`Token ${this.selected}: ${cellText(entry, this.branch.ids[this.selected])}`);
    if (this.options.onSelect) this.options.onSelect(this.selected);
    this.draw();
  }

  reveal(token) {
    const top = this.lineOf(token) * CELL_HEIGHT;
    if (top < this.scroller.scrollTop || top + 2 * CELL_HEIGHT > this.scroller.scrollTop + this.height) {
      this.scroller.scrollTop = Math.max(0, top - this.height / 2);
    }
  }

  press(event) {
    const line = this.places ? this.lineOf(Math.max(this.selected, 0)) : 0;
    const page = Math.max(1, Math.floor(this.height / CELL_HEIGHT) - 1);
    const upright = by => {
      const offset = Math.max(this.selected, 0) - this.places.lineStart[line];
      const to = Math.max(0, Math.min(this.places.lines - 1, line + by));
      return Math.min(this.places.lineStart[to] + offset, this.lineEnd(to) - 1);
    };
    const moves = {
      ArrowRight: () => this.selected + 1, ArrowLeft: () => this.selected - 1,
      ArrowDown: () => upright(1), ArrowUp: () => upright(-1), PageDown: () => upright(page), PageUp: () => upright(-page),
      Home: () => 0, End: () => this.branch.ids.length - 1,
    };
    if (!moves[event.key] || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    event.stopPropagation();
    this.select(moves[event.key]());
  }
}

// What is known of one token, as a list of terms.
export function tokenFacts(branch, at) {
  const id = branch.ids[at];
  const entry = branch.vocabulary.get(id);
  const turn = branch.turnAt[at] ? branch.turns[branch.turnAt[at] - 1] : null;
  const lp = branch.logprobs ? branch.logprobs[at] : NaN;
  const trained = branch.trainer ? branch.trainer[at] : NaN;
  const others = alternativesAt(branch, at);
  const picture = pictureAt(branch, at);
  const facts = [
    ["token", h("code", cellText(entry, id))], ["id", String(id)], ["bytes", tokenHex(entry) || "not known"],
    ["position", `${number(at)} of ${number(branch.ids.length)}`],
    ["mask", branch.mask[at] ? "1 (trained)" : "0"],
    !isNaN(lp) && ["logprob", `${lp.toFixed(4)} (${(100 * Math.exp(lp)).toPrecision(3)} %)`],
    !isNaN(trained) && ["trainer's logprob", `${trained.toFixed(4)} (${(100 * Math.exp(trained)).toPrecision(3)} %)`],
    !isNaN(trained - lp) && ["importance ratio", `${Math.exp(trained - lp).toPrecision(4)} (difference ${(trained - lp).toFixed(4)})`],
    others.length > 0 && ["alternatives", h("ul.plain", others.slice(0, ALTERNATIVES_SHOWN).map(([other, p]) =>
      h("li", h("code", cellText(branch.vocabulary.get(other), other)), ` ${other}, ${p.toFixed(4)} (${(100 * Math.exp(p)).toPrecision(3)} %)`)))],
    turn && ["turn", `${branch.turnAt[at]} (${turn.cause})`],
    branch.versionAt[at] > 0 && ["weight version", visible(branch.versions[branch.versionAt[at] - 1], true)],
    entry && entry.special && ["special", "yes"],
    picture && ["picture", `token ${number(at - picture.offset + 1)} of ${number(picture.length)}, grid ${picture.grid_thw.join(" × ")}`],
  ];
  return h("dl.facts", facts.filter(Boolean).map(([name, value]) => [h("dt", name), h("dd", value)]));
}

// Buttons that choose the colouring. `choose` gets the mode; `ratio`: a trainer reported logprobs.
export function colouringBar(current, choose, ratio = false) {
  const bar = h("div.segments", {role: "radiogroup", "aria-label": "Colour tokens by"});
  const draw = mode => clear(bar, COLOURINGS.filter(([name]) => ratio || name !== "ratio").map(([name, title]) => h("button", {
    role: "radio", "aria-checked": name === mode ? "true" : "false", "data-mode": name,
    onclick: () => {
      draw(name);
      choose(name);
      bar.querySelector("[aria-checked=true]").focus();
    },
  }, title)));
  draw(current);
  return bar;
}

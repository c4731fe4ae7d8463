// The logprobs of a whole branch as one strip: the least likely token of every pixel. A click or the arrow keys go there.
import {h, number, perFrame} from "./dom.js";
import {palette, ratioStep, stepOf} from "./colours.js";

const STRIP_HEIGHT = 44;
const BASE = 4;             // height of context
const LOGPROB_MAX = 6;      // fills the strip
const LOG_RATIO_MAX = 1.5;

export class LogprobStrip {
  // pick(position): the user chose a token. mode: "logprob" or "ratio".
  constructor(branch, pick, mode = "logprob") {
    this.branch = branch;
    this.pick = pick;
    this.mode = mode;
    this.at = -1;
    this.draw = perFrame(() => this.paint());
    this.canvas = h("canvas", {height: STRIP_HEIGHT});
    this.element = h("div.strip", {tabindex: 0, role: "slider", "aria-valuemin": 0, "aria-valuemax": branch.ids.length - 1, "aria-valuenow": 0}, this.canvas);
    this.element.addEventListener("pointerdown", e => {
      this.element.setPointerCapture(e.pointerId);
      this.go(e);
    });
    this.element.addEventListener("pointermove", e => this.element.hasPointerCapture(e.pointerId) && this.go(e));
    this.element.addEventListener("keydown", e => this.press(e));
    this.sizes = new ResizeObserver(() => this.resize());
    this.sizes.observe(this.element);
    this.setMode(mode);
  }

  close() {
    this.sizes.disconnect();
  }

  setMode(mode) {
    this.mode = mode === "ratio" && this.branch.trainer ? "ratio" : "logprob";
    this.element.setAttribute("aria-label", this.mode === "ratio" ? "Importance ratio over the whole branch" : "Logprobs over the whole branch");
    this.element.title = this.mode === "ratio" ? "Importance ratio, first token to last: bars up, the trainer finds it likelier; down, less likely"
      : "Logprobs, first token to last: the taller, the less likely";
    this.draw();
  }

  mark(at) {
    this.at = at;
    this.element.setAttribute("aria-valuenow", Math.max(0, at));
    this.element.setAttribute("aria-valuetext", `token ${number(Math.max(0, at))}`);
    this.draw();
  }

  resize() {
    this.scale = window.devicePixelRatio || 1;
    this.width = this.element.clientWidth;
    this.canvas.width = Math.round(this.width * this.scale);
    this.canvas.height = STRIP_HEIGHT * this.scale;
    this.canvas.style.height = `${STRIP_HEIGHT}px`;
    this.canvas.style.width = `${this.width}px`;
    this.draw();
  }

  // The token that stands for a column: the least likely one, or the one whose ratio is furthest from 1.
  worst(from, to) {
    const {logprobs, trainer, mask} = this.branch;
    let best = -1, most = -1;
    for (let i = from; i < to; i++) {
      if (!mask[i]) continue;
      const size = this.mode === "ratio" ? Math.abs(trainer[i] - logprobs[i]) : logprobs ? -logprobs[i] : 0;
      if (!isNaN(size) && size > most) [most, best] = [size, i];
    }
    return best;
  }

  paint() {
    if (!this.width) return;
    const pen = this.canvas.getContext("2d");
    const colours = palette();
    const n = this.branch.ids.length;
    pen.setTransform(this.scale, 0, 0, this.scale, 0, 0);
    pen.fillStyle = colours.none[0];
    pen.fillRect(0, 0, this.width, STRIP_HEIGHT);
    for (let x = 0; x < this.width; x++) {
      const from = Math.floor((x * n) / this.width);
      const to = Math.max(from + 1, Math.floor(((x + 1) * n) / this.width));
      this.paintColumn(pen, colours, x, this.worst(from, to), this.branch.drift, from, to);
    }
    if (this.at >= 0) {
      pen.fillStyle = colours.none[1];
      pen.fillRect(Math.max(0, Math.min(this.width - 2, (this.at * this.width) / n)), 0, 2, STRIP_HEIGHT);
    }
  }

  paintColumn(pen, colours, x, worst, drift, from, to) {
    if (this.mode === "ratio") {
      const middle = STRIP_HEIGHT / 2;
      pen.fillStyle = colours.context[0];
      pen.fillRect(x, middle - 1, 1, 2);
      if (worst < 0) return;
      const log = this.branch.trainer[worst] - this.branch.logprobs[worst];
      const tall = Math.max(1, middle * Math.min(1, Math.abs(log) / LOG_RATIO_MAX));
      pen.fillStyle = colours.ratios[ratioStep(log)][0];
      pen.fillRect(x, log > 0 ? middle - tall : middle, 1, tall);
      return;
    }
    pen.fillStyle = worst < 0 ? colours.context[0] : colours.model[0];
    pen.fillRect(x, STRIP_HEIGHT - BASE, 1, BASE);
    if (worst >= 0 && this.branch.logprobs) {
      const lp = this.branch.logprobs[worst];
      const tall = (STRIP_HEIGHT - BASE - 6) * Math.sqrt(Math.min(1, -lp / LOGPROB_MAX));
      pen.fillStyle = colours.amounts[stepOf(lp)][0];
      pen.fillRect(x, STRIP_HEIGHT - BASE - tall, 1, tall);
    }
    if (drift) for (let i = from; i < to; i++) {
      if (drift[i] !== 1) continue;
      pen.fillStyle = colours.differs[0];
      pen.fillRect(x, 0, 1, 4);
      break;
    }
  }

  go(event) {
    const box = this.element.getBoundingClientRect();
    this.choose(Math.floor(((event.clientX - box.left) / box.width) * this.branch.ids.length));
  }

  choose(at) {
    const to = Math.max(0, Math.min(at, this.branch.ids.length - 1));
    this.mark(to);
    this.pick(to);
  }

  press(event) {
    const step = Math.max(1, Math.round(this.branch.ids.length / 100));
    const moves = {ArrowRight: this.at + step, ArrowLeft: this.at - step, Home: 0, End: this.branch.ids.length - 1};
    if (!(event.key in moves)) return;
    this.choose(moves[event.key]);
    event.preventDefault();
  }
}

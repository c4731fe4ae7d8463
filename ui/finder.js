// The bar over a branch: a search with its hits, and jumps to answers, tools, drift and truncation.
import {h, clear, number} from "./dom.js";

export class Finder {
  // page: {find(words) (a list of hits), showHit(hits, index), showStop(stop), positionOf(stop), position(), words, onWords(words)}
  constructor(page) {
    this.page = page;
    this.hits = [];
    this.hit = -1;
    this.input = h("input.search", {type: "search", id: "find", placeholder: "Search this branch", "aria-label": "Search this branch", value: page.words});
    this.count = h("span.count", {role: "status"});
    this.jumps = h("div.jumps", {role: "group", "aria-label": "Jumps"});
    this.element = h("div.tools.finder", this.input, h("button", {onclick: () => this.step(-1), "aria-label": "Hit before"}, "‹"),
      h("button", {onclick: () => this.step(1), "aria-label": "Next hit"}, "›"), this.count, this.jumps);
    this.origin = -1;        // where a search begins: where one was when the field got the focus
    this.input.addEventListener("focus", () => { this.origin = page.position(); });
    this.input.addEventListener("input", () => {
      page.onWords(this.input.value);
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.searchWords(), 120);
    });
    this.input.addEventListener("keydown", e => {
      if (e.key !== "Enter") return;
      e.preventDefault();
      this.step(e.shiftKey ? -1 : 1);
    });
  }

  close() {
    clearTimeout(this.timer);
  }

  // The search for what was typed last.
  searchWords() {
    clearTimeout(this.timer);
    this.timer = 0;
    this.search(true);
  }

  // Looks again, as the branch or what is shown of it changed; `go`: shows the first hit from here on.
  search(go = false) {
    this.hits = this.input.value.trim() ? this.page.find(this.input.value) : [];
    const from = go ? this.origin : this.page.position();
    this.hit = this.hits.findIndex(hit => this.page.positionOf(hit) >= from);
    if (this.hit < 0 && this.hits.length) this.hit = 0;
    this.page.showHit(this.hits, go ? this.hit : -1);
    this.drawCount();
  }

  step(by) {
    if (this.timer) this.searchWords();
    if (!this.hits.length) return;
    this.hit = (this.hit + by + this.hits.length) % this.hits.length;
    this.page.showHit(this.hits, this.hit);
    this.drawCount();
  }

  drawCount() {
    clear(this.count, this.input.value.trim() ? (this.hits.length ? `${number(this.hit + 1)} of ${number(this.hits.length)}` : "not found") : "");
  }

  // kinds: as stopsOf makes them.
  setStops(kinds) {
    this.kinds = kinds;
    this.drawJumps();
  }

  drawJumps() {
    clear(this.jumps, this.kinds.map(({name, title, stops}) => h("span.jump", {"data-jump": name},
      h("button", {disabled: !stops.length, onclick: () => this.jump(name, -1), "aria-label": `${title} before`}, "‹"),
      h("span", `${title} `, h("b", this.placeIn(stops))),
      h("button", {disabled: !stops.length, onclick: () => this.jump(name, 1), "aria-label": `Next ${title}`}, "›"))));
  }

  // "2/5" at a stop, else their number.
  placeIn(stops) {
    const at = this.page.position();
    const here = stops.findIndex(stop => this.page.positionOf(stop) === at);
    return here >= 0 ? `${number(here + 1)}/${number(stops.length)}` : number(stops.length);
  }

  // To the next stop of a kind from here, and from the last one to the first.
  jump(name, by) {
    const {stops} = this.kinds.find(kind => kind.name === name);
    if (!stops.length) return;
    const at = this.page.position();
    const places = stops.map(stop => this.page.positionOf(stop));
    let to = by > 0 ? places.findIndex(place => place > at) : places.findLastIndex(place => place < at);
    if (to < 0) to = by > 0 ? 0 : stops.length - 1;
    this.page.showStop(stops[to]);
    this.drawJumps();
  }
}

// How training goes: figures of ended sessions over time and by label, where the time goes, and trainer against sampler. All of it comes from GET /stats.
import {h, clear, drawReleased, ago, clock, decimal, foreign, number, percent, seconds, shortId, tableHead, wideTable} from "./dom.js";
import {newestRows, store} from "./store.js";
import {hourMinute, inRange, readRange} from "./range.js";
import {MEASURES, addFigures, causesOf, shownValue} from "./figures.js";
import {timeChart} from "./charts.js";
import {SHARES, timeBar} from "./shares.js";
import {mismatchSection} from "./mismatch.js";
import {groupTable} from "./groups.js";
import {readStats} from "./nodes.js";

const RUN_EVERY_MS = 5000;
const WINDOWS = [[900, "15 min"], [3600, "1 h"], [14400, "4 h"]];
const LABELS = [["", "all sessions"], ["task", "by task"], ["model", "by model"], ["version", "by weights"]];
const CHART_STEPS = [60, 120, 300];      // seconds; the first that gives few enough
const CHART_STEPS_MAX = 120;
const ROWS_SHOWN = 10;
const SPAN_STEP = 14400;         // of the selected span only the sums are read

export function runPage(main, query) {
  const page = new RunPage(main, query);
  page.look();
  return () => page.close();
}

class RunPage {
  constructor(main, query) {
    this.by = LABELS.some(([name]) => name === query.get("by")) ? query.get("by") : "";
    this.window = WINDOWS.some(([s]) => s === Number(query.get("window"))) ? Number(query.get("window")) : 3600;
    this.range = readRange(query);
    this.drawn = query.getAll("label").slice(0, 2);
    this.node = query.get("node") || "";
    this.nodes = [];           // names of the fleet's nodes
    this.cursors = {};         // of charts, by what they draw: they outlive a drawing
    this.fault = h("p.fault", {hidden: true, role: "alert"});
    this.head = h("div.tools");
    this.body = h("div");
    this.related = h("div.columns");
    clear(main, h("div.page", this.head, this.fault, this.body));
    this.drawHead();
    this.stop = store.listen(what => {
      if (what !== "state" && !this.linking) this.linking = setTimeout(() => this.drawLinks(), 1000);
    });
  }

  close() {
    this.ended = true;
    this.stop();
    clearTimeout(this.linking);
    clearTimeout(this.timer);
  }

  tell() {
    const query = new URLSearchParams();
    if (this.node) query.set("node", this.node);
    if (this.by) query.set("by", this.by);
    if (this.window !== 3600) query.set("window", this.window);
    for (const name of this.drawn) query.append("label", name);
    if (this.range) for (const name of ["from", "to"]) query.set(name, this.range[name]);
    history.replaceState(null, "", `#/run${query.size ? `?${query}` : ""}`);
  }

  set(change) {
    Object.assign(this, change);
    this.tell();
    this.drawHead();
    this.look();
  }

  drawHead() {
    const group = (name, all, chosen, choose) => h("div.segments", {role: "radiogroup", "aria-label": name}, all.map(([value, title]) =>
      h("button", {role: "radio", "aria-checked": value === chosen ? "true" : "false", onclick: () => choose(value)}, title)));
    clear(this.head, h("h1", "Run"), group("Window", WINDOWS, this.window, window => this.set({window, range: null})),
      group("Labels", LABELS, this.by, by => this.set({by, drawn: []})),
      this.nodes.length > 0 && h("select", {"aria-label": "Node", onchange: e => this.set({node: e.target.value})}, h("option", {value: "", selected: !this.node}, "all nodes"),
        this.nodes.map(name => h("option", {value: name, selected: name === this.node}, name))),
      this.range && h("span.chip", `${hourMinute(this.range.from)} to ${hourMinute(this.range.to)} `, h("button.link", {onclick: () => this.set({range: null}), "aria-label": "Drop the span"}, "✕")));
  }

  frame() {
    const step = CHART_STEPS.find(s => this.window / s <= CHART_STEPS_MAX) || CHART_STEPS[CHART_STEPS.length - 1];
    const to = Math.ceil(Math.floor(Date.now() / 1000) / step) * step;
    return {from: to - this.window, to, step};
  }

  async look() {
    clearTimeout(this.timer);
    const frame = this.frame();
    const asked = ++this.asked || (this.asked = 1);
    const query = new URLSearchParams(frame);
    if (this.by) query.set("by", this.by);
    try {
      if (document.visibilityState === "visible" || !this.stats) {
        const [stats, ranged] = await Promise.all([readStats(query, this.node), this.range && readStats(new URLSearchParams({...this.range, step: SPAN_STEP}), this.node)]);
        if (this.ended || asked !== this.asked) return;
        this.stats = stats;
        this.ranged = ranged || stats;
        if (String(stats.nodes) !== String(this.nodes)) {
          this.nodes = stats.nodes;
          this.drawHead();
        }
      }
      this.fault.hidden = true;
      drawReleased(this.body, () => !this.ended && this.draw(frame));
    } catch (error) {
      if (this.ended || asked !== this.asked) return;
      this.fault.hidden = false;
      clear(this.fault, `The gateway does not answer: ${error.message}`);
    }
    this.timer = setTimeout(() => this.look(), RUN_EVERY_MS);
  }

  // What the charts draw: all sessions, or the labels that were chosen.
  series() {
    const rows = this.drawn.map(name => this.stats.rows.find(r => labelOf(r) === name)).filter(Boolean);
    return rows.length ? rows.map(r => ({name: labelOf(r), steps: r.series, total: r.total})) : [{name: "all", steps: this.stats.series, total: this.stats.total}];
  }

  // Figures of the selected span, else of the whole window.
  figuresOf(series) {
    if (!this.range) return series.total;
    return addFigures(series.steps.filter(s => inRange(this.range, s.at)));
  }

  draw(frame) {
    const series = this.series();
    const figures = series.map(s => this.figuresOf(s));
    const main = this.range ? addFigures(this.stats.series.filter(s => inRange(this.range, s.at))) : this.stats.total;
    const box = this.body.closest("main");
    const scroll = box.scrollTop;
    const focused = this.body.contains(document.activeElement) && focusedPlace(document.activeElement);
    clear(this.body, this.notes(),
      series.length > 1 && h("div.legend", series.map((s, i) => h("span.key", h(`i.swatch.series${i}`), foreign(s.name)))),
      h("div.tiles.measures", MEASURES.map(measure => this.tile(measure, frame, series, figures))),
      this.by && this.rowTable(),
      h("div.columns", h("section", h("h2", "How sessions ended"), causeTable(main)), h("section", h("h2", "Where the time goes"), timeSection(main))),
      this.stats.slowest.length > 0 && h("section", h("h2", "Slowest rollouts"), slowestTable(this.ranged.slowest)),
      mismatchSection(this.ranged.mismatch), this.related);
    this.drawLinks();
    box.scrollTop = scroll;
    if (focused) this.body.querySelector(focused)?.focus({preventScroll: true});
  }

  notes() {
    const {unreachable, since, evaluation} = this.stats;
    return h("p.quiet", `Sessions that ended, counted since ${clock(since)}.`, evaluation.sessions > 0 && ` Evaluation apart: ${number(evaluation.sessions)} sessions, reward ${shownValue(MEASURES[0], evaluation)}.`,
      unreachable.length > 0 && h("span.warning", ` Without the nodes ${unreachable.join(", ")}.`));
  }

  tile(measure, frame, series, figures) {
    const points = series.map(s => ({name: s.name, points: s.steps.map(step => ({at: step.at, value: measure.value(step), spread: measure.spread ? measure.spread(step) : undefined})).filter(p => p.value !== null && p.value !== undefined)}));
    const spread = measure.spread && figures.length === 1 && figures[0] ? measure.spread(figures[0]) : null;
    return h("div.tile", {"data-measure": measure.name, title: measure.title}, h("h3", measure.name),
      h(`div.big${figures.length > 1 ? ".two" : ""}`, figures.map((f, i) => h("span", figures.length > 1 && h(`i.swatch.series${i}`), shownValue(measure, f), " ")), spread !== null && h("span.more", `± ${measure.show(spread)}`)),
      timeChart(frame, points, {title: measure.name, show: measure.show, range: this.range, onRange: range => this.set({range}), cursor: this.cursors[measure.name] ??= {}}));
  }

  rowTable() {
    const title = LABELS.find(([name]) => name === this.by)[1];
    const shown = MEASURES.filter(m => m.name !== "Failures");
    const rows = this.stats.rows.map(r => ({row: r, figures: this.figuresOf({steps: r.series, total: r.total})})).filter(r => r.figures && r.figures.sessions > 0)
      .sort((a, b) => b.figures.sessions - a.figures.sessions);
    if (!rows.length) return h("p.empty", "No session of this span has such a label.");
    return h("section", h("h2", `${title[0].toUpperCase()}${title.slice(1)}`), wideTable(title, "table.labels", tableHead([h("span.unseen", "draw"), this.by === "version" ? "weights" : this.by, ...shown.map(m => m.name)], shown.map(m => m.name)),
      h("tbody", rows.map(({row, figures}) => h("tr", {"data-label": labelOf(row)},
        h("td", h("input", {type: "checkbox", checked: this.drawn.includes(labelOf(row)), "aria-label": `Draw ${labelOf(row)}`, onchange: e => this.pick(labelOf(row), e.target.checked)})),
        h("td", row.other ? "others" : this.by === "task" ? h("a", {href: `#/sessions?${new URLSearchParams({q: `task=${row.name}`, ...this.range})}`}, foreign(row.name)) : foreign(row.name)),
        shown.map(m => h("td.num", shownValue(m, figures))))))), h("p.quiet", "Tick up to two to draw them over each other."));
  }

  pick(name, on) {
    const rest = this.drawn.filter(n => n !== name);
    this.set({drawn: on ? [...rest, name].slice(-2) : rest});
  }

  // The sessions and groups of the span, newest first, and the way to all of them.
  drawLinks() {
    this.linking = null;
    const range = this.range || {from: this.frame().from, to: this.frame().to};
    const q = new URLSearchParams(range);
    const sessions = newestRows(ROWS_SHOWN, r => inRange(range, r.updated_at) && r.phase !== "open");
    const groups = [...store.groups.values()].filter(g => inRange(range, g.settled_at ?? g.submitted_at)).sort((a, b) => b.submitted_at - a.submitted_at);
    clear(this.related, h("section", h("h2", "Sessions ", h("a.small", {href: `#/sessions?${q}`}, `all ${number(sessions.all)}`)), h("ul.plain", sessions.rows.map(r => h("li",
      h("a", {href: `#/sessions/${r.session_id}`}, foreign(shortId(r.session_id))), " ", h(`span.phase.${r.phase}`, r.phase), ` reward ${decimal(r.reward)}, ${ago(r.updated_at)} ago`))), !sessions.all && h("p.empty", store.loading ? "Reading …" : "None in memory.")),
    groups.length > 0 && h("section", h("h2", "Groups ", h("a.small", {href: `#/groups?${q}`}, `all ${number(groups.length)}`)), groupTable(groups.slice(0, ROWS_SHOWN))));
  }
}

// How the element that has the focus is found again after a drawing; null: it needs no focus.
function focusedPlace(element) {
  if (element.matches(".timechart")) return `[data-measure="${CSS.escape(element.parentElement.dataset.measure)}"] .timechart`;
  const label = element.closest("[data-label]");
  return label ? `[data-label="${CSS.escape(label.dataset.label)}"] ${element.tagName}` : null;
}

function labelOf(row) {
  return row.other ? "(others)" : String(row.name);
}

function causeTable(figures) {
  const causes = figures ? causesOf(figures) : [];
  const most = Math.max(1, ...causes.map(([, n]) => n));
  return causes.length ? h("table.causes", h("caption.unseen", "Ends of sessions and attempts"), h("tbody", causes.map(([name, n]) => h("tr", h("td", name), h("td.num", number(n)),
    h("td.barcell", h("i.bar", {style: {width: `${(100 * n) / most}%`}}))))) ) : h("p.empty", "No session ended in this span.");
}

// Shares of calls, and what executors measured themselves against what the calls let one estimate.
function timeSection(figures) {
  const bar = figures && timeBar(figures.time_s, "Time of the run");
  if (!bar) return h("p.empty", "No session ended in this span.");
  const estimated = SHARES.reduce((sum, name) => sum + (name === "scoring" ? 0 : figures.time_s[name] || 0), 0);
  const attempts = Object.values(figures.attempts || {}).reduce((a, b) => a + b, 0);
  return [bar, attempts > 0 && h("dl.facts.wide", [
    figures.attempt_run_s > 0 && ["executors measured", `${seconds(figures.attempt_run_s)} of runs, ${seconds(figures.attempt_score_s)} of scoring, in ${number(attempts)} attempts`],
    ["estimated from calls", `${seconds(estimated)} of runs, ${seconds(figures.time_s.scoring)} of scoring, in ${number(figures.sessions)} sessions`],
  ].filter(Boolean).map(([k, v]) => [h("dt", k), h("dd", v)]))];
}

function slowestTable(rows) {
  if (!rows.length) return h("p.empty", "None of the slowest ended in this span.");
  const names = ["session", "run time", "waited for", "shares", "turns", "tokens", "reward", "end", "group"];
  return wideTable("Slowest rollouts", "table.slowest", tableHead(names, ["run time", "turns", "tokens", "reward"]), h("tbody", rows.map(s => h("tr",
    h("td.done", s.ended === "aborted" ? h("span", {title: "Nothing is kept of an aborted session"}, foreign(shortId(s.session_id))) : h("a", {href: `#/sessions/${s.session_id}`}, foreign(shortId(s.session_id)))), h("td.num", seconds(s.run_s)), h("td", h("b", s.waited_for), ` ${percent(s.time_s[s.waited_for] / s.run_s)}`),
    h("td.shared", timeBar(s.time_s)?.firstChild), h("td.num", number(s.turns)), h("td.num", number(s.tokens)), h("td.num", decimal(s.reward)), h("td", {title: clock(s.ended_at)}, `${s.ended.replace(/_/g, " ")}, ${ago(s.ended_at)} ago`),
    h("td", s.group ? h("a", {href: `#/groups/${encodeURIComponent(s.group)}`}, foreign(s.group)) : "–")))));
}

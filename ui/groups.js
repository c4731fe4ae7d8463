// Groups of rollouts, the queues they settle into, and one group with its members.
import {h, clear, drawReleased, number, decimal, ago, clock, foreign, seconds, shortId, longText, tableHead, wideTable} from "./dom.js";
import {json, post} from "./api.js";
import {store} from "./store.js";
import {addFigures} from "./figures.js";
import {timeBar} from "./shares.js";
import {inRange, rangeChip, readRange} from "./range.js";

const SHOWN_MAX = 500;

function progress(group) {
  const part = n => `${(100 * n) / Math.max(group.n, 1)}%`;
  return h("span.progress", {role: "img", "aria-label": `${group.succeeded} of ${group.n} succeeded, ${group.running} running`},
    h("i.done", {style: {width: part(group.succeeded)}}), h("i.doing", {style: {width: part(Math.min(group.running, group.n - group.succeeded))}}));
}

export function queueTable(queues) {
  const names = ["queue", "waiting", "running", "rollouts running", "settled", "taken", "acknowledged", "oldest", "blocked runners"];
  return wideTable("Queues", "table", tableHead(names, ["waiting", "running", "rollouts running", "settled", "taken", "acknowledged", "oldest"]), h("tbody", queues.map(q => h("tr",
    h("td", foreign(q.queue)), ...["waiting", "running", "rollouts_running", "settled", "taken", "acked_total"].map(k => h("td.num", number(q[k]))),
    h("td.num", q.oldest_s === null || q.oldest_s === undefined ? "–" : seconds(Math.round(q.oldest_s))),
    h("td", (q.blocked || []).length ? q.blocked.map(b => [foreign(b.runner), " (", foreign(b.reason), ") "]) : "–")))));
}

export function runnerTable(runners) {
  const outcomes = ["ok", "timeout", "error", "infra", "cancelled"];
  const names = ["runner", "running", "free slots", ...outcomes, "blocked"];
  return wideTable("Runners", "table", tableHead(names, ["running", "free slots", ...outcomes]), h("tbody", runners.map(r => h("tr",
    h("td", foreign(r.runner)), h("td.num", number(r.running)), h("td.num", number(r.free_slots)), outcomes.map(o => h("td.num", number(r.outcomes[o]))), h("td", r.blocked ? foreign(r.blocked) : "–")))));
}

export function groupTable(groups) {
  const names = ["group", "state", "progress", "queue", "runner", "version", "submitted", "waits for"];
  return wideTable("Groups", "table.groups", tableHead(names),
    h("tbody", groups.slice(0, SHOWN_MAX).map(g => h("tr", h("td.name", h("a", {href: `#/groups/${encodeURIComponent(g.id)}`}, foreign(g.id))),
      h("td", h(`span.state.${g.state}`, g.state)), h("td.done", progress(g), ` ${g.succeeded}/${g.n}`), h("td", foreign(g.queue ?? "–")), h("td", foreign(g.runner)),
      h("td", foreign(g.version ?? "–")), h("td", {title: clock(g.submitted_at)}, ago(g.submitted_at)), h("td.why", g.waits ? foreign(g.waits) : "–")))));
}

// Whether a group has every word of the search.
function groupMatches(group, words) {
  const hay = `${group.id} ${group.state} ${group.queue || ""} ${group.runner}`.toLowerCase();
  return words.every(word => hay.includes(word));
}

export function groupsPage(main, query) {
  const range = readRange(query);
  const queues = h("div");
  const runners = h("div");
  const groups = h("div");
  const search = h("input.search", {type: "search", id: "search", placeholder: "Search: id, state, queue, runner", "aria-label": "Search groups", value: query.get("q") || ""});
  const count = h("span.count", {role: "status"});
  clear(main, h("div.page", h("div.tools", h("h1", "Groups"), search, rangeChip(range, "#/groups"), count)));
  let timer = null;
  const box = h("div", groups, h("section", h("h2", "Queues"), queues), h("section", h("h2", "Runners"), runners));
  const draw = () => {
    timer = null;
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const all = [...store.groups.values()].filter(g => groupMatches(g, words) && (!range || inRange(range, g.settled_at ?? g.submitted_at))).sort((a, b) => b.submitted_at - a.submitted_at);
    const empty = h("p.empty", store.loading ? "Reading …" : "None.");
    clear(queues, store.queues.size ? queueTable([...store.queues.values()]) : empty.cloneNode(true));
    clear(runners, store.runners.size ? runnerTable([...store.runners.values()]) : empty.cloneNode(true));
    clear(groups, all.length ? groupTable(all) : empty, all.length > SHOWN_MAX && h("p.more", `The newest ${SHOWN_MAX} of ${number(all.length)} groups.`));
    clear(count, `${number(all.length)} of ${number(store.groups.size)}`);
  };
  draw();
  main.firstChild.append(box);
  search.addEventListener("input", draw);
  const stop = store.listen(what => {
    if (what === "groups" && !timer) timer = setTimeout(() => drawReleased(box, draw), 300);
  });
  return () => {
    stop();
    clearTimeout(timer);
  };
}

// What is known of the sessions of a group's rollouts: rollout -> row. The newest wins: a rollout may have several attempts.
function rowsOf(id) {
  const out = new Map();
  for (const row of store.sessions.values()) {
    if (row.group !== id || typeof row.rollout !== "number") continue;
    const known = out.get(row.rollout);
    if (!known || known.created_at < row.created_at) out.set(row.rollout, row);
  }
  return out;
}

// Mean and standard deviation of known rewards; null without any.
function spreadOf(rewards) {
  const known = rewards.filter(r => typeof r === "number");
  if (!known.length) return null;
  const mean = known.reduce((a, b) => a + b, 0) / known.length;
  return {n: known.length, mean, deviation: Math.sqrt(known.reduce((a, b) => a + (b - mean) ** 2, 0) / known.length)};
}

// How far a reward is from its group's mean, in standard deviations; 0 if all are equal.
function advantageOf(reward, spread) {
  if (typeof reward !== "number" || !spread) return null;
  return spread.deviation > 1e-9 ? (reward - spread.mean) / spread.deviation : 0;
}

// A number with a bar from the middle, to the right if it is positive. `most` fills a side.
function signedBar(value, most) {
  if (value === null) return "–";
  const wide = `${Math.round(50 * Math.min(1, Math.abs(value) / most))}%`;
  return [h("span.signed", {"aria-hidden": "true"}, h(`i.${value < 0 ? "minus" : "plus"}`, {style: {width: wide}})), h("span.amount", `${value > 0 ? "+" : ""}${value.toFixed(2)}`)];
}

const MEMBER_COLUMNS = ["", "rollout", "state", "outcome", "reward", "advantage", "turns", "tokens", "trained", "time", "session", "why"];
const MEMBER_NUMBERS = ["rollout", "reward", "advantage", "turns", "tokens", "trained", "time"];

const failed = m => m.state === "failed" || (m.outcome && m.outcome !== "ok");

// The end of an attempt's output: its last line, and the rest on demand.
function logOf(member) {
  if (!member.log_tail) return null;
  const last = member.log_tail.trimEnd().split("\n").pop();
  return h("details.log", h("summary", h("code", foreign(last.slice(0, 160)))), longText(member.log_tail, "text.data"));
}

function memberRow(m, row, spread, most, picked, pick) {
  const id = m.session_id || row?.session_id;
  const turns = row ? row.turns ?? row.calls : null;
  const bad = failed(m) || row?.truncated_turns > 0;
  return h("tr", {"data-rollout": m.rollout},
    h("td", h("input", {type: "checkbox", disabled: !id, checked: picked.includes(id), "aria-label": `Compare rollout ${m.rollout}`, onchange: e => pick(id, e.target.checked)})),
    h("td.num", number(m.rollout)), h("td", h(`span.state.${m.state}`, m.state), m.attempts > 1 && h("span.quiet", ` attempt ${m.attempts}`)), h("td", m.outcome || "–"),
    h("td.num", decimal(m.reward)), h("td.num.advantage", signedBar(advantageOf(m.reward, spread), most)), h("td.num", number(turns)), h("td.num", number(row ? row.tokens : null)),
    h("td.num", number(m.trained_tokens)), h("td.num", seconds(row?.time_s?.run ?? (row ? row.updated_at - row.created_at : null))),
    h("td.done", id ? h("a", {href: `#/sessions/${id}`}, foreign(shortId(id))) : "–"),
    h("td.why", m.reason && h("div", foreign(m.reason)), logOf(m), bad && id && h("a", {href: `#/sessions/${id}?jump=fault`}, "first failing turn"), !m.reason && !m.log_tail && !bad && "–"));
}

function memberTable(group, rows, picked, pick) {
  const spread = spreadOf(group.members.map(m => m.reward));
  const most = Math.max(1, ...group.members.map(m => Math.abs(advantageOf(m.reward, spread) ?? 0)));
  return wideTable("Members", "table.members", tableHead(MEMBER_COLUMNS.map(c => c || h("span.unseen", "compare")), MEMBER_NUMBERS),
    h("tbody", group.members.map(m => memberRow(m, rows.get(m.rollout), spread, most, picked, pick))));
}

function groupFacts(group, rows) {
  const spread = spreadOf(group.members.map(m => m.reward));
  const passed = group.members.filter(m => m.reward >= 1).length;
  const labels = Object.entries(group.labels || {}).map(([k, v]) => `${k}=${v}`).join(" ");
  const times = timeBar(addFigures([...rows.values()].map(row => row.time_s)), "Time of the group");
  return [
    ["progress", [progress(group), ` ${group.succeeded} of ${group.n} succeeded, ${group.running} running`]],
    ["reward", spread ? `${decimal(spread.mean)} ± ${decimal(spread.deviation)}, ${passed} of ${spread.n} pass (reward 1 or more)` : "not known yet"],
    ["queue, runner", [foreign(group.queue ?? "–"), ", ", foreign(group.runner)]],
    labels && ["labels", foreign(labels)],
    ["submitted", h("span", {title: clock(group.submitted_at)}, `${ago(group.submitted_at)} ago`)],
    group.settled_at && ["settled", h("span", {title: clock(group.settled_at)}, `after ${seconds(group.settled_at - group.submitted_at)}`)],
    times && ["time", times],
    (group.version ?? group.min_version) !== null && ["weights", [group.version !== null && ["submitted with ", foreign(group.version)], group.min_version !== null && ` sampled by ${group.min_version} to ${group.max_version}`]],
  ].filter(Boolean);
}

const RETRY_MS = 2000;
const GONE = [404, 410];
const SETTLED = ["finished", "partial", "failed", "cancelled"];

class GroupPage {
  constructor(main, id) {
    this.id = id;
    this.picked = [];
    this.rows = new Map();
    this.asked = new Set();      // sessions whose row was asked for: they are in no list any more
    this.compare = h("button", {onclick: () => { location.hash = `#/compare?a=${this.picked[0]}&b=${this.picked[1]}`; }});
    this.head = h("div.tools", h("h1", "Group ", foreign(id)));
    this.body = h("div");
    clear(main, h("div.page", this.head, this.body));
    this.known = store.groups.has(id);
    this.draw();
    this.stop = store.listen((what, ids) => {
      if (what === "state" || this.timer || (what === "sessions" && !ids.some(one => store.sessions.get(one)?.group === id))) return;
      this.timer = setTimeout(() => this.changed(), 500);
    });
  }

  close() {
    this.ended = true;
    this.stop();
    clearTimeout(this.timer);
  }

  changed() {
    this.timer = null;
    this.known = this.known || store.groups.has(this.id);
    if (this.known && !store.groups.has(this.id)) clear(this.body, h("p.empty", "The group is gone: it was acknowledged or cancelled. "), h("a", {href: "#/groups"}, "All groups"));
    else this.draw();
  }

  async draw() {
    try {
      const turn = this.turn = (this.turn || 0) + 1;
      const group = await json(`/groups/${encodeURIComponent(this.id)}?deliver=false`);
      if (this.ended || turn !== this.turn) return;
      this.group = group;
      this.showReleased();
      await this.readRows();
    } catch (error) {
      if (!this.ended) clear(this.body, h("p.fault", {role: "alert"}, error.message), h("p", h("a", {href: "#/groups"}, "All groups")));
    }
  }

  // Sessions that ended are in the list no more: each is asked for once, and again if the gateway could not answer.
  async readRows() {
    let read = false;
    for (const m of this.group.members) {
      if (!m.session_id || store.sessions.has(m.session_id) || this.asked.has(m.session_id)) continue;
      this.asked.add(m.session_id);
      try {
        const s = await json(`/sessions/${m.session_id}`);
        this.rows.set(m.rollout, {...s, calls: s.num_calls, tokens: s.num_tokens});
        read = true;
      } catch (error) {
        if (GONE.includes(error.status)) continue;      // its row stays without these figures
        this.asked.delete(m.session_id);
        if (!this.timer && !this.ended) this.timer = setTimeout(() => this.changed(), RETRY_MS);
      }
      if (this.ended) return;
    }
    if (read) this.showReleased();
  }

  showReleased() {
    drawReleased(this.body, () => !this.ended && this.show());
  }

  // The sessions of the members: a row that has left the list stays here as it was.
  rowsNow() {
    for (const [rollout, row] of rowsOf(this.id)) {
      const known = this.rows.get(rollout);
      if (!known || known.created_at <= row.created_at) this.rows.set(rollout, row);
    }
    return this.rows;
  }

  show() {
    const {group} = this;
    const rows = this.rowsNow();
    const focused = this.body.contains(document.activeElement) && document.activeElement.closest("tr")?.dataset.rollout;
    const open = new Set([...this.body.querySelectorAll("details.log[open]")].map(e => e.closest("tr").dataset.rollout));
    clear(this.head, h("h1", "Group ", foreign(this.id)), h(`span.state.${group.state}`, group.state), h("span.spacer"), this.compare,
      !SETTLED.includes(group.state) && h("button.danger", {onclick: () => this.cancel()}, "Cancel the group …"));
    clear(this.body, group.waits && h("p.banner", {role: "status"}, h("strong", "Waits: "), foreign(group.waits)),
      h("dl.facts.wide.paired", groupFacts(group, rows).map(([k, v]) => [h("dt", k), h("dd", v)])),
      memberTable(group, rows, this.picked, (id, on) => this.pick(id, on)),
      h("p.quiet", "Advantage: the reward's distance from the group's mean, in standard deviations."));
    for (const e of this.body.querySelectorAll("details.log")) e.open = open.has(e.closest("tr").dataset.rollout);
    if (focused) this.body.querySelector(`tr[data-rollout="${focused}"] input`)?.focus();
    this.drawPicked();
  }

  pick(id, on) {
    this.picked = this.picked.filter(p => p !== id);
    if (on) this.picked = [...this.picked, id].slice(-2);
    this.show();
  }

  drawPicked() {
    clear(this.compare, this.picked.length === 2 ? "Compare the two" : "Compare: pick two");
    this.compare.disabled = this.picked.length !== 2;
  }

  async cancel() {
    if (!confirm(`Cancel the group ${this.id}? Its running attempts end, and their sessions are aborted.`)) return;
    await post(`/groups/${encodeURIComponent(this.id)}/cancel`, {});
    location.hash = "#/groups";
  }
}

export function groupPage(main, id) {
  const page = new GroupPage(main, id);
  return () => page.close();
}

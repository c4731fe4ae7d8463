// One session: its forest, one branch of it as a conversation or as tokens, its audit, its files, and what runs now.
import {h, clear, copyText, counted, number, decimal, ago, clock, foreign, visible, shortId, longText, perFrame, tableHead} from "./dom.js";
import {sessionState, branchBytes, curl, download, embedded, follow, json, key, keySession, post, saveBlob} from "./api.js";
import {pictureAt, readBranch, textOf} from "./branch.js";
import {pictureBox} from "./pictures.js";
import {LiveMark, drawForest} from "./forest.js";
import {drawConversation} from "./conversation.js";
import {TokenGrid, colouringBar, tokenFacts} from "./tokens.js";
import {driftOf} from "./drift.js";
import {labelText} from "./sessions.js";

const FORMATS = [["json", "json"], ["msgpack", "msgpack"], ["safetensors", "safetensors"], ["verl", "safetensors"], ["miles", "safetensors"],
  ["areal", "safetensors"], ["slime", "json"], ["prime-rl", "json"], ["openai-messages", "jsonl"],
  ["prefix-tree", "safetensors"], ["skyrl", "json"], ["nemo-gym", "json"], ["atif", "json"]];
const LIVE_SHOWN = 20000;

// Tokens of a running call, as its events tell them.
class LiveCall {
  constructor(call, parent) {
    this.call = call;
    this.parent = parent;      // the response id of the answer that it goes on from, or null
    this.mark = new LiveMark(call);
    this.samples = new Map();
    this.element = h("li.message.assistant.live", {"data-call": call}, h("div.top", h("span.role", "assistant"), h("span.badge.running", "running"), h("span.spacer"),
      this.count = h("span.quiet", "waits for the engine")), this.body = h("div"));
  }

  take(data) {
    const known = !data.so_far && this.samples.get(data.index);
    const sample = known || {text: "", tokens: 0, decoder: new TextDecoder()};
    this.samples.set(data.index, sample);
    sample.text += data.text || "";
    for (const [id, text, , spelt] of data.tokens) sample.text += this.tokenText(sample, id, text, spelt);
    sample.tokens += data.n;
    this.draw();
  }

  // Characters may be split over tokens.
  tokenText(sample, id, text, spelt) {
    if (spelt) return sample.decoder.decode(Uint8Array.from(atob(spelt), c => c.charCodeAt(0)), {stream: true});
    return sample.decoder.decode(new Uint8Array(0), {stream: true}) + (text ?? `‹${id}›`);
  }

  draw() {
    const all = [...this.samples.values()];
    const tokens = all.reduce((n, s) => n + s.tokens, 0);
    this.mark.tell(tokens);
    clear(this.count, counted(tokens, "token"));
    clear(this.body, all.map(s => h("pre.text", {dir: "auto"}, visible(s.text.slice(-LIVE_SHOWN)))));
  }
}

function copyButton(title, text) {
  const button = h("button", {onclick: async () => {
    clear(button, await copyText(text) ? "Copied" : "The browser does not let it be copied");
  }}, title);
  return button;
}

export function sessionPage(main, id, query) {
  const page = new SessionPage(main, id, query);
  page.open();
  return () => page.close();
}

class SessionPage {
  constructor(main, id, query) {
    this.id = id;
    this.response = query.get("at");
    this.tab = query.get("tab") || "conversation";
    this.mode = query.get("colour") || "mask";
    this.at = query.has("token") ? Number(query.get("token")) : -1;
    this.live = new Map();
    this.head = h("div");
    this.forest = h("section");
    this.tabs = h("div.tabs", {role: "tablist"});
    this.body = h("div.body", {role: "tabpanel"});
    this.liveList = h("ol.talk.livelist");
    clear(main, h("div.page", this.head, this.forest, this.tabs, this.body, this.liveList));
    this.redraw = perFrame(() => !this.ended && this.state && this.drawForest());
  }

  close() {
    this.ended = true;
    if (this.stop) this.stop();
    if (this.grid) this.grid.close();
    clearTimeout(this.timer);
  }

  async open() {
    await this.refresh();
    if (embedded || this.ended || !this.state) return;
    this.stop = follow(`/sessions/${this.id}/events`, (name, data) => this.take(name, data), state => {
      if (state === "live") this.dropLive();      // what runs is told anew
      this.head.querySelector(".streaming")?.replaceChildren(state === "live" ? "live" : state === "lost" ? "reconnecting" : "");
    });
  }

  dropLive() {
    this.live.clear();
    clear(this.liveList);
    this.redraw();
  }

  // An event of the session.
  take(name, data) {
    if (name === "call") {
      if (this.live.has(data.call)) return;
      const call = new LiveCall(data.call, data.parent);
      this.live.set(data.call, call);
      this.liveList.append(call.element);
      this.redraw();
    } else if (name === "tokens") {
      if (!this.live.has(data.call)) this.take("call", data);
      this.live.get(data.call).take(data);
    } else if (name === "call_end") {
      const call = this.live.get(data.call);
      this.live.delete(data.call);
      if (call) call.element.remove();
      this.redraw();
    } else if (name === "session" || name === "reset") {
      if (name === "reset" || !this.state || data.updated_at !== this.state.updated_at) this.later();
    } else if (name === "session_gone") {
      this.fail(new Error("The session was deleted."));
    }
  }

  later() {
    if (this.timer) return;
    this.timer = setTimeout(() => {
      this.timer = null;
      this.refresh();
    }, 250);
  }

  fail(error) {
    clear(this.head, h("h1", "Session ", shortId(this.id)), h("p.fault", {role: "alert"}, error.message));
  }

  async refresh() {
    try {
      const newest = this.state && this.newest;
      this.state = await sessionState(this.id);
      if (this.ended) return;
      this.nodes = new Map(this.state.tree.nodes.filter(n => n.generated).map(n => [n.response_id, n]));
      const answers = [...this.nodes.values()];
      this.newest = answers.reduce((a, b) => (!a || b.seq > a.seq ? b : a), null)?.response_id;
      if (!this.response || !this.nodes.has(this.response) || (this.response === newest && this.newest !== newest)) this.response = this.endOf(this.newest);
      this.drawHead();
      this.drawForest();
      this.drawTabs();
      await this.show();
    } catch (error) {
      if (!this.ended) this.fail(error);
    }
  }

  drawHead() {
    const s = this.state;
    const admin = !embedded && !keySession();
    const forks = Object.entries(s.forks_by_cause).map(([k, v]) => [k, k === "new_root" ? v - 1 : v]).filter(([, v]) => v > 0);    // the first root left nothing
    const rewards = Object.keys(s.reward_info).length ? JSON.stringify(s.reward_info) : "none";
    clear(this.head,
      h("div.tools", h("h1", "Session ", h("code.id", s.session_id)), h(`span.phase.${s.phase}`, s.phase), h("span.quiet.streaming"), h("span.spacer"),
        !embedded && h("details.menu", h("summary.button", "Copy as curl"), h("div.menubox", this.curls())),
        !embedded && h("details.menu", h("summary.button", "Download"), h("div.menubox", this.downloads(admin))),
        admin && s.phase === "open" && h("button.danger", {onclick: () => this.abort()}, "Abort …")),
      h("dl.facts.wide.paired", [
        ["labels", foreign(labelText(s) || "none")], ["history", `${s.history}, ${s.message_matcher}`],
        ["calls", `${number(s.num_calls)}, ${number(s.num_inflight_generations)} running`], ["branches", number(s.num_branches)], ["tokens", number(s.num_tokens)],
        ["reward", `${decimal(s.reward)} (${visible(rewards, true)})`], s.reason && ["ended because", foreign(s.reason)],
        ["created", h("span", {title: clock(s.created_at)}, `${ago(s.created_at)} ago`)], ["last activity", h("span", {title: clock(s.updated_at)}, `${ago(s.updated_at)} ago`)],
        forks.length > 0 && ["forks", forks.map(([k, v]) => `${k} ${v}`).join(", ")],
        Object.keys(s.metadata).length > 0 && ["metadata", h("details", h("summary", "show"), longText(JSON.stringify(s.metadata, null, 1), "text.data"))],
      ].filter(Boolean).map(([k, v]) => [h("dt", k), h("dd", v)])));
  }

  curls() {
    const paths = [["state", ""], ["state with records", "?records=1"], !keySession() && ["trajectories", "/trajectories"],
      this.response && ["this branch's tokens", `/tokens?branch=${this.response}`, `-o ${this.id}.safetensors `], ["events", "/events", "-N "]].filter(Boolean);
    return [paths.map(([name, rest, options]) => copyButton(name, curl(`/sessions/${this.id}${rest}`, options))), key() && h("p.quiet", "Set ROLLGATE_KEY in your shell.")];
  }

  downloads(admin) {
    const button = (name, path, file) => h("button", {onclick: async e => {
      try {
        await download(path, file);
      } catch (error) {
        clear(e.target, `${name}: ${error.message}`);
      }
    }}, name);
    return [button("state and records (JSON)", `/sessions/${this.id}?records=1`, `${this.id}.state.json`),
      admin && FORMATS.map(([format, ending]) => button(format, `/sessions/${this.id}/trajectories?format=${format}`, `${this.id}.${format}.${ending}`))];
  }

  async abort() {
    if (!confirm(`Abort the session ${this.id}? Its running calls end, and it can be neither continued nor exported.`)) return;
    try {
      await post(`/sessions/${this.id}/abort`, {});
    } catch (error) {
      alert(error.message);
    }
    this.later();
  }

  rewards() {
    return this.state.turn_rewards || {};
  }

  drawForest() {
    const live = [...this.live.values()];
    if (!this.state.tree.nodes.length && !live.length) {
      clear(this.forest, h("p.empty", "No answer has been recorded yet."));
      return;
    }
    const scroll = this.forest.querySelector(".scroll")?.scrollLeft || 0;
    const focused = this.forest.contains(document.activeElement) && document.activeElement.dataset.response;
    clear(this.forest, drawForest(this.state, {selected: this.response, rewards: this.rewards(), live, choose: node => this.choose(node.response_id)}));
    const box = this.forest.querySelector(".scroll");
    box.scrollLeft = scroll;
    if (focused) this.forest.querySelector(`.answer[data-response="${CSS.escape(focused)}"]`)?.focus({preventScroll: true});
  }

  // In an exported page only whole branches stand: of an answer within one, its end is shown.
  endOf(response) {
    const chosen = this.nodes.get(response);
    if (!embedded || embedded.branches[response] || !chosen) return response;
    const leaf = this.state.tree.leaves.find(l => l.path_node_ids.includes(chosen.id));
    const end = leaf && [...this.nodes.values()].find(n => n.id === leaf.node_id);
    return end ? end.response_id : response;
  }

  choose(response) {
    this.response = this.endOf(response);
    this.branch = null;
    this.at = -1;
    this.drawForest();
    this.forest.querySelector(".answer.chosen")?.focus();
    this.tell();
    this.show();
  }

  // The place in the address, so that it can be sent to somebody.
  tell() {
    const query = new URLSearchParams({at: this.response || "", tab: this.tab});
    if (this.tab === "tokens") query.set("colour", this.mode);
    if (this.at >= 0) query.set("token", this.at);
    history.replaceState(null, "", `#/sessions/${this.id}?${query}`);
  }

  drawTabs() {
    const names = [["conversation", "Conversation"], ["tokens", "Tokens"], ["drift", "Drift audit"], ["turns", "Turns"], ["json", "JSON"]];
    clear(this.tabs, names.map(([name, title]) => h("button", {role: "tab", "aria-selected": this.tab === name ? "true" : "false", "data-tab": name, onclick: () => {
      this.tab = name;
      this.drawTabs();
      this.tell();
      this.show();
      this.tabs.querySelector("[aria-selected=true]").focus();
    }}, title)));
  }

  // The chosen branch, fetched once; with `drift` with its audit.
  async load(drift = false) {
    const tag = `${this.response} ${this.nodes.get(this.response)?.num_tokens}`;
    if (this.branch && this.branch.tag === tag && (this.branch.audited || !drift)) return this.branch;
    const branch = readBranch(await branchBytes(this.id, this.response, drift));
    if (branch) {
      branch.tag = tag;
      branch.audited = drift;
      branch.drift = driftOf(branch);
    }
    this.branch = branch;
    return branch;
  }

  async show() {
    if (this.grid && this.tab !== "tokens") {
      this.grid.close();
      this.grid = null;
    }
    if (!this.response) {
      clear(this.body);
      return;
    }
    try {
      const wanted = `${this.response} ${this.tab}`;
      this.wanted = wanted;
      const branch = await this.load(this.tab === "drift" || (this.tab === "tokens" && this.mode === "drift"));
      if (this.ended || this.wanted !== wanted) return;
      if (!branch) clear(this.body, h("p.empty", "This answer stands on no branch any more: a rollback dropped it, or an equal answer took its place."));
      else this[`${this.tab}Tab`](branch);
    } catch (error) {
      if (!this.ended) clear(this.body, h("p.fault", {role: "alert"}, error.message));
    }
  }

  conversationTab(branch) {
    clear(this.body, drawConversation(branch, {session: this.id, nodes: this.nodes, onJson: (title, value) => showJson(title, value), onTokens: turn => {
      this.at = branch.start + branch.turns[turn].start;
      this.tab = "tokens";
      this.drawTabs();
      this.tell();
      this.show();
    }}));
  }

  tokensTab(branch) {
    if (!branch.ids.length) {
      clear(this.body, h("p.empty", "This branch was captured as text: its engine tells no ids."));
      return;
    }
    if (this.grid && this.grid.branch === branch) return;
    if (this.grid) this.grid.close();
    const side = h("div.side", {"aria-live": "off"}, h("p.quiet", "Choose a token: click it, or walk with the arrow keys."));
    this.grid = new TokenGrid(branch, {mode: this.mode, drift: branch.drift, onSelect: at => {
      this.at = at;
      this.tell();
      const picture = pictureAt(branch, at);
      clear(side, tokenFacts(branch, at), picture && pictureBox(this.id, picture.row), copyButton("Copy its id", String(branch.ids[at])));
    }});
    const bar = colouringBar(this.mode, async mode => {
      this.mode = mode;
      this.tell();
      if (mode === "drift" && !branch.audited) {
        this.grid.close();
        this.grid = null;
        await this.show();
      } else {
        this.grid.setMode(mode);
      }
    });
    const jump = h("input", {type: "number", min: 0, max: branch.ids.length - 1, placeholder: "position", "aria-label": "Go to position", onchange: e => this.grid.select(Number(e.target.value))});
    const turns = h("select", {"aria-label": "Go to turn", onchange: e => this.grid.select(Number(e.target.value))}, branch.turns.map((t, i) => h("option", {value: String(branch.start + t.start)}, `turn ${i + 1}`)));
    clear(this.body, h("div.tools", bar, jump, turns, copyButton("Copy ids", `[${Array.from(branch.ids).join(",")}]`),
      h("button", {onclick: () => saveBlob(new Blob([textOf(branch, 0, branch.ids.length)], {type: "text/plain"}), `${this.id}.txt`)}, "Save as text"),
      h("span.count", `${counted(branch.ids.length, "token")}, ${number(branch.mask.reduce((a, b) => a + b, 0))} trained`)), h("div.split", this.grid.element, side));
    if (this.at >= 0) requestAnimationFrame(() => this.grid && this.grid.select(this.at));
  }

  driftTab(branch) {
    const told = branch.extra_fields.drift;
    if (!told) {
      clear(this.body, h("p.empty", "There is no audit of this branch: its session has another tokenizer, or it was captured as text."));
      return;
    }
    const open = at => {
      this.at = at;
      this.tab = "tokens";
      this.mode = "drift";
      this.drawTabs();
      this.tell();
      this.show();
    };
    clear(this.body, told.count ? h("p", `The template, given the same messages, would write other ids: ${number(told.count)} differences. The first: ${told.first.kind} at position `,
      h("button.link", {onclick: () => open(told.first.position)}, number(told.first.position)), ". Nothing was changed; the ids were really sent and sampled.")
      : h("p", "The template, given the same messages, writes exactly these ids."));
  }

  turnsTab(branch) {
    const names = ["turn", "answer", "cause", "tokens", "finish", "weights", "mean logprob", "queue ms", "engine ms", "gateway ms", "cached", "reward"];
    const mean = t => {
      if (!branch.logprobs || t.start === null || t.end === t.start) return "–";
      let sum = 0;
      for (let i = branch.start + t.start; i < branch.start + t.end; i++) sum += branch.logprobs[i];
      return isNaN(sum) ? "–" : (sum / (t.end - t.start)).toFixed(3);
    };
    clear(this.body, h("div.wide", h("table", h("caption.unseen", "Turns"), tableHead(names, ["turn", "tokens", "mean logprob", "queue ms", "engine ms", "gateway ms", "cached"]), h("tbody", branch.turns.map((t, i) => h("tr",
      h("td.num", i + 1), h("td", h("button.link", {onclick: () => showJson(`Turn ${i + 1}`, {turn: t, node: this.nodes.get(t.response_id)})}, shortId(t.response_id))), h("td", t.cause),
      h("td.num", t.start === null ? "–" : number(t.end - t.start)), h("td", t.finish_reason), h("td", foreign(t.weight_versions.map(v => v.version).join(", ") || "–")), h("td.num", mean(t)),
      ...["queue", "engine", "gateway"].map(k => h("td.num", decimal(t.latency_ms[k]))), h("td.num", number(t.cached_tokens)), h("td", t.reward ? foreign(JSON.stringify(t.reward)) : "–")))))),
    h("p.quiet", branch.summary.warnings && branch.summary.warnings.length ? branch.summary.warnings.join(" ") : ""));
  }

  jsonTab(branch) {
    const {ids, mask, logprobs, turnAt, versionAt, vocabulary, drift, pictures, ...rest} = branch;
    const shown = {state: this.state, branch: rest};
    clear(this.body, !embedded && h("p", h("button", {onclick: async () => showJson("Records of every call", (await json(`/sessions/${this.id}?records=1`)).records)}, "Show the records of every call")),
      longText(JSON.stringify(shown, (k, v) => (k === "accumulated_token_ids" ? `[${v.length} ids]` : v), 1), "text.data"));
  }
}

// A value in a box over the page.
export function showJson(title, value) {
  const text = JSON.stringify(value, null, 1);
  const box = h("dialog.json", {"aria-label": title}, h("div.tools", h("h2", title), h("span.spacer"),
    copyButton("Copy", text), h("button", {onclick: () => box.close()}, "Close")), longText(text, "text.data"));
  box.addEventListener("close", () => box.remove());
  document.body.append(box);
  box.showModal();
}

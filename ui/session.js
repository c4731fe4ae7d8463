// One session: its forest, one branch of it as a conversation or as tokens, its audit, its files, and what runs now.
import {h, clear, announce, copyText, counted, number, decimal, ago, clock, foreign, visible, shortId, longText, perFrame, hintScroll, tableHead, wideTable} from "./dom.js";
import {sessionState, branchBytes, curl, download, embedded, follow, json, key, keySession, post, saveBlob} from "./api.js";
import {pictureAt, readBranch, textOf} from "./branch.js";
import {pictureBox} from "./pictures.js";
import {LiveMark, drawForest} from "./forest.js";
import {drawConversation, toolCount, toolNames} from "./conversation.js";
import {TokenGrid, colouringBar, tokenFacts} from "./tokens.js";
import {drawDrift, driftOf} from "./drift.js";
import {Finder} from "./finder.js";
import {findInMessages, findInTokens, markHits} from "./find.js";
import {LogprobStrip} from "./strip.js";
import {drawSamples, siblingsOf} from "./samples.js";
import {firstFault, messageOfToken, stopsOf, tokenOfMessage, turnMessages} from "./stops.js";
import {timeBar} from "./shares.js";
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

const TABS = [["conversation", "Conversation"], ["tokens", "Tokens"], ["samples", "Samples"], ["drift", "Drift audit"], ["turns", "Turns"], ["json", "JSON"]];
const SCROLLED_MS = 150;
const SETTLE_FRAMES = 4;

// A number of the address, or -1.
function placeOfQuery(query, name) {
  const value = query.has(name) ? Number(query.get(name)) : -1;
  return Number.isInteger(value) && value >= 0 ? value : -1;
}

class SessionPage {
  constructor(main, id, query) {
    this.id = id;
    this.main = main;
    this.response = query.get("at");
    this.sample = query.get("sample");
    this.tab = TABS.some(([name]) => name === query.get("tab")) ? query.get("tab") : "conversation";
    this.mode = query.get("colour") || "mask";
    this.reported = query.get("reported");
    this.words = query.get("q") || "";
    this.at = placeOfQuery(query, "token");
    this.top = placeOfQuery(query, "top");
    this.message = placeOfQuery(query, "message");
    this.offset = placeOfQuery(query, "offset");      // of a token, in the answer that the branch ends with
    this.wantsFault = query.get("jump") === "fault";
    this.arriving = true;        // until the position of the address is in sight
    this.live = new Map();
    this.head = h("div");
    this.forest = h("section");
    this.tabs = h("div.tabs", {role: "tablist"});
    this.finder = new Finder(this);
    this.stripBox = h("div");
    this.body = h("div.body", {role: "tabpanel"});
    this.liveList = h("ol.talk.livelist");
    this.dock = h("div.dock", {hidden: true}, h("div.hinted", hintScroll(this.tabs)), this.finder.element, this.stripBox);
    clear(main, h("div.page", this.head, this.forest, this.dock, this.body, this.liveList));
    this.redraw = perFrame(() => !this.ended && this.state && this.drawForest());
    this.scrolled = () => {
      clearTimeout(this.scrollTimer);
      this.scrollTimer = setTimeout(() => this.takeScroll(), SCROLLED_MS);
    };
    main.addEventListener("scroll", this.scrolled, {passive: true});
  }

  close() {
    this.ended = true;
    this.main.removeEventListener("scroll", this.scrolled);
    if (this.stop) this.stop();
    if (this.grid) this.grid.close();
    if (this.strip) this.strip.close();
    this.finder.close();
    markHits([], -1);
    clearTimeout(this.timer);
    clearTimeout(this.scrollTimer);
  }

  async open() {
    await this.refresh();
    if (embedded || this.ended || !this.state) return;
    this.stop = follow(`/sessions/${this.id}/events`, (name, data) => this.take(name, data), state => {
      if (state === "live") this.dropLive();      // what runs is told anew
      this.streaming = state === "live" ? "live" : state === "lost" ? "lost" : "refused";
      this.drawStreaming();
    });
  }

  // The mark in the bar says "live"; this one speaks only while the session's own stream is broken.
  drawStreaming() {
    const mark = this.head.querySelector(".streaming");
    if (!mark) return;
    mark.dataset.state = this.streaming || "";
    clear(mark, this.streaming === "lost" ? "reconnecting …" : "");
  }

  // Calls that run: as the state had them, or as their events tell.
  drawRunning() {
    const mark = this.head.querySelector(".inflight");
    if (mark) clear(mark, number(Math.max(this.state.num_inflight_generations, this.live.size)));
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
      this.drawRunning();
      this.redraw();
    } else if (name === "tokens") {
      if (!this.live.has(data.call)) this.take("call", data);
      this.live.get(data.call).take(data);
    } else if (name === "call_end") {
      const call = this.live.get(data.call);
      this.live.delete(data.call);
      if (call) call.element.remove();
      this.drawRunning();
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
    clear(this.head, h("h1", "Session ", foreign(shortId(this.id))), h("p.fault", {role: "alert"}, error.message),
      !embedded && !keySession() && h("p", h("a", {href: "#/sessions"}, "All sessions"), " · ", h("a", {href: "#/groups"}, "All groups")));
  }

  async refresh() {
    try {
      const newest = this.state && this.newest;
      this.state = await sessionState(this.id);
      if (this.ended) return;
      this.nodes = new Map(this.state.tree.nodes.filter(n => n.generated).map(n => [n.response_id, n]));
      const answers = [...this.nodes.values()];
      this.newest = answers.reduce((a, b) => (!a || b.seq > a.seq ? b : a), null)?.response_id;
      if (this.wantsFault && answers.length) this.goToFault(answers);
      if (!this.response || !this.nodes.has(this.response) || (this.response === newest && this.newest !== newest)) this.response = this.endOf(this.newest);
      this.drawHead();
      this.drawForest();
      this.dock.hidden = false;
      this.drawTabs();
      await this.show();
    } catch (error) {
      if (!this.ended) this.fail(error);
    }
  }

  // Shows the branch and the answer that a look for what went wrong begins with.
  goToFault(answers) {
    const fault = firstFault(answers);
    this.wantsFault = false;
    this.response = this.leafOf(fault.response_id);
    this.wantedAnswer = fault.response_id;
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
        ["labels", foreign(labelText(s, true) || "–")], ["history", `${s.history}, ${s.message_matcher}`],
        ["calls", [`${number(s.num_calls)}, `, h("span.inflight"), " running"]], ["branches", number(s.num_branches)], ["tokens", number(s.num_tokens)],
        ["reward", `${decimal(s.reward)} (${visible(rewards, true)})`], s.reason && ["ended because", foreign(s.reason)],
        ["created", h("span", {title: clock(s.created_at)}, `${ago(s.created_at)} ago`)], ["last activity", h("span", {title: clock(s.updated_at)}, `${ago(s.updated_at)} ago`)],
        s.warnings.length > 0 && ["warnings", s.warnings.join("; ")],
        forks.length > 0 && ["forks", forks.map(([k, v]) => `${k} ${v}`).join(", ")],
        s.time_s && ["time", timeBar(s.time_s, "Time of the session") || "–"],
        Object.keys(s.metadata).length > 0 && ["metadata", h("details", h("summary", "show"), longText(JSON.stringify(s.metadata, null, 1), "text.data"))],
      ].filter(Boolean).map(([k, v]) => [h("dt", k), h("dd", v)])));
    this.drawRunning();
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
    return !embedded || embedded.branches[response] ? response : this.leafOf(response);
  }

  // The end of a branch that has the answer.
  leafOf(response) {
    const chosen = this.nodes.get(response);
    const leaf = chosen && this.state.tree.leaves.find(l => l.path_node_ids.includes(chosen.id));
    const end = leaf && [...this.nodes.values()].find(n => n.id === leaf.node_id);
    return end ? end.response_id : response;
  }

  choose(response) {
    this.response = this.endOf(response);
    this.branch = null;
    this.forgetPlace();
    this.drawForest();
    this.forest.querySelector(".answer.chosen")?.focus();
    this.tell();
    this.show();
  }

  forgetPlace() {
    this.at = this.top = this.message = -1;
    this.arriving = false;
  }

  // The answer of a sample, with the rest of its branch.
  openSample(response) {
    this.tab = "conversation";
    this.choose(response);
    this.drawTabs();
  }

  // What is seen, as an address that can be sent to somebody.
  tell() {
    const query = new URLSearchParams({at: this.response || "", tab: this.tab});
    if (this.tab === "tokens") query.set("colour", this.mode);
    if (this.tab === "samples" && this.sample) query.set("sample", this.sample);
    if (this.tab === "tokens" && this.at >= 0) query.set("token", this.at);
    else if (this.tab === "tokens" && this.top > 0) query.set("top", this.top);
    if (this.tab === "conversation" && this.message >= 0) query.set("message", this.message);
    if (this.reported) query.set("reported", this.reported);
    if (this.words) query.set("q", this.words);
    history.replaceState(null, "", `#/sessions/${this.id}?${query}`);
  }

  drawTabs() {
    clear(this.tabs, TABS.map(([name, title]) => h("button", {role: "tab", "aria-selected": this.tab === name ? "true" : "false", "data-tab": name, onclick: () => {
      this.openTab(name);
      this.tabs.querySelector("[aria-selected=true]").focus();
    }}, title)));
    const {offsetLeft, offsetWidth} = this.tabs.querySelector("[aria-selected=true]");
    this.tabs.scrollLeft = offsetLeft - (this.tabs.clientWidth - offsetWidth) / 2;
  }

  openTab(name) {
    this.tab = name;
    this.arriving = false;
    this.drawTabs();
    this.tell();
    this.show();
  }

  // The chosen branch, fetched once; with `drift` with its audit.
  async load(drift = false) {
    const tag = `${this.response} ${this.nodes.get(this.response)?.num_tokens} ${this.reported}`;
    if (this.branch && this.branch.tag === tag && (this.branch.audited || !drift)) return this.branch;
    const branch = readBranch(await branchBytes(this.id, this.response, {drift, reported: this.reported}));
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
      this.finder.element.hidden = this.stripBox.hidden = true;
      return;
    }
    try {
      const wanted = `${this.response} ${this.tab} ${this.reported}`;
      this.wanted = wanted;
      const branch = await this.load(this.wantsAudit());
      if (this.ended || this.wanted !== wanted) return;
      this.finder.element.hidden = !branch || !["conversation", "tokens"].includes(this.tab);
      this.stripBox.hidden = !branch || !branch.ids.length || !branch.logprobs || !["conversation", "tokens", "drift"].includes(this.tab);
      if (!branch) {
        clear(this.body, h("p.empty", "No branch holds this answer any more: a rollback dropped it, or an equal answer replaced it."));
        return;
      }
      if (this.wantedAnswer) this.findAnswer(branch);
      if (this.offset >= 0) {
        this.at = branch.start + (branch.turns[branch.turns.length - 1]?.start ?? 0) + this.offset;
        this.offset = -1;
      }
      this.drawStrip(branch);
      this[`${this.tab}Tab`](branch);
      this.finder.setStops(stopsOf(branch, this.nodes));
      if (!this.finder.element.hidden) this.finder.search();
      if (this.arriving) this.arrive(branch);
      this.arriving = false;
    } catch (error) {
      if (!this.ended) clear(this.body, h("p.fault", {role: "alert"}, error.message));
    }
  }

  // The audit renders and encodes the whole branch: not after each turn of an agent that works, unless it is looked at.
  wantsAudit() {
    if (this.tab === "drift" || (this.tab === "tokens" && this.mode === "drift")) return true;
    return !this.state.num_inflight_generations && ["conversation", "tokens"].includes(this.tab);
  }

  // The message of the answer that was asked for by its id.
  findAnswer(branch) {
    const turn = branch.turns.findIndex(t => t.response_id === this.wantedAnswer);
    this.wantedAnswer = null;
    if (turn < 0) return;
    this.message = turnMessages(branch).messages[turn];
    this.arriving = true;
  }

  // Brings the position of the address into sight.
  arrive(branch) {
    if (this.tab === "conversation" && this.message >= 0) this.showMessage(this.message);
    if (this.tab === "tokens" && (this.at >= 0 || this.top > 0)) this.dock.scrollIntoView({block: "start"});
    if (this.tab === "tokens" && this.at >= 0) this.strip?.mark(Math.min(this.at, branch.ids.length - 1));
  }

  drawStrip(branch) {
    if (this.strip && this.strip.branch === branch) return;
    if (this.strip) this.strip.close();
    this.strip = branch.ids.length && branch.logprobs ? new LogprobStrip(branch, at => this.showToken(at), this.mode) : null;
    clear(this.stripBox, this.strip && this.strip.element);
  }

  showToken(at) {
    if (this.tab === "tokens") this.grid.select(at);
    else if (this.tab === "conversation") this.showMessage(messageOfToken(this.branch, at));
    else this.openTokens(at, this.mode);
  }

  openTokens(at, mode = this.mode) {
    this.at = at;
    this.mode = mode;
    this.openTab("tokens");
  }

  // --- the position ---

  position() {
    return this.tab === "tokens" ? Math.max(this.at, 0) : this.message;
  }

  positionOf(stop) {
    return this.tab === "tokens" ? stop.token : stop.message;
  }

  showStop(stop) {
    if (this.tab === "tokens") this.grid?.select(stop.token);
    else this.showMessage(stop.message);
  }

  onWords(words) {
    this.words = words;
    this.tell();
  }

  find(words) {
    if (this.tab === "tokens") return findInTokens(this.branch, words);
    return findInMessages(this.body, words).map(hit => ({...hit, length: words.length}));
  }

  // Marks all hits, and brings one into sight unless `index` is -1.
  showHit(hits, index) {
    if (this.tab === "tokens") {
      this.grid?.setFound(hits);
      if (index >= 0) this.grid?.select(hits[index].token);
      return;
    }
    if (index >= 0) {
      const {block, message} = hits[index];
      if (block.closest("details")) block.closest("details").open = true;
      block.unfold();
      this.showMessage(message);
    }
    markHits(hits, index);
  }

  showMessage(index) {
    const item = this.body.querySelector(`li[data-message="${index}"]`);
    if (!item) return;
    this.message = index;
    this.holdScroll = Date.now() + 2 * SCROLLED_MS;
    for (const e of this.body.querySelectorAll("li.target")) e.classList.remove("target");
    item.classList.add("target");
    const reveal = () => {
      this.main.scrollTop += item.getBoundingClientRect().top - this.edge() - 8;
      this.ownTop = this.main.scrollTop;
    };
    this.settle(reveal, SETTLE_FRAMES);
    const {turnOf} = turnMessages(this.branch);
    this.strip?.mark(tokenOfMessage(this.branch, index));
    announce(`Message ${index}${turnOf[index] >= 0 ? `, turn ${turnOf[index] + 1}` : ""}`);
    this.tell();
  }

  // Runs it now and in the next frames: what comes into sight gets its true height only then.
  settle(fn, frames) {
    if (this.ended) return;
    fn();
    if (frames > 0) requestAnimationFrame(() => this.settle(fn, frames - 1));
  }

  // The line below which messages are in sight: wide windows keep the dock at their top.
  edge() {
    return getComputedStyle(this.dock).position === "sticky" ? this.main.getBoundingClientRect().top + this.dock.offsetHeight : this.main.getBoundingClientRect().top;
  }

  // The position that the user scrolled to becomes the address's. The page's own scrolling does not.
  takeScroll() {
    if (this.ended || this.tab !== "conversation" || !this.branch || this.main.scrollTop === this.ownTop) return;
    if (Date.now() < this.holdScroll) {
      this.scrolled();
      return;
    }
    const edge = this.edge() + 16;
    const items = [...this.body.querySelectorAll("li[data-message]")];
    const first = items.findIndex(item => item.getBoundingClientRect().bottom > edge);
    this.message = this.main.scrollTop > 0 && first > 0 ? first : -1;
    this.strip?.mark(this.message < 0 ? -1 : tokenOfMessage(this.branch, this.message));
    this.finder.drawJumps();
    this.tell();
  }

  // --- tabs ---

  conversationTab(branch) {
    if (this.talkOf === branch && this.body.firstChild?.className === "talk") return;
    const open = [...this.body.querySelectorAll("pre[data-open]")].map(block => block.dataset.block);
    const talk = drawConversation(branch, {session: this.id, nodes: this.nodes, onJson: (title, value) => showJson(title, value),
      siblings: response => siblingsOf(this.nodes, response).length,
      onSamples: response => {
        this.sample = response;
        this.openTab("samples");
      },
      onTokens: turn => this.openTokens(branch.start + branch.turns[turn].start)});
    talk.querySelectorAll("pre").forEach((block, i) => {
      block.dataset.block = i;
      if (open.includes(String(i)) && block.unfold) block.unfold();
    });
    this.talkOf = branch;
    clear(this.body, talk);
  }

  samplesTab(branch) {
    return drawSamples(this.body, this, branch).catch(error => !this.ended && clear(this.body, h("p.fault", {role: "alert"}, error.message)));
  }

  driftTab(branch) {
    drawDrift(this.body, branch, at => this.openTokens(at, "drift"));
  }

  tokensTab(branch) {
    if (!branch.ids.length) {
      clear(this.body, h("p.empty", "This branch was captured as text: its engine returns no ids."));
      return;
    }
    if (this.grid && this.grid.branch === branch) {
      if (this.at >= 0 && this.at !== this.grid.selected) this.grid.select(this.at);
      return;
    }
    if (this.grid) this.grid.close();
    if (this.mode === "ratio" && !branch.trainer) this.mode = "mask";
    const side = h("div.side", {"aria-live": "off"}, h("p.quiet", "Choose a token: click it, or walk with the arrow keys."));
    this.grid = new TokenGrid(branch, {mode: this.mode, drift: branch.drift, onScroll: () => this.takeTop(), onSelect: at => {
      this.at = at;
      this.strip?.mark(at);
      this.finder.drawJumps();
      this.tell();
      const picture = pictureAt(branch, at);
      clear(side, tokenFacts(branch, at), picture && pictureBox(this.id, picture.row), copyButton("Copy its id", String(branch.ids[at])));
    }});
    const bar = colouringBar(this.mode, mode => {
      this.mode = mode;
      this.tell();
      this.strip?.setMode(mode);
      if (mode === "drift" && !branch.audited) this.show();
      else this.grid.setMode(mode);
    }, !!branch.trainer);
    const jump = h("input.position", {type: "number", min: 0, max: branch.ids.length - 1, placeholder: "position", "aria-label": "Go to position", onchange: e => this.grid.select(Number(e.target.value))});
    const turns = h("select", {"aria-label": "Go to turn", onchange: e => this.grid.select(Number(e.target.value))}, branch.turns.map((t, i) => h("option", {value: String(branch.start + t.start)}, `turn ${i + 1}`)));
    clear(this.body, h("div.tools", bar, jump, turns, this.reportedChoice(branch), copyButton("Copy ids", `[${Array.from(branch.ids).join(",")}]`),
      h("button", {onclick: () => saveBlob(new Blob([textOf(branch, 0, branch.ids.length)], {type: "text/plain"}), `${this.id}.txt`)}, "Save as text"),
      h("span.count", `${counted(branch.ids.length, "token")}, ${number(branch.mask.reduce((a, b) => a + b, 0))} trained`)), h("div.split", this.grid.element, side));
    const {at, top} = this;
    requestAnimationFrame(() => {
      if (!this.grid || this.grid.branch !== branch) return;
      this.grid.resize();
      if (at >= 0) this.grid.select(at);
      else if (top > 0) this.grid.scrollTo(top);
    });
  }

  takeTop() {
    clearTimeout(this.scrollTimer);
    this.scrollTimer = setTimeout(() => {
      if (this.ended || !this.grid) return;
      this.top = this.grid.top();
      this.tell();
    }, SCROLLED_MS);
  }

  // Whose logprobs the importance ratio is of, if the trainer reported several versions.
  reportedChoice(branch) {
    const versions = branch.reported_versions || [];
    if (!branch.trainer || versions.length < 2) return null;
    return h("select", {"aria-label": "Weights of the trainer's logprobs", onchange: e => {
      this.reported = e.target.value || null;
      this.branch = null;
      this.tell();
      this.show();
    }}, h("option", {value: ""}, "newest report"), versions.map(v => h("option", {value: String(v), selected: String(v) === this.reported}, `weights ${visible(String(v), true)}`)));
  }

  turnsTab(branch) {
    const names = ["turn", "answer", "cause", "tokens", "finish", "tools", "weights", "mean logprob", "queue ms", "engine ms", "gateway ms", "cached", "reward"];
    const mean = t => {
      if (!branch.logprobs || t.start === null || t.end === t.start) return "–";
      let sum = 0;
      for (let i = branch.start + t.start; i < branch.start + t.end; i++) sum += branch.logprobs[i];
      return isNaN(sum) ? "–" : (sum / (t.end - t.start)).toFixed(3);
    };
    clear(this.body, wideTable("Turns", "table", tableHead(names, ["turn", "tokens", "tools", "mean logprob", "queue ms", "engine ms", "gateway ms", "cached"]), h("tbody", branch.turns.map((t, i) => h("tr",
      h("td.num", i + 1), h("td", h("button.link", {onclick: () => showJson(`Turn ${i + 1}`, {turn: t, node: this.nodes.get(t.response_id)})}, shortId(t.response_id))), h("td", t.cause),
      h("td.num", t.start === null ? "–" : number(t.end - t.start)), h("td", t.finish_reason), h("td.num", {title: branch.toolsAt ? visible(toolNames(branch.toolsAt[i]).join(", "), true) : null}, branch.toolsAt ? number(toolCount(branch.toolsAt[i])) : "–"), h("td", foreign(t.weight_versions.map(v => v.version).join(", ") || "–")), h("td.num", mean(t)),
      ...["queue", "engine", "gateway"].map(k => h("td.num", decimal(t.latency_ms[k]))), h("td.num", number(t.cached_tokens)), h("td", t.reward ? foreign(JSON.stringify(t.reward)) : "–"))))),
    h("p.quiet", branch.summary.warnings && branch.summary.warnings.length ? branch.summary.warnings.join(" ") : ""));
  }

  jsonTab(branch) {
    const {ids, mask, logprobs, trainer, alternatives, turnAt, versionAt, vocabulary, drift, pictures, spelling, places, ...rest} = branch;
    const shown = {state: this.state, branch: rest};
    clear(this.body, !embedded && h("p", h("button", {onclick: async () => showJson("Records of every call", (await json(`/sessions/${this.id}?records=1`)).records)}, "Show the records of every call")),
      longText(JSON.stringify(shown, (k, v) => (k === "accumulated_token_ids" ? `[${v.length} ids]` : v), 1), "text.data"));
  }
}

// A value in a box over the page.
function showJson(title, value) {
  const text = JSON.stringify(value, null, 1);
  const box = h("dialog.json", {"aria-label": title}, h("div.tools", h("h2", title), h("span.spacer"),
    copyButton("Copy", text), h("button", {onclick: () => box.close()}, "Close")), longText(text, "text.data"));
  box.addEventListener("close", () => box.remove());
  document.body.append(box);
  box.showModal();
}

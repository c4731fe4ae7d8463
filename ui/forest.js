// A session's forest, drawn: answers are circles, messages between them squares, time runs to the right. Long stretches
// without a fork are folded into one mark, so that a thousand turns stay one picture.
import {h, svg, counted, number, visible} from "./dom.js";

const STEP = 30;
const LANE = 30;
const NODES_MAX = 4000;
const FOLD = 12;

// Nodes of the state, and of calls that run, with places: {shown: [{node, x, y, folded}], links: [[from, to]], width, height, cut}.
function arrange(tree, running = []) {
  const nodes = [...tree.nodes.slice(0, NODES_MAX), ...running];
  const children = new Map(nodes.map(n => [n.id, []]));
  const roots = [];
  for (const n of nodes) {
    if (n.parent !== null && children.has(n.parent)) children.get(n.parent).push(n);
    else roots.push(n);
  }
  const shown = [];
  const links = [];
  let lane = 0;
  let width = 0;
  // An explicit stack: a branch of thousands of turns is deeper than the script's own.
  const todo = roots.map(node => ({node, depth: 0, from: null, first: true})).reverse();
  for (let job = todo.pop(); job; job = todo.pop()) {
    const {node, depth, from} = job;
    if (!job.first || (from === null && shown.length)) lane++;
    let run = [node];
    while (!job.alone && children.get(run[run.length - 1].id).length === 1) run.push(children.get(run[run.length - 1].id)[0]);
    let at = depth;
    let last = from;
    for (const part of foldRun(run)) {
      const place = {...part, x: at++, y: lane};
      shown.push(place);
      if (last) links.push([last, place]);
      last = place;
    }
    width = Math.max(width, at);
    const next = children.get(run[run.length - 1].id);
    for (let i = next.length - 1; i >= 0; i--) todo.push({node: next[i], depth: at, from: last, first: i === 0});
  }
  return {shown, links, width: width * STEP + 20 + (running.length ? BAR_MAX : 0), height: (lane + 1) * LANE + 10, cut: Math.max(0, tree.nodes.length - NODES_MAX)};
}

// The head and the end of a long run stay; what is between becomes one mark.
function foldRun(run) {
  if (run.length <= FOLD) return run.map(node => ({node}));
  const keep = FOLD / 2;
  return [...run.slice(0, keep).map(node => ({node})), {node: run[keep], folded: run.length - 2 * keep}, ...run.slice(-keep).map(node => ({node}))];
}

// Running calls as nodes: each below the answer that it goes on from. One whose answer the state does not have yet waits for it.
function runningNodes(tree, live) {
  const byResponse = new Map(tree.nodes.filter(n => n.generated).map(n => [n.response_id, n.id]));
  return live.filter(call => !call.parent || byResponse.has(call.parent))
    .map(call => ({id: `call-${call.call}`, parent: call.parent ? byResponse.get(call.parent) : null, generated: false, live: call}));
}

const BAR_MAX = 150;

// The mark of a call that runs: a bar that grows with its tokens, fast at first.
export class LiveMark {
  constructor(call) {
    this.element = svg("g", {class: "livemark", "data-call": call}, this.title = svg("title", {}), svg("circle", {r: 9}),
      this.bar = svg("rect", {x: 12, y: -5, height: 10, width: 0, rx: 3}), this.text = svg("text", {y: 4}));
    this.tell(0);
  }

  tell(tokens) {
    const wide = Math.min(BAR_MAX - 70, Math.round(4 * Math.sqrt(tokens)));
    this.bar.setAttribute("width", wide);
    this.text.setAttribute("x", wide + 16);
    this.text.textContent = tokens ? number(tokens) : "waits";
    this.title.textContent = `running, ${counted(tokens, "token")}`;
  }
}

const CAUSE_MARKS = {new_root: "R", history_rewritten: "H", resampled: "S", same_answer: "=", assistant_rewritten: "A", tools_changed: "T",
  template_kwargs_changed: "K", template_rewrite: "W", truncated_answer: "…"};

function describe(place, rewards) {
  const n = place.node;
  if (place.folded) return `${number(place.folded)} more messages`;
  if (!n.generated) return n.role;
  const reward = rewards[n.response_id] ? `, reward ${JSON.stringify(rewards[n.response_id])}` : "";
  return `answer ${n.seq}, ${n.cause}, ${number(n.completion_span[1] - n.completion_span[0])} tokens, ${n.finish_reason}${n.label ? `, ${visible(n.label, true)}` : ""}${reward}`;
}

// options: {selected (response id), rewards, choose(node), live: calls that run, each {call, parent (response id), mark (a LiveMark)}}
export function drawForest(state, options) {
  const {shown, links, width, height, cut} = arrange(state.tree, runningNodes(state.tree, options.live));
  const x = p => p.x * STEP + 16;
  const y = p => p.y * LANE + 18;
  const path = new Set();
  const byId = new Map(state.tree.nodes.map(n => [n.id, n]));
  for (let n = state.tree.nodes.find(m => m.response_id === options.selected); n; n = byId.get(n.parent)) path.add(n.id);
  const edge = ([from, to]) => svg("path", {class: path.has(from.node.id) && path.has(to.node.id) ? "edge on" : "edge",
    d: from.y === to.y ? `M${x(from)} ${y(from)}H${x(to)}` : `M${x(from)} ${y(from)}C${x(from) + 14} ${y(to)} ${x(from) + 8} ${y(to)} ${x(to)} ${y(to)}`});
  const first = Math.min(...state.tree.nodes.filter(n => n.generated).map(n => n.seq));
  const causeMark = n => (n.cause === "new_root" && n.seq === first ? "" : CAUSE_MARKS[n.cause] || "");    // the first one left nothing
  const mark = p => {
    const n = p.node;
    if (n.live && !p.folded) {
      n.live.mark.element.setAttribute("transform", `translate(${x(p)} ${y(p)})`);
      return n.live.mark.element;
    }
    const title = describe(p, options.rewards);
    if (p.folded) return svg("text", {x: x(p), y: y(p) + 4, class: "folded", "text-anchor": "middle"}, svg("title", {}, title), `+${p.folded}`);
    if (!n.generated) return svg("rect", {x: x(p) - 4, y: y(p) - 4, width: 8, height: 8, class: `message${path.has(n.id) ? " on" : ""}`}, svg("title", {}, title));
    const open = () => options.choose(n);
    return svg("g", {class: `answer${n.response_id === options.selected ? " chosen" : ""}${path.has(n.id) ? " on" : ""}${n.truncated ? " cut" : ""}`, tabindex: "0", role: "button", "aria-label": title,
      "data-response": n.response_id, onclick: open, onkeydown: e => { if (e.key === "Enter" || e.key === " ") { e.preventDefault(); open(); } }},
    svg("title", {}, title), svg("circle", {cx: x(p), cy: y(p), r: 9}),
    svg("text", {x: x(p), y: y(p) + 4, "text-anchor": "middle"}, options.rewards[n.response_id] ? "★" : causeMark(n)));
  };
  const labels = shown.filter(p => p.node.label && !p.folded && !links.some(([a, b]) => b === p && a.node.label === p.node.label))
    .map(p => svg("text", {x: x(p) - 8, y: y(p) - 11, class: "label"}, visible(p.node.label, true).slice(0, 24)));
  const used = new Set(shown.filter(p => p.node.generated && causeMark(p.node)).map(p => p.node.cause));
  return h("div.forest", h("div.scroll", {tabindex: 0, role: "group", "aria-label": "Forest of the session"},
    svg("svg", {width, height, viewBox: `0 0 ${width} ${height}`}, ...links.map(edge), ...shown.map(mark), ...labels)),
  h("div.legend", h("span.key", "● answer"), h("span.key", "■ message"), options.live.length > 0 && h("span.key", "◌ running, with its tokens so far"), [...used].map(c => h("span.key", `${CAUSE_MARKS[c]} ${c}`)),
    Object.keys(options.rewards).length > 0 && h("span.key", "★ rewarded turn"), cut > 0 && h("span.key", `${number(cut)} more nodes are not drawn`)));
}

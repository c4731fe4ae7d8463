// Two branches side by side: the first differing token, and both ways from there.
import {h, clear, counted, number, decimal, shortId, foreign} from "./dom.js";
import {sessionState, branchBytes} from "./api.js";
import {readBranch, firstDifference, textOf} from "./branch.js";
import {TokenGrid, colouringBar, cellText} from "./tokens.js";
import {textDiff, forkOf} from "./conversation.js";

const BEFORE = 12;
const AFTER = 400;

// The answer at the end of the longest branch: what came last may be a title, or a helper's.
function longestEnd(tree) {
  const ends = new Set(tree.leaves.map(leaf => leaf.node_id));
  return tree.nodes.filter(n => ends.has(n.id)).reduce((a, b) => (!a || b.num_tokens > a.num_tokens ? b : a), null)?.response_id;
}

async function side(place) {
  const [id, response] = place.split("@");
  const state = await sessionState(id);
  const branch = readBranch(await branchBytes(id, response || longestEnd(state.tree)));
  if (!branch) throw new Error(`${id}: no branch ends there`);
  return {id, state, branch, node: state.tree.nodes.find(n => n.response_id === branch.turns[branch.turns.length - 1]?.response_id)};
}

function facts(s) {
  return h("p", h("a", {href: `#/sessions/${s.id}?at=${s.node ? s.node.response_id : ""}`}, shortId(s.id)), ` ${s.state.phase}, reward ${decimal(s.state.reward)}, ${counted(s.branch.turns.length, "turn")}, ${counted(s.branch.ids.length, "token")}, ${number(s.branch.mask.reduce((a, b) => a + b, 0))} trained`);
}

// The first message in which the two histories differ.
function firstMessage(a, b) {
  const said = m => JSON.stringify([m.role, m.content, (m.tool_calls || []).map(c => [c.function?.name, c.function?.arguments])]);    // ids of calls differ always
  const same = (x, y) => said(x) === said(y);
  let i = 0;
  while (i < a.length && i < b.length && same(a[i], b[i])) i++;
  return i;
}

function spell(branch, at) {
  const shown = [];
  for (let i = Math.max(0, at - BEFORE); i < Math.min(branch.ids.length, at + 6); i++) {
    shown.push(h(`code.cell${i === at ? ".here" : ""}`, {title: `id ${branch.ids[i]}`}, cellText(branch.vocabulary.get(branch.ids[i]), branch.ids[i])));
  }
  return h("div.tokens", shown, at >= branch.ids.length && h("span.quiet", " (ends here)"));
}

export function comparePage(main, query) {
  const form = h("form.tools", {onsubmit: e => {
    e.preventDefault();
    location.hash = `#/compare?a=${encodeURIComponent(e.target.a.value.trim())}&b=${encodeURIComponent(e.target.b.value.trim())}`;
  }}, h("h1", "Compare"), h("input", {name: "a", value: query.get("a") || "", placeholder: "session id, or id@response", "aria-label": "First session", size: 44}),
  h("input", {name: "b", value: query.get("b") || "", placeholder: "session id, or id@response", "aria-label": "Second session", size: 44}), h("button", "Compare"));
  const body = h("div");
  clear(main, h("div.page", form, body));
  let grids = [];
  let ended = false;
  if (query.get("a") && query.get("b")) {
    clear(body, h("p.empty", "Reading …"));
    Promise.all([side(query.get("a")), side(query.get("b"))]).then(([a, b]) => {
      if (ended) return;
      const at = firstDifference(a.branch.ids, b.branch.ids);
      const equal = at === a.branch.ids.length && at === b.branch.ids.length;
      const message = firstMessage(a.branch.messages, b.branch.messages);
      const part = s => textOf(s.branch, at, Math.min(s.branch.ids.length, at + AFTER));
      grids = [a, b].map(s => new TokenGrid(s.branch, {mode: "mask"}));
      const bar = colouringBar("mask", mode => grids.forEach(g => g.setMode(mode)));
      clear(body, h("section", h("h2", "Where they part"), h("p.verdict", equal ? "Both have the same tokens." : `The first differing token is at position ${number(at)}, in message ${number(message)} (${a.branch.messages[message]?.role || b.branch.messages[message]?.role || "none"}).`),
        !equal && h("div.pair", h("div", facts(a), spell(a.branch, at)), h("div", facts(b), spell(b.branch, at))),
        equal && h("div.pair", facts(a), facts(b)),
        !equal && a.id === b.id && h("div", [a, b].map(s => forkOf(s.node))),
        !equal && h("div", h("h3", "The text from there: what only the first has is struck through, what only the second has is underlined"), textDiff(part(a), part(b)))),
      h("section", h("h2", "Tokens"), h("div.tools", bar), h("div.pair.grids", grids.map(g => g.element))));
      requestAnimationFrame(() => grids.forEach(g => !equal && g.select(at)));
    }).catch(error => {
      if (!ended) clear(body, h("p.fault", {role: "alert"}, error.message));
    });
  } else {
    clear(body, h("p.empty", "Pick two sessions in the list, or give two ids. ", foreign("id@response"), " names the branch that ends at this answer."));
  }
  return () => {
    ended = true;
    grids.forEach(g => g.close());
  };
}

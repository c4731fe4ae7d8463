// A branch as a conversation: its messages, with what is known of the turns that the model wrote.
import {h, foreign, counted, decimal, longText, visible} from "./dom.js";
import {difference, words} from "./diff.js";
import {pictureBox} from "./pictures.js";

function partOf(part, session) {
  if (part && typeof part.text === "string") return longText(part.text);
  if (part && part.type === "image" && /^[0-9a-f]{64}$/.test(part.media)) return pictureBox(session, {...part, sha256: part.media});
  return longText(JSON.stringify(part, null, 1), "text.data");
}

function contentOf(content, session) {
  if (content === null || content === undefined) return [];
  if (typeof content === "string") return content ? [longText(content)] : [];
  if (!Array.isArray(content)) return [longText(JSON.stringify(content, null, 1))];
  return content.map(part => partOf(part, session));
}

function argumentsOf(text) {
  if (typeof text !== "string") return JSON.stringify(text, null, 1);
  try {
    return JSON.stringify(JSON.parse(text), null, 1);
  } catch {
    return text;
  }
}

function callOf(call) {
  const f = call.function || {};
  return h("div.call", h("div.callname", "call ", h("code", foreign(f.name || "")), call.id && h("span.quiet", " ", foreign(call.id))), longText(argumentsOf(f.arguments ?? ""), "text.data"));
}

export function turnFacts(turn) {
  if (!turn) return null;
  const ms = Object.entries(turn.latency_ms || {}).map(([k, v]) => `${k} ${decimal(v)} ms`).join(", ");
  return [
    turn.start !== null && counted(turn.end - turn.start, "token"), turn.finish_reason, turn.cause,
    turn.label && `label ${visible(turn.label, true)}`, turn.trained === false && "not trained here", turn.logprob_basis && `logprobs: ${turn.logprob_basis}`,
    turn.weight_versions && turn.weight_versions.length > 0 && `weights ${turn.weight_versions.map(v => visible(String(v.version), true)).join(", ")}`, ms,
    turn.reward && `reward ${JSON.stringify(turn.reward)}`,
  ].filter(Boolean).join(" · ");
}

// Two texts of which the second took another way.
export function textDiff(before, after) {
  return h("pre.text.diff", {dir: "auto"}, difference(words(before), words(after)).map(part => {
    const text = visible(part.items.join(""));
    return part.kind === "same" ? text : h(part.kind === "removed" ? "del" : "ins", text);
  }));
}

// Why a call did not simply extend what was there. The beginning of a conversation is no fork, unless it says what it left.
export function forkOf(node) {
  if (!node || !node.cause || node.cause === "extended" || (node.cause === "new_root" && !node.diff)) return null;
  const told = node.diff;
  return h("div.fork", h("strong", node.cause), told && [` at message ${told.message}, field `, h("code", foreign(told.field)),
    told.stored !== undefined && textDiff(told.stored ?? "", told.request ?? "")]);
}

// options: {session (its id), nodes (of the state, by response id), onJson(title, value), onTokens(turn index)}
export function drawConversation(branch, options) {
  let turn = -1;
  return h("ol.talk", branch.messages.map((message, index) => {
    const own = message.generated;
    if (own) turn++;
    const facts = own ? branch.turns[turn] : null;
    const at = turn;
    const node = facts && options.nodes.get(facts.response_id);
    return h(`li.message.${/^[a-z]+$/.test(message.role) ? message.role : "other"}${own ? ".own" : ""}`,
      h("div.top", h("span.role", foreign(message.role)), message.name && h("span.quiet", " ", foreign(message.name)), own && h("span.badge", "sampled"),
        h("span.spacer"), own && facts && facts.start !== null && h("button.link", {onclick: () => options.onTokens(at)}, "tokens"),
        h("button.link", {onclick: () => options.onJson(`Message ${index}`, facts ? {message, turn: facts, node} : {message})}, "JSON")),
      own && forkOf(node),
      message.reasoning_content && h("details.reasoning", {open: true}, h("summary", "reasoning"), longText(String(message.reasoning_content))),
      contentOf(message.content, options.session), (message.tool_calls || []).map(callOf), message.tool_call_id && h("div.quiet", "answers ", foreign(message.tool_call_id)),
      facts && h("div.facts-line", turnFacts(facts), node && node.parse_warning && h("span.warning", " parse warning: ", foreign(node.parse_warning))));
  }));
}

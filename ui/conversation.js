// A branch as a conversation: its messages, with what is known of the turns that the model wrote.
import {h, foreign, counted, decimal, longText, visible} from "./dom.js";
import {difference, words} from "./diff.js";
import {pictureBox} from "./pictures.js";

function partOf(part, session, folded) {
  if (part && typeof part.text === "string") return longText(part.text, "text", folded);
  if (part && part.type === "image" && /^[0-9a-f]{64}$/.test(part.media)) return pictureBox(session, {...part, sha256: part.media});
  return longText(JSON.stringify(part, null, 1), "text.data", folded);
}

function contentOf(content, session, folded) {
  if (content === null || content === undefined) return [];
  if (typeof content === "string") return content ? [longText(content, "text", folded)] : [];
  if (!Array.isArray(content)) return [longText(JSON.stringify(content, null, 1), "text", folded)];
  return content.map(part => partOf(part, session, folded));
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

// Shows how the second text differs from the first. `all`: line feeds are shown, too.
export function textDiff(before, after, all = false) {
  return h("pre.text.diff", {dir: "auto"}, difference(words(before), words(after)).map(part => {
    const text = visible(part.items.join(""), all);
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

// Names of offered tools, whatever the dialect nests them in.
export function toolNames(tools) {
  return (Array.isArray(tools) ? tools : []).map(tool => String(tool?.function?.name ?? tool?.name ?? tool?.type ?? "?"));
}

// How many tools were offered, shown or not.
export function toolCount(tools) {
  return tools.cut ?? tools.length;
}

// The tools that the model could call, on demand: each with its description and parameters.
function toolList(tools, title) {
  const names = toolNames(tools);
  return h("details.offered", h("summary", title, " ", names.slice(0, 12).map((name, i) => [i > 0 && ", ", h("code", foreign(name))]), names.length > 12 && ` and ${names.length - 12} more`),
    tools.map((tool, i) => h("div.call", h("div.callname", h("code", foreign(names[i])), " ", h("span.quiet", foreign(tool?.function?.description ?? tool?.description ?? ""))),
      longText(JSON.stringify(tool?.function?.parameters ?? tool?.input_schema ?? tool, null, 1), "text.data", true))));
}

// What a turn's model was offered, said where it changes.
function offeredAt(branch, turn) {
  const tools = branch.toolsAt ? branch.toolsAt[turn] : null;
  if (!tools || (turn > 0 && branch.toolsAt[turn - 1] === tools)) return null;
  if (tools.cut !== undefined) return h("div.quiet", `${counted(tools.cut, "tool")} offered: too long to show`);
  return tools.length ? toolList(tools, `${counted(tools.length, "tool")} offered:`) : h("div.quiet", "no tools offered");
}

// options: {session (its id), nodes (of the state, by response id), siblings(response id) (how many samples its prompt has),
// onJson(title, value), onTokens(turn index), onSamples(response id)}
export function drawConversation(branch, options) {
  let turn = -1;
  return h("ol.talk", branch.messages.map((message, index) => {
    const own = message.generated;
    if (own) turn++;
    const facts = own ? branch.turns[turn] : null;
    const at = turn;
    const node = facts && options.nodes.get(facts.response_id);
    const samples = facts ? options.siblings(facts.response_id) : 0;
    return h(`li.message.${/^[a-z]+$/.test(message.role) ? message.role : "other"}${own ? ".own" : ""}`, {"data-message": index},
      h("div.top", h("span.role", foreign(message.role)), message.name && h("span.quiet", " ", foreign(message.name)), own && h("span.badge", "sampled"),
        node && node.truncated && h("span.badge.cut", "truncated"), h("span.spacer"),
        samples > 1 && h("button.link", {onclick: () => options.onSamples(facts.response_id)}, `${samples} samples`),
        own && facts && facts.start !== null && h("button.link", {onclick: () => options.onTokens(at)}, "tokens"),
        h("button.link", {onclick: () => options.onJson(`Message ${index}`, facts ? {message, turn: facts, node} : {message})}, "JSON")),
      own && forkOf(node), own && offeredAt(branch, at),
      message.reasoning_content && h("details.reasoning", {open: true}, h("summary", "reasoning"), longText(String(message.reasoning_content))),
      contentOf(message.content, options.session, !own), (message.tool_calls || []).map(callOf), message.tool_call_id && h("div.quiet", "answers ", foreign(message.tool_call_id)),
      facts && h("div.facts-line", turnFacts(facts), node && node.parse_warning && h("span.warning", " parse warning: ", foreign(node.parse_warning))));
  }));
}

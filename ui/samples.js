// Answers to one prompt next to each other: samples of one call (n > 1), and the same request asked again.
import {h, clear, counted, decimal, foreign, longText, number, shortId} from "./dom.js";
import {branchBytes} from "./api.js";
import {readBranch} from "./branch.js";
import {turnFacts} from "./conversation.js";

const SAMPLES_MAX = 8;

// The answers that hang at the node where this one does, in their order.
export function siblingsOf(nodes, response) {
  const own = nodes.get(response);
  return own ? [...nodes.values()].filter(n => n.parent === own.parent).sort((a, b) => a.seq - b.seq) : [];
}

function meanLogprob(branch, turn) {
  if (!branch.logprobs || turn.start === null || turn.end === turn.start) return null;
  let sum = 0;
  for (let i = branch.start + turn.start; i < branch.start + turn.end; i++) sum += branch.logprobs[i];
  return sum / (turn.end - turn.start);
}

function sampleCard(page, node, branch) {
  const turn = branch && branch.turns[branch.turns.length - 1];
  const message = branch && [...branch.messages].reverse().find(m => m.generated);
  const chosen = node.response_id === page.response;
  return h(`div.sample${chosen ? ".chosen" : ""}`, {"data-response": node.response_id},
    h("div.top", h("strong", `answer ${node.seq}`), node.truncated && h("span.badge.cut", "truncated"), h("span.spacer"), h("button.link", {onclick: () => page.openSample(node.response_id)}, "open")),
    turn ? [h("div.facts-line", turnFacts(turn), ` · mean logprob ${decimal(meanLogprob(branch, turn))}`),
      message.reasoning_content && longText(String(message.reasoning_content), "text.reasoning", true),
      longText(typeof message.content === "string" ? message.content : JSON.stringify(message.content ?? "", null, 1)),
      (message.tool_calls || []).map(c => h("div.call", h("code", foreign(c.function?.name || "")), longText(String(c.function?.arguments ?? ""), "text.data")))]
      : h("p.quiet", branch === null ? "No branch holds this answer any more." : "This page holds whole branches only."));
}

// Draws the samples of the chosen answer's prompt; else those of the last prompt that has several, of this branch or of the session.
export async function drawSamples(body, page, branch) {
  const wanted = [page.sample, ...branch.turns.map(t => t.response_id).reverse(), ...page.nodes.keys()];
  const of = wanted.find(response => siblingsOf(page.nodes, response).length > 1);
  if (!of) {
    clear(body, h("p.empty", "Each prompt of this session was sampled once."));
    return;
  }
  const all = siblingsOf(page.nodes, of);
  const cards = all.slice(0, SAMPLES_MAX).map(node => h("div.sample", {"data-response": node.response_id}, h("p.empty", `${shortId(node.response_id)}: reading …`)));
  clear(body, h("p", `${counted(all.length, "answer")} to one prompt`, all.length > SAMPLES_MAX && `; the first ${number(SAMPLES_MAX)} are shown`), h("div.samples", cards));
  for (const [i, node] of all.slice(0, SAMPLES_MAX).entries()) {
    let read;
    try {
      read = readBranch(await branchBytes(page.id, node.response_id));
    } catch (error) {
      if (error.status !== 404) throw error;      // a saved page: undefined
    }
    if (page.ended || page.tab !== "samples") return;
    cards[i].replaceWith(sampleCard(page, node, read));
  }
}

// The drift audit of a branch: where its tokens are not what the template writes for the same messages.
import {h, clear, counted, number, visible} from "./dom.js";
import {textOf, tokensText} from "./branch.js";
import {textDiff} from "./conversation.js";
import {cellText} from "./tokens.js";

const AROUND = 10;
const DRIFT_CELLS_MAX = 64;
const SPELT_MAX = 400;       // characters of both texts: so short ones show their line feeds

// Of each token: 0 as the template writes it, 1 it differs, 2 not compared (after the last known difference, or never audited).
export function driftOf(branch) {
  const told = branch.extra_fields.drift;
  const at = new Uint8Array(branch.ids.length);
  if (!told) return at.fill(2);
  const places = branch.driftPlaces;
  const last = places[places.length - 1];
  if (last && (places.length < told.count || last.kind === "special_token_count" || last.n === null)) at.fill(2, last.position);
  for (const place of places) at.fill(1, Math.min(place.position, at.length - 1), Math.max(place.position + 1, place.position + (place.n || 0)));
  return at;
}

function cells(branch, ids, mark) {
  return h("div.tokens", ids.slice(0, DRIFT_CELLS_MAX).map((id, i) => h(`code.cell${mark(i) ? ".here" : ""}`, {title: `id ${id}`}, cellText(branch.vocabulary.get(id), id))),
    ids.length > DRIFT_CELLS_MAX && h("span.quiet", ` and ${number(ids.length - DRIFT_CELLS_MAX)} more`));
}

// One difference: both texts, and the tokens of each with those around them.
function placeOf(branch, place, index, open) {
  const {position, n, want} = place;
  const title = h("h3", `${index + 1}. ${place.kind.replace(/_/g, " ")} at `, h("button.link", {onclick: () => open(position)}, `token ${number(position)}`));
  if (!want) return h("section.drift", title);
  const from = Math.max(0, position - AROUND);
  const before = Array.from(branch.ids.slice(from, position));
  const sent = Array.from(branch.ids.slice(position, position + n));
  const after = Array.from(branch.ids.slice(position + n, position + n + AROUND));
  const row = (name, ids) => [h("dt", name, h("div.quiet", counted(ids.length, "token"))), h("dd", cells(branch, [...before, ...ids, ...after], i => i >= before.length && i < before.length + ids.length))];
  const texts = [textOf(branch, position, position + n), tokensText(branch, want)];
  return h("section.drift", title, h("dl.facts.drifted", row("sampled and sent", sent), row("the template's", want)),
    texts[0] === texts[1] ? h("p.quiet", "Both spell the same text: ", h("code", visible(texts[0], true).slice(0, 200))) : [h("p.quiet", "Struck through: the text that was sent. Underlined: the template's."), textDiff(...texts, texts.join("").length < SPELT_MAX)],
    place.cut && h("p.quiet", "The rest of this difference is left out."));
}

// Draws the audit into `body`; `open` shows a token.
export function drawDrift(body, branch, open) {
  const told = branch.extra_fields.drift;
  if (!told) {
    clear(body, h("p.empty", "There is no audit of this branch: its session has a different tokenizer, or it was captured as text."));
  } else if (!told.count) {
    clear(body, h("p", "The template, given the same messages, writes exactly these ids."));
  } else {
    clear(body, h("p", `The template, given the same messages, would write other ids: ${counted(told.count, "difference")}. Nothing was changed: the ids below were really sent and sampled.`),
      branch.driftPlaces.map((place, i) => placeOf(branch, place, i, open)),
      told.count > branch.driftPlaces.length && h("p.quiet", `${number(told.count - branch.driftPlaces.length)} more are counted.`));
  }
}

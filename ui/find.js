// Search in a branch: in the messages as they are shown, and in the text of its tokens.

const FOUND_MAX = 10000;

function eachHit(hay, needle, take) {
  for (let at = hay.indexOf(needle); at >= 0; at = hay.indexOf(needle, at + needle.length)) if (take(at) === false) return;
}

// Blocks of text in drawn messages that have the words, in their order: [{message, block, at}].
export function findInMessages(list, words) {
  const needle = words.toLowerCase();
  const out = [];
  if (!needle) return out;
  for (const block of list.querySelectorAll("li.message pre")) {
    if (!block.whole) continue;
    const message = Number(block.closest("li").dataset.message);
    eachHit(block.whole().toLowerCase(), needle, at => out.push({message, block, at}) < FOUND_MAX);
  }
  return out;
}

// The text of all tokens, and where in it each begins. Made once for a branch.
function spelling(branch) {
  if (branch.spelling) return branch.spelling;
  const decoder = new TextDecoder();
  const from = new Uint32Array(branch.ids.length + 1);
  const parts = [];
  let length = 0;
  for (let i = 0; i < branch.ids.length; i++) {
    from[i] = length;
    const entry = branch.vocabulary.get(branch.ids[i]);
    let text = `‹${branch.ids[i]}›`;
    if (entry && entry.bytes) text = decoder.decode(entry.bytes, {stream: true}) || "";
    else if (entry && entry.text !== undefined) text = decoder.decode(new Uint8Array(0)) + entry.text;
    parts.push(text.toLowerCase());
    length += parts[i].length;
  }
  from[branch.ids.length] = length;
  branch.spelling = {text: parts.join(""), from};
  return branch.spelling;
}

// The last token that begins at or before the character.
function tokenAt(from, at) {
  let low = 0, high = from.length - 2;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (from[middle] <= at) low = middle;
    else high = middle - 1;
  }
  return low;
}

// Tokens that hold the words, [{token, end}]; digits alone mean an id, too.
export function findInTokens(branch, words) {
  const needle = words.toLowerCase();
  const out = [];
  if (!needle || !branch.ids.length) return out;
  const {text, from} = spelling(branch);
  eachHit(text, needle, at => out.push({token: tokenAt(from, at), end: tokenAt(from, at + needle.length - 1) + 1}) < FOUND_MAX);
  if (/^\d+$/.test(needle)) branch.ids.forEach((id, i) => { if (id === Number(needle) && out.length < FOUND_MAX) out.push({token: i, end: i + 1}); });
  return out.sort((a, b) => a.token - b.token);
}

// Marks the hits in the messages without changing them; the current one stands out. Nothing where the browser has no highlights.
export function markHits(hits, current) {
  if (!globalThis.CSS?.highlights) return;
  CSS.highlights.delete("found");
  CSS.highlights.delete("current");
  const rangeOf = ({block, at, length}) => {
    const node = block.firstChild;
    if (!node || node.nodeType !== Node.TEXT_NODE || at + length > node.data.length) return null;
    const range = new Range();
    range.setStart(node, at);
    range.setEnd(node, at + length);
    return range;
  };
  const ranges = hits.slice(0, 1000).map(rangeOf).filter(Boolean);
  if (ranges.length) CSS.highlights.set("found", new Highlight(...ranges));
  const chosen = hits[current] && rangeOf(hits[current]);
  if (chosen) CSS.highlights.set("current", new Highlight(chosen));
}

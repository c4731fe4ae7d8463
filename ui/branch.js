// A branch as the gateway sends it: a file of tensors (docs/viewer.md) with ids, mask and logprobs, and JSON beside them.

const KINDS = {I32: Int32Array, F32: Float32Array, U8: Uint8Array};

// The bytes -> {ids, mask, logprobs, turns, messages, ...}; null when the branch is in no trajectory (it was dropped).
export function readBranch(buffer) {
  const length = Number(new DataView(buffer).getBigUint64(0, true));
  const head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
  const meta = head.__metadata__;
  const rest = JSON.parse(meta.trajectories)[0];
  if (!rest) return null;
  const tensor = name => {
    const entry = head[`${name}.0`];
    if (!entry) return null;
    const [from, to] = entry.data_offsets;
    return new KINDS[entry.dtype](buffer.slice(8 + length + from, 8 + length + to));
  };
  const ids = tensor("ids") || new Int32Array(0);
  const response = tensor("response_mask") || new Uint8Array(0);
  const start = ids.length - response.length;
  const summary = JSON.parse(meta.summary);
  const trainer = tensor("response_trainer_logprobs");
  return {
    ...rest, ids, start, summary,
    trainer: trainer && logprobsOf(trainer, start, ids.length, response),
    reported_versions: JSON.parse(meta.reported_versions || "[]"),
    driftPlaces: driftPlacesOf(rest.extra_fields.drift, JSON.parse(meta.drift || "[]")),
    toolsAt: toolsOf(rest.turns, JSON.parse(meta.tools || "null")),
    pictures: picturesOf(rest.images || [], summary.media || []),
    mask: spread(response, start, new Uint8Array(ids.length)),
    logprobs: logprobsOf(tensor("response_logprobs"), start, ids.length, response),
    alternatives: alternativesOf(tensor("response_top_ids"), tensor("response_top_logprobs"), response.length),
    vocabulary: readVocabulary(JSON.parse(meta.vocabulary || "{}")),
    ...placesOf(rest.turns, start, ids.length),
  };
}

// By the position of its first token: {offset, length, row (of the table of pictures)}.
function picturesOf(images, table) {
  const rows = new Map(table.map(row => [row.sha256, row]));
  return new Map(images.filter(i => rows.has(i.media)).map(i => [i.offset, {...i, row: rows.get(i.media)}]));
}

// The picture that the token at a position is of, or undefined.
export function pictureAt(branch, at) {
  for (const picture of branch.pictures.values()) if (at >= picture.offset && at < picture.offset + picture.length) return picture;
  return undefined;
}

// Differences from the template's rendering: {kind, position, n (tokens that were sent), want (the template's ids), cut}. An older
// gateway tells the first position alone: n and want are null.
function driftPlacesOf(told, places) {
  if (places.length) return places;
  return told && told.first ? [{...told.first, n: null, want: null}] : [];
}

// Of each turn the tools that its model was offered, one list for turns that had the same; {cut: their number}: too long for the
// file; null: not told.
function toolsOf(turns, changes) {
  if (!changes) return null;
  const lists = new Map();
  for (const c of changes) lists.set(c.turn, c.cut ? {cut: c.n} : c.tools ?? lists.get(c.same) ?? []);
  let at = -1;
  return turns.map((_, i) => {
    while (at + 1 < changes.length && changes[at + 1].turn <= i) at++;
    return at < 0 ? [] : lists.get(changes[at].turn);
  });
}

function spread(values, start, into) {
  into.set(values, start);
  return into;
}

// NaN where the model wrote nothing.
function logprobsOf(values, start, n, mask) {
  if (!values) return null;
  const out = new Float32Array(n).fill(NaN);
  for (let i = 0; i < values.length; i++) if (mask[i]) out[start + i] = values[i];
  return out;
}

// What else could have been sampled, k of each token of the response, the best first; null where the session keeps none.
function alternativesOf(ids, logprobs, n) {
  return ids && logprobs && n ? {k: ids.length / n, ids, logprobs} : null;
}

// Of one token: [[id, logprob], ...].
export function alternativesAt(branch, at) {
  const out = [];
  const all = branch.alternatives;
  const row = at - branch.start;
  for (let i = 0; all && row >= 0 && i < all.k; i++) {
    const id = all.ids[row * all.k + i];
    if (id >= 0) out.push([id, all.logprobs[row * all.k + i]]);
  }
  return out;
}

// Of each token its turn (from 1; 0: context) and its weight version's number in `versions` (from 1; 0: none).
function placesOf(turns, start, n) {
  const turnAt = new Uint16Array(n);
  const versionAt = new Uint16Array(n);
  const versions = [];
  turns.forEach((turn, index) => {
    if (turn.start === null) return;
    turnAt.fill(index + 1, start + turn.start, start + turn.end);
    for (const span of turn.weight_versions) {
      let at = versions.indexOf(span.version);
      if (at < 0) at = versions.push(span.version) - 1;
      versionAt.fill(at + 1, start + turn.start + span.start, start + turn.start + span.end);
    }
  });
  return {turnAt, versionAt, versions};
}

function readVocabulary(raw) {
  const out = new Map();
  for (const [id, entry] of Object.entries(raw)) {
    const bytes = entry.b === undefined ? null : Uint8Array.from(atob(entry.b), c => c.charCodeAt(0));
    out.set(Number(id), {text: entry.t, bytes, special: !!entry.s});
  }
  return out;
}

// The bytes of a token as hexadecimal digits; null: not known.
export function tokenHex(entry) {
  if (!entry || (entry.text === undefined && !entry.bytes)) return null;
  const bytes = entry.bytes || new TextEncoder().encode(entry.text);
  return Array.from(bytes, b => b.toString(16).padStart(2, "0")).join(" ");
}

// The first position where the ids of two branches differ; the length of the shorter when one begins with the other.
export function firstDifference(a, b) {
  const n = Math.min(a.length, b.length);
  let i = 0;
  while (i < n && a[i] === b[i]) i++;
  return i;
}

// The text of tokens from..to, characters that are split over tokens put together.
export function textOf(branch, from, to) {
  return tokensText(branch, branch.ids.subarray(from, to));
}

export function tokensText(branch, ids) {
  const decoder = new TextDecoder();
  const encoder = new TextEncoder();
  let out = "";
  for (const id of ids) {
    const entry = branch.vocabulary.get(id);
    if (!entry || (entry.text === undefined && !entry.bytes)) out += decoder.decode() + `‹${id}›`;
    else out += decoder.decode(entry.bytes || encoder.encode(entry.text), {stream: true});
  }
  return out + decoder.decode();
}

// Differences of two texts by words, and of two lists of ids, for places where branches part.

const CELLS_MAX = 4e6;

// Longest common subsequence of the middle parts; lists of {kind: "same" | "removed" | "added", items}.
export function difference(a, b) {
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head++;
  let tail = 0;
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail++;
  const out = [];
  put(out, "same", a.slice(0, head));
  middle(a.slice(head, a.length - tail), b.slice(head, b.length - tail), out);
  put(out, "same", a.slice(a.length - tail));
  return out;
}

function put(out, kind, items) {
  if (!items.length) return;
  const last = out[out.length - 1];
  if (last && last.kind === kind) last.items.push(...items);
  else out.push({kind, items: Array.from(items)});
}

function middle(a, b, out) {
  if (!a.length || !b.length || a.length * b.length > CELLS_MAX) {
    put(out, "removed", a);
    put(out, "added", b);
    return;
  }
  const width = b.length + 1;
  const best = new Uint32Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      best[i * width + j] = a[i] === b[j] ? best[(i + 1) * width + j + 1] + 1 : Math.max(best[(i + 1) * width + j], best[i * width + j + 1]);
    }
  }
  let i = 0, j = 0;
  while (i < a.length && j < b.length) {
    if (a[i] === b[j]) {
      put(out, "same", [a[i++]]);
      j++;
    } else if (best[(i + 1) * width + j] >= best[i * width + j + 1]) put(out, "removed", [a[i++]]);
    else put(out, "added", [b[j++]]);
  }
  put(out, "removed", a.slice(i));
  put(out, "added", b.slice(j));
}

export function words(text) {
  return text.match(/\s+|[\p{L}\p{N}_]+|[^\s\p{L}\p{N}_]/gu) || [];
}

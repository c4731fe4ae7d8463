// Where the true ids leave the ids of the canonical rendering.

const RESYNC_RUN = 6;
const RESYNC_MAX = 600;

function equalFrom(a, i, b, k, run) {
  for (let n = 0; n < run; n++) {
    if (i + n >= a.length && k + n >= b.length) return true;
    if (a[i + n] !== b[k + n]) return false;
  }
  return true;
}

// The nearest place where both go on alike: [steps in a, steps in b].
function resync(a, i, b, k) {
  for (let sum = 1; sum <= RESYNC_MAX; sum++) {
    for (let step = 0; step <= sum; step++) {
      if (i + step <= a.length && k + sum - step <= b.length && equalFrom(a, i + step, b, k + sum - step, RESYNC_RUN)) return [step, sum - step];
    }
  }
  return [a.length - i, b.length - k];
}

// By true token: 0 as rendered, 1 differs, 2 the rendering has ids before it that are not there. And the places:
// [{at, ids (the true ones), rendered (the rendering's)}].
export function driftOf(ids, canonical) {
  const at = new Uint8Array(ids.length);
  const places = [];
  let i = 0, k = 0;
  while (i < ids.length && k < canonical.length) {
    if (ids[i] === canonical[k]) {
      i++;
      k++;
      continue;
    }
    const [mine, theirs] = resync(ids, i, canonical, k);
    at.fill(1, i, i + mine);
    if (!mine && i < ids.length) at[i] = 2;
    places.push({at: i, ids: Array.from(ids.slice(i, i + mine)), rendered: Array.from(canonical.slice(k, k + theirs))});
    i += mine;
    k += theirs;
  }
  if (i < ids.length) {
    at.fill(1, i);
    places.push({at: i, ids: Array.from(ids.slice(i)), rendered: []});
  }
  return {at, places};
}

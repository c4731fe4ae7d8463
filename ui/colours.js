// Colour scales of tokens. Every pair of ground and ink has a contrast of 4.5 to 1 or more, and the grounds of one scale
// can be told apart without red, green or blue (a test computes how colour-blind eyes see them): steps of lightness for
// amounts, hues of unlike lightness for kinds. Shape says the most important thing once more: what the model wrote is underlined, special tokens have a frame.

const LIGHT = {
  none: ["#ffffff", "#1c2430"],
  context: ["#eceff3", "#36404d"],
  amounts: [["#fff7d6", "#1c2430"], ["#ffe08a", "#1c2430"], ["#f6b756", "#1c2430"], ["#d97a3a", "#140a00"],
    ["#a8443f", "#ffffff"], ["#6e1d4f", "#ffffff"], ["#2d0b45", "#ffffff"]],
  kinds: [["#22aaff", "#0d1117"], ["#e6aa66", "#0d1117"], ["#88aaaa", "#0d1117"], ["#aaffcc", "#0d1117"],
    ["#cc88cc", "#0d1117"], ["#ffe688", "#0d1117"], ["#66e6ff", "#0d1117"], ["#aaaa88", "#0d1117"]],
  model: ["#b9dcf7", "#06253f"],
  untrained: ["#f0c27a", "#2e1d00"],
  differs: ["#8f3a00", "#ffffff"],
  ratios: [["#10357a", "#ffffff"], ["#3f7fd0", "#06121f"], ["#a9ccf5", "#0d1117"], ["#fffdf0", "#1c2430"],
    ["#ffd9a0", "#1c1405"], ["#e58a2c", "#140a00"], ["#8a3400", "#ffffff"]],
  mark: "#0b4f8a",
};

const DARK = {
  none: ["#12171f", "#e6ebf2"],
  context: ["#232b36", "#c3ccd8"],
  amounts: [["#364252", "#e6ebf2"], ["#4a4220", "#fff3c4"], ["#7a5a12", "#fff6e0"], ["#c97a2a", "#140a00"],
    ["#f0a04b", "#1f0f00"], ["#ffc983", "#241500"], ["#fff0c9", "#2a2100"]],
  kinds: [["#4466aa", "#ffffff"], ["#aa8888", "#0a0a0a"], ["#442266", "#ffffff"], ["#aa4444", "#ffffff"],
    ["#8888aa", "#0a0a0a"], ["#660000", "#ffffff"], ["#884466", "#ffffff"], ["#666600", "#ffffff"]],
  model: ["#0e4a78", "#e6f4ff"],
  untrained: ["#6b5320", "#fff6e0"],
  differs: ["#ffb27a", "#2a1000"],
  ratios: [["#c3ddff", "#06121f"], ["#6aa5ea", "#06121f"], ["#23507f", "#ffffff"], ["#3f4044", "#f2f2f2"],
    ["#6a4a1c", "#fff6e0"], ["#c9822f", "#140a00"], ["#ffd3a0", "#241500"]],
  mark: "#7cc4ff",
};

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

export function palette() {
  return isDark() ? DARK : LIGHT;
}

// Upper ends of the steps of a logprob's size: the darker (in dark pages the brighter), the less likely.
const STEPS = [0.01, 0.1, 0.5, 1, 2, 5];

export function stepOf(logprob) {
  let i = 0;
  while (i < STEPS.length && -logprob > STEPS[i]) i++;
  return i;
}

function stepName(i) {
  const p = x => `${(100 * Math.exp(-x)).toPrecision(2).replace(/\.0$/, "")} %`;
  if (i === 0) return `≥ ${p(STEPS[0])}`;
  return i === STEPS.length ? `< ${p(STEPS[i - 1])}` : `${p(STEPS[i])}–${p(STEPS[i - 1])}`;
}

// Upper ends of the steps of an importance ratio, the trainer's probability over the sampler's: blue below 1, orange above.
const RATIOS = [0.5, 0.8, 0.95, 1.05, 1.25, 2];

export function ratioStep(log) {
  let i = 0;
  while (i < RATIOS.length && Math.exp(log) >= RATIOS[i]) i++;
  return i;
}

function ratioName(i) {
  if (i === 0) return `ratio < ${RATIOS[0]}`;
  return i === RATIOS.length ? `≥ ${RATIOS[i - 1]}` : `${RATIOS[i - 1]}–${RATIOS[i]}`;
}

export const COLOURINGS = [
  ["mask", "Mask"], ["logprob", "Logprob"], ["version", "Weight version"], ["turn", "Turn"], ["drift", "Drift"], ["ratio", "Importance ratio"],
];

// Of each token of a branch the number of its pair in `pairs`, and what the pairs mean.
export function colour(branch, mode, drift) {
  const p = palette();
  const n = branch.ids.length;
  const at = new Uint8Array(n);
  if (mode === "logprob") {
    for (let i = 0; i < n; i++) at[i] = branch.logprobs && !isNaN(branch.logprobs[i]) ? stepOf(branch.logprobs[i]) + 1 : 0;
    return {at, pairs: [p.context, ...p.amounts], names: ["no logprob", ...p.amounts.map((_, i) => stepName(i))]};
  }
  if (mode === "ratio" && branch.trainer) {
    for (let i = 0; i < n; i++) {
      const log = branch.logprobs ? branch.trainer[i] - branch.logprobs[i] : NaN;
      at[i] = isNaN(log) ? 0 : ratioStep(log) + 1;
    }
    return {at, pairs: [p.context, ...p.ratios], names: ["no logprob of the trainer", ...p.ratios.map((_, i) => ratioName(i))]};
  }
  if (mode === "version" || mode === "turn") {
    const from = mode === "version" ? branch.versionAt : branch.turnAt;
    for (let i = 0; i < n; i++) at[i] = from[i] ? (from[i] - 1) % p.kinds.length + 1 : 0;
    const all = mode === "version" ? branch.versions : branch.turns.map((_, i) => `turn ${i + 1}`);
    const names = p.kinds.map((_, k) => all.filter((_, i) => i % p.kinds.length === k))
      .map(list => list.slice(0, 3).join(", ") + (list.length > 3 ? " …" : ""));
    return {at, pairs: [p.context, ...p.kinds], names: ["context", ...names]};
  }
  if (mode === "drift") {
    for (let i = 0; i < n; i++) at[i] = drift ? drift[i] : 2;
    return {at, pairs: [p.context, p.differs, p.none],
      names: ["as the template writes it", "differs from the template's rendering", "not compared"]};
  }
  for (let i = 0; i < n; i++) at[i] = branch.mask[i] ? 1 : branch.turnAt[i] ? 2 : 0;
  return {at, pairs: [p.context, p.model, p.untrained], names: ["context (mask 0)", "the model's, trained (mask 1)", "the model's, not trained here"]};
}

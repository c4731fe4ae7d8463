// Measures over all code points what the reference library (npm `tokenizers`, the Rust code) does,
// and writes the hf_*.txt tables that scripts/make_unicode.py --take puts into its text:
//   npm install tokenizers@0.23.2 && node measure_unicode.js OUT_FOLDER
// The remaining tables (onig_*: general categories of its regular expressions; hf_nfc_map, hf_nfd_map,
// hf_ccc_nonzero: its normalization tables) were measured the same way with Split patterns, NFC, NFD.
const t = require('tokenizers')
const fs = require('fs')
const out = process.argv[2]
const hex = (c) => c.toString(16)
const points = []
for (let c = 0; c < 0x110000; c++) if (c < 0xd800 || c > 0xdfff) points.push(c)

function write(name, lines) {
  fs.writeFileSync(`${out}/${name}.txt`, lines.join('\n') + '\n')
}

function ranges(name, has) {
  const runs = []
  for (const c of points) {
    if (!has(String.fromCodePoint(c))) continue
    const last = runs[runs.length - 1]
    if (last && last[1] === c - 1) last[1] = c
    else runs.push([c, c])
  }
  write(name, runs.map(([a, b]) => (a === b ? hex(a) : `${hex(a)}..${hex(b)}`)))
}

function map(name, f, skip) {
  const lines = []
  for (const c of points) {
    const s = String.fromCodePoint(c)
    const r = f(s)
    if (r === s || (skip && skip(s, r))) continue
    lines.push(hex(c) + '\t' + [...r].map((x) => hex(x.codePointAt(0))).join(' '))
  }
  write(name, lines)
}

const nfd = t.nfdNormalizer()
const nfkd = t.nfkdNormalizer()
const lower = t.lowercase()
const accents = t.stripAccentsNormalizer()
const pieces = (pre, c) => pre.preTokenizeString(`a${c}a`).length
const punctuation = t.punctuationPreTokenizer('isolated')
const digits = t.digitsPreTokenizer(true)
const whitespace = t.whitespacePreTokenizer()

map('hf_nfkd_compat', (s) => nfkd.normalizeString(s), (s, r) => r === nfd.normalizeString(s))
map('hf_lowercase', (s) => lower.normalizeString(s))
ranges('hf_mark', (c) => accents.normalizeString(`a${c}a`).length === 2)
ranges('hf_punctuation', (c) => pieces(punctuation, c) === 3)
ranges('hf_numeric', (c) => pieces(digits, c) === 3)
ranges('hf_word', (c) => pieces(whitespace, c) === 1)

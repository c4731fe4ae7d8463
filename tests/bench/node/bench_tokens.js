// Encoding speed of the Rust library (npm `tokenizers`) and of tiktoken (npm, WebAssembly) on the
// same text as bench_tokens.c:
//   node bench_tokens.js TOKENIZER.json TEXT        prints one JSON object
// Figures are CPU time of the whole process (the library encodes on a pool thread, one at a time
// here), best of several rounds; only encode() is timed, ids are not copied out.
const fs = require('fs')
const { Tokenizer } = require('tokenizers')

const ROUNDS = 5
const MESSAGE_BYTES = 500
const MESSAGES = 2000

function cpuSeconds() {
  const u = process.cpuUsage()
  return (u.user + u.system) / 1e6
}

function cut(bytes) {
  const out = []
  let at = 0
  while (out.length < MESSAGES) {
    let end = at + MESSAGE_BYTES
    if (end > bytes.length) {
      at = 0
      continue
    }
    while (end < bytes.length && (bytes[end] & 0xc0) === 0x80) end++
    out.push(bytes.subarray(at, end).toString('utf8'))
    at = end
  }
  return out
}

async function best(bytes, run) {
  let low = Infinity
  for (let i = 0; i < ROUNDS; i++) {
    const start = cpuSeconds()
    await run()
    low = Math.min(low, cpuSeconds() - start)
  }
  return +(bytes / low / 1e6).toFixed(2)
}

// "Ġ" and the like back to bytes, for tiktoken's ranks
function byteOfChar() {
  const map = new Map()
  let next = 256
  for (let b = 0; b < 256; b++) {
    const itself = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae
    map.set(String.fromCodePoint(itself ? b : next++), b)
  }
  return map
}

function tiktoken(config) {
  const { Tiktoken } = require('tiktoken')
  const stages = config.pre_tokenizer.pretokenizers || []
  const split = stages[0]
  if (stages.length !== 2 || split.type !== 'Split' || stages[1].type !== 'ByteLevel') return null
  const map = byteOfChar()
  const ranks = Object.entries(config.model.vocab).map(([piece, id]) =>
    [Buffer.from([...piece].map((c) => map.get(c))).toString('base64'), id])
  ranks.sort((a, b) => a[1] - b[1])
  const lines = ranks.map(([piece, id]) => `! ${id} ${piece}`).join('\n')
  return new Tiktoken(lines, {}, split.pattern.Regex)
}

async function main() {
  const [, , path, textPath] = process.argv
  const bytes = fs.readFileSync(textPath)
  const text = bytes.toString('utf8')
  const messages = cut(bytes)
  const messageBytes = messages.reduce((n, m) => n + Buffer.byteLength(m), 0)
  const loadStart = cpuSeconds()
  const t = Tokenizer.fromFile(path)
  const out = { rust: { load_ms: +((cpuSeconds() - loadStart) * 1e3).toFixed(1) } }
  const plain = { addSpecialTokens: false }
  out.rust.encode_mb_s = await best(bytes.length, () => t.encode(text, null, plain))
  out.rust.messages_mb_s = await best(messageBytes, async () => {
    for (const m of messages) await t.encode(m, null, plain)
  })
  const ids = (await t.encode(text, null, plain)).getIds()
  out.rust.ids = ids.length
  out.rust.decode_mb_s = await best(bytes.length, () => t.decode(ids, false))
  const k = tiktoken(JSON.parse(fs.readFileSync(path, 'utf8')))
  if (k) {
    out.tiktoken = { ids: k.encode_ordinary(text).length }
    out.tiktoken.encode_mb_s = await best(bytes.length, () => k.encode_ordinary(text))
    out.tiktoken.messages_mb_s = await best(messageBytes, () => {
      for (const m of messages) k.encode_ordinary(m)
    })
  }
  console.log(JSON.stringify(out))
}

main()

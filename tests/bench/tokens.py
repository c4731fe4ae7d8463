#!/usr/bin/python3
"""The tokenizer against the Rust library and tiktoken on the same texts, one after the other in one
run: encoding a 400 KB text and 2,000 messages of 500 bytes, decoding, loading, private memory per
worker, time per letter of long words.

    scripts/bench tokens [--tokenizer FILE ...] [--text FILE] [--json OUT]

The default tokenizers are those of ../shared/data/tokenizers; the default texts are this
repository's own sources and documents (prose and code) and, when ../shared is there, the
many-language paragraphs of its corpus. Figures are MB per CPU second, so that other work on the
machine weighs little. The libraries come from npm (tests/bench/node).
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / os.environ.get("RG_BUILD", "build/release")
SHARED = ROOT.parent / "shared" / "data"
NODE = ROOT / "tests" / "bench" / "node"
TEXT_BYTES = 400_000
MANY_LANGUAGES = {"para", "en", "zh", "ja", "ko", "ru", "de", "fr", "ar", "hi", "code", "json"}


def cut(parts):
    whole = "\n".join(parts)
    while len(whole.encode()) < TEXT_BYTES:
        whole += "\n" + whole
    return whole.encode()[:TEXT_BYTES].decode("utf-8", "ignore")


def own_text():
    files = subprocess.run(["git", "ls-files", "*.md", "*.c", "*.h", "*.py"], cwd=ROOT, text=True,
                           capture_output=True, check=True).stdout.split()
    return cut((ROOT / f).read_text(encoding="utf-8") for f in files if not f.endswith("_data.c"))


def corpus_text():
    path = SHARED / "corpus" / "encode" / "qwen3.jsonl"
    if not path.exists():
        return None
    cases = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]
    return cut(c["text"] for c in cases if c["cat"] in MANY_LANGUAGES and "text" in c)


def install_node():
    if not (NODE / "node_modules" / "tokenizers").exists():
        run = subprocess.run(["npm", "ci", "--no-audit", "--no-fund"], cwd=NODE, check=False,
                             capture_output=True, text=True)
        if run.returncode != 0:
            print("npm ci failed, the other libraries are not measured:", run.stderr[-300:])
            return False
    return True


def answer(command):
    run = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False)
    if run.returncode != 0:
        sys.exit(f"{command[0]}: {run.stderr[-500:]}")
    return json.loads(run.stdout)


def measure(tokenizer, name, text, peers):
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".txt") as f:
        f.write(text)
        f.flush()
        program = BUILD / "tests" / "bench" / "bench_tokens"
        ours = answer([program, tokenizer, f.name])
        ours["private_kb_per_worker"] = {
            n: answer([program, tokenizer, f.name, n])["private_kb_per_worker"] for n in (1, 4, 8)}
        result = {"tokenizer": tokenizer.parent.name, "text": name, "rollgate": ours}
        if peers:
            result.update(answer(["node", NODE / "bench_tokens.js", tokenizer, f.name]))
    return result


def show(r):
    print(f"{r['tokenizer']}, {r['text']}: load {r['rollgate']['load_ms']} ms, private KB per worker "
          f"{r['rollgate']['private_kb_per_worker']}, long words ns/letter "
          f"{r['rollgate']['long_word_ns_per_letter']}")
    rows = [("rollgate", r["rollgate"]), ("rust tokenizers", r.get("rust")),
            ("tiktoken", r.get("tiktoken"))]
    print(f"  {'MB per CPU second':20}{'400 KB text':>14}{'messages':>14}{'decode':>14}")
    for name, row in rows:
        if not row:
            continue
        cells = []
        for key in ("encode_mb_s", "messages_mb_s", "decode_mb_s"):
            value = row.get(key)
            ratio = f" ({r['rollgate'][key] / value:.1f}x)" if value and name != "rollgate" else ""
            cells.append(f"{value if value else '-'}{ratio}")
        print(f"  {name:20}" + "".join(f"{c:>14}" for c in cells))


def program(name, *arguments, **more):
    return subprocess.run([BUILD / "tests/bench" / name, *arguments], capture_output=True, text=True,
                          check=True, **more).stdout


def conversations():
    """Rendering beside jinja2, and the next turn's ids behind histories of growing length."""
    found = {}
    template = SHARED / "templates/lcpp.Qwen3-Coder.jinja"
    if template.exists():
        context = program("bench_template", template, "200", "500", "--context")
        theirs = subprocess.run(["/usr/bin/python3", ROOT / "tests/bench/jinja2_render.py", template],
                                input=context, capture_output=True, text=True, check=True).stdout
        found["render"] = {"rollgate": program("bench_template", template).strip(), "jinja2": theirs.strip()}
    folders = [SHARED / "models" / n for n in ("qwen3", "qwen3-coder") if (SHARED / "models" / n).exists()]
    for folder in folders or [None]:
        name = folder.name if folder else "built-in"
        found[f"suffix {name}"] = program("bench_suffix", *([folder] if folder else [])).rstrip()
    return found


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--tokenizer", type=pathlib.Path, nargs="*")
    p.add_argument("--only", help="the vocabularies whose folders have these names (a,b), of those at hand")
    p.add_argument("--text", type=pathlib.Path)
    p.add_argument("--json", type=pathlib.Path)
    a = p.parse_args()
    found = a.tokenizer or sorted(SHARED.glob("tokenizers/*/tokenizer.json"))
    if a.only:
        found = [t for t in found if t.parent.name in a.only.split(",")]
    if not found:
        found = sorted((ROOT / "tests/data/tokens").glob("tiny-qwen3/tokenizer.json"))
        print("no such vocabulary at hand: measuring a tiny vocabulary")
    texts = {"own": own_text(), "languages": corpus_text()}
    if a.text:
        texts = {a.text.name: a.text.read_text(encoding="utf-8")}
    peers = install_node()
    results = [measure(t, name, text, peers) for t in found for name, text in texts.items() if text]
    for r in results:
        show(r)
    talks = conversations()
    for what, text in talks.items():
        print(f"{what}:", text if isinstance(text, str) else "\n".join(text.values()), sep="\n")
    if a.json:
        a.json.write_text(json.dumps({"tokenizers": results, "conversations": talks}, indent=1) + "\n")


main()

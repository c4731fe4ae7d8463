"""The token proof: `rollgate tokenize`, `detokenize` and `render`, one JSON object a line in and one out, against
what the reference libraries answered. Used by test_tokens_corpus.py, or by hand:

    token_corpus.py encode   BIN TOKENIZER.json CORPUS LONG_TEXTS
    token_corpus.py decode   BIN TOKENIZER.json CORPUS
    token_corpus.py render   BIN TEMPLATE.jinja CORPUS CONVS.json SPECIAL_TOKENS.json
    token_corpus.py messages BIN TOKENIZER.json TEMPLATE.jinja CORPUS CONVS.json SPECIAL_TOKENS.json
    token_corpus.py units    BIN UNITS CONTEXT.json

Files may be compressed (.xz). A corpus is lines of JSON (tests/data/corpus/README.md tells their fields); FILE.xz#NAME
is the part of a file behind its line `== NAME`. The last line is `N passed, N failed`."""
import functools
import hashlib
import json
import lzma
import os
import struct
import subprocess
import sys
from pathlib import Path

NOW = "2025-07-10T12:00:00"     # fixed time for templates


@functools.lru_cache(maxsize=4)
def parts_of(path):
    """Returns the sections of a file by name; "" has the whole file."""
    data = Path(path).read_bytes()
    text = (lzma.decompress(data) if path.endswith(".xz") else data).decode("utf-8")
    return {"": text, **dict(part.split("\n", 1) for part in ("\n" + text).split("\n== ")[1:])}


def read(path):
    """Returns the text of a file, or of one section of it."""
    path, _, part = str(path).partition("#")
    return parts_of(path)[part]


def parts(path):
    """Returns the names of a file's sections."""
    return [name for name in parts_of(str(path)) if name]


def lines(path):
    return [json.loads(line) for line in read(path).split("\n") if line.strip()]


def ask(command, questions):
    """Sends the questions to a command. Returns one answer for each."""
    text = "".join(json.dumps(q, ensure_ascii=False) + "\n" for q in questions)
    run = subprocess.run([str(c) for c in command], input=text.encode(), capture_output=True, timeout=600, check=False)
    out = run.stdout.decode("utf-8", "surrogatepass").split("\n")
    if out[-1] == "":
        out.pop()
    if len(out) != len(questions):
        raise AssertionError(f"{command}: {len(questions)} lines in, {len(out)} out, status {run.returncode}: "
                             f"{run.stderr.decode('utf-8', 'replace')[-300:]}")
    return [json.loads(o) for o in out]


def tokenize(binary, tokenizer, texts, special):
    return ask([binary, "tokenize", "--jsonl", "--tokenizer", tokenizer],
               [{"text": t, "add_special_tokens": special} for t in texts])


def same_ids(case, ids):
    """Compares ids. Long texts have the number of ids and a hash of them as little-endian int32."""
    if "ids" in case:
        return ids == case["ids"]
    return len(ids) == case["n"] and hashlib.sha256(struct.pack(f"<{len(ids)}i", *ids)).hexdigest() == case["sha256_le32"]


def encode(binary, tokenizer, corpus, long_texts):
    """Yields (passed, description) for each case."""
    def text(case):
        return case["text"] if "text" in case else long_texts[case["text_ref"]]
    for case, got in zip(corpus, tokenize(binary, tokenizer, map(text, corpus), False)):
        yield same_ids(case, got.get("ids", [])), f"{case.get('cat')}: {text(case)[:80]!r} -> {str(got)[:200]} want {str(case)[:200]}"
    special = [case for case in corpus if "ids_special" in case]
    for case, got in zip(special, tokenize(binary, tokenizer, map(text, special), True)):
        yield got.get("ids") == case["ids_special"], f"with special tokens: {text(case)[:80]!r} -> {str(got)[:200]}"


def decode(binary, tokenizer, corpus):
    asked = [{"ids": c["ids"], "skip_special_tokens": c["skip_special_tokens"]} for c in corpus]
    for case, got in zip(corpus, ask([binary, "detokenize", "--jsonl", "--tokenizer", tokenizer], asked)):
        yield got.get("text") == case["text"], f"{str(case['ids'])[:120]} -> {got} want {case['text'][:80]!r}"


def contexts(name, corpus, convs, special):
    """Yields the contexts of a template: special tokens, the conversation, the case's own arguments."""
    for case in corpus:
        kwargs = dict(case["kwargs"])
        going_on = kwargs.pop("continue_final_message", False)    # True, or the field that is continued
        last = {"continue_final_message": going_on} if going_on else {}
        empty = {"tools": None, "documents": None, "add_generation_prompt": False}
        yield {"context": {**special.get(name, {}), **empty, **convs[case["conv"]], **kwargs}, "now": NOW, **last}


def rendered(binary, template, corpus, convs, special):
    return ask([binary, "render", "--jsonl", "--template", template],
               list(contexts(Path(template).name.removesuffix(".jinja"), corpus, convs, special)))


def as_expected(case, got):
    """Compares a result. Of errors only the words of a template's own errors count."""
    if "error" not in case:
        return got.get("text") == case["expected"]
    return "error" in got and (case["error"] != "TemplateError" or got.get("message") == case.get("message"))


def render(binary, template, corpus, convs, special):
    for case, got in zip(corpus, rendered(binary, template, corpus, convs, special)):
        yield as_expected(case, got), f"{case['id']} {case['kwargs']} -> {str(got)[:250]} want {str(case)[:250]}"


def messages(binary, tokenizer, template, corpus, convs, special):
    """Checks templates and tokenizers together."""
    got = rendered(binary, template, corpus, convs, special)
    fine = [i for i, g in enumerate(got) if "text" in g]
    ids = dict(zip(fine, tokenize(binary, tokenizer, [got[i]["text"] for i in fine], False)))
    for i, case in enumerate(corpus):
        have = ids.get(i, {}).get("ids")
        yield have == case.get("ids"), f"{case['id']} -> {str(have)[:200]} want {str(case.get('ids'))[:200]}"


def units(binary, corpus, context):
    """Checks small templates, each with its own context or the common one."""
    corpus = [u for u in corpus if not u.get("unstable")]
    asked = [{"template": u["template"], "context": context if u["context"] == "CTX" else u["context"], "now": NOW} for u in corpus]
    for unit, got in zip(corpus, ask([binary, "render", "--jsonl"], asked)):
        holds = "error" in got if "error" in unit else got.get("text") == unit["expected"]
        yield holds, f"{unit['template'][:120]!r} -> {str(got)[:160]} want {str(unit.get('expected', 'an error'))[:160]!r}"


def check(results):
    """Fails with the failed cases, or if nothing was compared."""
    results = list(results)
    bad = [what for holds, what in results if not holds]
    assert results, "nothing to compare"
    assert not bad, f"{len(bad)} of {len(results)} differ:\n" + "\n".join(what[:600] for what in bad[:5])
    return len(results)


def main():
    mode, binary, *files = sys.argv[1:]
    plain = {"encode": 1, "decode": 1, "render": 1, "messages": 2, "units": 0}[mode]     # number of files that are passed by name
    values = [lines(f) if ".jsonl" in f else json.loads(read(f)) for f in files[plain:]]
    results = list(globals()[mode](binary, *files[:plain], *values))
    bad = [what for holds, what in results if not holds]
    for what in bad[:int(os.environ.get("SHOW", "5"))]:
        print("FAIL", what[:600])
    print(f"{len(results) - len(bad)} passed, {len(bad)} failed")
    return 1 if bad or not results else 0


if __name__ == "__main__":
    sys.exit(main())

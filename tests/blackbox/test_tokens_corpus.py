"""`rollgate tokenize` and `detokenize` against the reference's answers in ../shared: every tokenizer
and every case with CI=true, else a sample of the cases. One batch per tokenizer through
../shared/tools/check_tokens.py, which compares."""
import os
import pathlib
import random
import subprocess
import sys

import pytest

import gateway as g

DATA = g.SHARED / "data"
WHOLE = os.environ.get("CI") == "true"
SAMPLE = 120


def tokenizers():
    found = sorted(DATA.glob("tokenizers/*/tokenizer.json"))
    return found + sorted(DATA.glob("tokenizers-tiny/*/tokenizer.json"))


def name_of(path):
    return path.parent.name


def sampled(corpus, folder):
    """The corpus file, or one with every so-manieth line of it."""
    if WHOLE:
        return corpus
    lines = corpus.read_text(encoding="utf-8").split("\n")
    lines = [line for line in lines if line]
    chosen = random.Random(corpus.name).sample(lines, min(SAMPLE, len(lines)))
    path = folder / corpus.name
    path.write_text("\n".join(chosen) + "\n", encoding="utf-8")
    return path


def compare(mode, tokenizer, folder):
    kind = "-tiny" if tokenizer.parent.parent.name == "tokenizers-tiny" else ""
    corpus = DATA / "corpus" / f"{mode}{kind}" / f"{name_of(tokenizer)}.jsonl"
    if not corpus.exists():
        pytest.skip(f"no {mode} corpus for {name_of(tokenizer)}")
    command = [sys.executable, g.SHARED / "tools" / "check_tokens.py", mode, g.BINARY, tokenizer,
               sampled(corpus, folder)]
    if mode == "encode":
        command.append(corpus.parent / "long_texts.jsonl")
    run = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.fixture(name="ready")
def fixture_ready(shared):
    if not g.BINARY.exists():
        pytest.skip(f"{g.BINARY} is not built")
    return pathlib.Path(shared)


@pytest.mark.parametrize("mode", ["encode", "decode"])
@pytest.mark.parametrize("tokenizer", tokenizers() or [None], ids=lambda p: p and name_of(p))
def test_equals_the_reference(ready, tmp_path, mode, tokenizer):
    assert ready
    compare(mode, tokenizer, tmp_path)


def test_jsonl_lines_fail_one_by_one():
    if not g.BINARY.exists():
        pytest.skip(f"{g.BINARY} is not built")
    lines = '{"text":"A"}\nno json\n{"text":1}\n{"text":"B"}\n'
    run = subprocess.run([g.BINARY, "tokenize", "--jsonl"], input=lines, capture_output=True,
                         text=True, check=False)
    out = run.stdout.splitlines()
    assert run.returncode == 1 and len(out) == 4
    assert out[0] == '{"ids":[65]}' and out[3] == '{"ids":[66]}'
    assert '"error"' in out[1] and '"error"' in out[2]


def test_plain_text_there_and_back():
    if not g.BINARY.exists():
        pytest.skip(f"{g.BINARY} is not built")
    text = "Grüße <|im_end|>\n"
    ids = subprocess.run([g.BINARY, "tokenize"], input=text, capture_output=True, text=True,
                         check=True).stdout
    back = subprocess.run([g.BINARY, "detokenize"], input=ids, capture_output=True, text=True,
                          check=True).stdout
    assert ids.split()[-2:] == ["257", "10"] and back == text


def test_a_missing_file_is_named():
    if not g.BINARY.exists():
        pytest.skip(f"{g.BINARY} is not built")
    run = subprocess.run([g.BINARY, "tokenize", "--tokenizer", "/nowhere/tokenizer.json"],
                         capture_output=True, text=True, check=False)
    assert run.returncode == 1 and "/nowhere/tokenizer.json" in run.stderr

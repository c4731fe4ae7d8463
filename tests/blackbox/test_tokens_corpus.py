"""`rollgate tokenize`, `detokenize` and `render` against the reference's answers in ../shared: every
tokenizer, template and case with CI=true, else a sample of the cases. One batch per tokenizer through
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


def check(*command):
    run = subprocess.run([sys.executable, g.SHARED / "tools" / "check_tokens.py", *command],
                         capture_output=True, text=True, timeout=600, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


def compare(mode, tokenizer, folder):
    kind = "-tiny" if tokenizer.parent.parent.name == "tokenizers-tiny" else ""
    corpus = DATA / "corpus" / f"{mode}{kind}" / f"{name_of(tokenizer)}.jsonl"
    if not corpus.exists():
        pytest.skip(f"no {mode} corpus for {name_of(tokenizer)}")
    more = [corpus.parent / "long_texts.jsonl"] if mode == "encode" else []
    check(mode, g.BINARY, tokenizer, sampled(corpus, folder), *more)


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


def named(folder):
    return sorted((DATA / "corpus" / folder).glob("*.jsonl")) or [None]


@pytest.mark.parametrize("corpus", named("messages"), ids=lambda p: p and p.stem)
def test_messages_render_and_encode_as_the_reference(ready, tmp_path, corpus):
    """Templates and tokenizers together, through the commands that a user has."""
    template, tokenizer = corpus.stem.split("__")
    data = ready / "data"
    check("messages", g.BINARY, data / "tokenizers" / tokenizer / "tokenizer.json",
          data / "templates" / f"{template}.jinja", sampled(corpus, tmp_path),
          corpus.parent.parent / "render.convs.json", corpus.parent.parent / "render.special_tokens.json")


@pytest.mark.parametrize("corpus", named("render"), ids=lambda p: p and p.stem)
def test_templates_render_as_the_reference(ready, tmp_path, corpus):
    check("render", g.BINARY, ready / "data" / "templates" / f"{corpus.stem}.jinja",
          sampled(corpus, tmp_path), corpus.parent.parent / "render.convs.json",
          corpus.parent.parent / "render.special_tokens.json")


def test_jinja_units_as_the_reference(ready):
    folder = ready / "data" / "corpus"
    check("units", g.BINARY, folder / "jinja_units.jsonl", folder / "jinja_units.ctx.json")


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

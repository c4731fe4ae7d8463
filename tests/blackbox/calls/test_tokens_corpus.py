"""The token proof: compares `rollgate tokenize`, `detokenize` and `render` with the reference's answers. The whole
corpora of the small tokenizers, one for each pipeline, and of template units are in tests/data and run everywhere.
Real vocabularies and templates are data of other projects, and run if ../shared has them: completely with CI=true,
else a sample of each."""
import json
import os
import random
import subprocess

import pytest

import gateway as g
import token_corpus as corpora

OURS = g.ROOT / "tests/data"
THEIRS = g.SHARED / "data"
WHOLE = os.environ.get("CI") == "true"
SAMPLE = 120


@pytest.fixture(autouse=True)
def built():
    if not g.BINARY.exists():
        pytest.skip(f"{g.BINARY} is not built")


def sampled(path):
    cases = corpora.lines(path)
    return cases if WHOLE else random.Random(path.name).sample(cases, min(SAMPLE, len(cases)))


# --- in the repository ---

@pytest.mark.parametrize("name", corpora.parts(OURS / "corpus/encode.txt.xz"))
def test_small_tokenizers_encode_as_the_reference(name):
    corpora.check(corpora.encode(g.BINARY, OURS / "tokens" / name / "tokenizer.json",
                                 corpora.lines(OURS / f"corpus/encode.txt.xz#{name}"), corpora.lines(OURS / "corpus/long_texts.jsonl.xz")))


@pytest.mark.parametrize("name", corpora.parts(OURS / "corpus/decode.txt.xz"))
def test_small_tokenizers_decode_as_the_reference(name):
    corpora.check(corpora.decode(g.BINARY, OURS / "tokens" / name / "tokenizer.json",
                                 corpora.lines(OURS / f"corpus/decode.txt.xz#{name}")))


def test_every_small_tokenizer_has_its_corpora():
    there = sorted(p.parent.name for p in (OURS / "tokens").glob("*/tokenizer.json"))
    for mode in ("encode", "decode"):
        assert sorted(corpora.parts(OURS / f"corpus/{mode}.txt.xz")) == there


def test_template_units_equal_jinja2():
    folder = OURS / "corpus"
    context = json.loads(corpora.read(folder / "jinja_units.ctx.json"))
    assert corpora.check(corpora.units(g.BINARY, corpora.lines(folder / "jinja_units.jsonl.xz"), context)) > 100


# --- where ../shared is ---

def named(pattern):
    """Files, or one that asks for them where they are not."""
    return sorted(THEIRS.glob(pattern)) or [None]


def title(path):
    return "absent" if path is None else path.parent.name if path.name == "tokenizer.json" else path.stem


@pytest.mark.parametrize("mode", ["encode", "decode"])
@pytest.mark.parametrize("tokenizer", named("tokenizers/*/tokenizer.json"), ids=title)
def test_equals_the_reference(shared, mode, tokenizer):
    path = shared / "data/corpus" / mode / f"{tokenizer.parent.name}.jsonl"
    if not path.exists():
        pytest.skip(f"no {mode} corpus for {tokenizer.parent.name}")
    more = [corpora.lines(path.parent / "long_texts.jsonl")] if mode == "encode" else []
    corpora.check(getattr(corpora, mode)(g.BINARY, tokenizer, sampled(path), *more))


def conversations(shared):
    folder = shared / "data/corpus"
    return [json.loads(corpora.read(folder / f"render.{name}.json")) for name in ("convs", "special_tokens")]


@pytest.mark.parametrize("path", named("corpus/messages/*.jsonl"), ids=title)
def test_messages_render_and_encode_as_the_reference(shared, path):
    """Templates and tokenizers together, through the commands that a user has."""
    template, tokenizer = path.stem.split("__")
    corpora.check(corpora.messages(g.BINARY, shared / "data/tokenizers" / tokenizer / "tokenizer.json",
                                   shared / "data/templates" / f"{template}.jinja", sampled(path), *conversations(shared)))


@pytest.mark.parametrize("path", named("corpus/render/*.jsonl"), ids=title)
def test_templates_render_as_the_reference(shared, path):
    corpora.check(corpora.render(g.BINARY, shared / "data/templates" / f"{path.stem}.jinja", sampled(path), *conversations(shared)))


# --- the commands themselves ---

def test_jsonl_lines_fail_one_by_one():
    lines = '{"text":"A"}\nno json\n{"text":1}\n{"text":"B"}\n'
    run = subprocess.run([g.BINARY, "tokenize", "--jsonl"], input=lines, capture_output=True,
                         text=True, check=False)
    out = run.stdout.splitlines()
    assert run.returncode == 1 and len(out) == 4
    assert out[0] == '{"ids":[65]}' and out[3] == '{"ids":[66]}'
    assert '"error"' in out[1] and '"error"' in out[2]


def test_plain_text_there_and_back():
    text = "Grüße <|im_end|>\n"
    ids = subprocess.run([g.BINARY, "tokenize"], input=text, capture_output=True, text=True,
                         check=True).stdout
    back = subprocess.run([g.BINARY, "detokenize"], input=ids, capture_output=True, text=True,
                          check=True).stdout
    assert ids.split()[-2:] == ["257", "10"] and back == text


def test_a_missing_file_is_named():
    run = subprocess.run([g.BINARY, "tokenize", "--tokenizer", "/nowhere/tokenizer.json"],
                         capture_output=True, text=True, check=False)
    assert run.returncode == 1 and "/nowhere/tokenizer.json" in run.stderr

"""The example's training loop in its short form: it learns, every first ratio is 1, and re-tokenized text loses that."""
import sys

import pytest

import gateway as g

sys.path.insert(0, str(g.ROOT / "examples/tiny"))
pytest.importorskip("numpy")
import policy  # noqa: E402
import rollgate  # noqa: E402
import train  # noqa: E402


@pytest.fixture
def binary():
    if not g.BINARY.exists():
        pytest.skip(f"{g.BINARY} is not built")
    return str(g.BINARY)


@pytest.mark.alone
def test_it_learns_and_ratios_are_one(binary):
    history = train.train(binary, steps=60, goal=0.9)
    assert history[0]["reward"] < 0.25, "chance"
    assert history[-1]["reward"] > 0.9, [round(r["reward"], 2) for r in history]
    assert max(r["ratio"] for r in history) < 1e-3


@pytest.mark.alone
def test_text_loses_the_ratios(binary):
    history = train.train(binary, steps=3, text=True)
    assert min(r["ratio"] for r in history) > 0.1 and min(r["changed"] for r in history) > 0.05


def test_the_examples_encoder_is_the_tokenizers(start):
    gateway = start(engine="builtin:echo", model=train.HERE / "model")
    with rollgate.Client(gateway.url) as client:
        for text in ("abc", "bcd", "ac", "ha", "aab", "dcba", "ghab", "abab"):
            sid = client.create_session()["session_id"]
            client.chat(sid, [{"role": "user", "content": text}])
            ids = list(client.finalize(sid)[0].prompt_ids)
            begin = ids.index(10) + 1       # behind "user" and its line's end
            assert ids[begin:ids.index(policy.END)] == train.encode(text), text

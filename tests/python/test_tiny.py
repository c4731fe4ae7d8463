"""The example's training loop in its short form: it learns, every first ratio is 1, and re-tokenized text loses that."""
import os
import subprocess
import sys

import pytest

import gateway as g

sys.path.insert(0, str(g.ROOT / "examples/tiny"))
pytest.importorskip("numpy")
import numpy  # noqa: E402

import algorithms  # noqa: E402
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


@pytest.mark.alone
@pytest.mark.parametrize("name", ["grpo", "reinforce", "off-policy"])
def test_each_algorithm_learns_and_ratios_are_one_on_policy(binary, name):
    history = train.train(binary, steps=7, algorithm=name)
    assert history[-1]["reward"] > history[0]["reward"] + 0.1, [round(r["reward"], 2) for r in history]
    on_policy = [r for r in history if r["staleness"] == 0]
    assert max(r["ratio"] for r in on_policy) < 1e-3 and len(on_policy) == (1 if name == "off-policy" else 7)
    if name == "off-policy":
        assert [r["staleness"] for r in history] == [0, 1, 2, 2, 2, 2, 2]
        assert min(r["ratio"] for r in history[1:]) > 0.1 and abs(history[-1]["mean_ratio"] - 1) < 0.5


@pytest.mark.alone
def test_a_run_is_the_same_again(binary):
    one, two = ([r["reward"] for r in train.train(binary, steps=3, algorithm="grpo")] for _ in range(2))
    assert one == pytest.approx(two, abs=1e-6) and len(set(one)) == 3


def test_advantages_and_weights_by_hand():
    rewards = numpy.array([[1.0, 0.0], [0.0, 0.0]])
    assert algorithms.Ppo().advantages(rewards).tolist() == [[0.5, 0], [-0.5, 0]]
    assert algorithms.Grpo().advantages(rewards).round(3).tolist() == [[1, 1], [-1, -1]]
    reinforce = algorithms.Reinforce()
    assert reinforce.advantages(rewards).tolist() == [[0.5, 0], [-0.5, 0]] and reinforce.advantages(rewards + 1).tolist() == [[1.5, 1], [0.5, 1]]
    ratio, plus, none = numpy.array([0.5, 1.0, 1.5, 9.0]), numpy.ones(4), numpy.zeros(4, int)
    assert algorithms.Ppo().weights(ratio, plus, none).tolist() == [0.5, 1, 0, 0] and algorithms.Ppo().weights(ratio, -plus, none).tolist() == [0, -1, -1.5, -9]
    assert algorithms.Reinforce().weights(ratio, plus, none).tolist() == [1] * 4
    assert algorithms.OffPolicy().weights(ratio, plus, none + 2).tolist() == [0.5, 1, 1.5, 2]
    assert algorithms.OffPolicy().weights(ratio, plus, numpy.array([0, 3, 4, 3])).tolist() == [1, 1, 0, 2]


def test_pictures_are_drawn(tmp_path):
    """In a process of its own: matplotlib keeps the files of its fonts open."""
    rows = [{"step": i, "reward": i / 9, "ratio": 1e-8, "mean_ratio": 1.0, "largest": 1.0 + i, "staleness": 0, "changed": 0.0} for i in range(9)]
    program = f"import train; train.plot('plot.png', {rows}, {rows}); train.compare('compare.png', {{'ppo': {rows}, 'grpo': {rows}}})"
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, env={**os.environ, "PYTHONPATH": str(train.HERE)})
    assert [(tmp_path / name).read_bytes()[:4] for name in ("plot.png", "compare.png")] == [b"\x89PNG"] * 2


def test_the_examples_encoder_is_the_tokenizers(start):
    gateway = start(engine="builtin:echo", model=train.HERE / "model")
    with rollgate.Client(gateway.url) as client:
        for text in ("abc", "bcd", "ac", "ha", "aab", "dcba", "ghab", "abab"):
            sid = client.create_session()["session_id"]
            client.chat(sid, [{"role": "user", "content": text}])
            ids = list(client.finalize(sid)[0].prompt_ids)
            begin = ids.index(10) + 1       # behind "user" and its line's end
            assert ids[begin:ids.index(policy.END)] == train.encode(text), text

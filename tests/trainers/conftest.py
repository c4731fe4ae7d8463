"""The adapters against the trainers' own modules (sources.py), each file of tests in a process of its own: `scripts/test trainers`.

A gateway, an executor and an engine that remembers what it sampled; tests compare what the trainer's code made of it."""
import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/python")]
spec = importlib.util.spec_from_file_location("python_conftest", ROOT / "tests/python/conftest.py")
python = importlib.util.module_from_spec(spec)
spec.loader.exec_module(python)
hygiene, hygiene_of_file, start = python.hygiene, python.hygiene_of_file, python.start
pytest_collection_finish, pytest_configure = python.pytest_collection_finish, python.pytest_configure

import gateway as g     # noqa: E402
from stub_engines import StubEngine, logprob     # noqa: E402
from test_adapters import agent     # noqa: E402
from test_executor import Running     # noqa: E402


def sampled_of(prompt):
    """What the engine samples behind a prompt: other letters after other prompts, and the end."""
    return [40 + len(prompt) % 50, 41 + sum(prompt) % 50, 42, 1]


class Place:
    """A gateway, and what its engine saw and sampled."""

    def __init__(self, gateway, engine):
        self.url, self.engine, self.gateway = gateway.url, engine, gateway

    def calls(self):
        """(prompt ids, sampled ids, their log-probabilities) of each call."""
        asked = [r["body"]["input_ids"] for r in self.engine.requests if "input_ids" in r["body"]]
        return [(ids, sampled_of(ids), [logprob(j, t) for j, t in enumerate(sampled_of(ids))]) for ids in asked]

    def check(self, rows, each_once=True):
        """Rows are (ids, mask, log-probabilities), each as long: every run of mask 1 is one call of the engine, with the ids before it as
        its prompt. each_once: every call is trained in one place and no other."""
        waiting = self.calls()
        for ids, mask, logprobs in rows:
            assert len(ids) == len(mask) == len(logprobs)
            at = 0
            while at < len(ids):
                if not mask[at]:
                    at += 1
                    continue
                end = next((i for i in range(at, len(ids)) if not mask[i]), len(ids))
                i = next((i for i, call in enumerate(waiting) if call[:2] == (ids[:at], ids[at:end])), None)
                assert i is not None, f"no call of the engine gave {ids[at:end]} at {at}"
                assert logprobs[at:end] == pytest.approx(waiting[i][2], abs=1e-6)
                del waiting[i]
                at = end
        assert not each_once or not waiting, "calls that nobody trains"


@pytest.fixture
def place(start):
    with StubEngine("sglang") as engine:
        engine.otherwise = lambda body: {"ids": sampled_of(body["input_ids"]), "finish": "stop", "matched": 1, "version": "7"}
        gateway = start(engine=engine.setting, model=g.MODELS / "chatml-bytes")
        with Running(gateway, agent):
            yield Place(gateway, engine)

"""A long prompt, and a long answer with logprobs and alternatives, are recorded in parts before their commit
(RECORD_BULK). Every way of reading them back returns what was sent and received."""
import json
import os
import random
import signal
import subprocess

import pytest

from gateway import wait_until
from stub_engines import StubEngine
from test_faults import folder_of
from test_streaming import new, user

N, END = 60_000, 257
PROMPT = "".join(random.Random(3).choices("abcdefgh ", k=120_000))


class Long:
    """A session with one long call, and what its engine was sent and has told."""

    def __init__(self, start, engine, **settings):
        rng = random.Random(7)
        self.ids = [97 + rng.randrange(25) for _ in range(N)] + [END]
        engine.plan.append({"ids": self.ids, "finish": "stop", "matched": END, "chunk": 500})
        self.gateway = start(engine=engine.setting, workers=1, context_length=1_000_000, **settings)
        self.sid = new(self.gateway, top_logprobs=2)["session_id"]
        self.messages = user(PROMPT)
        a = self.ask(self.messages, logprobs=True)
        self.answer = a["message"]
        self.logprobs = [x["logprob"] for x in a["logprobs"]["content"]]

    def ask(self, messages, **more):
        a = self.gateway.post(f"/sessions/{self.sid}/v1/chat/completions",
                              {"messages": messages, "max_tokens": 200_000, **more}, timeout=60)
        assert a.status == 200, a.text[:500]
        return a.json()["choices"][0]

    def exported(self, sid=None):
        a = self.gateway.get(f"/sessions/{sid or self.sid}/trajectories?format=json", timeout=60)
        assert a.status == 200, a.text[:500]
        (t,) = a.json()["trajectories"]
        return t

    def same(self, t, prompt):
        assert t["prompt_ids"] == prompt
        assert t["response_ids"][:N + 1] == self.ids
        assert t["response_logprobs"][:N] == pytest.approx(self.logprobs[:N])


@pytest.fixture(params=["sglang", "vllm"])
def long(request, start):
    with StubEngine(request.param) as engine:
        yield lambda **settings: (Long(start, engine, **settings), engine)


def sent(engine):
    """The ids of the last request."""
    body = engine.requests[-1]["body"]
    return body.get("input_ids") or body.get("token_ids") or body["prompt"]


def test_every_way_back_gives_the_tokens_that_were_sampled(long):
    r, engine = long()
    prompt = sent(engine)
    assert len(prompt) > 120_000
    first = r.exported()
    r.same(first, prompt)
    worker = r.gateway.child("worker-0")
    os.kill(worker, signal.SIGKILL)
    r.gateway.allow("worker-0")
    wait_until(lambda: r.gateway.child("worker-0") not in (None, worker), 20, "its successor serves")
    assert r.exported() == first
    snapshot = r.gateway.get(f"/sessions/{r.sid}/snapshot", timeout=60).json()
    made = r.gateway.post("/sessions/import", snapshot, timeout=60)
    assert made.status == 200, made.text
    r.same(r.exported(made.json()["session_id"]), prompt)
    fork = r.gateway.post(f"/sessions/{r.sid}/fork", {"response_id": first["turns"][-1]["response_id"]}, timeout=60)
    assert fork.status == 200, fork.text
    copied = r.exported(fork.json()["session_id"])
    assert copied["prompt_ids"] + copied["response_ids"] == prompt + r.ids      # it is not trained there, so no logprobs


def test_the_parts_stand_before_their_commit_and_the_next_turn_on_them(long):
    r, engine = long(max_worker_memory="2m")
    prompt = sent(engine)
    for i in range(3):
        r.ask([*r.messages, r.answer, {"role": "user", "content": f"go on {i}"}])
        assert sent(engine)[:len(prompt) + N + 1] == prompt + r.ids
    names = [f"rollgate_{of}_loads_total" for of in ("session", "payload")]
    wait_until(lambda: any(r.gateway.metrics()[name] > 0 for name in names), 10, "something was read back")
    r.gateway.stop()
    out = subprocess.run([r.gateway.binary, "journal", "dump", folder_of(r.gateway)], capture_output=True, text=True, check=True)
    kinds = [json.loads(line).get("kind") for line in out.stdout.splitlines()]
    kinds = [k for k in kinds if k in ("bulk", "commit")]
    bulk = 4 * len(prompt) + 8 * N + N * 2 * 8
    assert kinds[-4:] == ["commit"] * 4 and kinds[:-4].count("bulk") >= bulk // (128 << 10)

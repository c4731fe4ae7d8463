"""Rows of tokens that are longer than a record are journaled in parts before their answer (records of kind `blocks`).
Every later read returns the engine's rows."""
import base64
import json
import os
import random
import signal
import subprocess

import pytest

import gateway as g
from stub_engines import StubEngine
from test_faults import folder_of

LAYERS, TOPK, END = 32, 32, 257     # a row has 4 KiB
TEXT = [*b"a rather long answer " * 8]


def user(text):
    return {"role": "user", "content": text}


def npy(rows):
    """The head of a NumPy file."""
    text = f"{{'descr': '<i4', 'fortran_order': False, 'shape': ({rows}, {LAYERS}, {TOPK}), }}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


class Routed:
    """A session on a mixture's engine; `told`: the rows of each answer as they were told, by its text's first sign."""

    def __init__(self, start, folder, kind="sglang", **settings):
        source = g.MODELS / "chatml-bytes"
        for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
            (folder / name).write_bytes((source / name).read_bytes())
        (folder / "config.json").write_text(json.dumps({"num_hidden_layers": LAYERS, "num_experts_per_tok": TOPK}))
        self.engine, self.told, self.random = StubEngine(kind).__enter__(), {}, random.Random(4)
        self.gateway = start(workers=1, engine=self.engine.setting, model=folder, routed_experts="on", **settings)
        self.sid = self.gateway.post("/sessions", {}).json()["session_id"]

    def plan(self, sign):
        def rows(body):
            vllm = self.engine.kind == "vllm"
            known = body.get("sampling_params", body).get("routed_experts_prompt_start", 0) if vllm else body.get("routed_experts_start_len", 0)
            n = len(body["token_ids" if vllm else "input_ids"]) + len(TEXT) + 1 - known
            self.told[sign] = self.random.randbytes(n * LAYERS * TOPK * 4)
            return npy(n) + self.told[sign] if vllm else self.told[sign]
        self.engine.plan.append({"ids": [ord(sign), *TEXT, END], "matched": END, "experts": rows})

    def ask(self, messages, signs):
        for sign in signs:
            self.plan(sign)
        a = self.gateway.post(f"/sessions/{self.sid}/v1/chat/completions", {"messages": messages, "n": len(signs)})
        assert a.status == 200, a.text
        return [c["message"] for c in a.json()["choices"]]

    def two_turns(self):
        """The second has three answers."""
        first = self.ask([user("q")], "x")[0]
        self.ask([user("q"), first, user("more")], "abc")

    def exported(self, sid=None):
        """The rows of each branch, by the first sign of its last answer."""
        a = self.gateway.get(f"/sessions/{sid or self.sid}/trajectories?format=json")
        assert a.status == 200, a.text
        got = {}
        for t in a.json()["trajectories"]:
            assert t["routed_experts_shape"] == [len(t["prompt_ids"] + t["response_ids"]) - 1, LAYERS, TOPK]
            got[self.sign(t)] = base64.b64decode(t["routed_experts"])
        return got

    @staticmethod
    def sign(t):
        return chr(t["response_ids"][-len(TEXT) - 2])

    def expected(self, signs="abc"):
        return {s: self.told["x"] + self.told[s] for s in signs}

    def kinds(self):
        """Of all records, in their order."""
        out = subprocess.run([self.gateway.binary, "journal", "dump", folder_of(self.gateway)], capture_output=True, text=True, check=True)
        return [json.loads(line).get("kind") for line in out.stdout.splitlines()]


@pytest.fixture
def routed(start, tmp_path):
    made = []

    def make(**settings):
        made.append(Routed(start, tmp_path, **settings))
        return made[-1]
    yield make
    for r in made:
        r.engine.__exit__()


@pytest.mark.parametrize("kind", ["sglang", "vllm"])
def test_every_way_back_gives_what_the_engine_told(routed, kind):
    r = routed(kind=kind)
    r.two_turns()
    assert r.exported() == r.expected()
    worker = r.gateway.child("worker-0")
    os.kill(worker, signal.SIGKILL)
    r.gateway.allow("worker-0")
    g.wait_until(lambda: r.gateway.child("worker-0") not in (None, worker), 20, "its successor serves")
    assert r.exported() == r.expected()
    snapshot = r.gateway.get(f"/sessions/{r.sid}/snapshot").json()
    made = r.gateway.post("/sessions/import", snapshot)
    assert made.status == 200, made.text
    assert r.exported(made.json()["session_id"]) == r.expected()
    turns = {r.sign(t): t["turns"][-1]["response_id"]
             for t in r.gateway.get(f"/sessions/{r.sid}/trajectories?format=json").json()["trajectories"]}
    fork = r.gateway.post(f"/sessions/{r.sid}/fork", {"response_id": turns["b"]})
    assert fork.status == 200, fork.text
    assert r.exported(fork.json()["session_id"]) == r.expected("b")


def test_rows_stand_in_parts_before_their_answers(routed):
    r = routed()
    r.two_turns()
    r.gateway.stop()
    kinds = [k for k in r.kinds() if k in ("bulk", "commit")]
    part = 128 << 10
    parts = {sign: -(-len(rows) // part) for sign, rows in r.told.items()}
    assert parts["x"] > 1 and parts["a"] > 1
    first = kinds.index("commit")
    assert kinds.count("commit") == 2 and kinds[-1] == "commit"
    assert first >= parts["x"] and len(kinds) - first - 2 >= sum(parts[s] for s in "abc")


def test_rows_leave_memory_and_come_back(routed):
    r = routed(max_worker_memory="2m")
    r.two_turns()
    for _ in range(3):
        assert r.gateway.get(f"/sessions/{r.sid}").status == 200
        assert r.exported() == r.expected()
    for what in ("evictions", "loads"):
        names = [f"rollgate_{of}_{what}_total" for of in ("session", "payload")]
        g.wait_until(lambda n=names: any(r.gateway.metrics()[name] > 0 for name in n), 10, f"{what} are counted")


def test_a_turn_goes_on_without_reading_rows_back(routed):
    """The prompt's ids are in the commit's payload; the rows' own stay where they are."""
    r = routed(max_worker_memory="2m")
    first = r.ask([user("q")], "x")[0]
    for sign in "abcd":
        r.ask([user("q"), first, user("more " + sign)], sign)
    assert r.exported() == r.expected("abcd")

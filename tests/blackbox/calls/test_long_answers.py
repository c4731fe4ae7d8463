"""Helpers write answers with long texts. The text is the same, and clients that leave, repeat or end things meanwhile
have the usual results. `print` holds the helper at the first logprob (faults.c)."""
import contextlib
import json
import os
import signal
import threading

import pytest

from gateway import pause, stays, wait_until
from stub_engines import StubEngine
from test_faults import faulty  # noqa: F401, a fixture
from test_helpers import helped
from test_streaming import new, user
from test_turn_cancel import branches, inflight

TEXT = "A rather long answer, so that helpers write it. " * 24  # more logprobs than a Release build's loop writes: 1,024
MANY = {"messages": user(TEXT), "n": 4, "logprobs": True}
REQUESTS = [
    ("chat/completions", MANY),
    ("chat/completions", {**MANY, "stream": True, "stream_options": {"include_usage": True}}),
    ("completions", {"prompt": [TEXT + "<|im_end|>", "short"], "n": 2, "logprobs": 0, "max_tokens": 2000}),
    ("responses", {"input": TEXT, "include": ["message.output_text.logprobs"]}),
]
AGAIN = {"x-stainless-retry-count": "1"}


def url(s, path="chat/completions"):
    return f"/sessions/{s['session_id']}/v1/{path}"


def lasting(value):
    """What two gateways tell alike: without ids and times."""
    if isinstance(value, dict):
        return {k: lasting(v) for k, v in value.items() if k not in ("id", "created", "created_at", "completed_at", "item_id")}
    return [lasting(v) for v in value] if isinstance(value, list) else value


def told(a):
    """What an answer says, event by event where it is a stream."""
    if a.headers["Content-Type"].startswith("application/json"):
        return lasting(a.json())
    lines = [line[6:] for line in a.text.splitlines() if line.startswith("data: ")]
    return [lasting(json.loads(line)) for line in lines if line != "[DONE]"]


def told_in_any_turn(a):
    """The same, where the choices of a stream come as their engine's requests do: each choice's own events in their order."""
    said = told(a)
    if not isinstance(said, list):
        return said
    return sorted(said, key=lambda event: [c["index"] for c in event.get("choices", [])])


@pytest.mark.parametrize("path, body", REQUESTS)
def test_a_helper_writes_what_the_loop_would_have_written(start, path, body):
    gateways = start(workers=1, helpers=0), start(workers=1)
    got = []
    for gateway in gateways:
        s = new(gateway)
        answers = [gateway.post(url(s, path), {"model": "m", **body}, headers=mark) for mark in ({}, AGAIN)]
        assert [a.status for a in answers] == [200, 200], answers[0].text
        assert answers[1].headers["Rollgate-Replayed"] == "1"
        got.append([told_in_any_turn(a) for a in answers])
        assert branches(gateway, s) == len(body.get("prompt", [0])) * body.get("n", 1)
    assert got[0] == got[1]
    assert helped(gateways[0]) == 0 and helped(gateways[1]) > 0


@pytest.mark.parametrize("kind", ["sglang", "vllm"])
def test_a_long_answer_in_one_piece_is_taken_as_its_stream_is(start, kind):
    """A piece a turn of the loop: the same text, logprobs and alternatives, and the same tokens on record."""
    ids = [97 + k % 26 if k % 7 else 32 for k in range(5999)] + [257]
    with StubEngine(kind) as engine:
        gateway, got = start(engine=engine.setting, workers=1, context_length=100_000), []
        engine.plan.extend([{"ids": ids, "finish": "stop", "matched": 257, "chunk": 500}] * 4)
        for stream in (False, True):
            s = new(gateway)
            a = gateway.chat(s, "go on", n=2, logprobs=True, top_logprobs=2, max_tokens=20_000, stream=stream)
            assert a.status == 200, a.text
            trajectories = gateway.get(f"/sessions/{s['session_id']}/trajectories").json()["trajectories"]
            got.append((chosen(a), [(t["response_ids"], t["response_logprobs"]) for t in trajectories]))
    assert got[0] == got[1]
    (text, tokens, ends), rows = got[0][0][1], got[0][1]
    assert len(text) == 5999 and len(tokens) >= 5999 and ends == "stop"
    assert [r[0] for r in rows] == [ids, ids]


def chosen(a):
    """Of a chat answer in either form: each choice's text, its tokens with logprobs and alternatives, and its end."""
    if a.headers["Content-Type"].startswith("application/json"):
        return {c["index"]: (c["message"]["content"], c["logprobs"]["content"], c["finish_reason"]) for c in a.json()["choices"]}
    whole = {}
    for event in told(a):
        for c in event["choices"]:
            text, tokens, _ = whole.get(c["index"], ("", [], None))
            whole[c["index"]] = (text + (c["delta"].get("content") or ""),
                                 tokens + (c.get("logprobs") or {}).get("content", []), c["finish_reason"])
    return whole


class Held:
    """A worker whose helper is held at the first logprob it writes; one answer was asked for."""

    def __init__(self, faulty, body=MANY, path="chat/completions", **settings):  # noqa: F811
        self.gateway, self.inject = faulty(**settings)
        self.session, self.answers, self.body, self.path = new(self.gateway), [], {"model": "m", **body}, path
        self.threads = []

    def ask(self, **headers):
        t = threading.Thread(target=lambda: self.answers.append(
            self.gateway.post(url(self.session, self.path), self.body, headers=headers)))
        t.start()
        self.threads.append(t)

    def hold(self, tmp_path):
        self.inject("print", "1")
        self.waits = tmp_path / "faults/waits"

    def until_written(self):
        wait_until(self.waits.exists, 10, "a helper writes")

    def go_on(self):
        self.inject("print", None)
        for t in self.threads:
            t.join()


def leave(held, tmp_path, headers=None):
    """Asks, and leaves while a helper writes the answer."""
    held.hold(tmp_path)
    with contextlib.closing(held.gateway.connect()) as c:
        c.request("POST", url(held.session, held.path), json.dumps(held.body), headers or {})
        held.until_written()


@pytest.mark.parametrize("path, body", [REQUESTS[0], REQUESTS[2]])
def test_a_client_that_leaves_meanwhile_gets_the_answer_when_it_asks_again(faulty, tmp_path, path, body):  # noqa: F811
    held = Held(faulty, body, path)
    leave(held, tmp_path)
    assert held.gateway.chat(new(held.gateway), "hello").status == 200       # nobody else waits
    held.go_on()
    n = len(body.get("prompt", [0])) * body["n"]
    assert branches(held.gateway, held.session) == n
    a = held.gateway.post(url(held.session, path), held.body)
    assert a.headers["Rollgate-Replayed"] == "1" and len(a.json()["choices"]) == n
    assert branches(held.gateway, held.session) == n and inflight(held.gateway, held.session) == 0


def test_the_same_request_waits_and_is_a_new_sample(faulty, tmp_path):  # noqa: F811
    held = Held(faulty)
    held.hold(tmp_path)
    held.ask()
    held.until_written()
    held.ask()
    stays(lambda: not held.answers and branches(held.gateway, held.session) == 4, 0.3,
          "the second waits until the first has arrived")
    held.go_on()
    assert [a.status for a in held.answers] == [200, 200]
    assert not any("Rollgate-Replayed" in a.headers for a in held.answers)
    assert branches(held.gateway, held.session) == 8


@pytest.mark.parametrize("end", ["leave", "delete"])
def test_a_replay_whose_client_or_session_goes_meanwhile(faulty, tmp_path, end):  # noqa: F811
    held = Held(faulty)
    first = held.gateway.post(url(held.session), held.body)
    assert first.status == 200
    if end == "leave":
        leave(held, tmp_path, AGAIN)
    else:
        held.hold(tmp_path)
        held.ask(**AGAIN)
        held.until_written()
        assert held.gateway.request("DELETE", f"/sessions/{held.session['session_id']}").status == 204
    held.go_on()
    if end == "delete":
        assert held.answers[0].body == first.body
        assert held.gateway.post(url(held.session), held.body).status == 410
        return
    again = held.gateway.post(url(held.session), held.body, headers=AGAIN)
    assert again.body == first.body and again.headers["Rollgate-Replayed"] == "1"


def test_a_worker_that_ends_meanwhile_delivers_the_answer(faulty, tmp_path):  # noqa: F811
    held = Held(faulty)
    held.hold(tmp_path)
    held.ask()
    held.until_written()
    ends = held.gateway.child("worker-0")
    os.kill(ends, signal.SIGTERM)
    held.go_on()
    assert held.answers[0].status == 200 and len(held.answers[0].json()["choices"]) == 4
    wait_until(lambda: held.gateway.child("worker-0") not in (None, ends), 20, "its successor serves")
    again = held.gateway.post(url(held.session), held.body)
    assert again.status == 200 and "Rollgate-Replayed" not in again.headers


def test_a_worker_ends_though_the_helper_does_not(faulty, tmp_path):  # noqa: F811
    held = Held(faulty, grace="500ms")
    held.gateway.allow("killed what did not end")
    leave(held, tmp_path)
    assert held.gateway.stop() == 0
    held.go_on()
    held.gateway.start()
    a = held.gateway.post(url(held.session), held.body)
    assert a.headers["Rollgate-Replayed"] == "1" and len(a.json()["choices"]) == 4


def test_a_worker_whose_grace_is_over_ends_before_the_helper(faulty, tmp_path):  # noqa: F811
    """Its client is still there; the helper lets go while the worker waits for its threads."""
    held = Held(faulty, grace="500ms")
    held.hold(tmp_path)
    with contextlib.closing(held.gateway.connect()) as c:
        c.request("POST", url(held.session), json.dumps(held.body))
        held.until_written()
        worker = held.gateway.child("worker-0")
        os.kill(worker, signal.SIGTERM)
        pause(2.2, "its grace, and a second for its answers, are over")
        held.go_on()
        wait_until(lambda: held.gateway.child("worker-0") not in (None, worker), 20, "its successor serves")
    a = held.gateway.post(url(held.session), held.body)
    assert a.headers["Rollgate-Replayed"] == "1" and len(a.json()["choices"]) == 4


def test_a_worker_ends_though_the_helper_of_a_client_that_waits_does_not(faulty, tmp_path):  # noqa: F811
    held = Held(faulty, grace="500ms")
    held.hold(tmp_path)
    with contextlib.closing(held.gateway.connect()) as c:
        c.request("POST", url(held.session), json.dumps(held.body))
        held.until_written()
        assert held.gateway.stop() == 0
    held.go_on()
    held.gateway.start()
    a = held.gateway.post(url(held.session), held.body)
    assert a.headers["Rollgate-Replayed"] == "1" and len(a.json()["choices"]) == 4


@pytest.mark.parametrize("again", [False, True])
def test_a_helper_that_does_not_end_costs_its_answer_not_the_worker(faulty, tmp_path, again):  # noqa: F811
    held = Held(faulty, helper_timeout="500ms", grace="1s")
    held.gateway.allow("its thread is given up", "call failed")
    pid = held.gateway.child("worker-0")
    if again:
        assert held.gateway.post(url(held.session), held.body).status == 200
    held.hold(tmp_path)
    held.ask(**(AGAIN if again else {}))
    held.threads[0].join()
    assert held.answers[0].status == 500 and "given up" in held.answers[0].json()["error"]["message"]
    assert "Rollgate-Replayed" not in held.answers[0].headers
    held.go_on()
    a = held.gateway.post(url(held.session), held.body)      # unmarked: what was not delivered is owed
    if again:       # the first time it was
        assert "Rollgate-Replayed" not in a.headers
        a = held.gateway.post(url(held.session), held.body, headers=AGAIN)
    assert a.headers["Rollgate-Replayed"] == "1" and len(a.json()["choices"]) == 4
    assert held.gateway.child("worker-0") == pid and branches(held.gateway, held.session) == (8 if again else 4)
    assert held.gateway.stop() == 0

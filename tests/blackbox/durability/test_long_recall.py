"""Evicted long answers of a session in use: calls that continue from them, exports and records find all of them, and
so do repeated requests. Clients may leave and sessions may end meanwhile."""
import contextlib
import http.client
import json
import struct
import threading
from pathlib import Path

import pytest

from gateway import in_parallel, pause, wait_until
from stub_engines import StubEngine
from test_memory import exports, say
from test_streaming import new, user
from test_turn_retry import lose

LONG = 100_000      # ids of an answer: with logprobs more than what is read back in a step
BESIDE = 10         # answers of that length beside the first one
CEILING = 6 * LONG * 8
SETTINGS = {"workers": 1, "context_length": 20_000_000}


class Plan:
    """Stands for StubEngine.plan: long answers that differ, but for those that are told to be short."""

    def __init__(self):
        self.n, self.short, self.hold = 0, False, None

    def popleft(self):
        self.n += 1
        hold, self.hold = self.hold, None
        ids = list(b"<%d>" % self.n) + [97 + self.n % 26] * (20 if hold or self.short else LONG) + [257]
        return {"ids": ids, "matched": 257, "chunk": LONG, **({"wait": hold} if hold else {})}


@contextlib.contextmanager
def in_use(gateway, engine):
    """A session with a running call, which keeps it in memory; what it says long ago is evicted."""
    engine.plan = plan = Plan()
    session = new(gateway)
    plan.short = True
    talk = say(gateway, session, user("begin"))
    plan.short = False
    plan.hold = release = threading.Event()
    held = threading.Thread(target=lambda: gateway.chat(session, talk + user("held")))
    held.start()
    try:
        wait_until(lambda: not plan.hold, 10, "the call runs")
        yield session, talk
    finally:
        release.set()
        held.join()


ASK = {"model": "m", "logprobs": True}


def ask_first(gateway, session, talk):
    return gateway.post(f"/sessions/{session['session_id']}/v1/chat/completions",
                        ASK | {"messages": talk + user("first")}, headers={"Idempotency-Key": "first"})


def grow(gateway, session, talk):
    """A long answer, with a key, on which nothing stands, then others, of which one has another behind it."""
    first = ask_first(gateway, session, talk)
    assert first.status == 200, first.text
    deep = talk + user("first")
    deep = deep + [first.json()["choices"][0]["message"]] + user("deeper")
    deep = say(gateway, session, deep)
    for n in range(BESIDE):
        say(gateway, session, talk + user(f"beside {n}"))
    return first, deep


def loads(gateway):
    return gateway.metrics()["rollgate_payload_loads_total"]


def evicted(gateway):
    m = gateway.metrics()
    assert m["rollgate_session_evictions_total"] == 0, m
    return m["rollgate_evicted_bytes"] > 2 * LONG * 8


def patiently(ask):
    """Its answer; while many have copies of long answers there may be no room for one more."""
    got = []

    def asked():
        got.append(ask())
        return got[-1].status != 503
    wait_until(asked, 20, "there is room")
    return got[-1]


def told(answer):
    """Of an answer what is the same when it is told once more."""
    choice = answer.json()["choices"][0]
    return choice["message"], [(t["token"], t["logprob"]) for t in choice["logprobs"]["content"]]


def test_all_of_it_comes_back(start):
    with StubEngine("sglang") as engine:
        gateway = start(engine=engine.setting, max_worker_memory=str(CEILING), **SETTINGS)
        with in_use(gateway, engine) as (session, talk):
            first, deep = grow(gateway, session, talk)
            wait_until(lambda: evicted(gateway), 10, "the first answers have left memory")
            before = loads(gateway)
            engine.plan.short = True
            # Several go on from the same answer at once, and others look at it.
            asked = {"on": lambda n: gateway.chat(session, deep + user(f"on {n}")),
                     "again": lambda n: ask_first(gateway, session, talk),
                     "state": lambda n: gateway.get(f"/sessions/{session['session_id']}?records=1"),
                     "export": lambda n: gateway.get(f"/sessions/{session['session_id']}/trajectories")}
            got = in_parallel(lambda k: patiently(lambda: asked[k[0]](k[1])), [(k, n) for k in asked for n in range(3)])
            assert {a.status for a in got.values()} == {200}, {k: a.text[:200] for k, a in got.items()}
            assert loads(gateway) > before
            # An export of them holds each prompt against what the engine was sent.
            prompts = [got["on", n].json()["usage"]["prompt_tokens"] for n in range(3)]
            assert len(set(prompts)) == 1 and prompts[0] > 2 * LONG
            for n in range(3):
                assert told(got["again", n]) == told(first)
            calls = {json.dumps(got["state", n].json()["records"][2]) for n in range(3)}
            assert len(calls) == 1
        kept = exports(gateway, session)
        gateway.kill()
        gateway.start()
        assert exports(gateway, session) == kept


def flip(path, at):
    """The other half of that byte's bits, in the journal."""
    with path.open("r+b") as f:
        f.seek(at)
        byte = f.read(1)[0]
        f.seek(at)
        f.write(bytes([byte ^ 0xff]))


def test_an_error_instead_of_a_lost_answer_is_not_its_delivery(start):
    """Some of it comes back, then the journal has something else: who asks again gets the answer, not another one."""
    with StubEngine("sglang") as engine:
        gateway = start(engine=engine.setting, max_worker_memory=str(CEILING), on_disconnect="finish", **SETTINGS)
        gateway.allow("journal|read back")
        with in_use(gateway, engine) as (session, talk):
            before = len(engine.requests)
            lost = lose(gateway, session, ASK | {"messages": talk + user("lost")})
            wait_until(lambda: len(engine.requests) == before + 1, 30, "the call runs")
            lost.close()
            wait_until(lambda: engine.running == 1, 30, "it ends without its client")
            ids = struct.pack("<64i", *[97 + engine.plan.n % 26] * 64)
            for n in range(BESIDE):
                say(gateway, session, talk + user(f"beside {n}"))
            wait_until(lambda: evicted(gateway), 30, "it has left memory")
            asked = len(engine.requests)
            [(path, at)] = [(f, f.read_bytes().index(ids)) for f in Path(gateway.folder, "state").rglob("seg-*") if ids in f.read_bytes()]
            flip(path, at + 7 * LONG)       # among its logprobs, which a later step reads
            body = ASK | {"messages": talk + user("lost")}
            call = f"/sessions/{session['session_id']}/v1/chat/completions"
            assert gateway.post(call, body).status == 500
            flip(path, at + 7 * LONG)
            again = gateway.post(call, body)
            assert again.status == 200 and again.headers.get("Rollgate-Replayed") == "1", again.text[:300]
            assert len(told(again)[1]) > LONG and len(engine.requests) == asked


@pytest.mark.parametrize("what", ["calls", "replays", "exports"])
def test_clients_leave_and_the_session_ends(start, what):
    with StubEngine("sglang") as engine:
        gateway = start(engine=engine.setting, max_worker_memory=str(CEILING), **SETTINGS)
        with in_use(gateway, engine) as (session, talk):
            first, deep = grow(gateway, session, talk)
            wait_until(lambda: evicted(gateway), 10, "the first answers have left memory")
            engine.plan.short = True
            path = f"/sessions/{session['session_id']}"
            method, path, body, headers = {
                "calls": ("POST", path + "/v1/chat/completions", {"model": "m", "messages": deep + user("on")}, {}),
                "replays": ("POST", path + "/v1/chat/completions", ASK | {"messages": talk + user("first")},
                            {"Idempotency-Key": "first"}),
                "exports": ("GET", path + "/trajectories", None, {})}[what]
            for n in range(6):
                leaver = gateway.connect()
                leaver.request(method, path, body=json.dumps(body) if body else None,
                               headers={"Content-Type": "application/json", **headers})
                pause(0.002 * n, "it is read back for a moment")
                leaver.close()
            assert told(patiently(lambda: ask_first(gateway, session, talk))) == told(first)
            wait_until(lambda: evicted(gateway), 10, "nothing of it is held any more")
            asked = []

            def ask():
                try:
                    asked.append(gateway.request(method, path, body, headers).status)
                except (http.client.HTTPException, OSError):
                    asked.append("broken off")
            askers = [threading.Thread(target=ask) for _ in range(4)]
            for t in askers:
                t.start()
            assert gateway.request("DELETE", f"/sessions/{session['session_id']}").status == 204
            for t in askers:
                t.join()
            # An export has begun its answer by the time when there is nothing more to read.
            assert len(asked) == 4 and set(asked) <= {200, 404, 410, 503, *(["broken off"] if what == "exports" else [])}
        assert gateway.get("/health").status == 200
        assert say(gateway, new(gateway), user("after"))

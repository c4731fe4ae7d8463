"""Replicas of a whole gateway: affinity, failover, the limit of load; weight updates during streams; every way to
cancel a call."""
import collections
import contextlib
import json
import os
import signal
import socket
import threading
import time

import pytest

from gateway import in_parallel, stays, wait_until
from stub_engines import StubEngine
from vision_kit import session

ASK = {"messages": [{"role": "user", "content": "hi"}]}
GOOD = {"ids": list(b"ok") + [257], "matched": 257}


def chat(gateway, sid, **more):
    return gateway.post(f"/sessions/{sid}/v1/chat/completions", {**ASK, **more}, timeout=60)


def all_served(gateway, ids, **more):
    """A call of every session."""
    assert {a.status for a in in_parallel(lambda sid: chat(gateway, sid, **more), ids).values()} == {200}


@contextlib.contextmanager
def replicas(n):
    engines = [StubEngine() for _ in range(n)]
    for e in engines:
        e.otherwise = lambda body: GOOD
        e.__enter__()
    try:
        yield engines
    finally:
        for e in engines:
            if e.loop.is_running():
                e.__exit__()


def placed(engines):
    """Session -> how many of its calls each replica got."""
    out = collections.defaultdict(collections.Counter)
    for i, e in enumerate(engines):
        for r in e.requests:
            out[r["headers"]["x-smg-routing-key"]][i] += 1
    return out


def test_affinity_over_four_replicas(start):
    with replicas(4) as engines:
        gateway = start(workers=2, engine=[e.setting for e in engines], engine_health_interval="100ms", rejoin_window="100ms")
        gateway.allow(".*")
        ids = [session(gateway) for _ in range(48)]

        def turns(sid, n=12):
            for i in range(n):
                assert chat(gateway, sid, seed=i).status == 200

        in_parallel(turns, ids)
        homes = {}
        for sid, calls in placed(engines).items():
            home, n = calls.most_common(1)[0]
            homes[sid] = home
            assert n >= 0.99 * calls.total(), (sid, calls)
        assert set(homes) == set(ids) and len(set(homes.values())) == 4  # the header is the session's id
        assert max(collections.Counter(homes.values()).values()) <= 24  # spread, roughly
        victim = homes[ids[0]]
        engines[victim].__exit__()
        for e in engines:
            e.requests.clear()
        in_parallel(lambda sid: turns(sid, 4), ids)
        for sid, calls in placed(engines).items():
            assert victim not in calls and calls.total() == 4
            assert homes[sid] == victim or set(calls) == {homes[sid]}, (sid, calls)
            if homes[sid] == victim:
                assert calls.most_common(1)[0][1] == 4, calls  # all to the next in its order
        moved = {sid: calls.most_common(1)[0][0] for sid, calls in placed(engines).items()}
        assert len({moved[sid] for sid in ids if homes[sid] == victim}) > 1 or sum(h == victim for h in homes.values()) < 4
        gateway.wait_line("engine is down")
        in_parallel(lambda sid: turns(sid, 2), ids)
        assert all(set(calls) == {moved[sid]} for sid, calls in placed(engines).items())


def test_the_load_bound_holds(start):
    with replicas(4) as engines:
        go = threading.Event()
        for e in engines:
            e.otherwise = lambda body: {**GOOD, "wait": go}
        gateway = start(workers=1, engine=[e.setting for e in engines])
        sid = session(gateway)
        done = threading.Thread(target=lambda: in_parallel(lambda i: chat(gateway, sid, seed=i), range(80)))
        done.start()
        wait_until(lambda: sum(e.running for e in engines) == 80, 20, "all calls")
        loads = sorted(e.running for e in engines)
        assert loads[-1] <= 1.25 * 20 + 9, loads  # share and slack
        go.set()
        done.join()


def test_a_replica_that_comes_back_gets_its_sessions_back(start):
    with replicas(2) as engines:
        gateway = start(workers=1, engine=[e.setting for e in engines], engine_health_interval="50ms")
        ids = [session(gateway) for _ in range(12)]
        all_served(gateway, ids)
        homes = {sid: calls.most_common(1)[0][0] for sid, calls in placed(engines).items()}
        engines[0].health = 503
        gateway.wait_line("engine is down")
        for e in engines:
            e.requests.clear()
        all_served(gateway, ids, seed=1)
        assert all(set(c) == {1} for c in placed(engines).values())
        engines[0].health = 200
        gateway.wait_line("engine is up")
        for e in engines:
            e.requests.clear()
        all_served(gateway, ids, seed=2)
        assert {sid: calls.most_common(1)[0][0] for sid, calls in placed(engines).items()} == homes


# --- weight updates ---

TARGET = [97 + i % 26 for i in range(60)] + [257]


@pytest.mark.parametrize("kind,incremental", [("sglang", False), ("sglang", True), ("vllm", False)])
def test_weight_updates_while_clients_stream(start, kind, incremental):
    """Three updates: pause, the engine gives its generations up, new weights, resume. Each client gets
    every token once; each token has the version it was sampled under."""
    with StubEngine(kind, incremental=incremental) as engine:
        engine.give_up = threading.Event()
        version = {"now": "1"}
        first = {}

        def rest(body):
            prompt = body.get("input_ids") or body["token_ids"]
            n = first.setdefault("prompt", len(prompt))
            plan = {"ids": TARGET[len(prompt) - n:], "matched": 257, "chunk": 1, "gap_s": 0.005, "version": version["now"]}
            return plan if version["now"] == "4" else {**plan, "hold_after": 2 + len(engine.requests) % 10}

        engine.otherwise = rest
        gateway = start(workers=2, engine=engine.setting)
        gateway.post("/admin/weight_version", {"version": 1})
        ids = [session(gateway) for _ in range(10)]
        got = {}

        def client(sid):
            a = chat(gateway, sid, stream=True)
            got[sid] = "".join(x["delta"].get("content") or "" for line in a.text.split("\n") if line.startswith("data: {")
                               for x in json.loads(line[6:])["choices"])
            assert a.text.rstrip().endswith("[DONE]"), a.text

        clients = threading.Thread(target=lambda: in_parallel(client, ids))
        clients.start()
        for v in ("2", "3", "4"):
            wait_until(lambda: engine.holding == 10, 20, "all have sent some tokens")
            assert gateway.post("/admin/pause", {"mode": "hold"}).status == 200
            engine.give_up.set()
            wait_until(lambda: engine.running == 0, 20, "all were given up")
            asked = len(engine.requests)
            version["now"] = v
            assert gateway.post("/admin/weight_version", {"version": int(v)}).status == 200
            stays(lambda: len(engine.requests) == asked, 0.1, "what is not held is asked within milliseconds")
            assert len(engine.requests) == asked  # held
            engine.give_up.clear()
            assert gateway.post("/admin/resume", {}).status == 200
        clients.join()
        for sid in ids:
            assert got[sid] == bytes(TARGET[:-1]).decode(), sid
            t = gateway.post(f"/sessions/{sid}/finalize", {}).json()["trajectories"][0]
            assert t["response_ids"] == TARGET and t["response_mask"] == [1] * len(TARGET)
            assert len(t["response_logprobs"]) == len(TARGET)
            versions = t["response_versions"]
            assert versions == sorted(versions) and set(versions) == {1, 2, 3, 4}, versions
            spans = t["turns"][0]["weight_versions"]
            assert [s["version"] for s in spans] == ["1", "2", "3", "4"]
            assert spans[0]["start"] == 0 and spans[-1]["end"] == len(TARGET)
            assert all(a["end"] == b["start"] for a, b in zip(spans, spans[1:]))


def test_drain_lets_calls_finish_and_holds_new_ones(start):
    with StubEngine() as engine:
        go = threading.Event()
        engine.otherwise = lambda body: {**GOOD, "wait": go}
        gateway = start(workers=2, engine=engine.setting, queue_timeout="300ms")
        ids = [session(gateway) for _ in range(8)]
        got = {}

        def client(sid):
            got[sid] = chat(gateway, sid)

        running = threading.Thread(target=lambda: in_parallel(client, ids[:4]))
        running.start()
        wait_until(lambda: engine.running == 4, 10, "four calls")
        answers = []
        drain = threading.Thread(target=lambda: answers.append(gateway.post("/admin/pause", {"mode": "drain"}, timeout=60)))
        drain.start()
        wait_until(lambda: gateway.get("/health").json()["paused"] == 2, 5, "all workers are paused")
        held = threading.Thread(target=lambda: in_parallel(client, ids[4:]))
        held.start()
        stays(lambda: len(engine.requests) == 4 and not answers, 0.6, "beyond the queue's deadline, which does not run now")
        assert len(engine.requests) == 4 and not answers
        go.set()
        drain.join()
        assert answers[0].status == 200 and answers[0].json()["drained"] is True
        assert len(engine.requests) == 4
        gateway.post("/admin/resume", {})
        running.join()
        held.join()
        assert [got[i].status for i in ids] == [200] * 8


# --- giving up ---

# Silence is a matter of streams, and llama.cpp is never streamed.
GIVE_UPS = [(kind, stream, how) for kind in ("sglang", "vllm", "llamacpp", "openai") for stream in (False, True)
            for how in ("leaves", "delete", "abort", "timeout", "silence")
            if how != "silence" or (stream and kind != "llamacpp")]


@pytest.mark.parametrize("kind,stream,how", GIVE_UPS)
def test_giving_up(start, kind, stream, how):
    """The engine's request is closed and, where there is a call for it, aborted by its id."""
    with StubEngine(kind) as engine:
        slow = {"timeout": {"engine_timeout": "500ms"}, "silence": {"engine_idle_timeout": "400ms"}}.get(how, {})
        gateway = start(workers=1, engine=engine.setting, rejoin_window="50ms", **slow)
        gateway.allow(".*")
        sid = session(gateway)
        stall = {**GOOD, "text": "ok", "cut": "stall", "cut_at": 0.5}
        engine.plan.append(stall if stream else {**GOOD, "delay_s": 3600})
        raw = json.dumps({**ASK, "stream": stream}).encode()
        s = socket.create_connection(("127.0.0.1", gateway.port))
        s.sendall(f"POST /sessions/{sid}/v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
                  f"content-length: {len(raw)}\r\nconnection: close\r\n\r\n".encode() + raw)
        wait_until(lambda: engine.requests, 10, "the engine's request")
        if how == "leaves":
            s.close()
        elif how == "delete":
            assert gateway.request("DELETE", f"/sessions/{sid}").status in (200, 204)
        elif how == "abort":
            assert gateway.post(f"/sessions/{sid}/abort", {}).status == 204
        wait_until(lambda: engine.left == 1 and (kind != "sglang" or engine.aborts), 10, "the engine is left")
        if kind == "sglang":
            assert engine.aborts == [engine.requests[0]["body"]["rid"]] and engine.aborts[0].endswith(".")
        if how != "leaves":
            s.settimeout(20)
            answer = b""
            while chunk := s.recv(65536):
                answer += chunk
            s.close()
            status = b"410" if how in ("delete", "abort") else b"504"
            assert b'"error"' in answer if stream else answer.startswith(b"HTTP/1.1 " + status), answer
        engine.plan.append({**GOOD, "text": "ok", "matched": "" if kind == "llamacpp" else 257})
        a = chat(gateway, sid if how not in ("delete", "abort") else session(gateway))
        assert a.status == 200 and a.json()["choices"][0]["message"]["content"] == "ok"
        wait_until(lambda: all(v == 0 for name, v in gateway.metrics().items()      # the turn ends behind its answer
                               if name.startswith("rollgate_calls_inflight")), 10, "no call runs")


def test_the_limit_of_a_replica_is_one_for_all_workers(start):
    """Also after a worker died with requests under way."""
    with StubEngine() as engine:
        engine.otherwise = lambda body: {**GOOD, "delay_s": 0.05}
        gateway = start(workers=2, engine=engine.setting, engine_max_inflight=3)
        gateway.allow("died|killed|SIGKILL|signal")
        ids = [session(gateway) for _ in range(16)]
        assert len({sid.split("-")[0] for sid in ids}) == 2  # both workers have some
        all_served(gateway, ids)
        # The stub counts an answer until its task ends, a moment after the last byte: one may overlap.
        assert engine.most_running in (3, 4)
        go = threading.Event()
        engine.plan.extend([{**GOOD, "wait": go}] * 3)
        victims = [sid for sid in ids if sid.startswith("w0-")][:3]
        lost = threading.Thread(target=lambda: in_parallel(lambda sid: chat(gateway, sid, seed=1), victims))
        lost.start()
        wait_until(lambda: engine.running == 3, 10, "worker 0 holds all places")
        os.kill(gateway.child("worker-0"), signal.SIGKILL)
        lost.join()
        go.set()
        wait_until(lambda: engine.running == 0, 10, "the engine is left")
        engine.most_running = 0
        all_served(gateway, ids, seed=2)
        assert engine.most_running in (3, 4)


# --- an engine that is down ---

def queued(gateway):
    return gateway.metrics()["rollgate_queue_depth"]


def restarted(engine):
    """Another process of the same engine, on the same port."""
    again = StubEngine(engine.kind)
    again.port, again.otherwise = engine.port, engine.otherwise
    return again


@pytest.mark.parametrize("retries", [0, 2])
def test_calls_wait_for_an_engine_that_restarts(start, retries):
    """Agents that go on while their engine is restarted three times: none of them meets an error."""
    engine = StubEngine()
    engine.otherwise = lambda body: {**GOOD, "delay_s": 0.01}
    engine.__enter__()
    try:
        gateway = start(workers=2, engine=engine.setting, engine_health_interval="50ms", engine_retries=retries)
        gateway.allow("engine")
        ids = [session(gateway) for _ in range(6)]
        all_served(gateway, ids)
        for n in range(3):
            engine.__exit__()  # no call is under way: what was cut says so to its client
            wait_until(lambda: gateway.get("/ready").status == 503, 10, "the gateway sees it")
            assert "no engine" in gateway.get("/ready").text and gateway.get("/health").status == 200
            assert gateway.get("/health").json()["engine_answers"] is False
            got = {}
            waiting = threading.Thread(target=lambda seed=n + 1: got.update(
                in_parallel(lambda sid: chat(gateway, sid, seed=seed, stream=sid == ids[0]), ids)))
            waiting.start()
            wait_until(lambda: queued(gateway) == 6, 10, "six calls wait, and are counted")
            engine = restarted(engine)
            engine.__enter__()
            waiting.join(30)
            assert {a.status for a in got.values()} == {200} and len(got) == 6
            wait_until(lambda: gateway.get("/ready").status == 200, 10, "ready")
            assert gateway.get("/health").json()["engine_answers"] is True and queued(gateway) == 0
    finally:
        engine.__exit__()
    for sid in ids:
        assert gateway.get(f"/sessions/{sid}").json()["num_records"] == 4


def test_a_call_meets_the_death_of_its_engine(start):
    """Nothing of its answer had come, so it is asked again, once the engine is back."""
    engine = StubEngine()
    go = threading.Event()
    engine.plan.append({**GOOD, "wait": go})
    engine.__enter__()
    gateway = start(workers=1, engine=engine.setting, engine_health_interval="50ms")
    gateway.allow("engine")
    sid, got = session(gateway), []
    call = threading.Thread(target=lambda: got.append(chat(gateway, sid)))
    call.start()
    wait_until(lambda: engine.running == 1, 10, "the call runs")
    engine.__exit__()
    wait_until(lambda: queued(gateway) == 1, 10, "it waits")
    with restarted(engine) as second:
        second.otherwise = lambda body: GOOD
        call.join(30)
        assert got[0].status == 200 and len(second.requests) == 1


def test_nobody_waits_for_ever_for_an_engine(start):
    with StubEngine() as engine:
        engine.otherwise = lambda body: GOOD
        gateway = start(workers=1, engine=engine.setting, engine_health_interval="50ms", queue_timeout="700ms")
        gateway.allow("engine")
        sid = session(gateway)
        assert chat(gateway, sid).status == 200
    begin = time.monotonic()
    a = chat(gateway, sid, seed=1)
    assert a.status == 503 and a.json()["error"]["code"] == "engine_unavailable" and a.headers["x-should-retry"] == "true", a.text
    assert time.monotonic() - begin > 0.5
    b = chat(gateway, sid, seed=2)  # known to be down
    assert b.status == 503 and "none came back" in b.json()["error"]["message"]
    assert queued(gateway) == 0
    c = gateway.get(f"/sessions/{sid}/v1/models")
    assert c.status in (200, 503)


def test_who_leaves_while_the_engine_is_down_frees_the_place(start):
    with StubEngine() as engine:
        gateway = start(workers=1, engine=engine.setting, engine_health_interval="50ms", max_queue=1)
        gateway.allow("engine")
        sid = session(gateway)
    wait_until(lambda: gateway.get("/ready").status == 503, 10, "down")
    body = json.dumps(ASK).encode()
    with socket.create_connection(("127.0.0.1", gateway.port)) as s:
        head = f"POST /sessions/{sid}/v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n"
        s.sendall(head.encode() + body)
        wait_until(lambda: queued(gateway) == 1, 10, "it waits")
        full = chat(gateway, session(gateway))
        assert full.status == 429 and "queue is full" in full.text
    wait_until(lambda: queued(gateway) == 0, 10, "its place is free")
    wait_until(lambda: gateway.metrics()["rollgate_calls_inflight"] == 0, 10, "no call is left")


def test_a_worker_that_starts_anew_joins_the_pause(start):
    with StubEngine() as engine:
        engine.otherwise = lambda body: GOOD
        gateway = start(workers=2, engine=engine.setting, queue_timeout="300ms")
        gateway.allow("died|killed|SIGKILL|signal")
        ids = [session(gateway) for _ in range(8)]
        assert len({sid.split("-")[0] for sid in ids}) == 2
        assert gateway.post("/admin/pause", {"mode": "hold"}).status == 200
        victim = gateway.child("worker-0")
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: gateway.child("worker-0") not in (None, victim) and gateway.get("/ready").status == 200, 20,
                   "another worker")
        assert gateway.get("/ready").json()["paused"] == 2
        got = {}
        held = threading.Thread(target=lambda: got.update(in_parallel(lambda sid: chat(gateway, sid), ids)))
        held.start()
        wait_until(lambda: queued(gateway) == 8, 10, "all calls wait")
        assert not engine.requests
        assert gateway.post("/admin/resume").status == 200
        held.join(20)
        assert {a.status for a in got.values()} == {200} and len(got) == 8

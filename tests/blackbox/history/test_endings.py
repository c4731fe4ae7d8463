"""Ends of sessions (spec sessions.md section 7): DELETE, abort, finalize, TTL and a client that leaves, at every
moment of a call and in every order. Tests which answers are sent, and what remains."""
import itertools
import threading

import pytest

from gateway import MODELS, pause, stays, wait_until
from stub_engines import StubEngine
from test_streaming import new, open_chat, user
from test_turn_cancel import inflight
from test_turn_recovery import kill_worker

HISTORIES = ["tree", "chains", "linear", "timelines"]


def path(session, rest=""):
    return f"/sessions/{session['session_id']}{rest}"


def state(gateway, session):
    return gateway.get(path(session)).json()


def in_thread(call):
    """Starts call(); the list that its answer will be in, and the thread."""
    got = []
    t = threading.Thread(target=lambda: got.append(call()))
    t.start()
    return got, t


def end(gateway, session, how):
    if how == "delete":
        return gateway.request("DELETE", path(session))
    return gateway.post(path(session, f"/{how}"))


def assert_ended(answer):
    assert answer.status == 410, answer.text[:300]
    assert answer.json()["error"]["code"] == "session_ended"
    assert answer.headers["x-should-retry"] == "false"


def trajectories(answer):
    assert answer.status == 200, answer.text[:300]
    return answer.json()["trajectories"]


# --- during a call ---

@pytest.mark.cases(12)
@pytest.mark.parametrize("history", HISTORIES)
@pytest.mark.parametrize("how", ["delete", "abort", "finalize"])
@pytest.mark.parametrize("stream", [False, True])
def test_an_end_during_a_call(start, history, how, stream):
    """The call gets 410 (or the stream its error event), the engine is told, the late answer changes nothing."""
    with StubEngine("sglang") as engine:
        gateway = start(engine=engine.setting, workers=1)
        s = new(gateway, history=history)
        first = gateway.chat(s, "one")
        assert first.status == 200
        before = trajectories(gateway.get(path(s, "/trajectories")))
        held = threading.Event()
        engine.plan.append({"ids": [65, 66, 257], "wait": held})
        more = user("one") + [first.json()["choices"][0]["message"]] + user("two")
        got, t = in_thread(lambda: gateway.chat(s, more, stream=stream))
        wait_until(lambda: len(engine.requests) == 2 and engine.running == 1, 5, "the engine works")
        ended = end(gateway, s, how)  # the call itself goes on until it is let go, below
        assert ended.status == (200 if how == "finalize" else 204), ended.text
        t.join(20)
        if stream and got[0].status == 200:
            assert '"error"' in got[0].text and '"finish_reason":"' not in got[0].text and "session_ended" in got[0].text
        else:
            assert_ended(got[0])
        wait_until(lambda: engine.left == 1 or engine.aborts, 5, "the engine request is aborted")
        held.set()
        assert_ended(gateway.chat(s, more))
        assert_ended(gateway.post(path(s, "/reward_info"), {"reward_info": {"r": 1}}))
        if how == "finalize":
            assert trajectories(ended) == before
            assert trajectories(gateway.post(path(s, "/finalize"))) == before
            assert gateway.request("DELETE", path(s)).status == 204
        assert_ended(gateway.post(path(s, "/finalize")))
        assert_ended(gateway.get(path(s, "/trajectories")))
        assert_ended(gateway.get(path(s)))
        assert gateway.post(path(s, "/abort")).status == 204
        assert gateway.request("DELETE", path(s)).status == 410
        kill_worker(gateway)
        assert_ended(gateway.chat(s, more))
        assert_ended(gateway.post(path(s, "/finalize")))


@pytest.mark.cases(8)
@pytest.mark.parametrize("how", ["delete", "abort", "finalize"])
@pytest.mark.parametrize("moment", ["queued", "mid_stream", "retry", "joined", "left"])
def test_an_end_at_other_moments_of_a_call(start, how, moment):
    with StubEngine("sglang") as engine:
        gateway = start(engine=engine.setting, workers=1, engine_max_inflight=1, rejoin_window="30s")
        s, other = new(gateway), new(gateway)
        held = threading.Event()
        threads, answers = [], []
        if moment == "queued":
            engine.plan.append({"wait": held})
            threads.append(in_thread(lambda: gateway.chat(other, "first in the queue"))[1])
            wait_until(lambda: engine.running == 1, 5, "the engine is busy")
        elif moment == "mid_stream":
            engine.plan.append({"ids": list(range(65, 91)) + [257], "chunk": 1, "gap_s": 0.2})
        elif moment == "retry":  # the engine gives up and is asked again
            engine.plan.extend([{"before": "close"}, {"wait": held}])
        else:
            engine.plan.append({"wait": held})
        if moment in ("joined", "left"):
            sock = open_chat(gateway, s, {"messages": user("x")})
            wait_until(lambda: engine.running == 1, 5, "the engine works")
            sock.close()
        if moment != "left":
            got, t = in_thread(lambda: gateway.chat(s, "x", stream=moment == "mid_stream"))
            answers.append(got)
            threads.append(t)
        wait_until(lambda: inflight(gateway, s) == 1, 5, "the call runs")
        if moment == "mid_stream":
            pause(0.5, "two of the 27 tokens, 0.2 s apart")
        if moment == "joined":
            wait_until(lambda: gateway.metrics().get("rollgate_joins_total") == 1, 5, "the retry has joined")
        assert end(gateway, s, how).status == (200 if how == "finalize" else 204)
        if how == "finalize":
            assert state(gateway, s)["num_inflight_generations"] == 0
            assert trajectories(gateway.post(path(s, "/finalize"))) == []
        held.set()
        for t in threads:
            t.join(10)
        for got in answers:
            if moment == "mid_stream":
                assert "session_ended" in got[0].text and "[DONE]" not in got[0].text.split("session_ended")[0]
            else:
                assert_ended(got[0])
        assert_ended(gateway.chat(s, "x"))
        assert gateway.chat(other, "still fine").status == 200
        wait_until(lambda: gateway.metrics()["rollgate_calls_inflight"] == 0, 5, "no call is counted")


@pytest.mark.parametrize("how", ["delete", "abort", "finalize"])
def test_an_end_while_many_calls_run(start, how):
    """Some of them at the engine, others in its queue, one a batch of prompts: each client hears of it once, the engine has nothing
    left, and is asked for none that waited; a session that is made at once with the same history is another one."""
    calls, room = 60, 12
    with StubEngine("sglang") as engine:
        gateway = start(engine=engine.setting, workers=1, engine_max_inflight=room)
        s, held = new(gateway), threading.Event()
        engine.otherwise = lambda _: {"wait": held}
        socks = [open_chat(gateway, s, {"messages": user(f"say {i}"), "n": 2, "stream": i % 2 == 1}) for i in range(calls)]
        batch, t = in_thread(lambda: gateway.post(path(s, "/v1/completions"), {"model": "m", "prompt": [f"p {i}" for i in range(20)]}))
        wait_until(lambda: inflight(gateway, s) == calls + 20 and engine.running == room, 10, "all run, or wait")
        assert end(gateway, s, how).status == (200 if how == "finalize" else 204)
        other = new(gateway)
        held.set()
        assert gateway.chat(other, "say 0").status == 200
        for sock in socks:
            answer = b""
            while piece := sock.recv(1 << 16):
                answer += piece
                if b"session_ended" in answer and (b"\r\n0\r\n\r\n" in answer or b"HTTP/1.1 410" in answer):
                    break
            sock.close()
            assert answer.count(b"session_ended") == 1 and b'"finish_reason":"' not in answer, answer[-500:]
        t.join(20)
        assert_ended(batch[0])
        wait_until(lambda: engine.running == 0, 5, "the engine has nothing left")
        assert gateway.metrics()["rollgate_calls_inflight"] == 0
        assert len(engine.requests) == room + 1
        if how == "finalize":
            assert trajectories(gateway.post(path(s, "/finalize"))) == []
        assert_ended(gateway.chat(s, "say 0"))


@pytest.mark.parametrize("first,second", itertools.permutations(["delete", "abort", "finalize"], 2))
def test_two_ends_at_once(start, first, second):
    """Whatever order the worker sees: each gets an answer of its own, a call 410, and the session is over."""
    with StubEngine("sglang") as engine:
        gateway = start(engine=engine.setting, workers=1, durability="power")
        for _ in range(3):
            s = new(gateway)
            held = threading.Event()
            engine.plan.append({"wait": held})
            call, t = in_thread(lambda: gateway.chat(s, "x"))
            wait_until(lambda: inflight(gateway, s) == 1 and not engine.plan, 5, "the engine has the call")
            a, ta = in_thread(lambda: end(gateway, s, first))
            b, tb = in_thread(lambda: end(gateway, s, second))
            for thread in (ta, tb, t):
                thread.join(10)
            held.set()
            allowed = {"delete": {204, 410}, "abort": {204}, "finalize": {200, 410}}
            assert a[0].status in allowed[first] and b[0].status in allowed[second]
            assert {a[0].status, b[0].status} & {200, 204}
            assert_ended(call[0])
            assert_ended(gateway.chat(s, "x"))


def test_two_finalizes_at_once_give_the_same(start):
    gateway = start(engine="builtin:random:1", workers=1, durability="power")
    s = new(gateway)
    for text in ("a", "b"):
        assert gateway.chat(s, text).status == 200
    got = [in_thread(lambda: end(gateway, s, "finalize")) for _ in range(4)]
    for _, t in got:
        t.join(10)
    assert all(a[0].status == 200 for a, _ in got)
    assert len({a[0].text for a, _ in got}) == 1


def test_complete_leaves_calls_alone_and_wakes_waiters(start):
    with StubEngine("sglang") as engine:
        gateway = start(engine=engine.setting, workers=1)
        s = new(gateway)
        held = threading.Event()
        engine.plan.append({"wait": held})
        call, t = in_thread(lambda: gateway.chat(s, "x"))
        waited, w = in_thread(lambda: gateway.get(path(s, "/wait?timeout_s=20")))
        wait_until(lambda: inflight(gateway, s) == 1, 5, "the call runs")
        a = gateway.post(path(s, "/complete"), {"reward_info": {"reward": 1}, "finished": True, "reason": "done"})
        assert a.status == 200
        w.join(5)
        assert waited[0].status == 200 and waited[0].json()["phase"] == "completed"
        held.set()
        t.join(5)
        assert call[0].status == 200
        export = gateway.post(path(s, "/finalize")).json()
        assert len(export["trajectories"]) == 1 and export["trajectories"][0]["reward_info"] == {"reward": 1}


def test_bad_texts_are_refused_and_change_nothing(start):
    gateway = start(engine="builtin:echo", workers=1)
    s = new(gateway)
    gateway.chat(s, "x")
    for body, field in (({"reason": 5}, "reason"), ({"reason": ["x"]}, "reason"), ({"reason": "r" * 5000}, "reason"),
                        ({"finished": "yes", "reward_info": {"r": 1}}, "finished"), ({"reward_info": 5}, "reward_info")):
        a = gateway.post(path(s, "/complete"), body)
        assert a.status == 400 and a.json()["error"]["param"] == field, a.text
        assert field in a.json()["error"]["message"]
    for body, field in (({"reward_info": {}, "response_id": 7}, "response_id"),
                        ({"reward_info": {}, "response_id": {}}, "response_id"),
                        ({"reward_info": {}, "response_id": "x" * 300}, "response_id"),
                        ({"reward_info": {}, "response_id": "unknown"}, "response_id"),
                        ({"reward_info": [1]}, "reward_info"), ({}, "reward_info")):
        a = gateway.post(path(s, "/reward_info"), body)
        assert a.status == 400 and a.json()["error"]["param"] == field, a.text
    assert state(gateway, s)["phase"] == "open" and state(gateway, s)["reward_info"] == {}
    for locks in (["temprature"], ["temperature", "n"], [""], [5], "temperature", [None]):
        a = gateway.post("/sessions", {"lock_sampling": locks})
        assert a.status == 400 and a.json()["error"]["param"] == "lock_sampling", a.text
    assert "top_p" in gateway.post("/sessions", {"lock_sampling": ["temprature"]}).json()["error"]["message"]
    assert gateway.post("/sessions", {"lock_sampling": ["max_completion_tokens", "stop", "seed"]}).status == 200


def test_sampling_beside_sampling_params(start):
    """As miles' client posts it: what it resolved of temperature, top_p and top_k stands in the body itself."""
    with StubEngine("sglang") as engine:
        gateway = start(engine=engine.setting, model=MODELS / "chatml-bytes", workers=1)

        def sent(options, **request):
            s = gateway.post("/sessions", options).json()
            assert gateway.chat(s, "x", **request).status == 200
            return {k: engine.requests[-1]["body"]["sampling_params"].get(k) for k in ("temperature", "top_p", "top_k")}
        assert sent({"temperature": 0.75, "top_p": 0.5, "top_k": 20}) == {"temperature": 0.75, "top_p": 0.5, "top_k": 20}
        assert sent({"temperature": 0.75}, temperature=0.25)["temperature"] == 0.25, "defaults, which requests override"
        assert sent({"temperature": 0.75, "lock_sampling": ["temperature"]}, temperature=0.25)["temperature"] == 0.75
        assert sent({"top_k": 5, "sampling_params": {"temperature": 0.5, "top_k": 5}})["temperature"] == 0.5
        assert sent({"temperature": None, "sampling_params": {"temperature": 0.5}})["temperature"] == 0.5
        many = gateway.post("/sessions", {"count": 2, "top_k": 7}).json()["sessions"]
        assert gateway.chat(many[1], "x").status == 200 and engine.requests[-1]["body"]["sampling_params"]["top_k"] == 7
        for body, field in (({"temperature": 101}, "temperature"), ({"top_k": 1.5}, "top_k"), ({"top_p": "1"}, "top_p"),
                            ({"min_p": 0.1}, "min_p"), ({"top_k": 5, "sampling_params": {"top_k": 6}}, "sampling_params")):
            a = gateway.post("/sessions", body)
            assert a.status == 400 and a.json()["error"]["param"] == field, a.text


# --- TTL ---

def expire(gateway, session, timeout=10):
    wait_until(lambda: gateway.get(path(session)).status == 410 or state(gateway, session)["phase"] == "expired",
               timeout, "the session expires")


@pytest.mark.parametrize("history", HISTORIES)
def test_an_idle_session_expires_and_can_be_exported(start, history):
    gateway = start(engine="builtin:random:1", workers=1)
    s, kept = new(gateway, history=history, ttl_s=1), new(gateway)
    gateway.chat(s, "a"), gateway.chat(s, "b")
    gateway.post(path(s, "/reward_info"), {"reward_info": {"reward": 2}})
    before = trajectories(gateway.get(path(s, "/trajectories")))
    waited, w = in_thread(lambda: gateway.get(path(s, "/wait?timeout_s=20")))
    w.join(10)
    assert waited[0].status == 200 and waited[0].json()["phase"] == "expired"
    assert_ended(gateway.chat(s, "c"))
    assert_ended(gateway.post(path(s, "/reward_info"), {"reward_info": {"reward": 3}}))
    assert_ended(gateway.post(path(s, "/complete"), {}))
    for _ in range(2):
        assert trajectories(gateway.get(path(s, "/trajectories"))) == before
        assert trajectories(gateway.post(path(s, "/finalize"))) == before
    assert gateway.metrics()["rollgate_sessions_expired_total"] == 1
    assert state(gateway, kept)["phase"] == "open"
    kill_worker(gateway)
    assert trajectories(gateway.post(path(s, "/finalize"))) == before
    assert_ended(gateway.chat(s, "c"))
    assert gateway.request("DELETE", path(s)).status == 204
    assert_ended(gateway.post(path(s, "/finalize")))


def test_a_running_call_keeps_its_session_alive(start):
    with StubEngine("sglang") as engine:
        gateway = start(engine=engine.setting, workers=1)
        s = new(gateway, ttl_s=1)
        held = threading.Event()
        engine.plan.append({"wait": held})
        got, t = in_thread(lambda: gateway.chat(s, "x"))
        wait_until(lambda: engine.running == 1, 5, "the engine works")
        stays(lambda: state(gateway, s)["phase"] == "open", 2.5, "the TTL is 1 s and the sweep comes every second")
        assert state(gateway, s)["phase"] == "open"
        held.set()
        t.join(5)
        assert got[0].status == 200
        assert state(gateway, s)["phase"] == "open", "its idle time begins with the end of the call"
        expire(gateway, s)
        assert len(trajectories(gateway.post(path(s, "/finalize")))) == 1


@pytest.mark.parametrize("how", ["delete", "abort", "finalize", "complete"])
def test_an_end_and_ttl_in_either_order(start, how):
    gateway = start(engine="builtin:echo", workers=1)
    s, t = new(gateway, ttl_s=1), new(gateway, ttl_s=1)
    gateway.chat(s, "x"), gateway.chat(t, "x")
    assert end(gateway, t, how).status in (200, 204)  # the end, then the TTL's time
    expire(gateway, s) if how != "abort" else pause(2.5, "the TTL is 1 s and the sweep comes every second")
    after = end(gateway, s, how)                       # the TTL, then the end
    assert after.status == {"delete": 204, "abort": 204, "finalize": 200, "complete": 410}[how]
    if how == "finalize":
        pause(1.5, "the TTL would be over, and the sweep has come")
        assert state(gateway, t)["phase"] == "finalized", "what was finalized does not expire"
        assert len(after.json()["trajectories"]) == 1
    if how == "complete":
        expire(gateway, t)
        assert len(trajectories(gateway.post(path(t, "/finalize")))) == 1
    for x in (s, t):
        assert_ended(gateway.chat(x, "y"))


def test_a_client_that_left_does_not_keep_its_session_alive(start):
    gateway = start(engine="builtin:echo,delay_ms=60000", workers=1, rejoin_window="1s")
    s = new(gateway, ttl_s=1)
    sock = open_chat(gateway, s, {"messages": user("x")})
    wait_until(lambda: inflight(gateway, s) == 1, 5, "the call runs")
    sock.close()
    expire(gateway, s)
    assert trajectories(gateway.post(path(s, "/finalize"))) == []


def test_counting_and_looking_do_not_end_it_early(start):
    gateway = start(engine="builtin:echo", workers=1)
    s = new(gateway, ttl_s=2)
    for _ in range(8):
        assert gateway.chat(s, "x").status == 200
        pause(0.5, "a quarter of the TTL, which each call begins anew")
    assert state(gateway, s)["phase"] == "open"
    expire(gateway, s)


def test_retention_and_tombstones(start):
    gateway = start(engine="builtin:echo", workers=1, export_retention="1s", tombstone_ttl="8s", reseed=False)
    s, t = new(gateway), new(gateway)
    gateway.chat(s, "x")
    assert gateway.post(path(s, "/finalize")).status == 200
    assert gateway.request("DELETE", path(t)).status == 204
    wait_until(lambda: gateway.post(path(s, "/finalize")).status == 410, 6, "the retention ends")
    assert_ended(gateway.chat(s, "x"))
    for x in (s, t):
        wait_until(lambda: gateway.chat(x, "x").status == 404, 20, "the tombstone goes")


# --- memory ---

def live_tokens(gateway):
    return gateway.metrics()["rollgate_live_tokens"]


@pytest.mark.parametrize("durability", ["none", "process"])
def test_finalized_sessions_leave_memory(start, durability):
    """Without a journal they stay for their TTL, as an idle session would."""
    gateway = start(engine="builtin:echo", workers=1, durability=durability)
    s = new(gateway, ttl_s=2)
    gateway.chat(s, "x" * 1000)
    first = trajectories(gateway.post(path(s, "/finalize")))
    assert trajectories(gateway.post(path(s, "/finalize"))) == first
    if durability == "none":
        wait_until(lambda: gateway.post(path(s, "/finalize")).status == 410, 8, "the memory is free")
        wait_until(lambda: live_tokens(gateway) == 0, 5, "and counted")
        assert_ended(gateway.get(path(s, "/trajectories")))
        assert gateway.get(path(s, "/wait?timeout_s=1")).status == 200
        assert_ended(gateway.chat(s, "x"))


def test_finalized_sessions_make_room_for_live_ones(start):
    gateway = start(engine="builtin:echo", workers=1, durability="none", max_live_tokens=5000)
    done = []
    for _ in range(8):
        def made():
            a = gateway.post("/sessions", {})
            return a.json() if a.status == 200 else None
        s = wait_until(made, 5, "there is room")
        assert gateway.chat(s, "x" * 1000).status == 200
        assert gateway.post(path(s, "/finalize")).status == 200
        done.append(s)
    wait_until(lambda: gateway.post(path(done[0], "/finalize")).status == 410, 5, "room was made")
    wait_until(lambda: 0 < live_tokens(gateway) <= 5000, 5, "and counted")
    assert gateway.post(path(done[-1], "/finalize")).status == 200, "the oldest went first"

"""GET /events and GET /sessions/{id}/events: changes of all workers are sent to their followers only, within limits."""
import json
import os
import signal
import socket
import threading

import pytest

import gateway as g
from events_kit import Follower

ADMIN = "an-admin-key-of-the-events-tests"


@pytest.fixture
def follow():
    followers = []

    def make(*given, **more):
        followers.append(Follower(*given, **more))
        assert followers[-1].answer.status == 200
        followers[-1].wait("hello")
        return followers[-1]
    yield make
    for one in followers:
        one.close()


def start_all(start, **more):
    return start(engine="builtin:echo", workers=3, **more)


def session_on_each(gateway, n=3):
    """One session on each worker."""
    found = {}
    while len(found) < n:
        session = gateway.post("/sessions", {}).json()
        found.setdefault(session["worker_index"], session)
    return list(found.values())


def test_sessions_of_all_workers(start, follow):
    gateway = start_all(start)
    sessions = session_on_each(gateway)
    one = follow(gateway, "/events")
    ids = [s["session_id"] for s in sessions]

    def told():     # the worker that is asked takes a moment to reach the others
        for s in sessions:
            gateway.post(f"/sessions/{s['session_id']}/reward_info", {"reward_info": {"reward": 1}})
        return set(ids) <= {s["session_id"] for s in one.of("session")}
    g.wait_until(told, 20, "every worker's session is told")
    for s in sessions:
        assert gateway.chat(s, "hello").status == 200
        row = one.wait("session", lambda d: d["session_id"] == s["session_id"] and d["calls"] == 1 and d["inflight"] == 0)
        listed = gateway.get("/sessions").json()["sessions"]
        assert row == next(r for r in listed if r["session_id"] == s["session_id"])
    gateway.request("DELETE", f"/sessions/{ids[0]}")
    assert one.wait("session_gone", lambda d: d["session_id"] == ids[0])["ended"] is True
    gateway.post(f"/sessions/{ids[1]}/finalize", {})
    one.wait("session", lambda d: d["session_id"] == ids[1] and d["phase"] == "finalized")


def test_many_changes_are_few_events(start, follow):
    gateway = start_all(start)
    session = gateway.post("/sessions", {}).json()
    streams = [follow(gateway, "/events"), follow(gateway, f"/sessions/{session['session_id']}/events")]
    for i in range(300):
        gateway.post(f"/sessions/{session['session_id']}/reward_info", {"reward_info": {"reward": i}})
    for one in streams:
        one.wait("session", lambda d: d["reward"] == 299)
        assert len(one.of("session")) < 150


def test_groups_queues_and_runners(start, follow):
    gateway = start_all(start)
    assert gateway.post("/groups", {"id": "before", "queue": "old", "runner": "r1", "input": 1}).status == 201
    one = follow(gateway, "/events")
    assert one.wait("queue", lambda d: d["queue"] == "old")["waiting"] == 1
    assert one.wait("runner", lambda d: d["runner"] == "r1")["blocked"]
    assert gateway.post("/groups", {"id": "g1", "queue": "q1", "runner": "r2", "input": 1, "n": 2}).status == 201
    row = one.wait("group", lambda d: d["id"] == "g1")
    assert row in gateway.get("/groups").json()["groups"] and row["state"] == "waiting"
    one.wait("queue", lambda d: d["queue"] == "q1" and d["waiting"] == 1)
    claimed = gateway.post("/attempts/claim", {"executor": "e", "slots": {"r2": 2}}).json()["attempts"]
    assert len(claimed) == 2
    one.wait("group", lambda d: d["id"] == "g1" and d["running"] == 2)
    one.wait("runner", lambda d: d["runner"] == "r2" and d["running"] == 2)
    claim = {"executor": "e", "slots": {"r2": 5}, "wait_s": 2}
    waits = threading.Thread(target=lambda: gateway.post("/attempts/claim", claim))
    waits.start()
    one.wait("runner", lambda d: d["runner"] == "r2" and d.get("free_slots") == 5)
    waits.join()
    one.wait("runner", lambda d: d["runner"] == "r2" and d.get("free_slots") == 0)
    gateway.post("/groups/g1/cancel", {})
    one.wait("group_gone", lambda d: d["id"] == "g1")


def test_of_runners_that_no_group_names_the_newest_are_known(start, follow):
    """An executor offers any names, again and again."""
    gateway = start(engine="builtin:echo", workers=1)
    assert gateway.post("/groups", {"id": "g", "runner": "asked", "input": 1}).status == 201
    for i in range(6):
        slots = {f"r{i}-{k}": 1 for k in range(256)}
        assert gateway.post("/attempts/claim", {"executor": "x", "slots": slots, "wait_s": 0}).json() == {"attempts": []}
    one = follow(gateway, "/events")
    g.wait_until(lambda: len(one.of("runner")) >= 1025, 20, "the events of all that are known")
    named = {d["runner"]: d for d in one.of("runner")}
    assert named.keys() == {"asked"} | {f"r{i}-{k}" for i in range(2, 6) for k in range(256)}
    assert all(d["free_slots"] == d["running"] == 0 for d in named.values())


def test_tokens_of_a_call_as_they_come(start, follow):
    gateway = start(engine="builtin:echo,tokens_per_s=60", workers=2)
    session = gateway.post("/sessions", {}).json()
    path = f"/sessions/{session['session_id']}"
    one = follow(gateway, path + "/events")
    assert one.wait("session")["session_id"] == session["session_id"]
    text = "Grüße 世界, and some more of it"
    late = []

    def come_late():
        one.wait("tokens")
        late.append(follow(gateway, path + "/events"))
    thread = threading.Thread(target=come_late)
    thread.start()
    body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": text}]}
    answer = gateway.post(path + "/v1/chat/completions", body)
    assert answer.status == 200
    thread.join()
    call = one.wait("call_end")["call"]
    assert one.wait("call") == {"call": call, "parent": None}
    (turn,) = gateway.get(path + "/trajectories").json()["trajectories"]
    for follower in [one] + late:
        follower.wait("call_end")
        ids, n = [], 0
        for event in follower.of("tokens"):
            assert event["call"] == call and event["index"] == 0
            if event.get("so_far"):
                ids, n = [None] * event["n"], event["n"]
                continue
            ids += event["tokens"]
            n += event["n"]
        told = [t[0] if t else None for t in ids]
        want = turn["response_ids"][:len(told)]
        assert len(told) >= len(turn["response_ids"]) - 1 and n == len(told)
        assert all(a is None or a == b for a, b in zip(told, want))
    logprobs = [t[2] for e in one.of("tokens") for t in e["tokens"] if not e.get("so_far")]
    assert logprobs[:5] == pytest.approx(turn["response_logprobs"][:5])
    body["messages"] += [{"role": "assistant", "content": text}, {"role": "user", "content": "go on"}]
    assert gateway.post(path + "/v1/chat/completions", body).status == 200
    stood = gateway.get(path).json()["tree"]["nodes"]
    assert one.wait("call", lambda d: d["call"] != call)["parent"] == next(n["response_id"] for n in stood if n["generated"])
    one.wait("session", lambda d: d["calls"] == 1 and d["inflight"] == 0)


def test_who_does_not_read_is_told(start, follow):
    gateway = start(engine="builtin:echo", workers=1)
    big = {"metadata": {"much": "x" * 60000}}
    sessions = [gateway.post("/sessions", big).json()["session_id"] for _ in range(15)]
    reads = follow(gateway, "/events")
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=60) as stuck:
        stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stuck.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"200 OK" in stuck.recv(4096)
        worker = gateway.child("worker-0")
        before = gateway.resident(worker)
        for i in range(16):     # 0.9 MB each: less than what may wait for a client, so that who reads loses nothing
            for id in sessions:
                assert gateway.post(f"/sessions/{id}/reward_info", {"reward_info": {"reward": i}}).status == 200
            reads.wait("session", lambda d: d["session_id"] == sessions[-1] and d["reward"] == i)
        if "asan" not in str(g.BUILD):      # its freed memory stays for a while
            assert gateway.resident(worker) - before < 10 << 20
        seen = b""
        while b"event: reset" not in seen[-200000:]:
            got = stuck.recv(65536)
            assert got, "the stream ended without a word"
            seen = (seen + got)[-300000:]
        assert b'"reason":"slow"' in seen
    assert not reads.of("reset")


def test_a_worker_that_is_replaced(start, follow):
    gateway = start_all(start).allow("worker")
    sessions = session_on_each(gateway)
    one = follow(gateway, "/events")
    for s in sessions:
        gateway.post(f"/sessions/{s['session_id']}/reward_info", {"reward_info": {"reward": 1}})
    old = gateway.child("worker-1")
    os.kill(old, signal.SIGKILL)
    g.wait_until(lambda: gateway.child("worker-1") != old, 30, "the worker is replaced")
    # Either its viewer was on it and the stream ends, or the others say that events may be lost.
    g.wait_until(lambda: one.ended or one.of("reset"), 20, "it is told")
    again = follow(gateway, "/events")

    def told():
        for s in sessions:
            gateway.post(f"/sessions/{s['session_id']}/reward_info", {"reward_info": {"reward": 2}})
        return {s["session_id"] for s in sessions} <= {d["session_id"] for d in again.of("session") if d["reward"] == 2}
    g.wait_until(told, 30, "all are told of again")


def test_streams_end_with_the_gateway(start, follow):
    gateway = start_all(start)
    session = gateway.post("/sessions", {}).json()
    streams = [follow(gateway, "/events"), follow(gateway, f"/sessions/{session['session_id']}/events")]
    assert gateway.stop(30) == 0
    for one in streams:
        g.wait_until(lambda: one.ended, 10, "the stream ends")


def test_who_may_follow(start, follow, tmp_path):
    keys = tmp_path / "admin.keys"
    keys.write_text(ADMIN + "\n")
    gateway = start_all(start, admin_key_file=str(keys))
    bearer = {"Authorization": f"Bearer {ADMIN}"}
    session, other = (gateway.post("/sessions", {}, headers=bearer).json() for _ in range(2))
    path = f"/sessions/{session['session_id']}/events"
    assert gateway.get("/events").status == 401 and gateway.get(path).status == 401
    for key in (session["runner_key"], session["api_key"]):
        assert gateway.get("/events", headers={"x-api-key": key}).status == 403
    for key in (session["api_key"], other["runner_key"]):
        assert gateway.get(path, headers={"x-api-key": key}).status == 403
    one = follow(gateway, "/events", headers={"x-api-key": ADMIN})
    mine = follow(gateway, path, headers={"x-api-key": session["runner_key"]})

    def told():
        for s in (session, other):
            gateway.post(f"/sessions/{s['session_id']}/reward_info", {"reward_info": {"reward": 1}}, headers=bearer)
        return len({d["session_id"] for d in one.of("session")}) == 2
    g.wait_until(told, 20, "both are told")
    assert gateway.post("/groups", {"id": "g1", "runner": "r", "input": 1}, headers=bearer).status == 201
    one.wait("group", lambda d: d["id"] == "g1")
    mine.wait("session", lambda d: d["reward"] == 1)
    assert {d["session_id"] for d in mine.of("session")} == {session["session_id"]}


def test_limits_and_mistakes(start, follow):
    gateway = start(engine="builtin:echo", workers=1)
    assert gateway.get("/events?since=1").status == 400
    assert gateway.post("/events", {}).status == 405
    assert gateway.get("/sessions/w0-00000000000000000000000000000000/events").status == 404
    for _ in range(64):
        follow(gateway, "/events")
    full = gateway.get("/events")
    assert full.status == 429 and full.headers["x-should-retry"] == "true"

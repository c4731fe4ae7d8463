"""Large requests to the control plane: they delay no other request, and refused ones say why."""
import contextlib
import json
import os
import signal

import pytest

from gateway import BUILD, alive, in_parallel, pause, wait_until
from test_snapshots import told
from test_streaming import new, user
from test_memory import say
from test_read_back import exported
from test_turn_recovery import kill_worker

LIMIT = 512 << 10
HOLD_MAX = 0.010    # of a processor; the least of TRIES is that of the loop, not of the machine
REST_HOLD_MAX = 0.005    # likewise, of a group whose client left
TRIES = 5


def of_size(make, size):
    """A body of so many bytes."""
    empty = len(json.dumps(make("")))
    body = json.dumps(make("v" * (size - empty)))
    assert len(body) == size
    return body


ROUTES = {
    "create": ("/sessions", lambda v: {"metadata": {"k": v}}),
    "fork": ("/sessions/{}/fork", lambda v: {"metadata": {"k": v}}),
    "reward": ("/sessions/{}/reward_info", lambda v: {"reward_info": {"k": v}}),
    "complete": ("/sessions/{}/complete", lambda v: {"reward_info": {"k": v}}),
}


@pytest.mark.parametrize("route", ROUTES)
def test_long_bodies_are_refused_with_their_limit(start, route):
    path, make = ROUTES[route]
    gateway = start(engine="builtin:echo", max_control_body_bytes="512KiB", max_metadata_bytes="0")
    session = new(gateway)
    say(gateway, session, user("hi"), max_tokens=8)
    path = path.format(session["session_id"])
    a = gateway.post(path, of_size(make, LIMIT + 1))
    assert a.status == 413 and a.json()["error"]["code"] == "body_too_large", a.text
    assert "--max-control-body-bytes" in a.text and str(LIMIT) in a.text and str(LIMIT + 1) in a.text
    assert gateway.post(path, of_size(make, LIMIT)).status == 200


@pytest.mark.parametrize("route", ["create", "fork"])
def test_long_metadata_is_refused_with_its_limit(start, route):
    path, make = ROUTES[route]
    gateway = start(engine="builtin:echo", max_metadata_bytes="2KiB")
    session = new(gateway)
    say(gateway, session, user("hi"), max_tokens=8)
    path = path.format(session["session_id"])
    a = gateway.post(path, make("v" * 2047))
    assert a.status == 400 and a.json()["error"]["param"] == "metadata", a.text
    assert "metadata: 2049 are too many; --max-metadata-bytes allows 2048 bytes" in a.text
    assert gateway.post(path, make("v" * 2046)).status == 200


def test_an_import_and_a_raised_limit_take_more(start):
    gateway = start(engine="builtin:echo", max_control_body_bytes="64KiB")
    session = new(gateway)
    say(gateway, session, user("x" * 100_000), max_tokens=8)
    document = gateway.get(f"/sessions/{session['session_id']}/snapshot").json()
    assert len(json.dumps(document)) > 65536
    copy = gateway.post("/sessions/import", document)
    assert copy.status == 200 and told(exported(gateway, copy.json())) == told(exported(gateway, session))
    assert gateway.post("/sessions", {"metadata": {"k": "v" * 65536}}).status == 413
    gateway.stop()
    other = start(engine="builtin:echo", max_control_body_bytes="2MiB", max_metadata_bytes="2MiB")
    assert other.post("/sessions", {"metadata": {"k": "v" * (1 << 20)}}).status == 200


def test_a_large_group_is_made_whole_and_holds_nobody(start):
    least = 1.0
    for _ in range(TRIES):
        gateway = start(engine="builtin:echo", workers=1)
        groups = in_parallel(lambda n: gateway.post("/sessions", {"count": 1024, "group": f"g{n}", "labels": {"n": str(n)}}).json(), range(2))
        for n, group in groups.items():
            made = group["sessions"]
            assert group["group"] == f"g{n}" and len({s["session_id"] for s in made}) == 1024
            assert [s["rollout"] for s in made] == list(range(1024)) and {s["group_size"] for s in made} == {1024}
            state = gateway.get(f"/sessions/{made[-1]['session_id']}").json()
            assert state["labels"] == {"n": str(n)}
        least = min(least, gateway.metrics()['rollgate_loop_hold_cpu_max_seconds{process="worker-0"}'])
        gateway.stop()
        if least < HOLD_MAX or "san" in str(BUILD):
            return
    raise AssertionError(f"a group held the loop for {1000 * least:.1f} ms")


LONG = {"k": "v" * (6_000 if "san" in str(BUILD) else 60_000)}     # so that a group takes a while


def ask_and_leave(gateway, after, **options):
    """For a group, whose client is gone before it has all."""
    c = gateway.connect()
    c.request("POST", "/sessions", json.dumps({"count": 1024, **options}), {"Content-Type": "application/json"})
    pause(after, "some are made before the client leaves, some not")
    c.close()


def test_a_group_whose_client_leaves_is_made_whole_and_holds_nobody(start):
    least = 1.0
    for _ in range(TRIES):
        gateway = start(engine="builtin:echo", workers=1)
        for n in range(12):
            ask_and_leave(gateway, 0.002 * n)
        assert new(gateway)
        wait_until(lambda: gateway.metrics()["rollgate_sessions_created_total"] % 1024 == 1, what="groups are whole")
        assert gateway.metrics()["rollgate_sessions_created_total"] > 1024
        least = min(least, gateway.metrics()['rollgate_loop_hold_cpu_max_seconds{process="worker-0"}'])
        gateway.stop()
        if least < REST_HOLD_MAX or "san" in str(BUILD):
            return
    raise AssertionError(f"the rest of a group held the loop for {1000 * least:.1f} ms")


def sessions_of(gateway):
    return gateway.metrics()['rollgate_sessions{phase="open"}']


@pytest.mark.parametrize("grace", ["10s", "0s"])
def test_a_worker_that_ends_makes_the_rest_of_a_group(start, grace):
    for n in range(6):
        gateway = start(engine="builtin:echo", workers=1, grace=grace)
        ask_and_leave(gateway, 0.003 * n, metadata=LONG)
        assert gateway.stop() == 0
        gateway.start()
        wait_until(lambda: sessions_of(gateway) in (0, 1024), what="the group is whole, perhaps made by the successor")
        gateway.stop()


def test_a_worker_that_must_end_makes_the_rest_of_a_group_at_once(start):
    """It is stopped for longer than it has to end."""
    for n in range(4):
        gateway = start(engine="builtin:echo", workers=1, grace="0s")
        worker = gateway.child("worker-0")
        ask_and_leave(gateway, 0.004, metadata=LONG)
        os.kill(worker, signal.SIGTERM)
        pause(0.004 * n, "it has begun to end")
        with contextlib.suppress(ProcessLookupError):    # on a busy machine it may have ended by now
            os.kill(worker, signal.SIGSTOP)
            pause(1.1, "a group may have no time that is left")
            os.kill(worker, signal.SIGCONT)
        wait_until(lambda: not alive(worker), what="the worker has ended")
        wait_until(lambda: gateway.get("/ready").status == 200, what="its successor serves")
        wait_until(lambda: sessions_of(gateway) in (0, 1024), what="the group is whole, perhaps made by the successor")
        gateway.stop()


def reward_info(size):
    """Text and values, for a body of about that size."""
    return {"reward": 0.5, "text": "é\n" * (size // 16), "values": [{"a": n} for n in range(size // 24)]}


@pytest.mark.parametrize("size", [3_000, 400_000])
def test_a_body_that_waits_for_its_session_is_read_once_and_whole(start, size):
    gateway = start(engine="builtin:echo", workers=1)
    made = [new(gateway) for _ in range(3)]
    for session in made:
        say(gateway, session, user("word " * 60_000), max_tokens=8)
    kill_worker(gateway)
    info = reward_info(size)
    calls = [(made[0], "reward_info", {"reward_info": info}), (made[1], "complete", {"reward_info": info}),
             (made[2], "fork", {"metadata": info})]
    got = in_parallel(lambda n: gateway.post(f"/sessions/{calls[n][0]['session_id']}/{calls[n][1]}", calls[n][2]), range(3))
    assert {a.status for a in got.values()} == {200}
    for session in made[:2]:
        assert gateway.get(f"/sessions/{session['session_id']}").json()["reward_info"] == info
    assert gateway.get(f"/sessions/{got[2].json()['session_id']}").json()["metadata"] == info


def test_clients_that_leave_a_long_body_are_forgotten(start):
    """While it is read, while its session is, and while its answer waits."""
    gateway = start(engine="builtin:echo", workers=1)
    session = new(gateway)
    say(gateway, session, user("word " * 60_000), max_tokens=8)
    for n in range(4):
        kill_worker(gateway)
        c = gateway.connect()
        c.request("POST", f"/sessions/{session['session_id']}/reward_info", json.dumps({"reward_info": reward_info(600_000)}),
                  {"Content-Type": "application/json"})
        pause(0.008 * n, "some are at their session, some at the body")
        c.close()
    assert say(gateway, session, user("word " * 60_000) + user("again"), max_tokens=8)
    wait_until(lambda: gateway.metrics()['rollgate_request_memory_bytes{kind="arenas"}'] == 0, what="bodies are given back")

"""SIGHUP adds and removes workers at run time. Their sessions continue with exact tokens."""
import os
import signal
import threading

import pytest

from gateway import wait_until
from test_crash import Client, check_export
from test_streaming import new, user
from test_turn_recovery import kill_worker, records


def configure(path, workers):
    path.write_text(f"workers: {workers}\n")


def scaled(gateway, path, workers):
    configure(path, workers)
    gateway.signal(signal.SIGHUP)

    def settled():
        health = gateway.get("/health").json()["workers"]
        return health == {"total": workers, "ready": workers}
    wait_until(settled, 30, f"{workers} workers serve")


@pytest.fixture
def gateway(start, tmp_path):
    path = tmp_path / "settings.yaml"
    configure(path, 3)
    g = start(engine="builtin:random:2", workers=None, config=str(path))
    g.settings_path = path
    return g


def test_sessions_of_retired_workers_go_on(gateway):
    sessions = [new(gateway) for _ in range(9)]
    assert {s["worker_index"] for s in sessions} == {0, 1, 2}
    talks = {}
    for s in sessions:
        messages = user("hello")
        a = gateway.chat(s, messages)
        talks[s["session_id"]] = [*messages, a.json()["choices"][0]["message"], *user("more")]
    before = [records(gateway, s) for s in sessions]
    scaled(gateway, gateway.settings_path, 1)
    assert [records(gateway, s) for s in sessions] == before
    for s, state in zip(sessions, before):
        a = gateway.chat(s, talks[s["session_id"]])
        assert a.status == 200 and a.headers["Rollgate-Session"] == s["session_id"]
        assert a.json()["usage"]["prompt_tokens_details"]["cached_tokens"] == \
            len(state["accumulated_token_ids"])
    listed = [row["session_id"] for row in gateway.get("/sessions").json()["sessions"]]
    assert sorted(listed) == sorted(s["session_id"] for s in sessions)
    kill_worker(gateway)
    for s in sessions:
        assert len(records(gateway, s)["records"]) == 2
    scaled(gateway, gateway.settings_path, 2)
    fresh = {new(gateway)["worker_index"] for _ in range(4)}
    assert len(fresh) == 2 and not fresh & {1, 2}, "places of the past are not given out again"


def test_scaling_under_load_loses_no_call(gateway):
    stop = threading.Event()
    clients = [Client(gateway, i, stop, turns=1000) for i in range(6)]
    for c in clients:
        c.start()
    wait_until(lambda: all(c.answered for c in clients), 20, "all clients talk")
    for workers in (5, 1, 3):
        scaled(gateway, gateway.settings_path, workers)
        counts = [len(c.answered) for c in clients]
        wait_until(lambda: all(len(c.answered) > n
                               for c, n in zip(clients, counts)), 30, "all go on")
    stop.set()
    for c in clients:
        c.join(30)
        assert c.fault is None, c.fault
    assert sum(check_export(gateway, s) for c in clients for s in c.sessions) == 0

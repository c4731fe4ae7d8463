"""Weight updates during rollouts: pauses, versions, groups that are too old, and what survives processes
(docs/weights.md)."""
import os
import signal

import gateway as g
from rollouts_kit import chat


def claim(gateway, n, wait_s=5.0):
    answer = gateway.post("/attempts/claim", {"executor": "x", "slots": {"r": n}, "wait_s": wait_s}, timeout=60)
    assert answer.status == 200, answer.text
    return answer.json()["attempts"]


def end(gateway, attempt):
    answer = gateway.post(f"/attempts/{attempt['attempt_id']}/end", {"outcome": "ok", "reward_info": {"reward": 1}})
    assert answer.json() == {"rollout": "succeeded"}, answer.text


def version(gateway, n):
    assert gateway.post("/admin/weight_version", {"version": n}).status == 200


def versions_of(gateway, session_id):
    export = gateway.post(f"/sessions/{session_id}/finalize", {"format": "json"}).json()
    return [{s["version"] for s in turn["weight_versions"]} for t in export["trajectories"] for turn in t["turns"]]


def test_attempts_go_on_behind_an_update(start):
    """Paused with `hold`: no claim; resumed, the attempt's later turn has the new version, and the group both."""
    gateway = start(workers=2)
    version(gateway, 1)
    assert gateway.post("/groups", {"id": "g", "runner": "r", "n": 4, "version": 1}).status == 201
    attempts = claim(gateway, 3)
    histories = {}
    for a in attempts:
        message = chat(gateway, a, "first").json()["choices"][0]["message"]
        histories[a["attempt_id"]] = [{"role": "user", "content": "first"}, message, {"role": "user", "content": "second"}]
    assert gateway.post("/admin/pause", {"mode": "hold"}).status == 200
    assert claim(gateway, 1, wait_s=0.5) == [], "nothing begins during a pause"
    version(gateway, 2)
    assert gateway.post("/admin/resume").status == 200
    for a in attempts:
        assert chat(gateway, a, None, messages=histories[a["attempt_id"]]).status == 200
        end(gateway, a)
    last, = claim(gateway, 1)
    assert chat(gateway, last, "only").status == 200
    end(gateway, last)
    group = gateway.get("/queues/train/next?wait_s=10").json()["groups"][0]
    assert (group["min_version"], group["max_version"]) == (1, 2) and group["version"] == 1
    for a in attempts:
        assert versions_of(gateway, a["session"]["session_id"]) == [{"1"}, {"2"}]
    assert versions_of(gateway, last["session"]["session_id"]) == [{"2"}]


def test_version_below_cancels_exactly_the_older(start):
    """Waiting, running and settled ones; what is taken is its trainer's, what has no version stays."""
    gateway = start(workers=1)
    for i in range(8):
        body = {"id": f"g{i}", "runner": "r"} | ({"version": i} if i < 7 else {})
        assert gateway.post("/groups", body).status == 201
    first, second = claim(gateway, 2)       # g0, g1
    chat(gateway, first, "x")
    end(gateway, first)
    taken = gateway.get("/queues/train/next").json()["groups"]
    assert [x["id"] for x in taken] == ["g0"]
    third, = claim(gateway, 1)
    chat(gateway, third, "x")
    end(gateway, third)                     # g2 has settled
    answer = gateway.post("/queues/train/cancel", {"version_below": 4, "states": ["waiting", "running", "settled"]}).json()
    assert sorted(answer["cancelled"]) == ["g1", "g2", "g3"]
    kills = gateway.post("/attempts/renew", {"executor": "x", "attempts": [second["attempt_id"]]}).json()["kill"]
    assert [k["attempt_id"] for k in kills] == [second["attempt_id"]]
    left = {row["id"]: row["state"] for row in gateway.get("/groups").json()["groups"]}
    assert left == {"g0": "finished", "g4": "waiting", "g5": "waiting", "g6": "waiting", "g7": "waiting"}
    assert gateway.post("/queues/train/cancel", {"version_below": 4}).json() == {"cancelled": []}


def test_a_worker_that_is_replaced_stamps_the_same_version(start):
    gateway = start(workers=1).allow("process died process=worker-0")
    version(gateway, "step-41")
    os.kill(gateway.child("worker-0"), signal.SIGKILL)
    g.wait_until(lambda: gateway.log().count("process serves process=worker-0") == 2, 20, "the next worker serves")
    s = gateway.post("/sessions", {}).json()
    assert gateway.chat(s, "x").status == 200
    assert versions_of(gateway, s["session_id"]) == [{"step-41"}]


def test_a_pause_and_its_version_outlive_an_upgrade(start):
    gateway = start(workers=2)
    version(gateway, 7)
    assert gateway.post("/admin/pause", {"mode": "hold"}).status == 200
    for paused in (2, 0):
        served = gateway.log().count(" serving listen")
        gateway.signal(signal.SIGUSR2)
        g.wait_until(lambda served=served: gateway.log().count(" serving listen") > served, 60, "the next binary serves")
        assert gateway.get("/health").json()["paused"] == paused
        if paused:
            assert gateway.post("/groups", {"id": "g", "runner": "r"}).status == 201
            assert claim(gateway, 1, wait_s=0.5) == []
            assert gateway.post("/admin/resume").status == 200
    attempt, = claim(gateway, 1)
    assert chat(gateway, attempt, "x").status == 200
    end(gateway, attempt)
    assert versions_of(gateway, attempt["session"]["session_id"]) == [{"7"}]

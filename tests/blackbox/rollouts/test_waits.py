"""Reasons of waits: in the group, in `blocked`, in the log, in /ready, and in the answer of a submission."""
import concurrent.futures
import os
import signal

import gateway as g
import pytest
from rollouts_kit import Executor, solve


def submit(gateway, **group):
    answer = gateway.post("/groups", {"input": 1, **group})
    assert answer.status == 201, answer.text
    return answer.headers.get("Rollgate-Warning")


def waits(gateway, group):
    """Of the group, which its row in the list says, too."""
    def both():
        one = gateway.get(f"/groups/{group}").json()["waits"]
        [row] = [r for r in gateway.get("/groups").json()["groups"] if r["id"] == group]
        return [one] if (row["waits"] is None) == (one is None) else None  # it may change between the two answers
    return g.wait_until(both, 10, "the group and its row agree")[0]


def blocked(gateway, queue="train"):
    return [b["reason"] for b in gateway.get(f"/queues/{queue}").json()["blocked"]]


def claim(gateway, wait_s=0, **slots):
    return gateway.post("/attempts/claim", {"executor": "x", "slots": slots, "wait_s": wait_s}).json()["attempts"]


def test_a_worker_that_the_dispatcher_cannot_reach(start):
    """Its socket is gone from the run folder, as after a cleaner of /tmp."""
    gateway = start(engine="builtin:echo", workers=1).allow("no attempt can begin at a worker", "process died", "cannot connect",
                                                            "worker does not answer", "unavailable")
    path = f"{gateway.folder}/state/run/worker-0.sock"
    os.rename(path, path + ".away")
    os.kill(gateway.child("worker-0"), signal.SIGKILL)
    submit(gateway, id="a", runner="r")
    with Executor(gateway, "x", {"r": 1}, {"r": solve()}):
        gateway.wait_line("error .*no attempt can begin at a worker.*cannot reach worker 0 .*No such file or directory")
        ready = g.wait_until(lambda: gateway.get("/ready").status == 503 and gateway.get("/ready").json(), 20, "it is not ready")
        assert "dispatcher cannot reach a worker" in ready["reason"]
        g.wait_until(lambda: "cannot reach worker 0" in (waits(gateway, "a") or ""), 20, "the group says why it waits")
        assert any("cannot reach worker 0" in reason for reason in blocked(gateway))
        os.rename(path + ".away", path)
        assert gateway.get("/groups/a/wait?timeout_s=60", timeout=90).json()["state"] == "finished"
    g.wait_until(lambda: gateway.get("/ready").status == 200, 20, "it is ready again")
    gateway.wait_line("the dispatcher reaches all workers again")


def test_a_dispatcher_that_is_away_is_not_ready(start):
    gateway = start(engine="builtin:echo", workers=1).allow("process died")
    pid = gateway.child("dispatcher")
    os.kill(pid, signal.SIGSTOP)
    os.kill(pid, signal.SIGKILL)
    g.wait_until(lambda: gateway.get("/ready").status == 200 and gateway.child("dispatcher") != pid, 20, "another one serves")


def test_a_runner_that_nobody_offers(start):
    gateway = start(engine="builtin:echo", workers=1)
    said = submit(gateway, id="a", runner="swee")
    assert said == 'no executor offers runner "swee"; no executor offers any', said
    assert claim(gateway, swe=2) == []
    said = gateway.post("/groups", {"defaults": {"runner": "swee", "input": 1}, "groups": [{"id": "b"}, {"id": "c", "runner": "swe"}]})
    assert said.headers["Rollgate-Warning"] == 'no executor offers runner "swee"; offered: swe; did you mean "swe"?'
    assert submit(gateway, id="d", runner="swe") is None
    assert submit(gateway, id="e", runner="s\r\nX: y").startswith("no executor offers runner \"s??X: y\"")
    assert 'no executor offers runner "swee"; offered: swe' in waits(gateway, "a")
    gateway.wait_line('warn .*groups wait.*no executor offers runner .{0,2}swee', 40)
    assert waits(gateway, "d") == 'no executor has a free slot for runner "swe"; 0 of its attempts run'


def test_a_group_whose_attempts_begin_does_not_wait(start):
    """A claim has taken all of its rollouts, and their sessions are being made."""
    gateway = start(engine="builtin:echo", workers=1)
    worker = gateway.child("worker-0")
    submit(gateway, id="before", runner="q")
    assert claim(gateway, 10, q=1), "attempts are given"
    submit(gateway, id="a", runner="r", n=2)
    os.kill(worker, signal.SIGSTOP)
    try:
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            claimed = pool.submit(claim, gateway, 10, r=2)
            g.wait_until(lambda: "no executor offers" not in (waits(gateway, "a") or ""), 20, "the claim has come")
            assert waits(gateway, "a") is None
            os.kill(worker, signal.SIGCONT)
            assert len(claimed.result(30)) == 2
    finally:
        os.kill(worker, signal.SIGCONT)


def test_each_reason_for_which_a_group_waits(start):
    gateway = start(engine="builtin:echo", workers=1, queue_max_settled=1, runner_breaker=2)
    gateway.allow("a runner's attempts fail one after the other")
    submit(gateway, id="a", runner="r")
    submit(gateway, id="b", runner="r")
    with Executor(gateway, "x", {"r": 1}, {"r": solve()}):
        gateway.get("/groups/a/wait?timeout_s=60", timeout=90)
        g.wait_until(lambda: "--queue-max-settled" in (waits(gateway, "b") or ""), 20, "the queue is full")
        assert any("--queue-max-settled" in reason for reason in blocked(gateway))
    assert gateway.post("/admin/pause", {}).status == 200
    assert waits(gateway, "b") == blocked(gateway)[0] == "the gateway is paused (POST /admin/pause)"
    assert gateway.post("/admin/resume", {}).status == 200
    gateway.post("/queues/train/ack", {"groups": ["a"]})
    [attempt] = claim(gateway, r=1)
    assert waits(gateway, "b") is None, "it runs"
    assert gateway.post(f"/attempts/{attempt['attempt_id']}/end", {"outcome": "infra"}).status == 200
    assert "after a failure of infrastructure the next attempt begins in" in waits(gateway, "b")
    submit(gateway, id="c", runner="r", attempts=9)
    for _ in range(2):
        [attempt] = g.wait_until(lambda: claim(gateway, r=1), 20, "an attempt is given")
        gateway.post(f"/attempts/{attempt['attempt_id']}/end", {"outcome": "error"})
    g.wait_until(lambda: claim(gateway, r=1) == [] and waits(gateway, "c") == "its attempts fail one after the other", 20, "breaker")


def test_a_gateway_that_takes_no_sessions_says_which_limit(start):
    gateway = start(engine="builtin:echo", workers=1, max_sessions=1)
    assert gateway.post("/sessions", {}).status == 200
    submit(gateway, id="a", runner="r")
    with Executor(gateway, "x", {"r": 1}, {"r": solve()}):
        said = g.wait_until(lambda: [w for w in [waits(gateway, "a")] if w and "can be made" in w], 20, "it says why")[0]
        assert said.startswith("no session can be made: ") and "session" in said, said
        assert blocked(gateway) == [said]


def test_an_engine_that_is_away_is_why_running_groups_wait(start):
    gateway = start(engine=f"vllm:http://127.0.0.1:{g.free_port()}", workers=1)
    gateway.allow("engine")
    submit(gateway, id="a", runner="r")
    g.wait_until(lambda: claim(gateway, r=1), 20, "an attempt is given")
    assert waits(gateway, "a") == "no engine answers: calls of its attempts wait"


@pytest.mark.parametrize("call", ["", "/next", "/next?wait_s=0.1"])
def test_a_queue_that_no_group_has(start, call):
    gateway = start(engine="builtin:echo", workers=1)
    said = gateway.get("/queues/train" + call).json()
    said = said.get("queue", {}) if call else said
    assert said["warning"] == 'no group of queue "train" is known, nor of any other queue'
    submit(gateway, id="a", runner="r", queue="train")
    assert "warning" not in gateway.get("/queues/train").json()
    said = gateway.get("/queues/trian" + call).json()
    said = said["queue"] if call else said
    assert said["warning"] == 'no group of queue "trian" is known; queues: train; did you mean "train"?', said
    for verb, body in (("ack", {"groups": ["a"]}), ("return", {"groups": ["a"]}), ("cancel", {})):
        assert "did you mean" in gateway.post(f"/queues/trian/{verb}", body).json()["warning"]
        assert "warning" not in gateway.post(f"/queues/train/{verb}", {"groups": []} if body else {"labels": {"x": "y"}}).json()
    assert "did you mean" in gateway.get("/groups?queue=trian").json()["warning"]
    assert "warning" not in gateway.get("/groups?queue=train").json() and "warning" not in gateway.get("/groups").json()
    if call:
        gateway.wait_line("warn .*a trainer asks for the next group of a queue that has none.*trian")

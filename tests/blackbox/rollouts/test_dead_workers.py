"""If a process of the gateway dies during an agent's run, the attempt is `infra`, and is repeated."""
import os
import re
import signal

import gateway as g
import pytest
from rollouts_kit import chat
from runner_kit import Runner, script


def submit(gateway, **group):
    assert gateway.post("/groups", {"runner": "r", "input": 1, "attempts": 1, "infra_attempts": 10, **group}).status == 201


def claim(gateway):
    return g.wait_until(lambda: gateway.post("/attempts/claim", {"executor": "x", "slots": {"r": 1}, "wait_s": 1}).json()["attempts"],
                        20, "an attempt is given")[0]


def end(gateway, attempt, **body):
    answer = gateway.post(f"/attempts/{attempt['attempt_id']}/end", {"executor": "x", **body}, timeout=150)
    assert answer.status == 200, answer.text
    return answer.json()["rollout"]


def member(gateway, group):
    return gateway.get(f"/groups/{group}").json()["members"][0]


def kill(gateway, name):
    pid = gateway.child(name)
    os.kill(pid, signal.SIGKILL)
    return pid


@pytest.mark.parametrize("durability", ["process", "none"])
@pytest.mark.parametrize("said", [{"outcome": "error", "exit": 1, "reason": "503"}, {"outcome": "ok", "reward_info": {"reward": 1}}])
def test_an_attempt_whose_worker_died(start, durability, said):
    """As an error of the agent, or as a run that ended well without a token: the session's calls failed."""
    gateway = start(engine="builtin:echo", workers=1, durability=durability).allow("process died")
    submit(gateway, id="a")
    attempt = claim(gateway)
    kill(gateway, "worker-0")
    assert end(gateway, attempt, **said) == "retry"
    one = member(gateway, "a")
    assert one["outcome"] == "infra" and re.match("the session.s worker (died during the attempt|is away); it ended with: ", one["reason"]), one
    again = claim(gateway)
    assert chat(gateway, again, "x").status == 200
    assert end(gateway, again, outcome="ok", reward_info={"reward": 1}) == "succeeded"


def test_an_error_of_its_own_stays_one(start):
    """A worker that died before the attempt, or another session's, does not matter."""
    gateway = start(engine="builtin:echo", workers=2).allow("process died")
    for n in (0, 1):
        old = kill(gateway, f"worker-{n}")
        g.wait_until(lambda: gateway.child(f"worker-{n}") != old, 20, "another one serves")  # noqa: B023
    submit(gateway, id="a", runner="r")
    attempt = claim(gateway)
    kill(gateway, f"worker-{1 - int(attempt['session']['session_id'][1])}")
    assert end(gateway, attempt, outcome="error") == "failed"
    assert member(gateway, "a")["outcome"] == "error"


def test_an_attempt_under_a_gateway_that_was_started_again(start):
    gateway = start(engine="builtin:echo", workers=1)
    submit(gateway, id="a")
    attempt = claim(gateway)
    gateway.kill()
    gateway.start()
    assert end(gateway, attempt, outcome="error") == "retry"
    assert member(gateway, "a")["reason"].startswith("the gateway was started again during the attempt")


def test_an_attempt_whose_router_died(start):
    gateway = start(engine="builtin:echo", workers=1, routers=1).allow("process died")
    submit(gateway, id="a")
    attempt = claim(gateway)
    old = kill(gateway, "router-0")
    g.wait_until(lambda: gateway.child("router-0") != old, 20, "another one serves")
    assert end(gateway, attempt, outcome="error") == "retry"
    assert "a router died" in member(gateway, "a")["reason"]


def test_dead_workers_trip_no_breaker(start):
    gateway = start(engine="builtin:echo", workers=1, runner_breaker=1).allow("process died")
    submit(gateway, id="a")
    submit(gateway, id="b")
    attempt = claim(gateway)
    kill(gateway, "worker-0")
    assert end(gateway, attempt, outcome="error") == "retry"
    assert claim(gateway), "the runner is not blocked"


def test_agents_of_a_runner_whose_worker_dies(start):
    """Real runs, whose agents give up at the first failed call: all groups finish, with one attempt that counts."""
    gateway = start(engine="builtin:echo,delay_ms=300", workers=2).allow("process died", "cannot connect")
    agent = script(gateway.folder, "agent", 'for k in range(3):\n    chat(f"{k}")')
    with Runner(gateway, {"r": {"run": agent, "slots": 8, "score": ["echo", "1"]}}):
        for k in range(6):
            submit(gateway, id=f"g{k}")
        g.wait_until(lambda: len(gateway.get("/attempts").json()["attempts"]) >= 4, 20, "they run")
        for n in (0, 1):
            kill(gateway, f"worker-{n}")
        for k in range(6):
            group = gateway.get(f"/groups/g{k}/wait?timeout_s=100", timeout=150).json()
            assert group["state"] == "finished", group

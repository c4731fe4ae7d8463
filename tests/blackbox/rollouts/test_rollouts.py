"""Groups of rollouts: the dispatcher from outside, with the test's own executors (docs/rollouts.md)."""
import json
import os
import re
import signal
import subprocess
import threading
import time
import urllib.parse
import uuid

import pytest

import gateway as g
from rollouts_kit import Executor, chat, solve, take_all


def submit(gateway, **group):
    answer = gateway.post("/groups", group)
    assert answer.status == 201, answer.text
    return answer.json()["groups"][0]


def group_of(gateway, name):
    answer = gateway.get(f"/groups/{name}")
    assert answer.status == 200, answer.text
    return answer.json()


def wait_group(gateway, name, timeout=20):
    answer = gateway.get(f"/groups/{name}/wait?timeout_s={timeout}", timeout=timeout + 10)
    assert answer.status == 200, answer.text
    return answer.json()


def claim(gateway, executor="x", wait_s=5, **slots):
    answer = gateway.post("/attempts/claim", {"executor": executor, "slots": slots, "wait_s": wait_s})
    assert answer.status == 200, answer.text
    return answer.json()["attempts"]


def end(gateway, attempt, **body):
    return gateway.post(f"/attempts/{attempt['attempt_id']}/end", body)


def test_a_group_is_submitted_run_and_delivered(start):
    gateway = start()
    made = gateway.request("PUT", "/groups/g-1", {
        "runner": "r", "input": {"q": "x"}, "n": 3, "metadata": {"data_source": "math"}, "labels": {"step": "7"},
        "version": 4})
    assert made.status == 201 and made.json() == {"id": "g-1", "state": "waiting", "created": True}, made.text
    with Executor(gateway, "x", {"r": 2}, {"r": solve(0.5)}) as x:
        group = take_all(gateway, "train", 1)[0]
        g.wait_until(lambda: len(x.done) == 3, 10, "three ends are answered")
    assert {verdict for _, verdict in x.done} == {"succeeded"} and x.peak["r"] == 2
    assert group["state"] == "finished" and group["succeeded"] == 3 and group["deliveries"] == 1
    assert group["metadata"] == {"data_source": "math"} and group["labels"] == {"step": "7"} and group["version"] == 4
    for k, member in enumerate(group["members"]):
        assert member["rollout"] == k and member["state"] == "succeeded" and member["outcome"] == "ok"
        assert member["reward"] == 0.5 and member["finished"] is True and member["attempts"] == 1
        assert member["trained_tokens"] > 0 and member["trajectories"] == 1
    # acknowledged: it is gone, and so are its sessions
    assert gateway.get("/groups/g-1").status == 404
    for member in group["members"]:
        path = f"/sessions/{member['session_id']}"
        g.wait_until(lambda: gateway.get(path).status == 410, 10, "the sessions end")


def test_the_trainer_takes_the_members_tokens_in_any_format(start):
    gateway = start()
    submit(gateway, id="g", runner="r", n=2, input="t")
    with Executor(gateway, "x", {"r": 2}, {"r": solve(1, turns=1)}):
        group = gateway.get("/queues/train/next?wait_s=20", timeout=40).json()["groups"][0]
    for member in group["members"]:
        path = f"/sessions/{member['session_id']}/finalize"
        native = gateway.post(path, {"format": "json"}).json()
        assert sum(sum(t["response_mask"]) for t in native["trajectories"]) == member["trained_tokens"]
        assert native["trajectories"][0]["reward_info"] == {"reward": 1}
        for form in ("msgpack", "verl", "miles", "slime"):
            first, again = (gateway.post(path, {"format": form}) for _ in range(2))
            assert first.status == 200 and first.body == again.body, first.text


def test_put_is_idempotent_and_a_differing_body_is_a_conflict(start):
    gateway = start()
    body = {"runner": "r", "n": 2, "input": {"a": 1, "b": 2}}
    results = g.in_parallel(lambda i: gateway.request("PUT", "/groups/same", body).status, range(100))
    assert sorted(results.values()) == [200] * 99 + [201]
    again = gateway.request("PUT", "/groups/same", {"input": {"b": 2, "a": 1.0}, "n": 2, "runner": "r"})
    assert again.status == 200 and again.json()["created"] is False
    other = gateway.request("PUT", "/groups/same", dict(body, n=3))
    assert other.status == 409 and other.json()["error"]["code"] == "group_exists"
    assert len(gateway.get("/groups").json()["groups"]) == 1


@pytest.mark.parametrize("change, field", [
    ({"runner": ""}, "runner"), ({"runner": 3}, "runner"), ({"n": 0}, "n"), ({"n": 1025}, "n"), ({"n": "4"}, "n"),
    ({"extra": -1}, "extra"), ({"n": 1024, "extra": 1}, "extra"), ({"min": 3}, "min"), ({"attempts": 0}, "attempts"), ({"infra_attempts": 0}, "infra_attempts"),
    ({"on": {"error": "again"}}, "error"), ({"on": {"err": "keep"}}, "on"), ({"on": 3}, "on"), ({"reward": "maybe"}, "reward"),
    ({"fail_reward": "0"}, "fail_reward"), ({"priority": 1.5}, "priority"), ({"version": -1}, "version"),
    ({"run_timeout_s": 0}, "run_timeout_s"), ({"deadline_s": -1}, "deadline_s"), ({"session": []}, "session"),
    ({"members": [{}, {}, {}]}, "members"), ({"members": [{"seed": 1}]}, "members"), ({"labels": {"a": [1]}}, "labels.a"), ({"labels": {"a": None}}, "labels.a"),
    ({"id": "a_b"}, "id"), ({"id": ""}, "id"), ({"id": "x" * 129}, "id"), ({"queue": "a b"}, "queue"),
    ({"id": "."}, "id"), ({"id": ".."}, "id"), ({"queue": ".."}, "queue"), ({"queue": ""}, "queue"), ({"queue": 3}, "queue"),
    ({"reward_info": {}}, "body"), ({"runer": "r"}, "body"), ({"session": {"count": 2}}, "session.count"),
    ({"session": {"group": "x"}}, "session.group"), ({"session": {"hold": False}}, "session.hold"),
    ({"labels": {"attempt": "x"}}, "labels.attempt"), ({"session": {"labels": {"attempt": "x"}}}, "session.labels.attempt"),
])
def test_bad_groups_are_told_by_field(kept, change, field):
    gateway = kept.gateway(workers=1)
    answer = gateway.post("/groups", {"groups": [{"id": "ok", "runner": "r"},
                                                 {**{"id": "bad", "runner": "r", "n": 2}, **change}]})
    assert answer.status == 400, answer.text
    error = answer.json()["error"]
    assert field in error["message"] and "groups[1]" in error["message"]
    assert gateway.get("/groups").json()["groups"] == []    # all or none


EXPORT_GOOD = [
    {"format": "verl"}, {"select": "last"}, {"pick": "drop_retries"}, {"train_once": True}, {"train_once": "on"}, {"drift": 0},
    {"merge": "text"}, {"merge": "none", "select": "all_checkpoints"}, {"ignore_tools": "false"}, {"max_tokens": 5},
    {"max_seq_len": "7"}, {"mask_unfinished": False}, {"uid": "u"}, {"session_index": 0}, {"global_steps": 12}, {"select": None},
    {"metadata": {"reward": 1.5}}, {"metadata": {"reward": None}}, {}]
EXPORT_BAD = [
    ({"format": "parquet"}, "format"), ({"format": "view"}, "format"), ({"select": "first"}, "select"), ({"select": 3}, "select"),
    ({"pick": "best"}, "pick"), ({"train_once": "maybe"}, "train_once"), ({"train_once": []}, "train_once"),
    ({"drift": 2}, "drift"), ({"merge": "tokens"}, "merge"), ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": 1 << 32}, "max_tokens"), ({"max_seq_len": 1.5}, "max_seq_len"), ({"max_seq_len": "x"}, "max_seq_len"),
    ({"uid": ""}, "uid"), ({"uid": 3}, "uid"), ({"uid": "u" * 1025}, "uid"),
    ({"session_index": -1}, "session_index"), ({"global_steps": {}}, "global_steps"),
    ({"global_steps": 1e30}, "global_steps"), ({"metadata": 3}, "metadata"), ({"metadata": {"reward": "1"}}, "metadata.reward"),
    ({"metadata": {"reward": 1e39}}, "metadata.reward"), ({"slect": "last"}, "slect"), ({"branch": "r"}, "branch"),
    ({"select": "all_checkpoints", "merge": "token"}, "select")]


def test_export_options_are_refused_at_submission_as_finalize_would(start):
    """Not when the first attempt has run: what finalize takes, a group takes, and nothing else."""
    gateway = start(workers=1)
    s = gateway.post("/sessions", {"hold": True}).json()
    assert gateway.chat(s, "x").status == 200
    for k, options in enumerate(EXPORT_GOOD):
        assert gateway.request("PUT", f"/groups/g{k}", {"runner": "r", "export": options}).status == 201, options
        assert gateway.post(f"/sessions/{s['session_id']}/finalize", options).status == 200, options
    for options, name in EXPORT_BAD:
        error = gateway.post(f"/sessions/{s['session_id']}/finalize", options)
        assert error.status == 400 and name in error.text, error.text
        for defaults, own, where in ({}, {"export": options}, "groups[1]."), ({"export": options}, {}, "groups[0]."):
            answer = gateway.post("/groups", {"defaults": {"runner": "r", **defaults},
                                              "groups": [{"id": "ok"}, {"id": "bad", **own}]})
            assert answer.status == 400, (options, answer.text)
            assert f"{where}export.{name}" in answer.json()["error"]["message"], answer.text
    assert {x["id"] for x in gateway.get("/groups").json()["groups"]} == {f"g{k}" for k in range(len(EXPORT_GOOD))}


SESSION_GOOD = [
    {}, {"history": "linear"}, {"message_matcher": "strict"}, {"timeline_compare_level": "token"}, {"sink": False}, {"ttl_s": 60},
    {"sampling_params": {"temperature": 0.5, "max_new_tokens": 9, "stop": "x"}}, {"lock_sampling": ["top_p"]},
    {"prompt_length": None}, {"prompt_length": 1, "response_length": 1},
    {"metadata": {"a": [1]}}, {"labels": {"a": 1, "b": "c"}}, {"on_truncated": "branch"}, {"after_complete": "refuse"},
    {"history": "timelines", "on_truncated": "branch"}, {"max_nodes": 10}, {"branch_on_rewrite": True}, {"history": None}]
SESSION_BAD = [
    ({"history": "bush"}, "history"), ({"histori": "tree"}, "histori"), ({"history": 3}, "history"), ({"sink": 1}, "sink"),
    ({"message_matcher": "loose"}, "message_matcher"), ({"timeline_compare_level": "x"}, "timeline_compare_level"),
    ({"ttl_s": -1}, "ttl_s"), ({"prompt_length": 1.5}, "prompt_length"), ({"response_length": "x"}, "response_length"),
    ({"prompt_length": 0}, "prompt_length"), ({"response_length": 0}, "response_length"),
    ({"max_nodes": 101}, "max_nodes"), ({"max_nodes": -1}, "max_nodes"), ({"metadata": []}, "metadata"),
    ({"labels": {"a": []}}, "labels.a"), ({"labels": 3}, "labels"), ({"lock_sampling": ["x"]}, "lock_sampling"),
    ({"sampling_params": {"temperature": 101}}, "sampling_params.temperature"), ({"sampling_params": 3}, "sampling_params"),
    ({"sampling_params": {"temprature": 1}}, "sampling_params.temprature"), ({"after_complete": "stop"}, "after_complete"),
    ({"sampling_params": {"stop": [""]}}, "sampling_params.stop"), ({"rollback_last_assistant": "on"}, "rollback_last_assistant"),
    ({"sampling_params": {"engine_extra": 3}}, "sampling_params.engine_extra"),
    ({"history": "chains", "on_truncated": "branch"}, "on_truncated"), ({"idempotent_retry": 0}, "idempotent_retry")]


def test_session_options_are_refused_at_submission_as_post_sessions_would(start):
    """Not when the first attempt begins: what POST /sessions takes, a group takes, and nothing else."""
    gateway = start(workers=1, max_nodes=100)
    for k, options in enumerate(SESSION_GOOD):
        assert gateway.request("PUT", f"/groups/g{k}", {"runner": "r", "session": options}).status == 201, options
        assert gateway.post("/sessions", options).status == 200, options
    for options, name in SESSION_BAD:
        answer = gateway.post("/sessions", options)
        assert answer.status == 400 and name.split(".")[-1] in answer.text, answer.text
        for defaults, own, where in ({}, {"session": options}, "groups[1]."), ({"session": options}, {}, "groups[0]."):
            answer = gateway.post("/groups", {"defaults": {"runner": "r", **defaults},
                                              "groups": [{"id": "ok"}, {"id": "bad", **own}]})
            assert answer.status == 400, (options, answer.text)
            error = answer.json()["error"]
            assert error["param"] == f"{where}session.{name}" and error["message"].count(f"{where}session.") == 1, answer.text
            assert name.split(".")[-1] in error["message"], answer.text
    for bad, name in (({"top_p": 2}, "top_p"), ({"topp": 1}, "topp")):
        answer = gateway.post("/groups", {"id": "bad", "runner": "r", "n": 2, "members": [{}, {"sampling_params": bad}]})
        assert answer.status == 400 and answer.json()["error"]["param"] == f"members[1].sampling_params.{name}", answer.text
    answer = gateway.post("/groups", {"id": "bad", "runner": "r", "session": {"temperature": 1}})
    assert answer.status == 400 and "session.temperature" in answer.text, "that goes into sampling_params"
    assert {x["id"] for x in gateway.get("/groups").json()["groups"]} == {f"g{k}" for k in range(len(SESSION_GOOD))}


def test_unknown_parameters_and_bodies_are_refused(start):
    gateway = start(workers=1)
    for method, path, body in [("GET", "/queues/q/next?maxx=1", None), ("GET", "/queues/q/next?max=0", None),
                               ("GET", "/queues/q/next?order=fifo", None), ("GET", "/queues/q/next?states=done", None),
                               ("GET", "/groups?state=open", None), ("GET", "/groups?limit=0", None),
                               ("POST", "/queues/q/ack", {"ids": []}), ("POST", "/queues/q/ack", {"groups": "a"}),
                               ("POST", "/queues/q/cancel", {"states": ["taken"]}),
                               ("POST", "/attempts/claim", {"executor": "x"}),
                               ("POST", "/attempts/claim", {"executor": "x", "slots": {"r": -1}}),
                               ("POST", "/attempts/renew", {"executor": "x", "attempts": [3]})]:
        answer = gateway.request(method, path, body)
        assert answer.status == 400, (path, answer.text)
    for defaults, field in ({"runner": "r", "run_timeout": 60}, "run_timeout"), ({"runner": "r", "id": "b"}, "id"):
        error = gateway.post("/groups", {"defaults": defaults, "groups": [{"id": "a"}]}).json()["error"]
        assert error["param"] == f"defaults.{field}" and "Known: queue, runner" in error["message"], error
    for body, text in (({"id": "a_b", "runner": "r"}, 'id must be 1 to 128 letters, digits, \'.\' and \'-\', not "a_b"'),
                       ({"id": "a"}, "runner must be a string of 1 to 128 bytes, not nothing"),
                       ({"id": "a", "runner": "r", "on": {"infra": 1}}, "on.infra must be keep or retry or drop, not 1"),
                       ({"id": "a", "runner": "r", "members": [{"x": 1}]}, 'unknown body field "members[0].x"')):
        error = gateway.post("/groups", body).json()["error"]
        assert error["message"].startswith(text) and error["param"] in text, error
    assert gateway.get("/groups").json()["groups"] == []
    assert gateway.get("/groups/none").json()["error"]["code"] == "unknown_group"
    assert gateway.request("DELETE", "/groups/none").status == 405


def outcome_runner(fail):
    """Fails its first attempt at every rollout in that way, then succeeds."""
    def run(gateway, attempt):
        assert chat(gateway, attempt, "go").status == 200
        if attempt["attempt"] == 1:
            return dict(fail)
        return {"outcome": "ok", "reward_info": {"score": 2}}
    return run


@pytest.mark.parametrize("outcome", ["timeout", "error", "infra"])
@pytest.mark.parametrize("on", ["keep", "retry", "drop"])
def test_what_follows_each_outcome(start, outcome, on):
    gateway = start()
    submit(gateway, id="g", runner="r", n=2, on={outcome: on}, fail_reward=-1)
    fail = {"outcome": outcome, "reason": "as the test wants"}
    with Executor(gateway, "x", {"r": 2}, {"r": outcome_runner(fail)}):
        group = wait_group(gateway, "g", 30)
    states = {m["state"] for m in group["members"]}
    if on == "retry":
        assert group["state"] == "finished" and all(m["attempts"] == 2 and m["reward"] == 2 for m in group["members"])
    elif on == "keep":
        assert group["state"] == "finished" and states == {"succeeded"}
        assert all(m["reward"] == -1 and m["finished"] is False and m["outcome"] == outcome for m in group["members"])
    else:
        assert group["state"] == "failed" and states == {"failed"}
        assert all(m["reason"] == "as the test wants" and m["session_id"] is None for m in group["members"])


def test_no_model_call_and_no_reward_are_errors(start):
    gateway = start()
    submit(gateway, id="silent", runner="silent", n=1, attempts=2)
    submit(gateway, id="unscored", runner="unscored", n=1, attempts=1)
    submit(gateway, id="external", runner="unscored", n=1, reward="external")
    runners = {"silent": lambda gw, a: {"outcome": "ok", "reward_info": {"reward": 1}},
               "unscored": lambda gw, a: chat(gw, a, "go") and {"outcome": "ok"}}
    with Executor(gateway, "x", {"silent": 1, "unscored": 2}, runners):
        silent, unscored, external = (wait_group(gateway, n) for n in ("silent", "unscored", "external"))
    assert silent["state"] == "failed" and silent["members"][0]["attempts"] == 2
    assert "model was not called" in silent["members"][0]["reason"]
    assert unscored["state"] == "failed" and "no reward" in unscored["members"][0]["reason"]
    assert external["state"] == "finished" and external["members"][0]["reward"] is None


def test_what_the_engines_of_the_day_refuse_fails_the_group_with_the_reason(start):
    gateway = start()
    submit(gateway, id="g", runner="r", session={"sampling_params": {"engine_extra": {"mirostat": 2}}}, attempts=2)
    with Executor(gateway, "x", {"r": 1}, {"r": solve()}):
        group = wait_group(gateway, "g")
    assert group["state"] == "failed" and "engine_extra" in group["members"][0]["reason"]


def test_extra_members_the_first_n_count(start):
    gateway = start()
    submit(gateway, id="g", runner="r", n=2, extra=1)
    attempts = claim(gateway, r=3)
    assert len(attempts) == 3
    for a in attempts[:2]:
        assert chat(gateway, a, "go").status == 200
        assert end(gateway, a, outcome="ok", reward_info={"reward": 1}).json() == {"rollout": "succeeded"}
    group = wait_group(gateway, "g")
    assert group["state"] == "finished"
    assert sorted(m["state"] for m in group["members"]) == ["cancelled", "succeeded", "succeeded"]
    late = end(gateway, attempts[2], outcome="ok", reward_info={"reward": 1})
    assert late.status == 410 and late.json()["error"]["code"] == "attempt_ended"
    g.wait_until(lambda: chat(gateway, attempts[2], "more").status == 410, 10, "the surplus session ends")


def test_a_partial_group(start):
    gateway = start()
    submit(gateway, id="g", runner="r", n=3, min=1, on={"error": "drop"})
    attempts = claim(gateway, r=3)
    chat(gateway, attempts[0], "go")
    end(gateway, attempts[0], outcome="ok", reward_info={"reward": 1})
    for a in attempts[1:]:
        assert end(gateway, a, outcome="error", exit=1).json() == {"rollout": "failed"}
    group = wait_group(gateway, "g")
    assert group["state"] == "partial" and group["succeeded"] == 1


def test_an_end_is_answered_alike_when_repeated(start):
    gateway = start()
    submit(gateway, id="g", runner="r", n=2)
    first, second = claim(gateway, r=2)
    chat(gateway, first, "go")
    answer = end(gateway, first, outcome="ok", timings={"step": "x" * 20_000})
    assert answer.status == 400 and answer.json()["error"]["param"] == "timings" and "16384" in answer.text
    for _ in range(3):
        assert end(gateway, first, outcome="ok", reward_info={"reward": 1}).json() == {"rollout": "succeeded"}
    assert end(gateway, second, outcome="error").json() == {"rollout": "retry"}
    assert end(gateway, second, outcome="error").json() == {"rollout": "retry"}
    answers = end(gateway, dict(attempt_id="0" * 32), outcome="ok")
    assert answers.status == 410


def test_a_lost_lease_gives_the_attempt_to_another(start):
    gateway = start(attempt_lease="500ms")
    submit(gateway, id="g", runner="r", n=2)
    lost = claim(gateway, executor="zombie", r=2)
    again = []
    g.wait_until(lambda: again.extend(claim(gateway, executor="other", wait_s=1, r=2)) or len(again) == 2, 15,
                 "the rollouts are claimed again")
    assert {(a["rollout"], a["attempt"]) for a in again} == {(0, 2), (1, 2)}
    assert {a["attempt_id"] for a in again}.isdisjoint(a["attempt_id"] for a in lost)
    late = end(gateway, lost[0], outcome="ok", reward_info={"reward": 1})
    assert late.status == 410 and late.json()["error"]["code"] == "attempt_ended"
    g.wait_until(lambda: chat(gateway, lost[0], "I live").status == 410, 10, "the zombie's session has ended")
    kill = gateway.post("/attempts/renew", {"executor": "zombie", "attempts": [lost[0]["attempt_id"]]}).json()["kill"]
    assert kill == [{"attempt_id": lost[0]["attempt_id"], "reason": "lease_lost"}]
    assert gateway.metrics()["rollgate_attempt_leases_lost_total"] == 2


def test_a_dispatcher_that_stood_still_takes_no_lease(start):
    """No executor could renew meanwhile: what it has is its own for so much longer."""
    gateway = start(attempt_lease="6s")
    submit(gateway, id="g", runner="r")
    attempt, = claim(gateway, r=1)
    pid = gateway.child("dispatcher")
    for _ in range(2):
        os.kill(pid, signal.SIGSTOP)
        g.pause(6.5, "nobody can renew")
        os.kill(pid, signal.SIGCONT)
        g.pause(0.4, "a tick and more, before who lives is heard of again")
        answer = gateway.post("/attempts/renew", {"executor": "x", "attempts": [attempt["attempt_id"]]})
        assert answer.json()["kill"] == [], answer.text
    g.wait_until(lambda: group_of(gateway, "g")["members"][0]["attempts"] == 1 and gateway.metrics()["rollgate_attempt_leases_lost_total"] == 1, 10,
                 "a lease that nobody renews runs out all the same")


def test_a_dispatcher_that_is_held_as_it_starts_takes_no_lease(start):
    """Most of these before they have looked at leases for the first time."""
    held = []
    for _ in range(4):
        gateway = start(attempt_lease="4s")
        submit(gateway, id="g", runner="r")
        attempt, = claim(gateway, r=1)
        os.kill(gateway.child("dispatcher"), signal.SIGSTOP)
        held.append((gateway, attempt["attempt_id"]))
    g.pause(4.5, "nobody can renew")
    for gateway, _ in held:
        os.kill(gateway.child("dispatcher"), signal.SIGCONT)
    g.pause(0.4, "a tick and more, before who lives is heard of again")
    for gateway, attempt_id in held:
        answer = gateway.post("/attempts/renew", {"executor": "x", "attempts": [attempt_id]})
        assert answer.json()["kill"] == [], answer.text


def test_renewal_keeps_a_lease(start):
    gateway = start(attempt_lease="400ms")
    submit(gateway, id="g", runner="r")
    attempt, = claim(gateway, r=1)
    until = time.monotonic() + 1.5      # nearly four leases: an absence needs its time
    while time.monotonic() < until:
        answer = gateway.post("/attempts/renew", {"executor": "x", "attempts": [attempt["attempt_id"]], "wait_s": 0.1})
        assert answer.json() == {"kill": []}
    chat(gateway, attempt, "go")
    assert end(gateway, attempt, outcome="ok", reward_info={"reward": 1}).status == 200


def test_cancel_reaches_the_executor_and_the_session(start):
    gateway = start()
    submit(gateway, id="g", runner="r", n=4, version=3)
    submit(gateway, id="young", runner="r", n=1, version=9)
    attempts = claim(gateway, r=3)
    told = []

    def renew():
        told.append(gateway.post("/attempts/renew", {"executor": "x", "wait_s": 20,
                                                     "attempts": [a["attempt_id"] for a in attempts]}, timeout=40).json())
    thread = threading.Thread(target=renew)
    thread.start()
    g.wait_until(lambda: group_of(gateway, "g")["running"] == 3, 5, "three run")
    answer = gateway.post("/queues/train/cancel", {"version_below": 5})
    assert answer.json() == {"cancelled": ["g"]}
    thread.join(15)
    assert [k["reason"] for k in told[0]["kill"]] in (["unknown"] * 3, ["cancelled"] * 3)
    for a in attempts:
        g.wait_until(lambda: chat(gateway, a, "more").status == 410, 10, "the sessions end")
    assert gateway.get("/groups/g").status == 404 and group_of(gateway, "young")["state"] == "waiting"


def test_a_cancelled_group_may_be_delivered(start):
    gateway = start()
    submit(gateway, id="g", runner="r", n=2)
    assert gateway.post("/groups/g/cancel", {"deliver": True}).json() == {"cancelled": ["g"]}
    assert gateway.get("/queues/train/next?states=finished").json()["groups"] == []
    group = take_all(gateway, "train", 1, timeout=10)[0]
    assert group["state"] == "cancelled" and {m["state"] for m in group["members"]} == {"cancelled"}


def test_unacknowledged_groups_come_again_with_the_same_content(start):
    gateway = start()
    submit(gateway, id="g", runner="r")
    with Executor(gateway, "x", {"r": 1}, {"r": solve()}):
        first = gateway.get("/queues/train/next?wait_s=20&lease_s=0.3", timeout=40).json()["groups"][0]
    body = gateway.post(f"/sessions/{first['members'][0]['session_id']}/finalize", {"format": "msgpack"}).body
    second = gateway.get("/queues/train/next?wait_s=20", timeout=40).json()["groups"][0]
    assert second["id"] == "g" and first["deliveries"] == 1 and second["deliveries"] == 2
    assert second["members"] == first["members"]
    assert gateway.post(f"/sessions/{first['members'][0]['session_id']}/finalize", {"format": "msgpack"}).body == body
    assert gateway.post("/queues/train/ack", {"groups": ["g", "never-was"]}).json() == {"acked": 1}
    assert gateway.post("/queues/train/ack", {"groups": ["g"]}).json() == {"acked": 0}


def test_an_acknowledged_groups_id_is_free(start):
    """It is gone: the same submission makes a group of its own, with sessions of its own."""
    gateway = start()
    seen = []
    for _ in range(2):
        made = gateway.request("PUT", "/groups/g", {"runner": "r"})
        assert made.status == 201 and made.json()["created"] is True, made.text
        again = gateway.request("PUT", "/groups/g", {"runner": "r"})
        assert again.status == 200 and again.json()["created"] is False, "it is there until it is acknowledged"
        with Executor(gateway, "x", {"r": 1}, {"r": solve()}):
            seen += take_all(gateway, "train", 1)
    assert [x["deliveries"] for x in seen] == [1, 1]
    assert seen[0]["members"][0]["session_id"] != seen[1]["members"][0]["session_id"]


def test_returned_groups_are_offered_at_once(start):
    gateway = start()
    submit(gateway, id="g", runner="r")
    with Executor(gateway, "x", {"r": 1}, {"r": solve()}):
        gateway.get("/queues/train/next?wait_s=20", timeout=40)
    assert gateway.get("/queues/train/next").json()["groups"] == []
    assert gateway.post("/queues/train/return", {"groups": ["g"]}).json() == {"returned": 1}
    assert gateway.get("/queues/train/next").json()["groups"][0]["deliveries"] == 2


def test_orders(start):
    gateway = start()
    for name in ("a", "b", "c"):
        submit(gateway, id=name, runner=name)
    claimed = {name: claim(gateway, **{name: 1})[0] for name in "abc"}
    for name in "cb":
        chat(gateway, claimed[name], "go")
        end(gateway, claimed[name], outcome="ok", reward_info={"reward": 1})
    assert gateway.get("/queues/train/next?order=submitted&max=9").json()["groups"] == []    # a has not settled
    assert [x["id"] for x in gateway.get("/queues/train/next?max=9").json()["groups"]] == ["c", "b"]
    gateway.post("/queues/train/return", {"groups": ["c", "b"]})
    chat(gateway, claimed["a"], "go")
    end(gateway, claimed["a"], outcome="ok", reward_info={"reward": 1})
    got = gateway.get("/queues/train/next?order=submitted&max=9").json()["groups"]
    assert [x["id"] for x in got] == ["a", "b", "c"]


def test_priorities_then_submission_and_begun_groups_first(start):
    gateway = start()
    submit(gateway, id="low", runner="r", n=2, priority=-1)
    submit(gateway, id="first", runner="r", n=2)
    submit(gateway, id="second", runner="r", n=2)
    submit(gateway, id="high", runner="r", n=2, priority=5)
    order = [claim(gateway, r=1)[0]["group"] for _ in range(8)]
    assert order == ["high", "high", "first", "first", "second", "second", "low", "low"]


def test_the_settled_limit_stops_claims(start):
    gateway = start(queue_max_settled=2)
    for i in range(4):
        submit(gateway, id=f"g{i}", runner="r")
    with Executor(gateway, "x", {"r": 1}, {"r": solve()}):
        g.wait_until(lambda: gateway.get("/queues/train").json()["settled"] == 2, 20, "two settle")
        assert claim(gateway, wait_s=0.5, r=1) == []
        taken = gateway.get("/queues/train/next?max=2").json()["groups"]
        assert claim(gateway, wait_s=0.5, r=1) == []    # taken ones count until they are acknowledged
        gateway.post("/queues/train/ack", {"groups": [x["id"] for x in taken]})
        assert len(take_all(gateway, "train", 2)) == 2


def test_too_many_groups_are_refused(start):
    gateway = start(queue_max_groups=2)
    submit(gateway, id="a", runner="r")
    answer = gateway.post("/groups", {"groups": [{"id": "b", "runner": "r"}, {"id": "c", "runner": "r"}]})
    assert answer.status == 429 and answer.json()["error"]["code"] == "queue_full"
    assert answer.headers["Retry-After"] and gateway.get("/groups/b").status == 404
    submit(gateway, id="b", runner="r")


def test_nobody_offers_the_runner_is_told(start):
    gateway = start()
    submit(gateway, id="g", runner="nobody")
    queue = gateway.get("/queues/train/next").json()["queue"]
    assert queue["waiting"] == 1 and queue["blocked"] == [{"runner": "nobody", "reason": "no executor offers it"}]


def test_the_breaker_stops_a_runner_that_only_fails(start):
    gateway = start(runner_breaker=3).allow("a runner's attempts fail one after the other")
    submit(gateway, id="g", runner="r", n=1, attempts=1000)
    with Executor(gateway, "x", {"r": 1}, {"r": lambda gw, a: {"outcome": "error"}}) as x:
        blocked = g.wait_until(lambda: [b for b in gateway.get("/queues/train").json()["blocked"] if "fail" in b["reason"]],
                               20, "the runner is blocked")
        assert blocked == [{"runner": "r", "reason": "its attempts fail one after the other"}]
        assert len(x.done) == 3


def test_an_executor_that_stops_is_no_failure_of_its_runner(start):
    """It ends all that it has, and says that this is why: others go on with it at once."""
    gateway = start(runner_breaker=2)
    submit(gateway, id="g", runner="r", n=4)
    for attempt in claim(gateway, r=4):
        assert end(gateway, attempt, outcome="infra", stopping=True).json() == {"rollout": "retry"}
    with Executor(gateway, "other", {"r": 4}, {"r": solve()}):
        assert wait_group(gateway, "g", 20)["state"] == "finished"
    assert gateway.get("/queues/train").json()["blocked"] == []


def test_only_what_ends_as_infra_ends_since_its_executor_stops(start):
    """What a run came to by itself is its own."""
    gateway = start(runner_breaker=2).allow("a runner's attempts fail one after the other")
    submit(gateway, id="g", runner="r", n=2, attempts=1)
    submit(gateway, id="next", runner="r")
    attempts = claim(gateway, r=2)
    assert end(gateway, attempts[0], outcome="infra", stopping="yes").status == 400
    for attempt in attempts:
        assert end(gateway, attempt, outcome="error", stopping=True).json() == {"rollout": "failed"}
    assert claim(gateway, wait_s=0, r=1) == []
    assert gateway.get("/queues/train").json()["blocked"] == [{"runner": "r", "reason": "its attempts fail one after the other"}]


def test_a_deadline_settles_the_group(start):
    gateway = start()
    submit(gateway, id="g", runner="r", n=2, deadline_s=0.5, min=1)
    running = claim(gateway, r=1)[0]
    chat(gateway, running, "go")
    g.wait_until(lambda: gateway.post("/attempts/renew", {"executor": "x", "attempts": [running["attempt_id"]]}).json()["kill"],
                 10, "the executor is told of the deadline")
    assert end(gateway, running, outcome="timeout").json() == {"rollout": "succeeded"}
    group = wait_group(gateway, "g")
    assert group["state"] == "partial"
    assert {(m["state"], m["reward"]) for m in group["members"]} == {("succeeded", 0), ("failed", None)}


def test_no_attempt_begins_during_a_pause(start):
    gateway = start()
    submit(gateway, id="g", runner="r")
    assert gateway.post("/admin/pause", {"mode": "hold"}).status == 200
    assert claim(gateway, wait_s=0.6, r=1) == []
    waiting = []
    thread = threading.Thread(target=lambda: waiting.extend(claim(gateway, wait_s=20, r=1)))
    thread.start()
    assert gateway.post("/admin/resume").status == 200
    thread.join(15)
    assert len(waiting) == 1


def test_listing(start):
    gateway = start(workers=1)
    for i in range(5):
        submit(gateway, id=f"g{i}", runner="r", queue="val" if i % 2 else "train", labels={"step": str(i)})
    page = gateway.get("/groups?limit=2").json()
    assert [x["id"] for x in page["groups"]] == ["g0", "g1"] and page["next_cursor"]
    rest = gateway.get(f"/groups?cursor={page['next_cursor']}").json()
    assert [x["id"] for x in rest["groups"]] == ["g2", "g3", "g4"] and rest["next_cursor"] is None
    assert [x["id"] for x in gateway.get("/groups?queue=val").json()["groups"]] == ["g1", "g3"]
    assert [x["id"] for x in gateway.get("/groups?label=step%3D4&state=waiting").json()["groups"]] == ["g4"]


def test_groups_are_found_by_their_labels(start):
    """Also those of defaults, and behind a restart; a cancel wants all of its labels."""
    gateway = start(workers=1)
    labels = {"a": {"step": "7", "by": "\u00e9 \"x\""}, "b": {"step": "7", "empty": ""}, "c": {}, "d": None, "e": None}
    groups = [{"id": name, **({} if given is None else {"labels": given})} for name, given in labels.items()]
    assert gateway.post("/groups", {"defaults": {"runner": "r", "labels": {"step": "8"}}, "groups": groups}).status == 201
    for _ in range(2):
        for query, want in (("step", "abde"), ("step=7", "ab"), ("step=8", "de"), ("step=", ""), ("ste", ""), ("empty", "b"), ("empty=", "b"),
                            ("by=\u00e9 \"x\"", "a"), ("by=\u00e9", "")):
            found = gateway.get(f"/groups?label={urllib.parse.quote(query)}").json()["groups"]
            assert "".join(x["id"] for x in found) == want, query
        gateway.stop()
        gateway.start()
    for wanted, gone in (({"step": "7", "by": "x"}, []), ({"step": "7", "none": ""}, []), ({"step": 9}, []),
                         ({"step": "7", "empty": ""}, ["b"]), ({"step": 8}, ["d", "e"]), ({}, ["a", "c"])):
        assert gateway.post("/queues/train/cancel", {"labels": wanted}).json() == {"cancelled": gone}, wanted
    refused = gateway.post("/queues/train/cancel", {"labels": {"step": None}})
    assert refused.status == 400 and "labels.step must be a string or a number, not null" in refused.text


def test_a_label_may_be_a_number(start):
    """Sessions take numbers as labels, so groups do; the result and the attempt's session have the number."""
    gateway = start(workers=1)
    submit(gateway, id="n", runner="r", labels={"step": 7, "lr": 0.5})
    assert [x["id"] for x in gateway.get("/groups?label=step%3D7").json()["groups"]] == ["n"]
    seen = []

    def look(gateway, attempt):
        seen.extend(gateway.get("/sessions?label=step%3D7").json()["sessions"])
        return solve()(gateway, attempt)

    with Executor(gateway, "x", {"r": 1}, {"r": look}):
        group, = take_all(gateway, "train", 1)
    assert group["labels"] == {"step": 7, "lr": 0.5}
    assert [row["labels"]["step"] for row in seen] == [7]


def test_the_dispatcher_may_die_at_any_time(start):
    gateway = start(attempt_lease="5s").allow("process died")
    for i in range(12):
        submit(gateway, id=f"g{i}", runner="r", n=2)
    with Executor(gateway, "x", {"r": 4}, {"r": solve()}) as x:
        for kills in range(4):
            g.wait_until(lambda: len(x.done) >= 4 * kills + 2, 30, "attempts end")
            pid = gateway.child("dispatcher")
            os.kill(pid, signal.SIGKILL)
            g.wait_until(lambda: gateway.child("dispatcher") not in (None, pid), 20, "it is replaced")
        groups = take_all(gateway, "train", 12)
    assert {x["state"] for x in groups} == {"finished"} and len({x["id"] for x in groups}) == 12
    open_ones = json.loads(gateway.get("/sessions?phase=open").text)["sessions"]
    g.wait_until(lambda: gateway.get("/sessions?phase=open").json()["sessions"] == [], 20, f"no session is left: {open_ones}")


def sweep_again(gateway):
    """Another dispatcher, which has looked for sessions of nobody: claims wait for that."""
    pid = gateway.child("dispatcher")
    os.kill(pid, signal.SIGKILL)
    g.wait_until(lambda: gateway.child("dispatcher") not in (None, pid), 20, "it is replaced")
    submit(gateway, id=f"after-{pid}", runner="sweep", infra_attempts=1)
    g.wait_until(lambda: claim(gateway, "sweeper", sweep=1), 20, "it gives attempts")


def phase(gateway, session):
    return gateway.get(f"/sessions/{session['session_id']}").json()["phase"]


def test_a_new_dispatcher_ends_its_own_sessions_alone(start):
    """A trainer's label `attempt` looks like an attempt's id; a fork and an import of an attempt's session keep its labels."""
    gateway = start(workers=2).allow("process died")
    mine = gateway.post("/sessions", {"labels": {"attempt": uuid.uuid4().hex}, "hold": True, "sink": False, "group": "own",
                                      "rollout": 0, "group_size": 1}).json()
    submit(gateway, id="g", runner="r", reward="external")
    (attempt,) = claim(gateway, r=1)
    session = attempt["session"]
    assert chat(gateway, attempt, "go").status == 200
    fork = gateway.post(f"/sessions/{session['session_id']}/fork", {}).json()
    snapshot = gateway.get(f"/sessions/{session['session_id']}/snapshot").json()
    imported = gateway.post("/sessions/import", snapshot).json()
    sweep_again(gateway)
    assert [phase(gateway, s) for s in (mine, fork, imported, session)] == ["open"] * 4
    assert end(gateway, attempt, outcome="ok").json() == {"rollout": "succeeded"}


def test_settled_groups_survive_the_whole_gateway(start):
    gateway = start()
    submit(gateway, id="g", runner="r", n=2)
    submit(gateway, id="later", runner="r")
    with Executor(gateway, "x", {"r": 2}, {"r": solve()}):
        before = wait_group(gateway, "g")
    gateway.stop()
    gateway.start()
    after = gateway.get("/queues/train/next?max=2&states=finished").json()["groups"]
    assert [x["members"] for x in after if x["id"] == "g"] == [before["members"]]
    for member in before["members"]:
        assert gateway.post(f"/sessions/{member['session_id']}/finalize", {"format": "verl"}).status == 200


def test_switched_off(start):
    gateway = start(dispatcher=False)
    assert gateway.post("/groups", {"id": "a", "runner": "r"}).status == 404
    assert gateway.child("dispatcher") is None


def test_an_end_is_for_the_executor_that_it_names(start):
    """Also without keys: who names itself is held to it."""
    gateway = start(workers=1)
    submit(gateway, id="g", runner="r")
    attempt, = claim(gateway, r=1)
    chat(gateway, attempt, "x")
    path = f"/attempts/{attempt['attempt_id']}/end"
    body = {"outcome": "ok", "reward_info": {"reward": 1}}
    answer = gateway.post(path, dict(body, executor="another"))
    assert answer.status == 403 and answer.json()["error"]["code"] == "wrong_scope", answer.text
    assert gateway.post(path, dict(body, executor="x")).json() == {"rollout": "succeeded"}


def test_metrics_name_runners_and_queues_within_bounds(start):
    """By name, escaped; beyond 31 runners and 15 queues the rest is one. Counts and names outlive the dispatcher."""
    gateway = start(workers=1).allow("process died process=dispatcher")
    odd = 'a "b\\c'
    for i in range(35):
        submit(gateway, id=f"g{i}", runner=odd if i == 0 else f"r{i}", queue=f"q{i}")
    g.wait_until(lambda: gateway.metrics().get('rollgate_groups{queue="other",state="waiting"}') == 20, 10, "the gauge")
    slots = {odd: 1, "r33": 1, "r34": 1}
    with Executor(gateway, "x", slots, {name: solve() for name in slots}):
        for name in ("g0", "g33", "g34"):
            wait_group(gateway, name)
    escaped = odd.replace("\\", "\\\\").replace('"', '\\"')
    os.kill(gateway.child("dispatcher"), signal.SIGKILL)
    g.wait_until(lambda: gateway.log().count("process serves process=dispatcher") == 2, 20, "the next one serves")
    metrics = gateway.metrics()
    assert metrics[f'rollgate_attempts_total{{runner="{escaped}",outcome="ok"}}'] == 1
    assert metrics['rollgate_attempts_total{runner="other",outcome="ok"}'] == 2
    assert metrics['rollgate_groups_settled_total{queue="q0",state="finished"}'] == 1
    assert metrics['rollgate_groups_settled_total{queue="other",state="finished"}'] == 2
    g.wait_until(lambda: gateway.metrics().get('rollgate_groups{queue="other",state="waiting"}') == 18, 10, "the gauge")
    gateway.signal(signal.SIGTERM)
    gateway.wait()


def test_top_shows_queues_and_runners(start):
    gateway = start()
    submit(gateway, id="g0", runner="solver", n=2, queue="train")
    with Executor(gateway, "x", {"solver": 1}, {"solver": solve()}):
        wait_group(gateway, "g0")
    submit(gateway, id="g1", runner="solver", n=2, queue="train")   # nobody takes these
    submit(gateway, id="g2", runner="solver", n=2, queue="val")
    wanted = [r"train +1 +0 +1\n", r"val +1 +0 +0\n", r"oldest group +\d+ s", r"solver +[01] +0 +2 +0 +0 +[01] +0\n"]

    def page():
        top = [str(g.BINARY), "top", "--once", f"--listen=127.0.0.1:{gateway.port}"]
        return subprocess.run(top, capture_output=True, text=True, timeout=30, check=True).stdout
    g.wait_until(lambda: all(re.search(p, page()) for p in wanted), 20, "the page")
    assert re.search(r"queue +waiting +running +settled\n", page()) and len(re.findall(r"^train ", page(), re.M)) == 1


def test_running_attempts_are_told_the_oldest_first(start):
    """By GET /attempts and on the page of top: the ten oldest; what has ended is not there."""
    gateway = start()
    for i in range(12):
        submit(gateway, id=f"g{i:02}", runner="r", n=1)
    attempts = []
    for i in range(12):
        attempts += claim(gateway, r=1)
    told = gateway.get("/attempts").json()["attempts"]
    assert [a["attempt_id"] for a in told] == [a["attempt_id"] for a in attempts]
    assert [a["group"] for a in told] == [f"g{i:02}" for i in range(12)]
    one = told[0]
    assert (one["rollout"], one["attempt"], one["runner"]) == (0, 1, "r") and one["executor"]
    assert one["session_id"] == attempts[0]["session"]["session_id"] and 0 <= one["running_s"] < 60
    assert abs(one["claimed_at"] + one["running_s"] - time.time()) < 30
    assert end(gateway, attempts[0], outcome="infra").status == 200     # its retry waits a second
    assert [a["group"] for a in gateway.get("/attempts?limit=2").json()["attempts"]] == ["g01", "g02"]
    for limit in ("0", "1001", "x"):
        answer = gateway.get(f"/attempts?limit={limit}")
        assert answer.status == 400 and answer.json()["error"]["param"] == "limit"
    top = [str(g.BINARY), "top", "--once", f"--listen=127.0.0.1:{gateway.port}"]
    page = subprocess.run(top, capture_output=True, text=True, timeout=30, check=True).stdout
    assert re.findall(r"^ +\d+ s +0 +1  r +\S+ +(g\d\d) +\S+$", page, re.M) == [f"g{i:02}" for i in range(1, 11)]


def test_metrics_and_log(start):
    gateway = start()
    submit(gateway, id="g", runner="r", n=2)
    with Executor(gateway, "x", {"r": 2}, {"r": solve()}):
        wait_group(gateway, "g")
    metrics = gateway.metrics()
    assert metrics['rollgate_attempts_total{runner="r",outcome="ok"}'] == 2
    assert metrics['rollgate_groups_settled_total{queue="train",state="finished"}'] == 1
    assert metrics["rollgate_claim_wait_seconds_count"] == 2
    g.wait_until(lambda: gateway.metrics().get('rollgate_groups{queue="train",state="finished"}') == 1, 10, "the gauge")
    assert gateway.metrics()['rollgate_attempts_running{runner="r"}'] == 0
    assert len([line for line in gateway.log().split("\n") if "attempt ended" in line and "group=g" in line]) == 2


def test_runners_that_no_group_names_leave_the_labels_to_those_that_run(start):
    """Executors may offer any name; a label's values are few and stay."""
    gateway = start()
    slots = {f"no-{n}": 1 for n in range(64)}
    waiting = threading.Thread(target=lambda: claim(gateway, wait_s=50, **slots), daemon=True)
    waiting.start()
    g.wait_until(lambda: gateway.metrics().get('rollgate_slots{runner="other"}') == 64, 20, "offers are shown together")
    submit(gateway, id="named", runner="no-7")
    waiting.join(60)
    submit(gateway, id="g", runner="r")
    with Executor(gateway, "x", {"r": 1}, {"r": solve()}):
        wait_group(gateway, "g")
    assert gateway.metrics()['rollgate_attempts_total{runner="r",outcome="ok"}'] == 1
    g.wait_until(lambda: gateway.metrics()['rollgate_slots{runner="other"}'] == 0, 20, "none is offered any more")


def test_what_is_blocked_is_what_groups_of_the_queue_wait_for(start):
    """While one of their rollouts waits or runs; a runner of another queue's groups is not told."""
    gateway = start(runner_breaker=1).allow("a runner's attempts fail one after the other")

    def blocked(queue):
        return [x["runner"] for x in gateway.get(f"/queues/{queue}").json()["blocked"]]
    submit(gateway, id="old", runner="r", queue="val", attempts=1)
    submit(gateway, id="g", runner="r", n=1)
    submit(gateway, id="n", runner="nobody", queue="val")
    first, second = claim(gateway, r=2)
    assert end(gateway, first, outcome="error").json() == {"rollout": "failed"} and first["group"] == "old"
    submit(gateway, id="next", runner="r")
    assert claim(gateway, wait_s=0, r=1) == []          # the breaker opens
    assert group_of(gateway, "next")["state"] == "waiting" and blocked("train") == ["r"] and blocked("val") == ["nobody"]
    assert gateway.post("/groups/next/cancel", {}).json() == {"cancelled": ["next"]}
    assert blocked("train") == ["r"], "one of its rollouts runs"
    assert end(gateway, second, outcome="error").json() == {"rollout": "retry"}
    assert blocked("train") == ["r"]
    assert gateway.post("/groups/g/cancel", {}).json() == {"cancelled": ["g"]}
    assert blocked("train") == [] and blocked("val") == ["nobody"]


def test_an_answer_to_a_claim_is_not_of_any_length(start):
    """A runner reads 64 MiB of one: of groups with long inputs it has fewer attempts than slots."""
    gateway = start(workers=1)
    for n in range(4):
        submit(gateway, id=f"g{n}", runner="r", input="x" * (6 << 20))
    first = claim(gateway, r=10)
    assert len(first) == 3 and len(claim(gateway, r=10)) == 1
    assert all(a["input"] == "x" * (6 << 20) for a in first)


def test_a_dispatcher_finds_its_sessions_however_long_their_metadata_are(start):
    """All of them in one list are more than it reads: it asks for fewer at a time."""
    gateway = start(workers=1, max_control_body_bytes="8MiB", max_metadata_bytes="8MiB").allow("process died")
    label = {"attempt": "0" * 32}
    for _ in range(20):
        a = gateway.post("/sessions", {"labels": label, "metadata": {"x": "x" * (7 << 19)}})
        assert a.status == 200, a.text
    pid = gateway.child("dispatcher")
    os.kill(pid, signal.SIGKILL)
    g.wait_until(lambda: gateway.child("dispatcher") not in (None, pid), 20, "it is replaced")
    submit(gateway, id="g", runner="r")
    assert len(claim(gateway, wait_s=50, r=1)) == 1

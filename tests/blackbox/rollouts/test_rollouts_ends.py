"""Ends of attempts with obstacles: sessions that the gateway refuses, ends that cannot be kept, finalized sessions
that do not count, slow scorers, ids that are used again, records that are not on disk yet."""
import errno
import os
import signal
import threading

import pytest

import gateway as g
from export_readers import read_safetensors
from rollouts_kit import Executor, chat, solve
from scoring_engine import ScoringEngine
from stub_engines import StubEngine
from test_faults import faulty  # noqa: F401, a fixture
from test_rollouts import claim, end, group_of, submit, wait_group

REFUSED = {"sampling_params": {"engine_extra": {"mirostat": 2}}}    # what no engine of these tests takes


@pytest.mark.parametrize("on", ["keep", "retry", "drop"])
def test_a_session_that_is_refused_for_good_fails_its_rollout_at_once(start, on):
    """No other try fares better, and it says nothing of the runner: its breaker stays shut."""
    gateway = start(runner_breaker=2)
    submit(gateway, id="bad", runner="r", n=3, session=REFUSED, attempts=1000, on={"error": on}, priority=1)
    submit(gateway, id="good", runner="r")
    with Executor(gateway, "x", {"r": 1}, {"r": solve()}):
        assert wait_group(gateway, "good")["state"] == "finished"
    bad = wait_group(gateway, "bad")
    assert bad["state"] == "failed" and bad["succeeded"] == 0
    for member in bad["members"]:
        assert (member["state"], member["outcome"], member["attempts"]) == ("failed", "error", 1)
        assert "refuses the session" in member["reason"] and "engine_extra" in member["reason"]
    assert gateway.get("/queues/train").json()["blocked"] == []
    assert gateway.log().count("attempt ended") == 4, "each end is told"


def test_a_session_that_is_refused_for_now_is_tried_again(start):
    """No room for sessions says nothing of the attempt: none is spent."""
    gateway = start(workers=1, max_sessions=1)
    full = gateway.post("/sessions", {}).json()
    submit(gateway, id="g", runner="r", attempts=1)
    assert claim(gateway, wait_s=0.5, r=1) == []
    assert group_of(gateway, "g")["state"] == "waiting"
    assert gateway.request("DELETE", f"/sessions/{full['session_id']}").status == 204
    with Executor(gateway, "x", {"r": 1}, {"r": solve()}):
        group = wait_group(gateway, "g")
    assert group["state"] == "finished" and group["members"][0]["attempts"] == 1


def test_what_has_no_export_is_not_kept(start):
    """`keep` counts an attempt as it stands; one whose session cannot be finalized is tried again, and fails with the reason."""
    gateway = start()
    submit(gateway, id="g", runner="r", attempts=2, on={"error": "keep"}, fail_reward=-1)
    with Executor(gateway, "x", {"r": 1}, {"r": lambda gw, a: {"outcome": "error"}}) as x:
        group = wait_group(gateway, "g")
    assert group["state"] == "failed" and [verdict for _, verdict in x.done] == ["retry", "failed"]
    member = group["members"][0]
    assert member["state"] == "failed" and member["attempts"] == 2 and "model was not called" in member["reason"]


@pytest.mark.parametrize("outcome, told, scored, finished", [
    ("ok", None, False, False), ("ok", None, True, True), ("ok", None, "no boolean", True), ("ok", None, None, True),
    ("ok", True, False, True), ("ok", False, True, False), ("timeout", None, None, False), ("timeout", None, True, True)])
def test_who_says_whether_a_run_finished(start, outcome, told, scored, finished):
    """The end of the attempt, else its scorer, else the outcome; trainers that mask go by it."""
    gateway = start()
    submit(gateway, id="g", runner="r")
    info = {"reward": 0.2} if scored is None else {"reward": 0.2, "finished": scored}
    how = {"outcome": outcome, "reward_info": info} | ({} if told is None else {"finished": told})
    with Executor(gateway, "x", {"r": 1}, {"r": lambda gw, a: chat(gw, a, "go") and how}):
        member = wait_group(gateway, "g")["members"][0]
    assert (member["state"], member["finished"], member["reward_info"]) == ("succeeded", finished, info)
    rows, _ = read_safetensors(gateway.get(f"/sessions/{member['session_id']}/trajectories?format=verl&mask_unfinished=on").body)
    assert any(rows["loss_mask.0"][2]) is finished


def test_a_fail_reward_does_not_say_whether_the_run_finished(start):
    """The executor has said so; the export goes by it as the result does."""
    gateway = start()
    submit(gateway, id="g", runner="r", fail_reward=-1)
    with Executor(gateway, "x", {"r": 1}, {"r": lambda gw, a: chat(gw, a, "go") and {"outcome": "timeout", "finished": True}}):
        member = wait_group(gateway, "g")["members"][0]
    assert (member["state"], member["reward"], member["finished"]) == ("succeeded", -1, True)
    rows, _ = read_safetensors(gateway.get(f"/sessions/{member['session_id']}/trajectories?format=verl&mask_unfinished=on").body)
    assert any(rows["loss_mask.0"][2])


def test_a_lost_attempt_is_not_kept(start):
    """Nobody finalized its session: `keep` cannot count it."""
    gateway = start(attempt_lease="500ms")
    submit(gateway, id="g", runner="r", on={"infra": "keep"})
    lost, = claim(gateway, executor="dies", r=1)
    assert chat(gateway, lost, "x").status == 200
    with Executor(gateway, "x", {"r": 1}, {"r": solve(2)}):
        group = wait_group(gateway, "g")
    member = group["members"][0]
    assert (member["state"], member["attempts"], member["reward"]) == ("succeeded", 2, 2)
    path = f"/sessions/{member['session_id']}/finalize"
    assert sum(sum(t["response_mask"]) for t in gateway.post(path, {"format": "json"}).json()["trajectories"]) > 0


def test_a_finalized_session_that_does_not_count_is_let_go(start):
    """A surplus attempt's session is held once it is finalized: it goes when its attempt is cancelled, not at a restart."""
    gateway = start()
    submit(gateway, id="g", runner="r", n=1, extra=1)
    winner, surplus = claim(gateway, r=2)
    for attempt in (winner, surplus):
        assert chat(gateway, attempt, "x").status == 200
    path = f"/sessions/{surplus['session']['session_id']}"
    assert gateway.post(f"{path}/finalize", {"format": "none"}).status == 200
    assert end(gateway, winner, outcome="ok", reward_info={"reward": 1}).json() == {"rollout": "succeeded"}
    g.wait_until(lambda: gateway.get(path).status == 410, 10, "the surplus session is gone")
    assert gateway.get(f"/sessions/{winner['session']['session_id']}").json()["phase"] == "finalized"


@pytest.mark.parametrize("deaths, lease", [(0, 150), (1, 150), (2, 80)])
def test_an_end_that_takes_long_is_no_other_attempt(faulty, deaths, lease):  # noqa: F811
    """A scorer answers later than the dispatcher waits for a worker that is away: the worker is there, and its answer counts.
    If it dies then, it has been there until then, however long that was: its successor is asked."""
    policy, scorer = StubEngine("sglang").__enter__(), ScoringEngine("sglang").__enter__()
    try:
        policy.otherwise = lambda body: {"ids": list(b"ok") + [257], "matched": 257}
        told = threading.Event()
        scorer.otherwise = lambda body: {"ids": [1], "wait": told}
        gateway, inject = faulty(engine=policy.setting, scorer=f"big={scorer.setting}", attempt_lease=f"{lease}s")

        def let_time_pass(name):
            """Nobody renews the lease of another attempt, which tells how late the dispatcher's clock is."""
            inject("steps", f"20 {gateway.child('dispatcher')}")
            g.wait_until(lambda: group_of(gateway, name)["state"] == "failed", 30, "its clock is a lease later")
            inject("steps", None)
            assert group_of(gateway, "g")["state"] == "running"
        submit(gateway, id="other-0", runner="other", infra_attempts=1)
        claim(gateway, other=1)
        submit(gateway, id="g", runner="r", session={"score": [{"engine": "big"}]})
        attempt, = claim(gateway, r=1)
        assert chat(gateway, attempt, "x").status == 200
        ends = []
        thread = threading.Thread(target=lambda: ends.append(end(gateway, attempt, outcome="ok", reward_info={"reward": 1})))
        thread.start()
        g.wait_until(lambda: scorer.scored, 20, "the scorer is asked")
        let_time_pass("other-0")
        for i in range(1, deaths + 1):
            gateway.allow("process died")
            os.kill(gateway.child("worker-0"), signal.SIGKILL)
            g.wait_until(lambda i=i: len(scorer.scored) == i + 1, 30, "the next worker asks the scorer, too")
            if i < deaths:
                submit(gateway, id=f"other-{i}", runner="other", infra_attempts=1)
                claim(gateway, other=1)
                let_time_pass(f"other-{i}")
        told.set()
        thread.join(30)
        assert [a.json() for a in ends] == [{"rollout": "succeeded"}], ends[0].text
        assert len(scorer.scored) == 1 + deaths and group_of(gateway, "g")["members"][0]["attempts"] == 1
    finally:
        policy.__exit__(None, None, None)
        scorer.__exit__(None, None, None)


@pytest.mark.parametrize("status, said", [(404, "the engine refuses the gateway: 404"), (401, "refuses the gateway: 401"), (500, None)])
def test_a_scorer_that_refuses_is_asked_once(start, status, said):
    """It would say the same again. The trainer is told what the worker said."""
    with StubEngine("sglang") as policy, ScoringEngine("sglang") as scorer:
        policy.otherwise = lambda body: {"ids": list(b"ok") + [257], "matched": 257}
        scorer.otherwise = lambda body: {"status": status, "body": {}} if said else {"scores": lambda p: p[:-1]}
        gateway = start(engine=policy.setting, scorer=f"big={scorer.setting}", workers=1)
        submit(gateway, id="g", runner="r", session={"score": [{"engine": "big"}]}, attempts=1)
        attempt, = claim(gateway, r=1)
        assert chat(gateway, attempt, "x").status == 200
        assert end(gateway, attempt, outcome="ok", reward_info={"reward": 1}).json() == {"rollout": "failed"}
        member, = group_of(gateway, "g")["members"]
        assert member["outcome"] == "error" and "scorer big: " in member["reason"], member
        assert (said or "another number of tokens") in member["reason"] and len(scorer.scored) == 1


@pytest.mark.parametrize("status", [503, 500])
def test_a_scorer_that_fails_is_asked_ever_less_often(faulty, status):  # noqa: F811
    """And when the dispatcher's patience is over, what the worker said last is the reason."""
    with StubEngine("sglang") as policy, ScoringEngine("sglang") as scorer:
        policy.otherwise = lambda body: {"ids": list(b"ok") + [257], "matched": 257}
        scorer.otherwise = lambda body: {"status": status, "body": {}}
        gateway, inject = faulty(engine=policy.setting, scorer=f"big={scorer.setting}", engine_timeout="500ms", attempt_lease="300s",
                                 runner_breaker=1)
        submit(gateway, id="g", runner="r", session={"score": [{"engine": "big"}]}, infra_attempts=1)
        attempt, = claim(gateway, r=1)
        assert chat(gateway, attempt, "x").status == 200
        ends = []
        thread = threading.Thread(target=lambda: ends.append(end(gateway, attempt, outcome="ok", reward_info={"reward": 1})))
        thread.start()
        g.pause(8, "how often it is asked by then")
        assert 1 <= len(scorer.scored) <= 18, len(scorer.scored)
        inject("steps", f"100 {gateway.child('dispatcher')}")
        thread.join(30)
        assert ends[0].json() == {"rollout": "failed"}, ends[0].text
        member, = group_of(gateway, "g")["members"]
        assert member["outcome"] == "infra" and "scorer big: " in member["reason"], member
        inject("steps", None)
        submit(gateway, id="next", runner="r")
        given, blocked = claim(gateway, r=1), gateway.get("/queues/train").json()["blocked"]
        assert given or not any("fail" in b["reason"] for b in blocked), ("the run had ended well: its runner's breaker is shut", blocked)


def two_claim(gateway):
    """Two executors ask for the one rollout that waits, whose session the stopped worker cannot make. Returns the call of the
    one that has the rollout; the other has heard that there is none."""
    answers = {}

    def ask(name):
        answers[name] = claim(gateway, executor=name, wait_s=0.3, r=1)
    threads = {name: threading.Thread(target=ask, args=(name,), daemon=True) for name in (os.urandom(4).hex(), os.urandom(4).hex())}
    for t in threads.values():
        t.start()
    g.wait_until(lambda: len(answers) == 1, 20, "one of them hears that there is nothing left")
    assert list(answers.values()) == [[]]
    name, = set(threads) - set(answers)
    return threads[name], answers, name


def test_a_claim_of_a_former_group_is_none_of_its_namesake(start):
    """The id is free again while the session of a claim is made: that session has the former group's options."""
    gateway = start(workers=1)
    submit(gateway, id="warm", runner="warm")
    claim(gateway, warm=1)          # claims wait for the dispatcher's first sweep
    worker = gateway.child("worker-0")
    os.kill(worker, signal.SIGSTOP)
    try:
        submit(gateway, id="g", runner="r", metadata={"of": "former"})
        former = two_claim(gateway)
        assert gateway.post("/groups/g/cancel").json() == {"cancelled": ["g"]}
        submit(gateway, id="g", runner="r", metadata={"of": "namesake"})
        namesake = two_claim(gateway)
    finally:
        os.kill(worker, signal.SIGCONT)
    for thread, _, _ in (former, namesake):
        thread.join(30)
    assert former[1][former[2]] == []
    attempt, = namesake[1][namesake[2]]
    state = gateway.get(f"/sessions/{attempt['session']['session_id']}").json()
    assert state["metadata"] == {"of": "namesake"}


def test_a_cancel_names_what_it_changed(start):
    """What has settled stays as it is where a cancelled group is to be delivered, and where nobody takes it from a queue."""
    gateway = start()
    submit(gateway, id="done", runner="r")
    submit(gateway, id="kept", runner="r", queue=None)
    with Executor(gateway, "x", {"r": 2}, {"r": solve()}):
        before = wait_group(gateway, "done")
        wait_group(gateway, "kept")
    submit(gateway, id="waits", runner="nobody")
    assert gateway.post("/groups/done/cancel", {"deliver": True}).json() == {"cancelled": []}
    assert gateway.post("/groups/kept/cancel").json() == {"cancelled": []}
    states = {"states": ["waiting", "running", "settled"], "deliver": True}
    assert gateway.post("/queues/train/cancel", states).json() == {"cancelled": ["waits"]}
    assert group_of(gateway, "done") == before and group_of(gateway, "kept")["state"] == "finished"
    assert gateway.post("/queues/train/cancel", {"states": ["settled"]}).json()["cancelled"] == ["done", "waits"]
    assert gateway.get("/groups/done").status == 404


def test_sessions_go_behind_the_record_that_lets_them_go(faulty):  # noqa: F811
    """With --durability power: while the record of an acknowledgement is not on the disk, a power cut would bring the group
    back, so its session is there still."""
    gateway, inject = faulty(durability="power")
    submit(gateway, id="g", runner="r")
    with Executor(gateway, "x", {"r": 1}, {"r": solve()}):
        group = gateway.get("/queues/train/next?wait_s=20", timeout=40).json()["groups"][0]
    path = f"/sessions/{group['members'][0]['session_id']}"
    inject("where", "/dispatcher/")
    inject("hold", "1")
    answers = []
    thread = threading.Thread(target=lambda: answers.append(gateway.post("/queues/train/ack", {"groups": ["g"]}).json()))
    thread.start()
    g.wait_until(lambda: gateway.get("/groups/g").status == 404, 10, "the record is applied")
    assert [gateway.get(path).status for _ in range(20)] == [200] * 20 and answers == []
    inject("hold", None)
    g.wait_until(lambda: gateway.get(path).status == 410, 10, "the session goes")
    thread.join(20)
    assert answers == [{"acked": 1}]


def test_repeated_answers_wait_for_the_record_they_affirm(faulty):  # noqa: F811
    """With --durability power: who hears that something is so, also from another request than the one that made it so, can
    rely on it behind a power cut."""
    gateway, inject = faulty(durability="power")
    submit(gateway, id="g", runner="r", queue=None)
    attempt, = claim(gateway, r=1)
    assert chat(gateway, attempt, "x").status == 200
    submit(gateway, id="other", runner="nobody", queue=None)
    inject("where", "/dispatcher/")
    inject("hold", "1")
    answers, threads = {}, []

    def ask(name, call):
        threads.append(threading.Thread(target=lambda: answers.update({name: call().json()})))
        threads[-1].start()
    new = {"id": "new", "runner": "nobody"}
    ask("put", lambda: gateway.request("PUT", "/groups/new", new))
    g.wait_until(lambda: gateway.get("/groups/new").status == 200, 10, "the group is in the book")
    ask("put again", lambda: gateway.request("PUT", "/groups/new", new))
    ask("cancel", lambda: gateway.post("/groups/other/cancel"))
    ask("end", lambda: end(gateway, attempt, outcome="ok", reward_info={"reward": 1}))
    g.wait_until(lambda: {x["state"] for x in gateway.get("/groups").json()["groups"]} == {"finished", "cancelled", "waiting"}, 10,
                 "both ends are in the book")
    ask("cancel again", lambda: gateway.post("/groups/other/cancel"))
    ask("end again", lambda: end(gateway, attempt, outcome="ok", reward_info={"reward": 1}))
    ask("wait", lambda: gateway.get("/groups/g/wait?timeout_s=20", timeout=40))
    ask("get", lambda: gateway.get("/groups/g", timeout=40))
    g.stays(lambda: answers == {}, 1, "an answer that waits for nothing comes in milliseconds")
    inject("hold", None)
    for t in threads:
        t.join(20)
    assert answers["put"]["created"] and not answers["put again"]["created"]
    assert answers["cancel"] == {"cancelled": ["other"]} and answers["cancel again"] == {"cancelled": []}
    assert answers["end"] == answers["end again"] == {"rollout": "succeeded"}
    assert answers["wait"] == answers["get"] and answers["get"]["state"] == "finished"


@pytest.mark.parametrize("queue", ["train", None])
def test_a_batch_that_fails_part_way_leaves_nothing(faulty, queue):  # noqa: F811
    """All or none, also of groups without a queue, which a cancel keeps; once there is room all of them are new."""
    gateway, inject = faulty()
    groups = [{"id": f"g{i}", "runner": "r", "queue": queue} for i in range(4)]
    inject("writev", "28 only 2")
    answer = gateway.post("/groups", {"groups": groups})
    assert answer.status == 503 and answer.json()["error"]["code"] == "storage_full", answer.text
    assert gateway.get("/groups").json()["groups"] == []
    inject("writev", None)
    answer = gateway.post("/groups", {"groups": groups})
    assert answer.status == 201 and all(x["created"] for x in answer.json()["groups"]), answer.text


def test_sessions_that_cannot_be_made_for_now_are_told_of_once(faulty):  # noqa: F811
    """Of all that were asked for together one says why."""
    gateway, inject = faulty()
    submit(gateway, id="warm", runner="warm")
    claim(gateway, warm=1)          # claims wait for the dispatcher's first sweep
    submit(gateway, id="g", runner="r", n=16)
    worker = gateway.child("worker-0")
    os.kill(worker, signal.SIGSTOP)
    try:
        answers = []
        thread = threading.Thread(target=lambda: answers.append(claim(gateway, wait_s=0, r=16)))
        thread.start()
        inject("steps", f"20 {gateway.child('dispatcher')}")     # until it waits no longer for the worker
        thread.join(30)
        inject("steps", None)
    finally:
        os.kill(worker, signal.SIGCONT)
    assert answers == [[]] and gateway.log().count("a session cannot be made for an attempt") < 5, "a second in which they end has 20 ms steps"


def test_a_refused_session_is_no_probe(faulty):  # noqa: F811
    """It says nothing of the runner, whose breaker is open: the next attempt is the probe."""
    gateway, inject = faulty(runner_breaker=2)
    gateway.allow("a runner's attempts fail one after the other")
    submit(gateway, id="fails", runner="r", n=2, attempts=1)
    for attempt in claim(gateway, r=2):
        assert end(gateway, attempt, outcome="error").json() == {"rollout": "failed"}
    submit(gateway, id="bad", runner="r", session=REFUSED, priority=1)
    submit(gateway, id="good", runner="r")
    with Executor(gateway, "x", {"r": 1}, {"r": solve()}):
        g.wait_until(lambda: gateway.get("/queues/train").json()["blocked"], 10, "the breaker is open")
        inject("steps", f"5 {gateway.child('dispatcher')}")
        g.wait_until(lambda: group_of(gateway, "bad")["state"] == "failed", 60, "a minute has passed: a probe may go")
        inject("steps", None)
        assert wait_group(gateway, "good", 20)["state"] == "finished"


def claim_beside(gateway, answers, **slots):
    """A claim in a thread of its own, for as long as an executor waits."""
    thread = threading.Thread(target=lambda: answers.extend(claim(gateway, wait_s=0, **slots)), daemon=True)
    thread.start()
    return thread


def test_a_lease_begins_when_the_executor_has_the_attempt(start):
    """One worker makes its sessions at once, another one far later than a lease: all attempts of the claim come."""
    gateway = start(workers=2, attempt_lease="3s")
    submit(gateway, id="warm", runner="warm")
    claim(gateway, warm=1)          # claims wait for the dispatcher's first sweep
    submit(gateway, id="g", runner="r", n=8)
    worker, given = gateway.child("worker-0"), []
    os.kill(worker, signal.SIGSTOP)
    try:
        thread = claim_beside(gateway, given, r=8)
        g.pause(4.5, "leases that had begun would be over")
    finally:
        os.kill(worker, signal.SIGCONT)
    thread.join(30)
    assert [x["attempt"] for x in given] == [1] * 8
    for attempt in given:
        assert end(gateway, attempt, outcome="infra").json() == {"rollout": "retry"}


def test_a_claim_is_answered_before_its_executor_gives_up(start):
    """What a worker that stands still was asked for is nobody's: the rollouts wait on, and the sessions that it makes later end."""
    gateway = start(workers=2)
    submit(gateway, id="warm", runner="warm")
    warm, = claim(gateway, warm=1)
    submit(gateway, id="g", runner="r", n=4)
    worker, given = gateway.child("worker-0"), []
    os.kill(worker, signal.SIGSTOP)
    try:
        thread = claim_beside(gateway, given, r=4)
        thread.join(60)             # a worker that is asked for anything else has two minutes
        assert not thread.is_alive() and len(given) == 2 and group_of(gateway, "g")["running"] == 2
    finally:
        os.kill(worker, signal.SIGCONT)
    gateway.allow("a session cannot be made for an attempt")
    for attempt in given:
        assert end(gateway, attempt, outcome="error").json() == {"rollout": "retry"}
    with Executor(gateway, "x", {"r": 4}, {"r": solve()}):
        group = wait_group(gateway, "g")
    assert group["state"] == "finished" and sorted(m["attempts"] for m in group["members"]) == [1, 1, 2, 2]
    members = {m["session_id"] for m in group["members"]}

    def live():
        rows = gateway.get("/sessions?label=attempt").json()["sessions"]
        return {x["session_id"] for x in rows if x["phase"] not in ("aborted", "expired")}
    g.wait_until(lambda: live() - {warm["session"]["session_id"]} == members, 20, "no other session lives")


def test_claims_that_cannot_be_recorded_are_not_made_anew_at_once(faulty):  # noqa: F811
    """Each of them makes a session and gives it up."""
    gateway, inject = faulty()
    gateway.allow("a claim cannot be recorded")
    submit(gateway, id="g", runner="r")
    submit(gateway, id="warm", runner="warm")
    claim(gateway, warm=1)
    inject("where", "dispatcher/seg-")
    inject("writev", errno.EIO)
    with Executor(gateway, "x", {"r": 1}, {"r": solve()}):
        g.wait_until(lambda: "a claim cannot be recorded" in gateway.log(), 20, "a claim fails")
        g.pause(2, "how often it is asked by then")
        inject("writev", None)
        assert gateway.log().count("a claim cannot be recorded") <= 5
        assert wait_group(gateway, "g")["state"] == "finished"

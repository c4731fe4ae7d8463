"""Ends of sessions: budgets, stop reasons, evaluations, and ends by labels."""
import subprocess
import threading

import pytest

import gateway as g
from gateway import wait_until
from stub_engines import StubEngine
from test_streaming import new

GOOD = {"ids": list(b"ok") + [257], "matched": 257}


def say(gateway, s, *texts, **more):
    roles = ["user", "assistant"]
    messages = [{"role": roles[i % 2], "content": t} for i, t in enumerate(texts)]
    return gateway.post(f"/sessions/{s['session_id']}/v1/chat/completions", {"messages": messages, **more}, timeout=60)


def state(gateway, s):
    return gateway.get(f"/sessions/{s['session_id']}").json()


def stop(gateway, s):
    return state(gateway, s)["stop_reason"]


def finalize(gateway, s, **body):
    return gateway.post(f"/sessions/{s['session_id']}/finalize", body)


def refused(answer, option):
    error = answer.json()["error"]
    assert answer.status == 410 and error["code"] == "budget_exhausted" and error["param"] == option, answer.text
    assert answer.headers["x-should-retry"] == "false" and option in error["message"]


def test_max_turns(start):
    gateway = start(workers=1, engine="builtin:echo")
    s = new(gateway, max_turns=2)
    assert say(gateway, s, "a").status == 200 and stop(gateway, s) is None
    assert say(gateway, s, "b").status == 200 and stop(gateway, s) is None  # the agent may still end by itself
    counted = gateway.post(f"/sessions/{s['session_id']}/v1/messages/count_tokens",
                           {"messages": [{"role": "user", "content": "c"}]})
    assert counted.status == 200
    refused(say(gateway, s, "c"), "max_turns")
    assert stop(gateway, s) == {"by": "budget", "reason": "max_turns"}
    refused(say(gateway, s, "d"), "max_turns")
    answer = finalize(gateway, s)
    assert answer.status == 200 and answer.json()["summary"]["stop_reason"] == {"by": "budget", "reason": "max_turns"}
    assert state(gateway, s)["num_calls"] == 2


def test_running_calls_count(start):
    """Two that overlap cannot both be the last one; one that fails makes room."""
    with StubEngine() as engine:
        engine.plan.append({"status": 400, "body": {"error": {"message": "no"}}, "delay_s": 1.0})
        engine.otherwise = lambda body: GOOD
        gateway = start(workers=1, engine=engine.setting)
        s = new(gateway, max_turns=1)
        first = []
        t = threading.Thread(target=lambda: first.append(say(gateway, s, "a")))
        t.start()
        wait_until(lambda: engine.running == 1, what="the first runs")
        refused(say(gateway, s, "b"), "max_turns")
        t.join()
        assert first[0].status == 400, first[0].text
        assert say(gateway, s, "c").status == 200
        refused(say(gateway, s, "d"), "max_turns")


def test_max_total_tokens(start):
    with StubEngine() as engine:
        engine.otherwise = lambda body: GOOD
        gateway = start(workers=1, engine=engine.setting)
        first = new(gateway)
        assert say(gateway, first, "a").status == 200
        used = state(gateway, first)["num_tokens"]
        s = new(gateway, max_total_tokens=used + 60)
        assert say(gateway, s, "a", max_tokens=500).status == 200
        left = [r["body"]["sampling_params"]["max_new_tokens"] for r in engine.requests][-1]
        assert left == used + 60 - (used - 3)     # what the prompt leaves of it
        assert say(gateway, s, "a" * 70).status == 410
        refused(say(gateway, s, "a" * 70), "max_total_tokens")
        assert stop(gateway, s) == {"by": "budget", "reason": "max_total_tokens"}
        assert state(gateway, s)["num_tokens"] == used


def test_a_spent_budget_outlives_a_restart(start):
    gateway = start(workers=2, engine="builtin:echo")
    s = new(gateway, max_turns=1)
    assert say(gateway, s, "a").status == 200
    refused(say(gateway, s, "b"), "max_turns")
    assert gateway.stop() == 0
    gateway.start()
    assert stop(gateway, s) == {"by": "budget", "reason": "max_turns"}
    refused(say(gateway, s, "c"), "max_turns")
    rows = gateway.get("/sessions").json()["sessions"]
    assert [r["stop_reason"] for r in rows] == [{"by": "budget", "reason": "max_turns"}]


def test_the_status_of_ended_sessions_is_that_of_spent_ones(start):
    gateway = start(workers=1, engine="builtin:echo", ended_status="400")
    s = new(gateway, max_turns=1)
    assert say(gateway, s, "a").status == 200
    answer = say(gateway, s, "b")
    assert answer.status == 400 and answer.json()["error"]["code"] == "budget_exhausted"


TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}


@pytest.mark.parametrize("call, end, told", [
    ({}, {}, {"by": "model", "reason": "stop"}),
    ({"max_tokens": 1}, {}, {"by": "budget", "reason": "max_tokens"}),
    ({"tools": [TOOL], "tool_choice": "required"}, {}, {"by": "agent", "reason": "left_calls"}),
    (None, {}, {"by": "agent", "reason": "no_calls"}),
    ({}, {"finished": True}, {"by": "model", "reason": "stop"}),
    ({}, {"finished": False, "reason": "tests failed"}, {"by": "agent", "reason": "unfinished", "said": "tests failed"}),
    ({}, {"stopped_by": "infrastructure", "reason": "container died"},
     {"by": "infrastructure", "reason": "stated", "said": "container died"}),
])
def test_who_stopped_it(start, call, end, told):
    gateway = start(workers=1, engine="builtin:echo")
    s = new(gateway)
    if call is not None:
        assert say(gateway, s, "hello", **call).status == 200
    if end:
        assert gateway.post(f"/sessions/{s['session_id']}/complete", end).status == 200
    assert stop(gateway, s) == (told if end else None)
    answer = finalize(gateway, s, format="none").json()
    assert answer["stop_reason"] == told and stop(gateway, s) == told
    assert answer["summary"].get("stop_reason") == (told if told["reason"] == "stated" else None)


def test_aborts_tell_who(start):
    gateway = start(workers=1, engine="builtin:echo")
    s, t = new(gateway, labels={"a": "1"}), new(gateway, labels={"a": "2"})
    assert gateway.post(f"/sessions/{s['session_id']}/abort").status == 204
    told = {"stopped_by": "infrastructure", "reason": "oom"}
    assert gateway.post(f"/sessions/{t['session_id']}/abort", told).status == 204
    bad = gateway.post(f"/sessions/{new(gateway)['session_id']}/abort", {"stopped_by": "nobody"})
    assert bad.status == 400 and bad.json()["error"]["param"] == "stopped_by"


def test_an_evaluation(start, tmp_path):
    with StubEngine() as engine:
        engine.otherwise = lambda body: GOOD
        gateway = start(workers=1, engine=engine.setting, evaluation_sampling='{"temperature": 0.25, "top_p": 0.5}',
                        sink=f"file:{tmp_path}")

        def asked(**options):
            s = new(gateway, **options)
            assert say(gateway, s, "a").status == 200
            return s, engine.requests[-1]["body"]["sampling_params"]
        s, sampling = asked(evaluation=True)
        assert sampling["temperature"] == 0.25 and sampling["top_p"] == 0.5
        assert state(gateway, s)["evaluation"] is True
        own, sampling = asked(evaluation=True, sampling_params={"temperature": 0.75})
        assert sampling["temperature"] == 0.75 and sampling["top_p"] == 0.5
        plain, sampling = asked()
        assert sampling.get("temperature", 1) == 1 and "evaluation" not in state(gateway, plain)
        kept, _ = asked(evaluation=True, sink=True)
        for one in (s, own, plain, kept):
            summary = finalize(gateway, one).json()["summary"]
            assert summary.get("evaluation") is (None if one is plain else True)

        def written():
            return "".join(x.read_bytes().decode("utf-8", "replace") + x.name for x in tmp_path.rglob("*") if x.is_file())
        wait_until(lambda: all(x["session_id"] in written() for x in (plain, kept)), what="the sinks have both")
        assert not any(x["session_id"] in written() for x in (s, own))


def test_a_bad_setting_for_evaluations_is_told(start, tmp_path):
    for text, told in (("{", "evaluation-sampling"), ('{"temprature": 1}', "temprature"), ("[]", "not a JSON object"),
                       ('{"temperature": -1}', "temperature")):
        out = subprocess.run([g.BINARY, "config", "--check", f"--state-dir={tmp_path}", f"--evaluation-sampling={text}"],
                             capture_output=True, text=True, timeout=60)
        assert out.returncode != 0 and told in out.stdout + out.stderr, (text, out)


def phases(gateway):
    return sorted((r["labels"].get("step", ""), r["labels"].get("kind", ""), r["phase"])
                  for r in gateway.get("/sessions").json()["sessions"])


@pytest.mark.parametrize("how, phase", [("abort", "aborted"), ("finalize", "finalized")])
def test_ends_by_labels_reach_every_worker(start, how, phase):
    gateway = start(workers=3, engine="builtin:echo")
    many = [new(gateway, labels={"step": "7", "kind": "math"}) for _ in range(9)]
    others = [new(gateway, labels={"step": "8", "kind": "math"}), new(gateway, labels={"step": "7"}), new(gateway)]
    assert len({s["worker_index"] for s in many}) == 3
    for s in many:
        assert say(gateway, s, "a").status == 200
    done = gateway.post(f"/sessions/{how}", {"labels": {"step": 7, "kind": "math"}})
    assert done.status == 200 and done.json() == {"status": "ok", "ended": 9, "failed": 0}, done.text
    for s in many:
        assert say(gateway, s, "b").status == 410
        if how == "finalize":
            assert state(gateway, s)["phase"] == phase
    for s in others:
        assert say(gateway, s, "b").status == 200 and state(gateway, s)["phase"] == "open"
    again = gateway.post(f"/sessions/{how}", {"labels": {"step": "7", "kind": "math"}}).json()
    assert again["ended"] == 0


def test_ends_by_labels_need_a_label(start):
    gateway = start(workers=2, engine="builtin:echo")
    s = new(gateway, labels={"step": "7"})
    for path in ("/sessions/abort", "/sessions/finalize"):
        for body in ({}, {"labels": {}}, {"labels": "step"}, {"label": {"step": "7"}}, {"labels": {"step": None}}):
            answer = gateway.post(path, body)
            assert answer.status == 400 and "label" in answer.json()["error"]["message"], answer.text
        assert gateway.get(path).status in (404, 405)
    assert state(gateway, s)["phase"] == "open"


def test_ends_by_labels_end_running_calls_and_sessions_of_a_former_life(start):
    with StubEngine() as engine:
        engine.otherwise = lambda body: GOOD
        gateway = start(workers=2, engine=engine.setting)
        old = [new(gateway, labels={"run": "x"}) for _ in range(4)]
        for s in old:
            assert say(gateway, s, "a").status == 200
        assert gateway.stop() == 0
        gateway.start()     # their content is in the journal alone
        gate, answers = threading.Event(), []
        engine.plan.append({**GOOD, "wait": gate})
        running = new(gateway, labels={"run": "x"})
        t = threading.Thread(target=lambda: answers.append(say(gateway, running, "b")))
        t.start()
        wait_until(lambda: engine.running == 1, what="the call runs")
        done = gateway.post("/sessions/abort", {"labels": {"run": "x"}, "stopped_by": "infrastructure"})
        assert done.json()["ended"] == 5
        t.join()
        gate.set()
        assert answers[0].status == 410
        assert all(say(gateway, s, "c").status == 410 for s in old)


# --- forks ---

def ids_of(export, i=0):
    t = export["trajectories"][i]
    return t["prompt_ids"] + t["response_ids"]


def look(gateway, s, **query):
    path = f"/sessions/{s['session_id']}/trajectories" + "".join(f"?{k}={v}" for k, v in query.items())
    return gateway.get(path).json()


def fork(gateway, s, **body):
    answer = gateway.post(f"/sessions/{s['session_id']}/fork", body)
    assert answer.status == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("history", ["tree", "linear"])
def test_a_fork_goes_on_token_by_token(start, history):
    with StubEngine() as engine:
        engine.otherwise = lambda body: {"ids": list(b"n%d" % len(engine.requests)) + [257], "matched": 257}
        gateway = start(workers=2, engine=engine.setting)
        s = new(gateway, history=history, labels={"a": "1"}, metadata={"m": 1}, sampling_params={"temperature": 0.5})
        first = say(gateway, s, "a").json()
        text = first["choices"][0]["message"]["content"]
        second = say(gateway, s, "a", text, "b")
        assert second.status == 200
        before = look(gateway, s)
        f = fork(gateway, s, response_id=first["id"])
        assert f["session_id"] != s["session_id"] and f["forked_from"] == s["session_id"] and f["api_key"] != s["api_key"]
        told = state(gateway, f)
        assert told["forked_from"] == s["session_id"] and told["num_branches"] == 1 and told["labels"] == {"a": "1"}
        assert told["metadata"] == {"m": 1} and told["phase"] == "open"
        answer = say(gateway, f, "a", text, "c")
        assert answer.status == 200
        sent = engine.requests[-1]["body"]
        export = look(gateway, f)
        t = export["trajectories"][0]
        stored = ids_of(export)
        turns = t["turns"]
        assert [x["trained"] for x in turns] == [False, True] and len(export["trajectories"]) == 1
        assert sent["input_ids"] == stored[:len(t["prompt_ids"]) + turns[1]["start"]]
        assert sent["sampling_params"]["temperature"] == 0.5
        assert sum(t["response_mask"]) == turns[1]["end"] - turns[1]["start"]
        shared = len(t["prompt_ids"]) + turns[0]["end"]
        assert stored[:shared] == ids_of(before)[:shared]       # the same ids up to the answer
        assert look(gateway, s) == before                       # the other one knows nothing of it
        trained = fork(gateway, s, response_id=first["id"], train_prefix=True, labels={"b": "2"}, metadata={"n": 2})
        assert [x["trained"] for x in look(gateway, trained)["trajectories"][0]["turns"]] == [True]
        assert state(gateway, trained)["labels"] == {"b": "2"} and state(gateway, trained)["metadata"] == {"n": 2}


def test_a_fork_of_the_newest_answer_and_what_it_leaves_behind(start):
    with StubEngine() as engine:
        engine.otherwise = lambda body: {"ids": list(b"n%d" % len(engine.requests)) + [257], "matched": 257}
        gateway = start(workers=1, engine=engine.setting)
        s = new(gateway)
        for text in ("a", "b", "c"):    # three roots
            assert say(gateway, s, text).status == 200
        n = len(engine.requests)
        f = fork(gateway, s)
        assert len(look(gateway, f)["trajectories"]) == 1 and len(look(gateway, s)["trajectories"]) == 3
        assert say(gateway, f, "c").status == 200 and len(engine.requests) == n + 1     # a new sample, no replay
        assert say(gateway, f, "a").status == 200 and len(engine.requests) == n + 2
        assert gateway.post(f"/sessions/{f['session_id']}/finalize", {}).status == 200
        g2 = fork(gateway, f, response_id=None)     # of a finalized one, and of a fork
        assert state(gateway, g2)["forked_from"] == f["session_id"]
        assert say(gateway, g2, "d").status == 200


def test_a_fork_outlives_a_restart(start):
    with StubEngine() as engine:
        engine.otherwise = lambda body: {"ids": list(b"n%d" % len(engine.requests)) + [257], "matched": 257}
        gateway = start(workers=2, engine=engine.setting)
        s = new(gateway)
        first = say(gateway, s, "a").json()
        assert say(gateway, s, "b").status == 200
        f = fork(gateway, s, response_id=first["id"])
        text = first["choices"][0]["message"]["content"]
        assert say(gateway, f, "a", text, "c").status == 200
        before, untouched = look(gateway, f), fork(gateway, s)
        as_made = state(gateway, untouched)
        assert as_made["updated_at"] == as_made["created_at"]
        assert gateway.stop() == 0
        gateway.start()
        assert look(gateway, f) == before and state(gateway, untouched) == as_made
        n = len(engine.requests)
        assert say(gateway, f, "a").status == 200 and len(engine.requests) == n + 1     # sampled again, not replayed
        assert say(gateway, f, "a", text, "d").status == 200
        sent, stored = engine.requests[-1]["body"]["input_ids"], ids_of(before)
        shared = len(before["trajectories"][0]["prompt_ids"]) + before["trajectories"][0]["turns"][0]["end"]
        assert sent[:shared] == stored[:shared]


@pytest.mark.parametrize("options, body, status, told", [
    ({}, {"response_id": "chatcmpl-nothing"}, 400, "response id"),
    ({"history": "chains"}, {}, 400, "chains"), ({}, {"train": True}, 400, "train"),
    ({}, {"sampling_params": {"temprature": 1}}, 400, "temprature")])
def test_what_cannot_be_forked_is_told(start, options, body, status, told):
    gateway = start(workers=1, engine="builtin:echo")
    s = new(gateway, **options)
    assert say(gateway, s, "a").status == 200
    answer = gateway.post(f"/sessions/{s['session_id']}/fork", body)
    assert answer.status == status and told in answer.json()["error"]["message"], answer.text
    assert len(gateway.get("/sessions").json()["sessions"]) == 1


@pytest.mark.parametrize("kept", [False, True])
def test_the_same_answer_is_forked_by_either_id(start, kept):
    gateway = start(workers=1, engine="builtin:echo")
    s = new(gateway)
    one = say(gateway, s, "a").json()
    if kept:        # others stand on it
        assert say(gateway, s, "a", one["choices"][0]["message"]["content"], "b").status == 200
    two = say(gateway, s, "a", seed=2).json()    # no retry of the first
    forks = []
    for response in (one["id"], two["id"]):
        answer = gateway.post(f"/sessions/{s['session_id']}/fork", {"response_id": response})
        assert answer.status == 200, answer.text
        [branch] = look(gateway, answer.json())["trajectories"]
        forks.append([t["response_id"] for t in branch["turns"]])
    assert forks == [[one["id"] if kept else two["id"]]] * 2


def test_without_a_journal_nothing_is_forked(start):
    gateway = start(workers=1, engine="builtin:echo", durability="none")
    s = new(gateway)
    assert say(gateway, s, "a").status == 200
    answer = gateway.post(f"/sessions/{s['session_id']}/fork", {})
    assert answer.status == 400 and "journal" in answer.json()["error"]["message"]
    assert gateway.post(f"/sessions/{new(gateway)['session_id']}/fork", {}).status == 400

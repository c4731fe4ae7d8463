"""Several large answers of a call are written to the journal in parts before their commit. They are complete after
kill -9, in a fork, in a snapshot and with a limit of memory. Nothing remains of a call that died between parts."""
import functools
import json
import os
import re
import shutil

import pytest

from gateway import wait_until
from test_faults import faulty  # noqa: F401
from test_snapshots import told
from test_streaming import new, user
from test_turn_recovery import kill_worker, kinds, records

ASK = {"n": 24, "max_tokens": 50_000, "logprobs": True}


@functools.cache
def texts():
    return json.dumps([f"{i} " + "".join(chr(97 + (i * k + k // 7) % 26) for k in range(5000)) for i in range(80)])


@pytest.fixture
def large(tmp_path):
    """Settings of an engine that answers with 5 KB, each time others."""
    script = tmp_path / "answers.json"
    script.write_text(texts())
    return {"engine": f"builtin:script:{script}", "context_length": 1_000_000}


def trajectories(gateway, path, query="select=all_checkpoints"):
    a = gateway.get(f"{path}/trajectories?{query}")
    assert a.status == 200, a.text
    return a.json()


def path_of(session):
    return f"/sessions/{session['session_id']}"


def answer(gateway, session, messages, **more):
    a = gateway.chat(session, messages, **{**ASK, **more})
    assert a.status == 200, a.text
    return [c["message"] for c in a.json()["choices"]]


def last_commit(journal, session_id):
    """Offset of the last record that has an answer: type, version, id with its length + 1."""
    return [m.start() for m in re.finditer(rb"\x02." + re.escape(bytes([len(session_id) + 1]) + session_id), journal, re.DOTALL)][-1]


def parts_of(gateway, session):
    found = kinds(gateway, session)
    assert found[0] == "create"
    return found[1:]


@pytest.mark.cases(4)
@pytest.mark.parametrize("durability", ["process", "power", "none"])
@pytest.mark.parametrize("history", ["tree", "chains", "linear", "timelines"])
def test_they_are_recorded_in_parts(start, large, history, durability):
    gateway = start(workers=1, durability=durability, **large)
    s = new(gateway, history=history)
    body = {"model": "m", "messages": user("first"), **ASK}
    first = gateway.post(f"{path_of(s)}/v1/chat/completions", body)
    choices = first.json()["choices"]
    assert len(choices) == ASK["n"] and len({c["message"]["content"] for c in choices}) == ASK["n"]
    goes_on = choices[0 if history == "linear" else 17]["message"]
    answer(gateway, s, [*user("first"), goes_on, *user("more")], n=1)
    whole, seen = records(gateway, s), trajectories(gateway, path_of(s))
    assert [len(r["answers"]) for r in whole["records"]] == [ASK["n"], 1]
    assert [a["message"]["content"] for a in whole["records"][0]["answers"]] == [c["message"]["content"] for c in choices]
    assert all(len(a["output_ids"]) > 0 for a in whole["records"][0]["answers"])
    if durability == "none":
        return
    parts = parts_of(gateway, s)
    assert parts[:3] == ["bulk"] * 3 and parts.count("commit") == 2 and parts[-1] == "commit", parts
    kill_worker(gateway)
    assert records(gateway, s) == whole
    assert trajectories(gateway, path_of(s)) == seen
    again = gateway.post(f"{path_of(s)}/v1/chat/completions", body, headers={"x-stainless-retry-count": "1"})
    assert again.headers["rollgate-replayed"] == "1" and again.json()["choices"] == choices
    copy = gateway.post("/sessions/import", gateway.get(f"{path_of(s)}/snapshot").json()).json()
    assert told(trajectories(gateway, path_of(copy))) == told(seen)
    if history == "chains":
        return    # no forks
    fork = gateway.post(f"{path_of(s)}/fork", {}).json()
    path = whole["records"][-1]
    made = records(gateway, fork)
    assert made["records"][-1]["prompt_ids"] == path["prompt_ids"]
    assert made["records"][-1]["answers"][0]["output_ids"] == path["answers"][0]["output_ids"]
    kill_worker(gateway)
    assert records(gateway, fork)["records"] == made["records"]


def test_small_answers_and_a_single_one_stand_in_the_commit(start, large):
    gateway = start(workers=1, **large)
    s = new(gateway)
    answer(gateway, s, user("one"), n=1)
    answer(gateway, s, user("small"), n=16, max_tokens=100)
    assert parts_of(gateway, s) == ["commit", "commit"]


def test_a_worker_that_dies_among_the_parts(start, large):
    """The journal ends behind a part, or within one: the call was never there, and its retry is whole."""
    gateway = start(workers=1, **large)
    s = new(gateway)
    message = answer(gateway, s, user("first"), n=1, max_tokens=10)[0]
    messages = [*user("first"), message, *user("again")]
    before, seen = records(gateway, s), trajectories(gateway, path_of(s))
    segment = f"{gateway.folder}/state/worker-0/seg-00000001"
    size = os.path.getsize(segment)
    answer(gateway, s, messages)
    with open(segment, "rb") as f:
        journal, sid = f.read(), s["session_id"].encode()
    commit = last_commit(journal, sid)
    n_parts = parts_of(gateway, s).count("bulk")
    assert n_parts >= 3
    assert gateway.stop() == 0
    gateway.allow("torn tail")
    folder, kept = os.path.dirname(segment), f"{gateway.folder}/kept"
    shutil.copytree(folder, kept)
    for cut in [commit + 40, commit, *(size + (commit - size) * i // 8 for i in range(7, 0, -1))]:
        shutil.rmtree(folder)
        shutil.copytree(kept, folder)   # a worker that has lived for a while may have compacted it
        os.truncate(segment, cut)
        gateway.start()
        assert records(gateway, s)["records"] == before["records"]
        assert trajectories(gateway, path_of(s)) == seen
        assert gateway.stop() == 0
    gateway.start()
    answer(gateway, s, messages)
    whole, seen = records(gateway, s), trajectories(gateway, path_of(s))
    assert [len(r["answers"]) for r in whole["records"]] == [1, ASK["n"]]
    assert parts_of(gateway, s).count("bulk") > n_parts, "those of the call that died are still there"
    kill_worker(gateway)
    assert records(gateway, s) == whole and trajectories(gateway, path_of(s)) == seen
    copy = gateway.post("/sessions/import", gateway.get(f"{path_of(s)}/snapshot").json()).json()
    assert told(trajectories(gateway, path_of(copy))) == told(seen)


def fill_among_the_parts(gateway, inject, s, ask, part):
    """The disk is full within a call's parts of that kind: nothing of it stays."""
    before = records(gateway, s)
    idle = gateway.settled("rollgate_session_memory_bytes")
    for writes in (2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 32, 48):     # how many parts one of them takes depends on who is faster
        inject("writev", f"28 after {writes}")
        a = ask()
        inject("writev", None)
        assert a.status == 503 and a.json()["error"]["code"] == "storage_full", a.text[:300]
        if part in kinds(gateway, s):
            break
    assert part in kinds(gateway, s)
    assert records(gateway, s)["records"] == before["records"]
    wait_until(lambda: gateway.metrics()["rollgate_session_memory_bytes"] < idle + 20_000, 30, "the parts are gone from memory")


def test_a_disk_that_is_full_among_the_parts(faulty, large):  # noqa: F811
    gateway, inject = faulty(**large)
    gateway.allow("journal", "cannot")
    s = new(gateway)
    answer(gateway, s, user("first"), n=1, max_tokens=10)
    fill_among_the_parts(gateway, inject, s, lambda: gateway.chat(s, user("again"), **ASK), "bulk")
    answer(gateway, s, user("again"))
    whole = records(gateway, s)
    assert [len(r["answers"]) for r in whole["records"]] == [1, ASK["n"]]
    gateway.allow("process died")
    kill_worker(gateway)
    assert records(gateway, s) == whole


def end_among_the_parts(gateway, inject, body, part):
    """The call fails, and leaves nothing."""
    s = new(gateway)
    inject("slow", 300)
    c = gateway.connect()
    c.request("POST", f"{path_of(s)}/v1/chat/completions", json.dumps(body))
    wait_until(lambda: part in kinds(gateway, s), 20, "the first part is there")
    ended = gateway.post(f"{path_of(s)}/finalize").json()
    inject("slow", None)
    assert c.getresponse().status == 410
    assert ended["trajectories"] == [] and records(gateway, s)["records"] == []
    assert "commit" not in kinds(gateway, s)


def test_a_session_that_ends_among_the_parts(faulty, large):  # noqa: F811
    gateway, inject = faulty(**large)
    end_among_the_parts(gateway, inject, {"model": "m", "messages": user("x"), **ASK}, "bulk")


def test_a_ceiling_of_memory_changes_no_result(start, large):
    free = start(workers=1, **large)
    tight = start(workers=1, max_worker_memory="600k", **large)
    want, got = [], []
    for i in range(3):
        s = new(free)
        message = answer(free, s, user(f"first {i}"))[i + 5]
        answer(free, s, [*user(f"first {i}"), message, *user("more")], n=2)
        want.append((records(free, s)["records"], told(trajectories(free, path_of(s)))))
        a = tight.post("/sessions/import", free.get(f"{path_of(s)}/snapshot").json())
        assert a.status == 200, a.text
        got.append((a.json(), [*user(f"first {i}"), message, *user("more")]))
    for _ in range(2):
        for (recorded, seen), (s, _messages) in zip(want, got):
            assert told(trajectories(tight, path_of(s))) == seen
            assert [[a["output_ids"] for a in r["answers"]] for r in records(tight, s)["records"]] == \
                [[a["output_ids"] for a in r["answers"]] for r in recorded]
    for s, messages in got:
        answer(tight, s, [*messages, {"role": "assistant", "content": "another"}, *user("and more")])
    wait_until(lambda: tight.metrics()["rollgate_sessions_evicted"] > 0, 10, "something is evicted")
    m = tight.metrics()
    assert m["rollgate_session_evictions_total"] > 0 and m["rollgate_session_loads_total"] > 0, m
    for (recorded, _), (s, _messages) in zip(want, got):
        assert [len(r["answers"]) for r in records(tight, s)["records"]] == [ASK["n"], 2, ASK["n"]]

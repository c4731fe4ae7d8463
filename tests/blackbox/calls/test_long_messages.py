"""A helper prepares long messages of answers (text, thought, arguments of calls). They are written to the journal in
parts before their commit. Every later read returns the engine's text, and nothing remains of a call that died between
parts."""
import json
import os
import shutil

import pytest

from gateway import wait_until
from stub_engines import StubEngine
from test_faults import faulty  # noqa: F401, a fixture
from test_helpers import helped
from test_large_answers import end_among_the_parts, fill_among_the_parts, last_commit, parts_of, path_of, trajectories
from test_snapshots import told
from test_streaming import new, user
from test_turn_recovery import kill_worker, records

LINES = "\n" * 1_000_000 + "\u00e9\"\\" * 100_000 + "\x01 the end"     # in JSON some 2.6 MB
ASK = {"model": "m", "messages": user("go on")}


def url(session):
    return f"{path_of(session)}/v1/chat/completions"


def says(text, **more):
    return {"ids": [97, 98, 99], "text": text, "finish": "stop", "whole": True, **more}


def messages_of(a):
    """As they are kept."""
    assert a.status == 200, a.text[:300]
    return [{k: v for k, v in c["message"].items() if k != "refusal"} for c in a.json()["choices"]]


def message_of(a):
    return messages_of(a)[0]




def with_calls(docs):
    """A thought and a call's arguments that are long, beside a short text."""
    said = docs[0]["choices"][0]["message"]
    said["reasoning_content"] = "thought\n" * 50_000
    said["tool_calls"] = [{"id": "call_1", "type": "function", "function": {"name": "f", "arguments": json.dumps({"a": "b\n" * 100_000})}}]
    return docs


@pytest.mark.cases(3)
@pytest.mark.parametrize("durability", ["process", "power", "none"])
@pytest.mark.parametrize("threads", [0, 2])
def test_an_upstreams_long_text_is_kept(start, threads, durability):
    """What is asked next stands on it."""
    with StubEngine("openai") as engine:
        engine.plan.extend([says(LINES), says("so it is")])
        gateway = start(engine=engine.setting, workers=1, durability=durability, context_length=10_000_000, helpers=threads)
        s = new(gateway)
        before = helped(gateway)
        first = gateway.post(url(s), ASK)
        message = message_of(first)
        assert message["content"] == LINES
        assert (helped(gateway) > before) == (threads > 0)
        message_of(gateway.post(url(s), {**ASK, "messages": [*user("go on"), message, *user("more")]}))
        whole, seen = records(gateway, s), trajectories(gateway, path_of(s))
        assert [r["answers"][0]["message"]["content"] for r in whole["records"]] == [LINES, "so it is"]
        assert len(seen["trajectories"]) == 2, "the second stands on the first"
        if durability == "none":
            return
        parts = parts_of(gateway, s)
        assert parts.count("bulk") > 15 and parts.count("commit") == 2, parts
        kill_worker(gateway)
        assert records(gateway, s) == whole
        assert trajectories(gateway, path_of(s)) == seen
        again = gateway.post(url(s), ASK, headers={"x-stainless-retry-count": "1"})
        assert again.headers["rollgate-replayed"] == "1" and again.json()["choices"] == first.json()["choices"]
        copy = gateway.post("/sessions/import", gateway.get(f"{path_of(s)}/snapshot").json()).json()
        fork = gateway.post(f"{path_of(s)}/fork", {}).json()
        for other in (copy, fork):
            assert told(trajectories(gateway, path_of(other))) == told(seen)
            assert parts_of(gateway, other).count("bulk") == parts.count("bulk")
        kill_worker(gateway)
        for other in (copy, fork):
            assert [r["answers"][0]["message"] for r in records(gateway, other)["records"]] == \
                [r["answers"][0]["message"] for r in whole["records"]]


def test_a_thought_and_arguments_are_long_as_well(start):
    """Of one of three answers, which are large in all."""
    with StubEngine("openai") as engine:
        engine.plan.extend([says("short", edit=with_calls), says("words " * 50_000), says("short, too")])
        gateway = start(engine=engine.setting, workers=1, context_length=10_000_000)
        s = new(gateway)
        messages = sorted(messages_of(gateway.post(url(s), {**ASK, "n": 3})), key=lambda m: m["content"])
        assert [len(m["content"]) for m in messages] == [5, 10, 300_000]
        assert len(messages[0]["tool_calls"][0]["function"]["arguments"]) > 300_000 and len(messages[0]["reasoning_content"]) == 400_000
        whole, seen = records(gateway, s), trajectories(gateway, path_of(s))
        assert sorted((r["message"] for r in whole["records"][0]["answers"]), key=lambda m: m["content"]) == messages
        assert parts_of(gateway, s).count("bulk") >= 10
        kill_worker(gateway)
        assert records(gateway, s) == whole and trajectories(gateway, path_of(s)) == seen
        copy = gateway.post("/sessions/import", gateway.get(f"{path_of(s)}/snapshot").json()).json()
        assert told(trajectories(gateway, path_of(copy))) == told(seen)


def scripted(tmp_path, length):
    """Settings of an engine whose answers have that many characters."""
    path = tmp_path / "answers.json"
    path.write_text(json.dumps([f"{i} " + "".join(chr(97 + (i + k * k // 7) % 26) for k in range(length)) for i in range(8)]))
    return {"engine": f"builtin:script:{path}", "context_length": 10_000_000}


@pytest.fixture
def script(tmp_path):
    return scripted(tmp_path, 400_000)


def ask(gateway, session, messages, **more):
    return message_of(gateway.chat(session, messages, max_tokens=1_000_000, **more))


@pytest.mark.cases(2)
@pytest.mark.parametrize("history", ["tree", "chains", "linear", "timelines"])
def test_sampled_ids_are_kept_beside_it(start, tmp_path, history):
    gateway = start(workers=1, **scripted(tmp_path, 140_000))
    s = new(gateway, history=history)
    first = ask(gateway, s, user("one"), logprobs=True)
    assert len(first["content"]) > 140_000
    ask(gateway, s, [*user("one"), first, *user("two")], logprobs=True)
    assert "bulk" in parts_of(gateway, s)
    whole, seen = records(gateway, s), trajectories(gateway, path_of(s))
    assert bytes(i for i in whole["records"][0]["answers"][0]["output_ids"] if i < 256).decode() == first["content"]
    assert whole["records"][0]["answers"][0]["message"] == first
    kill_worker(gateway)
    assert records(gateway, s) == whole and trajectories(gateway, path_of(s)) == seen


def test_a_ceiling_of_memory_changes_no_result(start, script):
    """Sessions leave memory and come back, their messages read by a helper."""
    gateway = start(workers=1, max_worker_memory="3m", **script)
    made = []
    for i in range(4):
        s = new(gateway)
        made.append((s, ask(gateway, s, user(f"{i}"))))
    wait_until(lambda: gateway.metrics()["rollgate_sessions_evicted"] > 0, 10, "something is evicted")
    for s, message in made * 2:
        assert records(gateway, s)["records"][0]["answers"][0]["message"] == message
    assert gateway.metrics()["rollgate_session_loads_total"] > 0
    for s, message in made:
        ask(gateway, s, [*user(f"{made.index((s, message))}"), message, *user("more")])
        assert len(trajectories(gateway, path_of(s))["trajectories"]) == 2


def test_a_worker_that_dies_among_the_parts(start, script):
    """The journal ends behind a part, or within one: the call was never there, and its retry is whole."""
    gateway = start(workers=1, **script)
    s = new(gateway)
    message = ask(gateway, s, user("first"))
    messages = [*user("first"), message, *user("again")]
    before, seen = records(gateway, s), trajectories(gateway, path_of(s))
    segment = f"{gateway.folder}/state/worker-0/seg-00000001"
    size = os.path.getsize(segment)
    ask(gateway, s, messages)
    parts = parts_of(gateway, s)
    assert parts.count("bulk") >= 2 * 4
    with open(segment, "rb") as f:
        journal, sid = f.read(), s["session_id"].encode()
    commit = last_commit(journal, sid)
    assert commit > size
    assert gateway.stop() == 0
    gateway.allow("torn tail")
    folder, kept = os.path.dirname(segment), f"{gateway.folder}/kept"
    shutil.copytree(folder, kept)
    for cut in [commit + 40, commit, *(size + (commit - size) * i // 6 for i in range(5, 0, -1))]:
        shutil.rmtree(folder)
        shutil.copytree(kept, folder)
        os.truncate(segment, cut)
        gateway.start()
        assert records(gateway, s)["records"] == before["records"]
        assert trajectories(gateway, path_of(s)) == seen
        assert gateway.stop() == 0
    gateway.start()
    ask(gateway, s, messages)
    whole = records(gateway, s)
    assert len(whole["records"]) == 2
    kill_worker(gateway)
    assert records(gateway, s) == whole


def test_a_session_that_ends_among_the_parts(faulty, script):  # noqa: F811
    gateway, inject = faulty(**script)
    end_among_the_parts(gateway, inject, {**ASK, "max_tokens": 1_000_000}, "bulk")


def test_a_disk_that_is_full_among_the_parts(faulty, script):  # noqa: F811
    gateway, inject = faulty(**script)
    gateway.allow("journal", "cannot")
    s = new(gateway)
    message_of(gateway.chat(s, user("first"), max_tokens=10))
    fill_among_the_parts(gateway, inject, s, lambda: gateway.chat(s, user("again"), max_tokens=1_000_000), "bulk")
    ask(gateway, s, user("again"))
    whole = records(gateway, s)
    assert len(whole["records"]) == 2
    kill_worker(gateway)
    assert records(gateway, s) == whole

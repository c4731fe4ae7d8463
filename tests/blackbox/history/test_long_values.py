"""Metadata and rewards with many values are returned unchanged everywhere."""
import json

import pytest

from export_readers import compare_all, read_safetensors
from gateway import wait_until
from test_read_back import exported
from test_snapshots import frames, packed
from test_streaming import new
from test_turn_recovery import kill_worker

NUMBERS = [0.5, 1, -2.25, 1e3, None, True]
LONG = {"list": NUMBERS * 2_000, "tree": [{"a": [n, {"b": []}]} for n in range(1_000)], "text": "é\"\\\n\x7f☃" * 8_000,
        "empty": [[]] * 6_000}
METADATA = {"uid": "task-7", **LONG, "small": {"a": [1, 2.5]}, "": "no name", "env_name": "gsm8k"}
REWARD = {"reward": 0.25, "token_level": [0.125] * 60_000, "finished": True, **LONG}


def state(gateway, session):
    return gateway.get(f"/sessions/{session['session_id']}").json()


def reward(gateway, session, info, **more):
    a = gateway.post(f"/sessions/{session['session_id']}/reward_info", {"reward_info": info, **more})
    assert a.status == 200, a.text


def made(gateway):
    """A session with an answer, rewards of both kinds, and metadata; its answer's id."""
    session = new(gateway, metadata=METADATA)
    response = gateway.chat(session, "hi").json()["id"]
    reward(gateway, session, {**REWARD, "list": "short", "later": [1]})
    reward(gateway, session, {"list": LONG["list"], "later": LONG["tree"], "text": 5})
    reward(gateway, session, REWARD, response_id=response)
    return session, response


TOTAL = {**REWARD, "later": LONG["tree"], "text": 5}


def check(gateway, session, response):
    told = state(gateway, session)
    assert told["metadata"] == METADATA and list(told["metadata"]) == list(METADATA)
    assert told["reward_info"] == TOTAL and told["reward"] == 0.25
    [row] = exported(gateway, session)["trajectories"]
    assert row["reward"] == 0.25 and row["reward_info"] == TOTAL
    assert told["turn_rewards"] and response in json.dumps(list(told["turn_rewards"]))


def test_they_stay_through_death_and_eviction(start):
    gateway = start(engine="builtin:echo", workers=1, durability="process")
    session, response = made(gateway)
    check(gateway, session, response)
    kill_worker(gateway)
    check(gateway, session, response)
    gateway.stop()
    small = start(engine="builtin:echo", workers=1, max_worker_memory="4m")
    sessions = [made(small) for _ in range(3)]
    wait_until(lambda: small.metrics()["rollgate_session_evictions_total"] > 0, what="some are evicted")
    for s, r in sessions + sessions:
        check(small, s, r)


def test_groups_forks_and_copies_have_them(start):
    gateway = start(engine="builtin:echo", workers=1)
    group = gateway.post("/sessions", {"count": 3, "metadata": METADATA}).json()["sessions"]
    assert all(state(gateway, s)["metadata"] == METADATA for s in group)
    session, _ = made(gateway)
    heir = gateway.post(f"/sessions/{session['session_id']}/fork", {}).json()
    other = gateway.post(f"/sessions/{session['session_id']}/fork", {"metadata": {"x": LONG}}).json()
    assert state(gateway, heir)["metadata"] == METADATA and state(gateway, heir)["reward_info"] == {}
    assert state(gateway, other)["metadata"] == {"x": LONG}
    copy = gateway.post("/sessions/import", gateway.get(f"/sessions/{session['session_id']}/snapshot").json())
    assert copy.status == 200, copy.text
    copied = state(gateway, copy.json())
    assert copied["metadata"] == METADATA and copied["reward_info"] == TOTAL
    kill_worker(gateway)
    assert state(gateway, copy.json()) == copied and state(gateway, other)["metadata"] == {"x": LONG}


def test_trainers_get_them(start):
    gateway = start(engine="builtin:echo", workers=1)
    session, _ = made(gateway)
    where = f"/sessions/{session['session_id']}"
    compare_all(lambda form: gateway.get(f"{where}/trajectories?format={form}").body)
    _, notes = read_safetensors(gateway.get(f"{where}/trajectories?format=verl").body)
    [row] = json.loads(notes["rows"])
    assert {k: row[k] for k in LONG} == LONG and row["uid"] == "task-7"
    assert row["reward_extra_info"]["token_level"] == REWARD["token_level"]
    a = gateway.post(f"{where}/complete", {"reward_info": {"reward": 2, "extra": LONG["tree"]}})
    assert a.status == 200
    assert state(gateway, session)["reward_info"] == {**TOTAL, "reward": 2, "extra": LONG["tree"]}
    a = gateway.post(f"{where}/finalize", {"format": "miles", "metadata": {"reward": 1, **LONG}})
    tensors, _ = read_safetensors(a.body)
    [sample] = json.loads(bytes(tensors["_samples_meta"][2]))["samples"]
    assert sample["reward"] == 1 and {k: sample["metadata"][k] for k in LONG} == LONG


@pytest.mark.parametrize("route,name", [("/sessions", "metadata"), ("/sessions/{}/reward_info", "reward_info"),
                                        ("/sessions/{}/complete", "reward_info"), ("/sessions/{}/fork", "metadata")])
def test_members_are_counted(start, route, name):
    gateway = start(engine="builtin:echo", workers=1)
    session = new(gateway)
    gateway.chat(session, "hi")
    path = route.format(session["session_id"])
    a = gateway.post(path, {name: {f"k{n}": n for n in range(16385)}})
    assert a.status == 400 and a.json()["error"]["param"] == name and "16385" in a.text and "16384" in a.text, a.text
    assert gateway.post(path, {name: {f"k{n}": n for n in range(16384)}}).status == 200


def test_a_reward_is_bounded_over_all_its_records(start):
    gateway = start(engine="builtin:echo", workers=1)
    session = new(gateway)
    response = gateway.chat(session, "hi").json()["id"]
    for where in ({}, {"response_id": response}):
        for k in range(4):
            reward(gateway, session, {f"{k}-{n}": n for n in range(4096)}, **where)
        a = gateway.post(f"/sessions/{session['session_id']}/reward_info", {"reward_info": {"reward": 1}, **where})
        assert a.status == 400 and a.json()["error"]["param"] == "reward_info" and "16384" in a.text, a.text
        reward(gateway, session, {f"2-{n}": -n for n in range(4096)}, **where)     # nothing new
    a = gateway.post(f"/sessions/{session['session_id']}/complete", {"reward_info": {"reward": 1}})
    assert a.status == 400 and "16384" in a.text, a.text
    assert state(gateway, session)["phase"] == "open"


def test_a_long_uid_and_keys_of_any_kind_stay(start):
    gateway = start(engine="builtin:echo", workers=1)
    session = new(gateway, metadata={"uid": "\n" * 4000, "\ud800": 1, "n": 10 ** 4200, **LONG})
    gateway.chat(session, "hi")
    kill_worker(gateway)
    copy = gateway.post("/sessions/import", gateway.get(f"/sessions/{session['session_id']}/snapshot").json())
    assert copy.status == 200, copy.text
    for s in (session, copy.json()):
        [row] = json.loads(read_safetensors(gateway.get(f"/sessions/{s['session_id']}/trajectories?format=verl").body)[1]["rows"])
        assert row["uid"] == "\n" * 4000 and row["\ud800"] == 1 and row["n"] == 10 ** 4200


def test_a_group_is_refused_when_it_is_submitted(start):
    gateway = start(engine="builtin:echo", workers=1)
    a = gateway.post("/groups", {"id": "g", "runner": "r", "input": 1, "session": {"metadata": {f"k{n}": n for n in range(16385)}}})
    assert a.status == 400 and "16384" in a.text, a.text
    a = gateway.post("/groups", {"id": "g", "runner": "r", "input": 1, "session": {"labels": {"n": "v" * 270_000}}})
    assert a.status == 400 and "262144" in a.text, a.text


@pytest.mark.parametrize("route", ["/sessions", "/sessions/{}/fork"])
def test_other_options_are_bounded_together(start, route):
    gateway = start(engine="builtin:echo", workers=1)
    session = new(gateway)
    gateway.chat(session, "hi")
    path = route.format(session["session_id"])
    labels = {f"n{i}": "v" * 1000 for i in range(200)}
    assert gateway.post(path, {"labels": labels, "metadata": LONG}).status == 200
    a = gateway.post(path, {"labels": {**labels, "more": "v" * 80_000}, "metadata": LONG})
    assert a.status == 400 and a.json()["error"]["param"] == "labels" and "262144" in a.text, a.text


def broken(record, was, put):
    """The record with other bytes, as many, in a long value of it."""
    assert record.count(was) >= 1 and len(was) == len(put)
    return record.replace(was, put, 1)


@pytest.mark.parametrize("kind,was,put", [(1, b"[0.5,1,-2", b"[0.5,,1-2"), (3, b"[0.125,0.", b"[0.125;0."), (1, b'"a":[', b'"a":}'),
                                          (3, b":0.25", b": .25")])
def test_a_copy_with_values_that_are_none_is_refused(start, kind, was, put):
    gateway = start(engine="builtin:echo", workers=1)
    session, _ = made(gateway)
    records = frames(gateway.get(f"/sessions/{session['session_id']}/snapshot").json())
    at = next(i for i, r in enumerate(records) if r[0] == kind and was in r)
    records[at] = broken(records[at], was, put)
    a = gateway.post("/sessions/import", packed(records))
    assert a.status == 400 and a.json()["error"]["param"] == "records", a.text

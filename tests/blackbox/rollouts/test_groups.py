"""Sessions that are samples of one task: POST /sessions {"count": n} creates a group. The sessions keep it through
restarts, and exports name it to the trainer, so that the samples are compared with each other."""
import json
import re

import pytest

from export_readers import read_msgpack, read_safetensors


@pytest.fixture
def gateway(start):
    return start(engine="builtin:echo", workers=2)


def group_of(gateway, **options):
    a = gateway.post("/sessions", options)
    assert a.status == 200, a.text
    group = a.json()
    for s in group["sessions"]:
        assert gateway.chat(s, "q").status == 200
    return group


def verl(gateway, session, query=""):
    a = gateway.get(f"/sessions/{session['session_id']}/trajectories?format=verl{query}")
    assert a.status == 200, a.text
    _, meta = read_safetensors(a.body)
    return [json.loads(meta[k]) for k in ("keys", "tags", "rows")]


def check_verl(gateway, sessions, uid):
    seen = set()
    for i, s in enumerate(sessions):
        keys, tags, rows = verl(gateway, s)
        assert keys == [f"{uid}_{i}_0"] and tags[0]["uid"] == rows[0]["uid"] == uid and rows[0]["session_id"] == i
        seen.update(keys)
    assert len(seen) == len(sessions)


def test_count_mints_a_group(gateway):
    group = group_of(gateway, count=3, labels={"a": "b"})
    assert re.fullmatch(r"g\d+-[0-9a-f]{32}", group["group"]) and "_" not in group["group"]
    for i, s in enumerate(group["sessions"]):
        assert (s["group"], s["rollout"], s["group_size"]) == (group["group"], i, 3)
        state = gateway.get(f"/sessions/{s['session_id']}").json()
        assert (state["group"], state["rollout"], state["group_size"]) == (group["group"], i, 3)
    check_verl(gateway, group["sessions"], group["group"])
    assert group_of(gateway, count=1)["group"] != group["group"]
    rows = {x["session_id"]: x for x in gateway.get("/sessions").json()["sessions"]}
    assert [rows[s["session_id"]]["rollout"] for s in group["sessions"]] == [0, 1, 2]
    whole = gateway.get(f"/sessions/{group['sessions'][2]['session_id']}/trajectories").json()
    for x in (whole, whole["trajectories"][0]):
        assert (x["group"], x["rollout"], x["group_size"]) == (group["group"], 2, 3)
    assert whole["trajectories"][0]["uid"] == group["group"]
    packed = read_msgpack(gateway.get(f"/sessions/{group['sessions'][2]['session_id']}/trajectories?format=msgpack").body)
    assert packed["group"] == group["group"] and packed["trajectories"][0]["uid"] == group["group"] and packed["rollout"] == 2


def test_a_session_alone_is_in_no_group(gateway):
    s = gateway.post("/sessions").json()
    assert gateway.chat(s, "q").status == 200
    assert "group" not in s and "group" not in gateway.get(f"/sessions/{s['session_id']}").json()
    keys, _, rows = verl(gateway, s)
    assert keys == [f"{s['session_id']}_0_0"] and rows[0]["uid"] == s["session_id"]


def test_who_names_the_uid(gateway):
    """The export, else metadata.uid, else the group."""
    group = group_of(gateway, count=2, group="task.7", metadata={"uid": "u_1", "data_source": "x"})
    assert group["group"] == "task.7"
    check_verl(gateway, group["sessions"], "u-1")
    keys, _, _ = verl(gateway, group["sessions"][1], "&uid=mine&session_index=9")
    assert keys == ["mine_9_0"]
    check_verl(gateway, group_of(gateway, count=2, metadata={"uid": 17})["sessions"], "17")
    check_verl(gateway, group_of(gateway, count=2, metadata={"uid": ""}, group="G-1")["sessions"], "G-1")


def test_members_made_one_by_one(gateway):
    made = []
    for k in range(2):
        s = gateway.post("/sessions", {"group": "one.by-one", "rollout": k, "group_size": 2, "labels": {"attempt": f"a{k}"}}).json()
        assert gateway.chat(s, "q").status == 200
        state = gateway.get(f"/sessions/{s['session_id']}").json()
        assert (state["group"], state["rollout"], state["group_size"], state["attempt"]) == ("one.by-one", k, 2, f"a{k}")
        assert [x["session_id"] for x in gateway.get(f"/sessions?label=attempt=a{k}").json()["sessions"]] == [s["session_id"]]
        made.append(s)
    check_verl(gateway, made, "one.by-one")


@pytest.mark.parametrize("options,field", [
    ({"group": "a_b"}, "group"), ({"group": ""}, "group"), ({"group": "x" * 129}, "group"), ({"group": 4}, "group"), ({"group": "a b"}, "group"),
    ({"group": "a", "rollout": -1}, "rollout"), ({"group": "a", "rollout": 1024}, "rollout"), ({"group": "a", "rollout": "1"}, "rollout"),
    ({"group": "a", "group_size": 0}, "group_size"), ({"group": "a", "rollout": 2, "group_size": 2}, "rollout"),
    ({"rollout": 1}, "rollout"), ({"group_size": 2}, "group_size"), ({"count": 2, "rollout": 0}, "rollout"), ({"count": 2, "group_size": 4}, "group_size"),
    ({"count": 2, "group": "a_b"}, "group")])
def test_bad_groups(kept, options, field):
    gateway = kept.gateway(engine="builtin:echo", workers=2)
    a = gateway.post("/sessions", options)
    assert a.status == 400 and a.json()["error"]["param"] == field, a.text
    assert gateway.get("/sessions").json()["sessions"] == []


def test_a_group_survives_a_restart(start, tmp_path):
    state = str(tmp_path / "state")
    gateway = start(engine="builtin:echo", workers=1, state_dir=state)
    group = group_of(gateway, count=2)
    gateway.stop()
    gateway = start(engine="builtin:echo", workers=1, state_dir=state)
    for i, s in enumerate(group["sessions"]):
        state = gateway.get(f"/sessions/{s['session_id']}").json()
        assert (state["group"], state["rollout"], state["group_size"]) == (group["group"], i, 2)
    check_verl(gateway, group["sessions"], group["group"])

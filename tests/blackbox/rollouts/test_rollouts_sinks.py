"""Sinks get the sessions of attempts that count, no other ones, and an entry for each settled group."""
import json
import os
import random
import signal
import threading

import pytest

import gateway as g
from test_faults import faulty  # noqa: F401, a fixture
from rollouts_kit import Executor, chat, solve, take_all
from test_sinks import STREAM, redis, server  # noqa: F401


def group_entries(server):
    with server.client() as c:
        return [{k.decode(): v.decode() for k, v in fields.items()} for _, fields in c.xrange(f"{STREAM}:groups")]


def sessions_in(folder):
    return {f[:-len(".msgpack")] for f in os.listdir(folder) if f.endswith(".msgpack")} if os.path.isdir(folder) else set()


def test_a_settled_group_is_an_entry_that_names_its_keys(start, server):
    s = server()
    gw = start(workers=2, sink=f"redis://127.0.0.1:{s.port}")
    with Executor(gw, "x", {"r": 4}, {"r": solve(0.5)}):
        assert gw.post("/groups", {"id": ".1", "runner": "r", "n": 3, "queue": None, "metadata": {"uid": "u"}}).status == 201
        group = gw.get("/groups/.1/wait?timeout_s=30", timeout=40).json()
    g.wait_until(lambda: len(s.entries()) == 3 and group_entries(s), 20, "the entries")
    entry = group_entries(s)[0]
    assert len(group_entries(s)) == 1 and entry["group"] == ".1" and entry["state"] == "finished"
    assert entry["group_size"] == "3" and entry["succeeded"] == "3"
    keys = json.loads(entry["keys"])
    members = {e[b"key"].decode(): e for e in s.entries()}
    assert sorted(keys) == sorted(members) and len(keys) == 3
    result = json.loads(entry["result"])
    assert result["members"] == group["members"] and result["metadata"] == {"uid": "u"}
    for member in group["members"]:
        e = members[f"{member['session_id']}/0"]
        assert e[b"group"] == b".1" and int(e[b"rollout"]) == member["rollout"] and e[b"group_size"] == b"3"
        assert len(e[b"attempt"]) == 32


def test_an_entry_may_be_longer_than_a_control_body(start, server):
    """Each of its parts was held to the limit when it came."""
    s = server()
    gw = start(workers=2, sink=f"redis://127.0.0.1:{s.port}", max_control_body_bytes="64KiB")
    how = {"outcome": "ok", "reward_info": {"reward": 1, "why": "x" * (16 << 10)}}
    with Executor(gw, "x", {"r": 8}, {"r": lambda gateway, attempt: chat(gateway, attempt, "go") and how}):
        assert gw.post("/groups", {"id": "g", "runner": "r", "n": 8}).status == 201
        group = take_all(gw, "train", 1)[0]
    g.wait_until(lambda: group_entries(s), 20, "the entry")
    entry, = group_entries(s)
    assert json.loads(entry["result"])["members"] == group["members"] and len(entry["result"]) > 128 << 10


def test_entries_wait_for_redis_and_survive_restarts(start, server, tmp_path):
    """Redis is away, then the dispatcher and the gateway die: each group is told once it is back."""
    s = server()
    s.stop()
    gw = start(workers=1, sink=[f"redis://127.0.0.1:{s.port}", f"file:{tmp_path}/out"], state_dir=str(tmp_path / "state"))
    with Executor(gw, "x", {"r": 4}, {"r": solve()}):
        for k in range(4):
            assert gw.post("/groups", {"id": f"g{k}", "runner": "r", "n": 2}).status == 201
        groups = take_all(gw, "train", 2)
        os.kill(gw.child("dispatcher"), signal.SIGKILL)
        gw.allow("process died process=dispatcher")
        groups += take_all(gw, "train", 2)
    gw.stop()
    s.start()
    again = start(workers=1, sink=gw.settings["sink"], state_dir=gw.settings["state-dir"])
    g.wait_until(lambda: {e["group"] for e in group_entries(s)} == {f"g{k}" for k in range(4)}, 30, "all groups are told")
    winners = {m["session_id"] for x in groups for m in x["members"]}
    g.wait_until(lambda: {e[b"session_id"].decode() for e in s.entries()} == winners, 30, "all members are there")
    assert sessions_in(tmp_path / "out") == winners, "acknowledged groups lost none"
    g.wait_until(lambda: again.get("/sessions?label=attempt").json()["sessions"] == [], 20, "they are deleted behind that")


def test_no_losing_attempt_reaches_a_sink(start, tmp_path):
    """Attempts that fail in every way, also behind a finalize of their own, surplus ones, cancelled ones."""
    gw = start(workers=2, sink=f"file:{tmp_path}/out", runner_breaker=0, attempt_lease="1s")
    rnd, lock, losers = random.Random(7), threading.Lock(), []

    def run(gateway, attempt):
        answer = chat(gateway, attempt, f"{attempt['group']} {attempt['rollout']} {attempt['attempt']}")
        assert answer.status in (200, 410), answer.text     # 410: surplus
        with lock:
            dice = rnd.random()
        if dice < 0.4:
            with lock:
                losers.append(attempt["session"]["session_id"])
            return {"outcome": "error" if dice < 0.2 else "infra", "reason": "lost"}
        return {"outcome": "ok", "reward_info": {"reward": dice}}

    with Executor(gw, "x", {"r": 8}, {"r": run}):
        for k in range(6):
            assert gw.post("/groups", {"id": f"g{k}", "runner": "r", "n": 3, "extra": k % 3, "attempts": 50,
                                       "infra_attempts": 50}).status == 201
        groups = take_all(gw, "train", 6)
    counted = {m["session_id"] for x in groups for m in x["members"] if m["state"] == "succeeded"}
    assert all(x["state"] == "finished" and x["succeeded"] == 3 for x in groups) and losers
    g.wait_until(lambda: sessions_in(tmp_path / "out") >= counted, 20, "the winners are delivered")
    assert sessions_in(tmp_path / "out") == counted


def test_an_attempt_that_was_finalized_and_lost_is_not_delivered(start, tmp_path):
    """Its session is complete and finalized, but its end was never recorded: another attempt counts."""
    gw = start(workers=1, sink=f"file:{tmp_path}/out", attempt_lease="1s")
    assert gw.post("/groups", {"id": "g", "runner": "r", "n": 1}).status == 201
    first = gw.post("/attempts/claim", {"executor": "dies", "slots": {"r": 1}, "wait_s": 5}).json()["attempts"][0]
    chat(gw, first, "x")
    sid = first["session"]["session_id"]
    assert gw.post(f"/sessions/{sid}/complete", {"reward_info": {"reward": 1}}).status == 200
    assert gw.post(f"/sessions/{sid}/finalize", {"format": "none"}).status == 200
    with Executor(gw, "x", {"r": 1}, {"r": solve()}):
        group = take_all(gw, "train", 1)[0]
    winner = group["members"][0]["session_id"]
    assert winner != sid and group["members"][0]["attempts"] == 2
    g.wait_until(lambda: winner in sessions_in(tmp_path / "out"), 20, "the winner is delivered")
    assert sessions_in(tmp_path / "out") == {winner}


def test_a_group_may_keep_its_sessions_from_sinks(start, tmp_path):
    gw = start(workers=1, sink=f"file:{tmp_path}/out")
    with Executor(gw, "x", {"r": 2}, {"r": solve()}):
        assert gw.post("/groups", {"id": "no", "runner": "r", "session": {"sink": False}}).status == 201
        assert gw.post("/groups", {"id": "eval", "runner": "r", "session": {"evaluation": True}}).status == 201
        assert gw.post("/groups", {"id": "told", "runner": "r", "session": {"evaluation": True, "sink": True}}).status == 201
        assert gw.post("/groups", {"id": "yes", "runner": "r", "export": {"select": "last"}}).status == 201
        groups = {x["id"]: x for x in take_all(gw, "train", 4)}
    winners = {groups[k]["members"][0]["session_id"] for k in ("yes", "told")}
    g.wait_until(lambda: sessions_in(tmp_path / "out") >= winners, 20, "these are delivered")
    assert sessions_in(tmp_path / "out") == winners


def test_deliver_by_hand(start, tmp_path):
    gw = start(workers=1, sink=f"file:{tmp_path}/out")
    s = gw.post("/sessions", {"sink": False}).json()
    gw.chat(s, "x")
    path = f"/sessions/{s['session_id']}"
    answer = gw.post(f"{path}/deliver")
    assert answer.status == 409 and answer.json()["error"]["code"] == "state_conflict"
    assert gw.post(f"{path}/finalize").status == 200
    assert sessions_in(tmp_path / "out") == set()
    for _ in range(2):
        assert gw.post(f"{path}/deliver").status == 200
    g.wait_until(lambda: sessions_in(tmp_path / "out") == {s["session_id"]}, 20, "it is delivered")
    assert gw.post(f"{path}/deliver", {"slect": 1}).status == 400
    for body, field in (({}, "group"), ({"group": "a"}, "entry"), ({"group": "../x", "entry": {"a": 1}}, "group"), ({"group": "a_b", "entry": {"a": 1}}, "group"),
                        ({"group": "a", "entry": {}}, "entry"),
                        ({"group": "a", "entry": {}, "x": 1}, "x")):
        answer = gw.post("/admin/group_result", body)
        assert answer.status == 400 and answer.json()["error"]["param"] == field, answer.text


@pytest.mark.parametrize("name", ["g", "a.b-c"])
def test_no_redis_no_entry(start, tmp_path, name):
    """A file sink gets sessions alone."""
    gw = start(workers=1, sink=f"file:{tmp_path}/out")
    assert gw.post("/admin/group_result", {"group": name, "entry": {"group": name}}).status == 200
    assert not os.path.isdir(tmp_path / "out") or os.listdir(tmp_path / "out") == []


def test_what_is_acknowledged_before_its_delivery_is_delivered_behind_a_crash(start, tmp_path):
    """The worker hangs while the trainer acknowledges, then all of the gateway dies: the sessions are there still, and the
    journal says that they count. They go to the sinks before they are deleted."""
    first = start(workers=1, state_dir=str(tmp_path / "state"))     # nobody has delivered anything so far
    with Executor(first, "x", {"r": 3}, {"r": solve()}):
        assert first.post("/groups", {"id": "g", "runner": "r", "n": 3}).status == 201
        group = first.get("/queues/train/next?wait_s=20", timeout=40).json()["groups"][0]
    os.kill(first.child("worker-0"), signal.SIGSTOP)
    assert first.post("/queues/train/ack", {"groups": ["g"]}).json() == {"acked": 1}
    first.kill()
    again = start(workers=1, sink=f"file:{tmp_path}/out", state_dir=first.settings["state-dir"])
    members = {m["session_id"] for m in group["members"]}
    g.wait_until(lambda: sessions_in(tmp_path / "out") == members, 30, "the acknowledged members are delivered")
    g.wait_until(lambda: again.get("/sessions?label=attempt").json()["sessions"] == [], 20, "and deleted then")
    assert again.get("/groups/g").status == 404


def test_a_groups_entry_that_was_not_given_before_the_acknowledgement_comes_behind_a_crash(start, server, tmp_path):
    """No worker takes the entry of a group that failed; the trainer acknowledges; all of the gateway dies."""
    s = server()
    gw = start(workers=1, sink=f"redis://127.0.0.1:{s.port}", state_dir=str(tmp_path / "state"))
    assert gw.post("/groups", {"id": "g", "runner": "r", "on": {"timeout": "drop"}}).status == 201
    attempt = gw.post("/attempts/claim", {"executor": "x", "slots": {"r": 1}, "wait_s": 5}).json()["attempts"][0]
    os.kill(gw.child("worker-0"), signal.SIGSTOP)
    end = {"executor": "x", "outcome": "timeout", "reason": "no luck"}
    assert gw.post(f"/attempts/{attempt['attempt_id']}/end", end).json() == {"rollout": "failed"}
    assert [x["state"] for x in gw.get("/queues/train/next?wait_s=5").json()["groups"]] == ["failed"]
    assert gw.post("/queues/train/ack", {"groups": ["g"]}).json() == {"acked": 1}
    assert group_entries(s) == []
    gw.kill()
    start(workers=1, sink=gw.settings["sink"], state_dir=gw.settings["state-dir"])
    g.wait_until(lambda: group_entries(s), 30, "the entry")
    assert {(e["group"], e["state"]) for e in group_entries(s)} == {("g", "failed")}


def failed_group(gw, name, reason):
    """A group that fails for the reason, is taken and acknowledged."""
    assert gw.post("/groups", {"id": name, "runner": "r", "on": {"error": "drop"}}).status == 201
    attempt = gw.post("/attempts/claim", {"executor": "x", "slots": {"r": 1}, "wait_s": 20}, timeout=40).json()["attempts"][0]
    end = {"executor": "x", "outcome": "error", "reason": reason}
    assert gw.post(f"/attempts/{attempt['attempt_id']}/end", end).json() == {"rollout": "failed"}
    assert [x["id"] for x in gw.get("/queues/train/next?wait_s=20", timeout=40).json()["groups"]] == [name]
    assert gw.post("/queues/train/ack", {"groups": [name]}).json() == {"acked": 1}


def reasons(server):
    return [json.loads(e["result"])["members"][0]["reason"] for e in group_entries(server)]


@pytest.mark.parametrize("how", ["hangs", "is away", "restart"])
def test_a_group_made_anew_under_an_id_whose_entry_waits_comes_too(start, server, tmp_path, how):
    """The id of an acknowledged group is free, though its entry be just under way, or wait for a Redis that is away, also over
    a restart of all: both groups have an entry, one each, in their order."""
    s = server()
    gw = start(workers=1, sink=f"redis://127.0.0.1:{s.port}", state_dir=str(tmp_path / "state"))
    failed_group(gw, "before", "none")
    g.wait_until(lambda: reasons(s) == ["none"], 20, "the connection is there")
    if how == "hangs":
        s.process.send_signal(signal.SIGSTOP)
    else:
        s.stop()
    try:
        failed_group(gw, "g", "first")
        g.wait_until(lambda: gw.metrics()["rollgate_sink_waiting"] == 1, 20, "its entry waits")
        failed_group(gw, "g", "second")
        g.wait_until(lambda: gw.metrics()["rollgate_sink_waiting"] == 2, 20, "that of the other one waits, too")
        if how == "restart":
            assert gw.stop() == 0
            gw = start(workers=1, sink=gw.settings["sink"], state_dir=gw.settings["state-dir"])
            g.wait_until(lambda: gw.metrics()["rollgate_sink_waiting"] == 2, 20, "both wait again")
    finally:
        s.process.send_signal(signal.SIGCONT) if how == "hangs" else s.start()
    g.wait_until(lambda: reasons(s)[1:] == ["first", "second"], 60, "both came")
    g.wait_until(lambda: gw.metrics()["rollgate_sink_waiting"] == 0, 20, "nothing waits")
    assert not gw.has_line("is gone") and reasons(s) == ["none", "first", "second"]


def test_an_entry_given_twice_while_it_waits_is_one(start, server):
    s = server()
    s.stop()
    gw = start(workers=1, sink=f"redis://127.0.0.1:{s.port}")
    for entry in ({"group": "g", "try": "1"}, {"group": "g", "try": "1"}, {"group": "g", "try": "2"}):
        assert gw.post("/admin/group_result", {"group": "g", "entry": entry}).status == 200
    g.wait_until(lambda: gw.metrics()["rollgate_sink_waiting"] == 2, 20, "two wait")
    s.start()
    g.wait_until(lambda: gw.metrics()["rollgate_sink_waiting"] == 0, 60, "they came")
    assert [e["try"] for e in group_entries(s)] == ["1", "2"]


def test_an_entry_keeps_all_its_members(start, server):
    """Members beyond the 14th were left out."""
    s = server()
    gw = start(workers=1, sink=f"redis://127.0.0.1:{s.port}")
    entry = {"group": "g", **{f"m{i}": str(i) for i in range(40)}}
    assert gw.post("/admin/group_result", {"group": "g", "entry": entry}).status == 200
    g.wait_until(lambda: group_entries(s) == [entry], 20, "the whole entry")


@pytest.mark.parametrize("same", [True, False], ids=["the sink stays", "another sink"])
def test_what_a_crash_left_of_an_entry_is_removed(faulty, server, same):  # noqa: F811
    """All dies between an entry's bytes and its name. The next start removes what is left of it, also where another worker is given the
    entry meanwhile, or the sink is not set any more, and nothing that only looks like it. The entry comes once."""
    s = server()
    gw, inject = faulty(sink=f"redis://127.0.0.1:{s.port}")
    inject("rename", "/.group:g")
    failed_group(gw, "g", "once")
    spool = f"{gw.folder}/state/worker-0/spool"
    folder = f"{spool}/{os.listdir(spool)[0]}"

    def parts():
        return [n for n in os.listdir(folder) if n.startswith(".group:g") and n.endswith(".part")]
    g.wait_until(parts, 20, "the entry is written, and has no name")
    gw.kill()
    inject("rename", None)
    part, = parts()
    os.rename(f"{folder}/{part}", f"{folder}/{part.replace(':g', ':gone')}")     # of one whose dispatcher found another worker
    others = [".group:notes", ".mine.part", "group:x.part", ".group", ".part"]
    for name in others:
        with open(f"{folder}/{name}", "w") as f:
            f.write("not ours")
    os.mkdir(f"{folder}/.group:folder.part")
    if not same:
        gw.settings["sink"] += "?stream=other"
    gw.start()
    assert gw.has_line("not written to their end are removed.*files=1")
    assert not parts() and {n for n in os.listdir(folder) if "msgpack" not in n} >= {*others, ".group:folder.part"}
    stream = f"{STREAM if same else 'other'}:groups"
    with s.client() as c:
        g.wait_until(lambda: c.xlen(stream), 30, "the entry")
        g.wait_until(lambda: gw.metrics()["rollgate_sink_waiting"] == 0, 10, "nothing waits")
        assert [f[b"group"] for _, f in c.xrange(stream)] == [b"g"]
    assert not parts()

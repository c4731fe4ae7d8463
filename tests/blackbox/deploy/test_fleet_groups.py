"""One dispatcher for the fleet: any node serves groups, queues and attempts, and a lost node takes none of them along."""
import glob
import itertools
import json
import os
import pathlib
import re
import signal
import time

import gateway as g
import pytest

from fleet_kit import ADMIN, AS_ADMIN, Fleet, Later, index_of
from fleet_net import FarFleet
from rollouts_kit import Executor, chat, solve, take_all
from store_kit import Server

LEASE = "1s"
ODD = ("the store does not answer", "store answers again", "another node owns", "place not claimed", "another node had a place",
       "a place without an owner", "cannot be claimed", "a journal of a place", "watching its beat", "process ended on a signal",
       "a session cannot be made")


class Front:
    """Requests with the admin key. Each goes to the next node."""

    def __init__(self, *nodes):
        self.nodes = itertools.cycle(nodes)

    def ask(self, method, path, *body, headers=None, timeout=60):
        return next(self.nodes).request(method, path, *body, headers=headers or AS_ADMIN, timeout=timeout)

    def get(self, path, **more):
        return self.ask("GET", path, **more)

    def post(self, path, body=None, **more):
        return self.ask("POST", path, {} if body is None else body, **more)

    def put(self, path, body):
        return self.ask("PUT", path, body)


@pytest.fixture
def fleet(tmp_path):
    with Fleet(tmp_path, "ab", lease=LEASE, **{"fleet-hold": "20s", "attempt-lease": "3s"}) as f:
        for gateway in f:
            gateway.allow(*ODD)
        g.wait_until(lambda: f.owner("d"), 20, "a node has the dispatcher")
        yield f


def owner_and_other(fleet):
    owner = fleet.owner("d")
    return owner, next(name for name in fleet.nodes if name != owner)


def wait_whole(fleet):
    g.wait_until(lambda: fleet.entry("place:{d}")["whole"] == "1", 20, "the store has all groups")


def groups(front, **query):
    answer = front.get("/groups?" + "&".join(f"{k}={v}" for k, v in query.items()))
    assert answer.status == 200 and "unreachable" not in answer.json(), answer.text
    return {row["id"]: row["state"] for row in answer.json()["groups"]}


def submit(front, name, **more):
    answer = front.put(f"/groups/{name}", {"queue": "q", "runner": "r", "n": 2, "input": name, **more})
    assert answer.status == 201, answer.text


def claim(front, runner, slots, executor="test"):
    answer = front.post("/attempts/claim", {"executor": executor, "slots": {runner: slots}, "wait_s": 20})
    assert answer.status == 200, answer.text
    return answer.json()["attempts"]


def load(gateway, node):
    """The load of a node, as this one knows it."""
    nodes = gateway.get("/fleet", headers=AS_ADMIN).json()["nodes"]
    return next(n["sessions"] for n in nodes if n["name"] == node)


def folders(gateway):
    return sorted(name for name in os.listdir(f"{gateway.folder}/state") if name.startswith("dispatcher"))


def test_any_node_serves_groups(fleet):
    front = Front(fleet["a"], fleet["b"])
    body = {"queue": "q", "runner": "r", "n": 6, "input": "x"}
    asked = [Later(lambda node=node: node.request("PUT", "/groups/one", body, headers=AS_ADMIN)) for node in fleet]
    assert sorted(a.get().status for a in asked) == [200, 201], "one group"
    assert fleet["a"].get("/groups/one", headers=AS_ADMIN).json() == fleet["b"].get("/groups/one", headers=AS_ADMIN).json()
    with Executor(front, "e", {"r": 3}, {"r": solve(turns=2)}, key=ADMIN):
        group, = take_all(front, "q", 1)
    assert group["state"] == "finished" and group["succeeded"] == 6
    own = {fleet.block(node) * 256 for node in fleet.nodes}
    assert {index_of(m["session_id"]) for m in group["members"]} == own, "sessions of all nodes"
    assert groups(front) == {}


def test_attempts_go_where_the_load_is_least(fleet):
    busy, idle = fleet.nodes
    for _ in range(12):     # too few for the node to send them to the other one
        fleet.create(busy)
    front = Front(*fleet)
    # a node says its load anew if it differs by more than four sessions and a tenth
    g.wait_until(lambda: min(known := {load(gateway, busy) for gateway in fleet}) >= 8 and len(known) == 1, 20, "every node knows its load")
    more = load(fleet[idle], busy)
    for node in (busy, idle):
        submit(front, f"at-{node}", n=1, session={"node": node})
        made, = claim(front, "r", 1)
        assert index_of(made["session"]["session_id"]) // 256 == fleet.block(node), "the group asks for it"
        assert front.post(f"/groups/at-{node}/cancel").status == 200
    g.wait_until(lambda: all(load(gateway, busy) == more and load(gateway, idle) == 0 for gateway in fleet), 20, "both have ended")
    submit(front, "one", n=14)
    blocks = [index_of(a["session"]["session_id"]) // 256 for a in claim(front, "r", 14)]
    by_turns = (14 - more) // 2
    assert (blocks.count(fleet.block(idle)), blocks.count(fleet.block(busy))) == (14 - by_turns, by_turns), "as many as the other has, then by turns"
    submit(front, "two", n=2, runner="s", session={"node": busy})
    assert {index_of(a["session"]["session_id"]) // 256 for a in claim(front, "s", 2)} == {fleet.block(busy)}


def test_attempts_go_to_a_node_with_the_engine_that_their_group_prefers(fleet):
    front = Front(*fleet)
    fleet.add("c", engine=["builtin:echo", "judge=builtin:echo"]).allow(*ODD).start()
    g.wait_until(lambda: all(fleet.state(node, "c") == "up" for node in "ab"), 20, "c is up")
    submit(front, "judged", n=4, session={"prefer": {"engine": "judge"}})
    submit(front, "policy", n=2, runner="p", session={"prefer": {"engine": "policy"}})
    attempts = claim(front, "r", 4)
    assert [index_of(a["session"]["session_id"]) // 256 for a in attempts] == 4 * [fleet.block("c")]
    assert chat(front, attempts[0], "x", model="judge").status == 200
    assert len(claim(front, "p", 2)) == 2
    submit(front, "never", n=1, runner="n", session={"prefer": {"engine": "x"}})
    assert front.post("/attempts/claim", {"executor": "test", "slots": {"n": 1}, "wait_s": 1}).json() == {"attempts": []}
    group = front.get("/groups/never").json()
    assert group["state"] == "failed" and 'prefer.engine: no node has an engine "x"' in group["members"][0]["reason"], group
    fleet["c"].kill()
    g.wait_until(lambda: all(fleet.state(node, "c") == "lost" for node in "ab"), 20, "c is lost")
    submit(front, "later", n=1, runner="l", session={"prefer": {"engine": "judge"}})
    assert front.post("/attempts/claim", {"executor": "test", "slots": {"l": 1}, "wait_s": 1}).json() == {"attempts": []}
    group = front.get("/groups/later").json()
    assert group["state"] == "waiting" and '"c" is lost or being drained' in group["waits"], group
    submit(front, "now", n=1, runner="f")
    assert len(claim(front, "f", 1)) == 1, "others go on"


def claim_one_each(fleet, front, name, **more):
    """Claims both attempts of a group. Returns that of the dispatcher's node, and that of the other one."""
    owner, _ = owner_and_other(fleet)
    submit(front, name, **more)
    attempts = claim(front, "r", 2)
    attempts.sort(key=lambda a: index_of(a["session"]["session_id"]) // 256 != fleet.block(owner))
    assert len({index_of(a["session"]["session_id"]) for a in attempts}) == 2, "one at each node"
    return attempts


def end_well(front, *attempts):
    for a in attempts:
        assert chat(front, a, "x").status == 200
        answer = front.post(f"/attempts/{a['attempt_id']}/end", {"executor": "test", "outcome": "ok", "reward_info": {"reward": 1.0}})
        assert answer.json() == {"rollout": "succeeded"}, answer.text


def renew_long(fleet, *attempts):
    """Renews leases beyond all waits of a test. The answer comes when an attempt must end."""
    owner, _ = owner_and_other(fleet)
    body = {"executor": "test", "attempts": [a["attempt_id"] for a in attempts], "wait_s": 50}
    return Later(lambda: fleet[owner].post("/attempts/renew", body, headers=AS_ADMIN, timeout=60))


def lose_session(fleet, *attempts):
    """Loses one record of each attempt's session in the store, and the node that has them."""
    sessions = [a["session"]["session_id"] for a in attempts]
    index, = {index_of(session) for session in sessions}
    lost = fleet.owner(index)
    g.wait_until(lambda: fleet.entry(f"place:{{{index}}}")["whole"] == "1", 20, "the place is whole")
    for session in sessions:
        assert fleet.server.ask("LSET", f"rg:test:log:{{{index}}}:{session}", 0, "x")
    fleet.lose(lost)
    for gateway in fleet:
        gateway.allow("the session is lost", "the session of a rollout", "does not apply", "the journal differs")
    (name, gateway), = ((name, gateway) for name, gateway in fleet.nodes.items() if name != lost)
    g.wait_until(lambda: any((p["index"], p["node"]) == (index, name) for p in gateway.get("/fleet", headers=AS_ADMIN).json()["places"]), 20,
                 "the place has a new owner")
    return Front(gateway)


def test_an_attempt_whose_session_is_lost_ends_at_once(fleet):
    front = Front(*fleet)
    kept, lost = claim_one_each(fleet, front, "one")
    renewed = renew_long(fleet, kept, lost)
    front = lose_session(fleet, lost)
    assert [k["attempt_id"] for k in renewed.get().json()["kill"]] == [lost["attempt_id"]]
    late = front.post(f"/attempts/{lost['attempt_id']}/end", {"executor": "test", "outcome": "ok"})
    assert late.status == 410, late.text
    again, = claim(front, "r", 1)
    assert (again["rollout"], again["attempt"]) == (lost["rollout"], 2)
    end_well(front, kept, again)
    group, = front.get("/queues/q/next?wait_s=20").json()["groups"]
    assert group["state"] == "finished" and group["members"][lost["rollout"]]["session_id"] == again["session"]["session_id"]


def test_a_member_whose_session_is_lost_is_offered_as_lost(fleet):
    front = Front(*fleet)
    kept, lost = claim_one_each(fleet, front, "one", min=1)
    end_well(front, kept, lost)
    assert groups(front) == {"one": "finished"}
    front = lose_session(fleet, lost)
    group, = front.get("/queues/q/next?wait_s=20").json()["groups"]
    states = {m["rollout"]: m["state"] for m in group["members"]}
    assert states == {kept["rollout"]: "succeeded", lost["rollout"]: "lost"}
    assert (group["state"], group["succeeded"]) == ("partial", 1)
    member = group["members"][lost["rollout"]]
    assert member["session_id"] == lost["session"]["session_id"] and "lost" in member["reason"], member
    assert front.post(f"/sessions/{kept['session']['session_id']}/finalize").status == 200
    answer = front.post(f"/sessions/{member['session_id']}/finalize")
    assert (answer.status, answer.json()["error"]["code"]) == (410, "session_lost"), answer.text
    gateway = next(front.nodes)
    gateway.kill()
    gateway.start()
    g.wait_until(lambda: front.get("/groups/one").json().get("members") == group["members"], 20, "the same after a restart")


def test_a_rollout_whose_session_is_lost_before_its_group_settles_is_tried_again(fleet):
    front = Front(*fleet)
    kept, lost = claim_one_each(fleet, front, "one")
    end_well(front, lost)
    renew_long(fleet, kept)
    front = lose_session(fleet, lost)
    again, = claim(front, "r", 1)
    assert (again["rollout"], again["attempt"]) == (lost["rollout"], 2)
    end_well(front, kept, again)
    group, = front.get("/queues/q/next?wait_s=20").json()["groups"]
    assert group["state"] == "finished"


def test_a_delivered_group_does_not_change_when_a_session_is_lost(fleet):
    front = Front(*fleet)
    kept, lost = claim_one_each(fleet, front, "one")
    end_well(front, kept, lost)
    taken, = front.get("/queues/q/next").json()["groups"]
    wait_whole(fleet)
    front = lose_session(fleet, lost)
    path = f"/sessions/{lost['session']['session_id']}/finalize"
    assert front.post(path).json()["error"]["code"] == "session_lost"
    assert front.post("/queues/q/return", {"groups": ["one"]}).json() == {"returned": 1}
    again, = front.get("/queues/q/next?wait_s=20").json()["groups"]
    assert again == {**taken, "deliveries": 2}


def test_a_group_without_a_queue_is_delivered_by_its_first_answer(fleet):
    """After that answer it keeps its content, also when another node has the dispatcher; before, a lost member shows."""
    front = Front(*fleet)
    ends = {name: claim_one_each(fleet, front, name, queue=None, min=1) for name in ("shown", "waited", "unseen")}
    end_well(front, *itertools.chain(*ends.values()))
    shown = front.get("/groups/shown").json()
    waited = front.get("/groups/waited/wait").json()
    assert shown["state"] == waited["state"] == "finished" and groups(front)["unseen"] == "finished"
    assert front.get("/groups/unseen?deliver=false").json()["state"] == "finished", "so asks the viewer"
    assert front.get("/groups/unseen?deliver=no").json()["error"]["param"] == "deliver"
    wait_whole(fleet)
    front = lose_session(fleet, *[lost for _, lost in ends.values()])
    kept, lost = ends["unseen"]
    late = Later(lambda: front.get("/groups/unseen/wait?timeout_s=20"))
    unseen = front.get("/groups/unseen").json()
    assert (unseen["state"], unseen["succeeded"]) == ("partial", 1) and late.get().json() == unseen
    assert {m["rollout"]: m["state"] for m in unseen["members"]} == {kept["rollout"]: "succeeded", lost["rollout"]: "lost"}
    for group in (shown, waited):
        assert front.get(f"/groups/{group['id']}").json() == front.get(f"/groups/{group['id']}/wait").json() == group
    path = f"/sessions/{ends['shown'][1]['session']['session_id']}/finalize"
    assert front.post(path).json()["error"]["code"] == "session_lost"
    gateway = next(front.nodes)
    gateway.kill()
    gateway.start()
    g.wait_until(lambda: [front.get(f"/groups/{name}").json() for name in ends] == [shown, waited, unseen], 20, "the same after a restart")


@pytest.fixture
def sunk(tmp_path):
    """A fleet whose sessions and groups go to a Redis sink: (fleet, sink)."""
    with Server(tmp_path / "sink") as sink, Fleet(tmp_path, "ab", lease=LEASE, sink=f"redis://127.0.0.1:{sink.port}?stream=s",
                                                  **{"fleet-hold": "20s"}) as f:
        for gateway in f:
            gateway.allow(*ODD, "a sink takes", "a sink does not take", "is not delivered to the sinks")
        g.wait_until(lambda: f.owner("d"), 20, "a node has the dispatcher")
        yield f, sink


def told(sink):
    """The entries of groups in the sink."""
    return {entry["group"]: {**entry, "keys": json.loads(entry["keys"]), "result": json.loads(entry["result"])}
            for _, entry in sink.ask("XRANGE", "s:groups", "-", "+")}


def spooled(fleet):
    """The files of groups' entries that wait."""
    return [path for gateway in fleet for path in glob.glob(f"{gateway.folder}/state/worker-*/spool/*/group:*")]


def test_sinks_get_a_group_after_its_members(sunk):
    """A member that is lost before is not in the group's entry. One that is lost later changes nothing."""
    fleet, sink = sunk
    front = Front(*fleet)
    ends = {name: claim_one_each(fleet, front, name, min=1) for name in ("after", "before")}
    end_well(front, *ends["after"])
    g.wait_until(lambda: told(sink), 20, "the sink has a group")
    sink.process.send_signal(signal.SIGSTOP)
    end_well(front, *ends["before"])
    assert groups(front) == {"after": "finished", "before": "finished"}
    wait_whole(fleet)
    kept, lost = ends["before"]
    front = lose_session(fleet, lost, ends["after"][1])
    g.wait_until(lambda: groups(front)["before"] == "partial", 20, "the member is lost")
    sink.process.send_signal(signal.SIGCONT)
    g.wait_until(lambda: "before" in told(sink), 30, "the sink has the other group")
    entries = told(sink)
    assert (entries["before"]["state"], entries["before"]["succeeded"]) == ("partial", "1")
    assert [key.split("/")[0] for key in entries["before"]["keys"]] == [kept["session"]["session_id"]]
    assert entries["after"]["state"] == "finished" and len(entries["after"]["keys"]) == 2
    assert not [path for gateway in fleet for path in glob.glob(f"{gateway.folder}/state*/worker-*/spool/*/pointed")], "entries have data"
    taken = {x["id"]: x for x in front.get("/queues/q/next?max=2&wait_s=20").json()["groups"]}
    assert {name: {**x, "deliveries": 0} for name, x in taken.items()} == {name: x["result"] for name, x in entries.items()}


def test_a_groups_entry_survives_the_node_that_had_it(sunk):
    fleet, sink = sunk
    front = Front(*fleet)
    sink.ask("SET", "s:groups", "no stream: entries of groups wait")
    end_well(front, *claim_one_each(fleet, front, "one"))
    g.wait_until(lambda: sink.ask("XLEN", "s") == 2, 20, "the sink has the members")
    owner, _ = owner_and_other(fleet)
    g.wait_until(lambda: glob.glob(f"{fleet[owner].folder}/state/worker-*/spool/*/group:one*"), 20, "the entry waits")
    wait_whole(fleet)
    fleet.lose(owner)
    sink.ask("DEL", "s:groups")
    g.wait_until(lambda: "one" in told(sink), 30, "the next dispatcher has sent it")


def test_a_group_that_was_shown_while_its_entry_waits_does_not_change(sunk):
    fleet, sink = sunk
    front = Front(*fleet)
    sink.ask("SET", "s:groups", "no stream: entries of groups wait")
    lost, kept = claim_one_each(fleet, front, "one", queue=None, min=1)
    end_well(front, lost, kept)
    g.wait_until(lambda: spooled(fleet), 20, "the entry waits")
    shown = front.get("/groups/one").json()
    wait_whole(fleet)
    front = lose_session(fleet, lost)
    assert shown["state"] == "finished" and front.get("/groups/one").json() == shown


def test_an_entry_that_comes_twice_is_the_same(sunk):
    """The sink has the entry, but no dispatcher knows that. Then a member is lost."""
    fleet, sink = sunk
    front = Front(*fleet)
    sink.ask("SET", "s:groups", "no stream: entries of groups wait")
    usual = int(g.wait_until(lambda: fleet.entry("place:{d}").get("version"), 20, "the place has been renewed"))
    lost, kept = claim_one_each(fleet, front, "one", min=1)
    end_well(front, lost, kept)
    g.wait_until(lambda: spooled(fleet), 20, "the entry waits")
    g.wait_until(lambda: int(fleet.entry("place:{d}")["version"]) > usual, 20, "builds without this record cannot have the place")
    wait_whole(fleet)
    owner, _ = owner_and_other(fleet)
    os.kill(fleet[owner].child("dispatcher"), signal.SIGSTOP)
    sink.ask("DEL", "s:groups")
    g.wait_until(lambda: sink.ask("XLEN", "s:groups") == 1, 20, "the sink has the entry")
    front = lose_session(fleet, lost)
    g.wait_until(lambda: sink.ask("XLEN", "s:groups") == 2, 30, "the next dispatcher has sent it again")
    (_, first), (_, again) = sink.ask("XRANGE", "s:groups", "-", "+")
    assert first == again and first["state"] == "finished"
    group, = front.get("/queues/q/next?wait_s=20").json()["groups"]
    assert {**group, "deliveries": 0} == json.loads(first["result"])


def test_a_worker_that_restarts_does_not_tell_a_group_twice(tmp_path):
    with Server(tmp_path / "sink") as sink, Fleet(tmp_path, "a", workers=2, sink=f"redis://127.0.0.1:{sink.port}?stream=s") as fleet:
        fleet["a"].allow("a sink takes", "process died")
        front = Front(*fleet)
        sink.ask("SET", "s:groups", "no stream: entries of groups wait")
        submit(front, "one")
        end_well(front, *claim(front, "r", 2))
        g.wait_until(lambda: spooled(fleet), 20, "the entry waits")
        name = f"worker-{re.search('/worker-([0-9]+)/', spooled(fleet)[0])[1]}"
        pid = fleet["a"].child(name)
        os.kill(pid, signal.SIGKILL)
        g.wait_until(lambda: fleet["a"].child(name) != pid, 20, "it was replaced")
        g.stays(lambda: len(spooled(fleet)) == 1, 1.5, "the dispatcher asks again after 0.5 s")
        sink.ask("DEL", "s:groups")
        g.wait_until(lambda: not spooled(fleet), 30, "the entry was sent")
        assert sink.ask("XLEN", "s:groups") == 1


def test_a_lost_dispatcher_is_replaced_with_all_its_groups(fleet):
    owner, other = owner_and_other(fleet)
    front = Front(*fleet)
    for name in ("acked", "settled", "lent", "running", "waiting"):
        submit(front, name, runner=name)
    with Executor(front, "e", {"acked": 2}, {"acked": solve()}, key=ADMIN):
        assert [x["id"] for x in take_all(front, "q", 1)] == ["acked"]
    with Executor(front, "e", {"settled": 2}, {"settled": solve()}, key=ADMIN):
        g.wait_until(lambda: groups(front)["settled"] == "finished", 20, "a group has settled")
    running = claim(front, "running", 2)
    lent = {a["attempt_id"] for a in claim(front, "lent", 2, "an executor of the lost node")}
    assert len(running) == len(lent) == 2
    wait_whole(fleet)
    fleet.lose(owner)
    front = Front(fleet[other])
    want = {"settled": "finished", "lent": "running", "running": "running", "waiting": "waiting"}
    assert list(groups(front, queue="q").items()) == list(want.items()), "in the order of submission"
    assert fleet.owner("d") == other
    answer = front.post("/attempts/renew", {"executor": "test", "attempts": [a["attempt_id"] for a in running]})
    assert answer.json() == {"kill": []}, answer.text
    for attempt in running:
        assert chat(front, attempt, "after the loss").status == 200
        end = {"executor": "test", "outcome": "ok", "reward_info": {"reward": 1.0}}
        answer = front.post(f"/attempts/{attempt['attempt_id']}/end", end)
        assert answer.json() == {"rollout": "succeeded"}, answer.text
        assert front.post(f"/attempts/{attempt['attempt_id']}/end", end).json() == {"rollout": "succeeded"}
    with Executor(front, "e", {"lent": 2}, {"lent": solve()}, key=ADMIN) as e:
        taken = take_all(front, "q", 3)
    assert sorted(x["id"] for x in taken) == ["lent", "running", "settled"], "each once"
    assert {a["attempt_id"] for a, _ in e.done}.isdisjoint(lent), "handed out again"
    assert groups(front) == {"waiting": "waiting"}
    fleet[other].stop()
    fleet[other].start()
    g.wait_until(lambda: groups(front) == {"waiting": "waiting"}, 20, "the same after a restart")


@pytest.mark.parametrize("store", ["emptied", "new"])
def test_groups_that_are_lost_with_the_store_and_their_node_are_not_unknown(fleet, tmp_path, store):
    owner, other = owner_and_other(fleet)
    fleet[other].allow("has forgotten", "the store has lost", "groups of the dispatcher's last node are lost")
    front = Front(fleet[other])
    submit(front, "one")
    g.wait_until(lambda: f" - {owner}\n" in pathlib.Path(f"{fleet[other].folder}/state/fleet-places").read_text(), 20, "it is written down")
    asked = Later(lambda: front.get("/groups/one/wait?timeout_s=20"))
    fleet.lose(owner)
    if store == "emptied":
        fleet.server.ask("FLUSHALL")
    else:
        fleet[other].stop()
        fleet.server.stop()
        fleet.server = Server(tmp_path / "other").start()
        fleet[other].settings["fleet"] = fleet.url
        fleet[other].start()
    asked.get()
    for answer in (front.get("/groups/one"), front.get("/groups/one/wait"), front.post("/groups/one/cancel")):
        assert (answer.status, answer.json()["error"]["code"]) == (410, "group_lost"), answer.text
    assert "may have had its groups: submit them again" in front.get("/queues/q").json()["warning"]
    assert fleet.owner("d") == other and fleet.entry("place:{d}")["taken"] == "1"
    submit(front, "one")
    assert groups(front) == {"one": "waiting"}
    if store == "new":
        fleet[other].stop()     # before its store
        fleet.server.stop()


def test_a_drained_dispatcher_moves_at_once(fleet):
    owner, other = owner_and_other(fleet)
    submit(Front(fleet[owner]), "one")
    attempts = claim(Front(fleet[owner]), "r", 1)
    asked = Later(lambda: Front(fleet[other]).get("/groups/one/wait?timeout_s=20"))
    assert fleet[owner].post("/fleet/drain", headers=AS_ADMIN).status == 200
    g.wait_until(lambda: fleet.owner("d") == other, 20, "the other node has the dispatcher")
    front = Front(fleet[other])
    assert groups(front) == {"one": "running"}
    assert front.post("/attempts/renew", {"executor": "test", "attempts": [attempts[0]["attempt_id"]]}).json() == {"kill": []}
    waited = {**AS_ADMIN, "Rollgate-Waited": "3600000"}      # at an earlier owner
    assert front.get("/groups/one/wait?timeout_s=3600", headers=waited).status == 204
    began = time.monotonic()
    claimed = front.post("/attempts/claim", {"executor": "test", "slots": {"none": 1}, "wait_s": 50}, headers=waited)
    assert claimed.json() == {"attempts": []} and time.monotonic() - began < 30
    assert asked.get().status in (200, 204)
    assert fleet[owner].wait(30) == 0
    assert folders(fleet[owner]) == ["dispatcher.released"]
    assert folders(fleet[other]) == ["dispatcher"]


def test_a_frozen_dispatcher_is_replaced_and_ends(fleet):
    owner, other = owner_and_other(fleet)
    submit(Front(fleet[owner]), "one")
    claim(Front(fleet[owner]), "r", 1)
    wait_whole(fleet)
    fleet.freeze(owner)
    fleet[owner].allow("store lacks records of a place")
    fleet.server.ask("RPOP", f"rg:{fleet.name}:log:{{d}}:one")      # a failover has lost the claim
    g.wait_until(lambda: fleet.owner("d") == other, 20, "the dispatcher is claimed")
    submit(Front(fleet[other]), "two")
    fleet.thaw(owner)
    g.wait_until(lambda: folders(fleet[owner]) == ["dispatcher.lost"], 20, "its folder is put aside")
    compared = f"{fleet[owner].folder}/state/dispatcher.lost/compared"
    g.wait_until(lambda: os.path.exists(compared), 20, "the folder is compared")
    with open(compared, encoding="ascii") as f:
        assert f.read() == "one from 1: 1\n"
    assert list(groups(Front(fleet[owner]))) == ["one", "two"]
    submit(Front(fleet[owner]), "three")
    wait_whole(fleet)
    fleet.lose(other)
    assert list(groups(Front(fleet[owner]))) == ["one", "two", "three"], "the first node has it again"


def test_an_upgrade_keeps_the_dispatcher(fleet):
    owner, _ = owner_and_other(fleet)
    submit(Front(*fleet), "one")
    epoch = fleet.entry("place:{d}")["epoch"]
    fleet[owner].log_start = len(fleet[owner].log())
    fleet[owner].signal(signal.SIGUSR2)
    fleet[owner].wait_serving()
    submit(Front(*fleet), "two")
    assert list(groups(Front(*fleet))) == ["one", "two"]
    assert fleet.owner("d") == owner and fleet.entry("place:{d}")["epoch"] == epoch


def test_an_id_is_used_again(fleet):
    owner, other = owner_and_other(fleet)
    front = Front(fleet[owner])
    for _ in range(3):
        submit(front, "one")
        assert front.post("/groups/one/cancel").json() == {"cancelled": ["one"]}
    submit(front, "one", input="the last")
    fleet[owner].kill()
    fleet[owner].start()
    assert groups(front) == {"one": "waiting"}
    wait_whole(fleet)
    fleet.lose(owner)
    attempt, *_ = claim(Front(fleet[other]), "r", 1)
    assert (attempt["group"], attempt["input"]) == ("one", "the last")


def test_groups_wait_for_the_store(tmp_path):
    with Fleet(tmp_path, "a", lease=LEASE, **{"fleet-outage": "1s", "fleet-hold": "300ms"}) as fleet:
        fleet["a"].allow(*ODD, "may not have the record")
        front = Front(fleet["a"])
        g.wait_until(lambda: front.get("/groups").status == 200, 20, "the node has the dispatcher")
        submit(front, "one")
        fleet.server.stop()
        answers = []

        def is_refused():
            answers.append(front.put("/groups/two", {"queue": "q", "runner": "r", "n": 1, "input": 1}))
            return answers[-1].status == 503
        assert is_refused(), answers[-1].text
        assert answers[-1].json()["error"]["code"] == "storage_unavailable" and answers[-1].headers["x-should-retry"] == "true"
        fleet.server.start()        # without its data
        g.wait_until(lambda: not is_refused(), 30, "the store has the groups again")
        assert answers[-1].status in (200, 201)
        assert list(groups(front)) == ["one", "two"]


def test_a_session_ends_after_the_store_knows_why(tmp_path):
    with Fleet(tmp_path, "a", lease="20s") as fleet:
        fleet["a"].allow(*ODD)
        front = Front(fleet["a"])
        submit(front, "one", n=1)
        attempt, = claim(front, "r", 1)
        path = f"/sessions/{attempt['session']['session_id']}"
        end = f"/attempts/{attempt['attempt_id']}/end"
        wait_whole(fleet)
        fleet.server.process.send_signal(signal.SIGSTOP)
        try:
            ending = Later(lambda: front.post(end, {"executor": "test", "outcome": "error"}))
            g.wait_until(lambda: front.get("/attempts").json()["attempts"] == [], 10, "the end is recorded here")
            for _ in range(20):
                assert front.get(path).json()["phase"] == "open"
        finally:
            fleet.server.process.send_signal(signal.SIGCONT)
        assert ending.get().status == 200
        g.wait_until(lambda: front.get(path).json().get("phase") != "open", 20, "the session is aborted")


def open_attempts(front):
    """The sessions of attempts that are open."""
    return {row["session_id"] for row in front.get("/sessions?label=attempt&phase=open").json()["sessions"]}


def test_a_dispatcher_that_is_cut_off_makes_no_sessions(tmp_path):
    """Another node may have its place, and may have looked for sessions without an attempt already."""
    with FarFleet(tmp_path, "ab", lease=LEASE, engine="builtin:echo") as fleet:
        for gateway in fleet:
            gateway.allow(*ODD)
        g.wait_until(lambda: fleet.owner("d"), 20, "a node has the dispatcher")
        cut, other = owner_and_other(fleet)
        front = Front(fleet[cut])
        submit(front, "one", n=4)
        attempts = claim(front, "r", 4)
        fleet.wait_settled()
        for a in attempts:      # each rollout rests for a second
            assert front.post(f"/attempts/{a['attempt_id']}/end", {"executor": "test", "outcome": "infra"}).json() == {"rollout": "retry"}
        late = Later(lambda: front.post("/attempts/claim", {"executor": "cut off", "slots": {"r": 4}, "wait_s": 5}))
        fleet.switch.cut(cut, "store")
        g.wait_until(lambda: fleet.owner("d") == other, 20, "the other node has the dispatcher")
        assert not late.get().json().get("attempts")
        front, mine = Front(fleet[other]), set()
        while len(mine) < 4:
            mine |= {a["session"]["session_id"] for a in claim(front, "r", 4)}
        fleet.switch.heal()
        g.wait_until(lambda: open_attempts(front) == mine, 20, "no other session is open")


def test_a_node_without_dispatcher_has_none(tmp_path):
    with Fleet(tmp_path, "ab", lease=LEASE, start=False, **{"fleet-hold": "1s"}) as fleet:
        b = fleet["b"]
        b.settings["dispatcher"] = "off"
        for gateway in fleet:
            gateway.allow(*ODD)
        b.start()
        answer = b.get("/groups", headers=AS_ADMIN)
        assert answer.status == 404, answer.text
        fleet["a"].start()
        g.wait_until(lambda: fleet.owner("d") == "a", 20, "the node with a dispatcher has it")
        submit(Front(b), "one")
        wait_whole(fleet)
        fleet["a"].kill()
        g.wait_until(lambda: b.get("/groups", headers=AS_ADMIN).json()["error"]["code"] == "no_owner", 20, "nobody serves groups")

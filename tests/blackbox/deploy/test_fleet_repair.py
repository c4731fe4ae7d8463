"""What an operator decides about a lost node: `rollgate fleet take` and `forget`."""
import contextlib
import os
import pathlib
import re
import signal
import subprocess

import gateway as g
import pytest

from fleet_kit import AS_ADMIN, Fleet, Later, index_of
from store_kit import Driver, Server
from test_fleet_adopt import LEASE, ODD, records, wait_whole
from test_fleet_join import reason_of


def command(fleet, *words):
    return subprocess.run([g.BINARY, "fleet", *words, f"--fleet={fleet.url}"], capture_output=True, text=True, timeout=60, check=False)


def gateway_command(fleet, *words):
    return subprocess.run([g.BINARY, "fleet", *words, f"--gateway={fleet['b'].url}", f"--key-file={fleet.folder / 'admin'}"],
                          capture_output=True, text=True, timeout=60, check=False)


def key(fleet, kind, index, more=""):
    return f"rg:{fleet.name}:{kind}:{{{index}}}{more}"


def refused(out, text, status=1):
    assert out.returncode == status and text in out.stderr and not out.stdout, out


def assert_lost(fleet, node, session):
    for answer in (fleet[node].get(f"/sessions/{session['session_id']}", headers=AS_ADMIN), fleet.chat(node, session, "more")):
        assert (answer.status, answer.json()["error"]["code"]) == (410, "session_lost"), answer.text
        assert session["session_id"] in answer.text or f"index {index_of(session['session_id'])} " in answer.text


def reaches_all(gateway):
    return not gateway.get("/sessions", headers=AS_ADMIN).json().get("unreachable")


@contextlib.contextmanager
def new_store(fleet, running):
    """Ends the store for good and the running nodes. Gives nodes a and b the address of an empty one."""
    fleet.server.stop()
    with Server(fleet.folder / "other") as fleet.server:
        for node in running:
            fleet[node].stop()
        for node in "ab":
            fleet[node].settings["fleet"] = fleet.url
        yield


@pytest.fixture
def fleet(tmp_path):
    with Fleet(tmp_path, "b", lease=LEASE, **{"fleet-hold": "20s"}) as f:
        f["b"].allow(*ODD, "has forgotten")
        yield f


def empty_store_and_lose(fleet):
    """Returns sessions of a node that was lost while it restored the store. The first two are complete there, of the third the store
    lacks records, of the fourth all."""
    fleet.add("a", fleet_lease="5s").start().allow(*ODD, "has forgotten")
    sessions = [fleet.create("a") for _ in range(4)]
    index = index_of(sessions[0]["session_id"])
    for session in sessions:
        assert fleet.chat("a", session, "one").status == 200
    wait_whole(fleet, sessions[0])
    had = records(fleet, "a", sessions[0])
    fleet.server.ask("FLUSHALL")
    ids = {s["session_id"] for s in sessions}
    # the keeper restores the entries; its next renewal, a second later, would make the place whole
    g.wait_until(lambda: fleet.entry("block:0") and fleet["a"].log().count(f"place claimed index={index} ") == 2, 20, "it has them back")
    os.kill(fleet["a"].child("keeper"), signal.SIGSTOP)
    g.wait_until(lambda: set(fleet.server.ask("SMEMBERS", key(fleet, "complete", index))) == ids, 20, "all is sent again")
    fleet.lose("a")
    assert fleet.entry(f"place:{{{index}}}")["whole"] == "0"
    torn, gone = (s["session_id"] for s in sessions[2:])
    fleet.server.ask("SREM", key(fleet, "complete", index), torn, gone)       # as if these were not sent yet
    fleet.server.ask("LTRIM", key(fleet, "log", index, f":{torn}"), 0, 0)
    fleet.server.ask("DEL", key(fleet, "log", index, f":{gone}"))
    fleet.server.ask("HDEL", key(fleet, "sessions", index), gone)
    return sessions, index, had


def test_complete_sessions_of_a_taken_place_go_on_and_the_others_are_lost(fleet):
    sessions, index, had = empty_store_and_lose(fleet)
    refused(command(fleet, "take", str(index)), "add --incomplete", 2)
    out = command(fleet, "take", str(index), "--incomplete")
    assert out.returncode == 0, out
    assert re.findall("^lost: (.*)$", out.stdout, re.M) == [sessions[2]["session_id"]] and "2 of its sessions are complete" in out.stdout
    for session in sessions[:2]:
        assert fleet.chat("b", session, "two").status == 200
    assert fleet.owner(index) == "b" and records(fleet, "b", sessions[0])[:1] == had
    for session in sessions[2:]:
        assert_lost(fleet, "b", session)
    refused(command(fleet, "take", str(index), "--incomplete"), "is whole")
    fleet["b"].stop()
    fleet["b"].start()
    assert_lost(fleet, "b", sessions[3])
    assert fleet.chat("b", sessions[1], "three").status == 200
    fleet.server.ask("FLUSHALL")
    g.wait_until(lambda: fleet.entry(f"place:{{{index}}}").get("taken") == "1", 20, "its owner brings it back")
    assert_lost(fleet, "b", sessions[3])


def test_a_place_that_the_store_has_lost_with_its_node_is_taken(fleet):
    fleet.add("a").start().allow(*ODD)
    session = fleet.create("a")
    index = index_of(session["session_id"])
    fleet.lose("a")
    fleet.server.ask("FLUSHALL")
    g.wait_until(lambda: fleet.owner(index) == "a", 20, "the other node restores the entry")
    assert fleet.entry(f"place:{{{index}}}")["whole"] == "0"
    status = gateway_command(fleet, "status").stdout
    assert re.search(r"\(no owner\) +1 +1$", status, re.M), status
    fleet["a"].start()      # without its disk
    answer = fleet["a"].get(f"/sessions/{session['session_id']}", headers=AS_ADMIN, timeout=60)
    assert (answer.status, answer.json()["error"]["code"]) == (503, "no_owner"), answer.text
    assert command(fleet, "take", str(index), "--incomplete").returncode == 0
    g.wait_until(lambda: fleet["b"].get(f"/sessions/{session['session_id']}", headers=AS_ADMIN).status == 410, 20, "nodes know it")
    assert_lost(fleet, "b", session)


def test_a_place_that_the_store_has_lost_with_its_node_and_that_was_made_anew(fleet):
    """The node returns without its disk before others restore its entries: its new sessions go on, the old ones are lost."""
    fleet.add("a").start().allow(*ODD)
    session = fleet.create("a")
    index = index_of(session["session_id"])
    fleet.lose("a")
    keeper = fleet["b"].child("keeper")
    os.kill(keeper, signal.SIGSTOP)
    fleet.server.ask("FLUSHALL")
    with Driver(fleet.url) as a:
        a.put(f"block:{index // 256}", "a", 1)
        assert a.claim(index, "a", block=index // 256)["whole"]
        os.kill(keeper, signal.SIGCONT)
        g.wait_until(lambda: fleet.entry(f"place:{{{index}}}").get("taken") == "1", 20, "it is marked")
    assert fleet.owner(index) == "a" and fleet.entry(f"place:{{{index}}}")["whole"] == "1"
    fleet["a"].start()
    assert fleet.chat("a", fleet.create("a"), "new").status == 200
    assert_lost(fleet, "a", session)


def test_what_take_refuses(fleet):
    session = fleet.create("b")
    index = index_of(session["session_id"])
    wait_whole(fleet, session)
    refused(command(fleet, "take", str(index), "--incomplete"), f"place {index} is whole")
    with Driver(fleet.url) as played:       # a node that restores its place
        epoch = played.claim(512, "x", known=5, block=2)["epoch"]
        taking = Later(lambda: command(fleet, "take", "512", "--incomplete"))
        while taking.thread.is_alive():
            played.renew("x", [512, epoch, False])
            g.pause(0.1, "its next beat")
        refused(taking.get(), "place 512 has a living owner: node x")
    refused(command(fleet, "take", str(index + 9), "--incomplete"), f"place {index + 9} does not exist, and its node lives: b")
    refused(command(fleet, "take", "w7", "--incomplete"), '"w7" is no index', 2)
    refused(command(fleet, "take", "--incomplete"), "usage", 2)


def test_a_lost_node_without_sessions_is_forgotten(fleet):
    for node in "ac":
        fleet.add(node).start().allow(*ODD)
    session = fleet.create("a")
    assert fleet.chat("a", session, "one").status == 200
    wait_whole(fleet, session)
    refused(command(fleet, "forget", "x"), "no node x")
    refused(command(fleet, "forget", "b"), "it lives: node b")
    block = fleet.block("c")
    for node in "ac":
        fleet.lose(node)
    g.wait_until(lambda: fleet.owner(block * 256) == "", 20, "nobody needs the place")
    assert fleet.chat("b", session, "two").status == 200
    refused(command(fleet, "forget", "a"), f"place {index_of(session['session_id'])} has sessions")
    assert fleet.entry("node:a") and fleet.entry("block:1")
    out = command(fleet, "forget", "c")
    assert out.returncode == 0 and "forgotten" in out.stdout, out
    assert not [e for e in ("node:c", f"block:{block}") if fleet.entry(e)]
    place = fleet.entry(f"place:{{{block * 256}}}")
    assert place["owner"] == "" and place["vacant"] == place["epoch"]
    g.wait_until(lambda: fleet.state("b", "c") is None, 20, "nodes see it after the next list")
    assert fleet.state("b", "a") == "lost" and fleet.chat("b", session, "three").status == 200
    fleet.add("d").start()
    assert fleet.block("d") == block


def test_nodes_restore_all_sessions_to_a_new_store(fleet):
    """The store is gone for good: nodes start again with the address of another one. Adopted places return, too."""
    for node in "ac":
        fleet.add(node).start().allow(*ODD)
    sessions = {node: fleet.create(node) for node in "abc"}
    for session in sessions.values():
        assert fleet.chat("b", session, "one").status == 200
        wait_whole(fleet, session)
    adopted = index_of(sessions["c"]["session_id"])
    fleet.lose("c")
    g.wait_until(lambda: fleet.owner(adopted) in ("a", "b"), 20, "its place is adopted")
    assert fleet.chat("b", sessions["c"], "two").status == 200
    wait_whole(fleet, sessions["c"])
    had = {node: records(fleet, "b", session) for node, session in sessions.items()}
    with new_store(fleet, "ab"):
        for node in "ab":
            fleet[node].start()
        for node, session in sessions.items():
            g.wait_until(lambda session=session: fleet.chat("a", session, "more").status == 200, 30, "it goes on")
            assert records(fleet, "a", session)[:len(had[node])] == had[node]
            wait_whole(fleet, session)
        for node in "ab":
            fleet[node].stop()


def test_sessions_of_a_node_that_was_lost_with_the_store_are_lost_and_not_unknown(tmp_path):
    """The other nodes start again with a new store. They have the lost node's indexes in their state folders."""
    with Fleet(tmp_path, "ab", lease=LEASE, **{"fleet-hold": "200ms"}) as fleet:
        for gateway in fleet:
            gateway.allow(*ODD, "has forgotten")
        session = fleet.create("a")
        index = index_of(session["session_id"])
        assert fleet.chat("b", session, "one").status == 200
        known = pathlib.Path(f"{fleet['b'].folder}/state/fleet-places")
        g.wait_until(lambda: known.exists() and re.search(f"^{index} .* a$", known.read_text(), re.M), 20, "b has written it down")
        fleet.lose("a")
        with new_store(fleet, "b"):
            fleet["b"].start()
            while fleet.owner(index) != "a":
                answer = fleet.chat("b", session, "two")
                assert (answer.status, answer.json()["error"]["code"]) == (503, "no_owner"), answer.text
            assert command(fleet, "take", str(index), "--incomplete").returncode == 0
            g.wait_until(lambda: fleet.chat("b", session, "two").status == 410, 20, "nodes know it")
            assert_lost(fleet, "b", session)
            g.wait_until(lambda: re.search(f"^{index} .* v $", known.read_text(), re.M), 20, "b has written it down")
            fleet["b"].stop()
            fleet.server.ask("FLUSHALL")        # one more new store
            fleet["b"].start()
            assert_lost(fleet, "b", session)
            g.wait_until(lambda: fleet.entry(f"place:{{{index}}}").get("vacant", "0") != "0", 20, "it is lost for good")
            fleet["a"].start()
            assert_lost(fleet, "a", session)
            assert fleet.chat("a", fleet.create("a"), "new").status == 200
            for node in "ab":
                fleet[node].stop()


def test_a_state_folder_is_of_one_fleet(tmp_path):
    """There other nodes may go on with its sessions."""
    with Fleet(tmp_path, "ab", lease=LEASE) as fleet:
        for gateway in fleet:
            gateway.allow(*ODD, "of the fleet")
        session = fleet.create("a")
        fleet["a"].kill()
        fleet["a"].settings["fleet"] = fleet.server.url("other")
        reason = reason_of(fleet["a"]).replace('\\"', '"')
        assert "--fleet: --state-dir" in reason and 'is of the fleet "test", not of "other"' in reason, reason
        assert fleet.chat("b", session, "one").status == 200, "it goes on here"
        known = pathlib.Path(f"{fleet['a'].folder}/state/fleet-places")
        places = known.read_text()
        known.write_text(places + "7 x - a\n")
        line = places.count("\n") + 1
        reason_of(fleet["a"])
        assert f"fleet-places: line {line} is damaged" in fleet["a"].log()
        known.unlink()
        known.mkdir()
        reason_of(fleet["a"])
        assert "cannot read" in fleet["a"].log()
        known.rmdir()
        known.write_text(places)
        fleet["a"].settings["fleet"] = fleet.url
        fleet["a"].start()
        assert fleet.chat("a", session, "two").status == 200


def test_new_nodes_may_join_a_new_store_first(fleet):
    """They get the indexes of a node that comes later, which gets those with its sessions back. Sessions of both go on."""
    session = fleet.create("b")
    index = index_of(session["session_id"])
    assert fleet.chat("b", session, "one").status == 200
    wait_whole(fleet, session)
    had = records(fleet, "b", session)
    fleet.add("a").allow(*ODD, "another node owns a place")
    fleet["b"].allow("has other indexes now")
    with new_store(fleet, "b"):
        fleet["a"].start()
        later = fleet.create("a")
        assert index_of(later["session_id"]) == index and fleet.chat("a", later, "one").status == 200
        fleet["b"].start()
        for node in "ab":
            for one in (session, later):
                g.wait_until(lambda node=node, one=one: fleet.chat(node, one, "more").status == 200, 30, "it goes on")
        assert fleet.owner(index) == "b" and records(fleet, "a", session)[:1] == had and len(records(fleet, "a", later)) == 3
        new = [fleet.create(node) for node in "ab"]
        assert all(fleet.chat("a", one, "one").status == 200 for one in new)
        for node in "ab":
            fleet[node].stop()


def test_places_that_were_forgotten_do_not_return_with_a_node(fleet):
    for node in "ac":
        fleet.add(node).start().allow(*ODD)
    places = {node: fleet.block(node) * 256 for node in "ac"}
    known = pathlib.Path(f"{fleet['a'].folder}/state/fleet-places")
    g.wait_until(lambda: known.exists() and re.search(f"^{places['c']} .* c$", known.read_text(), re.M), 20, "a has written it down")
    fleet["a"].stop()
    fleet.lose("c")
    for node in "ca":
        g.wait_until(lambda node=node: fleet.owner(places[node]) == "", 20, "nobody needs the place")
        g.wait_until(lambda node=node: command(fleet, "forget", node).returncode == 0, 20, "it is lost")
    fleet["a"].start()
    g.pause(3 * float(LEASE[:-1]), "a claim")
    assert fleet.owner(places["c"]) == ""
    for gateway in (fleet["a"], fleet["b"]):
        assert reaches_all(gateway)
        assert gateway.get(f"/sessions/w{places['c']}-{'0' * 32}", headers=AS_ADMIN).status == 404


def test_a_node_that_knows_no_session_of_an_index_gives_it_back(fleet):
    """A node that is new, or has lost its disk, starts with a new store before the node that has its index."""
    fleet.add("a").start().allow(*ODD)
    fleet["b"].allow("another node owns a place")
    session = fleet.create("b")
    index = index_of(session["session_id"])
    assert fleet.chat("b", session, "one").status == 200
    wait_whole(fleet, session)
    fleet.lose("b")
    g.wait_until(lambda: fleet.owner(index) == "a", 20, "its place is adopted")
    assert fleet.chat("a", session, "two").status == 200
    wait_whole(fleet, session)
    had = records(fleet, "a", session)
    with new_store(fleet, "a"):
        fleet["b"].start()
        later = fleet.create("b")
        assert index_of(later["session_id"]) == index and fleet.chat("b", later, "one").status == 200
        fleet["a"].start()
        for one in (session, later):
            g.wait_until(lambda one=one: fleet.chat("b", one, "more").status == 200, 30, "it goes on")
        assert fleet.owner(index) == "a" and records(fleet, "a", session)[:len(had)] == had
        assert len(records(fleet, "a", later)) == 2
        for node in "ab":
            fleet[node].stop()


def test_the_node_that_had_an_index_later_gets_it_though_it_starts_later(fleet):
    """A node that was lost starts with a new store before the node that went on with its sessions."""
    fleet.add("a").start().allow(*ODD, "has other bytes", "does not fit")
    fleet["b"].allow("another node owns a place")
    kept, forked, longer, shorter = sessions = [fleet.create("b") for _ in range(4)]
    index = index_of(kept["session_id"])
    assert all(fleet.chat("b", s, "one").status == 200 for s in sessions)
    wait_whole(fleet, kept)
    fleet["b"].kill()
    for session, n in ((kept, 1), (longer, 2), (shorter, 1)):
        assert all(fleet.chat("a", session, f"two {i}").status == 200 for i in range(n))
    wait_whole(fleet, kept)
    had = records(fleet, "a", kept)
    with new_store(fleet, "a"):
        fleet["b"].start()
        for session, n in ((forked, 1), (longer, 1), (shorter, 2)):
            g.wait_until(lambda session=session: fleet.chat("b", session, "fork").status == 200, 30, "it goes on")
            assert all(fleet.chat("b", session, f"fork {i}").status == 200 for i in range(1, n))
        wait_whole(fleet, kept)
        fleet["b"].stop()
        fleet["b"].start()          # its claim is newer now than that of the other
        forks = g.wait_until(lambda: fleet.chat("b", forked, "more").status == 200 and records(fleet, "b", forked), 30, "it goes on")
        fleet["a"].start()
        g.wait_until(lambda: fleet.chat("b", kept, "more").status == 200 and fleet.owner(index) == "a", 30, "it goes on")
        assert records(fleet, "b", kept)[:len(had)] == had and records(fleet, "b", forked) == forks
        for session in (longer, shorter):       # answered by both
            assert_lost(fleet, "b", session)
        for node in "ab":
            fleet[node].stop()


def test_a_node_gets_an_index_back_that_a_new_node_made_meanwhile(fleet):
    """The store was emptied, and a new node began with the same index before the owner noticed."""
    fleet["b"].allow("has forgotten")
    session = fleet.create("b")
    index = index_of(session["session_id"])
    assert fleet.chat("b", session, "one").status == 200
    wait_whole(fleet, session)
    had = records(fleet, "b", session)
    keeper = fleet["b"].child("keeper")
    os.kill(keeper, signal.SIGSTOP)
    fleet.server.ask("FLUSHALL")
    with Driver(fleet.url) as x:
        x.put("block:0", "x", 1)
        claim = x.claim(index, "x")
        assert (claim["verdict"], claim["whole"]) == ("done", True)
        os.kill(keeper, signal.SIGCONT)
        g.wait_until(lambda: fleet.owner(index) == "b", 20, "it is claimed back")
        refused = x.renew("x", [index, claim["epoch"], True])["refused"]
        assert refused[0][1] == "fenced" and refused[0][3] >= claim["epoch"], "it is for ever"
    g.wait_until(lambda: fleet.chat("b", session, "two").status == 200, 20, "it goes on")
    assert records(fleet, "b", session)[:1] == had[:1]
    wait_whole(fleet, session)

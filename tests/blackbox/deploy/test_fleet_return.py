"""Nodes that leave and return use their indexes again. Places from other nodes are given up when their sessions have ended, or when
their worker dies again and again."""
import contextlib
import os
import signal

import gateway as g
import pytest

from fleet_kit import AS_ADMIN, Fleet, index_of
from store_kit import Driver
from test_fleet_adopt import LEASE, ODD, folders, wait_whole

SOON = {"tombstone-ttl": "500ms", "export-retention": "500ms"}


@pytest.fixture
def fleet(tmp_path):
    with Fleet(tmp_path, "ab", lease=LEASE, **{"fleet-hold": "20s", **SOON}) as f:
        for gateway in f:
            gateway.allow(*ODD)
        yield f


def is_vacant(fleet, index):
    entry = fleet.entry(f"place:{{{index}}}")
    return entry["owner"] == "" and entry["vacant"] == entry["epoch"]


def owned(fleet, node):
    """The indexes that the node owns."""
    places = fleet[node].get("/fleet", headers=AS_ADMIN).json()["places"]
    return sorted(p["index"] for p in places if p["node"] == node and p["index"] != "dispatcher")


def test_a_node_that_returns_again_and_again_keeps_its_indexes(tmp_path):
    with Fleet(tmp_path, "ab", lease=LEASE, workers=2) as fleet:
        for gateway in fleet:
            gateway.allow(*ODD)
        first = fleet.block("a") * 256
        assert owned(fleet, "a") == [first, first + 1]
        for drains in (True, True, False, False):   # with a lost node's disk, too
            if drains:
                assert fleet["a"].post("/fleet/drain", {}, headers=AS_ADMIN).status == 200
                fleet["a"].wait(30)
            else:
                fleet["a"].kill()
            g.wait_until(lambda: all(is_vacant(fleet, first + i) for i in (0, 1)), 30, "nobody needs them")
            assert fleet["b"].get(f"/sessions/w{first}-{'0' * 32}", headers=AS_ADMIN).status == 404
            fleet["a"].start()
            assert owned(fleet, "a") == [first, first + 1]
        g.wait_until(lambda: fleet["a"].post("/sessions", {}, headers=AS_ADMIN).status == 200, 20, "it serves")
        assert {index_of(fleet.create("a")["session_id"]) for _ in range(4)} == {first, first + 1}
        assert not any(f"place adopted index={first + i} " in fleet["b"].log() for i in (0, 1))


def test_a_place_whose_sessions_have_ended_is_given_up(fleet):
    session, ended = fleet.create("a"), fleet.create("a")
    index = index_of(session["session_id"])
    for s in (session, ended):
        assert fleet.chat("a", s, "one").status == 200
    assert fleet["a"].request("DELETE", f"/sessions/{ended['session_id']}", headers=AS_ADMIN).status == 204
    wait_whole(fleet, session)
    fleet["a"].kill()
    assert fleet.chat("b", session, "two").status == 200
    fork = fleet["b"].post(f"/sessions/{session['session_id']}/fork", {}, headers=AS_ADMIN).json()
    assert index_of(fork["session_id"]) == index and fleet.chat("b", fork, "two").status == 200
    fleet["a"].start()
    assert owned(fleet, "a") == [index + 1]
    for s in (session, fork):
        assert fleet["a"].request("DELETE", f"/sessions/{s['session_id']}", headers=AS_ADMIN).status == 204
    g.wait_until(lambda: is_vacant(fleet, index), 60, "the place is given up")
    g.wait_until(lambda: f"worker-{index}" not in folders(fleet["b"]), 20, "its folder is put aside")
    assert fleet["b"].post("/sessions/abort", {"labels": {"run": "none"}}, headers=AS_ADMIN).status == 200
    g.wait_until(lambda: fleet["a"].get(f"/sessions/{session['session_id']}", headers=AS_ADMIN).status == 404, 20, "the id is unknown")
    assert fleet.create("b") and fleet["b"].child(f"worker-{index}") not in fleet["b"].family()
    fleet["a"].stop()
    fleet["a"].start()
    assert owned(fleet, "a") == [index + 1], "its own place"


def test_a_node_whose_indexes_are_used_up_gets_more(fleet):
    fleet["a"].stop()
    block = fleet.block("a")
    with Driver(fleet.url) as driver:
        for index in range(block * 256, block * 256 + 256):
            beat = int(fleet.entry(f"place:{{{index}}}").get("beat", 0))
            epoch = driver.claim(index, "a", block=block, beat=beat)["epoch"]
            driver.append(index, epoch, [f"w{index}-{'0' * 32}", 0, 0, "played"])
            driver.renew("a", [index, epoch, True])
            assert driver.claim(index, "x", block=block, beat=beat + 2)["verdict"] == "done"
    fleet["a"].allow("other indexes")
    fleet["a"].start()
    assert fleet.block("a") == 2, "the next free block"
    g.wait_until(lambda: fleet["a"].post("/sessions", {}, headers=AS_ADMIN).status == 200, 20, "it serves")
    session = fleet.create("a")
    assert index_of(session["session_id"]) == 512 and fleet.chat("b", session, "one").status == 200
    fleet["a"].stop()
    fleet["a"].start()
    assert fleet.chat("b", session, "two").status == 200 and fleet.block("a") == 2


def worker_of(gateway, index):
    """The pid of the living worker; None: there is none now."""
    pid = gateway.child(f"worker-{index}")
    return pid if pid in gateway.family() else None


def test_a_place_whose_worker_dies_again_and_again_moves(tmp_path):
    with Fleet(tmp_path, "abc", lease=LEASE, **{"fleet-hold": "30s"}) as fleet:
        for gateway in fleet:
            gateway.allow(*ODD, "process died", "died again and again")
        session = fleet.create("a")
        assert fleet.chat("a", session, "one").status == 200
        wait_whole(fleet, session)
        fleet.lose("a")
        index = index_of(session["session_id"])
        assert fleet.chat("b", session, "two").status == 200
        first = fleet.owner(index)
        other = {"b": "c", "c": "b"}[first]
        deaths = set()

        def dies():
            pid = worker_of(fleet[first], index)
            if pid:
                deaths.add(pid)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return fleet.owner(index) == other
        g.wait_until(dies, 60, "the other node has the place")
        assert fleet.chat("b", session, "three").status == 200
        assert len(deaths) == 5, deaths
        assert fleet[first].has_line("giving up the place")
        state = fleet["b"].get(f"/sessions/{session['session_id']}?records=1", headers=AS_ADMIN).json()
        assert len(state["records"]) == 3
        g.wait_until(lambda: f"worker-{index}.released" in folders(fleet[first]), 20, "its folder is put aside")


def test_a_drain_moves_the_place_of_a_dead_worker_at_once(tmp_path):
    with Fleet(tmp_path, "ab", lease="60s", **{"fleet-hold": "30s", "fleet-leave": True}) as fleet:
        fleet["a"].allow("process died")
        session = fleet.create("a")
        assert fleet.chat("a", session, "one").status == 200
        wait_whole(fleet, session)
        index = index_of(session["session_id"])
        for _ in range(4):      # the next one is started after 800 ms
            os.kill(g.wait_until(lambda: worker_of(fleet["a"], index), 20, "a worker serves"), signal.SIGKILL)
        fleet["a"].signal(signal.SIGTERM)
        fleet["a"].wait(40)
        assert fleet.owner(index) == "b", "no lease is waited for"
        assert fleet.chat("b", session, "two").status == 200


def test_records_that_only_an_old_folder_has_are_reported(tmp_path):
    with Fleet(tmp_path, "ab", lease=LEASE, **{"fleet-hold": "20s"}) as fleet:
        for gateway in fleet:
            gateway.allow(*ODD, "lacks records")
        whole, torn, gone, ended, noted = [fleet.create("a") for _ in range(5)]
        index = index_of(whole["session_id"])
        log = f"rg:{fleet.name}:log:{{{index}}}:"       # a failover has lost these
        for text, length in (("one", 3), ("two", 5)):   # its creation, and of each turn a record and the note of its delivery
            for session in (whole, torn, gone, ended, noted):
                assert fleet.chat("a", session, text).status == 200
            for session in (torn, gone, noted):
                g.wait_until(lambda key=log + session["session_id"], n=length: fleet.server.ask("LLEN", key) == n, 20, "it is noted")
        assert fleet["a"].request("DELETE", f"/sessions/{ended['session_id']}", headers=AS_ADMIN).status == 204
        wait_whole(fleet, whole)
        fleet["a"].kill()
        fleet.server.ask("LTRIM", log + noted["session_id"], 0, 3)
        fleet.server.ask("LTRIM", log + torn["session_id"], 0, 1)
        fleet.server.ask("DEL", log + gone["session_id"])
        fleet.server.ask("HDEL", f"rg:{fleet.name}:sessions:{{{index}}}", gone["session_id"])
        assert fleet.chat("b", whole, "three").status == 200
        assert fleet.chat("b", torn, "other").status == 200
        for n in range(2, 10):      # folders that were compared before
            os.mkdir(f"{fleet['a'].folder}/state/worker-{index}.released-{n}")
            with open(f"{fleet['a'].folder}/state/worker-{index}.released-{n}/compared", "xb"):
                pass
        fleet["a"].start()
        folder = f"{fleet['a'].folder}/state/worker-{index}.lost"
        g.wait_until(lambda: os.path.exists(f"{folder}/compared"), 30, "the folder is compared")
        with open(f"{folder}/compared", encoding="ascii") as f:
            found = {line.split()[0]: line.split()[1:] for line in f}
        assert set(found) == {torn["session_id"], gone["session_id"]}, found
        assert found[torn["session_id"]][1] == "2:" and found[gone["session_id"]][1:] == ["0:", "3"]
        lines = [line for line in fleet["a"].log().splitlines() if "lacks records" in line]
        assert len(lines) == 2
        missing = sum(int(rest[2]) for rest in found.values())
        g.wait_until(lambda: fleet["a"].metrics()["rollgate_fleet_missing_records_total"] == missing, 20, "they are counted")


def test_folders_that_are_put_aside_are_removed_later(fleet):
    session = fleet.create("a")
    assert fleet.chat("a", session, "one").status == 200
    wait_whole(fleet, session)
    index = index_of(session["session_id"])
    for drains in (False, True):
        if drains:
            assert fleet["a"].post("/fleet/drain", {}, headers=AS_ADMIN).status == 200
            fleet["a"].wait(30)
        else:
            fleet["a"].kill()
        assert fleet.chat("b", session, "two").status == 200
        fleet["a"].start()
        g.wait_until(lambda: fleet["a"].has_line("removed a folder"), 30, "it is removed")
        g.wait_until(lambda: all("." not in name for name in folders(fleet["a"])), 30, "none is left")
    assert fleet.owner(index) == "b" and fleet.chat("a", session, "three").status == 200
    state = f"{fleet['a'].folder}/state"
    os.mkdir(f"{state}/dispatcher.released")
    g.wait_until(lambda: "dispatcher.released" not in os.listdir(state), 30, "a dispatcher's folder is removed")

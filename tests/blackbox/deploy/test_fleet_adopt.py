"""A lost node's places get other owners; a node that returns finds some of its places taken."""
import http.server
import json
import os
import signal
import subprocess
import threading

import gateway as g
import pytest

from fleet_kit import AS_ADMIN, Fleet, index_of

LEASE = "1s"
ODD = ("the store does not answer", "store answers again", "another node owns", "place not claimed", "another node had a place",
       "a place without an owner", "a journal of a place", "watching its beat", "process ended on a signal",
       "store lacks records of a place")


@pytest.fixture
def fleet(tmp_path):
    with Fleet(tmp_path, "ab", lease=LEASE, **{"fleet-hold": "20s"}) as f:
        for gateway in f:
            gateway.allow(*ODD)
        yield f


def wait_whole(fleet, session):
    index = index_of(session["session_id"])
    g.wait_until(lambda: fleet.entry(f"place:{{{index}}}")["whole"] == "1", 20, "the place is whole")


def records(fleet, node, session):
    """The ids of its answered turns."""
    answer = fleet[node].get(f"/sessions/{session['session_id']}?records=1", headers=AS_ADMIN)
    assert answer.status == 200, answer.text
    return answer.json()["records"]


def command(fleet, *words):
    return subprocess.run([g.BINARY, "fleet", *words, f"--gateway={fleet['b'].url}", f"--key-file={fleet.folder / 'admin'}"],
                          capture_output=True, text=True, timeout=60, check=False)


def folders(gateway):
    return sorted(name for name in os.listdir(f"{gateway.folder}/state") if name.startswith("worker-"))


def test_sessions_of_a_lost_node_are_answered_by_another(fleet):
    sessions = [fleet.create("a") for _ in range(3)]
    for session in sessions:
        for text in ("one", "two"):
            assert fleet.chat("b", session, text).status == 200
    before = [records(fleet, "a", s) for s in sessions]
    wait_whole(fleet, sessions[0])
    fleet.lose("a")
    for session, text in zip(sessions, ("three", "four", "five")):
        assert fleet.chat("b", session, text).status == 200
    index = index_of(sessions[0]["session_id"])
    assert fleet.owner(index) == "b"
    for session, had in zip(sessions, before):
        now = records(fleet, "b", session)
        assert now[:2] == had and len(now) == 3
    own = {fleet.block("b") * 256}
    assert {index_of(fleet.create("b")["session_id"]) for _ in range(6)} == own, "new sessions have own indexes"
    assert {f"worker-{i}" for i in {index} | own} <= set(folders(fleet["b"]))
    fleet["b"].stop()
    fleet["b"].start()
    for session in sessions:
        assert fleet.chat("b", session, "after a restart").status == 200


def test_sessions_of_a_node_that_never_renewed_its_place_are_adopted(tmp_path):
    """Its first renewal is due after a fifth of its lease."""
    with Fleet(tmp_path, "", lease=LEASE) as fleet:
        fleet.add("a", fleet_lease="60s").start()
        session = fleet.create("a")
        assert fleet.chat("a", session, "one").status == 200
        index = index_of(session["session_id"])
        assert fleet.entry(f"place:{{{index}}}")["beat"] == "1", "of its claim"
        had = records(fleet, "a", session)
        fleet.lose("a")
        fleet.add("b").start()
        assert fleet.chat("b", session, "two").status == 200
        assert records(fleet, "b", session)[:1] == had


def test_a_node_that_returns_finds_its_places_taken(fleet):
    session = fleet.create("a")
    assert fleet.chat("a", session, "one").status == 200
    wait_whole(fleet, session)
    fleet["a"].kill()
    assert fleet.chat("b", session, "two").status == 200
    index = index_of(session["session_id"])
    fleet["a"].start()
    assert f"worker-{index}.lost" in folders(fleet["a"])
    assert fleet.owner(index) == "b"
    assert fleet.chat("a", session, "three").status == 200
    fresh = fleet.create("a")
    assert index_of(fresh["session_id"]) == index + 1, "the next index of its block"
    assert fleet.chat("b", fresh, "one").status == 200


def test_a_frozen_node_loses_its_places_and_goes_on(fleet):
    session = fleet.create("a")
    assert fleet.chat("a", session, "one").status == 200
    wait_whole(fleet, session)
    index = index_of(session["session_id"])
    fleet.freeze("a")
    g.wait_until(lambda: fleet.owner(index) == "b", 20, "the place is adopted")
    assert fleet.chat("b", session, "two").status == 200
    fleet.thaw("a")
    g.wait_until(lambda: f"worker-{index}.lost" in folders(fleet["a"]), 20, "the folder is put aside")
    g.wait_until(lambda: fleet["a"].post("/sessions", {}, headers=AS_ADMIN).status == 200, 20, "a worker replaces the one that ended")
    assert index_of(fleet.create("a")["session_id"]) == index + 1
    assert fleet.chat("a", session, "three").status == 200
    fleet.lose("b")
    assert fleet.chat("a", session, "four").status == 200
    assert fleet.owner(index) == "a"


def test_an_upgrade_keeps_adopted_places(fleet):
    session = fleet.create("a")
    assert fleet.chat("a", session, "one").status == 200
    wait_whole(fleet, session)
    fleet.lose("a")
    assert fleet.chat("b", session, "two").status == 200
    fleet["b"].log_start = len(fleet["b"].log())
    fleet["b"].signal(signal.SIGUSR2)
    fleet["b"].wait_serving()
    assert fleet.chat("b", session, "three").status == 200


def test_a_frozen_node_gives_up_places_of_retired_workers(tmp_path):
    config = tmp_path / "a.yaml"
    config.write_text("workers: 2\n")
    with Fleet(tmp_path, "b", lease=LEASE, **{"fleet-hold": "20s", "grace": "1s"}) as fleet:
        a = fleet.add("a", workers=None, config=config).start()
        for gateway in fleet:
            gateway.allow(*ODD)
        fleet.wait_known()
        sessions = {index_of(s["session_id"]): s for s in (fleet.create("a") for _ in range(8))}
        assert len(sessions) == 2
        for session in sessions.values():
            assert fleet.chat("a", session, "one").status == 200
            wait_whole(fleet, session)
        config.write_text("workers: 1\nsink-inline-max: 4MiB\n")     # another node could not read the file
        a.allow("not reloaded")
        a.signal(signal.SIGHUP)
        a.wait_line("not reloaded.*--sink-inline-max: 4194304")
        config.write_text("workers: 1\n")
        a.signal(signal.SIGHUP)
        a.wait_line("sessions adopted")
        fleet.freeze("a")
        for index in sessions:
            g.wait_until(lambda index=index: fleet.owner(index) == "b", 20, "the place is adopted")
        fleet.thaw("a")
        for index in sessions:
            g.wait_until(lambda index=index: f"worker-{index}.lost" in folders(a), 20, "the folder is put aside")
        fleet.lose("b")
        for index, session in sessions.items():
            assert fleet.chat("a", session, "two").status == 200
            assert fleet.owner(index) == "a" and len(records(fleet, "a", session)) == 2


def test_a_place_that_cannot_be_served_does_not_hinder_a_start(fleet):
    """The worker of an adopted place ends again and again, because its folder is none."""
    session = fleet.create("a")
    assert fleet.chat("a", session, "one").status == 200
    wait_whole(fleet, session)
    fleet.lose("a")
    assert fleet.chat("b", session, "two").status == 200
    state = f"{fleet['b'].folder}/state"
    folder = f"{state}/worker-{index_of(session['session_id'])}"
    fleet["b"].stop()
    fleet["b"].allow("process died", "cannot write which claim", "cannot read which claim")
    os.rename(folder, f"{state}/kept")
    with open(folder, "w", encoding="ascii"):
        pass
    fleet["b"].start()
    fleet["b"].wait_line("process died")
    assert fleet.create("b")
    index = index_of(session["session_id"])
    assert index in fleet["b"].get("/sessions", headers=AS_ADMIN).json()["unreachable"]
    answer = fleet["b"].post("/sessions/abort", {"labels": {"run": "none"}}, headers=AS_ADMIN)
    assert answer.status == 503 and f"w{index}" in answer.text, answer.text
    os.remove(folder)
    os.rename(f"{state}/kept", folder)
    assert fleet.chat("b", session, "three").status == 200


def drained(fleet, node, how):
    """Gives all of the node's places away under load; how many calls there were."""
    other, calls, failed, done = "b", [], [], threading.Event()
    sessions = [fleet.create(node) for _ in range(4)]

    def talk(session):
        turn = 0
        while not done.is_set() or turn < 2:
            turn += 1
            answer = fleet.chat(other, session, f"turn {turn}")
            calls.append(answer.status)
            if answer.status != 200:
                failed.append(answer.text)

    threads = [threading.Thread(target=talk, args=(s,)) for s in sessions]
    for thread in threads:
        thread.start()
    g.wait_until(lambda: len(calls) >= 8, 20, "they talk")
    how()
    fleet[node].wait(30)
    done.set()
    for thread in threads:
        thread.join()
    assert not failed, failed
    for session in sessions:
        index = index_of(session["session_id"])
        assert fleet.owner(index) == other
        mine = records(fleet, other, session)
        assert len(mine) == len({str(r) for r in mine})
    assert sum(len(records(fleet, other, s)) for s in sessions) == len(calls)
    return len(calls)


def test_a_drained_node_makes_no_sessions(fleet):
    """One call runs on: the node cannot end yet."""
    fleet["a"].allow("refused")
    session = fleet.create("a")
    assert fleet["a"].post("/fleet/drain", {}, headers=AS_ADMIN).status == 200
    made = fleet.create("a")
    assert index_of(made["session_id"]) // 256 in (fleet.block("a"), fleet.block("b")) and fleet.chat("b", made, "one").status == 200
    assert fleet.chat("b", session, "one").status == 200
    fleet["a"].wait(30)


def test_a_drained_node_gives_its_sessions_away(fleet):
    assert drained(fleet, "a", lambda: fleet["a"].post("/fleet/drain", {}, headers=AS_ADMIN)) > 8
    assert fleet["a"].process.returncode == 0
    kept = folders(fleet["a"])
    assert kept == [f"worker-{fleet.block('a') * 256}.released"]
    fleet["a"].start()
    assert fleet.create("a")
    assert set(kept) < set(folders(fleet["a"])) and not fleet["a"].has_line("another node had a place")


def test_endpoints_waits_for_a_gateway_that_starts(tmp_path):
    with Fleet(tmp_path, "b", start=False) as fleet:
        out = command(fleet, "endpoints")
        assert out.returncode == 1 and "refused" in out.stderr, out
        words = [g.BINARY, "fleet", "endpoints", "--wait=1", f"--gateway={fleet['b'].url}", f"--key-file={fleet.folder / 'admin'}"]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as waiting:
            assert f"waiting for {fleet['b'].url}: " in waiting.stderr.readline()
            fleet["b"].start()
            assert waiting.communicate(timeout=60) == (f"{fleet['b'].url}\n", "") and waiting.returncode == 0


def test_term_drains_a_node_that_leaves(tmp_path):
    """Were a lease waited for, calls would be held for too long and fail."""
    with Fleet(tmp_path, "ab", lease="12s", **{"fleet-leave": True, "fleet-hold": "6s"}) as fleet:
        endpoints = command(fleet, "endpoints", "--wait=2")
        assert sorted(endpoints.stdout.split()) == sorted(gateway.url for gateway in fleet)
        assert drained(fleet, "a", lambda: fleet["a"].signal(signal.SIGTERM)) > 8
        session = fleet.create("b")
        assert fleet.chat("b", session, "one").status == 200


def test_the_command_drains_a_node(fleet):
    out = []
    assert drained(fleet, "a", lambda: out.append(command(fleet, "drain", "a"))) > 8
    assert out[0].returncode == 0 and "has no places" in out[0].stdout, out[0]
    unknown = command(fleet, "drain", "x")
    assert unknown.returncode == 1 and 'no node "x"' in unknown.stderr


def test_the_drain_command_ends_when_the_node_is_lost():
    """A place that is not whole stays with its node. One answer that fails does not end the command."""
    class Node(http.server.BaseHTTPRequestHandler):
        requests = []

        def do_GET(self):
            self.requests.append(self.command)
            state = "up" if len(self.requests) < 4 else "lost"
            fleet = {"nodes": [{"name": "b", "state": state, "address": f"127.0.0.1:{self.server.server_port}"}],
                     "places": [{"index": 0, "node": "b", "whole": False}]}
            body = json.dumps(fleet).encode()
            self.send_response(503 if len(self.requests) == 3 else 200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Node) as server:
        threading.Thread(target=server.serve_forever).start()
        out = subprocess.run([g.BINARY, "fleet", "drain", "b", f"--gateway=http://127.0.0.1:{server.server_port}"],
                             capture_output=True, text=True, timeout=60, check=False)
        server.shutdown()
    assert out.returncode == 1 and "node b has ended, and 1 of its places were not taken" in out.stderr, out
    assert Node.requests[:4] == ["GET", "POST", "GET", "GET"]


def test_waits_of_a_drained_node_end_at_once(fleet):
    """The sockets of ended workers accept nothing, so the node does not need its grace."""
    session, answers = fleet.create("a"), []
    path = f"/sessions/{session['session_id']}/wait?timeout_s=9"
    waits = [threading.Thread(target=lambda node=node: answers.append(fleet[node].get(path, headers=AS_ADMIN))) for node in "ab"]
    for thread in waits:
        thread.start()
    g.pause(0.5, "the workers have got the waits")
    assert fleet["a"].post("/fleet/drain", {}, headers=AS_ADMIN).status == 200
    fleet["a"].wait(20)
    for thread in waits:
        thread.join()
    # 204: a late one waited at the next owner
    assert len(answers) == 2 and all(a.status == 204 or (a.status, a.headers["x-should-retry"]) == (503, "true") for a in answers)
    assert fleet.chat("b", session, "one").status == 200


def test_a_stop_does_not_cancel_a_drain(tmp_path):
    """Without another node that is up nothing is drained."""
    with Fleet(tmp_path, "ab", lease="60s") as fleet:
        session = fleet.create("a")
        assert fleet.chat("a", session, "one").status == 200
        assert fleet["a"].post("/fleet/drain", {}, headers=AS_ADMIN).status == 200
        fleet["a"].signal(signal.SIGTERM)
        fleet["a"].wait(30)
        assert fleet.chat("b", session, "two").status == 200
        assert fleet.owner(index_of(session["session_id"])) == "b"
        refused = fleet["b"].post("/fleet/drain", {}, headers=AS_ADMIN)
        assert refused.status == 503 and "none can take its places" in refused.text
        assert fleet.chat("b", session, "three").status == 200


def test_term_without_another_node_keeps_the_places(tmp_path):
    with Fleet(tmp_path, "a", **{"fleet-leave": True}) as fleet:
        index = index_of(fleet.create("a")["session_id"])
        fleet["a"].stop()
        assert fleet.owner(index) == "a"

"""A failover loses the last records of the store, and their node is lost with its disk. Nobody has these records. The next owner of
the sessions says so: in their state, in exports, in the log and in a metric."""
import contextlib
import json
import pathlib
import re
import shutil
import subprocess

import pytest

import gateway as g
from fleet_kit import AS_ADMIN, Fleet, Later, index_of
from store_kit import Proxy, Server

ODD = ("the store does not answer", "store answers again", "another node owns", "place not claimed", "a place without an owner",
       "watching its beat", "process ended on a signal", "the store has forgotten", "no replica", "answers wait")
DOUBT = "may be missing"
LOG = "records of a lost node may be missing"


class FailingFleet(Fleet):
    """A fleet whose nodes reach their store through a proxy, and whose store has a replica that can be cut off and promoted."""

    def __init__(self, folder, nodes="ab", **settings):
        self.proxy, self.cable, self.replica = None, None, None
        self.old = Server(folder / "store", *settings.pop("options", ()))
        self.proxy = Proxy(self.old.port)
        super().__init__(folder, nodes, lease="1s", server=self.old, **{"fleet-hold": "20s", "fleet-outage": "20s", **settings})

    @property
    def url(self):
        return self.proxy.url(self.name)

    def add(self, node, **settings):
        gateway = super().add(node, **settings)
        gateway.allow(*ODD, LOG)
        return gateway

    def __enter__(self):
        try:
            return super().__enter__()
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *exc):
        super().__exit__(*exc)
        for part in (self.proxy, self.cable):
            if part:
                part.__exit__()
        self.old.stop()

    def replicate(self):
        self.cable = Proxy(self.server.port)
        self.replica = Server(self.folder / "replica").start()
        self.replica.ask("REPLICAOF", "127.0.0.1", self.cable.port)
        g.wait_until(lambda: self.replica.ask("ROLE")[3] == "connected" and self.server.ask("ROLE")[2], 20, "it is connected")

    def cut_replica(self):
        """From now on the replica misses what the store gets."""
        at = self.server.ask("INFO", "replication")["master_repl_offset"]
        g.wait_until(lambda: self.replica.ask("INFO", "replication")["slave_repl_offset"] >= at, 20, "the replica has all")
        self.cable.target = g.free_port()
        self.cable.cut()
        g.wait_until(lambda: not self.server.ask("ROLE")[2], 20, "the replica is cut off")

    def promote(self):
        self.server.stop()
        self.replica.ask("REPLICAOF", "NO", "ONE")
        self.use(self.replica)

    def use(self, server):
        self.server, self.proxy.target = server, server.port
        self.proxy.cut()

    def wait_compared(self, *sessions, acks="1"):
        """Waits until the store remembers which server has all records of these places, and that marks are among them."""
        known = [self.server.ask("INFO", "replication")["master_replid"][:16], acks, "0"]
        for index in {index_of(s["session_id"]) for s in sessions}:
            key = f"place:{{{index}}}"
            g.wait_until(lambda key=key: [self.entry(key).get(name) for name in ("server", "acks", "doubt")] == known, 20, "the server has all")

    def drain(self, node):
        """Drains the node when another one can take its places."""
        g.wait_until(lambda: self[node].post("/fleet/drain", {}, headers=AS_ADMIN).status == 200, 20, "the drain begins")
        self[node].wait(30)

    def state(self, node, session):
        answer = self[node].get(f"/sessions/{session['session_id']}?records=1", headers=AS_ADMIN)
        assert answer.status == 200, answer.text
        return answer.json()

    def doubts(self, node, session):
        """The sentences of doubt in the session's state, which its row and its exports have, too."""
        found = [w for w in self.state(node, session)["warnings"] if DOUBT in w]
        path = f"/sessions/{session['session_id']}/trajectories"
        export = self[node].get(f"{path}?format=json", headers=AS_ADMIN).json()
        assert [w for w in export["summary"]["warnings"] if DOUBT in w] == found
        line = json.loads(self[node].get(f"{path}?format=openai-messages", headers=AS_ADMIN).body.split(b"\n")[0])
        row, = (row for row in self[node].get("/sessions", headers=AS_ADMIN).json()["sessions"] if row["session_id"] == session["session_id"])
        assert row.get("warnings", []) == line.get("warnings", []) == found
        return found

    def losses(self, node):
        """The places with lost records."""
        return {str(p["index"]) for p in self[node].get("/fleet", headers=AS_ADMIN).json()["places"] if p["loss"]}

    def claims(self, node, reason):
        return self[node].metrics()['rollgate_fleet_claims_total{reason="%s"}' % reason]


@pytest.fixture
def fleet(tmp_path):
    with FailingFleet(tmp_path, dispatcher="off") as f:
        yield f


def test_answers_that_a_promoted_replica_lacks_are_named(fleet):
    fleet.replicate()
    session, idle, other, ended = fleet.create("a"), fleet.create("a"), fleet.create("b"), fleet.create("a")
    for node, s in (("a", session), ("a", idle), ("b", other), ("a", ended)):
        assert fleet.chat(node, s, "one").status == 200
    assert fleet["a"].post(f"/sessions/{ended['session_id']}/finalize", {}, headers=AS_ADMIN).status == 200
    fleet.wait_compared(session, other)
    fleet.cut_replica()
    assert fleet.chat("a", session, "two").status == 200, "its record is at the master alone"
    unknown = fleet.create("a")
    fleet.lose("a")
    fleet.promote()
    assert fleet.chat("b", session, "three").status == 200
    assert len(fleet.state("b", session)["records"]) == 2, "one is lost"
    for s in (session, idle):
        doubt, = fleet.doubts("b", s)
    assert fleet.doubts("b", other) == fleet.doubts("b", ended) == []
    fork = fleet["b"].post(f"/sessions/{session['session_id']}/fork", {}, headers=AS_ADMIN).json()
    assert fleet.doubts("b", fork) == [doubt]
    lost = fleet.chat("b", unknown, "one")
    assert (lost.status, lost.json()["error"]["code"]) == (410, "session_lost"), lost.text
    lines = re.findall(f"{LOG}.* index=(\\S+) ", fleet["b"].log())
    assert lines == [str(index_of(session["session_id"]))], lines
    assert fleet.claims("b", "doubtful") == 1

    # the mark stays with the session, and no other follows
    fleet.wait_compared(session, other)
    fleet["b"].stop()
    fleet["b"].start()
    assert fleet.doubts("b", session) == [doubt]
    fleet["a"].start()
    fleet.drain("b")
    for s in (session, idle, fork):
        assert fleet.doubts("a", s) == [doubt]
    assert fleet.doubts("a", other) == fleet.doubts("a", ended) == []


def test_nothing_is_doubted_that_the_only_replica_has_confirmed(tmp_path):
    with FailingFleet(tmp_path, **{"fleet-acks": "2"}, start=False, dispatcher="off") as fleet:
        fleet.replicate()
        for gateway in fleet:
            gateway.start(wait=False)
        for gateway in fleet:
            gateway.wait_serving()
        session = fleet.create("a")
        assert fleet.chat("a", session, "one").status == 200
        fleet.wait_compared(session, acks="2")
        g.wait_until(lambda: fleet.replica.ask("INFO", "server")["uptime_in_seconds"] > 2, 20, "it runs for longer than a lease")
        fleet.lose("a")
        fleet.promote()
        second = Server(tmp_path / "second").start()
        with contextlib.closing(contextlib.ExitStack()) as stack:
            stack.callback(second.stop)
            second.follow(fleet.server)
            assert fleet.chat("b", session, "two").status == 200
            assert len(fleet.state("b", session)["records"]) == 2 and fleet.doubts("b", session) == []


def test_nothing_is_doubted_of_a_node_that_was_stopped(tmp_path):
    """The store restarts with all that it had before another node claims the sessions."""
    with FailingFleet(tmp_path, options=("--appendonly", "yes", "--appendfsync", "always")) as fleet:
        session = fleet.create("a")
        assert fleet.chat("a", session, "one").status == 200
        fleet.wait_compared(session)
        fleet.freeze("b")
        fleet["a"].stop()
        shutil.rmtree(f"{fleet['a'].folder}/state")
        fleet.server.stop()
        fleet.server.start()
        fleet.thaw("b")
        assert fleet.chat("b", session, "two").status == 200
        assert len(fleet.state("b", session)["records"]) == 2 and fleet.doubts("b", session) == []


@pytest.mark.parametrize("restarts", [False, True])
def test_a_node_that_was_lost_after_its_restart_is_doubted(fleet, restarts):
    """The next server has its end, and lacks its next claim, which another node has seen, maybe before its own restart."""
    fleet.replicate()
    session = fleet.create("a")
    key = f"place:{{{index_of(session['session_id'])}}}"
    assert fleet.chat("a", session, "one").status == 200
    fleet.wait_compared(session)
    fleet.freeze("b")   # the lease is short
    fleet["a"].stop()
    assert fleet.entry(key)["server"] == ""
    fleet.cut_replica()
    fleet["a"].start()
    assert fleet.chat("a", session, "two").status == 200
    fleet.thaw("b")
    epoch = fleet.entry(key)["epoch"]
    known = pathlib.Path(f"{fleet['b'].folder}/state/fleet-places")
    g.wait_until(lambda: f" {epoch} - a\n" in known.read_text(), 20, "b has seen the claim")
    fleet.lose("a")
    if restarts:
        fleet["b"].kill()
    fleet.promote()
    if restarts:
        fleet["b"].start()
    assert fleet.chat("b", session, "three").status == 200
    assert len(fleet.doubts("b", session)) == 1


def test_a_node_that_has_seen_a_lost_claim_tells_the_store(fleet):
    """The next owner, another node, has not seen it. It marks the sessions nevertheless."""
    session = fleet.create("a")
    key = f"place:{{{index_of(session['session_id'])}}}"
    fleet.wait_compared(session)
    g.wait_until(lambda: f" {fleet.entry(key)['epoch']} - a\n" in
                 pathlib.Path(f"{fleet['b'].folder}/state/fleet-places").read_text(), 20, "b has seen the claim")
    fleet.lose("a")
    # as if the server were promoted, and had the end of an earlier start of a; b cannot read the records
    fleet.server.ask("HSET", f"rg:test:{key}", "epoch", int(fleet.entry(key)["epoch"]) - 1, "server", "", "version", 99)
    g.wait_until(lambda: fleet.entry(key)["server"] == "?", 20, "b tells it")


def test_an_adopter_that_restarts_before_it_has_read_all_marks_its_sessions(fleet):
    """The store fails over meanwhile, without its claim."""
    fleet.replicate()
    session = fleet.create("a")
    index = index_of(session["session_id"])
    assert fleet.chat("a", session, "one").status == 200
    fleet.wait_compared(session)
    fleet.cut_replica()
    fleet.lose("a")
    g.wait_until(lambda: fleet.owner(index) == "b", 20, "it is adopted")
    fleet.freeze("b")   # its next renewal would say that all was read
    fleet["b"].kill()
    fleet.promote()
    fleet["b"].start()
    assert fleet.chat("b", session, "two").status == 200
    assert len(fleet.doubts("b", session)) == 1


def test_a_store_that_restarts_without_its_last_second(tmp_path):
    with FailingFleet(tmp_path, options=("--appendonly", "yes", "--appendfsync", "always")) as fleet:
        kept, session = fleet.create("b"), fleet.create("a")
        for node, s in (("a", session), ("b", kept)):
            assert fleet.chat(node, s, "one").status == 200
        fleet.wait_compared(session, kept)
        lost = {str(index_of(session["session_id"]))} | ({"dispatcher"} if fleet.owner("d") == "a" else set())
        folder = tmp_path / "store/appendonlydir"
        shutil.copytree(folder, tmp_path / "earlier")
        for node, s in (("a", session), ("b", kept)):
            assert fleet.chat(node, s, "two").status == 200
        fleet.lose("a")
        fleet.server.stop()
        shutil.rmtree(folder)
        shutil.copytree(tmp_path / "earlier", folder)
        fleet.server.start()
        assert fleet.chat("b", session, "three").status == 200
        assert len(fleet.state("b", session)["records"]) == 2 and len(fleet.doubts("b", session)) == 1
        assert len(fleet.state("b", kept)["records"]) == 2 and fleet.doubts("b", kept) == []
        g.wait_until(lambda: fleet.losses("b") == lost, 20, "the place of the dispatcher is claimed, too")
        out = subprocess.run([g.BINARY, "fleet", "status", f"--gateway={fleet['b'].url}", f"--key-file={tmp_path / 'admin'}"],
                             capture_output=True, text=True, timeout=60, check=True).stdout
        assert set(re.search("^records are lost, or may be, of (.*)$", out, re.M)[1].split(", ")) == lost, out
        # what is released is complete, whichever server follows
        fleet.wait_compared(session, kept)
        doubt = fleet.doubts("b", session)
        fleet["a"].start()
        fleet.drain("b")
        assert fleet.doubts("a", session) == doubt and fleet.doubts("a", kept) == []
        # nodes that cannot read the marks claim no place with them, also after the store has lost its entry
        versions = [fleet.entry(f"place:{{{index_of(s['session_id'])}}}")["version"] for s in (kept, session)]
        assert int(versions[0]) + 1 == int(versions[1])
        fleet.server.ask("FLUSHALL")
        for s, version in zip((kept, session), versions):
            key = f"place:{{{index_of(s['session_id'])}}}"
            g.wait_until(lambda key=key, version=version: fleet.entry(key).get("version") == version, 20, "it is known again")


def test_sessions_of_a_new_node_that_a_promoted_replica_lacks_are_not_unknown(fleet):
    """All nodes start again there. The others have the new node's indexes in their state folders, and wait for it."""
    fleet.replicate()
    fleet.cut_replica()
    fleet.add("c").start()
    session = fleet.create("c")
    index = index_of(session["session_id"])
    assert fleet.chat("c", session, "one").status == 200
    known = pathlib.Path(f"{fleet['a'].folder}/state/fleet-places")
    g.wait_until(lambda: re.search(f"^{index} .* c$", known.read_text(), re.M), 20, "a has written it down")
    for gateway in fleet:
        gateway.kill()
    fleet.promote()
    fleet["a"].start()
    later = Later(lambda: fleet.chat("a", session, "two"))
    g.wait_until(lambda: fleet.owner(index) == "c", 20, "the store has the index again")
    assert later.answer is None
    fleet["c"].start()
    assert later.get().status == 200 and len(fleet.state("a", session)["records"]) == 2
    assert fleet.doubts("a", session) == []

"""What nodes, cables and the store can suffer while agents talk: every answer that an agent has received is recorded once, and every
agent goes on. Nodes, store and front are network namespaces. Each failure is played RG_FLEET_ROUNDS times (`scripts/test fleet`: 50),
then its line with the longest pauses of the agents is printed."""
import contextlib
import os
import random
import shutil
import signal

import pytest

import gateway as g
from fleet_kit import AS_ADMIN
from fleet_net import LEASE_S, ROUNDS, Agents, FarFleet, back_up, leases, report, wait_claimed

AGENTS = 8
NODES = "abc"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fleet")


def play(fleet, name, failure, refused=True):
    """Plays a failure in the midst of talk. failure(number, agents) returns when it is over. Without `refused` no call may fail."""
    gaps, answers = [], 0
    for number in range(ROUNDS):
        with Agents(fleet, AGENTS) as agents:
            failure(number, agents)
            fleet.switch.heal()
            agents.wait_turns(2)
        fleet.wait_settled()
        agents.check()
        refusals = [agent.refusals for agent in agents.all if agent.refusals]
        assert refused or not refusals, refusals
        gaps += agents.gaps
        answers += agents.n_answers
    report(name, f"{answers} answers", gaps)


@pytest.mark.parametrize("front", [None, "haproxy", "nginx"])
def test_a_node_is_lost_with_its_disk(tmp_path, front):
    """Each round loses a random node."""
    chosen = random.Random(7)
    with FarFleet(tmp_path, NODES, lease=f"{LEASE_S}s", front=front) as fleet:
        def lose(*_):
            fleet.wait_settled()
            node = chosen.choice(NODES)
            fleet[node].kill()
            shutil.rmtree(f"{fleet[node].folder}/state")
            wait_claimed(fleet, node)
            fleet[node].start()
            back_up(fleet, node)
        play(fleet, f"node lost, front {front or 'of nodes'}", lose)


# --- fencing ---

# what cannot be reached from a, and from what a cannot be reached
CUTS = {"store": ["store", "store"], "nodes": ["b c", "b c"], "both": ["store b c", "store b c"], "all": ["store b c test", "store b c test"],
        "to store": ["store", ""], "from store": ["", "store"], "to nodes": ["b c", ""], "from nodes": ["", "b c"]}


@pytest.fixture(scope="module")
def fleet(folder):
    with FarFleet(folder, NODES, lease=f"{LEASE_S}s", **{"fleet-outage": "30s"}) as f:
        yield f


def test_a_node_is_frozen(fleet):
    def freeze(*_):
        fleet.freeze("a")
        wait_claimed(fleet, "a")
        leases(2)
        fleet.thaw("a")
        back_up(fleet, "a")
    play(fleet, "node frozen", freeze)


@pytest.mark.cases(5)
@pytest.mark.parametrize("what", CUTS)
def test_a_node_is_cut_off(fleet, what):
    """Node a is cut off from others, in both directions or in one."""
    def cut(*_):
        to, back = CUTS[what]
        for other in to.split():
            fleet.switch.drop("a", other)
        for other in back.split():
            fleet.switch.drop(other, "a")
        if "store" not in what and what not in ("both", "all"):
            leases(3)       # it renews, and keeps its places
        else:
            wait_claimed(fleet, "a")
            leases(2)
        fleet.switch.heal()
        back_up(fleet, "a")
    play(fleet, f"cut off from {what}", cut)


# --- the store ---

def kill_store(fleet):
    fleet.server.stop()
    leases(2)
    fleet.server.start()


def empty_store(fleet):
    fleet.server.ask("FLUSHALL")


def stop_store(fleet):
    fleet.server.process.send_signal(signal.SIGSTOP)
    leases(2)
    fleet.server.process.send_signal(signal.SIGCONT)


def fill_store(fleet):
    fleet.server.ask("CONFIG", "SET", "maxmemory", "1mb")
    leases(2)
    fleet.server.ask("CONFIG", "SET", "maxmemory", "0")


FAILURES = {"killed with its data": kill_store, "emptied": empty_store, "stopped": stop_store, "full": fill_store}


@pytest.mark.parametrize("what", FAILURES)
def test_the_store_fails(fleet, what):
    play(fleet, f"store {what}", lambda *_: FAILURES[what](fleet))


@pytest.mark.whole
def test_the_store_is_killed_and_keeps_its_file(tmp_path):
    with FarFleet(tmp_path, NODES, lease=f"{LEASE_S}s", store=("--appendonly", "yes"), **{"fleet-outage": "30s"}) as fleet:
        play(fleet, "store killed, its file kept", lambda *_: kill_store(fleet))


@pytest.fixture
def proxied(tmp_path):
    with FarFleet(tmp_path, NODES, lease=f"{LEASE_S}s", between=True, **{"fleet-outage": "30s"}) as f:
        yield f


def test_the_store_is_slow(proxied):
    def slow_down(*_):
        proxied.proxy.slow_s = 0.2
        leases(2)
        proxied.proxy.slow_s = 0
    play(proxied, "store slow by 200 ms", slow_down)


def test_a_replica_is_promoted_that_lacks_the_tail(proxied):
    """The replica is cut off for 250 ms of talk; then the server is killed."""
    def fail_over(number, _):
        replica = proxied.add_replica(f"replica-{number}")
        proxied.cut_replica(replica)
        g.pause(0.25, "the tail that the replica lacks")
        proxied.promote(replica)
    play(proxied, "replica without the last 250 ms", fail_over)


def test_the_password_of_the_store_changes(tmp_path):
    """Nodes read the file again when the server refuses them."""
    key = tmp_path / "key"
    key.write_text("first\n")
    with FarFleet(tmp_path, NODES, lease=f"{LEASE_S}s", store=("--requirepass", "first"), password_file=key) as fleet:
        def change(number, _):
            fleet.server.ask("CONFIG", "SET", "requirepass", f"next-{number}")
            fleet.server.password = f"next-{number}"
            fleet.server.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            leases(1)
            key.write_text(f"next-{number}\n")
        play(fleet, "password of the store changed", change)


# --- orderly moves ---

def test_nodes_are_drained_one_after_the_other(tmp_path):
    """No agent sees a failure: a node that has given its places away sends requests on until the front has noticed."""
    with FarFleet(tmp_path, NODES, front="haproxy", lease=f"{LEASE_S}s", grace="20s") as fleet:
        def drain_all(_, agents):
            for node in NODES:
                agents.wait_turns(1)
                assert fleet[node].post("/fleet/drain", {}, headers=AS_ADMIN).status == 200
                fleet[node].wait(60)
                fleet[node].start()
                back_up(fleet, node)
        play(fleet, "each node drained", drain_all, refused=False)


# --- no fleet ---

def connected(pid):
    """The inodes of a process's established TCP connections."""
    own = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            own.add(os.readlink(f"/proc/{pid}/fd/{fd}"))
    with open(f"/proc/{pid}/net/tcp", encoding="ascii") as f:
        rows = [line.split() for line in f.readlines()[1:]]
    return [row for row in rows if row[3] == "01" and f"socket:[{row[9]}]" in own]


def test_without_a_fleet_there_is_no_keeper_and_no_connection(start):
    gateway = start(workers=1, engine="builtin:echo")
    session = gateway.post("/sessions", {}).json()
    assert gateway.chat(session, "hi").status == 200
    g.wait_until(lambda: not any(connected(pid) for pid in gateway.family()), 20, "no process is connected to anything")
    assert not gateway.has_line("process=keeper") and gateway.get("/fleet").status == 404

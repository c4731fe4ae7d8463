"""Nodes join a fleet: names, blocks of indexes, refusals with their reason, beats, and a store that goes and returns."""
import json
import re
import signal
import subprocess

import pytest

import gateway as g
from fleet_kit import Later
from store_kit import Proxy, Server

LEASE = "1s"


@pytest.fixture
def store(tmp_path):
    with Server(tmp_path / "store") as s:
        yield s


def node(store, name, **more):
    made = g.Gateway(**{"engine": "builtin:echo", "workers": 1, "fleet": store.url(), "fleet-node": name, "fleet-lease": LEASE,
                        "key-secret-file": secret_file(store), **more})
    made.allow("the store does not answer")     # its server is stopped first
    return made


def secret_file(store, text="s" * 40):
    path = store.folder / f"secret-{text[0]}"
    path.write_text(text + "\n")
    return str(path)


def fleet(gateway):
    return gateway.get("/fleet").json()


def states(gateway):
    return {n["name"]: n["state"] for n in fleet(gateway)["nodes"]}


def places(gateway):
    return {p["index"]: p.get("node") for p in fleet(gateway)["places"]}


def wait_dispatcher(gateway, node="a"):
    """The first node waits, because a store that was emptied looks like a new one."""
    g.wait_until(lambda: places(gateway).get("dispatcher") == node, 20, "a node has the dispatcher")


def is_whole(gateway):
    return all(p["whole"] for p in fleet(gateway)["places"])


def reason_of(gateway):
    """Starts a gateway that cannot start; the reason that it gives."""
    gateway.start(wait=False)
    assert gateway.wait(60) == 1, gateway.log()
    gateway.allow("cannot start", "start failed", "process died")
    return re.search(r"start failed .*reason=\"?([^\n]*)", gateway.log())[1]


def test_nodes_get_blocks_of_their_own_and_see_each_other(store):
    a, b = node(store, "a", workers=2).start(), node(store, "b").start()
    made = [gw.post("/sessions", {}).json()["session_id"].split("-")[0] for gw in (a, a, b)]
    assert set(made[:2]) <= {"w0", "w1"} and made[2] == "w256"
    for gw in (a, b):
        g.wait_until(lambda gw=gw: states(gw) == {"a": "up", "b": "up"}, 20, "both nodes are seen")
        g.wait_until(lambda gw=gw: places(gw) == {0: "a", 1: "a", 256: "b", "dispatcher": "a"}, 20, "all places are seen")
        g.wait_until(lambda gw=gw: is_whole(gw), 20, "the workers have sent all that they have")
        found = fleet(gw)
        assert found["name"] == "test" and found["node"] == ("a" if gw is a else "b")
        assert {n["address"] for n in found["nodes"]} == {f"127.0.0.1:{a.port}", f"127.0.0.1:{b.port}"}
        assert all(p["epoch"] > 1_700_000_000_000 for p in found["places"])
    g.wait_until(lambda: a.metrics()["rollgate_fleet_places"] == 3, 20, "the place of the dispatcher is counted")
    assert a.metrics()['rollgate_fleet_nodes{state="up"}'] == 2
    shown = subprocess.run([a.binary, "fleet", "status", f"--gateway={a.url}"], capture_output=True, text=True, check=True).stdout
    assert re.search(r"^a +up .* 127\.0\.0\.1", shown, re.M) and re.search(r"^b +up ", shown, re.M), shown
    parsed = subprocess.run([a.binary, "fleet", "status", f"--gateway={a.url}", "--json"], capture_output=True, text=True, check=True)
    assert json.loads(parsed.stdout)["node"] == "a"
    b.kill()
    g.wait_until(lambda: states(a)["b"] == "lost", 20, "the beat of b stands still")


def test_a_node_keeps_its_block_and_its_sessions_over_a_restart(store):
    a, b = node(store, "a").start(), node(store, "b").start()
    session = b.post("/sessions", {}).json()["session_id"]
    wait_dispatcher(a)
    b.stop()
    b.start()
    assert b.get(f"/sessions/{session}").json()["session_id"] == session
    assert b.post("/sessions", {}).json()["session_id"].startswith("w256-")
    keeper = b.child("keeper")
    epochs = {p["index"]: p["epoch"] for p in fleet(b)["places"]}
    b.allow("process died", "killed by signal")
    subprocess.run(["kill", "-KILL", str(keeper)], check=True)
    g.wait_until(lambda: b.child("keeper") not in (None, keeper), 20, "the keeper was replaced")
    b.wait_line(r"keeper.*process serves|process serves.*keeper")
    assert {p["index"]: p["epoch"] for p in fleet(b)["places"]} == epochs
    a.stop()


def test_a_node_keeps_its_indexes_on_an_emptied_store(store):
    a, b = node(store, "a").start(), node(store, "b").start()
    session = b.post("/sessions", {}).json()["session_id"]
    a.stop(), b.stop()
    store.ask("FLUSHALL")
    b.start()
    assert b.get(f"/sessions/{session}").json()["session_id"] == session
    a.start()
    assert places(a)[0] == "a"
    b.stop()
    store.ask("HSET", "rg:test:block:1", "value", "a")
    assert 'node "a" lives and has the indexes from 256' in reason_of(b).replace('\\"', '"')


def test_a_session_of_a_node_that_joins_unseen_is_not_unknown(store):
    """A node without a connection to the store holds requests of indexes that it does not know."""
    with Proxy(store.port) as proxy:
        b = node(store, "b", fleet=proxy.url(), **{"fleet-hold": "30s"}).start()
        proxy.target = g.free_port()
        proxy.cut()
        b.wait_line("the store does not answer")
        a = node(store, "a").start()
        session = a.post("/sessions", {}).json()["session_id"]
        asked = Later(lambda: b.get(f"/sessions/{session}", timeout=40))
        g.wait_until(lambda: b.metrics()["rollgate_fleet_held_requests"] == 1, 20, "it is held")
        proxy.target = store.port
        assert asked.get().status == 200
        a.stop(), b.stop()


def test_an_upgrade_keeps_the_places(store):
    a = node(store, "a").start()
    session = a.post("/sessions", {}).json()["session_id"]
    wait_dispatcher(a)
    g.wait_until(lambda: is_whole(a), 20, "the place is whole")
    before = fleet(a)["places"]
    a.log_start = len(a.log())
    a.signal(signal.SIGUSR2)
    a.wait_serving()
    assert a.get(f"/sessions/{session}").json()["session_id"] == session
    g.wait_until(lambda: fleet(a)["places"] == before, 20, "the places are as before")


def test_a_second_node_of_a_name_does_not_start(store):
    a = node(store, "a").start()
    assert f'the name "a" lives at 127.0.0.1:{a.port}' in reason_of(node(store, "a")).replace('\\"', '"')
    session = a.post("/sessions", {}).json()["session_id"]
    assert a.get(f"/sessions/{session}").status == 200
    # a lost node's name is free after a lease, with its block
    a.kill()
    other = node(store, "a").start()
    assert other.has_line("watching its beat")
    assert other.post("/sessions", {}).json()["session_id"].startswith("w0-")


@pytest.mark.parametrize("settings, reason", [
    ({"key-secret-file": "other"}, "another key secret"),
    ({"admin-key-file": "keys"}, "other admin keys"),
    ({"worker-base": 0}, "--worker-base: the indexes of this node begin with 256"),
])
def test_a_node_that_does_not_fit_is_refused(store, settings, reason, tmp_path):
    node(store, "a").start()
    if "key-secret-file" in settings:
        settings = {"key-secret-file": secret_file(store, "o" * 40)}
    if "admin-key-file" in settings:
        (tmp_path / "keys").write_text("an-admin-key-of-this-test\n")
        settings = {"admin-key-file": str(tmp_path / "keys")}
    assert reason in reason_of(node(store, "b", **settings))


def test_a_server_that_deletes_records_is_refused(store):
    running = node(store, "b", **{"fleet-lease": "1s"}).start().allow("the store may lose records", "the store does not allow INFO")
    store.ask("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    assert "maxmemory-policy" in reason_of(node(store, "a"))
    running.wait_line("the store may lose records.*set its maxmemory-policy to noeviction")
    store.ask("ACL", "SETUSER", "default", "-info")
    running.wait_line("the store does not allow INFO: its settings are not checked.*NOPERM")
    store.ask("ACL", "SETUSER", "default", "+info")
    g.wait_until(lambda: running.log().count("the store may lose records") == 2, 20, "it is checked again")
    assert running.log().count("does not allow INFO") == 1


def test_a_store_that_is_not_there_is_named(store):
    store.stop()
    a = node(store, "a", **{"start-timeout": "3s"})
    assert "could not join the fleet in time: " in reason_of(a) and str(store.port) in a.log()


def test_settings_that_contradict_a_fleet_are_refused(store, tmp_path):
    wrong = {
        "durability=none": "--durability",
        "peer=256-257=127.0.0.1:9": "--peer",
        "session-ids=bare": "--session-ids",
        "fleet-node=A_b": "--fleet-node",
        "fleet-address=0.0.0.0:80": "--fleet-address",
        "fleet=redis://:9": "--fleet",
        "worker-base=7": "--worker-base",
        "sink-inline-max=4MiB": "--sink-inline-max",
    }
    for setting, named in wrong.items():
        done = subprocess.run([g.BINARY, "config", "--check", f"--fleet={store.url()}", f"--state-dir={tmp_path}/s", f"--{setting}"],
                              capture_output=True, text=True, check=False)
        assert done.returncode == 2 and f"{named}:" in done.stderr, (setting, done.stderr)
    for lone in ("fleet-node=a", "fleet-leave=on"):
        done = subprocess.run([g.BINARY, "config", "--check", f"--{lone}"], capture_output=True, text=True, check=False)
        assert done.returncode == 2 and f"--{lone.split('=')[0]}: needs --fleet" in done.stderr


def test_a_store_that_was_away_or_emptied_gets_its_places_again(store):
    a = node(store, "a").start()
    wait_dispatcher(a)
    epochs = {p["index"]: p["epoch"] for p in fleet(a)["places"]}
    store.stop()
    a.wait_line("the store does not answer")
    a.allow("not upgrading")
    g.pause(1.5, "more than a lease passes without an answer")
    a.signal(signal.SIGUSR2)
    a.wait_line("not upgrading, because the store")
    store.start()       # its data are gone
    a.wait_line("the store has forgotten a place")
    g.wait_until(lambda: places(a) == {0: "a", "dispatcher": "a"} and all(p["epoch"] > epochs[p["index"]] for p in fleet(a)["places"]), 20,
                 "the place is claimed again")
    assert not is_whole(a)
    g.wait_until(lambda: store.ask("HGET", "rg:test:block:0", "value") == "a" and store.ask("HGET", "rg:test:fleet", "value"), 20,
                 "the entries are written again")


def test_without_a_fleet_nothing_exists(start):
    a = start()
    assert a.get("/fleet").status == 404
    assert a.child("keeper") is None
    shown = subprocess.run([a.binary, "fleet", "status", f"--gateway={a.url}"], capture_output=True, text=True, check=False)
    assert shown.returncode == 1 and "--fleet" in shown.stderr


def test_beats_are_learned_without_lists(store):
    nodes = [node(store, name).start() for name in "ab"]

    def lists():
        return store.ask("INFO", "commandstats").get("cmdstat_subscribe", {}).get("calls", 0)

    def beat():
        return int(store.ask("HGET", "rg:test:beats", "a") or 0)

    g.wait_until(lambda: states(nodes[0]) == {"a": "up", "b": "up"} and beat(), 20, "both are known and renew")
    first, before = beat(), lists()
    g.wait_until(lambda: beat() >= first + 20, 60, "four leases pass")
    assert lists() - before <= 10, "a node reads the whole list once in four leases"
    nodes[1].kill()
    g.wait_until(lambda: states(nodes[0])["b"] == "lost", 20, "its beat stays")

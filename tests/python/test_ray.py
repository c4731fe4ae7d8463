"""rollgate.ray.Fleet against a stand-in of the Ray calls that it makes, with real gateways and a real store."""
import json
import os
import signal
import sys
import urllib.request

import pytest

import gateway as g
from ray_stand_in import Cluster
from store_kit import Server

USER = [{"role": "user", "content": "hi"}]
SETTINGS = {"cpus": 2, "engines": ["builtin:echo"], "routers": 1, "fleet_lease": "1s", "grace": "5s"}


@pytest.fixture
def cluster(monkeypatch):
    """A cluster of three nodes, and the package's module that uses it."""
    if not g.BINARY.exists():
        pytest.skip(f"{g.BINARY} is not built")
    monkeypatch.setenv("ROLLGATE", str(g.BINARY))
    made = Cluster(3)
    made.install(monkeypatch)
    monkeypatch.delitem(sys.modules, "rollgate.ray", raising=False)
    yield made
    assert not made.groups and all(actor.killed for actor in made.actors)
    sys.modules.pop("rollgate.ray", None)


@pytest.fixture
def store(tmp_path):
    with Server(tmp_path / "store") as server:
        yield server.url()


def gateways(actor):
    """The pids of an actor's gateway and its children."""
    def command(pid):
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            return f.read()
    return [pid for pid in g.children_of(actor.process.pid) if command(pid).startswith(b"rollgate: ")]


def is_whole(fleet, address, session):
    places = urllib.request.Request(f"http://{address}/fleet", headers={"x-api-key": fleet.key})
    with urllib.request.urlopen(places, timeout=20) as answer:
        return any(p["whole"] for p in json.load(answer)["places"] if session.id.startswith(f"w{p['index']}-"))


def chat(client, session):
    return client.chat(session.id, USER, key=session.api_key)["choices"][0]["message"]["content"]


def test_sessions_survive_an_actor_and_its_gateway(cluster, store):
    from rollgate.ray import Fleet
    with Fleet(nodes=2, store=store, **SETTINGS) as fleet:
        assert len(fleet.endpoints()) == 2 and fleet.url in fleet.endpoints()
        assert [actor.bundle for actor in cluster.actors] == [0, 1]
        before = fleet.nodes()
        first = cluster.actors[0]
        name, address = cluster.get(first.describe.remote())
        import rollgate
        with rollgate.Client(f"http://{address}", fleet.key) as at:
            session = at.create_session()
            assert chat(at, session) == "hi"
            g.wait_until(lambda: is_whole(fleet, address, session), 20, "the store has all")
        old = gateways(first)
        for pid in old:
            os.kill(pid, signal.SIGKILL)
        g.wait_until(lambda: first.starts == 2, 30, "Ray restarts the actor")
        with fleet.client() as client:
            assert chat(client, session) == "hi"
            assert len(client.session(session.id, records=True)["records"]) == 2
        g.wait_until(lambda: len(fleet.endpoints()) == 2, 30, "the restarted actor is a node")
        now = fleet.nodes()
        assert name not in now and len(now) == 2 and set(before) & set(now)
        living = [pid for actor in cluster.actors for pid in gateways(actor)]
        assert living
    assert not [pid for pid in living if g.alive(pid)], "the gateways end with the fleet"


def test_a_drained_node_gives_its_sessions_and_ends(cluster, store, monkeypatch):
    from rollgate.ray import Fleet, ray
    ended, kill = [], ray.kill
    monkeypatch.setattr(ray, "kill", lambda actor, **options: (ended.append(cluster.get(actor.has_ended.remote())), kill(actor, **options)))
    with Fleet(nodes=2, store=store, **SETTINGS) as fleet:
        with pytest.raises(ValueError, match="no node has the name 'x'"):
            fleet.drain("x")
        import rollgate
        name, address = cluster.get(cluster.actors[1].describe.remote())
        with rollgate.Client(f"http://{address}", fleet.key) as at:
            session = at.create_session()
            assert chat(at, session) == "hi"
        fleet.drain(name)
        assert ended == [True], "its gateway passes requests on until it ends"
        assert cluster.actors[1].killed and fleet.nodes() != [] and name not in fleet.nodes()
        with fleet.client() as client:
            assert chat(client, session) == "hi"


def test_a_second_fleet_continues_with_the_key_and_the_secret(cluster, store):
    from rollgate.ray import Fleet
    with Fleet(nodes=1, store=store, **SETTINGS) as first, Fleet(nodes=1, store=store, key=first.key, secret=first.secret, **SETTINGS) as second:
        g.wait_until(lambda: len(second.endpoints()) == 2, 30, "both are nodes")
        import rollgate
        _, address = cluster.get(cluster.actors[0].describe.remote())
        with rollgate.Client(f"http://{address}", first.key) as at:
            session = at.create_session()
            assert chat(at, session) == "hi"
        first.close()
        g.wait_until(lambda: len(second.endpoints()) == 1, 30, "the first fleet has left")
        with second.client() as client:
            assert chat(client, session) == "hi"


def test_a_cluster_that_is_too_small(cluster, store):
    from rollgate.ray import Fleet
    with pytest.raises(RuntimeError, match="4 nodes with 2 free processors each do not serve after 1 s"):
        Fleet(nodes=4, store=store, start_s=1.0, **SETTINGS)


def test_a_gateway_that_does_not_start(cluster):
    from rollgate.ray import Fleet
    with pytest.raises(RuntimeError, match="does not serve"):
        Fleet(nodes=1, store="nonsense://", **SETTINGS)


@pytest.mark.parametrize("settings, why", [({"nodes": 0}, "at least one"), ({"listen": "x:1"}, "listen: the fleet chooses it"), ({"sink": None}, "sink is None")])
def test_arguments_that_are_refused(cluster, settings, why):
    from rollgate.ray import Fleet
    with pytest.raises(ValueError, match=why):
        Fleet(**{"nodes": 1, "store": "redis://127.0.0.1:1?name=x", **settings})

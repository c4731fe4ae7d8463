"""Orders in a fleet: a version of the weights, an adapter, pause and resume reach all living nodes, or fail with the names of the others."""
import http.client
import json
import threading

import pytest

import gateway as g
from asides_engine import AsidesEngine
from fleet_kit import ADMIN, AS_ADMIN, Fleet, Later, PlayedNode, front  # noqa: F401

NODES = "abc"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    with Fleet(tmp_path_factory.mktemp("fleet"), NODES, workers=2) as f:
        yield f


def order(fleet, node, path, body):
    return fleet[node].post(path, body, headers=AS_ADMIN, timeout=60)


def version(fleet, node):
    """The version that a new answer of this node has."""
    session = fleet.create(node)
    assert fleet.chat(node, session, "hi").status == 200
    exported = fleet[node].get(f"/sessions/{session['session_id']}/trajectories", headers=AS_ADMIN).json()
    versions = {v for t in exported["trajectories"] for v, m in zip(t["response_versions"], t["response_mask"]) if m}
    assert len(versions) == 1, exported
    return versions.pop()


def test_a_version_of_the_weights_reaches_all_nodes(fleet):
    answer = order(fleet, "b", "/admin/weight_version", {"version": 7})
    assert answer.status == 200, answer.text
    assert answer.json()["nodes"] == {node: "obeyed" for node in NODES} and "unreachable" not in answer.json()
    assert [version(fleet, node) for node in NODES] == [7] * 3
    answer = order(fleet, "c", "/admin/weight_version?here=1", {"version": 8})
    assert answer.status == 200 and "nodes" not in answer.json()
    assert [version(fleet, node) for node in NODES] == [7, 7, 8]
    assert order(fleet, "a", "/admin/weight_version", {"version": 9}).status == 200
    assert [version(fleet, node) for node in NODES] == [9] * 3


def test_an_adapter_reaches_all_nodes(fleet):
    assert order(fleet, "a", "/admin/adapters", {"name": "tuned", "version": 3}).json()["nodes"] == {node: "obeyed" for node in NODES}
    for gateway in fleet:
        assert [(a["name"], a["version"]) for a in gateway.get("/admin/adapters", headers=AS_ADMIN).json()["adapters"]] == [("tuned", "3")]


def test_a_pause_holds_all_nodes_until_one_resumes(fleet):
    paused = order(fleet, "c", "/admin/pause", {"timeout_s": 20}).json()
    assert paused["drained"] is True and paused["nodes"] == {node: "obeyed" for node in NODES}
    assert all(gateway.get("/health").json()["paused"] == 2 for gateway in fleet)
    session = fleet.create("a")
    later = Later(lambda: fleet.chat("b", session, "hi"))
    g.wait_until(lambda: fleet["a"].get(f"/sessions/{session['session_id']}", headers=AS_ADMIN).json()["num_inflight_generations"] == 1,
                 what="the call waits")
    assert order(fleet, "a", "/admin/resume", {}).json()["nodes"] == {node: "obeyed" for node in NODES}
    assert later.get().status == 200
    assert all(gateway.get("/health").json()["paused"] == 0 for gateway in fleet)


def test_an_order_that_a_node_did_not_obey_fails_with_its_name(front):  # noqa: F811
    gone = threading.Event()
    with PlayedNode(front, "x", 7) as x, PlayedNode(front, "y", 8) as y:
        g.wait_until(lambda: front.state("a", "x") == front.state("a", "y") == "up", what="both are known")
        x.handler = lambda conn, _: x.answer(conn, "{}", 500)
        y.handler = lambda conn, _: y.answer(conn, '{"status":"ok","drained":false}')
        answer = order(front, "a", "/admin/weight_version", {"version": 7})
        assert answer.status == 503 and "1 nodes did not obey (x)" in answer.text, answer.text
        assert [(r.method, r.target, r.body) for r in y.requests] == [("POST", "/admin/weight_version?here=1", b'{"version": 7}')]
        assert version(front, "a") == 7
        x.handler = y.handler
        answer = order(front, "a", "/admin/pause", {"timeout_s": 5}).json()
        assert answer["drained"] is False and answer["nodes"] == {"a": "obeyed", "x": "obeyed", "y": "obeyed"}
        # a frozen node ends the order when it is lost; later orders need not reach it
        x.handler = lambda *_: gone.wait(60 * g.PATIENCE)
        later = Later(lambda: order(front, "a", "/admin/resume", {}))
        assert x.wait(lambda: x.requests[-1].target == "/admin/resume?here=1")
        x.freeze()
        assert later.get().status == 503 and "(x)" in later.answer.text
        answer = order(front, "a", "/admin/resume", {}).json()
        assert answer["nodes"] == {"a": "obeyed", "y": "obeyed", "x": "lost"}
        gone.set()


def test_a_node_that_joins_during_an_order_has_not_obeyed(front):  # noqa: F811
    go = threading.Event()
    with PlayedNode(front, "x", 7) as x:
        g.wait_until(lambda: front.state("a", "x") == "up", what="x is known")

        def obey(conn, _):
            go.wait(60 * g.PATIENCE)
            x.answer(conn, '{"status":"ok","drained":true}')
        x.handler = obey
        later = Later(lambda: order(front, "a", "/admin/weight_version", {"version": 7}))
        assert x.wait(lambda: len(x.requests) == 1)
        with PlayedNode(front, "y", 8) as y:
            g.wait_until(lambda: front.state("a", "y") == "up", what="y has joined")
            go.set()
            assert later.get().status == 503 and "1 nodes did not obey (y)" in later.answer.text, later.answer.text
            y.handler = lambda conn, _: y.answer(conn, '{"status":"ok","drained":true}')
            assert order(front, "a", "/admin/weight_version", {"version": 7}).json()["nodes"] == {n: "obeyed" for n in "axy"}


def test_a_version_reaches_all_nodes_though_its_client_has_left(tmp_path):
    push = "/update_weight_version"
    with AsidesEngine("sglang", asides={push: {"success": True}}) as engine, Fleet(tmp_path, "a", engine=f"one={engine.setting}", dispatcher="off") as front, \
            PlayedNode(front, "x", 7) as x:
        x.handler = lambda conn, _: x.answer(conn, '{"status":"ok","drained":true}')
        g.wait_until(lambda: front.state("a", "x") == "up", what="x is known")
        engine.aside_held = threading.Event()
        client = http.client.HTTPConnection("127.0.0.1", front["a"].port)
        client.request("POST", "/admin/weight_version", json.dumps({"version": 7, "engines": True}), AS_ADMIN)
        g.wait_until(lambda: engine.count(push) == 1, what="the engine is asked")
        client.close()
        g.wait_until(lambda: front["a"].metrics()["rollgate_connections"] <= 1, what="the client has left")
        assert front["a"].get("/sessions?here=1", headers=AS_ADMIN).status == 200
        engine.aside_held.set()
        assert x.wait(lambda: x.requests), "x gets the order"
        (asked,) = x.requests
        assert (asked.target, asked.get("x-api-key")) == ("/admin/weight_version?here=1", [ADMIN])

"""Orders in a fleet: a version of the weights, an adapter, pause, resume and engines reach all living nodes, or fail with the names of
the others, which obey when they reach the store."""
import contextlib
import http.client
import json
import os
import re
import signal
import threading

import pytest

import gateway as g
from asides_engine import AsidesEngine
from fleet_kit import ADMIN, AS_ADMIN, NODE_PLACES, Fleet, Later, PlayedNode, front  # noqa: F401

NODES = "abc"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    with Fleet(tmp_path_factory.mktemp("fleet"), NODES, workers=2) as f:
        yield f


def order(fleet, node, path, body):
    return fleet[node].post(path, body, headers=AS_ADMIN, timeout=60)


def version(fleet, node):
    """The version that a new answer of this node has. Waits for a store that has just returned."""
    g.wait_until(lambda: fleet[node].post("/sessions", {}, headers=AS_ADMIN).status == 200, 20, "the node makes sessions")
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
        adapters = gateway.get("/admin/adapters", headers=AS_ADMIN).json()
        assert [(a["name"], a["version"]) for a in adapters["adapters"]] == [("tuned", "3")]
        assert "unreachable" not in adapters and "unreachable" not in gateway.get("/admin/engines", headers=AS_ADMIN).json()
        assert "unreachable" not in gateway.get("/health").json()


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
        assert answer.status == 503 and "1 nodes did not obey (x), 2 did" in answer.text, answer.text
        assert answer.json()["error"]["code"] == "fleet_partial"
        edition = front.entry("orders")["edition"]
        assert [(r.method, r.target, r.body) for r in y.requests] == \
            [("POST", f"/admin/weight_version?edition={edition}&here=1", b'{"version": 7}')]
        assert version(front, "a") == 7
        x.handler = y.handler
        answer = order(front, "a", "/admin/pause", {"timeout_s": 5}).json()
        assert answer["drained"] is False and answer["nodes"] == {"a": "obeyed", "x": "obeyed", "y": "obeyed"}
        # a frozen node ends the order when it is lost; later orders need not reach it
        x.handler = lambda *_: gone.wait(60 * g.PATIENCE)
        later = Later(lambda: order(front, "a", "/admin/resume", {}))
        assert x.wait(lambda: x.requests[-1].target.startswith("/admin/resume?edition="))
        x.freeze()
        assert later.get().status == 503 and "(x)" in later.answer.text
        answer = order(front, "a", "/admin/resume", {}).json()
        assert answer["nodes"] == {"a": "obeyed", "y": "obeyed", "x": "lost"}
        gone.set()


@contextlib.contextmanager
def order_under_way(front):
    """Yields (go, later): an order that waits for node x, which obeys when `go` is set."""
    go = threading.Event()
    with PlayedNode(front, "x", 7) as x:
        g.wait_until(lambda: front.state("a", "x") == "up", what="x is known")

        def obey(conn, _):
            go.wait(60 * g.PATIENCE)
            x.answer(conn, '{"status":"ok","drained":true}')
        x.handler = obey
        later = Later(lambda: order(front, "a", "/admin/weight_version", {"version": 7}))
        assert x.wait(lambda: len(x.requests) == 1)
        yield go, later


def test_a_node_that_joins_during_an_order_has_not_obeyed(front):  # noqa: F811
    with order_under_way(front) as (go, later), PlayedNode(front, "y", 8) as y:
        g.wait_until(lambda: front.state("a", "y") == "up", what="y has joined")
        go.set()
        assert later.get().status == 503 and "1 nodes did not obey (y)" in later.answer.text, later.answer.text
        y.handler = lambda conn, _: y.answer(conn, '{"status":"ok","drained":true}')
        assert order(front, "a", "/admin/weight_version", {"version": 7}).json()["nodes"] == {n: "obeyed" for n in "axy"}


def test_a_node_that_joins_during_an_order_may_have_read_it(front):  # noqa: F811
    with order_under_way(front) as (go, later), PlayedNode(front, "y", 8) as y:
        y.entry["edition"] = int(front.entry("orders")["edition"])
        y.set_state("up")
        g.wait_until(lambda: front.state("a", "y") == "up", what="y has joined")
        go.set()
        assert later.get().status == 200 and later.answer.json()["nodes"] == {n: "obeyed" for n in "axy"}, later.answer.text
        assert y.requests == []


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
        edition = front.entry("orders")["edition"]
        assert (asked.target, asked.get("x-api-key")) == (f"/admin/weight_version?edition={edition}&here=1", [ADMIN])


# --- nodes that miss orders ---

@pytest.fixture
def pair(tmp_path):
    with Fleet(tmp_path, "ab", lease="1s") as f:
        for gateway in f:
            gateway.allow("the store does not answer", "store answers again", "another node owns", "place not claimed", "another node has",
                          "a place without an owner", "watching its beat", "process ended on a signal", "process died", "killed by signal",
                          "the store has forgotten", "a node of this name")
        yield f


def paused(gateway):
    return gateway.get("/ready").json().get("paused")


def test_a_node_that_joins_obeys_before_it_is_ready(pair):
    for path, body in (("weight_version", {"version": 7}), ("adapters", {"name": "tuned", "version": 3}), ("pause", {"mode": "hold"})):
        assert order(pair, "a", f"/admin/{path}", body).status == 200
    pair.add("c").start()
    answer = pair["c"].get("/ready")
    assert answer.status == 200 and answer.json()["paused"] == 1, answer.text
    assert [a["name"] for a in pair["c"].get("/admin/adapters", headers=AS_ADMIN).json()["adapters"]] == ["tuned"]
    pair.wait_known()
    assert set(order(pair, "b", "/admin/resume", {}).json()["nodes"]) == set("abc")
    assert version(pair, "c") == 7 and paused(pair["c"]) == 0
    g.wait_until(lambda: json.loads(pair.entry("node:c")["value"])["edition"] == int(pair.entry("orders")["edition"]), what="c says so")
    pair["c"].stop()


def test_a_node_that_returns_obeys_what_it_has_missed(pair):
    assert order(pair, "a", "/admin/weight_version", {"version": 7}).status == 200
    assert order(pair, "a", "/admin/pause", {}).status == 200
    pair["b"].kill()
    g.wait_until(lambda: pair.state("a", "b") == "lost", what="b is lost")
    assert order(pair, "a", "/admin/resume", {}).json()["nodes"] == {"a": "obeyed", "b": "lost"}
    assert order(pair, "a", "/admin/weight_version", {"version": 8}).status == 200
    pair["b"].start()
    assert version(pair, "b") == 8 and paused(pair["b"]) == 0


def test_a_node_that_thaws_obeys_before_it_answers(pair):
    session = pair.create("b")
    assert pair.chat("b", session, "one").status == 200
    assert order(pair, "a", "/admin/weight_version", {"version": 7}).status == 200
    pair.freeze("b")
    answer = order(pair, "a", "/admin/weight_version", {"version": 8})
    assert answer.status == 503 and "(b)" in answer.text
    asked = Later(lambda: version(pair, "b"))      # waits in a socket of b
    pair.thaw("b")
    asked.get()
    assert version(pair, "b") == 8


def test_a_worker_that_is_replaced_keeps_an_order_to_its_node(pair):
    assert order(pair, "a", "/admin/weight_version", {"version": 7}).status == 200
    assert order(pair, "b", "/admin/weight_version?here=1", {"version": 70}).status == 200
    worker = next(filter(None, (pair["b"].child(f"worker-{i}") for i in (0, NODE_PLACES * pair.block("b")))))
    os.kill(worker, signal.SIGKILL)
    g.wait_until(lambda: not os.path.exists(f"/proc/{worker}"), what="the worker has ended")
    assert version(pair, "b") == 70
    assert order(pair, "a", "/admin/pause", {"mode": "hold"}).status == 200 and order(pair, "a", "/admin/resume", {}).status == 200
    assert (version(pair, "a"), version(pair, "b")) == (7, 70), "a pause changes no version"
    assert order(pair, "a", "/admin/weight_version", {"version": 8}).status == 200
    assert version(pair, "b") == 8


def test_orders_outlive_a_store_that_is_emptied(pair):
    assert order(pair, "a", "/admin/weight_version", {"version": 7}).status == 200
    before = pair.entry("orders")
    pair.server.ask("FLUSHALL")
    g.wait_until(lambda: pair.entry("orders") == before, what="a node has restored the orders")
    assert order(pair, "b", "/admin/pause", {"mode": "hold"}).status == 200 and order(pair, "b", "/admin/resume", {}).status == 200
    assert [version(pair, node) for node in "ab"] == [7, 7]
    pair.server.ask("FLUSHALL")
    g.wait_until(lambda: order(pair, "b", "/admin/resume", {}).status == 200, 20, "b gives an order")
    assert json.loads(pair.entry("orders")["value"])["version"]["value"] == "7", "an order before the others are restored erases none"


def test_an_order_without_the_store_fails_and_changes_nothing(pair):
    assert order(pair, "a", "/admin/weight_version", {"version": 7}).status == 200
    pair.server.stop()
    answer = order(pair, "a", "/admin/weight_version", {"version": 8})
    assert answer.status == 503 and answer.json()["error"]["code"] == "storage_unavailable", answer.text
    assert order(pair, "a", "/admin/pause?here=1", {"mode": "hold"}).status == 200
    assert (paused(pair["a"]), paused(pair["b"])) == (1, 0)
    pair.server.start()        # without data: orders wait until the others are restored
    g.wait_until(lambda: order(pair, "b", "/admin/resume", {}).status == 200, 20, "b gives an order")
    assert paused(pair["a"]) == 0
    assert [version(pair, node) for node in "ab"] == [7, 7]


def test_an_order_that_a_node_cannot_obey_holds_its_model_calls_alone(pair):
    b = pair["b"]
    b.allow("cannot be obeyed")
    session = pair.create("b")
    assert order(pair, "a", "/admin/weight_version", {"version": 7}).status == 200
    with open(f"{b.folder}/state/weights.json", "w") as f:
        f.write("damaged")
    answer = order(pair, "a", "/admin/weight_version", {"version": 8})
    assert answer.status == 503 and "(b)" in answer.text, answer.text
    assert order(pair, "a", "/admin/pause", {"mode": "hold"}).status == 503
    g.wait_until(lambda: b.get("/health").json()["paused"] == 1, 20, "b obeys the pause")
    assert b.get(f"/sessions/{session['session_id']}", headers=AS_ADMIN).status == 200
    g.wait_until(lambda: b.log().count("the fleet's orders cannot be obeyed") >= 1, 20, "b reports it")
    os.unlink(f"{b.folder}/state/weights.json")
    assert order(pair, "a", "/admin/resume", {}).status == 200
    assert [version(pair, node) for node in "ab"] == [8, 8]


# --- engines ---

def wait_engines(fleet, nodes, *names):
    """Waits until the nodes have these engines alone: removed ones end their probes first."""
    for node in nodes:
        g.wait_until(lambda at=fleet[node]: sorted(e["name"] for e in at.get("/admin/engines", headers=AS_ADMIN).json()["engines"])
                     == list(names), 20, f"{node} has {names}")


def change(fleet, node, method, names, query=""):
    return fleet[node].request(method, f"/admin/engines{query}", {"engines": names}, headers=AS_ADMIN, timeout=60)


def test_engines_reach_all_nodes(pair):
    one, two = "one=builtin:echo", "two=builtin:echo"
    answer = change(pair, "a", "POST", [two])
    assert answer.status == 409 and "no set of engines yet" in answer.text, answer.text
    answer = change(pair, "a", "PUT", [one])
    assert answer.status == 200 and answer.json()["nodes"] == {"a": "obeyed", "b": "obeyed"}, answer.text
    wait_engines(pair, "ab", "one")
    assert change(pair, "b", "POST", [two]).status == 200
    wait_engines(pair, "ab", "one", "two")
    assert change(pair, "a", "DELETE", ["one"]).status == 200
    wait_engines(pair, "ab", "two")
    assert change(pair, "b", "PUT", [one], "?here=1").status == 200
    wait_engines(pair, "a", "two")
    wait_engines(pair, "b", "one")
    answer = change(pair, "b", "DELETE", ["one"])
    assert answer.status == 409 and "other engines than the fleet" in answer.text, answer.text
    assert change(pair, "a", "PUT", [two]).json()["nodes"] == {"a": "obeyed", "b": "obeyed"}
    wait_engines(pair, "b", "two")
    pair.add("c").start()
    wait_engines(pair, "c", "two")
    pair["c"].stop()

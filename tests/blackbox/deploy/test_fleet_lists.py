"""Lists, orders by label and events in a fleet: of all nodes, whichever node is asked; what is missing is named."""
import threading

import pytest

import gateway as g
from events_kit import Follower
from fleet_kit import AS_ADMIN, Fleet, Later, PlayedNode, index_of, front  # noqa: F401

NODES = "abc"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    with Fleet(tmp_path_factory.mktemp("fleet"), NODES, workers=2) as f:
        yield f


def make(fleet, run, n=3):
    """n sessions on each node, with a label of this test."""
    return {node: [fleet.create(node, labels={"run": run})["session_id"] for _ in range(n)] for node in fleet.nodes}


def ids(page):
    return [s["session_id"] for s in page["sessions"]]


def pages(fleet, nodes, query, cursor=None):
    """The sessions of all pages, each from the next node of `nodes`."""
    found = []
    for i in range(100):
        answer = fleet[nodes[i % len(nodes)]].get(f"/sessions?{query}{'&cursor=' + cursor if cursor else ''}", headers=AS_ADMIN)
        assert answer.status == 200, answer.text
        page = answer.json()
        assert page["unreachable"] == []
        found += ids(page)
        cursor = page["next_cursor"]
        if cursor is None:
            return found
    raise AssertionError("the list does not end")


def test_a_list_has_the_sessions_of_all_nodes_at_each_node(fleet):
    made = make(fleet, "list")
    every = sorted(sum(made.values(), []))
    for limit in (1, 2, 4, 9, 100):
        lists = [pages(fleet, nodes, f"label=run=list&limit={limit}") for nodes in ("a", "b", "c", "acb")]
        assert all(sorted(one) == every and len(one) == 9 for one in lists), limit
        assert [id for id in lists[0] if id in made["b"]] == [id for id in lists[3] if id in made["b"]]
    for node in NODES:
        own = pages(fleet, node, "label=run=list&limit=2&here=1")
        assert sorted(own) == sorted(made[node])
        assert sorted(pages(fleet, node, "label=run=list&here=0")) == every
    for cursor in ("x", "b.x"):
        assert fleet["a"].get(f"/sessions?cursor={cursor}", headers=AS_ADMIN).status == 400
    # a cursor of an index that is gone continues after it
    assert sorted(pages(fleet, "a", "label=run=list", "511.x")) == sorted(made[next(node for node in NODES if fleet.block(node) == 2)])


@pytest.mark.parametrize("order,phase", [("abort", None), ("finalize", "finalized")])
def test_an_order_by_label_reaches_all_nodes(fleet, order, phase):
    made = make(fleet, order, 2)
    answer = fleet["b"].post(f"/sessions/{order}?here=1", {"labels": {"run": order}}, headers=AS_ADMIN)
    assert answer.status == 200 and answer.json()["ended"] == 2
    answer = fleet["b"].post(f"/sessions/{order}", {"labels": {"run": order}}, headers=AS_ADMIN)
    assert answer.status == 200 and answer.json() == {"status": "ok", "ended": 4, "failed": 0}
    for node in NODES:
        for id in made[node]:
            state = fleet["c"].get(f"/sessions/{id}", headers=AS_ADMIN)
            assert state.json()["phase"] == phase if phase else state.status == 410, state.text


def test_events_of_all_nodes_come_once(fleet):
    everywhere, here = (Follower(fleet["a"], path, headers=AS_ADMIN) for path in ("/events", "/events?here=1"))
    mirror = Follower(fleet["b"], "/events", headers=AS_ADMIN)      # the nodes follow each other
    try:
        assert everywhere.wait("hello") == {"unreachable": []} and here.wait("hello") == {}
        blocks = {fleet.block(node) for node in NODES}

        def followed():
            """Both streams have had events of all nodes."""
            for node in NODES:
                fleet.create(node, labels={"run": "probe"})
            return all({index_of(e["session_id"]) // 256 for e in one.of("session")} == blocks for one in (everywhere, mirror))
        g.wait_until(followed, what="all nodes are followed")
        made = {node: fleet.create(node, labels={"run": "events"})["session_id"] for node in NODES}
        for node, id in made.items():
            for one in (everywhere, mirror):
                one.wait("session", lambda row, id=id: row["session_id"] == id)
        here.wait("session", lambda row: row["session_id"] == made["a"])
        fleet["a"].post("/sessions/abort", {"labels": {"run": "events"}}, headers=AS_ADMIN)
        for id in made.values():
            everywhere.wait("session_gone", lambda row, id=id: row["session_id"] == id)
        for id in made.values():
            assert len([e for e in everywhere.of("session_gone") if e["session_id"] == id]) == 1, "an event came twice"
        assert not {made["b"], made["c"]} & {e["session_id"] for e in here.of("session")}
    finally:
        for one in (everywhere, here, mirror):
            one.close()


def test_a_node_that_does_not_answer_is_named(front):  # noqa: F811
    a, gone = front["a"], threading.Event()
    own = [front.create("a", labels={"run": "1"})["session_id"] for _ in range(2)]
    with PlayedNode(front, "x", 7) as x, PlayedNode(front, "y", 8) as y:
        x.claim(7 * 256)
        y.claim(8 * 256)
        g.wait_until(lambda: len([p for p in a.get("/fleet", headers=AS_ADMIN).json()["places"] if p["node"] in ("x", "y")]) == 2,
                     what="both are known")
        rows = f'{{"sessions":[{{"session_id":"w1792-{"1" * 32}","phase":"open"}}],"next_cursor":null,"unreachable":[1793]}}'
        x.handler = y.handler = lambda conn, r: x.answer(conn, rows if r.method == "GET" else '{"ended":3,"failed":1}')
        page = a.get("/sessions", headers=AS_ADMIN).json()
        assert len(page["sessions"]) == 4 and page["unreachable"] == [1793, 1793]
        assert x.requests[-1].target == "/sessions?here=1&limit=98&cursor=1792.&place=1792"       # a, then x, then y
        order = a.post("/sessions/finalize", {"labels": {"run": "none"}}, headers=AS_ADMIN).json()
        assert (order["ended"], order["failed"]) == (6, 2)
        # one node is at fault, the other is frozen
        y.handler = lambda conn, r: x.answer(conn, "{}", 500)
        x.handler = lambda *_: gone.wait(60 * g.PATIENCE)
        listed = Later(lambda: a.get("/sessions", headers=AS_ADMIN, timeout=60))
        order = Later(lambda: a.post("/sessions/abort", {"labels": {"run": "1"}}, headers=AS_ADMIN, timeout=60))
        assert x.wait(lambda: len([r for r in x.requests if "limit" in r.target or "abort" in r.target]) == 3)
        x.freeze()
        page = listed.get().json()
        assert set(ids(page)) <= set(own) and page["unreachable"] == ["x", "y"]
        answer = order.get()
        assert answer.status == 503 and "2 nodes did not obey" in answer.text and "2 sessions were ended" in answer.text, answer.text
        assert "x" in answer.text and "y" in answer.text
        # a lost node is not asked; it is named while it owns places
        g.wait_until(lambda: front.state("a", "x") == "lost", what="x is lost")
        asked = len(x.requests)
        y.handler = lambda conn, r: x.answer(conn, '{"sessions":[],"next_cursor":null,"unreachable":[]}')
        assert a.get("/sessions", headers=AS_ADMIN).json() == {"sessions": [], "next_cursor": None, "unreachable": ["x"]}
        follower = Follower(a, "/events", headers=AS_ADMIN)
        assert follower.wait("hello") == {"unreachable": ["x"]}
        follower.close()
        y.claim(7 * 256)
        g.wait_until(lambda: a.get("/sessions", headers=AS_ADMIN).json()["unreachable"] == [], what="another node has the place")
        assert len(x.requests) == asked
        gone.set()


def test_a_place_that_nobody_serves_is_named(front):  # noqa: F811
    a = front["a"]
    with PlayedNode(front, "x", 7) as x:
        x.handler = lambda conn, r: x.answer(conn, '{"sessions":[],"next_cursor":null,"unreachable":[]}' if r.method == "GET" else "{}")
        x.claim(7 * 256)
        g.wait_until(lambda: a.get("/sessions", headers=AS_ADMIN).json()["unreachable"] == [] and x.requests, what="x is known")
        x.release(7 * 256)
        g.wait_until(lambda: a.get("/sessions", headers=AS_ADMIN).json()["unreachable"] == [7 * 256], what="the place is named")
        answer = a.post("/sessions/abort", {"labels": {"run": "none"}}, headers=AS_ADMIN)
        assert answer.status == 503 and "1 worker indexes have no worker now or moved (w1792)" in answer.text, answer.text
        assert a.post("/sessions/abort?here=1", {"labels": {"run": "none"}}, headers=AS_ADMIN).status == 200
        x.claim(7 * 256)
        g.wait_until(lambda: a.post("/sessions/abort", {"labels": {"run": "none"}}, headers=AS_ADMIN).status == 200, what="x has the place")


def test_a_place_that_moves_during_a_walk_is_listed(front):  # noqa: F811
    """The rows of a place come from its owner at that time. A node that has lost it says so."""
    a, place = front["a"], 7 * 256
    with PlayedNode(front, "x", 7) as x, PlayedNode(front, "y", 8) as y:
        x.claim(place)
        y.claim(8 * 256)

        def owner():
            return next((p["node"] for p in a.get("/fleet", headers=AS_ADMIN).json()["places"] if p["index"] == place), None)

        def rows(node, index, cursor="null"):
            row = f'{{"session_id":"w{index}-{node.name * 32}","phase":"open"}}'
            return lambda conn, _: node.answer(conn, f'{{"sessions":[{row}],"next_cursor":{cursor},"unreachable":[]}}')
        g.wait_until(lambda: owner() == "x", what="x has the place")
        x.handler = rows(x, place, f'"{place}.old.1.1"')
        first = a.get("/sessions?limit=1", headers=AS_ADMIN).json()
        assert ids(first) == [f"w{place}-{'x' * 32}"] and first["next_cursor"] == f"{place}.old.1.1"
        x.release(place)
        y.claim(place)
        g.wait_until(lambda: owner() == "y", what="y has the place")
        y.handler = lambda conn, r: rows(y, place if "place=1792" in r.target else 8 * 256)(conn, r)
        page = a.get(f"/sessions?cursor={first['next_cursor']}", headers=AS_ADMIN).json()
        assert ids(page) == [f"w{place}-{'y' * 32}", f"w{8 * 256}-{'y' * 32}"] and page["unreachable"] == []
        assert "cursor=1792.old.1.1&place=1792" in y.requests[0].target
        # y does not have it any longer, but nobody else is known to have it
        y.handler = lambda conn, r: y.misdirect(conn, r) if "place=1792" in r.target else rows(y, 8 * 256)(conn, r)
        page = a.get("/sessions", headers=AS_ADMIN).json()
        assert ids(page) == [f"w{8 * 256}-{'y' * 32}"] and page["unreachable"] == [place]
        # a row of a page that ends with its place: the next place follows
        y.handler = lambda conn, r: rows(y, place if "place=1792" in r.target else 8 * 256)(conn, r)
        page = a.get("/sessions?limit=1", headers=AS_ADMIN).json()
        assert page["next_cursor"] == f"{8 * 256}."
        assert ids(a.get(f"/sessions?limit=5&cursor={8 * 256}.", headers=AS_ADMIN).json()) == [f"w{8 * 256}-{'y' * 32}"]
    # a node refuses a place that it does not have
    assert a.get(f"/sessions?here=1&place={place}", headers=AS_ADMIN).status == 421
    own = front.create("a")["session_id"]
    assert own in ids(a.get(f"/sessions?here=1&place={index_of(own)}", headers=AS_ADMIN).json())


def test_a_cursor_of_an_earlier_owner_begins_the_place_again(tmp_path):
    with Fleet(tmp_path, "ab") as fleet:
        made = [fleet.create("b")["session_id"] for _ in range(4)]
        page = fleet["a"].get("/sessions?limit=3", headers=AS_ADMIN).json()
        assert len(ids(page)) == 3 and set(ids(page)) < set(made)
        assert fleet["b"].post("/fleet/drain", {}, headers=AS_ADMIN).status == 200
        g.wait_until(lambda: fleet.owner(index_of(made[0])) == "a" and
                     fleet["a"].get("/sessions", headers=AS_ADMIN).json()["unreachable"] == [], what="a serves the place")
        rest = pages(fleet, "a", "limit=3", page["next_cursor"])
        assert set(rest) == set(made), "some twice, none never"


def test_a_drained_node_without_places_is_not_asked(front):  # noqa: F811
    a = front["a"]
    with PlayedNode(front, "x", 7) as x:
        x.set_state("draining")
        g.wait_until(lambda: front.state("a", "x") == "draining", what="x drains")
        x.handler = lambda conn, _: x.answer(conn, "{}", 500)
        assert a.get("/sessions", headers=AS_ADMIN).json()["unreachable"] == []
        assert a.post("/sessions/abort", {"labels": {"run": "none"}}, headers=AS_ADMIN).status == 200
        assert a.post("/admin/resume", {}, headers=AS_ADMIN).json()["nodes"] == {"a": "obeyed"}
        assert x.requests == []
        x.claim(7 * 256)
        g.wait_until(lambda: a.get("/sessions", headers=AS_ADMIN).json()["unreachable"] == ["x"], what="x has a place")


def test_an_order_by_label_fails_if_a_place_moves_meanwhile(front):  # noqa: F811
    a, go, place = front["a"], threading.Event(), 7 * 256
    with PlayedNode(front, "x", 7) as x, PlayedNode(front, "y", 8) as y:
        x.claim(place)
        g.wait_until(lambda: front.state("a", "x") == front.state("a", "y") == "up", what="both are known")

        def obey(conn, _):
            go.wait(60 * g.PATIENCE)
            x.answer(conn, "{}")
        x.handler, y.handler = obey, lambda conn, _: y.answer(conn, "{}")
        later = Later(lambda: a.post("/sessions/abort", {"labels": {"run": "none"}}, headers=AS_ADMIN, timeout=60))
        assert x.wait(lambda: x.requests) and y.wait(lambda: y.requests)
        x.release(place)
        y.claim(place)
        g.wait_until(lambda: any(p["index"] == place and p["node"] == "y" for p in a.get("/fleet", headers=AS_ADMIN).json()["places"]),
                     what="the place has moved")
        go.set()
        assert later.get().status == 503 and "w1792" in later.answer.text, later.answer.text
        assert a.post("/sessions/abort", {"labels": {"run": "none"}}, headers=AS_ADMIN).status == 200


def test_new_sessions_go_to_the_node_with_less_to_do(tmp_path):
    with Fleet(tmp_path, "ab", **{"max-sessions": 200}) as f:
        blocks = {node: f.block(node) for node in "ab"}

        def make():
            return index_of(f.create("a")["session_id"]) // 256
        made = [make() for _ in range(20)]
        assert set(made) == {blocks["a"]}, "16 above the mean are too few"
        g.wait_until(lambda: len(made) < 150 and (made.append(make()) or made[-1] == blocks["b"]), 20, "b makes one")
        assert made.count(blocks["a"]) >= 32
        # its own sessions are made by b, which has few
        assert {index_of(f.create("b")["session_id"]) // 256 for _ in range(5)} == {blocks["b"]}
        metrics = f["a"].metrics()
        assert metrics['rollgate_fleet_claims_total{reason="own"}'] >= 1 and metrics['rollgate_fleet_claims_total{reason="lost"}'] == 0
        assert metrics["rollgate_fleet_append_seconds_count"] > 0
        g.wait_until(lambda: f["a"].metrics()["rollgate_fleet_store_bytes"] > 0, 20, "the store says what it uses")

        def loads():
            return {n["name"]: n["load"] for n in f["b"].get("/fleet", headers=AS_ADMIN).json()["nodes"]}
        g.wait_until(lambda: loads()["a"] > loads()["b"], 20, "both publish their loads")

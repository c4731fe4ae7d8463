"""The routes of requests, and the router's own answers."""
import json
import re

import pytest

import gateway as g
from router_kit import ID, Client, Router
from test_router_relay import bench  # noqa: F401  (a fixture)

MAC = "0" * 64


@pytest.fixture
def four(bench):  # noqa: F811
    for _ in range(4):
        bench.worker()
    return bench


def served_by(client, method, target, *headers):
    status, got, _ = client.ask(method, target, None, *headers)
    assert status == 200
    return int(dict(got)["x-worker"])


def test_every_id_finds_its_worker(four):
    router = four.router(routers=2)
    for _ in range(10):
        with Client(router) as c:
            for i in range(4):
                for tail in ("", "/v1/chat/completions", "?records=1", "/v1/messages?beta=true"):
                    assert served_by(c, "GET", f"/sessions/{ID % i}{tail}") == i


@pytest.mark.parametrize("kind", ["rga", "rgr"])
@pytest.mark.parametrize("header", ["Authorization: Bearer %s", "authorization: bearer %s", "x-api-key: %s", "api-key: %s"])
def test_session_keys_find_the_worker(four, kind, header):
    router = four.router()
    with Client(router) as c:
        for i in range(4):
            key = header % f"{kind}-{ID % i}-{MAC}"
            for path in ("/v1/chat/completions", "/v1/messages", "/v1/responses", "/chat/completions",
                         "/openai/deployments/m/chat/completions"):
                assert [served_by(c, "POST", path, key) for _ in range(2)] == [i, i]
            # the path's id counts more than the key's
            assert served_by(c, "POST", f"/sessions/{ID % 3}/v1/messages", key) == 3


LOOPING = ["/sessions/" + ID % 0, "/sessions/" + ID % 1 + "/v1/chat/completions", "/v1/chat/completions", "/sessions", "/groups/g", "/queues/q/next",
           "/events", "/openapi.json", "/qqqq"]


@pytest.mark.parametrize("itself", [True, False], ids=["itself", "each other"])
def test_routers_alone_forward_a_request_once(tmp_path, itself):
    """Two `rollgate route` that name each other, or one that names itself: 508 after one hop, not a request without end."""
    ports = [g.free_port(), g.free_port()]
    others = [ports[0]] if itself else ports[::-1]
    routers = [Router(tmp_path, [f"127.0.0.1:{other}"] * 2, port=port) for port, other in zip(ports, others)]
    try:
        for path in LOOPING:
            with Client(routers[0]) as c:
                status, _, body = c.ask("GET", path)
                assert status == 508 and b"loop_detected" in body and b"--upstream" in body, (path, body)
        log = "".join(router.log() for router in routers)
        assert log.count("refused a request that another node forwarded") + len(re.findall(r"suppressed=([1-9]\d*)", log)) <= 3 * len(LOOPING)
        assert "route` forwarded this request here" in log
    finally:
        for router in routers:
            router.stop()


def test_a_router_before_a_router_reaches_its_workers(four, tmp_path):
    """One hop over TCP, then a socket of the machine: no loop. What a gateway said of its own workers passes on."""
    inner = four.router()
    outer = Router(tmp_path, [f"127.0.0.1:{inner.port}"] * 4)
    try:
        with Client(outer) as c:
            assert [served_by(c, "GET", f"/sessions/{ID % i}") for i in range(4)] == [0, 1, 2, 3]
            assert c.ask("GET", f"/sessions/{ID % 2}", None, "rollgate-forwarded: 8-11")[0] == 200
            assert c.ask("GET", f"/sessions/{ID % 2}", None, "rollgate-forwarded: 8-11, route")[0] == 508
        assert all("rollgate-forwarded" not in dict(r.headers) for w in four.workers for r in w.requests)
    finally:
        outer.stop()


MALFORMED = [
    "0123456789abcdef0123456789abcdef", "w-0123456789abcdef0123456789abcdef",
    "w4-0123456789abcdef0123456789abcdef", "W1-0123456789abcdef0123456789abcdef",
    "w99999999999999999999-0123456789abcdef0123456789abcdef", "w1_0123456789abcdef0123456789abcdef",
    "wx-0123456789abcdef0123456789abcdef", "w1", "w1-", "w1-0123", "w01-0123456789abcdef0123456789abcdef",
    "w1-0123456789abcdef0123456789abcdeg", "w1-0123456789abcdef0123456789abcdef0", "%77" + "1-" + "0" * 32,
]


def test_malformed_ids_spread_evenly(four):
    router = four.router()
    with Client(router) as c:
        for _ in range(40):
            for bad in MALFORMED:
                served_by(c, "GET", f"/sessions/{bad}/v1")
    counts = [len(w.requests) for w in four.workers]
    assert counts == [len(MALFORMED) * 10] * 4
    assert router.metric("rollgate_round_robin_fallbacks_total") == sum(counts)


@pytest.mark.parametrize("path", ["/sessions", "/ui", "/ui/x", "/v1/models", "/admin/pause", "/", "//sessions/x"])
def test_the_rest_spreads_evenly(four, path):
    router = four.router()
    with Client(router) as c:
        for _ in range(40):
            served_by(c, "GET", path, f"Authorization: Bearer rga-{ID % 2}-{MAC}"
                      if path in ("/sessions", "/ui", "/ui/x", "/admin/pause") else "x-api-key: admin")
    assert [len(w.requests) for w in four.workers] == [10] * 4


def test_worker_base_and_peers(four):
    own, other = four.workers[:2], four.workers[2]
    router = four.router("--worker-base", "10", "--peer", f"4-7=unix:{other.path}",
                         upstreams=["unix:" + w.path for w in own])
    with Client(router) as c:
        for index, worker in ((10, 0), (11, 1), (4, 2), (7, 2)):
            assert served_by(c, "GET", f"/sessions/{ID % index}") == worker
        for index in (0, 3, 8, 9, 12, 999999):
            for path, *key in ((f"/sessions/{ID % index}",), ("/v1/models", f"x-api-key: rga-{ID % index}-{MAC}")):
                with Client(router) as refused:     # which ends the connection
                    status, _, body = refused.ask("GET", path, None, *key)
                assert status == 421 and json.loads(body)["error"]["code"] == "misdirected"
        assert sorted({served_by(c, "GET", "/sessions/bare") for _ in range(4)}) == [0, 1]
    assert [r.get("rollgate-forwarded") for r in other.requests] == [["10-11"]] * 2
    assert all(r.get("rollgate-forwarded") == [] for w in own for r in w.requests)


def test_health_ready_metrics(four):
    router = four.router()
    with Client(router) as c:
        status, headers, body = c.ask("GET", "/health")
        health = json.loads(body)
        assert status == 200 and health["status"] == "ok"
        assert health["workers"] == {"total": 4, "ready": 4} and health["routers"] == 1
        assert {"session_server_instance_id", "version"} <= health.keys()
        assert c.ask("GET", "/ready")[0] == 200
        status, headers, body = c.ask("GET", "/metrics?x=1")
        assert dict(headers)["content-type"].startswith("text/plain; version=0.0.4")
        assert b"\nrollgate_connections_accepted_total " in body
        status, headers, body = c.ask("HEAD", "/health")
        assert status == 200 and int(dict(headers)["content-length"]) == len(json.dumps(health)) + 1
        assert c.ask("POST", "/health", b"{}")[0] == 405
        assert c.ask("GET", "/healthy")[0] == 200
    assert [r.target for w in four.workers for r in w.requests] == ["/healthy"]
    assert router.get("/health").count(b"Rollgate-Request-Id: req-") == 1


def test_old_probe_without_host_is_answered(four):
    """HAProxy's plain health check."""
    router = four.router()
    with router.connect() as sock:
        sock.sendall(b"GET /health HTTP/1.0\r\n\r\n")
        assert sock.recv(65536).startswith(b"HTTP/1.1 200")


def test_errors_have_the_shape_of_the_dialect(bench):  # noqa: F811
    router = bench.router(upstreams=[f"unix:{bench.tmp}/nobody.sock"])
    with Client(router) as c:
        status, headers, body = c.ask("POST", f"/sessions/{ID % 0}/v1/chat/completions", b"{}")
        error = json.loads(body)["error"]
        headers = dict(headers)
        assert status == 503 and error["code"] == "worker_unavailable" and error["param"] is None
        assert headers["retry-after"] == "1" and headers["x-should-retry"] == "true"
        assert headers["rollgate-session"] == ID % 0
        status, headers, body = c.ask("POST", f"/sessions/{ID % 0}/v1/messages", b"{}")
        error = json.loads(body)
        assert error["type"] == "error" and error["error"].keys() == {"type", "message"}


def test_answers_carry_a_request_id(four):
    router = four.router()
    given = lambda conn, _r: conn.sendall(  # noqa: E731
        b"HTTP/1.1 200 OK\r\nRollgate-Request-Id: mine\r\nContent-Length: 0\r\n\r\n")
    with Client(router) as c:
        ids = {dict(c.ask("GET", f"/sessions/{ID % 0}")[1])["rollgate-request-id"] for _ in range(5)}
        assert len(ids) == 5
        four.workers[0].handler = given
        got = [v for k, v in c.ask("GET", f"/sessions/{ID % 0}")[1] if k == "rollgate-request-id"]
        assert got == ["mine"]

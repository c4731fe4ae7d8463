"""Requests in a fleet: every node answers for every session, by one hop to its owner; what has no owner is held."""
import contextlib
import http.client
import json
import os
import select
import signal
import socket
import subprocess
import threading

import pytest

import gateway as g
from fleet_kit import ADMIN, AS_ADMIN, Fleet, Later, PlayedNode, index_of

ID = "w%d-" + "0" * 32
CALL = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture
def fleet(tmp_path):
    with Fleet(tmp_path) as f:
        yield f


@pytest.fixture
def front(tmp_path):
    """One gateway, in a fleet whose other nodes the test plays."""
    with Fleet(tmp_path, "a", fleet_hold="20s", dispatcher="off") as f:
        f["a"].allow("a place without an owner")     # those of played nodes are of another tokenizer
        yield f


def forwarded(gateway):
    return gateway.metrics()["rollgate_fleet_forwarded_requests_total"]


def held(gateway):
    return gateway.metrics()["rollgate_fleet_held_requests"]


def refuses(gateway):
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", gateway.port)) != 0


def owns(gateway, place, node=None):
    """Waits until the gateway knows that the node owns the place; None: no node."""
    def is_so():
        places = gateway.get("/fleet", headers=AS_ADMIN).json()["places"]
        return next((p["node"] for p in places if p["index"] == place), None) == node
    g.wait_until(is_so, what=f"{node or 'no node'} owns the place")


def broken(gateway, path):
    """True if the answer breaks off."""
    try:
        gateway.get(path, headers=AS_ADMIN, timeout=60 * g.PATIENCE)
    except (OSError, http.client.HTTPException):
        return True
    return False


def code(answer):
    error = answer.json()["error"]
    return error.get("code") or error["type"]


def test_every_node_answers_for_every_session(fleet):
    made = {node: fleet.create(node) for node in fleet.nodes}
    assert len({index_of(s["session_id"]) // 256 for s in made.values()}) == 3
    for owner, session in made.items():
        assert session["base_url"].startswith(fleet[owner].url)
        for node, gateway in fleet.nodes.items():
            before = {n: forwarded(fleet[n]) for n in fleet.nodes}
            assert fleet.chat(node, session, f"through {node}").status == 200
            key = {"Authorization": f"Bearer {session['api_key']}"}
            assert gateway.post("/v1/chat/completions", CALL, headers=key).status == 200
            assert gateway.get(f"/sessions/{session['session_id']}", headers=AS_ADMIN).json()["session_id"] == session["session_id"]
            hops = {n: forwarded(fleet[n]) - before[n] for n in fleet.nodes}
            assert hops == {n: 3 if n == node != owner else 0 for n in fleet.nodes}      # one hop, and only from the node in front
    claim = {**AS_ADMIN, "Rollgate-Forwarded": "c"}      # of a client, which is no node
    assert fleet["a"].get(f"/sessions/{made['b']['session_id']}", headers=claim).status == 200
    forged = made["b"]["api_key"][:-4] + "0000"
    for gateway in fleet:
        assert gateway.get(f"/sessions/{made['b']['session_id']}", headers={"x-api-key": forged}).status == 401
        assert gateway.get(f"/sessions/{made['b']['session_id']}", headers={"x-api-key": made["a"]["runner_key"]}).status in (401, 403)


@pytest.mark.parametrize("extra", [0, 1])
def test_the_headers_of_a_hop_take_no_place_of_the_clients(fleet, extra):
    session = fleet.create("b")
    more = {f"X-{i}": "1" for i in range(96 + extra)}  # and Host, Accept-Encoding, Content-Length, x-api-key
    long = {**CALL, "messages": [{"role": "user", "content": "x" * 100_000}]}     # the hop adds Expect, too
    for node in "ab":
        with contextlib.closing(fleet[node].connect()) as c:
            c.request("POST", f"/sessions/{session['session_id']}/v1/chat/completions", json.dumps(long),
                      {"x-api-key": session["api_key"], **more})
            assert c.getresponse().status == (431 if extra else 200), node


@pytest.mark.parametrize("extra", [0, 1])
def test_the_bytes_of_a_hop_take_no_place_of_the_clients(fleet, extra):
    session = fleet.create("b")
    head = f"GET /sessions/{session['session_id']} HTTP/1.1\r\nHost: a\r\nx-api-key: {session['runner_key']}\r\nConnection: close\r\nx-pad: "
    for gateway in fleet:
        with socket.create_connection(("127.0.0.1", gateway.port)) as c:
            c.sendall(f"{head:x<{32768 + extra - 4}}\r\n\r\n".encode())
            answer = c.makefile().read()
            assert answer.startswith("HTTP/1.1 431 " if extra else "HTTP/1.1 200 "), answer
            assert not extra or "larger than 32768 bytes" in answer


def test_an_unknown_id_is_404_everywhere_and_makes_no_session(fleet):
    for gateway in fleet:
        for index in (0, 256, 512, 900000):
            for method, path, body in (("GET", "", None), ("POST", "/v1/chat/completions", CALL), ("POST", "/fork", {})):
                answer = gateway.request(method, f"/sessions/{ID % index}{path}", body, headers=AS_ADMIN)
                assert answer.status == 404 and code(answer) == "unknown_session", (index, path, answer.text)
        assert gateway.get("/sessions?local=1", headers=AS_ADMIN).json()["sessions"] == []


def test_requests_wait_for_a_node_that_returns(fleet):
    session = fleet.create("b")
    assert fleet.chat("a", session, "one").status == 200
    fleet["b"].kill()
    later = [Later(lambda: fleet.chat("a", session, "two")), Later(lambda: fleet.chat("c", session, "three"))]
    g.wait_until(lambda: held(fleet["a"]) == held(fleet["c"]) == 1, what="both are held")
    fleet["b"].start()
    assert [one.get().status for one in later] == [200, 200]
    state = fleet["a"].get(f"/sessions/{session['session_id']}?records=1", headers=AS_ADMIN).json()
    assert len(state["records"]) == 3, "every answer is recorded"


def test_a_hop_says_who_forwarded_it_and_what_the_client_used(front):
    with PlayedNode(front, "x", 7) as x:
        x.claim(7 * 256)
        answer = front["a"].get(f"/sessions/{ID % (7 * 256)}", headers=AS_ADMIN)
        assert answer.status == 200 and answer.json()["worker"] == 7
        (seen,) = x.requests
        ((by, _proof),) = (value.split() for value in seen.get("rollgate-forwarded"))
        assert by == "a" and seen.get("host") == [x.address]
        assert seen.get("x-forwarded-host") == [f"127.0.0.1:{front['a'].port}"] and seen.get("x-api-key") == [ADMIN]
        # keys are the same on all nodes: what is refused needs no hop
        assert front["a"].get(f"/sessions/{ID % (7 * 256)}").status == 401
        assert len(x.requests) == 1


def test_a_request_is_held_until_a_node_claims_its_place(front):
    a = front["a"]
    with PlayedNode(front, "x", 7) as x, PlayedNode(front, "y", 8) as y:
        x.claim(7 * 256)
        path = f"/sessions/{ID % (7 * 256)}"
        assert a.get(path, headers=AS_ADMIN).json()["worker"] == 7
        x.release(7 * 256)
        owns(a, 7 * 256)
        later = Later(lambda: a.post(f"{path}/fork", {"n": 1}, headers=AS_ADMIN))
        g.wait_until(lambda: held(a) == 1, what="it is held")
        y.claim(7 * 256)
        assert later.get().json()["worker"] == 8
        assert held(a) == 0 and [json.loads(r.body) for r in y.requests] == [{"n": 1}]
        # a node that does not know of its claim yet is asked again
        y.handler = y.misdirect
        later = Later(lambda: a.get(path, headers=AS_ADMIN))
        assert y.wait(lambda: len(y.requests) >= 4)
        y.handler = y.plain
        assert later.get().json()["worker"] == 8


def test_a_hold_ends_with_no_owner(tmp_path):
    with Fleet(tmp_path, "a", fleet_hold="500ms", dispatcher="off") as front, PlayedNode(front, "x", 7) as x:
        front["a"].allow("a place without an owner")
        x.claim(7 * 256)
        path = f"/sessions/{ID % (7 * 256)}"
        g.wait_until(lambda: front["a"].get(path, headers=AS_ADMIN).status == 200, what="the place is known")
        x.release(7 * 256)
        owns(front["a"], 7 * 256)
        answer = front["a"].get(path, headers=AS_ADMIN)
        assert (answer.status, code(answer), answer.headers["x-should-retry"]) == (503, "no_owner", "true") and answer.headers["Retry-After"]
        assert front["a"].get(path).status == 401     # without a key nothing is held


def test_a_call_of_a_lost_node_goes_to_its_follower_and_an_order_does_not(front):
    a = front["a"]
    with PlayedNode(front, "x", 7) as x, PlayedNode(front, "y", 8) as y:
        x.claim(7 * 256)
        owns(a, 7 * 256, "x")
        path = f"/sessions/{ID % (7 * 256)}"

        def hand_over(conn, _):
            x.release(7 * 256)
            y.claim(7 * 256)
            conn.close()
        x.handler = hand_over
        body = {"model": "m", "messages": [{"role": "user", "content": "x" * 9000}]}
        answer = a.post(f"{path}/v1/chat/completions", body, headers=AS_ADMIN)
        assert answer.status == 200 and answer.json()["worker"] == 8
        assert json.loads(y.requests[0].body) == body

        def hand_back(conn, _):
            y.release(7 * 256)
            x.claim(7 * 256)
            conn.close()
        y.handler, x.handler = hand_back, x.plain
        answer = a.post(f"{path}/fork", {}, headers=AS_ADMIN)
        assert answer.status == 503 and answer.headers["x-should-retry"] == "true"
        assert [r.target for r in x.requests] == [f"{path}/v1/chat/completions"]


def test_requests_of_a_frozen_node_go_to_the_new_owner(tmp_path):
    with Fleet(tmp_path, "a", lease="1s", dispatcher="off") as front, PlayedNode(front, "x", 7) as x, PlayedNode(front, "y", 8) as y:
        a, place = front["a"], 7 * 256
        a.allow("a place without an owner")             # those of x are of another tokenizer
        x.claim(place)
        path, gone = f"/sessions/{ID % place}", threading.Event()

        def begin(conn, r):
            if r.target.endswith("/export"):
                conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nbegun")
            gone.wait(60 * g.PATIENCE)
        x.handler = begin
        asked = {name: Later(lambda m=method, p=f"{path}/{name}", b=body: a.request(m, p, b, headers=AS_ADMIN, timeout=60 * g.PATIENCE))
                 for name, method, body in (("v1/chat/completions", "POST", CALL), ("trace", "GET", None), ("fork", "POST", {}))}
        cut = Later(lambda: broken(a, f"{path}/export"))
        assert x.wait(lambda: len(x.requests) == 4)
        x.freeze()
        g.wait_until(lambda: front.state("a", "x") == "lost", what="x is lost")
        assert all(later.thread.is_alive() for later in [*asked.values(), cut]), "without a new owner they wait"
        y.claim(place)
        assert asked["v1/chat/completions"].get().json()["worker"] == asked["trace"].get().json()["worker"] == 8
        answer = asked["fork"].get()
        assert answer.status == 503 and answer.headers["x-should-retry"] == "true"      # x may have made the fork
        assert cut.get() and len(y.requests) == 2
        gone.set()


def test_requests_of_a_living_node_stay_there_when_its_place_moves(front):
    a, place, over = front["a"], 7 * 256, threading.Event()
    with PlayedNode(front, "x", 7) as x, PlayedNode(front, "y", 8) as y:
        x.claim(place)

        def last(conn, _):
            over.wait(60 * g.PATIENCE)
            conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        x.handler = last
        later = Later(lambda: a.get(f"/sessions/{ID % place}", headers=AS_ADMIN, timeout=60))
        assert x.wait(lambda: len(x.requests) == 1)
        x.release(place)
        y.claim(place)
        g.wait_until(lambda: a.get(f"/sessions/{ID % place}", headers=AS_ADMIN).json().get("worker") == 8, what="the place has moved")
        over.set()
        assert later.get().json() == {} and len(y.requests) == 1


def test_long_calls_do_not_fail_in_a_drain(tmp_path):
    """Their bodies are too long to be kept by the node that passes them on."""
    with Fleet(tmp_path, "abc", **{"max-body-bytes": "4mb"}) as fleet:
        sessions, done, answers = [fleet.create("b") for _ in range(4)], threading.Event(), []

        def talk(node, session):
            while not done.is_set():
                answers.append(fleet.chat(node, session, "x" * 150_000))
        threads = [threading.Thread(target=talk, args=(node, session)) for node, session in zip("aacb", sessions)]
        for one in threads:
            one.start()
        g.wait_until(lambda: len(answers) >= 8, what="all talk")
        assert fleet["b"].post("/fleet/drain", {}, headers=AS_ADMIN).status == 200
        g.wait_until(lambda: fleet.owner(index_of(sessions[0]["session_id"])) in ("a", "c"), what="the place has moved")
        n = len(answers)
        g.wait_until(lambda: len(answers) >= n + 4, what="its new owner answers")
        done.set()
        for one in threads:
            one.join()
        assert {one.status for one in answers} == {200}, [one.text for one in answers if one.status != 200]


def test_a_long_body_waits_for_the_calls_of_a_draining_place(tmp_path):
    """They may take longer than --fleet-hold."""
    with Fleet(tmp_path, "ab", fleet_hold="1s", lease="1s", engine="builtin:echo,delay_ms=4000") as fleet:
        running, short, long = (fleet.create("b") for _ in range(3))
        calls = [Later(lambda: fleet.chat("b", running, "runs"))]
        g.wait_until(lambda: fleet["b"].get(f"/sessions/{running['session_id']}", headers=AS_ADMIN).json()["num_inflight_generations"], what="it runs")
        assert fleet["b"].post("/fleet/drain", {}, headers=AS_ADMIN).status == 200
        fleet["b"].wait_line("leaving the fleet")
        for session, length in ((short, 100), (long, 100_000)):
            calls.append(Later(lambda s=session, n=length: fleet.chat("a", s, "x" * n)))
            g.wait_until(lambda: held(fleet["b"]) == len(calls) - 1, what="it is held")
        assert [call.get().status for call in calls] == [200] * 3, [call.get().text for call in calls]


def test_clients_of_a_drained_node_are_sent_on_then_refused(tmp_path):
    """A connection ends with its answer, so that none is reset. The port is closed while a forwarded call still runs."""
    with Fleet(tmp_path, "ab", lease="1s", engine="builtin:echo,delay_ms=4000") as fleet:
        b, session = fleet["b"], fleet.create("a")
        path, call = f"/sessions/{session['session_id']}", Later(lambda: fleet.chat("b", session, "long"))
        with contextlib.closing(b.connect()) as kept:
            for drained in (False, True):
                if drained:
                    assert b.post("/fleet/drain", {}, headers=AS_ADMIN).status == 200
                kept.request("GET", path, headers=AS_ADMIN)
                answer = kept.getresponse()
                assert (answer.status, answer.headers["Connection"]) == (200, "close" if drained else None)
                answer.read()
        refused, seen = threading.Event(), set()
        while not refused.is_set():
            try:
                seen.add(b.get(path, headers=AS_ADMIN).status)
            except ConnectionRefusedError:
                refused.set()
        assert seen == {200} and call.thread.is_alive()
        assert call.get().status == 200
        b.wait(20)


def test_a_stopping_node_refuses_connections(tmp_path):
    """Else a front that counts connections would send it all requests while its last call runs."""
    with Fleet(tmp_path, "ab", lease="1s", engine="builtin:echo,delay_ms=2000") as fleet:
        b, session = fleet["b"], fleet.create("b")
        path, call = f"/sessions/{session['session_id']}", Later(lambda: fleet.chat("b", session, "long"))
        g.wait_until(lambda: b.get(path, headers=AS_ADMIN).json()["num_inflight_generations"], what="it runs")
        b.signal(signal.SIGTERM)
        b.wait_line("stopping")
        g.wait_until(lambda: refuses(b), 1, "its port is closed")
        held_back = Later(lambda: fleet["a"].get(path, headers=AS_ADMIN, timeout=60))
        assert call.thread.is_alive() and call.get().status == 200
        assert held_back.get().json()["turns"] == 1, held_back.get().text
        assert fleet["a"].has_line(f"did not serve a request.* upstream=127.0.0.1:{b.port}")


def test_a_held_request_is_answered_before_its_node_ends(tmp_path):
    """Its client may still send the body then."""
    with Fleet(tmp_path, "ab", lease="1s", grace="1s") as fleet, PlayedNode(fleet, "x", 7) as x:
        a, place = fleet["a"], 7 * 256
        x.claim(place)
        owns(a, place, "x")
        x.release(place)
        owns(a, place)
        with socket.create_connection(("127.0.0.1", a.port), 60 * g.PATIENCE) as s:
            s.sendall(f"POST /sessions/{ID % place}/fork HTTP/1.1\r\nHost: x\r\nx-api-key: {ADMIN}\r\nContent-Length: 9\r\n\r\n".encode())
            g.wait_until(lambda: held(a) == 1, what="it is held")
            s.sendall(b"begin")
            assert a.post("/fleet/drain", {}, headers=AS_ADMIN).status == 200
            answer = b"".join(iter(lambda: s.recv(65536), b""))
            s.sendall(b"more")      # to an end that is closed it would cause a reset
            reset = select.poll()
            reset.register(s, 0)
            assert reset.poll(200) == []
        assert answer.startswith(b"HTTP/1.1 503 ") and b"no_owner" in answer
        assert a.wait(60) == 0


def test_waits_go_on_at_the_next_owner(tmp_path):
    with Fleet(tmp_path, "ab", lease="1s") as fleet:
        session = fleet.create("b")
        path = f"/sessions/{session['session_id']}"
        waits = [Later(lambda at=fleet[node]: at.get(f"{path}/wait?timeout_s=50", headers=AS_ADMIN, timeout=60)) for node in "ab"]
        g.wait_until(lambda: fleet["b"].metrics()["rollgate_connections"] > 2, what="both wait")
        waited = {**AS_ADMIN, "Rollgate-Waited": "50000"}      # at an earlier owner
        assert [at.get(f"{path}/wait?timeout_s=50", headers=waited).status for at in fleet] == [204, 204]
        assert fleet["b"].post("/fleet/drain", {}, headers=AS_ADMIN).status == 200
        g.wait_until(lambda: fleet.owner(index_of(session["session_id"])) == "a", what="the place has moved")
        assert fleet["a"].post(f"{path}/finalize", {}, headers=AS_ADMIN).status == 200
        answers = [one.get() for one in waits]
        assert [(answer.status, answer.json().get("phase")) for answer in answers] == [(200, "finalized")] * 2, [a.text for a in answers]


def test_an_accepted_drain_is_carried_out(tmp_path):
    """The other node is lost before the supervisor sees the order. Requests wait until it returns, and none is refused."""
    with Fleet(tmp_path, "ab", lease="1s") as fleet:
        a, session = fleet["a"], fleet.create("a")
        a.allow("b is lost", "without an owner")
        os.kill(a.process.pid, signal.SIGSTOP)
        assert a.post("/fleet/drain", {}, headers=AS_ADMIN).status == 200
        fleet["b"].kill()
        g.wait_until(lambda: fleet.state("a", "b") == "lost", what="b is lost")
        os.kill(a.process.pid, signal.SIGCONT)
        a.wait_line("leaving the fleet")
        call = Later(lambda: fleet.chat("a", session, "hi"))
        g.wait_until(lambda: held(a) == 1, what="the call is held")
        fleet["b"].start()
        assert call.get().status == 200 and a.wait(20) == 0
        assert fleet.owner(index_of(session["session_id"])) == "b"


def test_a_body_that_its_owner_does_not_accept_ends_with_its_hold(tmp_path):
    """The owner's router is stuck; its node renews its places."""
    with Fleet(tmp_path, "ab", fleet_hold="2s", routers=1) as fleet:
        session = fleet.create("b")
        assert fleet.chat("a", session, "x" * 100_000).status == 200
        os.kill(fleet["b"].child("router-0"), signal.SIGSTOP)
        answer = fleet.chat("a", session, "y" * 100_000)
        assert (answer.status, code(answer), answer.headers["x-should-retry"]) == (503, "no_owner", "true"), answer.text
        os.kill(fleet["b"].child("router-0"), signal.SIGCONT)
        assert fleet.chat("a", session, "z" * 100_000).status == 200


def test_a_session_is_made_at_the_node_that_is_asked_for(tmp_path):
    with Fleet(tmp_path, "ab", engine="builtin:echo") as fleet:
        c = fleet.add("c", engine=["builtin:echo", "judge=builtin:echo"])
        c.start()
        fleet.wait_known()
        blocks = {fleet.block(node): node for node in fleet.nodes}

        def made_at(through, **body):
            answer = fleet[through].post("/sessions", body, headers={**AS_ADMIN, "Host": "front.example"})
            return answer, answer.status == 200 and blocks[index_of(answer.json().get("session_id") or answer.json()["sessions"][0]["session_id"]) // 256]
        for through in "abc":
            for node in "abc":
                answer, where = made_at(through, node=node)
                assert where == node and answer.json()["base_url"].startswith("http://front.example/"), answer.text
            answer, where = made_at(through, prefer={"engine": "judge"}, count=2)
            assert where == "c" and len(answer.json()["sessions"]) == 2, answer.text
        assert made_at("a", prefer={"engine": "policy"})[1] == "a"
        assert made_at("a", node="c", prefer={"engine": "judge"})[1] == "c"
        assert fleet.chat("b", answer.json()["sessions"][0], "hi").status == 200
        for body, param, words in (({"node": "x"}, "node", '"x" is not one of this fleet; nodes that make sessions: a, b, c'),
                                   ({"node": "b", "prefer": {"engine": "judge"}}, "prefer", '"judge"'),
                                   ({"prefer": {"engine": "x"}}, "prefer", 'no node has an engine "x"; this one has: '),
                                   ({"prefer": {}}, "prefer.engine", "engine"), ({"prefer": {"node": "a"}}, "prefer.node", "node"),
                                   ({"prefer": "judge"}, "prefer", "object"), ({"node": "c", "ttl_s": -1}, "ttl_s", "ttl_s")):
            error = fleet["a"].post("/sessions", body, headers=AS_ADMIN)
            assert error.status == 400 and error.json()["error"]["param"] == param and words in error.json()["error"]["message"], error.text
        for node in "ab":      # not all records of c may be in the store
            fleet[node].allow("a place without an owner")
        c.kill()
        g.wait_until(lambda: fleet.state("a", "c") == "lost", what="c is lost")
        error = fleet["a"].post("/sessions", {"node": "c"}, headers=AS_ADMIN)
        assert error.status == 503 and error.headers["x-should-retry"] == "true"
        assert '"c" is lost; nodes that make sessions: a, b' in error.json()["error"]["message"]
        error = fleet["a"].post("/sessions", {"prefer": {"engine": "judge"}}, headers=AS_ADMIN)     # c may return with it
        assert error.status == 503 and error.headers["x-should-retry"] == "true", error.text
        assert '"c" is lost or being drained' in error.json()["error"]["message"]


def test_a_node_that_has_another_name_makes_no_session(front):
    """Its address was given to a different node. 421 would end an attempt of a group for good."""
    a = front["a"]
    with PlayedNode(front, "x", 7) as x:
        g.wait_until(lambda: front.state("a", "x") == "up", what="x is known")
        x.handler = x.misdirect
        error = a.post("/sessions", {"node": "x"}, headers=AS_ADMIN)
        assert error.status == 503 and error.headers["x-should-retry"] == "true" and "different name" in error.text, error.text
        assert [r.target for r in x.requests] == ["/sessions?here=1"]


def test_without_a_fleet_there_is_one_node(start):
    s = start(engine="builtin:echo", workers=1)
    assert s.post("/sessions", {"prefer": {"engine": "policy"}}).status == 200
    for body, words in (({"node": "a"}, "in no fleet"), ({"prefer": {"engine": "x"}}, 'no node has an engine')):
        error = s.post("/sessions", body)
        assert error.status == 400 and error.json()["error"]["param"] == next(iter(body)) and words in error.json()["error"]["message"]


@pytest.mark.parametrize("settings,error", [(["--fleet=redis://127.0.0.1/0", "--peer=4-7=127.0.0.1:9"], "--peer"),
                                            (["--public-url=ftp://x"], "--public-url"), (["--public-url=http://x/?a=1"], "--public-url"),
                                            (["--public-url=node"], "--public-url"),
                                            (["--fleet=redis://127.0.0.1/0", "--fleet-node=route"], "--fleet-node")])
def test_settings_that_exclude_each_other_are_an_error_at_the_start(settings, error):
    done = subprocess.run([g.BINARY, "config", "--check", "--workers=1", *settings], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and error in done.stderr + done.stdout


def test_new_sessions_name_the_public_url(start):
    s = start(engine="builtin:echo", workers=1, public_url="https://gate.example/run42/")
    made = s.post("/sessions", {}).json()
    assert made["base_url"] == f"https://gate.example/run42/sessions/{made['session_id']}/v1"
    assert made["anthropic_base_url"] == f"https://gate.example/run42/sessions/{made['session_id']}"


def test_new_sessions_name_the_address_of_their_node(tmp_path):
    with Fleet(tmp_path, "ab", public_url="node") as fleet:
        session = fleet.create("b")
        assert session["base_url"].startswith(f"{fleet['b'].url}/")
        answer = fleet.chat("a", session, "hi").json()
        fork = fleet["a"].post(f"/sessions/{session['session_id']}/fork", {"response_id": answer["id"]}, headers=AS_ADMIN)
        assert fork.status in (200, 201) and fork.json()["base_url"].startswith(f"{fleet['b'].url}/"), fork.text

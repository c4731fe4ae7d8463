"""Connections that a router lends to a worker (--lend-after, docs/operations.md): clients get the same answers, and
nothing is lost if a process or a client ends."""
import contextlib
import json
import os
import resource
import signal
import socket
import threading

import pytest

from gateway import pause, wait_until
from stub_engines import StubEngine
from test_streaming import new, user
from test_turn_recovery import kill_worker, records

PATH = "v1/chat/completions"


class Client:
    """One connection, and requests on it whose heads are the same but for their length."""

    def __init__(self, gateway, session, stream=False):
        self.gateway, self.session, self.stream = gateway, session, stream
        self.socket = socket.create_connection(("127.0.0.1", gateway.port), timeout=30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.makefile("rb")
        self.said = []

    def close(self):
        self.file.close()
        self.socket.close()

    def head(self, length, path=None, more=""):
        key = self.session.get("api_key")
        return (f"POST {path or '/sessions/' + self.session['session_id'] + '/' + PATH} HTTP/1.1\r\nHost: localhost\r\n"
                f"Content-Type: application/json\r\n{more}" + (f"Authorization: Bearer {key}\r\n" if key else "")
                + f"Content-Length: {length}\r\n\r\n").encode()

    def request(self, text="hello", more="", padding="", **fields):
        said = [*self.said, *user(text)] if isinstance(text, str) else text
        body = json.dumps({"model": "m", "messages": said, "stream": self.stream, "max_tokens": 16, **fields}).encode()
        return self.head(len(body), more=more) + body

    def send(self, *args, **fields):
        self.socket.sendall(self.request(*args, **fields))

    def answer(self):
        """Status, headers, body; status 0: the connection has ended instead."""
        line = self.file.readline()
        if not line:
            return 0, {}, b""
        status, headers = int(line.split()[1]), {}
        while (line := self.file.readline().strip()):
            name, value = line.decode().split(":", 1)
            headers[name.lower()] = value.strip()
        if "content-length" in headers:
            return status, headers, self.file.read(int(headers["content-length"]))
        body = b""
        while (size := int(self.file.readline() or b"0", 16)):
            body += self.file.read(size)
            self.file.readline()
        self.file.readline()
        return status, headers, body

    def turn(self, text="hello", **more):
        """Asks, and keeps what was said."""
        self.send(text, **more)
        status, headers, body = self.answer()
        if status == 200 and not self.stream:
            self.said += [*user(text), json.loads(body)["choices"][0]["message"]]
        return status, headers, body

    def lend(self):
        """Turns until a worker has the connection."""
        for i in range(2):
            status, _, body = self.turn(f"turn {i}")
            assert status == 200, body
        wait_until(lambda: lent(self.gateway) > 0, 5, "the connection is lent")
        return self


def lent(gateway):
    return gateway.metrics()["rollgate_connections_lent"]


def served(gateway):
    return gateway.metrics()["rollgate_lent_requests_total"]


@pytest.fixture
def client(start):
    gateway = start(workers=1, routers=1)
    with contextlib.closing(Client(gateway, new(gateway))) as c:
        yield c


@pytest.fixture
def held(start):
    """A lent connection, and an engine whose answers are made when told."""
    with StubEngine("sglang") as engine:
        gateway = start(engine=engine.setting, workers=1, routers=1)
        with contextlib.closing(Client(gateway, new(gateway))) as c:
            c.engine = engine
            yield c.lend()


def begin(client, **fields):
    """A call that waits at the engine; what lets it go on."""
    go, engine = threading.Event(), client.engine
    engine.plan.append({"ids": [65, 257], "wait": go})
    client.send("wait", **fields)
    wait_until(lambda: engine.running == 1, 5, "the call runs")
    return go


def test_requests_alike_need_no_relay(client):
    client.lend()
    before = served(client.gateway)
    for i in range(5):
        assert client.turn(f"more {i}")[0] == 200
    assert served(client.gateway) == before + 5
    assert len(records(client.gateway, client.session)["records"]) == 7


def test_never_with_0(start):
    gateway = start(workers=1, routers=1, lend_after=0)
    with contextlib.closing(Client(gateway, new(gateway))) as c:
        for i in range(5):
            assert c.turn(f"turn {i}")[0] == 200
    assert served(gateway) == 0


def test_an_answer_is_the_same(start):
    """Byte for byte but for what is each call's own, and the Connection header, which is for one hop."""
    answers = {}
    for after in 0, 1:
        gateway = start(workers=1, routers=1, lend_after=after)
        for stream in False, True:
            with contextlib.closing(Client(gateway, new(gateway), stream)) as c:
                c.turn("one")
                if after:
                    wait_until(lambda: lent(gateway) == 1, 5, "the connection is lent")
                status, headers, body = c.turn("two")
                for own in "date", "connection", "rollgate-request-id", "content-length":
                    headers.pop(own, None)
                kept = [line for line in body.decode().replace(",", "\n").split("\n")
                        if '"id"' not in line and '"created"' not in line and "session" not in line]
                answers.setdefault(stream, []).append((status, sorted(k for k in headers), kept))
            if after:
                wait_until(lambda: lent(gateway) == 0, 5, "the connection is closed")
    for old, now in answers.values():
        assert old == now


def test_streams(start):
    gateway = start(workers=1, routers=1)
    with contextlib.closing(Client(gateway, new(gateway), stream=True)) as c:
        c.lend()
        before = served(gateway)
        for i in range(3):
            status, _, body = c.turn(f"more {i}")
            assert status == 200 and body.endswith(b"data: [DONE]\n\n")
        assert served(gateway) == before + 3


@pytest.mark.parametrize("other", ["header", "headers", "session", "chunked", "control", "pipelined", "half", "odd_length"])
def test_what_is_not_alike_goes_to_the_router(client, other):
    client.lend()
    gateway, before = client.gateway, served(client.gateway)
    if other == "header":
        client.send("x", more="X-Other: 1\r\n")
        assert client.answer()[0] == 200
    elif other == "headers":
        client.send("x", more="".join(f"X-{i}: 1\r\n" for i in range(200)))
        status, _, body = client.answer()
        assert status == 431 and b"more than 100 headers" in body, body
    elif other == "session":
        client.session = new(gateway)
        client.said = []
        assert client.turn("to another one")[0] == 200
        assert len(records(gateway, client.session)["records"]) == 1
    elif other == "chunked":
        body = client.request("x").split(b"\r\n\r\n", 1)[1]
        head = client.head(0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
        client.socket.sendall(head + b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body))
        assert client.answer()[0] == 200
    elif other == "control":
        client.socket.sendall(b"GET /sessions/%s HTTP/1.1\r\nHost: localhost\r\n\r\n" % client.session["session_id"].encode())
        assert client.answer()[0] == 200
    elif other == "pipelined":
        one = client.request("a")
        client.socket.sendall(one + client.request("b"))
        assert [client.answer()[0] for _ in range(2)] == [200, 200]
    elif other == "half":
        whole = client.request("half of it comes late")
        client.socket.sendall(whole[:-10])
        wait_until(lambda: lent(gateway) == 0, 10, "it goes back")
        client.socket.sendall(whole[-10:])
        assert client.answer()[0] == 200
    elif other == "odd_length":
        client.socket.sendall(client.head("0010") + b'{"model":1')
        assert client.answer()[0] == 400
    assert served(gateway) == before
    assert client.gateway.get("/health").status == 200


def test_a_head_and_its_body_may_come_apart(client):
    client.lend()
    before = served(client.gateway)
    for _ in range(3):
        head, body = client.request("in pieces").split(b"\r\n\r\n", 1)
        for piece in head[:20], head[20:] + b"\r\n\r\n", body[:5], body[5:]:
            client.socket.sendall(piece)
            pause(0.01, "the pieces are to come apart")
        assert client.answer()[0] == 200
    assert served(client.gateway) == before + 3


def test_keys_are_checked_by_the_worker_too(start, tmp_path):
    (tmp_path / "admin").write_text("adm-0123456789abcdef\n")
    gateway = start(workers=1, routers=1, admin_key_file=str(tmp_path / "admin"))
    admin = {"Authorization": "Bearer adm-0123456789abcdef"}
    session = gateway.post("/sessions", {}, headers=admin).json()
    with contextlib.closing(Client(gateway, session)) as c:
        for i in range(2):
            assert c.turn(f"{i}")[0] == 200
        assert c.turn("lent by now")[0] == 200
        gateway.request("DELETE", f"/sessions/{session['session_id']}", headers=admin)
        assert c.turn("of a session that has ended")[0] in (401, 403, 404, 410)


def test_a_worker_that_dies_while_it_rests_loses_nothing(client):
    client.lend()
    kill_worker(client.gateway)
    status, _, body = client.turn("to its successor")
    assert status == 200, body
    assert len(records(client.gateway, client.session)["records"]) == 3


def test_a_worker_that_dies_at_work_is_told(held):
    go = begin(held)
    kill_worker(held.gateway)
    status, headers, body = held.answer()
    assert status == 503 and json.loads(body)["error"]["code"] == "worker_unavailable", body
    assert headers["connection"] == "close"
    go.set()


def test_a_worker_that_dies_in_its_answer_cuts_it(held):
    """The answer has begun; its client finds the connection closed without its end, and nothing in place of it."""
    held.engine.plan.append({"ids": [65] * 20, "chunk": 1, "hold_after": 4})
    held.engine.give_up = threading.Event()
    held.stream = True
    held.send("wait")
    assert b"200" in held.file.readline()
    while held.file.readline().strip():
        pass
    kill_worker(held.gateway)
    rest = held.file.read()
    assert b"HTTP/1.1" not in rest and not rest.endswith(b"0\r\n\r\n"), rest
    held.engine.give_up.set()


def test_a_router_that_dies_takes_no_answer_with_it(held):
    go = begin(held)
    held.gateway.allow("process died")
    router = held.gateway.child("router-0")
    os.kill(router, signal.SIGKILL)
    go.set()
    assert held.answer()[0] == 200
    assert held.answer()[0] == 0, "nobody is there to give it back to"
    assert len(records(held.gateway, held.session)["records"]) == 3


def test_a_client_that_leaves_cancels_its_call(held):
    go = begin(held)
    held.close()
    wait_until(lambda: held.engine.running == 0 or held.engine.aborts, 10, "the engine is told")
    wait_until(lambda: lent(held.gateway) == 0, 5, "the connection is closed")
    go.set()


def test_an_answer_is_delivered_when_its_client_has_all_of_it(client):
    """Also when that leaves with the last byte: the same request is a new sample then, no replay."""
    client.lend()
    for i in range(10):
        client.turn("again")
        client.close()
        once = client.said[:-2]
        client.__init__(client.gateway, client.session)
        client.said = once
        status, headers, _ = client.turn("again")
        assert status == 200 and "rollgate-replayed" not in headers, i
        while not lent(client.gateway):
            client.turn(f"more {i}")


def test_a_setting_that_is_taken_back_takes_them_back(start, tmp_path):
    settings = tmp_path / "rollgate.conf"
    settings.write_text("lend-after: 1\n")
    gateway = start(workers=1, routers=1, config=str(settings))
    with contextlib.closing(Client(gateway, new(gateway))) as c:
        c.turn("one")
        wait_until(lambda: lent(gateway) == 1, 5, "the connection is lent")
        settings.write_text("lend-after: 0\n")
        gateway.signal(signal.SIGHUP)
        wait_until(lambda: lent(gateway) == 0, 10, "it comes back")
        before = served(gateway)
        for i in range(3):
            assert c.turn(f"more {i}")[0] == 200
        assert served(gateway) == before


def test_a_gateway_that_stops_answers_what_runs(held):
    go = begin(held)
    held.gateway.signal(signal.SIGTERM)
    held.gateway.wait_line("drain|stopping")
    go.set()
    assert held.answer()[0] == 200
    held.gateway.wait()


def test_idle_ones_go_back(client):
    client.lend()
    wait_until(lambda: lent(client.gateway) == 0, 20, "it goes back")
    assert client.turn("after a while")[0] == 200


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_half_closes_reads_what_others_would(held, stream):
    """Who sends no more has left: nothing is answered, whoever has the connection."""
    held.stream = stream
    go = begin(held)
    held.socket.shutdown(socket.SHUT_WR)
    rest = held.file.read()
    assert b"499" not in rest and not rest.endswith(b"0\r\n\r\n") and (stream or not rest), rest
    go.set()


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_half_closes_before_its_call_begins_reads_nothing(held, stream):
    held.stream = stream
    held.socket.sendall(held.request("too late"), socket.MSG_MORE)  # goes with the end
    held.socket.shutdown(socket.SHUT_WR)
    assert held.file.read() == b""


@pytest.mark.parametrize("megabytes", [0.2, 0.9, 3, 12])
def test_a_lent_connection_serves_long_requests(client, megabytes):
    """A request that comes right after one of them goes back to the router, with what was read of it."""
    client.lend()
    before = served(client.gateway)
    whole = client.request("long", user="u" * int(megabytes * 1e6))
    client.socket.sendall(whole)
    assert client.answer()[0] == 200
    client.socket.sendall(whole + client.request("short"))
    assert [client.answer()[0], client.answer()[0]] == [200, 200]
    assert served(client.gateway) > before
    assert client.turn("and on")[0] == 200


@pytest.mark.parametrize("came", [0.2, 3, 12])
def test_a_long_request_that_is_slow_goes_back_whole(client, came):
    """The router serves it: what the worker had read of it comes back in several messages. Base64 of it was packed."""
    client.lend()
    words = [{"role": "user", "content": "".join(f"{i:05x}" for i in range(14_000))}]
    whole = client.request(words, user="QUJD" * int(came * 3e5), stream=False)
    client.socket.sendall(whole[:-40])
    before = served(client.gateway)
    wait_until(lambda: lent(client.gateway) == 0, 20, "it goes back")
    client.socket.sendall(whole[-40:])
    status, _, body = client.answer()
    assert status == 200, body
    assert served(client.gateway) == before
    assert words[0]["content"] in client.gateway.get(f"/sessions/{client.session['session_id']}/trajectories").body.decode()
    assert client.turn("and on")[0] == 200


def test_a_client_that_leaves_within_a_long_request_costs_nobody(client):
    client.lend()
    client.socket.sendall(client.request("x", user="u" * 5_000_000)[:4_000_000])
    client.close()
    wait_until(lambda: lent(client.gateway) == 0, 20, "the connection is closed")
    assert client.gateway.get("/health").status == 200


def test_a_worker_that_dies_within_a_long_request_is_told(client):
    """The router may have the connection back before the worker dies: then the next worker gets the whole request."""
    client.lend()
    whole = client.request("x", user="u" * 5_000_000)
    client.socket.sendall(whole[:4_000_000])
    kill_worker(client.gateway)
    with contextlib.suppress(OSError):
        client.socket.sendall(whole[4_000_000:])
    status, headers, body = client.answer()
    assert status == 200 or (status == 503 and headers["connection"] == "close"), body


def test_a_long_request_with_much_behind_it_goes_back(held):
    """Nobody else's connection suffers from what follows a request."""
    go, gateway = begin(held), held.gateway
    for _ in range(3):
        with contextlib.closing(Client(gateway, new(gateway))) as bad:
            for i in range(2):
                assert bad.turn("x")[0] == 200
            wait_until(lambda: lent(gateway) == 2, 5, "the connection is lent")
            body = b'{"model": "m", "messages": "' + b"x" * 130_500 + b'"}'
            whole = bad.head(len(body)) + body
            bad.socket.sendall(whole[:2000])
            pause(0.05, "its head is to be read first")
            with contextlib.suppress(OSError):
                bad.socket.sendall(whole[2000:] + b"P" * 400_000)
            with contextlib.suppress(OSError):
                assert bad.answer()[0] in (0, 400)
        wait_until(lambda: lent(gateway) == 1, 5, "the others are")
    go.set()
    assert held.answer()[0] == 200


def test_a_worker_without_descriptors_refuses_what_is_lent(held):
    gateway, worker = held.gateway, held.gateway.child("worker-0")
    with contextlib.closing(Client(gateway, new(gateway))) as other:
        assert other.turn("x")[0] == 200
        go, then = begin(held), threading.Event()
        held.engine.plan.append({"ids": [65, 257], "wait": then})
        other.send("y")
        wait_until(lambda: held.engine.running == 2, 5, "both calls run")
        used = {int(f) for f in os.listdir(f"/proc/{worker}/fd")}
        had = resource.prlimit(worker, resource.RLIMIT_NOFILE)
        resource.prlimit(worker, resource.RLIMIT_NOFILE, (next(i for i in range(10_000) if i not in used), had[1]))
        then.set()
        assert other.answer()[0] == 200
        pause(0.2, "it is lent, and comes back")
        resource.prlimit(worker, resource.RLIMIT_NOFILE, had)
        assert lent(gateway) == 1
        go.set()
        assert held.answer()[0] == 200
        assert other.turn("z")[0] == 200


def test_a_router_dies_while_its_clients_leave(start):
    gateway = start(workers=1, routers=1, lend_after=1)
    gateway.allow("process died")
    clients = [Client(gateway, new(gateway)) for _ in range(200)]
    for c in clients:
        assert c.turn("x")[0] == 200
    wait_until(lambda: lent(gateway) == 200, 5, "all are lent")
    worker, router = gateway.child("worker-0"), gateway.child("router-0")
    os.kill(worker, signal.SIGSTOP)
    for c in clients:
        c.close()
    os.kill(router, signal.SIGKILL)
    wait_until(lambda: gateway.child("router-0") not in (None, router), 20, "a router serves")
    os.kill(worker, signal.SIGCONT)
    c = Client(gateway, new(gateway))
    assert c.turn("x")[0] == 200
    c.close()
    assert gateway.child("worker-0") == worker


def test_many(start):
    """Many connections at once, each of a session of its own, over two routers and two workers."""
    gateway = start(workers=2, routers=2)
    clients = [Client(gateway, new(gateway)) for _ in range(60)]
    try:
        for turn in range(6):
            for c in clients:
                c.send(f"turn {turn}")
            for c in clients:
                status, _, body = c.answer()
                assert status == 200, body
        assert served(gateway) >= 60
        for c in clients:
            assert len(records(gateway, c.session)["records"]) == 6
    finally:
        for c in clients:
            c.close()
    wait_until(lambda: lent(gateway) == 0, 5, "all are closed")

"""An answer is delivered (spec sessions.md section 6) when the router has passed it to the client, even if the
processes in between are slow, stuck or end."""
import concurrent.futures
import contextlib
import http.client
import json
import os
import signal
import socket
import threading

import pytest

from gateway import pause, wait_until
from stub_engines import StubEngine
from test_streaming import new, user
from test_turn_cancel import branches
from test_turn_recovery import kill_worker, records
from test_turn_retry import text


class Held:
    """A call whose answer is made when let() is called, and reaches the only router while that stands still."""

    def __init__(self, gateway, engine, session):
        self.gateway, self.session, self.go = gateway, session, threading.Event()
        engine.plan.append({"ids": [65, 257], "wait": self.go})
        self.pool = concurrent.futures.ThreadPoolExecutor(1)
        self.answer = self.pool.submit(gateway.chat, session, "x")
        wait_until(lambda: engine.running == 1, 5, "the call runs")
        self.router = gateway.child("router-0")
        gateway.allow("process died")

    def let(self):
        os.kill(self.router, signal.SIGSTOP)
        self.go.set()
        self.gateway.wait_line(r" call .*outcome=ok")

    def lose(self):
        os.kill(self.router, signal.SIGKILL)
        with pytest.raises((OSError, http.client.HTTPException)):
            self.answer.result(10)
        self.pool.shutdown()
        wait_until(lambda: self.gateway.child("router-0") != self.router, 20, "a router serves")

    def check(self):
        a = self.gateway.chat(self.session, "x")
        assert (a.headers.get("Rollgate-Replayed"), text(a)) == ("1", "A")
        assert len(records(self.gateway, self.session)["records"]) == 1, "one turn"


@pytest.fixture
def held(start):
    with StubEngine("sglang") as engine:
        gateway = start(engine=engine.setting, workers=1, routers=1)
        yield Held(gateway, engine, new(gateway))


def test_an_answer_that_a_stuck_router_keeps_is_not_delivered(held):
    held.let()
    pause(2.5, "the worker notes once a second what arrived")
    held.lose()
    held.check()


def test_nor_is_it_when_the_worker_comes_late_to_see_the_router_die(held):
    held.let()
    worker = held.gateway.child("worker-0")
    os.kill(worker, signal.SIGSTOP)
    held.lose()
    pause(1.5, "the worker would have noted it by now, if it ran")
    os.kill(worker, signal.SIGCONT)
    held.check()


def test_nor_for_the_successor_of_a_worker(held):
    held.let()
    pause(2.5, "the worker notes once a second what arrived")
    kill_worker(held.gateway)
    held.lose()
    held.check()


def holder(gateway, sock):
    """The router that has the other end of a client's socket."""
    here = f"0100007F:{sock.getsockname()[1]:04X}"
    for line in open("/proc/net/tcp").read().split("\n")[1:]:
        fields = line.split()
        if fields and fields[2] == here:
            inode = f"socket:[{fields[9]}]"
            for pid in gateway.family():
                for fd in os.listdir(f"/proc/{pid}/fd"):
                    with contextlib.suppress(OSError):
                        if os.readlink(f"/proc/{pid}/fd/{fd}") == inode:
                            return pid


def connect_elsewhere(gateway, connection, other):
    """Connects by another router than the one that `other` has; that one's pid."""
    router = holder(gateway, other.sock)
    connection.connect()
    while wait_until(lambda: holder(gateway, connection.sock), 5, "it is accepted") == router:
        connection.close()
        connection.connect()
    return router


ROUNDS = 12     # of a race


def test_a_retry_at_once_joins_the_call_of_a_router_that_dies(start):
    """The worker hears of a router's death before its clients do."""
    with StubEngine("sglang") as engine:
        gateway = start(engine=engine.setting, workers=1, routers=16, max_restarts=1000, rejoin_window="20s")
        gateway.allow("process died")
        s = new(gateway)
        body = json.dumps({"model": "m", "messages": user("x")})
        path = f"/sessions/{s['session_id']}/v1/chat/completions"
        for n in range(ROUNDS):
            go = threading.Event()
            engine.plan.extend([{"ids": [65 + n, 257], "wait": go}, {"ids": [64, 257]}])
            with contextlib.ExitStack() as stack:
                def client():
                    c = gateway.connect()
                    stack.callback(c.close)
                    return c
                for _ in range(32):  # links that were used before, and clients that came later
                    c = client()
                    c.request("GET", f"/sessions/{s['session_id']}")
                    c.getresponse().read()
                c, again = client(), client()
                c.request("POST", path, body)
                wait_until(lambda: engine.running == 1, 5, "the call runs")
                router = connect_elsewhere(gateway, again, c)
                os.kill(router, signal.SIGKILL)
                with pytest.raises((OSError, http.client.HTTPException)):
                    c.getresponse()
                again.request("POST", path, body)
                pause(0.05, "the retry reaches the worker while the call runs")
                go.set()
                a = again.getresponse()
                assert a.status == 200
                assert json.loads(a.read())["choices"][0]["message"]["content"] == chr(65 + n)
            engine.plan.clear()
        assert branches(gateway, s) == ROUNDS


def test_samples_one_right_after_the_other_are_all_new(start):
    """The confirmation of an answer is on its way when the next sample of the same request comes."""
    gateway = start(engine="builtin:random:1", workers=1, routers=2)
    s = new(gateway)

    def some(n):
        got = []
        c = gateway.connect()
        for _ in range(n):
            c.request("POST", f"/sessions/{s['session_id']}/v1/chat/completions",
                      json.dumps({"model": "m", "messages": user("x")}))
            r = c.getresponse()
            assert r.status == 200 and "Rollgate-Replayed" not in r.headers
            got.append(json.loads(r.read())["id"])
        c.close()
        return got

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        ids = sum(pool.map(some, [50] * 4), [])
    assert len(set(ids)) == 200 == len(records(gateway, s)["records"])


@pytest.mark.parametrize("memory,first_is,prompts", [
    (0, "given", 1), (0, "given", 2), (0, "lost", 1), (0, "lost", 2), (0, "read late", 1), (0, "read late", 2),
    ("4k", "given", 1), ("4k", "lost", 2), ("4k", "read late", 1)])
def test_a_repeated_request_waits_for_an_answer_under_way(start, memory, first_is, prompts):
    """Neither a second sample of what may yet be lost nor the first one's answer if that arrives; but it does not
    wait for who reads slowly. The session is there when it is known, however little memory there is."""
    late, arrives = first_is == "read late", first_is != "lost"
    with StubEngine("sglang") as engine:
        gateway = start(engine=engine.setting, workers=1, routers=4, max_worker_memory=memory,
                        keepalive="3s" if late else "30s")
        gateway.allow("process died")
        s = new(gateway)
        go = threading.Event()
        engine.plan.extend([{"ids": [65 + i, 257], "wait": go} for i in range(prompts)])
        path = f"/sessions/{s['session_id']}/v1/completions"
        body = json.dumps({"model": "m", "prompt": ["x", "y"][:prompts]})

        def texts(connection):
            r = connection.getresponse()
            assert r.status == 200
            return r.headers.get("Rollgate-Replayed"), sorted(c["text"] for c in json.loads(r.read())["choices"])

        with contextlib.closing(gateway.connect()) as first, contextlib.closing(gateway.connect()) as second:
            first.request("POST", path, body)
            wait_until(lambda: engine.running == prompts, 5, "the calls run")
            router = connect_elsewhere(gateway, second, first)
            os.kill(router, signal.SIGSTOP)
            go.set()
            wait_until(lambda: gateway.log().count("outcome=ok") == prompts, 5, "they are committed")
            engine.plan.extend([{"ids": [75 + i, 257]} for i in range(prompts)])
            second.request("POST", path, body)
            second.sock.settimeout(0.5)
            with pytest.raises(TimeoutError):
                second.sock.recv(1, socket.MSG_PEEK)
            assert len(engine.requests) == prompts
            second.sock.settimeout(10)
            if late:
                assert texts(second) == (None, ["K", "L"][:prompts])
            os.kill(router, signal.SIGCONT if arrives else signal.SIGKILL)
            if arrives:
                assert texts(first) == (None, ["A", "B"][:prompts])
                assert late or texts(second) == (None, ["K", "L"][:prompts])
            else:
                assert texts(second) == ("1", ["A", "B"][:prompts])
        assert len(records(gateway, s)["records"]) == prompts * (1 + arrives)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("how", ["told to end", "upgraded"])
def test_what_a_worker_answers_before_it_ends_is_delivered(start, how, stream):
    """Its connections close with their answers, and are confirmed nevertheless: what comes then is a new sample."""
    with StubEngine("sglang") as engine:
        gateway = start(engine=engine.setting, workers=1, routers=1)
        s, n, go = new(gateway), 8, threading.Event()
        engine.plan.extend([{"ids": [65, 257], "wait": go}] * n)
        with concurrent.futures.ThreadPoolExecutor(n) as pool:
            answers = [pool.submit(gateway.chat, s, f"x{i}", stream=stream) for i in range(n)]
            wait_until(lambda: engine.running == n, 5, "the calls run")
            ends = gateway.child("worker-0")
            if how == "upgraded":
                gateway.signal(signal.SIGUSR2)
                gateway.wait_line(" upgrading ")
            else:
                os.kill(ends, signal.SIGTERM)
            go.set()
            assert [a.result(10).status for a in answers] == [200] * n
        wait_until(lambda: gateway.child("worker-0") not in (None, ends), 20, "its successor serves")
        engine.plan.extend([{"ids": [75, 257]}] * n)
        again = [gateway.chat(s, f"x{i}") for i in range(n)]
        assert [(a.headers.get("Rollgate-Replayed"), text(a)) for a in again] == [(None, "K")] * n


@pytest.mark.parametrize("extra", [0, 1])
def test_our_own_header_takes_no_place_of_the_clients(start, extra):
    """100 headers may come, and an answer to them arrives like others; 101 are too many."""
    gateway = start(engine="builtin:random:1", workers=1, routers=1)
    s = new(gateway)
    headers = {f"X-{i}": "1" for i in range(97 + extra)}  # and Host, Accept-Encoding, Content-Length
    answers = []
    with contextlib.closing(gateway.connect()) as c:
        for _ in range(3):
            c.request("POST", f"/sessions/{s['session_id']}/v1/chat/completions",
                      json.dumps({"model": "m", "messages": user("x")}), headers)
            r = c.getresponse()
            r.read()
            answers.append((r.status, r.headers.get("Rollgate-Replayed")))
    assert answers == [(431 if extra else 200, None)] * 3

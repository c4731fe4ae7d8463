"""Who asks and leaves before anybody could have answered costs no worker anything."""
import json
import os
import signal
import socket

import pytest

from gateway import wait_until

CALL = json.dumps({"model": "m", "max_tokens": 8, "messages": [{"role": "user", "content": "hello"}]})
ASKED = 5


def ask_and_leave(gateway, session, body, missing=0):
    """A call with that body, of which so many bytes are told and not sent; its client is gone at once."""
    with socket.create_connection(("127.0.0.1", gateway.port), 30) as s:
        s.sendall((f"POST /sessions/{session['session_id']}/v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
                   f"Content-Length: {len(body) + missing}\r\n\r\n{body}").encode())


def sums(gateway, name, **labels):
    return sum(value for key, value in gateway.metrics().items() if key.split("{")[0] == "rollgate_" + name
               and all(f'{k}="{v}"' in key for k, v in labels.items()))


@pytest.mark.parametrize("on_disconnect", ["abort", "finish"])
def test_a_call_whose_client_has_left_is_not_begun(start, on_disconnect):
    """The router is held until the clients are gone, so that it sees their requests and their ends at once."""
    gateway = start(engine="builtin:echo", workers=1, routers=1, on_disconnect=on_disconnect)
    session = gateway.post("/sessions").json()
    router, before = gateway.child("router-0"), sums(gateway, "relayed_bytes_total", direction="to_worker")
    os.kill(router, signal.SIGSTOP)
    try:
        for _ in range(ASKED):
            ask_and_leave(gateway, session, CALL)
    finally:
        os.kill(router, signal.SIGCONT)
    if on_disconnect == "finish":   # a worker is to answer them all the same
        wait_until(lambda: gateway.get(f"/sessions/{session['session_id']}").json()["num_calls"] >= 1, 60, "it is answered")
        assert sums(gateway, "relayed_bytes_total", direction="to_worker") > before
        return
    wait_until(lambda: sums(gateway, "requests_total", dialect="chat", status="499") == ASKED, 60, "all are told")
    assert sums(gateway, "relayed_bytes_total", direction="to_worker") == before
    assert gateway.chat(session, "hello").status == 200


def read_bytes(pid):
    """What it has read by now."""
    with open(f"/proc/{pid}/io") as f:
        return int(f.readline().split()[1])


def test_what_comes_of_a_body_whose_client_has_left_is_not_read(start):
    """The worker is held until the clients are gone. One of them has sent all of its body: that one is served."""
    gateway = start(engine="builtin:echo", workers=1, routers=1, on_disconnect="finish")
    session = gateway.post("/sessions").json()
    path, calls = f"/sessions/{session['session_id']}", 20
    body = json.dumps({"model": "m", "max_tokens": 8, "messages": [{"role": "user", "content": "a" * 150_000}]})
    worker, router = gateway.child("worker-0"), gateway.child("router-0")
    before = {pid: len(os.listdir(f"/proc/{pid}/fd")) for pid in (worker, router)}
    read, relayed = read_bytes(worker), sums(gateway, "relayed_bytes_total", direction="to_worker")
    os.kill(worker, signal.SIGSTOP)
    try:
        for n in range(calls):
            ask_and_leave(gateway, session, body, missing=int(n > 0))
        wait_until(lambda: sums(gateway, "relayed_bytes_total", direction="to_worker") >= relayed + calls * len(body), what="all is at the worker")
        wait_until(lambda: len(os.listdir(f"/proc/{router}/fd")) <= before[router] + 1, what="the router has seen the others leave")
    finally:
        os.kill(worker, signal.SIGCONT)
    wait_until(lambda: gateway.get(path).json()["num_calls"] == 1, what="the whole one is answered")
    wait_until(lambda: len(os.listdir(f"/proc/{worker}/fd")) <= before[worker] + 2, what="the others are dropped")
    assert read_bytes(worker) - read < len(body) + calls * 30_000

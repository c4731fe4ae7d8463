"""--on-disconnect finish: a call with a complete body is carried out although its client left, at any moment: while a
helper reads its body, or while it waits for an earlier call, its session, a picture, or its start. It is recorded
once, and a retry finds it. With abort it is dropped."""
import contextlib
import json
import os
import signal
import socket
import threading

import pytest

from gateway import wait_until
from test_faults import faulty  # noqa: F401, a fixture
from test_helpers import HUGE
from test_images_fetch import HERE, by, hosts, page, web  # noqa: F401
from test_streaming import new, user
from test_turn_recovery import kill_worker
from vision_kit import png, text
from vision_kit import user as seen

LONG = HUGE * 4     # more than a MiB: a helper gives its memory back when it has read it (the fault "keep")
SHAPES = {
    "chat": ("chat/completions", {"messages": user(LONG)}),
    "stream": ("chat/completions", {"messages": user(LONG), "stream": True}),
    "responses": ("responses", {"input": LONG}),
    "messages": ("messages", {"messages": user(LONG), "max_tokens": 9}),
    "completions": ("completions", {"prompt": LONG}),
    "prompts": ("completions", {"prompt": [LONG, "short", "shorter"]}),
    "prompts, a stream": ("completions", {"prompt": [LONG, "short", "shorter"], "stream": True}),
}
SETTINGS = {"routers": 1, "context_length": 20_000_000}


def ask(gateway, s, body, path="chat/completions"):
    """The connection of a client that has sent a call and hears nothing yet."""
    sent = json.dumps({"model": "m", "max_tokens": 9, **body}).encode()
    c = socket.create_connection(("127.0.0.1", gateway.port), 60)
    c.sendall(b"POST /sessions/%s/v1/%s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (
        s["session_id"].encode(), path.encode(), len(sent)) + sent)
    return c


def again(gateway, s, body, path="chat/completions"):
    """The answer to a client that asks for the same and waits."""
    return gateway.post(f"/sessions/{s['session_id']}/v1/{path}", {"model": "m", "max_tokens": 9, **body})


def alone(gateway):
    """The router has seen all clients leave but who asks."""
    return gateway.metrics()["rollgate_connections"] <= 1


def state(gateway, s):
    return gateway.get(f"/sessions/{s['session_id']}").json()


def calls(gateway, s):
    return state(gateway, s)["num_calls"]


def bodies(gateway):
    """Bytes of those that workers hold."""
    return gateway.metrics()['rollgate_request_memory_bytes{kind="bodies"}']


class Held:
    """Clients that left while a helper was at the body of the first."""

    def __init__(self, gateway, inject, waits):
        self.gateway, self.inject, self.waits = gateway, inject, waits
        inject("keep", "1")

    def leave(self, s, *asked, path="chat/completions"):
        with contextlib.ExitStack() as stack:
            for n, body in enumerate(asked):
                stack.enter_context(ask(self.gateway, s, body, path))
                if n == 0:
                    wait_until(self.waits.exists, what="a helper reads it")
            sent = sum(len(json.dumps(b)) for b in asked)
            wait_until(lambda: bodies(self.gateway) >= sent and not self.gateway.metrics()["rollgate_unfinished_body_bytes"], what="all has come")
        wait_until(lambda: alone(self.gateway), what="the router has seen them leave")
        assert calls(self.gateway, s) == 0      # the worker has come to it, too

    def go_on(self):
        self.inject("keep", None)


@pytest.fixture
def held(faulty, tmp_path):  # noqa: F811
    def make(on_disconnect="finish", **settings):
        gateway, inject = faulty(on_disconnect=on_disconnect, **{**SETTINGS, **settings})
        assert gateway.chat(new(gateway), "hello").status == 200
        return Held(gateway, inject, tmp_path / "faults/waits")
    return make


@pytest.mark.parametrize("shape", SHAPES)
def test_while_a_helper_reads_its_body(held, shape):
    path, body = SHAPES[shape]
    h, made = held(), len(body["prompt"]) if isinstance(body.get("prompt"), list) else 1
    s = new(h.gateway)
    h.leave(s, body, path=path)
    h.go_on()
    wait_until(lambda: calls(h.gateway, s) == made, what="it is carried out")
    wait_until(lambda: state(h.gateway, s)["num_inflight_generations"] == 0, what="and over")
    retried = again(h.gateway, s, body, path)
    assert retried.status == 200 and retried.headers["Rollgate-Replayed"] == "1" and calls(h.gateway, s) == made
    assert again(h.gateway, s, body, path).status == 200 and calls(h.gateway, s) == 2 * made
    wait_until(lambda: bodies(h.gateway) < 100, what="its body is given back")


def test_with_abort_it_is_dropped(held):
    h = held("abort")
    s = new(h.gateway)
    h.leave(s, {"messages": user(LONG)})
    h.go_on()
    wait_until(lambda: bodies(h.gateway) < 100, what="its body is given back")
    assert h.gateway.chat(s, "hello").status == 200 and calls(h.gateway, s) == 1


def test_behind_another_of_its_session(held):
    h = held()
    s = new(h.gateway)
    h.leave(s, {"messages": user(LONG)}, {"messages": user("short")}, {"messages": user(LONG + "other")})
    h.go_on()
    wait_until(lambda: calls(h.gateway, s) == 3, what="all are carried out")
    for said in ("short", LONG, LONG + "other"):
        assert again(h.gateway, s, {"messages": user(said)}).headers["Rollgate-Replayed"] == "1"
    assert calls(h.gateway, s) == 3


def test_a_retry_that_comes_before_it_is_read(held):
    h = held()
    s, answers = new(h.gateway), []
    h.leave(s, {"messages": user(LONG)})
    t = threading.Thread(target=lambda: answers.append(again(h.gateway, s, {"messages": user(LONG)})))
    t.start()
    wait_until(lambda: bodies(h.gateway) > 2 * len(LONG), what="it is here")
    h.go_on()
    t.join()
    assert answers[0].status == 200 and calls(h.gateway, s) == 1


def test_what_is_wrong_with_it(held):
    h = held()
    s = new(h.gateway)
    h.leave(s, {"messages": [{"role": "alien", "content": LONG}]})
    h.go_on()
    wait_until(lambda: bodies(h.gateway) < 100, what="it is over")
    assert calls(h.gateway, s) == 0 and h.gateway.chat(s, "hello").status == 200


def test_its_session_ends_before_it_is_read(held):
    h = held()
    s = new(h.gateway)
    h.leave(s, {"messages": user(LONG)})
    deleted = h.gateway.request("DELETE", f"/sessions/{s['session_id']}")
    assert deleted.status == 204 and "Content-Type" not in deleted.headers
    h.go_on()
    wait_until(lambda: bodies(h.gateway) < 100, what="it is over")
    assert h.gateway.get(f"/sessions/{s['session_id']}").status == 410
    assert h.gateway.chat(new(h.gateway), "hello").status == 200


def test_a_worker_that_ends_waits_for_it(held):
    h = held(grace="60s")
    s = new(h.gateway)
    h.leave(s, {"messages": user(LONG)})
    h.gateway.signal(signal.SIGTERM)
    h.gateway.wait_line("stopping")
    h.go_on()
    assert h.gateway.wait() == 0
    h.gateway.start()
    assert calls(h.gateway, s) == 1


def test_a_worker_ends_though_its_helper_does_not(held):
    h = held(grace="500ms")
    s = new(h.gateway)
    h.leave(s, {"messages": user(LONG)})
    assert h.gateway.stop() == 0
    h.go_on()
    h.gateway.start()
    assert calls(h.gateway, s) == 0


def test_its_helper_never_comes_back(held):
    h = held(helper_timeout="500ms")
    h.gateway.allow("its thread is given up", "call failed")
    s = new(h.gateway)
    h.leave(s, {"messages": user(LONG)})
    h.gateway.wait_line("its thread is given up")
    h.go_on()
    assert h.gateway.chat(s, "hello").status == 200 and calls(h.gateway, s) == 1
    assert h.gateway.stop() == 0


def leave_while_held(gateway, s, asked):
    """The worker stands still until their clients have left: it finds all of them, and that, at once."""
    worker = gateway.child("worker-0")
    os.kill(worker, signal.SIGSTOP)
    try:
        for body in asked:
            ask(gateway, s, body).close()
        wait_until(lambda: alone(gateway), what="the router has seen them leave")
    finally:
        os.kill(worker, signal.SIGCONT)


def test_many_that_wait_to_be_begun(start):
    gateway = start(engine="builtin:echo", workers=1, on_disconnect="finish", **SETTINGS)
    s = new(gateway)
    assert gateway.chat(s, "hello").status == 200
    leave_while_held(gateway, s, [{"messages": user(f"{n} " + "a" * 150_000)} for n in range(30)])
    wait_until(lambda: calls(gateway, s) == 31, what="all are carried out")


def test_while_its_session_is_read_back(start):
    gateway = start(engine="builtin:echo", workers=1, on_disconnect="finish", **SETTINGS)
    s, other = new(gateway), new(gateway)
    assert gateway.chat(s, LONG, max_tokens=9).status == 200
    kill_worker(gateway)
    assert gateway.chat(other, "hello").status == 200
    leave_while_held(gateway, s, [{"messages": user(LONG + "more")}])
    wait_until(lambda: calls(gateway, s) == 2, what="it is carried out")


def test_a_long_body_of_which_the_router_had_the_rest(start):
    """More than a worker that stands still takes, and less than the router and its sockets do."""
    gateway = start(engine="builtin:echo", workers=1, on_disconnect="finish", **SETTINGS)
    s = new(gateway)
    assert gateway.chat(s, "hello").status == 200
    for n in range(5):
        asked = [{"messages": user(f"{n} " + "a" * size)} for size in (200_000, 260_000, 400_000, 700_000, 1_000_000)]
        worker = gateway.child("worker-0")
        os.kill(worker, signal.SIGSTOP)
        try:
            for body in asked:
                ask(gateway, s, body).close()
        finally:
            os.kill(worker, signal.SIGCONT)
        wait_until(lambda n=n: calls(gateway, s) == 1 + 5 * (n + 1), what="all are carried out")
        wait_until(lambda: alone(gateway), what="their clients have left")


def test_while_a_picture_is_fetched(start, vision, web):  # noqa: F811
    come, shot = threading.Event(), page(png(64, 64))

    def late(h):
        come.wait(60)
        shot(h)

    web.pages["/late"] = late
    _, gateway = vision(media_fetch=hosts(web), on_disconnect="finish", **HERE, **SETTINGS)
    s = new(gateway)
    assert gateway.chat(s, "hello").status == 200
    ask(gateway, s, {"messages": [seen(text("look"), by(web.at("/late")))]}).close()
    wait_until(lambda: web.asked and alone(gateway), what="it is fetched, its client has left")
    assert calls(gateway, s) == 1
    come.set()
    wait_until(lambda: calls(gateway, s) == 2, what="it is carried out")

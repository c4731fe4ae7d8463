"""Answers that nobody reads wait in the worker: they are bounded by session."""
import contextlib
import json
import socket

import pytest

from battle import peak_allowed
from gateway import wait_until

pytestmark = pytest.mark.alone
WORDS = 400_000
MIB = 1 << 20


def request(session, words=WORDS, **more):
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "word " * words}], **more})
    return (f"POST /sessions/{session['session_id']}/v1/chat/completions HTTP/1.1\r\nHost: x\r\nIdempotency-Key: one\r\n"
            f"Content-Length: {len(body)}\r\n\r\n{body}").encode()


def begin(gateway, data):
    s = socket.create_connection(("127.0.0.1", gateway.port), 60)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    s.sendall(data)
    return s


def status(sock):
    """Of the head alone: the body stays unread."""
    sock.settimeout(60)
    return int(sock.recv(12).split()[1])


def test_replays_that_nobody_reads_are_bounded(start):
    gateway = start(engine="builtin:echo", workers=1, context_length=100_000_000, max_session_unread_bytes="8MiB")
    session, other = gateway.post("/sessions").json(), gateway.post("/sessions").json()
    data, pid = request(session), gateway.child("worker-0")
    before = gateway.resident(pid)
    with contextlib.ExitStack() as held:
        seen = [status(held.enter_context(begin(gateway, data))) for _ in range(40)]
        assert seen[0] == 200 and seen[-1] == 429 and set(seen) == {200, 429}, seen
        assert gateway.resident(pid) < before + peak_allowed(200 * MIB)
        assert gateway.chat(other, "hello").status == 200
        refused = gateway.chat(session, "hello")
        assert refused.status == 429 and "max-session-unread-bytes" in refused.text, refused.text
        refusals = {k: v for k, v in gateway.metrics().items() if k.startswith("rollgate_refusals") and "unread_answers" in k}
        assert sum(refusals.values()) >= 30, refusals
    wait_until(lambda: gateway.chat(session, "hello").status == 200, 30, "those who left count no more")


def test_replays_that_helpers_write_are_bounded_too(start):
    """All are asked for before the first is written, so none of them waits yet."""
    gateway = start(engine="builtin:echo", workers=1, context_length=100_000_000, max_session_unread_bytes="8MiB")
    session, other = gateway.post("/sessions").json(), gateway.post("/sessions").json()
    data, pid = request(session, WORDS // 10, logprobs=True), gateway.child("worker-0")
    with contextlib.closing(begin(gateway, data)) as first:
        assert status(first) == 200
    before = gateway.resident(pid)
    with contextlib.ExitStack() as held:
        asked = [held.enter_context(begin(gateway, data)) for _ in range(20)]
        seen = [status(a) for a in asked]
        assert set(seen) == {200, 429} and seen.count(200) <= 3, seen
        assert gateway.resident(pid) < before + peak_allowed(300 * MIB)
        assert gateway.chat(other, "hello").status == 200

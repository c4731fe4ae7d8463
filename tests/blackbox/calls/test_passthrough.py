"""Paths that no dialect serves are passed to the engine unchanged, and its answer is returned."""
import contextlib
import json
import socket

import pytest

from gateway import wait_until
from http_stub import Handler, HttpStub
from test_streaming import new

BIG = bytes(range(256)) * 16384  # 4 MB


class Engine(Handler):
    def do_GET(self):
        if self.path.startswith("/big"):
            self.answer(200, BIG, Content_Type="application/octet-stream")
        elif self.path.startswith("/wrong"):
            with contextlib.suppress(OSError):
                self.answer(422, b"x" * int(self.path.split("=")[1]), Content_Type="text/plain")
        elif self.path.startswith("/health"):
            self.answer(200, b"{}")
        else:
            self.answer(404, b'{"engine": "has no such thing"}')

    def do_POST(self):
        self.answer(200, json.dumps({
            "path": self.path, "body": self.body().decode(), "key": self.headers.get("Authorization"),
            "routing": self.headers.get("X-SMG-Routing-Key")}).encode())


@pytest.fixture
def engine():
    with HttpStub(Engine) as stub:
        yield stub.port


def test_unknown_paths_reach_the_engine_without_the_agents_key(start, engine, tmp_path):
    key = tmp_path / "key"
    key.write_text("engine-secret\n")
    gateway = start(engine=f"sglang:http://127.0.0.1:{engine},key-file={key}", workers=1,
                    passthrough="/v1/embeddings,/big,/nothing")
    s = new(gateway)
    below = f"/sessions/{s['session_id']}"
    a = gateway.post(f"{below}/v1/embeddings?x=1", {"input": "abc"},
                     headers={"Authorization": f"Bearer {s['api_key']}"})
    assert a.status == 200
    assert a.json() == {"path": "/v1/embeddings?x=1", "body": '{"input": "abc"}',
                        "key": "Bearer engine-secret", "routing": s["session_id"]}
    assert gateway.get(f"{below}/big").body == BIG
    missing = gateway.get(f"{below}/nothing")
    assert missing.status == 404 and missing.json() == {"engine": "has no such thing"}
    assert gateway.get(f"/sessions/{s['session_id']}").json()["num_branches"] == 0


def test_passthrough_off_and_no_engine_to_ask(start, engine):
    closed = start(engine=f"sglang:http://127.0.0.1:{engine}", passthrough="off", workers=1)
    assert closed.post(f"/sessions/{new(closed)['session_id']}/v1/embeddings").status == 404
    builtin = start(engine="builtin:echo", workers=1)
    assert builtin.post(f"/sessions/{new(builtin)['session_id']}/v1/embeddings").status == 404


@pytest.mark.parametrize("size", [1, 1 << 16, (1 << 16) + 1, 10_000_000])
def test_a_body_comes_whole(start, engine, size):
    gateway = start(engine=f"sglang:http://127.0.0.1:{engine}", workers=1, passthrough="/v1/embeddings")
    body = (("%d " * 1000) % tuple(range(1000)) * (size // 3890 + 1))[:size]
    a = gateway.post(f"/sessions/{new(gateway)['session_id']}/v1/embeddings", body.encode(), timeout=60)
    assert a.status == 200 and a.json()["body"] == body


@pytest.mark.parametrize("size", [1 << 20, (1 << 20) + 1])
def test_an_error_that_is_too_long_is_said(start, engine, size):
    gateway = start(engine=f"sglang:http://127.0.0.1:{engine}", workers=1, passthrough="/wrong")
    a = gateway.get(f"/sessions/{new(gateway)['session_id']}/wrong?n={size}", timeout=60)
    if size > 1 << 20:
        assert a.status == 502 and "status 422 and more than 1048576 bytes" in a.text, a.text[:300]
    else:
        assert a.status == 422 and a.text == "x" * size
    assert gateway.get(f"/sessions/{new(gateway)['session_id']}/wrong?n=5").text == "xxxxx"


def test_answers_that_nobody_reads_count(start, engine):
    """For --max-session-unread-bytes: then the session's next request is 429, and served when they are gone."""
    gateway = start(engine=f"sglang:http://127.0.0.1:{engine}", workers=1, passthrough="/big,/nothing", max_session_unread_bytes="1MiB")
    s = new(gateway)
    below, other = (f"/sessions/{i['session_id']}" for i in (s, new(gateway)))
    socks = []
    try:
        for _ in range(8):
            socks.append(socket.create_connection(("127.0.0.1", gateway.port)))
            socks[-1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            socks[-1].sendall(f"GET {below}/big HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        wait_until(lambda: gateway.get(f"{below}/nothing").status == 429, 10, "what waits counts")
        assert "--max-session-unread-bytes" in gateway.get(f"{below}/nothing").text
        assert gateway.get(f"{other}/nothing").status == 404, "the engine's own answer: another session's"
    finally:
        for sock in socks:
            sock.close()
    wait_until(lambda: gateway.get(f"{below}/nothing").status == 404, 10, "nothing waits any more")

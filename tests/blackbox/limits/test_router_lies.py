"""A hostile worker: its answers are trusted as little as clients' requests. No other client gets a byte of them, its
own client gets an error or a cut connection, and the router continues."""
import contextlib
import socket

import pytest

from router_kit import Client, Gone, Router, Worker

PATH = "/sessions/w0-0123456789abcdef0123456789abcdef"
OK = b"HTTP/1.1 200 OK\r\n"
FORGED = OK + b"Content-Length: 6\r\n\r\nforged"

LIES = {
    "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00" + b"\xff" * 500 + b"\r\n\r\n",
    "an empty line": b"\r\n\r\n\r\n\r\n",
    "a request": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a status of two digits": b"HTTP/1.1 20 OK\r\nContent-Length: 0\r\n\r\n",
    "a status of letters": b"HTTP/1.1 abc OK\r\nContent-Length: 0\r\n\r\n",
    "a status below 100": b"HTTP/1.1 099 OK\r\nContent-Length: 0\r\n\r\n",
    "another protocol": b"HTTP/9.9 200 OK\r\nContent-Length: 0\r\n\r\n",
    "two lengths": OK + b"Content-Length: 2\r\nContent-Length: 20\r\n\r\nok" + FORGED,
    "a length and chunks": OK + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + FORGED,
    "a negative length": OK + b"Content-Length: -1\r\n\r\n" + FORGED,
    "a length beyond numbers": OK + b"Content-Length: 99999999999999999999999\r\n\r\n" + FORGED,
    "a length with a sign": OK + b"Content-Length: +6\r\n\r\nforged",
    "a length of two words": OK + b"Content-Length: 6 6\r\n\r\nforged",
    "a chunk that is no number": OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nforged\r\n0\r\n\r\n",
    "a negative chunk": OK + b"Transfer-Encoding: chunked\r\n\r\n-6\r\nforged\r\n0\r\n\r\n",
    "a chunk beyond numbers": OK + b"Transfer-Encoding: chunked\r\n\r\n" + b"f" * 30 + b"\r\nforged",
    "a chunk longer than it says": OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nforged\r\n0\r\n\r\n",
    "an unknown coding": OK + b"Transfer-Encoding: gzip\r\n\r\nforged",
    "chunks twice": OK + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n" + FORGED,
    "a zero byte in the head": OK + b"X-A: a\0b\r\nContent-Length: 0\r\n\r\n" + FORGED,
    "a folded line": OK + b"X-A: a\r\n b\r\nContent-Length: 0\r\n\r\n" + FORGED,
    "a line without a name": OK + b": x\r\nContent-Length: 0\r\n\r\n" + FORGED,
    "a line without a colon": OK + b"nothing\r\nContent-Length: 0\r\n\r\n" + FORGED,
    "a space before the colon": OK + b"Content-Length : 0\r\n\r\n" + FORGED,
    "a head without end": OK + b"X-A: " + b"a" * (2 << 20),
    "many lines": OK + b"X-A: a\r\n" * 200_000,
    "another answer behind": OK + b"Content-Length: 2\r\n\r\nok" + FORGED,
    "another answer behind a long one": OK + b"Content-Length: 3000000\r\n\r\n" + bytes(3_000_000) + FORGED,
    "a body where none may be": b"HTTP/1.1 204 No Content\r\n\r\n" + FORGED,
    "a body that was not modified": b"HTTP/1.1 304 Not Modified\r\nContent-Length: 6\r\n\r\n" + FORGED,
    "another protocol from here on": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n" + FORGED,
    "very many before the answer": b"HTTP/1.1 102 Processing\r\n\r\n" * 50_000 + FORGED,
}


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lies")
    worker = Worker(folder / "w0.sock")
    router = Router(folder, [f"unix:{worker.path}"])
    yield router, worker
    worker.close()
    router.stop()


def told(router, data, timeout=2):
    """All that a client gets who asks once and then listens."""
    heard = b""
    with router.connect(timeout) as sock:
        sock.sendall(data)
        with contextlib.suppress(ConnectionError, socket.timeout):
            while got := sock.recv(65536):
                heard += got
    return heard


def honest(router):
    """Another client, on whatever connection to the worker is left."""
    with Client(router) as c:
        for _ in range(2):
            status, headers, body = c.ask("POST", PATH, b"four")
            assert (status, body) == (200, b'{"worker":0,"n":4}'), (status, headers, body)


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_no_answer_of_anybody_else(pair, lie):
    router, worker = pair
    worker.reset()

    def say(conn, _request):
        with contextlib.suppress(OSError):
            conn.sendall(LIES[lie])
    worker.handler = say
    heard = told(router, b"GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" % PATH.encode())
    worker.handler = worker.plain
    for _ in range(3):
        honest(router)
    assert heard.count(b"HTTP/1.") <= 1 or lie == "very many before the answer", heard[:500]
    assert router.process.poll() is None


def test_an_answer_before_the_question_is_dropped(pair):
    """Said on a connection that waits for its next request."""
    router, worker = pair
    worker.reset()

    def twice(conn, request):
        worker.plain(conn, request)
        with contextlib.suppress(OSError):
            conn.sendall(FORGED)
    worker.handler = twice
    for _ in range(5):
        with Client(router) as c, contextlib.suppress(Gone):
            status, _, body = c.ask("POST", PATH, b"four")
            assert status in (200, 502) and b"forged" not in body, (status, body)
        # a question that is asked before the router has heard the forged answer would get it
        assert worker.wait(lambda: not worker.connections, 40), "the router keeps the connection"
    worker.handler = worker.plain
    honest(router)

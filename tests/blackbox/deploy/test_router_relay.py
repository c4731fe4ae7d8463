"""The router with bodies, slow and leaving peers, dying workers and limits: a real router with recording workers."""
import contextlib
import hashlib
import json
import os
import pathlib
import resource
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

import pytest

from gateway import pause, wait_until
from router_kit import ID, Client, Gone, Router, Worker, read_all, read_body

MB = 1 << 20
ID0 = ID % 0
PATH = f"/sessions/{ID0}/v1/chat/completions"
GET = f"GET {PATH} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
POST = f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\n".encode()


class Bench:
    """A router over n workers; everything is closed and looked at in the end."""

    def __init__(self, tmp):
        self.tmp, self.workers, self.routers = tmp, [], []
        self.allowed = []

    def worker(self, name="w"):
        worker = Worker(self.tmp / f"{name}{len(self.workers)}.sock", len(self.workers))
        self.workers.append(worker)
        return worker

    def router(self, *flags, upstreams=None, **more):
        upstreams = upstreams or ["unix:" + w.path for w in self.workers]
        self.routers.append(Router(self.tmp, upstreams, *flags, **more))
        return self.routers[-1]

    def close(self):
        for router in self.routers:
            router.stop(allowed=self.allowed)
        for worker in self.workers:
            worker.close()
            worker.wait(lambda w=worker: not w.connections)
            pause(0.01, "the worker's threads end behind their last connection")


@pytest.fixture
def bench(tmp_path):
    b = Bench(tmp_path)
    yield b
    b.close()


@pytest.fixture
def pair(bench):
    """(router, worker)"""
    worker = bench.worker()
    return bench.router(), worker


def pattern(n, seed=7):
    block = bytes((i * 2654435761 + seed * 97) >> 13 & 255 for i in range(65536))
    return (block * (n // 65536 + 1))[:n]


def chunked(body, size):
    parts = [body[i : i + size] for i in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in parts) + b"0\r\n\r\n"


def resident(router):
    total = 0
    for pid in router.children():
        for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                total += int(line.split()[1]) * 1024
    return total


def cpu_seconds(router):
    ticks = 0
    for pid in router.children():
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def pending(pid, signo):
    """Whether the signal waits for a stopped process."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return any(int(line.split()[1], 16) >> (signo - 1) & 1
               for line in status.splitlines() if line.startswith(("ShdPnd", "SigPnd")))


def reset(sock):
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


# ---------------------------------------------------------------- bodies


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_large_request_body_arrives_whole(pair, framing):
    router, worker = pair
    body = pattern(5 * MB)
    with Client(router) as c:
        if framing == "length":
            c.send(POST + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        else:
            c.send(POST + b"Transfer-Encoding: chunked\r\n\r\n" + chunked(body, 10007))
        assert c.answer()[0] == 200
        assert c.ask("GET", PATH)[0] == 200, "the connection is in step"
    assert worker.requests[0].body == body


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_large_answer_arrives_whole(pair, framing):
    router, worker = pair
    body = pattern(5 * MB)

    def big(conn, _request):
        if framing == "length":
            conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        else:
            conn.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            conn.sendall(chunked(body, 9973))

    worker.handler = big
    with Client(router) as c:
        for _ in range(2):
            assert c.ask("GET", PATH)[2] == body


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_slow_writer_and_reader(pair, framing):
    """A byte or a few at a time, cut anywhere."""
    router, worker = pair
    body = pattern(3000)
    head = b"Content-Length: 3000\r\n\r\n" if framing == "length" else b"Transfer-Encoding: chunked\r\n\r\n"
    data = POST + head + (body if framing == "length" else chunked(body, 71))

    def drip(conn, request):
        answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(request.body, 67)
        for i in range(0, len(answer), 7):
            conn.sendall(answer[i : i + 7])

    worker.handler = drip
    with Client(router) as c:
        for i in range(0, len(data), 3):
            c.send(data[i : i + 3])
        assert c.answer()[2] == body


def test_request_streams_before_it_is_whole(pair):
    router, worker = pair
    got = threading.Event()

    def half(_conn, _first, _headers, reader):
        reader.exactly(100_000)
        got.set()

    worker.on_head = half
    with Client(router) as c:
        c.send(POST + b"Content-Length: 200000\r\n\r\n" + b"x" * 100_000)
        assert got.wait(10)
        c.send(b"x" * 100_000)
        # the recorder took 100 000 bytes off already; it waits for as many again
        c.send(POST + b"X-Fill: " + b"y" * 30_000)


def test_events_stream_one_by_one(pair):
    router, worker = pair
    go = threading.Semaphore(0)

    def events(conn, _request):
        conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
                     b"Transfer-Encoding: chunked\r\n\r\n")
        for i in range(5):
            assert go.acquire(timeout=10)
            event = b"data: %d\n\n" % i
            conn.sendall(b"%x\r\n%s\r\n" % (len(event), event))
        conn.sendall(b"0\r\n\r\n")

    worker.handler = events
    with Client(router) as c:
        c.send(POST + b"Content-Length: 0\r\n\r\n")
        status, headers = c.head()
        assert dict(headers)["content-type"] == "text/event-stream; charset=utf-8"
        for i in range(5):
            go.release()
            assert c.reader.until(b"\n\n\r\n").endswith(b"data: %d" % i)
        assert c.reader.until(b"0\r\n\r\n") == b""


def test_upload_backpressure(bench):
    """A worker that does not read stops the client; nothing piles up in the router."""
    worker = bench.worker()
    router = bench.router("--max-body-bytes", "256MiB")
    hold = threading.Event()
    total, sent = 128 * MB, 0
    digest = []

    def late(_conn, _first, headers, reader):
        hold.wait(30)
        body = read_body(reader, headers)[0]
        digest.append(hashlib.sha256(body).digest())
        _conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        return False

    worker.on_head = lambda conn, first, headers, reader: bool(late(conn, first, headers, reader)) or True
    before = resident(router)
    block = pattern(MB)
    with Client(router) as c:
        c.send(POST + b"Content-Length: %d\r\n\r\n" % total)
        c.sock.settimeout(0.5)
        try:
            while sent < total:
                sent += c.sock.send(block[sent % MB :])
        except TimeoutError:
            pass
        assert sent < 64 * MB, "the client was stopped"  # what the kernel's buffers of two hops hold is the kernel's affair
        assert resident(router) - before < 8 * MB
        hold.set()
        c.sock.settimeout(30)
        while sent < total:
            sent += c.sock.send(block[sent % MB :])
        assert c.answer()[0] == 200
    assert digest == [hashlib.sha256(block * 128).digest()]


@pytest.mark.parametrize("how", ["closes", "dies"])
def test_long_answer_that_breaks_off_is_not_whole(pair, how):
    """What came of it passes through a pipe; its end must not look like one."""
    router, worker = pair
    worker.reset()
    part = pattern(MB)

    def half(conn, _request):
        conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (3 * MB) + part)
        if how == "dies":
            reset(conn)
        else:
            conn.close()

    worker.handler = half
    with router.connect(10) as sock:
        sock.sendall(POST + b"Content-Length: 0\r\n\r\n")
        heard = read_all(sock)
    body = heard[heard.index(b"\r\n\r\n") + 4:]
    assert part.startswith(body) and len(body) <= MB
    assert how == "dies" or len(body) == MB, "all that came is handed on"
    worker.reset()
    with Client(router) as c:
        assert c.ask("GET", PATH)[0] == 200


def test_download_backpressure(pair):
    """A client that does not read stops the worker."""
    router, worker = pair
    total = 128 * MB
    sent = [0]
    block = pattern(MB)

    def big(conn, _request):
        conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % total)
        while sent[0] < total:
            sent[0] += conn.send(block[sent[0] % MB :])

    worker.handler = big
    before = resident(router)
    with Client(router, 30) as c:
        c.send(POST + b"Content-Length: 0\r\n\r\n")
        last = -1
        while sent[0] != last:
            last = sent[0]
            pause(0.3, "it is stopped when nothing more came in that time")
        assert last < 24 * MB, "the worker was stopped"
        assert resident(router) - before < 8 * MB
        assert hashlib.sha256(c.answer()[2]).digest() == hashlib.sha256(block * 128).digest()


# ---------------------------------------------------------------- early answers, 100-continue


@pytest.mark.parametrize("framing", ["length", "chunked"])
@pytest.mark.parametrize("closes", [True, False])
def test_early_answer_reaches_a_client_that_still_sends(pair, framing, closes):
    router, worker = pair

    def early(conn, _first, _headers, _reader):
        conn.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 5\r\n\r\nlarge")
        if not closes:
            conn.settimeout(10)
            with pytest.raises((Gone, OSError)):
                while True:
                    _reader.fill()
        return True

    worker.on_head = early
    with Client(router) as c:
        if framing == "length":
            c.send(POST + b"Content-Length: 50000000\r\n\r\n")
            part = b"x" * 65536
        else:
            c.send(POST + b"Transfer-Encoding: chunked\r\n\r\n")
            part = b"10000\r\n" + b"x" * 65536 + b"\r\n"
        for _ in range(40):
            c.send(part)
        status, headers, body = c.answer()
        assert (status, body) == (413, b"large")
        assert dict(headers)["connection"] == "close"
        assert c.ended()


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_answer_that_ends_its_connection_comes_with_the_end(pair, framing):
    """Both in one segment: whoever is woken by the answer finds the end there already."""
    router, worker = pair
    if framing == "chunked":
        worker.handler = lambda conn, _: conn.sendall(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n")
    for _ in range(100):
        with router.connect() as sock:
            sock.sendall(GET[:-2] + b"Connection: close\r\n\r\n")
            poll = select.poll()
            poll.register(sock, select.POLLIN | select.POLLRDHUP)
            ((_, events),) = poll.poll(10000)
            assert events & select.POLLRDHUP, "the answer came alone"
            assert b"Connection: close" in read_all(sock)


def test_expect_continue_is_the_routers_to_answer(pair):
    """A worker reads the whole request before it looks at it."""
    router, worker = pair
    with Client(router) as c:
        c.send(POST + b"Expect: 100-continue\r\nContent-Length: 5\r\n\r\n")
        assert c.head()[0] == 100
        c.send(b"hello")
        assert c.answer()[0] == 200
    assert worker.requests[0].body == b"hello" and "expect" not in dict(worker.requests[0].headers)


def test_expect_continue_refused(pair):
    router, worker = pair

    def refuse(conn, _first, _headers, _reader):
        conn.sendall(b"HTTP/1.1 401 No\r\nContent-Length: 2\r\n\r\nno")
        return True

    worker.on_head = refuse
    with Client(router) as c:
        c.send(POST + b"Expect: 100-continue\r\nContent-Length: 5\r\n\r\n")
        assert c.head()[0] == 100
        assert c.answer()[::2] == (401, b"no")
        assert c.ended()


def test_head_has_a_length_and_no_body(pair):
    router, _ = pair
    with Client(router) as c:
        for _ in range(3):
            status, headers, _body = c.ask("HEAD", PATH)
            assert status == 200 and int(dict(headers)["content-length"]) > 0
        assert c.ask("GET", PATH)[0] == 200


def test_pipelined_requests_are_answered_in_order(pair):
    router, worker = pair
    first = threading.Event()

    def slow_first(conn, request):
        if request.target.endswith("/0"):
            first.wait(10)
        conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n" + request.target[-1:].encode())

    worker.handler = slow_first
    with Client(router) as c:
        c.send(b"".join(b"GET /x/%d HTTP/1.1\r\nHost: localhost\r\n\r\n" % i for i in range(9)))
        assert worker.wait(lambda: len(worker.requests) == 1)
        first.set()
        assert [c.answer()[2] for _ in range(9)] == [b"%d" % i for i in range(9)]


def test_pipelined_local_answers_do_not_recurse(pair):
    router, _ = pair
    n = 3000
    with Client(router) as c:
        c.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" * n)
        for _ in range(n):
            assert c.answer()[0] == 200


# ---------------------------------------------------------------- clients that leave


@pytest.mark.parametrize("leave", [socket.socket.close, reset])
def test_worker_hears_at_once_that_the_client_left(pair, leave):
    router, worker = pair
    heard = threading.Event()

    def think(conn, _request):
        conn.settimeout(10)
        if conn.recv(1) == b"":
            heard.set()
        raise OSError

    worker.handler = think
    c = Client(router)
    c.send(POST + b"Content-Length: 2\r\n\r\n{}")
    assert worker.wait(lambda: worker.requests)
    leave(c.sock)
    assert heard.wait(5)
    assert router.get("/health").startswith(b"HTTP/1.1 200")


def test_worker_hears_that_the_client_left_in_mid_upload(pair):
    router, worker = pair
    c = Client(router)
    c.send(POST + b"Content-Length: 1000000\r\n\r\n" + b"x" * 400_000)
    assert worker.wait(lambda: worker.connections)
    c.close()
    assert worker.wait(lambda: not worker.connections)
    assert worker.requests == []


def test_worker_hears_that_the_client_left_in_mid_answer(pair):
    router, worker = pair
    heard = threading.Event()

    def endless(conn, _request):
        conn.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n")
        conn.settimeout(10)
        if conn.recv(1) == b"":
            heard.set()
        raise OSError

    worker.handler = endless
    c = Client(router)
    c.send(POST + b"Content-Length: 0\r\n\r\n")
    assert c.head()[0] == 200
    c.close()
    assert heard.wait(5)


# ---------------------------------------------------------------- workers that die


def test_answer_cut_by_kill_is_never_completed(bench):
    """A worker process killed in the middle of a chunked answer."""
    path = bench.tmp / "killed.sock"
    code = (
        "import socket,sys,time\n"
        "s=socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(); print('up',flush=True)\n"
        "c,_=s.accept(); c.recv(65536)\n"
        "c.sendall(b'HTTP/1.1 200 OK\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n5\\r\\nhello\\r\\n')\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE) as victim:
        assert victim.stdout.readline() == b"up\n"
        router = bench.router(upstreams=[f"unix:{path}"])
        with Client(router) as c:
            c.send(POST + b"Content-Length: 0\r\n\r\n")
            assert c.head()[0] == 200
            assert c.reader.until(b"hello\r\n") == b"5\r\n"
            victim.send_signal(signal.SIGKILL)
            assert c.ended(), "no terminal chunk, nothing more"
        answer = router.get(PATH)
        assert answer.startswith(b"HTTP/1.1 503") and b"\r\nRetry-After: 1\r\n" in answer
        assert b"worker_unavailable" in answer and str(path).encode() not in answer


def test_old_client_sees_a_reset_when_the_answer_is_cut(pair):
    """To HTTP/1.0 the end of the connection is the end of the body: only a reset tells."""
    router, worker = pair

    def cut(conn, _request):
        conn.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
        raise OSError

    worker.handler = cut
    with router.connect() as sock:
        sock.sendall(b"GET %s HTTP/1.0\r\nHost: localhost\r\n\r\n" % PATH.encode())
        with pytest.raises(ConnectionResetError):
            read_all(sock)


def test_old_client_gets_the_payload_without_chunks(pair):
    router, worker = pair
    worker.handler = lambda conn, _r: conn.sendall(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(b"hello world", 4))
    with router.connect() as sock:
        sock.sendall(b"GET %s HTTP/1.0\r\nHost: localhost\r\n\r\n" % PATH.encode())
        head, _, body = read_all(sock).partition(b"\r\n\r\n")
    assert body == b"hello world" and b"transfer-encoding" not in head.lower()


def test_request_that_the_worker_took_is_not_sent_again(pair):
    router, worker = pair

    def die(_conn, _request):
        raise OSError

    with Client(router) as c:
        assert c.ask("POST", PATH, b"first")[0] == 200
        worker.handler = die
        assert c.ask("POST", PATH, b"once")[0] == 503
        worker.handler = worker.plain
        assert c.ask("POST", PATH, b"next")[0] == 200
    assert [r.body for r in worker.requests] == [b"first", b"once", b"next"]


def test_request_that_nobody_read_is_sent_again(bench):
    """An idle connection is closed by the worker while the request is on its way."""
    path = str(bench.tmp / "w.sock")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    router = bench.router(upstreams=["unix:" + path])
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    with Client(router) as c, listener:
        c.send(POST + b"Content-Length: 1\r\n\r\na")
        one, _ = listener.accept()
        one.recv(65536)
        one.sendall(answer)
        assert c.answer()[0] == 200
        c.send(POST + b"Content-Length: 1\r\n\r\nb")
        one.recv(1, socket.MSG_PEEK)  # it is there, unread
        one.close()
        two, _ = listener.accept()
        assert two.recv(65536).endswith(b"\r\n\r\nb")
        two.sendall(answer)
        assert c.answer()[0] == 200
        two.close()
    assert router.metric("rollgate_upstream_resends_total") == 1


def test_dead_idle_connections_harm_nobody(bench):
    worker = bench.worker()
    router = bench.router()
    clients = [Client(router) for _ in range(20)]
    for round_ in range(5):
        for c in clients:
            c.send(POST + b"Content-Length: 1\r\n\r\n%d" % round_)
        assert [c.answer()[0] for c in clients] == [200] * 20
        for conn in list(worker.connections):
            conn.shutdown(socket.SHUT_RDWR)
    for c in clients:
        c.close()
    assert len(worker.requests) == 100


def test_work_without_an_id_goes_to_workers_that_live(bench):
    for _ in range(3):
        bench.worker()
    dead = bench.workers[1]
    dead.close()
    os.unlink(dead.path)
    router = bench.router()
    with Client(router) as c:
        for _ in range(60):
            assert c.ask("POST", "/sessions", b"{}")[0] == 200
        assert c.ask("GET", f"/sessions/{ID % 1}")[0] == 503
    assert len(bench.workers[0].requests) + len(bench.workers[2].requests) == 60


def test_full_backlog_is_waited_for(bench):
    """connect() to a full unix socket says EAGAIN, and no event tells when there is room."""
    path = str(bench.tmp / "full.sock")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(0)
    router = bench.router(upstreams=["unix:" + path])
    fillers = []
    with listener:
        for _ in range(3):
            filler = socket.socket(socket.AF_UNIX)
            filler.setblocking(False)
            fillers.append(filler)
            try:
                filler.connect(path)
            except BlockingIOError:
                break
        with Client(router) as c:
            c.send(POST + b"Content-Length: 1\r\n\r\na")
            pause(0.1, "the router finds the queue full, and tries again")
            conns = [listener.accept()[0] for _ in range(len(fillers))]
            conns[-1].settimeout(10)
            assert conns[-1].recv(65536).endswith(b"a")
            conns[-1].sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            assert c.answer()[0] == 200
        for sock in conns + fillers:
            sock.close()


# ---------------------------------------------------------------- limits and time


def test_head_that_stalls(bench):
    worker = bench.worker()
    router = bench.router("--header-timeout", "300ms")
    with Client(router) as c:
        c.send(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ")
        for _ in range(100):  # a byte now and then does not help
            try:
                c.send(b"a")
            except OSError:
                break
            c.sock.settimeout(0.05)
            try:
                c.reader.fill()
                break
            except TimeoutError:
                pass
        c.sock.settimeout(5)
        assert c.answer()[0] == 408
        assert c.ended()
    assert worker.requests == []


def test_body_that_stalls(bench):
    worker = bench.worker()
    router = bench.router("--body-timeout", "300ms")
    with Client(router) as c:
        c.send(POST + b"Content-Length: 10\r\n\r\nabc")
        assert c.answer()[0] == 408
        assert c.ended()
    assert worker.wait(lambda: not worker.connections)
    assert worker.requests == []


def test_long_body_that_comes_slowly_is_whole(bench):
    """The kernel is asked to wake the router for many bytes of a long body at once (conn_gather). Here they come more slowly
    than --body-timeout waits for so many, but steadily."""
    worker = bench.worker()
    router = bench.router("--body-timeout", "300ms", "--min-body-rate", "10000")
    body = os.urandom(3 * MB)
    quick, slow = body[:3 * MB // 2], body[3 * MB // 2:3 * MB // 2 + 200_000]
    with Client(router) as c:
        c.send(POST + b"Content-Length: %d\r\n\r\n" % len(body) + quick)
        for at in range(0, len(slow), 20_000):
            pause(0.1, "a client's pace")
            c.send(slow[at:at + 20_000])
        c.send(body[len(quick) + len(slow):])
        assert c.answer()[0] == 200
        assert c.ask("POST", PATH, b"next")[0] == 200
    assert [hashlib.sha256(r.body).digest() for r in worker.requests] == [hashlib.sha256(b).digest() for b in (body, b"next")]


@pytest.mark.parametrize("more", [b"", b"a"])
def test_long_body_that_stalls(bench, more):
    """Nothing more comes of it, or a byte now and then, which is less than --min-body-rate."""
    worker = bench.worker()
    router = bench.router("--body-timeout", "300ms", "--min-body-rate", "10000")
    with Client(router) as c:
        c.send(POST + b"Content-Length: %d\r\n\r\n" % (3 * MB) + bytes(3 * MB // 2))

        def refused():
            if more:
                with contextlib.suppress(OSError):
                    c.send(more)
            c.sock.settimeout(0.05)
            with contextlib.suppress(TimeoutError):
                c.reader.fill()
            return c.reader.data

        assert wait_until(refused, 10)
        c.sock.settimeout(5)
        assert c.answer()[0] == 408
        assert c.ended()
    assert worker.wait(lambda: not worker.connections)
    assert worker.requests == []


def test_slow_worker_is_not_the_clients_fault(bench):
    worker = bench.worker()
    router = bench.router("--body-timeout", "200ms", "--idle-timeout", "200ms",
                          "--header-timeout", "200ms")
    worker.handler = lambda conn, request: (pause(0.8, "four of the client's times"), worker.plain(conn, request))
    with Client(router) as c:
        assert c.ask("POST", PATH, b"x")[0] == 200


def test_idle_connection_is_closed_without_a_word(bench):
    bench.worker()
    router = bench.router("--idle-timeout", "200ms")
    with Client(router) as c:
        assert c.ask("GET", PATH)[0] == 200
        assert c.ended()
    with Client(router) as c:
        assert c.ended()


def never_read(worker):
    """The worker answers with much; returns what is set once nobody takes it any more."""
    heard = threading.Event()

    def big(conn, _request):
        try:
            conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 200000000\r\n\r\n")
            conn.sendall(bytes(200_000_000))
        except OSError:
            heard.set()
            raise

    worker.handler = big
    return heard


def test_reader_that_stopped_is_cut(bench):
    heard = never_read(bench.worker())
    router = bench.router("--send-timeout", "300ms")
    with Client(router) as c:
        c.send(POST + b"Content-Length: 0\r\n\r\n")
        assert heard.wait(10)


def test_reader_that_stopped_and_still_writes_is_cut(bench):
    """What a client sends meanwhile shows that it is there, not that it reads."""
    heard = never_read(bench.worker())
    router = bench.router("--send-timeout", "1s")
    with Client(router) as c:
        c.send(POST + b"Content-Length: 0\r\n\r\n")
        for _ in range(600):
            if heard.is_set():
                break
            with contextlib.suppress(OSError):
                c.send(b"x")
            pause(0.05, "far less than --send-timeout")
        assert heard.is_set()


def test_reader_that_is_slow_is_not_cut(bench):
    """Each byte that it takes is progress, though an answer is parked all the while."""
    worker = bench.worker()
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 40000000\r\n\r\n" + bytes(40_000_000)
    worker.handler = lambda conn, _request: conn.sendall(answer)
    router = bench.router("--send-timeout", "3s")
    with Client(router) as c:
        c.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        c.send(POST + b"Content-Length: 0\r\n\r\n")
        got = 0
        while got < len(answer):
            pause(0.02 if got < 20_000_000 else 0, "it is slow: its answer takes longer than --send-timeout")
            more = len(c.sock.recv(100_000))
            assert more, got
            got += more


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_body_limit(bench, framing):
    worker = bench.worker()
    router = bench.router("--max-body-bytes", "100000")
    ok, over = b"x" * 100_000, b"x" * 100_001
    with Client(router) as c:
        for body, wanted in ((ok, 200), (over, 413)):
            if framing == "length":
                c.send(POST + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            else:
                c.send(POST + b"Transfer-Encoding: chunked\r\n\r\n" + chunked(body, 5000))
            status, _, said = c.answer()
            assert status == wanted
        assert b"--max-body-bytes allows (100000 bytes)" in said
        assert c.ended()
    assert [r.body for r in worker.requests] == [ok]


def test_connection_limit(bench):
    bench.worker()
    router = bench.router("--max-connections", "3")
    clients = [Client(router) for _ in range(3)]
    for c in clients:
        assert c.ask("GET", PATH)[0] == 200
    with Client(router) as c:
        status, headers, body = c.answer()
        assert status == 503 and dict(headers)["retry-after"] == "1" and b"connections" in body
        assert c.ended()
    clients.pop().close()
    end = time.monotonic() + 10
    while True:
        with Client(router) as c:
            if c.ask("GET", PATH)[0] == 200:
                break
        assert time.monotonic() < end
    for c in clients:
        c.close()


@pytest.fixture
def descriptors():
    """As many as this process may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_thousands_of_idle_connections_are_held_and_served(bench, descriptors):
    n = 2000
    if descriptors < n + 500:
        pytest.skip(f"{descriptors} descriptors are too few")
    bench.worker()
    router = bench.router("--idle-timeout", "10m")
    clients = [Client(router) for _ in range(n)]
    try:
        for _ in range(2):
            assert all(c.ask("GET", PATH)[0] == 200 for c in clients)
        assert router.metric("rollgate_connections") >= n
        assert sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in router.children()) < n + 200
    finally:
        for c in clients:
            c.close()


def test_descriptors_limit_connections_and_what_they_use(bench, descriptors):
    """One for each idle connection, two for each with a request; idle links make room."""
    worker = bench.worker()
    router = bench.router("--idle-timeout", "10m", descriptors=400)
    go = threading.Event()

    def wait(conn, request):
        go.wait(20)
        worker.plain(conn, request)

    clients = [Client(router) for _ in range(120)]
    try:
        worker.handler = wait
        for c in clients:
            c.send(GET)
        assert worker.wait(lambda: len(worker.requests) == 120)
        go.set()
        assert all(c.answer()[0] == 200 for c in clients)
        while len(clients) < 300:  # more than were free beside the links of before
            clients.append(Client(router))
            assert clients[-1].ask("GET", PATH)[0] == 200
        status = 200
        while status == 200 and len(clients) < 400:
            clients.append(Client(router))
            try:
                clients[-1].send(GET)
            except OSError:
                pass
            status = clients[-1].answer()[0]
        assert status == 503 and len(clients) < 400
        assert all(c.ask("GET", PATH)[0] == 200 for c in clients[:-1])
    finally:
        for c in clients:
            c.close()
    assert router.metric("rollgate_accept_pauses_total") == 0


def test_no_descriptors_left_is_survived_without_spinning(bench):
    bench.worker()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[0], limits[1]))
    router = bench.router("--max-connections", "100000")
    for pid in router.children():
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (40, 40))
    clients = [Client(router) for _ in range(60)]
    before = cpu_seconds(router)
    pause(0.5, "spinning would take all of it")
    assert cpu_seconds(router) - before < 0.2
    for c in clients:
        c.close()
    end = time.monotonic() + 10
    while True:
        with Client(router) as c:
            if c.ask("GET", PATH)[0] == 200:
                break
        assert time.monotonic() < end
    assert router.metric("rollgate_accept_pauses_total") >= 1


# ---------------------------------------------------------------- the end


def test_drain_finishes_what_runs(pair):
    router, worker = pair
    go = threading.Event()

    def wait(conn, request):
        go.wait(10)
        worker.plain(conn, request)

    with Client(router) as idle, Client(router) as busy:
        assert idle.ask("GET", PATH)[0] == 200
        worker.handler = wait
        busy.send(POST + b"Content-Length: 2\r\n\r\n{}")
        assert worker.wait(lambda: len(worker.requests) == 2)
        router.process.send_signal(signal.SIGTERM)
        assert idle.ended()
        router.process.send_signal(signal.SIGTERM)
        go.set()
        status, headers, _ = busy.answer()
        assert status == 200 and dict(headers)["connection"] == "close"
        assert busy.ended()
    assert router.process.wait(10) == 0


def test_drain_answers_what_waits_in_sockets_and_queue(pair):
    """Requests that wait in sockets and in the queue when the service ends get an answer, no reset."""
    router, worker = pair
    (child,) = router.children()
    with Client(router) as idle:
        assert idle.ask("GET", PATH)[0] == 200
        os.kill(child, signal.SIGSTOP)
        idle.send(POST + b"Content-Length: 1\r\n\r\na")
        fresh = [Client(router) for _ in range(20)]
        for c in fresh:
            c.send(POST + b"Content-Length: 1\r\n\r\nb")
        router.process.send_signal(signal.SIGTERM)
        wait_until(lambda: pending(child, signal.SIGTERM), what="the router is told to end")
        os.kill(child, signal.SIGCONT)
        for c in [idle, *fresh]:
            status, headers, body = c.answer()
            assert status == 503 and json.loads(body)["error"]["code"] == "draining"
            assert dict(headers)["connection"] == "close"
            assert c.ended()
            c.close()
    assert router.process.wait(10) == 0
    assert len(worker.requests) == 1


def test_drain_ends_after_the_grace_time(bench):
    worker = bench.worker()
    router = bench.router("--grace", "200ms")
    worker.handler = lambda conn, _request: conn.recv(1)
    with Client(router) as c:
        c.send(POST + b"Content-Length: 0\r\n\r\n")
        assert worker.wait(lambda: worker.requests)
        router.process.send_signal(signal.SIGTERM)
        assert router.process.wait(10) == 0
        assert c.ended()


def test_killed_router_is_replaced(bench):
    bench.worker()
    router = bench.router(routers=2)
    router.allowed = ("process died",)
    victim = router.children()[0]
    os.kill(victim, signal.SIGKILL)
    wait_until(lambda: victim not in router.children() and len(router.children()) == 2, 10, "it is replaced")
    for _ in range(50):
        with Client(router) as c:
            assert c.ask("GET", PATH)[0] == 200

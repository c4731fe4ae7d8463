"""Malformed and ambiguous HTTP/1.1: sends every case of tests/data/http1 to a real router, and checks the answers and
what the worker received. Format: tests/data/http1/README.md."""
import pytest

from router_kit import Gone, Reader, ROOT, Router, Worker, parse_head, read_body

KEEPS_CONNECTIONS = True  # conftest: the fake workers live as long as this module
CASES = sorted((ROOT / "tests/data/http1").glob("*.raw"))


class Case:
    def __init__(self, path):
        head, _, rest = path.read_bytes().partition(b"\n--- request\n")
        self.request, _, answer = rest.partition(b"\n--- answer\n")
        self.answer = answer if b"\n--- answer\n" in rest else None
        self.keys = {}
        for line in head.decode().splitlines():
            key, _, value = line.partition(": ")
            self.keys.setdefault(key, []).append(value)

    def get(self, key, default=""):
        return self.keys.get(key, [default])[0]


def unescape(text):
    return text.encode("latin-1").decode("unicode_escape").encode("latin-1")


@pytest.fixture(autouse=True)
def hygiene():
    """Instead of the common one, which counts descriptors per test: worker and router live for the whole
    module here, and so do the connections between them. Router.stop checks the log."""


@pytest.fixture(scope="module")
def worker(tmp_path_factory):
    w = Worker(tmp_path_factory.mktemp("raw") / "w0.sock")
    yield w
    w.close()


@pytest.fixture(scope="module")
def router(worker, tmp_path_factory):
    r = Router(tmp_path_factory.mktemp("raw"), ["unix:" + worker.path],
               "--max-body-bytes", "1MiB")
    yield r
    r.stop()


def send_bytewise(sock, data):
    """Single bytes for the first and last few hundred, lumps between: enough to meet every state."""
    try:
        at = 0
        while at < len(data):
            n = 1 if at < 600 or at > len(data) - 300 else 997
            sock.sendall(data[at : at + n])
            at += n
    except (BrokenPipeError, ConnectionResetError):
        pass  # refused before all was sent


def read_answers(reader, case):
    """Statuses, headers and framed body of the answers; stops at the end or when none is due."""
    statuses, headers, body, complete = [], [], b"", True
    wanted = len(case.get("status").split())
    while len(statuses) < wanted:
        try:
            first, headers = parse_head(reader.until(b"\r\n\r\n"))
        except (Gone, ConnectionResetError):
            break
        statuses.append(first.split(" ")[1])
        if int(statuses[-1]) < 200 or statuses[-1] == "204":
            continue
        names = dict(headers)
        until_close = not {"content-length", "transfer-encoding"} & names.keys()
        start = bytes(reader.data)
        try:
            if until_close:
                while True:
                    reader.fill()
            body = read_body(reader, headers)[1]
        except (Gone, ConnectionResetError):
            complete = until_close
            body = bytes(reader.data) if until_close else None
        if body is None:
            body = start if start.endswith(reader.data) else start + reader.data
    return statuses, headers, body, complete


def check_worker(case, worker):
    wanted = case.keys["worker"]
    if wanted[0].startswith("nothing"):
        assert worker.requests == []
        if wanted == ["nothing"]:
            assert worker.broken == [], "the worker saw a part of it"
        return
    assert worker.wait(lambda: len(worker.requests) >= len(wanted))
    got = [(r.method, r.target, r.body) for r in worker.requests]
    want = []
    for line in wanted:
        method, target, *body = line.split(" ", 2)
        want.append((method, target, unescape(body[0]) if body else b""))
    assert got == want
    for request in worker.requests:
        for name in case.keys.get("absent", []):
            assert request.get(name) == []
        for header in case.keys.get("header", []):
            name, _, value = header.partition(": ")
            assert request.get(name) == [value.strip()]


def check_after(case, sock, reader, worker):
    after = case.get("after")
    if after == "close":
        try:
            while True:
                reader.fill()
        except Gone as gone:
            assert b"HTTP/1.1" not in gone.args[0], "an answer nobody asked for"
        except ConnectionResetError:
            pass
        return
    if after == "pending":
        return
    worker.handler = worker.plain
    worker.requests.clear()
    sock.sendall(b"GET /sessions/after HTTP/1.1\r\nHost: localhost\r\n\r\n")
    first, headers = parse_head(reader.until(b"\r\n\r\n"))
    assert first.startswith("HTTP/1.1 200")
    read_body(reader, headers)
    assert [r.target for r in worker.requests] == ["/sessions/after"]


def scripted(case):
    def handler(conn, _request):
        conn.sendall(case.answer)
        if case.get("eof") == "yes":
            raise OSError  # closes

    return handler


@pytest.mark.parametrize("how", ["at_once", "bytewise"])
@pytest.mark.parametrize("path", CASES, ids=[p.stem for p in CASES])
def test_raw(path, how, router, worker):
    case = Case(path)
    worker.reset()
    if case.answer is not None:
        worker.handler = scripted(case)
    with router.connect() as sock:
        reader = Reader(sock)
        if how == "at_once":
            sock.sendall(case.request)
        else:
            send_bytewise(sock, case.request)
        statuses, headers, body, complete = read_answers(reader, case)
        assert statuses == case.get("status").split()
        assert complete == (case.get("complete", "yes") == "yes")
        if "body" in case.keys:
            assert body == unescape(case.get("body"))
        names = dict(headers)
        for name in case.keys.get("response_absent", []):
            assert name not in names
        for header in case.keys.get("response_header", []):
            name, _, value = header.partition(": ")
            assert names.get(name) == value
        assert "rollgate-request-id" in names
        check_worker(case, worker)
        check_after(case, sock, reader, worker)

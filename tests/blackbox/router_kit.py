"""What the router tests share: a recording worker on a Unix socket, and a router process with such workers. A worker
stores every byte that it receives. It parses strictly, because everything that reaches it has passed the router."""
import os
import pathlib
import re
import signal
import socket
import subprocess
import threading
import time

import pytest

from gateway import free_port

ROOT = pathlib.Path(__file__).resolve().parents[2]
ID = "w%d-0123456789abcdef0123456789abcdef"


def route_program():
    """Returns the command of `rollgate route` in the build of RG_BUILD."""
    build = ROOT / os.environ.get("RG_BUILD", "build/dev")
    if not (build / "rollgate").exists():
        pytest.skip(f"{build}/rollgate is not built")
    return [str(build / "rollgate"), "route"]


class Request:
    def __init__(self, method, target, headers, body):
        self.method, self.target, self.headers, self.body = method, target, headers, body

    def get(self, name):
        return [v for k, v in self.headers if k == name]


class Gone(Exception):
    """The other side closed the connection before the expected bytes."""


class Reader:
    """Buffered reads of a socket. Raises Gone at its end."""

    def __init__(self, sock):
        self.sock, self.data = sock, bytearray()

    def fill(self):
        got = self.sock.recv(262144)
        if not got:
            raise Gone(bytes(self.data))
        self.data += got

    def until(self, mark):
        while mark not in self.data:
            self.fill()
        end = self.data.index(mark)
        head = bytes(self.data[:end])
        del self.data[: end + len(mark)]
        return head

    def exactly(self, n):
        while len(self.data) < n:
            self.fill()
        out = bytes(self.data[:n])
        del self.data[:n]
        return out


def parse_head(head):
    first, *lines = head.split(b"\r\n")
    headers = []
    for line in lines:
        name, _, value = line.partition(b":")
        headers.append((name.decode().lower(), value.strip().decode("utf-8", "replace")))
    return first.decode("latin-1"), headers


def read_body(reader, headers):
    """Reads a body. Returns (payload, bytes with their framing)."""
    names = dict(headers)
    if names.get("transfer-encoding") == "chunked":
        payload, framed = bytearray(), bytearray()
        while True:
            line = reader.until(b"\r\n")
            framed += line + b"\r\n"
            size = int(line.split(b";")[0], 16)
            if size == 0:
                end = reader.until(b"\r\n")
                assert end == b"", "trailers must not get here"
                return bytes(payload), bytes(framed + b"\r\n")
            data = reader.exactly(size)
            assert reader.exactly(2) == b"\r\n"
            payload += data
            framed += data + b"\r\n"
    body = reader.exactly(int(names.get("content-length", 0)))
    return body, body


class Worker:
    """A recording worker. `handler(connection, request)` answers; the default answers 200 with the length of the
    body. `on_head(connection, first_line, headers, reader)` may handle the request before its body is read; it
    returns True then."""

    def __init__(self, path, index=0):
        self.path, self.index = str(path), index
        self.requests, self.connections, self.broken = [], [], []
        self.handler, self.on_head = self.plain, None
        self.lock = threading.Condition()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen(512)
        self.closed = False
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while not self.closed:
            try:
                conn, _ = self.listener.accept()
            except OSError:
                return
            with self.lock:
                self.connections.append(conn)
            threading.Thread(target=self.serve, args=(conn,), daemon=True).start()

    def serve(self, conn):
        reader = Reader(conn)
        try:
            while True:
                first, headers = parse_head(reader.until(b"\r\n\r\n"))
                if self.on_head and self.on_head(conn, first, headers, reader):
                    return
                body, _ = read_body(reader, headers)
                method, target, version = first.split(" ")
                assert version == "HTTP/1.1"
                request = Request(method, target, headers, body)
                with self.lock:
                    self.requests.append(request)
                    self.lock.notify_all()
                self.handler(conn, request)
        except Gone as gone:
            with self.lock:
                if gone.args[0] or reader.data:
                    self.broken.append(gone.args[0])
                self.lock.notify_all()
        except OSError:
            pass
        finally:
            conn.close()
            with self.lock:
                if conn in self.connections:
                    self.connections.remove(conn)
                self.lock.notify_all()

    def plain(self, conn, request):
        body = b'{"worker":%d,"n":%d}' % (self.index, len(request.body))
        conn.sendall(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX-Worker: %d\r\n"
            b"Content-Length: %d\r\n\r\n%s"
            % (self.index, len(body), b"" if request.method == "HEAD" else body)
        )

    def wait(self, test, timeout=10):
        """Waits until test() is true. Checks it after each event of this worker."""
        with self.lock:
            return self.lock.wait_for(test, timeout)

    def reset(self):
        with self.lock:
            self.requests.clear()
            self.broken.clear()
        self.handler, self.on_head = self.plain, None

    def close(self):
        self.closed = True
        self.listener.close()
        for conn in list(self.connections):
            try:
                conn.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


class Router:
    """Router processes with the given upstream addresses."""

    def __init__(self, tmp, upstreams, *flags, routers=1, descriptors=None, port=None):
        self.port = port or free_port()
        self.log_path = pathlib.Path(tmp) / f"router-{self.port}.log"
        command = route_program() + [
            "--listen", f"127.0.0.1:{self.port}", "--routers", str(routers),
            "--state-dir", str(tmp), "--allowed-hosts", "x,y", *flags,  # names in tests/data/http1
        ]
        for upstream in upstreams:
            command += ["--upstream", upstream]
        self.log_file = open(self.log_path, "wb")
        if descriptors:
            command = ["prlimit", f"--nofile={descriptors}:{descriptors}", *command]
        self.process = subprocess.Popen(command, stdout=self.log_file, stderr=self.log_file)
        self.wait_ready()

    def wait_ready(self):
        end = time.monotonic() + 30
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise RuntimeError("the router ended: " + self.log())
            try:
                if self.get("/ready").startswith(b"HTTP/1.1 200"):
                    return
            except OSError:
                pass
            time.sleep(0.02)
        raise RuntimeError("the router does not get ready: " + self.log())

    def log(self):
        return self.log_path.read_text()

    def connect(self, timeout=10):
        sock = socket.create_connection(("127.0.0.1", self.port), timeout)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock

    def get(self, path):
        with self.connect() as sock:
            sock.sendall(b"GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" % path.encode())
            return read_all(sock)

    def metric(self, name):
        """Returns the sum of a metric's samples."""
        text = self.get("/metrics").decode()
        return sum(float(m) for m in re.findall(rf"^{name}(?:{{[^}}]*}})? ([0-9.e+]+)$", text, re.M))

    def children(self):
        path = f"/proc/{self.process.pid}/task/{self.process.pid}/children"
        return [int(p) for p in pathlib.Path(path).read_text().split()]

    allowed = ()  # texts of error lines that the test causes

    def stop(self, signo=signal.SIGTERM, allowed=()):
        """Ends the routers and checks that they end cleanly."""
        if self.process.poll() is None:
            self.process.send_signal(signo)
        status = self.process.wait(30)
        self.log_file.close()
        log = self.log()
        assert status == 0, log
        assert "Sanitizer" not in log and "runtime error" not in log, log
        for line in log.splitlines():
            if " error " in line and not any(a in line for a in (*allowed, *self.allowed)):
                raise AssertionError("an error line nobody asked for: " + line)


def read_all(sock):
    out = b""
    while True:
        got = sock.recv(65536)
        if not got:
            return out
        out += got


class Client:
    """One connection to a router, which reads answers one by one."""

    def __init__(self, router, timeout=10):
        self.sock = router.connect(timeout)
        self.reader = Reader(self.sock)

    def send(self, data):
        self.sock.sendall(data)

    def head(self):
        first, headers = parse_head(self.reader.until(b"\r\n\r\n"))
        return int(first.split(" ")[1]), headers

    def answer(self, to_head=False):
        """Reads the next answer as (status, headers, payload)."""
        status, headers = self.head()
        if to_head or status < 200 or status in (204, 304):
            return status, headers, b""
        return status, headers, read_body(self.reader, headers)[0]

    def ask(self, method, target, body=None, *headers):
        lines = [f"{method} {target} HTTP/1.1", "Host: localhost", *headers]
        if body is not None:
            lines.append(f"Content-Length: {len(body)}")
        self.send("\r\n".join(lines).encode() + b"\r\n\r\n" + (body or b""))
        return self.answer(method == "HEAD")

    def ended(self):
        """Returns whether the router closes the connection without further bytes."""
        try:
            return not self.reader.data and self.sock.recv(1) == b""
        except ConnectionResetError:
            return True

    def close(self):
        self.sock.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

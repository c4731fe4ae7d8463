"""Stores of a fleet: real servers, and a driver of the gateway's own functions (store_driver.c)."""
import hashlib
import itertools
import json
import os
import queue
import re
import shutil
import signal
import socket
import subprocess
import threading
import time

import pytest
import redis

import gateway as g

PROGRAM = g.BUILD / "tests/blackbox/store_driver"
KINDS = ["redis-server"] + (["valkey-server"] if shutil.which("valkey-server") else [])


class Server:
    """A real server. Its data are lost when it stops, unless options say otherwise."""

    def __init__(self, folder, *options, kind="redis-server", port=None, password=None):
        if not shutil.which(kind):
            pytest.skip(f"{kind} is not installed")
        self.folder, self.port, self.kind, self.password = folder, port or g.free_port(), kind, password
        self.options = ["--save", "", "--repl-diskless-sync-delay", "0", *options]
        folder.mkdir(exist_ok=True)
        self.process = None
        self.host, self.within = "127.0.0.1", []

    def start(self):
        self.process = subprocess.Popen(
            [*self.within, self.kind, "--port", str(self.port), "--bind", self.host, "--dir", str(self.folder), *self.options],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        g.wait_until(self.answers, 20, "the server answers")
        return self

    __enter__ = start

    def __exit__(self, *_):
        self.stop()

    def stop(self, signo=signal.SIGKILL):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.send_signal(signo)
            self.process.wait(20)

    def answers(self):
        try:
            return self.ask("PING")
        except redis.exceptions.AuthenticationError:
            return True
        except redis.exceptions.RedisError:
            return False

    def ask(self, *words, **more):
        with redis.Redis(host=self.host, port=self.port, password=self.password, decode_responses=True, **more) as client:
            return client.execute_command(*words)

    def url(self, name="test", **options):
        return f"redis://{self.host}:{self.port}?" + "&".join(f"{k}={v}" for k, v in {"name": name, **options}.items())

    def follow(self, other):
        self.ask("REPLICAOF", other.host, other.port)
        g.wait_until(lambda: self.ask("ROLE")[3] == "connected" and other.ask("ROLE")[2], 20, "the replica is connected")


def make_certificate(folder, subject="IP:127.0.0.1"):
    """Makes (key, certificate) for that address or name."""
    folder.mkdir()
    key, crt = folder / "key.pem", folder / "crt.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={folder.name}", "-addext",
                    f"subjectAltName={subject}", "-keyout", key, "-out", crt], check=True, capture_output=True)
    return key, crt


class TlsServer(Server):
    """A server with a certificate for 127.0.0.1, which clients trust with `env`."""

    def __init__(self, folder, *options, **more):
        key, crt = make_certificate(folder)
        self.tls_port = g.free_port()
        super().__init__(folder, "--tls-port", str(self.tls_port), "--tls-cert-file", str(crt), "--tls-key-file", str(key),
                         "--tls-auth-clients", "no", *options, **more)
        self.env = {"SSL_CERT_FILE": str(crt)}

    def url(self, name="test", **options):
        return super().url(name, **options).replace(f"redis://127.0.0.1:{self.port}", f"rediss://127.0.0.1:{self.tls_port}")


class Proxy:
    """Forwards bytes to a server that may be replaced, and edits scripts in flight. `edits` maps texts to texts of
    the same length. `slow_s` delays all answers."""

    def __init__(self, target, edits=(), host="127.0.0.1", target_host="127.0.0.1"):
        self.target, self.edits, self.found, self.shas = target, edits, set(), {}
        self.host, self.target_host, self.slow_s = host, target_host, 0
        self.listener = socket.create_server((host, 0))
        self.port, self.pairs, self.threads = self.listener.getsockname()[1], [], []
        self.threads.append(threading.Thread(target=self.accept))
        self.threads[0].start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.cut()
        for t in self.threads:
            t.join(10)
        self.listener.close()
        for s in itertools.chain(*self.pairs):
            s.close()

    def url(self, name="test"):
        return f"redis://{self.host}:{self.port}?name={name}"

    def accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection((self.target_host, self.target), 5)
                far.settimeout(None)
            except OSError:
                near.close()
                continue
            self.pairs.append((near, far))
            for source, sink, edit in ((near, far, self.edit), (far, near, self.delay)):
                self.threads.append(threading.Thread(target=self.carry, args=(source, sink, edit)))
                self.threads[-1].start()

    def carry(self, source, sink, edit):
        try:
            while data := source.recv(1 << 20):
                sink.sendall(edit(data))
        except OSError:
            pass
        for s in (source, sink):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def delay(self, data):
        if self.slow_s:
            time.sleep(self.slow_s)
        return data

    def cut(self):
        for s in itertools.chain(*self.pairs):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def edit(self, data):
        if self.edits:
            for length in re.finditer(rb"\$4\r\nLOAD\r\n\$(\d+)\r\n", data):
                script = data[length.end():length.end() + int(length[1])]
                edited = script
                for old, new in self.edits:
                    assert len(old) == len(new)
                    if old in script:
                        self.found.add(old)
                        edited = edited.replace(old, new)
                self.shas[hashlib.sha1(script).hexdigest().encode()] = hashlib.sha1(edited).hexdigest().encode()
                data = data.replace(script, edited)
            for old, new in self.shas.items():
                data = data.replace(old, new)
        return data


class Driver:
    """The eight functions of a store. Each returns the answer; `later` returns a function that waits for it."""

    def __init__(self, url, limit_ms=5000, env=None):
        self.process = subprocess.Popen([str(PROGRAM), url, str(limit_ms)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, env=env and os.environ | env)
        self.ids, self.answered, self.entries = 0, {}, []
        self.lines = queue.SimpleQueue()
        self.reader = threading.Thread(target=self.read_lines)
        self.reader.start()

    def read_lines(self):
        """Reads at once, because a driver that cannot write reads no more calls."""
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put("")

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.process.stdin.close()
        self.reader.join()
        status = self.process.wait(20)
        self.process.stdout.close()
        assert kind or status == 0, status

    def read_line(self):
        line = self.lines.get()
        assert line, f"the driver ended: {self.process.wait(20)}"
        found = json.loads(line)
        if "id" in found:
            self.answered[found["id"]] = found
        else:
            self.entries.append(found)

    def order(self, op, **fields):
        self.ids += 1
        self.process.stdin.write(json.dumps({"op": op, "id": self.ids, **fields}) + "\n")
        self.process.stdin.flush()
        return self.ids

    def later(self, op, **fields):
        order = self.order(op, **fields)

        def wait():
            while order not in self.answered:
                self.read_line()
            return self.answered.pop(order)
        return wait

    def call(self, op, **fields):
        return self.later(op, **fields)()

    def claim(self, place, me, beat=0, known=0, block=0, reads=99, **more):
        return self.call("claim", place=place, block=block, me=me, beat=beat, known=known, reads=reads, **more)

    def append(self, place, epoch, *records):
        return self.call("append", place=place, epoch=epoch, records=records)

    def renew(self, node, *places):
        return self.call("renew", node=node, places=places)

    def drop(self, place, epoch, session, keep=False, start=0):
        return self.call("drop", place=place, epoch=epoch, session=session, keep=keep, **{"from": start})

    def read(self, place, session, start=0):
        return self.call("read", place=place, session=session, **{"from": start})

    def ids_of(self, place):
        return sorted(self.call("read", place=place)["texts"])

    def lengths(self, place):
        """Returns {session: [first, next]} of a place."""
        a = self.call("read", place=place)
        return {text: log[:2] for text, log in zip(a["texts"], a["logs"])}

    def put(self, key, value, edition):
        return self.call("put", key=key, value=value, edition=edition)

    def release(self, place, epoch, server="0"):
        return self.call("release", place=place, epoch=epoch, server=server)

    def watch(self):
        """Starts watching. Returns the complete report."""
        self.order("watch")
        return self.changes(lambda entries: any(e["entry"] is None and not e["why"] for e in entries))

    def changes(self, enough):
        """Waits for reports until enough(reports) is true. Returns the reports."""
        while not enough(self.entries):
            self.read_line()
        found, self.entries = self.entries, []
        return found

    def begin(self, place, me, block=0):
        """Creates a place of the node's own block, which is complete then. Returns its epoch."""
        self.put(f"block:{block}", me, 1)
        a = self.claim(place, me, block=block)
        assert a["verdict"] == "done", a
        assert self.renew(me, [place, a["epoch"], True])["refused"] == []
        return a["epoch"]

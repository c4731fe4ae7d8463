"""A fleet in one test: a real store, gateways as its nodes, and nodes that the test simulates."""
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import threading

import pytest

import gateway as g
from router_kit import Worker
from store_kit import Driver, Server

ADMIN = "an-admin-key-of-this-fleet"
AS_ADMIN = {"x-api-key": ADMIN}
NODE_PLACES = 256


def index_of(session_id):
    return int(re.match(r"w(\d+)-", session_id)[1])


class Fleet:
    """with Fleet(tmp_path, nodes="abc", workers=1) as fleet: fleet["a"] is a Gateway with --fleet. All nodes share
    keys, so a session's key is valid on every node. Admin requests need AS_ADMIN. `lease` is short: a lost node is
    noticed after it."""

    def __init__(self, folder, nodes="abc", lease="2s", server=None, name="test", start=True, **settings):
        self.folder, self.name, self.lease, self.starts = folder, name, lease, start
        self.server = server or Server(folder / "store")
        self.settings = {"engine": "builtin:echo", "workers": 1, **settings}
        (folder / "admin").write_text(ADMIN + "\n")
        (folder / "secret").write_text("5" * 64 + "\n")
        self.nodes = {}
        for node in nodes:
            self.add(node)

    def add(self, node, **settings):
        """Adds a node without starting it."""
        self.nodes[node] = g.Gateway(**{"fleet": self.url, "fleet_node": node, "fleet_lease": self.lease, **self.keys, **self.settings,
                                        **settings})
        return self.nodes[node]

    @property
    def keys(self):
        return {"admin_key_file": self.folder / "admin", "key_secret_file": self.folder / "secret"}

    @property
    def url(self):
        return self.server.url(self.name)

    def __getitem__(self, node):
        return self.nodes[node]

    def __iter__(self):
        return iter(self.nodes.values())

    def __enter__(self):
        self.server.start()
        if self.starts:
            for gateway in self:
                gateway.start(wait=False)
            for gateway in self:
                gateway.wait_serving()
            self.wait_known()
        return self

    def __exit__(self, *_):
        for gateway in self:
            for pid in gateway.family() if gateway.process else []:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
            if gateway.process and gateway.process.poll() is None:
                gateway.stop()          # stops before its store
        self.server.stop()

    # --- what the store has ---

    def entry(self, key):
        """Returns the fields of an entry: "node:a", "place:{0}"."""
        flat = self.server.ask("HGETALL", f"rg:{self.name}:{key}")
        return flat if isinstance(flat, dict) else dict(zip(flat[::2], flat[1::2]))

    def owner(self, index):
        return self.entry(f"place:{{{index}}}").get("owner", "")

    def block(self, node):
        return json.loads(self.entry(f"node:{node}")["value"])["block"]

    def wait_known(self):
        """Waits until every node can reach every node: each answers 404 for an unknown id of each owner that it knows."""
        for gateway in self:
            for node in self.nodes:
                g.wait_until(lambda at=gateway, node=node: self.knows(at, node), what=f"{node} is known")
                path = f"/sessions/w{NODE_PLACES * self.block(node)}-{'0' * 32}"
                g.wait_until(lambda at=gateway, path=path: at.get(path, headers=AS_ADMIN).status == 404, what=f"{node} is reached")

    def knows(self, gateway, node):
        """Whether the gateway knows a place of the node."""
        return any(p["node"] == node for p in gateway.get("/fleet", headers=AS_ADMIN).json()["places"])

    def state(self, node, of):
        """The state of a node, as another one sees it."""
        nodes = self[node].get("/fleet", headers=AS_ADMIN).json()["nodes"]
        return next((n["state"] for n in nodes if n["name"] == of), None)

    # --- requests ---

    def create(self, node, /, **body):
        """Creates a session at this node."""
        answer = self[node].post("/sessions", body, headers=AS_ADMIN)
        assert answer.status == 200, answer.text
        return answer.json()

    def chat(self, node, session, text, **more):
        """Sends a call to this node. Returns the answer."""
        return self[node].post(f"/sessions/{session['session_id']}/v1/chat/completions",
                               {"model": "m", "messages": [{"role": "user", "content": text}], "max_tokens": 8, **more},
                               headers={"x-api-key": session["api_key"]}, timeout=60)

    # --- faults ---

    def lose(self, node):
        """Kills the node's process tree and removes its disk."""
        self[node].kill()
        shutil.rmtree(f"{self[node].folder}/state")

    def freeze(self, node, signo=signal.SIGSTOP):
        for pid in self[node].family():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signo)

    def thaw(self, node):
        self.freeze(node, signal.SIGCONT)


class Later:
    """A request in a thread of its own."""

    def __init__(self, ask):
        self.answer = None

        def run():
            self.answer = ask()
        self.thread = threading.Thread(target=run)
        self.thread.start()

    def get(self):
        self.thread.join(60 * g.PATIENCE)
        return self.answer


class PlayedNode(Worker):
    """A node that the test simulates: the gateway's own functions write its entries and beats, and its requests are
    recorded (router_kit.Worker). It owns the places that it has claimed."""

    def __init__(self, fleet, name, block, beat_s=0.3):
        self.path, self.index = "", block
        self.requests, self.connections, self.broken = [], [], []
        self.handler, self.on_head = self.plain, None
        self.lock, self.closed = threading.Condition(), False
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()
        self.fleet, self.name, self.block = fleet, name, block
        for gateway in fleet:   # no node adopts its places: its tokenizer is its own
            gateway.allow("a place without an owner")
        self.driver, self.orders, self.places = Driver(fleet.url).__enter__(), threading.Lock(), {}
        entry = {"url": f"http://{self.address}", "address": self.address, "block": block, "instance": "0" * 32, "state": "up", "load": 0,
                 "build": "played", "records": [1, 1], "tokenizer": "played", "edition": 0}
        self.entry, self.edition = entry, 0
        self.set_state("up")
        self.ask("put", key=f"block:{block}", value=name, edition=1)
        self.stopped = threading.Event()
        self.beats = threading.Thread(target=self.send_beats, args=(beat_s,))
        self.beats.start()

    def ask(self, function, **fields):
        with self.orders:
            return self.driver.call(function, **fields)

    def set_state(self, state):
        """Writes its entry: "up", "draining"."""
        self.edition += 1
        self.ask("put", key=f"node:{self.name}", value=json.dumps({**self.entry, "state": state}), edition=self.edition)

    def send_beats(self, gap):
        while not self.stopped.wait(gap):
            self.ask("renew", node=self.name, places=[[index, epoch, True] for index, epoch in self.places.items()])

    def claim(self, index):
        """Claims a place: of its own block, without an owner, or of an owner whose beat does not advance. Returns the
        epoch."""
        beat = int(self.fleet.entry(f"place:{{{index}}}").get("beat", 0))
        answer = self.ask("claim", place=index, block=self.block, me=self.name, beat=beat, known=0)
        assert answer["verdict"] == "done", answer
        self.places[index] = answer["epoch"]
        if not answer["n_logs"]:      # a place without sessions is no place, if nobody owns it
            self.ask("append", place=index, epoch=answer["epoch"], records=[[f"w{index}-{'0' * 32}", 0, 0, "played"]])
        self.ask("renew", node=self.name, places=[[index, answer["epoch"], True]])
        return answer["epoch"]

    def freeze(self):
        """Sends no more beats; its connections stay open."""
        self.stopped.set()
        self.beats.join()

    def release(self, index):
        answer = self.ask("release", place=index, epoch=self.places.pop(index))
        assert answer["verdict"] == "done", answer

    def answer(self, conn, body, status=200):
        conn.sendall(f"HTTP/1.1 {status} Answer\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())

    def misdirect(self, conn, _):
        """A handler that answers 421: this node does not own the place."""
        conn.sendall(b"HTTP/1.1 421 Misdirected Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stopped.set()
        self.beats.join()
        self.driver.__exit__(None)
        self.close()


@pytest.fixture
def front(tmp_path):
    """One gateway, in a fleet whose other nodes the test plays."""
    with Fleet(tmp_path, "a", lease="1s", dispatcher="off") as f:
        f["a"].allow("a place without an owner")     # those of played nodes are of another tokenizer
        yield f

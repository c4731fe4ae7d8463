"""Clients that keep a connection for their session, as agents do: served by a worker that was lent the connection, through the
router, and through nginx in place of the router, all up at once, in rounds that take turns."""
import contextlib
import http.client
import json
import os
import pathlib
import statistics
import subprocess
import tempfile

from peers import nginx
from scenes_kit import cpu_s, g  # says where machine.py is
from machine import STOLEN_MAX, Stolen

SMALL = 2000


class Client:
    """A session on one kept connection."""

    def __init__(self, gate, port=None, **options):
        self.session = gate.post("/sessions", options).json()
        self.c = http.client.HTTPConnection("127.0.0.1", port or gate.port, timeout=120)
        self.messages = []

    def turn(self, text, **more):
        self.messages.append({"role": "user", "content": text})
        answer = self.call(**more)
        message = answer["choices"][0]["message"]
        self.messages.append({"role": "assistant", "content": message["content"]})
        return answer

    def call(self, **more):
        body = json.dumps({"model": "m", "messages": self.messages, **more})
        self.c.request("POST", f"/sessions/{self.session['session_id']}/v1/chat/completions", body,
                       {"Content-Type": "application/json"})
        r = self.c.getresponse()
        text = r.read()
        if r.status != 200:
            raise SystemExit(f"{r.status}: {text[:300]}")
        return json.loads(text)


def start(engine="builtin:echo", **settings):
    gate = g.Gateway(workers=1, routers=1, engine=engine, **settings).start()
    gate.worker = gate.child("worker-0")
    return gate


def stop(gate):
    gate.stop()
    gate.destroy()


class Nginx:
    """In front of a gateway's only worker, in place of its router."""

    def __init__(self, socket, folder):
        os.symlink(socket, f"{folder}/w0.sock")
        self.port = g.free_port()
        self.process = subprocess.Popen(nginx(pathlib.Path(folder), self.port, True, True, workers=1))
        g.wait_until(lambda: len(g.children_of(self.process.pid)) == 1, 10, "nginx has a worker")
        self.pid = g.children_of(self.process.pid)[0]

    def stop(self):
        self.process.terminate()
        self.process.wait()


@contextlib.contextmanager
def ways(**settings):
    """name -> (gateway, port, process before its worker). nginx stands before the worker of the relaying gateway."""
    with tempfile.TemporaryDirectory() as folder:
        gates = [start(**settings), start(lend_after=0, run_dir=f"{folder}/run", **settings)]
        instead = Nginx(f"{folder}/run/worker-0.sock", folder)
        try:
            yield {"lent": (gates[0], gates[0].port, gates[0].child("router-0")),
                   "relayed": (gates[1], gates[1].port, gates[1].child("router-0")),
                   "nginx": (gates[1], instead.port, instead.pid)}
        finally:
            instead.stop()
            for gate in gates:
                stop(gate)


def ask_little(gate, port):
    """Small requests, each as the one before; how many."""
    clients = [Client(gate, port) for _ in range(8)]
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hello"}]})
    for i in range(SMALL):
        client = clients[i % 8]
        client.c.request("POST", f"/sessions/{client.session['session_id']}/v1/messages/count_tokens", body,
                         {"Content-Type": "application/json"})
        answer = client.c.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise SystemExit(f"{answer.status}: {text[:300]}")
    return SMALL


def one_round(way, play_round):
    """CPU a turn of (worker, who is before it), in ms."""
    gate, port, before = way
    pids = gate.worker, before
    begun = [cpu_s(pid) for pid in pids]
    n = play_round(gate, port)
    return [(cpu_s(pid) - at) * 1000 / n for pid, at in zip(pids, begun)]


def rounds(those, play_round, n):
    """name -> what one_round gives, n times, each second time in the other order. A round that the machine's host disturbed is played
    again, as long as they are no more than four times the rounds in all."""
    took, left = {how: [] for how in those}, 4 * n * len(those)
    for i in range(n):
        for how in sorted(those, reverse=i % 2 == 1):
            host, found = Stolen(), one_round(those[how], play_round)
            while host.share() > STOLEN_MAX and left > 0:
                left -= 1
                host, found = Stolen(), one_round(those[how], play_round)
            took[how].append(found)
    if left == 0:
        print("disturbed: the machine's host took its processors in most rounds", flush=True)
    return took


def small_requests(n):
    """Small requests (a count of tokens) on kept connections, n rounds: name -> [CPU of (worker, who is before it) in ms]."""
    with ways() as those:
        for way in those.values():
            ask_little(*way[:2])
        return rounds(those, ask_little, n)


def added(took):
    """name -> ms that a request costs for not being asked of the worker itself, medians: what is before the worker, and what
    the worker pays more for a connection that was lent to it than behind nginx."""
    middle = {how: [statistics.median(r[k] for r in rounds_) for k in range(2)] for how, rounds_ in took.items()}
    return {how: before + (worker - middle["nginx"][0] if how == "lent" else 0) for how, (worker, before) in middle.items()}

"""kill -9 of random processes under multi-turn load, with clients that remember every answered
turn. At the end every answered turn is in the exports exactly once with the very ids the engine
sent, nothing is there twice, and all sessions go on. RG_CRASH_SECONDS makes it longer."""
import http.client
import json
import os
import random
import signal
import threading
import time

import pytest

from gateway import wait_until

SECONDS = float(os.environ.get("RG_CRASH_SECONDS", "12"))
CLIENTS = 6


class Client(threading.Thread):
    """One agent: a growing conversation; a request is repeated until it is answered."""

    def __init__(self, gateway, number, stop):
        super().__init__(daemon=True)
        self.gateway, self.number, self.stop = gateway, number, stop
        self.session, self.answered, self.retries, self.fault = None, [], 0, None
        self.messages = [{"role": "user", "content": f"client {number} begins"}]

    def post(self, path, body, stream=False):
        """The answer's JSON, or None: to be tried again."""
        try:
            c = self.gateway.connect(20)
            try:
                c.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
                r = c.getresponse()
                text = r.read()
            finally:
                c.close()
        except (OSError, http.client.HTTPException):
            return None
        if r.status == 200:
            return self.assemble(text) if stream else json.loads(text)
        if r.headers.get("x-should-retry") == "true":
            return None
        raise AssertionError(f"{r.status} {text[:500]!r}")

    @staticmethod
    def assemble(text):
        events = [l[6:] for l in text.split(b"\n") if l.startswith(b"data: ")]
        if not events or events[-1] != b"[DONE]":
            return None  # cut off
        chunks = [json.loads(e) for e in events[:-1]]
        if any("error" in c for c in chunks):
            return None
        content = "".join(ch["delta"].get("content") or "" for c in chunks for ch in c["choices"])
        return {"id": chunks[0]["id"], "choices": [{"message": {"role": "assistant", "content": content}}]}

    def turn(self, path):
        stream = len(self.answered) % 3 == 2
        while True:
            a = self.post(path, {"model": "m", "messages": self.messages, "stream": stream}, stream)
            if a is not None:
                break
            self.retries += 1
            time.sleep(0.02)
        time.sleep(0.02 + len(self.answered) / 2000)  # a longer talk goes slower
        message = a["choices"][0]["message"]
        self.answered.append((a["id"].removeprefix("chatcmpl-"), message["content"]))
        self.messages += [message, {"role": "user", "content": f"go on {len(self.answered)}"}]

    def run(self):
        try:
            while self.session is None:
                self.session = self.post("/sessions", {})
            path = f"/sessions/{self.session['session_id']}/v1/chat/completions"
            while not self.stop.is_set():
                self.turn(path)
        except Exception as e:  # told by the test
            self.fault = f"client {self.number}: {type(e).__name__}: {e}"


def kill_some(gateway, names, until, rng):
    kills = 0
    while time.monotonic() < until:
        pid = gateway.child(rng.choice(names))
        try:
            os.kill(pid, signal.SIGKILL)
            kills += 1
        except ProcessLookupError:
            pass
        time.sleep(rng.uniform(0.1, 0.5))
    return kills


def check_export(gateway, client):
    """Every answered turn once, with the ids that spell what the client was told."""
    a = gateway.get(f"/sessions/{client.session['session_id']}?records=1", timeout=60)
    assert a.status == 200, a.text
    by_id, texts = {}, []
    for record in a.json()["records"]:
        for answer in record["answers"]:
            assert answer["response_id"] not in by_id, "a response id twice"
            by_id[answer["response_id"]] = answer
            texts.append(bytes(i for i in answer["output_ids"] if i < 256).decode())
    for response_id, content in client.answered:
        assert response_id in by_id, f"lost: {response_id} of client {client.number}"
        assert bytes(i for i in by_id[response_id]["output_ids"] if i < 256).decode() == content
    trajectories = gateway.post(f"/sessions/{client.session['session_id']}/finalize").json()["trajectories"]
    longest = max(trajectories, key=lambda t: sum(t["response_mask"]))
    generated = bytes(i for i, m in zip(longest["response_ids"], longest["response_mask"]) if m and i < 256).decode()
    assert generated == "".join(content for _, content in client.answered), "the trajectory is not the talk"
    return len(by_id) - len(client.answered)


@pytest.mark.parametrize("victims", ["workers", "all"])
def test_nothing_answered_is_lost_or_doubled(start, victims):
    gateway = start(engine="builtin:random:9,delay_ms=5", workers=2, routers=2, max_restarts=100000)
    gateway.allow("process died")
    stop = threading.Event()
    clients = [Client(gateway, i, stop) for i in range(CLIENTS)]
    for c in clients:
        c.start()
    wait_until(lambda: all(c.answered for c in clients), 20, "all clients talk")
    names = ["worker-0", "worker-1"] + (["router-0", "router-1"] if victims == "all" else [])
    kills = kill_some(gateway, names, time.monotonic() + SECONDS, random.Random(7))
    stop.set()
    for c in clients:
        c.join(60)
        assert not c.is_alive(), f"client {c.number} hangs"
        assert c.fault is None, c.fault
    wait_until(lambda: gateway.get("/ready").status == 200, 30, "all is ready again")
    extra = sum(check_export(gateway, c) for c in clients)
    turns = sum(len(c.answered) for c in clients)
    print(f"{kills} kills, {turns} turns answered, {sum(c.retries for c in clients)} retries, {extra} extra samples")
    assert kills >= 5, "too few kills to mean anything"  # the back-off of restarts bounds them
    assert extra == 0, "a retried turn was sampled twice"


def test_a_restart_of_everything_under_load(start):
    gateway = start(engine="builtin:random:4,delay_ms=5", workers=2, routers=1)
    stop = threading.Event()
    clients = [Client(gateway, i, stop) for i in range(3)]
    for c in clients:
        c.start()
    wait_until(lambda: all(c.answered for c in clients), 20, "all clients talk")
    for _ in range(3):
        gateway.allow("supervisor")
        gateway.kill()
        gateway.start()
        before = [len(c.answered) for c in clients]
        wait_until(lambda: all(len(c.answered) > n
                               for c, n in zip(clients, before)), 30, "all go on")
    stop.set()
    for c in clients:
        c.join(30)
        assert c.fault is None, c.fault
    for c in clients:
        check_export(gateway, c)

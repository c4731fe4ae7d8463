"""One attack by four connections on one worker, while another session makes turns: what those turns take."""
import contextlib
import json
import multiprocessing
import os
import threading
import time
from collections import Counter
from http.client import HTTPConnection, HTTPException

import gateway as g
from attacks import ATTACKS, Agent
from machine import Stolen

CONNECTIONS = 4
ADMIN = "adm-0123456789abcdef"
TURNS = 20      # of one session, then another begins
LONG_PROMPT = "a word " * 4096      # 28 KB: a helper renders and encodes it
LONG_PAUSE = 0.05
PLAYS = 3       # of what held the loop for too long, each time anew


def settings(folder, long_answers=False, **more):
    """Of a gateway with keys and one worker. Its engine costs nothing: a script of short answers."""
    path, script = os.path.join(folder, "admin-keys"), os.path.join(folder, "script.json")
    with open(path, "w", encoding="utf-8") as f:
        f.write(ADMIN + "\n")
    with open(script, "w", encoding="utf-8") as f:
        json.dump(["So it is.", "It is not.", "Who knows?"], f)
    engine = "builtin:echo" if long_answers else f"builtin:script:{script}"
    return {"engine": engine, "workers": 1, "admin_key_file": path, "context_length": 32_768, "max_worker_memory": "2GiB",
            "tool_parser": "glm45", "reasoning_parser": "glm45", **more}


def new_session(gateway):
    return gateway.post("/sessions", {}, headers={"Authorization": f"Bearer {ADMIN}"}).json()


def fight(name, agents, stop, pipe, nice):
    """In a process of its own: four connections at it. With nice they stand for other machines: they get what processor time
    gateway and turns leave."""
    if nice:
        os.nice(nice)
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    seen, lock = Counter(), threading.Lock()

    def count(what):
        with lock:
            seen[str(what)] += 1
    threads = [threading.Thread(target=ATTACKS[name], args=(agent, stop, count), daemon=True) for agent in agents]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    pipe.send(dict(seen))


class Victim:
    """Turns of one session after the other, on one connection; `padding` is said in each, and one session has `turns` of them."""

    def __init__(self, gateway, padding="", turns=TURNS):
        self.gateway, self.padding, self.of_session = gateway, padding, turns
        self.took, self.failed, self.turns = [], [], 0
        self.connection, self.session, self.said = None, None, []

    def turn(self):
        if self.turns % self.of_session == 0:
            self.session, self.said = new_session(self.gateway), []
        self.turns += 1
        self.said.append({"role": "user", "content": f"turn {self.turns} {self.padding}"})
        body = json.dumps({"model": "m", "messages": self.said, "max_tokens": 16})
        began = time.perf_counter()
        try:
            if not self.connection:
                self.connection = HTTPConnection("127.0.0.1", self.gateway.port, timeout=60)
            self.connection.request("POST", "/v1/chat/completions", body, {"Authorization": f"Bearer {self.session['api_key']}"})
            answer = self.connection.getresponse()
            data = answer.read()
            if answer.status != 200:
                raise HTTPException(f"{answer.status} {data[:200]!r}")
            self.said.append({"role": "assistant", "content": json.loads(data)["choices"][0]["message"]["content"]})
        except (OSError, HTTPException) as e:
            self.failed.append(str(e))
            self.turns, self.connection = 0, None
        self.took.append((time.perf_counter() - began) * 1000)


def longest_hold_ms(gateway, kind=""):
    """Of the worker's loop since its start; cpu_: of it, on a processor."""
    name = f'rollgate_loop_hold_{kind}max_seconds{{process="worker-0"}}'
    return 1000 * g.wait_until(lambda: name in (m := gateway.metrics()) and m, what="the worker's first figures")[name]


def holds_within(limit_ms, play, what=""):
    """The least of what a few plays return, each the longest hold on a gateway of its own, stays within the limit: a virtual
    machine's processors stop now and then."""
    seen = []
    for _ in range(PLAYS):
        seen.append(play())
        if seen[-1] <= limit_ms:
            return
    raise AssertionError(f"{what}: the loop was held for {seen} ms; the limit is {limit_ms:.1f}")


def peak_allowed(size):
    """Bytes that a worker may hold: a sanitizer's are more."""
    return size * 4 if "asan" in str(g.BUILD) or "tsan" in str(g.BUILD) else size


def share(values, at):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * at))] if values else 0.0


def make_long_turns(victim, stop):
    """In a thread: turns whose prompts need a helper."""
    while not stop.wait(LONG_PAUSE):
        victim.turn()


def measure(gateway, name, seconds, pause=0.005, nice=0):
    """Runs one attack (None: none); what it came to. Beside the short turns of one session others make turns with long prompts."""
    worker = gateway.child("worker-0")
    context = multiprocessing.get_context("fork")
    stop, (ours, theirs) = context.Event(), context.Pipe()
    attackers = None
    if name:
        sessions = [new_session(gateway) for _ in range(CONNECTIONS)]
        agents = [Agent(gateway.port, s["session_id"], s["api_key"]) for s in sessions]
        attackers = context.Process(target=fight, args=(name, agents, stop, theirs, nice))
        attackers.start()
    victim, patient = Victim(gateway), Victim(gateway, LONG_PROMPT, turns=1)
    memory, end, seen, host = 0, time.monotonic() + seconds, {}, Stolen()
    over = threading.Event()
    beside = threading.Thread(target=make_long_turns, args=(patient, over))
    beside.start()
    try:
        while time.monotonic() < end:
            victim.turn()
            memory = max(memory, gateway.resident(worker))
            time.sleep(pause)
    finally:
        over.set()
        beside.join()
        stolen = host.share()
        stop.set()
        if attackers:
            with contextlib.suppress(EOFError):
                seen = ours.recv() if ours.poll(90) else {"hangs": 1}
            attackers.join(30)
    return {"attack": name or "none", "turns": len(victim.took), "p50": share(victim.took, 0.5), "p99": share(victim.took, 0.99),
            "max": max(victim.took), "long_turns": len(patient.took), "long_p50": share(patient.took, 0.5),
            "long_p99": share(patient.took, 0.99), "failed": victim.failed + patient.failed, "memory": memory, "seen": seen, "hold": longest_hold_ms(gateway),
            "hold_cpu": longest_hold_ms(gateway, "cpu_"), "stolen": stolen,
            "alive": g.alive(worker) and gateway.child("worker-0") == worker}

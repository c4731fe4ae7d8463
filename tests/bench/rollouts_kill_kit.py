#!/usr/bin/python3
"""Rollouts while everything is killed: processes of the gateway and executors with kill -9, one at a time, and now and then
the whole gateway. What must hold: every group settles once and is delivered until it is acknowledged, with the same members
and the same exported bytes; sinks hold the sessions that count and no other; at the end no process of an agent lives and no
session is open.

    scripts/bench rollouts --kill [SECONDS]        default 3600
"""
import json
import os
import random
import signal
import sys
import threading
import time

from scenes_kit import ROOT, g, play

sys.path.insert(0, str(ROOT / "tests/blackbox"))
from runner_kit import Runner, processes_with, script  # noqa: E402

GROUP, IN_FLIGHT = 4, 24
KILLED = ("process died", "process ended", "worker connection", "cannot", "upstream", "executor", "gateway", "sink", "refuses")


class Chaos:
    """The gateway, two executors, and what kills them."""

    def __init__(self, seed):
        self.rng, self.stop, self.kills, self.whole = random.Random(seed), threading.Event(), {}, 0
        self.gate = g.Gateway(workers=2, routers=2, engine="builtin:echo", sink="file", attempt_lease="3s", runner_breaker=0,
                              max_restarts=1000000, restart_window="1s").allow(*KILLED)
        self.gate.start()
        self.word = f"kill-bench-{os.urandom(5).hex()}"
        agent = script(self.gate.folder, "agent", """
for turn in range(2):
    for attempt in range(50):
        try:
            chat(f"turn {turn}")
            break
        except Exception:
            time.sleep(0.1)
    else:
        sys.exit(75)
""")
        settings = {"r": {"run": agent + [self.word], "slots": 4, "timeout": "60s", "grace": "500ms"}}
        self.executors = [Runner(self.gate, settings).start() for _ in range(2)]
        self.lock = threading.Lock()

    def note(self, name):
        self.kills[name] = self.kills.get(name, 0) + 1

    def kill_one(self):
        if self.rng.random() < 0.3:
            executor = self.rng.choice(self.executors)
            executor.process.kill()
            executor.process.wait(10)
            executor.log_file.close()
            executor.start()
            self.note("executor")
            return
        name = self.rng.choice(["dispatcher", "worker-0", "worker-1", "router-0", "router-1"])
        pid = self.gate.child(name)
        if pid and pid in g.children_of(self.gate.process.pid):
            self.gate.remember(pid)
            os.kill(pid, signal.SIGKILL)
            self.note(name.split("-")[0])

    def kill_all(self):
        with self.lock:
            self.gate.kill()
            self.gate.start()
        self.whole += 1

    def run(self, every_s, whole_every):
        n = 0
        while not self.stop.wait(self.rng.uniform(0.5, 1.5) * every_s):
            n += 1
            if n % whole_every == 0:
                self.kill_all()
            else:
                self.kill_one()

    def ask(self, method, path, body=None):
        end = time.monotonic() + 180
        while True:
            try:
                answer = self.gate.request(method, path, body, timeout=60)
                if answer.status < 500:
                    return answer
            except OSError:
                pass
            if time.monotonic() > end:
                raise SystemExit(f"{method} {path}: no answer for three minutes")
            time.sleep(0.1)


def must(holds, what):
    if not holds:
        raise SystemExit(f"FAILED: {what}")


class Trainer:
    """Submits, takes, compares what comes again, acknowledges most of the time."""

    def __init__(self, chaos):
        self.chaos, self.rng, self.submitted, self.acked = chaos, random.Random(5), 0, set()
        self.seen, self.exports, self.winners, self.again = {}, {}, set(), 0

    def submit(self):
        while self.submitted - len(self.acked) < IN_FLIGHT:
            body = {"runner": "r", "n": GROUP, "reward": "external", "input": self.submitted, "attempts": 1000,
                    "infra_attempts": 1000}
            answer = self.chaos.ask("PUT", f"/groups/g{self.submitted}", body)
            must(answer.status in (200, 201), answer.text)
            self.submitted += 1

    def take(self):
        for group in self.chaos.ask("GET", "/queues/train/next?max=8&wait_s=1&lease_s=4").json()["groups"]:
            name, members = group["id"], json.dumps(group["members"], sort_keys=True)
            must(group["state"] == "finished" and group["succeeded"] == GROUP, f"{name} is not full: {group}")
            must(name not in self.acked, f"{name} came after its acknowledgement")
            self.again += name in self.seen
            must(self.seen.setdefault(name, members) == members, f"{name}: a delivery differs from the one before")
            first = group["members"][0]["session_id"]
            body = self.chaos.ask("POST", f"/sessions/{first}/finalize", {"format": "msgpack"}).body
            must(self.exports.setdefault(first, body) == body, f"{first}: an export differs from the one before")
            self.winners |= {m["session_id"] for m in group["members"]}
            if self.rng.random() < 0.8:
                self.chaos.ask("POST", "/queues/train/ack", {"groups": [name]})
                self.acked.add(name)
                self.exports.pop(first)
                self.seen.pop(name)


def kill(args, results):
    chaos = Chaos(args.seed)
    trainer = Trainer(chaos)
    thread = threading.Thread(target=chaos.run, args=(args.every, min(10, max(2, int(args.kill / args.every / 4)))))
    thread.start()
    end = time.monotonic() + args.kill
    try:
        while time.monotonic() < end:
            trainer.submit()
            trainer.take()
    finally:
        chaos.stop.set()
        thread.join(120)
    rest = time.monotonic() + 300
    while len(trainer.acked) < trainer.submitted:
        must(time.monotonic() < rest, f"{trainer.submitted - len(trainer.acked)} groups were never delivered")
        trainer.take()
    g.wait_until(lambda: chaos.ask("GET", "/groups").json()["groups"] == [], 60, "all groups are gone")
    g.wait_until(lambda: chaos.ask("GET", "/sessions?phase=open").json()["sessions"] == [], 120, "no session is open")
    for executor in chaos.executors:
        must(executor.stop() == 0, "an executor does not end well")
    must(not processes_with(chaos.word), "an agent's process is left")
    folder = f"{chaos.gate.settings['state-dir']}/trajectories"

    def delivered():
        return {f[:-len(".msgpack")] for f in os.listdir(folder) if f.endswith(".msgpack")}
    g.wait_until(lambda: delivered() >= trainer.winners, 60, "the sink has all")
    must(delivered() == trainer.winners, "a losing attempt is in the sink")
    row = {"scene": "kill", "seconds": args.kill, "groups": trainer.submitted, "again": trainer.again, "whole": chaos.whole}
    row.update({f"killed_{k}": v for k, v in sorted(chaos.kills.items())})
    print("  ".join(f"{k} {v}" for k, v in row.items()), flush=True)
    results.append(row)
    chaos.gate.stop()


def main(args):
    args.scenes = "kill"
    play({"kill": kill}, args)

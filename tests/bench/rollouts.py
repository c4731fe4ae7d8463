#!/usr/bin/python3
"""What a rollout costs the gateway, by the dispatcher's own calls over HTTP.

    scripts/bench rollouts [--rollouts 3000] [--waiting 100000] [--runs 3000] [--claims 1000] [--rounds 20]
    scripts/bench rollouts --kill [SECONDS]        while everything is killed: rollouts_kill_kit.py

claim-to-end   rollouts whose agent calls the model once (builtin engine) and that end with a reward: rollouts a
               second, CPU of the dispatcher, worker and router a rollout
runners        attempts of `rollgate runner` whose run is /bin/true, on 32 slots, from the claim to the end: runs a second, CPU
               a run of the executor, of what it forks, and of the gateway
claims         one executor that claims one attempt at a time of an idle gateway: how long the answer takes
turns          eight sessions of twenty growing turns, of attempts and (without a dispatcher) of their own, rounds interleaved:
               CPU of worker, router and dispatcher a turn, and the ratio of neighbouring rounds
waiting        groups of 1 KB that wait: memory of the dispatcher, and the time and CPU of its replay

CPU is the processes' own clocks, so other work on the machine does not count; the rate is wall time and is bounded by
the Python clients too.
"""
import http.client
import json
import os
import re
import signal
import statistics
import threading
import time

import rollouts_kill_kit
from scenes_kit import cpu_s, g, parser, play

CLIENTS = 4
BATCH = 16


class Caller:
    def __init__(self, port):
        self.c = http.client.HTTPConnection("127.0.0.1", port, timeout=120)

    def __call__(self, method, path, body=None):
        self.c.request(method, path, None if body is None else json.dumps(body), {"Content-Type": "application/json"})
        r = self.c.getresponse()
        text = r.read()
        if r.status >= 300:
            raise SystemExit(f"{method} {path}: {r.status} {text[:300]}")
        return json.loads(text)


def work(gate, name, left, lock):
    call = Caller(gate.port)
    while True:
        with lock:
            if left[0] <= 0:
                return
        got = call("POST", "/attempts/claim", {"executor": name, "slots": {"r": BATCH}, "wait_s": 1})["attempts"]
        for a in got:
            call("POST", f"/sessions/{a['session']['session_id']}/v1/chat/completions",
                 {"messages": [{"role": "user", "content": "go"}]})
            call("POST", f"/attempts/{a['attempt_id']}/end", {"outcome": "ok", "reward_info": {"reward": 1}})
        with lock:
            left[0] -= len(got)


def take(gate, n):
    call, seen = Caller(gate.port), 0
    while seen < n:
        got = call("GET", "/queues/train/next?max=64&wait_s=5")["groups"]
        if got:
            call("POST", "/queues/train/ack", {"groups": [x["id"] for x in got]})
        seen += len(got)


def claim_to_end(args, results):
    rollouts = args.rollouts
    gate = g.Gateway(workers=1, routers=1).start()
    pids = {name: gate.child(name) for name in ("dispatcher", "worker-0", "router-0")}
    call = Caller(gate.port)
    groups = rollouts // 8
    call("POST", "/groups", {"defaults": {"runner": "r", "n": 8, "input": {"x": "y" * 200}},
                             "groups": [{"id": f"g{i}"} for i in range(groups)]})
    left, lock = [groups * 8], threading.Lock()
    before, start = {n: cpu_s(p) for n, p in pids.items()}, time.monotonic()
    threads = [threading.Thread(target=work, args=(gate, f"x{i}", left, lock)) for i in range(CLIENTS)]
    threads.append(threading.Thread(target=take, args=(gate, groups)))
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    seconds = time.monotonic() - start
    row = {"scene": "claim-to-end", "rollouts": groups * 8, "per_s": round(groups * 8 / seconds)}
    for name, pid in pids.items():
        row[f"{name}_ms"] = round((cpu_s(pid) - before[name]) * 1000 / (groups * 8), 3)
    gate.stop()
    tell(row, results)


def tell(row, results):
    print("  ".join(f"{k} {v}" for k, v in row.items()), flush=True)
    results.append(row)


def children_s(pid):
    """CPU seconds of the processes that one has started and that have ended."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")


def runners(args, results):
    gate = g.Gateway(workers=1, routers=1, runner_breaker=0)
    gate.settings["runners"] = f"{gate.folder}/runners.yaml"
    with open(gate.settings["runners"], "w", encoding="utf-8") as f:
        json.dump({"runners": {"r": {"run": ["/bin/true"], "slots": 32}}}, f)
    gate.start()
    pids = {name: gate.child(name) for name in ("dispatcher", "worker-0", "router-0")}
    pids["executor"] = int(g.wait_until(lambda: re.search(r"executor_pid=(\d+)", gate.log()), 20, "the executor")[1])
    call, groups = Caller(gate.port), args.runs // 8
    before, forked = {n: cpu_s(p) for n, p in pids.items()}, children_s(pids["executor"])
    start = time.monotonic()
    call("POST", "/groups", {"defaults": {"runner": "r", "n": 8, "attempts": 1, "reward": "external", "input": {"x": "y" * 200}},
                             "groups": [{"id": f"g{i}"} for i in range(groups)]})
    take(gate, groups)
    seconds = time.monotonic() - start
    row = {"scene": "runners", "runs": groups * 8, "per_s": round(groups * 8 / seconds)}
    for name, pid in pids.items():
        row[f"{name}_ms"] = round((cpu_s(pid) - before[name]) * 1000 / (groups * 8), 3)
    row["forked_ms"] = round((children_s(pids["executor"]) - forked) * 1000 / (groups * 8), 3)
    gate.stop()
    tell(row, results)


def waiting(args, results):
    n = args.waiting
    gate = g.Gateway(workers=1, routers=1).start()
    call = Caller(gate.port)
    for first in range(0, n, 1000):
        call("POST", "/groups", {"defaults": {"runner": "r", "n": 8, "input": "z" * 900},
                                 "groups": [{"id": f"g{i}"} for i in range(first, min(first + 1000, n))]})
    memory = gate.resident(gate.child("dispatcher"))
    before = gate.child("dispatcher")
    os.kill(before, signal.SIGKILL)
    found = g.wait_until(lambda: re.search(r"groups replayed groups=(\d+) ms=(\d+)", gate.log()), 60, "the replay")
    g.wait_until(lambda: gate.child("dispatcher") not in (None, before), 60, "the next dispatcher serves")
    row = {"scene": "waiting", "groups": n, "memory_mb": round(memory / 1e6, 1), "replayed": int(found[1]),
           "replay_ms": int(found[2]), "replay_cpu_ms": round(cpu_s(gate.child("dispatcher")) * 1000)}
    gate.stop()
    tell(row, results)


def claims(args, results):
    gate = g.Gateway(workers=1, routers=1, runner_breaker=0).start()
    call, n, took = Caller(gate.port), args.claims, []
    call("POST", "/groups", {"defaults": {"runner": "r", "attempts": 1, "input": {"x": "y" * 200}},
                             "groups": [{"id": f"g{i}"} for i in range(n)]})
    for _ in range(n):
        start = time.monotonic()
        got = call("POST", "/attempts/claim", {"executor": "x", "slots": {"r": 1}, "wait_s": 10})["attempts"]
        took.append((time.monotonic() - start) * 1000)
        call("POST", f"/attempts/{got[0]['attempt_id']}/end", {"outcome": "error"})
        time.sleep(0.005)
    took.sort()
    gate.stop()
    tell({"scene": "claims", "claims": n, **{f"p{q}_ms": round(took[n * q // 100], 2) for q in (50, 90, 99)}}, results)


def grow(call, sessions, turns):
    """Every session makes so many turns, each on all that was said before."""
    said = {s: [] for s in sessions}
    for turn in range(turns):
        for s in sessions:
            said[s].append({"role": "user", "content": f"step {turn}: " + "look at the next file, please. " * 10})
            answer = call("POST", f"/sessions/{s}/v1/chat/completions", {"messages": said[s]})
            said[s].append(answer["choices"][0]["message"])


def turns(args, results):
    """The same turns by sessions of attempts, and by sessions of a gateway without a dispatcher; rounds interleaved."""
    gates = {"on": g.Gateway(workers=1, routers=1).start(), "off": g.Gateway(workers=1, routers=1, dispatcher="off").start()}
    calls = {name: Caller(gate.port) for name, gate in gates.items()}
    pids = {name: [p for p in (gate.child("worker-0"), gate.child("router-0"), gate.child("dispatcher")) if p]
            for name, gate in gates.items()}
    assert len(pids["on"]) == 3 and len(pids["off"]) == 2, pids
    each = {"on": [], "off": []}
    for number in range(args.rounds):
        for name in ("on", "off") if number % 2 else ("off", "on"):
            call = calls[name]
            if name == "on":
                call("POST", "/groups", {"defaults": {"runner": "r", "n": 8}, "groups": [{"id": f"g{number}"}]})
                claimed = call("POST", "/attempts/claim", {"executor": "x", "slots": {"r": 8}, "wait_s": 10})["attempts"]
                sessions = [a["session"]["session_id"] for a in claimed]
            else:
                sessions = [call("POST", "/sessions", {})["session_id"] for _ in range(8)]
            assert len(sessions) == 8
            before = sum(cpu_s(p) for p in pids[name])
            grow(call, sessions, 20)
            each[name].append((sum(cpu_s(p) for p in pids[name]) - before) * 1000 / 160)
            if name == "on":
                for a in claimed:
                    call("POST", f"/attempts/{a['attempt_id']}/end", {"outcome": "ok", "reward_info": {"reward": 1}})
                take(gates["on"], 1)
    for gate in gates.values():
        gate.stop()
    ratios = sorted(a / b for a, b in zip(each["on"], each["off"]))
    tell({"scene": "turns", "rounds": args.rounds, "turns": args.rounds * 160,
          **{f"{name}_ms": round(statistics.median(found), 4) for name, found in each.items()},
          "ratio_median": round(statistics.median(ratios), 3), "ratio_least": round(ratios[0], 3),
          "ratio_greatest": round(ratios[-1], 3)}, results)


SCENES = {"claim-to-end": claim_to_end, "runners": runners, "claims": claims, "waiting": waiting, "turns": turns}

if __name__ == "__main__":
    p = parser(__doc__, SCENES)
    p.add_argument("--rollouts", type=int, default=3000)
    p.add_argument("--runs", type=int, default=3000)
    p.add_argument("--claims", type=int, default=1000)
    p.add_argument("--waiting", type=int, default=100000)
    p.add_argument("--rounds", type=int, default=20)
    p.add_argument("--kill", type=float, nargs="?", const=3600.0)
    p.add_argument("--every", type=float, default=2.0, help="seconds between two kills")
    p.add_argument("--seed", type=int, default=1)
    given = p.parse_args()
    if given.kill:
        rollouts_kill_kit.main(given)
    else:
        play(SCENES, given)

#!/usr/bin/python3
"""How the viewer paints very much: the list of 100,000 sessions, and a branch of 200,000 tokens; and what it costs a worker.

    scripts/bench viewer [--sessions 100000] [--tokens 200000] [--turns 1000] [--pairs 20] [--only sessions|tokens|cost|unseen]

A headless Chromium scrolls through each for 240 frames; told are the pauses between frames (60 a second are
16.7 ms). Without a graphics card the browser paints on the CPU, which the machine's other work slows down. Needs
chromium and node (scripts/setup).

The cost: turns at a steady rate over 400 sessions of one worker, with nobody looking and with ten open Overviews (all
events, and what the page asks for every 2 s), in turn; told is the worker's CPU time a turn: the median of the rounds, and
the median of the differences of neighbours.
"""
import argparse
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "blackbox"))
import gateway as g

VIEWER = g.ROOT / "tests/viewer"
AT_ONCE = 1000
COST_SESSIONS, COST_VIEWERS, COST_SECONDS, CALLERS = 400, 10, 3, 4
LOOK_SECONDS, LOOKED_AT = 2, ("/metrics", "/health", "/admin/engines")     # of ui/overview.js


def play(scene, told):
    done = subprocess.run(["node", str(VIEWER / "frames.mjs"), scene, json.dumps(told)], capture_output=True, text=True,
                          timeout=600)
    report = json.loads(done.stdout.splitlines()[-1]) if done.stdout.strip() else {"ok": False, "failed": [done.stderr[-2000:]]}
    if not report.pop("ok"):
        sys.exit("\n".join(report["failed"]))
    del report["failed"]
    return report


def many(n):
    """The list of n sessions."""
    gateway = g.Gateway(engine="builtin:echo", workers=2, max_sessions=2 * n).start()
    try:
        rounds = (n + AT_ONCE - 1) // AT_ONCE
        for i in range(rounds):
            got = gateway.post("/sessions", {"count": AT_ONCE, "labels": {"batch": i}}, timeout=120).json()
        report = play("many", {"url": gateway.url, "n": rounds * AT_ONCE, "search": got["sessions"][-1]["session_id"][-20:]})
        return {**report, **held(gateway)}
    finally:
        gateway.stop()


def held(gateway):
    """How long one iteration of an event loop has taken at most, in processor time, and how often a task took 20 ms or more."""
    m = gateway.metrics()
    loops = {k.split('"')[1]: round(1000 * v, 2) for k, v in m.items() if k.startswith("rollgate_loop_hold_cpu_max_seconds")}
    return {"held_ms": loops, "task_stalls": m["rollgate_task_stalls_total"]}


def long(n):
    """A branch of n tokens and some: the built-in model has a token for every byte."""
    gateway = g.Gateway(engine="builtin:echo", workers=1, context_length=4 * n).start()
    try:
        session = gateway.post("/sessions", {}).json()
        text = " ".join(f"word{i} = {i * i}" for i in range(n // 8))[:n]
        answer = gateway.chat(session, text, max_tokens=100, timeout=120)
        assert answer.status == 200, answer.text
        got = gateway.get(f"/sessions/{session['session_id']}/trajectories", timeout=120).json()["trajectories"][0]
        tokens = len(got["prompt_ids"]) + len(got["response_ids"])
        return play("long", {"url": gateway.url, "a": session["session_id"], "n": tokens})
    finally:
        gateway.stop()


def cpu_seconds(pid):
    """Of all its threads; the clock of /proc/PID/stat would be too coarse."""
    return sum(int(t.read_text().split()[0]) for t in pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


class Viewers:
    """n open Overviews: each follows all events, and they ask for the numbers in turn."""

    def __init__(self, gateway, n):
        self.gateway, self.n, self.over = gateway, n, threading.Event()
        curl = ["curl", "-sN", "-o", "/dev/null", gateway.url + "/events"]
        self.streams = [subprocess.Popen(curl) for _ in range(n)]
        self.looker = threading.Thread(target=self.look)
        self.looker.start()

    def look(self):
        while self.n and not self.over.wait(LOOK_SECONDS / self.n):
            for path in LOOKED_AT:
                assert self.gateway.get(path).status == 200

    def leave(self):
        self.over.set()
        self.looker.join()
        for one in self.streams:
            one.kill()
            one.wait()


def caller(port, requests, rate, seconds, done):
    """Sends one request after the other on one connection, at a steady rate; counts the answers in `done`."""
    with socket.create_connection(("127.0.0.1", port), 60) as s, s.makefile("rb") as answers:
        begin = time.monotonic()
        for i in range(int(rate * seconds)):
            time.sleep(max(0, begin + i / rate - time.monotonic()))
            s.sendall(requests[i % len(requests)])
            status, length = answers.readline(), 0
            while (line := answers.readline()) != b"\r\n":
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            assert b" 200 " in status and length, status
            answers.read(length)
            done.append(1)


def turn_cost(gateway, pid, sessions, rate):
    """Turns a second, and the worker's CPU time a turn in us."""
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "one turn, of some words"}]}).encode()
    requests = [f"POST /sessions/{s}/v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\n\r\n".encode() + body for s in sessions]
    done, began, before = [], time.monotonic(), cpu_seconds(pid)
    threads = [threading.Thread(target=caller, daemon=True, args=(gateway.port, requests[k::CALLERS], rate / CALLERS,
                                                                  COST_SECONDS, done)) for k in range(CALLERS)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return len(done) / (time.monotonic() - began), 1e6 * (cpu_seconds(pid) - before) / len(done)


def cost(rate, pairs):
    """What ten viewers cost the worker: pairs of rounds without and with them."""
    gateway = g.Gateway(engine="builtin:echo", workers=1).start()
    try:
        pid = gateway.child("worker-0")
        sessions = [s["session_id"] for s in gateway.post("/sessions", {"count": COST_SESSIONS}).json()["sessions"]]
        turn_cost(gateway, pid, sessions, rate)
        rounds = {0: [], COST_VIEWERS: []}
        for pair in range(pairs):
            for n in sorted(rounds, reverse=pair % 2 == 1):
                viewers = Viewers(gateway, n)
                try:
                    time.sleep(1)
                    rounds[n].append(turn_cost(gateway, pid, sessions, rate))
                finally:
                    viewers.leave()
    finally:
        gateway.stop()
    alone, seen = (statistics.median(us for _, us in rounds[n]) for n in rounds)
    more = [b - a for (_, a), (_, b) in zip(rounds[0], rounds[COST_VIEWERS])]
    return {"n": COST_VIEWERS, "turns_per_s": statistics.median(r for rows in rounds.values() for r, _ in rows),
            "us_a_turn": alone, "us_a_turn_seen": seen, "us_more": statistics.median(more),
            "percent_more": 100 * statistics.median(more) / alone, "rounds": rounds}


def unseen(rate, pairs):
    """What the viewer costs while nobody looks: rounds of a gateway that has it and of one that has not (--ui off), in turn."""
    gateways = {ui: g.Gateway(engine="builtin:echo", workers=1, ui=ui).start() for ui in ("off", "on")}
    try:
        sessions = {ui: [s["session_id"] for s in gateway.post("/sessions", {"count": COST_SESSIONS}).json()["sessions"]]
                    for ui, gateway in gateways.items()}
        def cpu_of_turn(ui):
            return turn_cost(gateways[ui], gateways[ui].child("worker-0"), sessions[ui], rate)[1]
        for ui in gateways:
            cpu_of_turn(ui)
        rounds = {ui: [] for ui in gateways}
        for pair in range(pairs):
            for ui in sorted(gateways, reverse=pair % 2 == 1):
                rounds[ui].append(cpu_of_turn(ui))
    finally:
        for gateway in gateways.values():
            gateway.stop()
    ratios = [on / off for on, off in zip(rounds["on"], rounds["off"])]
    return {"us_a_turn": statistics.median(rounds["on"]), "us_a_turn_off": statistics.median(rounds["off"]),
            "ratio": statistics.median(rounds["on"]) / statistics.median(rounds["off"]), "ratio_of_pairs": statistics.median(ratios), "rounds": rounds}


def tell_frames(what, report):
    frames = report["scroll"]
    print(f"{report['n']:,} {what}: a frame every {frames['median_ms']} ms (95 %: {frames['p95_ms']}, worst: "
          f"{frames['worst_ms']}), {report['elements']} elements, "
          f"there after {report.get('listed_ms', report.get('drawn_ms'))} ms")
    if "search_ms" in report:
        print(f"the first rows after {report['first_ms']} ms; a search typed into the list: {report['search_ms']} ms; "
              f"the longest stall while it was read: {report['stall_ms']} ms")
        print(f"loops were held for, in ms of processor time: {report['held_ms']}; tasks stalled {report['task_stalls']:.0f} times")


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--sessions", type=int, default=100000)
    ap.add_argument("--tokens", type=int, default=200000)
    ap.add_argument("--turns", type=int, default=1000, help="a second, for the cost")
    ap.add_argument("--pairs", type=int, default=20)
    ap.add_argument("--only", choices=["sessions", "tokens", "cost", "unseen"])
    ap.add_argument("--json")
    args = ap.parse_args()
    if not (VIEWER / "node_modules/puppeteer-core").exists():
        subprocess.run(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"], cwd=VIEWER, check=True, timeout=600)
    got = {}
    for what, measure, n in (("sessions", many, args.sessions), ("tokens", long, args.tokens)):
        if args.only in (None, what):
            got[what] = {"n": n, **measure(n)}
            tell_frames(what, got[what])
    if args.only in (None, "cost"):
        c = got["cost"] = cost(args.turns, args.pairs)
        print(f"{c['n']} viewers at {c['turns_per_s']:.0f} turns a second: {c['us_a_turn_seen']:.1f} us of worker CPU a turn, "
              f"without them {c['us_a_turn']:.1f}; of neighbouring rounds {c['us_more']:+.1f} us, {c['percent_more']:+.1f} %")
    if args.only in (None, "unseen"):
        c = got["unseen"] = unseen(args.turns, args.pairs)
        print(f"nobody looks: {c['us_a_turn']:.1f} us of worker CPU a turn, with --ui off {c['us_a_turn_off']:.1f}: ratio of medians "
              f"{c['ratio']:.3f}, median ratio of pairs {c['ratio_of_pairs']:.3f}")
    print(f"load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(
            {"bench": "viewer", "when": time.strftime("%FT%TZ", time.gmtime()), "load": os.getloadavg(), **got}, indent=1) + "\n")


if __name__ == "__main__":
    main()

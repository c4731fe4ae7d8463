#!/usr/bin/python3
"""The router against nginx and HAProxy on the same stub workers, interleaved in one run.

    scripts/bench router [--peers rollgate,nginx-unix-128k,...] [--rounds 3] [--scenes small,new,...]

Every round visits every peer in every scene (each second round backwards); ratios are taken per
round and given as least / median / greatest, so that other work on the machine weighs on all alike.
The leading figure is requests, megabytes or events per CPU second of all processes of a peer: on a
machine that the load generator and the workers share, plain rates say little. One process each.
In the scene `kept` clients keep a connection for their session, as agents do, before a gateway's own
worker: with the connection lent to it, through the router, and through nginx in place of the router.
In the other scenes each request is another session's, and the workers are stubs.
"""
import argparse
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import kept
from peers import BUILD, PEERS, STUB_PORT, WORKERS, rollgate

MB = 1 << 20


def family(pid):
    out, at = [pid], 0
    while at < len(out):
        try:
            out += map(int, pathlib.Path(f"/proc/{out[at]}/task/{out[at]}/children").read_text().split())
        except OSError:
            pass
        at += 1
    return out


def resident(pids):
    total = 0
    for pid in pids:
        try:
            total += int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096
        except OSError:
            pass
    return total


def socket_memory(pids):
    """Kernel memory of the processes' sockets: what waits to be read, sent or acknowledged."""
    out = subprocess.run("ss -tmpnOH; ss -xmpnOH", shell=True, capture_output=True, text=True).stdout
    total = 0
    for line in out.splitlines():
        owner = {int(p) for p in re.findall(r"pid=(\d+)", line)}
        memory = re.search(r"skmem:\(r(\d+),rb\d+,t(\d+),tb\d+,f(\d+),w(\d+)", line)
        if memory and owner & pids:
            r, t, f, w = map(int, memory.groups())
            total += r + max(t, w) + f
    return total


class Peer:
    def __init__(self, name, command, port):
        self.name, self.port = name, port
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        end = time.monotonic() + 20
        while True:
            try:
                probe = subprocess.run([LOAD, str(port), "connections=1", "requests=1", "workers=1"],
                                       capture_output=True, timeout=5)
                if probe.returncode == 0 and json.loads(probe.stdout)["requests"] == 1:
                    return
            except subprocess.TimeoutExpired:
                pass
            if time.monotonic() > end or self.process.poll() is not None:
                raise RuntimeError(f"{name} does not serve")
            time.sleep(0.1)

    def cpu_seconds(self):
        total = 0
        for pid in family(self.process.pid):
            for path in pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat"):
                total += int(path.read_text().split()[0])
        return total / 1e9

    def load(self, *args):
        """Runs the load and adds the peer's CPU seconds. Anything but whole answers is an error."""
        before = self.cpu_seconds()
        out = subprocess.run([LOAD, str(self.port), *args], capture_output=True, text=True, timeout=180)
        got = json.loads(out.stdout)
        got["cpu_s"] = self.cpu_seconds() - before
        got["errors"] = {k: got[k] for k in ("failures", "bad_status", "misrouted", "bad_body") if got[k]}
        return got

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


# ---------------------------------------------------------------- scenes

def per_cpu(got, amount):
    return amount / got["cpu_s"] if got["cpu_s"] > 0 else None


def requests_scene(*args):
    def run(peer):
        got = peer.load("connections=64", "body=256", f"workers={WORKERS}", *args)
        return {"value": per_cpu(got, got["requests"]), "rate": got["requests"] / got["seconds"],
                "p50_us": got["p50_us"], "p99_us": got["p99_us"], "errors": got["errors"]}
    return run


def bytes_scene(*args):
    def run(peer):
        got = peer.load("connections=8", "seconds=1.5", f"workers={WORKERS}", *args)
        moved = (got["bytes_in"] + got["bytes_out"]) / 1e6
        return {"value": per_cpu(got, moved), "rate": moved / got["seconds"],
                "p50_us": got["p50_us"], "p99_us": got["p99_us"], "errors": got["errors"]}
    return run


def events(peer):
    got = peer.load("connections=50", "seconds=1.2", "events=1", "query=events=1000,5", f"workers={WORKERS}")
    return {"value": per_cpu(got, got["samples"]), "rate": got["samples"] / got["seconds"],
            "p50_us": got["p50_us"], "p99_us": got["p99_us"], "errors": got["errors"]}


def waiting(peer):
    """In flight against a worker that takes 0.5 s."""
    out = {}
    for n in (100, 200, 400, 800, 2000):
        got = peer.load(f"connections={n}", "seconds=3", "body=256", "query=delay=500", f"workers={WORKERS}")
        out[n] = {"p50_ms": got["p50_us"] / 1e3, "p99_ms": got["p99_us"] / 1e3,
                  "cpu_s": got["cpu_s"], "requests": got["requests"], "errors": got["errors"]}
    return out


def slow_readers(peer, size):
    """64 readers of 500 KB/s each: what grows in the peer and in its sockets."""
    pids = set(family(peer.process.pid))
    rss, kernel = resident(pids), socket_memory(pids)
    worst = {"rss": 0, "sockets": 0, "workers": 0}
    over = threading.Event()

    def watch():
        while not over.wait(0.2):
            worst["rss"] = max(worst["rss"], resident(pids) - rss)
            worst["sockets"] = max(worst["sockets"], socket_memory(pids) - kernel)
            worst["workers"] = max(worst["workers"], socket_memory({STUB.pid}))

    watcher = threading.Thread(target=watch)
    watcher.start()
    got = peer.load("connections=64", "seconds=3", f"expect={size}", f"query=bytes={size}", "slow=500000",
                    f"workers={WORKERS}")
    over.set()
    watcher.join()
    time.sleep(0.3)
    return {**{k + "_mb": v / MB for k, v in worst.items()}, "errors": got["errors"]}


SCENES = {
    "small": requests_scene("seconds=1.5"),
    "new": requests_scene("seconds=1.2", "fresh=1"),
    "down": bytes_scene(f"expect={5 * MB}", f"query=bytes={5 * MB}"),
    "down-chunked": bytes_scene(f"expect={5 * MB}", f"query=bytes={5 * MB}&chunked=1"),
    "up": bytes_scene(f"body={5 * MB}", "query=check=1"),
    "up-chunked": bytes_scene(f"body={5 * MB}", "chunked=1", "query=check=1"),
    "sse": events,
}
ONCE = {
    "waiting": waiting,
    "slow-5mb": lambda peer: slow_readers(peer, 5 * MB),
    "slow-50mb": lambda peer: slow_readers(peer, 50 * MB),
}
UNITS = {"small": "req/cpu-s", "new": "req/cpu-s", "down": "MB/cpu-s", "down-chunked": "MB/cpu-s",
         "up": "MB/cpu-s", "up-chunked": "MB/cpu-s", "sse": "events/cpu-s"}


def stickiness(folder, port):
    """100 000 requests over 8 workers and 4 routers, and ids that name nobody."""
    peer = Peer("rollgate-4", rollgate(folder, port, routers=4, workers=8), port)
    try:
        good = peer.load("connections=64", "requests=100000", "body=64", "workers=8")
        bad = peer.load("connections=64", "requests=80000", "body=64", "workers=8", "ids=bad")
        none = peer.load("connections=64", "requests=80000", "body=2", "workers=8", "ids=none")
    finally:
        peer.stop()
    return {"sticky": {"requests": good["requests"], "misrouted": good["misrouted"], "errors": good["errors"]},
            "malformed": bad["served"], "malformed_errors": bad["errors"],
            "create": none["served"], "create_errors": none["errors"]}


# ---------------------------------------------------------------- the run

def median(rows, key):
    values = [r[key] for r in rows if r.get(key)]
    return statistics.median(values) if values else None


def ratios(ours, theirs):
    """Per round: (least, median, greatest)."""
    got = [a["value"] / b["value"] for a, b in zip(ours, theirs) if a.get("value") and b.get("value")]
    return (min(got), statistics.median(got), max(got)) if got else None


def table(results, names, scenes):
    scenes = [s for s in scenes if s in SCENES]
    if scenes:
        print("\nper CPU second of the peer's processes, median (rate; p50/p99 us)")
        print(f"{'peer':18s}" + "".join(f"{s + ' ' + UNITS[s]:>34s}" for s in scenes))
    for name in names if scenes else []:
        row = f"{name:18s}"
        for scene in scenes:
            rows = results[name].get(scene, [])
            v = [median(rows, k) or 0 for k in ("value", "rate", "p50_us", "p99_us")]
            row += f"{v[0]:>12,.0f} ({v[1]:,.0f}; {v[2]:,.0f}/{v[3]:,.0f})".rjust(34)
        print(row)
    print(f"\n{names[0]} / peer per round: least / median / greatest" if len(names) > 1 and scenes else "")
    for name in names[1:] if scenes else []:
        row = f"{name:18s}"
        for scene in scenes:
            r = ratios(results[names[0]].get(scene, []), results[name].get(scene, []))
            row += f"  {scene} " + ("-" if r is None else "{:.2f}/{:.2f}/{:.2f}".format(*r))
        print(row)
    for name in names:
        for got in results[name].get("waiting", []):
            print(f"{name:18s} in flight (p50/p99 ms, cpu s): " + "  ".join(
                f"{n}: {g['p50_ms']:.0f}/{g['p99_ms']:.0f} {g['cpu_s']:.2f}" for n, g in got.items()))
        for scene in ("slow-5mb", "slow-50mb"):
            for got in results[name].get(scene, []):
                print(f"{name:18s} 64 readers, {scene}: +{got['rss_mb']:.1f} MB in the process, "
                      f"+{got['sockets_mb']:.1f} MB in its sockets, "
                      f"{got['workers_mb']:.1f} MB in the workers' sockets")
    for name in names:
        for scene, rows in results[name].items():
            for got in rows:
                for part in got.values() if scene == "waiting" else [got]:
                    if part.get("errors"):
                        print(f"ERRORS {name} {scene}: {part['errors']}")


def kept_table(took):
    """Of clients that keep a connection for their session, in front of a whole gateway."""
    print("\nkept connections, a small request, medians of CPU: worker + who is before it; what it costs before the worker, to nginx's")
    costs = kept.added(took)
    for how, rounds in took.items():
        worker, before = (statistics.median(x[k] for x in rounds) * 1000 for k in range(2))
        print(f"{how:18s}{worker:8.1f} + {before:5.1f} us; {costs[how] * 1000:6.1f} us, {costs['nginx'] / max(costs[how], 1e-6):.2f}")


def measure(args, folder, results, names):
    peers = [Peer(name, PEERS[name](folder, args.port + i), args.port + i) for i, name in enumerate(names)]
    try:
        for round_ in range(args.rounds):
            for scene in args.scenes:
                if scene in ONCE and round_ > 0:
                    continue
                run = {**SCENES, **ONCE}[scene]
                for peer in peers if round_ % 2 == 0 else peers[::-1]:
                    got = run(peer)
                    results[peer.name].setdefault(scene, []).append(got)
                    print(f"round {round_} {scene:12s} {peer.name:18s} {json.dumps(got)[:150]}",
                          file=sys.stderr, flush=True)
    finally:
        for peer in peers:
            peer.stop()


def peers_here(ap, names):
    """Those of the names whose program is here; the others are told."""
    out = []
    for name in names:
        if name not in PEERS:
            ap.error(f"--peers: {name} is none of {', '.join(PEERS)}")
        program = name.split("-")[0]
        if program in ("rollgate", "relay") or shutil.which(program):
            out.append(name)
        else:
            print(f"not measured: {name} ({program} is not installed)", file=sys.stderr)
    return out


def main():
    global LOAD, STUB
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--peers", default="rollgate,nginx-unix-128k,nginx-unix,nginx-tcp-128k,haproxy-unix")
    ap.add_argument("--scenes", default=",".join([*SCENES, *ONCE, "kept", "sticky"]))
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--port", type=int, default=8610)
    ap.add_argument("--json")
    args = ap.parse_args()
    names = peers_here(ap, args.peers.split(","))
    args.scenes = args.scenes.split(",")
    sticky, keeps = "sticky" in args.scenes, "kept" in args.scenes
    if keeps and not shutil.which("nginx"):
        keeps = False
        print("not measured: kept (nginx is not installed)", file=sys.stderr)
    args.scenes = [s for s in args.scenes if s not in ("sticky", "kept")]
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    LOAD = str(BUILD / "tests/bench/bench_load")
    results = {name: {} for name in names}
    with tempfile.TemporaryDirectory(prefix="rg-bench-") as tmp:
        folder = pathlib.Path(tmp)
        STUB = subprocess.Popen([str(BUILD / "tests/bench/bench_stub"), "8", tmp, str(STUB_PORT)])
        try:
            time.sleep(0.3)
            if args.scenes:
                measure(args, folder, results, names)
            spread = stickiness(folder, args.port + 50) if sticky else None
        finally:
            STUB.terminate()
            STUB.wait()
    kept_rounds = kept.small_requests(max(args.rounds, 5)) if keeps else None
    table(results, names, args.scenes)
    if kept_rounds:
        kept_table(kept_rounds)
    if spread:
        print("stickiness:", json.dumps(spread))
    print(f"load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(
            {"bench": "router", "when": time.strftime("%FT%TZ", time.gmtime()), "load": os.getloadavg(),
             "results": results, "kept": kept_rounds, "stickiness": spread}, indent=1) + "\n")


if __name__ == "__main__":
    main()

#!/usr/bin/python3
"""What an idle connection costs a router.

    scripts/bench idle [--connections 20000]

Opens the connections to one router, sends one request over each, leaves them open and asks for more
over some of them. User memory is what the router process has to itself; kernel memory is the growth
of the slabs, which on one machine holds the clients' ends, too. The descriptor limit is raised as
far as the system allows; without that fewer connections are opened, which is said.
"""
import argparse
import json
import multiprocessing
import os
import pathlib
import resource
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import peers
import router as bench

PORT = 8710
PER_CLIENT = 5000
REQUEST = b"GET /sessions/w%d-%032x/x HTTP/1.1\r\nHost: localhost\r\n\r\n"


def raise_limit():
    """The descriptor limit that could be had."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    for want in (1 << 17, 1 << 16, hard):
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (want, max(want, hard)))
            return want
        except (ValueError, OSError):
            pass
    return hard


def answered(s):
    data = b""
    while b"\r\n\r\n" not in data:
        got = s.recv(4096)
        if not got:
            return False
        data += got
    return data.startswith(b"HTTP/1.1 200 ")


def client(pipe, n):
    """Opens n connections and asks once over each; then asks over every hundredth on demand."""
    sockets, bad = [], 0
    for i in range(n):
        s = socket.create_connection(("127.0.0.1", PORT))
        sockets.append(s)
        s.send(REQUEST % (i % peers.WORKERS, i))
        bad += not answered(s)
    pipe.send(bad)
    while pipe.recv() == "ask":
        bad = 0
        for i, s in enumerate(sockets):
            if i % 100 == 0:
                s.send(REQUEST % (i % peers.WORKERS, i))
                bad += not answered(s)
        pipe.send(bad + sum(closed_now(s) for s in sockets))


def closed_now(s):
    try:
        return s.recv(1, socket.MSG_DONTWAIT | socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False


def private_bytes(pids):
    total = 0
    for pid in pids:
        for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith(("Private_Clean:", "Private_Dirty:")):
                total += int(line.split()[1]) * 1024
    return total


def slab_bytes():
    for line in pathlib.Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("Slab:"):
            return int(line.split()[1]) * 1024
    return 0


def measure(n):
    """Both memories before, with n connections, and after them."""
    folder = tempfile.TemporaryDirectory(prefix="rg-bench-")
    stub = subprocess.Popen([str(peers.BUILD / "tests/bench/bench_stub"), "8", folder.name, str(peers.STUB_PORT)])
    time.sleep(0.3)
    command = [*peers.rollgate(pathlib.Path(folder.name), PORT), "--idle-timeout", "1h"]
    peer = bench.Peer("rollgate", command, PORT)
    clients = []
    try:
        router = bench.family(peer.process.pid)[1:]
        time.sleep(1)
        user, kernel = private_bytes(router), slab_bytes()
        for at in range(0, n, PER_CLIENT):
            ours, theirs = multiprocessing.Pipe()
            p = multiprocessing.Process(target=client, args=(theirs, min(PER_CLIENT, n - at)))
            p.start()
            clients.append((p, ours))
        bad = sum(pipe.recv() for _, pipe in clients)
        time.sleep(2)
        got = {"connections": n, "bad": bad, "user_bytes": (private_bytes(router) - user) / n,
               "kernel_bytes_both_ends": (slab_bytes() - kernel) / n}
        before = peer.cpu_seconds()
        time.sleep(2)
        got["cpu_while_idle"] = (peer.cpu_seconds() - before) / 2
        for _, pipe in clients:
            pipe.send("ask")
        got["bad_later"] = sum(pipe.recv() for _, pipe in clients)
        for p, pipe in clients:
            pipe.send("end")
            p.join()
        time.sleep(1)
        got["user_bytes_left"] = (private_bytes(router) - user) / n
        return got
    finally:
        for p, _ in clients:
            p.kill()
        peer.stop()
        stub.terminate()
        stub.wait()
        folder.cleanup()


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--connections", type=int, default=20000)
    ap.add_argument("--json")
    args = ap.parse_args()
    bench.LOAD = str(peers.BUILD / "tests/bench/bench_load")
    limit = raise_limit()
    n = min(args.connections, limit - 400)
    if n < args.connections:
        print(f"descriptor limit {limit}: {n} connections instead of {args.connections}")
    got = measure(n)
    print(f"{got['connections']} idle connections at one router: {got['bad'] + got['bad_later']} failures, "
          f"{got['cpu_while_idle'] * 100:.1f} % of a core")
    print(f"user memory of the router: {got['user_bytes']:,.0f} bytes each (left behind: {got['user_bytes_left']:,.0f})")
    print(f"kernel memory, both ends of each on this machine: {got['kernel_bytes_both_ends']:,.0f} bytes each")
    print(f"load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(
            {"bench": "idle", "when": time.strftime("%FT%TZ", time.gmtime()), "load": os.getloadavg(), **got}, indent=1) + "\n")


if __name__ == "__main__":
    main()

#!/usr/bin/python3
"""What a fleet costs, and how long its sessions pause: real nodes and a real redis-server on this machine.

    scripts/bench fleet [--scenes turn,latency,forward,lost,drained,emptied,beats,lists] [--base BINARY] [--sessions 1000] [--write]

turn      60 growing turns of 8 sessions, with --fleet and without, and with --base a gateway of an older binary; rounds take turns.
          CPU of worker, router and store for each turn, with 1 and 8 calls at once, and with 64 calls of 64 sessions.
          bare_us: CPU of bench_exchange for as many commands of as many bytes, at the same pace; own_us: the rest
latency   one session at rest, calls of both gateways alternate: p50 and p99 of a turn, and the difference
forward   small requests for sessions of node a, sent to a and to b, one and 8 at once: CPU of the router of b for each
lost      node a has --sessions of 20 turns. Its process tree is killed and its disk removed. Every session makes a call at
          once: time from the kill to the answer, with a lease of 5 s; `burst` is the same without a kill
drained   the same node is drained while 8 sessions talk: the longest time between two answers, and failed calls
emptied   the store loses all of --megabytes: time until the place is whole again
beats     the store's CPU a second for 64 nodes with 4 places each, in percent of a core
lists     the first page of 30,000 sessions of three nodes, from a node

--write puts the figures of these scenes into docs/benchmarks/fleet.md, beside their goals and the machine's load.
CPU is the clock of the process, so other work on the machine does not count. Latencies and times are wall time.
"""
import asyncio
import http.client
import json
import os
import resource
import signal
import statistics
import subprocess
import tempfile
import threading
import time
from pathlib import Path

from scenes_kit import cpu_s, g, note, parser, play
from fleet_kit import AS_ADMIN, Fleet, index_of  # tests/blackbox
from machine import STOLEN_MAX, Stolen
from store_kit import Driver, Server

TEXT = "look at the next file, please; it has what you need. " * 6
TALKERS, BURST_S = 8, 60
PLAYED_NODES, PLAYED_PLACES = 63, 4


folders = []  # removed when the bench ends


def folder():
    folders.append(tempfile.TemporaryDirectory(prefix="rgt-fleet-bench-"))
    return Path(folders[-1].name)


def make_fleet(nodes="a", lease="5s", **settings):
    return Fleet(folder(), nodes, lease=lease, routers=1, **settings)


def spread_ms(values):
    v = sorted(values)
    return {"p50_ms": v[len(v) // 2] * 1000, "p99_ms": v[min(len(v) - 1, len(v) * 99 // 100)] * 1000, "max_ms": v[-1] * 1000}


class Talker:
    """A session on one kept connection, which may be of a different node."""

    def __init__(self, gateway, port=None):
        self.session = gateway.post("/sessions", {}, headers=AS_ADMIN).json()
        self.headers = {"x-api-key": self.session["api_key"], "Content-Type": "application/json"}
        self.path = f"/sessions/{self.session['session_id']}"
        self.messages = []
        self.connect(port or gateway.port)

    def connect(self, port):
        self.c = http.client.HTTPConnection("127.0.0.1", port, timeout=120)

    def body(self, text):
        self.messages.append({"role": "user", "content": text})
        return json.dumps({"model": "m", "messages": self.messages})

    def send(self, body):
        self.c.request("POST", self.path + "/v1/chat/completions", body, self.headers)

    def get(self):
        answer = self.c.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise SystemExit(f"{answer.status}: {text[:300]}")
        self.messages.append(json.loads(text)["choices"][0]["message"])

    def turn(self, text):
        self.send(self.body(text))
        self.get()


# --- a turn ---

WIDTHS = (1, 8, 64)


def grow(gateway, width):
    """60 growing turns of 8 sessions, or of `width` sessions if that is more, `width` calls at a time. Returns the number of turns."""
    talkers = [Talker(gateway) for _ in range(max(8, width))]
    for i in range(60):
        for first in range(0, len(talkers), width):
            asking = talkers[first:first + width]
            bodies = [talker.body(f"{i}: {TEXT}") for talker in asking]
            for talker, body in zip(asking, bodies):
                talker.send(body)
            for talker in asking:
                talker.get()
    return 60 * len(talkers)


def one_round(way, width):
    """Returns CPU us of a turn by process, and turns a second."""
    gateway, pids = way
    before, start = [cpu_s(pid) for pid in pids], time.monotonic()
    n = grow(gateway, width)
    return [(cpu_s(pid) - at) * 1e6 / n for pid, at in zip(pids, before)] + [n / (time.monotonic() - start)]


def count_sent(server):
    """Scripts that the server ran, records that they stored, and bytes that it received."""
    info = server.ask("INFO", "all")
    return [info.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("evalsha", "rpush")] + [info["total_net_input_bytes"]]


def bare_exchange(port, commands, records, size, turns_s):
    """CPU us of a turn for its commands, records and bytes alone, without a gateway, at the same pace."""
    words = [port, int(size / commands), max(1, round(records / commands)), 300, int(1e6 / turns_s / commands)]
    out = subprocess.run([g.BUILD / "tests/bench/bench_exchange", *map(str, words)], check=True, capture_output=True)
    return float(out.stdout) * commands


def turn(args, results):
    with make_fleet("a") as fleet:
        keys = fleet.keys
        ways = {"fleet": fleet["a"], "alone": g.Gateway(workers=1, routers=1, engine="builtin:echo", **keys).start()}
        if args.base:
            ways["base"] = g.Gateway(binary=args.base, workers=1, routers=1, engine="builtin:echo", **keys).start()
        ways = {how: (gate, [gate.child("worker-0"), gate.child("router-0")] + [fleet.server.process.pid] * (how == "fleet"))
                for how, gate in ways.items()}
        for way in ways.values():
            grow(way[0], 1)
        for width in WIDTHS:
            found, bare = {how: [] for how in ways}, []
            for number in range(args.rounds):
                for how in sorted(ways, reverse=number % 2 == 1):
                    host, sent = Stolen(), count_sent(fleet.server)
                    row = one_round(ways[how], width)
                    if how == "fleet":
                        each = [(now - at) / (60 * max(8, width)) for now, at in zip(count_sent(fleet.server), sent)]
                        bare.append([*each, bare_exchange(fleet.server.port, *each, row[-1])])
                    if host.share() > STOLEN_MAX:
                        print("disturbed: the machine's host took its processors", flush=True)
                    found[how].append(row)
            for how, rounds in found.items():
                middle = [statistics.median(row[k] for row in rounds) for k in range(len(rounds[0]))]
                row = {"scene": "turn", "at_once": width, "how": how, "worker_us": middle[0], "router_us": middle[1]}
                if how == "fleet":
                    row["store_us"] = middle[2]
                    row["added_us"] = statistics.median(a[0] - b[0] for a, b in zip(rounds, found["alone"]))
                    for k, name in enumerate(("commands", "records", "bytes", "bare_us")):
                        row[name] = statistics.median(each[k] for each in bare)
                    row["own_us"] = statistics.median(a[0] - b[0] - each[-1] for a, b, each in zip(rounds, found["alone"], bare))
                    row["target"] = 5 if width == max(WIDTHS) else 15
                if how == "alone" and "base" in found:
                    ratios = [sum(a[:2]) / sum(b[:2]) for a, b in zip(rounds, found["base"])]
                    row["ratio_to_base"] = statistics.median(ratios)
                    row["ratios"] = f"{min(ratios):.3f}-{max(ratios):.3f}"
                note({**row, "turns_s": middle[-1]}, results)
        for how, (gate, _) in ways.items():
            if how != "fleet":
                gate.stop()


def latency(args, results):
    with make_fleet("a") as fleet:
        alone = g.Gateway(workers=1, routers=1, engine="builtin:echo", **fleet.keys).start()
        talkers = {"fleet": Talker(fleet["a"]), "alone": Talker(alone)}
        took = {how: [] for how in talkers}
        for number in range(args.calls):
            for how in sorted(talkers, reverse=number % 2 == 1):
                talker = talkers[how]
                talker.messages = talker.messages[:0 if number % 20 == 0 else None]
                body = talker.body(f"{number}: {TEXT}")
                start = time.monotonic()
                talker.c.request("POST", talker.path + "/v1/chat/completions", body, talker.headers)
                talker.get()
                took[how].append(time.monotonic() - start)
                time.sleep(0.005)
        rows = {how: spread_ms(values) for how, values in took.items()}
        for how, row in rows.items():
            note({"scene": "latency", "how": how, **row}, results)
        note({"scene": "latency", "how": "added", **{k: rows["fleet"][k] - rows["alone"][k] for k in ("p50_ms", "p99_ms")},
              "target": "0.3 / 2 ms"}, results)
        alone.stop()


def forward(args, results):
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hello"}]})
    with make_fleet("ab") as fleet:
        pids = [fleet[node].child("router-0") for node in "ab"]
        for node, width in (("a", 1), ("b", 1), ("b", 8)):
            talkers = [Talker(fleet["a"], fleet[node].port) for _ in range(width)]
            before, took = [cpu_s(pid) for pid in pids], []
            for _ in range(args.calls * 4 // width):
                start = time.monotonic()
                for talker in talkers:
                    talker.c.request("POST", talker.path + "/v1/messages/count_tokens", body, talker.headers)
                for talker in talkers:
                    answer = talker.c.getresponse()
                    assert answer.read() and answer.status == 200
                took.append(time.monotonic() - start)
            a, b = ((cpu_s(pid) - at) * 1e6 / (len(took) * width) for pid, at in zip(pids, before))
            note({"scene": "forward", "through": node, "at_once": width, "router_a_us": a, "router_b_us": b, **spread_ms(took),
                  "target": 35}, results)


# --- a node that is lost ---

async def call(port, path, headers, body):
    """One request on a connection of its own. Returns status and body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        lines = [f"POST {path} HTTP/1.1", "Host: x", "Connection: close", f"Content-Length: {len(body)}",
                 *(f"{k}: {v}" for k, v in headers.items())]
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        raw = await reader.read()
    finally:
        writer.close()
    return int(raw.split(b" ", 2)[1]) if raw else 0, raw


async def insist(port, talker, body, retries):
    """Repeats a call until it is answered, as an SDK does. Returns when."""
    end = time.monotonic() + BURST_S
    while time.monotonic() < end:
        try:
            status, text = await call(port, talker.path + "/v1/chat/completions", talker.headers, body)
        except OSError as e:
            status, text = 0, str(e).encode()
        if status == 200:
            return time.monotonic()
        if status not in (0, 502, 503):
            raise SystemExit(f"{status}: {text[:400]}")
        retries.append(status)
        await asyncio.sleep(0.1)
    raise SystemExit(f"no answer in {BURST_S} s: {status} {text[:400]}")


async def burst(port, talkers, retries):
    bodies = [talker.body("go on").encode() for talker in talkers]
    for talker in talkers:
        talker.messages.pop()
    return await asyncio.gather(*(insist(port, talker, body, retries) for talker, body in zip(talkers, bodies)))


def fill(gateway, count, turns=20, text="look at the next file, please. " * 8):
    """Makes sessions of some turns on one connection."""
    talkers = []
    for _ in range(count):
        talkers.append(Talker(gateway))
        talkers[-1].c = talkers[0].c
        for i in range(turns):
            talkers[-1].turn(f"{i}: {text}")
    return talkers


def wait_whole(fleet, indexes):
    for index in indexes:
        g.wait_until(lambda index=index: fleet.entry(f"place:{{{index}}}").get("whole") == "1", 60, "the place is whole")


def fill_first(fleet, count):
    """Fills node a, then starts node b: else every second session would be made there. Returns sessions and their place."""
    talkers = fill(fleet["a"], count)
    fleet.add("b").start()
    fleet.wait_known()
    expect_loss(fleet)
    index = index_of(talkers[0].session["session_id"])
    wait_whole(fleet, [index])
    return talkers, index


def expect_loss(fleet):
    for gateway in fleet:
        gateway.allow("the store", "store answers again", "another node", "not claimed", "place without an owner", "died", "ended on a signal")


def lost(args, results):
    with make_fleet("a") as fleet:
        talkers, index = fill_first(fleet, args.sessions)
        retries, start = [], time.monotonic()
        idle = [at - start for at in asyncio.run(burst(fleet["b"].port, talkers, retries))]
        note({"scene": "lost", "how": "burst", "sessions": len(talkers), **spread_ms(idle), "retries": len(retries)}, results)
        wait_whole(fleet, [index])
        before = cpu_s(fleet["b"].child("router-0"))
        for pid in reversed(fleet["a"].family()):
            os.kill(pid, signal.SIGKILL)
        retries, start = [], time.monotonic()
        took = [at - start for at in asyncio.run(burst(fleet["b"].port, talkers, retries))]
        router = cpu_s(fleet["b"].child("router-0")) - before
        fleet.lose("a")
        note({"scene": "lost", "how": "killed", "sessions": len(talkers), "first_ms": min(took) * 1000, **spread_ms(took),
              "retries": len(retries), "router_b_cpu_ms": router * 1000, "adopter_cpu_ms": adopter_cpu(fleet["b"], index) * 1000,
              "target": "6 / 9 s"}, results)


def adopter_cpu(gateway, index):
    pid = gateway.child(f"worker-{index}")
    return cpu_s(pid) if pid and g.alive(pid) else 0.0


def drained(args, results):
    with make_fleet("a") as fleet:
        talkers, _ = fill_first(fleet, args.sessions)
        gaps, failed = [], []

        async def talk(talker, until):
            longest, last, number = 0, time.monotonic(), 0
            while not until.done():
                body = talker.body(f"again {number}").encode()
                status, raw = await call(fleet["b"].port, talker.path + "/v1/chat/completions", talker.headers, body)
                if status != 200:
                    failed.append((status, raw[:200]))
                    talker.messages.pop()
                else:
                    talker.messages.append(json.loads(raw.split(b"\r\n\r\n", 1)[1])["choices"][0]["message"])
                now = time.monotonic()
                longest, last, number = max(longest, now - last), now, number + 1
                await asyncio.sleep(0.02)
            gaps.append(longest)

        async def talk_during(order):
            until = asyncio.get_running_loop().create_future()
            talks = [asyncio.ensure_future(talk(talker, until)) for talker in talkers[:TALKERS]]
            await asyncio.sleep(0.5)
            start = time.monotonic()
            await asyncio.to_thread(order)
            took = time.monotonic() - start
            await asyncio.sleep(0.5)
            until.set_result(None)
            await asyncio.gather(*talks)
            return took

        def drain():
            assert fleet["a"].post("/fleet/drain", {}, headers=AS_ADMIN).status == 200
            fleet["a"].wait(60)

        asyncio.run(talk_during(lambda: time.sleep(0.5)))
        note({"scene": "drained", "how": "no drain", "talkers": TALKERS, **spread_ms(gaps)}, results)
        gaps.clear()
        took = asyncio.run(talk_during(drain))
        note({"scene": "drained", "how": "drained", "sessions": len(talkers), "talkers": TALKERS, "node_ended_ms": took * 1000,
              **spread_ms(gaps), "failed": len(failed), "target": 200}, results)
        for status, text in failed[:5]:
            print(status, text)


def emptied(args, results):
    with make_fleet("a") as fleet:
        expect_loss(fleet)
        long, talkers = "x" * 4000, []
        while int(fleet.server.ask("INFO", "memory")["used_memory"]) < args.megabytes * 1e6:
            talkers += fill(fleet["a"], 10, turns=10, text=long)
        index = index_of(talkers[0].session["session_id"])
        wait_whole(fleet, [index])
        bytes_before = int(fleet.server.ask("INFO", "memory")["used_memory"])
        worker = fleet["a"].child("worker-0")
        before, start = (cpu_s(worker), cpu_s(fleet.server.process.pid)), time.monotonic()
        fleet.server.ask("FLUSHALL")
        g.wait_until(lambda: fleet.entry(f"place:{{{index}}}").get("whole") == "1", 120, "the place is whole")
        note({"scene": "emptied", "sessions": len(talkers), "mb": bytes_before / 1e6,
              "mb_after": int(fleet.server.ask("INFO", "memory")["used_memory"]) / 1e6, "whole_s": time.monotonic() - start,
              "worker_cpu_s": cpu_s(worker) - before[0], "store_cpu_s": cpu_s(fleet.server.process.pid) - before[1], "target": 3}, results)


# --- many nodes, many sessions ---

def beats(args, results):
    """The store's CPU of one real keeper, among entries and beats of 63 nodes that this bench plays."""
    with Server(folder()) as server, Driver(server.url()) as driver:
        epochs = {}
        for number in range(1, PLAYED_NODES + 1):
            name, first = f"played-{number}", 256 * number
            entry = {"url": "http://127.0.0.1:1", "address": "127.0.0.1:1", "block": number, "instance": "0" * 32, "state": "up",
                     "load": 0, "build": "played", "records": [1, 1], "tokenizer": "played", "edition": 0}
            driver.put(f"node:{name}", json.dumps(entry), 1)
            driver.put(f"block:{number}", name, 1)
            epochs[name] = [[i, driver.claim(i, name, block=number)["epoch"], True] for i in range(first, first + PLAYED_PLACES)]
        stopped = threading.Event()

        def beat():
            while not stopped.is_set():
                start = time.monotonic()
                for name, places in epochs.items():
                    driver.renew(name, *places)
                stopped.wait(max(0, 1 - (time.monotonic() - start)))
        thread = threading.Thread(target=beat)
        thread.start()
        try:
            seconds = args.seconds
            time.sleep(2)

            def cpu_each_second():
                before = cpu_s(server.process.pid)
                time.sleep(seconds)
                return (cpu_s(server.process.pid) - before) / seconds
            without = cpu_each_second()
            with Fleet(folder(), "a", lease="5s", server=Shared(server), workers=PLAYED_PLACES) as fleet:
                fleet["a"].allow("a place without an owner")
                time.sleep(3)
                one = cpu_each_second() - without
        finally:
            stopped.set()
            thread.join()
        note({"scene": "beats", "nodes": PLAYED_NODES + 1, "places": (PLAYED_NODES + 1) * PLAYED_PLACES,
              "renewals_percent": 100 * without, "one_node_percent": 100 * one, "all_percent": 100 * one * (PLAYED_NODES + 1), "target": 1},
             results)


class Shared:
    """A server that a Fleet neither starts nor stops."""

    def __init__(self, server):
        self.server = server

    def __getattr__(self, name):
        return getattr(self.server, name)

    def start(self):
        return self

    def stop(self):
        pass


def lists(args, results):
    with make_fleet("abc") as fleet:
        c = {node: http.client.HTTPConnection("127.0.0.1", fleet[node].port, timeout=120) for node in "abc"}
        for number in range(args.listed):
            at = c["abc"[number % 3]]
            at.request("POST", "/sessions", b"{}", AS_ADMIN)
            answer = at.getresponse()
            assert answer.read() and answer.status == 200, answer.status
        for query in ("", "?limit=100", "?limit=1000"):
            took, size = [], 0
            for _ in range(30):
                start = time.monotonic()
                c["a"].request("GET", f"/sessions{query}", headers=AS_ADMIN)
                answer = c["a"].getresponse()
                size = len(json.loads(answer.read())["sessions"])
                took.append(time.monotonic() - start)
            note({"scene": "lists", "sessions": args.listed, "query": query or "-", "rows": size, **spread_ms(took), "target": 50}, results)


SCENES = {"turn": turn, "latency": latency, "forward": forward, "lost": lost, "drained": drained, "emptied": emptied, "beats": beats,
          "lists": lists}


# --- the page ---

PAGE = g.ROOT / "docs/benchmarks/fleet.md"
BEGIN = "<!-- written by scripts/bench fleet --write -->"
FIGURES = [  # what is measured, its row, and each value with its goal (None: it has no goal)
    ("worker CPU of a turn in a fleet minus without; a bare exchange of as many bytes; the difference; one call at a time, us",
     {"scene": "turn", "at_once": 1, "how": "fleet"}, [("added_us", None), ("bare_us", None), ("own_us", 15)]),
    ("the same, 8 calls at once, us", {"scene": "turn", "at_once": 8, "how": "fleet"},
     [("added_us", None), ("bare_us", None), ("own_us", 15)]),
    ("the same, 64 calls at once, us", {"scene": "turn", "at_once": 64, "how": "fleet"},
     [("added_us", None), ("bare_us", None), ("own_us", 5)]),
    ("store CPU of a turn, one call at a time, us", {"scene": "turn", "at_once": 1, "how": "fleet"}, [("store_us", 80)]),
    ("CPU of a turn without `--fleet`, ratio to the last commit before fleets", {"scene": "turn", "at_once": 1, "how": "alone"},
     [("ratio_to_base", 1.01)]),
    ("turn at rest, added p50 and p99, ms", {"scene": "latency", "how": "added"}, [("p50_ms", 0.3), ("p99_ms", 2)]),
    ("forwarded small request, CPU of the router in between, one at a time, us", {"scene": "forward", "through": "b", "at_once": 1},
     [("router_b_us", 35)]),
    ("the same, 8 at once, us", {"scene": "forward", "through": "b", "at_once": 8}, [("router_b_us", 35)]),
    ("lost node with 1,000 sessions of 20 turns, last answer to next answer, p50 and p99, ms", {"scene": "lost", "how": "killed"},
     [("p50_ms", 6000), ("p99_ms", 9000)]),
    ("drained node with 1,000 sessions, longest time without an answer, ms; failed calls", {"scene": "drained", "how": "drained"},
     [("max_ms", 200), ("failed", 0)]),
    ("emptied store, 250 MB of a node, until whole, s", {"scene": "emptied"}, [("whole_s", 3)]),
    ("beats of 63 nodes with 4 places each, percent of a core of the store", {"scene": "beats"}, [("renewals_percent", 1)]),
    ("first page of 30,000 sessions of three nodes, p50, ms", {"scene": "lists", "query": "-"}, [("p50_ms", 50)]),
]


def write_page(results):
    """Replaces the lines of the scenes that were played."""
    head, _, lines = PAGE.read_text().partition(BEGIN)
    old = {line.split(" | ")[0].removeprefix("| "): line for line in lines.splitlines()}
    lines = ["| figure | measured | goal | met | load |", "|---|---|---|---|---|"]
    for what, asked, values in FIGURES:
        row = next((r for r in results if asked.items() <= r.items() and values[0][0] in r), None)
        if row:
            goals, found = [goal for _, goal in values], [row[key] for key, _ in values]
            met = all(value <= goal for value, goal in zip(found, goals) if goal is not None)
            lines.append(f"| {what} | {'; '.join(f'{v:.4g}' for v in found)} | {'; '.join('-' if goal is None else str(goal) for goal in goals)} "
                         f"| {'yes' if met else 'no'} | {os.getloadavg()[0]:.0f} |")
        elif what in old:
            lines.append(old[what])
    PAGE.write_text(head + BEGIN + "\n\n" + "\n".join(lines) + "\n")


def main():
    p = parser(__doc__, SCENES)
    p.add_argument("--base", help="a binary of an older commit")
    p.add_argument("--rounds", type=int, default=10)
    p.add_argument("--calls", type=int, default=500)
    p.add_argument("--sessions", type=int, default=1000)
    p.add_argument("--megabytes", type=float, default=250)
    p.add_argument("--seconds", type=float, default=10)
    p.add_argument("--listed", type=int, default=30000)
    p.add_argument("--write", action="store_true")
    args = p.parse_args()
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit[1], limit[1]))
    print(f"load {os.getloadavg()[0]:.1f}", flush=True)
    results = play(SCENES, args)
    if args.write:
        write_page(results)
    print(f"load {os.getloadavg()[0]:.1f}", flush=True)


if __name__ == "__main__":
    main()

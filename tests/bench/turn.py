#!/usr/bin/python3
"""What a turn costs the worker, through the real router, with the builtin engine.

    scripts/bench turn [--turns 60] [--scenes long,growing,lent,memory,export] [--perf FILE]

long      turns on a history of 64 k tokens that is extended (byte model; qwen3 where its tokenizer
          is at hand): worker CPU (user + system, all threads) per turn, target 0.5 ms
lent      8 sessions x 60 growing turns, and 8 connections of small requests (a count of tokens), with connections lent to the
          worker, with --lend-after 0, and with nginx in place of the router, all up and taking turns: CPU of the worker and of what
          is before it for each turn and request, target 0.20 ms of both for a turn
growing   20 sessions x 60 turns from an empty history: worker CPU per turn, target 0.25 ms
memory    1,000 sessions x 20 turns of 250 characters: private memory of the worker before and after, and CPU per turn
export    /health and another session's turns while 10,000 trajectories leave as JSON and as
          safetensors, while trajectories of 64 k tokens do, and while a new trajectory of 120 k
          tokens is audited and exported again and again, and while all of 200 growing calls are
          told (?records=1): latency p50 / p99 / max beside the same without an export

audits_per_turn tells how many suffixes were held against the whole chat: 1.0 means that the build is a
debug one, whose figures say nothing.

CPU is the process clock of the worker, so other work on the machine does not count. Latencies are
wall time: on a busy machine read them beside the idle ones.
"""
import http.client
import json
import statistics
import subprocess
import threading
import time

import kept
from idle import private_bytes
from kept import Client, start, stop
from scenes_kit import ROOT, cpu_s, g, note, parser, play

LONG_TOKENS = 65536
N_MAX = 128  # answers of one call


def prose():
    """Text with quotes, line feeds and code in it: this project's own."""
    files = sorted((ROOT / "worker").rglob("*.c")) + [ROOT / "README.md"]
    files = [f for f in files if not f.name.endswith("_data.c")]
    return "".join(f.read_text() for f in files)


PROSE = prose()


def history(chars, each=1000):
    """A conversation of about so many characters."""
    out = []
    for i in range(0, chars, each):
        role = "assistant" if len(out) % 2 else "user"
        out.append({"role": role, "content": PROSE[i % (len(PROSE) - each):][:each]})
    if out and out[-1]["role"] == "user":
        out.pop()
    return out


def models():
    """name -> settings; the byte model needs none."""
    out = {"bytes": {}}
    qwen = g.SHARED / "data/models/qwen3"
    if qwen.exists():
        out["qwen3"] = {"model": str(qwen)}
    else:
        print("qwen3 is left out: no ../shared/data/models/qwen3")
    return out


def warm(gate, tokens=LONG_TOKENS):
    """A session whose history has about so many tokens."""
    chars = tokens
    while True:
        client = Client(gate)
        client.messages = history(chars)
        used = client.turn("Where are we?")["usage"]["prompt_tokens"]
        if used >= tokens * 0.97:
            return client
        chars = int(chars * tokens / used * 1.01)


def audits(gate):
    """Suffixes that were held against the whole chat: one in --audit-every, all of them in a debug build."""
    return sum(v for k, v in gate.metrics().items() if k.startswith("rollgate_suffix_audits_total"))


def long_turns(args, results):
    for name, settings in models().items():
        gate = start(**settings)
        client = warm(gate)
        client.turn("Go on.")
        perf = None
        if args.perf:
            perf = subprocess.Popen(["perf", "record", "-q", "--call-graph=dwarf,4096", "-F", "2500", "-o",
                                     f"{args.perf}.{name}", "-p", str(gate.worker)])
            time.sleep(1)
        audited = audits(gate)
        before, each = cpu_s(gate.worker), []
        for i in range(args.turns):
            at = cpu_s(gate.worker)
            answer = client.turn(f"Step {i}: look at the next file, please.")
            each.append((cpu_s(gate.worker) - at) * 1000)
        total = (cpu_s(gate.worker) - before) * 1000 / args.turns
        if perf:
            perf.send_signal(2)
            perf.wait()
        each.sort()
        note({"scene": "long", "model": name, "turns": args.turns,
              "tokens": answer["usage"]["prompt_tokens"],
              "body_kb": len(json.dumps(client.messages)) // 1024, "cpu_ms_per_turn": total,
              "median": each[len(each) // 2], "audits_per_turn": (audits(gate) - audited) / args.turns,
              "target": 0.5}, results)
        stop(gate)


def growing(args, results):
    for name, settings in models().items():
        gate = start(**settings)
        clients = [Client(gate) for _ in range(20)]
        clients[0].call(messages=[{"role": "user", "content": "hello"}])
        before, last = cpu_s(gate.worker), 0
        for i in range(60):
            for k, client in enumerate(clients):
                at = (i * 20 + k) * 300
                last = client.turn(f"{i}: {PROSE[at:at + 300]}")["usage"]["prompt_tokens"]
        total = (cpu_s(gate.worker) - before) * 1000 / 1200
        note({"scene": "growing", "model": name, "turns": 1200, "tokens": last,
              "cpu_ms_per_turn": total, "target": 0.25}, results)
        stop(gate)


# --- other sessions during an export ---

def watch(gate, until):
    """Latencies in ms of /health and of turns of a small session until until() is true."""
    found = {"health": [], "turn": []}
    stopped = threading.Event()

    def health():
        c = http.client.HTTPConnection("127.0.0.1", gate.port, timeout=60)
        while not stopped.is_set():
            at = time.monotonic()
            c.request("GET", "/health")
            c.getresponse().read()
            found["health"].append((time.monotonic() - at) * 1000)
            time.sleep(0.002)

    def turns():
        client = Client(gate)
        while not stopped.is_set():
            client.messages = [{"role": "user", "content": f"hello {len(found['turn'])}"}]
            at = time.monotonic()
            client.call(max_tokens=8)
            found["turn"].append((time.monotonic() - at) * 1000)
            time.sleep(0.002)

    threads = [threading.Thread(target=health), threading.Thread(target=turns)]
    for t in threads:
        t.start()
    until()
    stopped.set()
    for t in threads:
        t.join()
    return found


def spread(values):
    v = sorted(values)
    return "/".join(f"{x:.1f}" for x in (v[len(v) // 2], v[min(len(v) - 1, len(v) * 99 // 100)], v[-1]))


def many(gate, count=10000):
    """A session of `count` answers to one prompt."""
    client = Client(gate)
    client.messages = history(2000)
    client.messages.append({"role": "user", "content": "Answer as you like."})
    for i in range(0, count, N_MAX):
        client.call(n=min(N_MAX, count - i), max_tokens=64)
    return client


def few(gate, count=8):
    client = warm(gate)
    client.messages.append({"role": "user", "content": "Answer as you like."})
    client.call(n=count, max_tokens=64)
    return client


def huge(gate):
    client = warm(gate, 120000)
    client.messages.append({"role": "user", "content": "Answer as you like."})
    client.call(max_tokens=64)
    return client


def grown(gate, turns=200):
    """A session of so many calls, each of which tells the whole history anew (?records=1)."""
    client = Client(gate)
    for i in range(turns):
        client.turn(PROSE[i * 400:][:400], max_tokens=64)
    return client


def export_scene(gate, client, label, seconds, results, fmt):
    """The newest trajectory alone is new each time where only that one is exported: an audit is
    kept with its checkpoint."""
    newest = label.endswith("120k")
    url = f"{gate.url}/sessions/{client.session['session_id']}/trajectories?format={fmt}"
    url += "&select=last" if newest else ""
    if fmt == "records":
        url = f"{gate.url}/sessions/{client.session['session_id']}?records=1"
    state = {"n": 0, "mb": 0}

    def run():  # one export after the other, for enough samples
        while time.monotonic() < begun + seconds:
            if newest:
                client.call(max_tokens=64)
            out = subprocess.run(["curl", "-s", "-o", "/dev/null", "-w",
                                  "%{http_code} %{size_download}", url],
                                 capture_output=True, text=True, check=True).stdout.split()
            if out[0] != "200":
                raise SystemExit(f"export: {out}")
            state["n"] += 1
            state["mb"] += int(out[1]) / 1e6
        state["s"] = time.monotonic() - begun

    idle = watch(gate, lambda: time.sleep(seconds))
    begun = time.monotonic()
    before = cpu_s(gate.worker)
    found = watch(gate, run)
    note({"scene": "export", "what": label, "format": fmt, "exports": state["n"],
          "seconds": state["s"], "mb": state["mb"],
          "worker_cpu_s": cpu_s(gate.worker) - before, "turns": len(found["turn"]),
          "health_ms": spread(found["health"]), "idle_health_ms": spread(idle["health"]),
          "turn_ms": spread(found["turn"]), "idle_turn_ms": spread(idle["turn"]), "target": 20},
         results)


def export(args, results):
    for name, settings in models().items():
        gate = start("builtin:random:1", **settings)
        for label, make in (("10000", many), ("8 of 64k", few), ("1 of 120k", huge)):
            client = make(gate)
            for fmt in ("json", "safetensors"):
                export_scene(gate, client, f"{name} {label}", args.seconds, results, fmt)
        export_scene(gate, grown(gate), f"{name} 200 calls", args.seconds, results, "records")
        stop(gate)


# --- with a relay and without ---

LENT_ROUNDS = 5


def grow(gate, port):
    """8 sessions x 60 turns; how many."""
    clients = [Client(gate, port) for _ in range(8)]
    for i in range(60):
        for k, client in enumerate(clients):
            at = (i * 8 + k) * 300
            client.turn(f"{i}: {PROSE[at:at + 300]}")
    return 480


def lent(args, results):
    for name, settings in models().items():
        with kept.ways(**settings) as ways:
            for way in ways.values():
                grow(*way[:2])
            for what, play_round in (("turn", grow), ("small", kept.ask_little)):
                for how, rounds in kept.rounds(ways, play_round, LENT_ROUNDS).items():
                    worker, before = (statistics.median(r[k] for r in rounds) for k in range(2))
                    note({"scene": "lent", "model": name, "what": what, "how": how, "worker_ms": worker, "before_it_ms": before,
                          "both_ms": worker + before, "target": 0.2}, results)


# --- memory ---

def memory(args, results):
    for name, settings in models().items():
        gate = start(**settings)
        idle = private_bytes([gate.worker])
        clients = [Client(gate) for _ in range(1000)]
        for client in clients:
            client.c = clients[0].c
        before = cpu_s(gate.worker)
        for i in range(20):
            for k, client in enumerate(clients):
                at = (i * 1000 + k) * 250 % (len(PROSE) - 250)
                client.turn(f"{i}: {PROSE[at:at + 250]}")
        note({"scene": "memory", "model": name, "body_kb": len(json.dumps(clients[0].messages)) / 1000, "idle_mb": idle / 1e6,
              "mb": private_bytes([gate.worker]) / 1e6, "cpu_ms_per_turn": (cpu_s(gate.worker) - before) / 20}, results)
        stop(gate)


SCENES = {"long": long_turns, "growing": growing, "lent": lent, "memory": memory, "export": export}


def main():
    p = parser(__doc__, SCENES)
    p.add_argument("--turns", type=int, default=60)
    p.add_argument("--seconds", type=float, default=3.0, help="of exports, and idle before them")
    p.add_argument("--perf", help="also record the worker's long turns: FILE.MODEL (perf report -i)")
    play(SCENES, p.parse_args())


if __name__ == "__main__":
    main()

#!/usr/bin/python3
"""What the gateway adds to engines: a whole `rollgate serve` (routers, workers) between a stub
SGLang and agents, both in bench_streams.

    scripts/bench engines [--scenes streams,held,parse,pool] [--seconds S] [--niced]

streams   400 sessions, each with a token every 20 ms: time from the engine's write of a token to
          its text at the agent, beside the same without a gateway; the same for a call's request, its
          first token and its end (the last write to the end of the answer, the journal between); CPU
          per token of worker and router, and per turn.
          The engine writes what is due every 0.25 ms (5 tokens), then every 1 ms (20 at once: tokens
          of one burst wait for each other, wake-ups are fewer)
held      2,000 generations at once for 60 s, streamed (a token a second) and not: errors, and
          memory per generation in workers and routers
parse     answers of 5 MB with logprobs: worker CPU per MB, whole turns
pool      the engine pool alone, in one process (bench_engines)

CPU is the processes' clocks. Latencies are wall time: with --niced gateway and bench run before
others (chrt; needs root), for a machine that is busy with other things; its load is noted.
"""
import json
import os
import re
import subprocess
import time

from scenes_kit import cpu_s, g, parser, play


class Bench:
    """bench_streams and a gateway on its stub."""

    def __init__(self, args, tokens, gap_ms, filler=4, tick_us=250, **settings):
        front = ["chrt", "-r", "6"] if args.niced else []
        numbers = [str(n) for n in (tokens, gap_ms, filler, tick_us)]
        self.streams = subprocess.Popen(front + [str(g.BUILD / "tests/bench/bench_streams")] + numbers,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        port = int(self.streams.stdout.readline().split()[1])
        self.tokens = tokens
        settings = {"workers": 1, "routers": 1, "engine_max_inflight": 10000, "max_inflight": 10000, **settings}
        self.gate = g.Gateway(engine=f"sglang:http://127.0.0.1:{port}", **settings)
        self.gate.start()
        g.wait_until(self.serves, 60, "the engine answers")
        pids = self.gate.family()[1:]
        self.pids = {p: self.kind(p) for p in pids}
        for p, kind in self.pids.items() if args.niced else []:
            subprocess.run(["chrt", "-r", "-p", "6" if kind == "router" else "5", str(p)], check=True)

    def serves(self):
        try:
            return self.gate.get("/ready").status == 200
        except OSError:
            return False

    def kind(self, pid):
        found = re.findall(rf"process=(\w+)-\d+ ready_pid={pid}\b", self.gate.log())
        return found[-1] if found else "other"

    def cpu(self, kind):
        return sum(cpu_s(p) for p, k in self.pids.items() if k == kind)

    def memory(self, kind):
        return sum(self.gate.resident(p) for p, k in self.pids.items() if k == kind)

    def sessions(self, n):
        return [self.gate.post("/sessions", {}).json()["session_id"] for _ in range(n)]

    def begin(self, ids, through=True, stream=True):
        self.streams.stdin.write(" ".join([str(self.gate.port if through else 0), "1" if stream else "0"] + ids) + "\n")
        self.streams.stdin.flush()

    def end(self):
        return json.loads(self.streams.stdout.readline())

    def close(self):
        self.streams.stdin.close()
        self.streams.wait(20)
        self.gate.stop()
        self.gate.destroy()


def note(row, results):
    row["load"] = round(os.getloadavg()[0], 1)
    results.append(row)
    print("  ".join(f"{k}={v:.3f}" if isinstance(v, float) else f"{k}={v}" for k, v in row.items()), flush=True)


def streams(args, results):
    tokens = int(args.seconds * 50)
    for workers, tick_us in ((1, 250), (1, 1000), (2, 250), (2, 1000)):
        b = Bench(args, tokens, 20, tick_us=tick_us, workers=workers)
        ids = b.sessions(args.calls)
        b.begin(["-"] * args.calls, through=False)
        direct = b.end()
        before = {k: b.cpu(k) for k in ("worker", "router")}
        b.begin(ids)
        r = b.end()
        note({"scene": "streams", "workers": workers, "engine_writes_every_us": tick_us,
              "sessions": args.calls, "failed": r["failed"] + direct["failed"], "tokens": r["tokens"],
              "tokens_per_s": r["tokens"] / r["seconds"],
              "worker_cpu_us_per_token": (b.cpu("worker") - before["worker"]) * 1e6 / r["tokens"],
              "router_cpu_us_per_token": (b.cpu("router") - before["router"]) * 1e6 / r["tokens"],
              "p50_ms": r["p50_us"] / 1000, "p99_ms": r["p99_us"] / 1000, "max_ms": r["max_us"] / 1000,
              "direct_p50_ms": direct["p50_us"] / 1000, "direct_p99_ms": direct["p99_us"] / 1000,
              "added_p50_ms": (r["p50_us"] - direct["p50_us"]) / 1000, "added_p99_ms": (r["p99_us"] - direct["p99_us"]) / 1000,
              **{f"added_{what}_{q}_ms": (r[f"{what}_{q}_us"] - direct[f"{what}_{q}_us"]) / 1000
                 for what in ("request", "first_token", "end") for q in ("p50", "p99")},
              "worker_cpu_ms_per_turn": (b.cpu("worker") - before["worker"]) * 1e3 / args.calls,
              "target": "added p50 0.3, p99 2, worker CPU 15 us"}, results)
        b.close()


def held(args, results):
    for stream in (True, False):
        b = Bench(args, int(args.hold), 1000, workers=2)
        ids = b.sessions(args.held)
        time.sleep(2)
        before = {k: b.memory(k) for k in ("worker", "router")}
        cpu = b.cpu("worker")
        b.begin(ids, stream=stream)
        most, begun = dict(before), time.monotonic()
        while time.monotonic() < begun + args.hold - 2:
            time.sleep(0.5)
            most = {k: max(v, b.memory(k)) for k, v in most.items()}
        r = b.end()
        each = {k: (most[k] - before[k]) / 1024 / args.held for k in most}
        note({"scene": "held", "stream": stream, "calls": args.held, "failed": r["failed"], "seconds": r["seconds"],
              "worker_kb_per_call": each["worker"], "router_kb_per_call": each["router"], "kb_per_call": sum(each.values()),
              "worker_cpu_s": b.cpu("worker") - cpu, "target": "0 failed, 60 KB"}, results)
        b.close()


def parse(args, results):
    tokens, calls = 125000, 10
    b = Bench(args, tokens, 0, engine_timeout=60, workers=1)
    ids = b.sessions(calls + 1)
    b.begin(ids[:1], stream=False)
    b.end()
    before, memory = b.cpu("worker"), b.memory("worker")
    for i in ids[1:]:
        b.begin([i], stream=False)
        if b.end()["failed"]:
            raise SystemExit("a call failed")
    used = b.cpu("worker") - before
    mb = tokens * 42 / 1e6 * calls
    note({"scene": "parse", "calls": calls, "mb_each": mb / calls, "tokens_each": tokens,
          "worker_cpu_ms_each": used * 1000 / calls,
          "mb_per_cpu_s": mb / used, "worker_growth_mb": (b.memory("worker") - memory) / 1e6}, results)
    b.close()


def pool(args, results):
    out = subprocess.run([str(g.BUILD / "tests/bench/bench_engines")], capture_output=True, text=True, check=True).stdout
    row = {"scene": "pool"}
    for name, value in re.findall(r"([\w ,]+?):? ([\d.]+) (?:us|KB)", out):
        row[name.strip(" ,").replace(" ", "_")] = float(value)
    note(row, results)


SCENES = {"streams": streams, "held": held, "parse": parse, "pool": pool}


def main():
    p = parser(__doc__, SCENES)
    p.add_argument("--calls", type=int, default=400)
    p.add_argument("--seconds", type=float, default=10.0, help="of streams")
    p.add_argument("--held", type=int, default=2000)
    p.add_argument("--hold", type=float, default=60.0)
    p.add_argument("--niced", action="store_true")
    play(SCENES, p.parse_args())


if __name__ == "__main__":
    main()

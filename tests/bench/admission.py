#!/usr/bin/python3
"""--kv-admission against plain choice by load, at 1.0, 1.5 and 2 times the engines' KV caches.

    scripts/bench admission [--factors 1.0,1.5,2.0] [--percents 0,100,130] [--session-tokens 0] [--rounds 3] [--seed N]

Two stub SGLangs (caching_engine.py) with a prefix cache of 24,000 tokens each, which throws out what was used least recently and
computes again what it has thrown out: 0.1 ms a prompt token, one request after the other; 1 ms a sampled token. Agents play
session after session, without a pause: a prompt of about 1,100 tokens of its own, then 10 turns of 50 sampled and 40 new
tokens, which is about 2,000 tokens, with a tool gap of 200 ms (exponential, the same for both sides) between turns; then
finalize. As many agents play at once as make FACTOR times the two caches of their sessions' last sizes.
percent 0: --kv-admission off.
--session-tokens is --kv-session-tokens: 0, what sessions grow to is learned from those that have ended.

turn      time of a turn behind the first, p50 / p99: what an agent that runs waits for
first     p99 of a session's first turn, with the time that it was held for
again     prompt tokens that were in the cache before and were computed again, per 1,000 prompt tokens
wall      time until all sessions had ended: the same work on every row of one factor
"""
import random
import threading
import time

from scenes_kit import g, parser, play

from caching_engine import CachingEngine

CAPACITY, FINAL, TURNS, GAP_S = 24000, 2000, 10, 0.2
END = 257
WORDS = "abcdefghijklmnopqrstuvwxyz "


def text(rng, n):
    return "".join(rng.choices(WORDS, k=n))


class Agent(threading.Thread):
    def __init__(self, gate, seed, rounds):
        super().__init__(daemon=True)
        self.gate, self.rng, self.rounds = gate, random.Random(seed), rounds
        self.turns, self.firsts, self.failed = [], [], []
        self.start()

    def run(self):
        try:
            for _ in range(self.rounds):
                self.play()
        except Exception as e:          # the bench says so
            self.failed.append(repr(e))

    def call(self, sid, messages):
        began = time.monotonic()
        while True:
            a = self.gate.post(f"/sessions/{sid}/v1/chat/completions", {"messages": messages}, timeout=600)
            if a.status != 429:         # its place is kept
                break
        if a.status != 200:
            raise RuntimeError(f"{a.status}: {a.text[:200]}")
        return a.json()["choices"][0]["message"], time.monotonic() - began

    def play(self):
        sid = self.gate.post("/sessions", {}).json()["session_id"]
        messages = [{"role": "user", "content": text(self.rng, 1000)}]
        for turn in range(TURNS):
            answer, took = self.call(sid, messages)
            (self.turns if turn else self.firsts).append(took)
            messages += [answer, {"role": "user", "content": text(self.rng, 30)}]
            time.sleep(self.rng.expovariate(1 / GAP_S))
        self.gate.post(f"/sessions/{sid}/finalize", {})


def quantile(values, q):
    values = sorted(values)
    return values[min(int(len(values) * q), len(values) - 1)] * 1000


def measure(args, factor, percent):
    engines = [CachingEngine(CAPACITY, prefill_s=0.0001, decode_s=0.001).__enter__() for _ in range(2)]
    for e in engines:
        e.otherwise = lambda body: {"ids": [*b"y" * 49, END], "matched": END}
    gate = g.Gateway(workers=2, engine=[e.setting for e in engines], kv_admission=percent,
                     kv_session_tokens=args.session_tokens, engine_health_interval="1s").start()
    g.wait_until(lambda: gate.get("/ready").status == 200, 60, "the engines answer")
    n = int(factor * CAPACITY * len(engines) / FINAL)
    began = time.monotonic()
    agents = [Agent(gate, args.seed + i, args.rounds) for i in range(n)]
    for a in agents:
        a.join()
    wall = time.monotonic() - began
    failed = [f for a in agents for f in a.failed]
    if failed:
        raise SystemExit(f"{len(failed)} agents failed: {failed[0]}")
    prompts = sum(len(r["body"]["input_ids"]) for e in engines for r in e.requests)
    turns, firsts = [t for a in agents for t in a.turns], [t for a in agents for t in a.firsts]
    again = sum(e.recomputed for e in engines)
    row = {"factor": factor, "percent": percent, "agents": n, "sessions": len(firsts), "turn_p50_ms": quantile(turns, 0.5),
           "turn_p99_ms": quantile(turns, 0.99), "first_p99_ms": quantile(firsts, 0.99), "recomputed": again,
           "again_per_1000": 1000 * again / prompts, "wall_s": wall}
    gate.stop()
    gate.destroy()
    for e in engines:
        e.__exit__()
    print(f"{factor:6} {percent or 'off':>8} {n:6} {row['turn_p50_ms']:9.0f} {row['turn_p99_ms']:9.0f} "
          f"{row['first_p99_ms']:10.0f} {again:11} {row['again_per_1000']:6.0f} {wall:7.1f}", flush=True)
    return row


def scene(args, results):
    print(f"{'factor':>6} {'percent':>8} {'agents':>6} {'turn p50':>9} {'turn p99':>9} {'first p99':>10} "
          f"{'recomputed':>11} {'again':>6} {'wall s':>7}")
    for factor in map(float, args.factors.split(",")):
        for percent in map(int, args.percents.split(",")):
            results.append(measure(args, factor, percent))


if __name__ == "__main__":
    p = parser(__doc__, ["admission"])
    p.add_argument("--factors", default="1.0,1.5,2.0")
    p.add_argument("--percents", default="0,100,130")
    p.add_argument("--session-tokens", type=int, default=0)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--seed", type=int, default=1)
    play({"admission": scene}, p.parse_args())

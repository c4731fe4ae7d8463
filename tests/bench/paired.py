#!/usr/bin/python3
"""A turn beside another build's, such as that of the commit against which goals are set, and the goals.

    scripts/bench paired --base build/of/the/other [--rounds 7] [--scenes 8x60,1x200,...] [--write]

8x60       8 sessions of 60 turns of 300 characters, Qwen3, a stub SGLang that answers 100 tokens
1x200      one session of 200 turns of 2,000 characters, bytes as tokens, echo
history    turns on 400 KB: Qwen3 over HTTP, Qwen3 with echo, bytes as tokens over HTTP
small      8 kept connections, sessions of 20 turns of 300 + 100 characters, echo
workers    16 sessions of 30 turns, Qwen3, echo, by 4 clients at once: 2 and 4 workers, to 1 worker of the same build
memory     private memory of a worker: after 1,000 sessions of 20 turns, and for each of 20 sessions of 64 k tokens, both
           after ten more: what a worker makes once (caches of the tokenizer, room for its longest work) is no memory of a session

Both builds are up and take turns. CPU is the process clocks of workers and router, medians of all rounds; the ratio is the
median over pairs of neighbouring rounds. A load far above the number of processors makes caches cold for both.
--write puts the table into docs/benchmarks/turns.md.
"""
import contextlib
import datetime
import os
import pathlib
import statistics
import subprocess
from concurrent import futures

from idle import private_bytes
from kept import Client
from scenes_kit import ROOT, cpu_s, g, note, parser, play
from stub_engines import StubEngine
from turn import PROSE, history, models

ANSWER = [1000 + 37 * i for i in range(99)]
BYTES_ANSWER = [97 + i % 26 for i in range(255)]
PAGE = ROOT / "docs/benchmarks/turns.md"
BEGIN, END = "<!-- turns: written by tests/bench/paired.py -->\n\n", "<!-- end of turns -->\n"


@contextlib.contextmanager
def gateway(build, engine, workers=1, **settings):
    """A gateway, its processes in `pids`. engine: "echo", or the ids that a stub SGLang answers."""
    with contextlib.ExitStack() as stack:
        setting = "builtin:echo"
        if engine != "echo":
            stub = stack.enter_context(StubEngine())
            stub.otherwise = lambda body: {"ids": engine, "finish": "stop", "matched": engine[-1]}
            setting = stub.setting
        gate = g.Gateway(pathlib.Path(build) / "rollgate", workers=workers, routers=1, engine=setting, **settings).start()
        stack.callback(gate.destroy)
        stack.callback(gate.stop)
        gate.pids = [gate.child(f"worker-{i}") for i in range(workers)] + [gate.child("router-0")]
        yield gate


# --- what a round plays on a gateway; each returns its number of turns ---

def grow(sessions, turns, chars, at_once=1, **more):
    def run(clients):
        for i in range(turns):
            for k, client in clients:
                at = (i * 8 + k) * chars % (len(PROSE) - chars)
                client.turn(f"{i}: {PROSE[at:at + chars]}", **more)

    def once(gate):
        clients = list(enumerate(Client(gate) for _ in range(sessions)))
        with futures.ThreadPoolExecutor(at_once) as pool:
            for done in [pool.submit(run, clients[t::at_once]) for t in range(at_once)]:
                done.result()
        for _, client in clients:
            client.c.close()
        return sessions * turns
    return once


def extend(turns=20):
    """Turns on 400 KB, made before the first of them (in a round that does not count)."""
    def once(gate):
        if not hasattr(gate, "client"):
            gate.client = Client(gate)
            gate.client.messages = history(400000)
        for i in range(turns):
            gate.client.turn(f"Step {i}: look at the next file, please.", max_tokens=256)
        return turns
    return once


# scene -> rows: what, the model, the engine, the round, the goal of the ratio
SHAPES = {"8x60": [("8 x 60, Qwen3, HTTP", "qwen3", ANSWER, grow(8, 60, 300), 0.71)],
          "1x200": [("1 x 200, bytes, echo", "bytes", "echo", grow(1, 200, 2000), 0.66)],
          "history": [("400 KB, Qwen3, HTTP", "qwen3", ANSWER, extend(), 0.64),
                      ("400 KB, Qwen3, echo", "qwen3", "echo", extend(), 0.62),
                      ("400 KB, bytes, HTTP", "bytes", BYTES_ANSWER, extend(), 0.56)],
          "small": [("small, bytes, echo", "bytes", "echo", grow(8, 20, 300, max_tokens=100), 0.78)]}


def rounds(gates, once, n):
    """A list for each gateway: ms of CPU a turn, of n rounds, each second time in the other order."""
    took = [[] for _ in gates]
    for gate in gates:
        once(gate)
    for i in range(n):
        for k in sorted(range(len(gates)), reverse=i % 2 == 1):
            begun = [cpu_s(pid) for pid in gates[k].pids]
            turns = once(gates[k])
            took[k].append(sum(cpu_s(pid) - at for pid, at in zip(gates[k].pids, begun)) * 1000 / turns)
    return took


def ratio(a, b):
    return statistics.median(x / y for x, y in zip(a, b))


def told(what, base, now, goal, results, of=None):
    """Appends a row. of: the ratio that the goal is for; None: the goal is for `now`."""
    note({"what": what, "base": base, "now": now, "ratio": of or now / base, "goal": goal,
          "met": "yes" if (of or now) <= goal else "no", "load": os.getloadavg()[0]}, results)


def paired(shape):
    def scene(args, results):
        for what, model, engine, once, goal in SHAPES[shape]:
            settings = {"context_length": 1 << 20, **models()[model]}
            with gateway(args.base, engine, **settings) as base, gateway(g.BUILD, engine, **settings) as now:
                was, is_now = rounds([base, now], once, args.rounds)
            told(f"{what}, ms", statistics.median(was), statistics.median(is_now), goal, results, of=ratio(is_now, was))
    return scene


def workers(args, results):
    found = []
    for build in (args.base, g.BUILD):
        with contextlib.ExitStack() as stack:
            gates = [stack.enter_context(gateway(build, "echo", n, **models()["qwen3"])) for n in (1, 2, 4)]
            one, *others = rounds(gates, grow(16, 30, 300, at_once=4), args.rounds)
        found.append([ratio(more, one) for more in others])
    for k, goal in enumerate((1.05, 1.15)):
        told(f"{2 << k} workers, CPU to 1 worker's", found[0][k], found[1][k], goal, results)


def taken(build, sessions, make, **settings):
    """MB of private memory that sessions add to a worker that has had ten like them."""
    with gateway(build, "echo", **settings) as gate:
        make(gate, 10)
        idle = private_bytes(gate.pids[:1])
        make(gate, sessions)
        return (private_bytes(gate.pids[:1]) - idle) / 1e6


def thousand(gate, sessions):
    clients = [Client(gate) for _ in range(sessions)]
    for i in range(20):
        for k, client in enumerate(clients):
            client.c = clients[0].c
            client.turn(f"{i}: {PROSE[(i * sessions + k) * 250 % (len(PROSE) - 250):][:250]}")


def long_ones(chars):
    def make(gate, sessions):
        for _ in range(sessions):
            client = Client(gate)
            for i in range(40):
                client.turn(PROSE[i * chars:][:chars])
    return make


def memory(args, results):
    for model, chars, goal in (("bytes", 800, 110), ("qwen3", 2900, 75)):
        base, now = (taken(b, 1000, thousand, **models()[model]) for b in (args.base, g.BUILD))
        told(f"1,000 sessions of 20 turns, {model}, MB", base, now, goal, results)
        base, now = (taken(b, 20, long_ones(chars), **models()[model]) / 20 for b in (args.base, g.BUILD))
        told(f"a session of 64 k tokens, 40 turns, {model}, MB", base, now, 0.6, results)


def write(results, rounds_):
    head = ["git", "-C", ROOT, "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(head, capture_output=True, text=True, check=True).stdout.strip()
    lines = ["| what | base | now | ratio | goal | met | load |", "|---|---|---|---|---|---|---|"]
    lines += ["| {what} | {base:.3g} | {now:.3g} | {ratio:.2f} | {goal} | {met} | {load:.0f} |".format(**r) for r in results]
    lines += ["", f"Commit {commit}, {datetime.date.today()}, {os.cpu_count()} processors, medians of {rounds_} rounds."]
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    PAGE.write_text(before + BEGIN + "\n".join(lines) + "\n" + END + rest.split(END)[1], encoding="utf-8")


def main():
    scenes = {**{shape: paired(shape) for shape in SHAPES}, "workers": workers, "memory": memory}
    p = parser(__doc__, scenes)
    p.add_argument("--base", required=True, help="build folder of the other build")
    p.add_argument("--rounds", type=int, default=7)
    p.add_argument("--write", action="store_true")
    args = p.parse_args()
    results = play(scenes, args)
    if args.write:
        write(results, args.rounds)


if __name__ == "__main__":
    main()

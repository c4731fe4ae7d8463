#!/usr/bin/python3
"""Many calls at once on an engine that takes half a second for each, through a whole gateway.

    scripts/bench sweep [--calls 100,200,400,800,2000] [--workers 1,2,4] [--rounds 3]

A row is one gateway of so many workers and so many calls that begin at once, each of a session of its
own, not streamed: p50 and p99 from the agent's request to the end of its answer (the engine's 500 ms
in them), failed calls, and CPU of all the gateway's processes per answer. All settings are the
defaults. Rounds are played one after the other, and the median of each figure is told.
"""
from engines import Bench, note
from scenes_kit import parser, play

TOKENS, GAP_MS = 10, 50     # half a second


def median(values):
    return sorted(values)[len(values) // 2]


def one_round(b, ids):
    cpu = b.cpu("worker") + b.cpu("router")
    b.begin(ids, stream=False)
    r = b.end()
    cpu = b.cpu("worker") + b.cpu("router") - cpu
    return {"failed": r["failed"], "p50_ms": r["whole_p50_us"] / 1000, "p99_ms": r["whole_p99_us"] / 1000,
            "cpu_ms_per_answer": cpu * 1000 / len(ids)}


def sweep(args, results):
    for workers in args.workers.split(","):
        b = Bench(args, TOKENS, GAP_MS, engine_max_inflight=None, max_inflight=None, workers=int(workers))
        for calls in args.calls.split(","):
            ids = b.sessions(int(calls))
            one_round(b, ids)       # connections to the engine are made
            rounds = [one_round(b, ids) for _ in range(args.rounds)]
            row = {k: median([r[k] for r in rounds]) for k in rounds[0]}
            row["failed"] = max(r["failed"] for r in rounds)
            note({"scene": "sweep", "workers": int(workers), "calls": int(calls), **row}, results)
        b.close()


SCENES = {"sweep": sweep}


def main():
    p = parser(__doc__, SCENES)
    p.add_argument("--calls", default="100,200,400,800,2000")
    p.add_argument("--workers", default="1,2,4")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--niced", action="store_true")
    play(SCENES, p.parse_args())


if __name__ == "__main__":
    main()

#!/usr/bin/python3
"""The table of attacks: each of them by four connections on one worker of its own, while another session makes turns.

    RG_BUILD=build/release tests/attack/table.py [--seconds 5] [--only WORDS] [--write]

About seconds + 1 for each attack. --write puts the whole table into docs/benchmarks/attacks.md. Started as root it gives gateway and turns
priority over the attackers, which stand for other machines. Figures are wall time: on a machine that does other work, read them
beside the first line. A virtual machine's processors stop now and then, and what they stand still counts as a thread's own time: the
last line tells for how long they did in a loop that only reads that clock. An attack with a hold of more than 5 ms of a processor is
therefore played again, and so is one during which the machine's host took more than 3 % of the processors (its "stolen" time), four times
at most: of the holds the row has the least, of all else the most, of turns' times that of the plays that the host left alone, if there
are any (the last line counts the rows of which there are none). The status is 1 when a worker died or a turn failed.
"""
import argparse
import contextlib
import multiprocessing
import os
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "blackbox")]

import battle       # noqa: E402
import gateway as g  # noqa: E402
from attacks import ATTACKS, ECHOED, WIDE     # noqa: E402
from machine import STOLEN_MAX                # noqa: E402

PAGE = g.ROOT / "docs/benchmarks/attacks.md"
BEGIN, END = "<!-- attacks: written by tests/attack/table.py -->\n\n", "<!-- end of attacks -->\n"
PRIORITY = 10
GOAL_MS, AGAIN = 5, 4
GAP_SECONDS = 10


def again(m):
    """How often it was played, unless once."""
    return "" if m["tries"] == 1 else f" ({m['tries']})"


def row(m):
    answers = ", ".join(f"{n} x {what}" for what, n in sorted(m["seen"].items(), key=lambda x: -x[1])[:3])
    return (f"| {m['attack']} | {m['p50']:.1f} | {m['p99']:.1f} | {m['max']:.0f} | {m['long_p50']:.0f} | {m['long_p99']:.0f} | "
            f"{len(m['failed'])} of {m['turns'] + m['long_turns']} | "
            f"{m['hold']:.1f} | {m['hold_cpu']:.1f}{again(m)} | {m['memory'] / (1 << 20):.0f} | "
            f"{answers}{'' if m['alive'] else ' THE WORKER DIED'} |")


def largest_gap(seconds):
    """Of a loop that only reads its thread's clock: ms between two readings at most."""
    end, last, most = time.monotonic() + seconds, time.thread_time(), 0
    while time.monotonic() < end:
        now = time.thread_time()
        most, last = max(most, now - last), now
    return most * 1000


def caption(seconds, disturbed):
    """What the figures are of: one line below the table."""
    with multiprocessing.Pool(os.cpu_count()) as pool:
        gaps = pool.map(largest_gap, [GAP_SECONDS] * os.cpu_count())
    words = "Qwen3's" if model() else "a vocabulary of single bytes"
    return (f"Vocabulary: {words}; build `{g.BUILD.name}`, {seconds:g} s each, {os.cpu_count()} processors for gateway "
            f"and attackers. The processors' own gaps, in {GAP_SECONDS} s: {', '.join(f'{gap:.1f}' for gap in gaps)} ms at most. "
            f"Rows of which every play was disturbed by the machine's host: {disturbed}.")


def one(name, seconds, nice):
    with tempfile.TemporaryDirectory() as folder:
        gateway = g.Gateway(**battle.settings(folder, name in ECHOED, **wide(name), **model()))
        try:
            gateway.start()
            return battle.measure(gateway, name, seconds, nice=nice)
        finally:
            gateway.stop()
            gateway.destroy()
            g.release_ports()


def played(name, seconds, nice):
    """Of as many plays as it takes: the holds of the one that held a processor least; what others' turns took at most in those that the
    machine's host left alone; all failures."""
    plays = []
    while not plays or (len(plays) <= AGAIN and (plays[-1]["hold_cpu"] > GOAL_MS or plays[-1]["stolen"] > STOLEN_MAX)):
        plays.append(one(name, seconds, nice))
    calm = [m for m in plays if m["stolen"] <= STOLEN_MAX]
    least = min(plays, key=lambda m: m["hold_cpu"])
    most = {key: max(m[key] for m in calm or plays) for key in ("p50", "p99", "max", "long_p50", "long_p99")}
    summed = {key: sum(m[key] for m in plays) for key in ("turns", "long_turns")}
    return {**least, **most, **summed, "memory": max(m["memory"] for m in plays), "tries": len(plays), "disturbed": not calm,
            "alive": all(m["alive"] for m in plays), "failed": [x for m in plays for x in m["failed"]]}


def wide(name):
    """A context of a million ids, and sessions that hold as many messages, for attacks that need it."""
    return {"context_length": 1 << 20, "max_nodes": 1 << 19} if name in WIDE else {}


def model():
    """A real vocabulary where there is one, else the byte model."""
    qwen = g.SHARED / "data/models/qwen3"
    return {"model": str(qwen)} if qwen.exists() else {}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--seconds", type=float, default=5)
    p.add_argument("--only", default="", help="attacks whose name has this in it")
    p.add_argument("--write", action="store_true")
    args = p.parse_args()
    if args.write and args.only:
        p.error("--write takes the whole table, --only a part of it")
    if not g.BINARY.exists():
        p.error(f"{g.BINARY} is not built (RG_BUILD names another build)")
    nice, began, bad, disturbed = 0, time.monotonic(), 0, 0
    with contextlib.suppress(PermissionError):
        os.nice(-PRIORITY)
        nice = PRIORITY
    lines = ["| attack | p50 ms | p99 ms | max ms | 28 KB: p50 ms | p99 ms | turns failed | longest hold ms | most of a processor ms | worker MiB | "
             "answers to the attackers |",
             "|---|---|---|---|---|---|---|---|---|---|---|"]
    print("\n".join(lines), flush=True)
    for name in [None] + [n for n in ATTACKS if args.only in n]:
        m = played(name, args.seconds, nice)
        lines.append(row(m))
        bad += not m["alive"] or bool(m["failed"])
        disturbed += m["disturbed"]
        print(lines[-1], flush=True)
    lines += ["", caption(args.seconds, disturbed)]
    print("\n".join(lines[-2:]) + f" ({time.monotonic() - began:.0f} s in all)")
    if args.write:
        text = PAGE.read_text(encoding="utf-8")
        before, rest = text.split(BEGIN)
        PAGE.write_text(before + BEGIN + "\n".join(lines) + "\n" + END + rest.split(END)[1], encoding="utf-8")
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/python3
"""Where loops stand that are held: plays attacks as table.py does, and prints the stacks of long turns.

    RG_BUILD=build/release tests/attack/holds.py [--seconds 2] [--only WORDS] [--ms 5] [--most 40]

A line for each stack: how many turns of a loop (a worker's, the router's) took so long there, what the longest one took (of the
clock, of a processor, and page faults by then), the attacks, and the innermost functions. A turn belongs to the stack that most of its
samples have (holds.c takes them). Sampling makes turns longer: compare stacks, and take figures from table.py.
"""
import argparse
import contextlib
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "blackbox")]

import battle       # noqa: E402
import gateway as g  # noqa: E402
import table        # noqa: E402
from attacks import ATTACKS, ECHOED     # noqa: E402

SAMPLER = g.BUILD / "tests/attack/libholds.so"
HEAD = re.compile(r"hold (\d+) (\d+) after (\d+) cpu (\d+) faults (\d+)$")
FRAME = re.compile(r"(\S+)\((\S*)\)$")
OF_LOOP = {"run_tasks", "run_kind", "run_events", "run_timers", "run_turn", "loop_poll", "turn", "server_run", "worker_run", "router_run"}
SHOWN = 7


def play(name, seconds, nice):
    """The gateway's log."""
    with tempfile.TemporaryDirectory() as folder:
        gateway = g.Gateway(**battle.settings(folder, name in ECHOED, **table.wide(name), **table.model()))
        gateway.env["LD_PRELOAD"] = str(SAMPLER)
        gateway.start()
        try:
            battle.measure(gateway, name, seconds, nice=nice)
            return Path(gateway.log_path).read_text(encoding="utf-8", errors="replace")
        finally:
            gateway.stop()
            gateway.destroy()
            g.release_ports()


def samples(log):
    """Of each turn, by its process and its number: (us, cpu_us, faults, [(file, place)])."""
    turns, frames = defaultdict(list), None
    for line in log.splitlines():
        head, frame = HEAD.search(line), FRAME.match(line)
        if head:
            frames = []
            turns[int(head[1]), int(head[2])].append((*map(int, head.groups()[2:]), frames))
        elif frame and frames is not None:
            frames.append((os.path.basename(frame[1]), frame[2]))
    return turns


def names_of(places):
    """Of functions of the program that have no name in its table of symbols."""
    places = sorted(places)
    if not places:
        return {}
    found = subprocess.run(["addr2line", "-f", "-e", g.BINARY, *(hex(int(p, 16) - 1) for p in places)],
                           capture_output=True, text=True, check=True).stdout.split("\n")
    return {p: found[2 * i] for i, p in enumerate(places)}


def stack(frames, names):
    """The innermost functions, without the signal's and the loop's own."""
    words = []
    for file, place in frames[1:]:
        name, _, at = place.partition("+")
        words.append(names.get(at, name) if file == g.BINARY.name and not name else name or file)
    return " < ".join([w for w in words[1:] if w not in OF_LOOP][:SHOWN])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--seconds", type=float, default=2)
    p.add_argument("--only", default="", help="attacks whose name has this in it")
    p.add_argument("--ms", type=float, default=5, help="turns of at least so long")
    p.add_argument("--most", type=int, default=40, help="stacks that are shown")
    args = p.parse_args()
    if not SAMPLER.exists():
        p.error(f"{SAMPLER} is not built (RG_BUILD names another build)")
    nice = 0
    with contextlib.suppress(PermissionError):
        os.nice(-table.PRIORITY)
        nice = table.PRIORITY
    turns = {}
    for name in [None] + [n for n in ATTACKS if args.only in n]:
        for turn, seen in samples(play(name, args.seconds, nice)).items():
            turns[name or "none", turn] = seen
    places = {place[1:] for seen in turns.values() for *_, frames in seen for file, place in frames
              if file == g.BINARY.name and place.startswith("+0x")}
    names, by_stack = names_of(places), defaultdict(list)
    for (attack, _), seen in turns.items():
        longest = max(seen)
        if longest[0] >= 1000 * args.ms:
            common = Counter(stack(frames, names) for *_, frames in seen).most_common(1)[0][0]
            by_stack[common].append((*longest[:3], attack))
    for words, held in sorted(by_stack.items(), key=lambda x: -len(x[1]))[:args.most]:
        us, cpu_us, faults, _ = max(held)
        attacks = ", ".join(sorted({attack for *_, attack in held}))
        print(f"{len(held)} x, {us / 1000:.1f} ms at most, {cpu_us / 1000:.1f} of a processor, {faults} faults; {attacks}\n    {words}")


if __name__ == "__main__":
    main()

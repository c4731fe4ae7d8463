#!/usr/bin/python3
"""What turns without pictures cost the worker where the model could see some: instructions, counted by valgrind's callgrind, so that
nothing else on the machine counts.

    scripts/bench images [--turns 40] [--scenes short,long] [--binary NAME=PATH ...] [--model FOLDER]

short     turns of 300 characters from an empty history
long      turns on a history of 250,000 characters

Each of a model of texts and, with the processor's settings in its folder, of one that sees pictures: the same tokenizer, template
and texts, and an engine that echoes. --binary adds other builds of rollgate, an older one say. --model has the folder of another
tokenizer. What a turn takes is the difference of two runs, one with twice the turns, divided by the turns more; Release builds only.
"""
import http.client
import json
import os
import pathlib
import re
import stat
import sys
import tempfile

from scenes_kit import ROOT, g, parser, play

sys.path.insert(0, str(ROOT / "tests/blackbox"))
import vision_kit as kit  # noqa: E402
from turn import PROSE, history  # noqa: E402

LONG_CHARS = 250_000


def folder(path, sees, tokenizer):
    """A model's folder; the tokenizer's file may be another's."""
    path = kit.model_folder(path, kit.PROCESSOR if sees else None)
    if tokenizer:
        (path / "tokenizer.json").write_bytes((pathlib.Path(tokenizer) / "tokenizer.json").read_bytes())
    return path


def under_valgrind(binary, place):
    """A program that runs it so: a file of counts for each process."""
    path = place / "rollgate"
    path.write_text(f"#!/bin/sh\nexec valgrind -q --tool=callgrind --trace-children=yes --callgrind-out-file={place}/out.%p {binary} \"$@\"\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def instructions(place, pid):
    found = re.search(r"^(?:summary|totals): (\d+)", (place / f"out.{pid}").read_text(), re.M)
    return int(found[1])


def run(binary, sees, scene, turns, tokenizer):
    """The worker's instructions from its start to its end."""
    with tempfile.TemporaryDirectory() as tmp:
        place = pathlib.Path(tmp)
        gate = g.Gateway(under_valgrind(binary, place), workers=1, engine="builtin:echo", model=folder(place / "model", sees, tokenizer))
        gate.start()
        worker = gate.child("worker-0")
        sid = gate.post("/sessions", {}).json()["session_id"]
        messages = history(LONG_CHARS) if scene == "long" else []
        c = http.client.HTTPConnection("127.0.0.1", gate.port, timeout=300)
        for n in range(turns):
            messages.append({"role": "user", "content": f"{n}: {PROSE[n * 300:n * 300 + 300]}"})
            c.request("POST", f"/sessions/{sid}/v1/chat/completions", json.dumps({"messages": messages, "max_tokens": 40}))
            answer = json.loads(c.getresponse().read())
            messages.append({"role": "assistant", "content": answer["choices"][0]["message"]["content"]})
        c.close()
        status = gate.stop(120)
        if status != 0:
            raise SystemExit(f"{binary}: {status}\n{gate.log()[-2000:]}")
        return instructions(place, worker)


def scene_of(scene):
    def measure(args, results):
        for name, binary in args.binaries:
            for sees in (False, True):
                least, most = (run(binary, sees, scene, n, args.model) for n in (args.turns, 2 * args.turns))
                row = {"scene": scene, "binary": name, "sees": sees, "turns": args.turns, "instructions_per_turn": (most - least) // args.turns}
                results.append(row)
                print("  ".join(f"{k}={v}" for k, v in row.items()), flush=True)
    return measure


def main():
    scenes = {"short": scene_of("short"), "long": scene_of("long")}
    p = parser(__doc__, scenes)
    p.add_argument("--turns", type=int, default=40)
    p.add_argument("--binary", action="append", default=[])
    p.add_argument("--model")
    args = p.parse_args()
    args.binaries = [("here", os.path.abspath(g.BINARY))] + [tuple(b.split("=", 1)) for b in args.binary]
    play(scenes, args)


main()

#!/usr/bin/python3
"""Conversations for scripts/profile, whose binary counts the branches that it takes: growing ones in three dialects, streamed and
not, with tools to call, over the built-in engine and a stub SGLang, with bytes as tokens and with a small tokenizer, and as a node
of a fleet where a redis-server is installed. An argument is the number of turns.
"""
import pathlib
import shutil
import sys
import tempfile

import order
from scenes_kit import g
from fleet_kit import Fleet
from stub_engines import StubEngine
import vision_kit

TURNS = int(sys.argv[1]) if len(sys.argv) > 1 else 20


def play(**settings):
    # The sandbox would keep processes from writing what they have counted.
    gate = g.Gateway(workers=1, routers=1, sandbox="off", **settings).start()
    talk(gate)
    gate.destroy()


def talk(gate):
    order.play(gate, TURNS)
    if gate.stop() != 0:
        raise SystemExit(gate.log()[-2000:])


def main():
    with tempfile.TemporaryDirectory() as folder, StubEngine("sglang") as stub:
        model = vision_kit.model_folder(pathlib.Path(folder) / "model", processor=None)
        for more in ({}, {"model": str(model)}):
            for engine in ("builtin:echo", f"sglang:{stub.url}"):
                play(engine=engine, **more)
        if shutil.which("redis-server"):
            with Fleet(pathlib.Path(folder), "a", workers=1, routers=1, sandbox="off") as fleet:
                talk(fleet["a"])


if __name__ == "__main__":
    main()

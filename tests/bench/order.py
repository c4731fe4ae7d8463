#!/usr/bin/python3
"""Which functions a turn goes through, for the linker to lay beside each other (scripts/hot_functions.txt).

    scripts/bench order [--turns 20]

Plays growing conversations, streamed and not, in three dialects, with tools to call, over the built-in engine and over
a stub SGLang, once with few turns and once with more, under valgrind's callgrind, which has to be installed. What more turns
cost is what counts: beginning and end of a process are the same in both. Writes the worker's functions (a router may write no
files), the dearest first. The release build reads the list when it is configured (CMakeLists.txt). A name that is no longer
there does no harm, and a function that is not in the list lies where it lay: it is made anew when the paths of a turn have
changed much.
"""
import argparse
import http.client
import json
import pathlib
import re
import shutil
import sys
import tempfile

from scenes_kit import ROOT, g
from fleet_kit import AS_ADMIN
from stub_engines import StubEngine
from turn import PROSE, models

LIST = ROOT / "scripts/hot_functions.txt"
TOOL = {"type": "object", "properties": {"path": {"type": "string"}}}
TOOLS = {"chat/completions": [{"type": "function", "function": {"name": "ls", "parameters": TOOL}}],
         "messages": [{"name": "ls", "input_schema": TOOL}],
         "responses": [{"type": "function", "name": "ls", "parameters": TOOL}]}


class Agent:
    """A session in one dialect on a kept connection; each answer is sent back as it came."""

    def __init__(self, gate, dialect, **more):
        session = gate.post("/sessions", {}, headers=AS_ADMIN).json()
        self.headers = {"Content-Type": "application/json", "x-api-key": session.get("api_key") or "none"}
        self.path = f"/sessions/{session['session_id']}/v1/{dialect}"
        self.c = http.client.HTTPConnection("127.0.0.1", gate.port, timeout=600)
        self.more, self.history = {"tools": TOOLS[dialect], "max_tokens": 400, **more}, []
        self.list = "input" if dialect == "responses" else "messages"
        if dialect == "responses":
            self.more["max_output_tokens"] = self.more.pop("max_tokens")

    def turn(self, text):
        self.history.append({"role": "user", "content": text})
        body = json.dumps({"model": "m", self.list: self.history, **self.more})
        self.c.request("POST", self.path, body, self.headers)
        answer = self.c.getresponse()
        told = answer.read()
        if answer.status != 200:
            raise SystemExit(f"{answer.status}: {told[:300]}")
        self.history.append({"role": "assistant", "content": text if self.more.get("stream") else said(json.loads(told))})


def said(answer):
    if "choices" in answer:
        return answer["choices"][0]["message"]["content"] or ""
    return "".join(p.get("text", "") for p in answer.get("content") or answer["output"][-1]["content"])


def play(gate, turns):
    agents = [Agent(gate, d, **m) for d in TOOLS for m in ({}, {"stream": True})]
    for i in range(turns):
        for k, agent in enumerate(agents):
            agent.turn(f"{i}: {PROSE[(i * 8 + k) * 300:][:300]}")


def under(place):
    path = place / "rollgate"
    path.write_text(f"#!/bin/sh\nexec valgrind -q --tool=callgrind --trace-children=yes --callgrind-out-file={place}/out.%p "
                    f"{g.BUILD}/rollgate \"$@\"\n")
    path.chmod(0o755)
    return path


def costs(path, into):
    """Adds a profile's own instructions of the program's functions to `into`: name -> instructions."""
    names, function, called = {"fn": {}, "ob": {}}, None, False
    program = False
    for line in path.read_text().splitlines():
        m = re.match(r"(c?)(fn|ob)=\((\d+)\)(?: (.*))?", line)
        if m:
            if m[4]:
                names[m[2]][m[3]] = m[4]
            name = names[m[2]][m[3]]
            if m[1] == "" and m[2] == "ob":
                program = name.endswith("/rollgate")
            elif m[1] == "":
                function = name.split("'")[0].split(".")[0]
        elif line.startswith("calls="):
            called = True
        elif called:
            called = False  # what the callee took
        elif program and function and re.match(r"[+*\d-]", line):
            into[function] = into.get(function, 0) + int(line.split()[1])


def run(turns, **settings):
    """name -> instructions, of a gateway's whole life with so many turns of each agent."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        gate = g.Gateway(under(place), workers=1, routers=1, **settings).start()
        pid = gate.child("worker-0")
        play(gate, turns)
        gate.stop(300)
        gate.destroy()
        costs(place / f"out.{pid}", found)
    return found


def measure(turns, into, **settings):
    """What more turns cost: beginning and end of a process are the same in both."""
    few, many = run(2, **settings), run(2 + turns, **settings)
    for name, n in many.items():
        if n - few.get(name, 0) > turns:
            into[name] = into.get(name, 0) + n - few.get(name, 0)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--json", help=argparse.SUPPRESS)
    p.add_argument("--turns", type=int, default=20)
    turns = p.parse_args().turns
    if not shutil.which("valgrind"):
        sys.exit("valgrind is missing: apt install valgrind")
    found = {}
    for model in models().values():
        measure(turns, found, engine="builtin:echo", **model)
    with StubEngine("sglang") as stub:
        measure(turns, found, engine=f"sglang:{stub.url}")
    LIST.write_text("".join(f"{name}\n" for name in sorted(found, key=lambda n: (-found[n], n))))
    print(f"{len(found)} functions: {LIST.relative_to(ROOT)}")


if __name__ == "__main__":
    main()

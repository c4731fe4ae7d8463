#!/usr/bin/python3
"""Every bench, one after the other, and their tables into docs/benchmarks/last-run.md.

    scripts/bench all [--quick] [--only NAME,NAME] [--no-write]

--quick takes about ten minutes: fewer rounds, shorter scenes, smaller counts; what it leaves out of a bench is
seen by the command told with each table. Without it every bench runs as it does alone (about an hour and a half).
docs/benchmarks/last-run.md is written between its two marks, with the commit, the processor, and the machine's load
before and after each bench: a figure without its load says nothing.
A bench that fails is told there, and the exit status is 1. Benches whose tools are missing (nginx, Chromium) fail.
"""
import argparse
import datetime
import os
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/benchmarks/last-run.md"
BEGIN, END = "<!-- scripts/bench all: from here -->", "<!-- scripts/bench all: to here -->"
TEMPLATE = "tests/data/parsers/templates/minimax_m2.jinja"

# (bench, its arguments when quick, its arguments else)
BENCHES = [
    ("router", "--rounds 1 --peers rollgate,nginx-unix-128k --scenes small,new,down,up,sse,kept", ""),
    ("turn", "--turns 40 --seconds 1", ""),
    ("tokens", "--only qwen3,mistral-v3", ""),
    ("sessions", "--trajectories 500", ""),
    ("engines", "--scenes streams,parse,pool --seconds 5", ""),
    ("sweep", "--calls 100,400,2000 --workers 1,2 --rounds 1", ""),
    ("journal", "--rounds 1 --sessions 1000", ""),
    ("rollouts", "--rollouts 1000 --runs 1000 --waiting 20000", ""),
    ("viewer", "--sessions 5000 --tokens 50000 --pairs 6", ""),
    ("idle", "--connections 5000", ""),
    ("json", "", ""),
    ("parsers", "", ""),
    ("suffix", "", ""),
    ("template", f"{TEMPLATE} 200 500", f"{TEMPLATE} 200 500"),
]


def processor():
    names = re.findall(r"model name\s*:\s*(.*)", pathlib.Path("/proc/cpuinfo").read_text())
    return f"{len(names) or os.cpu_count()} x {names[0] if names else os.uname().machine}"


def commit():
    def git(*args):
        return subprocess.run(["git", "-C", ROOT, *args], capture_output=True, text=True, check=False).stdout.strip()
    return (git("rev-parse", "--short", "HEAD") or "unknown") + (" with changes" if git("status", "--porcelain") else "")


def load():
    return f"{os.getloadavg()[0]:.1f}"


def run(name, args):
    """Plays one bench: its lines, how it ended, and what the machine did meanwhile."""
    before, start = load(), time.monotonic()
    told = subprocess.run([ROOT / "scripts/bench", name, *args.split()], capture_output=True, text=True, check=False)
    lines = [line.rstrip() for line in told.stdout.splitlines() if line.strip()]
    if told.returncode:
        lines += told.stderr.splitlines()[-5:]
    print("\n".join(lines), flush=True)
    return {"command": f"scripts/bench {name} {args}".strip(), "lines": lines, "failed": told.returncode != 0,
            "seconds": time.monotonic() - start, "load": f"{before} to {load()}"}


def section(runs, quick):
    """The text between the marks."""
    when = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")
    out = [f"`scripts/bench all{' --quick' if quick else ''}` on {when}: commit {commit()}, {processor()}, kernel "
           f"{os.uname().release}.", ""]
    for r in runs:
        out += [f"`{r['command']}`{' **failed**' if r['failed'] else ''} ({r['seconds']:.0f} s, load {r['load']}):", "", "```",
                *r["lines"], "```", ""]
    return "\n".join(out)


def write(text):
    page = PAGE.read_text(encoding="utf-8")
    head, rest = page.split(BEGIN)
    tail = rest.split(END)[1]
    PAGE.write_text(head + BEGIN + "\n" + text + END + tail, encoding="utf-8")


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    ap.add_argument("--quick", action="store_true")
    ap.add_argument("--only", help="these benches alone; the page is left as it is")
    ap.add_argument("--no-write", action="store_true", help="leave docs/benchmarks/last-run.md as it is")
    ap.add_argument("--json", help=argparse.SUPPRESS)  # scripts/bench gives it to every bench; the parts write their own
    args = ap.parse_args()
    names = [b[0] for b in BENCHES]
    only = args.only.split(",") if args.only else names
    unknown = [n for n in only if n not in names]
    if unknown:
        ap.error(f"--only: unknown: {', '.join(unknown)}; known: {', '.join(names)}")
    runs = []
    for name, quick, whole in BENCHES:
        if name in only:
            print(f"== {name}", flush=True)
            runs.append(run(name, quick if args.quick else whole))
    if not args.only and not args.no_write:
        write(section(runs, args.quick))
    failed = [r["command"] for r in runs if r["failed"]]
    print(f"{len(runs)} benches in {sum(r['seconds'] for r in runs):.0f} s; failed: {', '.join(failed) or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

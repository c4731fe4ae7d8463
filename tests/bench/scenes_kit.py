"""What benches of a whole gateway share: the gateway of the black-box tests, on the Release build; a
process's CPU clock; scenes that are chosen by name and leave their results as JSON."""
import argparse
import json
import os
import pathlib
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
os.environ.setdefault("RG_BUILD", "build/release")
sys.path.insert(0, str(ROOT / "tests/blackbox"))
import gateway as g  # noqa: E402


def cpu_s(pid):
    """User + system seconds of all threads of a process (its CPU clock)."""
    return time.clock_gettime((~pid << 3) | 2)


def parser(doc, scenes):
    p = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--json")
    p.add_argument("--scenes", default=",".join(scenes))
    return p


def play(scenes, args):
    """scenes: name -> function(args, results), which appends to results. Returns them."""
    results = []
    try:
        for name in args.scenes.split(","):
            scenes[name](args, results)
    finally:
        for gate in g.Gateway.everybody:
            gate.destroy()
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(results, indent=1) + "\n")
    return results


def note(row, results):
    results.append(row)
    print("  ".join(f"{k}={v:.3f}" if isinstance(v, float) else f"{k}={v}" for k, v in row.items()),
          flush=True)

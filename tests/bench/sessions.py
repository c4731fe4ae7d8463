#!/usr/bin/python3
"""What remembering, matching, committing and exporting cost (bench_sessions.c, CPU time), and beside
it what a Python trainer side needs to write the same object.

    scripts/bench sessions [--trajectories 2000]

The peers get the very session that bench_sessions exports in the same run: json.dumps and
msgpack.packb of the parsed native export, its lists as lists, and as arrays already packed.
"""
import argparse
import array
import json
import os
import pathlib
import re
import subprocess
import tempfile
import time

import msgpack

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = ROOT / os.environ.get("RG_BUILD", "build/release") / "tests/bench/bench_sessions"


def run(*args):
    text = subprocess.run([PROGRAM, *args], capture_output=True, text=True, check=True).stdout
    print(text, end="", flush=True)
    return text


def rows(text):
    """format -> (MB, CPU ms) of the last table of exports."""
    found = re.findall(r"^(\S+) +([\d.]+) +\d+ +([\d.]+) +\d+ +[\d.]+$", text, re.M)
    return {name: (float(mb), float(ms)) for name, mb, ms in found}


def cpu_ms(write, repeat=3):
    best, size = float("inf"), 0
    for _ in range(repeat):
        at = time.process_time()
        size = len(write())
        best = min(best, (time.process_time() - at) * 1000)
    return size / 1e6, best


def packed(whole):
    """The same with its arrays as bytes, as a writer that knows them would have them."""
    kinds = {"prompt_ids": "i", "response_ids": "i", "response_mask": "B", "response_logprobs": "f"}
    out = dict(whole, trajectories=[])
    for t in whole["trajectories"]:
        out["trajectories"].append({k: array.array(kinds[k], v).tobytes() if k in kinds else v for k, v in t.items()})
    return out


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--json")
    p.add_argument("--trajectories", type=int, default=2000, help="of the session the peers write")
    p.add_argument("--exports-only", action="store_true")
    args = p.parse_args()
    if not args.exports_only:
        run()
    with tempfile.TemporaryDirectory() as tmp:
        dump = pathlib.Path(tmp) / "export.json"
        ours = rows(run("exports", str(args.trajectories), str(dump)))
        whole = json.loads(dump.read_bytes())
    flat = packed(whole)
    peers = {
        "json": {"json.dumps": lambda: json.dumps(whole, separators=(",", ":"))},
        "msgpack": {"msgpack.packb": lambda: msgpack.packb(whole), "the same, arrays already bytes": lambda: msgpack.packb(flat),
                    "the same, arrays made bytes": lambda: msgpack.packb(packed(whole))},
    }
    results = []
    print(f"\n{'peer':<34} {'MB':>8} {'MB/s':>8} {'CPU ms':>9} {'ours, ms':>9} {'times':>6}")
    for form, writers in peers.items():
        for name, write in writers.items():
            mb, ms = cpu_ms(write)
            mine = ours[form][1]
            print(f"{name:<34} {mb:8.1f} {mb / ms * 1000:8.0f} {ms:9.1f} {mine:9.1f} {ms / mine:6.1f}", flush=True)
            results.append({"peer": name, "mb": mb, "cpu_ms": ms, "ours_mb": ours[form][0], "ours_cpu_ms": mine, "times": ms / mine})
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps({"ours": ours, "peers": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()

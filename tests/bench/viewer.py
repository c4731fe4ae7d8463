#!/usr/bin/python3
"""How the viewer paints very much: the list of 100,000 sessions, and a branch of 200,000 tokens.

    scripts/bench viewer [--sessions 100000] [--tokens 200000]

A headless Chromium scrolls through each for 240 frames; told are the pauses between frames (60 a second are
16.7 ms). Without a graphics card the browser paints on the CPU, which the machine's other work slows down. Needs
chromium and node (scripts/setup).
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "blackbox"))
import gateway as g

VIEWER = g.ROOT / "tests/viewer"
AT_ONCE = 1000


def play(scene, told):
    done = subprocess.run(["node", str(VIEWER / "frames.mjs"), scene, json.dumps(told)], capture_output=True, text=True, timeout=600)
    report = json.loads(done.stdout.splitlines()[-1]) if done.stdout.strip() else {"ok": False, "failed": [done.stderr[-2000:]]}
    if not report.pop("ok"):
        sys.exit("\n".join(report["failed"]))
    del report["failed"]
    return report


def many(n):
    """The list of n sessions."""
    gateway = g.Gateway(engine="builtin:echo", workers=2, max_sessions=2 * n).start()
    try:
        rounds = (n + AT_ONCE - 1) // AT_ONCE
        for i in range(rounds):
            got = gateway.post("/sessions", {"count": AT_ONCE, "labels": {"batch": i}}, timeout=120).json()
        return play("many", {"url": gateway.url, "n": rounds * AT_ONCE, "search": got["sessions"][-1]["session_id"][-20:]})
    finally:
        gateway.stop()


def long(n):
    """A branch of n tokens and some: the built-in model has a token for every byte."""
    gateway = g.Gateway(engine="builtin:echo", workers=1, context_length=4 * n).start()
    try:
        session = gateway.post("/sessions", {}).json()
        text = " ".join(f"word{i} = {i * i}" for i in range(n // 8))[:n]
        answer = gateway.chat(session, text, max_tokens=100, timeout=120)
        assert answer.status == 200, answer.text
        got = gateway.get(f"/sessions/{session['session_id']}/trajectories", timeout=120).json()["trajectories"][0]
        return play("long", {"url": gateway.url, "a": session["session_id"], "n": len(got["prompt_ids"]) + len(got["response_ids"])})
    finally:
        gateway.stop()


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--sessions", type=int, default=100000)
    ap.add_argument("--tokens", type=int, default=200000)
    ap.add_argument("--json")
    args = ap.parse_args()
    if not (VIEWER / "node_modules/puppeteer-core").exists():
        subprocess.run(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"], cwd=VIEWER, check=True, timeout=600)
    got = {"sessions": {"n": args.sessions, **many(args.sessions)}, "tokens": {"n": args.tokens, **long(args.tokens)}}
    for what, report in got.items():
        frames = report["scroll"]
        print(f"{report['n']:,} {what}: a frame every {frames['median_ms']} ms (95 %: {frames['p95_ms']}, worst: {frames['worst_ms']}), "
              f"{report['elements']} elements, there after {report.get('listed_ms', report.get('drawn_ms'))} ms")
    print(f"a search typed into the list: {got['sessions']['search_ms']} ms")
    print(f"load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(
            {"bench": "viewer", "when": time.strftime("%FT%TZ", time.gmtime()), "load": os.getloadavg(), **got}, indent=1) + "\n")


if __name__ == "__main__":
    main()

#!/usr/bin/python3
"""The peers' own suites over a built rollgate: their transport is ported, their assertions are untouched, their sources are no part of
this repository.

    RG_PEER_SOURCES=DIR tests/peers/run.py [uni-agent|miles ...]

DIR has the sources as uni-agent/ and miles/. Without it, a clone of the pinned commit is tried (build/peers). Each failure must be in
NAME.expected with its reason, and each test there must fail. Suites whose sources cannot be had are named, and do not fail the run."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
GATEWAY, ROUTER = "tests/uni_agent/gateway", "tests/fast/router"
PEERS = {
    "uni-agent": ("https://github.com/verl-project/uni-agent", "6f4a7c974b71cac30019c1209bf4c6ca54f8613a", "uni_agent_port",
                  [f"{GATEWAY}/test_gateway_actor_on_cpu.py", f"{GATEWAY}/test_session_multiple_chains_on_cpu.py"]),
    "miles": ("https://github.com/radixark/miles", "31f1ca961a94cb860cec3b2dea34ec332bfa8f76", "miles_port",
              [f"{ROUTER}/test_sessions.py", f"{ROUTER}/test_sessions_v1_pins.py", f"{ROUTER}/test_session_race_conditions.py",
               f"{ROUTER}/test_sessions_v2.py"]),
}


def clone(name, url, commit):
    """The folder of a clone; None: it cannot be reached."""
    folder = ROOT / "build/peers" / name
    if (folder / ".git").exists() and head_of(folder) == commit:
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    for command in (["init", "-q"], ["fetch", "-q", "--depth=1", url, commit], ["checkout", "-q", "FETCH_HEAD"]):
        done = subprocess.run(["git", *command], cwd=folder, env={**os.environ, "GIT_TERMINAL_PROMPT": "0"}, capture_output=True,
                              text=True, timeout=300, check=False)
        if done.returncode:
            return None
    return folder


def head_of(folder):
    """Its commit; empty: it is no repository, or git is not installed."""
    if not shutil.which("git"):
        return ""
    done = subprocess.run(["git", "-C", folder, "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def sources_of(name):
    url, commit, _, files = PEERS[name]
    given = os.environ.get("RG_PEER_SOURCES")
    folder = Path(given, name) if given else clone(name, url, commit)
    return folder.resolve() if folder and all((folder / f).exists() for f in files) else None


def play(name, folder):
    """Test -> passed, failed or skipped."""
    _, _, port, files = PEERS[name]
    with tempfile.TemporaryDirectory(prefix="rgp") as out:
        report = Path(out, "report.xml")
        env = {**os.environ, "PYTHONPATH": f"{folder}:{HERE}", "PYTHONDONTWRITEBYTECODE": "1", "RG_BUILD": os.environ.get("RG_BUILD", "build/dev")}
        done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-c", HERE / "empty.ini", f"--rootdir={folder}", "-p", "no:cacheprovider",
                               "--noconftest", "-p", "stand_ins", "-p", port, "--timeout", "60", f"--junitxml={report}", *files],
                              cwd=folder, env=env, capture_output=True, text=True, check=False)
        if not report.exists():
            print(done.stdout[-4000:], done.stderr[-4000:])
            raise SystemExit(f"{name}: pytest ended with {done.returncode}")
        got = {}
        for case in xml.etree.ElementTree.parse(report).iter("testcase"):
            kinds = {child.tag for child in case}
            test = f"{re.sub(r'^.*?(?=test_)', '', case.get('classname'))}::{case.get('name')}"
            got[test] = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
        return got


def expected_of(name):
    """Test -> why it fails."""
    lines = (HERE / f"{name}.expected").read_text(encoding="utf-8").splitlines()
    return dict(line.split(" | ") for line in lines if line and not line.startswith("#"))


def compare(name, got):
    """The faults, in lines."""
    expected = expected_of(name)
    faults = [f"{test}: fails, and is not named" for test, how in got.items() if how == "failed" and test not in expected]
    faults += [f"{test}: passes now: take it out of {name}.expected" for test in expected if got.get(test) == "passed"]
    faults += [f"{test}: is not there any more" for test in expected if test not in got]
    return faults


def main():
    passed, faults, missing = 0, [], []
    for name in sys.argv[1:] or PEERS:
        folder = sources_of(name)
        if not folder:
            missing.append(name)
            continue
        got = play(name, folder)
        counts = {how: sum(g == how for g in got.values()) for how in ("passed", "failed", "skipped")}
        own = compare(name, got)
        print(f"{name} ({(head_of(folder) or PEERS[name][1])[:7]}): {counts['passed']} passed of {len(got)}, {counts['failed']} fail by design, "
              f"{counts['skipped']} cannot run here" if not own else f"{name}: {len(own)} differ from {name}.expected")
        for test, how in got.items():
            if how == "skipped":
                print(f"  could not run: {test}")
        passed += counts["passed"] + counts["failed"] - sum(": fails, and" in f for f in own)
        faults += [f"{name}: {f}" for f in own]
    for name in missing:
        print(f"{name}: not reached, 0 passed: no sources in RG_PEER_SOURCES ({os.environ.get('RG_PEER_SOURCES', 'not set')}), and no clone of {PEERS[name][1][:7]}")
    for fault in faults:
        print(fault)
    print(f"{passed} passed, {len(faults)} failed")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

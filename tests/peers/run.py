#!/usr/bin/python3
"""The peers' own suites over a built rollgate: their transport is ported, their assertions are untouched, their sources are no part of
this repository.

    RG_PEER_SOURCES=DIR tests/peers/run.py [uni-agent|miles ...]

DIR has the sources as uni-agent/ and miles/, or git repositories as tests/trainers/sources.py looks for them. Without DIR, a clone
from GitHub is tried. The pinned commits of repositories are laid in build/peers. Each failure must be in
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
sys.path.append(str(HERE.parent / "trainers"))

import sources  # noqa: E402

GATEWAY, ROUTER = "tests/uni_agent/gateway", "tests/fast/router"
PEERS = {
    "uni-agent": ("uni_agent_port", [f"{GATEWAY}/test_gateway_actor_on_cpu.py", f"{GATEWAY}/test_session_multiple_chains_on_cpu.py"]),
    "miles": ("miles_port", [f"{ROUTER}/test_sessions.py", f"{ROUTER}/test_sessions_v1_pins.py",
                             f"{ROUTER}/test_session_race_conditions.py", f"{ROUTER}/test_sessions_v2.py"]),
}


def sources_of(name):
    """Returns its folder and commit, or None and why it cannot be reached."""
    repository, commit, _ = sources.TRAINERS[name]
    given = os.environ.get("RG_PEER_SOURCES")
    folder = Path(given, name) if given else None
    if not folder or not all((folder / f).exists() for f in PEERS[name][1]):
        folder = ROOT / "build/peers" / name
        reached, why = sources.reach(repository, commit, folder, given)
        if not reached:
            return None, why
    return folder.resolve(), commit_of(folder)


def commit_of(folder):
    """The commit that was laid, or that git has checked out."""
    if (folder / ".commit").is_file():
        return (folder / ".commit").read_text()
    if not (folder / ".git").exists() or not shutil.which("git"):
        return "unknown commit"
    done = subprocess.run(["git", "-C", folder, "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return done.stdout[:7] or "unknown commit"


def play(name, folder):
    """Test -> passed, failed or skipped."""
    port, files = PEERS[name]
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
        folder, commit = sources_of(name)
        if not folder:
            missing.append(f"{name}: 0 passed: {commit}")
            continue
        got = play(name, folder)
        counts = {how: sum(g == how for g in got.values()) for how in ("passed", "failed", "skipped")}
        own = compare(name, got)
        print(f"{name} ({commit}): {counts['passed']} passed of {len(got)}, {counts['failed']} fail by design, "
              f"{counts['skipped']} cannot run here" if not own else f"{name}: {len(own)} differ from {name}.expected")
        for test, how in got.items():
            if how == "skipped":
                print(f"  could not run: {test}")
        passed += counts["passed"] + counts["failed"] - sum(": fails, and" in f for f in own)
        faults += [f"{name}: {f}" for f in own]
    for why in missing:
        print(why)
    for fault in faults:
        print(fault)
    print(f"{passed} passed, {len(faults)} failed")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

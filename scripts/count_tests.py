#!/usr/bin/python3
"""Counts what the tests of one log say: `passed failed skipped` on stdout, skips that are too many on stderr.

    scripts/count_tests.py LOG

Read are Criterion's and pytest's closing lines, our own `N passed, N failed`, the line of each skip, and scripts/test's line of
each test that passed on its second try: its first one does not count, whether the test failed, its teardown, or both. With
CI=true a skip that tests/skips.txt does not allow counts as a failure, too."""
import collections
import os
import re
import sys
from pathlib import Path

ALLOWED = Path(__file__).resolve().parents[1] / "tests/skips.txt"
CRITERION = re.compile(r"\[====\] Synthesis: Tested: \d+ \| Passing: (\d+) \| Failing: (\d+) \| Crashing: (\d+)")
CLOSING = re.compile(r"(=+ )?\d+ \w+.* in [\d.]+s|.*\d+ passed, \d+ failed(, \d+ skipped)?$")
TROUBLE = re.compile(r"(?:FAILED|ERROR) (tests.*)$")
FLAKY = re.compile(r"FLAKY (tests.*): passed on its second try only$")
SKIP = re.compile(r"SKIPPED \[(\d+)\] |\[SKIP\] ")


def allowed():
    lines = ALLOWED.read_text(encoding="utf-8").split("\n")
    return [re.compile(line.split("\t")[0]) for line in lines if line and not line.startswith("#")]


def count(text):
    """(passed, failed, skipped, lines of skips)"""
    passed = failed = skipped = 0
    skips, troubles = [], collections.Counter()
    for line in text.split("\n"):
        criterion, skip, trouble, flaky = CRITERION.search(line), SKIP.match(line), TROUBLE.match(line), FLAKY.match(line)
        if criterion:
            passed += int(criterion[1])
            failed += int(criterion[2]) + int(criterion[3])
        elif trouble:
            troubles[trouble[1].split(" - ")[0]] += 1
        elif flaky:
            failed -= troubles.pop(flaky[1])
        elif skip:
            skips.append(line)
            skipped += int(skip[1] or 1)
        elif CLOSING.match(line):
            for n, what in re.findall(r"(\d+) (passed|failed|errors?)", line):
                passed += int(n) * (what == "passed")
                failed += int(n) * (what != "passed")
    return passed, failed, skipped, skips


def main():
    passed, failed, skipped, skips = count(Path(sys.argv[1]).read_text(encoding="utf-8", errors="replace"))
    if os.environ.get("CI") == "true":
        may = allowed()
        for line in skips:
            if not any(one.search(line) for one in may):
                failed += 1
                print(f"FAILED: skipped, and not allowed by tests/skips.txt: {line}", file=sys.stderr)
    print(passed, failed, skipped)


if __name__ == "__main__":
    main()

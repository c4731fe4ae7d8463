#!/usr/bin/python3
"""No test sleeps blindly: test_*.py call no time.sleep. The kit (tests/blackbox/gateway.py) has wait_until for what can
be seen, stays for what must not come, and pause for time that must pass by itself; the latter two take a reason.
Programs that tests write into files as text may sleep."""
import ast
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def sleeps(path):
    """The lines on which the file itself sleeps."""
    tree = ast.parse(path.read_text(), str(path))
    return sorted(n.lineno for n in ast.walk(tree)
                  if isinstance(n, ast.Call) and ast.unparse(n.func) in ("time.sleep", "sleep"))


def main():
    bad = 0
    for path in sorted(ROOT.glob("tests/blackbox/*/test_*.py")):
        for line in sleeps(path):
            print(f"{path.relative_to(ROOT)}:{line}: time.sleep in a test: wait_until, stays or pause, with a reason")
            bad += 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

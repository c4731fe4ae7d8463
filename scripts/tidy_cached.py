#!/usr/bin/python3
"""clang-tidy of the files given, as build/check lists them (scripts/check). Prints only findings.

    scripts/tidy_cached.py [--no-analyzer] FILE...

The analyzer takes nine tenths of the time. A file whose preprocessed text was clean under the same .clang-tidy and program
is not read again. The marks of clean files are in the user's cache folder, so that all clones and worktrees share them."""
import hashlib
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "rollgate-tidy")


def preprocessed(command):
    words = command["command"].split()
    words = [w for w in words if not w.endswith("ccache")]
    at = words.index("-o")
    words[at:at + 2] = []
    words[words.index("-c")] = "-E"
    for flag in ("-MD", "-MT", "-MF"):
        if flag in words:
            at = words.index(flag)
            del words[at:at + (1 if flag == "-MD" else 2)]
    words = [w.replace('\\"', '"') for w in words]
    return subprocess.run(words + ["-P"], cwd=command["directory"], capture_output=True, check=False).stdout


def mark_of(rules, text):
    return f"{CACHE}/{hashlib.sha256(rules + text).hexdigest()}"


def check_file(path, commands, rules, analyzer):
    command = commands.get(os.path.abspath(path))
    if command is None:
        return f"{path}: not in build/check/compile_commands.json"
    text = open(path, "rb").read() + preprocessed(command)
    whole = mark = mark_of(rules, text)
    arguments = ["--quiet", "-p", "build/check", path, "--extra-arg=-Wno-unknown-warning-option"]
    if not analyzer:
        arguments.append("--checks=-clang-analyzer-*")
        mark = mark_of(rules, arguments[-1].encode() + text)
    if os.path.exists(mark) or os.path.exists(whole):
        return None
    done = subprocess.run(["clang-tidy", *arguments], text=True, capture_output=True, check=False)
    found = [line for line in done.stdout.split("\n") if "error:" in line or "warning:" in line]
    if not found and done.returncode == 0:
        open(mark, "w").close()
        return None
    return "\n".join(found) or f"{path}: clang-tidy ends with {done.returncode}"


def main():
    os.makedirs(CACHE, exist_ok=True)
    commands = {os.path.abspath(os.path.join(c["directory"], c["file"])): c
                for c in json.load(open("build/check/compile_commands.json"))}
    program = subprocess.run(["clang-tidy", "--version"], capture_output=True, check=True).stdout
    rules = open(".clang-tidy", "rb").read() + program
    analyzer = "--no-analyzer" not in sys.argv
    paths = [a for a in sys.argv[1:] if not a.startswith("--")]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = [f for f in pool.map(lambda p: check_file(p, commands, rules, analyzer), paths) if f]
    print("\n".join(sorted(set("\n".join(found).split("\n")))), end="\n" if found else "")
    return 1 if found else 0


sys.exit(main())

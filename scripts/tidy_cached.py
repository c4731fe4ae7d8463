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

NO_ANALYZER = "--checks=-clang-analyzer-*"
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


def find_mark(path, commands, rules, analyzer):
    """(the mark that this file gets once it is clean, whether it has one); or (None, False) where marks are not kept."""
    text = open(path, "rb").read() + preprocessed(commands[os.path.abspath(path)])
    whole = mark_of(rules, text)
    mark = whole if analyzer else mark_of(rules, NO_ANALYZER.encode() + text)
    return mark, os.path.exists(mark) or os.path.exists(whole)


def check_files(paths, analyzer):
    """The findings in files that one process reads. A start of clang-tidy costs as much as half a file without the analyzer."""
    arguments = ["--quiet", "-p", "build/check", *paths, "--extra-arg=-Wno-unknown-warning-option"]
    if not analyzer:
        arguments.append(NO_ANALYZER)
    done = subprocess.run(["clang-tidy", *arguments], text=True, capture_output=True, check=False)
    found = [line for line in done.stdout.split("\n") if "error:" in line or "warning:" in line]
    if not found and done.returncode != 0:
        found = [f"{' '.join(paths)}: clang-tidy ends with {done.returncode}: {done.stderr[-300:]}"]
    return found


def check_batch(batch, analyzer):
    """The findings in a batch of (path, mark). Clean files get their marks."""
    found = check_files([path for path, _ in batch], analyzer)
    if found and len(batch) > 1:
        return [f for one in batch for f in check_batch([one], analyzer)] or found
    for _, mark in batch if not found else []:
        if mark:
            open(mark, "w").close()
    return found


def main():
    # CI's machine is bare: marks that nobody will read cost a preprocessor's run each
    keeps_marks = os.path.isdir(CACHE) or os.environ.get("CI") != "true"
    if keeps_marks:
        os.makedirs(CACHE, exist_ok=True)
    commands = {os.path.abspath(os.path.join(c["directory"], c["file"])): c
                for c in json.load(open("build/check/compile_commands.json"))}
    program = subprocess.run(["clang-tidy", "--version"], capture_output=True, check=True).stdout
    rules = open(".clang-tidy", "rb").read() + program
    analyzer = "--no-analyzer" not in sys.argv
    paths = [a for a in sys.argv[1:] if not a.startswith("--")]
    found = [f"{p}: not in build/check/compile_commands.json" for p in paths if os.path.abspath(p) not in commands]
    paths = [p for p in paths if os.path.abspath(p) in commands]
    cpus = os.cpu_count() or 1
    with ThreadPoolExecutor(cpus) as pool:
        marks = list(pool.map(lambda p: find_mark(p, commands, rules, analyzer) if keeps_marks else (None, False), paths))
        left = [(path, mark) for path, (mark, clean) in zip(paths, marks) if not clean]
        size = max(1, min(1 if analyzer else 16, len(left) // (4 * cpus)))
        for some in pool.map(lambda at: check_batch(left[at:at + size], analyzer), range(0, len(left), size)):
            found += some
    print("\n".join(sorted(set(found))), end="\n" if found else "")
    return 1 if found else 0


sys.exit(main())

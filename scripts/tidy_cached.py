#!/usr/bin/python3
"""clang-tidy of the files given, as build/check lists them (scripts/check); a file whose preprocessed text was clean
under the same .clang-tidy and program is not read again. The marks lie in the user's cache folder, so that every
clone and worktree shares them. Prints only findings."""
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


def look(path, commands, rules):
    command = commands.get(os.path.abspath(path))
    if command is None:
        return f"{path}: not in build/check/compile_commands.json"
    source = open(path, "rb").read()
    mark = f"{CACHE}/{hashlib.sha256(rules + source + preprocessed(command)).hexdigest()}"
    if os.path.exists(mark):
        return None
    done = subprocess.run(["clang-tidy", "--quiet", "-p", "build/check", path,
                           "--extra-arg=-Wno-unknown-warning-option"], text=True, capture_output=True,
                          check=False)
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
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = [f for f in pool.map(lambda p: look(p, commands, rules), sys.argv[1:]) if f]
    print("\n".join(sorted(set("\n".join(found).split("\n")))), end="\n" if found else "")
    return 1 if found else 0


sys.exit(main())

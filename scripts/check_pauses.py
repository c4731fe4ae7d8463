#!/usr/bin/python3
"""Functions that may pause their task (common/os/task.h), by gcc's call graph. A function that may
pause has the mark MAY_PAUSE, or nothing calls it by its name: it is the function of a task. A mark
that is not needed is a fault, too. Frames of functions in these files have at most 4 KiB, because
a task's stack has 512. Calls through pointers are not in the graph: task_atomic checks those.
Commands (worker/commands) run outside tasks."""
import concurrent.futures
import os
import re
import subprocess
import sys
import tempfile

SEEDS = {"task_pause_slow", "task_wait", "task_offload",
         "export_pause", "export_offload",  # through the pointers of struct export_out
         "telling_flow"}  # and of struct session_telling
FRAME_MAX = 4096
# function -> reason
ALLOWED = {"control_sweep_all": "runs before the worker serves, outside a task"}

MARK = re.compile(r"\bMAY_PAUSE\b(?!\s*$)[^;{()]*?(\w+)\(", re.M)
INCLUDE = re.compile(r'^#include "([^"]+)"', re.M)
NODE = re.compile(r'node: \{ title: "([^"]+)" label: "[^"]*?(\d+) bytes \(\w+')
EDGE = re.compile(r'edge: \{ sourcename: "([^"]+)" targetname: "([^"]+)"')


def sources():
    """The C files that can see a marked function, and all marked names."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "*.c", "*.h"], text=True,
                            capture_output=True, check=True).stdout.split()
    texts = {}
    for path in listed:
        if os.path.exists(path) and not path.startswith(("tests/", "worker/commands/")):
            with open(path, encoding="utf-8") as f:
                texts[path] = f.read()
    marked = {path: set(MARK.findall(text)) for path, text in texts.items()}
    headers = {path for path, names in marked.items() if names and path.endswith(".h")}
    files = [path for path, text in texts.items() if path.endswith(".c")
             and (marked[path] or headers & set(INCLUDE.findall(text)))]
    return files, set().union(*marked.values())


def graph_of(path, folder):
    """(frames by function, calls) of one file."""
    out = os.path.join(folder, path.replace("/", "_") + ".o")
    subprocess.run(["gcc", "-std=gnu11", "-O0", "-D_GNU_SOURCE", '-DRG_VERSION="0"', "-DH2O_USE_LIBUV=0",
                    "-DH2O_USE_EPOLL=1", "-isystem", "/usr/include/hiredis", "-I.", "-fcallgraph-info=su",
                    "-c", path, "-o", out], check=True)
    with open(out[:-2] + ".ci", encoding="utf-8") as f:
        text = f.read()
    return {name: int(size) for name, size in NODE.findall(text)}, set(EDGE.findall(text))


def plain(name):
    """A static function's name is behind its file's."""
    return name.rsplit(":", 1)[-1]


def main():
    files, marked = sources()
    frames, calls = {}, set()
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(2) as pool:
        for found, edges in pool.map(lambda path: graph_of(path, folder), files):
            frames.update(found)
            calls |= edges
    pausing, grew = set(SEEDS), True
    while grew:
        more = {caller for caller, callee in calls if callee in pausing and callee not in ALLOWED} - pausing
        grew = bool(more)
        pausing |= more
    faults = [f"{name}: pauses and is called by {plain(caller)}, but is not marked MAY_PAUSE"
              for caller, name in sorted(calls)
              if name in pausing and plain(name) not in marked | SEEDS | set(ALLOWED)
              and plain(caller) not in ALLOWED]
    names = {plain(name) for name in pausing}
    faults += [f"{name}: is marked MAY_PAUSE, but never pauses" for name in sorted(marked - names)]
    faults += [f"{name}: a frame of {size} bytes (at most {FRAME_MAX})"
               for name, size in sorted(frames.items()) if size > FRAME_MAX]
    if "--report" in sys.argv:
        print(f"{len(files)} files, {len(names)} functions may pause, {len(calls)} calls")
    print("\n".join(faults), end="\n" if faults else "")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()

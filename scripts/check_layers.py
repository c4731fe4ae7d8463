#!/usr/bin/python3
"""Who may include whom. One matrix, one table of third-party owners; also fails on include
cycles, on a .c that reaches more than 25 own headers, and on a header that does not compile
alone (--headers, needs the compiler). A header that a .c includes before all others compiles alone
if the tree builds. See ARCHITECTURE.md, "Rooms"."""
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

REACH_MAX = 25
COMMON = ["common/base", "common/codec", "common/os", "common/net", "common/proc", "common/journal",
          "common/serve"]
PURE = [f"worker/text/{name}" for name in ("tokens", "template", "parsers", "image")]
STORES = ["worker/session", "worker/engine"]
# room -> rooms it may include besides itself; a folder without a row belongs to the room above it
MATRIX = {room: COMMON[:i] for i, room in enumerate(COMMON)}
MATRIX.update({room: COMMON for room in PURE})
MATRIX["common/fleet"] = COMMON[:6]
MATRIX["common/proc"] = MATRIX["common/proc"] + ["common/fleet/place_table.h"]  # whose rows are no process's


def add_room(name, *above):
    """A room may include the rooms in `above`, and what the last of them may include."""
    MATRIX[name] = list(above) + MATRIX[above[-1]]


MATRIX["worker/text/request"] = ["worker/text/tokens", "worker/text/image"] + COMMON
add_room("worker/dialect", "worker/text/parsers", "worker/text/request")
add_room("worker/media", "worker/text/image")
MATRIX["worker/trace"] = MATRIX["worker/viewer"] = COMMON
add_room("worker/text/model", "worker/text/template", "worker/text/parsers", "worker/text/request")
for store in STORES:
    add_room(store, "worker/text/model")
add_room("worker/engine/wire", "worker/engine")
add_room("worker/export", "worker/media", *STORES, "worker/engine/wire")
add_room("worker/residency", "worker/session")
add_room("worker/ledger", "common/fleet", "worker/residency")
add_room("worker/plane/call", "worker/engine", "worker/media", "worker/trace", "worker/ledger")
add_room("worker/sink", "worker/export", "worker/plane/call")
add_room("worker/plane/service", "worker/viewer", "worker/dialect", "worker/sink")
add_room("worker/plane/control", "common/fleet", "worker/plane/service")
add_room("worker/plane/api", "worker/plane/control")
add_room("worker", "worker/trace", "worker/plane/api")
MATRIX["worker/commands"] = MATRIX["worker/plane/api"]
MATRIX["router"] = COMMON + ["common/fleet/place_table.h"]
MATRIX["dispatcher"] = COMMON + ["common/fleet"]
MATRIX["runner"] = COMMON
MATRIX["keeper"] = COMMON + ["common/fleet"]
MATRIX["supervisor"] = COMMON + ["common/fleet", "keeper/fleet_keeper.h", "runner/runner.h", "router/router.h",
                                  "dispatcher/dispatcher.h", "worker/worker.h", "worker/commands"]
# Single headers that one room of a level lends to its neighbours: values only, no behaviour.
LENT = {
    "worker/text/tokens/span.h": ["worker/session", "worker/engine"],
}
# Headers with the bodies of a room's structs: nobody outside of the room, whatever the matrix says.
PRIVATE = ["worker/session/store/store.h", "worker/session/call/plan.h",
           "worker/engine/pool/pool_internal.h", "worker/engine/kv/kv_admission_internal.h",
           "common/journal/journal_internal.h"]
# Tables of constants, which count for a reach as little as the .def file that they are made of.
TABLES = ["common/base/limits.h"]
# third-party header (prefix) -> the files that own it
OWNERS = {
    "h2o": ["common/os/loop", "common/serve/", "worker/worker"],
    "mbedtls/": ["common/net/tls", "common/proc/ids", "common/proc/keys", "common/os/random", "common/codec/sha256",
                 "common/codec/sha1"],
    "pcre2": ["worker/text/tokens/"],
    "yaml": ["common/proc/config", "runner/roster"],
    "msgpack": ["worker/export/formats/msgpack"],
    "hiredis": ["worker/sink/redis_target", "worker/sink/redis_reach"],
    "systemd/": ["supervisor/"],
    "seccomp": ["common/os/sandbox", "supervisor/sandbox"],
    "zlib": ["common/net/content_coding"],
    "criterion": [],
}
INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]', re.M)
FIRST = re.compile(r'(?>\s+|/\*.*?\*/)*+#include "([^"]+)"', re.S)


def room_of(path):
    folder = os.path.dirname(path)
    while folder and folder not in MATRIX:
        folder = os.path.dirname(folder)
    return folder


def allowed(source, target):
    mine, its = room_of(source), room_of(target)
    if mine == its or source.startswith("tests/"):
        return True
    if target in PRIVATE:
        return False
    if mine in LENT.get(target, []):
        return True
    return its in MATRIX[mine] or target in MATRIX[mine]


def owner_fault(source, header):
    for prefix, owners in OWNERS.items():
        if header == prefix or header == prefix + ".h" or header.startswith(prefix if prefix.endswith("/")
                                                                          else prefix + "/") \
                or (prefix == "pcre2" and header.startswith("pcre2")):
            return not any(source.startswith(owner) for owner in owners)
    return False


def cycles(graph):
    state, stack, found = {}, [], []

    def walk(node):
        state[node] = 1
        stack.append(node)
        for target in graph.get(node, ()):
            if state.get(target) == 1:
                found.append(" -> ".join(stack[stack.index(target):] + [target]))
            elif target not in state:
                walk(target)
        stack.pop()
        state[node] = 2

    for node in sorted(graph):
        if node not in state:
            walk(node)
    return found


def reach(graph, start):
    seen, todo = set(), [start]
    while todo:
        for target in graph.get(todo.pop(), ()):
            if target not in seen:
                seen.add(target)
                todo.append(target)
    return len(seen)


def include_flags():
    out = subprocess.run(["pkg-config", "--cflags", "libh2o-evloop", "libpcre2-8", "yaml-0.1",
                          "msgpack", "hiredis"], text=True, capture_output=True, check=False)
    return out.stdout.split()


def alone(path, flags):
    done = subprocess.run(["gcc", "-std=gnu11", "-fsyntax-only", "-D_GNU_SOURCE", "-DH2O_USE_LIBUV=0",
                           "-DH2O_USE_EPOLL=1", '-DRG_VERSION="0"', "-I.", *flags, "-x", "c", "-include", path,
                           "/dev/null"], text=True, capture_output=True, check=False)
    return None if done.returncode == 0 else f"{path}: does not compile alone: " + \
        done.stderr.strip().split("\n")[0]


def main():
    names = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "*.c", "*.h", "*.def"], text=True,
                           capture_output=True, check=True).stdout.split()
    sources = [n for n in sorted(set(names)) if not n.startswith("tests/") and os.path.exists(n)]
    graph, faults, built = {}, [], set()
    for source in sources:
        if room_of(source) == "":
            faults.append(f"{source}: outside the house (no room of the matrix)")
            continue
        graph[source] = []
        text = open(source, encoding="utf-8").read()
        first = FIRST.match(text)
        if first and source.endswith(".c"):
            built.add(first[1])
        for kind, header in INCLUDE.findall(text):
            if kind == '"' and os.path.exists(header):
                if not header.endswith(".def") and header not in TABLES:
                    graph[source].append(header)
                if not allowed(source, header):
                    faults.append(f"{source}: must not include {header}")
            elif kind == '"':
                faults.append(f"{source}: {header} is not a path from the top folder")
            elif owner_fault(source, header):
                faults.append(f"{source}: <{header}> belongs to its owner file only")
    faults += [f"include cycle: {c}" for c in cycles(graph)]
    for source in sources:
        if source.endswith(".c") and reach(graph, source) > REACH_MAX:
            faults.append(f"{source}: reaches {reach(graph, source)} own headers (at most {REACH_MAX})")
    if "--headers" in sys.argv:
        flags = include_flags()
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            headers = [s for s in sources if s.endswith(".h") and s not in built]
            faults += [f for f in pool.map(lambda h: alone(h, flags), headers) if f]
    for fault in faults:
        print(fault)
    return 1 if faults else 0


sys.exit(main())

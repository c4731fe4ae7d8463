#!/usr/bin/python3
"""File and function sizes: no C file above 800 lines, no function above 80, unless listed here
with a reason. `check_sizes.py --report` prints medians instead."""
import re
import statistics
import subprocess
import sys

FILE_MAX, FUNCTION_MAX = 800, 80
# path -> reason; tables generated from data are no code that anybody reads
FILE_ALLOWED = {}
# path:function -> reason
FUNCTION_ALLOWED = {}

HEAD = re.compile(r"^[A-Za-z_].*\)\s*(?:RG_\w+(?:\([^)]*\))?\s*)*$")
NAME = re.compile(r"([A-Za-z_]\w*)\s*\(")


def functions(lines):
    """Yields (name, first line number, length). The house style puts a function's braces in
    column 0 (Linux braces), so no parser is needed."""
    at = 0
    while at < len(lines):
        if lines[at] == "{" and at > 0 and lines[at - 1].rstrip().endswith(")"):
            start = at - 1
            while start > 0 and lines[start][:1] in (" ", "\t"):
                start -= 1
            end = at
            while end < len(lines) and lines[end] != "}":
                end += 1
            name = NAME.search(lines[start])
            yield name.group(1) if name else "?", start + 1, end - start + 1
            at = end
        at += 1


def main():
    out = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "*.c", "*.h"], text=True,
                         capture_output=True, check=True).stdout.split()
    faults, files, lengths = [], [], []
    for path in sorted(set(out)):
        try:
            lines = open(path, encoding="utf-8").read().split("\n")
        except FileNotFoundError:
            continue
        generated = path.endswith("_data.c") or path.endswith("_tables.c")
        count = len(lines) - 1
        if count > FILE_MAX and not generated and path not in FILE_ALLOWED:
            faults.append(f"{path}: {count} lines (at most {FILE_MAX})")
        if path.endswith(".c"):
            files.append(count)
            for name, line, length in functions(lines):
                lengths.append(length)
                if length > FUNCTION_MAX and f"{path}:{name}" not in FUNCTION_ALLOWED:
                    faults.append(f"{path}:{line}: {name} has {length} lines (at most {FUNCTION_MAX})")
    if "--report" in sys.argv:
        for what, values in (("file", files), ("function", lengths)):
            values.sort()
            print(f"{what}: {len(values)}, median {statistics.median(values):g}, "
                  f"90 % {values[len(values) * 9 // 10]}, max {values[-1]}")
    for fault in faults:
        print(fault)
    return 1 if faults else 0


sys.exit(main())

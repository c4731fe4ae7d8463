#!/usr/bin/python3
"""File and function sizes: no C file above 700 lines, no function above 60, unless listed here
with a reason; no control statement inside more than four others. And the share of lines with a
comment, over all C files but the tests: it may rise, not fall. `check_sizes.py --report` prints
medians and the share of each room instead."""
import re
import statistics
import subprocess
import sys

FILE_MAX, FUNCTION_MAX, NESTING_MAX = 700, 60, 4
COMMENT_SHARE_MIN = 11.0  # per cent; raise it when the tree is well above
# path:function -> reason
FUNCTION_ALLOWED = {}

HEAD = re.compile(r"^[A-Za-z_].*\)\s*(?:RG_\w+(?:\([^)]*\))?\s*)*$")
CONTROL = re.compile(r"( +)(?:\} )?(?:if|for|while|switch|do|LIST_EACH(?:_SAFE)?)\b")
COMMENT = re.compile(r"/\*.*?\*/", re.S)
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


def deep(lines):
    """Line numbers of control statements that stand inside more than four: by their indentation,
    which clang-format holds to four columns a level."""
    return [at for at, line in enumerate(lines, 1)
            if (found := CONTROL.match(line)) and len(found.group(1)) // 4 > NESTING_MAX]


def commented(text):
    """How many lines have a comment or a part of one."""
    at = set()
    for found in COMMENT.finditer(text):
        at.update(range(text.count("\n", 0, found.start()), text.count("\n", 0, found.end()) + 1))
    return len(at)


def main():
    out = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "*.c", "*.h"], text=True,
                         capture_output=True, check=True).stdout.split()
    faults, files, lengths, rooms = [], [], [], {}
    for path in sorted(set(out)):
        try:
            lines = open(path, encoding="utf-8").read().split("\n")
        except FileNotFoundError:
            continue
        generated = path.endswith("_data.c")
        count = len(lines) - 1
        if count > FILE_MAX and not generated:
            faults.append(f"{path}: {count} lines (at most {FILE_MAX})")
        if not generated and not path.startswith("tests/"):
            room = rooms.setdefault(path.rpartition("/")[0], [0, 0])
            room[0] += commented("\n".join(lines))
            room[1] += count
        if path.endswith(".c"):
            files.append(count)
            if not path.startswith("tests/"):
                faults += [f"{path}:{line}: a statement inside more than {NESTING_MAX} others" for line in deep(lines)]
            for name, line, length in functions(lines):
                lengths.append(length)
                if length > FUNCTION_MAX and f"{path}:{name}" not in FUNCTION_ALLOWED:
                    faults.append(f"{path}:{line}: {name} has {length} lines (at most {FUNCTION_MAX})")
    share = 100 * sum(c for c, _ in rooms.values()) / sum(n for _, n in rooms.values())
    if share < COMMENT_SHARE_MIN:
        faults.append(f"{share:.2f} % of the lines have comments (at least {COMMENT_SHARE_MIN} %)")
    if "--report" in sys.argv:
        print(f"comments: {share:.2f} % of the lines")
        for room, (c, n) in sorted(rooms.items(), key=lambda row: row[1][0] / max(row[1][1], 1)):
            print(f"  {100 * c / max(n, 1):5.1f} %  {room}")
        for what, values in (("file", files), ("function", lengths)):
            values.sort()
            print(f"{what}: {len(values)}, median {statistics.median(values):g}, "
                  f"90 % {values[len(values) * 9 // 10]}, max {values[-1]}")
    for fault in faults:
        print(fault)
    return 1 if faults else 0


sys.exit(main())

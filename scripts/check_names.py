#!/usr/bin/python3
"""One name, one thing: no struct, enum or union name is defined twice in the tree, and no two files
of different rooms share a name (a .c and its .h are one). Tests have names of their own. See docs/terms.md."""
import collections
import os
import re
import subprocess
import sys

COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)
DEFINED = re.compile(r"\b(?:struct|enum|union)\s+(\w+)\s*\{")


def main():
    names = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "*.c", "*.h", "*.def"], text=True,
                           capture_output=True, check=True).stdout.split()
    tags, files = collections.defaultdict(list), collections.defaultdict(set)
    for path in sorted(set(names)):
        if path.startswith("tests/") or not os.path.exists(path):
            continue
        with open(path, encoding="utf-8") as source:
            text = COMMENT.sub("", source.read())
        for tag in DEFINED.findall(text):
            tags[tag].append(path)
        folder, name = os.path.split(path)
        files[os.path.splitext(name)[0]].add(folder)
    faults = [f"struct {tag} is defined {len(at)} times: {', '.join(at)}" for tag, at in sorted(tags.items())
              if len(at) > 1]
    faults += [f"the file name {name} stands in {', '.join(sorted(at))}" for name, at in sorted(files.items())
               if len(at) > 1]
    for fault in faults:
        print(fault)
    return 1 if faults else 0


sys.exit(main())

#!/usr/bin/python3
"""Makes the C source of the tables in worker/text/template/pystr_data.h from scripts/pystr.txt.gz: what
Python 3.11 (Unicode 14) says of characters. A line `flags FIRST..LAST FLAGS` is the flags of a run of characters
in the order of the enum, a line `upper|lower|title|fold CODE CODE...` what a character becomes; all hexadecimal.

    scripts/make_pystr.py OUT.c
    scripts/make_pystr.py --take    writes the text anew from this Python (str.isalpha, str.upper ...)"""
import gzip
import sys
import unicodedata
from itertools import groupby
from pathlib import Path

SOURCE = Path(__file__).resolve().parent / "pystr.txt.gz"
POINTS = range(0x110000)
BLOCK = 128
CASES = {"upper": str.upper, "lower": str.lower, "title": str.title, "fold": str.casefold}


def flags_of(cp):
    c = chr(cp)
    # A sigma turns final only after a cased letter: what lies between may only be ignorable.
    ignorable = ("a" + c + "\u03a3").lower().endswith("\u03c2") and not ("." + c + "\u03a3").lower().endswith("\u03c2")
    tests = [c.isalpha(), c.isdecimal(), c.isdigit(), c.isnumeric(), c.isspace(), c.isprintable(),
             c.isupper(), c.islower(), unicodedata.category(c) == "Lt", ignorable,
             c.isidentifier(), ("a" + c).isidentifier()]
    return sum(1 << i for i, t in enumerate(tests) if t)


def take():
    lines = []
    for flags, points in groupby(POINTS, flags_of):
        points = list(points)
        lines.append(f"flags {points[0]:x}..{points[-1]:x} {flags:x}")
    for name, change in CASES.items():
        lines += [f"{name} {cp:x} {' '.join(f'{ord(c):x}' for c in change(chr(cp)))}"
                  for cp in POINTS if change(chr(cp)) != chr(cp)]
    SOURCE.write_bytes(gzip.compress("\n".join(lines).encode(), 9, mtime=0))


def read():
    flags, cases = [], {name: {} for name in CASES}
    for line in gzip.decompress(SOURCE.read_bytes()).decode().splitlines():
        name, key, *values = line.split()
        if name == "flags":
            first, last = key.split("..")
            flags += [int(values[0], 16)] * (int(last, 16) - int(first, 16) + 1)
        else:
            cases[name][int(key, 16)] = "".join(chr(int(v, 16)) for v in values)
    return flags, cases


def runs(mapping):
    """(start, end, step, delta) runs over a dict cp -> cp."""
    out = []
    for cp in sorted(mapping):
        delta = mapping[cp] - cp
        start, end, step, last_delta = out[-1] if out else (0, 0, 0, 0)
        if last_delta == delta and cp - end in ((1, 2) if start == end else (step,)):
            out[-1] = (start, cp, cp - end, delta)
        else:
            out.append((cp, cp, 1, delta))
    return out


def table(name, items):
    return f"const {name} = {{\n" + "".join(f"    {item},\n" for item in items) + "};\n"


def write(out):
    flags, cases = read()
    classes = sorted(set(flags))
    blocks, index = {}, []
    for start in range(0, len(POINTS), BLOCK):
        block = tuple(classes.index(f) for f in flags[start:start + BLOCK])
        index.append(blocks.setdefault(block, len(blocks)))
    while len(index) > 1 and index[-1] == index[-2]:
        index.pop()
    assert len(classes) < 256
    text = ['/* Made by scripts/make_pystr.py. */\n#include "worker/text/template/pystr_data.h"\n',
            table("uint16_t pystr_classes[]", classes), table("uint16_t pystr_index[]", index),
            f"const uint32_t pystr_index_n = {len(index)};\n",
            table(f"uint8_t pystr_blocks[][{BLOCK}]", ["{" + ",".join(map(str, b)) + "}" for b in blocks])]
    specials = []
    for name, mapping in cases.items():
        rows = runs({cp: ord(to) for cp, to in mapping.items() if len(to) == 1})
        text += [table(f"struct pystr_run pystr_{name}[]", ["{0x%x, 0x%x, %d, %d}" % r for r in rows]),
                 f"const uint32_t pystr_{name}_n = {len(rows)};\n"]
        specials += ['{0x%x, \'%s\', "%s"}' % (cp, name[0], "".join("\\%03o" % b for b in to.encode()))
                     for cp, to in mapping.items() if len(to) > 1]
    text += [table("struct pystr_special pystr_specials[]", specials),
             f"const uint32_t pystr_specials_n = {len(specials)};\n"]
    Path(out).write_text("\n".join(text))


if sys.argv[1:2] == ["--take"]:
    take()
else:
    write(sys.argv[1])

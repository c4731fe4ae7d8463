#!/usr/bin/env python3
"""Writes worker/text/template/pystr_data.c: the character facts behind Python's str methods.

The facts are read from the running interpreter (str.isalpha, str.upper, ...), so the tables
agree with it by construction. Usage: scripts/gen_pystr_tables.py > worker/text/template/pystr_data.c
"""
import sys
import unicodedata

BLOCK = 128


def flags(cp):
    c = chr(cp)
    # A sigma turns final only after a cased letter: what lies between may only be ignorable.
    ignorable = ("a" + c + "\u03a3").lower().endswith("\u03c2") and not ("." + c + "\u03a3").lower().endswith("\u03c2")
    tests = [c.isalpha(), c.isdecimal(), c.isdigit(), c.isnumeric(), c.isspace(), c.isprintable(),
             c.isupper(), c.islower(), unicodedata.category(c) == "Lt", ignorable,
             c.isidentifier(), ("a" + c).isidentifier()]
    return sum(1 << i for i, t in enumerate(tests) if t)


def runs(mapping):
    """(start, end, step, delta) runs over a dict cp -> cp."""
    out = []
    for cp in sorted(mapping):
        d = mapping[cp] - cp
        if out and out[-1][3] == d:
            s, e, step, _ = out[-1]
            gap = cp - e
            if (s == e and gap in (1, 2)) or (s != e and gap == step):
                out[-1] = (s, cp, gap, d)
                continue
        out.append((cp, cp, 1, d))
    return out


def rows(items, per_line, fmt):
    for i in range(0, len(items), per_line):
        print("    " + " ".join(fmt(x) + "," for x in items[i:i + per_line]))


def main():
    all_flags = [flags(cp) for cp in range(0x110000)]
    classes = sorted(set(all_flags))
    blocks, index = [], []
    for b in range(0, 0x110000, BLOCK):
        block = tuple(classes.index(f) for f in all_flags[b:b + BLOCK])
        if block not in blocks:
            blocks.append(block)
        index.append(blocks.index(block))
    while len(index) > 1 and index[-1] == index[-2]:
        index.pop()
    assert len(classes) < 256
    print("/* Made by scripts/gen_pystr_tables.py from Python %d.%d, Unicode %s. Do not edit. */" %
          (sys.version_info[0], sys.version_info[1], unicodedata.unidata_version))
    print("/* clang-format off */")
    print('#include "worker/text/template/pystr_data.h"\n')
    print("const uint16_t pystr_classes[%d] = {" % len(classes))
    rows(classes, 16, lambda x: "0x%x" % x)
    print("};\n\nconst uint32_t pystr_index_n = %d;" % len(index))
    print("const uint16_t pystr_index[%d] = {" % len(index))
    rows(index, 128, str)
    print("};\n\nconst uint8_t pystr_blocks[%d][%d] = {" % (len(blocks), BLOCK))
    for b in blocks:
        print("    {" + ",".join(map(str, b)) + "},")
    print("};\n")
    special = []
    for name, f in (("upper", str.upper), ("lower", str.lower), ("title", str.title),
                    ("fold", str.casefold)):
        simple = {}
        for cp in range(0x110000):
            if 0xD800 <= cp < 0xE000:
                continue
            m = f(chr(cp))
            if len(m) > 1:
                special.append((name, cp, m))
            elif ord(m) != cp:
                simple[cp] = ord(m)
        r = runs(simple)
        print("const struct pystr_run pystr_%s[] = {" % name)
        rows(r, 4, lambda x: "{0x%x, 0x%x, %d, %d}" % x)
        print("};\nconst uint32_t pystr_%s_n = %d;\n" % (name, len(r)))
    print("const struct pystr_special pystr_specials[] = {")
    kinds = {"upper": "'u'", "lower": "'l'", "title": "'t'", "fold": "'f'"}
    rows(special, 2, lambda x: '{0x%x, %s, "%s"}' % (x[1], kinds[x[0]], "".join("\\%03o" % b for b in x[2].encode())))
    print("};\nconst uint32_t pystr_specials_n = %d;" % len(special))


main()

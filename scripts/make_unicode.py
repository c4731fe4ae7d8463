#!/usr/bin/python3
"""Makes the C source of the tables in worker/text/tokens/unicode.h from scripts/unicode.txt.gz: one text,
each table behind a line `== NAME`. The build calls it.

Where the tables come from: measured over all code points from the reference tokenizer library
(Rust `tokenizers` 0.22.2 and 0.23.2), because its Unicode versions differ by part: regex classes
are Oniguruma's Unicode 16, NFC and NFD are Unicode 9, Lowercase is the Rust standard library's.
  onig_*              which code points \\p{..}, \\s, \\w match in its regular expressions
  onig_properties     the same for properties that are rarely asked for
  hf_*_map, hf_nfkd_compat, hf_lowercase   what each code point becomes
  hf_ccc_nonzero      combining class not 0 (the classes' values are stable: Python's unicodedata)
  grapheme            Unicode 16's classes for grapheme clusters (GraphemeBreakProperty, with the
                      consonants and linkers of rule GB9c apart; Hangul's LV and LVT are computed)
  hf_mark hf_punctuation hf_numeric hf_word   StripAccents, Punctuation, Digits, Whitespace
scripts/measure_unicode.js measures the hf_* ones again, and --take puts its files into the text.
Canonical composition pairs are the one-step decompositions (Python's unicodedata, stable for
Unicode 9 characters) of what NFC leaves alone.

    scripts/make_unicode.py OUT.c
    scripts/make_unicode.py --take FOLDER  replaces tables by FOLDER/NAME.txt
"""
import gzip
import pathlib
import re
import sys
import unicodedata

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE / "unicode.txt.gz"
POINTS = 0x110000
BLOCK = 128

# bit names stand in unicode.h (enum unicode_flag), in this order
RANGES = ["onig_Lu", "onig_Ll", "onig_Lt", "onig_Lm", "onig_Lo", "onig_M", "onig_Nd", "onig_N",
          "onig_P", "onig_S", "onig_s", "onig_w", "onig_Han", "hf_mark", "hf_punctuation",
          "hf_numeric", "hf_word"]


def read_tables():
    text = gzip.decompress(SOURCE.read_bytes()).decode()
    return dict(part.split("\n", 1) for part in text[len("== "):].split("\n== "))


def take(folder):
    """Puts the tables of a folder (measure_unicode.js wrote it) in the place of those that we have."""
    tables = read_tables()
    if not pathlib.Path(folder).is_dir():
        sys.exit(f"{folder} is no folder")
    for file in pathlib.Path(folder).glob("*.txt"):
        tables[file.stem] = file.read_text().rstrip("\n")
    text = "".join(f"== {name}\n{tables[name].rstrip(chr(10))}\n" for name in sorted(tables))
    SOURCE.write_bytes(gzip.compress(text.encode(), mtime=0))


if sys.argv[1:2] == ["--take"]:
    take(sys.argv[2])
    sys.exit()
TABLES = read_tables()


def read_ranges(name):
    for line in TABLES[name].split():
        first, _, last = line.partition("..")
        yield int(first, 16), int(last or first, 16)


def read_map(name):
    out = {}
    for line in TABLES[name].splitlines():
        if line.strip():
            key, value = line.split("\t")
            out[int(key, 16)] = [int(c, 16) for c in value.split()]
    return out


def compositions(nfc, nfd):
    pairs = {}
    for c in nfd:
        step = unicodedata.decomposition(chr(c)).split()
        if c not in nfc and len(step) == 2 and not step[0].startswith("<"):
            pairs[(int(step[0], 16), int(step[1], 16))] = c
    return pairs


def read_properties():
    """Yields (name, [(first, last)]): a name on a line of its own, its ranges behind tabs."""
    for words in re.split(r"\n(?!\t)", TABLES["onig_properties"].strip()):
        name, *ranges = words.split()
        pairs = [r.partition("..") for r in ranges]
        yield name.lower(), [(int(a, 16), int(b or a, 16)) for a, _, b in pairs]


def rows(values, form="%d", width=100):
    line, out = "   ", []
    for v in values:
        text = " " + form % v + ","
        if len(line) + len(text) > width:
            out.append(line)
            line = "   "
        line += text
    return "\n".join(out + [line])


def flags_of_points(nfc, nfd, nfkd, lower, pairs, ccc):
    flags = [0] * POINTS
    for bit, name in enumerate(RANGES):
        for first, last in read_ranges(name):
            for c in range(first, last + 1):
                flags[c] |= 1 << bit
    seconds = {b for _, b in pairs} | set(range(0x1161, 0x1176)) | set(range(0x11A7, 0x11C3))
    extra = [("CCC", set(ccc)), ("NFC_UNSAFE", set(nfc) | set(ccc) | seconds), ("NFD", set(nfd)),
             ("NFKD", set(nfkd)), ("LOWER", set(lower))]
    for bit, (_, points) in enumerate(extra, start=len(RANGES)):
        for c in points:
            flags[c] |= 1 << bit
    return flags


def two_level(flags):
    classes = sorted(set(flags))
    number = {f: i for i, f in enumerate(classes)}
    blocks, index = {}, []
    for start in range(0, POINTS, BLOCK):
        block = tuple(number[f] for f in flags[start:start + BLOCK])
        index.append(blocks.setdefault(block, len(blocks)))
    return classes, index, [c for block in blocks for c in block]


def mapping(name, table):
    pool, entries = [], []
    for c in sorted(table):
        entries.append("{0x%x, %d, %d}" % (c, len(pool), len(table[c])))
        pool += table[c]
    return [f"const struct unicode_mapping unicode_{name}[] = {{", rows(entries, "%s"), "};",
            f"const size_t unicode_{name}_count = {len(entries)};",
            f"const uint32_t unicode_{name}_pool[] = {{", rows(pool, "0x%x"), "};", ""]


def main():
    nfc, nfd = read_map("hf_nfc_map"), read_map("hf_nfd_map")
    compat, lower = read_map("hf_nfkd_compat"), read_map("hf_lowercase")
    ccc = {c: unicodedata.combining(chr(c)) for first, last in read_ranges("hf_ccc_nonzero")
           for c in range(first, last + 1)}
    assert all(ccc.values()), "a class became 0"
    pairs = compositions(nfc, nfd)
    flags = flags_of_points(nfc, nfd, {**nfd, **compat}, lower, pairs, ccc)
    classes, index, cells = two_level(flags)
    assert len(classes) < 256 and max(index) < 65536
    out = ['#include "worker/text/tokens/unicode.h"', "",
           "const uint32_t unicode_class_flags[] = {", rows(classes, "0x%x"), "};", "",
           "const uint32_t unicode_ascii_flags[] = {", rows(flags[:128], "0x%x"), "};", "",
           "const uint16_t unicode_block[] = {", rows(index), "};", "",
           "const uint8_t unicode_cell[] = {", rows(cells), "};", ""]
    out += mapping("nfd", nfd) + mapping("nfkd", {**nfd, **compat}) + mapping("lower", lower)
    out += ["const struct unicode_ccc unicode_ccc[] = {",
            rows(["{0x%x, %d}" % (c, ccc[c]) for c in sorted(ccc)], "%s"), "};",
            f"const size_t unicode_ccc_count = {len(ccc)};", "",
            "const struct unicode_pair unicode_pairs[] = {",
            rows(["{0x%x, 0x%x, 0x%x}" % (*p, pairs[p]) for p in sorted(pairs)], "%s"), "};",
            f"const size_t unicode_pairs_count = {len(pairs)};"]
    names, pool = [], []
    for name, ranges in read_properties():
        names.append('{"%s", %d, %d}' % (name, len(pool), len(ranges)))
        pool += ranges
    out += ["", "const struct unicode_property unicode_properties[] = {", rows(names, "%s"), "};",
            f"const size_t unicode_properties_count = {len(names)};", "",
            "const struct unicode_range unicode_property_pool[] = {",
            rows(["{0x%x, 0x%x}" % r for r in pool], "%s"), "};"]
    lines = [line.partition("\t") for line in TABLES["grapheme"].splitlines()]
    cells = ["{0x%s, 0x%s, GRAPHEME_%s}" % (*r.lower().split(".."), c.upper()) for r, _, c in lines]
    out += ["", "const struct unicode_grapheme unicode_graphemes[] = {", rows(cells, "%s"), "};",
            f"const size_t unicode_graphemes_count = {len(cells)};"]
    text = "\n".join(out) + "\n"
    pathlib.Path(sys.argv[1]).write_text(text)


main()

#!/usr/bin/python3
"""Makes the C source that holds the names of characters (worker/text/template/character_name.h)
from scripts/character_names.txt.gz:
a line for each, of how much its code is more than the one before (nothing: 1) as hexadecimal digits, a tab, and the name;
aliases as well. Unified ideographs and syllables of Hangul, whose names are computed, are left out.

    scripts/embed_names.py OUT.c
    scripts/embed_names.py --take NameAliases.txt   writes the list anew: what this Python knows (its unicodedata), and
                                                    those of the Unicode aliases that its literals accept"""
import gzip
import sys
import unicodedata
import zlib
from pathlib import Path

SOURCE = Path(__file__).resolve().parent / "character_names.txt.gz"
PACKED_MAX = 200 * 1000


def is_computed(code, name):
    return 0xAC00 <= code <= 0xD7A3 or name.startswith("CJK UNIFIED IDEOGRAPH-")


def accepted(name):
    try:
        return ord(f"\\N{{{name}}}".encode().decode("unicode-escape"))
    except UnicodeDecodeError:
        return None


def take(aliases):
    rows = [(code, name) for code in range(0x110000)
            if (name := unicodedata.name(chr(code), None)) and not is_computed(code, name)]
    for line in Path(aliases).read_text(encoding="utf-8").splitlines():
        code, _, rest = line.split("#")[0].strip().partition(";")
        name = rest.partition(";")[0]
        if name and accepted(name) == int(code, 16):
            rows.append((int(code, 16), name))
    text, before = "", 0
    for code, name in sorted(rows):
        text += f"{f'{code - before:x}' if code - before != 1 else ''}\t{name}\n"
        before = code
    SOURCE.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def write(out):
    text = gzip.decompress(SOURCE.read_bytes())
    packed = zlib.compress(text, 9)
    if len(packed) > PACKED_MAX:
        sys.exit(f"the names are {len(packed)} bytes, at most {PACKED_MAX}")
    rows = [",".join(map(str, packed[i:i + 32])) for i in range(0, len(packed), 32)]
    numbers = {"n": text.count(b"\n"), "text_len": len(text), "packed_len": len(packed)}
    Path(out).write_text('/* Made by scripts/embed_names.py. */\n#include "worker/text/template/character_name.h"\n\n'
                         + "".join(f"const size_t character_names_{name} = {n};\n" for name, n in numbers.items())
                         + "const unsigned char character_names_packed[] = {\n" + ",\n".join(rows) + "\n};\n")


if sys.argv[1:2] == ["--take"]:
    take(sys.argv[2])
else:
    write(sys.argv[1])

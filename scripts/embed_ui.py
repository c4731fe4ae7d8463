#!/usr/bin/python3
"""Makes the C source that holds the viewer: every file of ui/ as it is and gzipped, with its ETag, and the one
self-contained page of `rollgate export --html`.

    scripts/embed_ui.py UI_FOLDER OUT.c

The self-contained page has no modules (a file cannot import): it is one script of all modules in the order in which they
import each other, their import lines and the word `export` left out. So a name at the top of a module stands in one
module only, and imports name what they take; both are checked here."""
import base64
import gzip
import hashlib
import re
import sys
from pathlib import Path

TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8",
         ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
GZIP_MAX = 300 * 1000
IMPORT = re.compile(r'^import \{[^}]*\} from "\./([\w.]+)";\n', re.M)
TOP = re.compile(r"^(?:export )?(?:async )?(?:function\*?|const|let|class) (\w+)", re.M)
# What must not stand in a page that holds what agents wrote: a way from text to markup or to code.
UNSAFE = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc|\.setHTML")


def ordered(modules, name, done):
    """The modules that `name` needs, itself last."""
    if name in done:
        return
    done[name] = None
    for other in IMPORT.findall(modules[name]):
        ordered(modules, other, done)
    del done[name]
    done[name] = modules[name]


def bundle(modules):
    done, names = {}, {}
    ordered(modules, "app.js", done)
    text = ""
    for name, source in done.items():
        for top in TOP.findall(source):
            if top in names:
                sys.exit(f"ui/{name}: the name {top} stands in {names[top]}, too")
            names[top] = name
        source = re.sub(r"^export ", "", IMPORT.sub("", source), flags=re.M)
        if re.search(r"^(import|export)\b", source, re.M):
            sys.exit(f"ui/{name}: imports must read `import {{names}} from \"./file.js\";`, exports stand before a declaration")
        text += source
    unused = set(modules) - set(done)
    if unused:
        sys.exit(f"ui: nobody imports {', '.join(sorted(unused))}")
    return f'"use strict";\n{text}'


def source_hash(text):
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


def page_parts(folder, modules):
    """The self-contained page up to its data, and from there on."""
    html = (folder / "index.html").read_text()
    css = (folder / "app.css").read_text()
    script = bundle(modules)
    if "</script" in script or "</style" in css:
        sys.exit("ui: a script or a style closes its own element")
    policy = ("default-src 'none'; base-uri 'none'; form-action 'none'; "
              f"style-src {source_hash(css)}; script-src {source_hash(script)}")
    links = re.compile(r'<link rel="stylesheet"[^>]*>\n?')
    scripts = re.compile(r'<script type="module"[^>]*></script>\n?')
    if len(links.findall(html)) != 1 or len(scripts.findall(html)) != 1:
        sys.exit("ui/index.html: one stylesheet and one module are to be put into the self-contained page")
    html = re.sub(r'<link rel="icon"[^>]*>\n?', "", html)
    html = links.sub(lambda _: f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n<style>{css}</style>\n', html)
    head, tail = scripts.split(html)
    return head, f"<script>{script}</script>\n{tail}"


def array(name, data):
    rows = [",".join(map(str, data[i:i + 32])) for i in range(0, len(data), 32)]
    return f"static const unsigned char {name}[] = {{\n" + ",\n".join(rows) + "\n};\n"


def main():
    folder, out = Path(sys.argv[1]), Path(sys.argv[2])
    files = sorted(p for p in folder.iterdir() if p.suffix in TYPES)
    modules = {p.name: p.read_text() for p in files if p.suffix == ".js"}
    for name, source in modules.items():
        found = UNSAFE.search(source)
        if found:
            sys.exit(f"ui/{name}: {found[0]} makes markup or code of text")
    total, text, rows = 0, '/* Made by scripts/embed_ui.py of ui/. */\n#include "worker/viewer/assets.h"\n\n', ""
    for i, path in enumerate(files):
        plain = path.read_bytes()
        packed = gzip.compress(plain, 9, mtime=0)
        total += len(packed)
        text += array(f"plain_{i}", plain) + array(f"packed_{i}", packed)
        etag = hashlib.sha256(plain).hexdigest()[:24]
        rows += (f'    {{"{path.name}", "{TYPES[path.suffix]}", "\\"{etag}\\"", {{(const char *)plain_{i}, sizeof(plain_{i})}}, '
                 f'{{(const char *)packed_{i}, sizeof(packed_{i})}}}},\n')
    if total > GZIP_MAX:
        sys.exit(f"ui: {total} bytes gzipped, at most {GZIP_MAX}")
    for name, part in zip(("head", "tail"), page_parts(folder, modules)):
        text += array(f"page_{name}", part.encode())
    text += f"const struct viewer_asset viewer_assets[] = {{\n{rows}}};\nconst size_t viewer_n_assets = {len(files)};\n"
    for name in ("head", "tail"):
        text += f"const struct str viewer_page_{name} = {{(const char *)page_{name}, sizeof(page_{name})}};\n"
    if not out.exists() or out.read_text() != text:
        out.write_text(text)


main()

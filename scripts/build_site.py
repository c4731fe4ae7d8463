#!/usr/bin/python3
"""Builds the site of docs/ with mkdocs, and checks it.

usage: build_site.py FOLDER     the site; FOLDER.src, the pages as mkdocs reads them, is made anew

README.md becomes index.md, ARCHITECTURE.md and CHANGELOG.md become pages, and links follow them. A link to a file of the
repository that is no page becomes its path in code. Fails if a link or an anchor of the site leads nowhere, or if a page
would load something from the network.
"""
import html.parser
import os
import re
import shutil
import subprocess
import sys
import urllib.parse
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TOP_PAGES = {"README.md": "index.md", "ARCHITECTURE.md": "architecture.md", "CHANGELOG.md": "changelog.md",
             "SECURITY.md": "security-policy.md"}


def pages():
    """Path in the repository -> path in the site's source."""
    found = {name: page for name, page in TOP_PAGES.items() if (ROOT / name).exists()}
    for path in sorted((ROOT / "docs").rglob("*")):
        if path.is_file() and path.suffix != ".yml":
            found[str(path.relative_to(ROOT))] = str(path.relative_to(ROOT / "docs"))
    return found


def with_links(text, name, page, known):
    """The text with its links as the site needs them; name: the page in the repository, page: in the site."""
    def link(m):
        shown, target, anchor = m[1], m[2], m[3] or ""
        if re.match(r"[a-z]+:", target) or not target:
            return m[0]
        at = os.path.normpath(os.path.join(os.path.dirname(name), target))
        if at in known:
            return f"[{shown}]({os.path.relpath(known[at], os.path.dirname(page) or '.')}{anchor})"
        if (ROOT / at).is_dir():
            return f"{shown} (`{at}/`)"
        return f"{shown} (`{at}`)"
    text = re.sub(r"^(```\w+) [^\n`]*$", r"\1", text, flags=re.M)     # marks of the tests that run blocks
    fences = re.split(r"(^```.*?^```$)", text, flags=re.S | re.M)
    for i in range(0, len(fences), 2):
        fences[i] = re.sub(r"\[((?:[^]\[]|\[[^]]*\])*)\]\(([^)#\s]*)(#[^)\s]*)?\)", link, fences[i])
        # Markdown of mkdocs wants an empty line before a list, and four spaces below an item
        fences[i] = re.sub(r"(^(?![-*] |\d+\. |\s|\||>)[^\n]+\n)(?=(?:[-*]|\d+\.) )", r"\1\n", fences[i], flags=re.M)
        fences[i] = re.sub(r"^  (?=- )", "    ", fences[i], flags=re.M)
    return "".join(fences)


def lay_out(source):
    """Writes the pages and mkdocs.yml to source, with a nav that has every page."""
    known = pages()
    for name, page in known.items():
        to = source / "docs" / page
        to.parent.mkdir(parents=True, exist_ok=True)
        if page.endswith(".md"):
            to.write_text(with_links((ROOT / name).read_text(), name, page, known))
        else:
            shutil.copy(ROOT / name, to)
    config = (ROOT / "docs/mkdocs.yml").read_text()
    texts = {p for p in known.values() if p.endswith(".md")}
    named = set(re.findall(r"- ([\w/-]+\.md)$", config, re.M))
    missing = named - texts
    config = "".join(line for line in config.splitlines(True) if line.strip()[2:] not in missing)
    decisions = sorted(p for p in texts if p.startswith("decisions/"))
    more = sorted(texts - named - set(decisions))
    for title, group in (("More", more), ("Decisions", decisions)):
        if group:
            config += f"  - {title}:\n" + "".join(f"      - {p}\n" for p in group)
    (source / "mkdocs.yml").write_text(config)


class Links(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.ids, self.targets, self.loaded = set(), [], []

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.ids |= {attrs[a] for a in ("id", "name") if attrs.get(a)}
        if tag == "a" and attrs.get("href"):
            self.targets.append(attrs["href"])
        if tag in ("img", "script", "link", "source", "iframe"):
            self.loaded += [attrs[a] for a in ("src", "href") if attrs.get(a) and attrs.get("rel") != "canonical"]


def faults(site):
    """What is wrong with the links of a built site."""
    parsed, found = {}, []
    for path in sorted(site.rglob("*.html")):
        parsed[path] = Links()
        parsed[path].feed(path.read_text())
        found += [f"{path.relative_to(site)}: a block of code was not read as one"] if "```" in path.read_text() else []
    for path, links in parsed.items():
        shown = path.relative_to(site)
        found += [f"{shown}: loads {url}" for url in links.loaded if re.match(r"(https?:)?//", url)]
        for url in links.targets + links.loaded:
            if re.match(r"[a-z]+:|//", url):
                continue
            name, _, anchor = urllib.parse.unquote(url).partition("#")
            to = (path.parent / name).resolve() if name else path
            to = to / "index.html" if to.is_dir() else to
            if shown.name == "404.html":
                continue            # its links begin at the address where the site will be
            if not to.exists():
                found.append(f"{shown}: {url} leads nowhere")
            elif anchor and to in parsed and anchor not in parsed[to].ids and not anchor.startswith("__"):
                found.append(f"{shown}: {url} has no such heading")
    return found


def build(folder):
    source = folder.with_name(folder.name + ".src")
    shutil.rmtree(source, ignore_errors=True)
    source.mkdir(parents=True)
    lay_out(source)
    subprocess.run([sys.executable, "-m", "mkdocs", "build", "-q", "--strict", "-f", source / "mkdocs.yml",
                    "-d", folder.resolve()], check=True)
    return faults(folder.resolve())


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    wrong = build(Path(sys.argv[1]))
    print("\n".join(wrong) or f"{sys.argv[1]}/index.html")
    sys.exit(1 if wrong else 0)

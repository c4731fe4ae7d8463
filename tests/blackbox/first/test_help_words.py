"""Help texts of settings, metrics and commands follow the laws of scripts/check_words.py."""
import re
import sys

import pytest

import gateway as g
from test_docs import source

sys.path.insert(0, str(g.ROOT / "scripts"))
import check_words  # noqa: E402

STRING = r'((?:"(?:[^"\\]|\\.)*"\s*)+)'
TABLES = {"config.def": rf'^X\(\w+, \w+, "([a-z0-9-]+)", "[^"]*", [^"]*(?:LIVE|START),\s*{STRING}\)',
          "metrics.def": rf'^X\(\w+, \w+, "(\w+)", \w+, \w+,\s*{STRING}\)',
          "commands.def": rf'^(?:OPTION|COMMAND)\("([^"]+)", (?:\w+, )?{STRING}[,)]',
          "err.def": rf'^X\((\w+), [^\n]*",\s*{STRING}\)',
          "routes.def": rf'^(?:GLOBAL|SESSION)\("(\w+ *", "[^"]*)", [^"]*{STRING}\)',
          "paths.def": rf'^X\("(\w+", "[^"]*)", [^"]*(?:"[^"]*"[,\s]*)+,\s+{STRING}\)',
          "inputs.def": rf'^X\([^"]*"(\w+)", [^"]*(?:"[^"]*",|NULL,)\s*{STRING}\)',
          "exports.def": rf'^X\([^"]*"([\w-]+)", [^"]*(?:"[^"]*",|NULL,|FORMAT_LIST,)\s*{STRING}\)',
          "session_options.def": rf'^X\([^"]*"(\w+)", [^"]*(?:"[^"]*",|NULL,)\s*{STRING}\)'}
SENTENCE_WORDS, TEXT_WORDS = 25, 40


def texts(table):
    rows = re.findall(TABLES[table], source(table), re.M)
    assert len(rows) == len(re.findall(r"^(?:X|OPTION|COMMAND|GLOBAL|SESSION)\(", source(table), re.M)), table
    return {name: "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', text)) for name, text in rows}


@pytest.mark.parametrize("table", TABLES)
def test_help_texts_are_read_once(table):
    faults = []
    for name, text in texts(table).items():
        sentences = re.split(r"(?<=[.:;]) ", text)
        faults += [(name, text)] if (
            len(text.split()) > TEXT_WORDS or max(len(s.split()) for s in sentences) > SENTENCE_WORDS or re.search(r"[^.]\.$|\b(the same for|likewise)\b", text, re.I)
            or any(check_words.FRAGMENT.match(s) or check_words.NOUNLESS.match(s) for s in re.split(r"(?<=\.) ", text))
            or check_words.PERSON.search(text) or check_words.PREP_VERB.search(text)) else []
    assert faults == []


def test_pages_name_metrics_that_exist():
    """Also without their table: alerts, examples and dashboards."""
    names = {"rollgate_" + n for n in re.findall(r'^X\(\w+, \w+, "(\w+)"', source("metrics.def"), re.M)}
    names |= {f"{n}_{part}" for n in names for part in ("bucket", "sum", "count")}
    for path in [*(g.ROOT / "docs").rglob("*.md"), *(g.ROOT / "deploy").rglob("*.y*ml"), *(g.ROOT / "examples").rglob("*.y*ml")]:
        used = set(re.findall(r"\brollgate_[a-z_]+_(?:total|seconds|bytes|sessions|up|queued|inflight)\b", path.read_text()))
        assert used <= names, path.name

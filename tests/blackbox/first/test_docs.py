"""docs/ and the code agree: every route, error, metric, export format and setting of one is in the other. Reads files
only. A gateway's binary is started only for the names of settings."""
import re
import subprocess
import sys
from pathlib import Path

import pytest

import gateway as g

sys.path.insert(0, str(g.ROOT / "scripts"))
import reference  # noqa: E402

DOCS = g.ROOT / "docs"


def page(name):
    return (DOCS / name).read_text()


def source(suffix):
    """The text of the one file of the tree that ends so; rooms may be renamed."""
    found = [p for p in g.ROOT.rglob(suffix) if "build" not in p.relative_to(g.ROOT).parts]
    assert len(found) == 1, f"{suffix}: {found}"
    return found[0].read_text()


def code_routes():
    rows = re.findall(r'^(GLOBAL|SESSION)\("(\w+)", "([^"]*)"', source("routes.def"), re.M)
    return {(method, path if kind == "GLOBAL" else "/sessions/{id}" + path) for kind, method, path in rows}


# answered by the routers, which have no table of routes
ROUTERS_OWN = {("GET", "/health"), ("GET", "/ready"), ("GET", "/metrics")}


def dispatcher_routes():
    return {(m, p.replace("{}", "{name}")) for m, p in re.findall(r'^X\("(\w+)", "([^"]*)"', source("paths.def"), re.M)}


def test_every_route_has_a_heading_in_the_api_page():
    told = set(re.findall(r"^### `([A-Z]+) (/[^`]*)`$", page("api.md"), re.M))
    assert code_routes() | ROUTERS_OWN | dispatcher_routes() == {t for t in told if "/v1/" not in t[1]}


def test_every_route_of_the_dispatcher_stands_in_docs():
    rows = re.findall(r'^X\("(\w+)", "([^"]*)"', source("paths.def"), re.M)
    told = set()
    for line in page("rollouts.md").split("\n"):
        first = line.split("|")[1] if line.startswith("| `") else ""
        told |= {(method, re.sub(r"\{\w+\}", "{}", path)) for method, path in re.findall(r"`([A-Z]+) (/[^`?]*)", first)}
    assert told == set(rows)


# kinds that no client sees
NEVER_SENT = {"config", "io", "unsupported"}


def errors_of(text):
    """(status, code, retry) of each row of a table of errors."""
    rows = [[c.strip() for c in line.split("|")[1:-1]] for line in text.split("\n") if re.match(r"\| \d{3} \| `", line)]
    return {(r[0], code, next((c for c in r[2:] if c in ("yes", "no")), "")) for r in rows for code in re.findall(r"`(\w+)`", r[1])}


def test_every_error_stands_in_docs():
    rows = re.findall(r'^X\(\w+, (\d+), "(\w+)", ([01]),', source("err.def"), re.M)
    known = {(status, code, "yes" if retry == "1" else "no") for status, code, retry in rows if code not in NEVER_SENT}
    assert errors_of(page("api.md")) == {e for e in known if e[1] != "cancelled"}


def test_every_metric_stands_in_docs():
    names = set(re.findall(r'^X\(\w+, \w+, "(\w+)"', source("metrics.def"), re.M))
    told = set(re.findall(r"^\| `rollgate_(\w+)` \|", page("metrics.md"), re.M))
    assert told == names


def test_reference_pages_are_those_of_the_tables():
    """scripts/docs --tables writes them."""
    told = subprocess.run([g.BINARY, "config", "--docs"], capture_output=True, text=True, timeout=20, check=True).stdout
    assert reference.settings_page(told) == page("settings.md")
    assert reference.metrics_page(source("metrics.def")) == page("metrics.md")


def test_every_export_format_stands_in_docs():
    rows = (g.ROOT / "common/codec/export_formats.def").read_text(encoding="utf-8")
    known = set(re.findall(r'^X\(\w+, "([^"]+)"', rows, re.M))
    assert len(known) >= 9
    row = re.search(r"^\| `format` \| (.*) \|$", page("trajectories.md"), re.M)
    assert set(re.findall(r"`([^`]+)`", row[1])) == known
    sections = set(re.findall(r"^### `([\w-]+)`", page("trajectories.md"), re.M))
    assert known - sections <= {"json", "msgpack", "safetensors"}
    assert sections <= known


def test_settings_that_docs_name_exist():
    if not g.BINARY.exists():
        pytest.skip(f"{g.BINARY} is not built")
    told = subprocess.run([g.BINARY, "config", "--docs"], capture_output=True, text=True, timeout=20, check=True).stdout
    settings = {"config"} | set(re.findall(r"^#([a-z][a-z0-9-]+): ", told, re.M))
    known = settings | {f"no-{name}" for name in settings} | OTHERS
    for path in [g.ROOT / "README.md", *DOCS.rglob("*.md")]:
        # options of rollgate stand in backticks; other programs' stand in blocks with their command
        used = {n for span in re.findall(r"`(--[a-z][^`]*)`", path.read_text()) for n in re.findall(r"^--([a-z0-9-]+)", span)}
        assert used <= known, path.name


def test_limits_page_is_what_the_binary_prints():
    if not g.BINARY.exists():
        pytest.skip(f"{g.BINARY} is not built")
    told = subprocess.run([g.BINARY, "config", "--limits"], capture_output=True, text=True, timeout=20, check=True).stdout
    assert page("limits-table.md") == told, "scripts/docs --tables"


def test_every_setting_that_begins_with_max_has_a_row_of_limits():
    """And every row that names a setting has one."""
    rows = set(re.findall(r"^SETTING\((\w+),", source("limits.def"), re.M))
    settings = set(re.findall(r"^X\(\w+, (\w+),", source("config.def"), re.M))
    no_limits = {"max_restarts"}
    assert {s for s in settings if s.startswith("max_")} - no_limits <= rows <= settings


# options of commands and scripts, and of other programs, that pages name
OTHERS = {"ca-file", "logs", "strict", "list", "key-file", "reconnect", "help", "build", "fast", "json", "check", "dump", "docs", "limits", "man", "out", "logprobs-mode",
          "max-logprobs", "return-sampling-mask", "enable-strict-thinking", "enable-lora", "return-sampling-mask-logprobs",
          "enable-return-indexer-topk", "pd-disaggregation", "continue", "title", "dangerously-bypass-approvals-and-sandbox"}


def test_links_lead_somewhere():
    for path in [g.ROOT / "README.md", g.ROOT / "ARCHITECTURE.md", *DOCS.rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", path.read_text()):
            assert (path.parent / target).exists(), f"{path.name}: {target}"


def c_folders():
    listed = subprocess.run(["git", "-C", g.ROOT, "ls-files", "*.c"], capture_output=True, text=True, check=True).stdout.split()
    return {str(Path(path).parent) for path in listed if not path.startswith("tests/unit/")}


def test_the_map_names_what_exists():
    """A path of the map leads to a file or folder, and no folder of C code is missing."""
    named = re.findall(r"`([\w./-]+)`", page("map.md"))
    paths = {name for name in named if "/" in name or name in c_folders() or (g.ROOT / name).exists()}
    assert {p for p in paths if not (g.ROOT / p).exists()} == set()
    assert len(paths) > 100 and c_folders() <= paths


def test_architecture_fits_on_two_pages():
    text = (g.ROOT / "ARCHITECTURE.md").read_text()
    assert len(text.split()) <= 1200
    paths = {p for p in re.findall(r"`?((?:worker|common|router|scripts|tests|docs)/[\w./*-]+)", text)}
    assert paths and {p for p in paths if not list(g.ROOT.glob(p.rstrip(".")))} == set()


def test_decisions_have_one_form():
    found = sorted((DOCS / "decisions").glob("*.md"))
    assert [path.name[:3] for path in found] == [f"{n:03}" for n in range(1, len(found) + 1)]
    for path in found:
        text = path.read_text()
        assert re.match(rf"# {path.name[:3]}: .+\n\n\*\*Context\.\*\* ", text), path.name
        assert "**Decision.** " in text and ("**Consequences.** " in text or "**What would change it.** " in text), path.name


def test_readme_is_short():
    assert len((g.ROOT / "README.md").read_text().split("\n")) <= 81

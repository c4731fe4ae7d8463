"""docs/agents.md: its blocks run as they are written, and its settings and versions are those of the tests with real
clients."""
import json
import re
from types import SimpleNamespace

import pytest

import gateway as g
from page_kit import play_shell, read_blocks
from test_clients import CLIENTS, NODE, install_packages
from test_coding_agents import BIN, claude, codex, installed, opencode

PAGE = g.ROOT / "docs/agents.md"
AGENTS_RUN = {"claude": claude, "codex": codex, "opencode": opencode}


def read_section(title):
    found = re.search(rf"^## \d+\. {title}$(.*?)(?=^## |\Z)", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    assert found, title
    return found[1]


def finalize_session(gateway):
    """The export of the one session that the page made."""
    row, = gateway.request("GET", "/sessions").json()["sessions"]
    return gateway.request("POST", f"/sessions/{row['session_id']}/finalize", {"format": "json"}).json()


def test_curl_blocks_run_as_written(start, tmp_path):
    gateway = start(workers=1)
    play_shell(read_blocks(PAGE, "setup") + read_blocks(PAGE, "curl"), tmp_path, gateway.port)
    assert finalize_session(gateway)["summary"]["calls"] == 3


@pytest.mark.parametrize("mark", ["openai", "anthropic"])
def test_js_blocks_run_as_written(start, tmp_path, mark):
    install_packages()
    gateway = start(workers=1)
    (code, expected), = read_blocks(PAGE, mark)
    (tmp_path / "node_modules").symlink_to(CLIENTS / "node_modules")
    (tmp_path / "block.mjs").write_text(code, encoding="utf-8")
    run = [[f"{NODE} {tmp_path}/block.mjs\n", expected]]
    play_shell(read_blocks(PAGE, "setup") + run, tmp_path, gateway.port)
    assert finalize_session(gateway)["summary"]["calls"] == 1


@pytest.mark.parametrize("program", list(AGENTS_RUN))
def test_agent_blocks_run_as_written(start, tmp_path, program):
    installed(program)
    gateway = start(workers=1)
    play_shell(read_blocks(PAGE, "setup") + read_blocks(PAGE, program), tmp_path, gateway.port, BIN)
    export = finalize_session(gateway)
    assert export["summary"]["calls"] >= 1 and export["trajectories"][0]["turns"][0]["trained"]


@pytest.mark.parametrize("program,title", [("claude", "Claude Code"), ("codex", "Codex"), ("opencode", "OpenCode")])
def test_settings_are_those_of_the_tests(program, title):
    """Names of variables, options and keys of the tests' configuration are all in the page's block."""
    written = {}
    place = SimpleNamespace(base="BASE/v1", root="BASE", write=lambda name, text: written.update({name: text}) or name)
    env, first, again = AGENTS_RUN[program](place, "openai-compatible" if program == "opencode" else "")
    (block, _), = read_blocks(PAGE, program)
    section = read_section(title)
    names = set(env) - {"RG_KEY"}       # a name that the test chose
    names |= {word for word in first if word.startswith("-")}
    for text in written.values():
        names |= set(re.findall(r"^(\w+) = ", text, re.M) if isinstance(text, str) else re.findall(r'"(\w+)":', json.dumps(text)))
    missing = [n for n in names - {"rg", "m"} if n not in block]
    assert not missing
    for word in again:
        if word.startswith("--") or word == "resume":
            assert word in section, word


def test_versions_are_those_of_the_tests():
    rows = dict(re.findall(r"^\| [^|]+ \| `([^`]+)` \| ([\d.]+) \|$", read_section("Tested versions"), re.M))
    known = {}
    for folder in (CLIENTS, CLIENTS / "agents"):
        known |= json.loads((folder / "package.json").read_text(encoding="utf-8"))["dependencies"]
    assert len(rows) >= 10
    assert rows == {name: known[name] for name in rows}


def test_python_examples_match_the_javascript_ones():
    """No test has the Python SDKs: their examples at least compile, and use the same addresses and retries."""
    examples = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    assert len(examples) == 2
    for code, mark in zip(examples, ("openai", "anthropic")):
        compile(code, mark, "exec")
        (js, _), = read_blocks(PAGE, mark)
        assert set(re.findall(r"[A-Z]{2,}_URL|KEY|\b\d+\b", code)) == set(re.findall(r"[A-Z]{2,}_URL|KEY|\b\d+\b", js))

"""The first pages work as written: README's session, and each command of docs/quickstart.md with its output."""
import os
import re
import subprocess
import tempfile
from pathlib import Path

import pytest

import gateway as g
from page_kit import output_matches, play_shell, read_blocks

README = g.ROOT / "README.md"
QUICKSTART = g.ROOT / "docs/quickstart.md"


@pytest.mark.alone
def test_quickstart_runs_as_written():
    if not g.BINARY.exists():
        pytest.skip(f"{g.BINARY} is not built")
    blocks = read_blocks(QUICKSTART, "run")
    assert len(blocks) >= 9
    with tempfile.TemporaryDirectory(prefix="rg-") as home:      # tmp_path may be too long for the paths of unix sockets
        play_shell(blocks, Path(home), g.free_port())
        log = (Path(home) / "rollgate.log").read_text(encoding="utf-8")
    assert " serving " in log and " error " not in log, log


def test_quickstart_marks_every_command():
    fences = re.findall(r"^```(?=\w)(.*)$", QUICKSTART.read_text(encoding="utf-8"), re.M)
    assert set(fences) == {"sh run", "text output"}


def test_readme_session_runs_as_written(start):
    gateway = start(workers=1)
    code, = re.findall(r"^```python\n(.*?)^```$", README.read_text(encoding="utf-8"), re.M | re.S)
    done = subprocess.run(["/usr/bin/python3", "-c", code.replace("127.0.0.1:8600", f"127.0.0.1:{gateway.port}")], timeout=60,
                          env=dict(os.environ, PYTHONPATH=str(g.ROOT / "python")), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "56 tokens, 19 trained, reward 1.0\n"


def test_readme_links_every_page():
    text = README.read_text(encoding="utf-8")
    missing = [p.name for p in (g.ROOT / "docs").glob("*.md") if f"(docs/{p.name})" not in text]
    assert not missing


@pytest.mark.parametrize("expected,output,same", [
    ("a\n", "a\n", True), ("a\n", "b\n", False), ("a\n", "a\nb\n", False), ("a ... c\n", "a b c", True),
    ("a...c\n", "a\nc\n", False), ("a\n...\nc\n", "a\nb\nb\nc\n", True), ("a\n...\nc\n", "a\nb\n", False)])
def test_outputs_are_compared_line_by_line(expected, output, same):
    assert output_matches(expected, output) == same

"""docs/quickstart.md works as it is written: each command, with its output."""
import re

import pytest

import gateway as g
from page_kit import output_matches, play_shell, read_blocks

QUICKSTART = g.ROOT / "docs/quickstart.md"


def test_quickstart_runs_as_written(tmp_path):
    if not g.BINARY.exists():
        pytest.skip(f"{g.BINARY} is not built")
    blocks = read_blocks(QUICKSTART, "run")
    assert len(blocks) >= 9
    play_shell(blocks, tmp_path, g.free_port())
    log = (tmp_path / "rollgate.log").read_text(encoding="utf-8")
    assert " serving " in log and " error " not in log, log


def test_quickstart_marks_every_command():
    fences = re.findall(r"^```(?=\w)(.*)$", QUICKSTART.read_text(encoding="utf-8"), re.M)
    assert set(fences) == {"sh run", "text output"}


@pytest.mark.parametrize("expected,output,same", [
    ("a\n", "a\n", True), ("a\n", "b\n", False), ("a\n", "a\nb\n", False), ("a ... c\n", "a b c", True),
    ("a...c\n", "a\nc\n", False), ("a\n...\nc\n", "a\nb\nb\nc\n", True), ("a\n...\nc\n", "a\nb\n", False)])
def test_outputs_are_compared_line_by_line(expected, output, same):
    assert output_matches(expected, output) == same

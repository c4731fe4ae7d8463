"""Runs marked code blocks of pages in docs/. A fence's info string is LANGUAGE MARK. `sh run` blocks run in the
page's shell, in order. A `text output` block directly after one is its output: `...` is any text within a line, and a
line `...` any lines."""
import os
import re
import subprocess

import gateway as g

FENCE = re.compile(r"^```(\w+)(?: (\w+))?\n(.*?)^```$", re.M | re.S)


def read_blocks(path, mark):
    """Returns the blocks of one mark in order: [text, expected output or None]."""
    found, page = [], path.read_text(encoding="utf-8")
    end = None      # end of the last block, if it had the mark
    for block in FENCE.finditer(page):
        if block[2] == "output" and end is not None and not page[end:block.start()].strip():
            found[-1][1] = block[3]
        end = block.end() if block[2] == mark else None
        if end is not None:
            found.append([block[3], None])
    assert found, f"{path.name} has no block marked {mark}"
    return found


def output_matches(expected, output):
    lines = ["(?:.*\n)*" if line == "..." else re.escape(line).replace(r"\.\.\.", ".*") + "\n"
             for line in expected.rstrip("\n").split("\n")]
    return re.fullmatch("".join(lines), output.strip("\n") + "\n") is not None


def play_shell(blocks, home, port, programs="/usr/bin"):
    """Runs shell blocks in one bash in the checkout, as a reader would. Home, port, build and a folder of programs
    are the test's own. Each block must end with status 0 and print what the page says."""
    script = ["trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT"]
    for number, (text, _) in enumerate(blocks):
        script += [text, f'printf "\\n@@{number} %d\\n" $?']
    text = "\n".join(script).replace("127.0.0.1:8600", f"127.0.0.1:{port}").replace("$PWD/build/release", str(g.BUILD))
    surroundings = {k: v for k, v in os.environ.items() if not k.startswith(("ROLLGATE_", "XDG_", "STATE_"))}
    surroundings.update(HOME=str(home), PATH=f"{programs}:/usr/bin:{os.environ['PATH']}", ROLLGATE_LISTEN=f"127.0.0.1:{port}")
    done = subprocess.run(["bash", "-uc", text], cwd=g.ROOT, env=surroundings, capture_output=True, text=True, timeout=240,
                          stdin=subprocess.DEVNULL)
    ends = re.split(r"\n@@(\d+) (\d+)\n", done.stdout)
    assert len(ends) == 3 * len(blocks) + 1, done.stdout[-2000:] + done.stderr[-2000:]
    for number, (text, expected) in enumerate(blocks):
        output, status = ends[3 * number], ends[3 * number + 2]
        assert status == "0", f"{text}status {status}\n{output}{done.stderr[-2000:]}"
        if expected is not None:
            expected = expected.replace("127.0.0.1:8600", f"127.0.0.1:{port}")
            assert output_matches(expected, output), f"{text}\nexpected:\n{expected}\noutput:\n{output}"
    return done

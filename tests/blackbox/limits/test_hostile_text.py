"""Foreign names and texts with control characters have no effect in the page of top or in log lines."""
import json
import re
import subprocess

import gateway as g

LINE = "2030-01-01T00:00:00.000Z error worker 1 forged"
HOSTILE = f"a\n{LINE}\x1b[2J\x1b]0;owned\x07\r\x7f\u009b31m\u202e"
CONTROLS = re.compile("[\x00-\x09\x0b-\x1f\x7f\x80-\x9f]")


def test_top_shows_names_without_control_characters(start):
    gateway = start(engine="builtin:echo", workers=1)
    assert gateway.post("/groups", {"id": "g", "runner": "r", "n": 1}).status == 201
    claimed = gateway.post("/attempts/claim", {"executor": HOSTILE[:60], "slots": {"r": 1}, "wait_s": 5})
    assert claimed.status == 200 and len(claimed.json()["attempts"]) == 1, claimed.text
    top = [str(g.BINARY), "top", "--once", f"--listen=127.0.0.1:{gateway.port}"]
    page = subprocess.run(top, capture_output=True, timeout=30, check=True).stdout.decode()
    assert "forged" in page, "the executor is shown"
    assert not CONTROLS.search(page), repr(page)
    assert not any(line.startswith(LINE[:10]) for line in page.split("\n")), page


def provoke(gateway):
    """Whatever of a request may come into a log line."""
    session = gateway.post("/sessions", {"labels": {"name": HOSTILE}}).json()
    for more in ({HOSTILE: 1}, {"model": HOSTILE}, {"tools": [{"type": HOSTILE}]},
                 {"messages": [{"role": HOSTILE, "content": "x"}]}):
        gateway.chat(session, "hello", **more)
    path = f"/sessions/{session['session_id']}"
    gateway.post(f"{path}/reward_info", {"reward_info": {HOSTILE: HOSTILE}})
    gateway.get("/sessions/%0a2030%1b[2J/trajectories")
    gateway.get(f"{path}/%0a2030%1b[2J")
    gateway.request("GET", "/sessions", headers={"X-Request-Id": "\x1b[2J"})


def test_log_lines_are_whole_whatever_they_tell(start):
    gateway = start(engine="builtin:echo", workers=1, log_level="debug")
    provoke(gateway)
    log = gateway.log()
    assert "forged" in log, "a name that has no effect is told"
    assert not CONTROLS.search(log), repr(CONTROLS.search(log))
    assert all(re.match(r"20\d\d-\d\d-\d\dT\S+Z [a-z]+ ", line) for line in log.splitlines() if line)
    assert not any(line.startswith(LINE[:10]) for line in log.split("\n"))


def test_json_log_lines_are_whole_whatever_they_tell():
    gateway = g.Gateway(engine="builtin:echo", workers=1, log_level="debug", log_format="json")
    gateway.start(wait=False)
    g.wait_until(lambda: '"serving"' in gateway.log(), what="it serves")
    provoke(gateway)
    assert "forged" in gateway.log()
    assert not CONTROLS.search(gateway.log())
    assert all({"level", "msg"} <= json.loads(line).keys() for line in gateway.log().split("\n") if line)

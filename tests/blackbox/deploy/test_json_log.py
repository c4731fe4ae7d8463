"""`--log-format json`: from the start on, every line of every process is one object with the documented keys."""
import json
import os
import re
import signal
import subprocess

import pytest

import gateway as g
from runner_kit import script

PAGE = (g.ROOT / "docs/operations.md").read_text()
# The table of the page: | `ts` | ... |
KEYS = set(re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (`[^|]*)\|", PAGE[PAGE.index("| key of a line |"):PAGE.index("## 7. Traces")], re.M))))
ALWAYS = {"ts", "level", "role", "pid", "msg", "fields"}


def parsed(text):
    """All lines; each has only documented keys."""
    lines = []
    for line in text.splitlines():
        entry = json.loads(line)
        assert ALWAYS <= entry.keys() <= KEYS, line
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", entry["ts"]), line
        assert entry["level"] in ("error", "warn", "info", "debug") and isinstance(entry["pid"], int), line
        assert all(isinstance(v, (str, int)) for v in entry["fields"].values()), line
        lines.append(entry)
    return lines


def test_the_page_lists_the_keys():
    assert KEYS == ALWAYS | {"session", "request", "suppressed"}


def test_a_busy_run_has_only_documented_keys(tmp_path):
    """Calls, errors, odd bytes, an executor with its attempts, a reload, deaths, and the end."""
    gateway = g.Gateway(workers=2, engine="builtin:echo", log_format="json", log_level="debug", log_rate=2)
    agent = script(gateway.folder, "agent", 'print(chat("x"), flush=True)')
    runners = f"{gateway.folder}/runners.yaml"
    with open(runners, "w") as f:
        json.dump({"runners": {"r": {"run": agent}}}, f)
    gateway.settings["runners"] = runners
    gateway.start(wait=False)
    gateway.wait_line('"serving"')
    gateway.family()
    gateway.wait_line('"executor runs"')
    session = gateway.post("/sessions").json()
    assert gateway.chat(session, "hello").status == 200
    g.wait_until(lambda: gateway.chat(session, "x", no_such_field=1) and '"suppressed"' in gateway.log(), what="lines are suppressed")
    odd = {"Rollgate-Request-Id": "ü\"\\ü", "Content-Type": "application/json"}
    path = f"/sessions/{session['session_id']}/v1/chat/completions"
    for body in (b"{\"model\": \"m\xff\xfe\"", json.dumps({"model": "\ud800", "messages": [{"role": "x\u0001"}], "odd\n\"": 1}).encode()):
        assert gateway.request("POST", path, body, headers={k: v.encode() for k, v in odd.items()}).status == 400
    assert gateway.post("/groups", {"runner": "r", "reward": "external", "input": None, "id": "g"}).status == 201
    gateway.wait_line('"attempt ended"|"the attempt ended"|attempt.*end')
    victim, = [p for p in gateway.family() if open(f"/proc/{p}/cmdline").read().startswith("rollgate: worker 0")]
    os.kill(victim, signal.SIGKILL)
    gateway.wait_line('"process died"')
    gateway.signal(signal.SIGHUP)
    gateway.wait_line("configuration reloaded")
    assert gateway.stop(60) == 0
    lines = parsed(gateway.log())
    assert {"supervisor", "worker-0", "worker-1", "runner"} <= {x["role"] for x in lines}
    assert any("suppressed" in x for x in lines) and any("session" in x for x in lines) and any("request" in x for x in lines)


def test_bytes_that_are_no_text_are_replaced():
    """A header is passed on as it came: bytes of Latin-1 are no UTF-8."""
    gateway = g.Gateway(workers=1, engine="builtin:echo", log_format="json", log_level="debug")
    gateway.start(wait=False)
    gateway.wait_line('"serving"')
    with gateway_socket(gateway) as s:
        s.sendall(b"GET /caf\xe9\xff/\xed\xa0\x80 HTTP/1.1\r\nHost: 127.0.0.1\r\nRollgate-Request-Id: caf\xe9\r\n"
                  b"X-Session-Id: \xf0\x9f\r\nConnection: close\r\n\r\n")
        while s.recv(65536):
            pass
    gateway.stop()
    assert parsed(gateway.log())
    gateway.log_path and open(gateway.log_path, "rb").read().decode("utf-8")     # as a whole, without errors


def gateway_socket(gateway):
    import socket
    return socket.create_connection(("127.0.0.1", gateway.port), 20)


@pytest.mark.parametrize("command, more", [("serve", ["--modell=x", "--workers=many", "--engine=bar:baz"]), ("serve", ["--config=/no/such"]),
                                           ("serve", ["--listen=192.0.2.1:1"]), ("route", []), ("runner", ["--grace=x"]),
                                           ("runner", ["--runners=/no/such"])])
def test_a_start_that_fails_speaks_json_too(tmp_path, command, more):
    state = [f"--state-dir={tmp_path}/s"] if command != "runner" else []
    done = subprocess.run([g.BINARY, command, "--log-format=json", *state, *more], text=True, capture_output=True, check=False, timeout=60)
    assert done.returncode in (1, 2) and done.stdout == ""
    lines = parsed(done.stderr)
    assert any(x["level"] == "error" and "reason" in x["fields"] for x in lines)
    if "--modell=x" in more:
        assert len(lines) == 3 and all(x["msg"] == "a setting is wrong" for x in lines)

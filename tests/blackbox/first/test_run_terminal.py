"""The run in a terminal: `rollgate session show` and `watch`."""
import json
import subprocess

import pytest

import gateway as g
from test_stats import episode, report, run, sampled, turns_of  # noqa: F401

def test_a_session_is_shown_with_its_tokens(sampled):
    gateway, sid, t = sampled
    assert report(gateway, sid, turns_of(t, [-0.25, -3.5, None])).status == 200
    at = ("--gateway", f"http://127.0.0.1:{gateway.port}")
    plain = run("session", "show", sid, *at)
    assert plain.returncode == 0, plain.stderr
    for text in (sid, "hello 0", "hello 1", "Hi", "drift", "version 7", "largest difference 3.0"):
        assert text in plain.stdout, plain.stdout
    assert "\x1b" not in plain.stdout  # no terminal
    coloured = run("session", "show", sid, "--color", *at).stdout
    assert "\x1b[" in coloured and "Hi" not in coloured  # each token has its own colour
    whole = json.loads(run("session", "show", sid, "--json", *at).stdout)
    assert whole["session"]["session_id"] == sid and len(whole["turns"]) == 2
    token = whole["turns"][0]["tokens"][1]
    assert (token["id"], token["text"], token["logprob"], token["trainer_logprob"]) == (105, "i", -0.5, -3.5)
    assert f"branch   the newest of 1, ends with answer {whole['turns'][-1]['response_id']}\ndrift " in plain.stdout
    empty = gateway.post("/sessions", {}).json()["session_id"]
    assert "branch   no answer yet" in run("session", "show", empty, *at).stdout
    missing = run("session", "show", "w0-00112233445566778899aabbccddeeff", *at)
    assert missing.returncode == 1 and "no such session" in missing.stderr
    assert run("session", "show").returncode == 2 and run("session", "list", sid).returncode == 2


@pytest.mark.parametrize("as_json", [False, True])
def test_watch_prints_events_as_lines(start, as_json):
    gateway = start(workers=1, engine="builtin:echo")
    more = ["--json"] if as_json else []
    with subprocess.Popen([str(g.BINARY), "watch", *more, "--gateway", f"http://127.0.0.1:{gateway.port}"],
                          stdout=subprocess.PIPE, text=True) as watch:
        first = watch.stdout.readline()
        sid = episode(gateway, end=None)
        lines = [first]
        while not any(sid in line and ("1 turns" in line or '"turns":1' in line) for line in lines):
            lines.append(watch.stdout.readline())
            assert lines[-1], "the stream ended"
        watch.terminate()
    if as_json:
        events = [json.loads(line) for line in lines]
        assert events[0]["event"] == "hello" and events[-1]["event"] == "session" and events[-1]["data"]["session_id"] == sid
    else:
        assert any(line.split()[1:3] == ["session", sid] for line in lines), lines

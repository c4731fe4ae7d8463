"""`rollgate group`: a trainer's calls by hand."""
import json
import subprocess

import gateway as g
import pytest
from runner_kit import Runner, script


def group(gateway, *words, stdin=None, status=0):
    done = subprocess.run([str(g.BINARY), "group", *words, "--gateway", gateway.url], input=stdin, capture_output=True,
                          text=True, timeout=60, check=False)
    assert done.returncode == status, (done.returncode, done.stdout, done.stderr)
    return done.stdout if status == 0 else done.stderr


def test_submit_wait_show_list_cancel(start, tmp_path):
    gateway = start(engine="builtin:echo", workers=1)
    body = tmp_path / "groups.json"
    body.write_text(json.dumps({"defaults": {"runner": "r", "n": 2}, "groups": [{"id": "a", "input": 1}, {"id": "b", "input": 2}]}))
    assert group(gateway, "submit", str(body)) == "a\nb\n"
    assert group(gateway, "submit", "-", stdin='{"id": "c", "runner": "nobody", "input": 3}') == "c\n"
    with Runner(gateway, {"r": {"run": script(gateway.folder, "agent", 'chat("x")'), "slots": 4,
                                "score": ["echo", "0.5"]}}):
        for name in "ab":
            lines = group(gateway, "wait", name).splitlines()
            assert lines[1].split() == [name, "finished", "train", "r", "2", "of", "2"]
            assert [line.split()[:5] for line in lines[4:6]] == [[str(k), "succeeded", "ok", "1", "0.5"] for k in range(2)]
    shown = json.loads(group(gateway, "show", "a", "--json"))
    assert shown == gateway.get("/groups/a").json()
    assert [line.split()[:2] for line in group(gateway, "list").splitlines()[1:]] == [
        ["a", "finished"], ["b", "finished"], ["c", "waiting"]]
    assert len(group(gateway, "list", "state=waiting").splitlines()) == 2
    assert "cursor=" in group(gateway, "list", "limit=1")
    assert json.loads(group(gateway, "cancel", "c")) == {"cancelled": ["c"]}
    assert gateway.get("/groups/c").status == 404


def test_show_prints_logs_and_why_a_group_waits(start):
    gateway = start(engine="builtin:echo", workers=1)
    group(gateway, "submit", "-", stdin='{"id": "w", "runner": "nobody", "input": 3}')
    assert '\nwaits: no executor offers runner "nobody"' in group(gateway, "show", "w")
    group(gateway, "submit", "-", stdin='{"id": "l", "runner": "r", "n": 2, "input": 3, "attempts": 1}')
    with Runner(gateway, {"r": {"run": script(gateway.folder, "agent", 'print("first line"); print("the last line"); sys.exit(3)'),
                                "slots": 2}}) as runner:
        g.wait_until(lambda: gateway.get("/groups/l").json()["state"] == "failed", what="both rollouts have failed")
        shown = group(gateway, "show", "l")
    for k in range(2):
        assert f"\nrollout {k} log: {runner.folder}/logs/l/{k}.1.log\n    the last line\n" in shown, shown
    assert "waits:" not in shown


def test_what_goes_wrong_is_said(start, tmp_path):
    gateway = start(engine="builtin:echo", workers=1)
    assert "group" in group(gateway, "show", "zzz", status=1)
    assert "runner" in group(gateway, "submit", "-", stdin='{"id": "c", "input": 3}', status=1)
    assert "No such file" in group(gateway, "submit", str(tmp_path / "none"), status=1)
    assert "no group's id" in group(gateway, "show", "a/b", status=2)
    assert "no query" in group(gateway, "list", "a b", status=2)
    for words in ([], ["show"], ["shew", "a"], ["list", "a", "b"], ["show", "--bad", "a"]):
        assert "usage:" in group(gateway, *words, status=2)
    done = subprocess.run([str(g.BINARY), "group", "list", "--gateway", f"http://127.0.0.1:{g.free_port()}"],
                          capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 1 and "rollgate group: " in done.stderr


def test_wait_returns_another_exit_status_for_each_end(start):
    gateway = start(engine="builtin:echo", workers=1)
    once = f"os.mkdir({gateway.folder + '/once'!r})\nchat('x')"     # the second one fails
    runs = {"finished": "chat('x')", "failed": "sys.exit(3)", "partial": once}
    with Runner(gateway, {name: {"run": script(gateway.folder, name, text), "slots": 4, "score": ["echo", "0.5"]}
                          for name, text in runs.items()}):
        for name, n, status in (("finished", 1, 0), ("failed", 1, 3), ("partial", 2, 5)):
            body = {"id": name, "runner": name, "attempts": 1, "input": 0, "n": n, "min": 1}
            assert gateway.post("/groups", body).status == 201
            done = subprocess.run([str(g.BINARY), "group", "wait", name, "--gateway", gateway.url], capture_output=True, text=True,
                                  timeout=60, check=False)
            assert done.returncode == status and f"{name} " in done.stdout, (done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize("deliver", [True, False])
def test_wait_says_why_and_that_it_was_cancelled(start, deliver):
    gateway = start(engine="builtin:echo", workers=1)
    said = subprocess.run([str(g.BINARY), "group", "submit", "-", "--gateway", gateway.url], text=True, capture_output=True, check=True,
                          input='{"id": "a", "runner": "nobody", "input": 1}', timeout=60)
    assert said.stdout == "a\n" and "warning: a waits: no executor offers runner" in said.stderr
    assert 'waits: no executor offers runner "nobody"' in group(gateway, "show", "a")
    child = subprocess.Popen([str(g.BINARY), "group", "wait", "a", "--gateway", gateway.url], text=True, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE)
    assert "waits: no executor offers runner" in child.stderr.readline()
    assert gateway.post("/groups/a/cancel", {"deliver": deliver}).status == 200
    out, err = child.communicate(timeout=60)
    assert child.returncode == 4 and "cancelled" in out + err, (child.returncode, out, err)

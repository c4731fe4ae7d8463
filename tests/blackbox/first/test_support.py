"""`rollgate support`: what it packs, and that it contains neither secrets nor agents' texts."""
import json
import os
import pathlib
import re
import stat
import subprocess
import tarfile

import gateway as g
from runner_kit import script

# Each stands where an agent, an operator or a trainer can write. None may be in the bundle.
SECRETS = {name: f"SECRET{name}{n:04d}xyz" for n, name in enumerate(
    ["admin", "enginekey", "sink", "otlppath", "environment", "keysecret"])}
AGENT = {name: f"AGENTSAID{name}{n:04d}" for n, name in enumerate(
    ["prompt", "model", "field", "tool", "label", "metadata", "log", "header", "session", "path", "input", "reward", "group", "runner", "queue"])}
FILES = {"versions.txt", "settings.yaml", "metrics.txt", "health.json", "engines.json", "journals.txt", "log.jsonl", "left-out.txt"}


def busy(tmp_path, form):
    """A gateway after calls that plant everything."""
    (tmp_path / "admins").write_text(SECRETS["admin"] + "\n")
    (tmp_path / "secret").write_text(SECRETS["keysecret"] * 3 + "\n")
    (tmp_path / "engine-key").write_text(SECRETS["enginekey"] + "\n")
    (tmp_path / "sink-password").write_text(SECRETS["sink"] + "\n")
    gateway = g.Gateway(
        workers=1, log_level="debug", log_format=form, admin_key_file=tmp_path / "admins", key_secret_file=tmp_path / "secret",
        engine=["builtin:echo", f"judge=vllm:http://127.0.0.1:1,key-file={tmp_path}/engine-key"],
        sink=f"redis://127.0.0.1:1?password_file={tmp_path}/sink-password",
        otlp_endpoint=f"http://127.0.0.1:1/v1/{SECRETS['otlppath']}",
        env={"SOME_TOKEN": SECRETS["environment"]})
    agent = script(gateway.folder, "agent", f'print("{AGENT["log"]}", flush=True)\nraise SystemExit(3)')
    runners = f"{gateway.folder}/runners.yaml"
    with open(runners, "w") as f:
        json.dump({"runners": {AGENT["runner"]: {"run": agent}}}, f)
    gateway.settings["runners"] = runners
    gateway.start(wait=False)
    gateway.wait_line(r"\bserving\b")
    gateway.family()
    admin = {"Authorization": "Bearer " + SECRETS["admin"], "Rollgate-Request-Id": AGENT["header"]}
    made = gateway.post("/sessions", {"labels": {AGENT["label"]: AGENT["label"]}, "metadata": {"m": AGENT["metadata"]}}, headers=admin).json()
    own = {"Authorization": "Bearer " + made["api_key"], "Rollgate-Request-Id": AGENT["header"]}
    path = f"/sessions/{made['session_id']}/v1/chat/completions"
    says = [{"role": "user", "content": AGENT["prompt"]}]
    assert gateway.post(path, {"model": AGENT["model"], "messages": says}, headers=own).status in (200, 404)
    assert gateway.post(path, {"model": "policy", "messages": says, AGENT["field"]: 1}, headers=own).status == 200
    gateway.post(path, {"model": "policy", "messages": [{"role": AGENT["field"]}]}, headers=own)
    gateway.post(path, {"model": "policy", "messages": says, "tools": [{"type": "function", "function": {"name": AGENT["tool"] + "\n"}}]}, headers=own)
    gateway.post(f"/sessions/{AGENT['session']}/v1/chat/completions", {"model": "policy", "messages": says}, headers=admin)
    gateway.get(f"/{AGENT['path']}?{AGENT['path']}=1", headers=own)
    gateway.post(f"/sessions/{made['session_id']}/reward_info", {"reward_info": {"reward": 1, AGENT["reward"]: 2}}, headers=admin)
    group = {"id": AGENT["group"], "runner": AGENT["runner"], "queue": AGENT["queue"], "reward": "external", "input": AGENT["input"], "labels": {"l": AGENT["label"]},
             "attempts": 1}
    answer = gateway.post("/groups", group, headers=admin)
    assert answer.status == 201, answer.text
    logs = pathlib.Path(gateway.folder, "state/runner-logs")
    g.wait_until(lambda: any(AGENT["log"] in p.read_text() for p in logs.rglob("*") if p.is_file()), what="the run has written its log")
    gateway.wait_line("attempt")
    return gateway, made


def support(gateway, where, *more):
    settings = gateway.arguments()[2:]
    done = subprocess.run([g.BINARY, "support", where, f"--log={gateway.log_path}", *more, *settings], text=True, capture_output=True,
                          check=False, timeout=120, env=gateway.env)
    assert done.returncode == 0, done.stderr
    return done.stdout


def assert_clean(files, made):
    for name, text in files.items():
        for kind, planted in [*SECRETS.items(), *AGENT.items(), ("key", made["api_key"][-40:]), ("key", made["runner_key"][-40:])]:
            assert planted not in text and planted[:16] not in text, (name, kind)


def test_the_bundle_has_no_secret_and_no_word_of_an_agent(tmp_path):
    for form in ("text", "json"):
        gateway, made = busy(tmp_path, form)
        planted = sum(AGENT[name] in gateway.log() for name in AGENT)
        assert planted >= 3, "the log itself has agents' words: the test plants them where they can leak"
        folder = tmp_path / f"bundle-{form}"
        support(gateway, folder)
        files = {p.name: p.read_text() for p in folder.iterdir()}
        assert files.keys() == FILES
        assert_clean(files, made)
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert {stat.S_IMODE(p.stat().st_mode) for p in folder.iterdir()} == {0o600}
        check_content(files, gateway, made)
        gateway.stop()


def check_content(files, gateway, made):
    """It is of use: figures, settings, and the gateway's lines."""
    assert "rollgate 0." in files["versions.txt"] and "kernel " in files["versions.txt"]
    assert f"listen: \"127.0.0.1:{gateway.port}\"" in files["settings.yaml"] and "engine-key" in files["settings.yaml"]
    assert "rollgate_sessions_created_total" in files["metrics.txt"]
    assert json.loads(files["health.json"])["workers"]["total"] == 1
    assert [e["kind"] for e in json.loads(files["engines.json"])["engines"]] == ["builtin", "vllm"]
    lines = [json.loads(line) for line in files["log.jsonl"].splitlines()]
    assert len(lines) > 10 and any(x["msg"] == "serving" and x["fields"]["listen"] == f"127.0.0.1:{gateway.port}" for x in lines)
    assert any(x["fields"].get("session") == made["session_id"] for x in lines), "ids of the gateway stay"
    assert any("(removed)" in x["fields"].values() for x in lines)
    assert "worker-0: " in files["journals.txt"] and "records of" in files["journals.txt"] and "dispatcher: " in files["journals.txt"]


def test_a_tar_file_without_a_gateway(tmp_path):
    gateway = g.Gateway(workers=1)
    with open(gateway.log_path, "w") as f:
        f.write("Traceback of a program that is not the gateway\n<6>2026-01-02T03:04:05.678Z info supervisor 7 serving listen=1.2.3.4:5\n")
    where = tmp_path / "support.tar"
    told = support(gateway, where)
    with tarfile.open(where) as tar:
        files = {pathlib.PurePath(m.name).name: tar.extractfile(m).read().decode() for m in tar.getmembers()}
        assert all(m.mode == 0o600 for m in tar.getmembers())
    assert files.keys() == FILES - {"metrics.txt", "health.json", "engines.json"}
    assert json.loads(files["log.jsonl"]) == {"ts": "2026-01-02T03:04:05.678Z", "level": "info", "role": "supervisor", "pid": 7,
                                              "msg": "serving", "fields": {"listen": "1.2.3.4:5"}}
    assert re.search("metrics.txt: no answer from http://.*: cannot connect", files["left-out.txt"]) and "1 lines that are not of the gateway's log" in files["left-out.txt"]
    assert files["left-out.txt"] in told
    again = subprocess.run([g.BINARY, "support", where], text=True, capture_output=True, check=False, timeout=60)
    assert again.returncode == 1 and "File exists" in again.stderr, "nothing is overwritten"
    assert subprocess.run([g.BINARY, "support"], capture_output=True, check=False, timeout=60).returncode == 2
    assert os.stat(where).st_mode & 0o777 == 0o600

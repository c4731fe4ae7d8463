"""Paths in settings: relative ones, those within other values, and too long ones, in flags, YAML and the
environment."""
import os
import subprocess
import tempfile
from pathlib import Path

import gateway as g
import pytest
from rollouts_kit import Executor, solve
from runner_kit import script


@pytest.fixture
def folder():
    """One with a short path: unix sockets are below it."""
    with tempfile.TemporaryDirectory(prefix="rgp") as name:
        yield Path(name)


def run_group(gateway, runner="r"):
    assert gateway.post("/groups", {"id": "a", "runner": runner, "input": 1}).status == 201
    return gateway.get("/groups/a/wait?timeout_s=60", timeout=90).json()


def begin(how, folder, **settings):
    """A gateway with a relative state folder, started in `folder`."""
    gateway = g.Gateway(engine="builtin:echo", workers=1, **settings)
    state = gateway.settings.pop("state-dir")
    assert state
    if how == "flag":
        gateway.settings["state-dir"] = "./s"
    elif how == "yaml":
        with open(f"{folder}/c.yaml", "w", encoding="utf-8") as f:
            f.write("state-dir: ./s\n")
        gateway.settings["config"] = "c.yaml"
    elif how == "environment":
        gateway.env["ROLLGATE_STATE_DIR"] = f"../{folder.name}/s"
    else:
        gateway.settings.update({"state-dir": f"{folder}/s", "run-dir": "run"})
    return gateway.start(cwd=folder)


@pytest.mark.parametrize("how", ["flag", "yaml", "environment", "run-dir"])
def test_rollouts_run_with_a_relative_state_folder(how, folder):
    gateway = begin(how, folder)
    with Executor(gateway, "x", {"r": 1}, {"r": solve()}):
        assert run_group(gateway)["state"] == "finished"
    assert (folder / "s").is_dir() and gateway.get("/ready").status == 200


def test_an_executor_of_a_gateway_with_relative_paths(folder):
    """A run works in a folder of its own: what it is given is absolute."""
    agent = script(str(folder), "agent", 'json.load(open(os.environ["ROLLGATE_INPUT"]))\nchat("x")')
    (folder / "runners.yaml").write_text(f"runners: {{r: {{run: {agent}, score: [echo, '1']}}}}\n", encoding="utf-8")
    gateway = begin("flag", folder, runners="runners.yaml")
    group = run_group(gateway)
    assert group["state"] == "finished", group
    assert group["members"][0]["log"].startswith(str(folder)), group["members"][0]["log"]


def test_sinks_keys_and_scripts_by_relative_paths(folder):
    (folder / "admin").write_text("an-admin-key-of-some-length\n")
    (folder / "admin").chmod(0o600)
    gateway = begin("flag", folder, admin_key_file="admin", sink="file:out")
    session = gateway.post("/sessions", {}, headers={"Authorization": "Bearer an-admin-key-of-some-length"})
    assert session.status == 200
    assert (folder / "out").is_dir()


def test_the_settings_show_absolute_paths(tmp_path):
    done = subprocess.run([str(g.BINARY), "config", "--dump", "--state-dir=./s", "--sink=file:o", "--engine=vllm:http://h:1,key-file=k"],
                          cwd=tmp_path, capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 0, done.stderr
    for line in (f'state-dir: "{tmp_path}/s"', f'run-dir: "{tmp_path}/s/run"', f'sink: ["file:{tmp_path}/o"]',
                 f'engine: ["vllm:http://h:1,key-file={tmp_path}/k"]'):
        assert line in done.stdout, done.stdout


def check(folder, *flags):
    done = subprocess.run([str(g.BINARY), "config", "--check", *flags], cwd=folder, capture_output=True, text=True, timeout=60,
                          check=False)
    return done.returncode, done.stderr


def test_paths_that_only_a_shell_expands_are_mistakes(tmp_path):
    status, said = check(tmp_path, "--state-dir=~/rollgate", "--sink=file:$HOME/out")
    assert status == 2 and "--state-dir: \"~/rollgate\" begins with '~'" in said and "--sink: \"$HOME/out\"" in said, said
    assert os.listdir(tmp_path) == []
    done = subprocess.run([str(g.BINARY), "runner", "--runners=x", "--logs=~/logs"], capture_output=True, text=True, timeout=20,
                          check=False)
    assert done.returncode == 2 and "--logs: \"~/logs\" begins with '~'" in done.stderr, done.stderr


def test_a_folder_too_deep_for_unix_sockets_is_a_mistake(tmp_path):
    """Also where a relative path becomes too long, and where only more workers or an upgrade would fail."""
    status, said = check("/tmp", "--state-dir=" + "/tmp/" + "d" * 100)
    assert status == 2 and "--run-dir" in said and "unix sockets" in said and "shorter" in said, said
    deep = tmp_path
    while len(str(deep)) < 90:
        deep = deep / "dddddddd"
    deep.mkdir(parents=True)
    status, said = check(deep, "--state-dir=s")
    assert status == 2 and "--run-dir" in said, said
    assert check(deep, "--state-dir=s", "--run-dir=/tmp/rg-short-run")[0] == 0
    longest = "/tmp/" + "d" * (107 - len("/t/worker-255.sock") - len("/tmp/"))
    assert check("/tmp", f"--state-dir={deep}", f"--run-dir={longest}")[0] == 0
    assert check("/tmp", f"--state-dir={deep}", f"--run-dir={longest}d")[0] == 2
    status, said = check("/tmp", "--sink=redis:unix:/tmp/" + "d" * 120)
    assert status == 2 and "107" in said, said


def test_a_runner_names_its_program_by_a_full_path(tmp_path):
    """Runs begin in an empty folder: a relative program would never start."""
    for word in ("./agent.sh", "bin/agent", "~/agent", "$HOME/agent"):
        (tmp_path / "r.yaml").write_text(f'runners: {{a: {{run: ["{word}"]}}, b: {{run: [true], score: ["{word}"]}}}}')
        done = subprocess.run([str(g.BINARY), "runner", f"--runners={tmp_path}/r.yaml"], capture_output=True, text=True,
                              timeout=20, check=False)
        assert done.returncode == 2 and "a.run: must begin with a program: an absolute path" in done.stderr, done.stderr
        assert "b.score: must begin with a program: an absolute path" in done.stderr, done.stderr

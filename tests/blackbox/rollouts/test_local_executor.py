"""`serve --runners FILE`: the gateway starts `rollgate runner` itself, for a single machine (docs/rollouts.md, section 4)."""
import json
import os
import re
import signal
import subprocess
import time

import pytest

import gateway as g
from rollouts_kit import take_all
from runner_kit import processes_with, script


def write(path, runners):
    with open(f"{path}.new", "w") as f:
        json.dump({"runners": runners}, f)
    os.rename(f"{path}.new", path)


def prepared(runners=None, **settings):
    """A gateway that is not started yet, and its runner file."""
    gateway = g.Gateway(**{"engine": "builtin:echo", "workers": 1, "attempt_lease": "2s", **settings})
    gateway.file = f"{gateway.folder}/runners.yaml"
    gateway.settings["runners"] = gateway.file
    write(gateway.file, runners or {"r": {"run": ["true"]}})
    return gateway


def executor(gateway):
    """The pid of the one that was started last."""
    return int(re.findall(r"executor started executor_pid=(\d+)", gateway.log())[-1])


def claims(gateway):
    gateway.wait_line("executor runs")
    return gateway


def submit(gateway, **group):
    answer = gateway.post("/groups", {"runner": "r", "reward": "external", "input": None, **group})
    assert answer.status == 201, answer.text


def settled(gateway, name):
    end = time.monotonic() + 150
    while True:
        answer = gateway.get(f"/groups/{name}/wait?timeout_s=20", timeout=40)
        if answer.status == 200:
            return answer.json()
        assert answer.status == 204 and time.monotonic() < end, gateway.get(f"/groups/{name}").text


def agent(gateway, name="agent", text='print(chat("x"), flush=True)'):
    return script(gateway.folder, name, text)


def test_it_runs_groups_and_is_replaced():
    """Killed, it leaves nothing behind; the next one goes on. At the end everything is gone."""
    word = f"local-{os.urandom(6).hex()}"
    gateway = prepared().allow("the executor ended, replacing it")
    run = agent(gateway, text=f"""
chat("x")
if not os.path.exists("{gateway.folder}/go"):
    time.sleep(600)
""")
    write(gateway.file, {"r": {"run": run + [word], "slots": 4}})
    claims(gateway.start())
    submit(gateway, id="g", n=4)
    g.wait_until(lambda: len(processes_with(word)) == 4, 30, "all run")
    first = executor(gateway)
    open(f"{gateway.folder}/go", "w").close()
    os.kill(first, signal.SIGKILL)
    group = settled(gateway, "g")
    assert group["state"] == "finished" and executor(gateway) != first
    assert all(m["attempts"] == 2 for m in group["members"])
    assert not processes_with(word)
    assert sum(v for k, v in gateway.metrics().items() if "process_restarts" in k and '"runner"' in k) == 1
    assert group["members"][0]["log"].startswith(f"{gateway.folder}/state/runner-logs/g/")


def test_it_has_a_key_that_nobody_sees(tmp_path):
    keys = tmp_path / "admin"
    keys.write_text("an-admin-key-of-this-test\n")
    gateway = prepared(admin_key_file=str(keys))
    run = agent(gateway, text=r"""
chat("x")
for name in ("environ", "cmdline"):
    for pid in ("self", str(os.getppid())):
        print(open(f"/proc/{pid}/{name}", "rb").read().replace(b"\0", b"\n").decode())
print([os.readlink(f"/proc/self/fd/{fd}") for fd in (0, 1, 2)], os.listdir("/proc/self/fd"))
""")
    write(gateway.file, {"r": {"run": run}})
    claims(gateway.start())
    admin = {"Authorization": "Bearer an-admin-key-of-this-test"}
    body = {"id": "g", "runner": "r", "reward": "external", "input": None}
    assert gateway.post("/groups", body, headers=admin).status == 201
    group = gateway.get("/groups/g/wait?timeout_s=40", headers=admin, timeout=50).json()
    log = open(group["members"][0]["log"]).read()
    assert group["state"] == "finished", group
    assert "rga-" in log and "rgr-" not in log and "rgx-" not in log and "memfd" not in log, log
    line = open(f"/proc/{executor(gateway)}/cmdline").read() + open(f"/proc/{executor(gateway)}/environ").read()
    assert "rgx-" not in line and line.startswith("rollgate: runner\0")


def test_a_reload_reads_the_file_anew():
    """Attempts that run end as they began; what begins afterwards goes by the new file. A mistake changes nothing."""
    gateway = prepared().allow("configuration not reloaded")
    old = agent(gateway, "old", f"""
chat("old")
while not os.path.exists("{gateway.folder}/go"):
    time.sleep(0.02)
""")
    new = agent(gateway, "new", 'chat("new")')
    score = script(gateway.folder, "score", "print(int(sys.argv[1]))")
    write(gateway.file, {"r": {"run": old, "score": score + ["1"]}, "gone": {"run": ["true"]}})
    claims(gateway.start())
    submit(gateway, id="a", reward="required")
    g.wait_until(lambda: gateway.get("/groups/a").json()["state"] == "running", 20, "it runs")
    with open(gateway.file, "w") as f:
        f.write("runners:\n  r: {run: [x], slots: 0}\n  s: {slotz: 1, run: [y]}\n")
    gateway.signal(signal.SIGHUP)
    gateway.wait_line("configuration not reloaded.*slots: must be a number")
    gateway.wait_line("configuration not reloaded.*did you mean")
    write(gateway.file, {"r": {"run": new, "score": score + ["2"], "slots": 3}, "more": {"run": new}})
    gateway.signal(signal.SIGHUP)
    gateway.wait_line("the runner file was read again")
    submit(gateway, id="b", reward="required", n=2)
    submit(gateway, id="c", runner="more")
    submit(gateway, id="d", runner="gone")
    assert [m["reward"] for m in settled(gateway, "b")["members"]] == [2, 2], "two of three slots are free"
    assert settled(gateway, "c")["state"] == "finished"
    open(f"{gateway.folder}/go", "w").close()
    assert [m["reward"] for m in settled(gateway, "a")["members"]] == [1]
    # The dispatcher may have given d to the claim of before, in the moment in which that was withdrawn: the attempt is lost then, and
    # the group has begun for good.
    g.wait_until(lambda: gateway.get("/groups/d").json()["running"] == 0, 60, "nobody runs it")
    assert gateway.get("/groups/d").json()["state"] in ("waiting", "running")


@pytest.mark.alone
def test_an_upgrade_leaves_attempts_alone():
    """USR2, HUP and worker scaling while 50 attempts run: none ends other than ok, none is run twice. No lease runs out while
    50 agents start at once on a machine that is busy: it is as long as users have it."""
    gateway = prepared(workers=2, grace="20s", attempt_lease="60s")
    run = agent(gateway, text=f"""
import urllib.error
def patient(text):
    for _ in range(100):
        try:
            return chat(text)
        except (OSError, urllib.error.HTTPError):
            time.sleep(0.1)
open("{gateway.folder}/runs-" + str(os.getpid()), "w").close()
patient("one")
while not os.path.exists("{gateway.folder}/go"):
    time.sleep(0.2)
patient("two")
""")
    write(gateway.file, {"r": {"run": run, "slots": 50}})
    claims(gateway.start())
    pid = executor(gateway)
    for k in range(5):
        submit(gateway, id=f"g{k}", n=10)
    runs = lambda: [f for f in os.listdir(gateway.folder) if f.startswith("runs-")]
    g.wait_until(lambda: len(runs()) == 50, 120, "all run")
    served = gateway.log().count(" serving listen")
    gateway.signal(signal.SIGUSR2)
    g.wait_until(lambda: gateway.log().count(" serving listen") > served, 60, "the next binary serves")
    gateway.settings["workers"] = 3
    gateway.signal(signal.SIGHUP)
    gateway.wait_line("the runner file was read again")
    gateway.family()
    open(f"{gateway.folder}/go", "w").close()
    for k in range(5):
        group = settled(gateway, f"g{k}")
        assert group["state"] == "finished", group
        assert all(m["outcome"] == "ok" and m["attempts"] == 1 for m in group["members"]), group
    assert len(runs()) == 50 and os.path.exists(f"/proc/{pid}"), "the executor is still the same"
    submit(gateway, id="after")
    assert settled(gateway, "after")["state"] == "finished"


def test_the_end_waits_for_what_runs():
    """TERM: the attempt ends and counts before the gateway goes; what lasts longer is tried again by the next one."""
    gateway = prepared(grace="3s")
    short = agent(gateway, text=f'chat("x"); open("{gateway.folder}/up-" + str(task), "w").close(); time.sleep(task)')
    write(gateway.file, {"r": {"run": short, "slots": 2, "grace": "500ms"}})
    claims(gateway.start())
    submit(gateway, id="short", input=1)
    submit(gateway, id="long", input=600)
    g.wait_until(lambda: len([f for f in os.listdir(gateway.folder) if f.startswith("up-")]) == 2, 30, "both run")
    assert gateway.stop() == 0
    gateway.start()
    assert settled(gateway, "short")["members"][0]["attempts"] == 1
    member = gateway.get("/groups/long").json()["members"][0]
    assert "executor is stopping" in member["reason"] or member["state"] == "running", member
    assert gateway.post("/groups/long/cancel").status == 200
    assert [x["id"] for x in take_all(gateway, "train", 1)] == ["short"]


def test_slurms_script_starts_an_executor(start, tmp_path):
    """With a srun that only executes: it waits for the endpoint that the gateway's script publishes; TERM drains."""
    (tmp_path / "srun").write_text('#!/bin/bash\nwhile [[ $1 == --* ]]; do shift; done\nexec "$@"\n')
    (tmp_path / "srun").chmod(0o755)
    gateway = start(engine="builtin:echo", workers=1)
    write(f"{tmp_path}/runners.yaml", {"r": {"run": agent(gateway)}})
    env = dict(os.environ, PATH=f"{tmp_path}:{os.environ['PATH']}", ROLLGATE_BIN=str(g.BINARY), TMPDIR=str(tmp_path),
               ROLLGATE_GRACE="5s")
    with open(tmp_path / "log", "wb") as log:
        job = subprocess.Popen(["bash", str(g.ROOT / "deploy/slurm/rollgate-runner.sbatch")], cwd=tmp_path, env=env, stdout=log,
                               stderr=log)
    try:
        submit(gateway, id="g", n=2)
        (tmp_path / "endpoint-0.json").write_text(json.dumps({"node": "n", "url": gateway.url, "workers": [0, 0]}) + "\n")
        assert settled(gateway, "g")["state"] == "finished"
        assert os.path.exists(f"{tmp_path}/runner-logs/g")
    finally:
        job.send_signal(signal.SIGTERM)
        assert job.wait(30) == 0, (tmp_path / "log").read_text()


@pytest.mark.parametrize("command, more, says", [
    ("serve", {"dispatcher": False}, "--runners: needs --dispatcher=on"),
    ("route", {"upstream": "http://127.0.0.1:9"}, "--runners: `rollgate route` starts no executor"),
])
def test_what_cannot_be_is_said(command, more, says):
    gateway = prepared(command=command, **more)
    done = subprocess.run(gateway.arguments(), capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2 and says in done.stderr, done.stderr


def test_a_bad_file_is_told_at_the_start():
    gateway = prepared()
    with open(gateway.file, "w") as f:
        f.write("runners:\n  r: {slots: 0}\n")
    done = subprocess.run(gateway.arguments(), capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2 and "r.slots: must be a number" in done.stderr, done.stderr
    assert "r: needs run or http, and not both" in done.stderr


@pytest.mark.alone
@pytest.mark.parametrize("then", ["an upgrade", "the end"])
def test_an_executor_that_drains_is_told_once(then):
    """An upgrade to another runner file: the executor with the former one drains. A reload, another upgrade and the gateway's
    end leave it at that: told twice, it would end what runs at once."""
    gateway = prepared(grace="60s", attempt_lease="60s")
    patient = agent(gateway, text=f"""
open("{gateway.folder}/up", "w").close()
while not os.path.exists("{gateway.folder}/go"):
    time.sleep(0.05)
chat("x")
""")
    write(gateway.file, {"r": {"run": patient}})
    write(f"{gateway.folder}/others.yaml", {"s": {"run": ["true"]}})
    gateway.settings["config"] = f"{gateway.folder}/config.yaml"
    with open(gateway.settings["config"], "w") as f:
        f.write(f"runners: {gateway.settings.pop('runners')}\n")
    claims(gateway.start())
    submit(gateway, id="g")
    g.wait_until(lambda: os.path.exists(f"{gateway.folder}/up"), 30, "it runs")
    with open(gateway.settings["config"], "w") as f:
        f.write(f"runners: {gateway.folder}/others.yaml\n")

    def upgrade():
        served = gateway.log().count(" serving listen")
        gateway.signal(signal.SIGUSR2)
        g.wait_until(lambda: gateway.log().count(" serving listen") > served, 60, "the next binary serves")
    upgrade()
    gateway.wait_line("the executor is stopping")
    gateway.signal(signal.SIGHUP)
    gateway.wait_line("configuration reloaded")
    if then == "an upgrade":
        upgrade()
    else:
        gateway.signal(signal.SIGTERM)
        gateway.wait_line("supervisor.* stopping")
    g.stays(lambda: "attempt ended" not in gateway.log(), 0.3, "an executor that is told twice kills its runs at once")
    open(f"{gateway.folder}/go", "w").close()
    gateway.wait_line("runner.* attempt ended .*outcome=ok verdict=succeeded")
    if then == "an upgrade":
        assert settled(gateway, "g")["members"][0]["attempts"] == 1
        g.wait_until(lambda: gateway.log().count("executor started") == 2, 60, "its successor has the other file")
    else:
        assert gateway.wait(60) == 0

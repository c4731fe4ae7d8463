"""The deployment files with a real systemd (systemd-nspawn over this machine's /usr, which boots in a second) and a
real Slurm (one node, no systemd). Skipped with the reason if one is not available."""
import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import threading

import pytest

import gateway as g
from runner_kit import processes_with, script

UNITS = g.ROOT / "deploy/systemd"
MASKED = ("systemd-networkd-wait-online.service", "systemd-networkd.service", "systemd-networkd.socket")

# Inside: agents that talk for so many seconds; prints what failed.
AGENTS = r'''
import http.client, json, sys, threading, time
end, failed, answered = time.monotonic() + float(sys.argv[1]), [], []
def post(path, body):
    c = http.client.HTTPConnection("127.0.0.1", 8600, timeout=30)
    c.request("POST", path, json.dumps(body), {"content-type": "application/json"})
    r = c.getresponse()
    text = r.read().decode()
    c.close()
    if r.status != 200 or r.headers.get("Rollgate-Reseeded"):
        raise OSError(f"{r.status} {text[:200]}")
    return json.loads(text)
def agent():
    session, messages = None, []
    while time.monotonic() < end:
        try:
            session = session or post("/sessions", {})["session_id"]
            ask = messages + [{"role": "user", "content": f"turn {len(messages)}"}]
            a = post(f"/sessions/{session}/v1/chat/completions", {"model": "m", "messages": ask})
            messages = ask + [a["choices"][0]["message"]]
            answered.append(1)
        except (OSError, http.client.HTTPException) as e:
            failed.append(repr(e))
            time.sleep(0.05)
threads = [threading.Thread(target=agent) for _ in range(4)]
[t.start() for t in threads], [t.join() for t in threads]
print(json.dumps({"answered": len(answered), "failed": failed}))
'''


class Systemd:
    def __init__(self, folder, drop_in=None):
        self.folder, self.settings = folder, {"listen": "127.0.0.1:8600", "workers": 2, "routers": 1,
                                              "engine": "builtin:echo,delay_ms=20"}
        folder.chmod(0o755)
        (folder / "etc").mkdir(mode=0o755)
        self.configure()
        (folder / "agents.py").write_text(AGENTS)
        for name in ("rollgate.service", "rollgate.socket"):
            text = (UNITS / name).read_text().replace("/usr/bin/rollgate", "/run/bin/rollgate")
            (folder / name).write_text(text.replace("LimitNOFILE=1048576", "LimitNOFILE=20000"))
        binds = {f"{folder}/etc": "/etc/rollgate", f"{folder}/agents.py": "/run/agents.py", str(g.BINARY): "/run/bin/rollgate",
                 **{f"{folder}/{n}": f"/run/systemd/system/{n}" for n in ("rollgate.service", "rollgate.socket")}}
        if drop_in:
            binds[str(UNITS / drop_in)] = f"/run/systemd/system/rollgate.service.d/{drop_in}"
        with open(folder / "nspawn.log", "wb") as log:
            self.process = subprocess.Popen(
                ["systemd-nspawn", "-q", "--register=no", "--keep-unit", "--private-network", "-D", "/", "--volatile=yes",
                 "-M", f"rg{os.getpid()}", "--console=pipe", *(f"--bind-ro={a}:{b}" for a, b in binds.items()), "--boot",
                 "systemd.unit=basic.target", *(f"systemd.mask={u}" for u in MASKED)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        self.init = None

    def configure(self, **settings):
        self.settings.update(settings)
        path = self.folder / "etc/rollgate.yaml"
        path.write_text("".join(f"{k}: {v}\n" for k, v in self.settings.items()))
        path.chmod(0o644)

    def booted(self):
        if self.process.poll() is not None:
            return None
        children = g.children_of(self.process.pid)
        self.init = children[0] if children else None
        return self.init and self.run("systemctl", "is-system-running", check=False).strip() in ("running", "degraded")

    def run(self, *command, check=True, timeout=60):
        done = subprocess.run(["nsenter", "-t", str(self.init), "-m", "-p", "-n", "-u", "-i", "--root", "-w", *command],
                              capture_output=True, text=True, timeout=timeout,
                              env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"})
        assert not check or done.returncode == 0, f"{command}: {done.stdout} {done.stderr} {self.log()}"
        return done.stdout

    def log(self):
        return self.run("journalctl", "-u", "rollgate", "-o", "cat", "--no-pager", check=False)

    def show(self, what):
        return self.run("systemctl", "show", "rollgate", "-p", what, "--value").strip()

    def agents(self, seconds):
        """(thread, result list)"""
        out = []
        t = threading.Thread(target=lambda: out.append(json.loads(
            self.run("python3", "/run/agents.py", str(seconds), timeout=seconds + 60))))
        t.start()
        g.pause(1, "the agents work")
        return t, out

    def close(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(10)
        for kind in ("unified/payload", "unified/supervisor", "systemd/payload", "systemd/supervisor"):
            for folder, _, _ in os.walk(f"/sys/fs/cgroup/{kind}", topdown=False):
                try:
                    os.rmdir(folder)
                except OSError:
                    pass


@pytest.fixture
def systemd(tmp_path_factory, request):
    if not g.BINARY.exists():
        pytest.skip(f"{g.BINARY} is not built")
    if os.getuid() != 0 or not shutil.which("systemd-nspawn"):
        pytest.skip("a real systemd needs root and systemd-nspawn (apt-get install systemd-container)")
    if "asan" in str(g.BUILD):
        pytest.skip("sanitizers need more than the unit's system call filter allows")
    s = Systemd(tmp_path_factory.mktemp("systemd"), getattr(request, "param", None))
    try:
        try:
            g.wait_until(lambda: s.booted() or s.process.poll() is not None, 20, "systemd boots")
        except AssertionError:
            pass
        if s.process.poll() is not None or not s.booted():
            pytest.skip("systemd-nspawn cannot boot here: " + (s.folder / "nspawn.log").read_text()[-200:])
        s.folder.parent.chmod(0o755)
        yield s
    finally:
        s.close()


def test_systemd_starts_reloads_upgrades_and_restarts_it(systemd):
    s = systemd
    s.run("systemctl", "start", "rollgate")
    assert s.show("StatusText") == "serving on 127.0.0.1:8600"      # Type=notify: it was ready
    assert "the sandbox is not complete" not in s.log() and "PCRE2 JIT on" in s.log()
    for line in s.run("sh", "-c", "cat /proc/[0-9]*/status").split("Name:\t")[1:]:
        if line.startswith("rollgate"):
            assert re.search(r"^NoNewPrivs:\t1$", line, re.M) and re.search(r"^CapEff:\t0+$", line, re.M)
    t, out = s.agents(6)
    s.configure(workers=4)
    s.run("systemctl", "reload", "rollgate")
    g.pause(1, "the agents work with more workers")
    s.configure(workers=2)
    s.run("systemctl", "reload", "rollgate")
    g.pause(1, "and with fewer")
    main = s.show("MainPID")
    s.run("systemctl", "kill", "-s", "USR2", "--kill-who=main", "rollgate")
    t.join(60)
    assert out[0]["failed"] == [] and out[0]["answered"] > 20
    assert s.show("MainPID") == main and s.show("NRestarts") == "0" and s.show("ActiveState") == "active"
    assert s.log().count("upgrading") == 1 and s.log().count("configuration reloaded") == 2
    s.run("kill", "-9", main)
    g.wait_until(lambda: s.show("NRestarts") == "1" and s.show("ActiveState") == "active", 20, "it is restarted")
    assert "journal replayed" in s.log()
    errors = s.run("journalctl", "-u", "rollgate", "-p", "err", "-o", "cat", "--no-pager", "-t", "rollgate")
    assert errors.strip() in ("", "-- No entries --")
    s.run("systemctl", "stop", "rollgate")
    assert s.show("Result") == "success" and s.show("ActiveState") == "inactive"


def test_systemds_socket_makes_a_restart_unnoticed(systemd):
    s = systemd
    s.run("systemctl", "start", "rollgate.socket", "rollgate.service")
    t, out = s.agents(6)
    for _ in range(2):
        s.run("systemctl", "restart", "rollgate")
        g.pause(0.7, "the agents work between two restarts")
    t.join(60)
    assert out[0]["failed"] == [] and out[0]["answered"] > 20
    s.run("systemctl", "stop", "rollgate.socket", "rollgate.service")


@pytest.mark.parametrize("systemd", ["keys.conf"], indirect=True)
def test_systemd_gives_the_dynamic_user_its_key_file(systemd):
    """A key file that only root can read, by the drop-in that docs/deploy.md tells."""
    s = systemd
    keys = s.folder / "etc/admin-keys"
    keys.write_text("the-key-of-this-test\n")
    keys.chmod(0o600)
    s.run("systemctl", "start", "rollgate")
    ask = ("curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "http://127.0.0.1:8600/sessions", "-d", "{}")
    assert s.run(*ask) == "401"
    assert s.run(*ask, "-H", "Authorization: Bearer the-key-of-this-test") == "200"
    uid = s.run("sh", "-c", "stat -c %u /proc/$(systemctl show rollgate -p MainPID --value)").strip()
    assert int(uid) >= 61184 and s.show("DynamicUser") == "yes", "not root"
    s.run("systemctl", "stop", "rollgate")


# --- Slurm ---

class Slurm:
    """The testbed's cluster, all nodes on this machine."""

    def __init__(self, folder, shared, nodes):
        self.folder, self.bed = folder, shared / "tools/deploy/slurm"
        self.port = g.free_port()
        self.env = dict(os.environ, SLURM_T=str(folder / "slurm"), NODES=str(nodes), KILLWAIT="10", BASEPORT=str(g.free_port()),
                        CTLPORT=str(g.free_port()), SLURM_CONF=str(folder / "slurm/slurm.conf"),
                        ROLLGATE_BIN=str(g.BINARY), ROLLGATE_RUN=str(folder / "run"), ROLLGATE_PORT=str(self.port),
                        ROLLGATE_ADMIN_KEY_FILE=str(folder / "key"), ROLLGATE_ENGINE="builtin:echo,delay_ms=1500")
        (folder / "key").write_text("the-key-of-this-test\n")

    def run(self, *command):
        done = subprocess.run(command, env=self.env, cwd=self.folder, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, f"{command}: {done.stdout} {done.stderr}"
        return done.stdout.strip()

    def submit_runner(self, gateway, runners, **more):
        """A job of one node with an executor; its id."""
        job = subprocess.run(
            ["sbatch", "--parsable", "-o", f"{self.folder}/runner-%j.log", "--nodes=1", "--exclusive", "--time=10",
             "--export=ALL", str(g.ROOT / "deploy/slurm/rollgate-runner.sbatch")], capture_output=True, text=True,
            timeout=60, cwd=self.folder,
            env=dict(self.env, ROLLGATE_GATEWAY=gateway, ROLLGATE_RUNNERS=runners, TMPDIR=str(self.folder), **more))
        assert job.returncode == 0, job.stderr
        job = job.stdout.strip()
        log = self.folder / f"runner-{job}.log"
        g.wait_until(lambda: log.exists() and "executor runs" in log.read_text(), 30, f"the executor of job {job} runs")
        return job

    def submit(self):
        return self.run("sbatch", "--parsable", "-o", f"{self.folder}/job.log", "--time=10", "--export=ALL",
                        str(g.ROOT / "deploy/slurm/rollgate.sbatch"))

    def published(self):
        return (self.folder / "run/endpoint-0.json").exists()

    def post(self, path, body):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        c.request("POST", path, json.dumps(body), {"Authorization": "Bearer the-key-of-this-test"})
        r = c.getresponse()
        text = r.read()
        c.close()
        return r.status, r.headers, json.loads(text)

    def chat(self, session):
        body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
        return self.post(f"/sessions/{session}/v1/chat/completions", body)

    def gone(self, job):
        return self.run("squeue", "-h", "-o", "%A") == "" or job not in self.run("squeue", "-h", "-o", "%A").split()


@pytest.fixture
def slurm(shared, tmp_path_factory, request):
    if not g.BINARY.exists():
        pytest.skip(f"{g.BINARY} is not built")
    missing = [p for p in ("slurmctld", "slurmd", "munged", "sbatch") if not shutil.which(p)]
    if os.getuid() != 0 or missing:
        pytest.skip(f"a real Slurm needs root and {', '.join(missing) or 'nothing else'} (apt-get install slurm-wlm munge)")
    s = Slurm(tmp_path_factory.mktemp("slurm"), shared, getattr(request, "param", 1))
    s.folder.parent.chmod(0o755)
    try:
        s.run("bash", str(s.bed / "up.sh"))
        yield s
    finally:
        subprocess.run(["bash", str(s.bed / "down.sh")], env=s.env, timeout=60, capture_output=True)


def test_slurm_runs_drains_and_requeues_it(slurm):
    s = slurm
    job = s.submit()
    g.wait_until(s.published, 30, "the endpoint is published")
    endpoint = json.loads((s.folder / "run/endpoint-0.json").read_text())
    assert endpoint["url"].endswith(f":{s.port}") and endpoint["workers"][0] == 0
    status, _, made = s.post("/sessions", {})
    assert status == 200 and s.chat(made["session_id"])[0] == 200
    s.run("scontrol", "requeue", job)
    g.wait_until(lambda: not s.published(), 20, "it is withdrawn")
    g.pause(1, "Slurm does not take a change of a job that it is requeueing")
    s.run("scontrol", "update", f"JobId={job}", "StartTime=now")
    g.wait_until(s.published, 40, "it is published again")
    status, headers, _ = s.chat(made["session_id"])     # the state folder has its session
    assert status == 200 and "Rollgate-Reseeded" not in headers
    answers = []
    t = threading.Thread(target=lambda: answers.append(s.chat(made["session_id"])[0]))
    t.start()
    g.pause(0.5, "the call is under way")
    s.run("scancel", job)           # TERM to every process of the step, and again
    t.join(30)
    assert answers == [200], "a call in flight is finished"
    g.wait_until(lambda: s.gone(job), 20, "the job ends")
    assert not s.published()
    assert "exit_status=0" in (s.folder / "job.log").read_text()


@pytest.mark.parametrize("slurm", [3], indirect=True)
def test_a_slurm_array_with_a_store_job_is_a_fleet(slurm):
    """Two tasks and the store, each on a node of its own. scancel gives a task's sessions to the other."""
    s = slurm
    ports = [s.port, s.port + 1]
    s.env.update(ROLLGATE_HOST="127.0.0.1", ROLLGATE_STORE_PORT=str(g.free_port()), ROLLGATE_ENGINE="builtin:echo", ROLLGATE_WORKERS="1",
                 ROLLGATE_FLEET_LEASE="2s")
    store = s.run("sbatch", "--parsable", "-o", f"{s.folder}/store.log", "--time=10", "--exclusive", "--export=ALL",
                  str(g.ROOT / "deploy/slurm/rollgate-store.sbatch"))
    url = s.folder / "run/store-url"
    g.wait_until(url.exists, 30, "the store's URL is published")
    s.env["ROLLGATE_FLEET"] = url.read_text().strip()
    job = s.run("sbatch", "--parsable", "-o", f"{s.folder}/job-%a.log", "--time=10", "--exclusive", "--export=ALL", "--array=0-1",
                str(g.ROOT / "deploy/slurm/rollgate.sbatch"))
    endpoints = [s.folder / f"run/endpoint-{n}.json" for n in (0, 1)]
    g.wait_until(lambda: all(e.exists() for e in endpoints), 60, "both tasks are published")
    listed = s.run(str(g.BINARY), "fleet", "endpoints", "--wait=2", f"--gateway=http://127.0.0.1:{ports[0]}", f"--key-file={s.folder}/key")
    assert sorted(listed.split()) == [f"http://127.0.0.1:{port}" for port in ports]
    s.port = ports[1]
    made = s.post("/sessions", {})[2]
    assert s.chat(made["session_id"])[0] == 200
    s.run("scancel", f"{job}_1")
    s.port = ports[0]
    g.wait_until(lambda: not endpoints[1].exists(), 20, "it is withdrawn")
    assert s.chat(made["session_id"])[0] == 200
    g.wait_until(lambda: "exit_status=0" in (s.folder / "job-1.log").read_text(), 60, "the task ends well")
    s.run("scancel", job, store)
    g.wait_until(lambda: s.run("squeue", "-h", "-o", "%A") == "", 60, "all jobs end")
    assert not url.exists()


# Says in whose job it runs, then waits to be let go.
WAITS = """
import os, pathlib, time
folder = pathlib.Path(task["folder"])
(folder / (os.environ["ROLLGATE_ATTEMPT"] + ".job" + os.environ["SLURM_JOB_ID"])).touch()
end = time.monotonic() + 120
while not (folder / "go").exists() and time.monotonic() < end:
    time.sleep(0.05)
chat("x")
"""


@pytest.mark.parametrize("slurm", [2], indirect=True)
@pytest.mark.parametrize("sign", ["TERM", "KILL"])
def test_slurm_cancels_one_executor_and_its_attempts_finish_elsewhere(slurm, sign, start, tmp_path):
    """One job for each of two executors. Cancelled, the one that has all attempts drains for a second (TERM), or is
    gone without a word and its leases run out (KILL); the other executor runs them again."""
    gateway = start(engine="builtin:echo", workers=1, attempt_lease="2s")
    runners = tmp_path / "runners.yaml"
    runners.write_text(json.dumps({"runners": {"r": {
        "run": script(str(tmp_path), "agent", WAITS), "slots": 3, "grace": "1s", "pass_env": ["SLURM_JOB_ID"]}}}))

    def runs(job):
        return {f.name.split(".")[0] for f in tmp_path.glob(f"*.job{job}")}

    first = slurm.submit_runner(gateway.url, str(runners), ROLLGATE_GRACE="1s")
    answer = gateway.post("/groups", {"id": "g", "runner": "r", "n": 3, "reward": "external", "input": {"folder": str(tmp_path)}})
    assert answer.status == 201, answer.text
    g.wait_until(lambda: len(runs(first)) == 3, 30, "all attempts run in the first job")
    second = slurm.submit_runner(gateway.url, str(runners), ROLLGATE_GRACE="1s")
    assert processes_with(f"rollgate-runner-{first}")
    slurm.run("scancel", *(["--signal=KILL"] if sign == "KILL" else []), first)
    g.wait_until(lambda: len(runs(second)) == 3, 60, "all of them run in the second job")
    g.wait_until(lambda: slurm.gone(first) and not processes_with(f"rollgate-runner-{first}"), 30, "the first job ends")
    g.wait_until(lambda: len(processes_with(f"{tmp_path}/agent.py")) == 3, 20, "no run of the first job is left")
    (tmp_path / "go").touch()
    group = gateway.get("/groups/g/wait?timeout_s=60", timeout=90).json()
    assert group["state"] == "finished" and [m["attempts"] for m in group["members"]] == [2, 2, 2]
    assert runs(first).isdisjoint(runs(second)), "no attempt ran twice"
    slurm.run("scancel", second)
    g.wait_until(lambda: slurm.gone(second), 30, "the second job ends")

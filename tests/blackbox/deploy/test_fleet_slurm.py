"""The batch scripts of a fleet. Slurm's own commands are played by scripts of this test: srun runs its command, scancel sends its
signal to that command (test_deploy_real.py has a real Slurm)."""
import json
import os
import re
import signal
import subprocess

import pytest

import gateway as g
from fleet_kit import AS_ADMIN, index_of
from store_kit import KINDS  # noqa: F401  (a server is installed)

SRUN = """#!/bin/bash
while [ "${1#-}" != "$1" ]; do shift; done
"$@" & echo $! > "$PLAY/step-$SLURM_JOB_ID"
trap '' TERM
wait $!
"""
SCANCEL = """#!/bin/bash
job=${2%.0}
kill -TERM "$(cat "$PLAY/step-$job")"
"""


class Slurm:
    """Runs batch scripts as jobs."""

    def __init__(self, folder):
        self.folder, self.run, self.jobs = folder, folder / "run", {}
        for name, text in (("srun", SRUN), ("scancel", SCANCEL)):
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
        (folder / "admin").write_text("an-admin-key-of-this-fleet\n")
        self.env = dict(os.environ, PATH=f"{folder}:{os.environ['PATH']}", PLAY=str(folder), ROLLGATE_RUN=str(self.run),
                        ROLLGATE_HOST="127.0.0.1", ROLLGATE_BIN=str(g.BINARY), ROLLGATE_ADMIN_KEY_FILE=str(folder / "admin"),
                        ROLLGATE_ENGINE="builtin:echo", ROLLGATE_FLEET_LEASE="2s", ROLLGATE_WORKERS="1", TMPDIR=str(folder))

    def submit(self, script, job, **more):
        with open(self.folder / f"log-{job}", "ab") as log:
            self.jobs[job] = subprocess.Popen(["bash", g.ROOT / f"deploy/slurm/{script}.sbatch"], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                              env={**self.env, "SLURM_JOB_ID": str(job), **more}, start_new_session=True)

    def end(self, job):
        """Sends TERM, as `#SBATCH --signal=B:TERM@60` and scancel do. Returns the exit status."""
        self.jobs[job].send_signal(signal.SIGTERM)
        return self.jobs[job].wait(60 * g.PATIENCE)

    def log(self, job):
        return (self.folder / f"log-{job}").read_text()

    def close(self):
        for job in self.jobs.values():
            for pid in [*g.children_of(job.pid), job.pid]:
                if job.poll() is None or pid != job.pid:
                    os.kill(pid, signal.SIGKILL)
            job.wait(20)


@pytest.fixture
def slurm(tmp_path):
    if not g.BINARY.exists():
        pytest.skip(f"{g.BINARY} is not built")
    made = Slurm(tmp_path)
    yield made
    made.close()


class Task(g.Gateway):
    """A gateway that a batch script has started."""

    def __init__(self, port):
        self.port = port


def test_an_array_with_a_store_job_is_a_fleet(slurm):
    slurm.submit("rollgate-store", 7, ROLLGATE_STORE_PORT=str(g.free_port()))
    url = slurm.run / "store-url"
    g.wait_until(url.exists, 20, "the store's URL is published")
    assert (slurm.run / "store-key").stat().st_mode & 0o077 == 0 and (slurm.run / "store.conf").stat().st_mode & 0o077 == 0
    fleet = url.read_text().strip()
    assert re.fullmatch(r"redis://127\.0\.0\.1:\d+/0\?name=slurm&password_file=.*/store-key", fleet)

    port = g.free_port()
    for task in (0, 1):
        slurm.submit("rollgate", 100 + task, ROLLGATE_FLEET=fleet, SLURM_ARRAY_TASK_ID=str(task), SLURM_ARRAY_JOB_ID="100",
                     ROLLGATE_PORT=str(port))
    endpoints = [slurm.run / f"endpoint-{task}.json" for task in (0, 1)]
    g.wait_until(lambda: all(e.exists() for e in endpoints), 60, "both are published")
    assert [json.loads(e.read_text()) for e in endpoints] == [{"node": "127.0.0.1", "url": f"http://127.0.0.1:{port + n}"} for n in (0, 1)]
    assert (slurm.run / "key-secret").stat().st_mode & 0o077 == 0 and len(list(slurm.run.glob("key-secret*"))) == 1
    first, second = Task(port), Task(port + 1)
    out = subprocess.run([g.BINARY, "fleet", "endpoints", "--wait=2", f"--gateway=http://127.0.0.1:{port}", f"--key-file={slurm.folder}/admin"],
                         capture_output=True, text=True, check=True, timeout=60)
    assert sorted(out.stdout.split()) == [f"http://127.0.0.1:{port + n}" for n in (0, 1)]
    nodes = first.get("/fleet", headers=AS_ADMIN).json()["nodes"]
    assert sorted(n["name"] for n in nodes) == ["job100-task0", "job100-task1"]

    session = second.post("/sessions", {}, headers=AS_ADMIN).json()
    assert chat(second, session) == chat(first, session) == 200
    assert slurm.end(101) == 0 and not endpoints[1].exists(), slurm.log(101)
    assert chat(first, session) == 200, "scancel has given the session to the other task"
    assert index_of(session["session_id"]) in {p["index"] for p in first.get("/fleet", headers=AS_ADMIN).json()["places"]
                                               if p["node"] == "job100-task0"}
    assert slurm.end(100) == 0, slurm.log(100)
    assert slurm.end(7) == 0 and not url.exists(), slurm.log(7)

    # a requeued store has all records, and so has the array; so have later jobs
    for store, array in ((7, 100), (8, 200)):
        slurm.submit("rollgate-store", store, ROLLGATE_STORE_PORT=re.search(r":(\d+)/", fleet)[1])
        g.wait_until(url.exists, 20, "the store's URL is published")
        assert url.read_text().strip() == fleet
        slurm.submit("rollgate", array, ROLLGATE_FLEET=fleet, SLURM_ARRAY_TASK_ID="0", SLURM_ARRAY_JOB_ID=str(array), ROLLGATE_PORT=str(port))
        g.wait_until(endpoints[0].exists, 60, "the task is published")
        assert chat(first, session) == 200
        assert slurm.end(array) == 0 and slurm.end(store) == 0


def chat(gateway, session):
    return gateway.post(f"/sessions/{session['session_id']}/v1/chat/completions", {"model": "m", "messages": [{"role": "user", "content": "hi"}]},
                        headers={"x-api-key": session["api_key"]}).status


def test_a_task_without_a_fleet_has_a_base_of_its_own(slurm):
    port = g.free_port()
    slurm.submit("rollgate", 5, SLURM_ARRAY_TASK_ID="3", SLURM_ARRAY_JOB_ID="5", ROLLGATE_PORT=str(port - 3))
    endpoint = slurm.run / "endpoint-3.json"
    g.wait_until(endpoint.exists, 60, "it is published")
    assert json.loads(endpoint.read_text()) == {"node": "127.0.0.1", "url": f"http://127.0.0.1:{port}", "workers": [768, 768]}
    assert not (slurm.run / "key-secret").exists()
    assert slurm.end(5) == 0 and not endpoint.exists()

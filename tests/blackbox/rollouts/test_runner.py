"""`rollgate runner`: attempts as processes and as calls of a service (docs/rollouts.md, section 4)."""
import contextlib
import errno
import json
import os
import re
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

import gateway as g
from http_stub import Handler, HttpStub
from rollouts_kit import take_all
from runner_kit import Runner, processes_with, script
from test_faults import SHIM, sanitizer


@pytest.fixture
def gateway(start):
    return start(engine="builtin:echo", workers=2, attempt_lease="3s")


def submit(gateway, **group):
    answer = gateway.post("/groups", group)
    assert answer.status == 201, answer.text


def wait_group(gateway, name, timeout=40):
    answer = gateway.get(f"/groups/{name}/wait?timeout_s={min(timeout, 50)}", timeout=timeout + 10)
    assert answer.status == 200, f"{answer.text} {gateway.get(f'/groups/{name}').text}"
    return answer.json()


def test_a_group_is_run_and_scored(gateway):
    """The whole way: an agent with its own folder and variables, a scorer with the runner's key."""
    run = script(gateway.folder, "agent", """
assert os.listdir(".") == [] and sys.stdin.read() == ""
assert sys.argv[1:] == ["--image", "python:3", "7"], sys.argv
names = set(os.environ) - {"LC_CTYPE"}
assert names == {"PATH", "KEEP", "MODEL", "OPENAI_BASE_URL", "OPENAI_API_KEY", "ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY",
                 "ROLLGATE_INPUT", "ROLLGATE_ATTEMPT", "ROLLGATE_DEADLINE"}, names
assert os.environ["MODEL"] == "policy" and os.environ["KEEP"] == "kept" and os.environ["PATH"].endswith(":/more")
given = [line.split(b"=")[0] for line in open("/proc/self/environ", "rb").read().split(b"\\0")]
assert len(given) == len(set(given)), given
assert 50 < float(os.environ["ROLLGATE_DEADLINE"]) - time.time() < 61
open("left", "w").write("by the run")
os.makedirs("a/b")
print("answer:", chat(task["q"]), flush=True)
""")
    score = script(gateway.folder, "score", """
assert open("left").read() == "by the run"
assert os.environ["ROLLGATE_RUN_EXIT"] == "0"
request = urllib.request.Request(os.environ["ROLLGATE_SESSION_URL"],
                                 headers={"Authorization": "Bearer " + os.environ["ROLLGATE_RUNNER_KEY"]})
state = json.load(urllib.request.urlopen(request, timeout=30))
print("thinking", file=sys.stderr)
print("not the last line")
print(json.dumps({"reward": 0.5, "calls": 1 if state["session_id"] in os.environ["OPENAI_BASE_URL"] else 0}))
""")
    runner = Runner(gateway, {"swe": {
        "run": run + ["--image", "{input.image.name}", "{input.sizes.1}"], "score": score, "slots": 4, "timeout": "60s",
        "pass_env": ["KEEP", "ABSENT", "MODEL"], "env": {"MODEL": "policy", "PATH": os.environ["PATH"] + ":/more"}}})
    runner.env.update(KEEP="kept", SECRET="secret", MODEL="another")
    with runner:
        submit(gateway, id="g-1", runner="swe", n=3, input={"q": "2+2", "image": {"name": "python:3"}, "sizes": [3, 7]})
        group = take_all(gateway, "train", 1)[0]
        assert group["state"] == "finished", group
        for k, member in enumerate(group["members"]):
            assert member["reward"] == 0.5 and member["reward_info"]["calls"] == 1 and member["outcome"] == "ok"
            assert member["finished"] is True and member["trained_tokens"] > 0
            assert member["timings"]["run"] > 0 and member["timings"]["score"] > 0
            log = runner.attempt_log(f"g-1/{k}.0") if member["log"].endswith(".0.log") else runner.attempt_log(f"g-1/{k}.1")
            assert member["log_tail"] == log
            assert log.startswith("answer: ") and "thinking" in log and "--- score" in log
        g.wait_until(lambda: not runner.work_folders(), 10, "the working folders are gone")
    assert len(re.findall(r"info runner \d+ attempt ended .*outcome=ok", runner.log())) == 3, runner.log()


def test_caps_and_start_rate(gateway, tmp_path):
    """Slots 3 and 5 are reached and never exceeded; starts keep their distance."""
    run = script(gateway.folder, "agent", """
import fcntl
def count(d):
    with open(os.environ["COUNTS"] + "/" + sys.argv[1], "a+") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        f.seek(0)
        n, peak, *starts = (f.read() or "0 0").split()
        n = int(n) + d
        starts = " ".join(starts + ([str(time.time())] if d > 0 else []))
        f.truncate(0)
        f.write(f"{n} {max(n, int(peak))} {starts}")
    return max(n, int(peak))
peak = count(1)
chat("hello")
for _ in range(100):  # until the cap has been reached once
    time.sleep(0.1)
    if peak >= int(sys.argv[2]):
        break
    peak = count(0)
count(-1)
""")
    env = {"COUNTS": str(tmp_path)}
    with Runner(gateway, {"a": {"run": run + ["a", "3"], "slots": 3, "env": env},
                          "b": {"run": run + ["b", "5"], "slots": 5, "env": env},
                          "slow": {"run": run + ["slow", "1"], "slots": 8, "start_rate": "10/s", "env": env}}):
        for name, n in (("a", 16), ("b", 24), ("slow", 12)):
            submitted = time.time()  # the last one's stays
            submit(gateway, id=name, runner=name, n=n, reward="external", input=None)
        for name in ("a", "b", "slow"):
            assert wait_group(gateway, name)["state"] == "finished"
    peaks = {name: (tmp_path / name).read_text().split() for name in ("a", "b", "slow")}
    assert peaks["a"][:2] == ["0", "3"] and peaks["b"][:2] == ["0", "5"], {k: v[:2] for k, v in peaks.items()}
    starts = sorted(map(float, peaks["slow"][2:]))
    assert len(starts) == 12 and starts[-1] - submitted >= 11 / 10, (submitted, starts)


def test_failures_are_retried_and_leave_nothing(start):
    """Exit 1, 75, SIGSEGV, a hang, a double fork that ignores TERM: every group is full, no process is left, and no losing
    session is in an export or a sink."""
    gateway = start(engine="builtin:echo", workers=2, attempt_lease="3s", sink="file", runner_breaker=0)
    word = f"failing-{os.urandom(6).hex()}"
    run = script(gateway.folder, "agent", """
import random, signal
chat("rollout " + os.environ["ROLLGATE_ATTEMPT"])
fate = random.random()
if fate < 0.06: sys.exit(1)
if fate < 0.12: sys.exit(75)
if fate < 0.18: os.kill(os.getpid(), 11)
if fate < 0.24: time.sleep(600)
if fate < 0.30:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(600)
    else:
        time.sleep(600)
""") + [word]
    score = script(gateway.folder, "score", 'print(1 if os.environ["ROLLGATE_RUN_EXIT"] == "0" else 0)')
    with Runner(gateway, {"r": {"run": run, "score": score, "slots": 6, "timeout": "3s", "grace": "300ms"}}) as runner:
        for i in range(6):
            submit(gateway, id=f"g-{i}", runner="r", n=4, attempts=30, infra_attempts=30, input=i, on={"timeout": "retry"})
        groups = [wait_group(gateway, f"g-{i}", timeout=120) for i in range(6)]
        assert not processes_with(word)
    winners = set()
    for group in groups:
        assert group["state"] == "finished" and group["succeeded"] == 4, group
        assert all(m["reward"] == 1 for m in group["members"])
        winners |= {m["session_id"] for m in group["members"]}
    rows = gateway.get("/sessions?limit=1000&phase=finalized").json()["sessions"]
    assert {r["session_id"] for r in rows} == winners
    ended = re.findall(r"session=(\S+) outcome=(\w+)", runner.log())
    assert {s for s, outcome in ended if outcome == "ok"} == winners
    losers = {s for s, outcome in ended if outcome != "ok"}
    for session in losers:
        assert gateway.get(f"/sessions/{session}/trajectories").status == 410
    folder = f"{gateway.settings['state-dir']}/trajectories"
    delivered = lambda: {f[:-8] for f in os.listdir(folder) if f.endswith(".msgpack")} if os.path.isdir(folder) else set()
    g.wait_until(lambda: delivered() >= winners, 20, "the winners are delivered")
    assert delivered() == winners


def test_what_ignores_term_and_forks_twice_is_gone(gateway):
    word = f"stubborn-{os.urandom(6).hex()}"
    run = script(gateway.folder, "agent", """
import signal
chat("before")
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvp(sys.executable, [sys.executable, "-c", "import signal,time\\nsignal.signal(15, signal.SIG_IGN)\\n"
                                   "time.sleep(600)", sys.argv[1]])
    os._exit(0)
time.sleep(600)
""")
    score = script(gateway.folder, "score", 'print(json.dumps({"reward": 0.25, "exit": os.environ["ROLLGATE_RUN_EXIT"]}))')
    with Runner(gateway, {"r": {"run": run + [word], "score": score, "timeout": "1s", "grace": "500ms"}}):
        submit(gateway, id="g", runner="r", input=None)
        g.wait_until(lambda: len(processes_with(word)) >= 2, 10, "the run and what it forked live")
        g.wait_until(lambda: not processes_with(word), 20, "nothing is left of it")
        member = wait_group(gateway, "g")["members"][0]
    assert member["outcome"] == "timeout" and member["finished"] is False and member["reward"] == 0.25
    assert member["reward_info"]["exit"] == "timeout"


@pytest.mark.parametrize("finished", [False, True])
def test_a_scorer_says_whether_the_run_finished(gateway, finished):
    """The run ended with 0; what came of it only its scorer has seen."""
    say = json.dumps({"reward": 0.2, "finished": finished})
    run, score = script(gateway.folder, "agent", 'chat("x")'), script(gateway.folder, "score", f"print({say!r})")

    def reply(service, body):
        chat_for(gateway, body)
        return 200, say.encode()
    with Service(reply) as service, Runner(gateway, {"r": {"run": run, "score": score}, "h": {"http": service.url + "/run"}}):
        for name in ("r", "h"):
            submit(gateway, id=name, runner=name, input=None)
            [member] = wait_group(gateway, name)["members"]
            assert member["outcome"] == "ok" and member["finished"] is finished, member


def test_leftovers_of_a_good_run_are_killed(gateway):
    word = f"daemon-{os.urandom(6).hex()}"
    run = script(gateway.folder, "agent", """
chat("x")
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvp("sleep", [sys.argv[1], "600"])
    os._exit(0)
""")
    with Runner(gateway, {"r": {"run": run + [word]}}):
        submit(gateway, id="g", runner="r", reward="external", input=None)
        assert wait_group(gateway, "g")["state"] == "finished"
        assert not processes_with(word)


def test_an_executor_that_is_killed(gateway):
    """kill -9 with 20 attempts: nothing of them goes on, all are claimed again when the lease has run out."""
    word = f"orphan-{os.urandom(6).hex()}"
    hang = script(gateway.folder, "hang", 'chat("x"); time.sleep(600)')
    dead = Runner(gateway, {"r": {"run": hang + [word], "slots": 20}}, executor="dead").start()
    submit(gateway, id="g", runner="r", n=20, reward="external", input=None)
    g.wait_until(lambda: len(processes_with(word)) == 20, 30, "20 attempts run")
    dead.process.kill()
    dead.process.wait(10)
    dead.log_file.close()
    g.wait_until(lambda: not processes_with(word), 5, "the orphans are gone")
    quick = script(gateway.folder, "quick", 'chat("x")')
    with Runner(gateway, {"r": {"run": quick, "slots": 20}}, executor="heir"):
        g.wait_until(lambda: [m["attempts"] for m in gateway.get("/groups/g").json()["members"]] == [2] * 20, 30,
                     "all are claimed again")
        assert wait_group(gateway, "g")["state"] == "finished"


def delegated():
    """Whether this process may make cgroups below its own, with cgroup.kill."""
    mounts = [line.split() for line in open("/proc/self/mounts")]
    own = [line[4:].strip() for line in open("/proc/self/cgroup") if line.startswith("0::/")]
    root = next((m[1] for m in mounts if m[2] == "cgroup2"), None)
    path = f"{root}/{own[0]}/rollgate-test-{os.getpid()}" if root and own else None
    try:
        os.mkdir(path)
        killer = os.access(f"{path}/cgroup.kill", os.W_OK)
        os.rmdir(path)
        return killer
    except (OSError, TypeError):
        return False


@pytest.mark.parametrize("signo", ["SIGSTOP", "SIGKILL"])
def test_a_run_that_ends_or_stops_its_keeper_has_failed_itself(gateway, signo):
    """The whole tree ends, the slot is free again, and the attempt is not repeated as if the machine were at fault."""
    word = f"mutiny-{os.urandom(6).hex()}"
    run = script(gateway.folder, "agent", f"""
import signal
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(600)
    time.sleep(600)
keeper = os.getppid()
os.kill(keeper, signal.{signo})
time.sleep(600)
""") + [word]
    with Runner(gateway, {"r": {"run": run, "slots": 1}, "after": {"run": script(gateway.folder, "after", 'chat("x")'), "slots": 1}}):
        submit(gateway, id="g", runner="r", attempts=1, infra_attempts=10, reward="external", input=None)
        group = wait_group(gateway, "g")
        member, = group["members"]
        assert group["state"] == "failed" and member["outcome"] == "error" and member["attempts"] == 1, group
        assert "keeper was killed or stopped" in member["reason"]
        g.wait_until(lambda: not processes_with(word), 10, "nothing of the run is left")
        submit(gateway, id="h", runner="r", attempts=1, reward="external", input=None)
        assert wait_group(gateway, "h")["state"] == "failed", "the slot was free again"


def test_a_run_gains_no_privileges_and_cannot_trace_its_keeper(gateway):
    run = script(gateway.folder, "agent", """
status = dict(line.split(":", 1) for line in open("/proc/self/status") if ":" in line)
assert status["NoNewPrivs"].strip() == "1"
import ctypes
assert os.stat(f"/proc/{os.getppid()}/environ").st_uid == 0      # not dumpable
chat("x")
""")
    with Runner(gateway, {"r": {"run": run, "slots": 1}}):
        submit(gateway, id="g", runner="r", reward="external", input=None)
        assert wait_group(gateway, "g")["state"] == "finished"


@pytest.mark.skipif(not delegated(), reason="no cgroup is delegated here")
def test_what_outlived_keepers_and_executor_ends_with_the_next_one(gateway):
    """Everybody who could clean up is killed at once: the next executor on the machine finds the runs' cgroups."""
    word = f"cgroup-{os.urandom(6).hex()}"
    run = script(gateway.folder, "agent", """
chat("x")
if not os.path.exists(sys.argv[2]):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(600)
    time.sleep(600)
""") + [word, f"{gateway.folder}/go"]
    runner = Runner(gateway, {"r": {"run": run, "slots": 2}}).start()
    submit(gateway, id="g", runner="r", n=2, reward="external", input=None)
    g.wait_until(lambda: len(processes_with(word)) == 6, 30, "runs and what they forked")
    for pid in [runner.process.pid, *[p for p in g.children_of(runner.process.pid) if p not in processes_with(word)]]:
        os.kill(pid, signal.SIGKILL)
    runner.process.wait(10)
    runner.log_file.close()
    open(f"{gateway.folder}/go", "w").close()
    with Runner(gateway, {"r": {"run": run, "slots": 2}}):
        g.wait_until(lambda: wait_group(gateway, "g")["state"] == "finished", 40, "the group")
        g.wait_until(lambda: not processes_with(word), 10, "nothing is left")


def test_every_run_finds_an_empty_folder_and_its_own_input(gateway):
    """Folders are used again: what one run did to its own, no later one sees."""
    run = script(gateway.folder, "agent", """
assert os.listdir(".") == [] and os.getcwd().endswith("/" + os.environ["ROLLGATE_ATTEMPT"])
assert os.environ["ROLLGATE_INPUT"] == os.getcwd() + ".json" and os.stat(".").st_mode & 0o7777 == 0o700
assert os.stat(os.environ["ROLLGATE_INPUT"]).st_mode & 0o7777 == 0o600
assert os.listxattr(".") == os.listxattr(os.environ["ROLLGATE_INPUT"]) == []
assert list(task) == ["k", "text"] and len(task["text"]) == task["k"] * 300, task
k = task["k"] % 9
path = os.environ["ROLLGATE_INPUT"]
if k == 1:
    os.mkdir("made")
elif k == 2:
    os.chmod(".", 0o755)
elif k == 3:
    os.chmod(path, 0o644)
elif k == 4:
    os.unlink(path)
elif k == 5:
    os.unlink(path)
    os.mkfifo(path, 0o600)
elif k == 6:
    os.link(path, os.environ["KEPT"] + "/%d" % task["k"])
elif k == 7:
    os.setxattr(".", "user.seen", b"1")
elif k == 8:
    os.setxattr(path, "user.seen", b"1")
chat("x")
""")
    kept = f"{gateway.folder}/kept"
    os.mkdir(kept)
    with Runner(gateway, {"r": {"run": run, "slots": 3, "env": {"KEPT": kept}}}) as runner:
        for k in range(27):
            submit(gateway, id=f"g{k}", runner="r", reward="external", attempts=1, input={"k": k, "text": "x" * k * 300})
        for k in range(27):
            group = wait_group(gateway, f"g{k}")
            assert group["state"] == "finished", (group, runner.log())
        g.wait_until(lambda: not runner.work_folders(), 10, "the working folders are gone")
    assert {name: len(json.load(open(f"{kept}/{name}"))["text"]) for name in os.listdir(kept)} == \
        {str(k): k * 300 for k in (6, 15, 24)}, "an input that a run has kept was written over"


def test_what_a_killed_executor_left_is_removed(gateway):
    run = script(gateway.folder, "agent", 'open("file", "w").close()\nos.makedirs("a/b")\nchat("x")\ntime.sleep(100)')
    runner = Runner(gateway, {"r": {"run": run, "slots": 2}}).start()
    submit(gateway, id="g", runner="r", n=2, reward="external", input=None)
    g.wait_until(lambda: len(runner.work_folders()) == 4, 20, "two runs")
    left = set(runner.work_folders())
    other = Runner(gateway, {"s": {"run": run}}, **{"work-dir": runner.options["work-dir"]})
    with open(f"{runner.folder}/work/mine", "w"):
        pass
    other.start()
    runner.process.kill()
    runner.process.wait(10)
    runner.log_file.close()
    assert other.stop() == 0 and "before left" not in other.log(), "it is not alone"
    assert left <= set(runner.work_folders())
    runner.start()
    g.wait_until(lambda: not left & set(runner.work_folders()), 10, "the next one removes them")
    assert "mine" in runner.work_folders(), "which is not an attempt's"
    os.unlink(f"{runner.folder}/work/mine")
    gateway.post("/groups/g/cancel")
    assert runner.stop() == 0, runner.log()
    assert "cannot be removed" not in runner.log(), runner.log()
    assert os.listdir(f"{runner.folder}/work") == []


@pytest.mark.skipif(not SHIM.exists(), reason=f"{SHIM} is not built")
def test_a_working_folder_without_locks_is_not_taken_for_one_in_use(gateway, tmp_path):
    """A lock that the file system refuses is reported at once. Nothing is removed: another executor may work there."""
    (tmp_path / "flock").write_text(str(errno.ENOLCK))
    runner = Runner(gateway, {"r": {"run": script(gateway.folder, "agent", "pass"), "slots": 1}})
    os.makedirs(f"{runner.folder}/work/{'0' * 32}")
    runner.env |= {"LD_PRELOAD": f"{sanitizer()} {SHIM}", "RG_FAULTS": str(tmp_path)}
    with runner:
        assert re.search("refuses locks.*is not removed.*No locks available", runner.log()), runner.log()
        assert "0" * 32 in runner.work_folders()
        os.rmdir(f"{runner.folder}/work/{'0' * 32}")


@pytest.mark.alone
def test_cancel_ends_processes(start):
    gateway = start(engine="builtin:echo", workers=2)  # the lease is long: 100 starting agents take all of a small machine
    word = f"cancelled-{os.urandom(6).hex()}"
    run = script(gateway.folder, "agent", """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
chat("x")
time.sleep(600)
""")
    with Runner(gateway, {"r": {"run": run + [word], "slots": 100, "grace": "500ms"}}) as runner:
        submit(gateway, id="g", runner="r", n=100, input=None)
        g.wait_until(lambda: len(processes_with(word)) == 100, 120, "all run")
        assert gateway.post("/groups/g/cancel").json() == {"cancelled": ["g"]}
        g.wait_until(lambda: not processes_with(word), 5, "all are gone")
        g.wait_until(lambda: runner.log().count("outcome=cancelled") == 100, 60, "all are told")


def test_the_run_cannot_see_the_runner_key(start, tmp_path):
    keys = tmp_path / "admin"
    keys.write_text("an-admin-key-of-this-test\n")
    gateway = start(engine="builtin:echo", workers=1, admin_key_file=str(keys))
    secret = (tmp_path / "executor")
    secret.write_text(subprocess.run(
        [str(g.BINARY), "key", "executor", "node1", f"--state-dir={gateway.folder}/state", f"--admin-key-file={keys}"],
        check=True, capture_output=True, text=True).stdout)
    assert secret.read_text().startswith("rgx-node1-")
    run = script(gateway.folder, "agent", """
chat("x")
keys = [open(f"/proc/{p}/environ", "rb").read() for p in ("self", str(os.getppid()))]
print(b"".join(keys).replace(b"\\0", b"\\n").decode())
""")
    score = script(gateway.folder, "score", 'assert os.environ["ROLLGATE_RUNNER_KEY"].startswith("rgr-"); print(1)')
    admin = {"Authorization": "Bearer an-admin-key-of-this-test"}
    with Runner(gateway, {"r": {"run": run, "score": score}}, **{"key-file": str(secret)}) as runner:
        assert gateway.post("/groups", {"id": "g", "runner": "r", "input": None}, headers=admin).status == 201
        group = gateway.get("/groups/g/wait?timeout_s=20", headers=admin).json()
        log = open(group["members"][0]["log"]).read()
    assert group["state"] == "finished" and group["members"][0]["reward"] == 1
    assert "rga-" in log and "rgr-" not in log and "rgx-" not in log, log
    assert "rgx-" not in runner.log() and "rgr-" not in runner.log()


def test_long_logs_lose_their_middle(gateway):
    run = script(gateway.folder, "agent", """
chat("x")
print("the beginning")
for i in range(120000):
    print(f"line {i:06} " + "x" * 40)
sys.stdout.flush()
sys.stdout.buffer.write("the end \\u00e9\\n".encode() + b"\\xff\\xfe broken")
""")
    with Runner(gateway, {"r": {"run": run}}):
        submit(gateway, id=".g", runner="r", reward="external", input=None)
        member = wait_group(gateway, ".g")["members"][0]
    data = open(member["log"], "rb").read()
    assert len(data) <= 4 << 20 and len(data) > 3 << 20
    assert data.startswith(b"the beginning\n") and data.endswith(b"\xff\xfe broken")
    assert b"bytes left out]" in data
    numbers = [int(x) for x in re.findall(rb"^line (\d{6}) x{40}$", data, re.M)]
    gaps = [(a, b) for a, b in zip(numbers, numbers[1:]) if b != a + 1]
    assert len(gaps) == 1 and numbers[0] == 0 and numbers[-1] == 119999
    assert member["log_tail"].endswith("the end \u00e9\n?? broken") and len(member["log_tail"]) > 3000


@pytest.mark.parametrize("case, group, outcome, reason", [
    ({"run": ["/no/such/program"]}, {"infra_attempts": 1}, "infra", "cannot be started: No such file"),
    ({"run": ["sh", "-c", "exit 3"]}, {"attempts": 1}, "error", "exit status 3"),
    ({"run": ["sh", "-c", "kill -SEGV $$"]}, {"attempts": 1}, "error", "killed by signal 11"),
    ({"run": ["echo", "{input.a.b}"]}, {"attempts": 1}, "error", "no value for {input.a.b}"),
    ({"run": ["true"], "score": ["echo", "good"]}, {"attempts": 1}, "error", "neither a number nor an object"),
    ({"run": ["true"], "score": ["false"]}, {"attempts": 1}, "error", "the scorer: exit status 1"),
    ({"run": ["true"], "score": ["sh", "-c", "exit 75"]}, {"infra_attempts": 1}, "infra", "the scorer: exit status 75"),
    ({"run": ["true"], "score": ["sleep", "60"], "score_timeout": "200ms", "grace": "0"}, {"attempts": 1}, "error",
     "the scorer: killed by signal"),
    ({"run": ["true"]}, {"attempts": 1}, "error", ""),
])
def test_how_an_attempt_ends(gateway, case, group, outcome, reason):
    with Runner(gateway, {"r": case}):
        submit(gateway, id="g", runner="r", input={"a": 1}, **group)
        result = wait_group(gateway, "g")
    member = result["members"][0]
    assert result["state"] == "failed" and member["outcome"] == outcome, member
    assert reason in (member["reason"] or ""), member


@pytest.mark.parametrize("setting, told", [("max_body_bytes", "--max-body-bytes allows (16384 bytes)"),
                                           ("max_control_body_bytes", "--max-control-body-bytes allows 16384")])
def test_a_refused_end_is_told_as_an_error(start, setting, told):
    """A reward that is too long for the gateway costs its attempt alone, which says so."""
    gateway = start(attempt_lease="3s", **{setting: "16k"})
    score = script(gateway.folder, "score", 'print(json.dumps({"reward": 1, "why": "x" * 20000}))')
    with Runner(gateway, {"r": {"run": script(gateway.folder, "agent", 'chat("x")'), "score": score}}) as runner:
        submit(gateway, id="g", runner="r", attempts=1)
        member = wait_group(gateway, "g")["members"][0]
        assert member["outcome"] == "error" and "refused the attempt's end with 413: " in member["reason"], member
        assert told in member["reason"] and member["attempts"] == 1, member
        assert "an attempt's end is refused" in runner.log()


def test_a_refused_infra_stays_infra(gateway):
    """Refused for the log's path, which is no text: it is told without it, and costs no attempt of the task's."""
    with Runner(gateway, {"r": {"run": ["sh", "-c", "echo so it was; exit 75"]}}, logs=f"{gateway.folder}/logs-\udcff") as runner:
        submit(gateway, id="g", runner="r", infra_attempts=1)
        member = wait_group(gateway, "g")["members"][0]
        assert (member["outcome"], member["log_tail"]) == ("infra", "so it was\n"), member
        assert "refused the attempt's end with 400: " in member["reason"] and "an attempt's end is refused" in runner.log()


def test_term_drains(gateway):
    """What ends within the grace counts; what does not is tried elsewhere."""
    run = script(gateway.folder, "agent", 'chat("x"); print("up", flush=True); time.sleep(task)')
    runner = Runner(gateway, {"r": {"run": run, "slots": 2, "grace": "1s"}}, grace="1500ms").start()
    submit(gateway, id="short", runner="r", reward="external", input=1)
    submit(gateway, id="long", runner="r", reward="external", input=600, infra_attempts=1)
    for name in ("short", "long"):
        g.wait_until(lambda name=name: any("up" in open(f"{runner.folder}/logs/{name}/{f}").read()
                                           for f in os.listdir(f"{runner.folder}/logs/{name}"))
                     if os.path.exists(f"{runner.folder}/logs/{name}") else False, 20, f"{name} runs")
    assert runner.stop() == 0, runner.log()
    assert wait_group(gateway, "short")["state"] == "finished"
    member = wait_group(gateway, "long")["members"][0]
    assert member["outcome"] == "infra" and "executor is stopping" in member["reason"]
    assert runner.work_folders() == []


def test_an_executor_that_stops_is_no_failure_of_its_runner(start):
    """Whatever it ends is given to the next one: the breaker stays shut."""
    gateway = start(engine="builtin:echo", runner_breaker=1)
    run = script(gateway.folder, "agent", 'chat("x"); print("up", flush=True); time.sleep(task)')
    rows = {"r": {"run": run, "slots": 2, "grace": "1s"}}
    runner = Runner(gateway, rows, grace="100ms").start()
    submit(gateway, id="g", runner="r", reward="external", n=2, input=600)

    def both_run():
        logs = list(Path(runner.folder, "logs").glob("g/*"))
        return len(logs) == 2 and all("up" in log.read_text() for log in logs)
    g.wait_until(both_run, 20, "both run")
    assert runner.stop() == 0, runner.log()
    submit(gateway, id="next", runner="r", reward="external", input=0, priority=1)
    with Runner(gateway, rows, grace="100ms"):
        assert wait_group(gateway, "next")["state"] == "finished"
    assert gateway.get("/queues/train").json()["blocked"] == []


def test_a_gateway_that_restarts(gateway):
    """The executor keeps its runs going and comes back; a journal of attempts on the other side."""
    run = script(gateway.folder, "agent", """
chat("before")
print("up", flush=True)
while not os.path.exists(task): time.sleep(0.05)
""")
    go = f"{gateway.folder}/go"
    with Runner(gateway, {"r": {"run": run}}) as runner:
        submit(gateway, id="g", runner="r", reward="external", input=go, infra_attempts=1, attempts=1)
        g.wait_until(lambda: os.path.exists(f"{runner.folder}/logs/g") and any(
            "up" in open(f"{runner.folder}/logs/g/{f}").read() for f in os.listdir(f"{runner.folder}/logs/g")), 20, "it runs")
        gateway.kill()
        gateway.start()
        open(go, "w").close()
        assert wait_group(gateway, "g")["state"] == "finished", runner.log()


def test_idleness_is_no_absence(gateway):
    """Nothing was asked for longer than --reconnect; then the gateway is replaced."""
    with Runner(gateway, {"r": {"run": ["true"]}}, reconnect="6s") as runner:
        g.pause(7, "longer than --reconnect, and nothing is asked")
        gateway.stop()
        gateway.start()
        submit(gateway, id="g", runner="r", reward="external", attempts=1, input=None)
        assert wait_group(gateway, "g")["state"] == "failed", "it ran, and called no model"
        assert runner.process.poll() is None


def test_a_gateway_that_stays_away(gateway):
    runner = Runner(gateway, {"r": {"run": ["true"]}}, reconnect="300ms").start()
    gateway.stop()
    assert runner.process.wait(20) == 1
    runner.log_file.close()
    assert "the gateway is away for too long" in runner.log()


def test_a_gateway_that_stays_away_while_attempts_run(gateway):
    """The runs are ended, and so is the executor: it does not wait for an answer that never comes."""
    word = f"left-{os.urandom(6).hex()}"
    run = script(gateway.folder, "agent", 'chat("x"); time.sleep(600)')
    runner = Runner(gateway, {"r": {"run": run + [word], "slots": 3}}, reconnect="300ms", grace="0").start()
    try:
        submit(gateway, id="g", runner="r", n=3, input=None)
        g.wait_until(lambda: len(processes_with(word)) == 3, 20, "all run")
        gateway.kill()
        assert runner.process.wait(20) == 1
    finally:
        runner.process.kill()
        runner.process.wait(10)
        runner.log_file.close()
    assert not processes_with(word) and "away for too long" in runner.log(), runner.log()
    assert runner.work_folders() == []


class Service(HttpStub):
    """A service that runs attempts: each POST /run answers what `reply` gives for it."""

    def __init__(self, reply):
        service = self
        self.requests, self.cancelled, self.release = [], [], threading.Event()

        class Run(Handler):
            def do_POST(self):
                body = json.loads(self.body())
                if self.path == "/flush":
                    service.cancelled.append(body)
                    service.release.set()
                    status, out = 200, b"{}"
                else:
                    service.requests.append((self.path, body))
                    status, out = reply(service, body)
                with contextlib.suppress(OSError):
                    self.answer(status, out)
        super().__init__(Run)

    def close(self):
        self.release.set()
        super().close()


def chat_for(gateway, body):
    path = body["base_url"][len(gateway.url):] + "/chat/completions"
    answer = gateway.post(path, {"model": "m", "messages": [{"role": "user", "content": "hi"}]},
                          headers={"Authorization": f"Bearer {body['api_key']}"})
    assert answer.status == 200, answer.text


def test_a_service_runs_attempts(gateway):
    def reply(service, body):
        if body["input"] == "refuse":
            return 404, b"no such task"
        if body["input"] == "break" and body["attempt"] == min(r["attempt"] for _, r in service.requests
                                                               if r["input"] == "break"):
            return 503, b""
        chat_for(gateway, body)
        return 200, json.dumps({"reward": 0.75, "who": body["metadata"]["who"]}).encode()
    with Service(reply) as service, Runner(gateway, {"h": {"http": service.url + "/run", "slots": 8}}):
        submit(gateway, id="good", runner="h", n=2, input="x", metadata={"who": "me"})
        submit(gateway, id="refuse", runner="h", input="refuse", attempts=1)
        submit(gateway, id="break", runner="h", input="break", metadata={"who": "you"})
        good, refuse, broken = (wait_group(gateway, x) for x in ("good", "refuse", "break"))
    assert good["state"] == "finished" and all(m["reward_info"] == {"reward": 0.75, "who": "me"} for m in good["members"])
    assert refuse["state"] == "failed" and refuse["members"][0]["outcome"] == "error"
    assert "the service answered 404" in refuse["members"][0]["reason"]
    assert broken["state"] == "finished" and broken["members"][0]["attempts"] == 2
    assert all(path == "/run" for path, _ in service.requests)


def test_a_service_is_told_to_cancel(gateway):
    def reply(service, body):
        chat_for(gateway, body)
        service.release.wait(30)
        return 200, b"1"
    with Service(reply) as service, Runner(gateway, {"h": {"http": service.url + "/run", "cancel": service.url + "/flush",
                                                           "timeout": "700ms", "grace": "2s"}}):
        submit(gateway, id="g", runner="h", input=None)
        member = wait_group(gateway, "g")["members"][0]
        assert member["outcome"] == "timeout" and member["reward"] == 1 and member["finished"] is False, member
    assert [c["session_id"] for c in service.cancelled] == [member["session_id"]]


def test_a_service_that_is_not_there(gateway):
    with Runner(gateway, {"h": {"http": f"http://127.0.0.1:{g.free_port()}/run"}}):
        submit(gateway, id="g", runner="h", input=None, infra_attempts=1)
        member = wait_group(gateway, "g")["members"][0]
    assert member["outcome"] == "infra" and member["state"] == "failed"


BAD = """runners:
  a:
    run: [/bin/true, "--x={input.a}"]
    slots: 0
    start_rate: fast
    timeout: soon
    slotz: 3
  b: {http: "http://h:1/run", score: [x]}
  c: {run: [], http: unix:/x}
  d: {}
  e: [1]
  f: {run: ["{input.program}"], env: {OPENAI_API_KEY: x}, pass_env: [1x], cancel: "http://h:1/"}
  f: {run: [x], run: [y]}
  g: {run: [x], pass_env: [HOME, OPENAI_API_KEY]}
  h: {run: [x], pass_env: [ROLLGATE_INPUT]}
other: 1
"""
MISTAKES = [
    "3: a.run: {input.NAME} must be a whole argument", "4: a.slots: must be a number from 1 to 10000",
    "5: a.start_rate: must be a rate such as 4/s or 30/m", "6: a.timeout: must be a duration",
    '7: a: unknown setting "slotz"; did you mean "slots"?', "8: b.score: is allowed with run only",
    "9: c.run: must be a list of 1 to 4096 strings", "9: c.http: must begin with http:// or https://",
    "9: c: needs run or http, and not both", "10: d: needs run or http, and not both", "11: e: must be a mapping with run or http",
    "12: f.run: must begin with a program, not with an input", "12: f.env: sets a variable that rollgate sets itself",
    "12: f.pass_env: must contain names of variables", "12: f.cancel: is allowed with http only", "13: f: is defined twice",
    "13: f.run: set twice", "14: g.pass_env: names a variable that rollgate sets itself",
    "15: h.pass_env: names a variable that rollgate sets itself", '16: the file may contain "runners" only, once']


def test_all_mistakes_of_a_runner_file_are_told_at_once(tmp_path):
    path = tmp_path / "runners.yaml"
    path.write_text(BAD)
    done = subprocess.run([str(g.BINARY), "runner", f"--runners={path}", "--grace=x", "--loggs=y"], capture_output=True,
                          text=True, timeout=20, check=False)
    assert done.returncode == 2
    for line in MISTAKES:
        assert f"{path}:{line}" in done.stderr, (line, done.stderr)
    assert "--grace: must be a duration" in done.stderr and "--loggs: unknown option" in done.stderr
    assert len(done.stderr.splitlines()) == len(MISTAKES) + 2, done.stderr
    check = [str(g.BINARY), "config", "--check", "--runners", str(path), "--workers", "x"]
    done = subprocess.run(check, capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 2 and "--workers" in done.stderr
    assert all(f"{path}:{line}" in done.stderr for line in MISTAKES), done.stderr
    path.write_text("runners: {a: {run: [x]}}")
    done = subprocess.run(check[:-2], capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 0, done.stderr
    path.unlink()
    done = subprocess.run(check[:-2], capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 2 and f"--runners: cannot open {path}: No such file" in done.stderr, done.stderr


@pytest.mark.parametrize("text, says", [
    ("", "the file must be a mapping"), ("runners: {}", "must be a mapping of 1 to 256 runners"), ("x: 1", "runners: is missing"),
    ("runners: {a: {run: [x", "did not find"), ("runners: *x", "found undefined alias")])
def test_other_bad_runner_files(tmp_path, text, says):
    path = tmp_path / "runners.yaml"
    path.write_text(text)
    done = subprocess.run([str(g.BINARY), "runner", f"--runners={path}"], capture_output=True, text=True, timeout=20,
                          check=False)
    assert done.returncode == 2 and says in done.stderr, done.stderr

"""The supervisor: start, crash, drain, scaling, inherited sockets, upgrade. Children are stubs (supervisor_stub.c) if
it does not matter what they serve."""
import contextlib
import errno
import os
import re
import shutil
import signal
import socket
import subprocess
import threading

import pytest

import gateway as g


class Load:
    """Closed-loop clients that count what fails."""

    def __init__(self, gateway, path="/", clients=4):
        self.gateway, self.path, self.stopping = gateway, path, False
        self.ok, self.failed, self.refused = 0, [], 0
        self.threads = [threading.Thread(target=self.run, daemon=True) for _ in range(clients)]
        for t in self.threads:
            t.start()

    def run(self):
        while not self.stopping:
            try:
                assert self.gateway.get(self.path, timeout=20).status == 200
                self.ok += 1
            except ConnectionRefusedError:
                self.refused += 1
            except Exception as e:
                self.failed.append(repr(e))

    def stop(self):
        self.stopping = True
        for t in self.threads:
            t.join()


def test_children_are_named_and_found(stub):
    s = stub(workers=3, routers=2).start()
    assert len(s.family()) == 6
    assert s.get("/").text.split()[0] in ("router-0", "router-1")
    assert s.has_line(r"rollgate starts version=\S+ cores=\d+ nofile=\d+ connections_per_router=\d+")
    assert s.stop() == 0


@pytest.mark.parametrize("name", ["router-0", "router-1", "worker-0"])
def test_a_killed_child_refuses_nobody(stub, name):
    s = stub(workers=2, routers=2).start().allow("process died")
    load = Load(s)
    victim = s.child(name)
    g.wait_until(lambda: load.ok > 20, what="load runs")
    os.kill(victim, signal.SIGKILL)
    g.wait_until(lambda: s.child(name) != victim, what="the successor serves")
    done = load.ok
    g.wait_until(lambda: load.ok > done + 20, what="load goes on")
    load.stop()
    assert load.refused == 0
    assert len(load.failed) <= 4  # at most what was in flight at the victim
    assert s.has_line(rf"process died process={name} died_pid={victim} how=\"killed by signal 9")


def test_last_words_stand_in_the_obituary(stub):
    s = stub(routers=1).start().allow("process died", "check failed")
    with pytest.raises(Exception):
        s.get("/crash")
    s.wait_line(r"process died process=router-0 .*asked to crash")
    assert s.get("/").status == 200


@pytest.mark.parametrize("when_ms", [0, 2, 5, 10, 30, 100])
def test_term_at_any_moment_of_the_start(stub, when_ms):
    s = stub(workers=4, routers=2).start(wait=False)
    g.pause(when_ms / 1000, "the moment of the start")
    s.family()
    s.signal(signal.SIGTERM)
    status = s.wait()
    # Before main could block the signal, the kernel's default ends it; nothing lives then either.
    assert status in (0, -signal.SIGTERM) and (status == 0 or not s.log())


def test_term_lets_running_requests_finish_and_is_idempotent(stub):
    s = stub(routers=2).start()
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(s.get("/slow/1500").status))
               for _ in range(4)]
    for t in threads:
        t.start()
    g.pause(0.3, "the requests, of 1.5 s each, are at the workers")
    for _ in range(3):
        for pid in s.family():  # as Slurm does: to everybody, more than once
            with contextlib.suppress(ProcessLookupError):   # on a busy machine a router may have ended by now
                os.kill(pid, signal.SIGTERM)
        g.pause(0.1, "and once more while they run")
    for t in threads:
        t.join()
    assert answers == [200] * 4
    assert s.wait() == 0


def test_a_port_whose_routers_have_ended_refuses(stub):
    """A client that waits in the queue of a port that nobody serves gets a reset."""
    s = stub(routers=2).start()
    routers, worker = [s.child("router-0"), s.child("router-1")], s.child("worker-0")
    os.kill(worker, signal.SIGSTOP)     # the supervisor waits for it
    s.signal(signal.SIGTERM)
    g.wait_until(lambda: not any(g.alive(pid) for pid in routers), what="the routers have ended")
    with pytest.raises(ConnectionRefusedError):
        s.get("/")
    os.kill(worker, signal.SIGCONT)
    assert s.wait() == 0


def test_grace_ends_what_does_not_end(stub):
    s = stub(routers=1, grace="300ms").start()
    client = threading.Thread(target=lambda: s.get("/slow/60000"), daemon=True)
    threading.excepthook = lambda args: None  # the client loses its answer, as it must
    client.start()
    g.pause(0.2, "the request, of a minute, is at the worker")
    s.signal(signal.SIGTERM)
    assert s.wait(20) == 0
    client.join()
    assert s.has_line("killed what did not end in time")


def test_quit_ends_at_once(stub):
    s = stub(routers=1).start()
    s.signal(signal.SIGQUIT)
    assert s.wait(5) == 0


def test_a_child_told_to_end_by_somebody_is_replaced(stub):
    s = stub(routers=1).start()
    old = s.child("router-0")
    os.kill(old, signal.SIGTERM)
    g.wait_until(lambda: s.child("router-0") != old, what="a successor serves")
    assert s.has_line("ended on a signal not sent by the supervisor")
    assert s.get("/").status == 200


def test_children_die_with_the_supervisor(stub):
    s = stub(workers=2, routers=2).start()
    family = s.family()
    s.signal(signal.SIGKILL)
    s.wait()
    g.wait_until(lambda: not any(g.alive(p) for p in family), 5, "all end")


def test_too_many_deaths_end_the_service(stub):
    s = stub(routers=1, max_restarts=3).start()
    s.allow("process died", "too many processes died")
    for _ in range(4):
        victim = s.child("worker-0")
        os.kill(victim, signal.SIGKILL)
        g.wait_until(lambda: s.child("worker-0") != victim or s.process.poll() is not None)
    assert s.wait() == 1
    assert s.has_line("too many processes died")


def test_a_child_that_cannot_start_fails_the_start_with_its_words(stub):
    s = stub(env={"STUB_FAIL": "worker-1"}).start(wait=False)
    s.allow("process died", "start failed")
    assert s.wait() == 1
    assert s.has_line(r"start failed process=worker-1 reason=\"the stub was told to fail\"")


def test_a_failed_start_does_not_wait_for_its_requests(start):
    s = start(workers=1, grace="200s")
    assert s.stop() == 0
    os.unlink(f"{s.folder}/state/worker-0/seg-00000001")
    s.allow("process died", "start failed", "No such file", "cut off")
    s.start(wait=False)

    def client():
        while s.process.poll() is None:
            try:
                s.post("/sessions", {})
            except OSError:
                pass
    thread = threading.Thread(target=client)
    thread.start()
    assert s.wait(20) == 1
    thread.join()
    assert s.has_line("start failed process=worker-0 reason=\"cannot open journal segment 1")


def test_a_failed_start_leaves_the_others_calls_their_grace(start):
    s = start(workers=2, start_timeout="1s", engine="builtin:echo,delay_ms=2500")
    assert s.stop() == 0
    os.unlink(f"{s.folder}/state/worker-1/MANIFEST")
    os.mkfifo(f"{s.folder}/state/worker-1/MANIFEST")    # worker-1 waits for a writer
    s.allow("process died", "start failed", "does not report", "cut off")
    s.start(wait=False)
    g.wait_until(lambda: all(s.log().count(f"process serves process={x}-0") == 2 for x in ("worker", "router")), what="both serve")
    session = s.post("/sessions", {}).json()
    assert s.chat(session, "q").status == 200
    assert s.wait(20) == 1
    assert s.has_line("start failed process=worker-1") and not s.has_line("cut off")


def test_a_child_that_does_not_report_fails_the_start(stub):
    s = stub(env={"STUB_MUTE": "router-0"}, start_timeout="500ms").start(wait=False)
    s.allow("process died", "start failed", "does not report")
    assert s.wait() == 1


def test_a_child_that_never_comes_up_fails_the_start_in_time(stub):
    s = stub(env={"STUB_EXIT": "worker-0"}, start_timeout="1500ms").start(wait=False)
    s.allow("worker-0")
    assert s.wait(20) == 1
    assert s.has_line("start failed process=worker-0 reason=.*never reported")


def test_a_child_that_exits_during_the_start_is_tried_again_until_it_is_too_often(stub):
    s = stub(env={"STUB_EXIT": "router-0"}, max_restarts=2).start(wait=False)
    s.allow("process died", "too many")
    assert s.wait() == 1
    assert s.log().count("process died process=router-0") == 3


def test_a_stuck_process_is_ended_and_replaced(stub):
    s = stub(routers=2, hang_timeout="2500ms").start().allow("process is stuck", "process died")
    threading.excepthook = lambda args: None
    client = threading.Thread(target=lambda: s.get("/hang"), daemon=True)
    client.start()
    s.wait_line("process is stuck process=router-", 20)
    client.join()
    g.wait_until(lambda: s.log().count("process serves process=router-") == 3)
    assert s.get("/").status == 200


def test_a_second_gateway_does_not_share_the_port_or_the_folder(stub):
    a = stub().start()
    b = stub(listen=f"127.0.0.1:{a.port}").start(wait=False).allow("cannot start")
    assert b.wait() == 1 and b.has_line(f"cannot listen on 127.0.0.1:{a.port}: Address already in use")
    c = stub(state_dir=f"{a.folder}/state").start(wait=False).allow("cannot start")
    assert c.wait() == 1 and c.has_line(f"another rollgate uses {a.folder}/state: give each its own --state-dir")


def test_beyond_loopback_needs_keys(stub):
    s = stub(listen="0.0.0.0:0").start(wait=False).allow("cannot start")
    assert s.wait() == 1 and s.has_line("listening beyond loopback needs keys")
    s = stub(listen="0.0.0.0:0", insecure=True).start()
    assert s.has_line("--insecure: anybody")


def test_all_mistakes_of_the_configuration_in_one_run(stub):
    s = stub(workers="x", grace="y", log_format="z").start(wait=False)
    assert s.wait() == 2
    for name in ("workers", "grace", "log-format"):
        assert s.has_line(f"--{name}: \"")


def with_sockets(s, sockets, **more):
    """Starts a gateway as systemd would, with listening sockets from descriptor 3 on."""
    numbers = [k.fileno() for k in sockets]
    shell = " ".join(f"{10 + i}<&{n}" for i, n in enumerate(numbers))
    moves = " ".join(f"{3 + i}<&{10 + i}" for i in range(len(numbers)))
    line = f'exec {shell}; exec {moves}; export LISTEN_PID=$$ LISTEN_FDS={len(numbers)}; exec "$@"'
    with open(s.log_path, "ab") as log:
        s.process = subprocess.Popen(["bash", "-c", line, "x"] + s.arguments(), stderr=log, stdout=log,
                                     stdin=subprocess.DEVNULL, env=s.env, pass_fds=numbers, **more)
    s.remember(s.process.pid)
    return s.wait_serving()


def test_given_sockets_are_used_as_they_are(stub):
    s = stub(routers=3)
    with socket.socket() as k:
        k.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        k.bind(("127.0.0.1", s.port))
        k.listen(64)
        with_sockets(s, [k])
        seen = {s.get("/").text.split()[0] for _ in range(60)}
        assert seen <= {"router-0", "router-1", "router-2"} and seen
        victim = s.child("router-0")
        s.allow("process died")
        os.kill(victim, signal.SIGKILL)
        g.wait_until(lambda: s.child("router-0") != victim)
        assert s.get("/").status == 200
        assert s.stop() == 0


def test_a_port_that_systemd_keeps_waits_for_the_next_instance(start):
    """Neither a refused nor a failed request while one instance drains and the next one starts."""
    s, failures, answered = g.Gateway(engine="builtin:echo,delay_ms=100", workers=1), [], []
    stop = threading.Event()

    def client():
        while not stop.is_set():
            try:
                a = s.post("/sessions", {})
                if a.status != 200:
                    failures.append(a.text)
                session = a.json()
                a = s.chat(session, "hi")
                answered.append(a.status)
                if a.status != 200:
                    failures.append(a.text)
            except OSError as e:
                failures.append(repr(e))

    with socket.socket() as k:
        k.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        k.bind(("127.0.0.1", s.port))
        k.listen(4096)
        with_sockets(s, [k])
        threads = [threading.Thread(target=client) for _ in range(4)]
        for t in threads:
            t.start()
        for _ in range(3):
            g.pause(0.5, "the clients work between two ends")
            assert s.stop() == 0
            s.log_start = len(s.log())
            with_sockets(s, [k])
        stop.set()
        for t in threads:
            t.join(20)
        assert s.stop() == 0
    assert failures == [] and len(answered) > 20


def scale(s, workers, routers):
    """Writes the configuration file and reloads."""
    done = s.log().count("configuration reloaded")
    with open(f"{s.folder}/conf.yaml", "w") as f:
        f.write(f"workers: {workers}\nrouters: {routers}\n")
    s.signal(signal.SIGHUP)
    g.wait_until(lambda: s.log().count("configuration reloaded") > done, what="reload")


def scalable(stub, workers, routers):
    s = stub()
    s.settings.pop("workers"), s.settings.pop("routers")
    s.settings["config"] = f"{s.folder}/conf.yaml"
    with open(f"{s.folder}/conf.yaml", "w") as f:
        f.write(f"workers: {workers}\nrouters: {routers}\n")
    return s.start()


def worker_answer(s, index, path="/"):
    with socket.socket(socket.AF_UNIX) as k:
        k.settimeout(20)
        k.connect(f"{s.folder}/state/run/worker-{index}.sock")
        k.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        text = b""
        while True:
            piece = k.recv(4096)
            if not piece:
                return text.split(b"\r\n\r\n", 1)[1].decode()
            text += piece


def test_scaling_under_load_refuses_nobody(stub):
    s = scalable(stub, 4, 1)
    load = Load(s, "/slow/5")
    scale(s, 8, 3)
    g.wait_until(lambda: s.log().count("process serves process=") == 4 + 1 + 4 + 2)
    assert worker_answer(s, 7).startswith("worker-7 ")
    assert {s.get("/").text.split()[0] for _ in range(60)} == {"router-0", "router-1", "router-2"}
    scale(s, 2, 1)
    g.wait_until(lambda: s.log().count("sessions adopted") == 6, what="six places are adopted")
    g.wait_until(lambda: len(s.family()) == 1 + 2 + 1, what="the retired have ended")
    done = load.ok
    g.wait_until(lambda: load.ok > done + 20)
    load.stop()
    assert load.failed == [] and load.refused == 0
    for index in range(2, 8):
        assert worker_answer(s, index).split()[0] in ("worker-0", "worker-1")
    adopted = worker_answer(s, 0, "/adopted").split() + worker_answer(s, 1, "/adopted").split()
    assert sorted(adopted) == ["2", "3", "4", "5", "6", "7"]
    # An adopter's successor inherits the places.
    s.allow("process died")
    victim = s.child("worker-0")
    had = worker_answer(s, 0, "/adopted").split()
    os.kill(victim, signal.SIGKILL)
    g.wait_until(lambda: s.child("worker-0") != victim)
    assert sorted(worker_answer(s, 0, "/adopted").split()) == sorted(had)
    # Growing again takes fresh places: the old ids live with their adopters.
    scale(s, 3, 1)
    s.wait_line("process serves process=worker-8 ")


def test_journals_of_a_larger_past_find_an_owner_at_start(stub):
    s = stub(workers=2)
    for index in (2, 5):
        os.makedirs(f"{s.folder}/state/worker-{index}")
    s.start()
    adopted = worker_answer(s, 0, "/adopted").split() + worker_answer(s, 1, "/adopted").split()
    assert sorted(adopted) == ["2", "5"]
    assert worker_answer(s, 5).split()[0] in ("worker-0", "worker-1")


def test_a_wrong_configuration_is_not_reloaded(stub):
    s = scalable(stub, 2, 1)
    s.allow("configuration not reloaded")
    with open(f"{s.folder}/conf.yaml", "w") as f:
        f.write("workers: 3\nmax-restarts: many\n")
    s.signal(signal.SIGHUP)
    s.wait_line(r"configuration not reloaded mistake=.*conf.yaml:2: max-restarts")
    assert len(s.family()) == 4
    with open(f"{s.folder}/conf.yaml", "w") as f:
        f.write("workers: 2\nrouters: 1\nmodel: /elsewhere\nlog-level: debug\n")
    s.signal(signal.SIGHUP)
    s.wait_line("settings that need a restart have changed, ignoring settings=model")
    s.wait_line("configuration reloaded")
    s.signal(signal.SIGUSR1)    # tools that rotate logs send it
    s.wait_line("USR1 has no effect")
    assert s.get("/").status == 200


def test_upgrade_refuses_nobody_and_keeps_the_pid(stub):
    s = stub(workers=2, routers=2)
    s.binary = shutil.copy(g.STUB, f"{s.folder}/gateway")
    s.start()
    load = Load(s, "/slow/20")
    for turn in range(3):
        old = s.family()
        shutil.copy(g.STUB, f"{s.folder}/gateway.new")
        os.rename(f"{s.folder}/gateway.new", f"{s.folder}/gateway")
        s.signal(signal.SIGUSR2)
        g.wait_until(lambda: s.log().count("supervisor %d serving" % s.process.pid) == turn + 2)
        g.wait_until(lambda: not any(g.alive(p) for p in old[1:]), what="the old children end")
        s.family()
    done = load.ok
    g.wait_until(lambda: load.ok > done + 20)
    load.stop()
    assert load.failed == [] and load.refused == 0
    assert s.process.poll() is None and len(s.family()) == 5


def test_systemd_is_told(stub, tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as k:
        k.bind(str(tmp_path / "notify"))
        k.settimeout(20)
        s = stub(env={"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "600000"}).start()
        text = k.recv(4096).decode()
        assert text.startswith("READY=1\nMAINPID=%d\n" % s.process.pid)
        for _ in range(3):
            assert k.recv(4096) == b"WATCHDOG=1"
        s.signal(signal.SIGTERM)
        while k.recv(4096) != b"STOPPING=1":
            pass
        assert s.wait() == 0


def status_of(pid, name):
    return re.search(rf"^{name}:\s*(\S+)", open(f"/proc/{pid}/status").read(), re.M)[1]


REFUSED = {"exec": errno.ENOSYS, "fork": errno.EPERM, "ptrace": errno.ENOSYS, "kill_parent": errno.EPERM,
           "packet": errno.EPERM, "vsock": errno.EPERM, "audit": errno.EPERM, "listen": errno.ENOSYS,
           "mount": errno.ENOSYS, "raise_limit": errno.EPERM, "push_input": errno.EPERM}
GRANTED = ("own_signal", "inet", "read_limit", "read_file", "code", "names", "thread")


def tries(s, name):
    """What system calls say in that child: {what: errno}."""
    text = s.get("/tries").text if name == "router-0" else worker_answer(s, 0, "/tries")
    return {k: int(v) for k, v in (line.split() for line in text.split("\n") if line.strip("\0"))}


@pytest.mark.parametrize("name", ["router-0", "worker-0"])
def test_children_are_locked_in(stub, name):
    s = stub(routers=1, workers=1).start()
    pid = s.child(name)
    assert status_of(pid, "NoNewPrivs") == "1"
    for kind in ("CapEff", "CapPrm", "CapInh", "CapBnd", "CapAmb"):
        assert int(status_of(pid, kind), 16) == 0, kind
    limits = open(f"/proc/{pid}/limits").read()
    for what in ("core file size", "locked memory", "msgqueue size", "realtime priority"):
        assert re.search(rf"^Max {what} +0 +0 ", limits, re.M), what
    if "asan" in str(g.BUILD):
        assert s.has_line("sandbox=.on, but no system call filter")
        return
    assert s.has_line("sandbox=on") and status_of(pid, "Seccomp") == "2"
    s.allow("the sandbox refused a system call")
    before = s.get("/").text
    got = tries(s, name)
    elsewhere = {"look_elsewhere": errno.EACCES} if s.has_line("landlock=on") else {}
    refused = {**REFUSED, **elsewhere, **({"write_file": errno.EPERM} if name == "router-0" else {})}
    assert {k: v for k, v in got.items() if k in refused} == refused
    assert {k: v for k, v in got.items() if k not in refused} == dict.fromkeys(set(got) - set(refused), 0)
    assert set(got) - set(refused) >= set(GRANTED)
    s.wait_line(rf"the sandbox refused a system call process={name} call=\w+")
    assert s.get("/").text == before, "nothing was killed"


def test_the_sandbox_can_be_switched_off(stub):
    s = stub(routers=1, sandbox=False).start()
    assert s.has_line("sandbox=off")
    assert status_of(s.child("router-0"), "Seccomp") == status_of(os.getpid(), "Seccomp")
    assert tries(s, "router-0")["exec"] == errno.ENOENT


def test_workers_are_the_first_to_die_without_memory(stub):
    s = stub(workers=2, routers=1).start()

    def score(pid):
        with open(f"/proc/{pid}/oom_score_adj") as f:
            return int(f.read())
    own = score(os.getpid())
    assert score(s.process.pid) == score(s.child("router-0")) == own
    assert {score(s.child(f"worker-{i}")) for i in range(2)} == {max(own, 500)}


def test_no_descriptor_leaks_over_restarts(stub):
    s = stub(workers=1, routers=1).start().allow("process died")
    def kill_once():
        victim = s.child("worker-0")
        os.kill(victim, signal.SIGKILL)
        g.wait_until(lambda: s.child("worker-0") != victim, what="successor")
    kill_once()
    before = s.descriptors(s.process.pid), s.descriptors(s.child("worker-0"))
    kill_once()
    kill_once()
    assert (s.descriptors(s.process.pid), s.descriptors(s.child("worker-0"))) == before
    # stdin, stdout, stderr, listener, status, control, epoll, signalfd
    assert before[1] <= 8

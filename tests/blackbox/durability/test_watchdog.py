"""Stuck processes, and processes without descriptors: the reaction of the supervisor and of the processes, and
sessions that continue."""
import os
import resource
import signal
import socket
import threading

import pytest

import gateway as g
from test_streaming import new, user


def cpu_seconds(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def lag(gateway, process):
    return gateway.metrics()[f'rollgate_loop_lag_seconds{{process="{process}"}}']


def talk(gateway, session, messages):
    a = gateway.chat(session, messages)
    assert a.status == 200, a.text
    return [*messages, a.json()["choices"][0]["message"], *user("more")], a.json()


def test_a_stopped_worker_is_replaced_and_its_sessions_go_on(start):
    gateway = start(engine="builtin:random:3", workers=1, hang_timeout="2500ms")
    gateway.allow("process is stuck", "process died")
    s, stuck = new(gateway), gateway.child("worker-0")
    messages, _ = talk(gateway, s, user("hello"))
    before = gateway.get(f"/sessions/{s['session_id']}").json()["accumulated_token_ids"]
    os.kill(stuck, signal.SIGSTOP)
    _, answer = talk(gateway, s, messages)     # waits for the successor or is asked again
    gateway.wait_line(r"process is stuck process=worker-0 stuck_pid=\d+ for_ms=\d+")
    g.wait_until(lambda: gateway.child("worker-0") != stuck, what="the successor is named")
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == len(before)
    assert gateway.metrics()['rollgate_process_restarts_total{role="worker"}'] == 1


@pytest.mark.parametrize("name", ["router-0", "worker-0"])
def test_a_short_stop_shows_in_the_loop_lag_and_harms_nobody(start, name):
    gateway = start(engine="builtin:echo", workers=1, hang_timeout="20s")
    pid = gateway.child(name)
    os.kill(pid, signal.SIGSTOP)
    g.pause(2, "so long the process stands still")
    os.kill(pid, signal.SIGCONT)
    g.wait_until(lambda: lag(gateway, name) > 0.5, 5, "the stop shows")
    g.wait_until(lambda: lag(gateway, name) < 0.5, 10, "it is forgotten again")
    assert gateway.child(name) == pid and gateway.get("/ready").status == 200


def test_no_timeout_ends_nobody(start):
    gateway = start(workers=1, hang_timeout=0)
    pid = gateway.child("worker-0")
    os.kill(pid, signal.SIGSTOP)
    g.stays(lambda: not gateway.has_line("process is stuck"), 3, "a watchdog that was on looks every second")
    assert not gateway.has_line("process is stuck")
    os.kill(pid, signal.SIGCONT)
    assert gateway.get("/ready").status == 200


@pytest.mark.parametrize("name", ["router-0", "worker-0"])
def test_a_process_in_an_endless_loop_is_replaced(stub, name):
    s = stub(workers=1, routers=1, hang_timeout="2500ms").start()
    s.allow("process is stuck", "process died")
    pid = s.child(name)
    address = ("127.0.0.1", s.port) if name == "router-0" else f"{s.folder}/state/run/worker-0.sock"
    with socket.socket(socket.AF_INET if name == "router-0" else socket.AF_UNIX) as k:
        k.connect(address)
        k.sendall(b"GET /spin HTTP/1.1\r\nHost: localhost\r\n\r\n")
        s.wait_line(f"process is stuck process={name} ")
        g.wait_until(lambda: s.child(name) != pid, what="successor")
    assert s.get("/").status == 200


# --- without descriptors ---

FEW = 160


def limited(start_with):
    """A gateway whose processes may have FEW descriptors."""
    gateway = g.Gateway(engine="builtin:echo,delay_ms=500", workers=1, **start_with)
    return gateway.start(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (FEW, FEW)))


def test_a_router_without_descriptors_waits_and_recovers(start):
    gateway = limited({"max_connections": 100000})
    gateway.allow("accepting is paused")
    pid, idle = gateway.child("router-0"), []
    try:
        for _ in range(FEW + 40):
            idle.append(socket.create_connection(("127.0.0.1", gateway.port), 10))
        gateway.wait_line("accepting is paused, retrying reason=.out of descriptors")
        before = cpu_seconds(pid)
        g.pause(2, "spinning would take all of it")
        assert cpu_seconds(pid) - before < 0.3, "it spins"
    finally:
        for k in idle:
            k.close()
    g.wait_until(lambda: gateway.get("/ready").status == 200, 20, "it serves again")
    assert gateway.metrics()["rollgate_accept_pauses_total"] >= 1
    assert gateway.child("router-0") == pid


def test_a_worker_without_descriptors_waits_and_recovers(start):
    """Connections beyond the limit wait in the socket's queue; nothing spins, nothing is lost."""
    gateway = limited({})
    pid, waiting = gateway.child("worker-0"), []
    s = new(gateway)
    try:
        for _ in range(FEW + 100):
            k = socket.socket(socket.AF_UNIX)
            k.connect(f"{gateway.folder}/state/run/worker-0.sock")
            waiting.append(k)
        g.pause(0.5, "the connections have been met")
        before = cpu_seconds(pid)
        g.pause(2, "spinning would take all of it")
        assert cpu_seconds(pid) - before < 0.3, "it spins"
        answers = []
        t = threading.Thread(target=lambda: answers.append(gateway.chat(s, "hi", timeout=60)))
        t.start()
        g.pause(1, "the call waits at the full worker")
    finally:
        for k in waiting:
            k.close()
    t.join(60)
    assert [a.status for a in answers] == [200]
    assert gateway.child("worker-0") == pid


def test_a_burst_beyond_the_descriptors_is_served_in_the_end(start):
    gateway = limited({})
    gateway.allow("accepting is paused")
    answers = []

    def one():
        for _ in range(60):
            try:
                a = gateway.post("/sessions", {}, timeout=60)
            except OSError:
                continue
            if a.status == 200:
                answers.append(a)
                return
            assert a.status == 503 and a.headers["Retry-After"], a.text
            g.pause(0.2, "a client that tries again, as it was told")
    threads = [threading.Thread(target=one) for _ in range(300)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(90)
    assert len(answers) == 300

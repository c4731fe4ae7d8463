"""A request that workers die at, twice: it is not tried a third time, and its deaths do not end the service."""
import os
import signal
import threading

import pytest

from gateway import wait_until

pytestmark = pytest.mark.alone


def new(gateway):
    return gateway.post("/sessions").json()


def helper_ticks(pid):
    """CPU ticks of the threads beside the loop."""
    ticks = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        if int(task) != pid:
            with open(f"/proc/{pid}/task/{task}/stat", encoding="ascii") as f:
                fields = f.read().rsplit(")", 1)[1].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks


def die_at(gateway, session, text):
    """The worker aborts while a helper works at this request."""
    pid = gateway.child("worker-0")
    before = helper_ticks(pid)
    asked = threading.Thread(target=lambda: gateway.chat(session, text))
    asked.start()
    wait_until(lambda: helper_ticks(pid) >= before + 20, 60, "a helper is at it")
    os.kill(pid, signal.SIGABRT)
    asked.join(60)
    wait_until(lambda: gateway.child("worker-0") != pid, 30, "there is another worker")


def test_a_request_that_kills_twice_is_answered_500(start):
    gateway = start(engine="builtin:echo", workers=1, context_length=100_000_000, max_restarts=1, max_request_growth=1000)
    gateway.allow("process died", "workers died at the same request")
    session, deadly = new(gateway), [{"role": "user", "content": "deadly " * 2_000_000}] * 2
    die_at(gateway, session, deadly)
    assert not gateway.has_line("workers died at the same request")
    die_at(gateway, session, deadly)
    gateway.wait_line("workers died at the same request")
    pid = gateway.child("worker-0")
    for _ in range(3):
        a = gateway.chat(session, deadly)
        assert a.status == 500 and "not tried again" in a.text, a.text[:300]
    assert gateway.chat(new(gateway), deadly).status == 500     # it is the body, whoever sends it
    assert gateway.chat(new(gateway), "hello").status == 200
    assert gateway.child("worker-0") == pid     # and one death, of a request of its own, would have been one too many

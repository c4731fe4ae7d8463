"""Sessions with long texts are read back: a helper reads the texts, others are served meanwhile, and no result
changes."""
import contextlib
import http.client
import os
import signal
import threading

import pytest

from gateway import in_parallel, pause, wait_until
from test_memory import say
from test_streaming import new, user
from test_turn_recovery import kill_worker, records

MIB = 1 << 20
SETTINGS = {"engine": "builtin:echo", "workers": 1, "context_length": 20_000_000}


def long_talk(gateway, session, sizes):
    """One turn with new texts of each size, in several messages; the conversation."""
    talk = []
    for n, size in enumerate(sizes):
        for part in range(3):
            talk += user(f"{n} {part} \u00e9\"\n" + "word " * (size // 15))
        talk = say(gateway, session, talk, max_tokens=8)
    return talk


def exported(gateway, session):
    a = gateway.get(f"/sessions/{session['session_id']}/trajectories")
    assert a.status == 200, a.text
    return a.json()


def whole(gateway, session):
    return records(gateway, session), exported(gateway, session)


@pytest.mark.cases(1)
@pytest.mark.parametrize("helpers", [0, 2])
def test_it_is_what_it_was(start, helpers):
    """Texts in their commits and ahead of them, in any order; the session goes on where it was."""
    gateway = start(helpers=helpers, **SETTINGS)
    made = [new(gateway, history=h) for h in ("tree", "chains", "linear")]
    talks = [long_talk(gateway, s, (3, 90_000, 300_000, 50, 100_000)) for s in made]
    before = [whole(gateway, s) for s in made]
    kill_worker(gateway)
    assert [whole(gateway, s) for s in made] == before
    for session, talk, (state, _) in zip(made, talks, before):
        a = gateway.chat(session, talk + user("go on"), max_tokens=8)
        cached = a.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
        assert a.status == 200 and cached == len(state["accumulated_token_ids"])
    before = [whole(gateway, s) for s in made]
    kill_worker(gateway)
    assert [whole(gateway, s) for s in made] == before


def test_many_ask_for_several_at_once(start):
    """More long sessions than may wait for helpers at a time, and short ones among them."""
    gateway = start(**SETTINGS)
    sizes = [(400_000, 100_000)] * 7 + [(20, 20)] * 7
    made = [new(gateway) for _ in sizes]
    talks = [long_talk(gateway, s, size) for s, size in zip(made, sizes)]
    before = [whole(gateway, s) for s in made]
    kill_worker(gateway)

    def ask(n):
        kind, n = divmod(n, len(made))
        if kind == 2:
            return gateway.chat(made[n], talks[n] + user("more"), max_tokens=8).status
        return (records, exported)[kind](gateway, made[n])
    got = in_parallel(ask, [kind * len(made) + n for n in range(len(made)) for kind in range(2)])
    for n, want in enumerate(before):
        assert got[n] == want[0] and got[len(made) + n] == want[1]
    kill_worker(gateway)
    assert set(in_parallel(ask, range(2 * len(made), 3 * len(made))).values()) == {200}
    assert gateway.metrics()["rollgate_session_loads_total"] == 2 * len(made)


def test_evicted_again_and_again(start):
    gateway = start(max_worker_memory="4m", **SETTINGS)
    made = [new(gateway) for _ in range(3)]
    for s in made:
        long_talk(gateway, s, (600_000, 90_000))
    before = [whole(gateway, s) for s in made]
    for _ in range(3):
        assert [whole(gateway, s) for s in made] == before
    m = gateway.metrics()
    assert m["rollgate_session_loads_total"] > 3 and m["rollgate_session_evictions_total"] > 3, m


def test_who_asks_may_leave_and_others_may_end_it(start):
    """It is deleted, aborted by its labels, or its reader leaves, while it is read back."""
    gateway = start(**SETTINGS)
    made = [new(gateway, labels={"n": str(n)}) for n in range(9)]
    for s in made:
        long_talk(gateway, s, (MIB, 90_000))
    kept = whole(gateway, made[-1])
    kill_worker(gateway)

    def visit(n):
        path = f"/sessions/{made[n]['session_id']}"
        if n % 3 == 0:
            leaver = gateway.connect()
            leaver.request("GET", path)
            pause(0.004 * n, "it is read for a moment")
            leaver.close()
            return {200}
        asked = []
        reader = threading.Thread(target=lambda: asked.append(gateway.get(path).status))
        reader.start()
        pause(0.004 * n, "it is read for a moment")
        if n % 3 == 1:
            asked.append(gateway.request("DELETE", path).status)
        else:
            a = gateway.post("/sessions/abort", {"labels": {"n": str(n)}})
            assert a.status == 200 and a.json()["ended"] == 1, a.text
        reader.join()
        return set(asked)
    seen = in_parallel(visit, range(8))
    assert all(s <= {200, 204, 404, 410} for s in seen.values()), seen
    for n in range(8):
        assert gateway.get(f"/sessions/{made[n]['session_id']}").status == (200 if n % 3 == 0 else 410), n
    assert whole(gateway, made[-1]) == kept


@pytest.mark.cases(1)
@pytest.mark.parametrize("history", ["tree", "linear"])
def test_orders_by_labels_meet_sessions_that_are_being_read(start, history):
    """Lists know them by the rows that they had; what ends them meanwhile comes behind what is being read."""
    gateway = start(max_worker_memory="1m", **SETTINGS)
    made = [new(gateway, labels={"n": str(n)}, history=history) for n in range(10)]
    talks = [long_talk(gateway, s, (400_000, 90_000, 10)) for s in made]
    paths = [f"/sessions/{s['session_id']}" for s in made]
    wait_until(lambda: gateway.metrics()["rollgate_sessions_evicted"] >= 10, what="all are evicted")

    def visit(n):
        asked = []
        readers = [threading.Thread(target=lambda p=paths[n - more]: asked.append(gateway.get(p).status)) for more in (0, 1)]
        for reader in readers:
            reader.start()
        pause(0.002 * n, "it is read for a moment")
        a = gateway.post("/sessions/abort" if n % 4 == 1 else "/sessions/finalize", {"labels": {"n": str(n)}})
        for reader in readers:
            reader.join()
        assert a.status == 200, a.text
        return set(asked)
    for n in range(1, 10, 2):
        assert visit(n) <= {200, 404, 410}
    for n in range(10):
        a = gateway.get(f"{paths[n]}/trajectories")
        assert a.status == (410 if n % 4 == 1 else 200), (n, a.text[:300])
        if a.status == 200:
            assert [m["content"] for m in a.json()["trajectories"][0]["messages"]] == [m["content"] for m in talks[n]]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_the_worker_ends_while_it_reads(start, how):
    gateway = start(**SETTINGS)
    gateway.allow("process died")
    session = new(gateway)
    long_talk(gateway, session, (2 * MIB,))
    before = whole(gateway, session)
    kill_worker(gateway)
    for n in range(3):
        asked = []

        def read():
            try:
                asked.append(gateway.get(f"/sessions/{session['session_id']}").status)
            except http.client.IncompleteRead:  # a long state is told in parts, and its client sees that it is cut
                asked.append("cut")
        reader = threading.Thread(target=read)
        reader.start()
        pause(0.03 * n, "it is read for a moment")
        old = gateway.child("worker-0")
        os.kill(old, how)
        wait_until(lambda: gateway.child("worker-0") != old, 20, "the worker is replaced")
        reader.join()
        assert asked[0] in (200, 503, "cut")
    assert whole(gateway, session) == before


def test_the_gateway_stops_while_it_reads(start):
    gateway = start(**SETTINGS)
    session = new(gateway)
    long_talk(gateway, session, (2 * MIB,))
    before = whole(gateway, session)

    def read():
        with contextlib.suppress(OSError):  # it stops before this connects, or meanwhile
            gateway.get(f"/sessions/{session['session_id']}")
    for n in range(4):
        assert gateway.stop() == 0
        gateway.start()
        reader = threading.Thread(target=read)
        reader.start()
        pause(0.01 * n, "it is read for a moment")
        assert gateway.stop() == 0
        reader.join()
        gateway.start()
    assert whole(gateway, session) == before

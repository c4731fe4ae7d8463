"""Forks and imports of long sessions are written in slices, and a helper reads their texts, while other requests run.
The copy equals its source, also after a crash or an eviction. An incomplete copy does not exist."""
import json
import os
import signal
import threading
from pathlib import Path

import pytest

from gateway import in_parallel, pause, wait_until
from test_faults import faulty  # noqa: F401
from test_memory import say
from test_read_back import MIB, SETTINGS, exported, long_talk, whole
from test_snapshots import told
from test_snapshots_faults import sessions_by_phase
from test_streaming import new, user
from test_turn_recovery import kill_worker, records

SIZES = (3, 90_000, 300_000, 50, 100_000)   # of new texts: in their commits and ahead of them
WAYS = ("fork", "import")


def path_of(session):
    return f"/sessions/{session['session_id']}"


def snapshot(gateway, session):
    a = gateway.get(f"{path_of(session)}/snapshot")
    assert a.status == 200, a.text
    return a.json()


def asked(way, session, document):
    """Path and body of the request for a copy."""
    return ("/sessions/import", document) if way == "import" else (f"{path_of(session)}/fork", {"train_prefix": True})


def copied(gateway, way, session, document=None):
    a = gateway.post(*asked(way, session, document or (way == "import" and snapshot(gateway, session))))
    assert a.status == 200, a.text
    return a.json()


def journaled(gateway):
    """Bytes of its worker's journal."""
    return sum(p.stat().st_size for p in Path(gateway.folder).glob("state/worker-0/seg-*"))


def begun(gateway, way, session, document):
    """A request whose first records have been written; its connection."""
    path, body = asked(way, session, document)
    before = journaled(gateway)
    c = gateway.connect()
    c.request("POST", path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    wait_until(lambda: journaled(gateway) > before + MIB // 2, what="some records are written")
    return c


def helped(gateway):
    return gateway.metrics()["rollgate_helper_work_seconds_count"]


def listed(gateway):
    return {s["session_id"] for s in gateway.get("/sessions").json()["sessions"]}


def are_copies(gateway, session, copies):
    """Messages, ids, logprobs, all of what a trainer and the next turn get."""
    source, was = told(exported(gateway, session)), records(gateway, session)
    for copy in copies:
        assert told(exported(gateway, copy)) == source
        made = records(gateway, copy)
        assert made["accumulated_token_ids"] == was["accumulated_token_ids"]
        assert [r["answers"][0]["output_ids"] for r in made["records"]] == [r["answers"][0]["output_ids"] for r in was["records"]]


def is_copy(gateway, session, copy):
    are_copies(gateway, session, [copy])


def bodies(gateway, session):
    """What `whole` reads, unread: a third of a second less for each MiB."""
    answers = [gateway.get(f"{path_of(session)}{query}") for query in ("?records=1", "/trajectories")]
    assert [a.status for a in answers] == [200, 200], answers[-1].text[:300]
    return [a.body for a in answers]


@pytest.mark.cases(5)
@pytest.mark.parametrize("way, history", [("fork", "tree"), ("fork", "linear"), ("import", "tree"), ("import", "chains"),
                                          ("import", "linear")])
@pytest.mark.parametrize("helpers", [0, 2])
def test_a_copy_is_what_it_was_made_of(start, helpers, way, history):
    gateway = start(helpers=helpers, **SETTINGS)
    session = new(gateway, history=history)
    talk = long_talk(gateway, session, SIZES)
    document = snapshot(gateway, session)
    before = helped(gateway)
    copy = copied(gateway, way, session, document)
    assert helped(gateway) >= before + (3 if helpers else 0), "each of the long calls' texts"
    is_copy(gateway, session, copy)
    made = whole(gateway, copy)
    kill_worker(gateway)
    assert whole(gateway, copy) == made
    known = len(made[0]["accumulated_token_ids"])
    talk = say(gateway, copy, talk + user("go on"), max_tokens=8)
    assert records(gateway, copy)["records"][-1]["prompt_ids"][:known] == made[0]["accumulated_token_ids"]
    again = copied(gateway, way, copy)
    assert [m["content"] for m in exported(gateway, again)["trajectories"][0]["messages"]] == [m["content"] for m in talk]
    assert told(exported(gateway, copied(gateway, "import", copy))) == told(exported(gateway, copy))


@pytest.mark.cases(1)
@pytest.mark.parametrize("way", WAYS)
def test_many_at_once_while_the_session_goes_on(start, way):
    """More than are written at a time; turns of the session and of others come between."""
    gateway = start(**SETTINGS)
    session, other = new(gateway), new(gateway)
    talk = long_talk(gateway, session, (MIB, 200_000))
    document, before = snapshot(gateway, session), whole(gateway, session)

    def ask(n):
        if n < 14:
            return copied(gateway, way, session, document)
        return say(gateway, other if n % 2 else session, user(f"{n}"), max_tokens=8) and None
    copies = [c for c in in_parallel(ask, range(20)).values() if c]
    assert len(copies) == 14 and listed(gateway) == {s["session_id"] for s in [session, other, *copies]}
    for copy in copies[::3]:
        got = whole(gateway, copy)
        if way == "import":     # a fork goes on from the newest answer there was
            assert told(got[1]) == told(before[1])
    kept = next(copy for copy in copies if records(gateway, copy)["accumulated_token_ids"] == before[0]["accumulated_token_ids"])
    say(gateway, kept, talk + user("go on"), max_tokens=8)


@pytest.mark.cases(1)
@pytest.mark.parametrize("way", WAYS)
def test_it_is_evicted_right_behind(start, way):
    gateway = start(max_worker_memory="6m", **SETTINGS)
    session = new(gateway)
    long_talk(gateway, session, (MIB, 90_000))
    document = snapshot(gateway, session)
    copies = [copied(gateway, way, session, document) for _ in range(5)]
    wait_until(lambda: gateway.metrics()["rollgate_sessions_evicted"] >= 2, what="they are evicted")
    made = [bodies(gateway, copy) for copy in copies]
    are_copies(gateway, session, copies)
    kill_worker(gateway)
    assert [bodies(gateway, copy) for copy in copies] == made


@pytest.fixture
def slow(faulty):  # noqa: F811
    """slow(way) -> a gateway whose journal is slow, a long session, and its snapshot if there is to be an import."""
    def make(way):
        gateway, inject = faulty(context_length=20_000_000)
        gateway.allow("process died", "restarts")
        session = new(gateway, labels={"task": "4"})
        long_talk(gateway, session, (20, 2 * MIB, 90_000))
        document = snapshot(gateway, session) if way == "import" else None
        return gateway, inject, session, document
    return make


@pytest.mark.parametrize("way", WAYS)
def test_a_crash_in_the_middle_leaves_nothing(slow, way):
    gateway, inject, session, document = slow(way)
    before = bodies(gateway, session)
    inject("slow", "200")
    c = begun(gateway, way, session, document)
    gateway.kill()
    c.close()
    inject("slow", None)
    gateway.start()
    assert listed(gateway) == {session["session_id"]} and bodies(gateway, session) == before
    assert gateway.post("/sessions/finalize", {"labels": {"task": "4"}}).json()["ended"] == 1
    wait_until(lambda: "copying" not in sessions_by_phase(gateway), what="what was there in part is deleted")
    is_copy(gateway, session, copied(gateway, way, session, document))


@pytest.mark.cases(1)
@pytest.mark.parametrize("way", WAYS[::-1])     # CI imports
def test_who_leaves_in_the_middle_leaves_nothing(slow, way):
    gateway, inject, session, document = slow(way)
    memory = "rollgate_session_memory_bytes"
    wait_until(lambda: gateway.metrics()[memory] > 2 * MIB, what="the session is counted")
    idle = gateway.settled(memory)
    inject("slow", "300")
    c = begun(gateway, way, session, document)
    wait_until(lambda: sessions_by_phase(gateway) == {"open": 1, "copying": 1}, what="it is counted, too")
    assert listed(gateway) == {session["session_id"]}
    wait_until(lambda: gateway.metrics()[memory] > idle + MIB // 4, what="so is its memory, which is told now and then")
    c.close()
    inject("slow", None)
    wait_until(lambda: sessions_by_phase(gateway) == {"open": 1}, what="it is taken back")
    wait_until(lambda: gateway.metrics()[memory] < idle + MIB // 4, what="its memory is free")
    is_copy(gateway, session, copied(gateway, way, session, document))


@pytest.mark.cases(1)
@pytest.mark.parametrize("way", WAYS)
def test_who_leaves_at_any_moment(start, way):
    """Also while a helper has the texts."""
    gateway = start(**SETTINGS)
    session = new(gateway)
    long_talk(gateway, session, (2 * MIB,))
    path, body = asked(way, session, way == "import" and snapshot(gateway, session))
    for n in range(8):
        c = gateway.connect()
        c.request("POST", path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        pause(0.02 * n, "it is written for a moment")
        c.close()
    wait_until(lambda: "copying" not in sessions_by_phase(gateway), what="all are taken back, or made")
    are_copies(gateway, session, [{"session_id": sid} for sid in listed(gateway)])


@pytest.mark.cases(1)
@pytest.mark.parametrize("ends", ["delete", "finalize", "abort"])
def test_the_session_ends_while_it_is_forked(slow, ends):
    """What it was is what the fork is."""
    gateway, inject, session, _ = slow("fork")
    before = exported(gateway, session)
    inject("slow", "200")
    c = begun(gateway, "fork", session, None)
    if ends == "delete":
        assert gateway.request("DELETE", path_of(session)).status == 204
    else:
        assert gateway.post(f"{path_of(session)}/{ends}", {}).status in (200, 204)
    inject("slow", None)
    answer = c.getresponse()
    assert answer.status == 200
    fork = json.loads(answer.read())
    assert told(exported(gateway, fork)) == told(before)
    kill_worker(gateway)
    assert told(exported(gateway, fork)) == told(before)


@pytest.mark.cases(1)
@pytest.mark.parametrize("way", WAYS[::-1])     # CI imports
def test_a_disk_that_is_full_in_the_middle(slow, way):
    gateway, inject, session, document = slow(way)
    gateway.allow("journal", "cannot", "copied in part")
    inject("writev", "28 after 4")    # a busy machine writes several records at once
    a = gateway.post(*asked(way, session, document))
    assert a.status == 503 and a.json()["error"]["code"] == "storage_full", a.text
    assert listed(gateway) == {session["session_id"]}
    inject("writev", None)
    wait_until(lambda: sessions_by_phase(gateway) == {"open": 1}, what="what was there in part is deleted")
    is_copy(gateway, session, copied(gateway, way, session, document))


@pytest.mark.cases(2)
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("way", WAYS)
def test_the_worker_ends_in_the_middle(start, way, how):
    gateway = start(**SETTINGS)
    gateway.allow("process died")
    session = new(gateway)
    long_talk(gateway, session, (2 * MIB,))
    path, body = asked(way, session, way == "import" and snapshot(gateway, session))
    made = {session["session_id"]}
    for n in range(3):
        answers = []
        asker = threading.Thread(target=lambda: answers.append(gateway.post(path, body)))
        asker.start()
        pause(0.03 * n, "it is written for a moment")
        old = gateway.child("worker-0")
        os.kill(old, how)
        wait_until(lambda: gateway.child("worker-0") != old, 20, "the worker is replaced")
        asker.join()
        assert answers[0].status in (200, 503), answers[0].text
        if answers[0].status == 200:
            made.add(answers[0].json()["session_id"])
    assert made <= listed(gateway) and len(listed(gateway)) <= len(made) + 3
    are_copies(gateway, session, [{"session_id": sid} for sid in listed(gateway)])

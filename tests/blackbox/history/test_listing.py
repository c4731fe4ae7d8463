"""GET /sessions with large metadata: the page is made and sent in parts, and equals a page that is made at once."""
import json
import socket
from http.client import HTTPResponse

import pytest

from gateway import wait_until
from test_streaming import new, user
from test_turn_recovery import kill_worker

LARGE = {f"k{i}": "word " * 60 for i in range(700)}     # some 220 KB
SETTINGS = {"engine": "builtin:echo"}


def of(page):
    return [row["session_id"] for row in page["sessions"]]


class Reader:
    """A client of the list that reads when it wants to."""

    def __init__(self, gateway, path="/sessions?limit=1000"):
        self.socket = socket.create_connection(("127.0.0.1", gateway.port), 60)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
        self.socket.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        self.answer = HTTPResponse(self.socket, method="GET")
        self.answer.begin()

    def whole(self):
        body = self.answer.read()
        self.socket.close()
        return json.loads(body)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_long_page_is_sent_as_it_is_made(start, workers):
    gateway = start(workers=workers, **SETTINGS)
    made = [new(gateway, metadata={**LARGE, "n": n})["session_id"] for n in range(12)]
    small = [new(gateway, metadata={"n": n})["session_id"] for n in range(12, 15)]
    a = gateway.get("/sessions")
    assert a.headers["Transfer-Encoding"] == "chunked" and len(a.body) > 12 * 200_000
    assert sorted(of(a.json())) == sorted(made + small) and a.json()["next_cursor"] is None
    told = {row["session_id"]: row["metadata"] for row in a.json()["sessions"]}
    assert all(told[sid] == {**LARGE, "n": n} for n, sid in enumerate(made))
    assert all(told[sid] == {"n": n} for n, sid in enumerate(small, 12))
    seen, cursor = [], ""
    while cursor is not None:
        page = gateway.get(f"/sessions?limit=5{cursor and '&cursor=' + cursor}").json()
        assert len(page["sessions"]) == 5 and page["unreachable"] == []
        seen += of(page)
        cursor = page["next_cursor"]
        if len(seen) == 15:     # the page is full: there may be more
            assert not cursor or gateway.get(f"/sessions?limit=5&cursor={cursor}").json()["sessions"] == []
            break
    assert sorted(seen) == sorted(made + small)


@pytest.mark.parametrize("workers", [1, 2])
def test_what_comes_and_goes_while_a_page_is_read(start, workers):
    """Whatever was there all the time is told once; what ended or came meanwhile at most once."""
    gateway = start(workers=workers, **SETTINGS)
    made = [new(gateway, metadata=LARGE)["session_id"] for _ in range(70)]
    reader = Reader(gateway)
    gone, come = made[::3], []
    for sid in gone:
        assert gateway.request("DELETE", f"/sessions/{sid}").status == 204
        come.append(new(gateway)["session_id"])
    page = reader.whole()
    told = of(page)
    assert len(told) == len(set(told)) and page["next_cursor"] is None
    assert set(made) - set(gone) <= set(told) <= set(made) | set(come)
    assert set(told) & set(gone), "some had been told before"


@pytest.mark.parametrize("workers", [1, 2])
def test_a_cursor_whose_last_session_has_gone(start, workers):
    gateway = start(workers=workers, **SETTINGS)
    made = [new(gateway)["session_id"] for _ in range(12)]
    seen, cursor = [], ""
    while cursor is not None:
        page = gateway.get(f"/sessions?limit=3{cursor and '&cursor=' + cursor}").json()
        seen += of(page)
        cursor = page["next_cursor"]
        if cursor:
            assert gateway.request("DELETE", f"/sessions/{seen[-1]}").status == 204
    assert sorted(seen) == sorted(made)


def test_a_cursor_that_is_not_ours_is_refused(start):
    """A worker sends the cursor on to the next one, in the head of a request."""
    gateway = start(workers=2, **SETTINGS)
    for tail in ("%20", "%0d%0aX-A:%201", "%26limit=0", "%00", "%C3%A9", "A"):
        error = gateway.get(f"/sessions?cursor=1.x{tail}")
        assert error.status == 400 and error.json()["error"]["param"] == "cursor", (tail, error.text)
    assert gateway.get("/sessions?cursor=1.x").json()["unreachable"] == []


def test_filters_look_at_what_stands_before_the_metadata(start):
    gateway = start(workers=1, **SETTINGS)
    odd = {"metadata": {"phase": "completed"}, "phase": "completed", "labels": {"n": "0"}, "reseeded_from": "w0-x", **LARGE}
    made = [new(gateway, labels={"n": str(n % 2), "metadata": "x"}, metadata=odd)["session_id"] for n in range(4)]
    assert gateway.chat({"session_id": made[0]}, "hello").status == 200
    assert gateway.post(f"/sessions/{made[3]}/complete", {}).status == 200

    def look():
        assert sorted(of(gateway.get("/sessions?phase=open").json())) == sorted(made[:3])
        assert of(gateway.get("/sessions?phase=completed").json()) == [made[3]]
        assert sorted(of(gateway.get("/sessions?label=n=0").json())) == sorted(made[::2])
        assert len(of(gateway.get("/sessions?label=metadata=x").json())) == 4
        assert of(gateway.get("/sessions?reseeded=true").json()) == []
    look()
    kill_worker(gateway)
    look()
    assert gateway.post("/sessions/abort", {"labels": {"n": "0"}}).json()["ended"] == 2


def test_who_leaves_in_the_middle_of_a_page(start):
    gateway = start(workers=1, routers=1, **SETTINGS)
    for _ in range(70):
        new(gateway, metadata=LARGE)
    for _ in range(5):
        Reader(gateway).socket.close()
    wait_until(lambda: gateway.metrics()["rollgate_connections"] <= 1, what="they are gone")
    assert len(of(gateway.get("/sessions?limit=1000").json())) == 70


def test_a_row_counts_branches(start):
    """As its session's state does, with answers that came again, and in forks."""
    gateway = start(workers=1, **SETTINGS)
    s = new(gateway)
    talk = user("one")
    for text in ("two", "three"):
        a = gateway.chat(s, talk, max_tokens=4)
        talk = talk + [a.json()["choices"][0]["message"]] + user(text)
    assert gateway.chat(s, talk, n=3, max_tokens=4).status == 200
    assert gateway.chat(s, user("other"), max_tokens=4).status == 200
    assert gateway.chat(s, user("other"), max_tokens=4).status == 200
    answers = gateway.get(f"/sessions/{s['session_id']}?records=1").json()["records"]
    fork = gateway.post(f"/sessions/{s['session_id']}/fork", {"response_id": answers[1]["answers"][0]["response_id"]})
    assert fork.status in (200, 201), fork.text

    def counts():
        rows = {row["session_id"]: row["branches"] for row in gateway.get("/sessions").json()["sessions"]}
        states = {sid: gateway.get(f"/sessions/{sid}").json()["num_branches"] for sid in rows}
        assert rows == states and len(rows) == 2 and rows[fork.json()["session_id"]] == 1
        return rows
    before = counts()
    kill_worker(gateway)
    assert counts() == before


# --- finalized sessions ---

def every(gateway, query="", limit=3):
    """All pages; a session is listed once."""
    rows, cursor = [], None
    while True:
        page = gateway.get(f"/sessions?limit={limit}{query}" + (f"&cursor={cursor}" if cursor else "")).json()
        rows += page["sessions"]
        cursor = page["next_cursor"]
        if not cursor:
            break
    for row in rows:
        del row["drift"]    # what audits found is known in memory alone
    assert len({r["session_id"] for r in rows}) == len(rows)
    return {r["session_id"]: r for r in rows}


def made(gateway, **options):
    answers = []

    def once():
        answers.append(gateway.post("/sessions", options))
        return answers[-1].status == 200
    wait_until(once, 20, "there is room")
    return answers[-1].json()


def finalized(gateway, n):
    """Finalized sessions, and what their rows are."""
    ids = set()
    for k in range(n):
        s = made(gateway, labels={"k": str(k)})
        assert gateway.chat(s, "x" * 500).status == 200
        assert gateway.post(f"/sessions/{s['session_id']}/finalize", {}).status == 200
        ids.add(s["session_id"])
    return {k: v for k, v in every(gateway).items() if k in ids}


def push_out(gateway, rows, workers=1):
    """An open session at each worker whose tokens leave no room for finalized ones."""
    used = set()
    while len(used) < workers:
        s = made(gateway)
        worker = s["session_id"].split("-")[0]
        if worker in used:
            gateway.request("DELETE", f"/sessions/{s['session_id']}")
            continue
        used.add(worker)
        assert gateway.chat(s, "y" * 9000).status == 200

    def left():
        return gateway.get("/sessions?archived=false&limit=1000").json()["sessions"]
    wait_until(lambda: not {r["session_id"] for r in left()} & set(rows), 40, "the finalized ones have left memory")


@pytest.mark.parametrize("workers", [1, 3])
def test_finalized_sessions_are_listed_as_long_as_they_are_kept(start, workers):
    gateway = start(engine="builtin:echo", workers=workers, max_live_tokens=8000)
    rows = finalized(gateway, 7)
    push_out(gateway, rows, workers)
    for limit in (1, 3, 1000):
        got = every(gateway, limit=limit)
        assert len(got) == 7 + workers and {k: v for k, v in got.items() if k in rows} == rows, limit
    assert every(gateway, "&phase=finalized") == rows
    assert set(every(gateway, "&label=k=3")) == {k for k, v in rows.items() if v["labels"]["k"] == "3"}
    assert set(every(gateway, "&label=k")) == set(rows) and every(gateway, "&label=none") == {}
    assert len(every(gateway, "&phase=open")) == len(every(gateway, "&archived=false")) == workers
    assert gateway.get("/sessions?archived=perhaps").status == 400
    gone, *others = rows
    assert gateway.request("DELETE", f"/sessions/{gone}").status == 204
    assert set(every(gateway, "&phase=finalized")) == set(others)
    for sid in others:
        assert gateway.get(f"/sessions/{sid}").json()["phase"] == "finalized"
    gateway.stop()
    gateway.start()
    assert set(every(gateway, "&phase=finalized")) == set(others)


def test_finalized_sessions_are_listed_no_longer_than_they_are_kept(start):
    gateway = start(engine="builtin:echo", workers=1, max_live_tokens=8000, export_retention="2s")
    rows = finalized(gateway, 2)
    wait_until(lambda: not set(every(gateway)) & set(rows), 40, "their time is over")

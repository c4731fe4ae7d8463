"""Imports of snapshots with faults: a disk that is slow or hangs, a journal that accepts no more records."""
import json
import subprocess
import threading

import pytest

import vision_kit as kit
from gateway import in_parallel, pause, wait_until
from test_events import follow  # noqa: F401
from test_faults import faulty  # noqa: F401
from test_images_fetch import HERE, by, hosts, page, web  # noqa: F401
from test_snapshots_images import SHOTS, brought, taken, talk
from vision_kit import chat, files, image, media, session, text, user


@pytest.fixture
def there(vision, faulty, tmp_path):  # noqa: F811
    """there(rewards, **settings) -> a snapshot with pictures and so many rewards, a gateway that can take it, and inject (test_faults.py)."""
    _, here = vision()
    sid = session(here, labels={"task": "4"})
    talk(here, sid)

    def make(rewards=0, **settings):
        for i in range(rewards):
            assert here.post(f"/sessions/{sid}/reward_info", {"reward_info": {"score": i}}).status == 200
        return taken(here, sid), *faulty(model=tmp_path / "vision-model", durability="power", **settings)
    return make


def folders(gateway):
    return [p.name for p in media(gateway).glob("sessions/*")]


def sessions_by_phase(gateway):
    found = {name.split('"')[1]: n for name, n in gateway.metrics().items() if name.startswith("rollgate_sessions{")}
    return {phase: n for phase, n in found.items() if n}


def written(gateway):
    """Bytes of records in the worker's journal."""
    return gateway.metrics()["rollgate_journal_written_bytes_total"]


def beside(gateway, document):
    """The import, by a client of its own: its thread and its answer."""
    answers = []

    def run():
        answers.append(gateway.post("/sessions/import", document))
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, answers


def test_a_slow_disk_has_the_time_for_each_picture(there):
    """All of them take longer than --helper-timeout, none of them does."""
    document, gateway, inject = there(helper_timeout="1s")
    inject("pictures", "400")
    new = brought(gateway, document)
    inject("pictures", None)
    assert files(gateway) == {kit.sha(s): 1 for s in SHOTS}
    assert gateway.get(f"/sessions/{new}/media/{kit.sha(SHOTS[0])}").body == SHOTS[0]


def test_steps_that_take_long_end_no_answer(there):
    """Each slice has time for one step, and some steps make nothing: nobody waits for what the next one makes."""
    document, gateway, inject = there(2)
    sid = brought(gateway, document)
    paths = [f"/sessions/{sid}/{rest}" for rest in ("snapshot", "trajectories", "trajectories?format=miles")]
    whole, records = [gateway.get(path).body for path in paths], gateway.get(f"/sessions/{sid}?records=1").json()["records"]
    inject("steps", "1")
    pause(0.02, "the fault is looked for every few milliseconds")
    assert [gateway.get(path).body for path in paths] == whole
    assert gateway.get(f"/sessions/{sid}?records=1").json()["records"] == records


def test_a_disk_that_stands_still_takes_no_worker_along(there):
    """The import is 500 while its helper still has it; what it stored goes at the next start."""
    document, gateway, inject = there(helper_timeout="500ms")
    gateway.allow("its thread is given up", "process died", "restarts")
    own = gateway.post("/sessions", {}).json()
    inject("pictures", "hold")
    a = gateway.post("/sessions/import", document)
    assert a.status == 500 and "given up" in a.json()["error"]["message"], a.text
    assert gateway.has_line(r"its thread is given up body_hash=\d+")
    assert gateway.metrics()["rollgate_helper_stuck_total"] == 1
    assert gateway.chat(own, "meanwhile").status == 200
    assert [s["session_id"] for s in gateway.get("/sessions").json()["sessions"]] == [own["session_id"]]
    inject("pictures", None)
    new = brought(gateway, document)        # another thread has taken its place
    gateway.kill()
    gateway.start()
    wait_until(lambda: files(gateway) == {kit.sha(s): 1 for s in SHOTS}, what="what was stored for nobody is gone")
    assert folders(gateway) == [new]


def test_who_leaves_while_a_picture_is_written_leaves_nothing(there):
    document, gateway, inject = there()
    inject("pictures", "hold")
    c = gateway.connect()
    c.request("POST", "/sessions/import", json.dumps(document).encode(), {"Content-Type": "application/json"})
    wait_until(lambda: list(media(gateway).glob("sessions/*/*.part")), what="the first picture is written")
    c.close()
    inject("pictures", None)
    wait_until(lambda: not files(gateway) and not folders(gateway), what="its pictures are dropped")
    assert gateway.get("/sessions").json()["sessions"] == []


@pytest.mark.parametrize("leaves", [False, True])
def test_a_fork_whose_pictures_wait_for_the_disk_holds_nobody_up(there, leaves):
    document, gateway, inject = there()
    sid = brought(gateway, document)
    own = gateway.post("/sessions", {}).json()
    inject("pictures", "hold")
    c = gateway.connect()
    c.request("POST", f"/sessions/{sid}/fork", b"{}", {"Content-Type": "application/json"})
    wait_until(lambda: len(folders(gateway)) == 2, what="its pictures are linked")
    assert gateway.chat(own, "meanwhile").status == 200
    assert {s["session_id"] for s in gateway.get("/sessions").json()["sessions"]} == {sid, own["session_id"]}
    if leaves:
        c.close()
        inject("pictures", None)
        wait_until(lambda: folders(gateway) == [sid], what="its pictures are dropped")
        return
    inject("pictures", None)
    fork = json.loads(c.getresponse().read())["session_id"]
    assert gateway.get(f"/sessions/{fork}/media/{kit.sha(SHOTS[0])}").body == SHOTS[0]
    assert gateway.request("DELETE", f"/sessions/{sid}").status == 204
    assert gateway.get(f"/sessions/{fork}/media/{kit.sha(SHOTS[0])}").body == SHOTS[0]


@pytest.mark.parametrize("taken_records", [1, 2])
def test_a_session_that_cannot_be_taken_back_goes_later(there, taken_records):
    """The journal takes the first records and no more, the session's end neither: nobody finds it, and it goes once the journal takes its end."""
    document, gateway, inject = there()
    gateway.allow("journal", "cannot", "imported in part", "copied in part")
    inject("writev", f"5 after {taken_records}")
    a = gateway.post("/sessions/import", document)
    assert a.status in (500, 503), a.text
    sid, = folders(gateway)
    assert gateway.get("/sessions").json()["sessions"] == []
    assert gateway.get(f"/sessions/{sid}").status == 404
    assert gateway.post("/sessions/finalize", {"labels": {"task": "4"}}).json()["ended"] == 0
    inject("writev", None)
    new = brought(gateway, document)
    wait_until(lambda: sessions_by_phase(gateway) == {"open": 1}, what="what was there in part is deleted")
    gateway.kill()
    gateway.start()
    wait_until(lambda: folders(gateway) == [new], what="its pictures are gone")


def test_a_crash_in_the_middle_of_an_import_leaves_nothing(there, tmp_path):
    """Neither a session in part, which an order by labels could take for a whole one, nor its pictures."""
    document, gateway, inject = there(rewards=100)
    gateway.allow("process died", "restarts")
    inject("slow", "20")
    before = written(gateway)
    c = gateway.connect()
    c.request("POST", "/sessions/import", json.dumps(document).encode(), {"Content-Type": "application/json"})
    wait_until(lambda: written(gateway) > before, what="some records are written")
    gateway.kill()
    c.close()
    told = subprocess.run([str(gateway.binary), "export", str(media(gateway).parent / "worker-0"), "--model", tmp_path / "vision-model"],
                          capture_output=True, text=True, timeout=60)
    assert (told.returncode, told.stdout) == (0, ""), told
    inject("slow", None)
    gateway.start()
    assert gateway.get("/sessions").json()["sessions"] == []
    assert gateway.post("/sessions/finalize", {"labels": {"task": "4"}}).json()["ended"] == 0
    wait_until(lambda: not folders(gateway) and not files(gateway), what="its pictures are gone")


@pytest.mark.parametrize("taken_records", [1, 2])
def test_a_fork_that_is_not_written_to_its_end_is_not_there(faulty, taken_records):  # noqa: F811
    gateway, inject = faulty(durability="power")
    gateway.allow("journal", "cannot", "copied in part")
    first = gateway.post("/sessions", {"labels": {"task": "4"}}).json()
    assert gateway.chat(first, "one").status == 200
    inject("writev", f"5 after {taken_records}")
    assert gateway.post(f"/sessions/{first['session_id']}/fork", {"labels": {"task": "4"}}).status in (500, 503)
    assert [s["session_id"] for s in gateway.get("/sessions").json()["sessions"]] == [first["session_id"]]
    inject("writev", None)
    gateway.kill()
    gateway.start()
    assert [s["session_id"] for s in gateway.get("/sessions").json()["sessions"]] == [first["session_id"]]
    fork = gateway.post(f"/sessions/{first['session_id']}/fork", {"labels": {"task": "4"}})
    assert fork.status == 200 and gateway.get(f"/sessions/{fork.json()['session_id']}").status == 200, fork.text


def test_copies_of_copies_are_there(start):
    """Each begins with its own count of records, not with the one of what it was made of; so after a start that reads them back, too."""
    gateway = start(workers=1, engine="builtin:echo", durability="process")
    first = gateway.post("/sessions", {}).json()
    ids = [first["session_id"]]
    assert gateway.chat(first, "one").status == 200
    for step in ("fork", "import", "fork", "import"):
        path, body = f"/sessions/{ids[-1]}/fork", {}
        if step == "import":
            path, body = "/sessions/import", gateway.get(f"/sessions/{ids[-1]}/snapshot").json()
        made = gateway.post(path, body)
        assert made.status == 200, made.text
        ids.append(made.json()["session_id"])
        assert gateway.chat(made.json(), step).status == 200
    for _ in range(2):
        assert {s["session_id"] for s in gateway.get("/sessions").json()["sessions"]} == set(ids)
        assert all(gateway.get(f"/sessions/{i}").status == 200 for i in ids)
        gateway.kill()
        gateway.start()


def test_the_inputs_of_a_call_that_waits_for_its_session_are_checked_once(start):
    """A long body is checked by a helper; then the session is read back in slices, and the request goes on as it was checked."""
    gateway = start(workers=1, engine="builtin:echo", durability="process")
    sid = gateway.post("/sessions", {}).json()["session_id"]
    for i in range(60):
        assert gateway.post(f"/sessions/{sid}/reward_info", {"reward_info": {"text": f"{i}" * 90000}}).status == 200
    gateway.kill()
    gateway.start()
    before = gateway.metrics()["rollgate_helper_work_seconds_count"]
    a = gateway.post(f"/sessions/{sid}/reward_info", {"reward_info": {"text": "x" * 900_000}})
    assert a.status == 200, a.text
    assert gateway.metrics()["rollgate_helper_work_seconds_count"] == before + 1


def test_a_long_body_is_checked_beside_the_loop(start):
    """By a helper, which is counted; a short one is not worth the way."""
    gateway = start(workers=1, engine="builtin:echo")
    for size, helped in ((1, 0), (1 << 20, 1), (12 << 20, 1)):
        before = gateway.metrics()["rollgate_helper_work_seconds_count"]
        a = gateway.post("/sessions/import", {"records": "A" * size, "recordz": 1})
        assert a.status == 400 and "did you mean" in a.text, a.text
        assert gateway.metrics()["rollgate_helper_work_seconds_count"] == before + helped
    a = gateway.post("/sessions", {"metadata": {"text": "x" * 200_000}, "labels": {"a": "b"}})
    assert a.status == 200 and gateway.get("/sessions?label=a=b").json()["sessions"], a.text
    c = gateway.connect()
    c.request("POST", "/sessions/import", json.dumps({"records": "A" * (12 << 20)}), {"Content-Type": "application/json"})
    c.close()
    assert gateway.post("/sessions", {}).status == 200


def test_however_pictures_are_spelled_they_are_written_beside_the_loop(there):
    document, gateway, inject = there()
    body = json.dumps(document).replace('"media":', '"m\\u0065dia":').encode()
    inject("pictures", "hold")
    thread, answers = beside(gateway, body)
    wait_until(lambda: list(media(gateway).glob("sessions/*/*.part")), what="the first picture is written")
    try:
        assert gateway.post("/sessions", {}).status == 200 and not answers
    finally:
        inject("pictures", None)
    thread.join(20)
    assert answers[0].status == 200, answers
    assert files(gateway) == {kit.sha(s): 1 for s in SHOTS}


def test_records_are_written_in_slices(there):
    """Between two of them others have their turn, and nobody finds half a session, or ends it."""
    document, gateway, inject = there(rewards=100)
    inject("slow", "20")
    before, seen = written(gateway), 0
    thread, answers = beside(gateway, document)
    wait_until(lambda: written(gateway) > before, what="the first record is written")
    while not answers:
        name, = folders(gateway)
        state, rows = gateway.get(f"/sessions/{name}").status, gateway.get("/sessions").json()["sessions"]
        ended = gateway.post("/sessions/abort", {"labels": {"task": "4"}}).json()["ended"] if seen < 3 else 0
        if rows:        # the last one is written, and waits for the disk
            assert [r["reward_info"] for r in rows] == [{"score": 99}]
            break
        assert (state, ended) == (404, 0)
        wait_until(lambda: answers or sessions_by_phase(gateway) == {"copying": 1}, what="it is counted as what it is")
        seen += 1
    inject("slow", None)
    thread.join(20)
    assert answers[0].status == 200, answers
    assert seen >= 5, "others waited for all of it"
    assert [s["session_id"] for s in gateway.get("/sessions").json()["sessions"]] == folders(gateway)
    assert taken(gateway, folders(gateway)[0])["n_records"] == document["n_records"]
    wait_until(lambda: sessions_by_phase(gateway) == {"open": 1}, what="it is open")


def test_who_leaves_between_two_slices_leaves_nothing(there, follow):  # noqa: F811
    """Nor is a word of it told to who follows the sessions: it was never shown."""
    document, gateway, inject = there(rewards=100)
    follower = follow(gateway, "/events")
    inject("slow", "20")
    before = written(gateway)
    c = gateway.connect()
    c.request("POST", "/sessions/import", json.dumps(document).encode(), {"Content-Type": "application/json"})
    wait_until(lambda: written(gateway) > before, what="the first record is written")
    c.close()
    wait_until(lambda: not files(gateway) and not folders(gateway), 60, "its pictures are dropped")
    inject("slow", None)
    assert gateway.get("/sessions").json()["sessions"] == []
    own = gateway.post("/sessions", {}).json()["session_id"]
    follower.wait("session", lambda d: d["session_id"] == own)      # told in the order of the changes
    assert {d["session_id"] for name in ("session", "session_gone") for d in follower.of(name)} == {own}
    gateway.request("DELETE", f"/sessions/{own}")
    follower.wait("session_gone", lambda d: d["session_id"] == own)
    gateway.kill()
    gateway.start()
    assert gateway.get("/sessions").json()["sessions"] == [] and not files(gateway)


def test_no_session_has_more_urls_than_can_be_imported(vision, web):  # noqa: F811
    """Two requests ask for the last place; what the session has then goes out and in again."""
    _, here = vision(media_fetch=hosts(web), **HERE)
    sid = session(here)
    web.pages["/first"], web.pages["/a"], web.pages["/b"] = page(SHOTS[0]), page(SHOTS[1]), page(SHOTS[1])
    assert chat(here, sid, [user(by(web.at("/first")))]).status == 200
    folder = media(here) / "sessions" / sid
    note, = folder.glob("*.url")
    for i in range(4094):
        (folder / f"{i:064x}.url").write_bytes(note.read_bytes())
    got = in_parallel(lambda n: chat(here, sid, [user(by(web.at(("/a", "/b")[n])))]), range(2))
    assert sorted(a.status for a in got.values()) == [200, 413], [a.body for a in got.values()]
    assert len(list(folder.glob("*.url"))) == 4096
    document = taken(here, sid)
    assert len(document["media_urls"]) == 4096
    new = brought(here, document)
    assert len(list((media(here) / "sessions" / new).glob("*.url"))) == 4096
    assert chat(here, new, [user(text("on"), image(SHOTS[0]))]).status == 200

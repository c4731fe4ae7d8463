"""Imports of snapshots on a bad day: a disk that is slow or stands still, a journal that takes no more."""
import json

import pytest

import vision_kit as kit
from gateway import in_parallel, wait_until
from test_faults import faulty  # noqa: F401
from test_images_fetch import HERE, by, hosts, page, web  # noqa: F401
from test_snapshots_images import SHOTS, brought, taken, talk
from vision_kit import chat, files, image, media, session, text, user


@pytest.fixture
def there(vision, faulty, tmp_path):  # noqa: F811
    """there(**settings) -> a snapshot with pictures, a gateway that can take it, and inject (test_faults.py)."""
    _, here = vision()
    sid = session(here)
    talk(here, sid)
    document = taken(here, sid)

    def make(**settings):
        return document, *faulty(model=tmp_path / "vision-model", durability="power", **settings)
    return make


def test_a_slow_disk_has_the_time_for_each_picture(there):
    """All of them take longer than --helper-timeout, none of them does."""
    document, gateway, inject = there(helper_timeout="1s")
    inject("pictures", "400")
    new = brought(gateway, document)
    inject("pictures", None)
    assert files(gateway) == {kit.sha(s): 1 for s in SHOTS}
    assert gateway.get(f"/sessions/{new}/media/{kit.sha(SHOTS[0])}").body == SHOTS[0]


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
    assert [p.name for p in media(gateway).glob("sessions/*")] == [new]


def test_who_leaves_while_a_picture_is_written_leaves_nothing(there):
    document, gateway, inject = there()
    inject("pictures", "hold")
    c = gateway.connect()
    c.request("POST", "/sessions/import", json.dumps(document).encode(), {"Content-Type": "application/json"})
    wait_until(lambda: list(media(gateway).glob("sessions/*/*.part")), what="the first picture is written")
    c.close()
    inject("pictures", None)
    wait_until(lambda: not files(gateway) and not list(media(gateway).glob("sessions/*")), what="its pictures are dropped")
    assert gateway.get("/sessions").json()["sessions"] == []


def test_a_session_that_cannot_be_taken_back_keeps_its_pictures(there):
    """The journal takes the first records and no more, the session's end neither: what is there is whole."""
    document, gateway, inject = there()
    gateway.allow("journal", "cannot", "imported in part")
    inject("writev", "5 after 2")
    a = gateway.post("/sessions/import", document)
    inject("writev", None)
    assert a.status in (500, 503), a.text
    sid, = (s["session_id"] for s in gateway.get("/sessions").json()["sessions"])
    assert files(gateway) == {kit.sha(s): 1 for s in SHOTS}
    assert gateway.get(f"/sessions/{sid}/media/{kit.sha(SHOTS[2])}").body == SHOTS[2]
    assert gateway.request("DELETE", f"/sessions/{sid}").status == 204
    brought(gateway, document)


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

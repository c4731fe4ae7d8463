"""Requests whose helper returns much later, or never: each is answered, and memory that the helper may still use
stays."""
import contextlib
import json
import os

import pytest

import vision_kit as kit
from gateway import wait_until
from test_faults import faulty  # noqa: F401, a fixture
from test_helpers import LONG
from test_images_fetch import HERE, by, hosts, page, web  # noqa: F401
from vision_kit import big, chat, image, session, text, user

SHOT = big(200)


@pytest.fixture
def stuck(faulty, tmp_path):  # noqa: F811
    """stuck(**settings) -> gateway and inject, of a model that takes images, with little patience."""
    def make(**settings):
        folder = tmp_path / "vision-model"
        if not folder.exists():
            kit.model_folder(folder)
        gateway, inject = faulty(model=folder, helper_timeout="500ms", **{"grace": "1s", **settings})
        gateway.allow("its thread is given up", "call failed")
        return gateway, inject
    return make


def threads(gateway):
    return len(os.listdir(f"/proc/{gateway.child('worker-0')}/task"))


def call(content):
    return {"model": "m", "messages": [user(text("look"), content)]}


def look(gateway, sid):
    return chat(gateway, sid, [user(text("look"), image(SHOT))])


def goes_on(gateway, inject, ask, fault="keep"):
    """The request's thread is lost and its client told; then it comes back, and touches all that it had."""
    pid, before = gateway.child("worker-0"), threads(gateway)
    inject(fault, "1")
    a = ask()
    assert a.status == 500 and "took too long to prepare and was given up" in a.json()["error"]["message"], a.text
    assert a.headers["Rollgate-Request-Id"] and threads(gateway) == before + 1
    inject(fault, None)
    wait_until(lambda: threads(gateway) == before, what="the lost thread has come back, and ended")
    assert gateway.chat({"session_id": session(gateway)}, "still here").status == 200
    assert gateway.child("worker-0") == pid
    assert gateway.stop() == 0


@pytest.mark.parametrize("path, body", [("chat/completions", {}), ("messages", {"max_tokens": 9}), ("messages/count_tokens", {})])
def test_the_rendering(faulty, path, body):  # noqa: F811
    gateway, inject = faulty(helper_timeout="500ms", grace="1s")
    gateway.allow("its thread is given up", "call failed")
    whole = {"model": "m", "messages": [user(text(LONG))], **body}
    goes_on(gateway, inject, lambda: gateway.post(f"/sessions/{session(gateway)}/v1/{path}", whole), "stick")


def test_the_body_of_a_call(stuck):
    gateway, inject = stuck()
    goes_on(gateway, inject, lambda: look(gateway, session(gateway)))


def test_the_session_of_a_call_that_is_removed_meanwhile(stuck):
    gateway, inject = stuck()
    sid = session(gateway)

    def ask():
        a = look(gateway, sid)
        assert gateway.request("DELETE", f"/sessions/{sid}").status == 204
        return a
    goes_on(gateway, inject, ask)


def test_an_import(stuck, vision):
    _, there = vision()
    sid = session(there)
    assert look(there, sid).status == 200
    document = there.get(f"/sessions/{sid}/snapshot").json()
    gateway, inject = stuck()
    goes_on(gateway, inject, lambda: gateway.post("/sessions/import", document))


def test_the_fetch_of_a_picture(stuck, web):  # noqa: F811
    web.pages["/a"] = page(SHOT)
    gateway, inject = stuck(media_fetch=hosts(web), **{**HERE, "media_fetch_timeout": "500ms"})
    goes_on(gateway, inject, lambda: chat(gateway, session(gateway), [user(text("look"), by(web.at("/a")))]))


@pytest.mark.parametrize("what", ["body", "import", "fetch"])
def test_who_has_left_before_keeps_no_worker_from_ending(stuck, vision, web, tmp_path, what):  # noqa: F811
    """Its thread is lost after its client left: a worker that is to end waits for neither."""
    web.pages["/a"] = page(SHOT)
    settings = {"media_fetch": hosts(web), **HERE, "media_fetch_timeout": "500ms"} if what == "fetch" else {}
    gateway, inject = stuck(grace="90s", **settings)
    path = f"/sessions/{session(gateway)}/v1/chat/completions"
    body = call(by(web.at("/a")) if what == "fetch" else image(SHOT))
    if what == "import":
        _, there = vision()
        sid = session(there)
        assert look(there, sid).status == 200
        path, body = "/sessions/import", there.get(f"/sessions/{sid}/snapshot").json()
    inject("keep", "1")
    with contextlib.closing(gateway.connect()) as c:
        c.request("POST", path, json.dumps(body))
        wait_until((tmp_path / "faults/waits").exists, what="a thread is at it")
    gateway.wait_line("its thread is given up")
    assert gateway.stop() == 0 and not gateway.has_line("killed what did not end")


def owing(faulty, out):  # noqa: F811
    """A gateway whose helper sticks as it exports a session for a sink; that session."""
    gateway, inject = faulty(helper_timeout="500ms", grace="1s", sink=f"file:{out}")
    gateway.allow("its thread is given up")
    sid = session(gateway, sink=False)
    assert gateway.chat({"session_id": sid}, LONG).status == 200
    assert gateway.post(f"/sessions/{sid}/finalize", {"format": "none", "drift": "off"}).status == 200
    inject("stick", "1")
    assert gateway.post(f"/sessions/{sid}/deliver").status == 200
    return gateway, inject, sid


def test_an_export_for_a_sink(faulty, tmp_path):  # noqa: F811
    """Its audit is given up with its thread: the session is owed to the sink still, and may not be deleted. The second time it waits
    for the next start: it shall not cost one worker after the other. Once the machine is quick again it is there, whole."""
    gateway, inject, sid = owing(faulty, tmp_path / "out")
    worker = gateway.child("worker-0")
    gateway.allow("given up until the next start")
    gateway.wait_line("an export for the sinks failed: it is tried again.*took too long.*wait_s=5")
    assert gateway.request("DELETE", f"/sessions/{sid}").status == 409
    assert gateway.metrics()["rollgate_sink_waiting"] == 1
    gateway.wait_line("cannot be exported to the sinks: given up until the next start.*took too long", 30)
    assert gateway.metrics()["rollgate_sink_errors_total"] == 2
    assert not os.listdir(tmp_path / "out")
    other = session(gateway)
    inject("stick", None)
    assert gateway.chat({"session_id": other}, "short").status == 200
    assert gateway.post(f"/sessions/{other}/finalize").status == 200
    wait_until((tmp_path / "out" / f"{other}.msgpack").exists, what="another is not held up")
    assert gateway.child("worker-0") == worker and gateway.stop() == 0
    gateway.start()
    wait_until((tmp_path / "out" / f"{sid}.msgpack").exists, 30, "what waits is tried at a start at once")
    wait_until(lambda: gateway.metrics()["rollgate_sink_waiting"] == 0, what="nothing waits")
    assert gateway.request("DELETE", f"/sessions/{sid}").status == 204
    gateway.stop()


def test_an_export_for_a_sink_is_tried_again_by_the_same_worker(faulty, tmp_path):  # noqa: F811
    gateway, inject, sid = owing(faulty, tmp_path / "out")
    worker = gateway.child("worker-0")
    gateway.wait_line("an export for the sinks failed: it is tried again")
    inject("stick", None)
    wait_until((tmp_path / "out" / f"{sid}.msgpack").exists, 40, "it came")
    assert gateway.child("worker-0") == worker and gateway.stop() == 0

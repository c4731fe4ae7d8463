"""Refused pictures, with errors in each dialect's form (docs/multimodal.md, 2): the engine gets no request, and the
session continues."""
import json
import struct

import pytest

import vision_kit as kit
from vision_kit import chat, files, session, text, user

SMALL = kit.png(64, 64)


def claims(width, height):
    """A PNG that says so."""
    return SMALL[:8] + kit.chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)) + SMALL[33:]


def asked(dialect, *pictures):
    """A request with the pictures (bytes, or a URL) in one message."""
    if dialect == "messages":
        sources = [{"type": "url", "url": p} if isinstance(p, str) else
                   {"type": "base64", "media_type": "image/png", "data": kit.b64(p)} for p in pictures]
        return {"max_tokens": 9, "messages": [user(text("look"), *[{"type": "image", "source": s} for s in sources])]}
    urls = [p if isinstance(p, str) else kit.url(p) for p in pictures]
    if dialect == "responses":
        return {"input": [{"role": "user", "content": [{"type": "input_text", "text": "look"},
                                                       *[{"type": "input_image", "image_url": u} for u in urls]]}]}
    return {"messages": [user(text("look"), *[{"type": "image_url", "image_url": {"url": u}} for u in urls])]}


def told(dialect, answer):
    """The error's code and message. Anthropic's has no code; its types are of the status."""
    body = answer.json()
    if dialect != "messages":
        assert set(body) == {"error", "request_id"} and {"message", "type", "param", "code"} <= set(body["error"]), body
        return body["error"]["code"], body["error"]["message"]
    assert body["type"] == "error" and body["error"]["type"] == {400: "invalid_request_error", 413: "request_too_large"}[answer.status], body
    return None, body["error"]["message"]


FETCH = {"media_fetch": "http://*:80"}


@pytest.mark.cases(21)
@pytest.mark.parametrize("dialect", ["chat/completions", "messages", "responses"])
@pytest.mark.parametrize("settings,pictures,status,code,words", [
    ({"max_image_bytes": "4KiB"}, [kit.big(5)], 413, "body_too_large", "4096 bytes"),
    ({"max_session_media_bytes": "12KiB"}, [kit.big(5, n) for n in range(3)], 413, "body_too_large", "--max-session-media-bytes"),
    ({"max_images": 2}, [SMALL] * 3, 400, "invalid_request", "more than 2 images"),
    ({}, [claims(32769, 1000)], 400, "invalid_image", "32768"),
    ({}, [claims(20000, 4000)], 400, "invalid_image", "64 Mpx"),
    ({}, [kit.png(201, 1)], 400, "invalid_image", "200 times"),
    ({}, [SMALL[:-1]], 400, "invalid_image", "Could not process image"),
    ({}, ["https://example.com/a.png"], 400, "invalid_request", "https:"),
    ({}, ["file:///etc/passwd"], 400, "invalid_request", "file:"),
    (FETCH, ["file:///etc/passwd"], 400, "invalid_request", "file:"),
    (FETCH, ["http://10.0.0.1/a"], 400, "invalid_image", "not public"),
    (FETCH, ["http://[::1]/a"], 400, "invalid_image", "not public"),
    (FETCH, ["http://169.254.169.254/latest"], 400, "invalid_image", "not public"),
    (FETCH, ["http://localhost/a"], 400, "invalid_image", "not public"),
], ids=["bytes", "session", "count", "side", "area", "aspect", "cut", "https", "file", "file where hosts are let", "v4", "v6", "link-local",
        "name"])
def test_limits_in_the_dialects_shape(vision, dialect, settings, pictures, status, code, words):
    engine, gateway = vision(**settings)
    sid = session(gateway)
    answer = gateway.post(f"/sessions/{sid}/v1/{dialect}", asked(dialect, *pictures))
    assert answer.status == status, answer.body
    got, message = told(dialect, answer)
    assert got in (code, None) and words in message, answer.body
    assert answer.headers["x-should-retry"] == "false"
    assert not engine.requests and gateway.get(f"/sessions/{sid}").json()["tree"]["nodes"] == []
    assert chat(gateway, sid, [user(kit.image(SMALL))]).status == 200
    assert kit.sha(SMALL) in files(gateway)


@pytest.mark.parametrize("dialect", ["chat/completions", "messages", "responses"])
def test_a_session_that_is_full_of_pictures_keeps_those_that_it_has(vision, dialect):
    """What is sent again takes nothing."""
    engine, gateway = vision(max_session_media_bytes="12KiB")
    sid, shots = session(gateway), [kit.big(5, n) for n in range(3)]
    path = f"/sessions/{sid}/v1/{dialect}"
    assert gateway.post(path, asked(dialect, *shots[:2])).status == 200
    answer = gateway.post(path, asked(dialect, *shots))
    assert answer.status == 413 and "--max-session-media-bytes" in told(dialect, answer)[1], answer.body
    assert gateway.post(path, asked(dialect, *shots[:2], shots[0])).status == 200
    assert len(engine.requests) == 2 and set(files(gateway)) == {kit.sha(s) for s in shots[:2]}
    assert gateway.post(f"/sessions/{session(gateway)}/v1/{dialect}", asked(dialect, shots[2])).status == 200


def test_bytes_and_urls_of_pictures_are_in_no_log(vision):
    engine, gateway = vision(log_level="debug")
    sid, shot = session(gateway), kit.big(3)
    url = kit.url(shot)
    assert chat(gateway, sid, [user(text("look"), kit.image(shot))]).status == 200
    engine.vision = lambda ids, pictures: ids
    assert chat(gateway, sid, [user(kit.image(shot))]).status == 502
    assert chat(gateway, sid, [user(kit.image(shot[:-9]))]).status == 400
    log = gateway.log() + json.dumps(gateway.metrics())
    assert "data:image" not in log and url[100:140] not in log

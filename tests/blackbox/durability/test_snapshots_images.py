"""Snapshots of sessions with images contain each picture once. An import checks every statement about them."""
import base64
import http.client
import json

import pytest

import vision_kit as kit
from gateway import wait_until
from test_images_fetch import HERE, by, hosts, page, sent, web  # noqa: F401
from test_snapshots import frames, packed, told
from vision_kit import big, chat, files, image, media, session, text, user

OTHER = kit.png(32, 32)
DOTS = b"." * 12
SHOTS = [kit.png(640, 480, 1), kit.jpeg(320, 256), kit.png(64, 64, 3)]


def talk(gateway, sid, shots=SHOTS):
    """A turn a picture, and the first picture once more with the last; the history that the next turn goes on from."""
    messages = []
    for i, shot in enumerate(shots):
        again = [image(shots[0])] if i == len(shots) - 1 else []
        messages.append(user(text(f"look {i} {2 * DOTS.decode()}"), image(shot, kind(shot)), *again))
        answer = chat(gateway, sid, messages)
        assert answer.status == 200, answer.body
        messages.append(answer.json()["choices"][0]["message"])
    return messages


def kind(shot):
    return "png" if shot[:4] == b"\x89PNG" else "jpeg"


def taken(gateway, sid):
    a = gateway.get(f"/sessions/{sid}/snapshot")
    assert a.status == 200, a.text
    return a.json()


def brought(gateway, document):
    a = gateway.post("/sessions/import", document)
    assert a.status == 200, a.text
    return a.json()["session_id"]


def export(gateway, sid, how):
    whole = gateway.get(f"/sessions/{sid}/trajectories?media={how}").json()
    table = [{**row, "url": row["url"].replace(sid, "ID")} for row in whole["summary"].get("media", [])]
    return told(whole), table


def test_it_goes_on_token_by_token_on_another_node(vision):
    _, here = vision(durability="power")
    sid = session(here, history="tree")
    history = talk(here, sid)
    document = taken(here, sid)
    assert [row["sha256"] for row in document["media"]] == [kit.sha(s) for s in SHOTS] and document["version"] == 1
    assert [base64.b64decode(row["data"], validate=True) for row in document["media"]] == SHOTS
    assert "media_urls" not in document
    _, there = vision(durability="power")
    new = brought(there, document)
    assert files(there) == {kit.sha(s): 1 for s in SHOTS}
    other = brought(there, document)        # once a node, whoever brings it
    assert files(there) == {kit.sha(s): 2 for s in SHOTS}
    assert there.request("DELETE", f"/sessions/{other}").status == 204
    more = [*history, user(text("and now?"), image(SHOTS[2]))]
    for restarted in (False, True):
        if restarted:
            there.kill()
            there.start()
        for how in ("refs", "inline", "none"):
            assert export(there, new, how) == export(here, sid, how)
        for shot in SHOTS:
            assert there.get(f"/sessions/{new}/media/{kit.sha(shot)}").body == shot
    asked = []
    for engine, gateway, s in ((vision.engines[0], here, sid), (vision.engines[1], there, new)):
        answer = chat(gateway, s, more)
        assert answer.status == 200, answer.body
        asked.append([engine.requests[-1]["body"][k] for k in ("input_ids", "image_data")])
    assert asked[0] == asked[1] and len(asked[0][1]) == len(SHOTS) + 2
    rows = [[{k: t[k] for k in ("prompt_ids", "response_ids", "response_mask", "images")} for t in export(*of, "inline")[0]]
            for of in ((here, sid), (there, new))]
    assert rows[0] == rows[1]
    # a snapshot of what was imported is the same pictures
    assert taken(there, new)["media"] == document["media"]


def test_long_pictures_go_out_and_in_by_slices(vision):
    """Eleven megabytes to a reader that takes its time; who leaves in the middle leaves nothing behind."""
    engine, gateway = vision()
    sid, shots = session(gateway), [big(7 << 10), big(1, 2), big(4 << 10, 3)]
    talk(gateway, sid, shots)
    for leaves in (True, False):
        c = gateway.connect()
        c.request("GET", f"/sessions/{sid}/snapshot")
        answer = c.getresponse()
        begun = answer.read(1000)
        assert chat(gateway, sid, [user(text("meanwhile"))]).status == 200
        if not leaves:
            document = json.loads(begun + answer.read())
        c.close()
    assert [base64.b64decode(row["data"]) for row in document["media"]] == shots
    new = brought(gateway, document)
    assert files(gateway) == {kit.sha(s): 2 for s in shots}
    assert gateway.get(f"/sessions/{new}/media/{kit.sha(shots[0])}").body == shots[0]


def test_what_came_from_urls_is_not_fetched_again(vision, web):  # noqa: F811
    _, here = vision(media_fetch=hosts(web), **HERE)
    web.pages["/a"], web.pages["/b"] = page(SHOTS[0]), page(SHOTS[2])
    sid = session(here)
    messages = [user(by(web.at("/a")), by(web.at("/b?secret")), by(kit.url(OTHER)), by(web.at("/a")))]
    answer = chat(here, sid, messages)
    assert answer.status == 200, answer.body
    document = taken(here, sid)
    assert {(row["url"], row["sha256"]) for row in document["media_urls"]} == {
        (kit.sha(web.at("/a").encode()), kit.sha(SHOTS[0])), (kit.sha(web.at("/b?secret").encode()), kit.sha(SHOTS[2]))}
    assert "secret" not in json.dumps(document["media_urls"])
    web.pages["/a"] = web.pages["/b"] = page(kit.png(96, 96))     # other pictures lie there now
    before = len(web.asked)
    engine, there = vision(media_fetch=hosts(web), **HERE)
    new = brought(there, document)
    messages += [answer.json()["choices"][0]["message"], user(text("and?"))]
    answer = chat(there, new, messages)
    assert answer.status == 200, answer.body
    assert sent(engine) == [SHOTS[0], SHOTS[2], OTHER, SHOTS[0]] and len(web.asked) == before
    assert sorted(taken(there, new)["media_urls"], key=str) == sorted(document["media_urls"], key=str)
    for rows, where in (([{"url": "x", "sha256": kit.sha(SHOTS[0])}], "media_urls[0]"),
                        ([document["media_urls"][0]] * 2, "media_urls[1]"),
                        ([{"url": "0" * 64, "sha256": "0" * 64}], "media_urls[0]"),
                        ([{"url": f"{i:064x}", "sha256": kit.sha(SHOTS[0])} for i in range(4097)], "media_urls")):
        a = there.post("/sessions/import", {**document, "media_urls": rows})
        assert a.status == 400 and a.json()["error"]["param"] == where, a.text
    assert len(there.get("/sessions").json()["sessions"]) == 1 and set(files(there).values()) == {1}


# --- what is none ---

def at(document, i, **changes):
    rows = [dict(row) for row in document["media"]]
    rows[i] = {k: v for k, v in {**rows[i], **changes}.items() if v is not None}
    return {**document, "media": rows}


def swapped(document, old, new):
    """The records say something else of a picture."""
    assert len(old) == len(new) and any(old in f for f in frames(document))
    return {**document, **packed([f.replace(old, new) for f in frames(document)])}


def resized(document, old, new):
    """The same by more bytes or fewer, for which the text in front of the picture has fewer or more: its length stays."""
    more, made = len(new) - len(old), frames(document)
    for i, f in enumerate(made):
        while old in f:
            at = f.index(old)
            dots = f.rindex(DOTS, 0, at)
            f = f[:dots] + b"-" * (len(DOTS) - more) + f[dots + len(DOTS):at] + new + f[at + len(old):]
        made[i] = f
    assert made != frames(document)
    return {**document, **packed(made)}


def cut(document, shot, n):
    """A picture without its end, which the records name by what it is now."""
    left = shot[:-n]
    named = swapped(document, kit.sha(shot).encode(), kit.sha(left).encode())
    return {**named, "media": [row(left) if r["sha256"] == kit.sha(shot) else r for r in document["media"]]}


def row(data, named=None):
    return {"sha256": named or kit.sha(data), "data": kit.b64(data)}


HOSTILE = {
    "no pictures": (lambda d: {k: v for k, v in d.items() if k != "media"}, 400, "media", "is missing"),
    "null": (lambda d: {**d, "media": None}, 400, "media", "is missing"),
    "one is missing": (lambda d: {**d, "media": d["media"][:2]}, 400, "media", kit.sha(SHOTS[2])),
    "no list": (lambda d: {**d, "media": {}}, 400, "media", "a list of objects"),
    "no object": (lambda d: {**d, "media": [7]}, 400, "media[0]", "must be an object"),
    "no data": (lambda d: at(d, 1, data=None), 400, "media[1]", "data is required"),
    "data is no text": (lambda d: at(d, 1, data=7), 400, "media[1]", "data is required"),
    "an unknown member": (lambda d: at(d, 1, date=""), 400, "media[1].date", "media[1].date"),
    "no base64": (lambda d: at(d, 1, data="x"), 400, "media[1]", "base64"),
    "cut": (lambda d: at(d, 1, data=d["media"][1]["data"][:-8]), 400, "media[1]", "SHA-256"),
    "wrong hash": (lambda d: at(d, 1, data=d["media"][0]["data"]), 400, "media[1]", "SHA-256"),
    "no hash": (lambda d: at(d, 1, sha256="../../etc/passwd"), 400, "media[1]", "hexadecimal"),
    "capitals": (lambda d: at(d, 0, sha256=d["media"][0]["sha256"].upper()), 400, "media[0]", "hexadecimal"),
    "nobody names it": (lambda d: {**d, "media": [*d["media"], row(OTHER)]}, 400, "media[3]", "no record names"),
    "twice": (lambda d: {**d, "media": [*d["media"], d["media"][0]]}, 400, "media[3]", "twice"),
    "another width": (lambda d: swapped(d, b'"width":320', b'"width":321'), 400, "media[1]", "width is 321 in the records, 320 in the image"),
    "another format": (lambda d: swapped(d, b'"format":"jpeg"', b'"format":"webp"'), 400, "media[1]", "format is webp in the records, jpeg in the image"),
    "other tokens": (lambda d: swapped(d, b'"tokens":300', b'"tokens":301'), 400, "media[0]", "301 tokens"),
    "tokens that would be cut": (lambda d: resized(d, b'"tokens":300', b'"tokens":4294967596'), 400, "records",
                                 "tokens must be an integer from 0 to 4294967295, not 4294967596"),
    "a width that would be cut": (lambda d: resized(d, b'"width":320', b'"width":4294967616'), 400, "records",
                                  "width must be an integer from 0 to 4294967295, not 4294967616"),
    "less than nothing": (lambda d: resized(d, b'"height":256', b'"height":-256'), 400, "records", "not -256"),
    "a number that is none": (lambda d: resized(d, b'"tokens":300', b'"tokens":"300"'), 400, "records", "tokens must be"),
    "no tokens": (lambda d: swapped(d, b'"tokens":300', b'"tokenz":300'), 400, "records", "tokenz"),
    "a grid that would be cut": (lambda d: resized(d, b'"grid":[1,', b'"grid":[4294967297,'), 400, "records",
                                 "grid must be a list of integers from 0 to 4294967295, not 4294967297"),
    "a flat grid": (lambda d: resized(d, b'"grid":[1,', b'"grid":['), 400, "records", "grid must be a list of 3 integers"),
    "an image without bytes": (lambda d: swapped(d, b'"media":', b'"medio":'), 400, "records", "medio"),
    "a cut picture": (lambda d: cut(d, SHOTS[0], 8), 400, "media[0]", "cut off"),
    "another length": (lambda d: swapped(d, b'"bytes":%d,' % len(SHOTS[0]), b'"bytes":9999,'), 400, "media[0]",
                       f"bytes is 9999 in the records, {len(SHOTS[0])} in the image"),
    "a picture cut in its head": (lambda d: cut(d, SHOTS[0], len(SHOTS[0]) - 20), 400, "media[0]", ""),
    "two ways": (lambda d: {**d, **packed([f.replace(b'"tokens":300', b'"tokens":301') if i == 1 else f
                                           for i, f in enumerate(frames(d))])}, 400, "records", "two ways"),
    "a path": (lambda d: swapped(d, kit.sha(SHOTS[2]).encode(), b"../" * 21 + b"x"), 400, "records",
               "media must be a SHA-256"),
    "a path, and no picture": (lambda d: {**swapped(d, kit.sha(SHOTS[2]).encode(), b"../" * 21 + b"x"), "media": d["media"][:2]},
                               400, "records", "media must be a SHA-256"),
    "too large": (lambda d: {**d, "media": [*d["media"][:2], row(big(1100), d["media"][2]["sha256"])]}, 413, "media[2]",
                  "--max-image-bytes"),
    "truncated": (lambda d: json.dumps(d)[:-40].encode(), 400, None, ""),
}


@pytest.fixture
def snapshot(vision):
    """A snapshot, and another gateway, whose one session has a picture."""
    _, here = vision()
    sid = session(here)
    talk(here, sid)
    document = taken(here, sid)
    engine, there = vision(max_image_bytes="1MiB")
    own = session(there)
    assert chat(there, own, [user(image(OTHER))]).status == 200
    return document, there


def test_what_is_wrong_is_told_and_leaves_nothing_behind(snapshot):
    document, there = snapshot
    for name, (make, status, param, words) in HOSTILE.items():
        a = there.post("/sessions/import", make(document))
        assert a.status == status and words in a.text, (name, a.text)
        assert param is None or a.json()["error"]["param"] == param, (name, a.text)
        assert files(there) == {kit.sha(OTHER): 1} and len(list(media(there).glob("sessions/*"))) == 1, name
        assert len(there.get("/sessions").json()["sessions"]) == 1, name
    new = brought(there, document)
    assert files(there) == {kit.sha(OTHER): 1, **{kit.sha(s): 1 for s in SHOTS}}
    assert there.get(f"/sessions/{new}/media/{kit.sha(SHOTS[1])}").body == SHOTS[1]


def test_a_text_with_escapes_is_the_same_text(snapshot):
    """Some writers of JSON escape every slash, which base64 has."""
    document, there = snapshot
    plain = json.dumps(document)
    assert "/" in document["media"][1]["data"]
    a = there.request("POST", "/sessions/import", plain.replace("/", "\\/").encode(), {"Content-Type": "application/json"})
    assert a.status == 200, a.text
    assert there.get(f"/sessions/{a.json()['session_id']}/media/{kit.sha(SHOTS[1])}").body == SHOTS[1]


def test_another_model_of_pictures(vision, start, tmp_path):
    """The same tokenizer: but a picture is other tokens there, or none."""
    _, here = vision()
    sid = session(here)
    talk(here, sid)
    document = taken(here, sid)
    for name, processor, words in (("text", None, "text only"), ("coarse", {**kit.PROCESSOR, "patch_size": 32}, "tokens")):
        folder = kit.model_folder(tmp_path / name, processor)
        there = start(engine="builtin:echo", model=folder, workers=1)
        a = there.post("/sessions/import", document)
        assert a.status == 400 and words in a.text and a.json()["error"]["param"] == "media[0]", a.text
        assert not files(there) and there.get("/sessions").json()["sessions"] == []


def test_limits_of_a_session_and_of_the_disk(vision, small_disk):
    engine, here = vision()
    sid, shots = session(here), [big(300), big(400, 2)]
    talk(here, sid, shots)
    document = taken(here, sid)
    _, there = vision(max_session_media_bytes="500KiB")
    a = there.post("/sessions/import", document)
    assert a.status == 413 and "--max-session-media-bytes" in a.text, a.text
    assert not files(there) and not list(media(there).glob("sessions/*"))
    disk = small_disk("600k")
    _, full = vision(state_dir=str(disk), journal_min_free="10k")
    full.allow("journal", "storage", "image")
    a = full.post("/sessions/import", document)
    assert a.status == 503 and a.json()["error"]["code"] == "storage_full", a.text
    assert not files(full) and full.get("/sessions").json()["sessions"] == []


def told_why(gateway, sid, why):
    """The error names the cause; where a slice had left before it was found, the answer is broken off and the log names it."""
    try:
        a = gateway.get(f"/sessions/{sid}/snapshot")
    except http.client.IncompleteRead:
        a = None
    if a and a.status != 502:
        assert a.status in (500, 503) and why in a.text, a.text
        return "told"
    gateway.wait_line(f"a session's snapshot cannot be told.*{why}")
    return "broken off"


def test_a_picture_that_is_gone_is_no_snapshot(vision):
    _, gateway = vision()
    sid = session(gateway)
    talk(gateway, sid)
    path = media(gateway) / "sessions" / sid / kit.sha(SHOTS[0])
    path.unlink()
    path.write_bytes(SHOTS[0][:-1])
    told_why(gateway, sid, "changed on the disk")
    path.unlink()
    told_why(gateway, sid, "gone from the disk")
    path.write_bytes(SHOTS[0])
    assert taken(gateway, sid)["media"][0]["sha256"] == kit.sha(SHOTS[0])


def test_a_picture_that_is_gone_behind_others_breaks_the_snapshot_off(vision):
    """Some of it has left by then: what comes is no whole answer, and the log says why."""
    _, gateway = vision()
    sid, shots = session(gateway), [big(3 << 10), SHOTS[1]]
    talk(gateway, sid, shots)
    (media(gateway) / "sessions" / sid / kit.sha(SHOTS[1])).unlink()
    assert told_why(gateway, sid, "gone from the disk") == "broken off"


def test_who_leaves_while_it_is_read_leaves_nothing(vision):
    """The pictures of an import that nobody waits for are dropped at once, or by the sweep when it got as far as a session."""
    engine, gateway = vision()
    sid, shots = session(gateway), [big(3 << 10, i) for i in range(4)]
    talk(gateway, sid, shots)
    body = json.dumps(taken(gateway, sid)).encode()
    c = gateway.connect()
    c.request("POST", "/sessions/import", body, {"Content-Type": "application/json"})
    c.close()

    def settled():
        rows = gateway.get("/sessions").json()["sessions"]
        folders = {p.name for p in media(gateway).glob("sessions/*")}
        return folders == {r["session_id"] for r in rows} and len(rows) in (1, 2)
    wait_until(settled, what="pictures stand for sessions alone")
    assert chat(gateway, sid, [user(text("still"), image(shots[0]))]).status == 200

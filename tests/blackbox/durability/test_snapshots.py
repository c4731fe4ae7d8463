"""Sessions that continue from a snapshot on a different gateway, or later, token by token; and invalid snapshots."""
import base64
import json
import struct

import pytest

import gateway as g
from test_export_cases import said, scene, user  # noqa: F401

POLICIES = ("tree", "chains", "linear", "timelines")


def snapshot(s):
    a = s.gateway.get(s.path + "/snapshot")
    assert a.status == 200, a.text
    return a.json()


def brought(s, document):
    """The scene's next session is the snapshot's."""
    a = s.gateway.post("/sessions/import", document)
    assert a.status == 200, a.text
    s.path = "/sessions/" + a.json()["session_id"]
    return a.json()


def told(whole):
    """What a trainer reads, without what names the session."""
    return [{k: v for k, v in t.items() if k != "session_id"} for t in whole["trajectories"]]


@pytest.mark.parametrize("history", POLICIES)
def test_it_goes_on_token_by_token(scene, history):  # noqa: F811
    s = scene().new(history=history, labels={"task": "4"}, metadata={"uid": "u"})
    first = s.chat([user("q")], "one", plan={"version": "7"})
    s.chat([user("q"), said("one"), user("r")], "two", plan={"version": "8"})
    s.reward({"reward": 0.5})
    s.reward({"reward": 1}, response_id=first["id"])
    here, before = s.path, s.native()
    document = snapshot(s)
    assert document["version"] == 1 and document["session_id"] == before["session_id"]
    made = brought(s, document)
    assert made["imported_from"] == before["session_id"] != made["session_id"] and made["api_key"] != ""
    assert told(s.native()) == told(before)
    state = s.gateway.get(s.path).json()
    assert (state["phase"], state["labels"]) == ("open", {"task": "4"})
    # the same next request, here and there: the engine is sent the same ids
    more = [user("q"), said("one"), user("r"), said("two"), user("s")]
    asked = []
    for path in (here, s.path):
        s.path = path
        s.chat(more, "three")
        asked.append([r["body"]["input_ids"] for r in s.engine.requests if "input_ids" in r["body"]][-1])
    assert asked[0] == asked[1]


def test_another_gateway_and_its_restart(scene, start, tmp_path):  # noqa: F811
    s = scene().new()
    s.chat([user("q")], "one")
    body = {"model": "m", "messages": [user("q"), said("one"), user("r")]}
    s.engine.plan.append({"ids": [*b"two", 257], "finish": "stop", "matched": 257})
    answer = s.gateway.post(s.path + "/v1/chat/completions", body).json()
    before, document = s.native(), snapshot(s)
    s.gateway = start(workers=2, engine=s.engine.setting, model=g.MODELS / "chatml-bytes", tool_parser="none",
                      reasoning_parser="none")
    brought(s, document)
    assert told(s.native()) == told(before)
    s.gateway.kill()
    s.gateway.start()
    assert told(s.native()) == told(before)
    # a client that repeats its last request gets the recorded answer
    again = s.gateway.post(s.path + "/v1/chat/completions", body, headers={"x-stainless-retry-count": "1"})
    assert again.headers["rollgate-replayed"] == "1" and again.json()["choices"] == answer["choices"]


def test_ended_sessions_and_copies(scene):  # noqa: F811
    s = scene().new(max_turns=3)
    s.chat([user("q")], "one")
    s.gateway.post(s.path + "/finalize", {})
    document = snapshot(s)
    brought(s, document)
    assert s.gateway.get(s.path).json()["phase"] == "open"
    s.chat([user("q"), said("one"), user("r")], "two")
    # a snapshot of what was imported, and of its fork
    fork = s.gateway.post(s.path + "/fork", {}).json()["session_id"]
    once = told(s.native())
    brought(s, snapshot(s))
    assert told(s.native()) == once
    s.path = f"/sessions/{fork}"
    once = told(s.native())
    brought(s, snapshot(s))
    assert told(s.native()) == once and not any(x["trained"] for t in once for x in t["turns"])
    s.chat([user("q"), said("one"), user("r"), said("two"), user("s")], "three")
    a = s.gateway.post(s.path + "/v1/chat/completions", {"model": "m", "messages": [user("z")]})
    assert a.status == 410 and a.json()["error"]["code"] == "budget_exhausted"


def test_a_long_session_goes_out_in_slices(start):
    """A reader that takes its time holds nobody up, and gets the session as it was when it asked."""
    gateway = start(workers=1, engine="builtin:echo")
    sid = gateway.post("/sessions", {}).json()["session_id"]
    messages = []

    def turn(text):
        messages.append(user(text))
        a = gateway.post(f"/sessions/{sid}/v1/chat/completions", {"model": "m", "messages": messages})
        assert a.status == 200, a.text
        messages.append({"role": "assistant", "content": a.json()["choices"][0]["message"]["content"]})

    turn("first")
    where = f"/sessions/{sid}/snapshot"
    assert gateway.get(where).json()["n_records"] >= 2
    for i in range(12):
        turn(f"{i}: " + "as long as it takes, " * 1500)
    before = gateway.get(f"/sessions/{sid}/trajectories").json()
    c = gateway.connect()
    c.request("GET", where)
    answer = c.getresponse()
    begun = answer.read(1)
    turn("meanwhile")
    document = json.loads(begun + answer.read())
    assert answer.getheader("Transfer-Encoding") == "chunked"
    assert len(frames(document)) == document["n_records"] and packed(frames(document))["crc32c"] == document["crc32c"]
    a = gateway.post("/sessions/import", document)
    assert a.status == 200, a.text
    assert told(gateway.get(f"/sessions/{a.json()['session_id']}/trajectories").json()) == told(before)
    # who leaves in the middle leaves nothing behind, and the session can end
    c = gateway.connect()
    c.request("GET", where)
    c.getresponse().read(1)
    c.close()
    assert gateway.request("DELETE", f"/sessions/{sid}").status in (200, 204)
    assert gateway.get(where).status in (404, 410)


# --- what is none ---

def frames(document):
    raw, out = base64.b64decode(document["records"]), []
    while raw:
        n = struct.unpack_from("<I", raw)[0]
        out.append(raw[4:4 + n])
        raw = raw[4 + n:]
    return out


CRC32C = [0] * 256
for _i in range(256):
    _c = _i
    for _ in range(8):
        _c = _c >> 1 ^ (0x82f63b78 if _c & 1 else 0)
    CRC32C[_i] = _c


def crc32c(data):
    c = 0xffffffff
    for b in data:
        c = c >> 8 ^ CRC32C[(c ^ b) & 255]
    return c ^ 0xffffffff


def packed(records, tail=b""):
    raw = b"".join(struct.pack("<I", len(r)) + r for r in records) + tail
    return {"version": 1, "records": base64.b64encode(raw).decode(), "crc32c": crc32c(raw)}


def record(like, kind, body):
    """One of that session, of that kind."""
    return bytes([kind, like[1]]) + like[2:2 + like[2] + 8] + body    # behind kind and version: id with its length + 1, time


def numbered(commit, call):
    """The commit of another call, whose own number has one byte."""
    at = 2 + commit[2] + 8
    return commit[:at] + call + commit[at + 1:]


def number(n):
    """As records have them: seven bits a byte, low ones first."""
    return bytes([n & 127 | 128]) + number(n >> 7) if n > 127 else bytes([n])


def counting(n):
    """The body of a completion's commit that says that n answers follow, whose bytes are in fragments."""
    return b"\x09" + bytes(16) + b"\0" + bytes(4) + number(1 | 256) + b"\0" + b"\0\0" + b"\0" + b"\0\0" + bytes(5) + number(n)


BULK, LARGE = 13, b"\xff" * 8 + b"\x7f"     # 2^63 - 1
HOSTILE = {
    "no body": (lambda d, f: {}, "version"),
    "version": (lambda d, f: {**d, "version": 2}, "version"),
    "no records": (lambda d, f: {k: v for k, v in d.items() if k != "records"}, "records"),
    "no base64": (lambda d, f: {**d, "records": d["records"][:-1] + "!"}, "records"),
    "sum": (lambda d, f: {**d, "crc32c": d["crc32c"] ^ 1}, "crc32c"),
    "no sum": (lambda d, f: {k: v for k, v in d.items() if k != "crc32c"}, "crc32c"),
    "unknown": (lambda d, f: {**d, "record": ""}, "record"),
    "nothing": (lambda d, f: packed([], b""), "records"),
    "no beginning": (lambda d, f: packed(f[1:]), "records"),
    "two beginnings": (lambda d, f: packed([f[0], *f]), "records"),
    "a call twice": (lambda d, f: packed([*f, f[-1]]), None),
    "out of order": (lambda d, f: packed([f[0], *f[:0:-1]]), "records"),
    "cut head": (lambda d, f: packed(f, b"\0\0"), "records"),
    "cut body": (lambda d, f: packed(f, b"\xff\0\0\0x"), "records"),
    "an end": (lambda d, f: packed([*f, b"\x04" + f[-1][1:]]), "records"),
    "an empty record": (lambda d, f: packed([*f, b""]), "records"),
    "fragments that no commit names": (lambda d, f: packed([*f, record(f[-1], BULK, b"\x09\0\0abc"), record(f[-1], BULK, b"\x09\3\2abc")]),
                                       "taken"),
    "fragments of many calls": (lambda d, f: packed([*f, *(record(f[-1], BULK, bytes([i & 127 | 128, i >> 7]) + b"\0\0x")
                                                           for i in range(1, 16384))]), "taken"),
    "fragments of a commit that names none": (lambda d, f: packed([*f[:-1], record(f[-1], BULK, b"\x01\0\0abc"), f[-1]]), "taken"),
    "half of a fragment": (lambda d, f: packed([*f, record(f[-1], BULK, b"\x89")]), "records"),
    "an empty fragment": (lambda d, f: packed([*f, record(f[-1], BULK, b"\x09\0\0")]), "records"),
    "a piece that none is": (lambda d, f: packed([*f, record(f[-1], BULK, b"\x09\0" + number(1024) + b"abc")]), "records"),
    "fragments without those before": (lambda d, f: packed([*f, record(f[-1], BULK, b"\x09\3\0abc"), record(f[-1], 2, counting(1))]),
                                       "records"),
    "a call's number that leaves none": (lambda d, f: packed([*f[:-1], numbered(f[-1], LARGE)]), "records"),
    "a fragment of such a call": (lambda d, f: packed([*f, record(f[-1], BULK, LARGE + b"\0\0abc")]), "records"),
    "more answers than there are": (lambda d, f: packed([*f, record(f[-1], BULK, b"\x09\0\2" + bytes(400)),
                                                         record(f[-1], 2, counting(2**32 - 1))]), "records"),
    "half a record": (lambda d, f: packed([f[0], f[1][:len(f[1]) // 2]]), "records"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_what_is_refused_names_the_field(scene, kind):  # noqa: F811
    s = scene().new()
    s.chat([user("q")], "one")
    s.chat([user("q"), said("one"), user("r")], "two")
    document = snapshot(s)
    assert crc32c(base64.b64decode(document["records"])) == document["crc32c"]
    make, param = HOSTILE[kind]
    a = s.gateway.post("/sessions/import", make(document, frames(document)))
    if param is None:
        assert a.status in (200, 400)
    elif param == "taken":
        assert a.status == 200, a.text
    else:
        assert a.status == 400 and a.json()["error"]["param"] == param, a.text
        assert len(s.gateway.get("/sessions").json()["sessions"]) == 1
    s.chat([user("q"), said("one"), user("r"), said("two"), user("s")], "three")


def test_every_byte_may_be_wrong(scene):  # noqa: F811
    """A snapshot with some byte changed is taken or refused, and the worker goes on. What is taken can be exported: a changed id of
    a prompt or an answer was found at finalize only, when the session was lost."""
    s = scene().new()
    s.chat([user("q")], "one")
    s.chat([user("q"), said("one"), user("r")], "two")
    first, *f = frames(snapshot(s))
    taken = 0
    for which, record in enumerate(f):
        for i in range(0, len(record), 3):
            wrong = record[:i] + bytes([record[i] ^ 0x81]) + record[i + 1:]
            a = s.gateway.post("/sessions/import", packed([first, *f[:which], wrong, *f[which + 1:]]))
            assert a.status in (200, 400, 409), a.text
            if a.status == 200:
                taken += 1
                end = s.gateway.post(f"/sessions/{a.json()['session_id']}/finalize", {})
                assert end.status == 200, (which, i, end.text)
    assert taken > 5, "some bytes are free: texts and times"
    s.chat([user("q"), said("one"), user("r")], "two")


def test_another_tokenizer(scene, start):  # noqa: F811
    s = scene().new()
    s.chat([user("q")], "one")
    other = start(workers=1, engine="builtin:echo")
    a = other.post("/sessions/import", snapshot(s))
    assert a.status == 409 and a.json()["error"]["code"] == "foreign_session", a.text
    assert other.get("/sessions").json()["sessions"] == []


def test_without_a_journal(start):
    gateway = start(workers=1, engine="builtin:echo", durability="none")
    sid = gateway.post("/sessions", {}).json()["session_id"]
    a = gateway.get(f"/sessions/{sid}/snapshot")
    assert a.status == 400 and "--durability none" in a.text

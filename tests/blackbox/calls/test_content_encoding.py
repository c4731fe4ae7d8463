"""Bodies with a Content-Encoding are decoded like any other body, within its limits. Unknown codings are refused, and
the error names the known ones."""
import gzip
import json
import zlib

import pytest

from gateway import wait_until
from test_lending import Client

MESSAGES = [{"role": "user", "content": "hi"}]


def raw_deflate(data):
    c = zlib.compressobj(9, zlib.DEFLATED, -15)
    return c.compress(data) + c.flush()


CODINGS = {"gzip": gzip.compress, "x-gzip": gzip.compress, "GZip": gzip.compress, "deflate": zlib.compress,
           "identity, deflate": raw_deflate, "identity": bytes, "": bytes}


def ask(gateway, sid, body, coding, path="/v1/chat/completions", data=None, **more):
    data = json.dumps(body).encode() if data is None else data
    headers = {"Content-Type": "application/json", "Content-Encoding": coding}
    return gateway.request("POST", f"/sessions/{sid}{path}", data, headers, **more)


@pytest.fixture
def session(start):
    def make(**settings):
        gateway = start(engine="builtin:echo", workers=1, **settings)
        return gateway, gateway.post("/sessions", {}).json()["session_id"]
    return make


@pytest.mark.parametrize("coding", CODINGS)
def test_each_coding_gives_the_same_call(session, coding):
    gateway, sid = session()
    body = {"model": "m", "messages": MESSAGES}
    plain = gateway.post(f"/sessions/{sid}/v1/chat/completions", body).json()
    other = gateway.post("/sessions", {}).json()["session_id"]
    a = ask(gateway, other, body, coding, data=CODINGS[coding](json.dumps(body).encode()))
    assert a.status == 200 and a.json()["choices"] == plain["choices"], a.text
    for path, more in (("/v1/messages", {"max_tokens": 9}), ("/v1/responses", {"input": "x"}), ("/v1/completions", {"prompt": "x"})):
        one = {"model": "m", **({"messages": MESSAGES} if "messages" in path else {}), **more}
        assert ask(gateway, other, one, coding, path, CODINGS[coding](json.dumps(one).encode())).status == 200


def test_all_planes_decode(session):
    gateway, sid = session()
    headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
    made = gateway.request("POST", "/sessions", gzip.compress(b'{"labels": {"a": "b"}}'), headers)
    assert made.status == 200, made.text
    assert gateway.get(f"/sessions/{made.json()['session_id']}").json()["labels"] == {"a": "b"}
    done = gateway.request("POST", f"/sessions/{sid}/complete", gzip.compress(b'{"reward_info": {"reward": 1}}'), headers)
    assert done.status in (200, 204), done.text
    wrong = gateway.request("PUT", "/groups/g", gzip.compress(b'{"no_such": 1}'), headers)
    assert wrong.status == 400 and "no_such" in wrong.text, "the dispatcher has read it"
    for method, path in ("POST", "/sessions"), ("PUT", "/groups/g"):
        a = gateway.request(method, path, b"{}", {**headers, "Content-Encoding": "br"})
        assert a.status == 415 and a.json()["error"]["code"] == "unsupported_encoding", a.text
        assert a.headers["accept-encoding"] == "gzip, deflate"


@pytest.mark.parametrize("coding", ["zstd", "br", "gzip, gzip", "compress", "gzip;q=1", "\u00ff"])
def test_other_codings_are_named_as_unsupported(session, coding):
    gateway, sid = session()
    for path, error in (("/v1/chat/completions", ("type", "invalid_request_error")), ("/v1/messages", ("type", "invalid_request_error"))):
        a = ask(gateway, sid, {}, coding, path, b"x" * 50)
        assert a.status == 415 and a.headers["accept-encoding"] == "gzip, deflate", a.text
        assert "Content-Encoding" in a.json()["error"]["message"] and a.json()["error"][error[0]] == error[1]
        assert a.headers["x-should-retry"] == "false"
    assert (a.json()["type"] == "error") and "code" not in a.json()["error"], "in the dialect's shape"
    assert ask(gateway, sid, {"model": "m", "messages": MESSAGES}, "identity").status == 200
    assert gateway.request("GET", f"/sessions/{sid}", headers={"Content-Encoding": coding}).status == 200, "there is no body"


def test_a_broken_body_is_refused(session):
    gateway, sid = session()
    whole = gzip.compress(json.dumps({"model": "m", "messages": MESSAGES}).encode())
    for data in (whole[:-9], whole[:4], b"{}", whole[:20] + b"x" + whole[21:], whole + b"tail"):
        a = ask(gateway, sid, {}, "gzip", data=data)
        assert a.status == 400 and a.json()["error"]["param"] == "Content-Encoding", a.text
    assert ask(gateway, sid, {}, "gzip", data=whole + gzip.compress(b" ")).status == 200, "two members are one text"


def padded(n):
    """A good body of about n bytes that packs well."""
    return json.dumps({"model": "m", "messages": MESSAGES, "user": "", "pad": "x" * n}).encode()


def test_the_limit_counts_decoded_bytes_and_the_ratio_is_bounded(session):
    gateway, sid = session(max_body_bytes="2MiB")
    a = ask(gateway, sid, {}, "gzip", data=gzip.compress(padded(3 << 20)))
    assert a.status == 413 and a.json()["error"]["code"] == "body_too_large", a.text
    assert ask(gateway, sid, {}, "gzip", data=gzip.compress(padded(1_000_000))).status == 200
    gateway, sid = session(max_body_bytes="64MiB")
    a = ask(gateway, sid, {}, "deflate", data=zlib.compress(padded(8 << 20), 9))
    assert a.status == 413 and "256 times" in a.json()["error"]["message"], a.text
    wait_until(lambda: gateway.metrics()["rollgate_unfinished_body_bytes"] < 100, 10, "nothing is held")


def test_a_long_body_is_decoded_and_read_by_a_helper(session):
    gateway, sid = session(context_length=10_000_000, max_body_bytes="64MiB")
    text = "".join(chr(97 + (i * i // 7) % 23) for i in range(200_000))
    body = {"model": "m", "max_tokens": 4, "messages": [{"role": "user", "content": text * 6}]}
    a = ask(gateway, sid, body, "gzip", data=gzip.compress(json.dumps(body).encode(), 1), timeout=120)
    assert a.status == 200, a.text
    record = gateway.get(f"/sessions/{sid}?records=1").json()["records"][0]
    assert record["request"]["messages"][0]["content"] == text * 6


def test_a_lent_connection_decodes_as_well(start):
    """The worker reads its requests itself, as long as their heads are the same."""
    gateway = start(engine="builtin:echo", workers=1, routers=1, lend_after=2)
    client = Client(gateway, gateway.post("/sessions", {}).json())
    try:
        for i in range(6):
            body = gzip.compress(json.dumps({"model": "m", "messages": [{"role": "user", "content": f"hi {i}"}]}).encode())
            client.socket.sendall(client.head(len(body), more="Content-Encoding: gzip\r\n") + body)
            status, _, answer = client.answer()
            assert status == 200 and f"hi {i}" in json.loads(answer)["choices"][0]["message"]["content"], (i, answer)
        wait_until(lambda: gateway.metrics().get("rollgate_lent_requests_total", 0) > 0, 10, "it was lent")
        bad = b"no gzip at all"
        client.socket.sendall(client.head(len(bad), more="Content-Encoding: gzip\r\n") + bad)
        status, _, answer = client.answer()
        assert status == 400 and "Content-Encoding" in json.loads(answer)["error"]["param"]
    finally:
        client.close()

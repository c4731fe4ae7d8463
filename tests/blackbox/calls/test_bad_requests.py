"""Sends the requests of tests/data/api/bad_requests.jsonl over HTTP. Each gets 400 with the field's name in the
dialect's form, and none of them changes the session."""
import contextlib
import json
import re
import socket

import pytest

import gateway as g

PATHS = {"chat": "/v1/chat/completions", "messages": "/v1/messages?beta=true",
         "count_tokens": "/v1/messages/count_tokens", "responses": "/v1/responses",
         "completions": "/v1/completions"}


def rows():
    with open(g.ROOT / "tests/data/api/bad_requests.jsonl", encoding="utf-8") as f:
        return [json.loads(line) for line in f]


def check(row, answer):
    text = json.dumps(row)[:300]
    assert answer.status == 400, f"{answer.status} for {text}"
    assert answer.headers.get("x-should-retry") == "false", text
    body = answer.json()
    error = body["error"]
    assert row["param"].split(".")[0] in error["message"], f"{error} for {text}"
    if row["dialect"] in ("messages", "count_tokens"):
        assert body["type"] == "error" and error["type"] == "invalid_request_error", body
    else:
        assert error["param"] == row["param"] and error["code"] == "invalid_request", body


def test_every_bad_request_is_refused_by_name(start):
    gateway = start(workers=1, engine="builtin:echo")
    session = gateway.request("POST", "/sessions", {}).json()["session_id"]
    good = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
    first = gateway.request("POST", f"/sessions/{session}/v1/chat/completions", good).json()
    before = gateway.request("GET", f"/sessions/{session}").json()
    table = rows()
    assert len(table) >= 120
    for row in table:
        check(row, gateway.request("POST", f"/sessions/{session}{PATHS[row['dialect']]}",
                                   row["body"]))
    for broken in (b"", b"{", b"[]", b'"x"', b'{"messages": [}', b'{"a": "\xff"}', b"nul"):
        for path in PATHS.values():
            answer = gateway.request("POST", f"/sessions/{session}{path}", broken)
            assert answer.status == 400, f"{answer.status} for {broken} to {path}"
    after = gateway.request("GET", f"/sessions/{session}").json()
    assert after["tree"] == before["tree"]
    assert after["num_inflight_generations"] == 0
    good["messages"] += [first["choices"][0]["message"], {"role": "user", "content": "again"}]
    answer = gateway.request("POST", f"/sessions/{session}/v1/chat/completions", good)
    assert answer.status == 200
    export = gateway.request("POST", f"/sessions/{session}/finalize", {}).json()
    assert len(export["trajectories"]) == 1 and len(export["trajectories"][0]["turns"]) == 2


def test_an_expectation_other_than_continue_is_refused(start):
    """417, in the dialect's shape, and nothing of the request is acted on; 100-continue is obeyed in any case of letters."""
    gateway = start(workers=1, engine="builtin:echo")
    session = gateway.request("POST", "/sessions", {}).json()["session_id"]
    good = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "hello"}]}
    before = gateway.request("GET", f"/sessions/{session}").json()
    for path in ("/v1/chat/completions", "/v1/messages"):
        answer = gateway.request("POST", f"/sessions/{session}{path}", good, headers={"Expect": "200-ok"})
        assert answer.status == 417, (answer.status, answer.text)
        error = answer.json()["error"]
        assert error["type"] == "invalid_request_error" and "200-ok" in error["message"], error
    assert gateway.request("GET", f"/sessions/{session}").json() == before
    answer = gateway.request("POST", f"/sessions/{session}/v1/chat/completions", good, headers={"Expect": "100-Continue"})
    assert answer.status == 200, answer.text
    body = json.dumps(good).encode()
    head = f"POST /sessions/{session}/v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=20) as c:    # curl would wait a second, others longer
        c.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode())
        assert c.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        c.sendall(body)
        assert c.recv(100).startswith(b"HTTP/1.1 200 ")


@pytest.fixture
def door_with_keys(kept, tmp_path_factory):
    keys = tmp_path_factory.getbasetemp() / "door-keys"
    keys.write_text("an-admins-key-of-some-length\n")
    return kept.gateway(engine="builtin:echo", workers=1, admin_key_file=str(keys))


@pytest.mark.parametrize("more", ["", "Authorization: Bearer wrong\r\n", "Transfer-Encoding: gzip\r\n", "Content-Length: 99999999999\r\n",
                                  "X: " + "y" * 70000 + "\r\n", "bad header\r\n", "Host: b\r\n", "Expect: tea\r\n"])
@pytest.mark.parametrize("path", ["/health", "/nope", "/sessions", "/groups/x", "/sessions/w9-1/v1/messages", "/ui"])
def test_an_answer_to_head_has_no_body_also_when_it_is_refused(door_with_keys, path, more):
    """Also as the second request of a connection, after one of another method."""
    for first in (b"", b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", door_with_keys.port), 10) as s:
            answer = b""
            if first:
                s.sendall(first)
                while not answer.endswith(b"}\n"):
                    answer += s.recv(65536)
            s.sendall(f"HEAD {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n{more}\r\n".encode())
            answer = b""
            with contextlib.suppress(ConnectionResetError):     # of an answer before all of the request was read
                while data := s.recv(65536):
                    answer += data
        assert re.match(rb"HTTP/1\.1 [2-4]\d\d ", answer) and answer.endswith(b"\r\n\r\n"), answer

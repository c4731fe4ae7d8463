"""Streams send bytes as the engine sends tokens, and the end only after the commit. Slow readers do not increase the
worker's memory. Keepalives are sent during silence."""
import http.client
import json
import socket
import time

import pytest

from gateway import pause


def new(gateway, **options):
    """Makes a session. Returns the answer's JSON."""
    a = gateway.post("/sessions", options)
    assert a.status == 200, a.text
    return a.json()


def open_chat(gateway, session, body, timeout=30):
    """Sends a chat request on a raw socket; the socket."""
    text = json.dumps({"model": "m", **body}).encode()
    s = socket.create_connection(("127.0.0.1", gateway.port), timeout)
    s.sendall(b"POST /sessions/%s/v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
              b"Content-Length: %d\r\n\r\n%s" % (session["session_id"].encode(), len(text), text))
    return s


def user(text):
    return [{"role": "user", "content": text}]


def stream(gateway, session, body):
    """Yields (seconds since the request, data line) of a chat stream."""
    c = gateway.connect()
    begin = time.monotonic()
    c.request("POST", f"/sessions/{session['session_id']}/v1/chat/completions",
              json.dumps({"model": "m", "stream": True, **body}), {"Content-Type": "application/json"})
    r = c.getresponse()
    assert r.status == 200
    try:
        for line in r:
            if line.startswith(b"data: "):
                yield time.monotonic() - begin, line[6:].strip()
    finally:
        c.close()


def content(line):
    if line == b"[DONE]":
        return ""
    return "".join(c["delta"].get("content") or "" for c in json.loads(line)["choices"])


def test_tokens_arrive_while_the_engine_still_writes(start):
    gateway = start(engine="builtin:echo,tokens_per_s=50", workers=1)
    s = new(gateway)
    text = "x" * 50
    events = list(stream(gateway, s, {"messages": user(text)}))
    deltas = [(at, content(line)) for at, line in events if content(line)]
    assert "".join(d for _, d in deltas) == text
    assert len(deltas) > 10, "the stream came in few pieces"
    assert deltas[0][0] < deltas[-1][0] - 0.3, "all came at the end"


def test_the_end_of_a_stream_is_recorded_before_it_is_shown(start):
    gateway = start(engine="builtin:echo", workers=1)
    s = new(gateway)
    for at, line in stream(gateway, s, {"messages": user("abc")}):
        if line != b"[DONE]" and json.loads(line)["choices"][0]["finish_reason"]:
            state = gateway.get(f"/sessions/{s['session_id']}").json()
            assert state["num_branches"] == 1
            return
    pytest.fail("no finish_reason came")


def test_whole_characters_only(start, tmp_path):
    script = tmp_path / "s.json"
    text = "z\u00e4hl \u4e16\u754c \U0001f600 e\u0301"
    script.write_text(json.dumps([text]))
    gateway = start(engine=f"builtin:script:{script},tokens_per_s=200", workers=1)
    deltas = [content(line) for _, line in stream(gateway, new(gateway), {"messages": user("a")})]
    assert "".join(deltas) == text and "\ufffd" not in "".join(deltas)


def test_tool_arguments_stream_in_pieces(start, tmp_path):
    arguments = json.dumps({"text": "lorem ipsum " * 400})
    script = tmp_path / "s.json"
    script.write_text(json.dumps(
        ["<tool_call>\n{\"name\": \"write\", \"arguments\": " + arguments + "}\n</tool_call>"]))
    gateway = start(engine=f"builtin:script:{script},tokens_per_s=4000", workers=1)
    tools = [{"type": "function", "function": {"name": "write", "parameters": {"type": "object"}}}]
    pieces = []
    for _, line in stream(gateway, new(gateway), {"messages": user("a"), "tools": tools}):
        if line != b"[DONE]":
            for call in json.loads(line)["choices"][0]["delta"].get("tool_calls", []):
                pieces.append(call["function"].get("arguments") or "")
    assert json.loads("".join(pieces)) == json.loads(arguments)
    assert len(pieces) > 20


def test_keepalives_go_out_while_the_engine_is_silent(start):
    gateway = start(engine="builtin:echo,delay_ms=1000", keepalive="150ms", workers=1)
    lines = [line for _, line in stream(gateway, new(gateway), {"messages": user("abc")})]
    empty = [l for l in lines if l != b"[DONE]" and json.loads(l)["choices"] and
             not content(l) and not json.loads(l)["choices"][0]["finish_reason"]]
    assert len(empty) >= 4
    assert "".join(content(l) for l in lines) == "abc"


def test_a_waiting_plain_answer_commits_to_200_and_sends_spaces(start):
    gateway = start(engine="builtin:echo,delay_ms=1000", nonstream_keepalive="200ms", workers=1)
    a = gateway.chat(new(gateway), "abc")
    assert a.status == 200 and a.body.startswith(b" ")
    assert a.json()["choices"][0]["message"]["content"] == "abc"


def test_a_slow_reader_gets_all_and_costs_little(start, tmp_path):
    """64 answers of 1 MB that nobody reads for a while."""
    script = tmp_path / "s.json"
    text = "".join(f"{i:07d} " for i in range(131072 // 8))
    script.write_text(json.dumps([text]))
    gateway = start(engine=f"builtin:script:{script}", workers=1, context_length=1000000)
    sessions = [new(gateway) for _ in range(16)]
    sockets = [open_chat(gateway, s, {"messages": user("go"), "stream": True}) for s in sessions]
    pause(0.5, "nobody reads while the answers come")
    for sock in sockets:
        r = http.client.HTTPResponse(sock)
        r.begin()
        got = "".join(content(l[6:].strip()) for l in r.read().split(b"\n") if l.startswith(b"data: "))
        assert got == text
        sock.close()


def test_logprobs_come_with_every_token(start):
    gateway = start(engine="builtin:echo", workers=1)
    s = new(gateway)
    whole = gateway.chat(s, "abc", logprobs=True).json()["choices"][0]["logprobs"]["content"]
    streamed = []
    for _, line in stream(gateway, s, {"messages": user("abc"), "logprobs": True}):
        if line != b"[DONE]":
            lp = json.loads(line)["choices"][0].get("logprobs")
            streamed += lp["content"] if lp else []
    assert [t["logprob"] for t in whole] == [t["logprob"] for t in streamed]
    assert len(whole) == 4  # a b c and the stop token

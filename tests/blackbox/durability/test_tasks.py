"""Requests that tasks answer, while clients leave and workers end: groups and copies are complete or do not exist,
and no worker waits for an abandoned request. Debug builds pause at every opportunity, so a client that leaves after n
round trips of another leaves at a different pause each time. RG_TRIES=300 is the long form."""
import collections
import contextlib
import json
import os
import signal
import socket

import pytest

import gateway as g

TRIES = int(os.environ.get("RG_TRIES", "10"))
TEXT = "a long question of many words " * 400


def request(method, path, body=None):
    data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    return (f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(data)}\r\n\r\n").encode() + data


def connect(gateway):
    return socket.create_connection(("127.0.0.1", gateway.port), timeout=60)


def rows(gateway):
    cursor = ""
    while cursor is not None:
        page = gateway.get(f"/sessions?limit=1000{cursor and '&cursor=' + cursor}").json()
        yield from page["sessions"]
        cursor = page["next_cursor"]


def sizes(gateway):
    return collections.Counter(row["group"] for row in rows(gateway) if row.get("group"))


def check_groups(gateway, sent, answered=()):
    made = sizes(gateway)
    assert not {name: made[name] for name, count in sent.items() if made[name] not in (0, count)}, "groups are partial"
    assert all(made[name] == sent[name] for name in answered)


def check_copies(gateway):
    """Sessions of the label are whole copies of one."""
    assert {row["calls"] for row in rows(gateway) if row.get("labels") == {"a": "b"}} == {4}


def talk(gateway):
    session = gateway.post("/sessions", {"labels": {"a": "b"}}).json()["session_id"]
    messages = []
    for i in range(4):
        messages.append({"role": "user", "content": TEXT + str(i)})
        a = gateway.post(f"/sessions/{session}/v1/chat/completions", {"model": "m", "max_tokens": 20, "messages": messages})
        assert a.status == 200, a.text
        messages.append(a.json()["choices"][0]["message"])
    return session


def group(name, count=40):
    return request("POST", "/sessions", {"count": count, "group": name, "metadata": {"text": TEXT}})


def requests_of(gateway, session):
    """One of each kind; a name differs at each try."""
    snapshot = gateway.get(f"/sessions/{session}/snapshot").body
    of = f"/sessions/{session}"
    return {
        "group": group,
        "list": lambda name: request("GET", "/sessions?limit=1000&label=a"),
        "records": lambda name: request("GET", f"{of}?records=1"),
        "snapshot": lambda name: request("GET", f"{of}/snapshot"),
        "fork": lambda name: request("POST", f"{of}/fork", {}),
        "import": lambda name: request("POST", "/sessions/import", snapshot),
        "export": lambda name: request("GET", f"{of}/trajectories?format=verl"),
        "finalize": lambda name: request("POST", f"{of}/finalize", {"format": "json"}),
        "abort": lambda name: request("POST", "/sessions/abort", {"labels": {"no": name}}),
    }


@pytest.mark.parametrize("helpers", [2, 0])
def test_clients_leave_at_each_pause(start, helpers):
    gateway = start(engine="builtin:echo", workers=1, helpers=helpers)
    session = talk(gateway)
    sent = {}
    for kind, make in requests_of(gateway, session).items():
        for trips in range(TRIES):
            name = f"{kind}-{trips}"
            if kind == "group":
                sent[name] = 40
            with connect(gateway) as c:
                c.sendall(make(name))
                for _ in range(trips):
                    assert gateway.get(f"/sessions/{session}").status == 200
    g.wait_until(lambda: sum(sizes(gateway).values()) % 40 == 0, what="groups are whole")
    check_groups(gateway, sent)
    check_copies(gateway)
    assert gateway.stop() == 0, "no request keeps the worker"
    gateway.start()
    check_groups(gateway, sent)
    check_copies(gateway)


def calls_of(session):
    """One call of each kind; a retry follows each, which joins, replays or is a new one."""
    of, long = f"/sessions/{session}/v1", TEXT * 25  # longer than the loop reads by itself
    chat = {"model": "m", "max_tokens": 40, "n": 2, "logprobs": True, "top_logprobs": 2}

    def chat_of(text, **more):
        return lambda name: request("POST", f"{of}/chat/completions", {
            **chat, "messages": [{"role": "user", "content": name + text}], **more})

    return {
        "chat": chat_of("hello"),
        "stream": chat_of("hello", stream=True),
        "long": chat_of(long),
        "no room": chat_of(TEXT, max_tokens=None),
        "messages": lambda name: request("POST", f"{of}/messages", {
            "model": "m", "max_tokens": 40, "messages": [{"role": "user", "content": name}]}),
        "count": lambda name: request("POST", f"{of}/messages/count_tokens", {
            "model": "m", "messages": [{"role": "user", "content": name + TEXT * 4}]}),
        "text": lambda name: request("POST", f"{of}/completions", {"model": "m", "max_tokens": 20, "prompt": name}),
        "batch": lambda name: request("POST", f"{of}/completions", {
            "model": "m", "max_tokens": 20, "logprobs": 1, "prompt": [f"{name} {i}" for i in range(8)]}),
        "response": lambda name: request("GET", f"{of}/responses/no-such"),
    }


def is_idle(gateway):
    return sum(value for key, value in gateway.metrics().items() if key.startswith("rollgate_calls_inflight")) == 0


@pytest.mark.parametrize("history", ["tree", "linear"])
@pytest.mark.parametrize("options", [{}, {"helpers": 0}, {"on_disconnect": "finish"}], ids=["helpers", "alone", "finish"])
def test_clients_leave_at_each_pause_of_a_call(start, history, options):
    gateway = start(engine="builtin:echo", workers=1, rejoin_window="50ms", **options)
    session = gateway.post("/sessions", {"history": history}).json()["session_id"]
    for kind, make in calls_of(session).items():
        for trips in range(TRIES):
            for _ in range(2):
                with connect(gateway) as c:
                    c.sendall(make(f"{kind}-{trips}"))
                    for _ in range(trips):
                        assert gateway.get(f"/sessions/{session}").status == 200
    g.wait_until(lambda: is_idle(gateway), what="no call is left")
    calls = gateway.get(f"/sessions/{session}").json()["num_calls"]
    assert gateway.stop() == 0, "no request keeps the worker"
    gateway.start()
    assert gateway.get(f"/sessions/{session}").json()["num_calls"] == calls
    with connect(gateway) as c:
        c.sendall(calls_of(session)["chat"]("again"))
        assert read_status(c).endswith(b"200")


@pytest.mark.parametrize("grace", ["10s", "0s"])
def test_a_worker_ends_in_the_middle_of_calls(start, grace):
    gateway = start(engine="builtin:echo", workers=1, grace=grace)
    session = gateway.post("/sessions").json()["session_id"]
    for turn in range(max(2, TRIES // 10)):
        clients = [connect(gateway) for _ in calls_of(session)]
        pid = gateway.child("worker-0")
        for c, make in zip(clients, calls_of(session).values()):
            c.sendall(make(f"turn {turn}"))
        assert gateway.get(f"/sessions/{session}").status == 200
        os.kill(pid, signal.SIGTERM)
        for c in clients:
            assert read_status(c), "each client is answered"
            c.close()
        g.wait_until(lambda: gateway.child("worker-0") not in (None, pid), what="the worker is replaced")
    assert gateway.stop() == 0


def read_status(c):
    with contextlib.suppress(OSError):
        return c.recv(12)
    return b""


@pytest.mark.parametrize("grace", ["10s", "0s"])
def test_a_worker_ends_in_the_middle_of_groups(start, grace):
    gateway = start(engine="builtin:echo", workers=1, grace=grace)
    session, sent, answered = talk(gateway), {}, []
    for turn in range(max(1, TRIES // 10)):
        names = [f"group-{turn}-{i}" for i in range(6)]
        sent.update(dict.fromkeys(names, 200))
        clients = [connect(gateway) for _ in names]
        pid = gateway.child("worker-0")
        for c, name in zip(clients, names):
            c.sendall(group(name, 200))
        assert gateway.get(f"/sessions/{session}").status == 200
        os.kill(pid, signal.SIGTERM)
        for c, name in zip(clients[1:], names[1:]):
            if read_status(c).endswith(b"200"):
                answered.append(name)
        for c in clients:
            c.close()
        g.wait_until(lambda: gateway.child("worker-0") not in (None, pid), what="the worker is replaced")
    check_groups(gateway, sent, answered)
    assert gateway.stop() == 0
    gateway.start()
    check_groups(gateway, sent, answered)


def test_a_slow_reader_gets_all_of_a_list(start):
    gateway = start(engine="builtin:echo", workers=1)
    made = gateway.post("/sessions", {"count": 500, "metadata": {"text": TEXT[:3000]}}).json()["sessions"]
    with connect(gateway) as c:
        c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        c.sendall(request("GET", "/sessions?limit=1000"))
        got = c.recv(1000)
        assert got.startswith(b"HTTP/1.1 200"), got
        while not got.endswith(b"0\r\n\r\n"):
            more = c.recv(1000)
            assert more, "the list breaks off"
            got += more
    assert all(s["session_id"].encode() in got for s in made)

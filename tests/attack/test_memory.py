"""What one request may make a worker hold: the worker stays, the request gets 4xx or its answer. What requests hold
together counts for --max-worker-memory."""
import concurrent.futures
import contextlib
import json
import resource
import socket
import threading

import pytest

from battle import peak_allowed
from gateway import stays, wait_until
from odds_engine import OddsEngine
from stub_engines import StubEngine

MIB = 1 << 20

TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
CALL = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
USER = {"role": "user", "content": "x"}


def send(gateway, session, body, path="chat/completions"):
    return gateway.post(f"/sessions/{session['session_id']}/v1/{path}", {"model": "m", **body})


def limit(gateway, more):
    """From now on the worker may take so many bytes more than it has; its pid."""
    pid = gateway.child("worker-0")
    with open(f"/proc/{pid}/statm") as f:
        size = int(f.read().split()[0]) * resource.getpagesize()
    resource.prlimit(pid, resource.RLIMIT_AS, (size + more, size + more))
    return pid


def lives(gateway, pid):
    assert gateway.chat(gateway.post("/sessions").json(), "still there?").status == 200
    assert gateway.child("worker-0") == pid


def test_joined_calls_fit_under_a_limit(start, tmp_path):
    """Twelve thousand messages that are brought together with one, since they share its call."""
    script = tmp_path / "script.json"
    script.write_text(json.dumps([CALL] + ["so"] * 9))
    gateway = start(engine=f"builtin:script:{script}", workers=1, context_length=10_000_000, tool_parser="hermes")
    session = gateway.post("/sessions").json()
    a = send(gateway, session, {"messages": [USER], "tools": [TOOL]})
    call = a.json()["choices"][0]["message"]["tool_calls"][0]
    said = {"role": "assistant", "content": None, "tool_calls": [call]}
    pid = limit(gateway, 1 << 30)
    for _ in range(2):
        a = send(gateway, session, {"messages": [USER] + [said] * 12_000, "tools": [TOOL]})
        assert a.status in (200, 400, 413), a.text
    lives(gateway, pid)


def test_definitions_that_references_repeat_are_bounded(start):
    """One long tool, named again and again where its whole definition is told."""
    gateway = start(engine="builtin:echo", workers=1, context_length=10_000_000, max_request_growth=8)
    session = gateway.post("/sessions").json()
    tools = [{"name": "f", "description": "d" * 200_000, "input_schema": {"type": "object"}}]
    content = [{"type": "tool_reference", "tool_name": "f"}] * 15_000
    pid = limit(gateway, 1 << 30)
    a = send(gateway, session, {"max_tokens": 9, "messages": [{"role": "user", "content": content}], "tools": tools}, "messages")
    assert a.status == 413 and "max-request-growth" in a.text, a.text[:300]
    lives(gateway, pid)


def test_reading_is_bounded(start):
    gateway = start(engine="builtin:echo", workers=1, max_request_memory="16MiB")
    session = gateway.post("/sessions").json()
    a = send(gateway, session, {"messages": [USER], "metadata": [0] * 2_000_000})
    assert a.status == 413 and "max-request-memory" in a.text, a.text[:300]
    assert gateway.chat(session, "hello").status == 200


def test_lists_are_bounded(start):
    gateway = start(engine="builtin:echo", workers=1, max_tools=10, max_stops=3, max_messages=5, max_schema_bytes=2000)
    session = gateway.post("/sessions").json()
    for more, setting in [({"tools": [TOOL] * 11}, "max-tools"), ({"stop": list("abcd")}, "max-stops"),
                          ({"messages": [USER] * 6}, "max-messages"),
                          ({"stop": "s" * (257 << 10)}, "262144 bytes"), ({"stop": ["s" * (150 << 10)] * 2}, "262144 bytes"),
                          ({"response_format": {"type": "json_schema", "json_schema": {
                              "name": "n", "schema": {"description": "d" * 2000}}}}, "max-schema-bytes")]:
        a = send(gateway, session, {"messages": [USER], **more})
        assert a.status == 400 and setting in a.text, a.text
    assert gateway.chat(session, "hello").status == 200


def test_what_is_recorded_as_it_came_is_bounded(start):
    """Metadata and template arguments are written to the journal with every call."""
    gateway = start(engine="builtin:echo", workers=1, max_metadata_bytes="2KiB")
    session = gateway.post("/sessions").json()
    much = {f"k{i}": "v" * 40 for i in range(100)}
    for path, field in [("chat/completions", "chat_template_kwargs"), ("chat/completions", "metadata"),
                        ("responses", "metadata")]:
        said = {"input": "x"} if path == "responses" else {"messages": [USER]}
        a = send(gateway, session, {**said, field: much}, path)
        assert a.status == 400 and "max-metadata-bytes" in a.text and field in a.text, a.text
        a = send(gateway, session, {**said, field: {"deep": [[[]] * 3000]}}, path)
        assert a.status == 400 and "max-metadata-bytes" in a.text, a.text
        assert send(gateway, session, {**said, field: {"k": "v"}}, path).status == 200


def test_what_stands_beside_many_prompts_is_bounded(start):
    """Each prompt is a call with all of it. It is refused by its reader, a helper where it is long."""
    gateway = start(engine="builtin:echo", workers=1)
    session = gateway.post("/sessions").json()
    url = f"/sessions/{session['session_id']}/v1/completions"
    bias = json.dumps({str(i): 1 for i in range(50_000)}).encode()
    for more in (b'"x":[' + b"1," * 8_000_000 + b"1]", b'"logit_bias":' + bias):
        two, many = (b'{"model":"m","max_tokens":1,"prompt":[' + b",".join([b'"a"'] * n) + b"]," + more + b"}" for n in (2, 128))
        a = gateway.post(url, many)
        assert a.status == 400 and a.json()["error"]["param"] == "prompt", a.text[:300]
        assert "33554432 bytes" in a.text, a.text[:300]
        a = gateway.post(url, two)
        assert a.status == 200, a.text[:300]
    assert gateway.get(f"/sessions/{session['session_id']}").json()["num_calls"] == 2 * 2


def test_a_model_name_is_bounded(start):
    """Every chunk of a stream has it."""
    gateway = start(engine="builtin:echo", workers=1)
    session = gateway.post("/sessions").json()
    for path, said in [("chat/completions", {"messages": [USER]}), ("completions", {"prompt": "x"}), ("responses", {"input": "x"}),
                       ("messages", {"messages": [USER], "max_tokens": 9})]:
        a = send(gateway, session, {**said, "model": "m" * 1025}, path)
        assert a.status == 400 and "model has 1025 bytes; it may have at most 1024" in a.text, a.text
        a = send(gateway, session, {**said, "model": "m" * 1024}, path)
        assert a.status == 200 and a.json()["model"] == "m" * 1024, a.text


def test_what_a_responses_request_has_recorded_is_bounded(start):
    """What its answer echoes is written to the journal, too."""
    gateway = start(engine="builtin:echo", workers=1, context_length=1_000_000)
    session = gateway.post("/sessions").json()
    long, path = "x" * 300_000, f"/sessions/{session['session_id']}/v1/responses"
    function = {"type": "function", "name": "f", "description": "d", "parameters": {"type": "object"}}
    first = gateway.post(path, {"model": "m", "input": "x"}).json()["id"]
    for field, value in [("user", long), ("truncation", long), ("include", [long]), ("include", ["x"] * 200_000),
                         ("reasoning", {"effort": "low", "x": long}), ("text", {"verbosity": long}), ("metadata", {"x": long}),
                         ("tool_choice", {"type": "allowed_tools", "mode": "auto", "tools": [], "x": long}),
                         ("tools", [{"type": "web_search", "x": long}]), ("tools", [{**function, "x": long}])]:
        a = gateway.post(path, {"model": "m", "input": "x", field: value})
        assert a.status == 400 and a.json()["error"]["param"] == field, a.text[:300]
        assert "max-metadata-bytes" in a.text and "262144" in a.text, a.text[:300]
    for body in ({"input": "x", "previous_response_id": "x" * 300 + "-" + first}, {"input": [{"type": "item_reference", "id": "x" * 300 + first}]}):
        a = gateway.post(path, {"model": "m", **body})
        assert a.status == 400 and "256" in a.text, a.text[:300]
    a = gateway.post(path, {"model": "m", "input": "x", "tools": [{**function, "description": long}], "instructions": long})
    assert a.status == 200 and a.json()["tools"][0]["description"] == a.json()["instructions"] == long
    assert gateway.get(f"{path}/{a.json()['id']}").json()["tools"] == a.json()["tools"]


# --- all of it counts for --max-worker-memory ---

def refuses(gateway):
    """Whether a new session finds no room."""
    a = gateway.post("/sessions")
    if a.status != 200:
        assert a.status == 503 and a.json()["error"]["code"] == "memory_full" and "max-worker-memory" in a.text, a.text
    return a.status == 503


def held(gateway, kind):
    return gateway.metrics()[f'rollgate_request_memory_bytes{{kind="{kind}"}}']


def held_now(gateway, kind, sessions):
    """The figures are told once a second, together: what they are when a session more than these is among them."""
    gateway.post("/sessions")
    wait_until(lambda: gateway.metrics()['rollgate_sessions{phase="open"}'] == sessions + 1, 20, "the figures are told anew")
    return held(gateway, kind)


def begin(gateway, session, body, length=None, more="", path="chat/completions"):
    s = socket.create_connection(("127.0.0.1", gateway.port), 60)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    s.sendall((f"POST /sessions/{session['session_id']}/v1/{path} HTTP/1.1\r\nHost: localhost\r\n{more}"
               f"Content-Length: {length or len(body)}\r\n\r\n").encode() + body)
    return s


def full_and_free_again(gateway, kind, held_open):
    """While these connections are held there is no room for a session; when they are gone, there is."""
    with held_open:
        wait_until(lambda: refuses(gateway), 60, f"{kind} take all of the memory")
        wait_until(lambda: held(gateway, kind) > 16 * MIB, 10, "it is told")
    wait_until(lambda: not refuses(gateway), 60, "there is room again")
    wait_until(lambda: held(gateway, kind) < MIB, 20, "nothing is left")


def test_an_answer_counts_while_it_comes(start):
    """What there is of an engine's answer before the call has it."""
    n = 300_000
    with StubEngine() as engine:
        engine.plan.append({"ids": [97] * n, "finish": "length", "cut": "stall", "cut_at": 0.9})
        gateway = start(engine=engine.setting, workers=1, context_length=2 * n)
        session = gateway.post("/sessions").json()
        with begin(gateway, session, json.dumps({"model": "m", "messages": [USER], "max_tokens": n}).encode()):
            wait_until(lambda: held(gateway, "arenas") > 2 * n * 4, 60, "its ids and logprobs are counted")
        wait_until(lambda: held(gateway, "arenas") == 0, 20, "nothing is left")


def test_what_many_prompts_share_is_held_once(start):
    """All that a request says beside its prompts, each of which is a call: it was copied and read again for each."""
    n, go = 128, threading.Event()
    with StubEngine() as engine:
        engine.plan.extend([{"ids": [97, 257], "wait": go}] * n)
        gateway = start(engine=engine.setting, workers=1)
        session = gateway.post("/sessions").json()
        got = []
        body = {"max_tokens": 2, "prompt": ["a"] * n, "x": [1] * 100_000}
        asking = threading.Thread(target=lambda: got.append(send(gateway, session, body, "completions")))
        with contextlib.ExitStack() as at_the_end:
            at_the_end.callback(asking.join)
            at_the_end.callback(go.set)
            asking.start()
            wait_until(lambda: engine.running == n, 60, "a call of each prompt runs")
            assert MIB < held_now(gateway, "arenas", 1) < 32 * MIB
        assert got[0].status == 200 and len(got[0].json()["choices"]) == n, got[0].text[:300]
        wait_until(lambda: held(gateway, "arenas") == 0, 20, "nothing is left")


def test_what_many_prompts_share_outlives_their_client(start):
    """The calls go on when it has left, and need what was read of the request to their end."""
    n, go = 8, threading.Event()
    with StubEngine() as engine:
        engine.plan.extend([{"ids": [97, 257], "wait": go}] * n)
        gateway = start(engine=engine.setting, workers=1, on_disconnect="finish")
        session = gateway.post("/sessions").json()
        path = f"/sessions/{session['session_id']}/v1/completions"
        body = {"model": "m", "max_tokens": 2, "prompt": ["a"] * n, "logit_bias": {str(i): 1 for i in range(200)}, "x": [1] * 100_000}
        with contextlib.closing(gateway.connect()) as client:
            client.request("POST", path, json.dumps(body))
            wait_until(lambda: engine.running == n, 60, "a call of each prompt runs")
        try:
            assert [len(r["body"]["sampling_params"]["logit_bias"]) for r in engine.requests] == [200] * n
            assert held_now(gateway, "arenas", 1) > MIB
        finally:
            go.set()
        wait_until(lambda: gateway.get(f"/sessions/{session['session_id']}").json()["num_checkpoints"] == n, 20, "they are recorded")
        wait_until(lambda: held(gateway, "arenas") == 0, 20, "nothing is left")
        a = gateway.post(path, body, headers={"x-stainless-retry-count": "1"})
        assert a.status == 200 and a.headers["Rollgate-Replayed"] == "1" and len(a.json()["choices"]) == n, a.text[:300]


def test_the_support_of_an_answer_counts_while_it_comes(start):
    """Which ids each token was sampled from, where a session wants that kept: many times as much as the answer."""
    n, row = 5_000, 100
    with OddsEngine(masks="mask") as engine:
        engine.plan.append({"ids": [97] * n, "finish": "length", "cut": "stall", "cut_at": 0.9,
                            "support": [[97, *range(1000, 999 + row)]] * n})
        gateway = start(engine=engine.setting, workers=1, context_length=2 * n)
        session = gateway.post("/sessions", {"sampling_support": True}).json()
        with begin(gateway, session, json.dumps({"model": "m", "messages": [USER], "max_tokens": n}).encode()):
            wait_until(lambda: held(gateway, "arenas") > 0.8 * n * row * 4, 60, "its rows are counted")
        wait_until(lambda: held(gateway, "arenas") == 0, 20, "nothing is left")


def test_the_pieces_of_an_answer_count(start):
    """An engine has given a generation up: what it had of it stays until the rest has come."""
    n, rest = 200_000, threading.Event()
    with StubEngine() as engine:
        engine.plan.extend([{"ids": [97] * n, "finish": "abort"}, {"ids": [97] * 5, "finish": "length", "wait": rest}])
        gateway = start(engine=engine.setting, workers=1, context_length=2 * n)
        session = gateway.post("/sessions").json()
        with begin(gateway, session, json.dumps({"model": "m", "messages": [USER], "max_tokens": n + 5}).encode()) as s:
            wait_until(lambda: len(engine.requests) == 2, 60, "the rest is asked for")
            wait_until(lambda: held(gateway, "arenas") > 2 * n * 4, 20, "its ids and logprobs are counted")
            rest.set()
            s.settimeout(60)
            assert s.recv(12)[9:] == b"200"
        wait_until(lambda: held(gateway, "arenas") == 0, 20, "nothing is left")


@pytest.mark.alone
def test_bodies_that_come_count(start):
    gateway = start(engine="builtin:echo", workers=1, max_worker_memory="32MiB")
    session = gateway.post("/sessions").json()
    with contextlib.ExitStack() as opened:
        for _ in range(4):
            opened.enter_context(begin(gateway, session, b"x" * (20 * MIB), length=30 * MIB))
        full_and_free_again(gateway, "bodies", opened.pop_all())


@pytest.mark.alone
def test_answers_that_nobody_reads_count(start):
    """Two megabytes each, and each another; what was held goes back to the system."""
    gateway = start(engine="builtin:echo", workers=1, max_worker_memory="32MiB", context_length=100_000_000)
    session = gateway.post("/sessions").json()
    pid = gateway.child("worker-0")
    before = gateway.resident(pid)
    with contextlib.ExitStack() as opened:
        for i in range(30):
            said = [{"role": "user", "content": f"{i} " + "word " * 400_000}]
            s = opened.enter_context(begin(gateway, session, json.dumps({"model": "m", "messages": said}).encode()))
            s.settimeout(60)
            assert s.recv(12)[9:] in (b"200", b"503")
        full_and_free_again(gateway, "answers", opened.pop_all())
    wait_until(lambda: gateway.resident(pid) < before + peak_allowed(100 * MIB), 20, "the system has it again")


@pytest.mark.alone
def test_one_answer_told_again_and_again_is_held_once(start):
    """Two megabytes, asked for under one key and never read."""
    words = "word " * 400_000
    gateway = start(engine="builtin:echo", workers=1, context_length=100_000_000)
    session = gateway.post("/sessions").json()
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": words}]}).encode()
    with contextlib.ExitStack() as opened:
        for _ in range(30):
            s = opened.enter_context(begin(gateway, session, body, more="Idempotency-Key: one\r\n"))
            s.settimeout(60)
            assert s.recv(12)[9:] == b"200"
        wait_until(lambda: MIB < held(gateway, "answers") < 8 * MIB, 20, "one answer is held, not thirty")


@pytest.mark.alone
def test_what_is_made_of_requests_counts(start):
    """Calls that wait for an engine hold what they came with and the ids that it became."""
    gateway = start(engine="builtin:echo,delay_ms=8000", workers=1, max_worker_memory="32MiB", context_length=100_000_000)
    said = [{"role": "user", "content": "word " * 400_000}]
    sessions = [gateway.post("/sessions").json() for _ in range(6)]
    with contextlib.ExitStack() as opened:
        threads = [threading.Thread(target=gateway.chat, args=(s, said)) for s in sessions]
        for t in threads:
            t.start()
            opened.callback(t.join)
        full_and_free_again(gateway, "arenas", opened.pop_all())


@pytest.mark.alone
def test_exports_that_nobody_reads_count(start):
    """One of two megabytes of text, asked for forty times."""
    gateway = start(engine="builtin:echo", workers=1, max_worker_memory="32MiB", context_length=100_000_000)
    session = gateway.post("/sessions").json()
    assert gateway.chat(session, "word " * 400_000, max_tokens=8).status == 200
    ask = f"GET /sessions/{session['session_id']}/trajectories HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    with contextlib.ExitStack() as opened:
        for _ in range(40):
            s = opened.enter_context(socket.create_connection(("127.0.0.1", gateway.port), 60))
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            s.sendall(ask)
        full_and_free_again(gateway, "exports", opened.pop_all())


@contextlib.contextmanager
def filled(gateway):
    """While bodies of others, which never end, take all of the memory, also that of calls."""
    mine, theirs = (gateway.post("/sessions").json() for _ in range(2))
    with contextlib.ExitStack() as opened:
        for _ in range(4):
            opened.enter_context(begin(gateway, theirs, b"x" * (20 * MIB), length=30 * MIB))
        wait_until(lambda: gateway.chat(mine, "hello").status == 503, 60, "there is no room for a call")
        yield


def full(answer):
    if answer.status != 200:
        assert answer.status == 503 and answer.json()["error"].get("code", "memory_full") == "memory_full" and "max-worker-memory" in answer.text, answer.text
    return answer.status == 503


@pytest.mark.alone
def test_counts_and_retries_ask_for_room(start):
    """However short they are: many of them hold much."""
    gateway = start(engine="builtin:echo", workers=1, max_worker_memory="32MiB")
    session = gateway.post("/sessions").json()
    url = f"/sessions/{session['session_id']}/v1"
    said = {"model": "m", "messages": [USER], "max_tokens": 9, "logprobs": True}

    def asked():
        return [gateway.post(f"{url}/messages/count_tokens", said),
                gateway.post(f"{url}/completions", {"model": "m", "prompt": ["one", "two"], "max_tokens": 9}),
                gateway.post(f"{url}/chat/completions", said, headers={"Idempotency-Key": "one"})]

    assert not any(full(a) for a in asked())
    with filled(gateway):
        assert [full(a) for a in asked()] == [True] * 3
    wait_until(lambda: not any(full(a) for a in asked()), 30, "there is room again")
    assert asked()[2].headers["Rollgate-Replayed"] == "1"


@pytest.mark.alone
def test_a_retry_joins_its_call_without_room(start):
    """It holds next to nothing; refused, the call that it means would end with nobody to hear it."""
    go, again = threading.Event(), {"Idempotency-Key": "one"}
    with StubEngine() as engine, concurrent.futures.ThreadPoolExecutor(2) as pool:
        gateway = start(engine=engine.setting, workers=1, max_worker_memory="32MiB")
        url = f"/sessions/{gateway.post('/sessions').json()['session_id']}/v1/chat/completions"
        engine.plan.append({"ids": [97, 257], "wait": go})
        try:
            calls = [pool.submit(gateway.post, url, {"model": "m", "messages": [USER]}, headers=again)]
            wait_until(lambda: engine.running == 1, 20, "the call runs")
            with filled(gateway):
                calls.append(pool.submit(gateway.post, url, {"model": "m", "messages": [USER]}, headers=again))
                stays(lambda: not calls[1].done(), 0.5, "a refusal is answered within milliseconds")
                go.set()
                answers = [call.result(60) for call in calls]
        finally:
            go.set()
        assert [a.status for a in answers] == [200, 200] and len({a.json()["id"] for a in answers}) == 1, answers[1].text


@pytest.mark.alone
def test_a_long_text_leaves_nothing_behind(start):
    """What a helper has rendered, also when it is more than the context has room for."""
    size = 60 * MIB
    gateway = start(engine="builtin:echo", workers=1, context_length=4096)
    session, pid = gateway.post("/sessions").json(), gateway.child("worker-0")
    assert gateway.chat(session, "hello").status == 200
    before = gateway.resident(pid)
    a = gateway.chat(session, [{"role": "user", "content": [{"type": "text", "text": "!" * (size // 4)}] * 4}])
    assert a.status == 400 and a.json()["error"]["code"] == "context_length_exceeded", a.text[:300]
    wait_until(lambda: gateway.resident(pid) < before + peak_allowed(size) - size // 2, 30, "the system has it again")


def test_what_journals_know_counts(start):
    """Where each record of each session stands; it goes with the session."""
    gateway = start(engine="builtin:echo", workers=1, tombstone_ttl="0", export_retention="0")
    sessions = [gateway.post("/sessions").json() for _ in range(200)]
    wait_until(lambda: held(gateway, "journals") > 200 * 32, 10, "they are counted")
    for session in sessions:
        assert gateway.request("DELETE", f"/sessions/{session['session_id']}").status == 204
    wait_until(lambda: held(gateway, "journals") < 200 * 32, 60, "they are gone")

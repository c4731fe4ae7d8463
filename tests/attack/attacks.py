"""Some seventy things that a hostile agent with a key of its own can do to a worker, by name. Each makes what one connection does
again and again: a request that is sent and answered, or a play of its own on the socket."""
import contextlib
import itertools
import json
import random
import socket
import string
import time

MIB = 1 << 20
USER = {"role": "user", "content": "x"}
CHAT, MESSAGES, RESPONSES, COMPLETIONS = "chat/completions", "messages", "responses", "completions"
COUNT = "messages/count_tokens"


class Agent:
    """One connection's view: where to, as whom."""

    def __init__(self, port, session, key):
        self.port, self.session, self.key = port, session, key

    def connect(self, timeout=20):
        return socket.create_connection(("127.0.0.1", self.port), timeout)

    def head(self, path, length, verb="POST", more=""):
        return (f"{verb} /sessions/{self.session}/v1/{path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {self.key}\r\n"
                f"Content-Length: {length}\r\n{more}\r\n").encode()

    def request(self, path, body, **more):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.head(path, len(data), **more) + data


class Answers:
    """Statuses of the answers on one socket, read one by one."""

    def __init__(self, sock):
        self.file = sock.makefile("rb")

    def next(self):
        line = self.file.readline(1 << 16)
        if not line:
            return None
        length, chunked = 0, False
        while (header := self.file.readline(1 << 16)) not in (b"\r\n", b""):
            name, _, value = header.lower().partition(b":")
            if name == b"content-length":
                length = int(value)
            chunked = chunked or (name == b"transfer-encoding" and b"chunked" in value)
        while chunked:
            length = int(self.file.readline(1 << 16).split(b";")[0] or b"0", 16)
            self.file.read(length + 2)
            chunked = length > 0
            length = 0
        self.file.read(length)
        return int(line.split()[1])


def repeat(path, body, **more):
    """The same request on a kept connection, answer by answer."""
    def play(agent, stop, count):
        data = agent.request(path, body() if callable(body) else body, **more)
        while not stop.is_set():
            with contextlib.suppress(OSError, ValueError, IndexError), agent.connect() as s:
                answers = Answers(s)
                while not stop.is_set():
                    s.sendall(data)
                    status = answers.next()
                    count(status)
                    if status is None or status in (408, 413, 431):
                        break
    return play


def play_of(fn):
    """A play that begins anew for as long as the attack lasts."""
    def play(agent, stop, count):
        while not stop.is_set():
            with contextlib.suppress(OSError, ValueError, IndexError):
                fn(agent, stop, count)
    return play


# --- texts ---

def drawn(letters, n, seed=1):
    rng = random.Random(seed)
    return "".join(rng.choices(letters, k=n))


def says(text, path=CHAT, **more):
    return repeat(path, lambda: {"model": "m", "max_tokens": 8, "messages": [{"role": "user", "content": text()}], **more})


def chat(**more):
    return repeat(CHAT, lambda: {"model": "m", "max_tokens": 8, "messages": [USER], **{k: v() for k, v in more.items()}})


def tools(n, inner=lambda f: {"type": "function", "function": f}):
    empty = {"type": "object", "properties": {}}
    return lambda: [inner({"name": f"tool_{i}", "description": "d", "parameters": empty}) for i in range(n)]


def schema(make):
    return chat(response_format=lambda: {"type": "json_schema", "json_schema": {"name": "n", "schema": make()}})


# --- lists and shapes ---

def joined_calls(n):
    """Calls of one message each, with their results: they are joined."""
    call = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    return [USER] + [{"role": "assistant", "content": None, "tool_calls": [call]}] * n


def joined_results(n, each=7500):
    """As many items of a Responses request: so many calls, then their results, and again."""
    items = []
    for first in range(0, n // 2, each):
        ids = [f"c{i}" for i in range(first, first + each)]
        items += [{"type": "function_call", "call_id": c, "name": "f", "arguments": "{}"} for c in ids]
        items += [{"type": "function_call_output", "call_id": c, "output": "x"} for c in ids]
    return items


def deep(n):
    out = {"type": "string"}
    for _ in range(n):
        out = {"type": "object", "properties": {"a": out}, "required": ["a"]}
    return out


def references(n):
    """Each definition is two of the next."""
    defs = {f"d{i}": {"type": "object", "properties": {"a": {"$ref": f"#/$defs/d{i + 1}"}, "b": {"$ref": f"#/$defs/d{i + 1}"}},
                      "required": ["a", "b"]} for i in range(n)}
    defs[f"d{n}"] = {"type": "string"}
    return {"$defs": defs, "$ref": "#/$defs/d0"}


def wide(n):
    names = [f"property_{i}" for i in range(n)]
    return {"type": "object", "properties": {name: {"type": "string"} for name in names}, "required": names}


def patterns():
    one = {"type": "string", "pattern": "^(a{1,50}|b{1,50}){1,50}$"}
    return {"type": "object", "properties": {f"p{i}": one for i in range(50)}}


def alternatives():
    return {"anyOf": [{"enum": [f"value {i}.{k}" for k in range(40)]} for i in range(200)]}


# --- plays ---

@play_of
def unfinished_bodies(agent, stop, count):
    with agent.connect() as s:
        s.sendall(agent.head(CHAT, 64 * MIB))
        block = b"x" * 65536
        s.settimeout(0.5)
        for _ in range(200):
            if stop.is_set():
                return
            s.sendall(block)
        count(int(s.recv(4096).split()[1]))


@play_of
def trickled_bodies(agent, stop, count):
    with agent.connect() as s:
        s.sendall(agent.head(CHAT, 100_000))
        for _ in range(200):
            if stop.wait(0.005):
                return
            s.sendall(b"x" * 16)
        count("sent")


@play_of
def trickled_heads(agent, stop, count):
    with agent.connect() as s:
        for byte in agent.head(CHAT, 10):
            if stop.wait(0.002):
                return
            s.sendall(bytes([byte]))
        count("sent")


@play_of
def connections(agent, stop, count):
    for _ in range(200):
        if stop.is_set():
            return
        agent.connect().close()
        count("connected")


@play_of
def silent_connections(agent, stop, count):
    with contextlib.ExitStack() as all_of_them:
        for _ in range(150):
            all_of_them.enter_context(agent.connect())
            count("connected")
        stop.wait(0.5)


def leaves(body, after):
    @play_of
    def play(agent, stop, count):
        data = agent.request(CHAT, body())
        while not stop.is_set():
            with agent.connect() as s:
                s.sendall(data[:int(len(data) * after)])
            count("left")
    return play


def never_read(agent, stop, count, data, n, gap_s):
    """Sends the request on n connections, and reads nothing."""
    with contextlib.ExitStack() as held:
        for _ in range(n):
            s = held.enter_context(agent.connect())
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            s.sendall(data)
            count("sent")
            if stop.wait(gap_s):
                return
        stop.wait(0.5)


@play_of
def unread_streams(agent, stop, count):
    data = agent.request(CHAT, {"model": "m", "stream": True, "messages": [{"role": "user", "content": "word " * 4000}]})
    never_read(agent, stop, count, data, 40, 0.02)


@play_of
def unread_replays(agent, stop, count):
    """One answer, asked for again and again under its key, never read."""
    data = agent.request(CHAT, {"model": "m", "messages": [{"role": "user", "content": "word " * 20_000}]},
                         more="Idempotency-Key: one\r\n")
    never_read(agent, stop, count, data, 60, 0.01)


@play_of
def malformed_requests(agent, stop, count):
    for junk in itertools.cycle([b"GET\r\n\r\n", b"\x16\x03\x01" * 100,
                                 b"POST /sessions/x/v1/messages HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
                                 agent.head(CHAT, 5, more="Transfer-Encoding: chunked\r\n") + b"0\r\n\r\n"]):
        if stop.is_set():
            return
        with agent.connect() as s:
            s.sendall(junk)
            s.settimeout(2)
            answer = s.recv(4096)
            count(int(answer.split()[1]) if answer else None)


@play_of
def pipelined_requests(agent, stop, count):
    data = agent.request(COUNT, {"model": "m", "messages": [USER]}) * 50
    with agent.connect() as s:
        answers = Answers(s)
        while not stop.is_set():
            s.sendall(data)
            for _ in range(50):
                count(answers.next())


def behind_a_turn(body):
    """The same request again and again in a session that has a call already."""
    again = repeat(CHAT, body)

    def play(agent, stop, count):
        with contextlib.suppress(OSError, ValueError, IndexError), agent.connect() as s:
            s.sendall(agent.request(CHAT, {"model": "m", "max_tokens": 8, "messages": [USER]}))
            count(Answers(s).next())
        again(agent, stop, count)
    return play


def calls_with(arguments):
    return {"model": "m", "max_tokens": 8, "messages": [
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}]},
        {"role": "tool", "tool_call_id": "c", "content": "x"}]}


def each_new(path, make):
    """Another request each time: make(its number) is the body."""
    numbers = itertools.count()

    @play_of
    def play(agent, stop, count):
        with agent.connect(60) as s:
            answers = Answers(s)
            while not stop.is_set():
                s.sendall(agent.request(path, {"model": "m", **make(next(numbers))}))
                count(answers.next())
    return play


def changing_tools():
    """Tools that differ from call to call, in the last one only."""
    same = tools(60)()
    return each_new(CHAT, lambda i: {"max_tokens": 8, "messages": [USER], "tools": [
        *same, {"type": "function", "function": {"name": f"last{i}", "parameters": {"type": "object"}}}]})


def small_chunks(agent, stop, count):
    data = agent.request(CHAT, b"").split(b"Content-Length: 0\r\n")
    with contextlib.suppress(OSError, ValueError, IndexError), agent.connect() as s:
        answers = Answers(s)
        body = b"1\r\n \r\n" * MIB + b"0\r\n\r\n"
        while not stop.is_set():
            s.sendall(data[0] + b"Transfer-Encoding: chunked\r\n" + data[1] + body)
            count(answers.next())


def conversation(first, n, words):
    return [{"role": "user", "content": first}] + [
        {"role": "assistant" if i % 2 else "user", "content": words} for i in range(1, n)]


def new_histories(n, each):
    """Long conversations, each with another beginning: nothing of them is known."""
    words = drawn(string.ascii_lowercase + "    ", each)
    return each_new(CHAT, lambda i: {"max_tokens": 8, "messages": conversation(f"{i} {words}", n, words)})


def new_messages(n):
    """So many, all of them new each time."""
    return each_new(CHAT, lambda i: {"max_tokens": 8, "messages": conversation(f"{i}", n, "x")})


def differing_instructions(size):
    """Of a Responses request; they differ at their ends from call to call, so each is recorded."""
    return each_new(RESPONSES, lambda i: {"input": "x", "max_output_tokens": 16, "instructions": " " * size + f"{i}"})


@play_of
def cut_streams(agent, stop, count):
    """Streams of many answers that nobody reads; then their clients leave, with all that waits for them."""
    data = agent.request(CHAT, {"model": "m", "stream": True, "n": 32, "logprobs": True, "top_logprobs": 5,
                                "messages": [{"role": "user", "content": "word " * 4000}]})
    with contextlib.ExitStack() as held:
        for _ in range(4):
            s = held.enter_context(agent.connect())
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            s.sendall(data)
        stop.wait(0.8)
    count("left")


@play_of
def unread_responses(agent, stop, count):
    """A long stored response, asked for again and again, never read."""
    with agent.connect(60) as s:
        s.sendall(agent.request(RESPONSES, {"model": "m", "input": "word " * 20_000}))
        file = s.makefile("rb")
        status, length = int(file.readline().split()[1]), 0
        while (header := file.readline()) not in (b"\r\n", b""):
            if header.lower().startswith(b"content-length:"):
                length = int(header.split(b":")[1])
        count(status)
        stored = json.loads(file.read(length))["id"]
    data = agent.head(f"{RESPONSES}/{stored}", 0, verb="GET")
    with contextlib.ExitStack() as held:
        for _ in range(60):
            s = held.enter_context(agent.connect())
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            s.sendall(data)
            count("sent")
            if stop.wait(0.01):
                return
        stop.wait(0.5)


def raw(head):
    """A request of one's own making, with a connection for each."""
    @play_of
    def play(agent, stop, count):
        while not stop.is_set():
            with agent.connect() as s:
                s.sendall(head(agent))
                count(Answers(s).next())
    return play


def without_key(agent):
    """A body of 1 MiB that no key stands before, also where everybody may read."""
    asked = random.choice((f"POST /sessions/{agent.session}/v1/{CHAT}", "POST /", "POST /ui/x", "GET /"))
    return f"{asked} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {MIB}\r\n\r\n".encode() + b"x" * (64 << 10)


def forged_session(agent):
    """The key of a session that never was."""
    body = json.dumps({"model": "m", "messages": [USER]}).encode()
    name = "w0-" + drawn("0123456789abcdef", 32, random.random())
    return (f"POST /sessions/{name}/v1/{CHAT} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer rga-{name}-"
            f"{drawn('0123456789abcdef', 32, random.random())}\r\nContent-Length: {len(body)}\r\n\r\n").encode() + body


def at_once(n, make):
    """A request on each of n connections; make(the agent) is all of it."""
    @play_of
    def play(agent, stop, count):
        data = make(agent)
        with contextlib.ExitStack() as held:
            socks = [held.enter_context(agent.connect()) for _ in range(n)]
            for s in socks:
                s.sendall(data)
            for s in socks:
                count(Answers(s).next())
    return play


def many_answers(agent):
    """Thirty of them make a queue of thousands at the engine."""
    return agent.request(CHAT, {"model": "m", "n": 128, "max_tokens": 64, "messages": [{"role": "user", "content": "word " * 60}]})


def joined(agent):
    """A stream of 16 answers with logprobs; who asks for it again under its key, while it runs, joins it."""
    return agent.request(CHAT, {"model": "m", "stream": True, "n": 16, "logprobs": True, "top_logprobs": 5,
                                "messages": [{"role": "user", "content": "word " * 400}]}, more=f"Idempotency-Key: {time.monotonic()}\r\n")


def fork(agent):
    """An agent may make no session: with metadata or without."""
    body = json.dumps({"metadata": {"k": "v" * MIB}}).encode()
    return (f"POST /sessions/{agent.session}/fork HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {agent.key}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n").encode() + body


BEGUN_CALL = "<tool_call>tool_0\n<arg_key>a</arg_key><arg_value>"

ATTACKS = {
    "one sign, 1 MiB": says(lambda: "!" * MIB),
    "letters by chance, 1 MiB": says(lambda: drawn(string.ascii_lowercase, MIB)),
    "signs by chance, 1 MiB": says(lambda: drawn("!\"#$%&'()*+,-./:;<=>?@[]^_`{|}~", MIB)),
    "spaces, 1 MiB": says(lambda: " " * MIB),
    "spaces, 3 MiB": says(lambda: " " * (3 * MIB)),
    "line breaks, 1 MiB": says(lambda: "\n" * MIB),
    "combining marks, 600 KB": says(lambda: "a" + "\u0301" * 100_000),
    "control tokens, 1 MiB": says(lambda: "<|im_start|>" * (MIB // 12)),
    "text that fits, 60 KB": says(lambda: drawn(string.ascii_lowercase, 60_000)),
    "counting one sign, 1 MiB": says(lambda: "!" * MIB, COUNT),
    "counting letters, 60 KB": says(lambda: drawn(string.ascii_lowercase, 60_000), COUNT),
    "completion of a text, 1 MiB": repeat(COMPLETIONS, lambda: {
        "model": "m", "max_tokens": 8, "prompt": drawn(string.ascii_lowercase, MIB)}),
    "completion of 200,000 ids": repeat(COMPLETIONS, lambda: {"model": "m", "max_tokens": 8, "prompt": [65] * 200_000}),
    "128 prompts, 1 MiB": repeat(COMPLETIONS, lambda: {"model": "m", "max_tokens": 8, "prompt": ["word " * 1600] * 128}),
    "128 prompts, 16 MB beside": repeat(COMPLETIONS, lambda: (
        b'{"model":"m","max_tokens":1,"prompt":[' + b'"a",' * 127 + b'"a"],"x":[' + b"1," * 8_000_000 + b"1]}")),
    "128 prompts, 200 KB beside": repeat(COMPLETIONS, lambda: {"model": "m", "max_tokens": 1, "prompt": ["a"] * 128, "x": [1] * 100_000}),
    "20,000 tools, chat": chat(tools=tools(20_000)),
    "500 tools, chat": chat(tools=tools(500)),
    "5,000 tools, messages": repeat(MESSAGES, lambda: {"model": "m", "max_tokens": 8, "messages": [USER], "tools": [
        {"name": f"t{i}", "input_schema": {"type": "object"}} for i in range(5000)]}),
    "5,000 tools, responses": repeat(RESPONSES, lambda: {"model": "m", "input": "x", "tools": [
        {"type": "function", "name": f"t{i}", "parameters": {"type": "object"}} for i in range(5000)]}),
    "2,000 stop strings": chat(stop=lambda: [f"stop {i}" for i in range(2000)]),
    "stop strings alike": chat(stop=lambda: ["a" * i for i in range(1, 500)]),
    "16,000 messages": repeat(CHAT, lambda: {
        "model": "m", "max_tokens": 8, "messages": [USER, {"role": "assistant", "content": "y"}] * 8_000}),
    "12,000 joined calls": repeat(CHAT, lambda: {"model": "m", "max_tokens": 8, "messages": joined_calls(12_000)}),
    "15,000 joined calls": repeat(RESPONSES, lambda: {"model": "m", "input": joined_results(15_000)}),
    "16,000 items, responses": repeat(RESPONSES, lambda: {
        "model": "m", "input": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}] * 8_000}),
    "16,000 new messages": new_messages(16_000),
    "references to one tool": repeat(MESSAGES, lambda: {"model": "m", "max_tokens": 8, "tools": [
        {"name": "f", "description": "d" * 100_000, "input_schema": {"type": "object"}}], "messages": [
            {"role": "user", "content": [{"type": "tool_reference", "tool_name": "f"}] * 10_000}]}),
    "histories that nobody knows": new_histories(100, 600),
    "arguments of a call, 8 MB": behind_a_turn(lambda: calls_with("[" + "1," * (4 * MIB) + "1]")),
    "16,000 parts": repeat(CHAT, lambda: {"model": "m", "max_tokens": 8, "messages": [
        {"role": "user", "content": [{"type": "text", "text": "x"}] * 16_000}]}),
    "tools that change": changing_tools(),
    "tools of 4 million values": behind_a_turn(lambda: (
        b'{"messages":[{"role":"user","content":"x"}],"max_tokens":8,"tools":[{"type":"function","function":{"name":"f","parameters":{"enum":['
        + b"1," * (4 * MIB) + b"1]}}}]}")),
    "two parts of 8 MB": repeat(CHAT, lambda: {"model": "m", "max_tokens": 8, "messages": [
        {"role": "user", "content": [{"type": "text", "text": " " * (8 * MIB)}] * 2}]}),
    "20,000 members": chat(**{f"m{i}": lambda: 1 for i in range(20_000)}),
    "bad words of 8 MB": chat(bad_words=lambda: ["w" * (8 * MIB)]),
    "a member that nobody knows, 16 MB": repeat(CHAT, lambda: (
        b'{"messages":[{"role":"user","content":"x"}],"max_tokens":8,"x":[' + b"1," * (8 * MIB) + b"1]}")),
    "3 million ids allowed": chat(allowed_token_ids=lambda: [1] * 3_000_000),
    "a user of 8 MB, responses": repeat(RESPONSES, lambda: {"model": "m", "input": "x", "user": "u" * (8 * MIB)}),
    "instructions of 32 MB, responses": repeat(RESPONSES, lambda: {"model": "m", "input": "x", "instructions": " " * (32 * MIB)}),
    "instructions of 4 MB, recorded": differing_instructions(4 * MIB),
    "instructions of 8 MB, responses": repeat(RESPONSES, lambda: {"model": "m", "input": "x", "instructions": "i " * (4 * MIB)}),
    "a model's name of 1 MiB": chat(model=lambda: "m" * MIB, stream=lambda: True),
    "chunks of one byte": small_chunks,
    "nested arrays": repeat(CHAT, lambda: b"[" * MIB),
    "many equal members": repeat(CHAT, lambda: (
        b'{"messages":[{"role":"user","content":"x"}],"a":1' + b',"a":1' * 100_000 + b"}")),
    "long numbers": repeat(CHAT, lambda: b'{"messages":[{"role":"user","content":"x"}],"temperature":' + b"9" * MIB + b"}"),
    "escapes, 1 MiB": repeat(CHAT, lambda: b'{"messages":[{"role":"user","content":"' + b"\\u0041" * (MIB // 6) + b'"}]}'),
    "metadata, 1 MiB": repeat(RESPONSES, lambda: {
        "model": "m", "input": "x", "metadata": {f"k{i}": "v" * 40 for i in range(20_000)}}),
    "template arguments, 1 MiB": chat(chat_template_kwargs=lambda: {f"k{i}": "v" * 40 for i in range(20_000)}),
    "a deep schema": schema(lambda: deep(400)),
    "references that double": schema(lambda: references(24)),
    "a wide schema": schema(lambda: wide(2000)),
    "patterns": schema(patterns),
    "alternatives": schema(alternatives),
    "128 answers": repeat(CHAT, lambda: {
        "model": "m", "n": 128, "max_tokens": 64, "messages": [{"role": "user", "content": "word " * 60}]}),
    "120 calls of 128 answers": at_once(30, many_answers),
    "100 clients of one call": at_once(100, joined),
    "30,000 tokens with logprobs": repeat(CHAT, lambda: {
        "model": "m", "max_tokens": 30_000, "logprobs": True,
        "messages": [{"role": "user", "content": "word " * 30_000}]}),
    "128 answers with logprobs": repeat(CHAT, lambda: {
        "model": "m", "n": 128, "max_tokens": 200, "logprobs": True, "top_logprobs": 5,
        "messages": [{"role": "user", "content": "word " * 200}]}),
    "replays with logprobs": repeat(CHAT, lambda: {
        "model": "m", "n": 128, "max_tokens": 200, "logprobs": True, "messages": [{"role": "user", "content": "word " * 200}]},
        more="Idempotency-Key: one\r\n"),
    "blank answers": repeat(CHAT, lambda: {
        "model": "m", "max_tokens": 15_000, "messages": [{"role": "user", "content": "<think>" + drawn(" \n\t", 15_000)}]}),
    "calls that are none": chat(
        max_tokens=lambda: 15_000, tools=tools(1),
        messages=lambda: [{"role": "user", "content": BEGUN_CALL * 300 + "</arg_value>x"}]),
    "bodies that never end": unfinished_bodies,
    "bodies without a key": raw(without_key),
    "keys of sessions that never were": raw(forged_session),
    "forks": raw(fork),
    "bodies that trickle": trickled_bodies,
    "heads that trickle": trickled_heads,
    "connections": connections,
    "silent connections": silent_connections,
    "malformed requests": malformed_requests,
    "pipelined requests": pipelined_requests,
    "leaving in the body": leaves(lambda: {"messages": [{"role": "user", "content": "!" * MIB}]}, 0.9),
    "leaving at the work": leaves(lambda: {"messages": [{"role": "user", "content": drawn(string.ascii_lowercase, 60_000)}]}, 1),
    "streams that nobody reads": unread_streams,
    "replays that nobody reads": unread_replays,
    "responses that nobody reads": unread_responses,
    "streams that are cut": cut_streams,
}

# Those that need answers as long as what they say.
ECHOED = {"128 answers", "120 calls of 128 answers", "100 clients of one call", "128 answers with logprobs", "30,000 tokens with logprobs",
          "replays with logprobs", "streams that nobody reads", "replays that nobody reads", "responses that nobody reads",
          "streams that are cut", "blank answers", "calls that are none"}

# Those that need a context of a million ids, and sessions of as many messages.
WIDE = {"16,000 new messages", "15,000 joined calls", "16,000 items, responses", "instructions of 4 MB, recorded",
        "instructions of 32 MB, responses", "30,000 tokens with logprobs"}

# What the short run of CI leaves out: what takes seconds for one answer, and is another one's larger form.
LONG = WIDE | {"streams that are cut"}

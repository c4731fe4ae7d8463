"""Values of a request that are long beside its messages: tools, schemas, biases, members that nobody bounds. The loop neither compares
nor writes them, whoever is asked, and what is asked is the same."""
import json
import threading

import pytest

import battle
from gateway import fresh_memory, wait_until
from stub_engines import StubEngine
from test_costs import helped, new

USER = {"role": "user", "content": "x"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


def holds(start, limit_s, play, **settings):
    """play(gateway, a new session's path) is what each gateway is asked."""
    def once():
        gateway = start(workers=1, **settings)
        play(gateway, f"/sessions/{new(gateway)['session_id']}/v1")
        return battle.longest_hold_ms(gateway, "cpu_")
    battle.holds_within(1000 * limit_s, once)


def numbers(n):
    return b"[" + b"1," * (n - 1) + b"1]"


def chat_of(**members):
    """A chat whose members are JSON already where they are bytes."""
    parts = {"messages": [USER], "model": "m", "max_tokens": 8, **members}
    return b"{" + b",".join(json.dumps(k).encode() + b":" + (v if isinstance(v, bytes) else json.dumps(v).encode())
                            for k, v in parts.items()) + b"}"


def long_tools(n, last="f"):
    return (b'[{"type":"function","function":{"name":"g","parameters":{"enum":' + numbers(n) + b'}}},{"type":"function","function":{"name":"'
            + last.encode() + b'"}}]')


# --- what is known of a session ---

def test_long_tools_hold_nobody_up(start):
    """Other tools on messages that are known, again and again: hashing and comparing these took 300 ms. Counting likewise."""
    def play(gateway, path):
        assert gateway.post(f"{path}/chat/completions", {"model": "m", "messages": [USER], "tools": [TOOL], "max_tokens": 8}).status == 200
        for i in range(3):
            a = gateway.post(f"{path}/chat/completions", chat_of(tools=long_tools(1_900_000, f"t{i}")))
            assert a.status == 400 and a.json()["error"]["code"] == "context_length_exceeded", a.text[:300]
        schema = b'{"name":"g","input_schema":{"type":"object","enum":' + numbers(1_900_000) + b"}}"
        a = gateway.post(f"{path}/messages/count_tokens", chat_of(tools=b"[" + schema + b"]"))
        assert a.status == 200, a.text[:300]
    holds(start, 0.010 + fresh_memory(), play, engine="builtin:echo", context_length=4096)


def test_long_tools_that_come_back_are_the_same(start):
    """As text: they are recorded, and the next call goes on from the answer to the last one. In short tools members and numbers may be
    written otherwise."""
    gateway = start(engine="builtin:echo", workers=1, context_length=100_000_000)
    for n, written, cause in ((50_000, "1", "extended"), (50_000, "1.0", "tools_changed"), (100, "1.0", "extended")):
        session = new(gateway)
        said = [USER]
        for last in ("1", written):
            tools = long_tools(n).replace(b",1]", f",{last}]".encode())
            a = gateway.post(f"/sessions/{session['session_id']}/v1/chat/completions", chat_of(messages=said, tools=tools))
            assert a.status == 200, a.text[:300]
            said = [*said, a.json()["choices"][0]["message"], {"role": "user", "content": "y"}]
        nodes = gateway.get(f"/sessions/{session['session_id']}").json()["tree"]["nodes"]
        assert [x["cause"] for x in nodes if x.get("generated")] == ["new_root", cause], (n, written)


def test_known_tools_of_many_values_are_a_helpers_work(start):
    """They are looked at for each request, also where their bytes are known."""
    gateway = start(engine="builtin:echo", workers=1, context_length=100_000_000)
    took = []
    for tools in (b'[{"type":"function","function":{"name":"g","description":"' + b"d" * 800_000 + b'"}}]', long_tools(400_000)):
        session, said = new(gateway), [USER]
        for _ in range(2):
            before = helped(gateway)
            body = b'{"model":"m","max_tokens":8,"tools":' + tools + b',"messages":' + json.dumps(said).encode() + b"}"
            a = gateway.post(f"/sessions/{session['session_id']}/v1/chat/completions", body)
            assert a.status == 200, a.text[:300]
            said = [*said, a.json()["choices"][0]["message"], {"role": "user", "content": "y"}]
        took.append(helped(gateway) - before)
    assert took[1] == took[0] + 1, "the body was read by a helper, too"


def test_long_parts_of_a_message_hold_nobody_up(start):
    """They are one text for who compares them; joining them was the loop's."""
    def play(gateway, path):
        assert gateway.post(f"{path}/chat/completions", {"model": "m", "messages": [USER], "max_tokens": 8}).status == 200
        part = b'{"type":"text","text":"' + b" " * (15 << 20) + b'"}'
        a = gateway.post(f"{path}/chat/completions", chat_of(messages=b'[{"role":"user","content":[' + part + b"," + part + b"]}]"))
        assert a.status == 400 and a.json()["error"]["code"] == "context_length_exceeded", a.text[:300]
    holds(start, 0.010 + fresh_memory(), play, engine="builtin:echo", context_length=4096)


# --- what engines are sent ---

def sent(engine):
    return [r["body"] for r in engine.requests]


@pytest.mark.parametrize("kind", ["sglang", "vllm", "llamacpp"])
def test_engines_get_long_values_as_they_are(start, kind):
    schema = {"type": "object", "properties": {"a": {"enum": [f'value "{i}"' for i in range(3000)]}}}
    bias, words = {str(i): 0.5 for i in range(5000)}, [f"word {i}" for i in range(5000)]
    with StubEngine(kind) as engine:
        gateway = start(engine=engine.setting, workers=1)
        body = {"model": "m", "messages": [USER], "n": 3, "max_tokens": 8, "logit_bias": bias, "stop": words[:700],
                "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}}
        if kind == "vllm":
            body |= {"bad_words": words, "allowed_token_ids": list(range(5000))}
        a = gateway.post(f"/sessions/{new(gateway)['session_id']}/v1/chat/completions", body)
        assert a.status == 200 and len(a.json()["choices"]) == 3, a.text[:300]
        assert len(sent(engine)) == 3
        for asked in sent(engine):
            asked = asked.get("sampling_params", asked)
            assert asked["logit_bias"] == bias and asked["stop"] == words[:700]
            got = {"sglang": lambda o: json.loads(o["json_schema"]), "vllm": lambda o: o["structured_outputs"]["json"],
                   "llamacpp": lambda o: o["json_schema"]}[kind](asked)
            assert got == schema
            if kind == "vllm":
                assert asked["bad_words"] == words and asked["allowed_token_ids"] == list(range(5000))


@pytest.mark.parametrize("kind", ["sglang", "vllm", "llamacpp"])
def test_long_schemas_for_engines_hold_nobody_up(start, kind):
    """Written for each answer it took 100 ms and more of each."""
    schema = b'{"type":"json_schema","json_schema":{"name":"n","schema":{"enum":' + numbers(2_000_000) + b"}}}"

    def play(gateway, path):
        a = gateway.post(f"{path}/chat/completions", chat_of(n=2, response_format=schema))
        assert a.status == 200, a.text[:300]
    with StubEngine(kind) as engine:
        holds(start, 0.010 + fresh_memory(), play, engine=engine.setting)


def test_what_is_sent_counts(start):
    """Each answer's request has the prompt of its own."""
    n, answers = 60_000, 64
    held = threading.Event()
    with StubEngine("sglang") as engine:
        engine.otherwise = lambda body: {"wait": held}
        gateway = start(engine=engine.setting, workers=1, context_length=2 * n)

        def arenas():
            return gateway.metrics()['rollgate_request_memory_bytes{kind="arenas"}']

        def ask():
            a = gateway.post(f"/sessions/{new(gateway)['session_id']}/v1/completions",
                             {"model": "m", "prompt": [70] * n, "n": answers, "max_tokens": 4})
            assert a.status == 200, a.text[:300]
        asking = threading.Thread(target=ask)
        asking.start()
        try:
            wait_until(lambda: arenas() > answers * n * 3, 60, "the requests count")
        finally:
            held.set()
            asking.join()
        wait_until(lambda: arenas() == 0, 20, "nothing is left")


def test_bad_words_are_bounded(start):
    gateway = start(engine="builtin:echo", workers=1)
    a = gateway.chat(new(gateway), "x", bad_words=["w" * (256 << 10)])
    assert a.status == 400 and a.json()["error"]["param"] == "bad_words" and "262144" in a.text, a.text[:300]


# --- what an upstream is sent ---

def test_members_of_a_body_are_counted(start):
    gateway = start(engine="builtin:echo", workers=1)
    session = new(gateway)
    path = f"/sessions/{session['session_id']}/v1"
    for where, body in (("chat/completions", {"messages": [USER]}), ("messages", {"messages": [USER], "max_tokens": 8}),
                        ("responses", {"input": "x"}), ("completions", {"prompt": "x"})):
        a = gateway.post(f"{path}/{where}", {**body, **{f"m{i}": 1 for i in range(1024 - len(body))}})
        assert a.status == 200, a.text[:300]
        a = gateway.post(f"{path}/{where}", {**body, **{f"m{i}": 1 for i in range(1025 - len(body))}})
        assert a.status == 400 and "body: 1025 are too many; at most 1024 members" in a.text, a.text[:300]


LONG = {"user": "u" * 5000, "reasoning": {"x": ["r" * 5000]}, "thinking": {"type": "enabled", "x": "t" * 5000}, "metadata": {"a": "b" * 5000},
        "function_call": {"name": "f", "x": "f" * 5000}, "verbosity": "v" * 5000, "tool_choice": "auto",
        "functions": [{"name": "g", "description": "d" * 5000}], "logit_bias": {str(i): 0.5 for i in range(1000)},
        "stop": [f"stop {i}" for i in range(1000)], "tools": [{**TOOL, "x": "y" * 5000}], "bad_words": ["w" * 5000],
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"enum": ["e" * 5000]}}}}


@pytest.mark.parametrize("stream", [False, True])
def test_an_upstream_gets_long_members_as_they_are(start, stream):
    with StubEngine("openai") as engine:
        gateway = start(engine=engine.setting, workers=1)
        sid = new(gateway)["session_id"]
        kwargs = {"a": "k" * 5000, "chat_template": "{{ x }}"}
        a = gateway.post(f"/sessions/{sid}/v1/chat/completions",
                         {"model": "m", "messages": [USER], "n": 2, "stream": stream, **LONG, "chat_template_kwargs": kwargs})
        assert a.status == 200, a.text[:300]
        for body in sent(engine):
            assert {k: body[k] for k in LONG} == LONG
            assert body["chat_template_kwargs"] == {"a": "k" * 5000} and body["messages"] == [USER]
        a = gateway.post(f"/sessions/{sid}/v1/messages", {"model": "m", "messages": [USER], "max_tokens": 9, "stop_sequences": LONG["stop"]})
        assert a.status == 200 and sent(engine)[-1]["stop"] == LONG["stop"], a.text[:300]


@pytest.mark.parametrize("member", ["user", "reasoning", "verbosity"])
def test_long_members_for_an_upstream_hold_nobody_up(start, member):
    """Written, parsed and written again they took 100 ms and more."""
    value = numbers(2_000_000) if member == "reasoning" else b'"' + b"u" * (40 << 20) + b'"'

    def play(gateway, path):
        a = gateway.post(f"{path}/chat/completions", chat_of(n=2, **{member: value}))
        assert a.status == 200, a.text[:300]
    with StubEngine("openai") as engine:
        holds(start, 0.010 + fresh_memory(), play, engine=engine.setting)

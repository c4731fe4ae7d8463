"""Errors in the form that each dialect's clients expect: a prompt that is too long, and a stream that the engine
refuses at once."""
import json
import re

import pytest

from stub_engines import StubEngine

LONG = "word " * 100
CALLS = {
    "chat": ("/v1/chat/completions", lambda text: {"model": "m", "max_tokens": 50, "messages": [{"role": "user", "content": text}]}),
    "messages": ("/v1/messages", lambda text: {"model": "m", "max_tokens": 50, "messages": [{"role": "user", "content": text}]}),
    "responses": ("/v1/responses", lambda text: {"model": "m", "max_output_tokens": 50, "input": text}),
    "completions": ("/v1/completions", lambda text: {"model": "m", "max_tokens": 50, "prompt": text}),
}
WORDS = {
    "chat": r"maximum context length is (?P<max>\d+) tokens.* resulted in (at least )?(?P<n>\d+) tokens",
    "messages": r"^prompt is too long: (?P<n>\d+) tokens > (?P<max>\d+) maximum",
    "responses": r"exceeds the context window of this model.*length is (?P<max>\d+) tokens.* resulted in (at least )?(?P<n>\d+) tokens",
    "completions": r"maximum context length is (?P<max>\d+) tokens.* resulted in (at least )?(?P<n>\d+) tokens",
}


def ask(gateway, dialect, text="x", stream=False):
    path, body = CALLS[dialect]
    sid = gateway.post("/sessions", {}).json()["session_id"]
    return gateway.post(f"/sessions/{sid}{path}", {**body(text), "stream": stream}, timeout=60)


def figures(answer, dialect):
    """The prompt's tokens and the limit, as the error's words have them."""
    error = answer.json()["error"]
    found = re.search(WORDS[dialect], error["message"])
    assert answer.status == 400 and found, answer.text
    assert error.get("code") == (None if dialect == "messages" else "context_length_exceeded")
    assert error["type"] == "invalid_request_error" and answer.headers["x-should-retry"] == "false"
    return int(found["n"]), int(found["max"])


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("dialect", CALLS)
def test_a_prompt_that_is_too_long_is_refused_in_the_words_of_the_dialect(start, dialect, stream):
    gateway = start(engine="builtin:echo", workers=1, context_length=300)
    n, most = figures(ask(gateway, dialect, LONG, stream), dialect)
    assert n > most == 300


REFUSALS = {
    "sglang": (400, {"error": {"message": "The input (500 tokens) is longer than the model's context length (300 tokens).",
                               "type": "BadRequestError", "code": 400}}),
    "vllm": (400, {"error": {"message": "This model's maximum context length is 300 tokens. However, your request has 500 input tokens. Please",
                             "type": "BadRequestError", "param": "input_tokens", "code": 400}}),
    "llamacpp": (400, {"error": {"code": 400, "message": "the request exceeds the available context size, try increasing it",
                                 "type": "exceed_context_size_error", "n_prompt_tokens": 500, "n_ctx": 300}}),
    "openai": (400, {"error": {"message": "This model's maximum context length is 300 tokens. However, your messages resulted in 500 tokens.",
                               "type": "invalid_request_error", "param": "messages", "code": "context_length_exceeded"}}),
}


# Upstreams that render prompts themselves take no completions.
PAIRS = [(kind, dialect) for kind in REFUSALS for dialect in CALLS if (kind, dialect) != ("openai", "completions")]


@pytest.mark.parametrize("kind, dialect", PAIRS)
def test_an_engines_words_for_it_become_those_of_the_dialect(kept, kind, dialect):
    status, body = REFUSALS[kind]
    engine, gateway = kept.pair(kind, workers=1)
    for stream in False, True:
        engine.plan.append({"status": status, "body": body})
        assert figures(ask(gateway, dialect, stream=stream), dialect) == (500, 300)


def test_words_without_figures_are_recognised(start):
    with StubEngine("openai") as engine:
        gateway = start(engine=engine.setting, workers=1)
        for error in ({"message": "Your input exceeds the context window of this model.", "code": "context_length_exceeded"},
                      {"message": "no", "type": "invalid_request_error", "code": "context_length_exceeded"}):
            engine.plan += [{"status": 400, "body": {"error": error}}] * 2
            a = ask(gateway, "messages").json()["error"]["message"]
            assert a.startswith("prompt is too long: ") and error["message"] in a
            a = ask(gateway, "responses").json()["error"]
            assert a["code"] == "context_length_exceeded" and "exceeds the context window" in a["message"] and a["param"] == "input"


def test_an_answer_that_leaves_no_room_counts_as_claude_code_reads_it(start):
    words = ("This model's maximum context length is 300 tokens. However, you requested 100 output tokens and your prompt contains "
             "at least 250 input tokens, for a total of at least 350 tokens.")
    with StubEngine("vllm") as engine:
        gateway = start(engine=engine.setting, workers=1)
        engine.plan.append({"status": 400, "body": {"error": {"message": words, "code": 400}}})
        told = ask(gateway, "messages").json()["error"]["message"]
    assert "prompt is too long: 350 tokens > 300 maximum" in told
    assert re.search(r"input length and `max_tokens` exceed context limit: 250 \+ 100 > 300", told)


def last_event(text):
    return [json.loads(line[6:]) for line in text.split("\n") if line.startswith("data: {")][-1]


def test_an_error_within_a_stream_has_the_same_words(start):
    """Codex knows it by the failed response."""
    error = {"error": {"message": "The input (500 tokens) is longer than the model's context length (300 tokens).", "code": 400}}
    with StubEngine("sglang", incremental=True) as engine:
        gateway = start(engine=engine.setting, workers=1)
        engine.otherwise = lambda body: {"ids": list(b"hello there") + [257], "matched": 257, "chunk": 2, "gap_s": 0.05, "error_event": error}
        gateway.allow(".*")
        told = last_event(ask(gateway, "messages", stream=True).text)
        assert told["type"] == "error" and told["error"]["message"] == "prompt is too long: 500 tokens > 300 maximum"
        told = last_event(ask(gateway, "responses", stream=True).text)
        assert told["type"] == "response.failed" and told["response"]["status"] == "failed", told
        assert told["response"]["error"]["code"] == "context_length_exceeded"


# --- a stream that is refused at once ---

@pytest.mark.parametrize("kind, dialect", [p for p in PAIRS if p[0] in ("sglang", "openai")])
def test_a_refused_stream_has_a_plain_status(start, kind, dialect):
    with StubEngine(kind) as engine:
        gateway = start(engine=engine.setting, workers=1, engine_retries=0)
        gateway.allow(".*")
        for status, ours in (400, 400), (422, 422), (429, 429), (500, 502), (503, 503):
            engine.plan.append({"status": status})
            a = ask(gateway, dialect, stream=True)
            assert a.status == ours and a.headers["content-type"] == "application/json", (status, a.text)
            assert a.json()["error"]["message"]
        engine.plan.append({"before": "close"})
        assert ask(gateway, dialect, stream=True).status == 503


def test_an_error_as_the_first_event_is_a_plain_status(start):
    with StubEngine("sglang") as engine:
        gateway = start(engine=engine.setting, workers=1, engine_retries=0)
        gateway.allow(".*")
        engine.plan.append({"ids": [1], "chunk": 1, "error_event": {"error": {"message": "no room", "code": 503}}})
        a = ask(gateway, "chat", stream=True)
        assert a.status == 503 and a.json()["error"]["code"] == "engine_unavailable", a.text


CODED = {
    "a code in words": ({"message": "no", "code": "context_length_exceeded"}, 400, "context_length_exceeded"),
    "a type": ({"message": "no", "type": "exceed_context_size_error", "code": 400}, 400, "context_length_exceeded"),
    "a rate limit": ({"message": "no", "type": "rate_limit_error"}, 429, "overloaded"),
    "an overload": ({"message": "no", "type": "server_error", "code": "overloaded_error"}, 503, "engine_unavailable"),
    "a number": ({"message": "no", "code": 503}, 503, "engine_unavailable"),
}


@pytest.mark.parametrize("kind", ["sglang", "vllm", "llamacpp", "openai"])
@pytest.mark.parametrize("what", CODED)
def test_members_of_an_engines_error_come_in_any_order(kept, kind, what):
    error, status, code = CODED[what]
    engine, gateway = kept.pair(kind, workers=1, engine_retries=0)
    gateway.allow(".*")
    for members in (error.items(), reversed(error.items())):
        docs = [{"error": dict(members)}]
        engine.plan.append({"edit": lambda _, docs=docs: docs})
        a = ask(gateway, "chat", stream=True)
        assert a.status == status and a.json()["error"]["code"] == code, (docs, a.text)


def test_a_keep_alive_starts_the_stream_before_the_engine_answers(start):
    with StubEngine("sglang") as engine:
        gateway = start(engine=engine.setting, workers=1, engine_retries=0, keepalive="100ms")
        gateway.allow(".*")
        engine.plan.append({"status": 400, "delay_s": 1})
        a = ask(gateway, "chat", stream=True)
        assert a.status == 200 and "error" in last_event(a.text), a.text


def test_prompts_of_one_stream_that_are_refused_have_a_plain_status(start):
    with StubEngine("sglang") as engine:
        gateway = start(engine=engine.setting, workers=1, engine_retries=0)
        gateway.allow(".*")
        engine.otherwise = lambda body: {"status": 400}
        sid = gateway.post("/sessions", {}).json()["session_id"]
        a = gateway.post(f"/sessions/{sid}/v1/completions", {"model": "m", "prompt": ["a", "b"], "stream": True})
        assert a.status == 400 and a.json()["error"]["code"] == "engine_refused", a.text


REFUSING = {
    "half a character": ({"error": {"message": "no \ud83d"}}, "engine: no \ufffd"),
    "a NUL": ({"error": {"message": "no\0thing"}}, "engine: no thing"),
    "a list of one": ([{"error": {"message": "no room", "status": "INVALID_ARGUMENT"}}], "engine: no room"),
}


@pytest.mark.parametrize("what", REFUSING)
def test_words_of_a_refusal_are_text(start, what):
    body, words = REFUSING[what]
    with StubEngine("openai") as engine:
        gateway = start(engine=engine.setting, workers=1, engine_retries=0)
        gateway.allow(".*")
        engine.plan.append({"status": 400, "body": body})
        assert ask(gateway, "chat").json()["error"]["message"] == words

"""An engine's report of overload: its Retry-After reaches the client, and calls move from full engines to others."""
import contextlib
import datetime
import email.utils

import pytest

from stub_engines import StubEngine
from vision_kit import session

ASK = {"messages": [{"role": "user", "content": "hi"}]}
DIALECTS = {"chat/completions": ASK, "messages": {**ASK, "model": "m", "max_tokens": 8}, "responses": {"model": "m", "input": "hi"}}
BUSY = {"status": 429, "body": {"error": {"message": "slow down"}}}


def later(seconds):
    return email.utils.format_datetime(datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=seconds), usegmt=True)


@contextlib.contextmanager
def upstreams(n, kind="openai"):
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(StubEngine(kind)) for _ in range(n)]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("status", [429, 503, 500])
def test_client_gets_retry_after_of_the_upstream(start, dialect, status):
    with upstreams(1) as (engine,):
        gateway = start(workers=1, engine=engine.setting, engine_retries=0)
        gateway.allow(".*")
        # Seconds, also as others spell them; a date; and words that are no time: the gateway's own second.
        for lines, least, most in (("Retry-After: 37\r\n", 37, 37), ("retry-after-ms: 1500\r\n", 2, 2), ("Retry-After: 0.4\r\n", 1, 1),
                                   ("Retry-After: 9\r\nretry-after-ms: 41000\r\n", 41, 41),
                                   (f"Retry-After: {later(120)}\r\n", 110, 121), (f"Retry-After: {later(-50)}\r\n", 1, 1), ("Retry-After: soon\r\n", 1, 1)):
            engine.plan.append({**BUSY, "status": status, "headers": lines})
            a = gateway.post(f"/sessions/{session(gateway)}/v1/{dialect}", DIALECTS[dialect])
            assert a.status == {429: 429, 503: 503, 500: 502}[status], a.text
            told = a.headers.get("retry-after")
            if "soon" in lines and status == 500:
                assert told is None, lines
            else:
                assert least <= int(told) <= most, (lines, told)


@pytest.mark.parametrize("kind", ["openai", "sglang"])
@pytest.mark.parametrize("stream", [False, True])
def test_full_replica_gives_way_to_an_idle_one(start, stream, kind):
    """Without --engine-retry-5xx, and wherever the session's own replica is."""
    with upstreams(3, kind) as engines:
        gateway = start(workers=1, engine=[e.setting for e in engines])
        gateway.allow(".*")
        for full in engines:
            full.otherwise = lambda body: {**BUSY, "headers": "Retry-After: 600\r\n"}
        engines[1].otherwise = None
        for _ in range(6):
            a = gateway.post(f"/sessions/{session(gateway)}/v1/chat/completions", {**ASK, "stream": stream})
            assert a.status == 200 and "error" not in a.text, a.text
        # Full for ten minutes: nobody asks them again while another is free.
        assert len(engines[1].requests) == 6 and all(len(e.requests) <= 1 for e in (engines[0], engines[2]))
        # All are full: the client hears it from the first that was asked.
        engines[1].otherwise = engines[0].otherwise
        a = gateway.post(f"/sessions/{session(gateway)}/v1/chat/completions", ASK)
        assert a.status == 429 and a.headers["retry-after"] == "600"
        # And are asked all the same: one of them may be free again before its time.
        for e in engines:
            e.otherwise = None
        assert gateway.post(f"/sessions/{session(gateway)}/v1/chat/completions", ASK).status == 200


@pytest.mark.parametrize("stream", [False, True])
def test_overload_told_in_an_answer_gives_way_too(start, stream):
    """Some answer with 200 and tell the 429 in the body."""
    with upstreams(2) as engines:
        gateway = start(workers=1, engine=[e.setting for e in engines])
        gateway.allow(".*")
        engines[0].otherwise = lambda body: {"edit": lambda docs: [{"error": {"message": "slow down", "code": 429}}]}
        for _ in range(6):
            a = gateway.post(f"/sessions/{session(gateway)}/v1/chat/completions", {**ASK, "stream": stream})
            assert a.status == 200 and "error" not in a.text, a.text
        assert len(engines[1].requests) == 6


# name -> an error object in the body of a 200, what a plain answer of that meaning would be, and the wait that the client gets.
TOLD = {
    "rate limit, by its code": ({"message": "slow down", "type": "requests", "code": "rate_limit_exceeded"}, 429, "1"),
    "rate limit, by its type": ({"type": "rate_limit_error", "message": "slow down"}, 429, "1"),
    "rate limit, a number as text": ({"code": "429", "message": "slow down"}, 429, "1"),
    "rate limit, Google's": ({"code": 429, "message": "slow down", "status": "RESOURCE_EXHAUSTED"}, 429, "1"),
    "rate limit, Google's word": ({"status": "RESOURCE_EXHAUSTED", "message": "slow down"}, 429, "1"),
    "rate limit, with a wait": ({"code": "rate_limit_exceeded", "message": "slow down", "retry_after": 37}, 429, "37"),
    "rate limit, OpenRouter's": ({"code": 429, "message": "slow down", "metadata": {"retry_after_ms": 41000}}, 429, "41"),
    "overload, by its type": ({"type": "overloaded_error", "message": "Overloaded"}, 503, "1"),
    "overload, Anthropic's status": ({"code": 529, "message": "Overloaded"}, 503, "1"),
    "overload, by its code": ({"code": "server_overloaded", "type": "server_error", "message": "Overloaded"}, 503, "1"),
    "a bad request": ({"code": None, "type": "invalid_request_error", "message": "no"}, 400, None),
    "a failure": ({"code": "internal_error", "message": "no"}, 502, None),
}


@pytest.mark.parametrize("front", ["nothing", "a role", "no stream"])
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("what", TOLD)
def test_error_in_the_body_of_a_200_is_that_of_its_code(kept, what, dialect, front):
    """While nothing of the answer was sent, the client gets what a plain answer of that status would be."""
    error, status, wait = TOLD[what]
    engine, gateway = kept.pair("openai", workers=1, engine_retries=0)
    gateway.allow(".*")
    role = [{"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]}]
    engine.plan.append({"edit": lambda _: (role if front == "a role" else []) + [{"error": error}]})
    a = gateway.post(f"/sessions/{session(gateway)}/v1/{dialect}", {**DIALECTS[dialect], "stream": front != "no stream"})
    assert a.status == status and a.headers.get("retry-after") == wait, (a.status, a.headers, a.text)
    assert "slow down" in a.text or status != 429


def test_wait_of_the_head_counts_for_an_error_in_the_body(start):
    with upstreams(1) as (engine,):
        gateway = start(workers=1, engine=engine.setting, engine_retries=0)
        gateway.allow(".*")
        body = b'data: {"error": {"type": "rate_limit_error", "message": "slow down"}}\n\n'
        engine.plan.append({"frame": lambda kind, parts: b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nretry-after: 23\r\ncontent-length: %d\r\n\r\n" % len(body) + body})
        a = gateway.post(f"/sessions/{session(gateway)}/v1/chat/completions", {**ASK, "stream": True})
        assert (a.status, a.headers["retry-after"]) == (429, "23"), a.text


@pytest.mark.parametrize("front", [False, True], ids=["first", "behind the role"])
@pytest.mark.parametrize("error", [{"type": "rate_limit_error", "message": "x"}, {"type": "overloaded_error", "message": "x"}], ids=["429", "503"])
def test_error_before_any_text_is_repeated_as_a_plain_one(start, error, front):
    """A rate limit at another replica; an overload where --engine-retry-5xx says so. After the first text nothing is repeated."""
    with upstreams(2) as engines:
        gateway = start(workers=1, engine=[e.setting for e in engines], engine_retry_5xx=True)
        gateway.allow(".*")

        def fail(text):
            docs = [{"choices": [{"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": None}]}] if front or text else []
            return lambda body: {"edit": lambda _: docs + [{"error": error}]}
        engines[0].otherwise = fail("")
        calls = 0
        while not engines[0].requests and calls < 64:  # a new session gets one of both
            a = gateway.post(f"/sessions/{session(gateway)}/v1/chat/completions", {**ASK, "stream": True})
            assert a.status == 200 and "error" not in a.text, a.text
            calls += 1
        assert engines[0].requests and len(engines[1].requests) == calls
        engines[1].otherwise = engines[0].otherwise = fail("text")
        asked = sum(len(e.requests) for e in engines)
        a = gateway.post(f"/sessions/{session(gateway)}/v1/chat/completions", {**ASK, "stream": True})
        assert a.status == 200 and '"error"' in a.text and sum(len(e.requests) for e in engines) == asked + 1

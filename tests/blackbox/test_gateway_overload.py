"""What an engine says of its load: its Retry-After reaches the client, and who is full gives way to who is not."""
import contextlib
import datetime
import email.utils

import pytest

from stub_engines import StubEngine

ASK = {"messages": [{"role": "user", "content": "hi"}]}
DIALECTS = {"chat/completions": ASK, "messages": {**ASK, "model": "m", "max_tokens": 8}, "responses": {"model": "m", "input": "hi"}}
BUSY = {"status": 429, "body": {"error": {"message": "slow down"}}}


def new_session(gateway):
    return gateway.post("/sessions", {}).json()["session_id"]


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
            a = gateway.post(f"/sessions/{new_session(gateway)}/v1/{dialect}", DIALECTS[dialect])
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
            a = gateway.post(f"/sessions/{new_session(gateway)}/v1/chat/completions", {**ASK, "stream": stream})
            assert a.status == 200 and "error" not in a.text, a.text
        # Full for ten minutes: nobody asks them again while another is free.
        assert len(engines[1].requests) == 6 and all(len(e.requests) <= 1 for e in (engines[0], engines[2]))
        # All are full: the client hears it from the first that was asked.
        engines[1].otherwise = engines[0].otherwise
        a = gateway.post(f"/sessions/{new_session(gateway)}/v1/chat/completions", ASK)
        assert a.status == 429 and a.headers["retry-after"] == "600"
        # And are asked all the same: one of them may be free again before its time.
        for e in engines:
            e.otherwise = None
        assert gateway.post(f"/sessions/{new_session(gateway)}/v1/chat/completions", ASK).status == 200


@pytest.mark.parametrize("stream", [False, True])
def test_overload_told_in_an_answer_gives_way_too(start, stream):
    """Some answer with 200 and tell the 429 in the body."""
    with upstreams(2) as engines:
        gateway = start(workers=1, engine=[e.setting for e in engines])
        gateway.allow(".*")
        engines[0].otherwise = lambda body: {"edit": lambda docs: [{"error": {"message": "slow down", "code": 429}}]}
        for _ in range(6):
            a = gateway.post(f"/sessions/{new_session(gateway)}/v1/chat/completions", {**ASK, "stream": stream})
            assert a.status == 200 and "error" not in a.text, a.text
        assert len(engines[1].requests) == 6

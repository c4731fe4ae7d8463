"""Sessions as objects, errors by what a caller does about them, and retries that are logged."""
import asyncio
import json
import logging
import pickle
import types

import pytest

import gateway as g
import rollgate
from rollgate import errors, retries
from rollgate.calls import Call
from rollgate.executor import runner
from test_executor import Running

USER = [{"role": "user", "content": "hi"}]


@pytest.fixture
def gateway(start):
    return start(workers=1)


def test_a_session_is_a_mapping_with_its_calls(gateway):
    with rollgate.Client(gateway.url) as client:
        s = client.create_session(labels={"task": "42"})
        assert isinstance(s, rollgate.Session) and s.id == s["session_id"] and s.base_url == s["base_url"] and s.api_key == s["api_key"]
        assert json.loads(json.dumps(s))["session_id"] == s.id
        assert s.env == {"OPENAI_BASE_URL": s.base_url, "OPENAI_API_KEY": s.api_key, "ANTHROPIC_BASE_URL": s.anthropic_base_url,
                         "ANTHROPIC_API_KEY": s.api_key}
        assert rollgate.Session({**s, "api_key": None}, client).api_key == "none", "SDKs want one where the gateway has no keys"
        answer = s.chat(USER)
        assert pickle.loads(pickle.dumps(s)).state()["num_calls"] == 1
        s.reward({"reward": 0.5, "acc": 1})
        s.reward({"reward": 2.0}, answer["id"])
        (t,) = s.finalize()
        assert t.reward == 0.5 and t.reward_info == {"reward": 0.5, "acc": 1}
        assert [m["role"] for m in t.messages][-2:] == ["user", "assistant"] and t.messages[-1]["generated"]
        assert [turn["finish_reason"] for turn in t.turns] == ["stop"]
        assert [r["reward"] for r in t.turn_rewards.values()] == [2.0] and list(t.turn_rewards) == [t.turns[0]["response_id"]]
        group = client.create_session(count=2)
        assert [one.state()["phase"] for one in group["sessions"]] == ["open"] * 2
        gone = client.fork(group["sessions"][0].id) if group["sessions"][0].chat(USER) else None
        assert isinstance(gone, rollgate.Session) and gone["forked_from"]
        gone.delete()
        with pytest.raises(rollgate.Ended):
            gone.state()


def test_a_with_block_completes_or_aborts(gateway):
    with rollgate.Client(gateway.url) as client:
        with client.create_session() as s:
            s.chat(USER)
        assert s.state()["phase"] == "completed"
        with pytest.raises(ZeroDivisionError), client.create_session() as s:
            s.chat(USER)
            1 / 0
        with pytest.raises(rollgate.Ended):
            s.state()
        with client.create_session() as s:
            s.chat(USER)
            assert len(s.finalize()) == 1
        assert s.state()["phase"] == "finalized", "what has ended before is left as it is"

    async def scene():
        async with rollgate.AsyncClient(gateway.url) as client:
            async with await client.create_session() as s:
                await s.chat(USER)
            assert isinstance(s, rollgate.AsyncSession) and (await s.state())["phase"] == "completed"
            with pytest.raises(ZeroDivisionError):
                async with await client.create_session() as other:
                    1 / 0
            with pytest.raises(rollgate.Ended):
                await other.state()
            return len(await s.finalize())
    assert asyncio.run(scene()) == 1


class Sdk:
    def __init__(self, **options):
        self.options = options


def sdks(monkeypatch):
    for module, names in (("openai", ("OpenAI", "AsyncOpenAI")), ("anthropic", ("Anthropic", "AsyncAnthropic"))):
        members = {name: type(name, (Sdk,), {}) for name in names}
        monkeypatch.setitem(__import__("sys").modules, module, types.SimpleNamespace(**members))


def test_ready_clients_of_the_sdks(gateway, monkeypatch):
    """Their names and options are openai's and anthropic's: base_url, api_key, timeout, max_retries."""
    sdks(monkeypatch)
    with rollgate.Client(gateway.url) as client:
        s = client.create_session()
        ready = [s.openai(max_retries=7), s.anthropic()]
        assert [type(x).__name__ for x in ready] == ["OpenAI", "Anthropic"]
        assert ready[0].options == {"base_url": s.base_url, "api_key": s.api_key, "max_retries": 7}
        assert ready[1].options == {"base_url": s.anthropic_base_url, "api_key": s.api_key}

    async def scene():
        async with rollgate.AsyncClient(gateway.url) as client:
            made = await client.create_session()
            return [type(x).__name__ for x in (made.openai(), made.anthropic())]
    assert asyncio.run(scene()) == ["AsyncOpenAI", "AsyncAnthropic"]


def test_runners_have_ready_clients(start, monkeypatch):
    sdks(monkeypatch)
    seen = {}

    @runner("waits")
    def waits(task, session):
        seen["waits"] = session.openai(), session.anthropic()
        session.chat(USER)
        return 1.0

    @runner("awaits")
    async def awaits(task, session):
        seen["awaits"] = session.openai(), session.anthropic()
        await session.chat(USER)
        return 1.0
    gateway = start(workers=1)
    with Running(gateway, waits, awaits), rollgate.Client(gateway.url) as client:
        for name in ("waits", "awaits"):
            client.put_group(name, runner=name, input=1, n=1, queue=None)
            assert client.wait_group(name, 30)["state"] == "finished"
    assert [type(x).__name__ for name in ("waits", "awaits") for x in seen[name]] == ["OpenAI", "Anthropic", "AsyncOpenAI", "AsyncAnthropic"]
    assert all("/sessions/" in x.options["base_url"] and x.options["api_key"] for name in seen for x in seen[name])


def test_errors_have_parents_by_what_to_do(gateway):
    with rollgate.Client(gateway.url) as client:
        with pytest.raises(rollgate.NotFound) as e:
            client.session("w0-00000000000000000000000000000000")
        assert type(e.value) is errors.UnknownSession and e.value.code == "unknown_session" and e.value.request_id
        with pytest.raises(rollgate.NotFound):
            client.group("no-such-group")
        s = client.create_session()
        s.finalize()
        with pytest.raises(rollgate.Ended) as e:
            s.chat(USER)
        assert e.value.code == "session_ended" and e.value.request_id


def test_parents_are_what_the_table_of_errors_says():
    """err.def is the table of the gateway: what it marks for another try is Retryable, and its 410 is Ended."""
    import re
    text = (g.ROOT / "common/base/err.def").read_text()
    rows = re.findall(r'^X\(\w+, (\d+), "(\w+)", ([01]),', text.split("Never sent over HTTP")[0], re.M)
    assert len(rows) > 30
    for status, code, retry in rows:
        kind = errors.BY_CODE[code]
        assert issubclass(kind, rollgate.Retryable) == (retry == "1" or code == "request_timeout"), code
        assert issubclass(kind, rollgate.Ended) == (status == "410") and issubclass(kind, rollgate.NotFound) == (status == "404"), code
    assert issubclass(errors.Unreachable, rollgate.Retryable) and not {"", "unknown"} & set(errors.BY_CODE)
    new = errors.from_answer(503, {"x-should-retry": "true"}, b'{"error": {"code": "of_a_newer_gateway", "message": "m"}}')
    assert type(new) is rollgate.Retryable and new.code == "of_a_newer_gateway"


def test_retries_are_logged(caplog):
    caplog.set_level(logging.INFO, "rollgate")
    patience = retries.Patience(Call("GET", "/sessions/x"), 60)
    for _ in range(2):
        patience.pause(errors.Overloaded("busy", status=429, retry=True, request_id="r-1"))
    first, second = caplog.records
    assert first.levelname == "INFO" and second.levelname == "WARNING"
    assert "GET /sessions/x is sent again in" in first.message and "(try 2): 429 overloaded: busy [request r-1]" in first.message
    with pytest.raises(errors.InvalidRequest):
        patience.pause(errors.InvalidRequest("no", status=400))
    assert len(caplog.records) == 2

"""Cached tokens are those that the engine reports as computed before, for every kind and route, streamed or not; null
if it reports none."""
import json

import pytest

from stub_engines import StubEngine

ASK = {"messages": [{"role": "user", "content": "hi"}]}


def usage_of(answer, stream):
    if not stream:
        return answer.json()["usage"]
    frames = [line[6:] for line in answer.text.split("\n") if line.startswith("data: {")]
    return next(u for u in (json.loads(f).get("usage") for f in reversed(frames)) if u)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("kind,routes", [("sglang", ()), ("vllm", ("generate",)), ("vllm", ("completions",))], ids=["sglang", "vllm", "vllm-completions"])
def test_what_the_engine_says(start, kind, routes, stream):
    with StubEngine(kind, **({"routes": routes} if routes else {})) as engine:
        gateway = start(workers=1, engine=engine.setting)
        sid = gateway.post("/sessions", {}).json()["session_id"]
        messages = ASK["messages"]
        for cached in (0, 7):
            engine.plan.append({"ids": [*b"ok", 257], "cached": cached, "matched": None if kind == "vllm" else 257})
            a = gateway.post(f"/sessions/{sid}/v1/chat/completions",
                             {"messages": messages, "stream": stream, **({"stream_options": {"include_usage": True}} if stream else {})})
            assert a.status == 200, a.text
            usage = usage_of(a, stream)
            assert usage["prompt_tokens_details"]["cached_tokens"] == cached and usage["completion_tokens"] == 3
            messages = [*messages, {"role": "assistant", "content": "ok"}, {"role": "user", "content": "more"}]
        turns = gateway.get(f"/sessions/{sid}/trajectories").json()["trajectories"][0]["turns"]
        assert [t["cached_tokens"] for t in turns] == [0, 7] and turns[1]["reused_tokens"] > 7


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("route", ["generate", "completions"])
def test_a_vllm_that_says_nothing(start, route, stream):
    """As it is started by default: without --enable-prompt-tokens-details."""
    with StubEngine("vllm", routes=(route,)) as engine:
        gateway = start(workers=1, engine=engine.setting)
        sid = gateway.post("/sessions", {}).json()["session_id"]
        engine.plan.append({"ids": [*b"ok", 257], "matched": None})
        a = gateway.post(f"/sessions/{sid}/v1/chat/completions", {**ASK, "stream": stream, **({"stream_options": {"include_usage": True}} if stream else {})})
        assert a.status == 200 and usage_of(a, stream)["prompt_tokens_details"]["cached_tokens"] == 0
        assert gateway.get(f"/sessions/{sid}/trajectories").json()["trajectories"][0]["turns"][0]["cached_tokens"] is None


def test_of_several_answers_the_least(start):
    with StubEngine("sglang") as engine:
        gateway = start(workers=1, engine=engine.setting)
        sid = gateway.post("/sessions", {}).json()["session_id"]
        engine.plan.extend({"ids": [*b"ok", 257], "cached": n, "matched": 257} for n in (9, 4))
        a = gateway.post(f"/sessions/{sid}/v1/chat/completions", {**ASK, "n": 2})
        assert a.status == 200 and a.json()["usage"]["prompt_tokens_details"]["cached_tokens"] == 4, a.text

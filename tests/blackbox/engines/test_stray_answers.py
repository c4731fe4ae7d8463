"""A surplus answer on a kept connection of an engine, which precedes the right one. Its id shows that it belongs to a
different request. The affected call is sent again on a new connection."""
import pytest

import engine_kit
from gateway import pause, wait_until
from stub_engines import StubEngine
from test_engines import CHAT
from test_sglext import Sglext

STREAMS = [False, True]
WAYS = {"sglang": {}, "vllm": {}, "vllm-completions": {"routes": ("completions",)}, "llamacpp": {}, "vllm-chat": {}, "sglang-chat": {}, "sglext-chat": {}}


def again(raw):
    return raw


def asks(way):
    """How a driver is to be started on a stub of this way, and a call's own arguments."""
    if way.endswith("-chat"):
        return "openai", ",token-ids=" + way.split("-")[0], {"chat_body": CHAT}
    return way.split("-")[0], "", {}


def quiet(engine):
    """The small calls of the start are over, so one connection is used again and again."""
    wait_until(lambda: engine.probes and (engine.info_asked or engine.kind == "openai"), 10, "the first probe")
    pause(0.1, "their connections come back")


def strays(d):
    return sum("is for another request" in line for line in d.log)


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("way", WAYS)
def test_a_stray_answer_is_not_taken(way, stream):
    kind, options, more = asks(way)
    stub = Sglext if way == "sglext-chat" else StubEngine
    with stub(kind, **WAYS[way]) as engine, engine_kit.Driver(engine.setting + options) as d:
        def plan(body, **entry):
            if kind == "openai":
                return {"text": f"answer {len(engine.requests)}", "prompt_ids": [3, 1, 4], **entry}
            prompt = body.get("input_ids") or body.get("token_ids") or body["prompt"]
            return {"ids": [prompt[0], 7, 2], **entry}

        def text(e):
            messages = [x.get("message") or {} for x in e["deltas"]] + [m for c in e["openai"]["choices"] for m in c["messages"]]
            return "".join(m.get("content") or "" for m in messages)

        quiet(engine)
        engine.otherwise = lambda body: plan(body, stray=again)     # each answer comes twice
        for n in range(4):
            asked = len(engine.requests)
            e = d.call(prompt=[20 + n, 5], session=f"s{n}", stream=stream, **more)
            assert e["event"] == "done", e
            if kind == "openai":
                assert text(e) == f"answer {len(engine.requests)}"
            else:
                assert e["ids"] == [20 + n, 7, 2], e
            assert e["retries"] == (n > 0) and len(engine.requests) == asked + 1 + (n > 0)
        wait_until(lambda: strays(d) == 3, 5, "each is in the log")


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("kind", ["sglang", "vllm"])
def test_an_engine_that_returns_only_wrong_ids_is_refused(kind, stream):
    """Ids of ours, but of another session, though this engine has never returned the right one."""
    def wrong(docs):
        for doc in docs:
            if kind == "sglang":
                doc["meta_info"]["id"] = "other:3.0.0."
            else:
                doc["request_id"] = "generate-tokens-other:3.0.0."
        return docs
    with StubEngine(kind) as engine, engine_kit.Driver(engine) as d:
        engine.otherwise = lambda body: {"edit": wrong}
        e = d.call(stream=stream)
        assert (e["event"], e["code"], e["status"], e["retry"]) == ("failed", "engine_invalid", 502, True) and "another request" in e["text"], e
        assert len(engine.requests) == 3 and e.get("deltas") == []
        engine.otherwise = None
        assert d.call(stream=stream)["event"] == "done"


def test_a_wrong_id_behind_the_first_tokens_ends_the_call():
    def wrong(docs):
        docs[-1]["meta_info"]["id"] = "other:3.0.0."
        del docs[0]["meta_info"]["id"]
        return docs
    with StubEngine() as engine, engine_kit.Driver(engine) as d:
        engine.plan.append({"edit": wrong})
        e = d.call(stream=True)
        assert e["event"] == "failed" and e["code"] == "engine_invalid" and len(engine.requests) == 1, e


@pytest.mark.parametrize("kind", ["sglang", "vllm", "llamacpp"])
def test_ids_of_an_engine_s_own_are_no_strays(kind):
    """Older servers return an id of their own. One that returned ours is asked once more when it does so no longer."""
    def own(docs):
        for doc in docs:
            if kind == "sglang":
                doc["meta_info"]["id"] = "r"
            elif kind == "vllm":
                doc["request_id"] = "6b0f"
            else:
                doc["generation_settings"] = {"seed": 4294967295}
        return docs

    def none(docs):
        for doc in docs:
            for place, key in ((doc.get("meta_info"), "id"), (doc, "request_id"), (doc, "generation_settings")):
                if place:
                    place.pop(key, None)
        return docs
    with StubEngine(kind) as engine, engine_kit.Driver(engine) as d:
        engine.otherwise = lambda body: {"edit": own}
        assert [d.call()["event"] for _ in range(2)] == ["done"] * 2 and len(engine.requests) == 2
        if kind == "vllm":  # streams had the right one before other answers had it
            engine.otherwise = lambda body: {} if body["stream"] else {"edit": own}
            assert [d.call(stream=s)["retries"] for s in (True, False, True, False)] == [0] * 4
        engine.otherwise = None
        assert d.call()["retries"] == 0
        engine.otherwise = lambda body: {"edit": none}
        assert d.call()["retries"] == 0
        engine.otherwise = lambda body: {"edit": own}
        assert [d.call()["retries"] for _ in range(3)] == [1, 0, 0]
        assert strays(d) == 1


def test_sessions_whose_names_end_alike_are_told_apart():
    with StubEngine() as engine, engine_kit.Driver(engine) as d:
        quiet(engine)
        engine.otherwise = lambda body: {"ids": [body["input_ids"][0], 2]}
        assert d.call(prompt=[5], session="a", call=1)["ids"] == [5, 2]
        engine.otherwise = lambda body: {"ids": [body["input_ids"][0], 2], "stray": again}
        assert d.call(prompt=[6], session="x-a", call=1)["ids"] == [6, 2]
        e = d.call(prompt=[7], session="a", call=1)
        assert (e["ids"], e["retries"]) == ([7, 2], 1), e


def test_a_stray_answer_about_a_logprob_is_not_taken():
    """Questions about left out logprobs look alike: all force the same token."""
    with StubEngine("llamacpp") as engine, engine_kit.Driver(engine) as d:
        engine.speculative = True
        engine.plan.append({"ids": [97, 98, 99, 100]})
        right = d.call(prompt=[1, 2])
        quiet(engine)
        engine.plan.append({"ids": [97, 98, 99, 100], "stray": again})
        e = d.call(prompt=[1, 2])
        assert (e["event"], e["logprobs"], e["scored"]) == ("done", right["logprobs"], 3), e
        wait_until(lambda: strays(d) == 1, 5, "it is in the log")


@pytest.mark.parametrize("stream", STREAMS)
def test_a_stray_answer_gets_into_no_session(start, stream):
    with StubEngine() as engine:
        engine.otherwise = lambda body: {"ids": [*(b"secret" if b"ALPHA" in bytes(t for t in body["input_ids"] if t < 256) else b"fine"), 257],
                                         "matched": 257, "stray": again}
        gateway = start(workers=1, engine=engine.setting)
        gateway.allow("is for another request")
        for name in ("ALPHA", "BETA", "GAMMA"):
            sid = gateway.post("/sessions", {}).json()["session_id"]
            a = gateway.post(f"/sessions/{sid}/v1/chat/completions", {"messages": [{"role": "user", "content": name}], "stream": stream})
            assert a.status == 200 and ("secret" in a.text.replace('"},"', "")) == (name == "ALPHA") or stream, a.text
            t = gateway.get(f"/sessions/{sid}/trajectories").json()["trajectories"]
            assert len(t) == 1 and bytes(t[0]["response_ids"][:-1]) == (b"secret" if name == "ALPHA" else b"fine"), t

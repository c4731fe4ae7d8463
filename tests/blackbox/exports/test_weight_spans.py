"""Spans of weight versions in vLLM's answers (October 2026): always in /inference/v1/generate, on request in
completions and chat."""
import threading

import pytest

import engine_kit
import export_readers
from asides_engine import AsidesEngine
from gateway import wait_until
from stub_engines import StubEngine
from test_engines import CHAT, WEIGHTS, check, fails, tells_weights

STREAMS = [False, True]
SPANS = [{"version": "v7", "start": 0, "end": 3}, {"version": "v8", "start": 3, "end": 4}]
READ = [["v7", 0, 3], ["v8", 3, 4]]


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("route", ["generate", "completions"])
def test_spans_of_vllm_are_read(route, stream):
    """A stream's last chunk has them, and the usage behind it takes nothing away."""
    with StubEngine("vllm", routes=(route,)) as engine, engine_kit.Driver(engine) as d:
        engine.plan.append({"versions": SPANS})
        assert check(d.call(stream=stream))["versions"] == READ
        assert ("return_weight_versions" in engine.requests[-1]["body"]) == (route == "completions")
        assert check(d.call(stream=stream))["versions"] == []       # an older server
        fails(d, engine, "engine_invalid", plan={"versions": SPANS[1:]}, stream=stream)
        fails(d, engine, "engine_invalid", plan={"versions": SPANS[:1]}, stream=stream)
        fails(d, engine, "engine_invalid", plan={"versions": [{"version": "v7", "start": 0}]}, stream=stream)
        d.tell(op="version", version="v8")                          # the trainer's word is for what the engine has no version of
        engine.plan.append({"versions": [{"version": "default", "start": 0, "end": 4}]})
        assert check(d.call(stream=stream))["versions"] == [["v8", 0, 4]]
        engine.plan.append({"versions": SPANS})
        assert check(d.call(stream=stream))["versions"] == READ


@pytest.mark.parametrize("stream", STREAMS)
def test_an_engine_with_spans_is_not_asked_around_its_calls(stream):
    with AsidesEngine("vllm", asides={WEIGHTS: {"weight_version": "v8"}}) as engine:
        with engine_kit.Driver(engine, health_interval=50) as d:
            tells_weights(d)
            engine.plan.extend([{"versions": SPANS}] * 4)
            for _ in range(4):
                assert check(d.call(stream=stream))["versions"] == READ
            assert engine.count(WEIGHTS) <= 2                       # at the start, and beside the first call
            d.call(stream=stream)                                   # an answer without them: another server behind the same address
            assert check(d.call(stream=stream))["versions"] == [["v8", 0, 4]]


def test_pieces_of_an_aborted_answer_keep_their_spans():
    """An abort before the first token has an empty list."""
    with StubEngine("vllm") as engine, engine_kit.Driver(engine) as d:
        engine.plan.extend([{"ids": [], "finish": "abort", "versions": []},
                            {"ids": [9, 8], "finish": "abort", "versions": [{"version": "v7", "start": 0, "end": 2}]},
                            {"ids": [7, 6, 5], "versions": [{"version": "v7", "start": 0, "end": 1}, {"version": "v8", "start": 1, "end": 3}]}])
        e = d.call()
        assert (e["ids"], e["versions"]) == ([9, 8, 7, 6, 5], [["v7", 0, 3], ["v8", 3, 5]]), e


@pytest.mark.parametrize("stream", STREAMS)
def test_spans_of_a_chat_upstream(stream):
    with StubEngine("openai") as engine:
        with engine_kit.Driver(engine.setting + ",token-ids=vllm") as d:
            engine.plan.append({"versions": SPANS})
            e = d.call(chat_body=CHAT, stream=stream)
            assert e["event"] == "done" and e["versions"] == READ, e
            assert engine.requests[-1]["body"]["return_weight_versions"] is True
        with engine_kit.Driver(engine) as d:        # an upstream that was not asked for ids: its spans belong to no token of ours
            assert d.call(chat_body=CHAT, stream=stream)["event"] == "done"
            assert "return_weight_versions" not in engine.requests[-1]["body"]
            engine.plan.append({"edit": lambda docs: [{**x, "metadata": {"weight_version": "8", "weight_versions": SPANS}} for x in docs]})
            e = d.call(chat_body=CHAT, stream=stream)
            assert e["event"] == "done" and e["versions"] == [], e


@pytest.mark.parametrize("told_by", ["vllm", "sglext"])
def test_spans_of_a_chat_upstream_that_come_apart_from_ids(told_by):
    """Spans hold for the tokens that came with them, or that follow at once (sglext). Later tokens have none; too few are refused."""
    def with_spans(spans, at):
        """In the at-th event, and no other."""
        where = "weight_versions" if told_by == "vllm" else "sglext"

        def edit(docs):
            i = at if at >= 0 else len(docs) + at
            doc = docs[i]
            if told_by == "vllm":
                doc = {**doc, "choices": [{**doc["choices"][0], where: spans}]}
            else:
                doc = {**doc, where: {**doc.get(where, {}), "weight_version": spans[-1]["version"], "weight_versions": spans}}
            return docs[:i] + [doc] + docs[i + 1:]
        return edit
    with StubEngine("openai") as engine, engine_kit.Driver(engine.setting + f",token-ids={told_by}") as d:
        if told_by == "vllm":
            engine.plan.append({"edit": with_spans([{"version": "v7", "start": 0, "end": 1}], 1), "ids": [9, 8, 7]})
            e = d.call(chat_body=CHAT, stream=True)
            assert e["event"] == "done" and (e["ids"], e["versions"]) == ([9, 8, 7], []), e
            engine.plan.append({"edit": with_spans([{"version": "v7", "start": 0, "end": 2}], -2), "ids": [9, 8, 7]})
            e = d.call(chat_body=CHAT, stream=True)
            assert e["event"] == "failed" and "do not fit" in e["text"], e
            return
        ids = {"sglext": {"input_ids": [3, 1, 4], "output_ids": [[9, 8, 7]]}}
        for at in (-2, -1):         # with the finish reason, in an event before the ids; next to them

            def edit(docs, at=at):
                docs = [{**x, "choices": [{**c, "logprobs": {"content": [{"token": "t", "logprob": -1.0, "top_logprobs": []}] if i in (1, 2, 3) else []}} for c in x["choices"]]} for i, x in enumerate(docs)]
                docs[-1] = {**docs[-1], "usage": {"prompt_tokens": 3, "completion_tokens": 3}, **ids}
                return with_spans([{"version": "v7", "start": 0, "end": 2}, {"version": "v8", "start": 2, "end": 3}], at)(docs)
            engine.plan.append({"edit": edit})
            e = d.call(chat_body=CHAT, stream=True)
            assert e["event"] == "done" and (e["ids"], e["versions"]) == ([9, 8, 7], [["v7", 0, 2], ["v8", 2, 3]]), e


@pytest.mark.parametrize("known", [True, False])
def test_a_vllm_outside_its_developers_mode_is_told_of_aborts(known):
    """/inference/v1/abort_requests is where /inference/v1/generate is. A server without it is not asked again."""
    path = "/inference/v1/abort_requests"
    with AsidesEngine("vllm", asides={path: b""} if known else {}) as engine, engine_kit.Driver(engine) as d:
        check(d.call())     # the route is known
        for n in (1, 2):
            engine.plan.append({"wait": threading.Event()})
            call = d.start()
            wait_until(lambda: engine.running == 1, 5, "the request")
            asked = engine.requests[-1]["body"]
            d.tell(op="cancel", id=call)
            wait_until(lambda: engine.left == n, 5, "the closed connection")
            if known:
                wait_until(lambda: engine.count(path) == n, 5, "the word")
                assert engine.asked[-1] == (path, {"request_ids": ["generate-tokens-" + asked["request_id"]]})
            check(d.call())
        assert known or engine.missing.count(path) == 1


@pytest.mark.parametrize("returned", ["s:2.0.0.", "generate-tokens-0b1c"])
def test_an_abort_names_the_id_that_the_engine_returned(returned):
    """The Rust front puts nothing in front of ours; a router may send a header with an id of its own."""
    path = "/inference/v1/abort_requests"

    def bare(docs):
        return [{**doc, "request_id": returned} for doc in docs]
    with AsidesEngine("vllm", asides={path: b""}) as engine, engine_kit.Driver(engine) as d:
        engine.plan.extend([{"edit": lambda docs: [{**doc, "request_id": "6b0f"} for doc in docs]}, {"edit": bare, "ids": list(range(100)), "chunk": 1, "gap_s": 0.05}])
        check(d.call(stream=True))
        call = d.start(stream=True)
        d.event("delta", id=call)
        d.tell(op="cancel", id=call)
        wait_until(lambda: engine.count(path) == 1, 5, "the word")
        assert engine.asked[-1] == (path, {"request_ids": [returned]}) and engine.requests[-1]["body"]["request_id"] == "s:2.0.0."


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("plan", [{"version": "v\ud800"}, {"version": "v", "versions": [{"version": "v\ud800", "start": 0, "end": 3}]}], ids=["one", "spans"])
def test_half_a_character_of_a_version_breaks_no_export(start, plan, stream):
    with StubEngine("sglang") as engine:
        gateway = start(engine=engine.setting, workers=1)
        sid = gateway.post("/sessions", {}).json()["session_id"]
        engine.plan.append({"ids": [104, 105, 257], "matched": 257, **plan})
        assert gateway.post(f"/sessions/{sid}/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "stream": stream}).status == 200
        whole = export_readers.read_msgpack(gateway.get(f"/sessions/{sid}/trajectories?format=msgpack").body)
        assert [v["version"] for v in whole["trajectories"][0]["turns"][0]["weight_versions"]] == ["v\ufffd"]

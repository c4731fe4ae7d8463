"""Answers that prove that an engine ignores a field of a request are refused (502), and the field is in `lacks`. A
stop string must end in the last token. Tokens that speculative decoding sampled after it in the same step are cut and
reported."""
import base64
import json
import struct
import threading

import pytest

import gateway as g
from gateway import wait_until
from odds_engine import OddsEngine
from stub_engines import StubEngine
from test_odds import cells, f32, session, trajectory_of

USER = [{"role": "user", "content": "hi"}]
END = 257
HIDDEN = [*b"one STOP two"]
SHOWN = [*b"one STOP"]
KINDS = {
    "sglang": ("sglang", {}),
    "sglang-incremental": ("sglang", {"incremental": True}),
    "vllm": ("vllm", {}),
    "vllm-names": ("vllm", {"form": "names"}),
    "vllm-completions": ("vllm", {"routes": ("completions",)}),
}
IGNORES = "an engine ignores fields of requests"

every_kind = pytest.mark.parametrize("name", KINDS)
both = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


def every_field(fields):
    """Each kind with each field that it has."""
    return pytest.mark.parametrize("name,field", [(name, field) for name in KINDS for field in fields
                                                  if not (field == "allowed_token_ids" and "sglang" in name)])


def made(name, **more):
    kind, how = KINDS[name]
    return StubEngine(kind, **how, **more)


def chat(gateway, sid, stream=False, **more):
    return gateway.post(f"/sessions/{sid}/v1/chat/completions", {"messages": USER, "stream": stream, **more})


def lacks(gateway):
    return gateway.get("/admin/engines").json()["engines"][0]["lacks"]


def turns(gateway, sid):
    return len([n for n in gateway.get(f"/sessions/{sid}").json()["tree"]["nodes"] if n["generated"]])


def warning(gateway, sid):
    return gateway.get(f"/sessions/{sid}").json()["tree"]["nodes"][-1].get("parse_warning") or ""


def refused(gateway, engine, field, plan, stream=False, **request):
    """The call fails so, nothing of it is recorded, and the next one works."""
    sid = session(gateway)
    engine.plan.append(plan)
    a = chat(gateway, sid, stream, **request)
    assert f"ignored {field}" in a.text and "engine_invalid" in a.text, a.text
    assert a.status == 502 or stream and '"finish_reason":"' not in a.text
    assert "two" not in a.text and turns(gateway, sid) == 0
    assert field in lacks(gateway)
    engine.plan.append({"ids": [*b"ok", END], "matched": END})
    assert chat(gateway, sid, stream).status == 200
    assert trajectory_of(gateway, sid)["response_ids"] == [*b"ok", END]


@both
@every_kind
def test_a_stop_string_that_is_ignored(start, name, stream):
    with made(name) as engine:
        gateway = start(workers=1, engine=engine.setting, engine_retries=0)
        for finish, ids in (("length", HIDDEN), ("stop", [*HIDDEN, END]), ("stop", [*SHOWN, END]), ("length", [*SHOWN, *b" " * 80])):
            refused(gateway, engine, "stop", {"ids": ids, "finish": finish, "matched": END}, stream, stop=["STOP"])
        assert gateway.log().count(IGNORES) == 1 and "fields=stop" in gateway.log()


@both
@every_kind
def test_a_stop_string_in_the_last_token(start, name, stream):
    with made(name) as engine:
        gateway = start(workers=1, engine=engine.setting)
        for ids, finish in ((SHOWN, "stop"), (SHOWN, "length"), ([*b"STOP"], "stop")):
            sid = session(gateway)
            engine.plan.append({"ids": ids, "finish": finish, "matched": "STOP", "chunk": 1})
            a = chat(gateway, sid, stream, stop=["never", "STOP"])
            assert a.status == 200 and "STOP" not in a.text, a.text
            t = trajectory_of(gateway, sid)
            assert t["response_ids"] == ids and not warning(gateway, sid)
        assert lacks(gateway).count("stop") == 0


def test_a_stop_string_that_the_tokens_do_not_hold(start):
    """The engine leaves out its tokens, or names something else. A special token that is also a stop string holds it."""
    with made("sglang") as engine:
        gateway = start(workers=1, engine=engine.setting)
        for ids, matched, warned in ((b"one ", "STOP", '"STOP"'), (b"one ", "ST.P" * 20, "a text of 80 bytes"), ([*b"one ", END], "<|im_end|>", None),
                                     ([*b"one ", 256], "<|im_start|>", None)):
            sid = session(gateway)
            engine.plan.append({"ids": [*ids], "matched": matched})
            assert chat(gateway, sid, stop=["STOP", "<|im_end|>", "<|im_start|>"]).status == 200
            assert trajectory_of(gateway, sid)["response_ids"] == [*ids]
            told = warning(gateway, sid)
            assert f"{warned} ended the answer, and its tokens do not hold that text" in told if warned else "do not hold" not in told, told


@both
@every_kind
def test_what_the_last_step_sampled_after_a_stop_string_is_cut(start, name, stream):
    """The engine names the string, or says that it stopped where no stop id is."""
    with made(name) as engine:
        gateway = start(workers=1, engine=engine.setting)
        sid = session(gateway)
        engine.plan.append({"ids": HIDDEN, "matched": "STOP", "chunk": 6})
        a = chat(gateway, sid, stream, stop=["STOP"], logprobs=not stream)
        assert a.status == 200 and "two" not in a.text and '"finish_reason":"stop"' in a.text, a.text
        if not stream:
            assert len(a.json()["choices"][0]["logprobs"]["content"]) == len(SHOWN)
            assert a.json()["usage"]["completion_tokens"] == len(SHOWN)
        t = trajectory_of(gateway, sid)
        assert t["response_ids"] == SHOWN and len(t["response_logprobs"]) == len(SHOWN)
        assert "4 tokens after the stop string cut" in warning(gateway, sid)
        assert "tokens after a stop string were cut" in gateway.log() and "stop" not in lacks(gateway)
        # The next prompt goes on from what is recorded.
        engine.plan.append({"ids": [*b"ok", END], "matched": END})
        again = [*USER, {"role": "assistant", "content": "one "}, {"role": "user", "content": "go on"}]
        assert gateway.post(f"/sessions/{sid}/v1/chat/completions", {"messages": again}).status == 200
        body = engine.requests[-1]["body"]
        prompt = body.get("input_ids") or body.get("token_ids") or body["prompt"]
        assert bytes(i for i in prompt if i < 256).count(b"STOP") == 1 and b"two" not in bytes(i for i in prompt if i < 256)


def test_all_that_belongs_to_the_cut_tokens_goes_with_them(start, tmp_path):
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        (tmp_path / name).write_bytes((g.MODELS / "chatml-bytes" / name).read_bytes())
    layers, topk, spans = 2, 2, [{"version": "1", "start": 0, "end": 6}, {"version": "2", "start": 6, "end": 10}, {"version": "3", "start": 10, "end": 12}]
    (tmp_path / "config.json").write_text(json.dumps({"num_hidden_layers": layers, "num_experts_per_tok": topk}))
    with OddsEngine("sglang") as engine:
        gateway = start(workers=1, engine=engine.setting, routed_experts="on", model=str(tmp_path))
        sid = session(gateway, sampling_support=True, top_logprobs=2)

        def experts(body):
            rows = len(body["input_ids"]) + len(HIDDEN) - 1
            return struct.pack(f"<{rows * layers * topk}i", *[r for r in range(rows) for _ in range(layers * topk)])
        engine.plan.append({"ids": HIDDEN, "matched": "STOP", "versions": spans, "experts": experts})
        assert chat(gateway, sid, stop=["STOP"]).status == 200
        t = trajectory_of(gateway, sid)
        n, prompt = len(SHOWN), len(engine.requests[0]["body"]["input_ids"])
        assert t["response_ids"] == SHOWN
        assert [v["version"] for v in t["turns"][0]["weight_versions"]] == ["1", "2"]
        assert t["turns"][0]["weight_versions"][-1]["end"] == n
        rows, lps = engine.support({}, HIDDEN)
        assert cells(t, "response_support_counts") == [len(r) for r in rows[:n]]
        assert cells(t, "response_support_ids") == [i for r in rows[:n] for i in r]
        assert cells(t, "response_support_logprobs") == f32([p for r in lps[:n] for p in r])
        assert cells(t, "response_top_ids") == [[i, i + 1] for i in SHOWN]
        assert len(base64.b64decode(t["routed_experts"])) == 4 * layers * topk * (prompt + n - 1)


@both
def test_a_step_at_the_limit(start, stream):
    """SGLang says length where a step reaches it, whatever else is in the step; its counts say that it speculates."""
    def speculates(docs):
        for d in docs:
            d["meta_info"].update(spec_verify_ct=3, spec_accept_length=4.0)
        return docs
    with StubEngine("sglang") as engine:
        gateway = start(workers=1, engine=engine.setting)
        sid = session(gateway)
        engine.plan.append({"ids": HIDDEN, "finish": "length", "edit": speculates})
        assert chat(gateway, sid, stream, stop=["STOP"]).status == 200
        t = trajectory_of(gateway, sid)
        assert t["response_ids"] == SHOWN and t["turns"][0]["finish_reason"] == "stop"
    with StubEngine("vllm") as engine:
        gateway = start(workers=1, engine=engine.setting)
        sid = session(gateway)
        engine.plan.append({"ids": [*HIDDEN, END], "matched": END, "edit": lambda docs: [
            {**d, "metrics": {"speculative_decoding": {"num_drafts": 3}}} for d in docs]})
        assert chat(gateway, sid, stream, stop=["STOP"]).status == 200
        assert trajectory_of(gateway, sid)["response_ids"] == SHOWN


@both
@every_kind
def test_stop_strings_within_min_tokens_are_text(start, name, stream):
    with made(name) as engine:
        gateway = start(workers=1, engine=engine.setting)
        sid = session(gateway)
        engine.plan.append({"ids": [*b"STOP one STOPSTOP"[:13]], "matched": "STOP", "chunk": 1})
        a = chat(gateway, sid, stream, stop=["STOP"], min_tokens=5)
        assert a.status == 200, a.text
        t = trajectory_of(gateway, sid)
        assert t["response_ids"] == [*b"STOP one STOP"] and not warning(gateway, sid)
        assert t["messages"][-1]["content"] == "STOP one "
        # One that ends the answer within them is the engine's rule, as SGLang's is.
        sid = session(gateway)
        engine.plan.append({"ids": [*b"aSTOP"], "matched": "STOP", "chunk": 1})
        assert chat(gateway, sid, stream, stop=["STOP"], min_tokens=9).status == 200
        t = trajectory_of(gateway, sid)
        assert t["response_ids"] == [*b"aSTOP"] and t["messages"][-1]["content"] == "a"


@both
def test_a_stop_string_that_begins_in_an_earlier_piece(start, stream):
    """An engine looks for it in what it samples itself: what follows is cut, for it could not know."""
    with StubEngine("sglang") as engine:
        gateway = start(workers=1, engine=engine.setting)
        sid = session(gateway)
        engine.plan.append({"ids": [*b"one ST"], "finish": "abort"})
        engine.plan.append({"ids": [*b"OP two", END], "matched": END})
        assert chat(gateway, sid, stream, stop=["STOP"]).status == 200
        t = trajectory_of(gateway, sid)
        assert t["response_ids"] == SHOWN and "cut" in warning(gateway, sid) and "stop" not in lacks(gateway)
        engine.plan.append({"ids": [*b"on"], "finish": "abort"})
        refused(gateway, engine, "stop", {"ids": [*b"e STOP two", END], "matched": END}, stream, stop=["STOP"])


BROKEN = {
    "min_tokens": ({"ids": [*b"one", END], "matched": END}, {"min_tokens": 6}),
    "allowed_token_ids": ({"ids": [*b"abc", END], "matched": END}, {"allowed_token_ids": [97, 98, END]}),
    "logit_bias": ({"ids": [*b"abc", END], "matched": END}, {"logit_bias": {"98": -100, "97": 100}}),
    "stop_token_ids": ({"ids": [*b"abc", END], "matched": END}, {"stop_token_ids": [98]}),
    "ignore_eos": ({"ids": [*b"abc", END], "matched": END}, {"ignore_eos": True}),
}


@pytest.mark.cases(23)
@both
@every_field(BROKEN)
def test_other_fields_that_are_ignored(start, name, field, stream):
    plan, request = BROKEN[field]
    with made(name) as engine:
        gateway = start(workers=1, engine=engine.setting, engine_retries=0)
        refused(gateway, engine, field, plan, stream, **request)


KEPT = {
    "max_tokens": ({"ids": [*b"one "], "finish": "length"}, {"max_tokens": 4}),
    "min_tokens": ({"ids": [*b"one", END], "matched": END}, {"min_tokens": 3}),
    "allowed_token_ids": ({"ids": [*b"abab", END], "matched": END}, {"allowed_token_ids": [97, 98, END]}),
    "logit_bias": ({"ids": [*b"abc", END], "matched": END}, {"logit_bias": {"98": -99, "100": -100, "97": 100}}),
    "stop_token_ids": ({"ids": [*b"ab"], "matched": 98}, {"stop_token_ids": [98]}),
    "ignore_eos": ({"ids": [*b"abc", END, *b"d"], "finish": "length"}, {"ignore_eos": True}),
}


@pytest.mark.cases(28)
@both
@every_field(KEPT)
def test_other_fields_that_are_obeyed(start, name, field, stream):
    plan, request = KEPT[field]
    with made(name) as engine:
        gateway = start(workers=1, engine=engine.setting)
        sid = session(gateway)
        engine.plan.append(plan)
        a = chat(gateway, sid, stream, **request)
        assert a.status == 200 and '"error"' not in a.text, a.text
        assert trajectory_of(gateway, sid)["response_ids"] == plan["ids"] and field not in lacks(gateway)


@both
@every_kind
def test_an_engine_goes_on_after_the_model_s_own_end(start, name, stream):
    with made(name) as engine:
        gateway = start(workers=1, engine=engine.setting, engine_retries=0)
        refused(gateway, engine, "stop_token_ids", {"ids": [*b"one", END, *b"more"], "finish": "length"}, stream)


def test_llama_server_knows_ends_of_its_own(start):
    """It has no field for stop ids, so what its model's file does not list is no end."""
    with StubEngine("llamacpp") as engine:
        gateway = start(workers=1, engine=engine.setting)
        sid = session(gateway)
        engine.plan.append({"ids": [*b"one", END, *b"more", END]})
        assert chat(gateway, sid).status == 200
        assert trajectory_of(gateway, sid)["response_ids"] == [*b"one", END, *b"more", END]


@both
def test_a_stream_past_its_stop_string_is_cancelled(start, stream):
    """The call fails as soon as that is certain, and the engine is not left to sample for nobody."""
    with StubEngine("vllm") as engine:
        gateway = start(workers=1, engine=engine.setting, engine_retries=0)
        engine.plan.append({"ids": [*SHOWN, *b"x" * 400], "finish": "length", "chunk": 8, "hold_after": 20, **({} if stream else {"delay_s": 0})})
        engine.give_up = threading.Event() if stream else None
        a = chat(gateway, session(gateway), stream, stop=["STOP"])
        assert "ignored stop" in a.text, a.text
        if stream:
            wait_until(lambda: engine.left == 1, 10, "the engine to be left")
        engine.give_up = None


@both
@every_kind
def test_alternatives_that_are_ignored(start, name, stream):
    """The answer stands; the engine is named."""
    def without(docs):
        for d in docs:
            for c in d.get("choices", []):
                for e in (c.get("logprobs") or {}).get("content", []):
                    e["top_logprobs"] = []
                if "text" in c:
                    c["logprobs"]["top_logprobs"] = None
            d.get("meta_info", {}).pop("output_top_logprobs", None)
        return docs
    with made(name) as engine:
        gateway = start(workers=1, engine=engine.setting)
        sid = session(gateway, top_logprobs=2)
        engine.plan.append({"ids": [*b"ok", END], "matched": END, "edit": without})
        assert chat(gateway, sid, stream).status == 200
        assert "top_logprobs" in lacks(gateway)
        engine.plan.append({"ids": [*b"ok", END], "matched": END})
        assert chat(gateway, session(gateway, top_logprobs=2), stream).status == 200


def test_a_limit_that_is_ignored(start):
    """More tokens than asked for hide nothing: the answer stands, the engine is named."""
    with StubEngine("vllm") as engine:
        gateway = start(workers=1, engine=engine.setting)
        sid = session(gateway)
        engine.plan.append({"ids": [*b"one two", END], "matched": END})
        assert chat(gateway, sid, max_tokens=4).status == 200
        assert trajectory_of(gateway, sid)["response_ids"] == [*b"one two", END] and lacks(gateway) == ["max_tokens"]


def test_a_format_that_is_ignored(start):
    """Its tokens hide nothing: the answer stands, with a warning."""
    with StubEngine("sglang") as engine:
        gateway = start(workers=1, engine=engine.setting)
        for text, warned in (("sure!", True), ('{"a": 1}', False)):
            sid = session(gateway)
            engine.plan.append({"ids": [*text.encode(), END], "matched": END})
            assert chat(gateway, sid, response_format={"type": "json_object"}).status == 200
            assert ("response_format demands JSON" in warning(gateway, sid)) == warned
        assert "response_format" in lacks(gateway)


@both
@pytest.mark.parametrize("told", ["vllm", "sglang"])
def test_an_upstream_that_ignores_a_stop_string(start, told, stream):
    """Its ids are trained, so the same holds of its text."""
    with StubEngine("openai") as engine:
        gateway = start(workers=1, engine=engine.setting + f",token-ids={told}")
        for text, good in (("one STOP two", False), ("one ", True), ("one STOP", True)):
            sid = session(gateway)
            engine.plan.append({"ids": [*text.encode(), END], "text": text, "matched": "STOP"})
            a = chat(gateway, sid, stream, stop=["STOP"])
            assert (a.status == 200 and '"error"' not in a.text) == good, (text, a.text)
            assert good or "ignored stop" in a.text and turns(gateway, sid) == 0
        assert "stop" in lacks(gateway)


# --- upstreams that return no ids ---

def said(text="", finish="stop", calls=(), usage=3, pieces=None, **choice):
    """A plan: a whole answer, or its stream in pieces of text."""
    message = {"role": "assistant", "content": text, **({"tool_calls": [{"id": f"c{i}", "type": "function", "function": {"name": n, "arguments": "{}"}} for i, n in enumerate(calls)]} if calls else {})}
    counts = {"usage": {"prompt_tokens": 5, "completion_tokens": usage, "total_tokens": 5 + usage}} if usage is not None else {}

    def edit(docs):
        if docs[0].get("object") == "chat.completion":
            return [{"choices": [{"index": 0, "message": message, "finish_reason": finish, **choice}], **counts}]
        deltas = [{"content": p} for p in (pieces or [text])] + [{"tool_calls": [{"index": i, **c}]} for i, c in enumerate(message.get("tool_calls", []))]
        return [{"choices": [{"index": 0, "delta": d, "finish_reason": None}]} for d in deltas] + [{"choices": [{"index": 0, "delta": {}, "finish_reason": finish, **choice}]}, {"choices": [], **counts}]
    return {"edit": edit}


PLAIN = {
    "chat/completions": lambda **more: {"messages": USER, **more},
    "messages": lambda stop=None, **more: {"model": "m", "max_tokens": 90, "messages": USER, **({"stop_sequences": stop} if stop else {}), **more},
    "responses": lambda **more: {"model": "m", "input": "hi", **more},
}
OVERRUN = {
    "in one piece": said("one STOP two"),
    "its end in the next": said("one STOP two", pieces=["one ST", "OP two"]),
    "behind the string": said("one STOP two", pieces=["one STOP", " two"]),
    "by length": said("one STOP two", "length"),
    "twice": said("STOPSTOP", pieces=["STOP", "STOP"]),
    "a call behind it": said("one STOP", "tool_calls", ["f"]),
}


@pytest.mark.cases(18)
@both
@pytest.mark.parametrize("dialect", PLAIN)
@pytest.mark.parametrize("what", OVERRUN)
def test_a_text_that_goes_on_after_its_stop_string(start, what, dialect, stream):
    """As with ids: nothing that follows is sent, nothing is recorded, and the upstream is named. A stream ends at once."""
    with StubEngine("openai") as engine:
        gateway = start(workers=1, engine=engine.setting, engine_retries=0)
        gateway.allow(".*")
        sid = session(gateway)
        engine.plan.append(OVERRUN[what])
        body = PLAIN[dialect](stop=["never", "STOP"], stream=stream)
        a = gateway.post(f"/sessions/{sid}/v1/{dialect}", body)
        assert "ignored stop" in a.text and ("engine_invalid" in a.text or dialect == "messages"), a.text
        assert a.status == 502 or stream and ("one" in a.text or what == "twice")
        assert "two" not in a.text and "STOPSTOP" not in a.text and '"c0"' not in a.text and turns(gateway, sid) == 0
        assert lacks(gateway) == ["stop"]


@both
@pytest.mark.parametrize("dialect", PLAIN)
def test_a_text_that_ends_before_or_with_its_stop_string(start, dialect, stream):
    with StubEngine("openai") as engine:
        gateway = start(workers=1, engine=engine.setting)
        for plan in (said("one "), said("one STOP"), said("one STOP", pieces=["one S", "TOP"]), said("one STO two", pieces=["one STO", " two"]), said("", "tool_calls", ["f"])):
            sid = session(gateway)
            engine.plan.append(plan)
            a = gateway.post(f"/sessions/{sid}/v1/{dialect}", PLAIN[dialect](stop=["STOP"], stream=stream))
            assert a.status == 200 and "ignored" not in a.text and turns(gateway, sid) == 1, a.text
        # Within min_tokens it is text, and where they end shows in ids alone.
        sid = session(gateway, sampling_params={"min_tokens": 3})
        engine.plan.append(said("one STOP two"))
        assert "two" in gateway.post(f"/sessions/{sid}/v1/{dialect}", PLAIN[dialect](stop=["STOP"], stream=stream)).text
        assert lacks(gateway) == []


TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
OTHER = {"type": "function", "function": {"name": "g", "parameters": {"type": "object"}}}
PICK = {"type": "function", "function": {"name": "f"}}
# name -> (field, answer that ignores it, one that does not, the request)
FIELDS = {
    "max_tokens": ("max_tokens", said("one", usage=7), said("one", "length", usage=4), {"max_tokens": 4}),
    "max_completion_tokens": ("max_tokens", said("one", usage=7), said("one", "length", usage=None), {"max_completion_tokens": 4}),
    "a format": ("response_format", said("sure!"), said('{"a": 1}'), {"response_format": {"type": "json_object"}}),
    "a schema": ("response_format", said("sure!"), said('{"a": 1}'), {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}}}),
    "a call is demanded": ("tool_choice", said("one"), said("", "tool_calls", ["f"]), {"tools": [TOOL], "tool_choice": "required"}),
    "a call is demanded, cut": ("tool_choice", said("one"), said("one", "length"), {"tools": [TOOL], "tool_choice": "required"}),
    "no call": ("tool_choice", said("", "tool_calls", ["f"]), said("one"), {"tools": [TOOL], "tool_choice": "none"}),
    "one tool": ("tool_choice", said("", "tool_calls", ["g"]), said("", "tool_calls", ["f"]), {"tools": [TOOL, OTHER], "tool_choice": PICK}),
    "one call": ("parallel_tool_calls", said("", "tool_calls", ["f", "g"]), said("", "tool_calls", ["f"]), {"tools": [TOOL, OTHER], "parallel_tool_calls": False}),
    "logprobs": ("logprobs", said("one"), said("one", logprobs={"content": [{"token": "one", "logprob": -1.0, "top_logprobs": []}]}), {"logprobs": True}),
    "top_logprobs": ("top_logprobs", said("one", logprobs={"content": [{"token": "one", "logprob": -1.0}]}),
                     said("one", logprobs={"content": [{"token": "one", "logprob": -1.0, "top_logprobs": [{"token": "x", "logprob": -2.0}]}]}), {"logprobs": True, "top_logprobs": 1}),
}


@pytest.mark.cases(11)
@both
@pytest.mark.parametrize("what", FIELDS)
def test_fields_that_an_upstream_without_ids_ignores(start, what, stream):
    """Its answer hides nothing: it stays, and the upstream is named."""
    field, ignores, obeys, request = FIELDS[what]
    with StubEngine("openai") as engine:
        gateway = start(workers=1, engine=engine.setting)
        gateway.allow(IGNORES)
        engine.plan.append(obeys)
        assert chat(gateway, session(gateway), stream, **request).status == 200 and lacks(gateway) == []
        sid = session(gateway)
        engine.plan.append(ignores)
        assert chat(gateway, sid, stream, **request).status == 200
        assert lacks(gateway) == [field] and turns(gateway, sid) == 1
        assert warning(gateway, sid) or field == "max_tokens"


@both
def test_fewer_tokens_than_an_upstream_was_asked_for(start, stream):
    """Its usage says so."""
    with StubEngine("openai") as engine:
        gateway = start(workers=1, engine=engine.setting, engine_retries=0)
        gateway.allow(".*")
        for usage, good in ((6, True), (None, True), (5, False)):
            engine.plan.append(said("one", usage=usage))
            a = chat(gateway, session(gateway), stream, min_tokens=6)
            assert ("ignored min_tokens" not in a.text and a.status == 200) == good, a.text
        assert lacks(gateway) == ["min_tokens"]


def test_a_stream_that_passes_its_stop_string_names_the_engine(start):
    """The call ends before the answer does, and the engine is named all the same."""
    with StubEngine("sglang") as engine:
        gateway = start(workers=1, engine=engine.setting, engine_retries=0)
        gateway.allow(".*")
        engine.plan.append({"ids": [*SHOWN, *b" " * 200], "finish": "length", "chunk": 20})
        a = chat(gateway, session(gateway), True, stop=["STOP"])
        assert "ignored stop" in a.text and lacks(gateway) == ["stop"], a.text

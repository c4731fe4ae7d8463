"""The engine pool with stub engines: requests, answers, and every way in which engines misbehave. Each fault ends as
spec/engines.md says, and the next call works."""
import base64
import struct
import threading

import pytest

import engine_kit
from asides_engine import AsidesEngine
from gateway import pause, stays, wait_until
from stub_engines import DEFAULT, StubEngine, logprob

pytestmark = pytest.mark.skipif(not engine_kit.PROGRAM.exists(), reason=f"{engine_kit.PROGRAM} is not built")

KINDS = ["sglang", "vllm", "llamacpp"]
STREAMS = [False, True]


def f32(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def check(e, plan=None):
    """The call ended well, with what the engine said."""
    plan = {**DEFAULT, **(plan or {})}
    assert e["event"] == "done", e
    assert e["ids"] == plan["ids"]
    assert e["logprobs"] == [f32(logprob(j, t)) for j, t in enumerate(plan["ids"])]
    if e["deltas"]:
        assert [t for d in e["deltas"] for t in d["ids"]] == plan["ids"]
        assert [p for d in e["deltas"] for p in d["logprobs"]] == e["logprobs"]
    return e


def fails(d, engine, code, status=None, plans=1, plan=None, **call):
    """The call fails so; the next one works."""
    for _ in range(plans):
        engine.plan.append(plan)
    e = d.call(**call)
    assert e["event"] == "failed", e
    assert e["code"] == code, e
    if status:
        assert e["status"] == status, e
    check(d.call(**call))
    return e


# --- good answers ---

@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("kind", KINDS)
def test_answers(kind, stream):
    with StubEngine(kind) as engine, engine_kit.Driver(engine) as d:
        e = check(d.call(stream=stream, prompt=[5, 6, 7]))
        assert e["finish"] == "stop"
        if stream and kind != "llamacpp":
            assert len(e["deltas"]) == 2
        engine.plan.append({"ids": [9, 8, 7], "finish": "length"})
        e = check(d.call(stream=stream), {"ids": [9, 8, 7]})
        assert e["finish"] == "length" and e["stop_id"] == -1
        assert engine.connections <= 2  # one for the calls, one for the probe


def test_sglang_request():
    with StubEngine() as engine, engine_kit.Driver(engine) as d:
        d.call(prompt=[5, 6, 7], session="abc", call=12, temperature=0.5, top_p=0.9, top_k=20, min_p=0.1, max_tokens=77,
               stop=["\n\n"], seed=3,
               stop_token_ids=[99], logit_bias={"5": 1.5}, presence_penalty=0.25, frequency_penalty=0.5, repetition_penalty=1.25,
               response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}})
        r = engine.requests[0]
        assert r["headers"]["x-smg-routing-key"] == "abc"
        assert r["body"] == {
            "rid": "abc:12.0.0.", "input_ids": [5, 6, 7], "return_logprob": True, "logprob_start_len": -1, "top_logprobs_num": 0,
            "return_text_in_logprobs": False, "stream": False,
            "sampling_params": {"max_new_tokens": 77, "temperature": 0.5, "top_p": 0.9, "top_k": 20, "min_p": 0.1,
                                "presence_penalty": 0.25,
                                "frequency_penalty": 0.5, "repetition_penalty": 1.25, "ignore_eos": False,
                                "skip_special_tokens": False, "stop": ["\n\n"],
                                "stop_token_ids": [99], "sampling_seed": 3, "logit_bias": {"5": 1.5},
                                "json_schema": '{"type":"object"}'}}


def test_every_parameter_is_explicit():
    for kind, where, names in (("sglang", "sampling_params", {"max_new_tokens", "temperature", "top_p", "top_k", "min_p"}),
                               ("vllm", "sampling_params", {"max_tokens", "temperature", "top_p", "top_k", "min_p"}),
                               ("llamacpp", None, {"n_predict", "temperature", "top_p", "top_k", "min_p", "typical_p",
                                                   "samplers", "cache_prompt"})):
        with StubEngine(kind) as engine, engine_kit.Driver(engine) as d:
            d.call()
            body = engine.requests[0]["body"]
            assert names <= set(body[where] if where else body)


def test_stop_kinds():
    with StubEngine() as engine, engine_kit.Driver(engine) as d:
        e = d.call()
        assert (e["finish"], e["stop_id"], e["stop_text"]) == ("stop", 2, None)
        engine.plan.append({"matched": "\n\nUser:"})
        e = d.call()
        assert (e["finish"], e["stop_id"], e["stop_text"]) == ("stop_string", -1, "\n\nUser:")
        engine.plan.append({"matched": None, "ids": []})
        e = d.call()
        assert (e["event"], e["finish"], e["ids"], e["logprobs"]) == ("done", "stop", [], [])
        assert fails(d, engine, "engine_invalid", plan={"matched": "NaN happened"})


@pytest.mark.parametrize("incremental", [False, True])
@pytest.mark.parametrize("split", [0, 1, 7])
def test_streams_however_cut(incremental, split):
    ids = list(range(10, 60))
    with StubEngine(incremental=incremental) as engine, engine_kit.Driver(engine) as d:
        for chunk, coalesce in ((1, False), (3, True), (50, False)):
            engine.plan.append({"ids": ids, "chunk": chunk, "split": split if chunk > 1 else split and 7, "coalesce": coalesce})
            e = check(d.call(stream=True), {"ids": ids})
            assert not coalesce or split or len(e["deltas"]) == 17
        engine.plan.append({"ids": ids, "chunk": 7})
        e = d.call(stream=True, top=2)
        assert [t for t, _ in e["top"]] == [t + a for t in ids for a in (0, 1)]
        assert [p for _, p in e["top"]] == [f32(logprob(j, t) - a) for j, t in enumerate(ids) for a in (0, 1)]


@pytest.mark.parametrize("split", [1, 7])
@pytest.mark.parametrize("kind", KINDS)
def test_bodies_however_cut(kind, split):
    with StubEngine(kind) as engine, engine_kit.Driver(engine) as d:
        engine.plan.append({"split": split})
        check(d.call())


REPEATING = [[7, 7, 8, 9], [7, 7, 7, 7, 7], [7, 8, 7, 8, 9, 2], [7, 8, 9, 7, 8, 9, 2]]


@pytest.mark.parametrize("ids", REPEATING)
@pytest.mark.parametrize("routes", [("generate",), ("completions",)])
def test_vllm_streams_are_incremental_however_tokens_repeat(ids, routes):
    """An event that begins as the answer does repeats nothing: these streams never do."""
    with StubEngine("vllm", routes=routes) as engine, engine_kit.Driver(engine) as d:
        for chunk in (1, 2, 3):
            engine.plan.append({"ids": ids, "chunk": chunk})
            check(d.call(stream=True), {"ids": ids})


def test_usage_of_a_vllm_stream_counts_its_tokens():
    """It comes after the last token, in an event of its own."""
    def count(docs):
        docs[-1]["usage"]["completion_tokens"] += 1
        return docs
    with StubEngine("vllm") as engine, engine_kit.Driver(engine) as d:
        fails(d, engine, "engine_invalid", plan={"edit": count}, stream=True)


def test_huge_body():
    ids = [i % 150000 for i in range(40000)]
    with StubEngine() as engine, engine_kit.Driver(engine) as d:
        engine.plan.append({"ids": ids, "pad": 50_000_000})
        check(d.call(max_tokens=40000, timeout=60), {"ids": ids})


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("kind", KINDS)
def test_top_logprobs(kind, stream):
    with StubEngine(kind) as engine, engine_kit.Driver(engine) as d:
        e = check(d.call(stream=stream, top=3))
        ids = DEFAULT["ids"]
        assert len(e["top"]) == 3 * len(ids)
        for j, t in enumerate(ids):
            assert sorted(i for i, _ in e["top"][3 * j:3 * j + 3]) == [t, t + 1, t + 2]


@pytest.mark.parametrize("stream", STREAMS)
def test_the_best_alternatives_stay_where_the_sampled_token_is_one_more(stream):
    """Completions of vLLM list the sampled token first, and the best ones after it."""
    def edit(docs):
        for choice in (c for x in docs for c in x["choices"]):
            tops = (choice.get("logprobs") or {}).get("top_logprobs") or []
            tops[:] = [{next(iter(t)): -5.0, "token_id:90": -0.5, "token_id:91": -1.0} for t in tops]
        return docs
    with StubEngine("vllm", routes=("completions",)) as engine, engine_kit.Driver(engine) as d:
        engine.plan.append({"edit": edit})
        e = check(d.call(stream=stream, top=2))
        assert [tuple(t) for t in e["top"]] == [(90, -0.5), (91, -1.0)] * len(DEFAULT["ids"]), e["top"]


# --- weight versions ---

def test_versions():
    spans = [{"version": "17", "start": 0, "end": 3}, {"version": "18", "start": 3, "end": 4}]
    with StubEngine() as engine, engine_kit.Driver(engine) as d:
        engine.plan.append({"version": "18"})
        assert d.call()["versions"] == [["18", 0, 4]]
        for stream in STREAMS:
            engine.plan.append({"version": "18", "versions": spans})
            assert d.call(stream=stream)["versions"] == [["17", 0, 3], ["18", 3, 4]]
        fails(d, engine, "engine_invalid", plan={"versions": spans[1:]})
        fails(d, engine, "engine_invalid", plan={"versions": spans[:1]})


def test_versions_told_by_the_trainer():
    with StubEngine("vllm") as engine, engine_kit.Driver(engine) as d:
        assert d.call()["versions"] == []
        d.tell(op="version", version="3")
        assert d.call()["versions"] == [["3", 0, 4]]
        engine.plan.append({"chunk": 1, "gap_s": 0.2})
        call = d.start(stream=True)
        d.event("delta", id=call)
        d.tell(op="version", version="4")
        e = d.end(call)
        assert e["versions"][0][:2] == ["3", 0] and e["versions"][-1][0] == "4" and e["versions"][-1][2] == 4
        assert e["versions"][0][2] == e["versions"][1][1]


def tells_weights(d):
    wait_until(lambda: any("tells the version of its weights" in line for line in d.log), 10, "its version")


WEIGHTS = "/weight_info"


@pytest.mark.parametrize("stream", STREAMS)
def test_versions_that_vllm_tells_beside_its_answers(stream):
    with AsidesEngine("vllm", asides={WEIGHTS: {"weight_version": "5"}}) as engine:
        with engine_kit.Driver(engine, health_interval=50) as d:
            tells_weights(d)
            e = check(d.call(stream=stream))
            assert e["versions"] == [["5", 0, 4]] and engine.count(WEIGHTS) == 3
            engine.aside_delay = 0.2                     # the answer is faster
            assert check(d.call(stream=stream))["versions"] == [["5", 0, 4]]
            engine.aside_delay = 0
            held = threading.Event()
            engine.plan.append({"wait": held})
            call = d.start(stream=stream)
            wait_until(lambda: engine.count(WEIGHTS) == 6, 10, "the first question")
            engine.asides[WEIGHTS] = {"weight_version": "6"}  # while it runs: nobody knows for which tokens
            held.set()
            assert check(d.end(call))["versions"] == []
            wait_until(lambda: any("weight version is not known" in line and "before=5" in line for line in d.log), 5, "the word")
            assert check(d.call(stream=stream))["versions"] == [["6", 0, 4]]
            d.tell(op="version", version="3")              # the engine knows better
            assert check(d.call(stream=stream))["versions"] == [["6", 0, 4]]
            engine.asides[WEIGHTS] = {"weight_version": "default"}  # nobody has told it
            assert check(d.call(stream=stream))["versions"] == [["3", 0, 4]]


@pytest.mark.parametrize("before, after, versions", [
    ("5", "6", []),              # the trainer told 5 long ago: not for all of this answer
    ("5", None, [["5", 0, 4]]),  # both said 5
    ("4", None, []), ("default", "6", []), ("6", "5", []), ("5", "default", [["5", 0, 4]]),
])
def test_an_old_word_of_the_trainer_is_not_for_weights_that_changed(before, after, versions):
    with AsidesEngine("vllm", asides={WEIGHTS: {"weight_version": before}}) as engine:
        with engine_kit.Driver(engine, health_interval=50) as d:
            tells_weights(d)
            d.tell(op="version", version="5")
            held = threading.Event()
            engine.plan.append({"wait": held})
            call = d.start()
            wait_until(lambda: engine.count(WEIGHTS) == 2, 10, "the first question")
            engine.asides = {WEIGHTS: {"weight_version": after}} if after else {}
            held.set()
            assert check(d.end(call))["versions"] == versions


def test_an_engine_that_tells_another_version_than_the_trainer_is_named():
    with StubEngine() as engine, engine_kit.Driver(engine) as d:
        d.tell(op="version", version="8")
        for version, words in (("7", 1), ("7", 1), ("8", 1), ("7", 2)):
            engine.plan.append({"version": version})
            assert check(d.call())["versions"] == [[version, 0, 4]]
            wait_until(lambda: sum("another version of its weights" in line for line in d.log) >= words, 5, "the word")
            assert sum("another version of its weights" in line for line in d.log) == words


def test_a_version_question_without_answer_keeps_nothing_up():
    with AsidesEngine("vllm", asides={WEIGHTS: {"weight_version": "5"}}) as engine:
        with engine_kit.Driver(engine, health_interval=50) as d:
            tells_weights(d)
            engine.asides = {}                             # 404 from now on
            assert check(d.call())["versions"] == []
            engine.asides, engine.aside_delay = {WEIGHTS: {"weight_version": "5"}}, 30
            call = d.start()
            wait_until(lambda: engine.count(WEIGHTS) == 2, 10, "the question")
            d.tell(op="cancel", id=call)
            engine.aside_delay = 0
            assert check(d.call())["versions"] == [["5", 0, 4]]


@pytest.mark.parametrize("incremental", [False, True])
@pytest.mark.parametrize("key", ["incremental_streaming_output", "stream_output"])
def test_the_stream_mode_is_as_the_server_says(incremental, key):
    """Without counts, repeated tokens look alike in both modes: only /server_info tells them apart."""
    info = {key: incremental, "version": "0.5"}
    with StubEngine(incremental=incremental, info=info) as engine, engine_kit.Driver(engine, health_interval=50) as d:
        wait_until(lambda: any("engine told its settings" in line for line in d.log), 5, "its settings")
        for ids in ([7, 7, 7, 7], [7, 7, 7, 8, 7, 7]):
            plan = {"ids": ids, "logprobs": [-0.5] * len(ids), "drop": {"completion_tokens"}}
            engine.plan.append(plan)
            e = d.call(stream=True)
            assert e["event"] == "done" and e["ids"] == ids, e
        wait_until(lambda: engine.probes > 5, 5, "more probes")
        assert engine.info_asked == 1


def test_counts_overrule_the_server_info():
    with StubEngine(incremental=True, info={"incremental_streaming_output": False}) as engine, engine_kit.Driver(engine) as d:
        wait_until(lambda: any("engine told its settings" in line for line in d.log), 5, "its settings")
        check(d.call(stream=True))


@pytest.mark.parametrize("info", [None, {}, [1], {"incremental_streaming_output": "yes", "context_length": -1}], ids=str)
def test_server_info_that_says_nothing(info):
    with StubEngine(info=info) as engine, engine_kit.Driver(engine, health_interval=50) as d:
        wait_until(lambda: engine.probes > 3, 5, "probes")
        check(d.call(stream=True))
        assert engine.info_asked == 1 and not any("told its settings" in line for line in d.log)


# --- faults of the answer ---

@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("plan", [
    {"lp_extra": 2}, {"lp_extra": -1}, {"lp_null": True}, {"lp_ids_wrong": True}, {"drop": {"logprobs"}},
    {"drop": {"ids"}}, {"drop": {"finish"}},
    {"count_wrong": True}, {"prompt_tokens": 99}, {"truncate": True}, {"type": "text/html"}, {"cut": "close"}, {"cut": "reset"},
    {"ids": [1, 60000, 2]}, {"logprobs": [-0.5, 3.25, -0.1, -0.2]},
], ids=str)
def test_invalid_answers(plan, stream):
    with StubEngine() as engine, engine_kit.Driver(engine, vocab=50000) as d:
        e = fails(d, engine, "engine_invalid", 502, plan=plan, stream=stream)
        assert e["retry"]
        assert len(engine.requests) == 2  # not repeated
        wait_until(lambda: any("engine call failed" in line for line in d.log), 5, "a log line")


@pytest.mark.parametrize("kind,plan", [("vllm", {"lp_extra": -1}), ("vllm", {"drop": {"logprobs"}}), ("vllm", {"drop": {"ids"}}),
                                       ("vllm", {"drop": {"finish"}}),
                                       ("vllm", {"lp_null": True}), ("vllm", {"logprobs": [21.5, 18.0, 3.25, 9.0]}), ("vllm", {"cut": "close"}), ("vllm", {"truncate": True}),
                                       ("llamacpp", {"drop": {"logprobs"}}), ("llamacpp", {"drop": {"ids"}}),
                                       ("llamacpp", {"prompt_tokens": 99}),
                                       ("llamacpp", {"truncated": True}), ("llamacpp", {"truncated": True, "finish": "length", "held": 2}),
                                       ("llamacpp", {"cut": "reset"})], ids=str)
def test_invalid_answers_of_others(kind, plan):
    with StubEngine(kind) as engine, engine_kit.Driver(engine) as d:
        fails(d, engine, "engine_invalid", 502, plan=plan)


@pytest.mark.parametrize("kind", ["sglang", "vllm"])
def test_logits_are_no_logprobs(kind):
    """A vLLM of --logprobs-mode raw_logits or processed_logits answers with logits in the same fields. What a sum's rounding lifts is a logprob."""
    with StubEngine(kind) as engine, engine_kit.Driver(engine) as d:
        e = fails(d, engine, "engine_invalid", 502, plan={"logprobs": [-0.5, -3.0, 0.02, -0.2]})
        assert "above 0" in e["text"], e
        engine.plan.append({"logprobs": [-0.5, 0.0, 1e-6, -0.2]})
        assert d.call()["event"] == "done"


LEAST = -3.4028234663852886e38  # llama.cpp's for -inf


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("none", [-9999.0, LEAST])
def test_what_an_engine_writes_for_no_logprob_is_none(kind, none):
    """A token that was sampled had a probability: -9999 (vLLM, whose NaN it is, too) and the least float are no logprobs."""
    with StubEngine(kind) as engine, engine_kit.Driver(engine) as d:
        engine.old = True  # llama-server: of the logits, which are told as logarithms
        e = fails(d, engine, "engine_invalid", 502, plan={"logprobs": [-0.5, none, -0.1, -0.2]})
        assert "for none" in e["text"], e
        engine.plan.append({"logprobs": [-0.5, -9998.5, -0.1, -0.2]})
        assert d.call()["event"] == "done"


@pytest.mark.parametrize("how", ["one entry", "two entries", "alternatives"])
def test_llamacpp_values_of_two_forms_are_refused(how):
    """One answer has one basis: probabilities after sampling beside logprobs of the logits are no form that is known."""
    def both(docs):
        first, second = docs[0]["completion_probabilities"][:2]
        if how == "one entry":
            first["logprob"] = -0.5
        elif how == "two entries":
            second["logprob"] = -0.5
            del second["prob"]
        else:
            first["top_logprobs"] = [{"id": 1, "token": "x", "bytes": [120], "logprob": -0.5}]
        return docs
    with StubEngine("llamacpp") as engine, engine_kit.Driver(engine) as d:
        e = fails(d, engine, "engine_invalid", 502, plan={"edit": both})
        assert "both probabilities and logprobs" in e["text"], e


def test_stream_faults():
    with StubEngine() as engine, engine_kit.Driver(engine) as d:
        fails(d, engine, "engine_invalid", plan={"shrink": True, "chunk": 1}, stream=True)
        fails(d, engine, "engine_invalid", plan={"garbage": True}, stream=True)
        fails(d, engine, "engine_invalid", 502,
              plan={"error_event": {"error": {"message": "boom", "type": "internal", "code": 500}}}, stream=True)
        e = fails(d, engine, "engine_unavailable", 503,
                  plan={"error_event": {"error": {"message": "full", "code": 503}}}, stream=True)
        assert "full" not in e["text"]  # may hold an exception: for the log only
        engine.plan.append({"drop": {"done"}})
        check(d.call(stream=True))
        engine.plan.append({"cut": "close", "cut_at": 0.995})  # inside [DONE], behind the last token
        check(d.call(stream=True))
        engine.plan.append({"cut": "stall", "cut_at": 0.995})
        check(d.call(stream=True))


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("plan", [
    {"status": 500},                                     # before anything of an answer
    {"status": 500, "cut": "close", "cut_at": 0.8},      # its own head, and half of its reason
    {"status": 500, "cut": "reset", "cut_at": 0.8},
    {"late_500": True},                                  # behind the head of a good answer
], ids=str)
def test_500_before_and_after_headers(plan, stream):
    with StubEngine() as engine, engine_kit.Driver(engine) as d:
        e = fails(d, engine, "engine_invalid", 502, plan=plan, stream=stream)
        assert e["retry"] and len(engine.requests) == 2  # not repeated


def test_silence():
    with StubEngine() as engine, engine_kit.Driver(engine, idle_timeout=300, timeout=1500) as d:
        fails(d, engine, "engine_timeout", 504, plan={"cut": "stall", "cut_at": 0.6}, stream=True)
        fails(d, engine, "engine_timeout", 504, plan={"delay_s": 30}, stream=True)
        fails(d, engine, "engine_timeout", 504, plan={"delay_s": 30})  # the total time
        wait_until(lambda: len(engine.aborts) == 3, 5, "abort calls")


# --- refusals ---

def test_refusals():
    with StubEngine() as engine, engine_kit.Driver(engine) as d:
        e = fails(d, engine, "engine_refused", 400, plan={"status": 400, "body": {"error": {"message": "bad top_p"}}})
        assert "bad top_p" in e["text"] and not e["retry"]
        fails(d, engine, "engine_refused", 422, plan={"status": 422})
        e = fails(d, engine, "context_length_exceeded", 400, plan={
            "status": 400,
            "body": {"error": {"message": "The input (40000 tokens) is longer than the model's context length (32768 tokens)."}}})
        fails(d, engine, "overloaded", 429, plan={"status": 429})
        e = fails(d, engine, "engine_invalid", 502, plan={"status": 500, "body": {"detail": "Traceback /srv/x.py"}})
        assert "/srv" not in e["text"]
        fails(d, engine, "engine_unavailable", 503,
              plan={"status": 503, "body": {"object": "error", "message": "The request queue is full."}})
        fails(d, engine, "engine_invalid", 502, plan={"status": 401})
        fails(d, engine, "engine_invalid", 502, plan={
            "status": 400, "body": {"error": {"message": "Out of range float values are not JSON compliant: nan", "code": 400}}})
        fails(d, engine, "engine_unavailable", 503, plan={"finish": "abort", "abort_status": 503, "message": "queue full"})
        fails(d, engine, "engine_refused", 400, plan={"finish": "abort", "abort_status": 400, "message": "bad"}, stream=True)


def test_retries():
    with StubEngine() as engine, engine_kit.Driver(engine) as d:
        for how in ("close", "reset"):
            engine.requests.clear()
            engine.plan.extend([{"before": how}] * 2)
            e = check(d.call(call=5))
            assert e["retries"] == 2
            assert [r["body"]["rid"] for r in engine.requests] == ["s:5.0.0.", "s:5.0.1.", "s:5.0.2."]
        fails(d, engine, "engine_unavailable", 503, plans=3, plan={"before": "close"})
        assert d.state()["ready"]


def test_retries_after_5xx_when_asked_for():
    with StubEngine() as engine, engine_kit.Driver(engine, retry_5xx=True) as d:
        engine.plan.extend([{"status": 503}, {"status": 500}])
        assert check(d.call())["retries"] == 2


@pytest.mark.parametrize("kind", KINDS)
def test_cut_answers_are_repeated_when_asked_for(kind):
    """As a 5xx is; but not once something of the answer was told."""
    with StubEngine(kind) as engine, engine_kit.Driver(engine, retry_5xx=True) as d:
        for fault in ({"cut": "close"}, {"cut": "reset"}, {"truncate": True}):
            engine.plan.append(fault)
            assert check(d.call())["retries"] == 1
        if kind != "llamacpp":
            engine.plan.append({"cut": "close", "cut_at": 0.6, "chunk": 1})
            e = d.call(stream=True)
            assert e["code"] == "engine_invalid" and e["deltas"]
        engine.plan.append({"lp_null": True})
        assert d.call()["code"] == "engine_invalid"  # a whole answer that is wrong


def test_duplicate_rid_is_asked_anew():
    with StubEngine() as engine, engine_kit.Driver(engine) as d:
        engine.plan.append({"status": 400, "body": {"error": {"message": "Duplicate request ID detected: s:1.0.0."}}})
        check(d.call())
        assert [r["body"]["rid"] for r in engine.requests] == ["s:1.0.0.", "s:1.0.1."]


# --- cancellation ---

@pytest.mark.parametrize("stream", STREAMS)
def test_cancel(stream):
    with StubEngine() as engine, engine_kit.Driver(engine) as d:
        engine.plan.append({"ids": list(range(100)), "chunk": 1, "gap_s": 0.05} if stream else {"delay_s": 30})
        call = d.start(stream=stream)
        wait_until(lambda: engine.requests, 5, "the request")
        if stream:
            d.event("delta", id=call)
        d.tell(op="cancel", id=call)
        wait_until(lambda: engine.left == 1 and engine.aborts == ["s:1.0.0."], 5, "abort")
        assert d.state()["inflight"] == 0
        check(d.call(stream=stream))


@pytest.mark.parametrize("route, dev", [("generate", True), ("generate", False), ("completions", True)])
def test_a_vllm_in_its_developers_mode_is_told_by_name(route, dev):
    """Something between us and it may not pass the closing of a connection on. One without that mode has no such route."""
    told = {"/abort_requests": {"status": "aborted", "aborted": 1}}
    with AsidesEngine("vllm", routes=(route,), asides={**told, **({"/weight_info": {"weight_version": "1"}} if dev else {})}) as engine:
        with engine_kit.Driver(engine, health_interval=50) as d:
            if dev:
                wait_until(lambda: any("tells the version of its weights" in line for line in d.log), 10, "its version")
            check(d.call())     # the route is known
            engine.plan.append({"delay_s": 30})
            call = d.start()
            wait_until(lambda: len(engine.requests) == 2, 5, "the request")
            asked = engine.requests[-1]["body"]
            d.tell(op="cancel", id=call)
            wait_until(lambda: engine.left == 1, 5, "the closed connection")
            if route == "generate" and dev:
                wait_until(lambda: engine.count("/abort_requests") == 1, 5, "the word")
                assert ("/abort_requests", {"request_ids": ["generate-tokens-" + asked["request_id"]]}) in engine.asked
            check(d.call())
            assert engine.count("/abort_requests") == (route == "generate" and dev)


def test_cancel_while_waiting():
    with StubEngine() as engine, engine_kit.Driver(engine, max_inflight=1) as d:
        go = threading.Event()
        engine.plan.append({"wait": go})
        first, second = d.start(), d.start()
        wait_until(lambda: engine.requests, 5, "the request")
        d.tell(op="cancel", id=second)
        go.set()
        check(d.end(first))
        assert len(engine.requests) == 1


# --- engine-side aborts ---

@pytest.mark.parametrize("incremental", [False, True])
@pytest.mark.parametrize("stream", STREAMS)
def test_aborts_are_spliced(stream, incremental):
    with StubEngine(incremental=incremental) as engine, engine_kit.Driver(engine) as d:
        engine.plan.extend([
            {"ids": [10, 11, 12], "finish": "abort", "version": "1"},
            {"ids": [], "finish": "abort", "version": "1", "message": "Abort in waiting queue", "drop": {"prompt_tokens"}},
            {"ids": [13, 14, 15, 16, 2], "version": "2"}])
        e = d.call(stream=stream, prompt=[1, 2, 3], max_tokens=50, top=2)
        assert e["event"] == "done" and e["resumes"] == 2 and e["finish"] == "stop"
        assert e["ids"] == [10, 11, 12, 13, 14, 15, 16, 2]
        assert e["logprobs"] == [f32(logprob(j, t)) for ids in ([10, 11, 12], [13, 14, 15, 16, 2]) for j, t in enumerate(ids)]
        assert e["versions"] == [["1", 0, 3], ["2", 3, 8]]
        assert [t for t, _ in e["top"]] == [t + a for t in e["ids"] for a in (0, 1)]
        if stream:
            assert [t for x in e["deltas"] for t in x["ids"]] == e["ids"]
        bodies = [r["body"] for r in engine.requests]
        assert [b["input_ids"] for b in bodies] == [[1, 2, 3], [1, 2, 3, 10, 11, 12], [1, 2, 3, 10, 11, 12]]
        assert [b["sampling_params"]["max_new_tokens"] for b in bodies] == [50, 47, 47]
        assert len({b["rid"] for b in bodies}) == 3


@pytest.mark.parametrize("first, second, starts, rows", [
    (("block", 5, 100), ("block", 2, 500), [0, 5, 5], [(5, 100), (2, 500)]),         # 3 ids of the prompt and 3 more, then 2
    (("block", 5, 100), ("block", 7, 500), [0, 5, 5], [(5, 100), (2, 530)]),         # an engine that does not know where to start
    (None, ("block", 7, 500), [0, 0, 0], [(7, 500)]),                                # the first piece has none
    (("block", 4, 100), ("block", 7, 500), [0, 0, 0], [(7, 500)])])                  # or a part of them
def test_pieces_of_an_aborted_answer_keep_their_own_experts(first, second, starts, rows):
    """What the engine computes anew of tokens that it had sampled, with other weights maybe, is not how they were sampled."""
    with StubEngine() as engine, engine_kit.Driver(engine, routed_experts=True) as d:
        made = lambda x: {"experts": block(x[1], x[2])} if x else {}
        engine.plan.append({"experts": block(6)})
        check(d.call())     # the size of a row is known
        engine.plan.extend([{"ids": [10, 11, 12], "finish": "abort", **made(first)}, {"ids": [], "finish": "abort"},
                            {"ids": [13, 2], **made(second)}])
        e = d.call(prompt=[1, 2, 3])
        assert e["event"] == "done" and e["ids"] == [10, 11, 12, 13, 2], e
        assert [r["body"]["routed_experts_start_len"] for r in engine.requests[1:]] == starts
        assert base64.b64decode(e["experts"]) == b"".join(block(n, base) for n, base in rows) and (e["experts_from"], e["experts_rows"]) == (0, 7)
        engine.plan.append({"experts": block(6)})
        check(d.call())


@pytest.mark.parametrize("told, pieces, versions", [
    (None, ("", "7"), [["", 0, 2], ["7", 2, 4]]), (None, ("", ""), []),
    ("3", ("", "default"), [["3", 0, 4]]),           # no piece has one: the trainer's holds
    ("7", ("", "7"), [["7", 0, 4]]), ("7", ("7", ""), [["7", 0, 4]]),
    ("6", ("", "7"), [["", 0, 2], ["7", 2, 4]]),     # the trainer's is an old one
    ("6", ("7", ""), [["7", 0, 2], ["", 2, 4]])])
@pytest.mark.parametrize("stream", STREAMS)
def test_a_piece_without_a_version(stream, told, pieces, versions):
    """What the trainer told holds where no piece says otherwise; what nobody knows takes nothing from the others."""
    with StubEngine() as engine, engine_kit.Driver(engine) as d:
        if told:
            d.tell(op="version", version=told)
        engine.plan.extend([{"ids": [10, 11], "finish": "abort", "version": pieces[0]}, {"ids": [12, 2], "version": pieces[1]}])
        e = d.call(stream=stream)
        assert (e["event"], e["ids"], e["versions"]) == ("done", [10, 11, 12, 2], versions)


def test_aborts_under_a_grammar_are_not_spliced():
    """The engine would begin the grammar anew in the middle of the answer."""
    grammar = {"type": "ebnf", "ebnf": 'root ::= "x"'}
    with StubEngine() as engine, engine_kit.Driver(engine) as d:
        engine.plan.extend([{"ids": [10, 11], "finish": "abort", "version": "1"}, {"ids": [], "finish": "abort"},
                            {"ids": [12, 2], "version": "2"}])
        e = d.call(prompt=[1, 2, 3], max_tokens=50, response_format=grammar)
        assert (e["event"], e["ids"], e["resumes"], e["versions"]) == ("done", [12, 2], 2, [["2", 0, 2]])
        assert [r["body"]["input_ids"] for r in engine.requests] == [[1, 2, 3]] * 3
        assert [r["body"]["sampling_params"]["max_new_tokens"] for r in engine.requests] == [50] * 3
        engine.plan.append({"ids": [10, 11], "finish": "abort"})
        e = d.call(stream=True, response_format=grammar)
        assert (e["event"], e["code"]) == ("failed", "engine_unavailable")


def test_aborts_that_bring_tokens_may_go_on_for_long():
    """The timeout is one request's; only aborts that bring nothing are given up after it."""
    with StubEngine() as engine, engine_kit.Driver(engine, timeout=2000) as d:
        engine.plan.extend([{"ids": [10 + i], "finish": "abort", "delay_s": 0.5} for i in range(5)] + [{"ids": [20, 2]}])
        assert d.call()["ids"] == [10, 11, 12, 13, 14, 20, 2]
        engine.plan.extend([{"ids": [], "finish": "abort", "delay_s": 0.1}] * 40)
        assert d.call()["code"] == "engine_timeout"
        engine.plan.clear()
        check(d.call())


def test_an_abort_at_the_budget_is_the_end():
    with StubEngine() as engine, engine_kit.Driver(engine) as d:
        engine.plan.append({"ids": [10, 11, 12], "finish": "abort"})
        e = d.call(max_tokens=3)
        assert (e["finish"], e["ids"], e["resumes"]) == ("length", [10, 11, 12], 0)


def test_aborts_fail_when_asked_to():
    with StubEngine() as engine, engine_kit.Driver(engine, resume_aborts=False) as d:
        fails(d, engine, "engine_unavailable", 503, plan={"finish": "abort"})


@pytest.mark.parametrize("way", ["alone", "merged"])
@pytest.mark.parametrize("incremental", [False, True])
def test_abort_of_a_waiting_stream_sends_its_last_id_again(incremental, way):
    """Its spans of versions cover tokens that did not come."""
    with StubEngine(incremental=incremental) as engine, engine_kit.Driver(engine) as d:
        for ids in ([10], [10, 11, 12, 13], [7, 7, 7]):
            n, asked = len(ids), len(engine.requests)
            kept = ids if n == 1 or incremental or way == "alone" else ids[:-1]
            engine.plan.extend([{"ids": ids, "chunk": 1, "finish": "abort", "waiting": way, "versions": [{"version": "1", "start": 0, "end": n}]},
                                {"ids": [20, 2], "versions": [{"version": "2", "start": 0, "end": 2}]}])
            e = d.call(stream=True)
            assert e.get("ids") == kept + [20, 2], e
            assert e["versions"] == [["1", 0, len(kept)], ["2", len(kept), len(kept) + 2]]
            assert engine.requests[asked + 1]["body"]["input_ids"] == [1, 2, 3] + kept
            assert [t for x in e["deltas"] for t in x["ids"]] == e["ids"]


def test_vllm_aborts_without_a_word():
    with StubEngine("vllm") as engine, engine_kit.Driver(engine) as d:
        engine.plan.extend([{"ids": [10, 11], "drop": {"finish"}}, {"ids": [12, 2]}])
        assert d.call(stream=True)["ids"] == [10, 11, 12, 2]
        engine.plan.extend([{"ids": [10, 11], "finish": "abort"}, {"ids": [12, 2]}])
        assert d.call()["ids"] == [10, 11, 12, 2]


def test_a_late_abort_is_spliced():
    with StubEngine() as engine, engine_kit.Driver(engine) as d:
        engine.plan.extend([{"ids": [10, 11], "finish": "abort", "delay_s": 2}, {"ids": [12, 2]}])
        assert d.call()["ids"] == [10, 11, 12, 2]


# --- pause ---

def test_hold_and_drain():
    with StubEngine() as engine, engine_kit.Driver(engine, queue_timeout=300) as d:
        go = threading.Event()
        engine.plan.append({"wait": go})
        first = d.start()
        wait_until(lambda: engine.requests, 5, "the request")
        d.tell(op="pause", mode="drain")
        second = d.start()
        stays(lambda: len(engine.requests) == 1, 0.7, "beyond the queue's deadline, which does not run now")
        assert len(engine.requests) == 1
        go.set()
        d.event("drained")
        check(d.end(first))
        d.tell(op="pause", mode="run")
        check(d.end(second))


# --- overload ---

def test_queue_is_bounded_and_has_a_deadline():
    with StubEngine() as engine, engine_kit.Driver(engine, max_inflight=1, max_queue=2, queue_timeout=400) as d:
        go = threading.Event()
        engine.plan.append({"wait": go})
        first = d.start()
        wait_until(lambda: engine.requests, 5, "the request")
        waiting = [d.start(), d.start()]
        e = d.call()
        assert (e["code"], e["status"], e["retry"]) == ("overloaded", 429, True)
        for w in waiting:
            assert d.end(w)["code"] == "overloaded"
        go.set()
        check(d.end(first))


def test_a_full_queue_makes_room_for_sessions_below_their_share():
    """The one session that fills the queue is refused, not the others."""
    with StubEngine() as engine, engine_kit.Driver(engine, max_inflight=1, max_queue=6) as d:
        go = threading.Event()
        engine.plan.append({"wait": go})
        first = d.start(session="greedy")
        wait_until(lambda: engine.requests, 5, "the request")
        greedy = [d.start(session="greedy") for _ in range(6)]
        assert d.end(d.start(session="greedy"))["code"] == "overloaded"
        others = [d.start(session=s) for s in ("modest", "humble", "modest", "humble")]
        for c in greedy[2:]:  # the newest give way: two for each of three sessions are left
            assert d.end(c)["code"] == "overloaded"
        assert d.end(d.start(session="modest"))["code"] == "overloaded"
        go.set()
        for c in [first] + greedy[:2] + others:
            check(d.end(c))


def test_a_session_has_a_limit_of_its_own_in_the_queue():
    with StubEngine() as engine, engine_kit.Driver(engine, max_inflight=1, max_queue=100, max_session_queue=3) as d:
        go = threading.Event()
        engine.plan.append({"wait": go})
        first = d.start(session="greedy")
        wait_until(lambda: engine.requests, 5, "the request")
        waiting = [d.start(session="greedy") for _ in range(3)] + [d.start(session="modest")]
        e = d.end(d.start(session="greedy"))
        assert (e["code"], e["status"], e["retry"]) == ("overloaded", 429, True)
        assert "3 answers" in e["text"] and "--max-session-queue" in e["text"]
        go.set()
        for c in [first] + waiting:
            check(d.end(c))


def test_queue_is_fair():
    with StubEngine() as engine, engine_kit.Driver(engine, max_inflight=1) as d:
        go = threading.Event()
        engine.plan.append({"wait": go})
        first = d.start(session="greedy")
        wait_until(lambda: engine.requests, 5, "the request")
        calls = [d.start(session="greedy") for _ in range(5)] + [d.start(session="modest"), d.start(session="humble")]
        d.state()
        go.set()
        for c in [first] + calls:
            check(d.end(c))
        order = [r["headers"]["x-smg-routing-key"] for r in engine.requests]
        assert order[1:4] == ["greedy", "modest", "humble"]


# --- replicas ---

def test_sessions_stay_and_only_a_dead_replicas_move():
    engines = [StubEngine() for _ in range(4)]
    for e in engines:
        e.__enter__()
    try:
        with engine_kit.Driver(*engines, health_interval=100) as d:
            def round_of_calls():
                """One after the other: of many at once the load bound sends some elsewhere."""
                return {s: check(d.end(d.start(session=f"session-{s}")))["replica"] for s in range(60)}
            homes = round_of_calls()
            assert len(set(homes.values())) == 4
            for _ in range(3):
                assert round_of_calls() == homes
            victim = engines[1].setting
            engines[1].__exit__()
            moved = round_of_calls()
            assert all(moved[s] == homes[s] for s in homes if homes[s] != victim)
            assert victim not in moved.values()
            wait_until(lambda: [r["up"] for r in d.state()["replicas"]] == [True, False, True, True], 10, "the replica is down")
            assert round_of_calls() == moved
    finally:
        for i, e in enumerate(engines):
            if i != 1:
                e.__exit__()


def test_load_bound():
    with StubEngine() as a, StubEngine() as b, engine_kit.Driver(a, b) as d:
        go = threading.Event()
        for e in (a, b):
            e.plan.extend([{"wait": go}] * 64)
        calls = [d.start(session="one") for _ in range(64)]
        wait_until(lambda: len(a.requests) + len(b.requests) == 64, 10, "all requests")
        most = max(len(a.requests), len(b.requests))
        assert most <= 1.25 * 32 + 9
        go.set()
        for c in calls:
            check(d.end(c))


def test_health_has_hysteresis():
    with StubEngine() as engine, engine_kit.Driver(engine, health_interval=50) as d:
        def up():
            return d.state()["replicas"][0]["up"]
        wait_until(lambda: engine.probes > 2, 5, "probes")
        assert up()
        engine.health = 503
        wait_until(lambda: not up(), 5, "down")
        wait_until(lambda: any("engine is down" in line for line in d.log), 5, "the line that says so")
        down = engine.probes
        wait_until(lambda: engine.probes > down + 2, 5, "more failing probes")
        assert sum("engine is down" in line for line in d.log) == 1
        waiting = d.start()  # for an engine that says it is well
        down = engine.probes
        wait_until(lambda: engine.probes > down + 1, 5, "more failing probes")
        assert not engine.requests
        engine.health = 200
        wait_until(up, 5, "up")
        check(d.end(waiting))


def test_slow_health_of_a_busy_engine_is_no_death():
    with StubEngine(health_delay=3600) as engine, engine_kit.Driver(engine, health_interval=50) as d:
        for _ in range(3):
            check(d.call())
            pause(0.2, "four probes would be due")
        assert d.state()["replicas"][0]["up"]


def test_an_idle_engine_that_does_not_answer_probes_is_down():
    with StubEngine(health_delay=3600) as engine, engine_kit.Driver(engine, health_interval=50, health_timeout=50) as d:
        wait_until(lambda: not d.state()["replicas"][0]["up"], 5, "down")
        assert any("probe failed" in line for line in d.log)


def test_health_answered_late_is_health():
    """Two seconds for each probe, while calls are answered: never down, and no call goes elsewhere."""
    with StubEngine(health_delay=2) as engine, engine_kit.Driver(engine, health_interval=50) as d:
        while engine.probes < 3:  # two were answered
            check(d.call())
            assert d.state()["replicas"][0]["up"]
            pause(0.1, "calls go on while probes are slow")
        assert not any("engine is down" in line or "probe failed" in line for line in d.log)


# --- vLLM, llama.cpp ---

def test_vllm_request():
    with StubEngine("vllm") as engine, engine_kit.Driver(engine) as d:
        d.call(prompt=[5, 6], session="abc", call=3, temperature=0.5, max_tokens=9, stop_token_ids=[7], seed=1)
        r = engine.requests[0]
        assert r["path"] == "/inference/v1/generate"
        assert r["body"]["token_ids"] == [5, 6] and r["body"]["request_id"] == "abc:3.0.0."
        params = r["body"]["sampling_params"]
        assert params["logprobs"] == 0 and params["detokenize"] is False and params["stop_token_ids"] == [7]
        assert params["seed"] == 1
        d.call(stop=["x"])  # a stop string needs the text
        assert engine.requests[1]["body"]["sampling_params"]["detokenize"] is True
        wait_until(lambda: any("logprobs" in line and "temperature" in line for line in d.log), 5,
                   "the warning about raw logprobs")


@pytest.mark.parametrize("stream", STREAMS)
def test_vllm_falls_back_to_completions(stream):
    with StubEngine("vllm", routes=("completions",)) as engine, engine_kit.Driver(engine) as d:
        for top in (0, 2):
            e = check(d.call(stream=stream, prompt=[5, 6], top=top))
            assert len(e["top"]) == top * 4
        engine.plan.append({"matched": "END"})
        e = d.call(stream=stream)
        assert (e["finish"], e["stop_text"]) == ("stop_string", "END")
        engine.plan.append({"matched": 7})
        assert d.call(stream=stream)["stop_id"] == 7
        body = engine.requests[0]["body"]
        assert body["prompt"] == [5, 6] and body["return_token_ids"] and body["return_tokens_as_token_ids"]
        assert body["logprobs"] == 0
        assert {r["path"] for r in engine.requests} == {"/v1/completions"}
        fails(d, engine, "engine_invalid", plan={"prompt_tokens": 5}, stream=stream)
        wait_until(lambda: sum("by a route that it has" in line for line in d.log) == 1, 5, "the choice in the log")


def test_llamacpp_request():
    with StubEngine("llamacpp") as engine, engine_kit.Driver(engine) as d:
        e = check(d.call(prompt=[5, 6], stream=True, max_tokens=9, stop=["x"]))
        assert e["deltas"] == []  # it comes whole, so its end is known before anything of it is told
        b = engine.requests[0]["body"]
        assert b["prompt"] == [5, 6] and b["stream"] is False and b["return_tokens"] and b["n_probs"] == 1
        assert b["cache_prompt"] and b["stop"] == ["x"]
        engine.plan.append({"finish": "word", "matched": "x"})
        e = d.call()
        assert (e["finish"], e["stop_text"]) == ("stop_string", "x")


# --- routed experts ---

def block(rows, base=0, row=6):
    return struct.pack(f"<{rows * row}i", *range(base, base + rows * row))


def test_experts_whole_and_incremental():
    with StubEngine() as engine, engine_kit.Driver(engine, routed_experts=True) as d:
        engine.plan.append({"experts": block(6)})  # 3 + 4 - 1 rows
        e = check(d.call())
        assert base64.b64decode(e["experts"]) == block(6) and (e["experts_from"], e["experts_rows"]) == (0, 6)
        assert engine.requests[0]["body"]["return_routed_experts"] and engine.requests[0]["body"]["routed_experts_start_len"] == 0
        engine.plan.append({"experts": block(4)})
        e = check(d.call(experts_from=2))
        assert engine.requests[1]["body"]["routed_experts_start_len"] == 2
        assert base64.b64decode(e["experts"]) == block(4) and (e["experts_from"], e["experts_rows"]) == (2, 4)
        engine.plan.append({"experts": block(6)})  # an engine that does not know start_len
        e = check(d.call(experts_from=2))
        assert (e["experts_from"], e["experts_rows"]) == (0, 6)
        fails(d, engine, "engine_invalid", plan={"experts": block(5)}, experts_from=2)
    with StubEngine() as engine, engine_kit.Driver(engine, routed_experts=True) as d:
        # As long as the size of a row is unknown a part could not be told from a whole block.
        engine.plan.extend([{"experts": block(6)}, {"experts": block(4)}])
        check(d.call(experts_from=2))
        check(d.call(experts_from=2))
        assert [r["body"]["routed_experts_start_len"] for r in engine.requests] == [0, 2]


@pytest.mark.parametrize("dtype", ["u1", "u2"])
def test_experts_of_vllm_become_int32(dtype):
    values = list(range(36))
    descr = "|u1" if dtype == "u1" else "<u2"
    head = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': (6, 2, 3), }}".encode().ljust(117) + b"\n"
    data = struct.pack("<36B" if dtype == "u1" else "<36H", *values)
    npy = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + data
    with StubEngine("vllm") as engine, engine_kit.Driver(engine, routed_experts=True) as d:
        engine.plan.append({"experts": npy})
        e = check(d.call())
        assert base64.b64decode(e["experts"]) == struct.pack("<36i", *values) and e["experts_rows"] == 6
        for bad in (npy[:-1], npy[:20], b"nonsense", npy.replace(b"False", b"True ")):
            fails(d, engine, "engine_invalid", plan={"experts": bad})


@pytest.mark.parametrize("kind", ["sglang", "vllm"])
@pytest.mark.parametrize("stream", STREAMS)
def test_experts_that_nobody_asked_for_are_passed_over(kind, stream):
    """A vLLM that was started for them tells them whoever asks: they are neither held nor looked at."""
    with StubEngine(kind) as engine, engine_kit.Driver(engine) as d:
        for told in (b"nonsense", block(6), npy_of(6)):
            engine.plan.append({"experts": told})
            assert check(d.call(stream=stream)).get("experts") is None
            assert "return_routed_experts" not in engine.requests[-1]["body"]


def npy_of(rows, base=0):
    head = f"{{'descr': '<i4', 'fortran_order': False, 'shape': ({rows}, 2, 3), }}".encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + block(rows, base)


def spread(*pieces):
    """Documents of a stream that bring these blocks, one each, null where there is none."""
    def edit(docs):
        for d, piece in zip(docs, pieces):
            if d["choices"]:
                d["choices"][0]["routed_experts"] = piece and base64.b64encode(piece).decode()
        return docs
    return edit


@pytest.mark.parametrize("pieces,chunk", [
    ([npy_of(4), npy_of(2, 24)], 2),                # of what is new in each event
    ([npy_of(4), npy_of(6)], 2),                    # of all so far
    ([None, npy_of(6)], 2), ([npy_of(6), None], 2),  # once, before the last event or with it
    ([npy_of(3), npy_of(1, 18), npy_of(1, 24), npy_of(1, 30)], 1),
], ids=["new", "so far", "last", "before the last", "one by one"])
def test_streamed_experts_of_vllm(pieces, chunk):
    with StubEngine("vllm") as engine, engine_kit.Driver(engine, routed_experts=True) as d:
        engine.plan.append({"edit": spread(*pieces), "chunk": chunk})
        e = check(d.call(stream=True))
        assert engine.requests[0]["body"]["stream"] is True
        assert base64.b64decode(e["experts"]) == block(6) and e["experts_rows"] == 6
        fails(d, engine, "engine_invalid", plan={"edit": spread(npy_of(4), npy_of(1)), "chunk": 2}, stream=True)


def test_a_route_whose_streams_have_no_experts_is_asked_for_whole_answers():
    with StubEngine("vllm", routes=("completions",)) as engine, engine_kit.Driver(engine, routed_experts=True) as d:
        engine.plan += [{"experts": npy_of(6)}, {"experts": npy_of(4)}, {"experts": npy_of(6)}]
        assert check(d.call(stream=True))["experts_rows"] == 6
        e = check(d.call(stream=True, experts_from=2))
        assert (e["experts_from"], e["experts_rows"]) == (2, 4)
        e = check(d.call(stream=True, experts_from=2))     # an old server
        assert (e["experts_from"], e["experts_rows"]) == (0, 6)
        asked = [(r["body"]["stream"], r["body"].get("routed_experts_prompt_start")) for r in engine.requests]
        assert asked[-3:] == [(False, None), (False, 2), (False, 2)]


def test_an_old_server_whose_streams_have_no_experts():
    with StubEngine("vllm") as engine, engine_kit.Driver(engine, routed_experts=True) as d:
        engine.plan += [{}, {"experts": npy_of(6)}, {"experts": npy_of(6)}]
        assert check(d.call(stream=True)).get("experts") is None
        assert [check(d.call(stream=True))["experts_rows"] for _ in range(2)] == [6, 6]
        assert [r["body"]["stream"] for r in engine.requests] == [True, False, False]
        wait_until(lambda: sum("tells no routed experts" in line for line in d.log) == 1, 5, "the word")
    with StubEngine("vllm") as engine, engine_kit.Driver(engine, routed_experts=True) as d:     # started without them
        for _ in range(3):
            check(d.call(stream=True))
        assert [r["body"]["stream"] for r in engine.requests] == [True, False, True]
        wait_until(lambda: sum("tells no routed experts" in line for line in d.log) == 2, 5, "the word")


# --- keys, TLS, other paths ---

def test_key_file(tmp_path):
    (tmp_path / "key").write_text("secret-key\n")
    with StubEngine(key="secret-key") as engine:
        with engine_kit.Driver(f"{engine.setting},key-file={tmp_path / 'key'}") as d:
            check(d.call())
            assert not any("secret-key" in line for line in d.log)
        with engine_kit.Driver(engine) as d:
            assert d.call()["code"] == "engine_invalid"


def test_tls():
    import pathlib
    import ssl
    folder = pathlib.Path(__file__).parents[2] / "data/tls"
    for name, why in (("good", None), ("other", "does not name this address"), ("expired", "expired")):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / f"{name}.pem", folder / f"{name}.key")
        with StubEngine(tls=context) as engine:
            with engine_kit.Driver(engine, ca_file=str(folder / "ca.pem")) as d:
                if why:
                    e = d.call()
                    assert e["code"] == "engine_unavailable" and "certificate refused" in e["text"] and why in e["text"]
                    wait_until(lambda: any("probe failed" in x and why in x for x in d.log), 5, "the probe's line")
                else:
                    for stream in STREAMS:
                        check(d.call(stream=stream))
                    engine.plan.append({"split": 1})
                    check(d.call())
            with engine_kit.Driver(engine, insecure_tls=True) as d:
                check(d.call())
                assert any("NOT checked" in line for line in d.log)


def test_a_default_version_gives_way_to_the_trainers():
    with StubEngine() as engine, engine_kit.Driver(engine) as d:
        assert d.call()["versions"] == [["default", 0, 4]]
        d.tell(op="version", version="5")
        assert d.call()["versions"] == [["5", 0, 4]]
        engine.plan.append({"version": "6"})
        assert d.call()["versions"] == [["6", 0, 4]]


def test_pass_through():
    import json
    with StubEngine() as engine, engine_kit.Driver(engine) as d:
        open_to = "read,/echo,/nowhere"
        d.tell(op="pass", id=9, method="POST", path="/echo?a=b", session="abc", type="text/plain", body="hello",
               passthrough=open_to)
        assert d.event("head", id=9)["status"] == 200
        d.event("passed", id=9)
        body = json.loads("".join(e["text"] for e in d.kept if e["event"] == "body"))
        assert (body["method"], body["target"], body["body"]) == ("POST", "/echo?a=b", "hello")
        assert body["headers"]["x-smg-routing-key"] == "abc" and body["headers"]["content-type"] == "text/plain"
        d.tell(op="pass", id=10, method="GET", path="/nowhere", passthrough=open_to)
        assert d.event("head", id=10)["status"] == 404
        d.event("passed", id=10)
        d.tell(op="pass", id=11, method="POST", path="/echo", passthrough="read")
        assert d.event("failed", id=11)["code"] == "wrong_scope"


# --- OpenAI upstream ---

CHAT = {"model": "up", "messages": [{"role": "user", "content": "hi"}], "temperature": 0.5}


@pytest.mark.parametrize("stream", STREAMS)
def test_openai_upstream(stream):
    with StubEngine("openai") as engine, engine_kit.Driver(engine) as d:
        e = d.call(chat_body=CHAT, stream=stream)
        assert e["event"] == "done" and e["ids"] == [] and e["logprobs"] is None, e
        choice = e["openai"]["choices"][0]
        assert e["finish"] == "stop" and choice["filtered"] is False
        assert stream or [m["content"] for m in choice["messages"]] == ["Hello there."]
        assert engine.requests[0]["body"]["messages"] == CHAT["messages"] and engine.requests[0]["body"]["temperature"] == 0.5
        if stream:
            assert "".join((x.get("message") or {}).get("content") or "" for x in e["deltas"]) == "Hello there."
        engine.plan.append({"finish": "length"})
        assert d.call(chat_body=CHAT, stream=stream)["finish"] == "length"
        engine.plan.append({"status": 400, "body": {"error": {"message": "no"}}})
        assert d.call(chat_body=CHAT, stream=stream)["code"] == "engine_refused"
        engine.plan.append({"cut": "close"})
        assert d.call(chat_body=CHAT, stream=stream)["code"] == "engine_invalid"
        for fault in ({"drop": {"finish"}}, {"truncate": True}, {"type": "text/html"}):
            engine.plan.append(fault)
            assert d.call(chat_body=CHAT, stream=stream)["code"] == "engine_invalid", fault
        engine.plan.append({"finish": "abort"})
        assert d.call(chat_body=CHAT, stream=stream)["code"] == "engine_unavailable"
        with engine_kit.Driver(engine.setting + "/v1/") as other:
            assert other.call(chat_body=CHAT, stream=stream)["event"] == "done"


ASK_IDS = {"vllm": {"return_token_ids": True, "logprobs": True},
           "sglang": {"return_meta_info": True, "return_prompt_token_ids": True, "logprobs": True}}


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("way", ["vllm", "sglang"])
def test_ids_of_an_openai_upstream(way, stream):
    """Whether the client asks for them or the setting does; what does not fit is refused."""
    with StubEngine("openai") as engine:
        for setting, chat in ((engine.setting, {**CHAT, **ASK_IDS[way]}), (f"{engine.setting},token-ids={way}", CHAT)):
            with engine_kit.Driver(setting) as d:
                plain = stream and not (way == "sglang" and chat is not CHAT)  # SGLang does not stream them
                e = d.call(chat_body=chat, stream=plain)
                assert e["event"] == "done" and e["ids"] == DEFAULT["ids"] and e["prompt_ids"] == [3, 1, 4], e
                assert e["logprobs"] == [f32(logprob(j, t)) for j, t in enumerate(e["ids"])]
                assert ASK_IDS[way].items() <= engine.requests[-1]["body"].items()
                assert e["versions"] == ([["default", 0, 4]] if way == "sglang" else [])
                faults = [{"lp_null": True}, {"count_wrong": True}, {"prompt_tokens": 9}]
                if way == "vllm":
                    faults += [{"lp_extra": -1}, {"drop": {"logprobs"}}]
                if chat is CHAT:
                    faults += [{"drop": {"ids"}}]
                for fault in faults:
                    engine.plan.append(fault)
                    e = d.call(chat_body=chat, stream=plain)
                    assert e.get("code") == "engine_invalid" and e["retry"], (fault, e)
                assert d.call(chat_body=chat, stream=plain)["event"] == "done"
        with engine_kit.Driver(f"{engine.setting},token-ids={way}", vocab=10) as d:
            assert "vocabulary" in d.call(chat_body=CHAT)["text"]

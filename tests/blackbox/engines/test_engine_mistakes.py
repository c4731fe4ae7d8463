"""Small mistakes in otherwise good answers of engines: the error names the field, the token and the value, and what
can be read exactly is read."""
import pytest

from odds_engine import OddsEngine
from stub_engines import StubEngine, logprob
from test_gateway_faults import OK, Scene
from test_gateway_odd_engines import fails, put

BOTH = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


def spans(*told):
    return put("meta_info", last=True, value=lambda meta: {**meta, "weight_versions": list(told)})


TOLD = {
    "sglang": [
        (spans({"version": None, "start": 0, "end": 3}), "spans are unfinished: weight_versions[0] needs version, start and end"),
        (spans({"version": "7", "start": 0, "end": 1}, {"version": "8", "start": 2, "end": 3}), "spans have gaps: span 1 has tokens 2 to 3, and the one before ends at 1"),
        (spans({"version": "7", "start": 0, "end": 1}), "spans do not fit: they have 1 tokens, and its answer 3"),
        (put("meta_info", "finish_reason", "type", last=True, value="lost"), 'its finish reason is \\"lost\\"'),
        (put("meta_info", "finish_reason", "type", last=True, value="x" + "é" * 40), 'its finish reason is \\"x' + "é" * 31 + '\\"'),
        (put("output_ids", 0, value=1.5), "output_ids: JSON: not an id"),
        (put("meta_info", "output_token_logprobs", 1, 0, value="x"), "meta_info.output_token_logprobs: JSON"),
        (put("meta_info", "output_token_logprobs", 1, 0, value=2.5), "as logits are (token 1, id 107, logprob 2.5)"),
        (put("meta_info", "output_token_logprobs", 1, 1, value=9), "belongs to another token (token 1, id 107, logprob"),
    ],
    "openai": [
        (put("choices", 0, "finish_reason", last=True, value="x" + "é" * 40), 'finish_reason is \\"x' + "é" * 31 + '\\"'),
        (put("choices", 0, "logprobs", "content", 0, "logprob", value=None), "choices[0].logprobs.content[0].logprob must be a number"),
        (put("choices", 0, "logprobs", "content", 0, "top_logprobs", value=[{"token": "a"}]), "content[0].top_logprobs[0].logprob must be a number"),
    ],
}


@BOTH
@pytest.mark.parametrize("kind", TOLD)
def test_an_error_names_field_and_value(start, kind, stream):
    with StubEngine(kind) as engine:
        gateway = start(workers=1, engine=engine.setting, engine_retries=0)
        gateway.allow(".*")
        s = Scene(engine, gateway, stream)
        if kind == "openai":    # its logprobs are the client's alone
            s.call = lambda: gateway.post(f"/sessions/{s.sid}/v1/chat/completions", {"messages": s.messages, "stream": stream, "logprobs": True})
        for edit, told in TOLD[kind]:
            assert told in fails(s, kind, told, {"edit": edit}, 502).text, told


@pytest.mark.parametrize("version", [None, 7, ""], ids=["null", "number", "empty"])
def test_a_version_of_an_upstream(start, version):
    """Null is no version, as of an engine that is asked with ids."""
    with StubEngine("openai") as engine:
        gateway = start(workers=1, engine=f"{engine.setting},token-ids=vllm", engine_retries=0)
        s = Scene(engine, gateway, False)
        engine.plan.append({"ids": OK, "versions": [{"version": version, "start": 0, "end": 2}]})
        a = s.call()
        assert (a.status, "weight_versions[0] needs version, start and end" in a.text) == ((502, True) if version is None else (200, False)), a.text


def repeat_logprobs(docs):
    """SGLang before March 2026, started with --stream-output: new ids, and the logprobs of all tokens."""
    triples = []
    for d in docs:
        triples = triples + d["meta_info"]["output_token_logprobs"]
        d["meta_info"]["output_token_logprobs"] = triples
    return docs


def test_logprobs_of_all_tokens_beside_new_ids(start):
    ids = OK * 3 + [257]
    with StubEngine("sglang", incremental=True) as engine:
        gateway = start(workers=1, engine=engine.setting, engine_retries=0)
        gateway.allow(".*")
        s = Scene(engine, gateway, True)
        fails(s, "sglang", "an event is lost", {"ids": ids, "edit": lambda docs: [d for i, d in enumerate(repeat_logprobs(docs)) if i != 1]}, 502)
        s = Scene(engine, gateway, True)
        s.works("sglang", ids=ids, edit=repeat_logprobs)
        t = gateway.get(f"/sessions/{s.sid}/trajectories").json()["trajectories"][0]
        assert t["response_ids"] == ids
        assert t["response_logprobs"] == pytest.approx([logprob(j, i) for j, i in enumerate(ids)])


def test_more_cached_tokens_than_the_prompt_has(start):
    with StubEngine("sglang") as engine:
        gateway = start(workers=1, engine=engine.setting)
        for cached, told in ((5, 5), (2 ** 40, None)):
            s = Scene(engine, gateway, False)
            usage = s.works("sglang", cached=cached).json()["usage"]
            turn = gateway.get(f"/sessions/{s.sid}/trajectories").json()["trajectories"][0]["turns"][0]
            assert (turn["cached_tokens"], usage["prompt_tokens_details"]["cached_tokens"]) == (told, told or 0)


@BOTH
@pytest.mark.parametrize("kind", ["sglang", "vllm"])
def test_alternatives_and_supports_are_checked(start, kind, stream):
    """Trainers use them: a support's id outside of the vocabulary is refused, and so is a value that is no logprob."""
    best = ("meta_info", "output_top_logprobs", 0, 1, 0) if kind == "sglang" else ("choices", 0, "logprobs", "content", 0, "top_logprobs", 1, "logprob")
    mask, logprobs = [("meta_info", f"output_token_sampling_{x}") for x in ("mask", "logprobs")] if kind == "sglang" else \
        [("choices", 0, x) for x in ("sampling_mask", "sampling_mask_logprobs")]
    null = "a logprob of its sampling support is null or out of range (id 112, logprob"
    with OddsEngine(kind) as engine:
        gateway = start(workers=1, engine=engine.setting, engine_retries=0)
        gateway.allow(".*")
        s = Scene(engine, gateway, stream)
        s.sid = gateway.post("/sessions", {"sampling_support": True, "top_logprobs": 2, "sampling_params": {"top_k": 5}}).json()["session_id"]
        rows = {"support": [[111, 112], [107, 108], [257, 258]]}
        for edit, told in [(put(*best, value=1.5), "of an alternative, a logprob is above 0, as logits are (logprob 1.5)"),
                           (put(*mask, 0, 1, value=400), "id 400 of the engine's sampling support is outside the vocabulary of 259"),
                           (put(*logprobs, 0, 1, value=None), null), (put(*logprobs, 0, 1, value=-9999.0), null)]:
            s.works(kind, **rows)
            before = s.state()
            engine.plan.append({"ids": OK + [257], "matched": 257, "edit": edit, **rows})
            assert told in s.call().text and s.state() == before, told


@pytest.mark.parametrize("came, kept", [((0, 2), b"ab"), ((2,), b"")], ids=["second", "first"])
def test_an_event_that_is_lost_before_an_abort(start, came, kept):
    """The tokens behind the gap were sampled after ones that did not come: they are asked for anew."""
    with StubEngine("sglang", incremental=True) as engine:
        gateway = start(workers=1, engine=engine.setting)
        s = Scene(engine, gateway, True)
        engine.plan.append({"ids": [*b"abcdef"], "finish": "abort", "edit": lambda docs: [docs[i] for i in came]})
        engine.plan.append({"ids": [*b"gh", 257], "matched": 257})
        assert s.text(s.call()).encode() == kept + b"gh"
        first, second = (r["body"]["input_ids"] for r in engine.requests)
        assert second == first + [*kept]
        assert gateway.get(f"/sessions/{s.sid}/trajectories").json()["trajectories"][0]["response_ids"] == [*kept + b"gh", 257]


@BOTH
def test_alternatives_that_a_grammar_forbids(start, stream):
    """SGLang's chat has null as their logprob. They are left out, as those of an engine that is asked with ids are."""
    tops = [{"token": "may", "logprob": -0.5}, {"token": "mayn't", "logprob": None}]
    with StubEngine("openai") as engine:
        gateway = start(workers=1, engine=engine.setting)
        s = Scene(engine, gateway, stream)
        engine.plan.append({"edit": put("choices", 0, "logprobs", "content", 0, "top_logprobs", value=tops)})
        a = gateway.post(f"/sessions/{s.sid}/v1/chat/completions", {"messages": s.messages, "stream": stream, "logprobs": True, "top_logprobs": 2})
        assert a.status == 200 and '"token":"may"' in a.text and "mayn't" not in a.text and '"error"' not in a.text, a.text

"""An engine whose answers lack fields of its kind is named in the log once, and in GET /admin/engines."""
import pytest

from asides_engine import AsidesEngine
from gateway import wait_until
from stub_engines import StubEngine
from test_dialects import USER

IDS = [*b"ok", 257]
WARNING = "answers lack what its kind tells"


def without(*fields):
    """As the server's newer front writes it."""
    def edit(docs):
        for d in docs:
            for f in fields:
                d["meta_info"].pop(f, None)
        return docs
    return edit


def ask(gateway, stream=False, sid=None, message=USER, **options):
    sid = sid or gateway.post("/sessions", options).json()["session_id"]
    a = gateway.post(f"/sessions/{sid}/v1/chat/completions", {"messages": [message], "stream": stream})
    assert a.status == 200, a.text
    return sid


def told(gateway, key):
    return gateway.get("/admin/engines").json()["engines"][0][key]


def test_missing_fields_are_named_once(start):
    with StubEngine("sglang") as engine:
        gateway = start(workers=1, engine=engine.setting)
        engine.plan.append({"ids": IDS, "edit": without("weight_version", "cached_tokens")})
        ask(gateway)
        assert told(gateway, "lacks") == ["weight_version", "cached_tokens"]
        engine.plan.append({"ids": IDS, "edit": without("weight_version", "cached_tokens")})
        ask(gateway, stream=True)
        assert gateway.log().count(WARNING) == 1 and 'fields="weight_version, cached_tokens"' in gateway.log()
        engine.plan.append({"ids": IDS})
        ask(gateway, sampling_support=True)      # an old one ignores it
        assert told(gateway, "lacks") == ["weight_version", "cached_tokens", "sampling_mask"]
        assert gateway.log().count(WARNING) == 2


def test_a_whole_answer_lacks_nothing(start):
    with StubEngine("sglang") as engine:
        gateway = start(workers=1, engine=engine.setting)
        for stream in (False, True):
            engine.plan.append({"ids": IDS})
            ask(gateway, stream)
        assert told(gateway, "lacks") == [] and told(gateway, "has") == [] and WARNING not in gateway.log()


def test_what_an_engine_has(start):
    info = {"context_length": 4096, "enable_session_radix_cache": True, "enable_priority_scheduling": True,
            "enable_strict_thinking": True}
    with StubEngine("sglang", info=info) as engine:
        gateway = start(workers=1, engine=engine.setting)
        wait_until(lambda: told(gateway, "has"), 20, "what it has")
        assert told(gateway, "has") == ["session_id", "priority", "max_thinking_tokens"]
    with AsidesEngine("vllm", asides={"/weight_info": {"weight_version": "1"}}) as engine:
        gateway = start(workers=1, engine=engine.setting + ",priority=on")
        wait_until(lambda: "weight_info" in told(gateway, "has"), 20, "what it has")
        assert told(gateway, "has") == ["priority", "max_thinking_tokens", "weight_info"]


RUST = {"model_path": "m", "served_model_name": "m", "tokenizer_path": "m", "max_context_length": 4096, "max_total_num_tokens": 8192,
        "version": "0.6.0", "internal_states": [{"last_gen_throughput": 1.5}]}


def test_the_rust_front_is_named_at_the_start(start):
    """Before any session: it is asked for a token, and its answer shows what it leaves out."""
    with StubEngine("sglang", info=RUST) as engine:
        missing = without("weight_version", "cached_tokens", "dp_rank", "num_retractions", "reasoning_tokens")
        engine.otherwise = lambda body: {"ids": [65] if body["sampling_params"]["max_new_tokens"] == 1 else IDS, "finish": "length", "edit": missing}
        gateway = start(workers=1, engine=engine.setting, routed_experts="on")
        wait_until(lambda: told(gateway, "lacks"), 20, "what it lacks")
        assert told(gateway, "lacks") == ["weight_version", "cached_tokens", "routed_experts"]
        assert gateway.log().count(WARNING) == 1 and "context_length=4096" in gateway.log()
        assert len(engine.requests) == 1 and engine.requests[0]["body"]["rid"].startswith("form-probe:")
        ask(gateway)
        assert gateway.log().count(WARNING) == 1 and len(engine.requests) == 2
        assert gateway.get("/sessions").json()["sessions"][0]["calls"] == 1
    with StubEngine("sglang", info=RUST) as engine:      # a later one, that tells all; one that refuses
        gateway = start(workers=1, engine=engine.setting)
        wait_until(lambda: engine.requests, 20, "the question")
        ask(gateway)
        assert told(gateway, "lacks") == [] and WARNING not in gateway.log()
    with StubEngine("sglang", info=RUST) as engine:
        engine.plan.append({"status": 400, "body": {"error": {"message": "no"}}})
        gateway = start(workers=1, engine=engine.setting)
        gateway.wait_line("did not show what its answers have")
        ask(gateway)
    with StubEngine("sglang", info={"context_length": None, "max_context_length": 4096}) as engine:
        gateway = start(workers=1, engine=engine.setting)
        wait_until(lambda: "engine told its settings" in gateway.log(), 20, "the settings")
        ask(gateway)
        assert len(engine.requests) == 1


def asked(engine):
    """The questions at the start: their fields."""
    return [{**r["body"], **r["body"]["sampling_params"]} for r in engine.requests if StubEngine.is_probe(r["body"])]


UNKNOWN_TO_RUST = ["max_thinking_tokens", "kv_per_version", "priority", "session_id", "adapter"]


def test_what_sglang_s_rust_front_ignores(start):
    """Fields that answers show, fields that a question shows, and fields that its contract leaves out; before any session."""
    with StubEngine("sglang", front="rust") as engine:
        gateway = start(workers=1, engine=engine.setting)
        wait_until(lambda: len(asked(engine)) == 4, 20, "the questions")
        unanswered = ["weight_version", "cached_tokens", "routed_experts", "sampling_mask", "indexer_topk"]
        wait_until(lambda: told(gateway, "lacks") == unanswered + UNKNOWN_TO_RUST, 20, told(gateway, "lacks"))
        first, stop, ends, form = asked(engine)
        assert first["return_routed_experts"] and first["return_sampling_mask"] and first["return_indexer_topk"] and first["top_logprobs_num"] == 1
        assert stop["stop"] == ["aa"] and stop["logit_bias"] == {"97": 100} and ends["stop_token_ids"][0] == 97 and ends["min_new_tokens"] == 2
        assert form["regex"] == "aaa"
        assert gateway.log().count("behind a Rust front") == 1 and "fields=\"max_thinking_tokens, kv_per_version" in gateway.log()
        wait_until(lambda: gateway.get("/health").json()["engines_lack"] == told(gateway, "lacks"), 20, "health")
        # No session samples with the weights below an adapter's.
        a = gateway.post("/sessions", {"adapter": "x"})
        assert a.status == 400 and a.json()["error"]["param"] == "adapter"
        ask(gateway)


def test_what_vllm_s_rust_front_ignores(start):
    for form in ("ids", "names"):
        with StubEngine("vllm", front="rust", form=form) as engine:
            gateway = start(workers=1, engine=engine.setting)
            wait_until(lambda: len(asked(engine)) == 5, 20, "the questions")
            lacks = ["weight_version", "cached_tokens", "usage", "routed_experts", "sampling_mask", "stop"]
            wait_until(lambda: told(gateway, "lacks") == lacks, 20, "what it lacks")
            assert gateway.log().count("behind a Rust front") == 1 and 'fields=stop' in gateway.log()
            assert gateway.get("/admin/engines").json()["engines"][0]["has"] == ["max_thinking_tokens"]
            wait_until(lambda: gateway.get("/health").json()["engines_lack"] == lacks, 20, "health")
            engine.plan.append({"ids": IDS, "matched": 257})
            ask(gateway)


PROBED = ["stop", "stop_token_ids", "min_tokens", "logit_bias"]


@pytest.mark.parametrize("kind,field", [*(("sglang", f) for f in [*PROBED, "response_format"]),
                                        *(("vllm", f) for f in [*PROBED, "allowed_token_ids", "bad_words"])])
def test_a_field_that_a_front_ignores_is_seen(start, kind, field):
    with StubEngine(kind, front="rust", ignores={field}) as engine:
        gateway = start(workers=1, engine=engine.setting)
        wait_until(lambda: field in told(gateway, "lacks"), 20, field)
        known = {"stop", "stop_token_ids", "min_tokens", "allowed_token_ids", "bad_words", "logit_bias", "response_format"}
        assert known & set(told(gateway, "lacks")) == {field}


def test_a_front_that_obeys_and_tells_all_lacks_nothing_of_it(start):
    with StubEngine("vllm", front="rust", ignores=set()) as engine:
        gateway = start(workers=1, engine=engine.setting)
        wait_until(lambda: len(asked(engine)) == 5, 20, "the questions")
        ask(gateway)
        assert "stop" not in told(gateway, "lacks")
    with StubEngine("vllm", info={"data": [{"max_model_len": 4096}]}) as engine:      # today's Python front: nothing is asked
        gateway = start(workers=1, engine=engine.setting)
        gateway.wait_line("engine told its settings")
        engine.plan.append({"ids": IDS, "matched": 257})
        ask(gateway)
        assert told(gateway, "lacks") == [] and len(engine.requests) == 1


def test_a_vllm_without_its_first_route_is_named(start):
    with StubEngine("vllm", routes=("completions",)) as engine:
        gateway = start(workers=1, engine=engine.setting)
        engine.plan.append({"ids": IDS, "matched": 257})
        ask(gateway)
        assert told(gateway, "lacks") == ["inference_generate"]


def test_seeds_that_sglang_ignores(start):
    """Its settings say so: seeds need --enable-deterministic-inference."""
    for on in (False, True):
        with StubEngine("sglang", info={"context_length": 4096, "enable_deterministic_inference": on}) as engine:
            gateway = start(workers=1, engine=engine.setting)
            gateway.wait_line("engine told its settings")
            wait_until(lambda: told(gateway, "lacks") == ([] if on else ["seed"]), 20, "what it lacks")


def test_half_of_a_split_is_named(start):
    """A server of a prefill and decode split does nothing by itself: the log says so at the start, and the call says what it said."""
    for half in ("prefill", "decode"):
        with StubEngine("sglang", info={"context_length": 4096, "disaggregation_mode": half}) as engine:
            gateway = start(workers=1, engine=engine.setting)
            gateway.wait_line("alone it refuses")
            wait_until(lambda: told(gateway, "has"), 20, "what it is")
            assert told(gateway, "has") == [half + "_half"] and f"half={half}" in gateway.log()
            words = "Invalid request: Disaggregated request received without bootstrap room id."
            engine.otherwise = lambda body: {"status": 400, "body": {"error": {"message": words}}}
            sid = gateway.post("/sessions", {}).json()["session_id"]
            a = gateway.post(f"/sessions/{sid}/v1/chat/completions", {"messages": [USER]})
            assert a.status == 503 and "bootstrap room id" in a.text, a.text
            # Their router tells the same of itself, and answers.
            engine.plan.append({"ids": IDS})
            ask(gateway, sid=sid)
            assert gateway.log().count("alone it refuses") == 1
    with StubEngine("sglang", info={"context_length": 4096, "disaggregation_mode": "null"}) as engine:
        gateway = start(workers=1, engine=engine.setting)
        gateway.wait_line("engine told its settings")
        assert told(gateway, "has") == [] and "alone it refuses" not in gateway.log()


def test_fields_of_a_split_are_no_session_s(start):
    """A room or a place of blocks is one request's: shared by a session's calls it would mix their caches."""
    for kind, fields in (("sglang", ("bootstrap_host", "bootstrap_port", "bootstrap_room", "bootstrap_pair_key", "disagg_prefill_dp_rank")),
                         ("vllm", ("kv_transfer_params",))):
        with StubEngine(kind) as engine:
            gateway = start(workers=1, engine=engine.setting)
            for field in fields:
                a = gateway.post("/sessions", {"sampling_params": {"engine_extra": {field: 1}}})
                assert a.status == 400 and field in a.json()["error"]["param"], (field, a.text)

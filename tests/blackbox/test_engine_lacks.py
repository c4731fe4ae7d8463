"""An engine whose answers lack what its kind tells is named: in the log once, and in GET /admin/engines."""
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

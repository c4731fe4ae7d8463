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

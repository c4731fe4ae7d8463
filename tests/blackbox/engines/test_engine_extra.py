"""sampling_params.engine_extra of a session: the trainer's fields reach the engine's requests unchanged, for every
kind. They override none of our fields, and an agent cannot set them."""
import json

import pytest

from stub_engines import StubEngine
from test_llama_server import model

USER = {"role": "user", "content": "hi"}
# given -> where it stands in the request (a path), for each kind
GIVEN = {
    "sglang": ({"lora_path": "a/b", "priority": 3, "custom_logit_processor": "x",
                "sampling_params": {"custom_params": {"k": [1, 2.50]}, "stop_regex": "a+"}},
               {"lora_path": "a/b", "priority": 3, "custom_logit_processor": "x", "sampling_params.stop_regex": "a+",
                "sampling_params.custom_params": {"k": [1, 2.50]}}),
    "vllm": ({"model": "my-lora", "priority": 1,
              "sampling_params": {"extra_args": {"a": None}, "include_stop_str_in_output": True}},
             {"model": "my-lora", "priority": 1, "sampling_params.extra_args": {"a": None},
              "sampling_params.include_stop_str_in_output": True}),
    "vllm-old": ({"model": "my-lora", "sampling_params": {"vllm_xargs": {"a": 1}}}, {"model": "my-lora", "vllm_xargs": {"a": 1}}),
    "llamacpp": ({"lora": [{"id": 0, "scale": 0.5}], "top_n_sigma": -1, "id_slot": 2},
                 {"lora": [{"id": 0, "scale": 0.5}], "top_n_sigma": -1, "id_slot": 2}),
    "openai": ({"provider": {"order": ["x"]}, "service_tier": "flex", "verbosity": "high"},
               {"provider": {"order": ["x"]}, "service_tier": "flex", "verbosity": "high"}),
}
OURS = {
    "sglang": ["rid", "input_ids", "return_logprob", "stream", "text", "session_params", "temperature",
               "sampling_params.max_new_tokens", "sampling_params.n", "sampling_params.stop", "sampling_params.sampling_seed",
               "sampling_params.json_schema"],
    "vllm": ["request_id", "token_ids", "stream", "stream_options", "sampling_params.logprobs", "sampling_params.n",
             "sampling_params.truncate_prompt_tokens", "prompt_logprobs", "sampling_params.detokenize", "prompt", "max_tokens",
             "sampling_params.seed"],
    "llamacpp": ["prompt", "n_predict", "n_probs", "samplers", "cache_prompt", "mirostat", "grammar", "top_k", "seed",
                 "max_tokens", "response_fields", "post_sampling_probs"],
    "openai": ["model", "messages", "tools", "stream", "n", "temperature", "max_completion_tokens", "logprobs", "response_format",
               "chat_template_kwargs", "return_token_ids"],
}


def serving(start, kind, **settings):
    old = kind == "vllm-old"
    engine = StubEngine("vllm" if old else kind, **({"routes": ("completions",)} if old else {}))
    engine.__enter__()
    return engine, start(workers=1, engine=engine.setting, **settings)


@pytest.fixture
def serve(start):
    engines = []

    def make(kind, **settings):
        engine, gateway = serving(start, kind, **settings)
        engines.append(engine)
        return engine, gateway
    yield make
    for engine in engines:
        engine.__exit__(None, None, None)


def made(gateway, extra, **more):
    return gateway.post("/sessions", {"sampling_params": {"engine_extra": extra, **more}})


def nested(path, value=1):
    head, _, rest = path.partition(".")
    return {head: nested(rest, value) if rest else value}


def at(body, path):
    for part in path.split("."):
        body = body[part]
    return body


@pytest.mark.parametrize("kind", GIVEN)
def test_it_reaches_the_engine_as_it_is(serve, kind):
    engine, gateway = serve(kind)
    given, where = GIVEN[kind]
    a = made(gateway, given, temperature=0.5)
    assert a.status == 200, a.text
    sid = a.json()["session_id"]
    gateway.stop()      # it is the session's: on record
    gateway.start()
    for stream in (False, True):
        a = gateway.post(f"/sessions/{sid}/v1/chat/completions", {"messages": [USER], "verbosity": "low", "stream": stream})
        assert a.status == 200, a.text
        body = engine.requests[-1]["body"]
        assert {path: at(body, path) for path in where} == where
        assert at(body, "sampling_params.temperature" if kind in ("sglang", "vllm") else "temperature") == 0.5
    plain = gateway.post("/sessions", {"sampling_params": {"engine_extra": None}}).json()["session_id"]
    assert gateway.post(f"/sessions/{plain}/v1/chat/completions", {"messages": [USER]}).status == 200
    sent = json.dumps(engine.requests[-1]["body"])
    assert not any(name in sent for name in ("my-lora", "a/b", "vllm_xargs", "id_slot", "provider"))


@pytest.mark.parametrize("kind", OURS)
def test_what_is_ours_is_refused_by_name(serve, kind):
    _, gateway = serve(kind)
    for path in OURS[kind]:
        a = made(gateway, nested(path))
        e = a.json()["error"]
        assert a.status == 400 and path in e["message"] and e["param"].startswith("sampling_params.engine_extra."), (path, a.text)
    for wrong in ([], "x", 7, True):
        a = made(gateway, wrong)
        assert a.status == 400 and "sampling_params.engine_extra must be an object" in a.json()["error"]["message"], a.text
    if kind in ("sglang", "vllm"):
        assert made(gateway, {"sampling_params": [1]}).status == 400


def test_the_built_in_engine_has_nothing_to_put_it_in(start):
    gateway = start(engine="builtin:echo", workers=1)
    a = made(gateway, {"priority": 1})
    e = a.json()["error"]
    assert a.status == 400 and e["param"] == "sampling_params.engine_extra" and "builtin" in e["message"]
    assert made(gateway, {}).status == 200


@pytest.mark.parametrize("kind", ["sglang", "openai"])
def test_an_agent_cannot_set_it(serve, kind):
    engine, gateway = serve(kind)
    sid = gateway.post("/sessions", {}).json()["session_id"]
    for path, body in (("chat/completions", {"messages": [USER]}), ("completions", {"prompt": "hi"}),
                       ("responses", {"input": "hi"}), ("messages", {"messages": [USER], "max_tokens": 9})):
        if kind == "openai" and path == "completions":
            continue
        a = gateway.post(f"/sessions/{sid}/v1/{path}", {**body, "engine_extra": {"lora_path": "evil"},
                                                       "sampling_params": {"engine_extra": {"lora_path": "evil"}}})
        assert a.status == 200, a.text
        assert "evil" not in json.dumps(engine.requests[-1]["body"])


def test_unknown_parameters_name_it(start):
    gateway = start(engine="builtin:echo", workers=1)
    e = gateway.post("/sessions", {"sampling_params": {"lora_path": "x"}})
    assert e.status == 400 and e.json()["error"]["param"] == "lora_path" and "engine_extra" in e.json()["error"]["message"]
    e = gateway.post("/sessions", {"sampling_params": {"engine_extr": {}}})
    assert e.status == 400 and 'did you mean "engine_extra"' in e.json()["error"]["message"]


def test_a_session_of_another_engine_is_told(start):
    with StubEngine("llamacpp") as llama, StubEngine("sglang") as sglang:
        gateway = start(engine=llama.setting, workers=1)
        sid = made(gateway, {"rid": "mine"}).json()["session_id"]
        gateway.stop()
        gateway.settings["engine"] = sglang.setting
        gateway.start()
        a = gateway.post(f"/sessions/{sid}/v1/chat/completions", {"messages": [USER]})
        assert a.status == 400 and "engine_extra.rid" in a.json()["error"]["message"] and not sglang.requests


def test_scoring_asks_with_it_too(serve):
    """llama-server leaves logprobs of drafts out: they are asked for with the same weights."""
    engine, gateway = serve("llamacpp")
    engine.speculative, engine.dist = True, model
    sid = made(gateway, {"lora": [{"id": 1, "scale": 1}]}).json()["session_id"]
    engine.plan.append({"ids": list(b"cdc"), "finish": "length"})
    a = gateway.post(f"/sessions/{sid}/v1/chat/completions", {"messages": [USER]})
    assert a.status == 200, a.text
    assert len(engine.requests) > 1 and all(r["body"]["lora"] == [{"id": 1, "scale": 1}] for r in engine.requests)
    node = next(n for n in gateway.get(f"/sessions/{sid}").json()["tree"]["nodes"] if n["generated"])
    assert node["logprob_basis"] == "raw"       # what such fields do to the samplers is not known here

"""What of an agent's request reaches an upstream of kind openai: nothing that steers the server itself."""
import pytest

from stub_engines import StubEngine

USER = [{"role": "user", "content": "hi"}]
GOOD = {"model": "m", "temperature": 0.5, "top_p": 0.9, "top_k": 5, "max_tokens": 7, "stop": ["x"], "seed": 3,
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
        "tool_choice": "auto", "parallel_tool_calls": True, "reasoning_effort": "low", "user": "u", "metadata": {"a": "b"},
        "logprobs": True, "top_logprobs": 2, "presence_penalty": 0.5, "logit_bias": {"5": 1.0}}
STEERS = {"priority": -1000, "rid": "w0-1:1.0.0.", "request_id": "x", "lora_path": "/etc", "custom_logit_processor": "gASV",
          "custom_params": {}, "bootstrap_host": "10.0.0.1", "bootstrap_port": 1, "bootstrap_room": 1, "chat_template": "{{ x }}",
          "best_of": 64, "kv_transfer_params": {"do_remote_decode": True}, "cache_salt": "s", "vllm_xargs": {}, "logits_processors": ["os.system"],
          "mm_processor_kwargs": {}, "data_parallel_rank": 0, "session_params": {}, "input_ids": [1], "store": True, "echo": True,
          "prompt_logprobs": 5, "continue_final_message": True, "add_generation_prompt": False, "service_tier": "priority",
          "extra_body": {"priority": 1}, "return_hidden_states": True, "use_beam_search": True, "provider": {"order": ["x"]},
          "models": ["other"], "web_search_options": {}, "prediction": {}, "x_own": [1], "Priority": 1, "priority ": 1}


@pytest.fixture
def engine():
    with StubEngine("openai") as e:
        yield e


def sent(engine):
    return engine.requests[-1]["body"]


@pytest.mark.parametrize("stream", [False, True])
def test_nothing_that_steers_the_server_passes(start, engine, stream):
    gateway = start(engine=engine.setting, workers=1)
    sid = gateway.post("/sessions", {}).json()["session_id"]
    a = gateway.post(f"/sessions/{sid}/v1/chat/completions", {"messages": USER, **GOOD, **STEERS, "stream": stream})
    assert a.status == 200, a.text
    body = sent(engine)
    assert not set(STEERS) & set(body), set(STEERS) & set(body)
    assert set(body) <= set(GOOD) | {"messages", "stream", "stream_options"}
    assert {k: body[k] for k in GOOD} == GOOD
    assert gateway.metrics()["rollgate_upstream_fields_dropped_total"] == len(STEERS)
    a = gateway.post(f"/sessions/{sid}/v1/messages", {"messages": USER, "max_tokens": 9, **STEERS})
    assert a.status == 200 and not set(STEERS) & set(sent(engine))


def test_the_template_is_not_replaced_by_its_arguments(start, engine):
    gateway = start(engine=engine.setting, workers=1)
    sid = gateway.post("/sessions", {}).json()["session_id"]
    kwargs = {"enable_thinking": False, "chat_template": "{{ x }}", "tokenize": False}
    assert gateway.post(f"/sessions/{sid}/v1/chat/completions", {"messages": USER, "chat_template_kwargs": kwargs}).status == 200
    assert sent(engine)["chat_template_kwargs"] == {"enable_thinking": False}

"""A switch, an effort and a budget for the model's thoughts. They reach the template and the engine's own field. The
answer's header reports fields that cannot be obeyed. If an engine is too old, the turn's record reports it."""
import json

import pytest

from stub_engines import StubEngine
from test_dialects import USER

END = 257
IDS = [*b"ok", END]
SWITCH = ("{%- for m in messages -%}<{{ m.role }}>{{ m.content }}{%- endfor -%}<assistant>"
          "{%- if enable_thinking is defined and enable_thinking is false -%}[off]"
          "{%- elif enable_thinking is defined -%}[on]{%- endif -%}")
EFFORT = SWITCH + "[{{ reasoning_effort | default('none') }}]"
BARE = "{%- for m in messages -%}<{{ m.role }}>{{ m.content }}{# thinking #}{{ m.thinking }}{%- endfor -%}<assistant>"
DEEPSEEK = "{% if not thinking is defined %}{% set thinking = false %}{% endif %}" + BARE + "[{{ thinking }}]"
BODIES = {"chat": ("/v1/chat/completions", {"messages": [USER]}),
          "messages": ("/v1/messages", {"model": "m", "max_tokens": 99, "messages": [USER]}),
          "responses": ("/v1/responses", {"model": "m", "input": "hi"}),
          "completions": ("/v1/completions", {"prompt": "hi"})}
ON, OFF = {"type": "enabled"}, {"type": "disabled"}
SAID = "Rollgate-Not-Obeyed"


@pytest.fixture
def gateway_for(start, tmp_path):
    def make(engine, template=SWITCH, **more):
        path = tmp_path / "t.jinja"
        path.write_text(template)
        return start(workers=1, engine=engine, chat_template=str(path), **more)
    return make


def ask(gateway, dialect, more, options=None):
    a = gateway.post("/sessions", options or {})
    assert a.status == 200, a.text
    sid = a.json()["session_id"]
    path, body = BODIES[dialect]
    a = gateway.post(f"/sessions/{sid}{path}", {**body, **more})
    assert a.status == 200, a.text
    return sid, a.headers.get(SAID.lower(), a.headers.get(SAID))


def turn(gateway, sid):
    return next(n for n in gateway.get(f"/sessions/{sid}").json()["tree"]["nodes"] if n["generated"])


def prompt(gateway, sid):
    return bytes(gateway.get(f"/sessions/{sid}?records=1").json()["records"][0]["prompt_ids"]).decode()


@pytest.mark.parametrize("template,dialect,more,end,said", [
    (SWITCH, "messages", {"thinking": ON}, "[on]", None),
    (SWITCH, "messages", {"thinking": OFF}, "[off]", None),
    (SWITCH, "messages", {"thinking": {"type": "adaptive"}}, "<assistant>", None),
    (SWITCH, "messages", {"thinking": OFF, "chat_template_kwargs": {"enable_thinking": True}}, "[on]", None),
    (SWITCH, "chat", {"thinking": OFF}, "[off]", None),
    (SWITCH, "chat", {"enable_thinking": False}, "[off]", None),
    (SWITCH, "chat", {"enable_thinking": True}, "[on]", None),
    (SWITCH, "chat", {"reasoning_effort": "none"}, "[off]", None),
    (SWITCH, "chat", {"reasoning_effort": "high"}, "<assistant>", "reasoning_effort"),
    (SWITCH, "responses", {"reasoning": {"effort": "high"}}, "<assistant>", "reasoning.effort"),
    (SWITCH, "messages", {"output_config": {"effort": "max"}}, "<assistant>", "output_config.effort"),
    (EFFORT, "messages", {"output_config": {"effort": "max"}, "thinking": ON}, "[on][max]", None),
    (EFFORT, "chat", {"reasoning_effort": "none"}, "<assistant>[none]", None),
    (DEEPSEEK, "messages", {"thinking": ON}, "[True]", None),
    (BARE, "messages", {"thinking": ON}, "<assistant>", "thinking"),
    (BARE, "messages", {"thinking": OFF}, "<assistant>", None),        # this model does not think
    (BARE, "chat", {"chat_template_kwargs": {"enable_thinking": False}}, "<assistant>", None),
    (BARE, "chat", {"chat_template_kwargs": {"enable_thinking": True}}, "<assistant>", "chat_template_kwargs.enable_thinking"),
    (SWITCH, "chat", {"thinking": {"type": "frob"}, "frob": 1, "verbosity": "low"}, "<assistant>", "frob, verbosity, thinking"),
    (SWITCH, "messages", {"thinking": {"type": "adaptive", "budget_tokens": 7, "display": "omitted"}}, "<assistant>",
     "thinking.display, thinking.budget_tokens"),
    (SWITCH, "messages", {"thinking": {**OFF, "display": None, "frob": 1}}, "[off]", "thinking.frob"),
    (SWITCH, "chat", {"thinking": {**ON, "clear_thinking": False}}, "[on]", "thinking.clear_thinking"),
    (SWITCH, "chat", {"thinking": True, "enable_thinking": False}, "[off]", "thinking"),
    (SWITCH, "chat", {"na\r\nme, x": 1}, "<assistant>", "na??me??x"),
    (SWITCH, "chat", {"chat_template_kwargs": {"enable_thinkin": False, "tools": [], "frob": None}}, "<assistant>",
     "chat_template_kwargs.enable_thinkin, chat_template_kwargs.tools"),
    (SWITCH, "messages", {"enable_thinking": False}, "[off]", None),
    (EFFORT, "responses", {"chat_template_kwargs": {"reasoning_effort": "low", "enable_thinking": True}}, "[on][low]", None),
])
def test_the_template_gets_what_it_knows(gateway_for, template, dialect, more, end, said):
    gateway = gateway_for("builtin:echo", template)
    sid, header = ask(gateway, dialect, more)
    assert prompt(gateway, sid).endswith(end), prompt(gateway, sid)
    assert header == said


def test_token_counts_know_the_switch(gateway_for):
    gateway = gateway_for("builtin:echo")
    sid = gateway.post("/sessions", {}).json()["session_id"]
    counts = [gateway.post(f"/sessions/{sid}/v1/messages/count_tokens", {"messages": [USER], **more}).json()["input_tokens"]
              for more in ({}, {"thinking": OFF})]
    assert counts[1] == counts[0] + len("[off]")


OF_SEVEN = {"type": "enabled", "budget_tokens": 7}
BUDGETS = [("chat", {"max_thinking_tokens": 7}), ("chat", {"thinking_token_budget": 7}),
           ("completions", {"max_thinking_tokens": 7}), ("messages", {"thinking": OF_SEVEN}), ("chat", {"thinking": OF_SEVEN})]
WAYS = {"sglang": lambda e: e.requests[-1]["body"].get("max_thinking_tokens"),
        "generate": lambda e: e.requests[-1]["body"]["sampling_params"].get("thinking_token_budget"),
        "completions": lambda e: e.requests[-1]["body"].get("thinking_token_budget")}


def engine_of(way, **how):
    if way == "sglang":
        return StubEngine("sglang", info={"enable_strict_thinking": True}, **how)
    return StubEngine("vllm", routes=(way,), **how)


def known(gateway, engine):
    """Until the engine has told its settings."""
    if engine.info:
        gateway.wait_line("engine told its settings")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dialect,more", BUDGETS)
def test_the_engine_gets_the_budget(gateway_for, way, dialect, more):
    with engine_of(way) as engine:
        if engine.info:
            engine.info["context_length"] = 4096
        gateway = gateway_for(engine.setting)
        known(gateway, engine)
        engine.plan.append({"ids": IDS})
        sid, header = ask(gateway, dialect, more)
        assert WAYS[way](engine) == 7 and header is None
        assert "dropped_fields" not in turn(gateway, sid) and "parse_warning" not in turn(gateway, sid)
        # What ends a thought is not what the policy would have said; SGLang's logprobs know of it.
        assert way == "sglang" or "logprobs are not those of the distribution" in gateway.log()


@pytest.mark.parametrize("dialect,more", BUDGETS)
@pytest.mark.parametrize("kind", ["builtin", "sglang", "llamacpp"])
def test_no_field_is_said(gateway_for, kind, dialect, more):
    """A server that was not started for budgets, and kinds that have no field."""
    with StubEngine("sglang" if kind == "builtin" else kind) as engine:
        gateway = gateway_for("builtin:echo" if kind == "builtin" else engine.setting)
        engine.plan.append({"ids": IDS})
        sid, header = ask(gateway, dialect, more)
        name = "thinking.budget_tokens" if "thinking" in more else next(iter(more))
        assert header == name and turn(gateway, sid)["dropped_fields"] == [name]
        assert not engine.requests or "thinking" not in json.dumps(engine.requests[-1]["body"])


@pytest.mark.parametrize("status", [400, 422])
def test_a_server_that_refuses_budgets_is_asked_without(gateway_for, status):
    why = "thinking_token_budget is set but reasoning_config is not configured."
    refusal = {"status": status, "body": {"error": {"message": why}}}
    with StubEngine("vllm") as engine:
        gateway = gateway_for(engine.setting)
        engine.plan += [refusal, {"ids": IDS}]
        sid, header = ask(gateway, "chat", {"max_thinking_tokens": 7})
        assert len(engine.requests) == 2 and "thinking" not in json.dumps(engine.requests[-1]["body"])
        assert "max_thinking_tokens" in turn(gateway, sid)["parse_warning"] and header is None
        engine.plan.append({"ids": IDS})
        sid, header = ask(gateway, "chat", {"max_thinking_tokens": 7})
        assert len(engine.requests) == 3 and header == "max_thinking_tokens"
        assert gateway.log().count("refuses max_thinking_tokens") == 1


def test_a_refused_value_of_the_budget_is_that_value_alone(gateway_for):
    """Calls of other values have theirs; the refused one is told, and not tried twice."""
    refusal = {"status": 400, "body": {"error": {"message": "thinking_token_budget must be at most 32768, got 99999."}}}
    with StubEngine("vllm") as engine:
        gateway = gateway_for(engine.setting)
        engine.plan += [refusal, {"ids": IDS}]
        sid, header = ask(gateway, "chat", {"max_thinking_tokens": 99999})
        assert len(engine.requests) == 2 and "thinking" not in json.dumps(engine.requests[-1]["body"])
        assert "max_thinking_tokens" in turn(gateway, sid)["parse_warning"] and header is None
        engine.plan.append({"ids": IDS})
        sid, header = ask(gateway, "chat", {"max_thinking_tokens": 7})
        assert WAYS["generate"](engine) == 7 and header is None and "parse_warning" not in turn(gateway, sid)
        engine.plan.append({"ids": IDS})
        sid, _ = ask(gateway, "chat", {"max_thinking_tokens": 99999})
        assert len(engine.requests) == 4 and "max_thinking_tokens" in turn(gateway, sid)["parse_warning"]
        assert gateway.log().count("refuses a value of max_thinking_tokens") == 1
        assert "refuses max_thinking_tokens" not in gateway.log()


def test_a_refusal_of_something_else_that_names_the_budget(gateway_for):
    """It is refused without the budget as well: later calls have theirs."""
    other = {"status": 400, "body": {"error": {"message": "stop must not be empty, got ['thinking_token_budget', '']"}}}
    with StubEngine("vllm") as engine:
        gateway = gateway_for(engine.setting)
        engine.plan += [other, other]
        sid = gateway.post("/sessions", {}).json()["session_id"]
        a = gateway.post(f"/sessions/{sid}/v1/chat/completions", {"messages": [USER], "max_thinking_tokens": 7})
        assert a.status == 400 and "must not be empty" in a.text, a.text
        engine.plan.append({"ids": IDS})
        _, header = ask(gateway, "chat", {"max_thinking_tokens": 7})
        assert header is None and WAYS["generate"](engine) == 7


def test_an_old_engine_that_ignores_the_budget_is_told_of(gateway_for):
    thought = [*b"<think>", *b"x" * 200, *b"</think>", *b"ok", END]
    with StubEngine("vllm") as engine:
        gateway = gateway_for(engine.setting, SWITCH + "<think>{{ '</think>' if false }}", reasoning_parser="qwen3")
        engine.plan += [{"ids": thought}, {"ids": [*b"x</think>ok", END]}]
        sid, _ = ask(gateway, "chat", {"max_thinking_tokens": 7})
        assert "max_thinking_tokens was 7" in turn(gateway, sid)["parse_warning"]
        sid, _ = ask(gateway, "chat", {"max_thinking_tokens": 7})
        assert "parse_warning" not in turn(gateway, sid)


def test_a_session_may_give_the_budget(gateway_for):
    with StubEngine("vllm") as engine:
        gateway = gateway_for(engine.setting)
        engine.plan.append({"ids": IDS})
        ask(gateway, "messages", {}, {"sampling_params": {"max_thinking_tokens": 5}})
        assert engine.requests[-1]["body"]["sampling_params"]["thinking_token_budget"] == 5
        engine.plan.append({"ids": IDS})
        ask(gateway, "messages", {"thinking": {"type": "enabled", "budget_tokens": 50}},
            {"sampling_params": {"max_thinking_tokens": 5}, "lock_sampling": ["max_thinking_tokens"]})
        assert engine.requests[-1]["body"]["sampling_params"]["thinking_token_budget"] == 5
    with StubEngine("llamacpp") as engine:
        gateway = gateway_for(engine.setting)
        sid = gateway.post("/sessions", {"sampling_params": {"max_thinking_tokens": 5}}).json()["session_id"]
        a = gateway.post(f"/sessions/{sid}/v1/chat/completions", {"messages": [USER]})
        assert a.status == 400 and a.json()["error"]["param"] == "max_thinking_tokens", a.text


def test_an_upstream_of_chats_gets_it_as_it_is(gateway_for):
    with StubEngine("openai") as engine:
        gateway = gateway_for(engine.setting)
        more = {"max_thinking_tokens": 7, "thinking": ON, "reasoning_effort": "low", "enable_thinking": True}
        _, header = ask(gateway, "chat", more)
        assert {k: engine.requests[-1]["body"].get(k) for k in more} == more and header is None
        _, header = ask(gateway, "messages", {"thinking": OF_SEVEN, "output_config": {"effort": "low"}})
        assert header == "thinking" and "thinking" not in engine.requests[-1]["body"]
        assert engine.requests[-1]["body"]["reasoning_effort"] == "low" and "chat_template_kwargs" not in engine.requests[-1]["body"]

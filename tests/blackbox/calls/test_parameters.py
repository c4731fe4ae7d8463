"""Effects of a call's parameters in every dialect: stop strings, reasoning effort and template kwargs, locked
sampling, logprobs, several answers, formats."""
import json

import pytest

from stub_engines import StubEngine
from test_dialects import USER, chat_body, events_of, messages_body, new_session, post, read_chat, read_chat_stream, read_messages, \
    read_messages_stream, read_responses, read_responses_stream, serve  # noqa: F401 (serve is a fixture)


def completions_body(**more):
    return {"model": "m", "prompt": "hi", **more}


def read_completions(v):
    return "", v["choices"][0]["text"], []


def read_completions_stream(events):
    return "", "".join(v["choices"][0]["text"] for _, v in events if v and v["choices"]), []


def responses_body(**more):
    return {"model": "m", "input": "hi", **more}


DIALECTS = {
    "chat": ("/v1/chat/completions", chat_body, read_chat, read_chat_stream, "stop"),
    "messages": ("/v1/messages", messages_body, read_messages, read_messages_stream, "stop_sequences"),
    "responses": ("/v1/responses", responses_body, read_responses, read_responses_stream, "stop"),
    "completions": ("/v1/completions", completions_body, read_completions, read_completions_stream, "stop"),
}
every_dialect = pytest.mark.parametrize("dialect", list(DIALECTS))


@every_dialect
@pytest.mark.parametrize("stream", [False, True])
def test_stop_strings_cut_the_text_and_keep_the_ids(serve, dialect, stream):
    path, body, read, read_stream, name = DIALECTS[dialect]
    gateway, session = serve(["one STOP two"])
    ask = body(**{name: ["never", "STOP", "OP t"]})
    if stream:
        events = events_of(gateway, session, path, ask)
        raw, got = json.dumps(events), read_stream(events)
    else:
        raw = post(gateway, session, path, ask).text
        got = read(json.loads(raw))
    assert got[1] == "one " and "two" not in raw
    ends = {"chat": '"finish_reason": "stop"', "messages": '"stop_sequence": "STOP"', "responses": '"status": "completed"', "completions": '"finish_reason": "stop"'}
    assert ends[dialect] in json.dumps(events if stream else json.loads(raw))
    turn = gateway.post(f"/sessions/{session}/finalize", {}).json()["trajectories"][0]
    assert turn["response_ids"] == list(b"one STOP")


def test_a_stop_string_in_the_middle_of_a_call_leaves_text(serve):
    gateway, session = serve(['<tool_call>\n{"name": "write", "arguments": {"content": "STOP"}}\n</tool_call>'])
    choice = post(gateway, session, "/v1/chat/completions", chat_body(stop="STOP")).json()["choices"][0]
    assert choice["finish_reason"] == "stop" and choice["message"]["content"].startswith("<tool_call>") and "tool_calls" not in choice["message"]


TEMPLATE = ("{%- for m in messages -%}<{{ m.role }}>{{ m.content }}{%- endfor -%}"
            "[{{ reasoning_effort | default('none') }}|{{ enable_thinking | default('unset') }}|{{ other | default(0) }}]")


@pytest.mark.parametrize("dialect,more,want", [
    ("chat", {"reasoning_effort": "low"}, "[low|unset|0]"),
    ("chat", {"reasoning_effort": "low", "chat_template_kwargs": {"reasoning_effort": "high", "enable_thinking": False}}, "[high|False|0]"),
    ("chat", {"chat_template_kwargs": {"other": 5}}, "[none|unset|5]"),
    ("responses", {"reasoning": {"effort": "medium"}, "chat_template_kwargs": {"other": 1}}, "[medium|unset|1]"),
    ("messages", {"chat_template_kwargs": {"enable_thinking": True}}, "[none|True|0]"),
])
def test_effort_and_kwargs_reach_the_template(start, tmp_path, dialect, more, want):
    template = tmp_path / "t.jinja"
    template.write_text(TEMPLATE)
    gateway = start(engine="builtin:echo", workers=1, chat_template=str(template))
    session = new_session(gateway)
    path, body = DIALECTS[dialect][:2]
    answer = post(gateway, session, path, {k: v for k, v in body(**more).items() if k != "tools"})
    assert answer.status == 200, answer.text
    record = gateway.get(f"/sessions/{session}?records=1").json()["records"][0]
    assert bytes(record["prompt_ids"]).decode().endswith(want), bytes(record["prompt_ids"])


# --- what the engine is sent ---

@pytest.fixture
def engine(start):
    with StubEngine("sglang") as e:
        e.gateway = start(workers=1, engine=e.setting)
        yield e


def sent(engine, dialect, body, options=None):
    engine.plan.append({"ids": list(b"ok") + [257], "matched": 257})
    session = engine.gateway.post("/sessions", options or {}).json()["session_id"]
    answer = post(engine.gateway, session, DIALECTS[dialect][0], body)
    assert answer.status == 200, answer.text
    return engine.requests[-1]["body"]


MAX = {"chat": "max_completion_tokens", "messages": "max_tokens", "responses": "max_output_tokens", "completions": "max_tokens"}


@every_dialect
def test_locked_names_are_not_the_agents(engine, dialect):
    body = DIALECTS[dialect][1]
    options = {"sampling_params": {"temperature": 0.7, "max_tokens": 33, "top_k": 5, "stop": ["A"], "top_p": 0.5},
               "lock_sampling": ["temperature", "max_tokens", "stop", "seed"]}
    mine = {"temperature": 0.1, MAX[dialect]: 99, "top_k": 9, DIALECTS[dialect][4]: ["B"], "seed": 4}
    params = sent(engine, dialect, body(**mine), options)["sampling_params"]
    assert (params["temperature"], params["max_new_tokens"], params["stop"], params["top_k"], params["top_p"]) == (0.7, 33, ["A"], 9, 0.5)
    assert "sampling_seed" not in params
    options["lock_sampling"] = []
    params = sent(engine, dialect, body(**mine), options)["sampling_params"]
    assert (params["temperature"], params["max_new_tokens"], params["stop"], params["top_k"], params["top_p"]) == (0.1, 99, ["B"], 9, 0.5)


@every_dialect
def test_locked_names_without_effect_are_reported(engine, dialect):
    """Not where the agent asks for the value that holds anyway."""
    path, body = DIALECTS[dialect][:2]

    def dropped(options, **given):
        sid = engine.gateway.post("/sessions", options).json()["session_id"]
        engine.plan.append({"ids": list(b"ok") + [257], "matched": 257})
        answer = post(engine.gateway, sid, path, body(**given))
        assert answer.status == 200, answer.text
        told = engine.gateway.get(f"/sessions/{sid}/trajectories").json()["trajectories"][0]["turns"][0].get("dropped_fields", [])
        assert set(told) <= set((answer.headers.get("Rollgate-Not-Obeyed") or "").split(", "))
        return set(told) & {"temperature", "top_p", "top_k"}
    locks = {"sampling_params": {"temperature": 0.5}, "lock_sampling": ["temperature", "top_p", "top_k"]}
    assert dropped(locks, temperature=0.25, top_p=0.5, top_k=3) == {"temperature", "top_p", "top_k"}
    assert dropped(locks, temperature=0.5, top_p=1.0) == set()
    assert dropped({"sampling_params": {"temperature": 0.5}}, temperature=0.25, top_p=0.5) == set()


def test_a_locked_format_holds(engine):
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    options = {"sampling_params": {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}},
               "lock_sampling": ["response_format"]}
    for dialect, more in (("chat", {"response_format": {"type": "json_object"}}), ("responses", {"text": {"format": {"type": "json_object"}}})):
        body = {k: v for k, v in DIALECTS[dialect][1](**more).items() if k != "tools"}
        assert json.loads(sent(engine, dialect, body, options)["sampling_params"]["json_schema"]) == schema


SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


@pytest.mark.parametrize("dialect,more", [
    ("chat", {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA, "strict": True}}}),
    ("responses", {"text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA}}}),
    ("messages", {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}, "effort": "high"}}),
    ("messages", {"output_format": {"type": "json_schema", "schema": SCHEMA}}),
    ("completions", {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}}),
])
def test_formats_of_every_dialect_reach_the_grammar(engine, dialect, more):
    body = {k: v for k, v in DIALECTS[dialect][1](**more).items() if k != "tools"}
    assert json.loads(sent(engine, dialect, body)["sampling_params"]["json_schema"]) == SCHEMA


def test_unknown_formats_of_messages_are_no_error(engine):
    for more in ({"output_config": {"effort": "high"}}, {"output_format": {"type": "new"}}, {"output_config": 5}, {"output_format": None}):
        assert "json_schema" not in sent(engine, "messages", messages_body(**more))["sampling_params"], more


def test_top_logprobs_are_asked_for_and_told(engine):
    k = 3
    body = {"model": "m", "messages": [USER], "logprobs": True, "top_logprobs": k}
    for stream in (False, True):
        assert sent(engine, "chat", {**body, "stream": stream})["top_logprobs_num"] == k
    assert sent(engine, "chat", {"model": "m", "messages": [USER]})["top_logprobs_num"] == 0
    assert sent(engine, "completions", completions_body(logprobs=2))["top_logprobs_num"] == 2
    include = {"include": ["message.output_text.logprobs"], "top_logprobs": 4}
    assert sent(engine, "responses", responses_body(**include))["top_logprobs_num"] == 4

    def tell(dialect, body):
        engine.plan.append({"ids": list(b"ok") + [257], "matched": 257})
        return post(engine.gateway, new_session(engine.gateway), DIALECTS[dialect][0], body)
    entries = tell("chat", body).json()["choices"][0]["logprobs"]["content"]
    assert [len(e["top_logprobs"]) for e in entries] == [k] * 3 and [e["token"] for e in entries][:2] == ["o", "k"]
    completion = tell("completions", completions_body(logprobs=2)).json()["choices"][0]["logprobs"]
    assert completion["tokens"][:2] == ["o", "k"] and all(len(t) >= 2 for t in completion["top_logprobs"]) and len(completion["token_logprobs"]) == 3
    part = tell("responses", responses_body(**include)).json()["output"][0]["content"][0]
    assert len(part["logprobs"]) >= 2 and all(len(e["top_logprobs"]) == 4 for e in part["logprobs"])
    plain = tell("chat", {"model": "m", "messages": [USER]}).json()["choices"][0]
    assert plain.get("logprobs") is None


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("dialect", ["chat", "completions"])
def test_several_answers_are_siblings(serve, dialect, stream):
    path, body, _, _, _ = DIALECTS[dialect]
    gateway, session = serve(["one", "two", "three"])
    ask = body(n=3)
    if stream:
        texts = ["", "", ""]
        for _, v in events_of(gateway, session, path, ask):
            for c in (v or {}).get("choices", []):
                texts[c["index"]] += c["text"] if dialect == "completions" else c["delta"].get("content") or ""
    else:
        choices = post(gateway, session, path, ask).json()["choices"]
        assert [c["index"] for c in choices] == [0, 1, 2] and all(c["finish_reason"] == "stop" for c in choices)
        texts = [c["text"] if dialect == "completions" else c["message"]["content"] for c in choices]
    assert texts == ["one", "two", "three"]
    state = gateway.get(f"/sessions/{session}").json()
    generated = [n for n in state["tree"]["nodes"] if n["generated"]]
    assert len(generated) == 3 and len({n["parent"] for n in generated}) == 1


@pytest.mark.parametrize("stream", [False, True])
def test_several_answers_with_calls(serve, stream):
    call = '<tool_call>\n{"name": "write", "arguments": {"content": "%s"}}\n</tool_call>'
    gateway, session = serve(["<think>\na\n</think>\n\nfirst " + call % "1", call % "2" + "\n" + call % "3"])
    ask = chat_body(n=2)
    got = [["", "", []], ["", "", []]]
    if stream:
        for _, v in events_of(gateway, session, "/v1/chat/completions", ask):
            for c in (v or {}).get("choices", []):
                one, delta = got[c["index"]], c["delta"]
                one[0] += delta.get("reasoning_content") or ""
                one[1] += delta.get("content") or ""
                for t in delta.get("tool_calls", []):
                    if "id" in t:
                        one[2].append("")
                    one[2][t["index"]] += t["function"].get("arguments", "")
    else:
        for c in post(gateway, session, "/v1/chat/completions", ask).json()["choices"]:
            m = c["message"]
            assert c["finish_reason"] == "tool_calls"
            got[c["index"]] = [m.get("reasoning_content") or "", m["content"] or "", [t["function"]["arguments"] for t in m["tool_calls"]]]
    assert [g[2] for g in got] == [['{"content": "1"}'], ['{"content": "2"}', '{"content": "3"}']]
    assert got[0][0].strip() == "a" and got[0][1].strip() == "first" and got[1][:2] == ["", ""]


@pytest.mark.parametrize("stream", [False, True])
def test_an_engine_that_runs_over_a_stop_string(engine, stream):
    """The agent would have the text before it, and the trainer tokens that nobody saw: the call fails, nothing is recorded."""
    engine.plan.append({"ids": list(b"one STOP two") + [257], "matched": 257, "chunk": 1})
    session = new_session(engine.gateway)
    ask = {"model": "m", "messages": [USER], "stop": ["STOP"]}
    if stream:
        events = events_of(engine.gateway, session, "/v1/chat/completions", ask)
        assert "".join(v["choices"][0]["delta"].get("content") or "" for _, v in events if v and v.get("choices")) == "one "
        assert [v["error"]["code"] for _, v in events if v and "error" in v] == ["engine_invalid"]
    else:
        a = engine.gateway.request("POST", f"/sessions/{session}/v1/chat/completions", ask)
        assert a.status == 502 and "ignored stop" in a.text, a.text
    assert engine.gateway.post(f"/sessions/{session}/finalize", {}).json()["trajectories"] == []


@every_dialect
def test_headers_and_metadata_become_labels(serve, dialect):
    path, body = DIALECTS[dialect][:2]
    gateway, session = serve(["a", "b", "c", "d"])
    sent = [({"Rollgate-Label": "planner"}, {}, "planner"), ({"X-Claude-Code-Agent-Id": "agent-7"}, {}, "agent-7"),
            ({}, {"metadata": {"rollgate_label": "judge", "user_id": "u"}}, "judge"), ({}, {"metadata": {"user_id": "u"}, "user": "x"}, None)]
    for headers, more, _ in sent:
        answer = gateway.request("POST", f"/sessions/{session}{path}", body(**more), headers=headers)
        assert answer.status == 200, answer.text
    nodes = gateway.get(f"/sessions/{session}").json()["tree"]["nodes"]
    assert [n.get("label") for n in nodes if n["generated"]] == [want for _, _, want in sent]

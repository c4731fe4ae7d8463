"""Kind `openai`: the forms of servers' answers. Each is read as the API or common servers mean it, with equal results
in every dialect, streamed or not, and in the record. Otherwise it is 502 `engine_invalid` with the field's name."""
import json

import pytest

TOOLS = [{"type": "function", "function": {"name": n, "parameters": {"type": "object"}}} for n in ("f", "g")]
USER = {"role": "user", "content": "hi"}
BASE = {"id": "u", "created": 1, "model": "m"}


@pytest.fixture
def pair(kept):
    engine, gateway = kept.pair("openai", workers=1, engine_retries=0)
    gateway.allow(".*")
    return engine, gateway


def chunk(delta=None, finish=None, **more):
    choice = {"index": 0, "finish_reason": finish, **({"delta": delta} if delta is not None else {}), **more}
    return {**BASE, "object": "chat.completion.chunk", "choices": [choice]}


def whole(message, finish="stop"):
    return [{**BASE, "object": "chat.completion", "choices": [{"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}]}]


def calls(*entries):
    return chunk({"tool_calls": list(entries)})


def f(name=None, arguments=None):
    return {"function": {k: v for k, v in (("name", name), ("arguments", arguments)) if v is not None}}


END, CALLED = chunk({}, "stop"), chunk({}, "tool_calls")
ONE = [("f", {"a": "x"})]
TWO = [("f", {"a": "x"}), ("g", {"b": "y"})]
A, B = '{"a": "x"}', '{"b": "y"}'

# name -> documents of a stream (a whole answer: one with a message), and what they mean: text, thought, calls.
FORMS = {
    "calls in turns": ([calls({"index": 0, "id": "c1", **f("f", '{"a":')}), calls({"index": 1, "id": "c2", **f("g", '{"b":')}), calls({"index": 0, **f(None, '"x"}')}),
                        calls({"index": 1, **f(None, '"y"}')}), CALLED], "", "", TWO),
    "calls in turns, three pieces in one event": ([calls({"index": 0, "id": "c1", **f("f", '{"a"')}, {"index": 1, "id": "c2", **f("g", '{"b"')}),
                                                   calls({"index": 1, **f(None, ':"y"}')}, {"index": 0, **f(None, ':"x"}')}), CALLED], "", "", TWO),
    "two ids on one index": ([calls({"index": 0, "id": "c1", **f("f", A)}), calls({"index": 0, "id": "c2", **f("g", B)}), CALLED], "", "", TWO),
    "two ids on one index, in one event": ([calls({"index": 0, "id": "c1", **f("f", A)}, {"index": 0, "id": "c2", **f("g", B)}), CALLED], "", "", TWO),
    "two ids on one index, in pieces": ([calls({"index": 0, "id": "c1", **f("f", '{"a":')}), calls({"index": 0, **f(None, ' "x"}')}), calls({"index": 0, "id": "c2", **f("g", '{"b":')}),
                                         calls({"index": 0, **f(None, ' "y"}')}), CALLED], "", "", TWO),
    "one index, no ids": ([calls({"index": 0, **f("f", A)}), calls({"index": 0, **f("g", B)}), CALLED], "", "", TWO),
    "no index": ([calls({"id": "c1", **f("f", A)}), calls({"id": "c2", **f("g", B)}), CALLED], "", "", TWO),
    "no index, in one event": ([calls({"id": "c1", **f("f", A)}, {"id": "c2", **f("g", B)}), CALLED], "", "", TWO),
    "no index, in pieces": ([calls({"id": "c1", **f("f", '{"a":')}), calls(f(None, ' "x"}')), calls({"id": "c2", **f("g", B)}), CALLED], "", "", TWO),
    "index null, no id": ([calls({"index": None, "id": None, **f("f", A)}), calls({"index": None, **f("g", B)}), CALLED], "", "", TWO),
    "indexes from one on": ([calls({"index": 1, "id": "c1", **f("f", '{"a":')}), calls({"index": 1, **f(None, ' "x"}')}), calls({"index": 2, "id": "c2", **f("g", B)}), CALLED], "", "", TWO),
    "text between calls": ([chunk({"content": "T"}), calls({"index": 0, "id": "c1", **f("f", '{"a":')}), chunk({"content": "U", "reasoning_content": "R"}), calls({"index": 0, **f(None, ' "x"}')}),
                            calls({"index": 1, "id": "c2", **f("g", B)}), CALLED], "TU", "R", TWO),
    "arguments as an object": ([calls({"index": 0, "id": "c1", **f("f", {"a": "x"})}), calls({"index": 1, "id": "c2", **f("g", {"b": "y"})}), CALLED], "", "", TWO),
    "arguments as an object, whole": (whole({"content": None, "tool_calls": [{"id": "c1", "type": "function", **f("f", {"a": "x"})}, {"id": "c2", **f("g", {"b": "y"})}]}, "tool_calls"), "", "", TWO),
    "no ids, whole": (whole({"content": "", "tool_calls": [f("f", A), f("g", B)]}, "tool_calls"), "", "", TWO),
    "one id, whole": (whole({"tool_calls": [{"id": "c", **f("f", A)}, {"id": "c", **f("g", B)}]}, "tool_calls"), "", "", TWO),
    "finish stop with calls": (whole({"tool_calls": [{"id": "c", **f("f", A)}]}, "stop"), "", "", ONE),
    "one id for all, as older Mistral has it": ([calls({"id": "null", **f("f", A)}, {"id": "null", **f("g", B)}), CALLED], "", "", TWO),
    "a call in the place of the list": ([chunk({"tool_calls": {"index": 0, "id": "", **f("f", '{"a":')}}), chunk({"tool_calls": {"index": 0, **f(None, '"x"}')}}), CALLED], "", "", ONE),
    "function_call": ([chunk({"function_call": {"name": "f", "arguments": ""}}), chunk({"function_call": {"arguments": A}}), chunk({}, "function_call")], "", "", ONE),
    "function_call, whole": (whole({"content": None, "function_call": {"name": "f", "arguments": A}}, "function_call"), "", "", ONE),
    "function_call as an object": (whole({"content": None, "function_call": {"name": "f", "arguments": {"a": "x"}}}, "function_call"), "", "", ONE),
    "custom call": ([calls({"index": 0, "id": "c1", "type": "custom", "custom": {"name": "f", "input": ""}}), calls({"index": 0, "custom": {"input": 'a "\n'}}),
                     calls({"index": 0, "custom": {"input": "\u00e9"}}), CALLED], "", "", [("f", {"input": 'a "\n\u00e9'})]),
    "custom call, whole": (whole({"content": None, "tool_calls": [{"id": "c1", "type": "custom", "custom": {"name": "f", "input": "a"}}]}, "tool_calls"), "", "", [("f", {"input": "a"})]),
    "content in parts": ([chunk({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "R"}]}]}), chunk({"content": [{"type": "text", "text": "T"}]}), chunk({"content": "U"}), END], "TU", "R", []),
    "content in parts, whole": (whole({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "R"}]}, {"type": "text", "text": "T"}, {"type": "output_text", "text": "U"}]}), "TU", "R", []),
    "content in parts, a reasoning": (whole({"content": [{"type": "reasoning", "summary": [{"type": "summary_text", "text": "R"}]}, {"type": "text", "text": "T"}]}), "T", "R", []),
    "content in parts, with calls": (whole({"content": [{"type": "thinking", "thinking": "R"}, {"type": "text", "text": "T"}], "tool_calls": [{"id": "c", **f("f", A)}]}, "tool_calls"), "T", "R", ONE),
    "a thought under other names": ([chunk({"reasoning_text": "R"}), chunk({"content": "T"}), END], "T", "R", []),
    "a thought in details alone": ([chunk({"reasoning_details": [{"type": "reasoning.text", "text": "R", "index": 0}]}), chunk({"content": "T"}), END], "T", "R", []),
    "message instead of delta": ([chunk(message={"role": "assistant", "content": "T"}), chunk(message={"content": "U"}, finish="stop")], "TU", "", []),
    "one message as a stream": ([chunk(message={"role": "assistant", "content": "T", "reasoning": "R", "tool_calls": [{"id": "c1", **f("f", A)}]}, finish="tool_calls")], "T", "R", ONE),
    "message next to an empty delta": ([chunk({}, message={"role": "assistant", "content": "T"}), END], "T", "", []),
    "message that repeats the deltas": ([chunk({"content": "T"}, message={"content": "T"}), chunk({"content": "U"}, message={"content": "TU"}), chunk({}, "stop", message={"content": "TU"})], "TU", "", []),
    "no choices": ([{"usage": {"prompt_tokens": 3}}, {}, {"choices": None}, {"type": "ping"}, chunk({"content": "T"}), {**BASE, "choices": []}, END, {"usage": {"prompt_tokens": 3, "completion_tokens": 1}}], "T", "", []),
    "lone surrogates": ([chunk({"content": "a\ud83d"}), chunk({"content": "\ude00b\udc00", "reasoning_content": "\ud800c"}), END], "a\U0001f600b\ufffd", "\ufffdc", []),
    "lone surrogates, whole": (whole({"content": "a\ud83d", "reasoning": "\udc00"}), "a\ufffd", "\ufffd", []),
    "lone surrogates in calls": ([calls({"index": 0, "id": "c\ud800", **f("f", '{"a": "\ud83d')}), calls({"index": 0, **f(None, '\ude00\ud800"}')}), CALLED], "", "", [("f", {"a": "\U0001f600\ufffd"})]),
    "refusal": ([chunk({"refusal": "N"}), chunk({"refusal": "o"}), END], "No", "", []),
}

LAST_WORDS = ("no message", "calls that never came")    # no other end follows

BAD = {
    "choices": ([{"choices": {}}], "choices must be a list"),
    "an event": ([[1]], "an event is no object"),
    "two choices": ([{**BASE, "choices": [{"index": 0, "delta": {"content": "a"}}, {"index": 1, "delta": {"content": "b"}}]}], "choices"),
    "another choice": ([{**BASE, "choices": [{"index": 1, "delta": {"content": "a"}}]}], "choices[0].index"),
    "delta": ([chunk("x")], "choices[0].delta"),
    "content": (whole({"content": 7}), "choices[0].message.content"),
    "a part": (whole({"content": [{"type": "image_url", "image_url": {"url": "x"}}]}), "choices[0].message.content[0].type"),
    "audio": (whole({"content": None, "audio": {"data": "x"}}), "choices[0].message.audio"),
    "images": (whole({"content": "x", "images": [{"type": "image_url"}]}), "choices[0].message.images"),
    "thought": ([chunk({"reasoning_content": ["x"]})], "choices[0].delta.reasoning_content"),
    "calls": ([chunk({"tool_calls": "f"})], "choices[0].delta.tool_calls must be a list"),
    "a call": ([calls("f")], "choices[0].delta.tool_calls[0]"),
    "a call's index": ([calls({"index": "0", **f("f", A)})], "choices[0].delta.tool_calls[0].index"),
    "a call's id": ([calls({"index": 0, "id": 7, **f("f", A)})], "choices[0].delta.tool_calls[0].id"),
    "a call's name": (whole({"tool_calls": [{"id": "c", **f("", A)}]}), "tool call 0 has no name"),
    "another name": ([calls({"index": 0, "id": "c", **f("f", "{")}), calls({"index": 0, **f("g", "}")})], "choices[0].delta.tool_calls[0].function.name"),
    "a call's type": (whole({"tool_calls": [{"id": "c", "type": "mcp", "mcp": {}}]}), "choices[0].message.tool_calls[0].type"),
    "arguments": (whole({"tool_calls": [{"id": "c", **f("f", [1])}]}), "choices[0].message.tool_calls[0].function.arguments"),
    "arguments twice": ([calls({"index": 0, "id": "c", **f("f", A)}), calls({"index": 0, "id": "c", **f("f", A)})], "choices[0].delta.tool_calls[0].function.arguments"),
    "arguments after the call": ([calls({"index": 0, "id": "c", **f("f", A)}), calls({"index": 1, "id": "d", **f("g", "{")}), calls({"index": 0, **f(None, "x")})], "choices[0].delta.tool_calls[0].function.arguments"),
    "input": (whole({"tool_calls": [{"id": "c", "type": "custom", "custom": {"name": "f", "input": {}}}]}), "choices[0].message.tool_calls[0].custom.input"),
    "both": (whole({"function_call": {"name": "f", "arguments": A}, "tool_calls": [{"id": "c", **f("f", A)}]}), "choices[0].message.function_call"),
    "a message that grows": ([chunk(message={"content": "T"}), chunk(message={"content": "TU"}, finish="stop")], "choices[0].message.content"),
    "calls in the last message alone": ([chunk({"content": "T"}), chunk({}, "tool_calls", message={"content": "T", "tool_calls": [{"id": "c", **f("f", A)}]})], "choices[0].message.tool_calls"),
    "a text completion": ([{**BASE, "choices": [{"index": 0, "text": "T", "finish_reason": "stop"}]}], "choices[0].text"),
    "calls that never came": ([chunk({"content": "T"}), CALLED], "choices[0].finish_reason"),
    "calls that never came, whole": (whole({"content": "T"}, "tool_calls"), "choices[0].finish_reason"),
    "no message": ([{**BASE, "choices": [{"index": 0, "finish_reason": "stop"}]}], "choices[0].message"),
}


def events(text):
    return [json.loads(line[6:]) for line in text.split("\n") if line.startswith("data: {")]


def args_of(text):
    return json.loads(text) if text else {}


def by_chat(a, stream):
    if not stream:
        m = a.json()["choices"][0]["message"]
        return m["content"] or "", m.get("reasoning_content", ""), [(c["function"]["name"], args_of(c["function"]["arguments"])) for c in m.get("tool_calls", [])]
    text, thought, got = "", "", {}
    for d in (e["choices"][0]["delta"] for e in events(a.text) if e.get("choices")):
        text += d.get("content") or ""
        thought += d.get("reasoning_content") or ""
        for c in d.get("tool_calls", []):
            call = got.setdefault(c["index"], ["", ""])
            call[0] += c["function"].get("name") or ""
            call[1] += c["function"].get("arguments") or ""
    return text, thought, [(n, args_of(t)) for n, t in got.values()]


def by_messages(a, stream):
    if not stream:
        blocks = a.json()["content"]
    else:
        blocks, opened = [], None
        for e in events(a.text):
            if e["type"] == "content_block_start":
                assert opened is None
                opened, part = e["content_block"], ""
            elif e["type"] == "content_block_delta":
                d = e["delta"]
                if d["type"] != "signature_delta":
                    assert d["type"] == {"text": "text_delta", "thinking": "thinking_delta", "tool_use": "input_json_delta"}[opened["type"]]
                    part += d.get("text") or d.get("thinking") or d.get("partial_json") or ""
            elif e["type"] == "content_block_stop":
                key = {"text": "text", "thinking": "thinking", "tool_use": "input"}[opened["type"]]
                blocks.append({**opened, key: args_of(part) if key == "input" else part})
                opened = None
        assert events(a.text)[-1]["type"] == "message_stop", a.text
    return ("".join(b["text"] for b in blocks if b["type"] == "text"), "".join(b["thinking"] for b in blocks if b["type"] == "thinking"),
            [(b["name"], b["input"]) for b in blocks if b["type"] == "tool_use"])


def by_responses(a, stream):
    if stream:
        done = [e["item"] for e in events(a.text) if e["type"] == "response.output_item.done"]
        body = events(a.text)[-1]["response"]
        assert body["output"] == done and body["status"] == "completed"
        for kind in ("output_text", "reasoning_text", "function_call_arguments"):   # deltas spell what their end says
            deltas = "".join(e["delta"] for e in events(a.text) if e["type"] == f"response.{kind}.delta")
            assert deltas == "".join(e.get("text", e.get("arguments")) for e in events(a.text) if e["type"] == f"response.{kind}.done")
    else:
        body = a.json()
    out = body["output"]
    return ("".join(c["text"] for o in out if o["type"] == "message" for c in o["content"]), "".join(c["text"] for o in out if o["type"] == "reasoning" for c in o["content"]),
            [(o["name"], args_of(o["arguments"])) for o in out if o["type"] == "function_call"])


DIALECTS = {
    "chat/completions": (by_chat, {"messages": [USER], "tools": TOOLS}),
    "messages": (by_messages, {"model": "m", "max_tokens": 99, "messages": [USER], "tools": [{"name": t["function"]["name"], "input_schema": {"type": "object"}} for t in TOOLS]}),
    "responses": (by_responses, {"model": "m", "input": "hi", "tools": [{"type": "function", **t["function"]} for t in TOOLS]}),
}


@pytest.mark.parametrize("form", FORMS)
def test_form_means_the_same_everywhere(pair, form):
    engine, gateway = pair
    docs, *want = FORMS[form]
    is_whole = "message" in docs[0].get("choices", [{}])[0] and docs[0].get("object") == "chat.completion" if docs[0].get("choices") else False
    for dialect, (read, body) in DIALECTS.items():
        for stream in (False, True):
            sid = gateway.post("/sessions", {}).json()["session_id"]
            engine.plan.append({"edit": lambda _: docs, "stream": not is_whole})
            a = gateway.post(f"/sessions/{sid}/v1/{dialect}", {**body, "stream": stream})
            assert a.status == 200, (dialect, stream, a.text)
            assert list(read(a, stream)) == want, (dialect, stream, a.text)
            for form_of_export in ("json", "msgpack"):
                assert gateway.get(f"/sessions/{sid}/trajectories?format={form_of_export}").status == 200
            t = gateway.get(f"/sessions/{sid}/trajectories").json()["trajectories"][0]
            said = t["messages"][-1]
            recorded = [said["content"], said.get("reasoning_content", ""), [(c["function"]["name"], args_of(c["function"]["arguments"])) for c in said.get("tool_calls", [])]]
            assert recorded == want, (dialect, stream, said)
            assert t["turns"][-1]["finish_reason"] == ("tool_calls" if want[2] else "stop")
            warnings = [n.get("parse_warning", "") for n in gateway.get(f"/sessions/{sid}").json()["tree"]["nodes"] if n.get("generated")]
            assert ("U+FFFD" in warnings[-1]) == ("surrogate" in form), warnings


def test_a_long_thought_in_details_counts_by_its_text(pair):
    """Each piece repeats type and format: what repeats is neither counted nor kept again."""
    engine, gateway = pair
    sid = gateway.post("/sessions", {}).json()["session_id"]
    item = {"type": "reasoning.text", "format": "anthropic-claude-v1", "index": 0}
    docs = [*[chunk({"reasoning_details": [{**item, "text": "abcde"}]}) for _ in range(40000)], chunk({"content": "T"}), END]
    engine.plan.append({"edit": lambda _: docs, "stream": True})
    a = gateway.post(f"/sessions/{sid}/v1/chat/completions", {"messages": [USER], "stream": True}, timeout=120)
    assert a.status == 200 and '"finish_reason":"stop"' in a.text.replace(": ", ":"), a.text[-400:]


@pytest.mark.parametrize("what", BAD)
def test_form_that_cannot_be_read_is_named(pair, what):
    engine, gateway = pair
    docs, field = BAD[what]
    is_whole = isinstance(docs[0], dict) and docs[0].get("object") == "chat.completion"
    for dialect, (_, body) in DIALECTS.items():
        for stream in (False, True):
            sid = gateway.post("/sessions", {}).json()["session_id"]
            engine.plan.append({"edit": lambda _: docs + ([] if is_whole or what in LAST_WORDS else [END]), "stream": not (is_whole or what == "no message")})
            a = gateway.post(f"/sessions/{sid}/v1/{dialect}", {**body, "stream": stream})
            assert a.status == 502 or stream, (dialect, a.text)
            assert field in a.text and ("engine_invalid" in a.text or dialect == "messages"), (dialect, stream, a.text)
            assert gateway.get(f"/sessions/{sid}/trajectories").json()["trajectories"] == []


def test_lone_surrogates_of_other_members_break_no_export(pair):
    """Versions, stop texts, ids and signatures are on record, too."""
    engine, gateway = pair
    sid = gateway.post("/sessions", {}).json()["session_id"]
    message = {"content": "x", "reasoning_details": [{"type": "reasoning.text", "text": "\udc00", "signature": "\ud800", "\ud801": 1}],
               "tool_calls": [{"id": "\ud800", **f("f\ud800", A), "extra_content": {"\ud800": "\udc00"}}]}
    docs = whole(message, "tool_calls")
    docs[0]["choices"][0].update(stop_reason="\ud800", meta_info={"weight_version": "\udc00"}, logprobs={"content": [{"token": "\ud800", "logprob": -1}]})
    docs[0]["metadata"] = {"weight_versions": [{"version": "\udc01", "start": 0, "end": 0}]}
    engine.plan.append({"edit": lambda _: docs})
    a = gateway.post(f"/sessions/{sid}/v1/chat/completions", {"messages": [USER], "tools": TOOLS, "logprobs": True})
    assert a.status == 200, a.text
    for form in ("json", "msgpack", "openai-messages", "safetensors"):
        assert gateway.get(f"/sessions/{sid}/trajectories?format={form}").status == 200, form
    said = gateway.get(f"/sessions/{sid}/trajectories").json()["trajectories"][0]["messages"][-1]
    assert said["tool_calls"][0]["id"] == "\ufffd" and said["tool_calls"][0]["extra_content"] == {"\ufffd": "\ufffd"}
    assert said["reasoning_details"] == [{"type": "reasoning.text", "text": "\ufffd", "signature": "\ufffd", "\ufffd": 1}]


# finish reason, as it came -> in Chat, in Messages, in Responses, and on record; or what the error of a 502 or 503 says
FINISHES = {
    **{word: ("stop", "end_turn", "completed") for word in ("stop", "STOP", "eos", "eos_token", "stop_sequence", "end_turn", "COMPLETE")},
    **{word: ("length", "max_tokens", "incomplete") for word in ("length", "max_tokens", "MAX_TOKENS", "model_length", "model_context_window_exceeded", "repetition")},
    **{word: ("content_filter", "refusal", "incomplete") for word in ("content_filter", "SAFETY", "content_filter: PROHIBITED_CONTENT", "sensitive", "refusal")},
    **{word: word for word in ("network_error", "MALFORMED_FUNCTION_CALL", "function_call_filter: MALFORMED_FUNCTION_CALL", "a_new_word", 7)},
    "insufficient_system_resource": "the engine failed",
    "tool_use": "no call came",
}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("word", FINISHES, ids=str)
def test_finish_reasons_of_other_servers(pair, word, stream):
    """A cut answer is never a complete one: what is unknown is refused."""
    engine, gateway = pair
    want = FINISHES[word]
    for i, (dialect, (_, body)) in enumerate(DIALECTS.items()):
        sid = gateway.post("/sessions", {}).json()["session_id"]
        docs = [chunk({"content": "T"}), chunk({}, word)] if stream else whole({"content": "T"}, word)
        engine.plan.append({"edit": lambda _, docs=docs: docs, "stream": stream})
        a = gateway.post(f"/sessions/{sid}/v1/{dialect}", body)
        if isinstance(want, str) or word == 7:
            assert a.status in (502, 503) and (want if word != 7 else "finish_reason must be a string") in a.text.replace('\\"', '"'), (dialect, a.text)
            assert gateway.get(f"/sessions/{sid}/trajectories").json()["trajectories"] == []
            continue
        assert a.status == 200, (dialect, a.text)
        said = a.json()
        assert (said["choices"][0]["finish_reason"] if i == 0 else said["stop_reason"] if i == 1 else said["status"]) == want[i], (dialect, a.text)
        turn = gateway.get(f"/sessions/{sid}/trajectories").json()["trajectories"][0]["turns"][0]
        assert turn["finish_reason"] == want[0], turn


def test_calls_end_by_any_servers_word(pair):
    engine, gateway = pair
    for word in ("tool_use", "TOOL_CALL", "tool_calls", "function_call", "stop"):
        sid = gateway.post("/sessions", {}).json()["session_id"]
        engine.plan.append({"edit": lambda _, word=word: whole({"tool_calls": [{"id": "c", **f("f", A)}]}, word)})
        a = gateway.post(f"/sessions/{sid}/v1/chat/completions", DIALECTS["chat/completions"][1])
        assert a.status == 200 and a.json()["choices"][0]["finish_reason"] == "tool_calls", a.text


@pytest.mark.parametrize("word", ["", "null"])
def test_a_word_that_means_no_end_does_not_end_an_answer(pair, word):
    """Some servers have one in every chunk: an answer that breaks off there is no complete one."""
    engine, gateway = pair
    for docs, ended in (([chunk({"content": "T"}, word), chunk({"content": "U"}, word), END], True), ([chunk({"content": "T"}, word), chunk({"content": "U"}, word)], False)):
        sid = gateway.post("/sessions", {}).json()["session_id"]
        engine.plan.append({"edit": lambda _, docs=docs: docs, "stream": True})
        a = gateway.post(f"/sessions/{sid}/v1/chat/completions", {"messages": [USER]})
        assert (a.status == 200 and a.json()["choices"][0]["message"]["content"] == "TU") if ended else (a.status == 502 and "no finish reason" in a.text), a.text


def test_a_failure_of_a_choice_is_that_of_its_error(pair):
    engine, gateway = pair
    sid = gateway.post("/sessions", {}).json()["session_id"]
    docs = [chunk({"content": "T"}), chunk({}, "error", error={"code": 429, "message": "slow down"})]
    engine.plan.append({"edit": lambda _: docs, "stream": True})
    a = gateway.post(f"/sessions/{sid}/v1/chat/completions", {"messages": [USER]})
    assert a.status == 429 and "slow down" in a.text, a.text

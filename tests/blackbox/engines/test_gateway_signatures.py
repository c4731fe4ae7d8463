"""Kind `openai`: an upstream's signatures of an answer (thought signatures and the like) return to it with the next
turn, whatever the client does with the answer. They are recorded, and clients of Chat Completions get them."""
import json

import pytest

from stub_engines import StubEngine

USER = {"role": "user", "content": "hi"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
GEMINI = {"extra_content": {"google": {"thought_signature": "SIG=="}}}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
DETAILS = [{"type": "reasoning.text", "text": "hmm", "signature": "S1", "format": "anthropic-claude-v1", "index": 0},
           {"type": "reasoning.encrypted", "data": "D1", "id": "rs_1", "index": 1}]
BLOCKS = [{"type": "thinking", "thinking": "hmm", "signature": "S1"}, {"type": "redacted_thinking", "data": "D1"}]
PARTS = [{"type": "thinking", "thinking": "hmm", "signature": "S1"}, {"type": "text", "text": "Said."}]

# name -> the upstream's message, and the members that come back of it (None for a call: that one has none).
SIGNED = {
    "a call, Gemini": ({"content": None, "tool_calls": [{**CALL, **GEMINI}, {**CALL, "id": "c2"}]}, {}, [GEMINI, {}]),
    "a call, LiteLLM": ({"content": None, "tool_calls": [{**CALL, "provider_specific_fields": {"thought_signature": "L"}}]}, {}, [{"provider_specific_fields": {"thought_signature": "L"}}]),
    "a text, Gemini": ({"content": "Said.", **GEMINI}, GEMINI, []),
    "a text, OpenRouter": ({"content": "Said.", "reasoning": "hmm", "reasoning_details": DETAILS}, {"reasoning_details": DETAILS}, []),
    "a call, OpenRouter": ({"content": "", "reasoning": "hmm", "reasoning_details": DETAILS, "tool_calls": [CALL]}, {"reasoning_details": DETAILS}, [{}]),
    "a text, LiteLLM": ({"content": "Said.", "reasoning_content": "hmm", "thinking_blocks": BLOCKS}, {"thinking_blocks": BLOCKS}, []),
    "a text, sealed": ({"content": "Said.", "encrypted_content": "E"}, {"encrypted_content": "E"}, []),
    "a text, Copilot": ({"content": "Said.", "reasoning_text": "hmm", "reasoning_opaque": "O"}, {"reasoning_opaque": "O"}, []),
    "parts": ({"content": PARTS}, {"content": PARTS}, []),
}


@pytest.fixture
def pair(start):
    with StubEngine("openai") as engine:
        yield engine, start(workers=1, engine=engine.setting)


def as_stream(message):
    """Deltas, texts cut in two; signatures in an event of their own."""
    def delta(d):
        return {"choices": [{"index": 0, "delta": d, "finish_reason": None}]}
    docs = []
    for key, v in message.items():
        if key == "tool_calls":
            docs += [delta({"tool_calls": [{"index": i, **c}]}) for i, c in enumerate(v)]
        elif key in ("reasoning_details", "thinking_blocks") or (key == "content" and isinstance(v, list)):
            for item in v:
                text = next((k for k in ("text", "thinking") if k in item), None)
                if text:
                    half = len(item[text]) // 2
                    rest = {k: x for k, x in item.items() if k in ("type", "index")}
                    docs += [delta({key: [{**rest, text: item[text][:half]}]}), delta({key: [{**rest, text: item[text][half:]}]})]
                    docs += [delta({key: [{k: x for k, x in item.items() if k != text}]})] if set(item) - {"type", "index", text} else []
                else:
                    docs.append(delta({key: [item]}))
        elif isinstance(v, str) and key in ("content", "reasoning", "reasoning_content", "reasoning_text"):
            docs += [delta({key: v[:2]}), delta({key: v[2:]})]
        else:
            docs.append(delta({key: v}))
    return docs + [{"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls" if message.get("tool_calls") else "stop"}]}]


def answer(engine, message, stream):
    finish = "tool_calls" if message.get("tool_calls") else "stop"
    docs = as_stream(message) if stream else [{"choices": [{"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}]}]
    engine.plan.append({"edit": lambda _: docs, "stream": stream})


def came_back(engine, n=1):
    """The n-th assistant message of the last request, its members but for the API's own, and those of its calls."""
    m = [m for m in engine.requests[-1]["body"]["messages"] if m["role"] == "assistant"][n - 1]
    own = ("role", "tool_calls", "reasoning_content") + (("content",) if not isinstance(m.get("content"), list) else ())
    return {k: v for k, v in m.items() if k not in own}, [{k: v for k, v in c.items() if k not in ("id", "type", "function")} for c in m.get("tool_calls", [])]


def results(message):
    return [c["id"] for c in message.get("tool_calls") or []]


def next_by_chat(gateway, sid, message, stream):
    """A client that sends back what the API knows, and no more."""
    a = gateway.post(f"/sessions/{sid}/v1/chat/completions", {"messages": [USER], "tools": [TOOL], "stream": stream})
    assert a.status == 200, a.text
    text = "Said." if message.get("content") else ""
    said = {"role": "assistant", "content": text, **({"tool_calls": [{k: c[k] for k in CALL} for c in message["tool_calls"]]} if "tool_calls" in message else {})}
    more = [{"role": "tool", "tool_call_id": i, "content": "r"} for i in results(message)] or [{"role": "user", "content": "go on"}]
    return "chat/completions", {"messages": [USER, said] + more, "tools": [TOOL]}


def next_by_messages(gateway, sid, message, stream):
    body = {"model": "m", "max_tokens": 9, "tools": [{"name": "f", "input_schema": {"type": "object"}}], "messages": [USER]}
    a = gateway.post(f"/sessions/{sid}/v1/messages", {**body, "stream": False})
    assert a.status == 200, a.text
    more = [{"type": "tool_result", "tool_use_id": i, "content": "r"} for i in results(message)] or [{"type": "text", "text": "go on"}]
    return "messages", {**body, "messages": [USER, {"role": "assistant", "content": a.json()["content"]}, {"role": "user", "content": more}]}


def next_by_responses(gateway, sid, message, stream):
    body = {"model": "m", "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}], "store": False, "include": ["reasoning.encrypted_content"]}
    a = gateway.post(f"/sessions/{sid}/v1/responses", {**body, "input": "hi"})
    assert a.status == 200, a.text
    more = [{"type": "function_call_output", "call_id": i, "output": "r"} for i in results(message)] or [{"role": "user", "content": "go on"}]
    return "responses", {**body, "input": [USER] + a.json()["output"] + more}


def next_by_reference(gateway, sid, message, stream):
    path, body = next_by_responses(gateway, sid, message, stream)
    last = gateway.get(f"/sessions/{sid}").json()["tree"]["nodes"][-1]["response_id"]
    return path, {**body, "previous_response_id": last, "input": body["input"][-max(1, len(results(message))):]}


NEXT = {"chat": next_by_chat, "messages": next_by_messages, "responses": next_by_responses, "previous_response_id": next_by_reference}


@pytest.mark.cases(36)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("way", NEXT)
@pytest.mark.parametrize("what", SIGNED)
def test_signed_members_come_back_on_the_next_turn(pair, what, way, stream):
    engine, gateway = pair
    message, members, of_calls = SIGNED[what]
    sid = gateway.post("/sessions", {}).json()["session_id"]
    answer(engine, message, stream)
    path, body = NEXT[way](gateway, sid, message, stream)
    assert gateway.post(f"/sessions/{sid}/v1/{path}", body).status == 200
    assert came_back(engine) == (members, of_calls)
    recorded = [m for m in gateway.get(f"/sessions/{sid}/trajectories").json()["trajectories"][-1]["messages"] if m["role"] == "assistant"][0]
    names = {"content_parts" if k == "content" else k: v for k, v in members.items()}
    assert all(recorded[k] == v for k, v in names.items()) and [{**c, **s} for c, s in zip(recorded.get("tool_calls", []), of_calls)] == recorded.get("tool_calls", [])
    # The same from the journal.
    gateway.stop()
    gateway.start()
    assert gateway.post(f"/sessions/{sid}/v1/{path}", {**body, "metadata": {"again": "1"}}).status == 200
    assert came_back(engine) == (members, of_calls)


@pytest.mark.parametrize("stream", [False, True])
def test_chat_client_gets_what_is_signed(pair, stream):
    engine, gateway = pair
    sid = gateway.post("/sessions", {}).json()["session_id"]
    message = {"content": "", "reasoning": "hmm", "reasoning_details": DETAILS, "tool_calls": [CALL, {**CALL, "id": "c2", **GEMINI}]}
    answer(engine, message, stream)
    a = gateway.post(f"/sessions/{sid}/v1/chat/completions", {"messages": [USER], "tools": [TOOL], "stream": stream})
    if not stream:
        m = a.json()["choices"][0]["message"]
        assert m["reasoning_details"] == DETAILS and m["tool_calls"] == message["tool_calls"]
        return
    deltas = [json.loads(x[6:])["choices"][0]["delta"] for x in a.text.split("\n") if x.startswith("data: {")]
    assert [d["reasoning_details"] for d in deltas if "reasoning_details" in d] == [DETAILS]
    assert [c for d in deltas for c in d.get("tool_calls", []) if "extra_content" in c] == [{"index": 1, "function": {"arguments": ""}, **GEMINI}]


def test_what_the_client_sends_or_edits_is_its_own(pair):
    engine, gateway = pair
    sid = gateway.post("/sessions", {}).json()["session_id"]
    answer(engine, {"content": "Said.", "reasoning_details": DETAILS}, False)
    said = gateway.post(f"/sessions/{sid}/v1/chat/completions", {"messages": [USER]}).json()["choices"][0]["message"]
    other = [{"type": "reasoning.text", "text": "own"}]
    for m, want in (({**said, "reasoning_details": other}, {"reasoning_details": other}), ({**said, "content": "Other."}, {"reasoning_details": DETAILS}),
                    ({"role": "assistant", "content": "Other."}, {}), ({"role": "assistant", "content": " Said.\n"}, {"reasoning_details": DETAILS})):
        gateway.post(f"/sessions/{sid}/v1/chat/completions", {"messages": [USER, m, {"role": "user", "content": "go on"}]})
        got = came_back(engine)[0]
        assert {k: v for k, v in got.items() if k == "reasoning_details"} == want, (m, got)


def test_call_is_known_by_its_id_in_another_history(pair):
    """A client that has changed what came before still has its calls signed."""
    engine, gateway = pair
    sid = gateway.post("/sessions", {}).json()["session_id"]
    answer(engine, {"content": None, "tool_calls": [{**CALL, **GEMINI}]}, False)
    gateway.post(f"/sessions/{sid}/v1/chat/completions", {"messages": [USER], "tools": [TOOL]})
    history = [{"role": "system", "content": "A summary."}, {"role": "assistant", "content": None, "tool_calls": [CALL]}, {"role": "tool", "tool_call_id": "c1", "content": "r"}]
    gateway.post(f"/sessions/{sid}/v1/chat/completions", {"messages": history, "tools": [TOOL]})
    assert came_back(engine) == ({}, [GEMINI])


def test_an_answer_in_several_messages_shifts_no_signature(pair):
    engine, gateway = pair
    sid = gateway.post("/sessions", {}).json()["session_id"]
    second = {**CALL, "id": "c2"}
    answer(engine, {"content": "Said.", "reasoning_details": DETAILS, "tool_calls": [{**CALL, **GEMINI}, second]}, False)
    answer(engine, {"content": "Done.", "encrypted_content": "E"}, False)
    said = [USER]
    for more in ([], [{"role": "assistant", "content": "Said."}] + [m for call in (CALL, second) for m in (
            {"role": "assistant", "content": None, "tool_calls": [call]}, {"role": "tool", "tool_call_id": call["id"], "content": "r"})],
                 [{"role": "assistant", "content": "Done."}, USER]):
        said = said + more
        assert gateway.post(f"/sessions/{sid}/v1/chat/completions", {"messages": said, "tools": [TOOL]}).status == 200
    assert [came_back(engine, n) for n in (1, 2, 3, 4)] == [({"reasoning_details": DETAILS}, []), ({}, [GEMINI]), ({}, [{}]), ({"encrypted_content": "E"}, [])]


def test_another_pool_gets_no_signatures(start):
    """They are for the upstream that made them."""
    with StubEngine("openai") as engine, StubEngine("openai") as judge:
        gateway = start(workers=1, engine=[engine.setting, "judge=" + judge.setting])
        sid = gateway.post("/sessions", {}).json()["session_id"]
        answer(engine, {"content": None, "tool_calls": [{**CALL, **GEMINI}]}, False)
        gateway.post(f"/sessions/{sid}/v1/chat/completions", {"messages": [USER], "tools": [TOOL]})
        history = [USER, {"role": "assistant", "content": None, "tool_calls": [CALL]}, {"role": "tool", "tool_call_id": "c1", "content": "r"}]
        gateway.post(f"/sessions/{sid}/v1/chat/completions", {"model": "judge", "messages": history, "tools": [TOOL]})
        assert came_back(judge) == ({}, [{}])
        gateway.post(f"/sessions/{sid}/v1/chat/completions", {"messages": history, "tools": [TOOL]})
        assert came_back(engine) == ({}, [GEMINI])


# --- what clients of other dialects see ---

OWN = "rollgate-"
# name -> the upstream's message, and the thought as Messages and Responses have it: (text, seal, whether the seal signs the text).
SEEN = {
    "OpenRouter, signed": ({"reasoning": "hmm", "reasoning_details": DETAILS[:1], "content": "Said."}, [("hmm", "S1", True)]),
    "OpenRouter, signed and encrypted": ({"reasoning": "hmm", "reasoning_details": DETAILS, "content": "Said."}, [("hmm", "S1", True), ("", "D1", False)]),
    "OpenRouter, a summary and its data": ({"reasoning": "sum", "reasoning_details": [{"type": "reasoning.summary", "summary": "sum", "index": 0}, DETAILS[1]], "content": "Said."}, [("sum", None, False), ("", "D1", False)]),
    "OpenRouter, encrypted alone": ({"reasoning_details": DETAILS[1:], "content": "Said."}, [("", "D1", False)]),
    "LiteLLM": ({"reasoning_content": "hmm", "thinking_blocks": BLOCKS, "content": "Said."}, [("hmm", "S1", True), ("", "D1", False)]),
    "LiteLLM, two thoughts": ({"thinking_blocks": [{"type": "thinking", "thinking": "a", "signature": "S1"}, {"type": "thinking", "thinking": "b", "signature": "S2"}], "content": "Said."}, [("a", "S1", True), ("b", "S2", True)]),
    "parts": ({"content": PARTS}, [("hmm", "S1", True)]),
    "Copilot": ({"reasoning_text": "hmm", "reasoning_opaque": "O", "content": "Said."}, [("hmm", "O", True)]),
    "sealed": ({"encrypted_content": "E", "content": "Said."}, [("", "E", False)]),
    "a call": ({"reasoning": "hmm", "reasoning_details": DETAILS[:1], "content": "", "tool_calls": [{**CALL, **GEMINI}]}, [("hmm", "S1", True)]),
    "nothing": ({"reasoning": "hmm", "content": "Said."}, [("hmm", None, False)]),
    "a list without a seal": ({"reasoning": "hmm", "reasoning_details": [{"type": "reasoning.text", "text": "hmm"}], "content": "Said."}, [("hmm", None, False)]),
    "Gemini, a text": ({"content": "Said.", **GEMINI}, []),
}


def events(a):
    return [json.loads(x[6:]) for x in a.text.split("\n") if x.startswith("data: {")]


def blocks_of_stream(a):
    blocks = []
    for e in events(a):
        if e["type"] == "content_block_start":
            blocks.append(dict(e["content_block"]))
        elif e["type"] == "content_block_delta":
            d = e["delta"]
            for key in ("thinking", "signature", "text"):
                if d["type"] == key + "_delta":
                    blocks[-1][key] += d[key]
    return blocks


def thought_in_messages(gateway, sid, stream):
    body = {"model": "m", "max_tokens": 9, "tools": [{"name": "f", "input_schema": {"type": "object"}}], "messages": [USER], "stream": stream}
    a = gateway.post(f"/sessions/{sid}/v1/messages", body)
    assert a.status == 200, a.text
    blocks = blocks_of_stream(a) if stream else a.json()["content"]
    seen = []
    for b in blocks:
        if b["type"] == "thinking":
            assert b["signature"]
            seen.append((b["thinking"], None if b["signature"].startswith(OWN) else b["signature"], not b["signature"].startswith(OWN)))
        elif b["type"] == "redacted_thinking":
            seen.append(("", b["data"], False))
    return seen, blocks, body


def thought_in_responses(gateway, sid, stream, include=("reasoning.encrypted_content",)):
    body = {"model": "m", "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}], "store": False, "include": list(include), "input": [USER], "stream": stream}
    a = gateway.post(f"/sessions/{sid}/v1/responses", body)
    assert a.status == 200, a.text
    if stream:
        done = [e["item"] for e in events(a) if e["type"] == "response.output_item.done"]
        output = events(a)[-1]["response"]["output"]
        assert output == done
    else:
        output = a.json()["output"]
    seen = []
    for item in output:
        if item["type"] == "reasoning":
            seal = item.get("encrypted_content", OWN)
            seen.append(("".join(c["text"] for c in item["content"]), None if seal.startswith(OWN) else seal))
    return seen, output, body


def in_responses(thought):
    """Data next to a text that has no seal of its own is that item's."""
    items = []
    for text, seal, _ in thought:
        if items and not text and items[-1][1] is None:
            items[-1] = (items[-1][0], seal)
        else:
            items.append((text, seal))
    return items


@pytest.mark.cases(16)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("what", SEEN)
def test_agent_of_messages_sees_the_upstreams_signatures(pair, what, stream):
    """And what it sends back is known: nothing is reported, and the upstream gets its own."""
    engine, gateway = pair
    sid = gateway.post("/sessions", {}).json()["session_id"]
    message, thought = SEEN[what]
    answer(engine, message, stream)
    seen, blocks, body = thought_in_messages(gateway, sid, stream)
    assert seen == thought, blocks
    said = "Said." if "tool_calls" not in message else ""
    assert "".join(b["text"] for b in blocks if b["type"] == "text") == said
    more = [{"type": "tool_result", "tool_use_id": i, "content": "r"} for i in results(message)] or [{"type": "text", "text": "go on"}]
    blocks = [{**b, "input": {}} if b["type"] == "tool_use" else b for b in blocks]
    a = gateway.post(f"/sessions/{sid}/v1/messages", {**body, "stream": False, "messages": [USER, {"role": "assistant", "content": blocks}, {"role": "user", "content": more}]})
    assert a.status == 200 and "rollgate-not-obeyed" not in a.headers, (a.headers, a.text)
    expect_own(engine, message, what)


def expect_own(engine, message, what):
    members, of_calls = came_back(engine)
    for name in ("reasoning_details", "thinking_blocks", "reasoning_opaque", "encrypted_content", "extra_content"):
        assert members.get(name) == message.get(name), (what, members)
    assert of_calls == [GEMINI for _ in message.get("tool_calls", [])]


@pytest.mark.cases(26)
@pytest.mark.parametrize("ids", [True, False], ids=["with ids", "without ids"])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("what", SEEN)
def test_agent_of_responses_sees_the_upstreams_encrypted_content(pair, what, stream, ids):
    """Codex sends items back without their ids."""
    engine, gateway = pair
    sid = gateway.post("/sessions", {}).json()["session_id"]
    message, thought = SEEN[what]
    answer(engine, message, stream)
    seen, output, body = thought_in_responses(gateway, sid, stream)
    assert seen == in_responses(thought), output
    more = [{"type": "function_call_output", "call_id": i, "output": "r"} for i in results(message)] or [{"role": "user", "content": "go on"}]
    items = [x if ids else {k: v for k, v in x.items() if k not in ("id", "status")} for x in output]
    a = gateway.post(f"/sessions/{sid}/v1/responses", {**body, "stream": False, "input": [USER] + items + more})
    assert a.status == 200 and "rollgate-not-obeyed" not in a.headers, (a.headers, a.text)
    expect_own(engine, message, what)


@pytest.mark.parametrize("stream", [False, True])
def test_encrypted_content_is_sent_where_it_was_asked_for(pair, stream):
    engine, gateway = pair
    sid = gateway.post("/sessions", {}).json()["session_id"]
    answer(engine, SEEN["OpenRouter, signed and encrypted"][0], stream)
    seen, output, _ = thought_in_responses(gateway, sid, stream, include=())
    assert seen == [("hmm", None)] and "S1" not in json.dumps(output) and "D1" not in json.dumps(output)


def test_foreign_seals_are_reported(pair):
    """Also after a restart, what the session's upstream sealed is none of them."""
    engine, gateway = pair
    sid = gateway.post("/sessions", {}).json()["session_id"]
    answer(engine, SEEN["OpenRouter, encrypted alone"][0], False)
    _, blocks, body = thought_in_messages(gateway, sid, False)
    gateway.stop()
    gateway.start()
    for data, reported in (("D1", False), ("D2", True)):
        echo = [{**b, "data": data} if b["type"] == "redacted_thinking" else b for b in blocks]
        a = gateway.post(f"/sessions/{sid}/v1/messages", {**body, "messages": [USER, {"role": "assistant", "content": echo}, {"role": "user", "content": f"go on, {data}"}]})
        assert a.status == 200 and ("rollgate-not-obeyed" in a.headers) == reported, (data, a.headers)
        item = {"type": "reasoning", "summary": [], "encrypted_content": data}
        a = gateway.post(f"/sessions/{sid}/v1/responses", {"model": "m", "input": [USER, item, {"role": "assistant", "content": "Said."}, {"role": "user", "content": f"and on, {data}"}]})
        assert a.status == 200 and ("rollgate-not-obeyed" in a.headers) == reported, (data, a.headers)


@pytest.mark.parametrize("dialect", ["messages", "responses"])
def test_signature_that_comes_late_is_a_block_of_its_own(pair, dialect):
    """Its thought has ended by then; a repeated request is answered in order."""
    engine, gateway = pair
    sid = gateway.post("/sessions", {}).json()["session_id"]

    def delta(**d):
        return {"choices": [{"index": 0, "delta": d, "finish_reason": None}]}
    docs = [delta(reasoning="hmm"), delta(content="Said."), delta(thinking_blocks=[{"type": "thinking", "thinking": "", "signature": "S1"}]), {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}]
    engine.plan.append({"edit": lambda _: docs, "stream": True})
    if dialect == "messages":
        seen, blocks, body = thought_in_messages(gateway, sid, True)
        assert seen == [("hmm", None, False), ("", "S1", True)] and [b["type"] for b in blocks] == ["thinking", "text", "thinking"]
    else:
        seen, output, body = thought_in_responses(gateway, sid, True)
        assert seen == [("hmm", None), ("", "S1")] and [x["type"] for x in output] == ["reasoning", "message", "reasoning"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("dialect", ["messages", "responses"])
def test_repeated_request_gets_the_same_signatures(pair, dialect, stream):
    engine, gateway = pair
    sid = gateway.post("/sessions", {}).json()["session_id"]
    for what in ("OpenRouter, signed and encrypted", "LiteLLM, two thoughts", "Copilot"):
        message, _ = SEEN[what]
        answer(engine, message, stream)
        body = {"model": "m", "stream": stream, "metadata": {"user_id": what}, **({"max_tokens": 9, "messages": [USER]} if dialect == "messages" else {"input": [USER], "include": ["reasoning.encrypted_content"]})}
        path, headers = f"/sessions/{sid}/v1/{dialect}", {"idempotency-key": what}
        first = gateway.post(path, body, headers=headers)
        asked = len(engine.requests)
        again = gateway.post(path, body, headers=headers)
        assert len(engine.requests) == asked and first.status == again.status == 200
        if not stream:
            assert again.text == first.text
        elif dialect == "messages":
            assert blocks_of_stream(again) == blocks_of_stream(first)
        else:
            assert events(again)[-1]["response"]["output"] == events(first)[-1]["response"]["output"]


CUSTOM = {"type": "custom", "custom": {"name": "patch", "description": "x"}}


@pytest.mark.parametrize("stream", [False, True])
def test_custom_calls_that_are_signed(pair, stream):
    """The text of the call, and its signature in a fragment of the same type."""
    engine, gateway = pair
    sid = gateway.post("/sessions", {}).json()["session_id"]
    call = {"id": "c1", "type": "custom", "custom": {"name": "patch", "input": "*** a\n\"b\""}, **GEMINI}
    answer(engine, {"content": None, "tool_calls": [call, {**CALL, "id": "c2", "provider_specific_fields": {"thought_signature": "L"}}]}, stream)
    tools = [CUSTOM, TOOL]
    a = gateway.post(f"/sessions/{sid}/v1/chat/completions", {"messages": [USER], "tools": tools, "stream": stream})
    assert a.status == 200, a.text
    if stream:
        got = {}
        for e in events(a):
            for c in (e["choices"][0]["delta"].get("tool_calls", []) if e["choices"] else []):
                to = got.setdefault(c["index"], {})
                for key, v in c.items():
                    if key in ("custom", "function"):
                        inner = to.setdefault(key, {})
                        for k, x in v.items():
                            inner[k] = inner.get(k, "") + x
                    elif key != "index":
                        to[key] = v
        calls = [got[i] for i in sorted(got)]
    else:
        calls = a.json()["choices"][0]["message"]["tool_calls"]
    assert calls == [call, {**CALL, "id": "c2", "provider_specific_fields": {"thought_signature": "L"}}]
    # A client that drops the signatures.
    bare = [{k: c[k] for k in ("id", "type", "custom", "function") if k in c} for c in calls]
    gateway.post(f"/sessions/{sid}/v1/chat/completions", {"messages": [USER, {"role": "assistant", "content": None, "tool_calls": bare}] + [
        {"role": "tool", "tool_call_id": c["id"], "content": "r"} for c in bare], "tools": tools})
    assert came_back(engine)[1] == [{k: v for k, v in GEMINI.items()} | ({"custom": call["custom"]}), {"provider_specific_fields": {"thought_signature": "L"}}]

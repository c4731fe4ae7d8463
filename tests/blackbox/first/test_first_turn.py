"""The first complete test: a multi-turn session with a tool through router and worker, on the built-in model and
engine, and its exact tokens. The expected ids are built here from the byte tokenizer's definition (bytes, 256
<|im_start|>, 257 <|im_end|>)."""
import json

import pytest

SCRIPT = ["I will look.<tool_call>\n{\"name\": \"ls\", \"arguments\": {\"path\": \"/tmp\"}}\n</tool_call>",
          "Two files: a and b.", "You are welcome. \u00e9\U0001f600"]
TOOLS = [{"type": "function", "function": {"name": "ls", "parameters": {
    "type": "object", "properties": {"path": {"type": "string"}}}}}]


def ids_of(text):
    """Ids of a text with the two specials."""
    out = []
    for i, part in enumerate(text.split("<|im_start|>")):
        out += [256] if i else []
        for k, piece in enumerate(part.split("<|im_end|>")):
            out += [257] if k else []
            out += list(piece.encode())
    return out


def engine_logprob(j, token):
    return -((token * 7 + j * 13) % 100) / 100


@pytest.fixture
def scripted(start, tmp_path):
    path = tmp_path / "script.json"
    path.write_text(json.dumps(SCRIPT))
    return start(engine=f"builtin:script:{path}")


def sse_events(body):
    return [line[6:] for line in body.decode().split("\n") if line.startswith("data: ")]


def assemble(body):
    """The assistant message that the chunks of a chat stream spell."""
    text, calls, finish = "", {}, None
    events = sse_events(body)
    assert events[-1] == "[DONE]"
    for event in events[:-1]:
        for choice in json.loads(event)["choices"]:
            delta = choice["delta"]
            text += delta.get("content") or ""
            for c in delta.get("tool_calls", []):
                call = calls.setdefault(c["index"], {"id": c.get("id"), "name": "", "arguments": ""})
                call["name"] += c["function"].get("name") or ""
                call["arguments"] += c["function"].get("arguments") or ""
            finish = choice["finish_reason"] or finish
    message = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = [{"id": c["id"], "type": "function", "function": {
            "name": c["name"], "arguments": c["arguments"]}} for c in calls.values()]
    return message, finish


def play(gateway, session, stream):
    """Three turns with a tool call; the messages as the client has them at the end."""
    messages = [{"role": "user", "content": "What is in /tmp?"}]
    path = f"/sessions/{session['session_id']}/v1/chat/completions"
    for turn in range(3):
        a = gateway.post(path, {"model": "m", "messages": messages, "tools": TOOLS, "stream": stream})
        assert a.status == 200, a.text
        assert a.headers["Rollgate-Session"] == session["session_id"]
        assert a.headers["Rollgate-Request-Id"]
        if stream:
            assert a.headers["Content-Type"].startswith("text/event-stream")
            message, finish = assemble(a.body)
        else:
            choice = a.json()["choices"][0]
            message, finish = choice["message"], choice["finish_reason"]
        assert finish == ("tool_calls" if turn == 0 else "stop")
        messages.append(message)
        if turn == 0:
            call = message["tool_calls"][0]
            assert call["function"]["name"] == "ls"
            assert json.loads(call["function"]["arguments"]) == {"path": "/tmp"}
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": "a\nb"})
        elif turn == 1:
            messages.append({"role": "user", "content": "Thanks"})
    return messages


@pytest.mark.parametrize("stream", [False, True])
def test_multi_turn_with_a_tool_comes_back_token_exact(scripted, stream):
    session = scripted.post("/sessions", {}).json()
    messages = play(scripted, session, stream)
    assert messages[1]["content"] == "I will look."
    assert messages[-1]["content"] == SCRIPT[2]
    done = scripted.post(f"/sessions/{session['session_id']}/finalize")
    assert done.status == 200, done.text
    trajectories = done.json()["trajectories"]
    assert len(trajectories) == 1
    t = trajectories[0]
    ids = t["prompt_ids"] + t["response_ids"]
    outputs = [ids_of(text) + [257] for text in SCRIPT]
    # every generated token is there, once, in its place, trained, with its own logprob
    at, trained = 0, []
    for out in outputs:
        while ids[at:at + len(out)] != out:
            at += 1
        trained += [(at + j, engine_logprob(j, token)) for j, token in enumerate(out)]
        at += len(out)
    n_prompt = len(t["prompt_ids"])
    assert [i for i, bit in enumerate(t["response_mask"]) if bit] == [i - n_prompt for i, _ in trained]
    for i, logprob in trained:
        assert abs(t["response_logprobs"][i - n_prompt] - logprob) < 1e-6
    assert sum(t["response_mask"]) == sum(map(len, outputs))


def test_the_engine_sees_the_stored_tokens_again(scripted):
    """Turn k+1's prompt begins with turn k's prompt and output, id for id."""
    session = scripted.post("/sessions", {}).json()
    play(scripted, session, False)
    state = scripted.get(f"/sessions/{session['session_id']}?records=1").json()
    records = state["records"]
    assert len(records) == 3
    for before, after in zip(records, records[1:]):
        known = before["prompt_ids"] + before["answers"][0]["output_ids"]
        assert after["prompt_ids"][:len(known)] == known
    assert state["num_branches"] == 1


def test_one_gateway_many_sessions_stay_apart(start):
    gateway = start(engine="builtin:echo", workers=3, routers=2)
    sessions = [gateway.post("/sessions", {}).json() for _ in range(12)]
    assert {s["worker_index"] for s in sessions} == {0, 1, 2}
    for turn in range(2):
        for i, s in enumerate(sessions):
            a = gateway.chat(s, f"I am {i} at {turn}")
            assert a.json()["choices"][0]["message"]["content"] == f"I am {i} at {turn}"
            assert a.headers["Rollgate-Session"] == s["session_id"]


def test_usage_counts_are_the_true_counts(start):
    gateway = start(engine="builtin:echo")
    session = gateway.post("/sessions", {}).json()
    first = gateway.chat(session, "hello").json()
    usage = first["usage"]
    state = gateway.get(f"/sessions/{session['session_id']}?records=1").json()
    assert usage["prompt_tokens"] == len(state["records"][0]["prompt_ids"])
    assert usage["completion_tokens"] == len("hello") + 1
    again = gateway.chat(session, [{"role": "user", "content": "hello"},
                                   first["choices"][0]["message"],
                                   {"role": "user", "content": "more"}]).json()
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] == \
        usage["prompt_tokens"] + usage["completion_tokens"]


def test_count_tokens_is_the_true_count_of_the_prompt(scripted):
    session = scripted.post("/sessions", {}).json()
    messages = play(scripted, session, False) + [{"role": "user", "content": "More?"}]
    base = f"/sessions/{session['session_id']}/v1"
    body = {"model": "m", "max_tokens": 64, "messages": [
        {"role": "user", "content": "What is in /tmp?"}]}
    counted = scripted.post(f"{base}/messages/count_tokens", body)
    assert counted.status == 200, counted.text
    answer = scripted.post(f"{base}/messages", body).json()
    assert counted.json()["input_tokens"] == answer["usage"]["input_tokens"] > 0
    extended = scripted.post(f"{base}/chat/completions", {"model": "m", "messages": messages, "tools": TOOLS})
    assert extended.status == 200


def test_counting_tokens_leaves_a_linear_history_as_it_is(scripted):
    session = scripted.post("/sessions", {"history": "linear"}).json()
    base = f"/sessions/{session['session_id']}"
    messages = [{"role": "user", "content": "hi"}]
    scripted.chat(session, messages)
    before = scripted.get(f"{base}/trajectories").json()["trajectories"]
    assert len(before) == 1
    assert scripted.post(f"{base}/v1/messages/count_tokens", {"model": "m", "messages": messages}).status == 200
    assert scripted.get(f"{base}/trajectories").json()["trajectories"] == before
    assert scripted.get(base).json()["rollback_count"] == 0


def test_a_developer_message_becomes_a_system_one_where_the_template_has_no_such_role(start, tmp_path):
    template = tmp_path / "t.jinja"
    template.write_text("{%- for m in messages if m.role in ('system', 'user', 'assistant') -%}<{{ m.role }}>{{ m.content }}"
                        "{%- endfor -%}{%- if add_generation_prompt -%}<assistant>{%- endif -%}")
    gateway = start(engine="builtin:echo", workers=1, chat_template=str(template))
    session = gateway.post("/sessions", {}).json()
    assert gateway.chat(session, [{"role": "developer", "content": "be brief"}, {"role": "user", "content": "hi"}]).status == 200
    state = gateway.get(f"/sessions/{session['session_id']}?records=1").json()
    assert bytes(state["records"][0]["prompt_ids"]) == b"<system>be brief<user>hi<assistant>"

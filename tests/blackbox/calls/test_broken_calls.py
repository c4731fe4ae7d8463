"""Invalid tool calls. Whole answers keep them as text. A stream has sent a long call before it breaks, so its bytes
continue as arguments (invalid JSON, which no client runs). The turn is recorded with a warning, and the client's copy
of it matches the turn."""
import json

import pytest

from test_dialects import CALL, DIALECTS, USER, chat_body, events_of, every_dialect, new_session, post, serve  # noqa: F401

BROKEN = '{"content": "%s" oops}' % ("long text " * 60)
XML = "<tool_call>\n<function=write>\n<parameter=content>\n%s\n</parameter>\n<param" % ("long text " * 60)


def arguments_of(dialect, events):
    if dialect == "chat":
        return "".join(c["function"].get("arguments", "") for _, v in events if v and v.get("choices")
                       for c in v["choices"][0]["delta"].get("tool_calls", []))
    if dialect == "messages":
        return "".join(v["delta"]["partial_json"] for n, v in events if n == "content_block_delta" and "partial_json" in v["delta"])
    return "".join(v["delta"] for n, v in events if n == "response.function_call_arguments.delta")


def warnings_of(gateway, session):
    return [n["parse_warning"] for n in gateway.get(f"/sessions/{session}").json()["tree"]["nodes"] if n.get("parse_warning")]


@every_dialect
def test_a_whole_answer_never_has_a_call_of_broken_json(serve, dialect):
    path, body, read, _ = DIALECTS[dialect]
    for text, parser in ((CALL % BROKEN, "hermes"), (CALL % '{"content": 1', "hermes"), (XML, "qwen3_coder")):
        gateway, session = serve([text], tool_parser=parser)
        _, content, calls = read(post(gateway, session, path, body()).json())
        assert (content, calls) == (text, []) and warnings_of(gateway, session)
        gateway.stop()


def test_what_is_wrong_many_times_is_told_once_and_how_often(serve):
    path, body, read, _ = DIALECTS["chat"]
    text = CALL % "no JSON" * 5 + CALL % '{"content": "a"}'
    gateway, session = serve([text])
    _, content, calls = read(post(gateway, session, path, body()).json())
    assert content == CALL % "no JSON" * 5 and len(calls) == 1
    warning, = warnings_of(gateway, session)
    assert warning.count("not a valid one") == 1 and warning.endswith(" 5 blocks in all look like tool calls and are not valid ones")


@every_dialect
def test_a_stream_ends_a_broken_call_as_it_is(serve, dialect):
    path, body, _, _ = DIALECTS[dialect]
    gateway, session = serve([CALL % BROKEN, "Sorry."], ",tokens_per_s=20000")
    events = events_of(gateway, session, path, body())
    assert arguments_of(dialect, events).startswith(BROKEN)
    ends = {"chat": lambda: events[-1][1] is None and '"finish_reason": "tool_calls"' in json.dumps(events),
            "messages": lambda: events[-1][0] == "message_stop" and '"stop_reason": "tool_use"' in json.dumps(events),
            "responses": lambda: events[-1][0] == "response.completed"}
    assert ends[dialect]()
    assert len(warnings_of(gateway, session)) == 1


def ids_in(events):
    return next(c["id"] for _, v in events if v and v.get("choices") for c in v["choices"][0]["delta"].get("tool_calls", []) if "id" in c)


@pytest.mark.parametrize("echo", ["as it was", "emptied", "as an object"])
def test_the_clients_echo_of_a_broken_call_extends_the_turn(serve, echo):
    gateway, session = serve([CALL % BROKEN, "Sorry."], ",tokens_per_s=20000")
    events = events_of(gateway, session, "/v1/chat/completions", chat_body())
    arguments = arguments_of("chat", events)
    call = ids_in(events)
    if echo == "as an object":  # what an Anthropic client makes of it
        path = "/v1/messages"
        more = {"model": "m", "max_tokens": 100, "tools": [{"name": "write", "input_schema": {"type": "object", "properties": {"content": {"type": "string"}}}}],
                "messages": [USER, {"role": "assistant", "content": [{"type": "tool_use", "id": call, "name": "write", "input": {}}]},
                             {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call, "content": "bad JSON"}]}]}
    else:
        path = "/v1/chat/completions"
        back = {"id": call, "type": "function", "function": {"name": "write", "arguments": arguments if echo == "as it was" else "{}"}}
        more = chat_body(messages=[USER, {"role": "assistant", "content": None, "tool_calls": [back]},
                                   {"role": "tool", "tool_call_id": call, "content": "bad JSON"}])
    answer = post(gateway, session, path, more)
    assert answer.status == 200 and "Sorry." in answer.text
    state = gateway.get(f"/sessions/{session}").json()
    assert state["num_branches"] == 1 and not state["tito_session_mismatch"], state
    trajectory, = gateway.post(f"/sessions/{session}/finalize", {}).json()["trajectories"]
    assert bytes(t for t in trajectory["response_ids"] if t < 256).startswith((CALL % BROKEN).encode())


def test_what_composed_arguments_had_not_said_is_text(serve):
    gateway, session = serve([XML], ",tokens_per_s=20000", tool_parser="qwen3_coder")
    events = events_of(gateway, session, "/v1/chat/completions", chat_body())
    text = "".join(v["choices"][0]["delta"].get("content") or "" for _, v in events if v and v["choices"])
    assert arguments_of("chat", events) == '{"content": "%s"' % ("long text " * 60) and text == "<param"

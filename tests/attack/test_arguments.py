"""What of a history is long beside its texts: arguments, calls and parts of a message. The loop does not look at all of it, and what
the model said is known all the same."""
import json

import pytest

from test_costs import new

TOOLS = [{"name": "write", "description": "d", "input_schema": {"type": "object"}}]


def hold_ms(gateway):
    return 1000 * gateway.metrics()['rollgate_loop_hold_cpu_max_seconds{process="worker-0"}']


def user(text):
    return {"role": "user", "content": text}


def called(arguments):
    return {"role": "assistant", "content": None,
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}]}


def test_long_arguments_of_a_history_hold_nobody_up(start):
    """Behind a first call, so that the history is compared with what is stored. Parsing these took 300 ms and more, for each
    of the three."""
    gateway = start(engine="builtin:echo", workers=1, context_length=4096)
    session = new(gateway)
    assert gateway.chat(session, "hi").status == 200
    arguments = "[" + "1," * (6 << 20) + "1]"
    for n in (1, 2, 3):
        a = gateway.chat(session, [called(arguments + " " * n), user("go on")])
        assert a.status == 400 and a.json()["error"]["code"] == "context_length_exceeded", a.text[:200]
    assert hold_ms(gateway) < 100


@pytest.mark.parametrize("length", [10, 40_000, 100_000])
def test_a_long_call_that_comes_back_in_other_spaces_is_the_one_that_was_sampled(start, tmp_path, length):
    """A Messages client has the arguments as a value: what it sends back is never the model's text."""
    said = '{"path":  "a", "text":   "' + "word " * (length // 5) + '"}'
    script = tmp_path / "script.json"
    script.write_text(json.dumps(['<tool_call>\n{"name": "write", "arguments": ' + said + "}\n</tool_call>", "done"]),
                      encoding="utf-8")
    gateway = start(engine=f"builtin:script:{script}", workers=1, tool_parser="hermes", context_length=1_000_000)
    session = new(gateway)
    path = f"/sessions/{session['session_id']}/v1/messages"
    messages = [user("write it")]
    for last in (False, True):
        a = gateway.post(path, {"model": "m", "max_tokens": 500_000, "messages": messages, "tools": TOOLS})
        assert a.status == 200, a.text[:300]
        content = a.json()["content"]
        messages.append({"role": "assistant", "content": content})
        if not last:
            call, = (c for c in content if c["type"] == "tool_use")
            assert call["input"] == json.loads(said)
            messages.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": call["id"], "content": "ok"}]})
    state = gateway.request("GET", f"/sessions/{session['session_id']}").json()
    causes = [n["cause"] for n in state["tree"]["nodes"] if n.get("generated")]
    assert causes == ["new_root", "extended"], state
    export = gateway.request("POST", f"/sessions/{session['session_id']}/finalize", {}).json()
    trajectory, = export["trajectories"]
    assert sum(trajectory["response_mask"]) > length // 10, "the call's own ids"


def many(field, n, most, unit):
    return f"{field}: {n} are too many; at most {most} {unit} are allowed"


def test_calls_and_parts_of_messages_are_counted(start):
    gateway = start(engine="builtin:echo", workers=1)
    session = new(gateway)
    path = f"/sessions/{session['session_id']}/v1"
    assert gateway.chat(session, "hi").status == 200
    calls = called("{}")["tool_calls"]
    part, use = {"type": "text", "text": ""}, {"type": "tool_use", "id": "c", "name": "f", "input": {}}
    for where, body, told in (
            ("/chat/completions", {"messages": [{**called(""), "tool_calls": calls * 4_097}, user("x")]},
             many("tool_calls", 4_097, 4_096, "tool calls")),
            ("/chat/completions", {"messages": [{**called(""), "tool_calls": calls * 2_048}, user("x")] * 3},
             many("tool_calls", 6_144, 4_096, "tool calls")),
            ("/chat/completions", {"messages": [user([part] * 10_000), user([part] * 10_000)]},
             many("content", 20_000, 16_384, "content parts")),
            ("/messages", {"messages": [user("x"), {"role": "assistant", "content": [use] * 20_000}, user("x")]},
             many("tool_calls", 20_000, 4_096, "tool calls")),
            ("/messages", {"messages": [user("x")], "system": [{**part, "text": "x"}] * 16_385},
             many("content", 16_385, 16_384, "content parts"))):
        a = gateway.post(path + where, {"model": "m", "max_tokens": 8, **body})
        assert a.status == 400 and told in a.text, (where, a.text[:300])
    a = gateway.post(path + "/chat/completions", {"model": "m", "max_tokens": 8, "messages": [
        {**called(""), "tool_calls": calls * 4_096}, user([part] * 16_384)]})
    assert a.status in (200, 400) and "too many" not in a.text, a.text[:300]

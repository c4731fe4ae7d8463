"""Agents that send a text back with its stop string, or another text for an empty one."""
import json

import pytest

from test_export_cases import said, user

STOP = "</code>"


@pytest.fixture
def gateway(start, tmp_path):
    script = tmp_path / "s.json"
    script.write_text(json.dumps([f"<code>\nx = 1\n{STOP}", "done", "again"]))
    return lambda **settings: start(engine=f"builtin:script:{script}", workers=1, **settings)


def export(gateway, s):
    a = gateway.get(f"/sessions/{s['session_id']}/trajectories")
    assert a.status == 200, a.text
    return a.json()["trajectories"]


def ask(gateway, s, text, then="go on"):
    return gateway.chat(s, [user("q"), said(text), user(then)], stop=["Observation:", STOP])


def first(gateway, s):
    choice = gateway.chat(s, "q", stop=["Observation:", STOP]).json()["choices"][0]
    assert choice["message"]["content"] == "<code>\nx = 1\n" and choice["finish_reason"] == "stop"


@pytest.mark.parametrize("history", ("tree", "chains", "linear", "timelines"))
@pytest.mark.parametrize("text", (f"<code>\nx = 1\n{STOP}", f"<code>\nx = 1{STOP}\n"))
def test_it_is_the_answer_with_its_own_ids(gateway, history, text):
    gw = gateway()
    s = gw.post("/sessions", {"history": history}).json()
    first(gw, s)
    assert ask(gw, s, text).status == 200
    (t,) = export(gw, s)
    sampled = bytes(i for i, m in zip(t["response_ids"], t["response_mask"]) if m and i < 256)
    assert sampled == f"<code>\nx = 1\n{STOP}done".encode(), sampled
    whole = bytes(i for i in [*t["prompt_ids"], *t["response_ids"]] if i < 256)
    assert whole.count(STOP.encode()) == 1


def test_after_a_restart_too(gateway, tmp_path):
    gw = gateway(state_dir=str(tmp_path / "state"))
    s = gw.post("/sessions", {}).json()
    first(gw, s)
    gw.stop()
    gw = gateway(state_dir=str(tmp_path / "state"))
    assert ask(gw, s, f"<code>\nx = 1\n{STOP}").status == 200
    assert len(export(gw, s)) == 1


@pytest.mark.parametrize("options, text", [
    ({"message_matcher": "strict"}, f"<code>\nx = 1\n{STOP}"),
    ({}, "<code>\nx = 1\nObservation:"),
    ({}, f"<code>\nx = 2\n{STOP}"),
    ({}, f"<code>\nx = 1\n{STOP}{STOP}"),
])
def test_any_other_text_is_a_different_message(gateway, options, text):
    gw = gateway()
    s = gw.post("/sessions", options).json()
    first(gw, s)
    assert ask(gw, s, text).status == 200
    assert len(export(gw, s)) == 2


@pytest.mark.parametrize("text, branches", [("(no content)", 1), ("(no contents)", 2)])
def test_claude_code_fills_an_empty_answer(start, tmp_path, text, branches):
    script = tmp_path / "s.json"
    script.write_text(json.dumps(["", "done"]))
    gateway = start(engine=f"builtin:script:{script}", workers=1)
    s = gateway.post("/sessions", {}).json()
    path = f"/sessions/{s['session_id']}/v1/messages"
    body = {"model": "m", "max_tokens": 50, "messages": [user("q")]}
    assert gateway.post(path, body).status == 200
    body["messages"] += [{"role": "assistant", "content": [{"type": "text", "text": text}]}, user("go on")]
    assert gateway.post(path, body).status == 200
    assert len(export(gateway, s)) == branches

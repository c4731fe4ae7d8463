"""Compactions that a client requests from the server: Codex's trigger and path, Anthropic's edits of the context."""
import base64
import json

import pytest

from test_dialects import USER, post, serve  # noqa: F401

TOOLS = [{"type": "function", "name": "find", "parameters": {"type": "object"}}]
TRIGGER = {"type": "compaction_trigger"}
SUMMARY = "We looked for ä and found it."
SEAL = "rollgate-compaction:"


def events(answer):
    return [json.loads(line[6:]) for line in answer.text.split("\n") if line.startswith("data: {")]


def opened(item):
    assert item["type"] == "compaction" and item["encrypted_content"].startswith(SEAL)
    return base64.b64decode(item["encrypted_content"].removeprefix(SEAL), validate=True).decode()


def turns(gateway, session):
    return [x for t in gateway.get(f"/sessions/{session}/trajectories").json()["trajectories"] for x in t["turns"]]


@pytest.mark.parametrize("way", ["stream", "whole", "path"])
def test_one_item_and_a_tagged_turn(serve, way):  # noqa: F811
    gateway, session = serve(["First.", SUMMARY, "Go on."])
    first = post(gateway, session, "/v1/responses", {"input": [USER], "tools": TOOLS}).json()
    history = [USER, *first["output"]]
    if way == "path":
        a = post(gateway, session, "/v1/responses/compact", {"input": history, "tools": TOOLS})
    else:
        a = post(gateway, session, "/v1/responses", {"input": [*history, TRIGGER], "tools": TOOLS, "stream": way == "stream"})
    assert a.status == 200, a.text
    if way == "stream":
        told = events(a)
        done = [e["item"] for e in told if e["type"] == "response.output_item.done"]
        assert [e["type"] for e in told] == ["response.created", "response.in_progress", "response.output_item.added",
                                             "response.output_item.done", "response.completed"]
        output = told[-1]["response"]["output"]
        assert output == done
    else:
        output = a.json()["output"]
        assert a.json()["object"] == ("response.compaction" if way == "path" else "response")
    (item,) = output
    assert opened(item) == SUMMARY
    # what was generated is recorded as the model wrote it, behind the whole history
    last = turns(gateway, session)[-1]
    assert (last["purpose"], last["role"]) == ("compaction", "main")
    records = gateway.get(f"/sessions/{session}?records=1").json()["records"]
    assert [m["role"] for m in records[1]["request"]["messages"]] == ["user", "assistant", "user"]
    assert gateway.get(f"/sessions/{session}").json()["num_branches"] == 1
    # only the compaction can be referenced
    bare = item["id"].removeprefix("cmp_")
    for bad in ("msg_" + bare, "rs_" + bare, first["output"][0]["id"].replace("msg_", "cmp_")):
        a = post(gateway, session, "/v1/responses", {"input": [{"type": "item_reference", "id": bad}, USER], "tools": TOOLS})
        assert a.status == 400 and a.json()["error"]["param"] == "input[0].id", (bad, a.text)
    # the summary takes the history's place
    reference = {"type": "item_reference", "id": item["id"]}
    a = post(gateway, session, "/v1/responses", {"input": [reference if way == "path" else item, {"role": "user", "content": "more"}], "tools": TOOLS})
    assert a.status == 200, a.text
    said = gateway.get(f"/sessions/{session}?records=1").json()["records"][2]["request"]["messages"]
    assert [m["role"] for m in said] == ["user", "user"] and said[0]["content"].endswith("\n\n" + SUMMARY)


def test_stored_and_asked_again_it_is_the_same(serve):  # noqa: F811
    gateway, session = serve([SUMMARY])
    body = {"input": [USER, TRIGGER]}
    first = post(gateway, session, "/v1/responses", body).json()
    assert gateway.get(f"/sessions/{session}/v1/responses/{first['id']}").json() == first
    again = gateway.post(f"/sessions/{session}/v1/responses", body, headers={"x-stainless-retry-count": "1"})
    assert again.headers["rollgate-replayed"] == "1" and again.json() == first


def test_a_thought_and_calls_are_no_items(serve):  # noqa: F811
    """Codex takes exactly one item; a summary that the model did not write is said in it."""
    gateway, session = serve(["  "])
    (item,) = post(gateway, session, "/v1/responses", {"input": [USER, TRIGGER], "tools": TOOLS}).json()["output"]
    assert opened(item) == "(No summary was written.)"


def test_who_compacts(serve):  # noqa: F811
    gateway, session = serve([SUMMARY])
    headers = {"x-openai-subagent": "collab_spawn", "x-codex-turn-metadata": json.dumps({"agent_name": "root/a"})}
    a = gateway.post(f"/sessions/{session}/v1/responses", {"model": "m", "input": [USER, TRIGGER]}, headers=headers)
    assert a.status == 200
    (turn,) = turns(gateway, session)
    assert (turn["role"], turn["purpose"], turn["label"]) == ("root/a", "compaction", "root/a:compact")


@pytest.mark.parametrize("path,body,param", [
    ("/v1/responses", {"input": [TRIGGER, USER]}, "input[0].type"),
    ("/v1/responses", {"input": [TRIGGER, TRIGGER]}, "input[0].type"),
    ("/v1/responses", {"input": [TRIGGER]}, "input"),
    ("/v1/responses/compact", {"input": [USER], "stream": True}, "stream"),
    ("/v1/responses/compact", {"input": []}, "input"),
])
def test_what_is_no_compaction(serve, path, body, param):  # noqa: F811
    gateway, session = serve(["ok"])
    a = post(gateway, session, path, body)
    assert a.status == 400 and a.json()["error"]["param"] == param, a.text


@pytest.mark.parametrize("content", [None, "x", SEAL + "!!", SEAL + "/w==", "gAAAAopaque"])
def test_items_of_other_servers_are_left_out(serve, content):  # noqa: F811
    gateway, session = serve(["ok"])
    item = {"type": "compaction", "encrypted_content": content}
    assert post(gateway, session, "/v1/responses", {"input": [item, USER]}).status == 200
    (record,) = gateway.get(f"/sessions/{session}?records=1").json()["records"]
    assert [m["role"] for m in record["request"]["messages"]] == ["user"]


@pytest.mark.parametrize("edits,param", [
    (None, None), ([], None), ([{"type": "clear_thinking_20251015", "keep": "all"}], None),
    ([{"type": "clear_tool_uses_20250919"}], "context_management.edits[0].type"),
    ([{"type": "clear_thinking_20251015"}, {"type": "compact_20260112"}], "context_management.edits[1].type"),
    ([{}], "context_management.edits[0].type"), ([3], "context_management.edits[0].type"),
    ({"type": "x"}, "context_management.edits"),
])
def test_edits_of_the_context(serve, edits, param):  # noqa: F811
    gateway, session = serve(["ok"])
    body = {"model": "m", "max_tokens": 9, "messages": [USER], "context_management": {"edits": edits}}
    a = gateway.post(f"/sessions/{session}/v1/messages", body)
    if param is None:
        assert a.status == 200, a.text
    else:
        assert a.status == 400 and param in a.json()["error"]["message"], a.text

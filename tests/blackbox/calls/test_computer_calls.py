"""A computer that the client drives, in items of Responses: `computer_call` and its screenshot (docs/dialects.md, 3)."""
import pytest

import vision_kit as kit
from vision_kit import chat, session

SHOT, OTHER = kit.png(640, 480), kit.png(320, 240, 7)
CLICK = {"type": "click", "x": 10, "y": 20, "button": "left"}


def call(i="c1", **more):
    return {"type": "computer_call", "id": "cu_1", "call_id": i, "action": CLICK, "pending_safety_checks": [], "status": "completed", **more}


def screen(i="c1", shot=SHOT, **more):
    return {"type": "computer_call_output", "call_id": i, "output": {"type": "computer_screenshot", "image_url": kit.url(shot)}, **more}


def responses(gateway, sid, items, **more):
    return gateway.post(f"/sessions/{sid}/v1/responses", {"input": [{"role": "user", "content": "go"}, *items], **more})


def used(i, arguments):
    return {"id": i, "type": "function", "function": {"name": "computer", "arguments": arguments}}


def test_a_call_and_its_screen_are_a_tools(vision):
    """The same messages as in chat, so the same prompt: the model reads what was done as a call of `computer`."""
    engine, gateway = vision()
    sid = session(gateway)
    checks = [{"id": "k", "code": "malicious_instructions", "message": "m"}]
    batch = [CLICK, {"type": "screenshot"}]
    plain = {"type": "input_image", "image_url": kit.url(OTHER), "current_url": "https://example.com"}
    items = [call(), screen(acknowledged_safety_checks=checks, status="completed", id="o1"),
             call("c2", action=None, actions=batch), screen("c2", output=plain, acknowledged_safety_checks=None)]
    assert responses(gateway, sid, items).status == 200
    by_hand = [{"role": "user", "content": "go"},
               {"role": "assistant", "content": "", "tool_calls": [used("c1", '{"action":{"type":"click","x":10,"y":20,"button":"left"}}')]},
               {"role": "tool", "tool_call_id": "c1", "content": [kit.image(SHOT)]},
               {"role": "assistant", "content": "", "tool_calls": [used(
                   "c2", '{"actions":[{"type":"click","x":10,"y":20,"button":"left"},{"type":"screenshot"}]}')]},
               {"role": "tool", "tool_call_id": "c2", "content": [kit.image(OTHER)]}]
    assert chat(gateway, sid, by_hand).status == 200
    one, two = (r["body"] for r in engine.requests)
    assert one["input_ids"] == two["input_ids"] and one["image_data"] == two["image_data"]
    assert [kit.of_data_url(u) for u in one["image_data"]] == [SHOT, OTHER]
    nodes = gateway.get(f"/sessions/{sid}").json()["tree"]["nodes"]
    assert len([n for n in nodes if n["role"] == "tool"]) == 2, nodes


def test_a_screen_may_answer_a_function(vision):
    """Who has the model call a function of their own may answer with the picture's item; the next turn only appends."""
    engine, gateway = vision()
    sid = session(gateway)
    function = {"type": "function_call", "call_id": "c1", "name": "computer", "arguments": "{}"}
    first = responses(gateway, sid, [function, screen()])
    assert first.status == 200, first.body
    behind = [{"type": "message", "role": "assistant", "content": first.json()["output"][0]["content"]}, call("c2"), screen("c2", OTHER)]
    for items in ([function, screen(), *behind[:1], {"role": "user", "content": "and?"}], [function, screen(), *behind]):
        assert responses(gateway, sid, items).status == 200
        assert engine.seen[-1][:len(engine.seen[0])] == engine.seen[0]
    answer = gateway.post(f"/sessions/{sid}/v1/responses", {"previous_response_id": first.json()["id"], "input": [call("c2"), screen("c2", OTHER)]})
    assert answer.status == 200, answer.body
    assert len(engine.requests[-1]["body"]["image_data"]) == 2


@pytest.mark.parametrize("item,field,words", [
    (screen(output={"type": "computer_screenshot", "file_id": "file-1"}), "input[1].output", "file id"),
    (screen(output={"type": "computer_screenshot", "image_url": "https://example.com/a.png"}), "input[1].output", "https:"),
    (screen(output={"type": "computer_screenshot"}), "input[1].output", "without its data"),
    (screen(output={"type": "input_text", "text": "x"}), "input[1].output.type", "computer_screenshot"),
    (screen(output="x"), "input[1].output", "an object of type computer_screenshot"),
    (screen(output=None), "input[1].output", "an object of type computer_screenshot"),
    (screen(acknowledged_safety_checks="all"), "input[1].acknowledged_safety_checks", "a list"),
    (screen(call_id=""), "input[1].call_id", "a non-empty string"),
    (call(call_id=None), "input[1].call_id", "a non-empty string"),
    (call(action="click"), "input[1].action", "an object"),
    (call(actions={}), "input[1].actions", "a list"),
    (call(action=None), "input[1].action", "an object, or actions a list"),
], ids=lambda v: "" if isinstance(v, dict) else None)
def test_what_is_wrong_is_named(vision, item, field, words):
    engine, gateway = vision()
    answer = responses(gateway, session(gateway), [item])
    error = answer.json()["error"]
    assert answer.status == 400 and error["param"] == field and words in error["message"] and field in error["message"], answer.body
    assert not engine.requests


def test_a_screen_for_a_model_of_texts_is_refused(vision):
    engine, gateway = vision(processor=None)
    answer = responses(gateway, session(gateway), [call(), screen()])
    assert answer.status == 400 and "input[2].output.type is 'computer_screenshot', but the model takes text only" in \
        answer.json()["error"]["message"], answer.body
    assert responses(gateway, session(gateway), [call(), {"role": "user", "content": "and?"}]).status == 200
    assert len(engine.requests) == 1


def test_a_long_body_with_screens_is_read_as_a_short_one(vision):
    """Pictures of long bodies are taken out before they are read."""
    engine, gateway = vision()
    shots = [kit.big(150, i) for i in range(3)]
    items = [i for k, s in enumerate(shots) for i in (call(f"c{k}"), screen(f"c{k}", s))]
    assert responses(gateway, session(gateway), items).status == 200
    assert [kit.of_data_url(u) for u in engine.requests[0]["body"]["image_data"]] == shots
    assert kit.files(gateway) == {kit.sha(s): 1 for s in shots}

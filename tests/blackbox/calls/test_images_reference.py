"""The ids of chats with pictures equal those of Python's jinja2, set up like transformers, for the same messages:
collapsed as the engine gets them, expanded by the published formula. With our template, and with those of models if
they are present."""
import json

import pytest

import gateway as g
import token_corpus
import vision_kit as kit
from test_images import CALL, TOOLS
from vision_kit import chat, image, session, text, user

ONE, TWO = kit.png(640, 480), kit.jpeg(320, 999)
GO = {"role": "user", "content": "go"}
SAID = {"role": "assistant", "content": "well"}
CALLS = {"role": "assistant", "content": "", "tool_calls": [CALL]}


def result(*content):
    return {"role": "tool", "tool_call_id": "call_1", "content": list(content)}


CHATS = {
    "alone": [user(image(ONE))],
    "user, first": [user(image(ONE), text("what is it?"))],
    "user, last": [user(text("what is it?"), image(ONE))],
    "user, between": [user(text("what "), image(ONE), text(" is it?"))],
    "two of a message": [user(image(ONE), image(TWO, "jpeg"), text("which?"))],
    "the same twice": [user(image(ONE), text("and"), image(ONE))],
    "first message of several": [user(text("see"), image(ONE)), SAID, GO],
    "last message of several": [GO, SAID, user(text("see"), image(TWO, "jpeg"))],
    "two messages": [user(text("see"), image(ONE)), SAID, user(image(TWO, "jpeg"), text("now"))],
    "behind a system": [{"role": "system", "content": "be brief"}, user(text("see"), image(ONE))],
    "tool": [GO, CALLS, result(image(ONE))],
    "tool, first": [GO, CALLS, result(image(ONE), text("done"))],
    "tool, last": [GO, CALLS, result(text("done"), image(ONE))],
    "tool, two": [GO, CALLS, result(image(TWO, "jpeg"), text("done"), image(ONE))],
    "user and tool": [user(text("see"), image(ONE)), CALLS, result(text("done"), image(TWO, "jpeg")), SAID, GO],
}


def plain(message):
    """As engines give it to a template: a picture is its type alone, arguments are an object."""
    message = json.loads(json.dumps(message))
    if isinstance(message["content"], list):
        message["content"] = [{"type": "image"} if p["type"] == "image_url" else p for p in message["content"]]
    for call in message.get("tool_calls", ()):
        call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    return message


def jinja2_of(template):
    """A function of messages: the text. Its errors are those of the template's raise_exception."""
    sandbox = pytest.importorskip("jinja2.sandbox")
    env = sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    env.filters["tojson"] = lambda x, **more: json.dumps(x, ensure_ascii=False, **more)

    def raise_exception(why):
        raise ValueError(why)
    env.globals["raise_exception"] = raise_exception
    made = env.from_string(template)
    return lambda messages: made.render(messages=[plain(m) for m in messages], tools=TOOLS, add_generation_prompt=True,
                                        clear_thinking=False)     # which is pinned (docs/tokens.md)


def shown(messages):
    """The pictures in their order."""
    return [kit.of_data_url(p["image_url"]["url"]) for m in messages if isinstance(m["content"], list)
            for p in m["content"] if p["type"] == "image_url"]


def compare(vision, template, kind="sglang"):
    """Every chat in a session of its own: the engine's request, what the model sees, and the export."""
    render = jinja2_of(template)
    engine, gateway = vision(kind)
    tokenizer = f"{gateway.settings['model']}/tokenizer.json"
    wants = token_corpus.tokenize(g.BINARY, tokenizer, [render(m) for m in CHATS.values()], False)
    for (name, messages), want in zip(CHATS.items(), wants):
        sid, pictures = session(gateway), shown(messages)
        answer = chat(gateway, sid, messages, tools=TOOLS)
        assert answer.status == 200, (name, answer.body)
        body = engine.requests[-1]["body"]
        assert (body.get("input_ids") or body["token_ids"]) == want["ids"], name
        expanded = kit.expand(want["ids"], pictures)
        assert want["ids"].count(kit.PAD) == len(pictures) and engine.seen[-1] == expanded, name
        t, = gateway.post(f"/sessions/{sid}/finalize", {}).json()["trajectories"]
        assert t["prompt_ids"] == expanded and [i["media"] for i in t["images"]] == [kit.sha(p) for p in pictures], name
    refused = [{"role": "system", "content": [text("be brief"), image(ONE)]}, GO]
    with pytest.raises(ValueError, match="cannot contain images"):
        render(refused)
    count = len(engine.requests)
    answer = chat(gateway, session(gateway), refused, tools=TOOLS)
    assert answer.status == 400 and "System message cannot contain images" in answer.json()["error"]["message"], answer.body
    assert len(engine.requests) == count


@pytest.mark.parametrize("kind", ["sglang", "vllm"])
def test_ids_are_those_of_the_template(vision, kind):
    compare(vision, kit.TEMPLATE, kind)


@pytest.mark.parametrize("name", ["lcpp.Qwen3.5-4B", "miles.qwen3.5_fixed"])
def test_ids_are_those_of_the_models_own_template(vision, shared, tmp_path, name):
    template = (shared / f"data/templates/{name}.jinja").read_text(encoding="utf-8")
    kit.model_folder(tmp_path / "vision-model", template=template)
    compare(vision, template)

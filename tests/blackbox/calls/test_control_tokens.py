"""Sampled control tokens are in the recorded ids, and never in the text of an answer, in any dialect, streamed or
not. Tested: tokens that end the turn, and special tokens that no parser reads as a mark."""
import json
import shutil

import pytest

import gateway as g
import test_dialects as d
from stub_engines import StubEngine

END, REPO, PAD, THINK, UNTHINK = 257, 259, 260, 261, 262
WORD = 263  # "</s>" as a piece of the ordinary vocabulary, which llama-server knows as an end
USER = [{"role": "user", "content": "hi"}]


@pytest.fixture(name="model", scope="module")
def fixture_model(tmp_path_factory):
    """A model whose vocabulary has control tokens: special and not, and one that looks like a word."""
    folder = tmp_path_factory.mktemp("model") / "control"
    shutil.copytree(g.MODELS / "chatml-bytes", folder)
    path = folder / "tokenizer.json"
    value = json.loads(path.read_text())
    for id, text, special in ((REPO, "<|repo_name|>", False), (PAD, "<|pad|>", True), (THINK, "<think>", True),
                              (UNTHINK, "</think>", True)):
        value["added_tokens"].append(dict(value["added_tokens"][0], id=id, content=text, special=special))
        value["model"]["vocab"][text] = id
    value["model"]["vocab"]["</s>"] = WORD
    path.write_text(json.dumps(value))
    return folder


DIALECTS = {
    "chat": ("/v1/chat/completions", {"messages": USER}, d.read_chat, d.read_chat_stream),
    "messages": ("/v1/messages", {"messages": USER, "max_tokens": 99}, d.read_messages, d.read_messages_stream),
    "responses": ("/v1/responses", {"input": "hi"}, d.read_responses, d.read_responses_stream),
    "completions": ("/v1/completions", {"prompt": "hi", "max_tokens": 99}, lambda v: ("", v["choices"][0]["text"], []),
                    lambda events: ("", "".join(c["text"] for _, v in events[:-1] for c in v["choices"]), [])),
}


def ask(gateway, dialect, stream, **more):
    """What the client sees, and what was recorded of the answer."""
    path, body, read, read_stream = DIALECTS[dialect]
    sid = d.new_session(gateway)
    if stream:
        seen = read_stream(d.events_of(gateway, sid, path, {"model": "m", **body, **more}))
    else:
        a = d.post(gateway, sid, path, {"model": "m", **body, **more})
        assert a.status == 200, a.text
        seen = read(a.json())
    t = gateway.get(f"/sessions/{sid}/trajectories").json()["trajectories"][0]
    return seen, [i for i, m in zip(t["response_ids"], t["response_mask"]) if m]


@pytest.mark.parametrize("kind", ["sglang", "vllm", "llamacpp"])
@pytest.mark.parametrize("parsers", [False, True], ids=["plain", "parsers"])
def test_what_no_client_sees(start, model, kind, parsers):
    cases = [(b"ok", [END]), (b"ok", [REPO]), (b"ok", [PAD]), (b"ok", [WORD]), (b"", [REPO]),
             ([*b"o", PAD, *b"k"], [END]), ([PAD, PAD, *b"ok"], [REPO])]
    with StubEngine(kind) as engine:
        gateway = start(workers=1, engine=engine.setting, model=model, reasoning_parser="qwen3" if parsers else "none",
                        tool_parser="hermes" if parsers else "none")
        gateway.allow("leaves logprobs out", "not those of")
        for text, end in cases:
            if end == [WORD] and kind != "llamacpp":
                continue
            for dialect in DIALECTS:
                for stream in (False, True):
                    ids = [*text, *end]
                    matched = None if kind == "vllm" and end == [END] else end[0]
                    engine.plan.append({"ids": ids, "finish": "stop", "matched": matched})
                    seen, recorded = ask(gateway, dialect, stream)
                    shown = bytes(x for x in text if x < 256).decode()
                    assert (seen[0], seen[1].strip("\n"), seen[2], recorded) == ("", shown, [], ids), (dialect, stream, ids, seen)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("kind", ["sglang", "vllm", "llamacpp"])
def test_marks_are_read_though_they_are_special(start, model, kind, stream):
    with StubEngine(kind) as engine:
        gateway = start(workers=1, engine=engine.setting, model=model, reasoning_parser="qwen3", tool_parser="hermes")
        ids = [THINK, *b"hm", PAD, UNTHINK, *b"yes", REPO, *b"!", END]
        for dialect in ("chat", "messages", "responses"):
            engine.plan.append({"ids": ids, "matched": END})
            seen, recorded = ask(gateway, dialect, stream)
            # a token that is not special, and not at the end, is text as any other
            assert (seen, recorded) == (("hm", "yes<|repo_name|>!", []), ids), dialect


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_without_a_parser_the_marks_of_a_call_stay(start, model, stream):
    """Nobody reads calls here: whoever does must see their marks. What ends the turn is no text all the same."""
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
    with StubEngine("sglang") as engine:
        gateway = start(workers=1, engine=engine.setting, model=model, tool_parser="none", reasoning_parser="none")
        ids = [*b"a", PAD, *b"{}", PAD, END]
        for more, shown in (({"tools": [tool]}, "a<|pad|>{}<|pad|>"), ({"tools": [tool], "tool_choice": "none"}, "a{}"),
                            ({}, "a{}")):
            engine.plan.append({"ids": ids, "matched": END})
            seen, recorded = ask(gateway, "chat", stream, **more)
            assert (seen, recorded) == (("", shown, []), ids), more


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_an_answer_cut_behind_such_a_token_shows_it(start, model, stream):
    """It did not end the turn."""
    with StubEngine("sglang") as engine:
        gateway = start(workers=1, engine=engine.setting, model=model)
        engine.plan.append({"ids": [*b"ok", REPO], "finish": "length"})
        seen, recorded = ask(gateway, "chat", stream)
        assert seen[1] == "ok<|repo_name|>" and recorded == [*b"ok", REPO]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_grammar_that_is_through_hides_nothing(start, model, stream):
    """SGLang names the last token as what it matched then, and that is text."""
    with StubEngine("sglang") as engine:
        gateway = start(workers=1, engine=engine.setting, model=model)
        engine.plan.append({"ids": list(b"{}"), "finish": "stop", "matched": ord("}")})
        seen, _ = ask(gateway, "chat", stream, response_format={"type": "json_object"})
        assert seen[1] == "{}"


def test_the_conversation_goes_on_with_the_sampled_ids(start, model):
    with StubEngine("llamacpp") as engine:
        gateway = start(workers=1, engine=engine.setting, model=model)
        sid = d.new_session(gateway)
        engine.plan.extend([{"ids": [*b"ok", REPO]}, {"ids": [*b"yes", END]}])
        answer = d.post(gateway, sid, "/v1/chat/completions", {"messages": USER}).json()["choices"][0]["message"]
        more = [*USER, answer, {"role": "user", "content": "more"}]
        assert d.post(gateway, sid, "/v1/chat/completions", {"messages": more}).status == 200
        first, second = (r["body"]["prompt"] for r in engine.requests)
        assert second[:len(first) + 4] == [*first, *b"ok", REPO, END]
        assert gateway.get(f"/sessions/{sid}").json()["num_branches"] == 1

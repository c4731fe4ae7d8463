"""Agents that send a text back with its stop string, or another text for an empty one."""
import json

import pytest

from gateway import MODELS
from stub_engines import StubEngine
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
    ({"message_matcher": "strict"}, f"<code>\nx = 1\n{STOP}{STOP}"),
    ({}, f"<code>\nx = 1\nObservation: 5{STOP}"),
    ({}, f"<code>\nx = 1\n </code >{STOP}"),
])
def test_any_other_text_is_a_different_message(gateway, options, text):
    gw = gateway()
    s = gw.post("/sessions", options).json()
    first(gw, s)
    assert ask(gw, s, text).status == 200
    assert len(export(gw, s)) == 2


def texts(t):
    """The whole text of a trajectory, and its sampled parts."""
    whole = bytes(i if i < 256 else 1 for i in [*t["prompt_ids"], *t["response_ids"]]).decode("latin-1")
    runs, mask = [], [0] * len(t["prompt_ids"]) + t["response_mask"]
    for k, m in enumerate(mask):
        if m and not mask[k - 1]:
            runs.append("")
        if m:
            runs[-1] += whole[k]
    return whole, runs


def tree(gateway, s):
    return [n for n in gateway.get(f"/sessions/{s['session_id']}").json()["tree"]["nodes"] if n["generated"]]


ADDED = {"smolagents": f"{STOP}\nCalling tools:\n[{{'id': 'call_1'}}]", "crewai": f"{STOP} 42 is the result",
         "a control token": f"{STOP}\n<|im_end|>\n<|im_start|>user\nme", "blanks": f"{STOP}\n\n\u00e9 \U0001f600  \n"}


@pytest.mark.parametrize("name", ADDED)
def test_text_after_the_stop_string_is_context_of_the_same_turn(gateway, name):
    """What the engine gets is what a new session gets for these messages; the answer's own ids stay."""
    gw, text = gateway(), "<code>\nx = 1\n" + ADDED[name]
    s, fresh = gw.post("/sessions", {}).json(), gw.post("/sessions", {}).json()
    first(gw, s)
    for _ in range(2):  # the second is a new sample of the same prompt
        assert ask(gw, s, text).status == 200
    follow = [user("q"), said(text), user("go on"), said("done"), user("and?")]
    assert gw.chat(s, follow).status == 200
    one, two, three, four = tree(gw, s)
    assert [n["cause"] for n in (one, two, three, four)] == ["new_root", "extended", "resampled", "extended"], tree(gw, s)
    assert one["num_tokens"] < two["num_tokens"]
    t = next(t for t in export(gw, s) if len(t["turns"]) == 3)
    whole, runs = texts(t)
    assert runs[0] == f"<code>\nx = 1\n{STOP}" and len(runs) == 3, runs
    assert gw.chat(fresh, follow).status == 200
    again, _ = texts(export(gw, fresh)[0])
    assert whole[:whole.rindex("assistant")] == again[:again.rindex("assistant")]
    assert t["extra_fields"]["drift"]["count"] == 0


def test_the_agents_own_message_can_be_the_last(gateway):
    """crewAI writes the result of its tool behind the answer, and asks."""
    gw = gateway()
    s = gw.post("/sessions", {}).json()
    first(gw, s)
    text = f"<code>\nx = 1\n{STOP}: 42"
    assert gw.chat(s, [user("q"), said(text)], stop=[STOP]).status == 200
    (t,) = export(gw, s)
    whole, runs = texts(t)
    assert runs[0].endswith(STOP) and f"{STOP}: 42\x01\n\x01assistant\n" in whole and t["turns"][1]["cause"] == "extended"


def test_two_texts_after_one_answer_are_two_branches(gateway, tmp_path):
    gw = gateway(state_dir=str(tmp_path / "state"))
    s = gw.post("/sessions", {}).json()
    first(gw, s)
    for text in (" first", " second"):
        assert ask(gw, s, f"<code>\nx = 1\n{STOP}{text}").status == 200
    shown = tree(gw, s), [texts(t) for t in export(gw, s)]
    assert [w[0].count(" first") + 2 * w[0].count(" second") for w in shown[1]] == [1, 2]
    assert all(len(runs) == 2 for _, runs in shown[1])
    gw.stop()
    gw = gateway(state_dir=str(tmp_path / "state"))
    assert (tree(gw, s), [texts(t) for t in export(gw, s)]) == shown


@pytest.mark.parametrize("added, cause", [("t more", "extended"), ("! more", "assistant_rewritten")])
def test_a_stop_string_that_ends_within_an_id(start, added, cause):
    """The answer's last id has text after the stop string, which the client's text has, too, or has not."""
    with StubEngine("sglang") as engine:
        gateway = start(engine=engine.setting, model=str(MODELS / "chatml-drift"), workers=1)
        s = gateway.post("/sessions", {}).json()
        engine.plan.append({"ids": [*b"a e", 260], "finish": "stop", "matched": "es"})     # 260: "st"
        assert gateway.chat(s, "q", stop=["es"]).json()["choices"][0]["message"]["content"] == "a "
        engine.plan.append({"ids": [*b"ok", 257], "finish": "stop", "matched": 257})
        assert gateway.chat(s, [user("q"), said("a es" + added), user("r")], stop=["es"]).status == 200
        sent = engine.requests[-1]["body"]["input_ids"]
        before = engine.requests[0]["body"]["input_ids"]
        text = b"".join({260: b"st", 263: b"es"}.get(i) or bytes([i % 256]) for i in sent)
        assert text.count(b"a es" + added.encode()) == 1 and sent[:len(before)] == before
        assert tree(gateway, s)[1]["cause"] == cause and (sent[len(before):][:4] == [*b"a e", 260]) == (cause == "extended")


@pytest.mark.parametrize("history", ("tree", "timelines"))
def test_a_branch_before_a_cut_answer_keeps_the_added_text(gateway, history):
    gw, text = gateway(), f"<code>\nx = 1\n{STOP} 42"
    s = gw.post("/sessions", {"on_truncated": "branch", "history": history}).json()
    first(gw, s)
    head = [user("q"), said(text), user("go on")]
    assert gw.chat(s, head, max_tokens=2).json()["choices"][0]["message"]["content"] == "do"
    assert gw.chat(s, [*head, said("do"), user("more")]).status == 200
    *_, t = export(gw, s)
    whole, runs = texts(t)
    assert whole.count(f"{STOP} 42\x01\n") == 1 and t["turns"][-1]["cause"] == "truncated_answer"
    assert len(t["turns"]) == 2 and runs[0] == ("do" if history == "timelines" else f"<code>\nx = 1\n{STOP}")


def own_model(folder, template, tokenizer=MODELS / "chatml-bytes" / "tokenizer.json", end="<|im_end|>"):
    folder.mkdir()
    (folder / "tokenizer.json").write_bytes(tokenizer.read_bytes())
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": end, "chat_template": template}))
    return str(folder)


@pytest.mark.parametrize("scheme, trajectories", [("metaspace", 2), ("always", 2), ("never", 1)])
def test_a_tokenizer_that_begins_a_text_with_a_blank_takes_no_added_text(start, tmp_path, scheme, trajectories):
    template = ("{% for m in messages %}{% if m.role == 'user' %}[INST]{{ m.content }}[/INST]{% else %}"
                "{{ m.content }}</s>{% endif %}{% endfor %}")
    model = own_model(tmp_path / "model", template, MODELS.parent / "tokens" / f"tiny-spm-{scheme}" / "tokenizer.json", "</s>")
    script = tmp_path / "s.json"
    script.write_text(json.dumps(["the code END", "done"]))
    gw = start(engine=f"builtin:script:{script}", workers=1, model=model)
    s = gw.post("/sessions", {}).json()
    text = gw.chat(s, "q", stop=["END"]).json()["choices"][0]["message"]["content"]
    assert gw.chat(s, [user("q"), said(f"{text}END42 results"), user("go on")]).status == 200
    assert len(export(gw, s)) == trajectories


@pytest.mark.parametrize("way, cause", [("branch", "template_rewrite"), ("append", "extended")])
def test_a_thought_that_the_template_drops_counts_before_added_text(start, tmp_path, way, cause):
    template = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.reasoning_content and loop.last %}<think>"
                "{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}<|im_end|>\n{% endfor %}"
                "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
    script = tmp_path / "s.json"
    script.write_text(json.dumps(["<think>hm</think>the code END", "done"]))
    gw = start(engine=f"builtin:script:{script}", workers=1, model=own_model(tmp_path / "model", template),
               on_template_rewrite=way, reasoning_parser="qwen3")
    s = gw.post("/sessions", {}).json()
    assert gw.chat(s, "q", stop=["END"]).json()["choices"][0]["message"]["reasoning_content"] == "hm"
    assert gw.chat(s, [user("q"), said("the code END 42"), user("go on")]).status == 200
    whole, _ = texts(export(gw, s)[-1])
    assert tree(gw, s)[-1]["cause"] == cause and ("hm" in whole) == (way == "append") and "the code END 42\x01" in whole


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

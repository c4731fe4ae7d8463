"""The positions of pictures of tool results in prompts: `--tool-images` (docs/multimodal.md, 2)."""
import json
import random
import re
import subprocess

import pytest

import vision_kit as kit
from gateway import BINARY, wait_until
from test_images_grids import kimi
from test_images import CALL, KIMI, TOOLS, results, rows_agree
from vision_kit import GOOD, chat, session, text, user

SHOT, OTHER = kit.png(640, 480), kit.png(320, 240, 7)
# a tool's content is printed as it is: of a list nothing comes that the model could see
DROPS = kit.TEMPLATE.replace("{{- show(m.content) }}", "{%- if m.role == 'tool' %}{{- '## ' ~ m.tool_call_id ~ '\\n' ~ m.content }}"
                             "{%- else %}{{- show(m.content) }}{%- endif %}")
NEITHER = DROPS.replace("{%- for m in messages %}", "{%- for m in messages %}{%- if m.role == 'tool' and loop.nextitem is defined "
                        "and loop.nextitem.role == 'user' %}{{- raise_exception('an answer must follow') }}{%- endif %}")
# a thought is shown only behind the last user's message
FORGETS = DROPS.replace("{{- show(m.content) }}{%- endif %}", "{%- if m.reasoning_content and not messages[loop.index0:] | "
                        "selectattr('role', 'equalto', 'user') | list %}{{- '<think>' ~ m.reasoning_content ~ '</think>' }}{%- endif %}"
                        "{{- show(m.content) }}{%- endif %}")
ALONE = "The image is in the next message."


def line(call, name="shot", first=True):
    return text(("" if first else "\n") + f"Image output of the tool {name}, call {call}:\n")


@pytest.fixture
def serve(start, tmp_path):
    """serve(template, **settings) -> engine and gateway."""
    running = []

    def make(template, processor=kit.PROCESSOR, tokens=(), vision=kit.expand, **settings):
        engine = kit.VisionStub().__enter__()
        running.append(engine)
        engine.vision, engine.otherwise = vision, lambda body: GOOD
        folder = tmp_path / f"model-{len(running)}"
        kit.model_folder(folder, processor, template, tokens)
        gateway = start(workers=1, engine=engine.setting, model=folder, audit_every=1, **settings)
        wait_until(lambda: gateway.get("/admin/engines").json()["engines"][0]["vision"] == "exact", what="it is known")
        return engine, gateway
    yield make
    for e in running:
        e.__exit__()


def calls(*ids):
    return {"role": "assistant", "content": "", "tool_calls": [{**CALL, "id": i} for i in ids]}


def result(call, *content):
    return {"role": "tool", "tool_call_id": call, "content": list(content) if not isinstance(content[0], str) else content[0]}


def asked(engine, gateway, messages, **more):
    """The ids and pictures of the engine's request for a new session's call."""
    sid = session(gateway)
    answer = chat(gateway, sid, messages, tools=TOOLS, **more)
    assert answer.status == 200, answer.body
    body = engine.requests[-1]["body"]
    return body["input_ids"], [kit.of_data_url(u) for u in body["image_data"]]


def test_a_picture_that_the_template_drops_goes_behind_in_every_dialect(serve):
    engine, gateway = serve(DROPS)
    sid = session(gateway)
    for path, body in results(SHOT):
        answer = gateway.post(f"/sessions/{sid}/v1/{path}", body)
        assert answer.status == 200, (path, answer.body)
    sent = {tuple(r["body"]["input_ids"]) for r in engine.requests}
    nodes = gateway.get(f"/sessions/{sid}").json()["tree"]["nodes"]
    assert len([n for n in nodes if n["role"] == "tool"]) == 1 and len([n for n in nodes if n["role"] == "user"]) == 1, nodes
    by_hand = [{"role": "user", "content": "go"}, calls("call_1"), result("call_1", "done"), user(line("call_1"), kit.image(SHOT))]
    assert sent == {tuple(asked(engine, gateway, by_hand)[0])}


@pytest.mark.parametrize("value", ["inline", "user"])
def test_both_forms_in_every_dialect_as_told(serve, value):
    engine, gateway = serve(kit.TEMPLATE, tool_images=value)
    sid = session(gateway)
    for path, body in results(SHOT):
        assert gateway.post(f"/sessions/{sid}/v1/{path}", body).status == 200, path
    sent = {tuple(r["body"]["input_ids"]) for r in engine.requests}
    by_hand = [{"role": "user", "content": "go"}, calls("call_1"), result("call_1", "done"), user(line("call_1"), kit.image(SHOT))]
    apart = tuple(asked(engine, gateway, by_hand)[0])
    assert len(sent) == 1 and (sent == {apart}) == (value == "user")


@pytest.mark.parametrize("own,shown", [
    (None, []), ("go on", [text("\n"), text("go on")]), ("", []),
    ([text("see"), kit.image(kit.png(64, 64))], [text("\n"), text("see"), kit.image(kit.png(64, 64))]),
], ids=["nothing", "text", "empty", "parts"])
def test_parallel_calls_share_one_message_with_what_the_user_says(serve, own, shown):
    """Each result's pictures behind its own line, in the order of the results; only texts stay in the tools' messages."""
    engine, gateway = serve(DROPS)
    before = [{"role": "user", "content": "go"}, calls("c1", "c2", "c3", "c4")]
    given = [result("c2", text("one"), kit.image(SHOT), text("two"), kit.image(OTHER)), result("c1", "plain"),
             result("c3", kit.image(OTHER)), result("c4", text(""), kit.image(SHOT), kit.image(SHOT))]
    apart = [result("c2", "one\ntwo"), result("c1", "plain"), result("c3", ALONE), result("c4", ALONE),
             user(line("c2"), kit.image(SHOT), kit.image(OTHER), line("c3", first=False), kit.image(OTHER),
                  line("c4", first=False), kit.image(SHOT), kit.image(SHOT), *shown)]
    behind = [{"role": "user", "content": own}] if own is not None else []
    ids, pictures = asked(engine, gateway, before + given + behind)
    assert (ids, pictures) == asked(engine, gateway, before + apart)
    assert pictures[:5] == [SHOT, OTHER, OTHER, SHOT, SHOT]


def test_other_messages_behind_results_stay_where_they_are(serve):
    engine, gateway = serve(DROPS)
    begin = [{"role": "user", "content": "go"}, calls("c1")]
    told = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "and?"}]
    assert asked(engine, gateway, begin + [result("c1", kit.image(SHOT))] + told) == \
        asked(engine, gateway, begin + [result("c1", ALONE), user(line("c1"), kit.image(SHOT))] + told)
    stray = [{"role": "user", "content": "go"}, {"role": "assistant", "content": "ok"}, result("c9", kit.image(SHOT))]
    by_hand = stray[:2] + [result("c9", ALONE), user(text("Image output of a tool, call c9:\n"), kit.image(SHOT))]
    assert asked(engine, gateway, stray) == asked(engine, gateway, by_hand)


def test_a_result_without_an_id_names_no_tool(serve):
    """Some harnesses leave ids out: nobody says that it is the first call's."""
    engine, gateway = serve(DROPS)
    bare = [{"type": "function", "function": {"name": name, "arguments": "{}"}} for name in ("look", "shot")]
    begin = [{"role": "user", "content": "go"}, {"role": "assistant", "content": "", "tool_calls": bare}]
    given = begin + [{"role": "tool", "content": [kit.image(s)]} for s in (SHOT, OTHER)]
    by_hand = begin + [{"role": "tool", "content": ALONE}] * 2 + [user(text("Image output of a tool:\n"), kit.image(SHOT),
                                                                      text("\nImage output of a tool:\n"), kit.image(OTHER))]
    assert asked(engine, gateway, given) == asked(engine, gateway, by_hand)


def test_a_call_that_spells_a_placeholder_makes_none(serve):
    engine, gateway = serve(DROPS)
    odd = f"a{kit.PAD_TEXT}b"
    ids, _ = asked(engine, gateway, [{"role": "user", "content": "go"}, calls(odd), result(odd, text(kit.PAD_TEXT), kit.image(SHOT))])
    assert ids.count(kit.PAD) == 1


def encoded(words, folder):
    done = subprocess.run([BINARY, "tokenize", folder], input=words, capture_output=True, text=True, check=True)
    return [int(i) for i in re.findall(r"\d+", done.stdout)]


def saying(gateway, thought=""):
    """An answer of two calls."""
    call = '\n<tool_call>\n{"name": "shot", "arguments": {}}\n</tool_call>'
    return {"ids": encoded(thought + call + call, gateway.settings["model"]) + [kit.IM_END], "matched": kit.IM_END}


def work(engine, gateway, sid, n, thought=""):
    """n rounds: two calls, results of which the first has a picture, every other time a question; then an answer. The shots."""
    messages, shots = [{"role": "user", "content": "begin"}], [kit.png(320 + 32 * i, 240, i) for i in range(n)]
    for i in range(n + 1):
        if i < n:
            engine.plan.append(saying(gateway, thought))
        answer = chat(gateway, sid, messages, tools=TOOLS)
        assert answer.status == 200, answer.body
        said = answer.json()["choices"][0]["message"]
        messages.append(said)
        if i < n:
            one, two = (c["id"] for c in said["tool_calls"])
            messages += [result(one, text(f"first {i}"), kit.image(shots[i])), result(two, f"second {i}")]
        if i % 2:
            messages.append({"role": "user", "content": f"question {i}"})
    return messages, shots


def append_only(engine):
    for before, after in zip(engine.seen, engine.seen[1:]):
        assert after[:len(before)] == before
    return True


def held(gateway, sid, engine, shots):
    """The session's one branch, held against what the engine saw and was sent."""
    collapsed, = gateway.get(f"/sessions/{sid}/trajectories?ids=collapsed").json()["trajectories"]
    whole, = gateway.get(f"/sessions/{sid}/trajectories").json()["trajectories"]
    ids, pictures = rows_agree(whole, shots, collapsed)
    assert pictures == shots
    for turn in whole["turns"]:
        assert ids[:len(whole["prompt_ids"]) + turn["start"]] in engine.seen
    return whole


@pytest.mark.parametrize("template,settings", [(DROPS, {}), (kit.TEMPLATE, {"tool_images": "user"}), (kit.TEMPLATE, {}),
                                               (FORGETS, {})], ids=["dropped", "told", "inline", "thoughts"])
def test_turns_only_append_and_exports_know_every_place(serve, template, settings):
    """Each turn's prompt begins with the one before; the same text as the whole chat's rendering (audit_every=1)."""
    engine, gateway = serve(template, **settings)
    sid = session(gateway)
    messages, shots = work(engine, gateway, sid, 10, "<think>well</think>" if template == FORGETS else "")
    assert append_only(engine) and len(engine.seen) == 11
    assert [[kit.of_data_url(u) for u in r["body"].get("image_data") or []] for r in engine.requests] == [shots[:i] for i in range(11)]
    assert kit.files(gateway) == {kit.sha(s): 1 for s in shots}
    whole = held(gateway, sid, engine, shots)
    assert [i["turn"] for i in whole["images"]] == list(range(1, 11))
    audits = {k: v for k, v in gateway.metrics().items() if k.startswith("rollgate_suffix_audits_total")}
    assert [v for k, v in audits.items() if "differs" in k] == [0] and sum(audits.values()) == 10, audits
    gateway.kill()
    gateway.start()
    fork = gateway.post(f"/sessions/{sid}/fork", {}).json()["session_id"]
    wait_until(lambda: len(engine.looks) > 1, what="it is asked anew")
    for each in (sid, fork):
        engine.seen[:] = engine.seen[:11]
        answer = chat(gateway, each, messages + [{"role": "user", "content": "more"}], tools=TOOLS)
        assert answer.status == 200 and append_only(engine), answer.body
        held(gateway, each, engine, shots)


def test_a_history_that_is_answered_twice_is_two_branches_of_one_message(serve):
    """Behind results without an answer the client may put another result, or a question: each prompt is rendered from the calls on."""
    engine, gateway = serve(DROPS)
    sid = session(gateway)
    engine.plan.append(saying(gateway))
    said = chat(gateway, sid, [{"role": "user", "content": "begin"}], tools=TOOLS).json()["choices"][0]["message"]
    begin = [{"role": "user", "content": "begin"}, said]
    one, two = (c["id"] for c in said["tool_calls"])
    first, second, question = result(one, kit.image(SHOT)), result(two, kit.image(OTHER)), {"role": "user", "content": "and?"}
    for behind in ([first], [first, second], [first, question], [first, second, question]):
        assert chat(gateway, sid, begin + behind, tools=TOOLS).status == 200
    kept = [result(one, ALONE), result(two, ALONE)]
    by_hand = [[kept[0], user(line(one), kit.image(SHOT))],
               [*kept, user(line(one), kit.image(SHOT), line(two, first=False), kit.image(OTHER))],
               [kept[0], user(line(one), kit.image(SHOT), text("\nand?"))],
               [*kept, user(line(one), kit.image(SHOT), line(two, first=False), kit.image(OTHER), text("\nand?"))]]
    sent = [r["body"]["input_ids"] for r in engine.requests[1:]]
    for ids, behind in zip(sent, by_hand):
        assert chat(gateway, sid, begin + behind, tools=TOOLS).status == 200
        assert engine.requests[-1]["body"]["input_ids"] == ids
    assert len(gateway.get(f"/sessions/{sid}/trajectories").json()["trajectories"]) == 8


def test_texts_alone_are_what_they_were(serve):
    chats = [[{"role": "user", "content": "go"}, calls("c1"), result("c1", "done")],
             [user(text("see"), kit.image(SHOT)), calls("c1"), result("c1", "done"), user(text("and"), kit.image(OTHER))]]
    sent = []
    for settings in ({}, {"tool_images": "inline"}, {"tool_images": "user"}):
        engine, gateway = serve(kit.TEMPLATE, **settings)
        for messages in chats:
            assert chat(gateway, session(gateway), messages, tools=TOOLS).status == 200
        sent.append([r["body"]["input_ids"] for r in engine.requests])
    assert sent[0] == sent[1] == sent[2]


def test_counts_are_those_of_what_is_sent(serve):
    engine, gateway = serve(DROPS)
    sid = session(gateway)
    path, body = results(SHOT)[1]
    count = gateway.post(f"/sessions/{sid}/v1/messages/count_tokens", body).json()["input_tokens"]
    assert gateway.post(f"/sessions/{sid}/v1/{path}", body).json()["usage"]["input_tokens"] == count == len(engine.seen[-1])


@pytest.mark.parametrize("template,value,why", [
    (DROPS, "inline", "the chat template shows no image in a tool's message"),
    (NEITHER, "user", "the chat template shows no user's message with images behind a tool's"),
    (None, "user", "this model takes no images"), (kit.TEMPLATE, "both", '"both"')], ids=["inline", "user", "text", "both"])
def test_a_form_that_is_not_shown_is_refused_at_the_start(tmp_path, template, value, why):
    folder = kit.model_folder(tmp_path / "m", kit.PROCESSOR if template else None, template or kit.TEMPLATE)
    for command in (["serve", "--listen", "127.0.0.1:0", "--state-dir", tmp_path / "state"], ["config", "--check"]):
        done = subprocess.run([BINARY, *command, "--model", folder, "--tool-images", value], capture_output=True, text=True, timeout=60,
                              check=False)
        assert done.returncode and "tool-images" in done.stderr and value in done.stderr and why in done.stderr, done
    done = subprocess.run([BINARY, "check", folder, "--tool-images", value], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and value in done.stderr and "tool-images" in done.stderr, done


@pytest.mark.parametrize("template,said", [(kit.TEMPLATE, "stays in the tool's message (--tool-images inline)"),
                                           (DROPS, "goes into a user's message behind (--tool-images user)"),
                                           (NEITHER, "results of tools can have none")], ids=["inline", "user", "none"])
def test_check_tells_the_form(tmp_path, template, said):
    folder = kit.model_folder(tmp_path / "m", template=template)
    for more in ([], ["--tool-images", "auto"]):
        done = subprocess.run([BINARY, "check", folder, "--trials", "0", *more], capture_output=True, text=True, timeout=60, check=True)
        assert said in done.stdout and "as told" not in done.stdout, done.stdout


def test_auto_is_no_word_to_a_model_of_text(tmp_path):
    folder = kit.model_folder(tmp_path / "m", None)
    for command in (["check", folder, "--trials", "0"], ["config", "--check", "--model", folder]):
        done = subprocess.run([BINARY, *command, "--tool-images", "auto"], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr


def test_a_template_that_shows_them_nowhere_is_refused_by_call(serve):
    engine, gateway = serve(NEITHER)
    messages = [{"role": "user", "content": "go"}, calls("c1"), result("c1", kit.image(SHOT))]
    answer = chat(gateway, session(gateway), messages, tools=TOOLS)
    assert answer.status == 400 and "0 placeholders of this conversation's 1 images" in answer.json()["error"]["message"], answer.body
    assert not engine.requests


def test_a_restart_with_another_form_is_said_and_goes_on(serve):
    engine, gateway = serve(kit.TEMPLATE, durability="process")
    sid = session(gateway)
    messages, shots = work(engine, gateway, sid, 2)
    assert gateway.stop() == 0
    gateway.start()
    assert not gateway.has_line("began with another chat template")
    assert gateway.stop() == 0
    gateway.settings["tool-images"] = "user"
    gateway.start()
    assert gateway.has_line("sessions began with another chat template.*sessions=1")
    before = engine.seen[-1]
    engine.plan.append(saying(gateway))
    messages.append({"role": "user", "content": "more"})
    said = chat(gateway, sid, messages, tools=TOOLS).json()["choices"][0]["message"]
    messages += [said, result(said["tool_calls"][0]["id"], kit.image(SHOT)), result(said["tool_calls"][1]["id"], "x")]
    assert chat(gateway, sid, messages, tools=TOOLS).status == 200
    assert engine.seen[-1][:len(before)] == before
    held(gateway, sid, engine, shots + [SHOT])


def test_kimi_k2_shows_tools_pictures_to_the_model(serve, shared):
    template = (shared / "data/templates/lcpp.moonshotai-Kimi-K2.jinja").read_text(encoding="utf-8")
    words = ["<|media_pad|>", "<|media_start|>", "<|media_content|>", "<|media_end|>", "<|im_middle|>", "<|im_user|>",
             "<|im_assistant|>", "<|im_system|>"]
    pad = max(t["id"] for t in json.loads(kit.TOKENIZER.read_text(encoding="utf-8"))["added_tokens"]) + 1

    def expand(ids, pictures):
        left = list(pictures)
        return [k for i in ids for k in ([pad] * kimi(*kit.size_of(left.pop(0)), 14, 2, 1024, 512)[2] if i == pad else [i])]
    engine, gateway = serve(template, processor=KIMI, tokens=words, vision=expand)
    sid, body = session(gateway), results(SHOT)[0][1]
    answer = gateway.post(f"/sessions/{sid}/v1/chat/completions", body)
    assert answer.status == 200, answer.body
    ids = engine.requests[-1]["body"]["input_ids"]
    shown = subprocess.run([BINARY, "detokenize", gateway.settings["model"]], input=" ".join(map(str, ids)), capture_output=True,
                           text=True, check=True).stdout
    assert shown.endswith("done<|im_end|><|im_user|>user<|im_middle|>Image output of the tool shot, call call_1:\n"
                          "<|media_start|>image<|media_content|><|media_pad|><|media_end|>\n<|im_end|><|im_assistant|>assistant<|im_middle|>"), shown
    behind = [answer.json()["choices"][0]["message"], calls("c2"), result("c2", kit.image(SHOT)), {"role": "user", "content": "and?"}]
    assert chat(gateway, sid, body["messages"] + behind, tools=TOOLS).status == 200
    assert append_only(engine) and len(engine.requests[-1]["body"]["image_data"]) == 2


def random_results(rng, made, step):
    """Results of most of the calls, in any order; maybe a question behind, always where there are none."""
    shown = [("plain",), (kit.image(kit.png(64 + 32 * rng.randrange(5), 64, step)),), (text("a"), kit.image(SHOT), text("b")),
             (kit.image(SHOT), kit.image(OTHER))]
    new = [result(c["id"], *rng.choice(shown)) for c in rng.sample(made, len(made)) if rng.random() < 0.9]
    if not new or rng.random() < 0.3:
        new.append(rng.choice([{"role": "user", "content": "and?"}, user(text("see"), kit.image(OTHER))]))
    return new


@pytest.mark.parametrize("template", [DROPS, FORGETS, kit.TEMPLATE], ids=["dropped", "thoughts", "told"])
def test_random_trees_only_append(serve, template):
    """Whatever is sent behind whichever answer: the stored ids come first, and the text behind is the whole chat's."""
    engine, gateway = serve(template, tool_images="user")
    rng, sid, n = random.Random(7), session(gateway), 40
    leaves = [([{"role": "user", "content": "begin"}], [])]
    for step in range(n):
        messages, stored = rng.choice(leaves[-4:])
        made = "".join('\n<tool_call>\n{"name": "shot", "arguments": {}}\n</tool_call>' for _ in range(rng.choice([0, 1, 1, 2, 3])))
        thought = rng.choice(["", "<think>well</think>"]) if template == FORGETS else ""
        ids = encoded(f"{thought}answer {step}{made}", gateway.settings["model"])
        engine.plan.append({"ids": ids + [kit.IM_END], "matched": kit.IM_END})
        answer = chat(gateway, sid, messages, tools=TOOLS)
        assert answer.status == 200 and engine.seen[-1][:len(stored)] == stored, answer.body
        said = answer.json()["choices"][0]["message"]
        assert len(said.get("tool_calls") or []) == made.count("<tool_call>")
        leaves.append(([*messages, said, *random_results(rng, said.get("tool_calls") or [], step)], engine.seen[-1] + ids))
    audits = {k: v for k, v in gateway.metrics().items() if k.startswith("rollgate_suffix_audits_total")}
    assert [v for k, v in audits.items() if "differs" in k] == [0] and sum(audits.values()) > n // 2, audits
    for t in gateway.get(f"/sessions/{sid}/trajectories").json()["trajectories"]:
        ids = t["prompt_ids"] + t["response_ids"]
        assert sum(i["length"] for i in t.get("images") or []) == ids.count(kit.PAD)
        assert all(ids[:len(t["prompt_ids"]) + turn["start"]] in engine.seen for turn in t["turns"])

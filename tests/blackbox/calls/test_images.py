"""Token-exact images: what the engine is sent, what it must report, what is recorded and exported
(docs/multimodal.md)."""
import json
from pathlib import Path

import pytest

import vision_kit as kit
from gateway import wait_until
from test_images_grids import glm, kimi
from vision_kit import GOOD, chat, files, session, text, user

SHOT = kit.png(640, 480)


def test_collapsed_to_the_engine_expanded_to_the_trainer(vision):
    engine, gateway = vision()
    sid = session(gateway)
    answer = chat(gateway, sid, [user(text("look"), kit.image(SHOT), text("and say"))])
    assert answer.status == 200, answer.body
    body = engine.requests[0]["body"]
    assert body["input_ids"].count(kit.PAD) == 1
    assert [kit.of_data_url(u) for u in body["image_data"]] == [SHOT]
    assert body["return_prompt_token_ids"] is True
    assert body["sampling_params"]["logit_bias"][str(kit.PAD)] == -100
    assert answer.json()["usage"]["prompt_tokens"] == len(engine.seen[0])
    t = gateway.post(f"/sessions/{sid}/finalize", {}).json()["trajectories"][0]
    assert t["prompt_ids"] == engine.seen[0]
    assert t["images"] == [{"media": kit.sha(SHOT), "turn": 0, "offset": engine.seen[0].index(kit.PAD),
                            "length": kit.tokens(640, 480), "grid_thw": list(kit.grid(640, 480))}]


def vision_of(gateway):
    return gateway.get("/admin/engines").json()["engines"][0]["vision"]


@pytest.mark.parametrize("kind", ["sglang", "vllm"])
def test_engines_are_asked_once_how_they_take_images(vision, kind):
    engine, gateway = vision(kind)
    wait_until(lambda: vision_of(gateway) == "exact", what="it is known")
    body, = engine.looks
    ids = body.get("input_ids") or body["token_ids"]
    assert ids.count(kit.PAD) == 2
    sid = session(gateway)
    assert chat(gateway, sid, [user(kit.image(SHOT))], stream=True).status == 200
    assert engine.requests[0]["body"]["stream"] is True
    t = gateway.post(f"/sessions/{sid}/finalize", {}).json()["trajectories"][0]
    assert t["prompt_ids"] == engine.seen[0]


def retokenises(ids, pictures):
    return kit.expand(ids, pictures)[:-1]


@pytest.mark.parametrize("kind", ["sglang", "vllm"])
def test_an_engine_that_drifts_is_not_asked_with_images(start, tmp_path, kind):
    with kit.VisionStub(kind) as engine:
        engine.vision, engine.otherwise = retokenises, lambda body: GOOD
        gateway = start(workers=1, engine=engine.setting, model=kit.model_folder(tmp_path / "m"))
        wait_until(lambda: vision_of(gateway) == "drifts", what="it is known")
        sid = session(gateway)
        answer = chat(gateway, sid, [user(kit.image(SHOT))])
        assert answer.status == 400 and "other tokens" in answer.json()["error"]["message"], answer.body
        assert chat(gateway, sid, [user(text("text"))]).status == 200
        assert len(engine.requests) == 1


@pytest.mark.parametrize("kind", ["sglang", "vllm"])
def test_an_engine_that_drifts_may_be_used_and_it_is_told(start, tmp_path, kind):
    with kit.VisionStub(kind) as engine:
        engine.vision, engine.otherwise = retokenises, lambda body: GOOD
        gateway = start(workers=1, engine=engine.setting, model=kit.model_folder(tmp_path / "m"), media_drift="allow")
        wait_until(lambda: vision_of(gateway) == "drifts", what="it is known")
        wait_until(lambda: gateway.get("/health").json()["engines_drift"] == 1, what="health tells it")
        sid = session(gateway)
        assert chat(gateway, sid, [user(text("text"))]).status == 200
        answer = chat(gateway, sid, [user(kit.image(SHOT))], stream=True)
        assert answer.status == 200 and b"[DONE]" in answer.body, answer.body
        engine.vision = kit.expand
        assert chat(gateway, sid, [user(kit.image(SHOT), text("exact"))]).status == 200
        assert gateway.metrics()["rollgate_media_drift_total"] == 1
        made = [None, len(engine.seen[1]), None]
        assert told_drift(gateway, sid) == made
        gateway.kill()
        gateway.start()
        assert told_drift(gateway, sid) == made
        ends = gateway.post(f"/sessions/{sid}/finalize", {}).json()["trajectories"]
        assert sorted((t["turns"][-1].get("media_drift") or 0) for t in ends) == [0, 0, made[1]]
        wait_until(lambda: vision_of(gateway) == "exact", what="it is asked anew")
        wait_until(lambda: gateway.get("/health").json()["engines_drift"] == 0, what="health tells it")


def told_drift(gateway, sid):
    """Of the session's answers, in the order of their calls."""
    nodes = [n for n in gateway.get(f"/sessions/{sid}").json()["tree"]["nodes"] if n.get("generated")]
    return [n.get("media_drift") for n in sorted(nodes, key=lambda n: n["call"])]


@pytest.mark.parametrize("kind", ["sglang", "vllm"])
def test_an_engine_without_eyes_is_refused_even_where_drift_is_let(start, tmp_path, kind):
    with kit.VisionStub(kind) as engine:
        engine.vision, engine.otherwise = ignores, lambda body: GOOD
        gateway = start(workers=1, engine=engine.setting, model=kit.model_folder(tmp_path / "m"), media_drift="allow")
        wait_until(lambda: vision_of(gateway) == "drifts", what="it is known")
        sid = session(gateway)
        assert chat(gateway, sid, [user(kit.image(SHOT))]).status == 502
        assert not [n for n in gateway.get(f"/sessions/{sid}").json()["tree"]["nodes"] if n.get("generated")]


def test_an_old_vllm_that_knows_no_pictures_is_refused(start, tmp_path):
    with kit.VisionStub("vllm") as engine:
        engine.knows, engine.otherwise = False, lambda body: GOOD
        gateway = start(workers=1, engine=engine.setting, model=kit.model_folder(tmp_path / "m"))
        wait_until(lambda: vision_of(gateway) == "drifts", what="it is known")
        assert chat(gateway, session(gateway), [user(kit.image(SHOT))]).status == 400
        assert not engine.requests


def test_vllm_gets_the_pictures_as_parts(vision):
    engine, gateway = vision("vllm")
    sid = session(gateway)
    assert chat(gateway, sid, [user(kit.image(kit.jpeg(640, 480), "jpeg"), text("and"), kit.image(SHOT))]).status == 200
    body = engine.requests[0]["body"]
    assert [set(p) for p in body["content_parts"]] == [{"type", "url"}] * 2     # what vLLM's fronts read, and no more
    assert [(p["type"], kit.of_data_url(p["url"])) for p in body["content_parts"]] == [("image_url", kit.jpeg(640, 480)), ("image_url", SHOT)]
    assert body["return_token_ids"] is True and body["token_ids"].count(kit.PAD) == 2
    assert body["sampling_params"]["logit_bias"][str(kit.PAD)] == -100
    engine.vision = ignores
    assert chat(gateway, sid, [user(kit.image(kit.png(64, 64)))]).status == 502


def test_a_stream_is_checked_as_well(vision):
    engine, gateway = vision()
    wait_until(lambda: vision_of(gateway) == "exact", what="it is known")
    sid = session(gateway)
    answer = chat(gateway, sid, [user(kit.image(SHOT))], stream=True)
    assert answer.status == 200 and b"[DONE]" in answer.body
    assert "return_prompt_token_ids" not in engine.requests[0]["body"]
    engine.plan.append({**GOOD, "prompt_tokens": 5})
    assert b"engine_invalid" in chat(gateway, sid, [user(kit.image(kit.png(32, 32)))], stream=True).body


def spellings(data):
    """One turn with the picture behind a text, in every dialect and spelling."""
    b = kit.b64(data)
    lines = "\n".join(b[i:i + 76] for i in range(0, len(b), 76))
    source = {"type": "base64", "media_type": "image/jpeg", "data": b}
    bare = {"type": "image_url", "image_url": kit.url(data, "jpeg")}
    return [
        ("chat/completions", {"messages": [user(text("look"), kit.image(data))]}),
        ("chat/completions", {"messages": [user(text("lo"), text("ok"), bare)]}),
        ("chat/completions", {"messages": [user(text("look"), {"type": "image_url", "image_url": {
            "url": f"data:image/png;base64,{lines}", "detail": "high"}})]}),
        ("messages", {"max_tokens": 9, "messages": [user(text("look"), {
            "type": "image", "cache_control": {"type": "ephemeral"}, "source": source})]}),
        ("responses", {"input": [{"role": "user", "content": [
            {"type": "input_text", "text": "look"}, {"type": "input_image", "image_url": kit.url(data), "detail": "auto"}]}]}),
    ]


def test_one_picture_in_every_dialect_is_one_message_and_one_file(vision):
    engine, gateway = vision()
    sid = session(gateway)
    for path, body in spellings(SHOT):
        answer = gateway.post(f"/sessions/{sid}/v1/{path}", body)
        assert answer.status == 200, (path, answer.body)
    assert len({tuple(r["body"]["input_ids"]) for r in engine.requests}) == 1
    assert files(gateway) == {kit.sha(SHOT): 1}
    nodes = gateway.get(f"/sessions/{sid}").json()["tree"]["nodes"]
    assert len([n for n in nodes if n["role"] == "user"]) == 1, nodes


CALL = {"id": "call_1", "type": "function", "function": {"name": "shot", "arguments": "{}"}}
TOOLS = [{"type": "function", "function": {"name": "shot", "parameters": {"type": "object", "properties": {}}}}]


def results(data):
    b = kit.b64(data)
    url = kit.url(data)
    ask, schema = "go", {"type": "object", "properties": {}}
    return [
        ("chat/completions", {"tools": TOOLS, "messages": [
            {"role": "user", "content": ask}, {"role": "assistant", "content": "", "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "call_1", "content": [text("done"), kit.image(data)]}]}),
        ("messages", {"max_tokens": 9, "tools": [{"name": "shot", "input_schema": schema}], "messages": [
            {"role": "user", "content": ask},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "call_1", "name": "shot", "input": {}}]},
            user({"type": "tool_result", "tool_use_id": "call_1", "content": [text("done"), {"type": "image", "source": {
                "type": "base64", "media_type": "image/png", "data": b}}]})]}),
        ("responses", {"tools": [{"type": "function", "name": "shot", "parameters": schema}], "input": [
            {"role": "user", "content": ask}, {"type": "function_call", "call_id": "call_1", "name": "shot", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "call_1", "output": [
                {"type": "input_text", "text": "done"}, {"type": "input_image", "image_url": url}]}]}),
    ]


def test_tool_results_hold_pictures(vision):
    engine, gateway = vision()
    sid = session(gateway)
    for path, body in results(SHOT):
        answer = gateway.post(f"/sessions/{sid}/v1/{path}", body)
        assert answer.status == 200, (path, answer.body)
    assert all(r["body"]["input_ids"].count(kit.PAD) == 1 and len(r["body"]["image_data"]) == 1 for r in engine.requests)
    assert len({tuple(r["body"]["input_ids"]) for r in engine.requests}) == 1
    assert files(gateway) == {kit.sha(SHOT): 1}
    nodes = gateway.get(f"/sessions/{sid}").json()["tree"]["nodes"]
    assert len([n for n in nodes if n["role"] == "tool"]) == 1, nodes


@pytest.mark.parametrize("part,status,code,words", [
    ({"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}, 400, "invalid_request", "https:"),
    ({"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}, 400, "invalid_request", "file:"),
    ({"type": "image_url", "image_url": {"url": "/etc/passwd.png"}}, 400, "invalid_request", "is an image by"),
    ({"type": "input_image", "file_id": "file-1"}, 400, "invalid_request", "file id"),
    ({"type": "image_url"}, 400, "invalid_request", "without its data"),
    ({"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}, 400, "invalid_request", "input_audio"),
    ({"type": "image_url", "image_url": {"url": "data:image/png,plain"}}, 400, "invalid_image", "Could not process image"),
    ({"type": "image_url", "image_url": {"url": "data:image/png;base64,@@@@"}}, 400, "invalid_image", "Could not process image"),
    (kit.image(b"<svg/>"), 400, "invalid_image", "Could not process image"),
    (kit.image(SHOT[:-9]), 400, "invalid_image", "cut off"),
    (kit.image(kit.png(1, 201)), 400, "invalid_image", "200 times"),
    (kit.image(kit.png(40000, 1)), 400, "invalid_image", "32768"),
    (kit.image(kit.png(64, 64) + b"x" * 70000), 413, "body_too_large", "65536 bytes"),
], ids=lambda v: "" if isinstance(v, dict) else None)
def test_what_is_no_picture_is_refused_by_its_place(vision, part, status, code, words):
    engine, gateway = vision(max_image_bytes="65536")
    sid = session(gateway)
    before = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "ok"}]
    answer = chat(gateway, sid, before + [user(text("a"), part)])
    error = answer.json()["error"]
    assert (answer.status, error["code"]) == (status, code), error
    assert words in error["message"] and "messages[2].content[1]" in error["message"], error
    assert error["param"].startswith("messages[2].content[1]"), error
    assert not engine.requests and not files(gateway)
    assert chat(gateway, sid, [user(kit.image(kit.png(64, 64)))]).status == 200


def test_anthropic_hears_of_a_broken_picture_in_its_words(vision):
    engine, gateway = vision()
    sid = session(gateway)
    source = {"type": "base64", "media_type": "image/png", "data": kit.b64(SHOT[:99])}
    body = {"max_tokens": 9, "messages": [user({"type": "image", "source": source})]}
    error = gateway.post(f"/sessions/{sid}/v1/messages", body).json()["error"]
    assert error["type"] == "invalid_request_error" and error["message"].startswith("Could not process image"), error


@pytest.mark.parametrize("settings", [{"processor": None}, {"processor": {"image_processor_type": "Another"}},
                                      {"kind": "llamacpp"}, {"routed_experts": True}], ids=str)
def test_without_vision_an_image_is_refused_as_ever(vision, settings):
    engine, gateway = vision(**settings)
    sid = session(gateway)
    for path, body in spellings(SHOT)[::2]:
        answer = gateway.post(f"/sessions/{sid}/v1/{path}", body)
        assert answer.status == 400 and "the model takes text only" in answer.json()["error"]["message"], answer.body
    assert not engine.requests and not files(gateway)


def ignores(ids, pictures):
    return ids


def expands_twice(ids, pictures):
    return kit.expand(ids, pictures) + [kit.PAD] * kit.tokens(*kit.size_of(pictures[0]))


def drifts(ids, pictures):
    told = kit.expand(ids, pictures)
    return told[:1] + [told[2], told[1]] + told[3:]


@pytest.mark.parametrize("fault,stream", [(ignores, False), (ignores, True), (expands_twice, False), (expands_twice, True),
                                          (drifts, False)])
def test_an_engine_that_makes_other_tokens_is_refused(vision, fault, stream):
    engine, gateway = vision()
    sid = session(gateway)
    before = gateway.get(f"/sessions/{sid}").json()["tree"]
    engine.vision = fault
    answer = chat(gateway, sid, [user(kit.image(SHOT))], stream=stream)
    assert b"engine_invalid" in answer.body and (stream or answer.status == 502), answer.body
    assert gateway.get(f"/sessions/{sid}").json()["tree"] == before
    engine.vision = kit.expand
    assert chat(gateway, sid, [user(kit.image(SHOT))]).status == 200


def test_an_engine_that_tells_no_length_is_refused(vision):
    engine, gateway = vision()
    sid = session(gateway)

    def silent(docs):
        return [{k: v for k, v in d.items() if k != "prompt_token_ids"} for d in docs]
    engine.plan.append({**GOOD, "drop": {"prompt_tokens"}, "edit": silent})
    answer = chat(gateway, sid, [user(kit.image(SHOT))])
    assert answer.status == 502 and "too old" in answer.json()["error"]["message"]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("kind", ["sglang", "vllm"])
def test_a_sampled_placeholder_is_the_engines_fault(vision, kind, stream):
    engine, gateway = vision(kind)
    sid = session(gateway)
    engine.plan.append({"ids": [72, kit.PAD, kit.IM_END], "matched": kit.IM_END})
    answer = chat(gateway, sid, [user(kit.image(SHOT))], stream=stream)
    assert b"engine_invalid" in answer.body and (stream or answer.status == 502), answer.body
    assert chat(gateway, sid, [user(kit.image(SHOT))]).status == 200
    assert gateway.post(f"/sessions/{sid}/finalize", {}).json()["summary"]["calls"] == 1


@pytest.mark.parametrize("where", ["user", "system", "tool", "schema", "arguments", "parts"])
def test_a_literal_placeholder_stays_text(vision, where):
    engine, gateway = vision()
    sid = session(gateway)
    word = f"see {kit.PAD_TEXT}<|video_pad|> there"
    properties = {word: {"type": "string"}} if where == "schema" else {}
    tools = [{"type": "function", "function": {"name": "shot", "description": word if where == "schema" else "x",
                                               "parameters": {"type": "object", "properties": properties}}}]
    call = {**CALL, "function": {"name": "shot", "arguments": '{"a": "%s"}' % (word if where == "arguments" else "x")}}
    parts = [text(word), kit.image(SHOT)]
    messages = [{"role": "system", "content": word if where == "system" else "x"},
                {"role": "user", "content": parts if where == "parts" else word if where == "user" else "x"},
                {"role": "assistant", "content": "", "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "call_1", "content": word if where == "tool" else "x"}]
    answer = chat(gateway, sid, messages, tools=tools)
    assert answer.status == 200, answer.body
    ids = engine.requests[0]["body"]["input_ids"]
    assert ids.count(kit.PAD) == (where == "parts") and kit.added("<|video_pad|>") not in ids
    said = answer.json()["choices"][0]["message"]
    answer = chat(gateway, sid, messages + [said, user(text("now"), kit.image(SHOT))], tools=tools)
    assert answer.status == 200, answer.body
    ids = engine.requests[1]["body"]["input_ids"]
    assert ids.count(kit.PAD) == 1 + (where == "parts")


def rows_agree(trajectory, shots, collapsed):
    """The invariants of an export's pictures."""
    ids = trajectory["prompt_ids"] + trajectory["response_ids"]
    mask = [0] * len(trajectory["prompt_ids"]) + trajectory["response_mask"]
    by_name = {kit.sha(s): s for s in shots}
    pictures = [by_name[i["media"]] for i in trajectory["images"]]
    assert kit.expand(collapsed["prompt_ids"] + collapsed["response_ids"], pictures) == ids
    assert sum(i["length"] for i in trajectory["images"]) == ids.count(kit.PAD)
    places = [i["offset"] + k for i in trajectory["images"] for k in range(i["length"])]
    assert [i for i, t in enumerate(ids) if t == kit.PAD] == places
    assert not any(m for t, m in zip(ids, mask) if t == kit.PAD)
    for i, p in zip(trajectory["images"], pictures):
        assert i["grid_thw"] == list(kit.grid(*kit.size_of(p))) and i["length"] == kit.tokens(*kit.size_of(p))
    assert len(trajectory["response_mask"]) == len(trajectory["response_ids"]) == len(trajectory["response_logprobs"])
    return ids, pictures


def test_ten_turns_with_a_new_picture_each(vision):
    engine, gateway = vision()
    sid = session(gateway)
    shots = [kit.png(320 + 32 * i, 240, i) for i in range(10)]
    messages = []
    for i, shot in enumerate(shots):
        messages.append(user(text(f"turn {i}"), kit.image(shot)))
        answer = chat(gateway, sid, messages)
        assert answer.status == 200, answer.body
        messages.append(answer.json()["choices"][0]["message"])
        assert len(engine.requests[-1]["body"]["image_data"]) == i + 1
        assert answer.json()["usage"]["prompt_tokens"] == len(engine.seen[-1])
    for before, after in zip(engine.seen, engine.seen[1:]):
        assert after[:len(before)] == before
    assert files(gateway) == {kit.sha(s): 1 for s in shots}
    window = [m if m["role"] == "assistant" or i >= 14 else user(text(m["content"][0]["text"])) for i, m in enumerate(messages)]
    assert chat(gateway, sid, window + [user(text("and now"))]).status == 200     # the last three alone: another branch
    assert len(engine.requests[-1]["body"]["image_data"]) == 3
    collapsed = gateway.get(f"/sessions/{sid}/trajectories?ids=collapsed").json()["trajectories"]
    done = gateway.post(f"/sessions/{sid}/finalize", {}).json()
    assert [len(t["images"]) for t in done["trajectories"]] == [10, 3]
    for t, c in zip(done["trajectories"], collapsed):
        ids, pictures = rows_agree(t, shots, c)
        for turn in t["turns"]:
            at = len(t["prompt_ids"]) + turn["start"]
            assert ids[:at] in engine.seen and ids[at:at + turn["end"] - turn["start"]] == GOOD["ids"]
    assert {m["sha256"] for m in done["summary"]["media"]} == {kit.sha(s) for s in shots}
    for m in done["summary"]["media"]:
        got = gateway.get(m["url"])
        assert got.status == 200 and kit.sha(got.body) == m["sha256"] and m["bytes"] == len(got.body)
        assert got.headers["content-type"] == "image/png" and "immutable" in got.headers["cache-control"]


def test_every_branch_has_its_own_pictures(vision):
    engine, gateway = vision()
    sid = session(gateway)
    shots = [kit.png(320 + 32 * i, 240, i) for i in range(4)]
    first = [user(text("look"), kit.image(shots[0]))]
    said = chat(gateway, sid, first).json()["choices"][0]["message"]
    engine.plan.append({"ids": [74, 73, kit.IM_END], "matched": kit.IM_END})
    assert chat(gateway, sid, first, temperature=0.5).status == 200                               # sampled once more
    for shot in shots[1:3]:                                                                       # gone on, then taken back
        assert chat(gateway, sid, first + [said, user(kit.image(shot), text("and this"))]).status == 200
    apart = [{"role": "system", "content": "a helper"}, user(kit.image(shots[3]), kit.image(shots[0]))]
    assert chat(gateway, sid, apart).status == 200
    collapsed = gateway.get(f"/sessions/{sid}/trajectories?ids=collapsed").json()["trajectories"]
    done = gateway.post(f"/sessions/{sid}/finalize", {}).json()["trajectories"]
    shown = [[shots.index(p) for p in rows_agree(t, shots, c)[1]] for t, c in zip(done, collapsed)]
    assert sorted(shown) == [[0], [0, 1], [0, 2], [3, 0]]
    for t in done:
        ids = t["prompt_ids"] + t["response_ids"]
        for turn in t["turns"]:
            assert ids[:len(t["prompt_ids"]) + turn["start"]] in engine.seen
    assert files(gateway) == {kit.sha(s): 1 for s in shots}


def test_who_may_read_a_picture(vision, tmp_path):
    """The admin, and the session's own runner; a session that does not show it has none of that name."""
    (tmp_path / "keys").write_text("the-admin\n")
    _, gateway = vision(admin_key_file=str(tmp_path / "keys"))

    def by(key):
        return {"headers": {"Authorization": f"Bearer {key}"}}
    mine, other = (gateway.post("/sessions", {}, **by("the-admin")).json() for _ in range(2))
    for s, shot in ((mine, SHOT), (other, kit.png(64, 64))):
        assert gateway.post(f"/sessions/{s['session_id']}/v1/chat/completions", {"messages": [user(kit.image(shot))]},
                            **by(s["api_key"])).status == 200
    at = f"/sessions/{mine['session_id']}/media/"
    for key, status in (("the-admin", 200), (mine["runner_key"], 200), (mine["api_key"], 403), (other["runner_key"], 403),
                        (other["api_key"], 403)):
        answer = gateway.get(at + kit.sha(SHOT), **by(key))
        assert answer.status == status and (status != 200 or answer.body == SHOT), (key, answer.status)
    assert gateway.get(at + kit.sha(SHOT)).status == 401
    for name in (kit.sha(kit.png(64, 64)), kit.sha(b""), "0" * 63, "..%2f..%2fsessions"):
        assert gateway.get(at + name, **by("the-admin")).status == 404, name


def test_every_format_comes_back_as_what_it_is(vision):
    engine, gateway = vision()
    sid = session(gateway)
    seen = set()
    for line in (kit.ROOT / "tests/data/vision/pictures.txt").read_text().split("\n")[1:]:
        name, kind, width, height, _, data = line.split() if line else [""] * 6
        if width != "64" or kind in seen:
            continue
        seen.add(kind)
        data = kit.base64.b64decode(data)
        engine.vision = lambda ids, pictures: [t for i in ids for t in ([kit.PAD] * kit.tokens(64, 64) if i == kit.PAD else [i])]
        assert chat(gateway, sid, [user(kit.image(data, kind))]).status == 200, name
        got = gateway.get(f"/sessions/{sid}/media/{kit.sha(data)}")
        assert got.status == 200 and got.body == data and got.headers["content-type"] == f"image/{kind}", name
        again = gateway.get(f"/sessions/{sid}/media/{kit.sha(data)}", headers={"If-None-Match": got.headers["etag"]})
        assert again.status == 304 and not again.body
        assert gateway.get(f"/sessions/{session(gateway)}/media/{kit.sha(data)}").status == 404
    assert seen == {"png", "jpeg", "webp", "gif", "bmp"}


def test_base64_that_is_no_picture_stays_what_it_is(vision):
    """A long body's pictures are taken out before it is read; what only looks like one goes to the model to the letter."""
    engine, gateway = vision()
    sid, shot = session(gateway), kit.big(200)
    blob = kit.b64(bytes(range(256)) * 100)
    use = {"type": "tool_use", "id": "call_1", "name": "save", "input": {"data": blob}}
    body = {"max_tokens": 9, "tools": [{"name": "save", "input_schema": {"type": "object", "properties": {}}}], "messages": [
        user({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": kit.b64(shot)}}),
        {"role": "assistant", "content": [use]},
        user({"type": "tool_result", "tool_use_id": "call_1", "content": "data:text/plain;base64," + blob})]}
    answer = gateway.post(f"/sessions/{sid}/v1/messages", body)
    assert answer.status == 200, answer.body
    ids = engine.requests[0]["body"]["input_ids"]
    assert ids.count(kit.PAD) == 1 and len(ids) > 2 * len(blob) / 8, "both texts are there"
    assert [kit.of_data_url(u) for u in engine.requests[0]["body"]["image_data"]] == [shot]
    for broken in (kit.b64(shot)[:-4] + "@@@@", kit.b64(shot[:-1])):
        body["messages"][0]["content"][0]["source"]["data"] = broken
        refused = gateway.post(f"/sessions/{sid}/v1/messages", body)
        assert refused.status == 400 and "Could not process image" in refused.json()["error"]["message"], refused.body
        assert "messages[0].content[0]" in refused.json()["error"]["message"]


def test_a_picture_of_the_past_comes_from_the_store(vision):
    engine, gateway = vision()
    sid = session(gateway)
    part = {"type": "input_image", "image_url": kit.url(SHOT)}
    first = gateway.post(f"/sessions/{sid}/v1/responses", {"input": [{"role": "user", "content": [part]}]}).json()
    answer = gateway.post(f"/sessions/{sid}/v1/responses", {"previous_response_id": first["id"], "input": "and?"})
    assert answer.status == 200, answer.body
    assert [kit.of_data_url(u) for u in engine.requests[1]["body"]["image_data"]] == [SHOT]


def test_a_jpeg_gets_a_byte_that_keeps_servers_from_decoding_it_on_the_gpu(vision):
    engine, gateway = vision()
    sid = session(gateway)
    for width in (640, 641, 642, 643):
        data = kit.jpeg(width, 480) + b"\0" * (width - 640)
        assert chat(gateway, sid, [user(kit.image(data, "jpeg"))]).status == 200
        assert kit.of_data_url(engine.requests[-1]["body"]["image_data"][0]) == data + b"\0"


KIMI = {"media_proc_cfg": {"in_patch_limit": 1024, "patch_size": 14, "merge_kernel_size": [2, 2], "patch_limit_on_one_side": 512,
                           "fixed_output_tokens": None}, "auto_map": {"AutoImageProcessor": "kimi_k25.KimiK25VisionProcessor"}}
GLM = {"image_processor_type": "Glm4vImageProcessor", "patch_size": 14, "merge_size": 2, "temporal_patch_size": 2,
       "size": {"shortest_edge": 12544, "longest_edge": 9633792}}


@pytest.mark.parametrize("kind", ["sglang", "vllm"])
@pytest.mark.parametrize("processor,pad,around,grid", [
    (KIMI, "<|media_pad|>", ("<|media_begin|>image<|media_content|>", "<|media_end|>"),
     lambda w, h: kimi(w, h, 14, 2, 1024, 512)),
    (GLM, "<|image|>", ("<|begin_of_image|>", "<|end_of_image|>"),
     lambda w, h: glm(w, h, 14, 2, 12544, 9633792))], ids=["kimi", "glm"])
def test_other_families(start, tmp_path, kind, processor, pad, around, grid):
    """Their own placeholder, formula and limits, from the folder to the trainer."""
    words = [pad, "<|media_begin|>", "<|media_content|>", "<|media_end|>", "<|begin_of_image|>", "<|end_of_image|>"]
    template = kit.TEMPLATE.replace("<|vision_start|><|image_pad|><|vision_end|>", around[0] + pad + around[1])
    folder = kit.model_folder(tmp_path / "m", processor, template, words)
    pad_id = next(t["id"] for t in json.loads((folder / "tokenizer.json").read_text())["added_tokens"] if t["content"] == pad)
    shots = [SHOT, kit.png(40, 28)]

    def expand(ids, pictures):
        left = list(pictures)
        runs = [[i] if i != pad_id else [pad_id] * grid(*kit.size_of(left.pop(0)))[2] for i in ids]
        return [i for run in runs for i in run]
    with kit.VisionStub(kind) as engine:
        engine.vision, engine.otherwise = expand, lambda body: GOOD
        gateway = start(workers=1, engine=engine.setting, model=folder)
        wait_until(lambda: vision_of(gateway) == "exact", what="it is known")
        sid = session(gateway)
        answer = chat(gateway, sid, [user(kit.image(shots[0]), text(f"and {pad}"), kit.image(shots[1]))])
        assert answer.status == 200, answer.body
        body = engine.requests[0]["body"]
        assert (body.get("input_ids") or body["token_ids"]).count(pad_id) == 2
        assert body["sampling_params"]["logit_bias"][str(pad_id)] == -100
        t = gateway.post(f"/sessions/{sid}/finalize", {}).json()["trajectories"][0]
        assert t["prompt_ids"] == engine.seen[-1]
        assert [i["grid_thw"] for i in t["images"]] == [[1, *grid(*kit.size_of(s))[:2]] for s in shots]


def test_budgets_are_those_of_the_expanded_prompt(vision):
    engine, gateway = vision(context_length=400)
    sid = session(gateway)
    messages = [user(kit.image(kit.png(512, 512)))]                               # 256 tokens
    source = {"type": "base64", "media_type": "image/png", "data": kit.b64(kit.png(512, 512))}
    count = gateway.post(f"/sessions/{sid}/v1/messages/count_tokens",
                         {"messages": [user({"type": "image", "source": source})]}).json()["input_tokens"]
    answer = chat(gateway, sid, messages)
    assert answer.json()["usage"]["prompt_tokens"] == count > 256
    assert engine.requests[0]["body"]["sampling_params"]["max_new_tokens"] == 400 - count
    answer = chat(gateway, sid, [user(kit.image(SHOT), kit.image(kit.png(512, 512)))])
    assert answer.status == 400 and answer.json()["error"]["code"] == "context_length_exceeded"
    long = chat(gateway, sid, [user(text("word " * 400))])
    assert (long.status, long.json()["error"]["code"], long.json()["error"]["type"]) == (400, *(answer.json()["error"][k] for k in ("code", "type")))
    assert len(engine.requests) == 1
    t = gateway.get(f"/sessions/{sid}/trajectories?max_tokens=100").json()
    assert not t["trajectories"] and t["summary"]["dropped"][0]["tokens"] > 256


def test_pictures_outlive_a_killed_gateway_and_go_with_their_session(vision):
    engine, gateway = vision(durability="process")
    sid, other = session(gateway), session(gateway)
    messages = [user(kit.image(SHOT))]
    answer = chat(gateway, sid, messages)
    assert answer.status == 200 and chat(gateway, other, messages).status == 200
    assert files(gateway) == {kit.sha(SHOT): 2}
    gateway.kill()
    gateway.start()
    messages += [answer.json()["choices"][0]["message"], user(text("again"), kit.image(kit.png(64, 64)))]
    assert chat(gateway, sid, messages).status == 200
    assert len(engine.requests[-1]["body"]["image_data"]) == 2
    assert files(gateway) == {kit.sha(SHOT): 2, kit.sha(kit.png(64, 64)): 1}
    for each in (sid, other):
        assert gateway.request("DELETE", f"/sessions/{each}").status == 204
    gateway.stop()
    gateway.start()                 # what nobody keeps goes with a start, or within half a minute
    assert not [p for p in (Path(gateway.settings["state-dir"]) / "media").rglob("*") if p.is_file()]
    assert not list((Path(gateway.settings["state-dir"]) / "media/sessions").iterdir())


def test_a_fork_has_the_pictures_too(vision):
    engine, gateway = vision()
    sid = session(gateway)
    first = chat(gateway, sid, [user(text("look"), kit.image(SHOT))]).json()
    fork = gateway.post(f"/sessions/{sid}/fork", {"response_id": first["id"]}).json()["session_id"]
    assert files(gateway) == {kit.sha(SHOT): 2}     # one file, of both sessions
    assert gateway.request("DELETE", f"/sessions/{sid}").status in (200, 204)
    assert gateway.get(f"/sessions/{fork}/media/{kit.sha(SHOT)}").status == 200
    again = [user(text("look"), kit.image(SHOT)), {"role": "assistant", "content": first["choices"][0]["message"]["content"]},
             user(text("and now?"))]
    assert chat(gateway, fork, again).status == 200
    assert [kit.of_data_url(u) for u in engine.requests[-1]["body"]["image_data"]] == [SHOT]

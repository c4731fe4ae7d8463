"""Engines that read a prompt with pictures wrongly, as SGLang and vLLM servers have done. Right answers pass in every
form. Each fault is 502 and leaves no trace (docs/multimodal.md, 4)."""
import json

import pytest

import vision_kit as kit
from gateway import wait_until
from vision_kit import PAD, chat, image, session, text, user

WIDE, TALL = kit.png(640, 480), kit.png(256, 1024)
ASKED = [user(text("see "), image(WIDE), text(" and "), image(TALL))]


# --- what the server makes of collapsed ids and pictures ---

def without(ids, pictures):
    """No picture is looked at (LocalAI#11621)."""
    return ids


def dropped(ids, pictures):
    """The last one is."""
    last = len(ids) - ids[::-1].index(PAD) - 1
    return kit.expand(ids[:last], pictures[:-1]) + ids[last:]


def twice(ids, pictures):
    """Each run once more: 64 -> 127 -> 253 (prime-rl#1739)."""
    out = []
    for i in kit.expand(ids, pictures):
        again = i == PAD and out[-1] != PAD
        out += [PAD] * 64 if again else [i]
    return out


def shorter(ids, pictures):
    """Decoded to text and encoded again: two tokens of the text are one."""
    told = kit.expand(ids, pictures)
    return told[:1] + told[2:]


def other(ids, pictures):
    """The same, by chance as long."""
    told = kit.expand(ids, pictures)
    return told[:1] + [told[2], told[1]] + told[3:]


def swapped(ids, pictures):
    """As long as it should be, but the pictures change places."""
    return kit.expand(ids, pictures[::-1])


# --- how it tells it ---

def of_all(docs, edit):
    return [edit(dict(d)) for d in docs]


def no_ids(doc):
    doc.pop("prompt_token_ids", None)
    return doc


def nothing(doc):
    """Neither ids nor a length: a server of before pictures."""
    doc = no_ids(doc)
    doc["meta_info"] = {k: v for k, v in doc.get("meta_info", {}).items() if k != "prompt_tokens"}
    return doc


def empty(doc):
    return {**doc, "prompt_token_ids": []}


def null(doc):
    return nothing({**doc}) | {"prompt_token_ids": None}


def gate(vision, kind):
    engine, gateway = vision(kind)
    wait_until(lambda: gateway.get("/admin/engines").json()["engines"][0]["vision"] == "exact", what="it is known")
    return engine, gateway


def state(gateway, sid):
    return gateway.get(f"/sessions/{sid}?records=1").json()["tree"], gateway.get(f"/sessions/{sid}/trajectories").json()


def error_of(answer, stream):
    """502, also for a stream whose engine is refused at its first words; after a keep-alive an event, and nothing of the answer before."""
    if not stream or answer.status != 200:
        assert answer.status == 502, answer.body
        return answer.json()["error"]
    *before, last = [json.loads(line[6:]) for line in answer.text.split("\n\n") if line.startswith("data: {")]
    assert not [c for doc in before for c in doc["choices"] if c["delta"].get("content") or c["finish_reason"]], answer.body
    return last["error"]


def is_refused(engine, gateway, sid, stream):
    """And then the same call, of an engine that is well, is the session's first."""
    before = state(gateway, sid)
    error = error_of(chat(gateway, sid, ASKED, stream=stream), stream)
    assert error["code"] == "engine_invalid", error
    assert state(gateway, sid) == before
    engine.vision, engine.knows = kit.expand, True
    engine.plan.clear()
    passes(engine, gateway, sid, stream)


def passes(engine, gateway, sid, stream):
    answer = chat(gateway, sid, ASKED, stream=stream)
    assert answer.status == 200 and (not stream or b"[DONE]" in answer.body), answer.body
    done = gateway.post(f"/sessions/{sid}/finalize", {}).json()
    t, = done["trajectories"]
    assert t["prompt_ids"] == engine.seen[-1] == kit.expand(engine.requests[-1]["body"].get("input_ids") or
                                                            engine.requests[-1]["body"]["token_ids"], [WIDE, TALL])
    assert [turn["cause"] for turn in t["turns"]] == ["new_root"] and done["summary"]["calls"] == 1


@pytest.mark.cases(8)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("fault", [without, dropped, twice, shorter])
@pytest.mark.parametrize("kind", ["sglang", "vllm"])
def test_a_prompt_of_another_length(vision, kind, fault, stream):
    engine, gateway = gate(vision, kind)
    engine.vision = fault
    is_refused(engine, gateway, session(gateway), stream)


@pytest.mark.parametrize("kind,stream", [("sglang", False), ("vllm", False), ("vllm", True)])
@pytest.mark.parametrize("fault", [other, swapped])
def test_other_ids_of_the_right_length(vision, kind, fault, stream):
    """SGLang's streams tell the length alone."""
    engine, gateway = gate(vision, kind)
    engine.vision = fault
    is_refused(engine, gateway, session(gateway), stream)


@pytest.mark.parametrize("edit", [nothing, empty, null])
@pytest.mark.parametrize("kind,stream", [("sglang", False), ("sglang", True), ("vllm", False), ("vllm", True)])
def test_a_server_that_does_not_tell(vision, kind, stream, edit):
    """One that came in the place of one that did."""
    engine, gateway = gate(vision, kind)
    engine.plan.append({**kit.GOOD, "edit": lambda docs: of_all(docs, edit)})
    is_refused(engine, gateway, session(gateway), stream)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_an_old_vllm_that_ignores_the_field(vision, stream):
    engine, gateway = gate(vision, "vllm")
    engine.knows = False
    is_refused(engine, gateway, session(gateway), stream)


@pytest.mark.cases(6)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("chunk", [1, 2, 9])
@pytest.mark.parametrize("kind", ["sglang", "vllm"])
def test_right_answers_pass_however_they_come(vision, kind, chunk, stream):
    engine, gateway = gate(vision, kind)
    engine.plan.append({**kit.GOOD, "chunk": chunk})
    passes(engine, gateway, session(gateway), stream)


@pytest.mark.parametrize("fault", [None, *(dropped, twice, shorter, other, swapped)])
def test_ids_that_come_with_every_piece(vision, fault):
    """SGLang repeats them in a stream when it was asked to tell them; they are held to the prompt then, too."""
    engine, gateway = gate(vision, "sglang")
    engine.vision = fault or kit.expand

    def repeated(docs):
        return of_all(docs, lambda d: {**d, "prompt_token_ids": engine.seen[-1]})
    engine.plan.append({**kit.GOOD, "chunk": 1, "edit": repeated})
    (is_refused if fault else passes)(engine, gateway, session(gateway), True)


def test_an_engine_that_refuses_unequal_counts_never_needs_to(vision):
    """As many placeholders as pictures, in every call of a conversation that also spells one."""
    engine, gateway = gate(vision, "sglang")
    sid, messages = session(gateway), []
    for n in range(4):
        messages.append(user(text(f"turn {n} {kit.PAD_TEXT}"), *[image(kit.png(64 + 32 * n, 64, k)) for k in range(n)]))
        answer = chat(gateway, sid, messages)
        assert answer.status == 200, answer.body
        messages.append(answer.json()["choices"][0]["message"])
    assert [r["body"]["input_ids"].count(PAD) for r in engine.requests] == [0, 1, 3, 6] == \
        [len(r["body"].get("image_data") or ()) for r in engine.requests]

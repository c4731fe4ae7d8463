"""Sampling supports and alternatives that a session requests, from current engines and from old ones that ignore the
field, in every format that supports them."""
import base64
import json
import math
import struct

import pytest

from export_readers import Msgpack, read_safetensors
from odds_engine import OddsEngine
from vision_kit import session

USER = [{"role": "user", "content": "hi"}]
END = 257
IDS = [*b"ok", END]
VARIANTS = {
    "sglang": ("sglang", {}, "logprobs"),
    "sglang-incremental": ("sglang", {"incremental": True}, "logprobs"),
    "sglang-selected": ("sglang", {}, "mask"),
    "vllm": ("vllm", {"routes": ("generate",)}, "logprobs"),
    "vllm-names": ("vllm", {"routes": ("generate",), "form": "names"}, "logprobs"),
    "vllm-mask": ("vllm", {"routes": ("generate",)}, "mask"),
}


def made(variant):
    kind, how, masks = VARIANTS[variant]
    return OddsEngine(kind, masks=masks, **how)


def ask(gateway, sid, stream=False, **more):
    return gateway.post(f"/sessions/{sid}/v1/chat/completions", {"messages": USER, "stream": stream, **more})


def cells(trajectory, name):
    """An array of the native JSON, with its shape and type."""
    raw, shape = base64.b64decode(trajectory[name]), trajectory[name + "_shape"]
    code = {"int32": "i", "float32": "f"}[trajectory[name + "_dtype"]]
    flat = list(struct.unpack(f"<{math.prod(shape)}{code}", raw))
    return [flat[i:i + shape[1]] for i in range(0, len(flat), shape[1])] if len(shape) > 1 else flat


def rows_of(trajectory, name="response_support_ids"):
    flat, at, rows = cells(trajectory, name), 0, []
    for n in cells(trajectory, "response_support_counts"):
        rows.append(flat[at:at + n])
        at += n
    assert at == len(flat)
    return rows


def f32(values):
    return list(struct.unpack(f"<{len(values)}f", struct.pack(f"<{len(values)}f", *values)))


def trajectory_of(gateway, sid, **query):
    more = "".join(f"&{k}={v}" for k, v in query.items())
    a = gateway.get(f"/sessions/{sid}/trajectories?format=json{more}")
    assert a.status == 200, a.text
    return a.json()["trajectories"][0]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_support_is_kept(start, variant, stream):
    with made(variant) as engine:
        gateway = start(workers=1, engine=engine.setting)
        sid = session(gateway, sampling_support=True)
        engine.plan.append({"ids": IDS, "chunk": 1})
        a = ask(gateway, sid, stream)
        assert a.status == 200, a.text
        body = engine.requests[0]["body"]
        if engine.kind == "sglang":
            assert body["return_sampling_mask"] is True and body["sampling_logprobs_mode"] == "support"
        rows, lps = engine.support({}, IDS)
        t = trajectory_of(gateway, sid)
        assert rows_of(t) == rows
        has = engine.masks == "logprobs"
        assert ("response_support_logprobs" in t) == has
        if has:
            assert rows_of(t, "response_support_logprobs") == [f32(r) for r in lps]
        # Logprobs over the support are those of what was sampled from, whatever the engine's others are.
        own = has or engine.kind == "sglang"
        assert t["turns"][0]["logprob_basis"] == ("processed" if own else "raw")
        assert t["turns"][0]["logprob_asked"] == ("processed" if engine.kind == "sglang" else None)
        want = engine.sampled(IDS, rows, lps) if own else engine.numbers({"ids": IDS})[1]
        assert t["response_logprobs"] == pytest.approx(want, abs=1e-6)


def test_who_does_not_ask_gets_none(start):
    with made("vllm") as engine:
        gateway = start(workers=1, engine=engine.setting)
        sid = session(gateway)
        engine.plan.append({"ids": IDS})
        assert ask(gateway, sid).status == 200
        t = trajectory_of(gateway, sid)
        assert not [k for k in t if k.startswith(("response_support", "response_top"))]
        assert t["turns"][0]["logprob_basis"] == "raw"
    with made("sglang") as engine:
        gateway = start(workers=1, engine=engine.setting)
        engine.plan.append({"ids": IDS})
        assert ask(gateway, session(gateway)).status == 200
        assert not {"return_sampling_mask", "sampling_logprobs_mode"} & set(engine.requests[0]["body"])


@pytest.mark.parametrize("variant", ["sglang", "vllm"])
def test_two_turns_in_every_format(start, variant):
    with made(variant) as engine:
        gateway = start(workers=1, engine=engine.setting)
        sid = session(gateway, sampling_support=True, top_logprobs=2)
        messages = list(USER)
        for _ in range(2):
            engine.plan.append({"ids": IDS})
            assert gateway.post(f"/sessions/{sid}/v1/chat/completions", {"messages": messages}).status == 200
            messages = [*messages, {"role": "assistant", "content": "ok"}, {"role": "user", "content": "more"}]
        assert gateway.post(f"/sessions/{sid}/reward_info", {"reward_info": {"reward": 1}}).status == 200
        t = trajectory_of(gateway, sid)
        rows, lps = engine.support({}, IDS)
        between = len(t["response_ids"]) - 2 * len(IDS)
        assert rows_of(t) == rows + [[]] * between + rows
        assert t["response_mask"] == [1] * 3 + [0] * between + [1] * 3
        flat, flat_lps = sum(rows + rows, []), f32(sum(lps + lps, []))
        tops = cells(t, "response_top_ids")
        assert t["response_top_ids_shape"] == [len(t["response_ids"]), 2] and tops[3] == [-1, -1]
        assert tops[0] == [IDS[0], IDS[0] + 1] == tops[3 + between]
        assert cells(t, "response_top_logprobs")[3] == [-math.inf] * 2
        names = [k for k in t if k.startswith(("response_support", "response_top")) and not k.endswith(("_shape", "_dtype"))]
        assert len(names) == 5

        packed = Msgpack(gateway.get(f"/sessions/{sid}/trajectories?format=msgpack").body).value()["trajectories"][0]
        tensors, _ = read_safetensors(gateway.get(f"/sessions/{sid}/trajectories?format=safetensors").body)
        for name in names:
            code = "f" if "logprobs" in name else "i"
            whole = struct.unpack(f"<{math.prod(t[name + '_shape'])}{code}", base64.b64decode(t[name]))
            assert packed[name] == list(whole) and packed[name + "_shape"] == t[name + "_shape"]
            assert tensors[name + ".0"] == ("F32" if "logprobs" in name else "I32", t[name + "_shape"], list(whole))

        view, meta = read_safetensors(gateway.get(f"/sessions/{sid}/tokens").body)
        for name in ("response_top_ids.0", "response_top_logprobs.0"):
            assert view[name] == tensors[name]
        assert {IDS[0], IDS[0] + 1} <= set(map(int, json.loads(meta["vocabulary"])))

        slime = gateway.get(f"/sessions/{sid}/trajectories?format=slime").json()["samples"][0]
        offsets = slime["rollout_top_p_token_offsets"]
        assert slime["rollout_top_p_token_ids"] == flat and len(offsets) == slime["response_length"] + 1
        assert [slime["rollout_top_p_token_ids"][a:b] for a, b in zip(offsets, offsets[1:])] == rows_of(t)

        prime = gateway.get(f"/sessions/{sid}/trajectories?format=prime-rl").json()["samples"][0]
        mask = {k: base64.b64decode(v) for k, v in prime["sampling_mask"].items()}
        counts = struct.unpack(f"<{len(prime['token_ids'])}i", mask["counts"])
        assert list(counts) == [0] * len(t["prompt_ids"]) + [len(r) for r in rows_of(t)]
        assert list(struct.unpack(f"<{len(flat)}i", mask["ids"])) == flat
        assert list(struct.unpack(f"<{len(flat)}f", mask["logprobs"])) == flat_lps

        miles, _ = read_safetensors(gateway.get(f"/sessions/{sid}/trajectories?format=miles").body)
        kind, shape, offsets = miles["rollout_sampling_mask_offsets.0"]
        ids = miles["rollout_sampling_mask_ids.0"]
        assert kind == "I64" and shape == [len(t["response_ids"]) + 1] and ids[0] == "I32"
        assert [ids[2][a:b] for a, b in zip(offsets, offsets[1:])] == [r or [i] for r, i in zip(rows_of(t), t["response_ids"])]
        assert miles["rollout_topk_token_ids.0"][:2] == ("I32", t["response_top_ids_shape"])
        assert miles["rollout_topk_log_probs.0"][0] == "F32"
        assert len(miles["rollout_sampling_mask_log_probs.0"][2]) == len(ids[2])


def test_it_survives_a_crash_and_eviction(start):
    with made("sglang") as engine:
        gateway = start(workers=1, engine=engine.setting)
        sid = session(gateway, sampling_support=True, top_logprobs=3)
        engine.plan.append({"ids": IDS})
        assert ask(gateway, sid).status == 200
        before = trajectory_of(gateway, sid)
        gateway.kill()
        gateway.start()
        after = trajectory_of(gateway, sid)
        assert "response_support_ids" in before and after == before
        engine.plan.append({"ids": IDS})
        ask(gateway, sid)
        body = engine.requests[-1]["body"]
        assert body["return_sampling_mask"] is True and body["top_logprobs_num"] == 3


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("variant", ["sglang", "sglang-incremental", "vllm"])
def test_an_abort_is_spliced(start, variant, stream):
    with made(variant) as engine:
        gateway = start(workers=1, engine=engine.setting, **{"on-engine-abort": "resume"})
        first, second = list(b"abcd"), [*b"ghi", END]
        sid = session(gateway, sampling_support=True)
        engine.plan.extend([{"ids": first, "finish": "abort"}, {"ids": second}])
        assert ask(gateway, sid, stream).status == 200 and len(engine.requests) == 2
        got = trajectory_of(gateway, sid)
        assert got["response_ids"] == first + second
        assert rows_of(got) == engine.support({}, first)[0] + engine.support({}, second)[0]
        # One piece without it: of the whole nothing is told.
        sid = session(gateway, sampling_support=True)
        engine.plan.extend([{"ids": first, "finish": "abort"}, {"ids": second, "support": None}])
        assert ask(gateway, sid, stream).status == 200
        assert "response_support_ids" not in trajectory_of(gateway, sid)
        gateway.wait_line("no sampling support")


@pytest.mark.parametrize("variant", ["sglang", "vllm", "vllm-completions"])
def test_an_old_engine_is_told(start, variant):
    """It ignores the field, or was not started with it, or is asked at a route that has none."""
    with made(variant) if variant in VARIANTS else OddsEngine("vllm", routes=("completions",)) as engine:
        engine.masks = None
        gateway = start(workers=1, engine=engine.setting)
        sid = session(gateway, sampling_support=True)
        for _ in range(2):
            engine.plan.append({"ids": IDS, "matched": None})
            assert ask(gateway, sid).status == 200
        export = gateway.get(f"/sessions/{sid}/trajectories?format=slime").json()
        assert "rollout_top_p_token_ids" not in export["samples"][0]
        assert [w for w in export["summary"]["warnings"] if "sampling support" in w]
        gateway.wait_line("no sampling support")
        assert gateway.log().count("no sampling support") == 1
        strict = start(workers=1, engine=engine.setting + ",logprobs=processed", strict_logprobs=True)
        sid = session(strict, sampling_support=True)
        engine.plan.append({"ids": IDS, "matched": None})
        a = ask(strict, sid)
        assert a.status == 502 and "sampling support" in a.text
        strict.allow("no sampling support")


def test_strict_logprobs_are_served_by_the_support(start):
    """SGLang's other logprobs are from before top-p: with the support they are the policy's own."""
    with made("sglang") as engine:
        gateway = start(workers=1, engine=engine.setting, strict_logprobs=True)
        sid = session(gateway, sampling_support=True, sampling_params={"top_p": 0.9, "top_k": 64})
        engine.plan.append({"ids": IDS})
        assert ask(gateway, sid).status == 200
        assert ask(gateway, session(gateway, sampling_params={"top_p": 0.9})).status == 400


@pytest.mark.parametrize("plan,why", [
    ({"support": [[111], [107]]}, "numbers of tokens and of their sampling supports"),
    ({"support": [[111], [1, 2], [END]]}, "not in its own sampling support"),
    ({"support_logprobs": [[-0.1, -1], [-0.1, -1, -2], [None] * 4]}, "null or out of range"),
    ({"support_logprobs": [[-0.1], [-0.1], [-1]]}, "differ in number"),
    ({"support_logprobs": [[-0.1, -1], [5.5, 4, 3], [9] * 4]}, "above 0"),
], ids=["rows", "foreign", "null", "short", "logits"])
@pytest.mark.parametrize("variant", ["sglang", "vllm"])
def test_a_wrong_support_is_refused(start, variant, plan, why):
    with made(variant) as engine:
        gateway = start(workers=1, engine=engine.setting)
        gateway.allow("engine call failed")
        sid = session(gateway, sampling_support=True)
        engine.plan.append({"ids": IDS, **plan})
        a = ask(gateway, sid)
        assert a.status == 502 and why in a.text, a.text
        engine.plan.append({"ids": IDS})
        assert ask(gateway, sid).status == 200


@pytest.mark.parametrize("engine,field", [
    ("builtin:echo", "sampling_support"), ("builtin:echo", "top_logprobs"),
    ("openai:http://127.0.0.1:1", "top_logprobs"), ("llamacpp:http://127.0.0.1:1", "sampling_support")])
def test_kinds_that_cannot_tell(start, engine, field):
    gateway = start(workers=1, engine=engine)
    a = gateway.post("/sessions", {field: 3 if field == "top_logprobs" else True})
    assert a.status == 400 and a.json()["error"]["param"] == field, a.text
    assert gateway.post("/sessions", {field: 0 if field == "top_logprobs" else False}).status == 200
    for bad in (129, -1, "3", 1.5) if field == "top_logprobs" else ("yes", 1):
        assert gateway.post("/sessions", {field: bad}).json()["error"]["param"] == field


ALTERNATIVES = {
    "sglang": ("sglang", {}),
    "vllm": ("vllm", {"routes": ("generate",)}),
    "vllm-names": ("vllm", {"routes": ("generate",), "form": "names"}),
    "vllm-completions": ("vllm", {"routes": ("completions",)}),
    "llamacpp": ("llamacpp", {}),
}


@pytest.mark.parametrize("kind,how", ALTERNATIVES.values(), ids=ALTERNATIVES)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_alternatives_of_the_policy(start, kind, how, stream):
    with OddsEngine(kind, **how) as engine:
        gateway = start(workers=1, engine=engine.setting)
        sid = session(gateway, top_logprobs=3)
        engine.plan.append({"ids": IDS, "matched": None})
        a = ask(gateway, sid, stream, logprobs=True, top_logprobs=1)
        assert a.status == 200, a.text
        if not stream:  # the client has as many as it asked for
            assert all(len(x["top_logprobs"]) <= 1 for x in a.json()["choices"][0]["logprobs"]["content"])
        t = trajectory_of(gateway, sid)
        assert t["response_top_ids_shape"] == [3, 3]
        lps = engine.numbers({"ids": IDS})[1]
        assert cells(t, "response_top_ids") == [[i, i + 1, i + 2] for i in IDS]
        assert cells(t, "response_top_logprobs") == [f32([p, p - 1, p - 2]) for p in lps]
        assert json.dumps(t["turns"][0])


def each_entry(change):
    """Every entry of vLLM's logprobs at its first route, changed."""
    def edit(docs):
        for doc in docs:
            for choice in doc["choices"]:
                for entry in choice["logprobs"]["content"]:
                    change(entry)
        return docs
    return edit


def test_alternatives_are_sorted_by_logprob(start):
    """vLLM lists the sampled token first, whatever its rank; and keys come in any order."""
    def shuffle(entry):
        first, *rest = entry["top_logprobs"]
        first["logprob"] -= 1.5
        entry["top_logprobs"] = [dict(reversed(list(t.items()))) for t in (first, *rest)]
        entry["logprob"] = first["logprob"]
        whole = dict(reversed(list(entry.items())))
        entry.clear()
        entry.update(whole)
    for form in ("ids", "names"):
        with OddsEngine("vllm", routes=("generate",), form=form) as engine:
            gateway = start(workers=1, engine=engine.setting)
            sid = session(gateway, top_logprobs=3)
            engine.plan.append({"ids": IDS, "matched": None, "edit": each_entry(shuffle)})
            assert ask(gateway, sid).status == 200
            t = trajectory_of(gateway, sid)
            assert cells(t, "response_top_ids") == [[i + 1, i, i + 2] for i in IDS]
            assert all(row == sorted(row, reverse=True) for row in cells(t, "response_top_logprobs"))


def drop(*keys):
    return lambda entry: [x.pop(k, None) for k in keys for x in (entry, *entry["top_logprobs"])]


NAMELESS = {
    "no name": ("ids", drop("token_id"), "names no token id"),
    "no name, older": ("names", drop("token"), "names no token id"),
    "texts": ("names", lambda e: [x.update(token=" the") for x in (e, *e["top_logprobs"])], "names no token id"),
    "one alternative": ("ids", lambda e: e["top_logprobs"][1].pop("token_id"), "an alternative names no token id"),
    "the last": ("ids", lambda e: e["top_logprobs"][2].update(token_id=None), "an alternative names no token id"),
    "a text for an id": ("ids", lambda e: e["top_logprobs"][1].update(token_id="7"), "an alternative names no token id"),
    "another token": ("ids", lambda e: e.update(token_id=e["token_id"] + 1), "belongs to another token"),
    "another name": ("names", lambda e: e.update(token="token_id:5"), "belongs to another token"),
}


@pytest.mark.parametrize("form,change,why", NAMELESS.values(), ids=NAMELESS)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_alternatives_without_ids_are_refused(start, form, change, why, stream):
    with OddsEngine("vllm", routes=("generate",), form=form) as engine:
        gateway = start(workers=1, engine=engine.setting)
        sid = session(gateway, top_logprobs=3)
        engine.plan.append({"ids": IDS, "matched": None, "edit": each_entry(change)})
        a = ask(gateway, sid, stream)
        assert (a.status == 502 or stream) and "engine_invalid" in a.text and why in a.text, a.text
        assert gateway.get(f"/sessions/{sid}").json()["tree"]["nodes"] == []
        engine.plan.append({"ids": IDS, "matched": None})
        assert ask(gateway, sid, stream).status == 200
        assert cells(trajectory_of(gateway, sid), "response_top_ids") == [[i, i + 1, i + 2] for i in IDS]


def test_a_token_s_text_beside_its_id(start):
    """A server may write both."""
    with OddsEngine("vllm", routes=("generate",)) as engine:
        gateway = start(workers=1, engine=engine.setting)
        sid = session(gateway, top_logprobs=3)
        engine.plan.append({"ids": IDS, "matched": None, "edit": each_entry(
            lambda e: [x.update(token=" the", bytes=None) for x in (e, *e["top_logprobs"])])})
        assert ask(gateway, sid).status == 200
        assert cells(trajectory_of(gateway, sid), "response_top_ids") == [[i, i + 1, i + 2] for i in IDS]


@pytest.mark.parametrize("name", ["tokens", "top_logprobs"])
def test_completions_that_name_no_ids_are_refused(start, name):
    """A server that does not know return_tokens_as_token_ids writes texts."""
    def texts(docs):
        for choice in docs[-1]["choices"]:
            lp = choice["logprobs"]
            lp["tokens" if name == "tokens" else "top_logprobs"] = (
                [" the"] * len(lp["tokens"]) if name == "tokens" else [{" the": -0.5, " a": -1.0}] * len(lp["tokens"]))
        return docs
    with OddsEngine("vllm", routes=("completions",)) as engine:
        gateway = start(workers=1, engine=engine.setting)
        sid = session(gateway, top_logprobs=2)
        engine.plan.append({"ids": IDS, "matched": None, "edit": texts})
        a = ask(gateway, sid)
        assert a.status == 502 and "names no token id" in a.text, a.text


def test_an_alternative_that_cannot_be_sampled_is_left_out(start):
    """vLLM writes -9999 for -inf: that is no logprob of an alternative either."""
    with made("vllm") as engine:
        gateway = start(workers=1, engine=engine.setting)
        sid = session(gateway, top_logprobs=3)
        engine.plan.append({"ids": IDS, "matched": None, "edit": each_entry(
            lambda e: e["top_logprobs"][2].update(logprob=-9999.0))})
        assert ask(gateway, sid).status == 200
        t = trajectory_of(gateway, sid)
        assert [(row[1] >= 0, row[2]) for row in cells(t, "response_top_ids")] == [(True, -1)] * len(IDS)
        assert all(math.isfinite(row[1]) and row[2] == -math.inf for row in cells(t, "response_top_logprobs"))

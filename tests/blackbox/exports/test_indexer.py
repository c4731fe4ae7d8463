"""The indexer's top-k (SGLang's return_indexer_topk): stored for sessions that request it, new rows only, complete in
every format that supports it, and bounded. An old engine is reported, a wrong answer refused."""
import base64
import json
import math
import struct
from pathlib import Path

import pytest

import gateway as g
import vision_kit as kit
from export_readers import Msgpack, read_safetensors
from indexer_engine import IndexerEngine
from stub_engines import StubEngine

USER = [{"role": "user", "content": "hi"}]
END = 257
IDS = [*b"ok", END]


def session(gateway, **options):
    a = gateway.post("/sessions", {"indexer_topk": True, **options})
    assert a.status == 200, a.text
    return a.json()["session_id"]


def ask(gateway, sid, messages=None, stream=False, **more):
    return gateway.post(f"/sessions/{sid}/v1/chat/completions", {"messages": messages or USER, "stream": stream, **more})


def turns(gateway, engine, sid, n=2, stream=False):
    messages = list(USER)
    for _ in range(n):
        engine.plan.append({"ids": IDS, "chunk": 1})
        assert ask(gateway, sid, messages, stream).status == 200
        messages = [*messages, {"role": "assistant", "content": "ok"}, {"role": "user", "content": "more"}]


def export(gateway, sid, **query):
    more = "".join(f"&{k}={v}" for k, v in query.items())
    a = gateway.get(f"/sessions/{sid}/trajectories?format=json{more}")
    assert a.status == 200, a.text
    return a.json()


def numbers(t):
    assert t["indexer_topk_dtype"] == "int32"
    return list(struct.unpack(f"<{math.prod(t['indexer_topk_shape'])}i", base64.b64decode(t["indexer_topk"])))


def check_all(gateway, engine, sid):
    """Every trajectory has the rows that the engine computed for its ids."""
    whole = export(gateway, sid)
    assert not [w for w in whole["summary"]["warnings"] if "indexer" in w]
    for t in whole["trajectories"]:
        full = t["prompt_ids"] + t["response_ids"]
        assert t["indexer_topk_shape"] == [len(full) - 1, engine.layers, engine.k]
        assert numbers(t) == engine.rows(full)
    return whole


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("incremental", [False, True], ids=["cumulative", "incremental"])
def test_two_turns_in_every_format(start, incremental, stream):
    with IndexerEngine(incremental=incremental) as engine:
        gateway = start(workers=1, engine=engine.setting)
        sid = session(gateway)
        turns(gateway, engine, sid, 3, stream)
        assert all(r["body"]["return_indexer_topk"] is True for r in engine.requests)
        assert gateway.post(f"/sessions/{sid}/reward_info", {"reward_info": {"reward": 1}}).status == 200
        t = check_all(gateway, engine, sid)["trajectories"][0]
        assert t["routed_experts"] is None
        want, shape = numbers(t), t["indexer_topk_shape"]
        packed = Msgpack(gateway.get(f"/sessions/{sid}/trajectories?format=msgpack").body).value()["trajectories"][0]
        assert packed["indexer_topk"] == want and packed["indexer_topk_shape"] == shape
        tensors, _ = read_safetensors(gateway.get(f"/sessions/{sid}/trajectories?format=safetensors").body)
        assert tensors["indexer_topk.0"] == ("I32", shape, want)
        miles, meta = read_safetensors(gateway.get(f"/sessions/{sid}/trajectories?format=miles").body)
        assert miles["rollout_indexer_topk.0"] == ("I32", shape, want)
        assert json.loads(bytes(miles["_samples_meta"][2]))["samples"][0]["nulls"] == ["rollout_routed_experts"]
        gateway.kill()
        gateway.start()
        assert numbers(export(gateway, sid)["trajectories"][0]) == want
        turns(gateway, engine, sid, 1)
        check_all(gateway, engine, sid)


def test_only_new_rows_are_recorded(start):
    with IndexerEngine(layers=8, k=512) as engine:
        gateway = start(workers=1, engine=engine.setting)
        sid = session(gateway)
        row, before, grown = 8 * 512 * 4, 0, []
        messages = list(USER)
        for _ in range(4):
            engine.plan.append({"ids": IDS})
            assert ask(gateway, sid, messages).status == 200
            messages = [*messages, {"role": "assistant", "content": "ok"}, {"role": "user", "content": "more"}]
            size = sum(f.stat().st_size for f in Path(gateway.settings["state-dir"]).rglob("seg-*"))    # not its reserve, which comes once
            grown, before = [*grown, size - before], size
        whole = check_all(gateway, engine, sid)
        rows = [len(r["body"]["input_ids"]) + len(IDS) - 1 for r in engine.requests]
        for i in range(1, 4):
            assert grown[i] < (rows[i] - rows[i - 1] + 1) * row, (grown, rows)
        assert len(whole["trajectories"]) == 1


def test_branches_and_several_answers(start):
    with IndexerEngine() as engine:
        gateway = start(workers=1, engine=engine.setting)
        sid = session(gateway)
        turns(gateway, engine, sid)
        for text in ("aa", "bb"):
            engine.plan.append({"ids": [*text.encode(), END]})
        assert ask(gateway, sid, [*USER, {"role": "assistant", "content": "ok"}, {"role": "user", "content": "other"}], n=2).status == 200
        whole = check_all(gateway, engine, sid)
        assert len(whole["trajectories"]) == 3
        assert gateway.post(f"/sessions/{sid}/samples", {}).status == 200


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_an_abort_is_spliced(start, stream):
    with IndexerEngine() as engine:
        gateway = start(workers=1, engine=engine.setting, **{"on-engine-abort": "resume"})
        sid = session(gateway)
        turns(gateway, engine, sid, 1)
        engine.plan.extend([{"ids": list(b"abcd"), "finish": "abort"}, {"ids": [*b"ghi", END]}])
        more = [*USER, {"role": "assistant", "content": "ok"}, {"role": "user", "content": "more"}]
        assert ask(gateway, sid, more, stream).status == 200 and len(engine.requests) == 3
        check_all(gateway, engine, sid)


@pytest.mark.parametrize("config,shape", [
    ({"index_topk": 4, "num_hidden_layers": 61}, (3, 4)), ({"num_hidden_layers": 3}, (3, 4)), ({"index_topk": 5}, None), ({}, None)],
    ids=["topk", "layers", "neither-fits", "nothing"])
def test_layers_that_the_engine_does_not_tell(start, tmp_path, config, shape):
    """The model's configuration has them, or the array has no shape and is left out, which is told."""
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        (tmp_path / name).write_bytes((g.MODELS / "chatml-bytes" / name).read_bytes())
    (tmp_path / "config.json").write_text(json.dumps(config))
    with IndexerEngine(told=False) as engine:
        gateway = start(workers=1, engine=engine.setting, model=str(tmp_path))
        sid = session(gateway)
        turns(gateway, engine, sid)
        if shape:
            check_all(gateway, engine, sid)
            return
        whole = export(gateway, sid)
        assert "indexer_topk" not in whole["trajectories"][0]
        assert [w for w in whole["summary"]["warnings"] if "indexer top-k" in w]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_an_old_engine_is_told(start, stream):
    with IndexerEngine(old=True) as engine:
        gateway = start(workers=1, engine=engine.setting)
        sid = session(gateway)
        turns(gateway, engine, sid, stream=stream)
        whole = export(gateway, sid)
        assert "indexer_topk" not in whole["trajectories"][0]
        assert [w for w in whole["summary"]["warnings"] if "indexer top-k" in w]
        gateway.wait_line("no indexer top-k")
        assert gateway.log().count("no indexer top-k") == 1
        assert gateway.get("/admin/engines").json()["engines"][0]["lacks"] == ["indexer_topk"]
        # One that comes to know it tells from the first row on: nothing is missing any more.
        engine.old = False
        turns(gateway, engine, sid, 1)
        engine.plan.append({"ids": IDS})
        messages = [*USER, {"role": "assistant", "content": "ok"}, {"role": "user", "content": "more"}, {"role": "assistant", "content": "ok"},
                    {"role": "user", "content": "more"}]
        assert ask(gateway, sid, messages).status == 200
        t = [t for t in export(gateway, sid, select="all_checkpoints")["trajectories"] if t["num_turns"] == 3][0]
        assert numbers(t) == engine.rows(t["prompt_ids"] + t["response_ids"])


@pytest.mark.parametrize("plan", [
    {"bend": lambda x: x[:-4]}, {"bend": lambda x: x + b"\0" * 48}, {"bend": lambda x: x[:-3]}, {"layers_told": 5}], ids=["short", "row", "odd", "layers"])
@pytest.mark.parametrize("first", [True, False], ids=["first", "later"])
def test_a_wrong_size_is_refused(start, plan, first):
    with IndexerEngine() as engine:
        gateway = start(workers=1, engine=engine.setting, engine_retries=0)
        sid = session(gateway)
        messages = USER
        if not first:
            turns(gateway, engine, sid, 1)
            messages = [*USER, {"role": "assistant", "content": "ok"}, {"role": "user", "content": "more"}]
        engine.plan.append({"ids": IDS, **plan})
        a = ask(gateway, sid, messages)
        assert a.status == 502 and "indexer top-k" in a.text, a.text
        engine.plan.append({"ids": IDS})
        assert ask(gateway, sid, messages).status == 200
        check_all(gateway, engine, sid)


def test_what_is_larger_than_the_bound_is_not_kept(start):
    with IndexerEngine(layers=8, k=512) as engine:
        row = 8 * 512 * 4
        gateway = start(workers=1, engine=engine.setting, indexer_topk_max=str(40 * row))
        sid = session(gateway)
        turns(gateway, engine, sid, 1)
        check_all(gateway, engine, sid)
        assert len(engine.requests[0]["body"]["input_ids"]) + len(IDS) - 1 <= 40
        messages = [*USER, {"role": "assistant", "content": "ok"}, {"role": "user", "content": "more" * 10}]
        for _ in range(2):
            engine.plan.append({"ids": IDS})
            assert ask(gateway, sid, messages).status == 200
            messages = [*messages, {"role": "assistant", "content": "ok"}, {"role": "user", "content": "more"}]
        gateway.wait_line("--indexer-topk-max")
        assert gateway.log().count("--indexer-topk-max") == 1 and "no indexer top-k" not in gateway.log()
        whole = export(gateway, sid)
        assert "indexer_topk" not in whole["trajectories"][0]
        assert [w for w in whole["summary"]["warnings"] if "indexer top-k" in w]
        a = gateway.post(f"/sessions/{sid}/samples", {})
        assert a.status == 422 and "indexer top-k does not cover it" in a.text
        other = session(gateway)
        turns(gateway, engine, other, 1)
        check_all(gateway, engine, other)


def test_who_cannot_tell_is_refused(start):
    with StubEngine("vllm") as engine:
        gateway = start(workers=1, engine=engine.setting)
        a = gateway.post("/sessions", {"indexer_topk": True})
        assert a.status == 400 and a.json()["error"]["param"] == "indexer_topk"
        assert gateway.post("/sessions", {"indexer_topk": 1}).status == 400
    with IndexerEngine() as engine, StubEngine("openai") as judge:
        gateway = start(workers=1, engine=[engine.setting, f"judge={judge.setting},model=j"])
        a = gateway.post("/sessions", {"indexer_topk": True, "model": "judge"})
        assert a.status == 400 and a.json()["error"]["param"] == "indexer_topk"
        # Nobody is asked for it by a request of its own, nor without the option.
        plain = gateway.post("/sessions", {}).json()["session_id"]
        engine.plan.append({"ids": IDS})
        assert ask(gateway, plain, return_indexer_topk=True, indexer_topk=True).status == 200
        assert "return_indexer_topk" not in engine.requests[-1]["body"]
        assert "indexer_topk" not in export(gateway, plain)["trajectories"][0]
        a = gateway.post("/sessions", {"sampling_params": {"engine_extra": {"return_indexer_topk": True}}})
        assert a.status == 400 and "return_indexer_topk" in a.text


def test_a_fork_goes_on_with_the_rows(start):
    with IndexerEngine() as engine:
        gateway = start(workers=1, engine=engine.setting)
        sid = session(gateway)
        turns(gateway, engine, sid)
        head = export(gateway, sid)["trajectories"][0]["turns"][0]["response_id"]
        a = gateway.post(f"/sessions/{sid}/fork", {"response_id": head})
        assert a.status == 200, a.text
        fork = a.json()["session_id"]
        engine.plan.append({"ids": IDS})
        more = [*USER, {"role": "assistant", "content": "ok"}, {"role": "user", "content": "else"}]
        assert ask(gateway, fork, more).status == 200
        assert engine.requests[-1]["body"]["return_indexer_topk"] is True
        check_all(gateway, engine, fork)


def test_images_are_refused(vision):
    """Engines tell rows of what they make of an image, too: which they are is not known here."""
    engine, gateway = vision()
    sid = kit.session(gateway, indexer_topk=True)
    a = kit.chat(gateway, sid, [kit.user(kit.text("look"), kit.image(kit.png(56, 56)))])
    assert a.status == 400 and "indexer_topk" in a.text and not engine.requests


def test_rows_leave_memory_and_come_back(start):
    """Of a session in use and of idle ones: exports are what they are without a ceiling."""
    with IndexerEngine(layers=8, k=512) as engine:
        gateway = start(workers=1, engine=engine.setting, max_worker_memory="4m")
        made = [session(gateway) for _ in range(8)]
        for sid in made:
            turns(gateway, engine, sid, 3)
        for sid in made:
            check_all(gateway, engine, sid)
        m = gateway.metrics()
        assert m["rollgate_session_evictions_total"] + m["rollgate_payload_evictions_total"] > 0, m
        assert m["rollgate_session_loads_total"] + m["rollgate_payload_loads_total"] > 0, m


def test_formats_without_a_place_stay_as_they_are(start):
    with IndexerEngine() as engine:
        gateway = start(workers=1, engine=engine.setting)
        sid = session(gateway)
        turns(gateway, engine, sid)
        assert gateway.post(f"/sessions/{sid}/reward_info", {"reward_info": {"reward": 1}}).status == 200
        for name in ("slime", "prime-rl", "skyrl", "atif", "verl", "areal"):
            a = gateway.get(f"/sessions/{sid}/trajectories?format={name}")
            assert a.status == 200 and b"indexer_topk" not in a.body, name

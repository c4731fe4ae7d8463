"""If SGLang runs out of memory, it evicts a request and computes its tokens again (`num_retractions`). The returned
routes and indexer's top-k then differ from those of sampling. They are left out, which is reported."""
import json
import shutil
import struct

import pytest

import gateway as g
from export_readers import read_safetensors
from gateway import wait_until
from indexer_engine import IndexerEngine
from stub_engines import StubEngine

END = 257
IDS = [*b"ok", END]
USER = {"role": "user", "content": "hi"}
MORE = [{"role": "assistant", "content": "ok"}, {"role": "user", "content": "more"}]


def rows(body):
    """Two layers, two experts each; of the ids that are asked for."""
    n = len(body["input_ids"]) + len(IDS) - 1 - body["routed_experts_start_len"]
    return struct.pack(f"<{4 * n}i", *(i % 8 for i in range(4 * n)))


@pytest.fixture
def place(start, tmp_path):
    folder = shutil.copytree(g.MODELS / "chatml-bytes", tmp_path / "moe")
    (folder / "config.json").write_text(json.dumps({"num_hidden_layers": 2, "num_experts_per_tok": 2, "num_experts": 8, "model_type": "qwen3_moe"}))
    with StubEngine() as engine:
        gateway = start(workers=1, engine=engine.setting, model=folder, routed_experts="on")
        gateway.allow("computed an answer again")
        yield engine, gateway


def say(engine, gateway, sid, messages, retractions=0, stream=False, **more):
    engine.plan.extend([{"ids": IDS, "experts": rows, "retractions": retractions}] * more.get("n", 1))
    assert gateway.post(f"/sessions/{sid}/v1/chat/completions", {"messages": messages, "stream": stream, **more}).status == 200


def export(gateway, sid):
    return gateway.get(f"/sessions/{sid}/trajectories").json()


def retraction(d):
    return [w for w in d["summary"]["warnings"] if "retraction" in w]


def recomputed(gateway, sid):
    """By the state, in the order of the answers."""
    return [n.get("recomputed", False) for n in gateway.get(f"/sessions/{sid}").json()["tree"]["nodes"] if n.get("response_id")]


@pytest.mark.parametrize("stream", [False, True])
def test_routes_of_a_retraction_are_left_out_and_told(place, stream):
    engine, gateway = place
    sid = gateway.post("/sessions", {}).json()["session_id"]
    say(engine, gateway, sid, [USER], stream=stream)
    d = export(gateway, sid)
    assert d["trajectories"][0]["routed_experts"] and not retraction(d) and recomputed(gateway, sid) == [False]
    assert "recomputed" not in d["trajectories"][0]["turns"][0]
    say(engine, gateway, sid, [USER, *MORE], 1, stream)
    say(engine, gateway, sid, [USER, *MORE, *MORE], 0, stream)      # its block has rows for the answer before, too: not those either
    d = export(gateway, sid)
    t = d["trajectories"][0]
    assert t["routed_experts"] is None and len(retraction(d)) == 1
    assert [x.get("recomputed", False) for x in t["turns"]] == [False, True, False] == recomputed(gateway, sid)
    assert [x is not None for x in t["response_logprobs"]] == [True] * len(t["response_logprobs"])
    starts = [r["body"]["routed_experts_start_len"] for r in engine.requests]
    assert starts[0] == 0 < starts[1] == starts[2]
    tensors, notes = read_safetensors(gateway.get(f"/sessions/{sid}/trajectories?format=safetensors").body)
    assert not [name for name in tensors if "experts" in name] and retraction({"summary": json.loads(notes["summary"])})
    gateway.wait_line("computed an answer again")
    assert gateway.log().count("computed an answer again") == 1
    gateway.kill()
    gateway.start()
    assert export(gateway, sid)["trajectories"] == d["trajectories"] and recomputed(gateway, sid) == [False, True, False]
    a = gateway.post(f"/sessions/{sid}/samples", {"metadata": {"reward": 1}})    # as miles, which takes no sample with a gap in its replay
    assert a.status == 422 and "routed experts do not cover it (turn 2 of 3" in a.text, a.text


def test_a_branch_without_the_retraction_keeps_its_routes(place):
    engine, gateway = place
    sid = gateway.post("/sessions", {"history": "timelines"}).json()["session_id"]
    say(engine, gateway, sid, [USER])
    say(engine, gateway, sid, [USER, *MORE], 2)
    say(engine, gateway, sid, [USER, MORE[0], {"role": "user", "content": "other"}])
    d = export(gateway, sid)
    assert sorted(t["routed_experts"] is None for t in d["trajectories"]) == [False, True] and len(retraction(d)) == 1


def test_one_of_several_answers_to_a_prompt(place):
    engine, gateway = place
    sid = gateway.post("/sessions", {}).json()["session_id"]
    engine.plan.extend([{"ids": [*text, END], "experts": rows, "retractions": n} for n, text in enumerate((b"ok", b"no"))])
    assert gateway.post(f"/sessions/{sid}/v1/chat/completions", {"messages": [USER], "n": 2}).status == 200
    d = export(gateway, sid)
    assert sorted((bytes(t["response_ids"][:2]), t["routed_experts"] is None) for t in d["trajectories"]) == [(b"no", True), (b"ok", False)]


def test_a_piece_of_an_aborted_answer_counts(place):
    engine, gateway = place
    sid = gateway.post("/sessions", {}).json()["session_id"]
    whole = lambda body: rows({**body, "input_ids": body["input_ids"][1:]})     # one of three ids is in the prompt by then
    engine.plan.extend([{"ids": IDS[:1], "finish": "abort", "retractions": 1}, {"ids": IDS[1:], "experts": whole}])
    assert gateway.post(f"/sessions/{sid}/v1/chat/completions", {"messages": [USER]}).status == 200
    d = export(gateway, sid)
    assert d["trajectories"][0]["response_ids"] == IDS and d["trajectories"][0]["routed_experts"] is None and len(retraction(d)) == 1


def test_the_indexer_s_rows_are_left_out_likewise(start):
    with IndexerEngine() as engine:
        gateway = start(workers=1, engine=engine.setting)
        gateway.allow("computed an answer again")
        sid = gateway.post("/sessions", {"indexer_topk": True}).json()["session_id"]
        for n in (0, 1):
            engine.plan.append({"ids": IDS, "retractions": n})
            assert gateway.post(f"/sessions/{sid}/v1/chat/completions", {"messages": [USER, *MORE * n]}).status == 200
            d = export(gateway, sid)
            assert ("indexer_topk" in d["trajectories"][0]) == (n == 0) and len(retraction(d)) == n
        plain = gateway.post("/sessions", {}).json()["session_id"]      # nobody wants rows: nothing is left out
        engine.plan.append({"ids": IDS, "retractions": 1})
        assert gateway.post(f"/sessions/{plain}/v1/chat/completions", {"messages": [USER]}).status == 200
        assert not retraction(export(gateway, plain)) and recomputed(gateway, plain) == [False]
        wait_until(lambda: gateway.log().count("computed an answer again") == 1, 5, "once a session")

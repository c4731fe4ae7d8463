"""Requested routed experts that are not available: the start, calls, states and exports report it."""
import json
import shutil
import struct
import subprocess

import pytest

import gateway as g
from export_readers import read_safetensors
from stub_engines import StubEngine

END = 257
IDS = [*b"ok", END]
USER = {"role": "user", "content": "hi"}
MORE = [{"role": "assistant", "content": "ok"}, {"role": "user", "content": "more"}]
CONFIG = {"num_hidden_layers": 2, "num_experts_per_tok": 2, "num_experts": 8, "model_type": "qwen3_moe"}
SHAPE, TOLD_NONE = "config.json does not say", "the engine told none"


def rows(body):
    n = len(body["input_ids"]) + len(IDS) - 1 - body["routed_experts_start_len"]
    return struct.pack(f"<{4 * n}i", *(i % 8 for i in range(4 * n)))


def folder(tmp_path, **config):
    path = shutil.copytree(g.MODELS / "chatml-bytes", tmp_path / "model")
    (path / "config.json").unlink(missing_ok=True)
    if config:
        (path / "config.json").write_text(json.dumps(config))
    return path


def say(engine, gateway, sid, messages, experts=rows, stream=False):
    engine.plan.append({"ids": IDS, **({"experts": experts} if experts else {})})
    assert gateway.post(f"/sessions/{sid}/v1/chat/completions", {"messages": messages, "stream": stream}).status == 200


def told(gateway, sid):
    """Warnings about experts: of the state, of its answers, of the export, of its turns."""
    state, export = gateway.get(f"/sessions/{sid}").json(), gateway.get(f"/sessions/{sid}/trajectories").json()
    nodes = [n for n in state["tree"]["nodes"] if n.get("response_id")]
    turns = [x for t in export["trajectories"] for x in t["turns"]]
    return [[w for w in x.get("warnings", ()) if "experts" in w]
            for x in (state, *nodes, {"warnings": export["summary"]["warnings"]}, *turns)]


@pytest.mark.parametrize("config", [{}, {"num_hidden_layers": 2}, {"num_experts_per_tok": 2}])
def test_a_model_without_their_shape_is_reported(start, tmp_path, config):
    model = folder(tmp_path, **config)
    with StubEngine() as engine:
        check = subprocess.run([g.BINARY, "config", "--check", "--routed-experts=on", f"--model={model}", f"--engine={engine.setting}"],
                               capture_output=True, text=True)
        assert check.returncode == 0 and "--routed-experts: no trajectory will have any" in check.stderr, check.stderr
        gateway = start(workers=1, engine=engine.setting, model=model, routed_experts="on")
        gateway.wait_line("a setting is doubtful")
        assert "num_experts_per_tok" in gateway.log()
        sid = gateway.post("/sessions", {}).json()["session_id"]
        say(engine, gateway, sid, [USER])
        assert [len(w) for w in told(gateway, sid)] == [1, 1, 1, 1] and all(SHAPE in w for x in told(gateway, sid) for w in x)
        before = told(gateway, sid)
        gateway.kill()
        gateway.start()
        assert told(gateway, sid) == before
        notes = read_safetensors(gateway.post(f"/sessions/{sid}/finalize", {"format": "safetensors"}).body)[1]
        assert SHAPE in notes["summary"]


@pytest.mark.parametrize("stream", [False, True])
def test_an_engine_that_tells_none_is_reported(start, tmp_path, stream):
    with StubEngine() as engine:
        gateway = start(workers=1, engine=engine.setting, model=folder(tmp_path, **CONFIG), routed_experts="on")
        gateway.allow("no routed experts")
        sid = gateway.post("/sessions", {}).json()["session_id"]
        say(engine, gateway, sid, [USER], stream=stream)
        assert told(gateway, sid) == [[], [], [], []]
        say(engine, gateway, sid, [USER, *MORE], None, stream)
        state, first, second, summary, *turns = told(gateway, sid)
        assert first == turns[0] == [] and state == second == summary == turns[1] and TOLD_NONE in state[0] and len(state) == 1
        before = told(gateway, sid)
        gateway.kill()
        gateway.start()
        assert told(gateway, sid) == before, "also from the journal, whatever is asked of engines now"
        assert "a setting is doubtful" not in gateway.log()
        meta = gateway.post(f"/sessions/{sid}/finalize", {"format": "miles"})
        assert TOLD_NONE.encode() in meta.body, "miles has them in its session_metadata"


def test_engines_that_never_tell_any_are_reported_at_start(start, tmp_path):
    model = folder(tmp_path, **CONFIG)
    for engine, kind in (([], "the built-in engine"), (["--engine=builtin:echo"], "kind builtin"), (["--engine=llamacpp:http://127.0.0.1:1"], "kind llamacpp")):
        check = subprocess.run([g.BINARY, "config", "--check", "--routed-experts=on", f"--model={model}", *engine], capture_output=True, text=True)
        assert check.returncode == 0 and kind in check.stderr, check.stderr
        check = subprocess.run([g.BINARY, "config", "--check", f"--model={model}", *engine], capture_output=True, text=True)
        assert check.returncode == 0 and check.stderr == "", "nothing was asked for"
    gateway = start(workers=1, model=model, routed_experts="on")
    gateway.allow("no routed experts")
    sid = gateway.post("/sessions", {}).json()["session_id"]
    assert gateway.post(f"/sessions/{sid}/v1/chat/completions", {"messages": [USER]}).status == 200
    assert all(TOLD_NONE in w[0] for w in told(gateway, sid))


def test_without_the_setting_nothing_is_said(start, tmp_path):
    with StubEngine() as engine:
        gateway = start(workers=1, engine=engine.setting, model=folder(tmp_path))
        sid = gateway.post("/sessions", {}).json()["session_id"]
        say(engine, gateway, sid, [USER], None)
        assert told(gateway, sid) == [[], [], [], []] and gateway.get(f"/sessions/{sid}").json()["warnings"] == []
        assert "a setting is doubtful" not in gateway.log()

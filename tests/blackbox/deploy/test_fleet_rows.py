"""Routed experts in the store of a fleet (--fleet-rows): with `off` an adopted session lacks those of its turns, says so
for each of these turns, and is the same in all else."""
import base64
import json
import random

import gateway as g
import pytest

from fleet_kit import AS_ADMIN, Fleet, index_of
from stub_engines import StubEngine

LAYERS, TOPK, END = 4, 8, 257
TEXT = [*b"an answer"]
LOST = "routed experts stayed on the node that had the session before (--fleet-rows off)"


@pytest.fixture(params=["off", "on"])
def rows(request):
    return request.param


@pytest.fixture
def fleet(tmp_path, rows):
    model = tmp_path / "model"
    model.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        (model / name).write_bytes((g.MODELS / "chatml-bytes" / name).read_bytes())
    (model / "config.json").write_text(json.dumps({"num_hidden_layers": LAYERS, "num_experts_per_tok": TOPK}))
    with StubEngine("sglang") as engine, Fleet(tmp_path, "ab", lease="1s", engine=engine.setting, model=model, fleet_rows=rows,
                                               routed_experts="on", **{"fleet-hold": "20s"}) as f:
        for gateway in f:
            gateway.allow("a place without an owner", "a journal of a place", "watching its beat", "process ended on a signal")
        f.engine, f.random = engine, random.Random(4)
        yield f


def ask(fleet, node, session, messages):
    """One turn with random experts. Returns the messages after it."""
    def experts(body):
        n = len(body["input_ids"]) + len(TEXT) - body.get("routed_experts_start_len", 0)
        return fleet.random.randbytes(n * LAYERS * TOPK * 4)
    fleet.engine.plan.append({"ids": [*TEXT, END], "matched": END, "experts": experts})
    answer = fleet[node].post(f"/sessions/{session['session_id']}/v1/chat/completions", {"messages": messages},
                              headers={"x-api-key": session["api_key"]}, timeout=60)
    assert answer.status == 200, answer.text
    return [*messages, answer.json()["choices"][0]["message"]]


def exported(fleet, node, session):
    answer = fleet[node].get(f"/sessions/{session['session_id']}/trajectories?format=json", headers=AS_ADMIN)
    assert answer.status == 200, answer.text
    return answer.json()


def without_rows(export):
    """The trajectory without its experts and warnings, and the experts."""
    one, = export["trajectories"]
    experts = one.pop("routed_experts")
    for name in ("routed_experts_shape", "routed_experts_dtype"):
        one.pop(name, None)
    warnings = [turn.pop("warnings", []) for turn in one["turns"]]
    return one, experts and base64.b64decode(experts), warnings


def test_an_adopted_session_lacks_the_rows_and_nothing_else(fleet, rows):
    session = fleet.create("a")
    messages = ask(fleet, "a", session, [{"role": "user", "content": "one"}])
    messages = ask(fleet, "a", session, [*messages, {"role": "user", "content": "two"}])
    made = fleet["a"].post(f"/sessions/{session['session_id']}/fork", {}, headers=AS_ADMIN)
    assert made.status == 200, made.text
    fork = made.json()
    before = [exported(fleet, "a", s) for s in (session, fork)]
    fleet["a"].stop()
    fleet["a"].start()
    assert [exported(fleet, "a", s) for s in (session, fork)] == before, "the node's own journal has them"

    index = index_of(session["session_id"])
    g.wait_until(lambda: fleet.entry(f"place:{{{index}}}")["whole"] == "1", 20, "the place is whole")
    fleet.lose("a")
    after = [exported(fleet, "b", s) for s in (session, fork)]
    for was, now in zip(before, after):
        (one, experts, warnings), (other, left, lacks) = without_rows(was), without_rows(now)
        assert one == other and experts and warnings == [[], []]
        assert (left, lacks) == ((None, [[LOST]] * 2) if rows == "off" else (experts, warnings))
        assert (LOST in now["summary"]["warnings"]) == (rows == "off")
    messages = ask(fleet, "b", session, [*messages, {"role": "user", "content": "three"}])
    one, experts, lacks = without_rows(exported(fleet, "b", session))
    assert lacks == ([[LOST], [LOST], []] if rows == "off" else [[]] * 3)
    assert len(experts) == (len(one["prompt_ids"] + one["response_ids"]) - 1) * LAYERS * TOPK * 4
    state = fleet["b"].get(f"/sessions/{session['session_id']}?records=1", headers=AS_ADMIN).json()
    assert (LOST in state["warnings"]) == (rows == "off")


@pytest.mark.parametrize("rows", ["off"], indirect=True)
def test_a_drained_node_too_leaves_them_behind(fleet):
    session = fleet.create("a")
    messages = ask(fleet, "a", session, [{"role": "user", "content": "one"}])
    index = index_of(session["session_id"])
    g.wait_until(lambda: fleet.entry(f"place:{{{index}}}")["whole"] == "1", 20, "the place is whole")
    assert fleet["a"].post("/fleet/drain", {}, headers=AS_ADMIN).status == 200
    fleet["a"].wait(30)
    assert fleet.owner(index) == "b"
    one, experts, lacks = without_rows(exported(fleet, "b", session))
    assert (experts, lacks) == (None, [[LOST]])

"""Reading of exports: every format tells the same, arrays are views, batches are what they say."""
import json
import struct
import sys
import types
from collections.abc import Mapping

import msgpack
import numpy
import pytest

import gateway as g
import rollgate
from indexer_engine import IndexerEngine
from odds_engine import OddsEngine
from rollgate import records
from scoring_engine import ScoringEngine
from stub_engines import StubEngine


def play(gateway, turns=3, reward=1.0):
    """A session of several turns with tool results between; its id."""
    with rollgate.Client(gateway.url) as client:
        sid = client.create_session()["session_id"]
        messages = [{"role": "user", "content": "begin"}]
        for i in range(turns):
            answer = client.chat(sid, messages)["choices"][0]["message"]
            messages += [answer, {"role": "user", "content": f"and then {i}"}]
        if reward is not None:
            client.reward(sid, reward)
        return sid


@pytest.fixture
def exported(start):
    with StubEngine("sglang") as engine:
        for i in range(6):
            engine.plan.append({"ids": [40 + i, 50, 60 + i, 1], "finish": "stop", "matched": 1, "version": str(3 + i // 2)})
        gateway = start(engine=engine.setting, model=g.MODELS / "chatml-bytes")
        a, b = play(gateway), play(gateway, 2, None)
        with rollgate.Client(gateway.url) as client:
            yield client, a, b


def test_every_format_tells_the_same(exported):
    client, a, _ = exported
    forms = {form: client.finalize(a, form)[0] for form in ("json", "msgpack", "safetensors")}
    for form, t in forms.items():
        assert not rollgate.diff(forms["json"], t), (form, str(rollgate.diff(forms["json"], t)))
        assert t.trained_tokens == 12 and t.reward == 1.0 and t.versions == (3, 4) and len(t.spans()) == 3 and t.num_turns == t["num_turns"] == 3
    verl = client.finalize(a, "verl")
    t = forms["msgpack"]
    assert verl.rows == 1 and (verl["input_ids.0"] == t.ids).all() and verl.notes["rows"][0]["reward_score"] == 1.0
    assert (verl.row(0)["response_mask"] == t.response_mask).all()


LAYERS, TOPK = 2, 3


class TellingEngine(IndexerEngine, OddsEngine):
    """Tells all that a session can ask for, experts included."""

    def sglang(self, body, plan, stream, route):
        rows = len(body["input_ids"]) + len(plan["ids"]) - 1 - body["routed_experts_start_len"]
        values = [k % 7 for k in range(rows * LAYERS * TOPK)]
        return super().sglang(body, {**plan, "experts": struct.pack(f"<{len(values)}i", *values)}, stream, route)


@pytest.fixture
def everything(start, tmp_path):
    """A client, and a session of two branches that has every array, versions and a group."""
    for path in (g.MODELS / "chatml-bytes").iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "config.json").write_text(json.dumps({"num_hidden_layers": LAYERS, "num_experts_per_tok": TOPK}))
    with TellingEngine() as policy, ScoringEngine() as scorer:
        policy.otherwise = lambda body: {"ids": [*b"ok", 257], "finish": "stop", "matched": 257, "version": "5"}
        gateway = start(engine=policy.setting, model=tmp_path, routed_experts="on", scorer=f"big={scorer.setting}")
        with rollgate.Client(gateway.url) as client:
            score = [{"engine": "big", "what": what, "top_k": 2} for what in ("teacher", "reference", "self")]
            sid = client.create_session(group="g", rollout=1, group_size=4, labels={"attempt": "2"}, top_logprobs=2, sampling_support=True,
                                        indexer_topk=True, score=score)["session_id"]
            for text in ("one", "two"):
                client.chat(sid, [{"role": "user", "content": text}])
            client.reward(sid, {"reward": 0.5, "big": 2 ** 60 + 1})
            yield client, sid


def plainly(value):
    """As lists and numbers: of a mapping, so that those of different formats may be compared."""
    if isinstance(value, Mapping):
        return {k: plainly(v) for k, v in value.items()}
    if isinstance(value, (list, memoryview)):
        return [plainly(v) for v in value]
    return list(value) if isinstance(value, bytes) else value


def test_every_native_format_reads_the_same(everything):
    client, sid = everything
    told = {form: client.finalize(sid, form) for form in ("json", "msgpack", "safetensors")}
    for form, export in told.items():
        assert (export.group, export.rollout, export.group_size, export.attempt) == ("g", 1, 4, "2"), form
        for t, same in zip(export, told["msgpack"], strict=True):
            a, b = plainly(t), plainly(same)
            assert a.pop("response_logprobs") == pytest.approx(b.pop("response_logprobs"), abs=1e-6)
            assert a == b, form
            n = t.prompt_len + t.response_len
            assert t.array("indexer_topk").shape == (n - 1, 3, 4) and t.array("response_top_ids").shape == (t.response_len, 2)
            assert t.array("response_top_logprobs").dtype == "f4" and t.array("response_support_counts").sum() == len(t["response_support_ids"])
            for what in ("teacher", "reference", "self"):
                assert t.array(f"{what}_logprobs").shape == (n,) and t.array(f"{what}_top_ids").shape == (n, 2)
                assert t.array(f"{what}_top_logprobs")[0].tolist() == [-numpy.inf] * 2
            assert t.array("no_such") is None and t.routed_experts.shape == (n - 1, LAYERS, TOPK)
            assert t["reward_info"]["big"] == 2 ** 60 + 1
    assert sorted(told["json"][0]) == sorted(told["safetensors"][0]) and len(told["json"]) == 2


def test_arrays_are_views(exported):
    client, a, _ = exported
    raw = client.finalize(a, "msgpack", raw=True)
    t = records.from_msgpack(raw)[0]
    base = numpy.frombuffer(raw, "u1")
    for x in (t.prompt_ids, t.response_ids, t.response_mask, t.response_logprobs):
        assert numpy.shares_memory(x, base)
    assert t.prompt_ids.dtype == "i4" and t.response_mask.dtype == "u1" and t.response_logprobs.dtype == "f4"
    raw = client.finalize(a, "verl", raw=True)
    assert numpy.shares_memory(records.Tensors(raw)["input_ids.0"], numpy.frombuffer(raw, "u1"))


def test_repr_is_for_reading(exported):
    client, a, b = exported
    text = str(client.finalize(a)[0])
    assert text.startswith(f"Trajectory({a}#0, ")
    assert "12 trained" in text and "3 turns" in text and "reward 1" in text and "version 3-4" in text
    assert "reward unknown" in repr(client.finalize(b)[0])


def test_pad(exported):
    client, a, b = exported
    ts = [client.finalize(a)[0], client.finalize(b)[0]]
    for left in (False, True):
        batch = rollgate.pad(ts, pad_id=9, left=left)
        n = [t.prompt_len + t.response_len for t in ts]
        assert batch["input_ids"].shape == (2, max(n)) and list(batch["lengths"]) == n
        assert batch["rewards"][0] == 1 and numpy.isnan(batch["rewards"][1])
        for i, t in enumerate(ts):
            here = batch["attention_mask"][i] == 1
            assert (batch["input_ids"][i][here] == t.ids).all() and (batch["input_ids"][i][~here] == 9).all()
            assert batch["loss_mask"][i].sum() == t.trained_tokens
            assert list(batch["position_ids"][i][here]) == list(range(n[i]))
            assert (batch["logprobs"][i][here][t.prompt_len:] == t.response_logprobs).all()
            assert (batch["versions"][i][here][:t.prompt_len] == -1).all()
    with pytest.raises(ValueError, match="more than max_len 5"):
        rollgate.pad(ts, max_len=5)
    with pytest.raises(ValueError, match="no trajectories"):
        rollgate.pad([])


def test_a_batch_reads_each_trajectory_a_few_times():
    """However many there are: versions are lists in most formats, and long."""
    reads = []

    class Counted(rollgate.Trajectory):
        @property
        def response_versions(self):
            reads.append(1)
            return super().response_versions
    fields = {"prompt_ids": [1], "response_ids": [3, 4], "response_mask": [1, 1], "response_logprobs": [-1.0, -2.0], "reward": 1.0,
              "response_versions": [5, 6]}
    ts = [Counted(fields) for _ in range(50)]
    batch = rollgate.pad(ts)
    assert batch["versions"].tolist() == [[-1, 5, 6]] * 50 and len(reads) <= 100
    reads.clear()
    assert len(rollgate.pack(ts, 30)) == 5 and len(reads) <= 100


def test_pack(exported):
    client, a, b = exported
    ts = [client.finalize(a)[0], client.finalize(b)[0], client.finalize(a)[0]]
    n = [t.prompt_len + t.response_len for t in ts]
    for bins in (rollgate.pack(ts), rollgate.pack(ts, max(n) + 1)):
        seen = []
        for one in bins:
            cu = one["cu_seqlens"]
            assert cu.dtype == "i4" and cu[-1] == len(one["input_ids"])
            for k, i in enumerate(one["index"]):
                part = slice(cu[k], cu[k + 1])
                assert (one["input_ids"][part] == ts[i].ids).all() and list(one["position_ids"][part]) == list(range(n[i]))
                assert one["loss_mask"][part].sum() == ts[i].trained_tokens
                seen.append(i)
        assert sorted(seen) == [0, 1, 2]
    assert len(rollgate.pack(ts)) == 1 and len(rollgate.pack(ts, max(n) + 1)) >= 2


OWN = pytest.mark.filterwarnings("error:The given NumPy array is not writable")   # torch's only word on it


@pytest.fixture
def torch(monkeypatch):
    """torch itself; where it is not installed, what the package uses of it, as strict as torch about an array's memory."""
    try:
        import torch
        return torch
    except ImportError:
        def from_numpy(array):
            assert array.flags.writeable and array.dtype in ("i8", "i4", "i2", "u1", "f4", "f8", "?"), "torch takes no such array"
            return array
        module = types.ModuleType("torch")
        module.from_numpy = from_numpy
        monkeypatch.setitem(sys.modules, "torch", module)
        return module


@OWN
@pytest.mark.parametrize("form", ["json", "msgpack", "safetensors"])
def test_to_torch(exported, torch, form):
    client, a, _ = exported
    t = client.finalize(a, form)[0]
    out = t.to_torch()
    n = t.prompt_len + t.response_len
    kinds = {"ids": "i8", "loss_mask": "i8", "logprobs": "f4", "versions": "i8"}
    assert set(out) == {*kinds, "reward", "routed_experts"} and out["reward"] == 1.0 and out["routed_experts"] is None
    for name, kind in kinds.items():
        assert numpy.asarray(out[name]).dtype == kind and tuple(out[name].shape) == (n,)
    assert list(out["ids"]) == list(t.ids) and sum(numpy.asarray(out["loss_mask"])) == t.trained_tokens
    assert (numpy.asarray(out["logprobs"])[t.prompt_len:] == t.response_logprobs).all()
    out["ids"][0] = -5      # memory of its own
    assert t.ids[0] != -5


@OWN
def test_what_is_not_known_is_no_tensor(torch):
    fields = {"prompt_ids": [1, 2], "response_ids": [3, 4], "response_mask": [1, 1], "response_logprobs": None, "reward": None,
              "response_versions": ["step-1", "step-1"], "routed_experts": bytes(range(12)), "routed_experts_shape": [3, 2, 2],
              "routed_experts_dtype": "uint8"}
    out = rollgate.Trajectory(fields).to_torch()
    assert out["logprobs"] is None and out["versions"] is None and out["reward"] is None
    assert tuple(out["routed_experts"].shape) == (3, 2, 2) and numpy.asarray(out["routed_experts"]).dtype == "u1"
    assert numpy.asarray(out["routed_experts"]).ravel().tolist() == list(range(12))


@OWN
def test_batches_keep_versions_that_are_names(torch):
    """As exports have them: "-1" where nothing was sampled. No name is cut, and a mixed batch loses none."""
    bare = {"prompt_ids": [1, 2], "response_logprobs": None, "reward": None}
    ts = [rollgate.Trajectory({**bare, "response_ids": [3, 4, 5], "response_mask": [1, 0, 1], "response_versions": ["a", "-1", "a-longer-name"]}),
          rollgate.Trajectory({**bare, "response_ids": [6], "response_mask": [1], "response_versions": [7]})]
    want = [["-1", "-1", "a", "-1", "a-longer-name"], ["-1", "-1", "7", "-1", "-1"]]
    assert rollgate.pad(ts)["versions"].tolist() == want
    assert rollgate.pad(ts, left=True)["versions"].tolist()[1] == ["-1", "-1", "-1", "-1", "7"]
    assert rollgate.pack(ts)[0]["versions"].tolist() == want[0] + want[1][:3]
    assert rollgate.to_torch(rollgate.pad(ts))["versions"].tolist() == want
    assert rollgate.to_torch(rollgate.pack(ts))[0]["versions"].tolist() == want[0] + want[1][:3]
    assert rollgate.pad(ts[1:])["versions"].dtype == "i8"


@OWN
def test_batches_as_tensors(exported, torch):
    client, a, b = exported
    ts = [client.finalize(a)[0], client.finalize(b)[0]]
    for batch in (rollgate.pad(ts, pad_id=9, left=True), *rollgate.pack(ts, 10_000)):
        tensors = rollgate.trajectory.to_torch(batch)
        assert set(tensors) == set(batch)
        for name, tensor in tensors.items():
            assert numpy.asarray(tensor).dtype == batch[name].dtype
            assert numpy.array_equal(numpy.asarray(tensor), batch[name], equal_nan=batch[name].dtype.kind == "f")
    packed = rollgate.pack(ts, max(t.prompt_len + t.response_len for t in ts))
    assert len(packed) == 2
    for bin_, tensors in zip(packed, rollgate.to_torch(packed), strict=True):
        assert set(tensors) == set(bin_) and (numpy.asarray(tensors["input_ids"]) == bin_["input_ids"]).all()
    padded = rollgate.trajectory.to_torch(rollgate.pad(ts))
    mask = padded["loss_mask"]
    assert float((padded["logprobs"] * mask).sum() / mask.sum()) < 0, "a loss over the trained tokens alone"


def test_diff_tells_where(exported):
    client, a, b = exported
    x, y = client.finalize(a)[0], client.finalize(b)[0]
    d = rollgate.diff(x, y)
    assert d and "response_ids" in str(d) and "first difference at" in str(d) and "reward: 1.0 / None" in str(d) and "turns: 3 / 2" in str(d)
    assert str(rollgate.diff(x, x)) == "equal"


def test_msgpack_reader_agrees_with_the_library():
    document = {"a": [1, -1, 127, 128, -32, -33, 65535, 65536, 2**40, -2**40, 1.5, None, True, False, "x" * 40, "y" * 300, "é"],
                "b": {str(i): i for i in range(20)}, "c": list(range(70000)), "d": b"raw" * 100, "": {}, "e": ["z" * 70000]}
    got = records.unpack(msgpack.packb(document))
    got["d"] = bytes(got["d"])
    assert got == document
    assert records.unpack(msgpack.packb(1.5, use_single_float=True)) == 1.5


def test_broken_bytes_are_refused():
    whole = msgpack.packb({"a": [1, 2, msgpack.ExtType(1, b"\1\0\0\0")], "b": "text"})
    assert list(records.unpack(whole)["a"][2]) == [1]
    for n in range(len(whole)):
        with pytest.raises(ValueError):
            records.unpack(whole[:n])
    for bad in (whole + b"\0", b"\xc1", msgpack.packb(msgpack.ExtType(9, b"1234")), msgpack.packb(msgpack.ExtType(1, b"123")),
                b"\xdd\xff\xff\xff\xff", b"\x91" * 5000 + b"\0"):
        with pytest.raises(ValueError):
            records.unpack(bad)
    head = b'{"x":{"dtype":"I64","shape":[2],"data_offsets":[0,16]}}'
    file = struct.pack("<Q", len(head)) + head + struct.pack("<2q", 5, 6)
    assert list(records.Tensors(file)["x"]) == [5, 6]
    for bad in (b"", file[:4], file[:-1], file.replace(b"I64", b"I99"), file.replace(b"[2]", b"[3]"), b"\xff" * 20,
                file.replace(b"[0,16]", b"[8,24]")):
        with pytest.raises(ValueError):
            records.Tensors(bad)


def test_text_has_no_arrays():
    t = rollgate.Trajectory({"response_ids": None, "prompt_ids": None, "response_mask": None, "messages": [{}], "reward": None})
    assert not t.has_tokens and t.trained_tokens == 0 and "text of 1 messages" in repr(t)
    with pytest.raises(ValueError, match="captured as text"):
        t.ids
    with pytest.raises(ValueError, match="captured as text"):
        rollgate.pad([t])

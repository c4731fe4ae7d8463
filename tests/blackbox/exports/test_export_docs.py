"""Runs the readers that docs/trajectories.md gives for formats on a session's exports."""
import json
import re

import pytest

import gateway as g
import test_odds as odds
from export_readers import check_atif, read_safetensors, turn_of
from indexer_engine import IndexerEngine
from odds_engine import OddsEngine
from scoring_engine import ScoringEngine
from test_export_cases import branched, scene  # noqa: F401
from test_gateway_upstream import USER, ask, pair  # noqa: F401
from vision_kit import session as new_session


def reader(form):
    """The names of the first block of code in the section of a format."""
    text = (g.ROOT / "docs/trajectories.md").read_text()
    section = re.search(rf"^### `{form}`.*?(?=^### |^## )", text, re.M | re.S)[0]
    return run(re.search(r"^```python\n(.*?)^```$", section, re.M | re.S)[1])


def run(code):
    assert len([line for line in code.split("\n") if line.strip()]) <= 12
    names = {}
    exec(compile(code, "docs/trajectories.md", "exec"), names)
    return names


def tensors_reader():
    text = (g.ROOT / "docs/trajectories.md").read_text()
    return run(next(c for c in re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S) if "tensors" in c and "struct" in c))


@pytest.fixture
def session(scene):  # noqa: F811
    s = scene().new()
    branched(s)
    s.reward({"reward": 0.5})
    return s, s.native()["trajectories"]


def test_prefix_tree(session):
    pytest.importorskip("numpy")
    s, ts = session
    tensors, notes = tensors_reader()["load"](s.get("format=prefix-tree").body)
    paths = list(reader("prefix-tree")["paths"](tensors))
    assert [tensors["token_ids"][p].tolist() for p in paths] == [t["prompt_ids"] + t["response_ids"] for t in ts]
    assert len(tensors["token_ids"]) < sum(map(len, paths)) and len(json.loads(notes["trajectories"])) == len(ts)
    once, _ = tensors_reader()["load"](s.get("format=prefix-tree&train_once=on").body)
    assert set(once["weights"].tolist()) == {0, 1} and tensors["weights"].max() > 1


def test_skyrl(session):
    s, ts = session
    columns = reader("skyrl")["load"](s.get("format=skyrl").body)
    turns = [turn_of(t, turn) for t in ts for turn in t["turns"]]
    assert columns["prompt_token_ids"] == [p for p, _, _ in turns] and columns["response_ids"] == [r for _, r, _ in turns]
    assert columns["is_last_step"] == [turn is t["turns"][-1] for t in ts for turn in t["turns"]]
    assert {len(c) for c in columns.values()} == {len(turns)}


def test_nemo_gym(session):
    s, ts = session
    calls = list(reader("nemo-gym")["calls"](s.get("format=nemo-gym").body))
    assert len(calls) == len({turn["response_id"] for t in ts for turn in t["turns"]})
    assert {tuple(own) for _, _, own, _ in calls} == {tuple(turn_of(t, turn)[1]) for t in ts for turn in t["turns"]}


def test_atif(session):
    s, ts = session
    assert list(reader("atif")["generated"](s.get("format=atif").body)) == [turn_of(t, turn) for t in ts for turn in t["turns"]]


def test_a_text_capture(pair):  # noqa: F811
    engine, gateway = pair()
    path = f"/sessions/{new_session(gateway)}"
    ask(gateway, path.split("/")[-1], [USER])
    for form in ("prefix-tree", "skyrl", "nemo-gym", "atif"):
        a = gateway.get(f"{path}/trajectories?format={form}")
        assert a.status == 200, (form, a.text)
        if form == "atif":
            (document,) = a.json()["trajectories"]
            check_atif(document)
            last = document["steps"][-1]
            assert last["message"] == "Hello there." and "prompt_token_ids" not in last["metrics"]
        elif form == "prefix-tree":
            assert b"no_token_ids" in a.body
        else:
            assert [d["reason"] for d in a.json()["summary"]["dropped"]] == ["no_token_ids"]

class Everything(OddsEngine, IndexerEngine):
    """A server that tells all that a session can ask for."""


def arrays_of(form):
    """The text that says which tensors a format has."""
    text = (g.ROOT / "docs/trajectories.md").read_text()
    if form == "safetensors":
        return text[text.index("`safetensors` holds the same as tensors"):text.index("A reader of any file of tensors")]
    return re.search(rf"^### `{form}`.*?(?=^### |^## )", text, re.M | re.S)[0]


def test_every_array_stands_with_its_type_and_shape(start):
    """Of each format of tensors, and of the native one: its name, and behind it the type that it has."""
    with Everything("sglang") as policy, ScoringEngine("sglang") as other:
        gateway = start(workers=1, engine=policy.setting, scorer=[f"other={other.setting}"])
        score = [{"engine": "other", "what": what, "top_k": 2} for what in ("teacher", "reference", "self")]
        sid = odds.session(gateway, sampling_support=True, top_logprobs=2, indexer_topk=True, score=score)
        policy.plan.append({"ids": odds.IDS, "version": "3"})
        assert odds.ask(gateway, sid).status == 200
        assert gateway.post(f"/sessions/{sid}/reward_info", {"reward_info": {"reward": 1}}).status == 200
        native = gateway.post(f"/sessions/{sid}/finalize", {"format": "json"}).json()["trajectories"][0]
        rows = (g.ROOT / "docs/trajectories.md").read_text().split("\n")
        told = [name.removesuffix("_dtype") for name in native if name.endswith("_dtype")]
        assert len(told) == 5 + 1 + 9, told
        for name in told:
            row, *_ = [r for r in rows if r.startswith("| `") and f"`{name}`" in r.split("|")[1]]
            shape = re.search(r"\[(.*?)\]", row)[1].split(", ")
            assert len(shape) == len(native[name + "_shape"]) and native[name + "_dtype"] in row, (name, row)
        seen = 0
        for form in ("safetensors", "verl", "miles", "areal", "prefix-tree"):
            tensors, _ = read_safetensors(gateway.get(f"/sessions/{sid}/trajectories?format={form}").body)
            text = arrays_of(form)
            for name, (kind, *_) in tensors.items():
                name = name.removesuffix(".0")
                at = [m.end() for m in re.finditer(rf"`{re.escape(name)}(\.{{i}})?`", text)]
                kinds = [re.search(r"\b(U8|I16|I32|I64|F32|F64|BOOL)\b", text[i:]) for i in at]
                assert kind in [m[1] for m in kinds if m], (form, name, kind)
                seen += 1
        assert seen > 50


def listed(path, pattern):
    return re.findall(r'["`]([a-z-]+)["`]', re.search(pattern, (g.ROOT / path).read_text(), re.M | re.S)[1])


def test_lists_of_formats_have_the_rows_of_the_table():
    rows = re.findall(r'^X\(\w+, "([a-z-]+)"', (g.ROOT / "common/codec/export_formats.def").read_text(), re.M)
    assert len(rows) >= 14
    assert listed("docs/trajectories.md", r"^\| `format` \| (.*?) \|$") == rows
    assert sorted(re.findall(r'"([a-z-]+)":', re.search(r"^_READERS.*?= \{(.*?)\}", (
        g.ROOT / "python/rollgate/records.py").read_text(), re.M | re.S)[1])) == sorted(rows)
    pairs = re.findall(r'\["([a-z-]+)", "[a-z]+"\]', re.search(r"^const FORMATS = (.*?);$", (
        g.ROOT / "ui/session.js").read_text(), re.M | re.S)[1])
    assert pairs == [name for name in rows if name != "none"], "the viewer offers all but the summary"

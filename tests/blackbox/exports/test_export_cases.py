"""Sessions of every kind in every format, read by export_readers.py and compared with the native export: empty,
branched, cut, without logprobs, versions as text, huge, chains, timelines, unicode; and combinations of options."""
import json
import struct
import urllib.parse

import pytest

import gateway as g
from export_readers import check_native, compare_all, experts_of, read_safetensors
from gateway import wait_until
from stub_engines import StubEngine

END = 257


def user(text):
    return {"role": "user", "content": text}


def said(text):
    return {"role": "assistant", "content": text}


class Scene:
    """A gateway with one engine that says what it is told."""

    def __init__(self, engine, gateway):
        self.engine, self.gateway, self.path = engine, gateway, None

    def new(self, **options):
        self.path = "/sessions/" + self.gateway.post("/sessions", options).json()["session_id"]
        return self

    def chat(self, messages, text, headers=None, plan=None, **more):
        ids = list(text.encode()) + [END]
        self.engine.plan.append({"ids": ids, "finish": "stop", "matched": END, **(plan or {})})
        a = self.gateway.post(self.path + "/v1/chat/completions", {"model": "m", "messages": messages, **more}, headers=headers or {})
        assert a.status == 200, a.text
        return a.json()

    def get(self, query=""):
        return self.gateway.get(f"{self.path}/trajectories?{query}")

    def native(self, query=""):
        a = self.get(query)
        assert a.status == 200, a.text
        return a.json()

    def compare(self, query=""):
        def get(form):
            a = self.get(f"format={form}&{query}")
            assert a.status == 200, (form, a.text)
            return a.body
        return compare_all(get)

    def reward(self, info, **more):
        assert self.gateway.post(self.path + "/reward_info", {"reward_info": info, **more}).status == 200


@pytest.fixture
def scene(start):
    engines = []

    def make(kind="sglang", setting="", **settings):
        engine = StubEngine(kind)
        engines.append(engine.__enter__())
        settings = {"model": g.MODELS / "chatml-bytes", "tool_parser": "none", "reasoning_parser": "none", **settings}
        return Scene(engine, start(workers=1, engine=engine.setting + setting, **settings))
    yield make
    for e in engines:
        e.__exit__()


def branched(s):
    """Two tries under one answer, a third that goes on, and a sub-agent."""
    first = s.chat([user("q")], "one", plan={"version": "7"})
    s.chat([user("q"), said("one"), user("r")], "two", plan={"version": "8"})
    s.chat([user("q"), said("one"), user("r")], "three", plan={"version": "8"}, temperature=0.5)
    s.chat([user("q"), said("one"), user("s")], "four", plan={"version": "9"})
    s.chat([user("q"), said("one"), user("s"), said("four"), user("t")], "five", plan={"version": "9"})
    s.chat([{"role": "system", "content": "sub"}, user("q")], "six", plan={"version": "10"})
    s.reward({"reward": 0.25, "acc": 1, "note": "gr\u00fc\u00df \U0001f600"})
    s.reward({"reward": 1, "why": ["a", {"b": None}]}, response_id=first["id"])
    return first


def last_texts(whole):
    return [t["messages"][-1]["content"] for t in whole["trajectories"]]


# --- what sessions hold ---

def test_empty_session(scene):
    s = scene().new()
    whole = s.compare()
    assert whole["trajectories"] == [] and whole["summary"]["calls"] == whole["summary"]["branches"] == 0
    tensors, _ = read_safetensors(s.get("format=miles").body)
    info = json.loads(bytes(tensors["_samples_meta"][2]))
    warnings = whole["summary"]["warnings"]
    assert len(warnings) == 1 and warnings[0].startswith("no call of this session was answered")
    metadata = {"accumulated_token_ids": [], "max_trim_tokens": 0, "warnings": warnings}
    assert info == {"samples": [], "session_metadata": metadata, "empty_reason": "no_records"}
    done = s.gateway.post(s.path + "/finalize", {})
    assert done.status == 200 and done.json()["trajectories"] == [] and done.json()["phase"] == "finalized"


QUERIES = ("", "select=all_checkpoints", "select=last", "select=longest", "pick=drop_retries", "train_once=on", "drift=off",
           "select=all_checkpoints&train_once=on", "pick=drop_retries&train_once=on&select=longest", "merge=text", "merge=token",
           "merge=text&pick=drop_retries", "merge=text&train_once=on", "max_tokens=60", "max_tokens=60&train_once=on", "uid=a%C3%A9b")


@pytest.mark.parametrize("query", QUERIES)
def test_branches_in_every_format(scene, query):
    s = scene().new()
    branched(s)
    whole = s.compare(query)
    assert whole["trajectories"] and whole["summary"]["calls"] == 6
    if "max_tokens" in query:
        assert whole["summary"]["dropped"]
    live = s.get(query).json()
    done = s.gateway.post(s.path + "/finalize", {k: v[0] for k, v in urllib.parse.parse_qs(query).items()}).json()
    assert done == {**live, "phase": "finalized"}
    assert s.compare(query) == done


def test_versions_as_text_and_none(scene):
    s = scene().new()
    s.chat([user("q")], "one", plan={"version": "step-12"})
    s.chat([user("q"), said("one"), user("r")], "two", plan={"version": "13"})
    t = s.compare()["trajectories"][0]
    assert set(t["response_versions"]) == {"-1", "step-12", "13"} and "min_global_steps" not in t["extra_fields"]
    s.new()
    s.chat([user("q")], "one", plan={"version": ""})
    assert s.compare()["trajectories"][0]["response_versions"] is None


@pytest.mark.parametrize("pieces", [("", "7"), ("7", "")], ids=["first", "last"])
def test_a_piece_without_a_version_spoils_no_other(scene, pieces):
    """It is unknown, like a turn without one: -1 there, and the steps are those of the rest."""
    s = scene().new()
    s.engine.plan.append({"ids": list(b"on"), "finish": "abort", "version": pieces[0]})
    s.chat([user("q")], "e", plan={"version": pieces[1]})
    s.chat([user("q"), said("one"), user("r")], "two", plan={"version": "8"})
    whole = s.compare()
    [t] = whole["trajectories"]
    per_piece = [-1 if v == "" else int(v) for v in pieces for _ in range(2)]
    assert [v for v, m in zip(t["response_versions"], t["response_mask"]) if m] == per_piece + [8] * 4
    assert all(v == -1 for v, m in zip(t["response_versions"], t["response_mask"]) if not m)
    assert (t["extra_fields"]["min_global_steps"], t["extra_fields"]["max_global_steps"]) == (7, 8)
    at = 2 * pieces.index("7")
    assert [x["weight_versions"] for x in t["turns"]] == [[{"version": "7", "start": at, "end": at + 2}],
                                                          [{"version": "8", "start": 0, "end": 4}]]
    assert whole["summary"]["unversioned_turns"] == 1
    assert s.get("format=slime").json()["samples"][0]["weight_versions"] == ["7", "8"]
    _, notes = read_safetensors(s.get("format=verl&global_steps=99").body)
    [row] = json.loads(notes["rows"])
    assert (row["min_global_steps"], row["max_global_steps"]) == (7, 8)
    s.new().engine.plan.append({"ids": list(b"on"), "finish": "abort", "version": "8"})
    s.chat([user("q")], "e", plan={"version": ""})
    [engine] = s.gateway.get("/admin/engines").json()["engines"]
    assert engine["weight_version"] == "8"


def test_a_version_that_changes_within_an_answer(scene):
    s = scene().new()
    s.chat([user("q")], "abcd", plan={"version": "8", "versions": [{"version": "7", "start": 0, "end": 2}, {"version": "8", "start": 2, "end": 5}]})
    t = s.compare()["trajectories"][0]
    assert t["response_versions"] == [7, 7, 8, 8, 8]
    assert (t["extra_fields"]["min_global_steps"], t["extra_fields"]["max_global_steps"]) == (7, 8)


def test_huge_in_slices(scene):
    """40 turns and 80 k tokens: more than a slice in every array, text and tensor."""
    s = scene(context_length=1 << 20).new()
    messages, text = [user("begin")], ""
    for i in range(40):
        text = f"{i}: " + "l\u00e4nger \u65e5\u672c " * 60
        s.chat(messages, text, plan={"version": str(i), "chunk": 5000, "logprobs": [-((k * 7919 + i) % 100003) / 7001 for k in range(len(text.encode()) + 1)]})
        messages += [said(text), user("weiter " + "\u00e4" * 500)]
    whole = s.compare()
    t = whole["trajectories"][0]
    assert len(whole["trajectories"]) == 1 and len(t["prompt_ids"]) + len(t["response_ids"]) > 64000 and len(t["turns"]) == 40
    # an audit that was kept says the same
    assert s.native() == whole


def test_cut_answers(scene):
    s = scene().new()
    s.chat([user("q")], "one")
    s.chat([user("q"), said("one"), user("r")], "cut", plan={"ids": list(b"cut"), "finish": "length"})
    whole = s.compare()
    assert whole["trajectories"][0]["turns"][-1]["finish_reason"] == "length"
    limit = len(whole["trajectories"][0]["prompt_ids"]) + 4
    cut = s.compare(f"max_tokens={limit}")
    assert cut["trajectories"][0]["extra_fields"]["materialization_reason"] == "max_tokens"
    assert [len(t["turns"]) for t in cut["trajectories"]] == [1]
    d = cut["summary"]["dropped"]
    assert len(d) == 1 and d[0]["turns_cut"] == 1 and not d[0]["gone"] and d[0]["reason"] == "max_tokens"
    none = s.compare("max_tokens=3")
    assert none["trajectories"] == [] and none["summary"]["dropped"][0]["gone"]
    tensors, _ = read_safetensors(s.get("format=miles&max_tokens=3").body)
    assert json.loads(bytes(tensors["_samples_meta"][2]))["empty_reason"] == "all_truncated"


def test_labels_and_tools_with_unicode(scene):
    s = scene().new(labels={"t\u00e4sk": "\u65e5\u672c\u8a9e \"x\"\n"}, metadata={"data_source": "d\u00e9", "extra_info": {"i": 3}, "other": 1, "num_turns": 99})
    tools = [{"type": "function", "function": {"name": "l\u00f6sch", "parameters": {"type": "object"}}}]
    s.chat([user("\u0000\u001f\u2028 q")], "\U0001f600 ja", tools=tools,
           headers={"x-claude-code-agent-id": "\u00e4gent".encode().decode("latin1"), "x-parent-session-id": "p\u00fc".encode().decode("latin1")})
    whole = s.compare()
    turn = whole["trajectories"][0]["turns"][0]
    assert turn["label"] == "\u00e4gent" and turn["parent_label"] == "p\u00fc"
    line = json.loads(s.get("format=openai-messages").body)
    assert line["tools"] == tools
    _, meta = read_safetensors(s.get("format=verl&uid=%C3%A9_%E6%97%A5&global_steps=5").body)
    row = json.loads(meta["rows"])[0]
    assert json.loads(meta["keys"]) == ["\u00e9-\u65e5_0_0"] and row["global_steps"] == 5
    assert row["data_source"] == "d\u00e9" and row["extra_info"] == {"i": 3} and row["other"] == 1
    assert row["num_turns"] == 3 and whole["trajectories"][0]["num_turns"] == 1


@pytest.mark.parametrize("history", ["tree", "chains", "linear", "timelines"])
def test_policies(scene, history):
    s = scene().new(history=history)
    s.chat([user("q")], "one")
    s.chat([user("q"), said("one"), user("r")], "bad")
    s.chat([user("q"), said("one"), user("r")], "good") if history != "chains" else s.chat([user("q"), said("one"), user("r"), said("BAD"), user("x")], "good")
    whole = s.compare()
    assert last_texts(whole)[-1] == "good"
    assert whole["summary"]["rolled_back"] == (1 if history in ("chains", "linear") else 0)
    for query in ("select=all_checkpoints", "pick=drop_retries", "train_once=on", "merge=none"):
        s.compare(query)


def test_a_closed_chain(scene):
    s = scene().new(history="chains", prompt_length=30, response_length=40)
    s.chat([user("q")], "one")
    a = s.gateway.post(s.path + "/v1/chat/completions", {"model": "m", "messages": [user("q"), said("one"), user("r" * 80)]})
    assert a.json()["choices"][0]["finish_reason"] == "length"
    whole = s.compare()
    assert whole["trajectories"][0]["extra_fields"]["materialization_reason"] == "max_trajectory_length"


def test_completions_stand_alone(scene):
    s = scene().new()
    s.engine.plan.append({"ids": list(b"xyz") + [END], "finish": "stop", "matched": END})
    assert s.gateway.post(s.path + "/v1/completions", {"model": "m", "prompt": "abc"}).status == 200
    whole = s.compare()
    assert whole["trajectories"][0]["messages"] == [] and whole["trajectories"][0]["num_turns"] == 1


# --- options ---

def test_train_once_trains_everything_once(scene):
    s = scene().new()
    branched(s)
    distinct = sum(len(x.encode()) + 1 for x in ("one", "two", "three", "four", "five", "six"))
    for query in ("", "select=all_checkpoints", "merge=text", "merge=token"):
        whole = s.native(f"train_once=on&{query}")
        assert whole["summary"]["trained_tokens"] == distinct, query
        for t in whole["trajectories"]:
            check_native(t)
    # the earliest committed of the trajectories that share it
    whole = s.native("train_once=on")
    assert [[x["trained"] for x in t["turns"]] for t in whole["trajectories"]] == [[True, True], [False, True], [False, True, True], [True]]
    kept = s.native("train_once=on&pick=drop_retries")
    assert last_texts(kept) == ["five", "six"] and kept["summary"]["trained_tokens"] == distinct - len("two!three!")


def test_pick_with_and_without_merge(scene):
    s = scene().new()
    branched(s)
    assert last_texts(s.native()) == ["two", "three", "five", "six"]  # commit order
    # a leaf with a later sibling under the same answer goes; by path length, then commits, descending
    assert last_texts(s.native("pick=drop_retries")) == ["five", "six"]
    assert last_texts(s.native("merge=text")) == ["two", "three", "five", "six"]
    assert last_texts(s.native("merge=text&pick=drop_retries")) == ["five", "six"]
    assert last_texts(s.native("merge=text&pick=drop_retries&select=last")) == ["six"]
    # with every checkpoint only leaves can be retries
    assert last_texts(s.native("select=all_checkpoints")) == ["one", "two", "three", "four", "five", "six"]
    assert last_texts(s.native("select=all_checkpoints&pick=drop_retries")) == ["five", "four", "six", "one"]


def test_pick_in_timelines(scene):
    s = scene().new(history="timelines")
    branched(s)
    assert last_texts(s.native("pick=drop_retries")) == ["five", "six"]
    assert last_texts(s.native("pick=drop_retries&merge=none"))[0] == "five"


def test_pick_keeps_linears_history(scene):
    """Further answers of one call stand beside the history and supersede nothing."""
    s = scene().new(history="linear")
    s.chat([user("q")], "one")
    s.engine.plan.extend([{"ids": list(x.encode()) + [END], "finish": "stop", "matched": END} for x in ("a", "b")])
    assert s.gateway.post(s.path + "/v1/chat/completions", {"model": "m", "messages": [user("q"), said("one"), user("r")], "n": 2}).status == 200
    assert len(s.native("pick=drop_retries")["trajectories"]) == 1


def test_merged_trajectories_fit(scene):
    """max_tokens counts what a merge put in, not the copy it replaced."""
    s = scene().new()
    s.chat([user("q")], "12345678901234567890")
    s.chat([{"role": "system", "content": "x"}, user("q")], "zz")
    for query in ("merge=text", "merge=token"):
        for limit in range(20, 70, 7):
            for t in s.native(f"{query}&max_tokens={limit}")["trajectories"]:
                assert len(t["prompt_ids"]) + len(t["response_ids"]) <= limit


@pytest.mark.parametrize("name,value,allowed", [
    ("format", "xml", ["json", "msgpack", "safetensors", "verl", "miles", "areal", "slime", "prime-rl", "openai-messages"]),
    ("select", "best", ["leaves", "all_checkpoints", "last", "longest"]),
    ("pick", "some", ["all", "drop_retries"]),
    ("merge", "yes", ["none", "text", "token"]),
    ("train_once", "maybe", ["on", "off"]),
    ("ignore_tools", "2", ["on", "off"]),
    ("drift", "", ["on", "off"]),
    ("mask_unfinished", "x", ["on", "off"]),
    ("max_tokens", "-1", ["integer", "1"]),
    ("max_tokens", "0", ["integer", "1"]),
    ("max_tokens", "1.5", ["integer", "1"]),
    ("max_seq_len", "many", ["integer", "1"]),
    ("session_index", "x", ["integer", "0"]),
    ("global_steps", "x", ["integer", "0"]),
    ("uid", "", ["empty"]),
])
def test_bad_options_name_field_and_values(scene, name, value, allowed):
    s = scene().new()
    answers = [s.get(f"{name}={value}")]
    for body in ({name: value}, {name: [value]}, {name: {"x": 1}}):
        answers.append(s.gateway.post(s.path + "/finalize", body))
    for a in answers:
        error = a.json()["error"]
        assert (a.status, error["code"], error["param"]) == (400, "invalid_request", name), a.text
        assert all(x in error["message"] for x in [name, *allowed]), a.text
        assert a.headers["x-should-retry"] == "false"
    assert s.gateway.get(s.path).json()["phase"] == "open"  # a mistake finalizes nothing
    assert s.gateway.post(s.path + "/finalize", {name: None}).status == 200


def test_options_that_contradict(scene):
    s = scene().new()
    a = s.gateway.post(s.path + "/finalize", {"merge": "text", "select": "all_checkpoints"})
    assert a.status == 400 and "select=all_checkpoints" in a.json()["error"]["message"] and "merge=text" in a.json()["error"]["message"]
    assert s.gateway.post(s.path + "/finalize", {"metadata": 3}).json()["error"]["param"] == "metadata"
    assert s.gateway.get(s.path).json()["phase"] == "open"
    assert s.get("merge=none&select=all_checkpoints").status == 200


def test_samples_metadata(scene):
    s = scene().new()
    branched(s)
    a = s.gateway.post(s.path + "/samples", {"max_seq_len": None, "metadata": {"reward": 1.5, "leaf": "mine", "tito_session_mismatch": "mine", "task": "x"}})
    tensors, _ = read_safetensors(a.body)
    samples = json.loads(bytes(tensors["_samples_meta"][2]))["samples"]
    assert len(samples) == 2
    for x in samples:
        assert x["reward"] == 1.5 and x["metadata"]["task"] == "x" and isinstance(x["metadata"]["leaf"], dict)
        assert x["metadata"]["tito_session_mismatch"] == []
    assert [len(x["metadata"]["leaf"]["path_node_ids"]) for x in samples] == [3, 1]
    s.new()
    s.chat([user("q")], "one")
    tensors, _ = read_safetensors(s.gateway.post(s.path + "/samples", {}).body)
    assert json.loads(bytes(tensors["_samples_meta"][2]))["samples"][0]["reward"] is None


def test_samples_of_what_was_captured_as_text(scene):
    """Without token ids there are no samples, and that is said; other formats say it in their summary."""
    s = scene("openai").new()
    s.engine.plan.append({"text": "one"})
    assert s.gateway.post(s.path + "/v1/chat/completions", {"model": "m", "messages": [user("q")]}).status == 200
    a = s.gateway.post(s.path + "/samples", {})
    assert a.status == 422 and a.headers["content-type"].startswith("text/plain") and "token ids" in a.text
    tensors, _ = read_safetensors(s.get("format=miles").body)
    assert json.loads(bytes(tensors["_samples_meta"][2]))["empty_reason"] == "no_records"
    assert s.native()["trajectories"][0]["messages"][-1]["content"] == "one"


def test_samples_of_nothing(scene):
    s = scene().new()
    assert s.gateway.post(s.path + "/samples", [1]).status == 400
    assert s.gateway.post(s.path + "/samples", {}).status == 200
    assert s.gateway.post("/sessions/w0-" + "0" * 32 + "/samples", {}).status == 404
    s.gateway.request("DELETE", s.path)
    assert s.gateway.post(s.path + "/samples", {}).status == 410


def test_drift_is_audited_once_and_counted(scene):
    s = scene().new()
    s.chat([user("q")], "one")
    # what the model wrote is not what the template would write of its text
    s.chat([user("q"), said("one"), user("r")], "x", plan={"ids": [0xe2, 0x82, END], "finish": "stop", "matched": END})
    first = s.native()
    assert first["summary"]["drift_count"] == 1 and first["trajectories"][0]["extra_fields"]["drift"]["first"]["kind"] == "assistant_text"
    assert s.native() == first and s.compare()["summary"] == first["summary"]

    def counted():
        return [x for x in s.gateway.get("/metrics").text.split("\n") if "drift_total" in x and 'kind="assistant_text"' in x and x.endswith(" 1")]
    wait_until(counted, 10, "one audited drift in the metrics")


# --- routed experts: engine, capture, journal, every export ---

LAYERS, TOPK = 3, 2


def expert(ids, p, layer, k):
    """What the stub's layer routes position p to: it depends on the id there."""
    return (ids[p] * 31 + p * 7 + layer * 5 + k) % 64


def rows(ids, start, end):
    return [expert(ids, p, layer, k) for p in range(start, end) for layer in range(LAYERS) for k in range(TOPK)]


class Router(dict):
    """An engine's answer whose routed experts follow from what it was asked."""

    def __init__(self, ids, whole=False, **more):
        super().__init__(ids=ids, **more)
        self.whole = whole

    def experts(self, body):
        full = body["input_ids"] + self["ids"]
        start = 0 if self.whole else body["routed_experts_start_len"]
        assert body["return_routed_experts"]
        values = rows(full, start, len(full) - 1)
        return struct.pack(f"<{len(values)}i", *values)


@pytest.fixture
def mixture(scene, tmp_path):
    """A model folder of a mixture of experts; opener: its stop token opens the next turn."""
    def make(opener=False, **settings):
        source = g.MODELS / "chatml-bytes"
        for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
            (tmp_path / name).write_bytes((source / name).read_bytes())
        (tmp_path / "config.json").write_text(json.dumps({"num_hidden_layers": LAYERS, "num_experts_per_tok": TOPK}))
        if opener:
            config = json.loads((tmp_path / "tokenizer_config.json").read_text())
            config["eos_token"] = None
            config["chat_template"] = ("{% for m in messages %}{{ '<|im_start|>' if m.role == 'assistant' else '<|im_end|>' }}{{ m.content }}{% endfor %}"
                                       "{% if add_generation_prompt %}{{ '<|im_start|>' }}{% endif %}")
            (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
            (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [END]}))
        return scene(model=str(tmp_path), routed_experts="on", **settings)
    return make


def routed(s, messages, text, whole=False, none=False, **plan):
    ids = list(text.encode()) + ([] if plan.get("finish") == "length" else [END])
    answer = {"ids": ids, "finish": "stop", "matched": END, **plan}
    if not none:
        answer = Router(answer.pop("ids"), whole, **answer)
        answer["experts"] = answer.experts
    s.engine.plan.append(answer)
    a = s.gateway.post(s.path + "/v1/chat/completions", {"model": "m", "messages": messages})
    assert a.status == 200, a.text
    return a.json()


def check_routed(whole):
    for t in whole["trajectories"]:
        full = t["prompt_ids"] + t["response_ids"]
        shape, numbers = experts_of(t)
        assert shape == [len(full) - 1, LAYERS, TOPK] and numbers == rows(full, 0, len(full) - 1)


@pytest.mark.parametrize("opener", [False, True])
@pytest.mark.parametrize("whole", [False, True])
def test_experts_from_the_engine_to_every_export(mixture, opener, whole):
    """Branches, trims (the stop token that opens the next turn is dropped), and a restart in between:
    every row is that of the id that stands there."""
    s = mixture(opener).new()
    routed(s, [user("q")], "one", whole)
    routed(s, [user("q"), said("one"), user("r")], "two", whole)
    routed(s, [user("q"), said("one"), user("s")], "three", whole)
    routed(s, [user("q"), said("one"), user("s"), said("three"), user("t")], "four", whole)
    starts = [r["body"]["routed_experts_start_len"] for r in s.engine.requests]
    lengths = [len(r["body"]["input_ids"]) for r in s.engine.requests]
    assert starts[0] == 0 and all(0 < at < n for at, n in zip(starts[1:], lengths[1:])), (starts, lengths)
    live = s.compare()
    assert len(live["trajectories"]) == 2
    assert [t["extra_fields"]["trimmed_tokens"] for t in live["trajectories"]] == ([1, 2] if opener else [0, 0])
    check_routed(live)
    check_routed(s.compare("select=all_checkpoints&train_once=on"))
    shorter = s.compare(f"max_tokens={max(len(t['prompt_ids']) + len(t['response_ids']) for t in live['trajectories']) - 1}")
    assert shorter["summary"]["dropped"]
    check_routed(shorter)
    assert s.gateway.post(s.path + "/samples", {}).status == 200
    s.gateway.stop()  # the journal brings them back
    s.gateway.start()
    assert s.compare() == live


def test_the_longest_without_what_was_dropped(mixture):
    """The stop token that opens the next turn is no token of the first answer's any more."""
    s = mixture(opener=True).new()
    routed(s, [user("q")], "one")
    routed(s, [user("q"), said("one"), user("r")], "two")
    routed(s, [user("z")], "as long")
    both = s.compare()["trajectories"]
    assert [sum(t["response_mask"]) for t in both] == [2 * len("one!") - 1, len("as long!")]
    [longest] = s.compare("select=longest")["trajectories"]
    assert longest["messages"][-1]["content"] == "as long"


def test_experts_of_timelines(mixture):
    s = mixture().new(history="timelines")
    routed(s, [user("q")], "one")
    routed(s, [user("q"), said("one"), user("r")], "two")
    whole = s.compare()
    assert len(whole["trajectories"]) == 1
    check_routed(whole)


def test_a_turn_without_experts(mixture):
    """Half of a replay is none: null in the exports, and no sample at all for a trainer that replays
    (422, as its own session server says); before the gap there is one."""
    s = mixture().new()
    routed(s, [user("q")], "one")
    gap = routed(s, [user("q"), said("one"), user("r")], "two", none=True)
    whole = s.compare()
    assert whole["trajectories"][0]["routed_experts"] is None
    a = s.gateway.post(s.path + "/samples", {})
    assert a.status == 422 and a.headers["content-type"].startswith("text/plain") and a.headers["x-should-retry"] == "false"
    assert "routed experts" in a.text and gap["id"].split("-")[1] in a.text
    t = whole["trajectories"][0]
    a = s.gateway.post(s.path + "/samples", {"max_seq_len": len(t["prompt_ids"]) + 4})
    assert a.status == 200
    tensors, _ = read_safetensors(a.body)
    assert tensors["rollout_routed_experts.0"][1][0] == len(t["prompt_ids"]) + 3
    check_routed(s.compare(f"max_tokens={len(t['prompt_ids']) + 4}"))
    # the session lives on, and a session without any is whole
    routed(s, [user("q"), said("one"), user("s")], "three")
    s.new()
    routed(s, [user("q")], "one", none=True)
    assert s.gateway.post(s.path + "/samples", {}).status == 200


def test_experts_of_a_cut_answer(mixture):
    s = mixture().new()
    routed(s, [user("q")], "one", finish="length", matched=None)
    check_routed(s.compare())

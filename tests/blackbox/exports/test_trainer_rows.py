"""The table of mismatches between exports and their trainers. A reader for each row is written from the trainer's
rules and raises where the trainer would: verl 1dda039, miles 31f1ca9, slime 624b824, AReaL 4aef98d, prime-rl 559b447.
Rows about adapters (7, 10, 13, 17) are in tests/python/test_adapters.py, those about sinks' entries (18) in
test_sinks.py."""
import base64
import json
import math
import struct

import pytest

import gateway as g
from export_readers import read_safetensors
from stub_engines import StubEngine
from test_export_cases import said, user

END = 257
LAYERS, TOPK = 2, 2


class Place:
    def __init__(self, start, engine, **settings):
        self.engine = engine
        given = {"model": g.MODELS / "chatml-bytes", "tool_parser": "none", "reasoning_parser": "none", **settings}
        self.gateway = start(workers=1, engine=engine.setting, **given)

    def session(self, **options):
        a = self.gateway.post("/sessions", options)
        assert a.status == 200, a.text
        self.path = f"/sessions/{a.json()['session_id']}"
        return self

    def say(self, messages, text, **plan):
        self.engine.plan.append({"ids": [*text.encode(), END], "finish": "stop", "matched": END, **plan})
        a = self.gateway.post(self.path + "/v1/chat/completions", {"model": "m", "messages": messages})
        assert a.status == 200, a.text

    def two_roots(self):
        """A session whose agent began anew: the second branch has the most trained tokens."""
        self.say([user("q")], "one")
        self.say([user("other")], "longer")
        return self

    def reward(self, info):
        assert self.gateway.post(self.path + "/reward_info", {"reward_info": info}).status == 200
        return self

    def get(self, query):
        a = self.gateway.get(f"{self.path}/trajectories?{query}")
        assert a.status == 200, a.text
        return a.body

    def tensors(self, query):
        values, notes = read_safetensors(self.get(query))
        return values, {k: json.loads(v) for k, v in notes.items()}

    def samples(self, body):
        a = self.gateway.post(self.path + "/samples", body)
        assert a.status == 200, a.text
        tensors, _ = read_safetensors(a.body)
        info = json.loads(bytes(tensors["_samples_meta"][2]))
        return [{**s, "tokens": tensors[f"tokens.{i}"][2]} for i, s in enumerate(info["samples"])], info["session_metadata"]


@pytest.fixture
def place(start):
    with StubEngine("sglang") as engine:
        yield lambda **settings: Place(start, engine, **settings)


# --- verl ---

def dapo_values(rows, metric):
    """verl trainer/ppo/v1/replay_buffer.py: the filter looks for its metric inside extra_fields and ends the run without it."""
    found = [row["extra_fields"].get("reward_extra_info", {}) for row in rows]
    if any(metric not in x for x in found):
        raise RuntimeError(f"groups without the metric {metric}")
    return [float(x[metric]) for x in found]


def test_rows_1_and_2_verl_filters_by_metrics(place):
    p = place().session().two_roots().reward({"reward": 1, "acc": 0.5, "finished": True})
    _, notes = p.tensors("format=verl")
    assert dapo_values(notes["rows"], "acc") == [0.5, 0.5]
    with pytest.raises(RuntimeError):
        dapo_values(notes["rows"], "finished")      # an end is no metric


def staleness(tags, now):
    """verl trainer/ppo/v1/replay_buffer.py: both steps are cast to int and averaged."""
    spans = [(int(t["min_global_steps"]), int(t["max_global_steps"])) for t in tags]
    return [(now - 1 - newest, now - 1 - oldest) for oldest, newest in spans]


@pytest.mark.parametrize("version,metadata,query,steps", [
    ("7", {"global_steps": 9}, "", (7, 7)),                 # what sampled is what counts
    ("", {"global_steps": 9}, "", (9, 9)),                  # else the step that the data set's columns tell
    ("", {"global_steps": 9}, "&global_steps=11", (11, 11)),
    ("named", {"global_steps": 9}, "", (9, 9)),
    ("", {"global_steps": "9"}, "", (-1, -1)), ("", {"global_steps": -3}, "", (-1, -1)), ("", {}, "", (-1, -1))])
def test_row_3_verl_counts_staleness(place, version, metadata, query, steps):
    p = place().session(metadata=metadata).reward({"reward": 1})
    p.say([user("q")], "one", version=version)
    _, notes = p.tensors("format=verl" + query)
    assert staleness(notes["tags"], 12) == [(11 - steps[1], 11 - steps[0])]
    (row,), (tag,) = notes["rows"], notes["tags"]
    assert (row["min_global_steps"], row["max_global_steps"]) == steps
    known = int(query.split("=")[1]) if query else metadata.get("global_steps")
    known = known if isinstance(known, int) and known >= 0 else None
    assert tag.get("global_steps") == row.get("global_steps") == known


@pytest.mark.parametrize("info,reward", [
    ({"acc": 1, "n": 2}, None), ({}, None), ({"reward": 0}, 0.0), ({"score": 0.5, "acc": 2}, 0.5), ({"acc": 3}, 3.0)])
def test_rows_4_and_5_nobody_scores_an_unknown_reward_0(place, info, reward):
    """verl: the reward worker fills rm_scores only where the column is not there; AReaL's workflow needs `rewards`; miles and
    slime take `reward` as it is."""
    p = place().session().reward(info)
    p.say([user("q")], "one")
    verl, _ = p.tensors("format=verl")
    assert ("rm_scores.0" in verl) == (reward is not None) and sum(verl.get("rm_scores.0", (0, 0, []))[2]) == (reward or 0)
    areal, _ = p.tensors("format=areal")
    assert areal.get("rewards.0", (0, 0, [None]))[2] == [reward]
    assert [s["reward"] for s in p.samples({})[0]] == [reward]
    for form in ("slime", "prime-rl"):
        assert [s["reward"] for s in json.loads(p.get(f"format={form}"))["samples"]] == [reward]
    (step,) = json.loads(p.get("format=skyrl"))["steps"]
    assert step["rewards"] == (None if reward is None else [0.0] * (len(step["response_ids"]) - 1) + [reward])
    assert [r["reward"] for r in json.loads(p.get("format=nemo-gym"))["records"]] == [reward]
    tree, _ = read_safetensors(p.get("format=prefix-tree"))
    assert tree.get("rewards", (0, 0, [None]))[2] == [reward]


def test_row_6_verl_gets_every_column(place):
    columns = {"data_source": "gsm8k", "tools_kwargs": {"a": [1]}, "mine": None, "extra_info": {"index": 3}, "agent_name": "x"}
    p = place().session(metadata=columns).two_roots().reward({"reward": 1})
    _, notes = p.tensors("format=verl")
    for row in notes["rows"]:
        assert {k: row[k] for k in columns} == columns
        # verl's writer takes multi_modal_data off its rows, and knows no messages or turns
        assert not {"multi_modal_data", "messages", "turns", "reward_info"} & set(row) and row["multi_modal_inputs"] == {}


def test_row_7_verl_columns_are_jagged(place):
    """One TensorDict wants each name on every row; the reader strips the row's number and stacks by name."""
    p = place().session().two_roots().reward({"reward": 1})
    tensors, notes = p.tensors("format=verl")
    columns = {}
    for name, (_, shape, values) in tensors.items():
        column, i = name.rsplit(".", 1)
        columns.setdefault(column, {})[int(i)] = (shape, values)
    assert all(sorted(rows) == [0, 1] for rows in columns.values()) and len(notes["keys"]) == 2
    assert [shape for shape, _ in (columns["responses"][i] for i in (0, 1))] == [[4], [7]]


# --- miles ---

def test_row_8_miles_counts_from_the_oldest_weights(place):
    """miles utils/types.py: oldest_weight_version is the least of Sample.weight_versions; --max-weight-staleness counts
    from it."""
    p = place().session()
    spans = [{"version": "9", "start": 0, "end": 2}, {"version": "10", "start": 2, "end": 5}]
    p.say([user("q")], "abcd", version="10", versions=spans)
    p.say([user("q"), said("abcd"), user("r")], "e", version="10")
    (sample,), _ = p.samples({})
    assert sample["weight_versions"] == ["9", "10"] and min(map(int, sample["weight_versions"])) == 9


def v1(samples):
    """miles v1 rollout/generate_hub/agentic_tool_call.py takes exactly one sample of a session."""
    (sample,) = samples
    return sample


# what v1 posts; nothing in it tells which version posts it
@pytest.mark.parametrize("body", [{}, {"max_seq_len": None}, {"max_seq_len": 4096}])
def test_row_9_miles_v1_takes_one_sample(place, body):
    with pytest.raises(ValueError):
        v1(place().session().two_roots().samples(body)[0])
    p = place(samples_select="longest").session().two_roots()
    samples, notes = p.samples(body)
    assert v1(samples)["tokens"][-7:-1] == list(b"longer") and notes["branches_left_out"] == 1
    assert len(p.samples({**body, "select": "leaves"})[0]) == 2, "who asks is given what is asked for"
    assert len(json.loads(p.get(""))["trajectories"]) == 2, "nothing but /samples changes"
    p.session().say([user("q")], "one")
    assert "branches_left_out" not in p.samples(body)[1]
    newest = place(samples_select="last").session()
    newest.say([user("other")], "longer")
    newest.say([user("q")], "one")
    assert v1(newest.samples(body)[0])["tokens"][-4:-1] == list(b"one")


def test_row_9_linear_histories_have_one_sample(place):
    """An agent of v1 retries from one answer back, and can do no more: there is one branch; a second beginning is refused."""
    p = place(history="linear").session()
    p.say([user("q")], "one")
    p.say([user("q"), said("one"), user("r")], "two")
    p.say([user("q"), said("one"), user("s")], "three")
    assert v1(p.samples({})[0])["tokens"][-6:-1] == list(b"three")
    a = p.gateway.post(p.path + "/v1/chat/completions", {"model": "m", "messages": [user("other")]})
    assert a.status == 400 and a.json()["error"]["code"] == "history_conflict"
    v1(p.samples({})[0])


# --- slime ---

def slime_sample(s):
    """slime utils/types.py Sample and ray/rollout.py _convert_samples_to_train_data: what scoring, replay and training read."""
    n = s["response_length"]
    assert len(s["loss_mask"]) == len(s["rollout_log_probs"]) == n <= len(s["tokens"])
    experts = None
    if s["rollout_routed_experts"] is not None:
        raw, shape = base64.b64decode(s["rollout_routed_experts"], validate=True), s["rollout_routed_experts_shape"]
        assert s["rollout_routed_experts_dtype"] == "int32" and len(raw) == 4 * math.prod(shape)
        assert shape[0] == len(s["tokens"]) - 1
        experts = struct.unpack(f"<{math.prod(shape)}i", raw)
    return s["response"], s["weight_versions"], s["prefix_cache_info"], experts


def routed(ids):
    """An answer's plan whose experts cover what the engine is asked for."""
    def plan(body):
        rows = len(body["input_ids"]) + len(ids) - 1 - (body.get("routed_experts_start_len") or 0)
        return struct.pack(f"<{rows * LAYERS * TOPK}i", *[k % 60 for k in range(rows * LAYERS * TOPK)])
    return plan


@pytest.fixture
def mixture(start, tmp_path):
    source = g.MODELS / "chatml-bytes"
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        (tmp_path / name).write_bytes((source / name).read_bytes())
    (tmp_path / "config.json").write_text(json.dumps({"num_hidden_layers": LAYERS, "num_experts_per_tok": TOPK}))
    with StubEngine("sglang") as engine:
        yield Place(start, engine, model=str(tmp_path), routed_experts="on")


def with_experts(p, **session):
    p.session(**session)
    p.say([user("q")], "one", experts=routed([*b"one", END]), version="3")
    return p.reward({"reward": 1})


def test_row_11_slime_scores_and_replays(mixture):
    (s,) = json.loads(with_experts(mixture).get("format=slime"))["samples"]
    response, versions, cache, experts = slime_sample(s)
    assert response.startswith("one") and versions == ["3"] and set(cache) == {"cached_tokens", "total_prompt_tokens"}
    assert experts and len(experts) == (len(s["tokens"]) - 1) * LAYERS * TOPK


def baselines(rewards, n):
    """slime ray/rollout.py and AReaL's Normalization: rows are taken n at a time, whoever they are of."""
    return [r - sum(rewards[i // n * n:i // n * n + n]) / n for i, r in enumerate(rewards)]


@pytest.mark.parametrize("form", ["slime", "miles", "areal"])
def test_row_12_one_row_of_a_rollout_keeps_baselines(place, form):
    p, rewards = place(), {"": [], "&select=longest": []}
    for reward in (1, 0):
        p.session().two_roots().reward({"reward": reward})
        for query, got in rewards.items():
            body = p.get(f"format={form}{query}")
            rows = len(json.loads(body)["samples"]) if form == "slime" else \
                sum(k.startswith(("tokens.", "input_ids.")) for k in read_safetensors(body)[0])
            got += [reward] * rows
    assert baselines(rewards["&select=longest"], 2) == [0.5, -0.5]
    assert rewards[""] == [1, 1, 0, 0] and baselines(rewards[""], 2) == [0, 0, 0, 0], "all branches: nothing would be learned"


# --- AReaL ---

def areal_padded(files):
    """AReaL utils/data.py concat_padded_tensors: bare names, the same on every row; [1, T] padded to the longest."""
    rows = [{k.rsplit(".", 1)[0]: v for k, v in f.items()} for f in files]
    assert all(set(r) == set(rows[0]) for r in rows)
    longest = max(r["attention_mask"][1][1] for r in rows)
    return {k: [r[k][2] + [0] * (longest - len(r[k][2])) for r in rows] for k in rows[0] if k != "rewards"}


def test_rows_14_and_15_areal_batches(place):
    p, files = place(), []
    for text in ("one", "seventeen"):
        p.session().reward({"reward": 1})
        p.say([user("q")], text, version="5")
        tensors, _ = p.tensors("format=areal")
        files.append(tensors)
    batch = areal_padded(files)
    assert set(batch) == {"input_ids", "loss_mask", "logprobs", "versions", "attention_mask"}
    assert len({len(x) for rows in batch.values() for x in rows}) == 1
    assert [f["input_ids.0"][0] for f in files] == ["I64"] * 2 and [f["loss_mask.0"][0] for f in files] == ["I32"] * 2
    assert [sum(m) for m in batch["loss_mask"]] == [4, 10]
    p.session().reward({"reward": 1})
    p.say([user("q")], "one", version="")
    tensors, notes = p.tensors("format=areal")
    assert set(tensors["versions.0"][2]) == {-1} and any("versions" in w for w in notes["summary"]["warnings"])


@pytest.mark.parametrize("form", ["areal", "prime-rl", "nemo-gym"])
def test_rows_14_and_16_no_ratio_without_logprobs(start, form):
    """Decoupled PPO (AReaL) and prime-rl's loss divide by them; prime-rl's TrainingSample.logprobs cannot be null. An OpenAI
    upstream that is asked for ids alone tells none."""
    with StubEngine("openai") as engine:
        gateway = start(workers=1, engine=engine.setting)
        path = f"/sessions/{gateway.post('/sessions', {}).json()['session_id']}"
        engine.plan.append({"ids": [11, 12, 2], "prompt_ids": [5, 6, 7], "text": "one"})
        a = gateway.post(path + "/v1/chat/completions", {"messages": [user("q")], "return_token_ids": True})
        assert a.status == 200, a.text
        assert gateway.post(path + "/reward_info", {"reward_info": {"reward": 1}}).status == 200
        (t,) = gateway.get(path + "/trajectories").json()["trajectories"]
        assert t["response_ids"] == [11, 12, 2] and t["response_logprobs"] is None
        a = gateway.get(f"{path}/trajectories?format={form}")
        assert a.status == 422 and a.json()["error"]["code"] == "unassemblable", a.text
        assert f"the {form} format needs the logprobs" in a.text
        # one branch of several: an error before the first byte all the same
        path = f"/sessions/{gateway.post('/sessions', {}).json()['session_id']}"
        for ids, ask in (([5], {"logprobs": True}), ([6], {})):
            engine.plan.append({"ids": [11, 2], "prompt_ids": ids, "text": "one"})
            given = {"messages": [user(str(ids))], "return_token_ids": True, **ask}
            assert gateway.post(path + "/v1/chat/completions", given).status == 200
        both = gateway.get(path + "/trajectories").json()["trajectories"]
        assert [t["response_logprobs"] is None for t in both] == [False, True]
        a = gateway.get(f"{path}/trajectories?format={form}")
        assert a.status == 422 and "trajectory 1 has none" in a.text


# --- prime-rl ---

def training_sample(s):
    """prime-rl transports/rollouts/types.py TrainingSample: its required fields, aligned by token, and routed experts
    a row a token (orchestrator/trajectories.py fills the last token's row with zeros)."""
    for name, kind in (("token_ids", int), ("mask", bool), ("logprobs", float), ("temperatures", float)):
        kinds = (int, float) if kind is float else (kind,)
        assert len(s[name]) == len(s["token_ids"]) and all(type(x) in kinds for x in s[name]), name
    experts = s["routed_experts"]
    if experts is not None:
        shape = s["routed_experts_shape"]
        raw = base64.b64decode(experts, validate=True)
        assert shape == [len(s["token_ids"]), LAYERS, TOPK] and len(raw) == 4 * math.prod(shape)
        experts = struct.unpack(f"<{math.prod(shape)}i", raw)
    return s["env_name"], experts


def test_row_16_prime_rl_samples_are_whole(mixture):
    (s,) = json.loads(with_experts(mixture, metadata={"env_name": "gsm8k"}).get("format=prime-rl"))["samples"]
    env_name, experts = training_sample(s)
    assert env_name == "gsm8k" and s["routed_experts_dtype"] == "int32"
    (t,) = json.loads(mixture.get(""))["trajectories"]
    told = base64.b64decode(t["routed_experts"])
    assert struct.pack(f"<{len(experts)}i", *experts) == told + bytes(4 * LAYERS * TOPK)
    assert sum(s["mask"]) == 4 and all((p != 0) <= on for p, on in zip(s["logprobs"], s["mask"]))


def test_row_16_an_unknown_environment_is_null(place):
    for metadata in ({}, {"env_name": ""}, {"env_name": 5}):
        p = place().session(metadata=metadata)
        p.say([user("q")], "one")
        (s,) = json.loads(p.get("format=prime-rl"))["samples"]
        assert training_sample(s) == (None, None)

"""Readers of every export format, written from the formats' descriptions (safetensors: u64 length, JSON header, tiled
data; msgpack: the public specification; the trainers' layouts). compare_all reads a session in every format and
compares it with its native JSON."""
import base64
import json
import math
import struct

TYPES = {"I64": ("q", 8), "F64": ("d", 8), "F32": ("f", 4), "I32": ("i", 4), "I16": ("h", 2), "U8": ("B", 1), "BOOL": ("B", 1)}


def read_safetensors(data):
    n = struct.unpack_from("<Q", data)[0]
    assert n % 8 == 0 and n <= 100_000_000
    assert data[8:9] == b"{"
    header = json.loads(data[8:8 + n])
    meta = header.pop("__metadata__", {})
    assert all(isinstance(v, str) for v in meta.values())
    body, at, tensors = data[8 + n:], 0, {}
    for name, t in sorted(header.items(), key=lambda x: (x[1]["data_offsets"], x[0])):
        code, size = TYPES[t["dtype"]]
        lo, hi = t["data_offsets"]
        count = math.prod(t["shape"])
        assert lo == at and hi - lo == count * size, f"{name} does not tile"
        assert lo % size == 0, f"{name} is not aligned"
        tensors[name] = (t["dtype"], t["shape"], list(struct.unpack_from(f"<{count}{code}", body, lo)))
        at = hi
    assert at == len(body), "bytes behind the last tensor"
    return tensors, meta


class Msgpack:
    def __init__(self, data):
        self.d, self.i = data, 0

    def take(self, fmt):
        v = struct.unpack_from(">" + fmt, self.d, self.i)[0]
        self.i += struct.calcsize(">" + fmt)
        return v

    def raw(self, n):
        self.i += n
        assert self.i <= len(self.d)
        return self.d[self.i - n:self.i]

    def ext(self, n):
        kind, raw = self.take("b"), self.raw(n)
        return list(struct.unpack({1: f"<{n // 4}i", 2: f"<{n}B", 3: f"<{n // 4}f"}[kind], raw))

    def value(self):
        b = self.take("B")
        if b < 0x80:
            return b
        if b >= 0xe0:
            return b - 256
        if b < 0x90:
            return self.pairs(b & 15)
        if b < 0xa0:
            return [self.value() for _ in range(b & 15)]
        if b < 0xc0:
            return self.raw(b & 31).decode()
        simple = {0xc0: None, 0xc2: False, 0xc3: True}
        if b in simple:
            return simple[b]
        numbers = {0xca: "f", 0xcb: "d", 0xcc: "B", 0xcd: "H", 0xce: "I", 0xcf: "Q", 0xd0: "b", 0xd1: "h", 0xd2: "i", 0xd3: "q"}
        if b in numbers:
            return self.take(numbers[b])
        if b in (0xd9, 0xda, 0xdb):
            return self.raw(self.take("BHI"[b - 0xd9])).decode()
        if b in (0xc4, 0xc5, 0xc6):
            return self.raw(self.take("BHI"[b - 0xc4]))
        if b in (0xc7, 0xc8, 0xc9):
            return self.ext(self.take("BHI"[b - 0xc7]))
        if 0xd4 <= b <= 0xd8:
            return self.ext(1 << (b - 0xd4))
        if b in (0xdc, 0xdd):
            return [self.value() for _ in range(self.take("HI"[b - 0xdc]))]
        assert b in (0xde, 0xdf), f"byte {b:x}"
        return self.pairs(self.take("HI"[b - 0xde]))

    def pairs(self, n):
        out = {}
        for _ in range(n):
            k = self.value()
            assert k not in out
            out[k] = self.value()
        return out


def read_msgpack(data):
    m = Msgpack(data)
    v = m.value()
    assert m.i == len(data)
    return v


def f32(v):
    return [struct.unpack("<f", struct.pack("<f", x))[0] for x in v]


# --- the invariants of a native trajectory ---

def check_native(t):
    n = len(t["response_ids"])
    mask, lps, versions = t["response_mask"], t["response_logprobs"], t["response_versions"]
    assert len(mask) == n and set(mask) <= {0, 1}
    assert lps is None or len(lps) == n
    assert versions is None or len(versions) == n
    at, trained = 0, 0
    for turn in t["turns"]:
        assert at <= turn["start"] < turn["end"] <= n
        assert not any(mask[at:turn["start"]])
        assert mask[turn["start"]:turn["end"]] == [int(turn["trained"])] * (turn["end"] - turn["start"])
        trained += (turn["end"] - turn["start"]) * turn["trained"]
        at = turn["end"]
    assert not any(mask[at:]) and sum(mask) == trained
    assert t["turns"][0]["start"] == 0
    for i in range(n):
        if not mask[i]:
            assert lps is None or lps[i] == 0.0
            assert versions is None or versions[i] in (-1, "-1")
    assert t["num_turns"] == len(t["turns"])
    assert sum(m.get("generated", False) for m in t["messages"]) == len(t["turns"]) or not t["messages"]


def experts_of(t):
    """Returns the shape (rows, layers, topk) and the numbers in order, or None without experts."""
    if t["routed_experts"] is None:
        return None
    raw = t["routed_experts"]
    if isinstance(raw, str):
        raw = base64.b64decode(raw, validate=True)
    shape = t["routed_experts_shape"]
    assert t["routed_experts_dtype"] == "int32"
    rows = list(struct.unpack(f"<{math.prod(shape)}i", raw))
    assert shape[0] == len(t["prompt_ids"]) + len(t["response_ids"]) - 1
    return shape, rows


# --- every format against the native one ---

def compare_all(get):
    """Compares all formats. get(format) returns the bytes of a format; all must have the same trajectories."""
    whole = json.loads(get("json"))
    ts = whole["trajectories"]
    for i, t in enumerate(ts):
        assert t["trajectory_index"] == i
        check_native(t)
    assert whole["summary"]["branches"] == len(ts)
    assert whole["summary"]["trained_tokens"] == sum(sum(t["response_mask"]) for t in ts)
    assert whole["summary"]["prompt_tokens"] == sum(len(t["prompt_ids"]) for t in ts)
    compare_msgpack(whole, get("msgpack"))
    compare_safetensors(whole, get("safetensors"))
    compare_verl(ts, get("verl"))
    compare_miles(ts, get("miles"))
    compare_areal(ts, get("areal"))
    compare_slime(ts, json.loads(get("slime"))["samples"])
    compare_prime_rl(ts, json.loads(get("prime-rl"))["samples"])
    compare_prefix_tree(ts, get("prefix-tree"))
    compare_skyrl(ts, json.loads(get("skyrl")))
    if all(t["response_logprobs"] is not None for t in ts):
        compare_nemo_gym(ts, json.loads(get("nemo-gym")))
    compare_atif(ts, json.loads(get("atif")))
    *lines, end = get("openai-messages").split(b"\n")
    assert end == b"" and [json.loads(x)["messages"] for x in lines] == [plain(t["messages"]) for t in ts]
    return whole


def plain(messages):
    return [{k: v for k, v in m.items() if k != "generated"} for m in messages]


def compare_msgpack(whole, data):
    got = read_msgpack(data)
    want = json.loads(json.dumps(whole))
    for t, u in zip(want["trajectories"], got["trajectories"], strict=True):
        if t["response_logprobs"] is not None:
            t["response_logprobs"] = f32(t["response_logprobs"])
        if t["routed_experts"] is not None:
            t["routed_experts"] = base64.b64decode(t["routed_experts"])
        assert u == t
    assert got == want


def compare_safetensors(whole, data):
    tensors, meta = read_safetensors(data)
    rows = json.loads(meta["trajectories"])
    assert json.loads(meta["summary"]) == whole["summary"] and meta["session_id"] == whole["session_id"]
    assert meta["phase"] == whole["phase"]
    for i, (t, row) in enumerate(zip(whole["trajectories"], rows, strict=True)):
        t = dict(t)
        for name, kind in (("prompt_ids", "I64"), ("response_ids", "I64"), ("response_mask", "U8")):
            assert tensors.pop(f"{name}.{i}") == (kind, [len(t[name])], t.pop(name))
        n = len(whole["trajectories"][i]["response_ids"])
        lps, versions = t.pop("response_logprobs"), t["response_versions"]
        if lps is not None:
            assert tensors.pop(f"response_logprobs.{i}") == ("F32", [n], f32(lps))
        if versions is None or all(isinstance(v, int) for v in versions):
            t.pop("response_versions")
            if versions is not None:
                assert tensors.pop(f"response_versions.{i}") == ("I64", [n], versions)
        experts = experts_of(whole["trajectories"][i])
        for key in ("routed_experts", "routed_experts_shape", "routed_experts_dtype"):
            t.pop(key, None)
        if experts:
            assert tensors.pop(f"routed_experts.{i}") == ("I32", *experts)
        assert row == t
    assert not tensors


def reward_of(t):
    info = t["reward_info"]
    numbers = [v for v in info.values() if isinstance(v, (int, float)) and not isinstance(v, bool)]
    known = [info[k] for k in ("reward", "score") if info.get(k) is not None] or (numbers if len(numbers) == 1 else [])
    assert t["reward"] == (float(known[0]) if known else None)
    return t["reward"]


def compare_verl(ts, data):
    tensors, meta = read_safetensors(data)
    keys, tags, rows, native = (json.loads(meta[k]) for k in ("keys", "tags", "rows", "native"))
    assert len(native) == len(keys) == len(tags) == len(rows) == len(ts) and len(set(keys)) == len(keys)
    have = [t["response_logprobs"] is not None for t in ts]
    assert sum(f"rollout_log_probs.{i}" in tensors for i in range(len(ts))) == (len(ts) if all(have) else 0)
    for i, (t, tag, row) in enumerate(zip(ts, tags, rows)):
        p, r = t["prompt_ids"], t["response_ids"]
        full, n = p + r, len(r)
        take = tensors.pop
        uid, session_index, index = keys[i].split("_")
        assert uid == tag["uid"] == row["uid"] and int(session_index) == row["session_id"] and int(index) == i
        assert take(f"prompts.{i}") == ("I64", [len(p)], p)
        assert take(f"responses.{i}") == ("I64", [n], r)
        assert take(f"input_ids.{i}") == ("I64", [len(full)], full)
        assert take(f"attention_mask.{i}") == ("I64", [len(full)], [1] * len(full))
        assert take(f"position_ids.{i}") == ("I64", [len(full)], list(range(len(full))))
        assert take(f"response_mask.{i}") == take(f"loss_mask.{i}") == ("I64", [n], t["response_mask"])
        if all(have):
            assert take(f"rollout_log_probs.{i}") == ("F32", [n], f32(t["response_logprobs"]))
        reward = reward_of(t)
        assert tensors.pop(f"rm_scores.{i}", None) == (None if reward is None else ("F32", [n], [0.0] * (n - 1) + f32([reward])))
        experts = experts_of(t)
        if experts:  # padded to the whole sequence
            (rows_, layers, topk), numbers = experts
            assert take(f"routed_experts.{i}") == ("I32", [rows_ + 1, layers, topk], numbers + [0] * (layers * topk))
        extra = t["extra_fields"]
        assert (tag["prompt_len"], tag["response_len"], tag["seq_len"], tag["status"]) == (len(p), n, len(full), "success")
        for k in ("min_global_steps", "max_global_steps"):
            assert tag[k] == row[k] == extra.get(k, -1)
        assert tag.get("materialization_reason") == extra.get("materialization_reason")
        first = next((k for k, m in enumerate(t["messages"]) if m.get("generated")), len(t["messages"]))
        assert row["raw_prompt"] == t["messages"][:first]
        assert row["multi_modal_inputs"] == {} and "multi_modal_data" not in row
        assert row["num_turns"] == 1 + sum(m["role"] in ("user", "assistant") for m in t["messages"]) and row["reward_score"] == reward_of(t)
        assert row["reward_extra_info"] == {k: v for k, v in t["reward_info"].items() if k not in ("reward", "finished")}
        assert row["extra_fields"] == {**extra, "reward_extra_info": row["reward_extra_info"]}
        assert not {"messages", "turns", "reward_info", "turn_rewards"} & set(row)
        for k in ("messages", "turns", "reward_info", "turn_rewards", "extra_fields"):
            assert native[i][k] == t[k]
    assert not tensors


def oldest(spans):
    versions = [x["version"] for x in spans]
    return min(versions, key=int) if versions[0].isdecimal() else versions[0]


def compare_miles(ts, data):
    tensors, meta = read_safetensors(data)
    assert not meta
    kind, shape, raw = tensors.pop("_samples_meta")
    assert kind == "U8" and shape == [len(raw)]
    info = json.loads(bytes(raw).decode())
    assert set(info) == {"samples", "session_metadata", "empty_reason"}
    assert (info["empty_reason"] is None) == bool(ts)
    for i, (t, s) in enumerate(zip(ts, info["samples"], strict=True)):
        n, full = len(t["response_ids"]), t["prompt_ids"] + t["response_ids"]
        nulls = ["rollout_indexer_topk"]
        assert tensors.pop(f"tokens.{i}") == ("I64", [len(full)], full)
        assert tensors.pop(f"loss_mask.{i}") == ("U8", [n], t["response_mask"])
        if t["response_logprobs"] is None:
            nulls.append("rollout_log_probs")
        else:
            assert tensors.pop(f"rollout_log_probs.{i}") == ("F64", [n], f32(t["response_logprobs"]))
        experts = experts_of(t)
        if experts:
            assert tensors.pop(f"rollout_routed_experts.{i}") == ("I32", *experts)
        else:
            nulls.append("rollout_routed_experts")
        assert sorted(s["nulls"]) == sorted(nulls)
        assert s["response_length"] == n and s["reward"] == reward_of(t) and isinstance(s["metadata"], dict)
        last = t["turns"][-1]["finish_reason"]
        cut = last == "length" or t["extra_fields"].get("materialization_reason") == "max_tokens"
        assert s["status"] == ("truncated" if cut else "completed")
        spans = [x["weight_versions"] for x in t["turns"]]
        assert s["weight_versions"] == [oldest(x) for x in spans if x]
        assert set(s["prefix_cache_info"]) == {"cached_tokens", "total_prompt_tokens"}
        assert s["metadata"]["leaf"]["response_id"] == t["turns"][-1]["response_id"]
    assert not tensors


def compare_areal(ts, data):
    tensors, meta = read_safetensors(data)
    rows = json.loads(meta["rows"])
    for i, (t, row) in enumerate(zip(ts, rows, strict=True)):
        p = len(t["prompt_ids"])
        full, n = t["prompt_ids"] + t["response_ids"], len(t["response_ids"])
        shape = [1, len(full)]
        lps, versions = t["response_logprobs"], t["response_versions"]
        if versions is None or not all(isinstance(v, int) for v in versions):
            versions = [-1] * n
        assert tensors.pop(f"input_ids.{i}") == ("I64", shape, full)
        assert tensors.pop(f"loss_mask.{i}") == ("I32", shape, [0] * p + t["response_mask"])
        assert tensors.pop(f"logprobs.{i}") == ("F32", shape, [0.0] * p + (f32(lps) if lps else [0.0] * n))
        assert tensors.pop(f"versions.{i}") == ("I32", shape, [-1] * p + versions)
        assert tensors.pop(f"attention_mask.{i}") == ("BOOL", shape, [1] * len(full))
        reward = reward_of(t)
        assert tensors.pop(f"rewards.{i}", None) == (None if reward is None else ("F32", [1], f32([reward])))
        assert row["turns"] == t["turns"] and row["messages"] == t["messages"]
    assert not tensors


def compare_slime(ts, samples):
    for t, s in zip(ts, samples, strict=True):
        assert s["tokens"] == t["prompt_ids"] + t["response_ids"]
        assert s["response_length"] == len(t["response_ids"]) and s["loss_mask"] == t["response_mask"]
        assert s["rollout_log_probs"] == t["response_logprobs"] and s["reward"] == reward_of(t)
        assert s["metadata"]["turns"] == t["turns"] and s["metadata"]["extra_fields"] == t["extra_fields"]
        cut = t["turns"][-1]["finish_reason"] == "length" or t["extra_fields"].get("materialization_reason") == "max_tokens"
        assert s["metadata"]["truncated"] == cut and s["status"] == ("truncated" if cut else "completed")
        assert isinstance(s["response"], str) and set(s["prefix_cache_info"]) == {"cached_tokens", "total_prompt_tokens"}
        told = [[v["version"] for v in turn["weight_versions"]] for turn in t["turns"] if turn["weight_versions"]]
        assert len(s["weight_versions"]) == len(told) and all(v in of for v, of in zip(s["weight_versions"], told))
        assert s["rollout_routed_experts"] == t["routed_experts"]
        if s["rollout_routed_experts"]:
            assert s["rollout_routed_experts_shape"] == t["routed_experts_shape"]
            assert s["rollout_routed_experts_dtype"] == t["routed_experts_dtype"]


def compare_prime_rl(ts, samples):
    for t, s in zip(ts, samples, strict=True):
        p, lps = len(t["prompt_ids"]), t["response_logprobs"]
        assert s["token_ids"] == t["prompt_ids"] + t["response_ids"]
        assert s["mask"] == [False] * p + [bool(m) for m in t["response_mask"]]
        assert s["logprobs"] == (None if lps is None else [0.0] * p + lps)
        assert len(s["temperatures"]) == len(s["token_ids"]) and s["reward"] == reward_of(t)


def turn_of(t, turn):
    """Returns the ids before a turn, its own ids, and its logprobs."""
    p, r, lps = t["prompt_ids"], t["response_ids"], t["response_logprobs"]
    return p + r[:turn["start"]], r[turn["start"]:turn["end"]], lps and lps[turn["start"]:turn["end"]]


def walk_up(parents, end):
    path = []
    while end >= 0:
        path.append(end)
        end = parents[end]
    return path[::-1]


def compare_prefix_tree(ts, data):
    tensors, meta = read_safetensors(data)
    rows = json.loads(meta["trajectories"])
    (_, (n,), ids), (_, _, parents), (_, _, positions) = (tensors.pop(k) for k in ("token_ids", "parents", "positions"))
    (_, _, ends), (_, _, prompts), (_, _, weights) = (tensors.pop(k) for k in ("ends", "prompt_lengths", "weights"))
    logprobs, versions = tensors.pop("logprobs", None), tensors.pop("versions", None)
    _, _, through = tensors.pop("trajectories")
    assert prompts == [len(t["prompt_ids"]) for t in ts] and all(-1 <= p < i for i, p in enumerate(parents))
    assert (logprobs is not None) == bool(ts and all(t["response_logprobs"] is not None for t in ts))
    sums, seen, nodes = [0] * n, [0] * n, {}
    for t, end, row in zip(ts, ends, rows, strict=True):
        path, p, lps = walk_up(parents, end), len(t["prompt_ids"]), f32(t["response_logprobs"] or [])
        mask = [0] * p + t["response_mask"]
        assert [ids[k] for k in path] == t["prompt_ids"] + t["response_ids"]
        assert [positions[k] for k in path] == list(range(len(path))) and row["turns"] == t["turns"]
        authors = [None] * len(path)
        for turn in t["turns"]:
            authors[p + turn["start"]:p + turn["end"]] = [turn["response_id"]] * (turn["end"] - turn["start"])
        for i, k in enumerate(path):
            seen[k] += 1
            sums[k] += mask[i]
            assert not logprobs or not mask[i] or logprobs[2][k] == lps[i - p]
            assert not versions or not mask[i] or versions[2][k] == t["response_versions"][i - p]
            key = (parents[k], ids[k], authors[i])
            assert nodes.setdefault(key, k) == k, "a token stands twice"
    assert sums == weights and seen == through and len(nodes) == n
    reward = reward_of(ts[0]) if ts else None
    rewards = tensors.pop("rewards", None)
    assert not ts or rewards == (None if reward is None else ("F32", [len(ts)], f32([reward] * len(ts))))
    assert not tensors


def compare_skyrl(ts, data):
    steps = iter(data["steps"])
    names = set()
    for t in ts:
        reward = reward_of(t)
        ids = set()
        for turn in t["turns"]:
            s, (prompt, own, lps) = next(steps), turn_of(t, turn)
            last = turn is t["turns"][-1]
            assert (s["prompt_token_ids"], s["response_ids"], s["rollout_logprobs"]) == (prompt, own, lps)
            assert s["loss_mask"] == [int(turn["trained"])] * len(own) and s["is_last_step"] is last and s["turn"] == turn
            assert s["rewards"] == (None if reward is None else [0.0] * (len(own) - 1) + [reward if last else 0.0])
            assert s["stop_reason"] == turn["finish_reason"]
            ids.add(json.dumps(s["trajectory_id"]))
        assert len(ids) == 1 and not ids & names
        names |= ids
    assert next(steps, None) is None and data["summary"]["branches"] == len(ts)


def compare_nemo_gym(ts, data):
    records = {r["model_call_id"]: r for r in data["records"]}
    assert len(records) == len(data["records"])
    for t in ts:
        for turn in t["turns"]:
            if not turn["trained"]:
                continue
            r, (prompt, own, lps) = records[turn["response_id"]], turn_of(t, turn)
            assert (r["generation_token_ids"], r["generation_log_probs"]) == (own, lps)
            assert r["prompt_token_ids"][-1:] == prompt[-1:] and r["schema_version"] == 1
            assert r["output_items"][r["token_item_index"]]["type"] == "message" and r["reward"] == reward_of(t)
    assert set(records) == {turn["response_id"] for t in ts for turn in t["turns"] if turn["trained"]}


AGENT_ONLY = {"model_name", "reasoning_effort", "reasoning_content", "tool_calls", "metrics"}


def check_atif(document):
    """Checks the rules of the format's own validator: step ids from 1 without gaps, fields that only agents' steps
    may have, results only of calls of the same step."""
    assert document["schema_version"] == "ATIF-v1.7"
    assert document["agent"]["name"] and document["agent"]["version"] and document["steps"]
    assert [s["step_id"] for s in document["steps"]] == list(range(1, len(document["steps"]) + 1))
    for s in document["steps"]:
        assert s["source"] in ("system", "user", "agent") and isinstance(s["message"], (str, list))
        assert s["source"] == "agent" or not AGENT_ONLY & set(s)
        calls = {c["tool_call_id"] for c in s.get("tool_calls", [])}
        assert all(isinstance(c["arguments"], dict) and c["function_name"] for c in s.get("tool_calls", []))
        for r in s.get("observation", {"results": []})["results"]:
            assert r.get("source_call_id") in {None, *calls}


def compare_atif(ts, data):
    assert len({d["trajectory_id"] for d in data["trajectories"]}) == len(ts)
    for t, d in zip(ts, data["trajectories"], strict=True):
        check_atif(d)
        told = [s for s in d["steps"] if "metrics" in s]
        assert [s["extra"] for s in told] == t["turns"]
        for s, turn in zip(told, t["turns"], strict=True):
            m = s["metrics"]
            prompt, own, lps = turn_of(t, turn)
            assert (m["prompt_token_ids"], m["completion_token_ids"]) == (prompt, own)
            assert m.get("logprobs") == (lps if turn["trained"] else None)
            assert (m["prompt_tokens"], m["completion_tokens"]) == (len(prompt), len(own))
        assert d["extra"]["reward"] == reward_of(t) and d["extra"]["extra_fields"] == t["extra_fields"]
        if t["messages"]:
            assert len(d["steps"]) + sum(len(s["observation"]["results"]) for s in d["steps"] if "observation" in s) == \
                len(t["messages"])

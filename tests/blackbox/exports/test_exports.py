"""Every export format, read by export_readers.py and compared with the native JSON of the same session, field by
field; options, order, Accept."""
import json
import re

import pytest

import gateway as g
from export_readers import f32, read_msgpack, read_safetensors
from stub_engines import StubEngine

# --- a session with branches, versions, rewards ---

@pytest.fixture
def session(start):
    with StubEngine("sglang") as engine:
        gateway = start(workers=1, engine=f"sglang:{engine.url}", model=g.MODELS / "chatml-bytes", tool_parser="none",
                        reasoning_parser="none")
        s = gateway.request("POST", "/sessions", {"labels": {"task": "t1"}}).json()
        gateway.path = f"/sessions/{s['session_id']}"

        def chat(messages, text, version, **more):
            ids = list(text.encode()) + [257]
            engine.plan.append({"ids": ids, "finish": "stop", "matched": 257, "version": version})
            a = gateway.post(gateway.path + "/v1/chat/completions", {"model": "m", "messages": messages, **more})
            assert a.status == 200, a.text
            return a.json()

        u = {"role": "user", "content": "Wie viele?"}
        first = chat([u], "zwei", "7")
        a1 = {"role": "assistant", "content": "zwei"}
        chat([u, a1, {"role": "user", "content": "sicher?"}], "ja", "8", temperature=0.5)
        chat([u, a1, {"role": "user", "content": "wirklich?"}], "nein", "8")
        chat([{"role": "system", "content": "sub"}, u], "drei", "9")
        assert gateway.post(gateway.path + "/reward_info", {"reward_info": {"reward": 0.25, "acc": 1}}).status == 200
        given = {"reward_info": {"reward": 1}, "response_id": first["id"]}
        assert gateway.post(gateway.path + "/reward_info", given).status == 200
        yield gateway


def native(gateway, query=""):
    a = gateway.get(f"{gateway.path}/trajectories?format=json{query}")
    assert a.status == 200, a.text
    return a.json()


def get(gateway, fmt, query=""):
    a = gateway.get(f"{gateway.path}/trajectories?format={fmt}{query}")
    assert a.status == 200, a.text
    return a.body


def test_native(session):
    x = native(session)
    ts = x["trajectories"]
    assert len(ts) == 3 and x["summary"]["branches"] == 3 and x["summary"]["drift_count"] == 0
    for t in ts:
        n = len(t["response_ids"])
        assert len(t["response_mask"]) == len(t["response_logprobs"]) == len(t["response_versions"]) == n
        assert t["reward_info"] == {"reward": 0.25, "acc": 1}
        assert t["extra_fields"]["drift"] == {"count": 0, "first": None}
        for m, lp, v in zip(t["response_mask"], t["response_logprobs"], t["response_versions"]):
            assert m or (lp == 0.0 and v == -1)
    assert [t["extra_fields"]["max_global_steps"] for t in ts] == [8, 8, 9]
    assert ts[0]["extra_fields"]["min_global_steps"] == 7
    assert x["summary"]["forks_by_cause"]["history_rewritten"] == 1
    # Floats come as the shortest text that is the same float32.
    text = session.get(f"{session.path}/trajectories").text
    numbers = [x for run in re.findall(r'"response_logprobs":\[([^\]]*)\]', text) for x in run.split(",")]
    assert numbers and all(re.fullmatch(r"-?0\.\d{1,2}", x) for x in numbers)
    assert ts[0]["turns"][0]["reward"] == {"reward": 1} and list(ts[0]["turn_rewards"].values()) == [{"reward": 1}]


def test_train_once_and_selections(session):
    once = native(session, "&train_once=on")["trajectories"]
    assert sum(sum(t["response_mask"]) for t in once) == sum(map(len, ("zwei!", "ja!", "nein!", "drei!")))
    assert len(native(session, "&select=all_checkpoints")["trajectories"]) == 4
    assert len(native(session, "&select=last")["trajectories"]) == 1
    longest = native(session, "&select=longest")["trajectories"][0]
    assert longest["messages"][-1]["content"] == "nein"
    assert len(native(session, "&pick=drop_retries")["trajectories"]) == 2
    whole = native(session)["trajectories"]
    limit = len(whole[0]["prompt_ids"]) + 10
    cut = native(session, f"&max_tokens={limit}")
    assert [len(t["prompt_ids"]) + len(t["response_ids"]) <= limit for t in cut["trajectories"]] and cut["summary"]["dropped"]
    bad = session.get(f"{session.path}/trajectories?select=best")
    assert bad.status == 400 and bad.json()["error"]["param"] == "select"


# --- what is longest, and whether anything is trained ---

@pytest.fixture
def scripted(start):
    """A gateway whose engine says what it is told to; say(path, messages, text)."""
    with StubEngine("sglang") as engine:
        gateway = start(workers=1, engine=f"sglang:{engine.url}", model=g.MODELS / "chatml-bytes", tool_parser="none",
                        reasoning_parser="none")

        def say(path, messages, text, **more):
            engine.plan.append({"ids": [*text.encode(), 257], "finish": "stop", "matched": 257})
            a = gateway.post(path + "/v1/chat/completions", {"model": "m", "messages": messages}, **more)
            assert a.status == 200, a.text
        gateway.say = say
        gateway.path = f"/sessions/{gateway.post('/sessions', {}).json()['session_id']}"
        yield gateway


def says(trajectory):
    return trajectory["messages"][-1]["content"]


def test_the_longest_of_a_fork_is_its_own(scripted):
    """What was copied into a fork is not trained there, however long it is."""
    ask = [{"role": "user", "content": "?"}]
    scripted.say(scripted.path, ask, "a" * 100)
    fork = f"/sessions/{scripted.post(scripted.path + '/fork', {}).json()['session_id']}"
    nothing = scripted.get(fork + "/trajectories?require_trained=on")
    assert nothing.status == 422 and "require_trained" in nothing.json()["error"]["message"], nothing.text
    scripted.say(fork, ask, "b" * 30)
    assert scripted.get(fork + "/trajectories?require_trained=on").status == 200
    [one] = scripted.post(fork + "/finalize", {"select": "longest"}).json()["trajectories"]
    assert says(one) == "b" * 30 and sum(one["response_mask"]) == 31
    heir = f"/sessions/{scripted.post(scripted.path + '/fork', {'train_prefix': True}).json()['session_id']}"
    scripted.say(heir, ask, "b" * 30)
    [one] = scripted.post(heir + "/finalize", {"select": "longest", "require_trained": True}).json()["trajectories"]
    assert says(one) == "a" * 100 and sum(one["response_mask"]) == 101


@pytest.mark.parametrize("option, value", [("train_roles", "main"), ("train_purposes", "main")])
def test_the_longest_of_what_is_trained(scripted, option, value):
    scripted.say(scripted.path, [{"role": "user", "content": "help"}], "b" * 100, headers={"rollgate-label": "helper"})
    none = scripted.get(f"{scripted.path}/trajectories?require_trained=on&{option}={value}")
    assert none.status == 422 and "require_trained" in none.json()["error"]["message"], none.text
    scripted.say(scripted.path, [{"role": "user", "content": "work"}], "a" * 30)
    [longest] = native(scripted, "&select=longest")["trajectories"]
    assert says(longest) == "b" * 100
    [one] = scripted.post(scripted.path + "/finalize",
                          {"select": "longest", option: value, "require_trained": True}).json()["trajectories"]
    assert says(one) == "a" * 30 and sum(one["response_mask"]) == 31


def test_msgpack(session):
    want, got = native(session), read_msgpack(get(session, "msgpack"))
    for t in want["trajectories"]:
        t["response_logprobs"] = f32(t["response_logprobs"])
    assert got == want


def test_msgpack_has_all_its_integers(start):
    gateway = start(workers=1, engine="builtin:echo")
    gateway.path = f"/sessions/{gateway.post('/sessions').json()['session_id']}"
    assert gateway.post(gateway.path + "/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}).status == 200
    info = {"reward": 1, "least": -2 ** 63, "signed": 2 ** 63 - 1, "hash": 2 ** 63 + 1, "most": 2 ** 64 - 1}
    assert gateway.post(gateway.path + "/reward_info", {"reward_info": info}).status == 200
    packed = read_msgpack(get(gateway, "msgpack"))["trajectories"][0]["reward_info"]
    assert packed == info and all(isinstance(v, int) for v in packed.values())


def test_safetensors(session):
    want = native(session)
    tensors, meta = read_safetensors(get(session, "safetensors"))
    rows = json.loads(meta["trajectories"])
    assert json.loads(meta["summary"]) == want["summary"]
    for i, (t, row) in enumerate(zip(want["trajectories"], rows, strict=True)):
        for name, kind in (("prompt_ids", "I64"), ("response_ids", "I64"), ("response_mask", "U8"), ("response_versions", "I64")):
            assert tensors[f"{name}.{i}"] == (kind, [len(t[name])], t[name])
        assert tensors[f"response_logprobs.{i}"] == ("F32", [len(t["response_ids"])], f32(t["response_logprobs"]))
        assert {k: v for k, v in t.items() if k in row} == row


def test_verl(session):
    want = native(session)["trajectories"]
    tensors, meta = read_safetensors(get(session, "verl", "&uid=a_b&session_index=3&global_steps=12"))
    keys, tags = json.loads(meta["keys"]), json.loads(meta["tags"])
    assert keys == ["a-b_3_0", "a-b_3_1", "a-b_3_2"]
    for i, t in enumerate(want):
        p, r = t["prompt_ids"], t["response_ids"]
        full, n = p + r, len(r)
        assert tensors[f"prompts.{i}"] == ("I64", [len(p)], p)
        assert tensors[f"responses.{i}"] == ("I64", [n], r)
        assert tensors[f"input_ids.{i}"] == ("I64", [len(full)], full)
        assert tensors[f"attention_mask.{i}"] == ("I64", [len(full)], [1] * len(full))
        assert tensors[f"position_ids.{i}"] == ("I64", [len(full)], list(range(len(full))))
        assert tensors[f"response_mask.{i}"] == tensors[f"loss_mask.{i}"] == ("I64", [n], t["response_mask"])
        assert tensors[f"rollout_log_probs.{i}"] == ("F32", [n], f32(t["response_logprobs"]))
        assert tensors[f"rm_scores.{i}"] == ("F32", [n], [0.0] * (n - 1) + [0.25])
        assert tags[i]["seq_len"] == len(full) and tags[i]["global_steps"] == 12 and tags[i]["status"] == "success"
        assert tags[i]["max_global_steps"] == t["extra_fields"]["max_global_steps"]


def check_miles(data, want):
    tensors, meta = read_safetensors(data)
    assert not meta
    info = json.loads(bytes(tensors.pop("_samples_meta")[2]))
    assert info["empty_reason"] is None and len(info["samples"]) == len(want)
    for i, (t, s) in enumerate(zip(want, info["samples"])):
        n = len(t["response_ids"])
        full = t["prompt_ids"] + t["response_ids"]
        assert tensors.pop(f"tokens.{i}") == ("I64", [len(full)], full)
        assert tensors.pop(f"loss_mask.{i}") == ("U8", [n], t["response_mask"])
        assert tensors.pop(f"rollout_log_probs.{i}") == ("F64", [n], f32(t["response_logprobs"]))
        assert s["response_length"] == n and s["status"] == "completed" and s["reward"] == 0.25
        begins = t["messages"][-1]["content"][:1] if len(t["turns"]) == 1 else "zwei"
        assert "rollout_routed_experts" in s["nulls"] and s["response"].startswith(begins)
    assert not tensors
    assert info["session_metadata"]["accumulated_token_ids"] == want[-1]["prompt_ids"] + want[-1]["response_ids"]


def test_miles(session):
    check_miles(get(session, "miles"), native(session)["trajectories"])


def test_samples(session):
    a = session.post(session.path + "/samples", {"metadata": {"reward": 0.25}})
    assert a.status == 200 and a.headers["content-type"] == "application/octet-stream"
    tensors, _ = read_safetensors(a.body)
    info = json.loads(bytes(tensors["_samples_meta"][2]))
    assert len(info["samples"]) == 2 and all(s["metadata"]["reward"] == 0.25 for s in info["samples"])


def test_areal(session):
    want = native(session)["trajectories"]
    tensors, _ = read_safetensors(get(session, "areal"))
    for i, t in enumerate(want):
        p = len(t["prompt_ids"])
        full = t["prompt_ids"] + t["response_ids"]
        shape = [1, len(full)]
        assert tensors[f"input_ids.{i}"] == ("I64", shape, full)
        assert tensors[f"loss_mask.{i}"] == ("I32", shape, [0] * p + t["response_mask"])
        assert tensors[f"logprobs.{i}"] == ("F32", shape, [0.0] * p + f32(t["response_logprobs"]))
        assert tensors[f"versions.{i}"] == ("I32", shape, [-1] * p + t["response_versions"])
        assert tensors[f"attention_mask.{i}"] == ("BOOL", shape, [1] * len(full))
        assert tensors[f"rewards.{i}"] == ("F32", [1], [0.25])


def test_slime(session):
    want = native(session)["trajectories"]
    got = json.loads(get(session, "slime"))["samples"]
    for t, s in zip(want, got, strict=True):
        assert s["tokens"] == t["prompt_ids"] + t["response_ids"]
        assert s["response_length"] == len(t["response_ids"]) and s["loss_mask"] == t["response_mask"]
        assert s["rollout_log_probs"] == t["response_logprobs"] and s["reward"] == 0.25
        assert s["metadata"]["turns"] == t["turns"]
        # what slime's reward models, replay and staleness read
        words = re.sub(r"<\|[a-z_]+\|>", "", s["response"])
        assert words.encode() == bytes(i for i in t["response_ids"] if i < 256) and words
        assert s["weight_versions"] == [turn["weight_versions"][0]["version"] for turn in t["turns"]]
        starts = [len(t["prompt_ids"]) + turn["start"] for turn in t["turns"]]
        assert s["prefix_cache_info"]["total_prompt_tokens"] == sum(starts)
        assert s["prefix_cache_info"]["cached_tokens"] == sum(turn["reused_tokens"] for turn in t["turns"])
        assert s["rollout_routed_experts"] == t["routed_experts"]


def test_prime_rl(session):
    want = native(session)["trajectories"]
    got = json.loads(get(session, "prime-rl"))["samples"]
    for t, s in zip(want, got, strict=True):
        p = len(t["prompt_ids"])
        assert s["token_ids"] == t["prompt_ids"] + t["response_ids"]
        assert s["mask"] == [False] * p + [bool(m) for m in t["response_mask"]]
        assert s["logprobs"] == [0.0] * p + t["response_logprobs"]
        assert len(s["temperatures"]) == len(s["token_ids"])
    last = got[0]["temperatures"]
    assert last[-1] == 0.5 and last[0] == 1.0


def test_openai_messages(session):
    lines = get(session, "openai-messages").decode().strip().split("\n")
    want = native(session)["trajectories"]
    plain = [[{k: v for k, v in m.items() if k != "generated"} for m in t["messages"]] for t in want]
    assert [json.loads(x)["messages"] for x in lines] == plain


def test_finalize_is_idempotent_and_accept_chooses(session):
    first = session.post(session.path + "/finalize", {})
    again = session.post(session.path + "/finalize", {})
    assert first.status == again.status == 200
    assert first.json() == again.json()
    packed = session.get(session.path + "/trajectories", headers={"accept": "application/msgpack"}).body
    assert read_msgpack(packed)["phase"] == "finalized"
    weighed = "application/json;q=0.2, application/msgpack;q=0.8, application/safetensors;q=0.5"
    assert read_msgpack(session.get(session.path + "/trajectories", headers={"accept": weighed}).body)["phase"] == "finalized"
    gone = session.post(session.path + "/v1/chat/completions", {"model": "m", "messages": [{"role": "user", "content": "x"}]})
    assert gone.status == 410 and gone.headers["x-should-retry"] == "false"

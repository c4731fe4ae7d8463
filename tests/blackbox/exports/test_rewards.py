"""One rule for the reward of a session in all exports: `reward`, else `score`, else the only number of reward_info.
An unknown reward is null or an absent column, never 0."""
import itertools
import json

import pytest

from export_readers import f32, read_msgpack, read_safetensors

JSON_FORMATS = ("slime", "prime-rl")
SCALAR_FORMATS = ("verl", "miles", "areal", *JSON_FORMATS)

CASES = [({"reward": 0.5, "score": 2, "acc": 1}, 0.5), ({"score": 1}, 1.0), ({"score": 1, "acc": 3}, 1.0), ({"acc": -2}, -2.0),
         ({"reward": None, "score": 0.25}, 0.25), ({"acc": 1, "finished": True, "why": "x", "n": {"m": 1}}, 1.0), ({"reward": 0}, 0.0),
         ({"acc": 1, "n": 2}, None), ({"reward": None}, None), ({}, None), ({"why": "x", "ok": True}, None)]


@pytest.fixture
def gateway(start):
    return start(engine="builtin:echo", workers=1)


def new(gateway, info=None):
    s = gateway.post("/sessions").json()
    s["path"] = f"/sessions/{s['session_id']}"
    assert gateway.chat(s, "q").status == 200
    if info is not None:
        a = gateway.post(s["path"] + "/reward_info", {"reward_info": info})
        assert a.status == 200, a.text
    return s


def export(gateway, s, fmt, query=""):
    a = gateway.get(f"{s['path']}/trajectories?format={fmt}{query}")
    assert a.status == 200, (fmt, a.text)
    return a.body


def summary_of(meta):
    return json.loads(meta["summary"])


@pytest.mark.parametrize("info,reward", CASES)
def test_every_format_gives_the_same_reward(gateway, info, reward):
    s = new(gateway, info)
    whole = json.loads(export(gateway, s, "json"))
    t = whole["trajectories"][0]
    n = len(t["response_ids"])
    assert t["reward"] == reward and t["reward_info"] == info and whole["summary"]["reward"] == reward
    assert read_msgpack(export(gateway, s, "msgpack"))["trajectories"][0]["reward"] == reward
    _, meta = read_safetensors(export(gateway, s, "safetensors"))
    assert json.loads(meta["trajectories"])[0]["reward"] == reward
    for fmt in JSON_FORMATS:
        got = json.loads(export(gateway, s, fmt))
        assert got["samples"][0]["reward"] == reward
        assert bool(got["summary"]["warnings"]) == (reward is None)
    tensors, meta = read_safetensors(export(gateway, s, "verl"))
    assert json.loads(meta["rows"])[0]["reward_score"] == reward
    want = None if reward is None else ("F32", [n], [0.0] * (n - 1) + f32([reward]))
    assert tensors.get("rm_scores.0") == want and bool(summary_of(meta)["warnings"]) == (reward is None)
    tensors, meta = read_safetensors(export(gateway, s, "areal"))
    assert tensors.get("rewards.0") == (None if reward is None else ("F32", [1], f32([reward])))
    assert any("reward" in w for w in summary_of(meta)["warnings"]) == (reward is None)
    tensors, _ = read_safetensors(export(gateway, s, "miles"))
    samples = json.loads(bytes(tensors["_samples_meta"][2]))
    assert samples["samples"][0]["reward"] == reward
    assert ("warnings" in samples["session_metadata"]) == (reward is None)
    row = next(x for x in gateway.get("/sessions").json()["sessions"] if x["session_id"] == s["session_id"])
    assert row["reward"] == reward and row["reward_info"] == info
    assert gateway.get(s["path"]).json()["reward"] == reward


def test_the_newest_write_wins_per_key(gateway):
    s = new(gateway, {"score": 1})
    for info, reward in (({"reward": 3}, 3.0), ({"reward": None}, 1.0), ({"score": None}, None), ({"acc": 7}, 7.0)):
        assert gateway.post(s["path"] + "/reward_info", {"reward_info": info}).status == 200
        assert gateway.get(s["path"]).json()["reward"] == reward


# --- the same answer twice ---

SEEDS = itertools.count(1)


def ask(gateway, s, *texts):
    """One call whose messages alternate between user and assistant: the response's id, what it says."""
    messages = [{"role": "assistant" if i % 2 else "user", "content": text} for i, text in enumerate(texts)]
    a = gateway.chat(s, messages, seed=next(SEEDS))     # no retry of another
    assert a.status == 200, a.text
    return a.json()["id"], a.json()["choices"][0]["message"]["content"]


def give(gateway, s, response, **info):
    a = gateway.post(s["path"] + "/reward_info", {"reward_info": info, "response_id": response})
    assert a.status == 200, a.text


def rewards_of(gateway, s, body=None):
    """By response id: what exports and state tell of the turns' rewards."""
    whole = body or json.loads(export(gateway, s, "json"))
    turns = {x["response_id"]: x["reward"] for t in whole["trajectories"] for x in t["turns"] if "reward" in x}
    named = {k: v for t in whole["trajectories"] for k, v in t["turn_rewards"].items()}
    packed = read_msgpack(export(gateway, s, "msgpack"))["trajectories"]
    assert turns == named == {k: v for t in packed for k, v in t["turn_rewards"].items()}
    assert gateway.get(s["path"]).json()["turn_rewards"] == turns
    return turns


@pytest.mark.parametrize("kept", [False, True], ids=["the new one stands", "the old one stands"])
def test_a_reward_of_the_same_answer_under_either_id(gateway, kept):
    """Before the second answer and behind it; across a restart, in a fork and in a copy of the session."""
    s = gateway.post("/sessions").json()
    s["path"] = f"/sessions/{s['session_id']}"
    first, said = ask(gateway, s, "q")
    if kept:        # others stand on it: it stays
        ask(gateway, s, "q", said, "more")
    give(gateway, s, first, reward=1, by="first", early=True)
    want = {"reward": 1, "by": "first", "early": True}
    second, again = ask(gateway, s, "q")
    third, _ = ask(gateway, s, "q")
    assert said == again and len({first, second, third}) == 3
    assert gateway.get(s["path"]).json()["forks_by_cause"]["same_answer"] == 2
    shown = first if kept else third
    assert rewards_of(gateway, s) == {shown: want}
    for i, response in enumerate((second, third, first, second)):
        give(gateway, s, response, reward=2 + i, by=response)
        want |= {"reward": 2 + i, "by": response}
        assert rewards_of(gateway, s) == {shown: want}
    assert gateway.stop() == 0
    gateway.start()     # it is read back from the journal
    assert rewards_of(gateway, s) == {shown: want}
    give(gateway, s, second, late=True)
    want["late"] = True
    a = gateway.post("/sessions/import", gateway.get(s["path"] + "/snapshot").json())
    assert a.status == 200, a.text
    copy = {**a.json(), "path": f"/sessions/{a.json()['session_id']}"}
    assert rewards_of(gateway, copy) == {shown: want}
    give(gateway, copy, first, of="the copy")
    assert rewards_of(gateway, copy) == {shown: {**want, "of": "the copy"}}
    a = gateway.post(s["path"] + "/fork", {"response_id": shown})
    fork = {**a.json(), "path": f"/sessions/{a.json()['session_id']}"}
    assert rewards_of(gateway, fork) == {}
    give(gateway, fork, first, reward=9)
    assert rewards_of(gateway, fork) == {shown: {"reward": 9}}
    done = gateway.post(s["path"] + "/finalize", {}).json()
    assert rewards_of(gateway, s, done) == {shown: want}


def test_a_reward_of_the_same_answer_has_one_room(gateway):
    """What was posted under the one id counts where more comes under the other."""
    s = gateway.post("/sessions").json()
    s["path"] = f"/sessions/{s['session_id']}"
    first, _ = ask(gateway, s, "q")
    give(gateway, s, first, **{f"k{i}": 0 for i in range(16384)})
    second, _ = ask(gateway, s, "q")
    give(gateway, s, second, k7=1)
    a = gateway.post(s["path"] + "/reward_info", {"reward_info": {"more": 1}, "response_id": second})
    assert a.status == 400 and a.json()["error"]["param"] == "reward_info", a.text


@pytest.mark.parametrize("text,field", [('{"reward":"1"}', "reward"), ('{"reward":true}', "reward"), ('{"score":"0.5"}', "score"),
                                        ('{"reward":[1]}', "reward"), ('{"reward":{}}', "reward"), ('{"reward":1e999}', "reward"),
                                        ('{"score":-1e39}', "score"), ('{"acc":1e400}', "acc"), ('{"reward":1,"score":"x"}', "score")])
def test_what_is_no_number_is_refused_when_it_is_posted(gateway, text, field):
    s = new(gateway)
    turn = gateway.chat(s, "other").json()["id"]
    for path, body in (("/reward_info", '{"reward_info":%s}'), ("/complete", '{"reward_info":%s}'),
                       ("/reward_info", '{"reward_info":%s,"response_id":"' + turn + '"}')):
        a = gateway.request("POST", s["path"] + path, (body % text).encode(), headers={"content-type": "application/json"})
        assert a.status == 400 and a.json()["error"]["param"] == f"reward_info.{field}", (path, a.text)
        assert not text.endswith(("9}", "0}")) or f"+38, not {text[text.index(':') + 1:-1]}" in a.text
    state = gateway.get(s["path"]).json()
    assert state["phase"] == "open" and state["reward_info"] == {} and state["turn_rewards"] == {}


def test_nan_is_no_json(gateway):
    s = new(gateway)
    a = gateway.request("POST", s["path"] + "/reward_info", b'{"reward_info":{"reward":NaN}}', headers={"content-type": "application/json"})
    assert a.status == 400 and gateway.get(s["path"]).json()["reward_info"] == {}


def test_the_metadata_of_samples(gateway):
    s = new(gateway, {"score": 2})

    def samples(body):
        a = gateway.post(s["path"] + "/samples", body)
        return a, json.loads(bytes(read_safetensors(a.body)[0]["_samples_meta"][2])) if a.status == 200 else None
    for given, reward in (({"reward": 0.75}, 0.75), ({"reward": None}, 2.0), ({}, 2.0)):
        a, got = samples({"metadata": given})
        assert a.status == 200 and got["samples"][0]["reward"] == reward
    for bad in ("1", True, [1]):
        a, _ = samples({"metadata": {"reward": bad}})
        assert a.status == 400 and a.json()["error"]["param"] == "metadata.reward"


def test_a_reward_can_be_required(gateway):
    """Before the session closes: the reward may still be posted."""
    s = new(gateway, {"acc": 1, "n": 2})
    for fmt in ("json", *SCALAR_FORMATS):
        a = gateway.post(s["path"] + "/finalize", {"format": fmt, "require_reward": True})
        assert a.status == 422 and a.json()["error"]["code"] == "reward_missing", a.text
        assert gateway.get(f"{s['path']}/trajectories?format={fmt}&require_reward=on").status == 422
    assert gateway.post(s["path"] + "/finalize", {"require_reward": "maybe"}).json()["error"]["param"] == "require_reward"
    assert gateway.get(s["path"]).json()["phase"] == "open"
    assert gateway.post(s["path"] + "/reward_info", {"reward_info": {"score": 0}}).status == 200
    a = gateway.post(s["path"] + "/finalize", {"format": "slime", "require_reward": True})
    assert a.status == 200 and a.json()["samples"][0]["reward"] == 0.0 and a.json()["summary"]["warnings"] == []


def test_a_missing_reward_is_a_line_in_the_log(gateway):
    s = new(gateway)
    export(gateway, s, "json")
    assert not gateway.has_line("holds no reward")
    export(gateway, s, "verl")
    assert gateway.has_line(f"holds no reward.*{s['session_id']}|{s['session_id']}.*holds no reward")


def test_a_reward_survives_a_restart(start, tmp_path):
    state = str(tmp_path / "state")
    gateway = start(engine="builtin:echo", workers=1, state_dir=state)
    s = new(gateway, {"score": 0.5})
    gateway.stop()
    gateway = start(engine="builtin:echo", workers=1, state_dir=state)
    assert gateway.get("/sessions").json()["sessions"][0]["reward"] == 0.5
    assert json.loads(export(gateway, s, "slime"))["samples"][0]["reward"] == 0.5


def test_verl_finds_metrics_where_it_looks(gateway):
    """DAPO filters and validation read extra_fields["reward_extra_info"]; uni-agent reads the column."""
    s = new(gateway, {"reward": 0.5, "acc": 1, "finished": False, "note": "x"})
    _, meta = read_safetensors(export(gateway, s, "verl"))
    row = json.loads(meta["rows"])[0]
    assert row["reward_extra_info"] == row["extra_fields"]["reward_extra_info"] == {"acc": 1, "note": "x"}
    assert "reward_extra_info" not in json.loads(meta["native"])[0]["extra_fields"]


def test_steps_fall_back_to_the_batch(gateway):
    """Without versions a row is of the step it was asked for in, not of step -1."""
    s = new(gateway, {"reward": 1})
    for query, steps in (("&global_steps=12", 12), ("", -1)):
        _, meta = read_safetensors(export(gateway, s, "verl", query))
        (tag,), (row,) = json.loads(meta["tags"]), json.loads(meta["rows"])
        if "min_global_steps" in json.loads(meta["native"])[0]["extra_fields"]:
            pytest.skip("the engine tells versions")
        for at in (tag, row, *([row["extra_fields"]] if steps >= 0 else [])):
            assert (at["min_global_steps"], at["max_global_steps"]) == (steps, steps)
        assert ("min_global_steps" in row["extra_fields"]) == (steps >= 0)


def test_what_names_no_row_is_told(gateway):
    """A uid that is not used groups no rows; a step that is not used makes them stale."""
    for metadata, query, told in (({"uid": ["a"], "global_steps": "12"}, "", ["metadata.uid", "metadata.global_steps"]),
                                  ({"uid": "", "global_steps": 1.5}, "", ["metadata.uid", "metadata.global_steps"]),
                                  ({"uid": {}, "global_steps": True}, "&uid=a&global_steps=3", []),
                                  ({"uid": 7, "global_steps": -1}, "", []), ({"uid": None, "global_steps": None}, "", [])):
        s = gateway.post("/sessions", {"metadata": metadata}).json()
        s["path"] = f"/sessions/{s['session_id']}"
        assert gateway.chat(s, "q").status == 200
        warnings = json.loads(export(gateway, s, "json", query))["summary"]["warnings"]
        assert [w.split()[0] for w in warnings if "metadata" in w] == told, warnings


def test_half_a_character_spoils_no_file(gateway):
    """JSON can hold a lone surrogate, which no UTF-8 can: a reader of msgpack would lose the whole session."""
    s = gateway.request("POST", "/sessions", b'{"metadata": {"uid": "u\\ud800"}}', headers={"content-type": "application/json"}).json()
    s["path"] = f"/sessions/{s['session_id']}"
    assert gateway.chat(s, "q").status == 200
    body = b'{"reward_info": {"why \\udfff": "\\ud83d\\ude00 \\ud83d", "acc": 1}}'
    assert gateway.request("POST", s["path"] + "/reward_info", body, headers={"content-type": "application/json"}).status == 200
    (packed,), (native,) = (read_msgpack(export(gateway, s, "msgpack"))["trajectories"], json.loads(export(gateway, s, "json"))["trajectories"])
    assert packed["uid"] == "u\ufffd" and packed["reward_info"] == {"why \ufffd": "\U0001f600 \ufffd", "acc": 1}
    assert native["uid"] == "u\ud800" and native["reward_info"] == {"why \udfff": "\U0001f600 \ud83d", "acc": 1}

"""One rule for the reward of a session, wherever a trainer meets it: `reward`, else `score`, else the
only number of reward_info; what is unknown is null or an absent column, never 0."""
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

"""A client that extends an answer cut by length, and one that continues after `complete`."""
import json

import pytest

from test_export_cases import said, user

POLICIES = ("tree", "chains", "linear", "timelines")


@pytest.fixture
def gateway(start, tmp_path):
    script = tmp_path / "s.json"
    script.write_text(json.dumps(["abcdefgh", "whole", "more"]))
    return lambda **settings: start(engine=f"builtin:script:{script}", workers=1, **settings)


def cut(gateway, **options):
    """A session whose first answer was cut behind "abc"."""
    s = gateway.post("/sessions", options).json()
    first = gateway.chat(s, "q", max_tokens=3).json()["choices"][0]
    assert first["message"]["content"] == "abc" and first["finish_reason"] == "length"
    return s


def extend(gateway, s):
    return gateway.chat(s, [user("q"), said("abc"), user("go on")])


def export(gateway, s):
    a = gateway.get(f"/sessions/{s['session_id']}/trajectories")
    assert a.status == 200, a.text
    return a.json()


def text_of(ids):
    return bytes(i for i in ids if i < 256).decode()


def runs(t):
    """The sampled parts of the response."""
    out, start = [], None
    for k, m in enumerate([*t["response_mask"], 0]):
        if m and start is None:
            start = k
        elif not m and start is not None:
            out.append(text_of(t["response_ids"][start:k]))
            start = None
    return out


def refused(a):
    assert a.status == 409 and a.json()["error"]["code"] == "truncated_generation", a.text
    assert a.headers["x-should-retry"] == "false"


@pytest.mark.parametrize("history", POLICIES)
def test_it_goes_on_behind_the_stored_ids(gateway, history):
    """The default: one trajectory; the turn's end is the template's, mask 0; nothing is sampled twice."""
    gw = gateway()
    s = cut(gw, history=history)
    before = export(gw, s)["trajectories"][0]
    assert extend(gw, s).json()["choices"][0]["message"]["content"] == "whole"
    whole = export(gw, s)
    (t,) = whole["trajectories"]
    assert t["prompt_ids"] == before["prompt_ids"] and t["response_ids"][:3] == before["response_ids"] == list(b"abc")
    assert [r.strip() for r in runs(t)] == ["abc", "whole"] and t["turns"][1]["cause"] == "extended"
    assert t["response_mask"][3] == 0 and "go on" in text_of(t["response_ids"])
    assert t["extra_fields"]["drift"]["count"] == 0


@pytest.mark.parametrize("history", ["tree", "timelines"])
@pytest.mark.parametrize("where", ["option", "flag"])
def test_a_branch_before_it(gateway, history, where):
    gw = gateway(**({"on_truncated": "branch"} if where == "flag" else {}))
    s = cut(gw, history=history, **({"on_truncated": "branch"} if where == "option" else {}))
    assert extend(gw, s).status == 200
    assert gw.get(f"/sessions/{s['session_id']}").json()["forks_by_cause"]["truncated_answer"] == 1
    ts = export(gw, s)["trajectories"]
    if history == "tree":
        first, second = ts
        assert runs(first) == ["abc"] and len(first["turns"]) == 1
    else:
        (second,) = ts      # merged: the cut answer's ids stand where the client's copy was
    assert second["turns"][-1]["cause"] == "truncated_answer" and runs(second)[-1].strip() == "whole"
    assert text_of(second["prompt_ids"] + second["response_ids"]).count("abc") == 1


def test_a_branch_keeps_what_stands_before_the_cut(gateway):
    """Two cut answers in a row: the branch stands on the last whole one."""
    gw = gateway()
    s = gw.post("/sessions", {"on_truncated": "branch"}).json()
    assert gw.chat(s, "p").json()["choices"][0]["message"]["content"] == "abcdefgh"
    head = [user("p"), said("abcdefgh"), user("q")]
    assert gw.chat(s, head, max_tokens=2).json()["choices"][0]["message"]["content"] == "wh"
    assert gw.chat(s, [*head, said("wh"), user("r")]).status == 200
    ts = export(gw, s)["trajectories"]
    assert [[r.strip() for r in runs(t)] for t in ts] == [["abcdefgh", "wh"], ["abcdefgh", "more"]]
    assert ts[0]["response_ids"][:9] == ts[1]["response_ids"][:9]


@pytest.mark.parametrize("history", POLICIES)
def test_refused_when_asked_for(gateway, history):
    gw = gateway()
    s = cut(gw, history=history, on_truncated="refuse")
    refused(extend(gw, s))
    assert gw.get(f"/sessions/{s['session_id']}").json()["num_inflight_generations"] == 0
    assert gw.chat(s, "q").status == 200 or history == "linear"


def test_who_decides(gateway):
    """The session, else the flag; a tree that matches `strict` keeps to the strict rule by itself."""
    gw = gateway(on_truncated="refuse")
    refused(extend(gw, cut(gw)))
    assert extend(gw, cut(gw, on_truncated="continue")).status == 200
    gw = gateway()
    refused(extend(gw, cut(gw, message_matcher="strict")))
    assert extend(gw, cut(gw, message_matcher="strict", on_truncated="continue")).status == 200
    assert extend(gw, cut(gw, message_matcher="strict", history="linear")).status == 200
    gw = gateway(on_truncated="branch")
    assert extend(gw, cut(gw, history="chains")).status == 200      # it has one path: goes on


def test_bad_options(gateway):
    gw = gateway()
    for options, field in (({"on_truncated": "maybe"}, "on_truncated"), ({"on_truncated": True}, "on_truncated"),
                           ({"on_truncated": "branch", "history": "linear"}, "on_truncated"),
                           ({"on_truncated": "branch", "history": "chains"}, "on_truncated"), ({"after_complete": "no"}, "after_complete")):
        a = gw.post("/sessions", options)
        assert a.status == 400 and a.json()["error"]["param"] == field, a.text


def test_the_decision_survives_a_restart(gateway, tmp_path):
    gw = gateway(state_dir=str(tmp_path / "state"))
    s, other = cut(gw, on_truncated="refuse", after_complete="refuse"), cut(gw)
    gw.stop()
    gw = gateway(state_dir=str(tmp_path / "state"), on_truncated="branch", after_complete="serve")
    refused(extend(gw, s))
    assert extend(gw, other).status == 200
    assert len(export(gw, other)["trajectories"]) == 1      # it was made when `continue` was the rule
    assert gw.post(f"/sessions/{s['session_id']}/complete").status == 200
    assert gw.chat(s, "q").status == 410


@pytest.mark.parametrize("where", ["option", "flag"])
def test_no_call_after_complete(gateway, where):
    gw = gateway(**({"after_complete": "refuse"} if where == "flag" else {}))
    s = gw.post("/sessions", {"after_complete": "refuse"} if where == "option" else {}).json()
    path = f"/sessions/{s['session_id']}"
    assert gw.chat(s, "q").status == 200
    assert gw.post(path + "/complete", {"reward_info": {"reward": 1}}).status == 200
    for a in (gw.chat(s, "q"), gw.chat(s, [user("q"), said("abcdefgh"), user("r")]),
              gw.post(path + "/v1/messages", {"model": "m", "max_tokens": 9, "messages": [user("x")]})):
        assert a.status == 410 and a.headers["x-should-retry"] == "false", a.text
    assert gw.chat(s, "q").json()["error"]["code"] == "session_ended"
    assert gw.get(path).json()["num_calls"] == 1 and gw.get(path).json()["phase"] == "completed"
    assert gw.post(path + "/reward_info", {"reward_info": {"reward": 2}}).status == 200     # a scorer may be late
    assert gw.post(path + "/finalize").json()["trajectories"][0]["reward"] == 2


def test_a_call_after_complete_is_told_so(gateway):
    """The default: answered, recorded and exported, with a header that says that the session was completed."""
    gw = gateway()
    s = gw.post("/sessions").json()
    path = f"/sessions/{s['session_id']}"
    assert "Rollgate-Session-Phase" not in gw.chat(s, "q").headers
    assert gw.post(path + "/complete").status == 200
    late = gw.chat(s, "other")
    assert late.status == 200 and late.headers["Rollgate-Session-Phase"] == "completed"
    streamed = gw.chat(s, "third", stream=True)
    assert streamed.status == 200 and streamed.headers["Rollgate-Session-Phase"] == "completed"
    assert len(export(gw, s)["trajectories"]) == 3


def test_a_retry_after_complete_gets_its_answer(gateway):
    """What was answered before is no new call."""
    gw = gateway(after_complete="refuse")
    s = gw.post("/sessions").json()
    key = {"Idempotency-Key": "k1"}
    body = {"model": "m", "messages": [user("q")]}
    first = gw.post(f"/sessions/{s['session_id']}/v1/chat/completions", body, headers=key)
    assert gw.post(f"/sessions/{s['session_id']}/complete").status == 200
    again = gw.post(f"/sessions/{s['session_id']}/v1/chat/completions", body, headers=key)
    assert again.status == 200 and again.json() == first.json() and again.headers["Rollgate-Replayed"] == "1"

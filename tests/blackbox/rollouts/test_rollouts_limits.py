"""Groups that are refused at submission, so that none of their attempts is: the sum of their options in a session,
and rewards that trainers cannot get."""
import json
import time

import pytest

from rollouts_kit import chat
from test_rollouts import claim, end, submit, wait_group


def many(n, first=0):
    return {f"k{i:07}": 0 for i in range(first, first + n)}


@pytest.mark.parametrize("group, field, limit", [
    ({"metadata": many(9000), "session": {"metadata": many(9000, 9000)}}, "metadata", "18000 are too many; at most 16384"),
    ({"metadata": many(16384), "n": 2, "members": [{}, {"metadata": {"more": 1}}]}, "metadata", "16385 are too many; at most 16384"),
    ({"labels": {"a": "x" * (200 << 10)}, "session": {"labels": {"b": "y" * (60 << 10)}}}, "labels", "at most 262144"),
    ({"session": {"sampling_params": {"stop": ["x" * (200 << 10)]}}, "members": [{"sampling_params": {"stop_token_ids": [100000] * 9000}}]},
     "session.sampling_params", "at most 262144"),
    ({"metadata": {"a": "x" * (200 << 10)}, "session": {"metadata": {"b": "y" * (100 << 10)}}}, "metadata", "--max-metadata-bytes allows 262144"),
    ({"metadata": {"a": "x" * (200 << 10)}, "n": 2, "members": [{}, {"metadata": {"b": "y" * (100 << 10)}}]}, "metadata",
     "--max-metadata-bytes allows 262144"),
])
def test_what_a_session_would_refuse_together_is_refused_at_submission(start, group, field, limit):
    """Each part is within the limits; the session of an attempt would have all of them."""
    gateway = start(workers=1)
    for body, where in (group, ""), ({"defaults": {"runner": "r"}, "groups": [{"id": "ok"}, {"id": "bad", **group}]}, "groups[1]."):
        answer = gateway.post("/groups", {"id": "bad", "runner": "r", **body} if where == "" else body)
        assert answer.status == 400, answer.text[:300]
        error = answer.json()["error"]
        assert error["param"] == where + field and limit in error["message"] and where + field in error["message"], error
    assert gateway.get("/groups").json()["groups"] == []


def test_what_a_session_takes_together_is_taken_at_submission(start):
    """Names that stand in several places count once."""
    gateway = start(workers=1)
    submit(gateway, id="g", runner="r", metadata=many(16384), session={"metadata": many(16384)}, n=2, reward="external",
           members=[{}, {"metadata": many(9000)}])
    submit(gateway, id="l", runner="r", labels={"a": "x" * (200 << 10)}, session={"labels": {"a": "y" * (200 << 10)}}, reward="external")
    attempts = claim(gateway, r=3)
    assert sorted((a["group"], a["rollout"]) for a in attempts) == [("g", 0), ("g", 1), ("l", 0)]


def test_names_in_two_places_are_merged_once(start):
    """Not once for each member and group: the dispatcher serves nobody meanwhile. Names that stand in one place alone are how
    long the rest of it takes."""
    gateway = start(workers=1)
    took = {}
    for where in {"metadata": many(9000)}, {"metadata": many(9000), "session": {"metadata": many(9000)}}:
        defaults = {"runner": "r", "n": 1024, "members": [{"metadata": {"own": i}} for i in range(1024)], **where}
        groups = [{"id": f"{len(where)}-{i}"} for i in range(3)]
        start_s = time.monotonic()
        answer = gateway.post("/groups", {"defaults": defaults, "groups": groups}, timeout=120)
        took[len(where)] = time.monotonic() - start_s
        assert answer.status == 201, answer.text[:300]
    assert took[2] < 5 * took[1] + 1, took


@pytest.mark.parametrize("over", [0, 1])
def test_a_session_takes_what_was_taken_at_submission_to_the_byte(start, over):
    """The gateway adds a label of its own to each session, which counts."""
    gateway = start(workers=1)
    own = json.dumps({"attempt": "0" * 32}, separators=(",", ":"))
    rest = len(own) + len('"g"' "11" "12" "true" "true" "false" '{"stop":[""]}')
    group = {"id": "g", "runner": "r", "n": 12, "reward": "external", "members": [{}] * 10}
    group["session"] = {"sampling_params": {"stop": ["x" * ((256 << 10) - rest + over)]}}
    answer = gateway.post("/groups", group)
    assert answer.status == (400 if over else 201), answer.text[:300]
    assert len(claim(gateway, wait_s=0 if over else 20, r=12)) == (0 if over else 12)


def test_the_nearest_part_counts_in_a_session(start):
    """Metadata: the member's, the session's, the group's; labels: the group's, the session's."""
    gateway = start(workers=1)
    submit(gateway, id="g", runner="r", metadata={"a": "group", "b": "group", "c": "group"}, labels={"x": "group", "y": "group"},
           session={"metadata": {"b": "session", "c": "session"}, "labels": {"y": "session", "z": "session"}},
           members=[{"metadata": {"c": "member"}}])
    attempt, = claim(gateway, r=1)
    state = gateway.get(f"/sessions/{attempt['session']['session_id']}").json()
    assert state["metadata"] == {"a": "group", "b": "session", "c": "member"}
    assert state["labels"] == {"attempt": attempt["attempt_id"], "x": "group", "y": "group", "z": "session"}


@pytest.mark.parametrize("value", [1e39, -1e39, 3.5e38])
def test_a_fail_reward_is_one_that_trainers_can_be_given(start, value):
    """A float32: the session would refuse it, and the attempt that is to be kept with it fail."""
    gateway = start(workers=1)
    answer = gateway.post("/groups", {"defaults": {"runner": "r"}, "groups": [{"id": "ok"}, {"id": "bad", "fail_reward": value}]})
    assert answer.status == 400, answer.text
    error = answer.json()["error"]
    assert error["param"] == "groups[1].fail_reward" and f"not {json.dumps(value)}" in error["message"], error
    assert "groups[1].fail_reward must be a number from -3.40282e+38 to 3.40282e+38" in error["message"], error
    assert gateway.get("/groups").json()["groups"] == []
    submit(gateway, id="most", runner="r", fail_reward=-3.4e38)


def test_a_group_that_is_there_is_no_matter_of_todays_limits(start):
    """It was taken by an older program, or with larger limits: who repeats it hears that it is there."""
    gateway = start(workers=1)
    group = {"id": "g", "runner": "r", "metadata": {"a": "x" * 40000}, "session": {"metadata": {"b": "y" * 40000}}}
    submit(gateway, **group)
    gateway.stop()
    gateway.settings["max-control-body-bytes"] = "64KiB"
    gateway.start()
    for answer in gateway.request("PUT", "/groups/g", group), gateway.post("/groups", {"groups": [group]}):
        assert answer.status == 200, answer.text[:300]
    assert gateway.request("PUT", "/groups/g", {**group, "n": 2}).status == 400
    assert gateway.request("PUT", "/groups/other", {**group, "id": "other"}).status == 400


LIMIT = 64 << 10


def end_of_size(gateway, attempt, n, **info):
    """Told with a reward_info that makes the body n bytes long."""
    def text(why):
        return json.dumps({"outcome": "ok", "exit": 0, "log": "/no/where", "reward_info": {**info, "why": why}})
    return gateway.request("POST", f"/attempts/{attempt['attempt_id']}/end", text("x" * (n - len(text("")))),
                           headers={"Content-Type": "application/json"})


def test_an_end_is_held_to_the_limit_of_the_control_plane(start):
    """Its result stays in memory and goes with every answer that tells the group. The attempt runs on: its executor may tell less."""
    gateway = start(workers=1, max_control_body_bytes=LIMIT)
    submit(gateway, id="g", runner="r", attempts=1)
    attempt, = claim(gateway, r=1)
    chat(gateway, attempt, "go")
    for n in LIMIT + 1, 4 << 20:
        answer = end_of_size(gateway, attempt, n, reward=1)
        assert answer.status == 413 and answer.json()["error"]["code"] == "body_too_large", answer.text[:300]
        assert f"{n} bytes, of which --max-control-body-bytes allows {LIMIT}" in answer.text, answer.text
    answer = end_of_size(gateway, attempt, LIMIT, reward=1)
    assert (answer.status, answer.json()) == (200, {"rollout": "succeeded"}), answer.text[:300]
    assert len(wait_group(gateway, "g")["members"][0]["reward_info"]["why"]) > LIMIT - 200


def test_a_small_limit_stops_no_renewals(start):
    """A renewal names up to 10,000 attempts, whatever rewards may have; more than that is not read."""
    gateway = start(workers=1, max_control_body_bytes="1KiB")
    submit(gateway, id="g", runner="r")
    attempt, = claim(gateway, r=1)
    ids = [attempt["attempt_id"]] + [f"{i:032x}" for i in range(9999)]
    kill = gateway.post("/attempts/renew", {"executor": "x", "attempts": ids}).json()["kill"]
    assert [k["attempt_id"] for k in kill] == ids[1:], "the one that runs runs on"
    for path in "renew", "claim":
        answer = gateway.post(f"/attempts/{path}", {"executor": "x", "more": "x" * (1 << 20)})
        assert answer.status == 413 and "of which the path allows 524288" in answer.text, answer.text[:300]
    assert end(gateway, attempt, outcome="error", reason="so it was").status == 200

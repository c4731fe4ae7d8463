"""A split of prefill and decode whose halves are configured as engines: every call runs at one of each at the same
time."""
import asyncio
import threading
import types

import pytest

from gateway import wait_until
from stub_engines import StubEngine

USER = [{"role": "user", "content": "hi"}]
END = 257
IDS = [*b"ok", END]
LONE = {"status": 400, "body": {"error": {"message": "Invalid request: Disaggregated request received without bootstrap room id"}}}
FIELDS = ("bootstrap_host", "bootstrap_port", "bootstrap_room")


class Half(StubEngine):
    """One side: it refuses requests without a room. A prefill side answers with the first token alone; a decode side
    begins only when a prefill side has done its part of the same room."""
    met = set()

    def __init__(self, side, **how):
        super().__init__("sglang", info={"disaggregation_mode": side, "disaggregation_bootstrap_port": 9100, "context_length": 4096}, **how)
        self.side = side
        self.early = False      # a prefill side: hands its part over before it answers
        self.otherwise = self.part

    def part(self, body):
        if "bootstrap_room" not in body:
            return LONE
        return {"ids": [7], "finish": "length"} if self.side == "prefill" else {"ids": IDS}

    async def answer(self, writer, route, body, plan):
        room = body.get("bootstrap_room")
        if self.early:
            self.met.add(room)
        while self.side == "decode" and room and room not in self.met and not {"status", "before"} & set(plan):
            await asyncio.sleep(0.002)
        goes_on = await super().answer(writer, route, body, plan)
        if self.side == "prefill" and "status" not in plan and "before" not in plan:
            self.met.add(room)
        return goes_on

    def rooms(self):
        return [r["body"].get("bootstrap_room") for r in self.requests]


@pytest.fixture
def halves():
    with Half("prefill") as prefill, Half("decode") as decode:
        yield prefill, decode


def settled(gateway, n=2):
    """Until the engines have told their settings."""
    wait_until(lambda: gateway.log().count("engine told its settings") >= n, 10, "settings of the engines")


def ask(gateway, sid=None, **more):
    sid = sid or gateway.post("/sessions", {}).json()["session_id"]
    return sid, gateway.post(f"/sessions/{sid}/v1/chat/completions", {"messages": USER, **more})


def trajectory(gateway, sid):
    [one] = gateway.post(f"/sessions/{sid}/finalize", {}).json()["trajectories"]
    return one


def running(gateway):
    return {e["name"]: e["inflight"] for e in gateway.get("/admin/engines").json()["engines"]}


@pytest.mark.parametrize("stream", [False, True])
def test_both_halves_get_the_same_request_and_room(start, halves, stream):
    prefill, decode = halves
    gateway = start(workers=1, engine=[prefill.setting, decode.setting])
    settled(gateway)
    for _ in range(3):
        sid, a = ask(gateway, stream=stream)
        assert a.status == 200, a.text
    assert len(prefill.requests) == len(decode.requests) == 3
    for p, d in zip(prefill.requests, decode.requests):
        assert p["body"] == d["body"]
        assert [p["body"][k] for k in FIELDS[:2]] == ["127.0.0.1", 9100] and "disagg_prefill_dp_rank" not in d["body"]
    rooms = prefill.rooms()
    assert len(set(rooms)) == 3 and all(0 < r < 2 ** 63 for r in rooms)
    assert trajectory(gateway, sid)["response_ids"] == IDS
    assert set(running(gateway).values()) == {0}


def test_they_are_asked_at_once(start, halves):
    """A decode half waits for what the prefill half computes."""
    prefill, decode = halves
    go = threading.Event()
    decode.plan.append({"ids": IDS, "wait": go})
    prefill.plan.append({"ids": [7], "wait": go})
    gateway = start(workers=1, engine=[prefill.setting, decode.setting])
    settled(gateway)
    got = []
    caller = threading.Thread(target=lambda: got.append(ask(gateway)[1].status))
    caller.start()
    wait_until(lambda: prefill.running == decode.running == 1, 10, "both halves have the call")
    assert sorted(running(gateway).values()) == [1, 1]
    go.set()
    caller.join()
    assert got == [200]


@pytest.mark.parametrize("plan", [{"status": 503}, {"before": "close"}])
def test_a_prefill_half_that_fails_is_asked_anew_with_both(start, halves, plan):
    prefill, decode = halves
    prefill.plan.append(plan)
    gateway = start(workers=1, engine=[prefill.setting, decode.setting], engine_retry_5xx="on")
    settled(gateway)
    sid, a = ask(gateway)
    assert a.status == 200, a.text
    assert len(prefill.requests) == len(decode.requests) == 2
    assert prefill.rooms() == decode.rooms() and len(set(prefill.rooms())) == 2
    assert trajectory(gateway, sid)["response_ids"] == IDS


def test_a_client_that_leaves_ends_both(start, halves):
    prefill, decode = halves
    go = threading.Event()
    decode.plan.append({"ids": IDS, "wait": go})
    prefill.plan.append({"ids": [7], "wait": go})
    gateway = start(workers=1, engine=[prefill.setting, decode.setting])
    settled(gateway)
    sid = gateway.post("/sessions", {}).json()["session_id"]
    caller = threading.Thread(target=lambda: ask(gateway, sid))
    caller.start()
    wait_until(lambda: prefill.running == decode.running == 1, 10, "both halves have the call")
    gateway.post(f"/sessions/{sid}/abort", {})
    wait_until(lambda: prefill.aborts and decode.aborts, 10, "aborts at both halves")
    assert prefill.aborts == decode.aborts == [prefill.requests[0]["body"]["rid"]]
    go.set()
    caller.join()
    wait_until(lambda: set(running(gateway).values()) == {0}, 10, "nothing runs")


def test_weights_that_differ_are_told(start, halves):
    prefill, decode = halves
    prefill.plan.append({"ids": [7], "version": "5"})
    decode.plan.append({"ids": IDS, "version": "6", "delay_s": 0.2})
    gateway = start(workers=1, engine=[prefill.setting, decode.setting])
    settled(gateway)
    _, a = ask(gateway)
    assert a.status == 200
    gateway.wait_line("the halves of an answer have different weights")


def test_a_piece_without_a_version_is_not_of_other_weights(start, halves):
    prefill, decode = halves
    prefill.plan.extend([{"ids": [7], "version": "5"}] * 2)
    decode.plan.extend([{"ids": IDS[:1], "finish": "abort", "version": "", "delay_s": 0.2}, {"ids": IDS[1:], "version": "5", "delay_s": 0.2}])
    gateway = start(workers=1, engine=[prefill.setting, decode.setting])
    settled(gateway)
    _, a = ask(gateway)
    assert a.status == 200 and len(decode.requests) == len(prefill.requests) == 2, a.text
    assert gateway.metrics().get("rollgate_mixed_half_answers_total", 0) == 0 and "different weights" not in gateway.log()


def state(gateway, half):
    return next(e for e in gateway.get("/admin/engines").json()["engines"] if e["engine"] == half.setting)["state"]


def test_a_half_without_another_that_is_up_is_no_engine(start, halves):
    for gone, left, part in ((*halves, "prefill"), (*reversed(halves), "decode")):
        gateway = start(workers=1, engine=[half.setting for half in halves], queue_timeout="300ms", engine_health_interval="50ms")
        settled(gateway)
        wait_until(lambda: gateway.get("/health").json()["engine_answers"], 10, "both are up")
        asked = len(left.requests)
        gone.health = 503
        gateway.wait_line("no half of a split is up that does this part")
        assert f"part={part}" in gateway.log() and [state(gateway, gone), state(gateway, left)] == ["down", "unpaired"]
        assert gateway.get("/health").json()["engine_answers"] is False
        _, a = ask(gateway)
        assert a.status == 503, a.text
        assert len(left.requests) == asked
        gone.health = 200
        wait_until(lambda: ask(gateway)[1].status == 200, 10, "it is back")
        gateway.wait_line("both halves of the split are up")
        assert state(gateway, left) == "up"
        assert halves[0].rooms() == halves[1].rooms()
        gateway.stop()


@pytest.mark.parametrize("plan", [{"ids": [7], "cut": "reset"}, {"ids": [7], "finish": "abort"}])
def test_a_prefill_half_that_breaks_off_behind_the_first_token_changes_nothing(start, halves, plan):
    """The decode half has all that it needs by then."""
    prefill, decode = halves
    gone, first = threading.Event(), threading.Event()
    decode.give_up = gone
    decode.plan.append({"ids": IDS, "chunk": 1, "hold_after": 2})
    prefill.plan.append({**plan, "wait": first})
    gateway = start(workers=1, engine=[prefill.setting, decode.setting])
    settled(gateway)
    sid = gateway.post("/sessions", {}).json()["session_id"]
    prefill.early = True
    got = []
    caller = threading.Thread(target=lambda: got.append(ask(gateway, sid, stream=True)[1]))
    caller.start()
    wait_until(lambda: decode.holding == 1, 10, "the decode half tells tokens")
    first.set()
    gateway.wait_line("not needed") if plan.get("cut") else wait_until(lambda: prefill.running == 0, 10, "the prefill half is through")
    decode.give_up = None
    gone.set()
    caller.join()
    assert got[0].status == 200 and not decode.aborts
    assert len(prefill.requests) == len(decode.requests)


def test_an_odd_answer_of_a_prefill_half_is_not_judged(start, halves):
    prefill, decode = halves
    prefill.plan.append({"frame": lambda kind, parts: b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 15\r\n\r\n{\"anything\": 1}"})
    gateway = start(workers=1, engine=[prefill.setting, decode.setting])
    settled(gateway)
    sid, a = ask(gateway)
    assert a.status == 200, a.text
    assert trajectory(gateway, sid)["response_ids"] == IDS


def test_a_decode_half_that_dies_gives_the_prefill_half_up(start, halves):
    prefill, decode = halves
    go = threading.Event()
    prefill.plan.append({"ids": [7], "wait": go})
    decode.plan.append({"before": "reset", "wait": types.SimpleNamespace(is_set=lambda: prefill.running == 1)})
    gateway = start(workers=1, engine=[prefill.setting, decode.setting])
    settled(gateway)
    sid, a = ask(gateway)
    assert a.status == 200, a.text
    wait_until(lambda: prefill.left == 1 and prefill.aborts, 10, "its part is given up")
    assert len(set(prefill.rooms())) == 2 and prefill.rooms() == decode.rooms()
    assert trajectory(gateway, sid)["response_ids"] == IDS
    go.set()


@pytest.mark.parametrize("own", [None, 3])
def test_the_decode_half_is_told_the_rank_of_the_prefill_half(start, own):
    with Half("prefill") as prefill, Half("decode") as decode:
        prefill.info["dp_size"] = 4
        gateway = start(workers=1, engine=[prefill.setting, decode.setting])
        settled(gateway)
        options = {"sampling_params": {"engine_extra": {"routed_dp_rank": own}}} if own else {}
        sid = gateway.post("/sessions", options).json()["session_id"]
        assert ask(gateway, sid)[1].status == 200
        p, d = prefill.requests[0]["body"], decode.requests[0]["body"]
        assert d["disagg_prefill_dp_rank"] == p["routed_dp_rank"] and "disagg_prefill_dp_rank" not in p
        assert own is None or p["routed_dp_rank"] == own


def test_logprobs_and_versions_are_the_decode_halfs(start, halves):
    prefill, decode = halves
    prefill.plan.append({"ids": [7], "version": "9"})
    decode.plan.append({"ids": IDS, "version": "9"})
    gateway = start(workers=1, engine=[prefill.setting, decode.setting])
    settled(gateway)
    halved = ask(gateway)[0]
    with StubEngine("sglang", info={"context_length": 4096}) as whole:
        whole.plan.append({"ids": IDS, "version": "9"})
        alone = start(workers=1, engine=whole.setting)
        sid = ask(alone)[0]
        of = [trajectory(g, s) for g, s in ((gateway, halved), (alone, sid))]
        for field in ("prompt_ids", "response_ids", "response_mask", "response_logprobs"):
            assert of[0][field] == of[1][field], field
        assert of[0]["turns"][0]["weight_versions"] == of[1]["turns"][0]["weight_versions"] != []


def test_halves_over_workers_and_a_restart(start, halves):
    prefill, decode = halves
    gateway = start(workers=2, engine=[prefill.setting, decode.setting])
    settled(gateway, 4)
    sids = [ask(gateway)[0] for _ in range(6)]
    assert len({s[:3] for s in sids}) == 2
    gateway.kill()
    gateway.start()
    for sid in sids:
        # Before the engines have told anew what they are a call may be refused once more: 503, never unpaired.
        wait_until(lambda sid=sid: ask(gateway, sid, messages=[{"role": "user", "content": "once more"}])[1].status == 200, 20, "answered")
    answered = [r for r in prefill.rooms() if r]
    assert len(answered) == len(set(answered)) >= 12 and {r for r in decode.rooms() if r} == set(answered)


def test_a_prefill_half_that_fails_for_good_leaves_no_turn(start, halves):
    prefill, decode = halves
    prefill.plan.append({"status": 400, "body": {"error": {"message": "no such thing"}}})
    gateway = start(workers=1, engine=[prefill.setting, decode.setting])
    settled(gateway)
    sid, a = ask(gateway)
    assert a.status == 400 and "no such thing" in a.text
    wait_until(lambda: decode.aborts, 10, "the decode half is told")
    assert gateway.post(f"/sessions/{sid}/finalize", {}).json()["trajectories"] == []
    assert set(running(gateway).values()) == {0}


@pytest.mark.parametrize("side", ["prefill", "decode"])
def test_a_half_alone_takes_no_call(start, side):
    """It may be a router that tells what a server behind it is: it is asked, and what refuses is no engine."""
    with Half(side) as half:
        gateway = start(workers=1, engine=half.setting)
        settled(gateway, 1)
        _, a = ask(gateway)
        assert a.status == 503 and "one half of a split" in a.text, a.text


def test_a_router_that_tells_of_a_half_is_asked_as_it_is(start):
    with Half("decode") as router:
        router.otherwise = lambda body: {"ids": IDS}
        gateway = start(workers=1, engine=router.setting)
        settled(gateway, 1)
        assert ask(gateway)[1].status == 200 and router.rooms() == [None]


def test_halves_that_are_added_and_removed_while_calls_run(start, halves):
    prefill, decode = halves
    go = threading.Event()
    with StubEngine("sglang", info={"context_length": 4096}) as whole, Half("prefill") as other:
        whole.otherwise = lambda body: {"ids": IDS}
        gateway = start(workers=1, engine=whole.setting)
        settled(gateway, 1)
        assert gateway.request("PUT", "/admin/engines", {"engines": [prefill.setting, decode.setting]}).status == 200
        settled(gateway, 3)
        assert ask(gateway)[1].status == 200 and prefill.rooms() == decode.rooms()
        done = threading.Event()
        prefill.plan.append({"ids": [7], "wait": go})
        decode.plan.append({"ids": IDS, "wait": done})
        got = []
        caller = threading.Thread(target=lambda: got.append(ask(gateway)[1].status))
        caller.start()
        wait_until(lambda: prefill.running == decode.running == 1, 10, "both halves have the call")
        assert gateway.request("PUT", "/admin/engines", {"engines": [other.setting, decode.setting]}).status == 200
        settled(gateway, 4)
        go.set()
        wait_until(lambda: prefill.running == 0, 10, "the prefill half has answered")
        gateway.wait_line("engine is gone")     # only once nothing runs there
        done.set()
        caller.join()
        assert got == [200] and not prefill.aborts      # what was taken out ends what it runs
        assert ask(gateway)[1].status == 200
        assert other.rooms() == decode.rooms()[-1:] and len(prefill.requests) == 2


def test_the_least_loaded_prefill_half_is_taken(start, halves):
    prefill, decode = halves
    go = threading.Event()
    with Half("prefill") as other:
        for half in (prefill, other):
            half.plan.append({"ids": [7], "wait": go})
        decode.plan.extend([{"ids": IDS, "wait": go}] * 2)
        gateway = start(workers=1, engine=[prefill.setting, decode.setting, other.setting])
        settled(gateway, 3)
        callers = [threading.Thread(target=ask, args=(gateway,)) for _ in range(2)]
        for c in callers:
            c.start()
        wait_until(lambda: decode.running == 2, 10, "two calls")
        wait_until(lambda: prefill.running == other.running == 1, 10, "one at each")
        go.set()
        for c in callers:
            c.join()

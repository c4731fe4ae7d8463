"""What engines keep of a session: they are sent its id, its end, the priority of its next turn, and what must not be
shared."""
import json

import pytest

from asides_engine import AsidesEngine
from gateway import stays, wait_until
from test_dialects import USER
from vision_kit import session

END = 257
CLOSE = "/close_session"
SESSIONS = {"enable_session_radix_cache": True, "context_length": 4096}


def engine_of(kind="sglang", info=None, **more):
    return AsidesEngine(kind, info=info, asides={CLOSE: ""}, **more)


def talk(engine, gateway, sid, turns=1):
    """So many turns; what the engine was sent."""
    messages, sent = [USER], []
    for _ in range(turns):
        engine.plan.append({"ids": [*b"ok", END], "matched": END})
        a = gateway.post(f"/sessions/{sid}/v1/chat/completions", {"messages": messages})
        assert a.status == 200, a.text
        messages = messages + [a.json()["choices"][0]["message"], USER]
        sent.append(engine.requests[-1]["body"])
    return sent


ENDS = {"finalize": lambda g, sid: g.post(f"/sessions/{sid}/finalize", {}),
        "abort": lambda g, sid: g.post(f"/sessions/{sid}/abort", {}),
        "DELETE": lambda g, sid: g.request("DELETE", f"/sessions/{sid}"), "expiry": None}


@pytest.mark.parametrize("end", ENDS)
def test_a_session_is_closed_when_it_has_ended(start, end):
    with engine_of(info=SESSIONS) as engine, engine_of(info=SESSIONS) as other, engine_of(info={"context_length": 4096}) as old:
        gateway = start(workers=1, engine=[engine.setting, other.setting, old.setting])
        wait_until(lambda: gateway.log().count("engine told its settings") == 3, 20, "the settings")
        sid = session(gateway, **({"ttl_s": 1} if end == "expiry" else {}))
        a = gateway.post(f"/sessions/{sid}/v1/chat/completions", {"messages": [USER]})
        assert a.status == 200, a.text
        asked = [e for e in (engine, other, old) if e.requests]
        assert len(asked) == 1 and asked[0].requests[0]["body"].get("session_id") == (None if asked[0] is old else sid)
        assert gateway.post(f"/sessions/{sid}/complete", {}).status == 200     # is no end
        assert not engine.asked
        if ENDS[end]:
            assert ENDS[end](gateway, sid).status in (200, 204)
        for e in (engine, other):       # a busy replica may have passed it on
            wait_until(lambda: (CLOSE, {"session_id": sid}) in e.asked, 20, "the word to the engine")
        stays(lambda: engine.count(CLOSE) == other.count(CLOSE) == 1 and not old.asked, 0.2, "once, and not to who keeps none")


def test_a_server_that_does_not_answer_the_end_keeps_nothing_up(start):
    with engine_of(info=SESSIONS) as engine:
        gateway = start(workers=1, engine=engine.setting)
        gateway.wait_line("engine told its settings")
        sid = session(gateway)
        talk(engine, gateway, sid)
        engine.aside_delay = 60
        assert gateway.post(f"/sessions/{sid}/finalize", {}).status == 200
        talk(engine, gateway, session(gateway))


def begun(gateway, engine, n):
    """So many sessions of one label, each with a turn."""
    engine.otherwise = lambda body: {"ids": [*b"ok", END], "matched": END}
    made = gateway.post("/sessions", {"count": n, "labels": {"run": "a"}}).json()["sessions"]
    for s in made:
        a = gateway.post(f"/sessions/{s['session_id']}/v1/chat/completions", {"messages": [USER]})
        assert a.status == 200, a.text
    return {s["session_id"] for s in made}


def closed(engine):
    return [body["session_id"] for path, body in list(engine.asked) if path == CLOSE]


def end_all(gateway, n):
    a = gateway.post("/sessions/abort", {"labels": {"run": "a"}}, timeout=60)
    assert a.status == 200 and a.json()["ended"] == n, a.text


def test_many_ends_at_once_are_told_few_at_a_time(start):
    with engine_of(info=SESSIONS) as engine:
        gateway = start(workers=1, engine=engine.setting)
        gateway.wait_line("engine told its settings")
        ids = begun(gateway, engine, 60)
        engine.aside_delay = 0.05
        end_all(gateway, 60)
        wait_until(lambda: len(closed(engine)) == 60, 60, "every end is told")
        assert set(closed(engine)) == ids and 1 < engine.most_asides <= 8
        assert gateway.metrics()["rollgate_engine_ends_lost_total"] == 0


def test_an_engine_that_was_away_is_told_when_it_is_back(start):
    engine = engine_of(info=SESSIONS).__enter__()
    gateway = start(workers=1, engine=engine.setting, engine_health_interval="100ms")
    gateway.wait_line("engine told its settings")
    ids = begun(gateway, engine, 5)
    engine.__exit__()
    gateway.wait_line("engine is down")
    end_all(gateway, 5)
    again = engine_of(info=SESSIONS)
    again.port = engine.port
    with again:
        wait_until(lambda: len(closed(again)) >= 5, 60, "every end is told")
        assert set(closed(again)) == ids and gateway.metrics()["rollgate_engine_ends_lost_total"] == 0


def test_what_an_engine_is_never_told_is_counted(start):
    with engine_of(info=SESSIONS) as engine, engine_of() as other:
        gateway = start(workers=1, engine=[f"e={engine.setting}", f"o={other.setting}"])
        gateway.wait_line("engine told its settings")
        other.otherwise = lambda body: {"ids": [*b"ok", END], "matched": END}
        begun(gateway, engine, 20)
        engine.aside_delay = 3600
        end_all(gateway, 20)
        wait_until(lambda: engine.count(CLOSE) >= 8, 20, "as many as may be out")
        assert gateway.request("DELETE", "/admin/engines?name=e").status == 200
        gateway.wait_line("engine is gone")
        wait_until(lambda: gateway.metrics()["rollgate_engine_ends_lost_total"] == 20, 20, "they are counted")
        assert engine.most_asides <= 8


@pytest.mark.parametrize("kind,info,option,want", [
    ("sglang", {"enable_priority_scheduling": True}, "", [0, 1, 2]),
    ("sglang", {"enable_priority_scheduling": True, "schedule_low_priority_values_first": True}, "", [0, -1, -2]),
    ("sglang", {"enable_priority_scheduling": False}, "", [None] * 3),      # such a server refuses any
    ("vllm", None, ",priority=on", [0, -1, -2]),
    ("vllm", None, "", [None] * 3),
], ids=str)
def test_the_priority_rises_with_turns(start, kind, info, option, want):
    with engine_of(kind, info=info and {**info, "context_length": 4096}) as engine:
        gateway = start(workers=1, engine=engine.setting + option)
        if info:
            gateway.wait_line("engine told its settings")
        assert [b.get("priority") for b in talk(engine, gateway, session(gateway), 3)] == want
        own = session(gateway, sampling_params={"engine_extra": {"priority": 77}})
        assert [b["priority"] for b in talk(engine, gateway, own, 2)] == [77, 77]


def test_only_a_vllm_needs_to_be_told_of(start):
    gateway = start(engine="builtin:echo", workers=1)
    for kind in ("sglang", "llamacpp"):
        a = gateway.post("/admin/engines", {"engines": [f"{kind}:http://127.0.0.1:1,priority=on"]})
        assert a.status == 400 and "priority" in a.json()["error"]["message"], a.text


@pytest.mark.parametrize("kind,routes,key", [("sglang", (), "extra_key"), ("vllm", ("generate",), "cache_salt"),
                                             ("vllm", ("completions",), "cache_salt")])
def test_weights_do_not_share_what_was_computed(start, kind, routes, key):
    with engine_of(kind, **({"routes": routes} if routes else {})) as engine:
        gateway = start(workers=1, engine=engine.setting)
        sid = session(gateway)
        assert key not in talk(engine, gateway, sid)[0]
        assert gateway.post("/admin/weight_version", {"version": "step-7"}).status == 200
        assert talk(engine, gateway, sid)[0][key] == "step-7"
        own = session(gateway, sampling_params={"engine_extra": {key: "mine"}})
        assert talk(engine, gateway, own)[0][key] == "mine"
        assert gateway.post("/admin/weight_version", {"version": None}).status == 200
        assert key not in talk(engine, gateway, sid)[0]
        gateway = start(workers=1, engine=engine.setting, kv_per_version="off")
        assert gateway.post("/admin/weight_version", {"version": "step-7"}).status == 200
        assert key not in talk(engine, gateway, session(gateway))[0]


def ranked(asked):
    """A server of four ranks as the newest: it answers from the rank that it is asked for."""
    def edit(docs):
        for d in docs:
            d["meta_info"]["dp_rank"] = asked["body"].get("routed_dp_rank")
        return docs
    return edit


def test_a_session_keeps_its_rank(start):
    with engine_of(info={"context_length": 4096, "dp_size": 4}) as engine:
        gateway = start(workers=1, engine=engine.setting)
        wait_until(lambda: "engine told its settings" in gateway.log(), 20, "the settings")
        engine.otherwise = lambda body: {"ids": [*b"ok", END], "matched": END, "edit": ranked({"body": body})}
        ranks = []
        for _ in range(24):
            sid, messages, mine = session(gateway), [USER], set()
            for _ in range(2):
                a = gateway.post(f"/sessions/{sid}/v1/chat/completions", {"messages": messages})
                assert a.status == 200, a.text
                messages = messages + [a.json()["choices"][0]["message"], USER]
                mine.add(engine.requests[-1]["body"]["routed_dp_rank"])
            assert len(mine) == 1
            ranks += mine
        assert set(ranks) <= set(range(4)) and len(set(ranks)) > 1
        [e] = gateway.get("/admin/engines").json()["engines"]
        assert "dp_rank" in e["has"] and "dp_rank" not in e["lacks"]
        own = session(gateway, sampling_params={"engine_extra": {"routed_dp_rank": 3}})
        assert talk(engine, gateway, own)[0]["routed_dp_rank"] == 3


def test_a_server_that_ignores_the_rank_is_told(start):
    infos = [{"context_length": 4096, "dp_size": n} for n in (2, 1)]
    with engine_of(info=infos[0]) as old, engine_of(info=infos[1]) as one:
        gateway = start(workers=1, engine=old.setting)
        wait_until(lambda: "engine told its settings" in gateway.log(), 20, "the settings")
        assert "routed_dp_rank" in talk(old, gateway, session(gateway))[0]
        assert gateway.get("/admin/engines").json()["engines"][0]["lacks"] == ["dp_rank"]
        plain = start(workers=1, engine=one.setting)
        wait_until(lambda: "engine told its settings" in plain.log(), 20, "the settings")
        assert "routed_dp_rank" not in talk(one, plain, session(plain))[0]


HEADER = "x-data-parallel-rank"


@pytest.mark.parametrize("route", ["generate", "completions"])
def test_a_vllm_of_several_ranks_keeps_a_session_at_one(start, route):
    with engine_of("vllm", routes=(route,)) as engine:
        gateway = start(workers=1, engine=engine.setting + ",dp-ranks=4")
        ranks = []
        for _ in range(24):
            before = len(engine.requests)
            bodies = talk(engine, gateway, session(gateway), 2)
            mine = {r["headers"].get(HEADER) for r in engine.requests[before:]}
            assert len(mine) == 1 and not any("dp_rank" in json.dumps(b) for b in bodies)
            ranks += mine
        assert set(ranks) <= set("0123") and len(set(ranks)) > 1
        assert "dp_rank" in gateway.get("/admin/engines").json()["engines"][0]["has"]


@pytest.mark.parametrize("option", ["", ",dp-ranks=1"])
def test_a_vllm_of_one_rank_is_never_told_any(start, option):
    with engine_of("vllm") as engine:
        gateway = start(workers=1, engine=engine.setting + option)
        talk(engine, gateway, session(gateway), 2)
        assert len(engine.requests) == 2 and not any(HEADER in r["headers"] for r in engine.requests)
        assert "dp_rank" not in gateway.get("/admin/engines").json()["engines"][0]["has"]


def test_a_rank_that_a_vllm_does_not_have_costs_no_call(start):
    why = {"error": {"message": "data_parallel_rank 1 is out of range [0, 1).", "type": "BadRequestError", "code": 400}}
    with engine_of("vllm") as engine:
        gateway = start(workers=1, engine=engine.setting + ",dp-ranks=2")
        engine.plan.append({"status": 400, "body": why})
        talk(engine, gateway, session(gateway), 2)      # each turn brings a plan of its own
        assert [HEADER in r["headers"] for r in engine.requests] == [True, False, False]
        assert gateway.log().count("refuses a data-parallel rank") == 1
        [e] = gateway.get("/admin/engines").json()["engines"]
        assert e["lacks"] == ["dp_rank"] and "dp_rank" not in e["has"]


def test_an_error_that_names_a_rank_is_no_refusal(start):
    """A crash that has the rank in its words: the rank was not what is wrong, and stays."""
    with engine_of("vllm") as engine:
        gateway = start(workers=1, engine=engine.setting + ",dp-ranks=2", engine_retries=0)
        sid = session(gateway)
        engine.plan.append({"status": 500, "body": {"error": {"message": "EngineDeadError: data_parallel_rank 1 is gone"}}})
        a = gateway.post(f"/sessions/{sid}/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]})
        assert a.status == 502, a.text
        talk(engine, gateway, sid)
        assert all(HEADER in r["headers"] for r in engine.requests) and len(engine.requests) == 2
        assert gateway.get("/admin/engines").json()["engines"][0]["lacks"] == []
        assert "refuses a data-parallel rank" not in gateway.log()


def test_a_refusal_of_something_else_that_names_a_rank(start):
    """The call is asked without any, is refused alike, and so the rank was not what was wrong: later calls have theirs."""
    other = {"status": 400, "body": {"error": {"message": "stop must not be empty, got ['data_parallel_rank', '']"}}}
    with engine_of("vllm") as engine:
        gateway = start(workers=1, engine=engine.setting + ",dp-ranks=2")
        sid = session(gateway)
        engine.plan.extend([other, other])
        a = gateway.post(f"/sessions/{sid}/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]})
        assert a.status == 400 and "must not be empty" in a.text, a.text
        assert [HEADER in r["headers"] for r in engine.requests] == [True, False]
        talk(engine, gateway, sid)
        assert HEADER in engine.requests[-1]["headers"] and len(engine.requests) == 3
        [e] = gateway.get("/admin/engines").json()["engines"]
        assert e["lacks"] == [] and "dp_rank" in e["has"]

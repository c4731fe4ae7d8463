"""Weight versions from trainer, gateway and engines: the versions of turns, and the reports if no version is known."""
import threading
from concurrent.futures import ThreadPoolExecutor

from asides_engine import AsidesEngine
from gateway import wait_until
from stub_engines import StubEngine
from test_engine_lacks import IDS, ask, without
from test_engine_lacks import told as row


def summary(gateway, sid):
    return gateway.get(f"/sessions/{sid}/trajectories").json()["summary"]


def unknown(s):
    return [w for w in s["warnings"] if "version of the weights" in w]


def test_turns_without_a_version_are_counted(start):
    with StubEngine("sglang") as engine:
        gateway = start(workers=1, engine=engine.setting)
        engine.plan.append({"ids": IDS, "edit": without("weight_version")})
        sid = ask(gateway)
        s = summary(gateway, sid)
        assert s["unversioned_turns"] == 1 and unknown(s) == []    # nobody tells any: no trainer goes by them
        engine.plan.append({"ids": IDS, "version": "7"})
        ask(gateway, sid=sid, message={"role": "user", "content": "another"})
        s = summary(gateway, sid)
        assert s["unversioned_turns"] == 1 and len(unknown(s)) == 1
        engine.plan.append({"ids": IDS, "version": "7"})
        s = summary(gateway, ask(gateway))
        assert s["unversioned_turns"] == 0 and unknown(s) == []
        assert gateway.metrics()["rollgate_unversioned_answers_total"] == 1


PUSH = "/update_weight_version"
OBEYED = {"success": True, "message": "ok"}


def tell(gateway, version, **more):
    a = gateway.post("/admin/weight_version", {"version": version, "engines": True, **more})
    assert a.status == 200, a.text
    return {e["name"]: e for e in a.json()["engines"]}


def spans(gateway, sid):
    turns = gateway.get(f"/sessions/{sid}/trajectories").json()["trajectories"][-1]["turns"]
    return [[v["version"], v["start"], v["end"]] for v in turns[-1]["weight_versions"]]


def test_engines_are_told_by_their_own_route(start):
    with AsidesEngine("sglang", asides={PUSH: OBEYED}) as one, AsidesEngine("vllm", asides={PUSH: OBEYED}) as two:
        gateway = start(workers=2, engine=[f"one={one.setting}", f"two={two.setting}"])
        told = tell(gateway, 18)
        assert told == {"one": {"name": "one", "told": True}, "two": {"name": "two", "told": True}}
        assert one.asked[-1] == (PUSH, {"new_version": "18", "abort_all_requests": False})
        assert [x for x in two.asked if x[0] == PUSH] == [(PUSH, {"new_version": "18"})]
        assert "was not told the version" not in gateway.log()


def test_vllm_tells_what_it_was_told(start):
    with AsidesEngine("vllm", asides={"/weight_info": {"weight_version": "default"}}) as engine:
        def obey(body):
            engine.asides["/weight_info"] = {"weight_version": body["new_version"]}
            return {"success": True, "new_version": body["new_version"]}
        engine.asides[PUSH] = obey
        gateway = start(workers=1, engine=engine.setting)
        wait_until(lambda: "weight_info" in row(gateway, "has"), 20, "what it has")
        tell(gateway, "step-4")
        engine.plan.append({"ids": IDS})
        assert spans(gateway, ask(gateway)) == [["step-4", 0, 3]]
        gateway.post("/admin/weight_version", {"version": None})   # the engine's own word stays
        engine.plan.append({"ids": IDS})
        assert spans(gateway, ask(gateway)) == [["step-4", 0, 3]]


def test_an_engine_without_the_route_is_named_and_stamped(start):
    with StubEngine("sglang") as old:
        gateway = start(workers=2, engine=[f"old={old.setting}", "own=builtin:echo"])
        told = tell(gateway, 6)
        assert not told["old"]["told"] and PUSH in told["old"]["why"]
        assert not told["own"]["told"] and "builtin" in told["own"]["why"]
        assert gateway.log().count("an engine was not told the version of its weights") == 2
        for _ in range(8):                                   # by either engine, of either worker
            old.plan.append({"ids": IDS})
            assert spans(gateway, ask(gateway))[0][0] == "6"


def test_an_engine_that_refuses_or_keeps_silent(start):
    answers = {PUSH: {"success": False, "message": "the scheduler is busy"}}
    with AsidesEngine("sglang", asides=answers) as engine:
        gateway = start(workers=1, engine=f"one={engine.setting}")
        why = tell(gateway, 7)["one"]["why"]
        assert "it refuses" in why and "the scheduler is busy" in why
        engine.asides[PUSH], engine.aside_delay = OBEYED, 60
        assert tell(gateway, 8, timeout_s=0.3)["one"] == {"name": "one", "told": False, "why": "no answer in time"}
        engine.aside_delay = 0
        assert tell(gateway, 9)["one"]["told"]
        engine.plan.append({"ids": IDS})
        assert spans(gateway, ask(gateway)) == [["9", 0, 3]]


def test_one_round_at_a_time_and_what_is_refused(start):
    with AsidesEngine("sglang", asides={PUSH: OBEYED}) as engine:
        gateway = start(workers=1, engine=f"one={engine.setting}")
        for body, field in (({"version": None, "engines": True}, "version"), ({"version": 1, "engines": "all"}, "engines"),
                            ({"version": 1, "engines": True, "timeout_s": -1}, "timeout_s")):
            a = gateway.post("/admin/weight_version", body)
            assert (a.status, a.json()["error"]["param"]) == (400, field)
        assert engine.count(PUSH) == 0
        engine.aside_held = threading.Event()
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(tell, gateway, 3, timeout_s=600)
            wait_until(lambda: engine.count(PUSH) == 1, 20, "the question")
            assert gateway.post("/admin/weight_version", {"version": 4, "engines": True}).status == 409
            engine.aside_held.set()
            assert first.result(60)["one"]["told"]
        engine.aside_held = None
        assert tell(gateway, 4)["one"]["told"]


def test_an_engine_that_is_taken_out_meanwhile(start):
    with AsidesEngine("sglang", asides={PUSH: OBEYED}) as engine, StubEngine("sglang") as other:
        gateway = start(workers=1, engine=f"one={engine.setting}")
        engine.aside_held = threading.Event()
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(tell, gateway, 3, timeout_s=600)
            wait_until(lambda: engine.count(PUSH) == 1, 20, "the question")
            a = gateway.request("PUT", "/admin/engines", {"engines": [f"two={other.setting}"]})
            assert a.status == 200, a.text
            told = first.result(60)["one"]
            assert not told["told"] and "taken out" in told["why"]
        other.plan.append({"ids": IDS})
        assert spans(gateway, ask(gateway)) == [["3", 0, 3]]


def test_a_gateway_ends_meanwhile(start):
    with AsidesEngine("sglang", asides={PUSH: OBEYED}) as engine:
        gateway = start(workers=1, engine=f"one={engine.setting}", grace="1s")
        engine.aside_held = threading.Event()
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(gateway.post, "/admin/weight_version", {"version": 3, "engines": True, "timeout_s": 600})
            wait_until(lambda: engine.count(PUSH) == 1, 20, "the question")
            gateway.stop(timeout=120)
            assert asked.exception(60) or asked.result().status in (200, 503)
        engine.aside_held = None
        gateway.start()
        assert tell(gateway, 4)["one"]["told"]
        engine.plan.append({"ids": IDS})
        assert spans(gateway, ask(gateway)) == [["4", 0, 3]]

"""Versions of the weights as trainer, gateway and engines tell them: what turns have, and what is said where nobody knows."""
from stub_engines import StubEngine
from test_engine_lacks import IDS, ask, without


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

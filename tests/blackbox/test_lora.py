"""LoRA adapters: a session samples with one, engines get its name, and turns have its version, not that of the weights below."""
import os
import signal
import threading

import pytest

from gateway import wait_until
from stub_engines import StubEngine
from test_dialects import USER

IDS = [*b"ok", 257]
WAYS = {"sglang": ("sglang", (), "lora_path"), "generate": ("vllm", ("generate",), "model"),
        "completions": ("vllm", ("completions",), "model")}


def session(gateway, **options):
    a = gateway.post("/sessions", options)
    assert a.status == 200, a.text
    return a.json()["session_id"]


def ask(engine, gateway, sid, **plan):
    engine.plan.append({"ids": IDS, "version": "base-1", **plan})
    a = gateway.post(f"/sessions/{sid}/v1/chat/completions", {"messages": [USER]})
    assert a.status == 200, a.text
    return engine.requests[-1]["body"]


def spans(gateway, sid):
    t = gateway.get(f"/sessions/{sid}/trajectories?format=json").json()["trajectories"][-1]
    return [[v["version"], v["start"], v["end"]] for v in t["turns"][-1]["weight_versions"] or []]


def tell(gateway, name, version):
    a = gateway.post("/admin/adapters", {"name": name, "version": version})
    assert a.status == 200, a.text


@pytest.mark.parametrize("way", WAYS)
def test_the_engine_gets_its_name_and_the_turn_its_version(start, way):
    kind, routes, field = WAYS[way]
    with StubEngine(kind, **({"routes": routes} if routes else {})) as engine:
        gateway = start(workers=1, engine=engine.setting)
        sid = session(gateway, adapter="math")
        assert ask(engine, gateway, sid)[field] == "math"
        assert spans(gateway, sid) == []                 # the engine's own is of the weights below
        assert gateway.metrics()["rollgate_unversioned_answers_total"] == 1
        tell(gateway, "math", 7)
        tell(gateway, "other", "x")
        sid = session(gateway, adapter="math")
        sent = ask(engine, gateway, sid)
        assert sent[field] == "math" and "7" in (sent.get("extra_key"), sent.get("cache_salt"))
        assert spans(gateway, sid) == [["7", 0, 3]]
        assert gateway.get(f"/sessions/{sid}").json()["adapter"] == "math"
        answer = gateway.post(f"/sessions/{sid}/finalize", {}).json()
        assert answer["summary"]["adapter"] == "math"
        plain = session(gateway)
        sent = ask(engine, gateway, plain)
        assert field not in sent and "adapter" not in gateway.get(f"/sessions/{plain}").json()
        assert spans(gateway, plain) == ([["base-1", 0, 3]] if kind == "sglang" else [])
        assert gateway.get("/admin/adapters").json() == {"adapters": [{"name": "math", "version": "7"},
                                                                      {"name": "other", "version": "x"}]}
        tell(gateway, "math", None)
        assert gateway.get("/admin/adapters").json() == {"adapters": [{"name": "other", "version": "x"}]}


def test_a_version_that_changes_on_the_way_is_a_span(start):
    with StubEngine("sglang") as engine:
        gateway = start(workers=1, engine=engine.setting)
        tell(gateway, "math", 7)
        sid = session(gateway, adapter="math")
        engine.plan += [{"ids": list(b"ab"), "finish": "abort", "wait": (held := threading.Event())}]
        done = []
        t = threading.Thread(target=lambda: done.append(ask(engine, gateway, sid)))
        t.start()
        wait_until(lambda: engine.requests, 10, "the call")
        tell(gateway, "elsewhere", 1)
        tell(gateway, "math", 8)
        held.set()
        t.join(20)
        assert done and spans(gateway, sid)[-1][0] == "8"


def test_workers_and_restarts_of_them_know_it(start):
    with StubEngine("sglang") as engine:
        gateway = start(workers=2, engine=engine.setting)
        gateway.allow("process died")
        tell(gateway, "math", 7)
        for name in ("worker-0", "worker-1"):
            pid = gateway.child(name)
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda: gateway.child(name) not in (None, pid), 20, "its successor")
        gateway.wait_serving()
        for _ in range(4):
            sid = session(gateway, adapter="math")
            ask(engine, gateway, sid)
            assert spans(gateway, sid) == [["7", 0, 3]]


def test_it_outlives_the_session_in_memory_and_its_fork_has_it(start):
    with StubEngine("sglang") as engine:
        gateway = start(workers=1, engine=engine.setting)
        sid = session(gateway, adapter="math")
        ask(engine, gateway, sid)
        gateway.stop()
        gateway.start()
        assert ask(engine, gateway, sid)["lora_path"] == "math"
        fork = gateway.post(f"/sessions/{sid}/fork", {}).json()["session_id"]
        assert ask(engine, gateway, fork)["lora_path"] == "math"


def test_what_cannot_be_is_said(start):
    gateway = start(engine="builtin:echo", workers=1)
    for body in ({"adapter": "math"}, {"adapter": ""}, {"adapter": 7}, {"adapter": "x" * 65}):
        a = gateway.post("/sessions", body)
        assert a.status == 400 and a.json()["error"]["param"] == "adapter", a.text
    for body in ({"name": "a"}, {"version": 1}, {"name": "", "version": 1}, {"name": "a", "version": -1},
                 {"nam": "a", "version": 1}):
        assert gateway.post("/admin/adapters", body).status == 400
    for i in range(64):
        tell(gateway, f"a{i}", i)
    a = gateway.post("/admin/adapters", {"name": "one-more", "version": 1})
    assert a.status == 400 and "64" in a.json()["error"]["message"]
    tell(gateway, "a3", 9)
    with StubEngine("sglang") as engine:
        gateway = start(workers=1, engine=engine.setting)
        a = gateway.post("/sessions", {"adapter": "a", "sampling_params": {"engine_extra": {"lora_path": "b"}}})
        assert a.status == 400 and a.json()["error"]["param"] == "adapter", a.text

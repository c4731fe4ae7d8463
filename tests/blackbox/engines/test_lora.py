"""LoRA adapters: a session samples with one, engines get its name, and turns have its version instead of that of the
base weights."""
import asyncio
import os
import signal
import threading

import pytest

from asides_engine import AsidesEngine
from gateway import in_parallel, wait_until
from scoring_engine import ScoringEngine
from stub_engines import StubEngine
from test_dialects import USER
from vision_kit import session

IDS = [*b"ok", 257]
WAYS = {"sglang": ("sglang", (), "lora_path"), "generate": ("vllm", ("generate",), "model"),
        "completions": ("vllm", ("completions",), "model")}


def chat(gateway, sid):
    return gateway.post(f"/sessions/{sid}/v1/chat/completions", {"messages": [USER]})


def ask(engine, gateway, sid, **plan):
    engine.plan.append({"ids": IDS, "version": "base-1", **plan})
    a = chat(gateway, sid)
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


@pytest.mark.parametrize("durability", ["process", "power"])
def test_what_was_told_outlives_a_restart(start, durability):
    with StubEngine("sglang") as engine:
        gateway = start(workers=2, engine=engine.setting, durability=durability)
        tell(gateway, "math", 7)
        tell(gateway, "other", 1)
        tell(gateway, "other", None)
        assert gateway.post("/admin/weight_version", {"version": "step-3"}).status == 200
        sid = session(gateway, adapter="math")
        assert gateway.stop() == 0
        gateway.start()
        gateway.wait_line("versions of weights are those that were told last .*step-3")
        for _ in range(4):      # of any worker
            assert gateway.get("/admin/adapters").json() == {"adapters": [{"name": "math", "version": "7"}]}
        sent = ask(engine, gateway, sid)
        assert (sent["lora_path"], sent["extra_key"]) == ("math", "7") and spans(gateway, sid) == [["7", 0, 3]]
        plain = session(gateway)
        assert ask(engine, gateway, plain, version="default")["extra_key"] == "step-3"
        assert spans(gateway, plain) == [["step-3", 0, 3]]


def test_an_upgrade_keeps_what_was_told(start):
    with StubEngine("sglang") as engine:
        gateway = start(workers=2, engine=engine.setting)
        tell(gateway, "math", 7)
        served = gateway.log().count(" serving listen")
        gateway.signal(signal.SIGUSR2)
        wait_until(lambda: gateway.log().count(" serving listen") > served, 60, "the next generation serves")
        wait_until(lambda: gateway.get("/ready").status == 200, 60, what="ready")
        sid = session(gateway, adapter="math")
        ask(engine, gateway, sid)
        assert spans(gateway, sid) == [["7", 0, 3]]


def test_orders_at_once_lose_nothing(start):
    gateway = start(engine="builtin:echo", workers=3)
    in_parallel(lambda i: tell(gateway, f"a{i}", i), range(12))
    want = [(f"a{i}", str(i)) for i in range(12)]

    def known():
        return sorted((x["name"], x["version"]) for x in gateway.get("/admin/adapters").json()["adapters"])
    # each worker sees the others' orders within a second
    wait_until(lambda: all(known() == sorted(want) for _ in range(9)), 20, "every worker knows all of them")


def test_a_damaged_book_is_no_silent_beginning(start):
    gateway = start(workers=1, engine="builtin:echo")
    tell(gateway, "math", 7)
    assert gateway.stop() == 0
    with open(f"{gateway.folder}/state/weights.json", "w") as f:
        f.write('{"version":"7","adapt')
    gateway.allow(".*")
    gateway.start(wait=False)
    gateway.wait_line("weights.json of the state folder is damaged")
    gateway.kill()


OFF = {"context_length": 4096, "enable_lora": False, "lora_paths": None}
ON = {"context_length": 4096, "enable_lora": True, "lora_paths": []}
OLDER = {"context_length": 4096, "lora_paths": {"math": "/x"}}


def test_a_server_that_ignores_adapters_is_never_asked_for_one(start):
    """SGLang without --enable-lora answers with the weights below and says nothing."""
    with StubEngine("sglang", info=OFF) as off, StubEngine("sglang", info=ON) as on, StubEngine("sglang", info=OLDER) as older:
        gateway = start(workers=1, engine=[off.setting, on.setting, older.setting])
        wait_until(lambda: gateway.log().count("engine told its settings") == 3, 20, "the settings")
        for e in (off, on, older):
            e.otherwise = lambda body: {"ids": IDS}
        for _ in range(12):
            sid = session(gateway, adapter="math")
            assert chat(gateway, sid).status == 200
        assert not off.requests and len(on.requests) + len(older.requests) == 12
        has = {e["engine"]: "adapter" in e["has"] for e in gateway.get("/admin/engines").json()["engines"]}
        assert has == {off.setting: False, on.setting: True, older.setting: True}
        assert gateway.request("PUT", "/admin/engines", {"engines": [f"off={off.setting}"]}).status == 200
        wait_until(lambda: gateway.log().count("engine told its settings") == 4, 20, "the settings")
        a = gateway.post("/sessions", {"adapter": "math"})
        assert a.status == 400 and a.json()["error"]["param"] == "adapter" and "--enable-lora" in a.text, a.text
        a = chat(gateway, sid)
        assert a.status == 400 and "--enable-lora" in a.text, a.text
        assert not off.requests and chat(gateway, session(gateway)).status == 200


def test_until_a_server_has_told_an_adapter_waits_and_others_do_not(start):
    held = threading.Event()

    class Slow(AsidesEngine):
        async def reply(self, writer, status, body, kind="application/json", more=""):
            while b"enable_lora" in body and not held.is_set():
                await asyncio.sleep(0.01)
            return await super().reply(writer, status, body, kind, more)
    with Slow("sglang", asides={"/server_info": OFF}) as engine:
        engine.otherwise = lambda body: {"ids": IDS}
        gateway = start(workers=1, engine=engine.setting)
        sid, answers = session(gateway, adapter="math"), []
        t = threading.Thread(target=lambda: answers.append(chat(gateway, sid)))
        t.start()
        wait_until(lambda: engine.count("/server_info") > 0, 20, "the question")
        for _ in range(3):
            assert chat(gateway, session(gateway)).status == 200
        assert not answers and all("lora_path" not in r["body"] for r in engine.requests) and len(engine.requests) == 3
        gateway.allow("engine call failed")
        held.set()
        t.join(30)
        assert answers[0].status == 503 and len(engine.requests) == 3, answers[0].text
        assert answers[0].headers["x-should-retry"] == "true"
        a = chat(gateway, sid)
        assert a.status == 400 and "--enable-lora" in a.text, a.text


def test_an_adapter_that_a_vllm_has_not_loaded_is_no_missing_route(start):
    error = {"message": "The model `math` does not exist.", "type": "NotFoundError", "code": 404}
    missing = {"status": 404, "body": {"error": error}}
    with StubEngine("vllm", routes=("generate", "completions")) as engine:
        gateway = start(workers=1, engine=engine.setting)
        sid = session(gateway, adapter="math")
        engine.plan.append(missing)
        a = chat(gateway, sid)
        assert a.status == 400 and a.json()["error"]["code"] == "engine_refused" and "math" in a.text, a.text
        assert len(engine.requests) == 1
        ask(engine, gateway, session(gateway))
        ask(engine, gateway, sid)
        assert [r["path"] for r in engine.requests] == ["/inference/v1/generate"] * 3


def test_a_waiting_call_is_not_given_to_an_engine_without_adapters(start):
    with StubEngine("llamacpp") as llama, StubEngine("sglang") as sglang:
        for e in (llama, sglang):
            e.otherwise = lambda body: {"ids": IDS, "matched": 257}
        gateway = start(workers=1, engine="none")
        sid, answers = session(gateway, adapter="math"), []
        t = threading.Thread(target=lambda: answers.append(chat(gateway, sid)))
        t.start()
        wait_until(lambda: gateway.metrics()["rollgate_queue_depth"] == 1, what="it waits")
        gateway.allow("engine call failed")
        assert gateway.request("PUT", "/admin/engines", {"engines": [llama.setting]}).status == 200
        t.join(30)
        assert answers[0].status == 503 and not llama.requests, answers[0].text
        assert gateway.request("PUT", "/admin/engines", {"engines": [sglang.setting]}).status == 200
        assert chat(gateway, sid).status == 200
        assert sglang.requests[0]["body"]["lora_path"] == "math"


@pytest.mark.parametrize("kind,field", [("sglang", "lora_path"), ("vllm", "model")])
def test_scores_of_itself_are_with_its_adapter(start, kind, field):
    with StubEngine("sglang") as engine, ScoringEngine(kind) as scorer:
        gateway = start(workers=1, engine=engine.setting, scorer=f"s={scorer.setting}")
        sid = session(gateway, adapter="math")
        ask(engine, gateway, sid)
        score = [{"engine": "s", "what": what} for what in ("teacher", "self")]
        a = gateway.post(f"/sessions/{sid}/finalize", {"score": score}, timeout=60)
        assert a.status == 200, a.text
        assert sorted(r["body"].get(field, "") for r in scorer.requests) == ["", "math"]


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

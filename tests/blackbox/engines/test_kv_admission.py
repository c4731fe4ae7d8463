"""--kv-admission: new sessions wait for space in the engines' KV caches, running ones never do."""
import threading

import pytest

from asides_engine import AsidesEngine
from caching_engine import CachingEngine
from gateway import stays, wait_until
from stub_engines import StubEngine
from test_dialects import USER

END = 257
METRICS = {"vllm": b"""# HELP vllm:cache_config_info Information of the LLMEngine CacheConfig
vllm:cache_config_info{block_size="16",cache_dtype="auto",num_gpu_blocks="125",num_gpu_blocks_override="None"} 1.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.0
"""}


def told(engine, n=3):
    engine.otherwise = lambda body: {"ids": [*b"x" * n, END], "matched": END}
    return engine


class Talk(threading.Thread):
    """One call of a session, in a thread of its own."""

    def __init__(self, gateway, sid, messages=(USER,), **more):
        super().__init__(daemon=True)
        self.gateway, self.sid, self.body, self.answer = gateway, sid, {"messages": list(messages), **more}, None
        self.start()

    def run(self):
        self.answer = self.gateway.post(f"/sessions/{self.sid}/v1/chat/completions", self.body, timeout=120)

    def end(self):
        self.join(120)
        assert self.answer is not None, "no answer"
        return self.answer

    def good(self):
        a = self.end()
        assert a.status == 200, a.text
        return a.json()["choices"][0]["message"]


def sessions(gateway, n):
    return [s["session_id"] for s in gateway.post("/sessions", {"count": n}).json()["sessions"]]


def held(gateway):
    return gateway.metrics()["rollgate_kv_held_sessions"]


def leased(gateway):
    return sum(v for k, v in gateway.metrics().items() if k.startswith("rollgate_kv_leased_tokens"))


def begin(start, *engines, judge=None, **more):
    """A gateway whose engines have told; each of their sessions is expected to hold 1,000 tokens. judge: of a pool beside them."""
    options = {"workers": 1, "kv_admission": 100, "kv_session_tokens": 1000, "engine_health_interval": "50ms", **more}
    gateway = start(engine=[e.setting for e in engines] + ([f"judge={judge.setting}"] if judge else []), **options)

    def asked():
        return any(e["kv"] and e["kv"]["state"] == "asked" for e in gateway.get("/admin/engines").json()["engines"])
    wait_until(lambda: not asked(), 30, "what caches they have")
    return gateway


def test_a_new_session_waits_until_another_has_ended(start):
    with told(CachingEngine(2000)) as engine:
        gateway = begin(start, engine)
        a, b, c = sessions(gateway, 3)
        first = Talk(gateway, a).good()
        Talk(gateway, b).good()
        assert leased(gateway) == 2000
        waiting = Talk(gateway, c)
        wait_until(lambda: held(gateway) == 1, 30, "it is held")
        for _ in range(3):      # who runs never waits
            Talk(gateway, a, [USER, first, USER]).good()
        assert held(gateway) == 1 and waiting.is_alive()
        assert gateway.post(f"/sessions/{b}/finalize", {}).status == 200
        waiting.good()
        assert held(gateway) == 0 and leased(gateway) == 2000
        assert gateway.metrics()["rollgate_kv_hold_seconds_count"] == 1


ENDS = {"abort": lambda g, sid: g.post(f"/sessions/{sid}/abort", {}),
        "complete": lambda g, sid: g.post(f"/sessions/{sid}/complete", {}),
        "delete": lambda g, sid: g.request("DELETE", f"/sessions/{sid}"), "idle": None}


@pytest.mark.parametrize("end", ENDS)
def test_every_end_of_a_session_makes_room(start, end):
    with told(CachingEngine(1000)) as engine:
        gateway = begin(start, engine, **({"kv_lease_idle": "300ms"} if end == "idle" else {}))
        a, b = sessions(gateway, 2)
        Talk(gateway, a).good()
        waiting = Talk(gateway, b)
        if ENDS[end]:
            wait_until(lambda: held(gateway) == 1, 30, "it is held")
            assert ENDS[end](gateway, a).status in (200, 204)
        waiting.good()


def test_who_waits_too_long_is_told_its_place_and_keeps_it(start):
    with told(CachingEngine(1000)) as engine:
        gateway = begin(start, engine, kv_hold="1s")
        a, b = sessions(gateway, 2)
        Talk(gateway, a).good()
        refused = Talk(gateway, b).end()
        assert refused.status == 429 and "place 1 of 1 " in refused.json()["error"]["message"], refused.text
        assert refused.json()["error"]["code"] == "overloaded"
        assert int(refused.headers["Retry-After"]) > 0 and refused.headers["x-should-retry"] == "true"
        assert gateway.metrics()['rollgate_refusals_total{reason="kv_cache"}'] == 1


def test_who_comes_back_has_its_old_place(start):
    with told(CachingEngine(1000)) as engine:
        gateway = begin(start, engine, kv_hold="1h", max_queue=2)
        a, b, c, d = sessions(gateway, 4)
        Talk(gateway, a).good()
        first = Talk(gateway, b)
        wait_until(lambda: held(gateway) == 1, 30, "it is held")
        second = Talk(gateway, c)
        wait_until(lambda: held(gateway) == 2, 30, "both are held")
        full = Talk(gateway, d).end()       # no more than --max-queue wait
        assert full.status == 429 and "place 3 of 3 " in full.json()["error"]["message"], full.text
        assert gateway.post(f"/sessions/{a}/finalize", {}).status == 200
        first.good()
        again = Talk(gateway, d)
        wait_until(lambda: held(gateway) == 2, 30, "it waits again")
        late = sessions(gateway, 1)[0]
        assert "place 3 of 3 " in Talk(gateway, late).end().json()["error"]["message"]
        assert gateway.post(f"/sessions/{b}/finalize", {}).status == 200
        second.good()
        assert again.is_alive()
        assert gateway.post(f"/sessions/{c}/finalize", {}).status == 200
        again.good()


def test_a_session_of_many_answers_leaves_others_a_place(start):
    """Held answers share --max-queue as waiting ones do, and a session has --max-session-queue of them."""
    with told(CachingEngine(1000)) as engine:
        gateway = begin(start, engine, kv_hold="1h", max_queue=8, max_session_queue=8)
        a, b, c = sessions(gateway, 3)
        Talk(gateway, a).good()
        refused = Talk(gateway, b, n=9).end()
        assert refused.status == 429 and "(--max-session-queue)" in refused.text, refused.text
        many = Talk(gateway, b, n=8)
        wait_until(lambda: held(gateway) == 1, 30, "they are held")
        other = Talk(gateway, c)
        refused = many.end()
        assert refused.status == 429 and "(--kv-admission)" in refused.text, refused.text
        assert other.is_alive() and held(gateway) == 1
        assert gateway.post(f"/sessions/{a}/finalize", {}).status == 200
        other.good()


def test_what_can_never_fit_is_refused_with_its_figures(start):
    with told(CachingEngine(200)) as engine:
        gateway = begin(start, engine)
        a, b = sessions(gateway, 2)
        refused = Talk(gateway, a, [{"role": "user", "content": "x" * 400}]).end()
        text = refused.json()["error"]["message"]
        assert refused.status == 400 and refused.json()["error"]["code"] == "context_length_exceeded", refused.text
        assert "has 200" in text and "KV cache" in text and not engine.requests
        Talk(gateway, b).good()     # expected to hold more than there is, and alone


def test_a_session_whose_first_call_failed_is_still_new(start):
    with told(CachingEngine(1000)) as engine:
        gateway = begin(start, engine)
        a, b = sessions(gateway, 2)
        refused = Talk(gateway, b, [{"role": "user", "content": "x" * 2000}]).end()
        assert refused.status == 400, refused.text
        Talk(gateway, a).good()
        waiting = Talk(gateway, b)
        wait_until(lambda: held(gateway) == 1, 30, "it is held")
        assert gateway.post(f"/sessions/{a}/finalize", {}).status == 200
        waiting.good()


@pytest.mark.parametrize("kind,info,metrics,most", [
    ("vllm", None, METRICS, 2), ("sglang", {"max_total_num_tokens": 1000, "dp_size": 2}, {}, 2),
    ("llamacpp", {"total_slots": 2, "default_generation_settings": {"n_ctx": 4096}}, {}, 2),
    ("sglang", {"context_length": 4096}, {}, None), ("vllm", None, {}, None)], ids=str)
def test_what_each_kind_tells_of_its_cache(start, kind, info, metrics, most):
    with told(AsidesEngine(kind, info=info, asides={"/metrics": metrics[kind]} if metrics else {})) as engine:
        gateway = begin(start, engine)
        assert gateway.get("/health").json()["kv_admission"] == ("on" if most else "untold")
        assert gateway.log().count("does not tell of its KV cache") == (0 if most else 1)
        ids = sessions(gateway, 4)
        if kind == "llamacpp":      # a slot holds one session, whatever it is expected to have
            assert gateway.get("/admin/engines").json()["engines"][0]["kv"]["capacity"] == 8192
        talks = [Talk(gateway, i) for i in ids]
        if not most:
            for t in talks:
                t.good()
            return
        wait_until(lambda: sum(not t.is_alive() for t in talks) == most, 60, "as many as fit")
        wait_until(lambda: held(gateway) == len(ids) - most, 60, "the others are held")
        running = [i for i, t in zip(ids, talks) if not t.is_alive()]
        for i in running:
            assert gateway.post(f"/sessions/{i}/abort", {}).status in (200, 204)
        for t in talks:
            t.good()


def test_it_is_off_unless_asked_for(start):
    with told(CachingEngine(100)) as engine:
        gateway = start(workers=1, engine=engine.setting, engine_health_interval="50ms")
        gateway.wait_line("engine told its settings")
        for sid in sessions(gateway, 3):
            Talk(gateway, sid).good()
        seen = engine.probes
        wait_until(lambda: engine.probes > seen + 2, 30, "more probes")
        assert not engine.asked and gateway.get("/health").json()["kv_admission"] == "off"
        assert gateway.get("/admin/engines").json()["engines"][0]["kv"] is None and leased(gateway) == 0


class Life(Talk):
    """A call, and the session's end."""

    def run(self):
        super().run()
        self.ended = self.gateway.post(f"/sessions/{self.sid}/abort", {})


def test_workers_share_the_room(start):
    with told(CachingEngine(2000, decode_s=0.02)) as engine:
        gateway = begin(start, engine, workers=2)
        ids = sessions(gateway, 6)
        while len({i.split("-")[0] for i in ids}) < 2:
            ids += sessions(gateway, 6)
        lives = [Life(gateway, i) for i in ids]
        while any(t.is_alive() for t in lives):
            assert leased(gateway) <= 2000
        for t in lives:
            t.good()
        assert leased(gateway) == 0 and held(gateway) == 0


def test_sessions_fill_all_engines_and_stay_where_they_are(start):
    with told(CachingEngine(2000)) as one, told(CachingEngine(2000)) as two:
        gateway = begin(start, one, two)
        talked = {}
        ids = sessions(gateway, 5)
        for i in ids[:4]:
            talked[i] = Talk(gateway, i).good()
        assert (len(one.requests), len(two.requests)) == (2, 2)
        waiting = Talk(gateway, ids[4])
        wait_until(lambda: held(gateway) == 1, 30, "it is held")
        for i, m in talked.items():
            Talk(gateway, i, [USER, m, USER]).good()
        assert (len(one.requests), len(two.requests)) == (4, 4)
        assert all(v == 0 for k, v in gateway.metrics().items() if k.startswith("rollgate_session_moves_total"))
        assert gateway.post(f"/sessions/{ids[0]}/abort", {}).status == 204
        waiting.good()


def test_what_others_use_is_no_room(start):
    with told(CachingEngine(2000)) as engine:
        engine.others = 1500
        gateway = begin(start, engine)
        sid, = sessions(gateway, 1)
        waiting = Talk(gateway, sid)
        wait_until(lambda: held(gateway) == 1, 30, "it is held")
        engine.others = 900
        waiting.good()


def test_a_session_holds_what_the_last_ones_grew_to(start):
    with told(CachingEngine(800), 300) as engine:
        gateway = begin(start, engine, kv_session_tokens=0)
        a, b, c, d = sessions(gateway, 4)
        Talk(gateway, a).good()
        grown = leased(gateway)
        assert 300 < grown < 500
        assert gateway.post(f"/sessions/{a}/finalize", {}).status == 200 and leased(gateway) == 0
        Talk(gateway, b).good()
        Talk(gateway, c).good()
        assert leased(gateway) == 2 * grown
        waiting = Talk(gateway, d)
        wait_until(lambda: held(gateway) == 1, 30, "it is held")
        assert gateway.post(f"/sessions/{b}/finalize", {}).status == 200
        waiting.good()


def test_a_client_that_leaves_holds_nobody_up(start):
    with told(CachingEngine(1000)) as engine:
        gateway = begin(start, engine)
        a, b, c = sessions(gateway, 3)
        Talk(gateway, a).good()
        gone = Talk(gateway, b)
        wait_until(lambda: held(gateway) == 1, 30, "it is held")
        waiting = Talk(gateway, c)
        wait_until(lambda: held(gateway) == 2, 30, "both are held")
        assert gateway.post(f"/sessions/{b}/abort", {}).status == 204
        assert gone.end().status != 200
        assert gateway.post(f"/sessions/{a}/abort", {}).status == 204
        waiting.good()
        stays(lambda: held(gateway) == 0 and leased(gateway) == 1000, 0.2, "nothing of it is left")


def forked(gateway, sid):
    return gateway.post(f"/sessions/{sid}/fork", {})


def imported(gateway, sid):
    return gateway.post("/sessions/import", gateway.get(f"/sessions/{sid}/snapshot").json())


@pytest.mark.parametrize("restart", [False, True], ids=["at once", "after a restart"])
@pytest.mark.parametrize("copied", [forked, imported])
def test_a_copy_of_a_session_waits_as_a_new_one(start, copied, restart):
    with told(CachingEngine(1000)) as engine:
        gateway = begin(start, engine)
        a, = sessions(gateway, 1)
        first = Talk(gateway, a).good()
        made = copied(gateway, a)
        assert made.status == 200, made.text
        copy = made.json()["session_id"]
        if restart:
            gateway.kill()
            gateway.start()
            wait_until(lambda: gateway.get("/admin/engines").json()["engines"][0]["kv"]["state"] == "told", 30, "its cache")
            Talk(gateway, a, [USER, first, USER]).good()
        asked = len(engine.requests)
        waiting = Talk(gateway, copy, [USER, first, USER])
        wait_until(lambda: held(gateway) == 1, 30, "it is held")
        assert gateway.post(f"/sessions/{a}/finalize", {}).status == 200
        second = waiting.good()
        assert len(engine.requests) == asked + 1
        b, = sessions(gateway, 1)
        new = Talk(gateway, b)
        wait_until(lambda: held(gateway) == 1, 30, "it is held")
        Talk(gateway, copy, [USER, first, USER, second, USER]).good()   # it has an answer of its own now
        assert gateway.post(f"/sessions/{copy}/abort", {}).status == 204
        new.good()


def test_all_answers_of_a_call_are_counted(start):
    with told(CachingEngine(4000), 100) as engine:
        gateway = begin(start, engine, kv_session_tokens=1)
        a, = sessions(gateway, 1)
        one = Talk(gateway, a).end()
        alone = leased(gateway)
        b, = sessions(gateway, 1)
        several = Talk(gateway, b, n=4).end()
        assert one.status == several.status == 200 and len(several.json()["choices"]) == 4
        assert leased(gateway) - alone == alone + 3 * 101


def test_a_session_that_asked_a_judge_alone_is_still_new(start):
    with told(CachingEngine(1000)) as engine, StubEngine("openai") as judge:
        judge.otherwise = lambda body: {"text": "7 of 10"}
        gateway = begin(start, engine, judge=judge)
        a, b = sessions(gateway, 2)
        Talk(gateway, a).good()
        assert Talk(gateway, b, model="judge").good()["content"] == "7 of 10"
        waiting = Talk(gateway, b)
        wait_until(lambda: held(gateway) == 1, 30, "it is held")
        assert gateway.post(f"/sessions/{a}/finalize", {}).status == 200
        first = waiting.good()
        assert Talk(gateway, b, [USER, USER], model="judge").good()["content"] == "7 of 10"
        c, = sessions(gateway, 1)
        new = Talk(gateway, c)
        wait_until(lambda: held(gateway) == 1, 30, "it is held")
        Talk(gateway, b, [USER, first, USER]).good()
        assert gateway.post(f"/sessions/{b}/abort", {}).status == 204
        new.good()

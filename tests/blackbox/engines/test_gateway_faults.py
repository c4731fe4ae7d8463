"""Every way in which an engine can misbehave, for every kind and both forms of the answer, with a whole gateway. It
ends as spec/engines.md says, the session is unchanged, and the next good call works."""
import json

import pytest

import gateway as g
from gateway import wait_until
from stub_engines import StubEngine

OK = list(b"ok")
KINDS = {
    "sglang": ("sglang", {}, ""),
    "sglang-incremental": ("sglang", {"incremental": True}, ""),
    "vllm": ("vllm", {}, ""),
    "vllm-names": ("vllm", {"form": "names"}, ""),
    "vllm-completions": ("vllm", {"routes": ("completions",)}, ""),
    "llamacpp": ("llamacpp", {}, ""),
    "openai": ("openai", {}, ""),
    "openai-vllm-ids": ("openai", {}, ",token-ids=vllm"),
    "openai-sglang-ids": ("openai", {}, ",token-ids=sglang"),
}

# What any HTTP server can do.
TRANSPORT = [
    ({"status": 500}, 502),
    ({"status": 500, "cut": "close", "cut_at": 0.8}, 502),
    ({"status": 500, "cut": "reset", "cut_at": 0.8}, 502),
    ({"late_500": True}, 502),
    ({"status": 503}, 503),
    ({"status": 429}, 429),
    ({"status": 400}, 400),
    ({"status": 422}, 422),
    ({"before": "close"}, 503),
    ({"before": "reset"}, 503),
    ({"cut": "close"}, 502),
    ({"cut": "reset"}, 502),
    ({"cut": "close", "cut_at": 0.05}, 502),
    ({"cut": "reset", "cut_at": 0.7}, 502),
    ({"cut": "stall", "cut_at": 0.6}, 504),
    ({"delay_s": 30}, 504),
    ({"truncate": True}, 502),
    ({"type": "text/html"}, 502),
]
TOKENS = [({"lp_extra": -1}, 502), ({"lp_null": True}, 502), ({"drop": {"ids"}}, 502)]
OWN = {
    "sglang": [({"lp_extra": 2}, 502), ({"drop": {"logprobs"}}, 502), ({"lp_ids_wrong": True}, 502), ({"count_wrong": True}, 502),
               ({"prompt_tokens": 1}, 502), ({"drop": {"finish"}}, 502), ({"matched": "NaN happened"}, 502), ({"ids": [1, 99999]}, 502),
               ({"finish": "abort", "abort_status": 503}, 503), ({"finish": "abort", "abort_status": 400, "message": "no"}, 400)],
    "vllm": [({"drop": {"logprobs"}}, 502), ({"ids": [1, 99999]}, 502)],
    "llamacpp": [({"drop": {"logprobs"}}, 502), ({"ids": [1, 99999]}, 502), ({"prompt_tokens": 1}, 502), ({"truncated": True}, 502), ({"finish": "none"}, 502)],
    "openai": [({"drop": {"finish"}}, 502), ({"finish": "abort"}, 503), ({"finish": "error"}, 502)],
}
# What is no fault.
ODDITIES = [{"coalesce": True}, {"split": 1}, {"split": 7}, {"chunk": 1}, {"drop": {"done"}}, {"pad": 2_000_000}, {"gap_s": 0.05}]


# Long enough for every answer that is no fault, of a build with sanitizers too.
PATIENCE = {"engine_timeout": "4s", "engine_idle_timeout": "3s"} if "san" in str(g.BUILD) else {
    "engine_timeout": "3s", "engine_idle_timeout": "2s"}


def good(kind, prompt=(3, 1, 4), **more):
    return {"ids": OK + [257], "matched": 257, "text": "ok", "prompt_ids": list(prompt), **more} if kind == "openai" else {
        "ids": OK + [257], "matched": "" if kind == "llamacpp" else 257, **more}


def faults_of(name, kind, stream):
    out = TRANSPORT + OWN[kind]
    if kind != "openai" or "vllm-ids" in name:
        out = out + TOKENS
    if "ids" in name:
        out = out + [({"count_wrong": True}, 502), ({"prompt_tokens": 9}, 502)]
    if name == "vllm-completions":
        out = out + [({"prompt_tokens": 1}, 502)]
    if kind == "vllm" and not stream:
        out = out + [({"drop": {"finish"}}, 502)]
    if kind in ("sglang", "vllm") and stream:
        out = out + [({"garbage": True}, 502), ({"error_event": {"error": {"message": "boom", "code": 500}}}, 502)]
    return out


class Scene:
    def __init__(self, engine, gateway, stream):
        self.engine, self.gateway, self.stream = engine, gateway, stream
        self.sid = gateway.post("/sessions", {}).json()["session_id"]
        self.messages = [{"role": "user", "content": "hi"}]

    def call(self):
        return self.gateway.post(f"/sessions/{self.sid}/v1/chat/completions", {"messages": self.messages, "stream": self.stream}, timeout=60)

    def state(self):
        s = self.gateway.get(f"/sessions/{self.sid}").json()
        t = self.gateway.get(f"/sessions/{self.sid}/trajectories?select=all_checkpoints&merge=none").json()
        return json.dumps([{k: s[k] for k in ("phase", "accumulated_token_ids", "tree") if k in s}, t["trajectories"]])

    def works(self, kind, **more):
        self.engine.plan.clear()
        self.engine.plan.append(good(kind, **more))
        a = self.call()
        assert a.status == 200 and "ok" in self.text(a), (more, a.text)
        return a

    def text(self, a):
        if not self.stream:
            return a.json()["choices"][0]["message"]["content"]
        chunks = [json.loads(line[6:]) for line in a.text.split("\n") if line.startswith("data: {")]
        return "".join(x["delta"].get("content") or "" for c in chunks for x in c["choices"])


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("name", KINDS)
def test_faults(start, name, stream):
    kind, stub, options = KINDS[name]
    with StubEngine(kind, **stub) as engine:
        gateway = start(workers=1, engine=engine.setting + options, engine_retries=0, **PATIENCE)
        gateway.allow(".*")
        s = Scene(engine, gateway, stream)
        s.works(kind)
        for fault, status in faults_of(name, kind, stream):
            before = s.state()
            engine.plan.clear()
            engine.plan.append(good(kind, **fault))
            a = s.call()
            if stream:
                assert '"error"' in a.text and "[DONE]" not in a.text.split('"error"')[-1] and '"finish_reason":"stop"' not in a.text, (fault, a.text)
            else:
                assert a.status == status, (fault, a.status, a.text)
                assert a.headers["x-should-retry"] == ("false" if status in (400, 422) else "true"), (fault, a.headers)
                assert a.headers.get("retry-after") or status not in (429, 503), fault
            assert s.state() == before, fault
            s.works(kind)
        for oddity in ODDITIES:
            s.works(kind, **oddity)
        assert gateway.child("worker-0") in gateway.family()  # the same worker all the time


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("name", [n for n in KINDS if not n.startswith("openai") and n != "llamacpp"])
def test_aborts_with_partial_output(start, name, stream):
    """Given up part way, two seconds late, or before the first token: one turn, nothing lost or doubled."""
    kind, stub, options = KINDS[name]
    with StubEngine(kind, **stub) as engine:
        gateway = start(workers=1, engine=engine.setting + options, engine_health_interval="100ms")
        s = Scene(engine, gateway, stream)
        engine.plan.extend([{"ids": list(b"ab"), "finish": "abort"}, {"ids": list(b"cd"), "finish": "abort", "delay_s": 2},
                            {"ids": [], "finish": "abort"}, {"ids": list(b"ef") + [257], "matched": 257}])
        a = s.call()
        assert s.text(a) == "abcdef", a.text
        asked = [r["body"].get("input_ids") or r["body"].get("token_ids") or r["body"].get("prompt") for r in engine.requests]
        asked = [ids for ids in asked if ids]
        fourth = asked[-1]
        assert fourth[-4:] == list(b"abcd") and fourth[:-4] == asked[0]
        t = gateway.get(f"/sessions/{s.sid}/trajectories").json()["trajectories"][0]
        assert t["response_ids"] == list(b"abcdef") + [257] and t["response_mask"] == [1] * 7 and len(t["response_logprobs"]) == 7


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_duplicate_request_id_is_asked_anew(start, stream):
    with StubEngine() as engine:
        gateway = start(workers=1, engine=engine.setting)
        s = Scene(engine, gateway, stream)
        engine.plan.append({"status": 400, "body": {"error": {"message": "Duplicate request ID detected: x"}}})
        engine.plan.append(good("sglang"))
        assert s.text(s.call()) == "ok"
        assert len({r["body"]["rid"] for r in engine.requests}) == 2


@pytest.mark.alone
@pytest.mark.parametrize("kind", ["sglang", "vllm", "llamacpp"])
def test_bodies_of_50_megabytes(start, kind):
    """Padding that nobody asked for is passed over; with few tokens asked for it is too much."""
    with StubEngine(kind) as engine:
        gateway = start(workers=1, engine=engine.setting)
        gateway.allow(".*")
        s = Scene(engine, gateway, False)
        worker = gateway.child("worker-0")
        s.works(kind)
        before = gateway.resident(worker)
        if kind == "sglang":
            s.works(kind, pad=50_000_000)
        ids = OK * 300_000  # about 50 MB with their logprobs
        engine.plan.append(good(kind, ids=ids[:(600_000 if kind == "vllm" else 300_000)] + [257]))
        a = s.call()
        assert a.status == 200 and a.json()["usage"]["completion_tokens"] > 200_000
        assert gateway.resident(worker) - before < 200_000_000
        s.works(kind)


@pytest.mark.parametrize("health", ["slow", "silent"])
def test_health_that_is_slow_beside_calls(start, health):
    with StubEngine(health_delay=1.0 if health == "slow" else 3600) as engine:
        gateway = start(workers=1, engine=engine.setting, engine_health_interval="50ms", engine_health_timeout="2s")
        s = Scene(engine, gateway, False)
        for _ in range(8):
            s.works("sglang")
        wait_until(lambda: gateway.get("/ready").status == 200, 10, "ready")
        assert not gateway.has_line("engine is down")

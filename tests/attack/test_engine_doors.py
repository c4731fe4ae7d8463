"""The engine behind the gateway: an agent gets at what its kind's list allows and at nothing else,
however the path is spelt; nothing that samples passes for anybody."""
import threading

import pytest

import gateway as g
from any_engine import AnyEngine

ADMIN = "admin-key-0123456789abcdef"

READS = {
    "sglang": [("GET", p) for p in ("/health", "/ping", "/model_info", "/get_model_info", "/get_weight_version",
                                    "/weight_version")]
    + [("POST", p) for p in ("/tokenize", "/v1/tokenize", "/detokenize", "/v1/detokenize")],
    "vllm": [("GET", p) for p in ("/health", "/ping", "/version", "/load")]
    + [("POST", p) for p in ("/tokenize", "/detokenize")],
    "llamacpp": [("GET", p) for p in ("/health", "/v1/health")]
    + [("POST", p) for p in ("/tokenize", "/detokenize", "/apply-template")],
    "openai": [("GET", "/health")],
}
SAMPLES = ["/generate", "/inference/v1/generate", "/completion", "/infill", "/invocations", "/vertex_generate",
           "/api/generate", "/api/chat", "/health_generate", "/generate_from_file", "/v1/audio/transcriptions",
           "/v1/realtime", "/v1/images/generations", "/v1beta/models/m:generateContent", "/v1/chat/completions/render",
           "/v1/responses/resp_1/cancel", "/v1/chat", "/GENERATE", "/Completion"]
CONTROLS = ["/slow_down", "/send_weights_to_remote_instance", "/clear_hicache_storage_backend", "/freeze_gc",
            "/weights_checker", "/flush_cache", "/update_weights_from_disk", "/abort_request", "/pause_generation",
            "/continue_generation", "/pause", "/resume", "/sleep", "/wake_up", "/reset_prefix_cache", "/collective_rpc",
            "/server_info", "/get_server_info", "/slots", "/slots/0", "/props", "/metrics", "/lora-adapters",
            "/v1/load_lora_adapter", "/open_session", "/start_profile", "/set_internal_state", "/configure_logging",
            "/v1/embeddings", "/embedding", "/v1/score", "/rerank", "/classify", "/encode", "/pooling", "/workers",
            "/docs", "/openapi.json", "/", "/v1", "/something/else"]


def spellings(path):
    """Other ways to write a path that some server reads as the same."""
    yield from (f"/{path}", f"{path}/", f"{path}//", f"/.{path}", f"/x/..{path}", f"/%2e{path}", f"{path}%20",
                f"{path};x=1", f"{path}%00", f"{path}.", f"{path}/.", f"{path}%2f", f"/v1{path}", f"/v1/v1{path}",
                f"/openai{path}", f"\\{path[1:]}", f"{path}%3f", f"{path}#x", f"/%2f{path[1:]}",
                "/%{:02x}".format(ord(path[1])) + path[2:], "/%{:02X}".format(ord(path[1])) + path[2:],
                path.upper(), path.title())


@pytest.fixture
def engine():
    with AnyEngine() as e:
        yield e


def keyed(start, engine, kind, tmp_path, **more):
    keys = tmp_path / "admin-keys"
    keys.write_text(ADMIN + "\n")
    return start(engine=f"{kind}:http://127.0.0.1:{engine.port}", workers=1, admin_key_file=str(keys), **more)


def bearer(key):
    return {"Authorization": f"Bearer {key}"}


def new(gateway, key=ADMIN):
    a = gateway.post("/sessions", {}, headers=bearer(key) if key else {})
    assert a.status == 200, a.text
    return a.json()


def places(session):
    return f"/sessions/{session['session_id']}", ""


@pytest.mark.parametrize("kind", READS)
def test_an_agent_reads_and_does_nothing_else(start, engine, kind, tmp_path):
    gateway = keyed(start, engine, kind, tmp_path)
    s = new(gateway)
    agent = bearer(s["api_key"])
    for method, path in READS[kind]:
        for place in places(s):
            if place + path in ("/health",):    # the gateway's own
                continue
            a = gateway.request(method, f"{place}{path}?x=1", body=b"{}" if method == "POST" else None, headers=agent)
            assert a.status == 200 and a.json()["path"] == f"{path}?x=1", (method, place + path, a.text)
    for path in {p for _, p in READS[kind]} | set(SAMPLES) | set(CONTROLS):
        for method in ("GET", "POST", "PUT", "DELETE", "HEAD", "PATCH", "OPTIONS"):
            if (method, path) in READS[kind]:
                continue
            before = len(engine.asked_at(path))
            a = gateway.request(method, f"/sessions/{s['session_id']}{path}", body=b"{}", headers=agent)
            assert a.status in (403, 404, 405), (method, path, a.status)
            assert path in ("/health", "/props") or len(engine.asked_at(path)) == before, (method, path)


@pytest.mark.parametrize("kind", READS)
def test_no_spelling_gets_past(start, engine, kind, tmp_path):
    gateway = keyed(start, engine, kind, tmp_path)
    s = new(gateway)
    reads = {p for _, p in READS[kind]}
    for path in SAMPLES[:6] + CONTROLS[:6] + sorted(reads):
        for spelt in spellings(path):
            if spelt in reads or "#" in spelt or "\\" in spelt:
                continue
            for method in ("GET", "POST"):
                a = gateway.request(method, f"/sessions/{s['session_id']}{spelt}", body=b"{}", headers=bearer(s["api_key"]))
                assert 400 <= a.status < 500, (method, spelt, a.status, a.text)
                assert not engine.asked_at(spelt), spelt
            if path in SAMPLES:
                a = gateway.post(f"/sessions/{s['session_id']}{spelt}", {}, headers=bearer(ADMIN))
                assert a.status in (400, 403), (spelt, a.status, a.text)
                assert not engine.asked_at(spelt), spelt
    raw = spellings("/generate")
    for spelt in (p for p in raw if "#" in p or "\\" in p):
        a = gateway.post(f"/sessions/{s['session_id']}{spelt}", {}, headers=bearer(s["api_key"]))
        assert 400 <= a.status < 500, (spelt, a.status)


def test_an_admin_controls_the_engine_and_samples_nothing_unrecorded(start, engine, tmp_path):
    gateway = keyed(start, engine, "sglang", tmp_path)
    s = new(gateway)
    for path in CONTROLS:
        if path not in ("/", "/v1"):
            a = gateway.post(f"/sessions/{s['session_id']}{path}", {}, headers=bearer(ADMIN))
            assert a.status == 200 and a.json()["path"] == path, (path, a.text)
    for path in SAMPLES:
        a = gateway.post(f"/sessions/{s['session_id']}{path}", {}, headers=bearer(ADMIN))
        assert a.status == 403 and "record" in a.json()["error"]["message"], (path, a.text)
        assert not engine.asked_at(path)
    assert gateway.post(f"/sessions/{s['session_id']}/flush_cache", {}, headers=bearer(s["runner_key"])).status == 403


def test_without_keys_everybody_is_an_agent(start, engine):
    gateway = start(engine=f"sglang:http://127.0.0.1:{engine.port}", workers=1)
    s = new(gateway, None)
    assert gateway.post(f"/sessions/{s['session_id']}/tokenize", {"prompt": "x"}).status == 200
    for path in CONTROLS:
        if path in ("/", "/v1"):
            continue
        a = gateway.post(f"/sessions/{s['session_id']}{path}", {})
        assert a.status == 404 and "--passthrough" in a.json()["error"]["message"], (path, a.text)
    for path in SAMPLES:
        assert gateway.post(f"/sessions/{s['session_id']}{path}", {}).status == 403, path
        assert not engine.asked_at(path)


def test_passthrough_names_what_is_allowed(start, engine, tmp_path):
    named = keyed(start, engine, "sglang", tmp_path, passthrough="read, /v1/embeddings, GET /server_info")
    s = new(named)
    agent = bearer(s["api_key"])
    below = f"/sessions/{s['session_id']}"
    assert named.post(f"{below}/v1/embeddings", {}, headers=agent).status == 200
    assert named.get(f"{below}/server_info", headers=agent).status == 200
    assert named.post(f"{below}/server_info", {}, headers=agent).status == 403
    assert named.post(f"{below}/v1/tokenize", {}, headers=agent).status == 200
    assert named.post(f"{below}/v1/embeddings/", {}, headers=agent).status == 403
    only = keyed(start, engine, "sglang", tmp_path, passthrough="/v1/embeddings")
    s = new(only)
    below = f"/sessions/{s['session_id']}"
    assert only.post(f"{below}/v1/embeddings", {}, headers=bearer(s["api_key"])).status == 200
    assert only.post(f"{below}/tokenize", {}, headers=bearer(s["api_key"])).status == 403
    off = keyed(start, engine, "sglang", tmp_path, passthrough="off")
    s = new(off)
    for key in (s["api_key"], ADMIN):
        assert off.post(f"/sessions/{s['session_id']}/tokenize", {}, headers=bearer(key)).status == 404


@pytest.mark.parametrize("value, why", [
    ("on", "'on'"), ("read,", "''"), ("/generate", "samples"), ("read,/v1/CHAT/completions", "samples"),
    ("/a//b", "'/a//b'"), ("tokenize", "'tokenize'"), ("get /x", "'get /x'"), ("/x.", "'/x.'"), ("off,read", "'off'")])
def test_a_passthrough_that_cannot_be_is_told(tmp_path, value, why):
    import subprocess
    done = subprocess.run([str(g.BINARY), "config", "--check", f"--passthrough={value}", f"--state-dir={tmp_path}/s"],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "--passthrough" in done.stderr and why in done.stderr, done.stderr


def test_what_passes_takes_a_place_of_the_engine(start, engine, tmp_path):
    gateway = keyed(start, engine, "sglang", tmp_path, passthrough="/slow", engine_max_inflight=2)
    s = new(gateway)
    place, agent = f"/sessions/{s['session_id']}/slow", bearer(s["api_key"])
    slow = [threading.Thread(target=gateway.get, args=(place,), kwargs={"headers": agent}) for _ in range(2)]
    for t in slow:
        t.start()
    g.wait_until(lambda: gateway.metrics().get('rollgate_engine_inflight{engine="0"}') == 2, what="both run")
    full = gateway.get(place, headers=agent)
    assert full.status == 429 and "--engine-max-inflight" in full.text and full.headers["Retry-After"], full.text
    engine.server.slow.release(2)
    for t in slow:
        t.join()
    engine.server.slow.release(1)
    assert gateway.get(place, headers=agent).status == 200
    assert gateway.metrics()['rollgate_engine_inflight{engine="0"}'] == 0

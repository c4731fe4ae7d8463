"""Every route with every kind of key: the matrix of spec http.md section 5."""
import pytest

from test_streaming import user

ADMIN = "admin-key-0123456789abcdef"
AGENT, RUNNER, NEITHER = {"agent"}, {"runner"}, set()
CALL = {"model": "m", "messages": user("hi")}

# (method, path below the session or whole, body, who besides admin)
ROUTES = [
    ("POST", "/sessions", {}, NEITHER),
    ("GET", "/sessions", None, NEITHER),
    ("POST", "/admin/weight_version", {"version": 1}, NEITHER),
    ("POST", "/admin/pause", {"mode": "hold"}, NEITHER),
    ("POST", "/admin/resume", {}, NEITHER),
    ("GET", "{id}", None, RUNNER),
    ("GET", "{id}?records=1", None, RUNNER),
    ("POST", "{id}/reward_info", {"reward_info": {"a": 1}}, RUNNER),
    ("POST", "{id}/complete", {}, RUNNER),
    ("GET", "{id}/wait?timeout_s=0", None, NEITHER),
    ("GET", "{id}/trajectories", None, NEITHER),
    ("POST", "{id}/samples", {}, NEITHER),
    ("POST", "{id}/v1/chat/completions", CALL, AGENT),
    ("POST", "{id}/chat/completions", CALL, AGENT),
    ("POST", "{id}/v1/completions", {"model": "m", "prompt": "x"}, AGENT),
    ("POST", "{id}/v1/messages", {**CALL, "max_tokens": 9}, AGENT),
    ("POST", "{id}/v1/messages/count_tokens", CALL, AGENT),
    ("POST", "{id}/v1/responses", {"model": "m", "input": "hi"}, AGENT),
    ("GET", "{id}/v1/models", None, AGENT),
    ("POST", "{id}/finalize", {}, NEITHER),
    ("POST", "{id}/abort", {}, NEITHER),
    ("DELETE", "{id}", None, NEITHER),
]


@pytest.fixture
def gateway(start, tmp_path):
    keys = tmp_path / "admin-keys"
    keys.write_text(ADMIN + "\n")
    return start(engine="builtin:echo", workers=2, admin_key_file=str(keys))


def bearer(key):
    return {"Authorization": f"Bearer {key}"} if key else {}


def new(gateway):
    a = gateway.post("/sessions", {}, headers=bearer(ADMIN))
    assert a.status == 200, a.text
    return a.json()


def forged(key):
    return key[:-1] + ("0" if key[-1] != "0" else "1")


def send(gateway, method, path, body, key, session, style=bearer):
    return gateway.request(method, path.replace("{id}", f"/sessions/{session['session_id']}"), body=body,
                           headers=style(key))


@pytest.mark.parametrize("method, path, body, allowed", ROUTES, ids=[f"{r[0]} {r[1]}" for r in ROUTES])
def test_every_key_on_every_route(gateway, method, path, body, allowed):
    other = new(gateway)
    in_session = "{id}" in path
    for kind in ("none", "garbage", "forged agent", "forged runner", "truncated", "other agent",
                 "other runner", "agent", "runner", "admin"):
        mine = new(gateway)
        key = {"none": None, "garbage": "sk-something", "forged agent": forged(mine["api_key"]),
               "forged runner": forged(mine["runner_key"]), "truncated": mine["api_key"][:-4],
               "other agent": other["api_key"], "other runner": other["runner_key"],
               "agent": mine["api_key"], "runner": mine["runner_key"], "admin": ADMIN}[kind]
        a = send(gateway, method, path, body, key, mine)
        if kind == "admin" or (kind in allowed and in_session):
            assert a.status in (200, 204, 422), (kind, a.status, a.text)
        elif kind in ("agent", "runner", "other agent", "other runner"):
            assert a.status == 403, (kind, a.status, a.text)
        else:
            assert a.status == 401, (kind, a.status, a.text)
        if method == "POST" and path == "/admin/pause" and a.status == 200:
            gateway.post("/admin/resume", {}, headers=bearer(ADMIN))


@pytest.mark.parametrize("style", [bearer, lambda key: {"x-api-key": key} if key else {},
                                   lambda key: {**bearer("sk-of-another-service"), "x-api-key": key or ""}],
                         ids=["bearer", "x-api-key", "both"])
def test_every_key_on_the_routers_own_pages(start, tmp_path, style):
    keys = tmp_path / "admin-keys"
    keys.write_text(ADMIN + "\n")
    gateway = start(engine="builtin:echo", workers=2, admin_key_file=str(keys), metrics_auth=True)
    s = new(gateway)
    for key, status in ((None, 401), ("sk-something", 401), (forged(s["api_key"]), 401), (forged(s["runner_key"]), 401),
                        (s["api_key"][:-4], 401), (s["api_key"], 403), (s["runner_key"], 403), (ADMIN, 200)):
        a = gateway.get("/metrics", headers=style(key))
        assert a.status == status, (key, a.status, a.text)
        assert status == 200 or a.json()["error"]["code"] == {401: "missing_key", 403: "wrong_scope"}[status]
        assert gateway.get("/health", headers=style(key)).status == gateway.get("/ready", headers=style(key)).status == 200


def test_x_api_key_and_session_by_key(gateway):
    s = new(gateway)
    a = gateway.post("/v1/chat/completions", CALL, headers={"x-api-key": s["api_key"]})
    assert a.status == 200 and a.headers["Rollgate-Session"] == s["session_id"]
    b = gateway.post("/v1/messages", {**CALL, "max_tokens": 9}, headers=bearer(s["api_key"]))
    assert b.status == 200 and b.headers["Rollgate-Session"] == s["session_id"]


def test_a_token_of_the_client_beside_the_session_key_does_no_harm(gateway):
    for _ in range(2):  # one session on each worker
        s = new(gateway)
        both = {"Authorization": "Bearer sk-of-another-service", "x-api-key": s["api_key"]}
        for path in ("/v1/messages", f"/sessions/{s['session_id']}/v1/messages"):
            a = gateway.post(path, {**CALL, "max_tokens": 9}, headers=both)
            assert a.status == 200 and a.headers["Rollgate-Session"] == s["session_id"], a.text
        assert gateway.get("/sessions", headers=both).status == 403
    assert gateway.get("/sessions", headers={**bearer("x"), "x-api-key": "y"}).status == 401


def test_keys_in_queries_are_refused(gateway):
    s = new(gateway)
    for name in ("key", "api_key", "access_token"):
        a = gateway.get(f"/sessions/{s['session_id']}?{name}={ADMIN}")
        assert a.status == 401, name


def test_keys_do_not_reach_the_log(gateway):
    s = new(gateway)
    gateway.chat(s, "hi")
    gateway.request("GET", f"/sessions/{s['session_id']}?key={ADMIN}")
    send(gateway, "POST", "{id}/v1/chat/completions", CALL, s["api_key"], s)
    for secret in (ADMIN, s["api_key"][-40:], s["runner_key"][-40:]):
        assert secret not in gateway.log()


def test_only_a_key_that_proves_the_id_may_reseed(gateway):
    s = new(gateway)
    gateway.request("DELETE", f"/sessions/{s['session_id']}", headers=bearer(ADMIN))
    a = send(gateway, "POST", "{id}/v1/chat/completions", CALL, s["api_key"], s)
    assert a.status == 410
    unknown = {"session_id": "w0-" + "0" * 32}
    assert send(gateway, "POST", "{id}/v1/chat/completions", CALL, s["api_key"], unknown).status == 403
    assert send(gateway, "POST", "{id}/v1/chat/completions", CALL, None, unknown).status == 401
    assert send(gateway, "POST", "{id}/v1/chat/completions", CALL, ADMIN, unknown).status == 200

"""Every route with every kind of key: the matrix of spec http.md section 5."""
import hashlib
import hmac
import json
import re
import signal
import socket

import pytest

import gateway as g
from test_streaming import user

ADMIN = "admin-key-0123456789abcdef"
AGENT, RUNNER, NEITHER = {"agent"}, {"runner"}, set()
CALL = {"model": "m", "messages": user("hi")}

# (method, path below the session or whole, body, who besides admin)
ROUTES = [
    ("POST", "/sessions", {}, NEITHER),
    ("GET", "/sessions", None, NEITHER),
    ("GET", "/admin/engines", None, NEITHER),
    ("PUT", "/admin/engines", {"engines": ["builtin:echo"]}, NEITHER),
    ("POST", "/admin/engines", {"engines": ["builtin:echo"]}, NEITHER),
    ("DELETE", "/admin/engines", {"engines": ["builtin:echo"]}, NEITHER),
    ("POST", "/admin/weight_version", {"version": 1}, NEITHER),
    ("GET", "/admin/adapters", None, NEITHER),
    ("POST", "/admin/adapters", {"name": "a", "version": 1}, NEITHER),
    ("POST", "/admin/pause", {"mode": "hold"}, NEITHER),
    ("POST", "/admin/resume", {}, NEITHER),
    ("POST", "/admin/group_result", {"group": "g", "entry": {"id": "g"}}, NEITHER),
    ("POST", "/sessions/abort", {"labels": {"no": "such"}}, NEITHER),
    ("POST", "/sessions/finalize", {"labels": {"no": "such"}}, NEITHER),
    ("POST", "/sessions/import", {}, NEITHER),          # 400: there is no snapshot
    ("GET", "{id}/snapshot", None, NEITHER),
    ("GET", "{id}", None, RUNNER),
    ("GET", "{id}?records=1", None, RUNNER),
    ("GET", "/events", None, NEITHER),
    ("GET", "/stats", None, NEITHER),
    ("GET", "/fleet", None, NEITHER),                   # 404: there is no fleet
    ("POST", "/fleet/drain", None, NEITHER),
    ("POST", "{id}/logprobs", {"version": 1, "turns": []}, NEITHER),     # 400: there is no turn
    ("GET", "{id}/events", None, RUNNER),
    ("GET", "{id}/tokens", None, RUNNER),
    ("GET", "{id}/media/{media}", None, RUNNER),
    ("POST", "{id}/reward_info", {"reward_info": {"a": 1}}, RUNNER),
    ("POST", "{id}/complete", {}, RUNNER),
    ("POST", "{id}/fork", {}, NEITHER),                 # 400: it has no answer
    ("GET", "{id}/wait?timeout_s=0", None, NEITHER),
    ("GET", "{id}/trajectories", None, NEITHER),
    ("POST", "{id}/samples", {}, NEITHER),
    ("POST", "{id}/v1/chat/completions", CALL, AGENT),
    ("POST", "{id}/chat/completions", CALL, AGENT),
    ("POST", "{id}/v1/completions", {"model": "m", "prompt": "x"}, AGENT),
    ("POST", "{id}/v1/messages", {**CALL, "max_tokens": 9}, AGENT),
    ("POST", "{id}/v1/messages/count_tokens", CALL, AGENT),
    ("POST", "{id}/v1/responses", {"model": "m", "input": "hi"}, AGENT),
    ("POST", "{id}/v1/responses/compact", {"model": "m", "input": "hi"}, AGENT),
    ("GET", "{id}/v1/models", None, AGENT),
    ("GET", "{id}/v1/models/m", None, AGENT),
    ("POST", "{id}/messages", {**CALL, "max_tokens": 9}, AGENT),
    ("POST", "{id}/responses", {"model": "m", "input": "hi"}, AGENT),
    ("POST", "{id}/completions", {"model": "m", "prompt": "x"}, AGENT),
    ("POST", "{id}/v1/something/else", {}, AGENT),      # passed on to the engine, which builtin has not
    ("POST", "{id}/reward_info/", {}, AGENT),           # no control route: the same
    ("POST", "{id}//finalize", {}, NEITHER),
    ("POST", "{id}/%66inalize", {}, NEITHER),
    ("POST", "{id}/finalize", {}, NEITHER),
    ("POST", "{id}/deliver", {}, NEITHER),              # 409: it is not finalized
    ("POST", "{id}/abort", {}, NEITHER),
    ("DELETE", "{id}", None, NEITHER),
]

# what these take is not there
WITHOUT = ("{id}/fork", "/sessions/import", "{id}/logprobs")

# answered by nobody behind the builtin engine
NOWHERE = ("/fleet", "/fleet/drain", "{id}/v1/models/m", "{id}/v1/something/else", "{id}/reward_info/", "{id}//finalize", "{id}/%66inalize",
           "{id}/media/{media}")


@pytest.fixture
def gateway(start, tmp_path):
    keys = tmp_path / "admin-keys"
    keys.write_text(ADMIN + "\n")
    return start(engine="builtin:echo", workers=2, admin_key_file=str(keys))


@pytest.fixture
def kept_gateway(kept, tmp_path_factory):
    keys = tmp_path_factory.getbasetemp() / "admin-keys"
    keys.write_text(ADMIN + "\n")
    return kept.gateway(engine="builtin:echo", workers=2, admin_key_file=str(keys))


def bearer(key):
    return {"Authorization": f"Bearer {key}"} if key else {}


def new(gateway):
    a = gateway.post("/sessions", {}, headers=bearer(ADMIN))
    assert a.status == 200, a.text
    return a.json()


def forged(key):
    return key[:-1] + ("0" if key[-1] != "0" else "1")


def made_with(secret, scope, session_id):
    mac = hmac.new(secret, b"rollgate-key-1:%s:%s" % (scope, session_id.encode()), hashlib.sha256).hexdigest()
    return f"rg{chr(scope[0])}-{session_id}-{mac}"


def executors_key(secret, name):
    return f"rgx-{name}-" + hmac.new(secret, f"rollgate-key-1:executor:{name}".encode(), hashlib.sha256).hexdigest()


def send(gateway, method, path, body, key, session, style=bearer):
    path = path.replace("{id}", f"/sessions/{session['session_id']}").replace("{media}", "0" * 64)
    if path.endswith("/events"):
        return begin_stream(gateway, path, style(key))
    return gateway.request(method, path, body=body, headers=style(key))


def begin_stream(gateway, path, headers):
    """The head of a stream that does not end by itself; what is refused is read whole."""
    c = gateway.connect()
    try:
        c.request("GET", path, headers=headers)
        answer = c.getresponse()
        return g.Answer(answer.status, dict(answer.getheaders()), b"" if answer.status == 200 else answer.read())
    finally:
        c.close()


def kinds_of(mine, other):
    """Every kind of key that may be shown for the session `mine`, and whether it is valid at all."""
    agent, runner = mine["api_key"], mine["runner_key"]
    return {
        "none": (None, False), "garbage": ("sk-something", False), "forged agent": (forged(agent), False),
        "forged runner": (forged(runner), False), "truncated": (agent[:-4], False),
        "longer": (agent + "0", False), "agent that calls itself runner": ("rgr" + agent[3:], False),
        "runner that calls itself agent": ("rga" + runner[3:], False),
        "agent with another's id": (other["api_key"][:4] + mine["session_id"] + other["api_key"][-65:], False),
        "in capitals": (agent[:-64] + agent[-64:].upper(), False),
        "of another secret": (made_with(b"another secret that is long enough", b"agent", mine["session_id"]), False),
        "of an empty mac": (agent[:-64], False), "admin's half": (ADMIN[:12], False), "admin twice": (ADMIN + ADMIN, False),
        "other agent": (other["api_key"], True), "other runner": (other["runner_key"], True),
        "agent": (agent, True), "runner": (runner, True), "admin": (ADMIN, True),
    }


@pytest.mark.parametrize("method, path, body, allowed", ROUTES, ids=[f"{r[0]} {r[1]}" for r in ROUTES])
def test_every_key_on_every_route(gateway, method, path, body, allowed):
    other = new(gateway)
    in_session = "{id}" in path
    for kind in kinds_of(other, other):
        mine = new(gateway)
        key, valid = kinds_of(mine, other)[kind]
        a = send(gateway, method, path, body, key, mine)
        if kind == "admin" or (kind in allowed and in_session):
            known = 404 if path in NOWHERE else 409 if path == "{id}/deliver" else 400 if path in WITHOUT else 200
            assert a.status in (200, 204, 422, known), (kind, a.status, a.text)
        else:
            assert a.status == (403 if valid else 401), (kind, a.status, a.text)
            assert ADMIN not in a.text and (key is None or key not in a.text)
            if in_session:
                state = gateway.get(f"/sessions/{mine['session_id']}", headers=bearer(ADMIN)).json()
                assert state["phase"] == "open" and state["num_branches"] == 0 and not state.get("reward"), (kind, state)
        if method == "POST" and path == "/admin/pause" and a.status == 200:
            gateway.post("/admin/resume", {}, headers=bearer(ADMIN))


ENDED = [r for r in ROUTES if r[3] == AGENT]


@pytest.mark.parametrize("method, path, body", [r[:3] for r in ENDED], ids=[f"{r[0]} {r[1]}" for r in ENDED])
@pytest.mark.parametrize("end", ["finalize", "abort", "DELETE"])
def test_every_key_of_an_ended_session(kept_gateway, method, path, body, end):
    """An agent's is worth nothing any more, whatever it is shown for, and whether the path or the key names the session."""
    gateway = kept_gateway
    mine, other = new(gateway), new(gateway)
    place = f"/sessions/{mine['session_id']}"
    if end == "DELETE":
        assert gateway.request("DELETE", place, headers=bearer(ADMIN)).status == 204
    else:
        assert send(gateway, "POST", "{id}/" + end, {}, ADMIN, mine).status in (200, 204)
    for kind, (key, valid) in kinds_of(mine, other).items():
        if kind == "admin":
            continue
        a = send(gateway, method, path, body, key, mine)
        assert a.status == (410 if kind == "agent" else 403 if valid else 401), (kind, a.status, a.text)
        if kind == "agent":
            a = send(gateway, method, path.replace("{id}", ""), body, key, mine)
            assert a.status == 410, (path, a.status, a.text)


def test_the_matrix_has_every_route():
    table = (g.ROOT / "worker/plane/api/routes.def").read_text()
    known = {(m, p.split("?")[0]) for m, p, _, _ in ROUTES}
    rows = re.findall(r'^(GLOBAL|SESSION)\("(\w+)", "([^"]*)", (SCOPE_P)?', table, re.M)
    assert len(rows) >= 14
    assert {(m, ("{id}" if kind == "SESSION" else "") + p) for kind, m, p, everybody in rows if not everybody} - known == set()


def begin_request(gateway, path, key):
    """The answer to a head whose body does not come: its status, and what follows."""
    with socket.create_connection(("127.0.0.1", gateway.port), 30) as s:
        s.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 20000000\r\nx-api-key: {key}\r\n\r\n".encode())
        head, text = b"", b""
        while b"\r\n\r\n" not in head:
            more = s.recv(65536)
            assert more, head
            head += more
        head, _, text = head.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head, re.I)
        while length and len(text) < int(length[1]) and (more := s.recv(65536)):
            text += more
    return int(head.split()[1]), text.decode()


def test_no_body_is_taken_for_whom_a_path_is_not(start, tmp_path):
    """Sessions' keys at the dispatcher's paths, executors' at all others: 403 by the head alone, in the router."""
    (tmp_path / "admin-keys").write_text(ADMIN + "\n")
    secret = b"a secret of this test, long enough 0123456789"
    (tmp_path / "secret").write_text(secret.decode() + "\n")
    gateway = start(engine="builtin:echo", workers=2, admin_key_file=str(tmp_path / "admin-keys"), key_secret_file=str(tmp_path / "secret"))
    mine = new(gateway)
    keys = {"agent": mine["api_key"], "runner": mine["runner_key"], "executor": executors_key(secret, "x")}
    dispatchers = ["/attempts/claim", "/attempts/renew", f"/attempts/{'0' * 32}/end", "/attempts", "/attempts/else"]
    admins = ["/groups", "/groups/g/cancel", "/queues/train/ack", "/sessions", "/admin/pause"]
    agents = ["/v1/chat/completions", "/v1/messages", "/v1/embeddings", "/else", f"/sessions/{mine['session_id']}/v1/responses"]
    off = []
    for paths, may in ((dispatchers, {"executor"}), (admins, set()), (agents, {"agent", "runner"})):
        for path in paths:
            for who in keys.keys() - may:
                status, text = begin_request(gateway, path, keys[who])      # in the dispatcher's words, and the worker's
                error = json.loads(text)["error"]
                said = "the key belongs to another session" if path.startswith("/sessions/") else "the key does not allow this request"
                if (status, error["type"], error["message"], error.get("code", "wrong_scope")) != (403, "permission_error", said, "wrong_scope"):
                    off.append((path, who, status, text))
    assert not off
    assert sum(v for k, v in gateway.metrics().items() if k.startswith("rollgate_refusals_total") and 'reason="key"' in k) == 10 + 15 + 5


@pytest.mark.parametrize("path, body", [
    ("/v1/chat/completions", CALL), ("/chat/completions", CALL), ("/v1/completions", {"model": "m", "prompt": "x"}),
    ("/v1/messages", {**CALL, "max_tokens": 9}), ("/v1/messages/count_tokens", CALL),
    ("/v1/responses", {"model": "m", "input": "hi"})])
def test_every_key_at_the_root(gateway, path, body):
    """The key names the session: an agent's is its own, a runner may not, an admin's names none."""
    mine, other = new(gateway), new(gateway)
    for kind, (key, valid) in kinds_of(mine, other).items():
        a = gateway.post(path, body, headers=bearer(key))
        if kind in ("agent", "other agent"):
            owner = mine if kind == "agent" else other
            assert a.status == 200 and a.headers["Rollgate-Session"] == owner["session_id"], (kind, a.text)
        elif kind == "admin":   # a session of its own
            assert a.status == 200 and a.headers.get("Rollgate-Session") not in (mine["session_id"], other["session_id"])
        else:
            assert a.status == (403 if valid else 401), (kind, a.status, a.text)


def test_every_key_on_the_routers_own_pages(start, tmp_path):
    keys = tmp_path / "admin-keys"
    keys.write_text(f"# the trainers\n{ADMIN}\n")
    guarded = start(engine="builtin:echo", workers=1, admin_key_file=str(keys), metrics_auth=True)
    mine, other = new(guarded), new(guarded)
    for kind, (key, valid) in kinds_of(mine, other).items():
        for path in ("/health", "/ready"):
            assert guarded.get(path, headers=bearer(key)).status == 200, (kind, path)
        a = guarded.get("/metrics", headers=bearer(key))
        assert a.status == (200 if kind == "admin" else 403 if valid else 401), (kind, a.status)
        if a.status != 200:
            names = {401: "authentication_error", 403: "permission_error"}
            assert a.json()["error"]["type"] == names[a.status]
    for key in (ADMIN, mine["api_key"]):    # a key in a query is refused here, too
        assert guarded.get(f"/metrics?key={key}", headers=bearer(ADMIN)).status == 401
    assert guarded.get("/metrics?name=x", headers=bearer(ADMIN)).status == 200


@pytest.mark.parametrize("base", ["/v1", "/sessions/{id}/v1", "/sessions/{id}"])
def test_refusals_have_the_shape_of_the_dialect(gateway, base):
    s, other = new(gateway), new(gateway)
    for path, anthropic in (("/messages", True), ("/messages/count_tokens", True), ("/chat/completions", False),
                            ("/responses", False)):
        for key, kind in ((None, "authentication_error"), (s["runner_key"], "permission_error"),
                          (other["api_key"], "permission_error")):
            path_here = base.format(id=s["session_id"]) + path
            a = gateway.post(path_here, {**CALL, "max_tokens": 9}, headers=bearer(key) if key else {})
            if a.status in (200, 400):  # at the root the other's key names its own session
                assert base == "/v1" and key == other["api_key"]
                continue
            body = a.json()
            assert body["error"]["type"] == kind and (body.get("type") == "error") == anthropic, body
            assert ("code" in body["error"]) != anthropic
    refused = {k: v for k, v in gateway.metrics().items() if "requests_total" in k and 'status="401"' in k and v}
    assert any("messages" in k for k in refused) and any("responses" in k for k in refused)


def test_x_api_key_and_session_by_key(gateway):
    s = new(gateway)
    a = gateway.post("/v1/chat/completions", CALL, headers={"x-api-key": s["api_key"]})
    assert a.status == 200 and a.headers["Rollgate-Session"] == s["session_id"]
    a = gateway.post("/openai/deployments/m/chat/completions?api-version=1", CALL,
                     headers={"api-key": s["api_key"]})    # Azure's clients
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
        for key in (ADMIN, s["api_key"], s["runner_key"]):  # not even beside a good one
            a = gateway.get(f"/sessions/{s['session_id']}?records=1&{name}={key}", headers=bearer(ADMIN))
            assert a.status == 401, name
    assert gateway.get(f"/sessions/{s['session_id']}?records", headers=bearer(ADMIN)).status == 200
    assert gateway.get(f"/sessions/{s['session_id']}?key=value", headers=bearer(ADMIN)).status == 400  # no key, no parameter


@pytest.mark.parametrize("path", ["/sessions", "/sessions/{id}", "/v1/models", "/groups", "/metrics"])
def test_a_query_has_not_very_many_parameters(gateway, path):
    """Each value might be a key: more than anything takes are not looked at, and no key hides behind them."""
    s = new(gateway)
    path = path.replace("{id}", s["session_id"])
    a = gateway.get(path + "?" + "a=b&" * 64 + f"key={ADMIN}", headers=bearer(ADMIN))
    assert a.status == 400 and "more than 64 parameters" in a.text, (a.status, a.text)
    a = gateway.get(path + "?" + "a=b&" * 63 + f"key={ADMIN}", headers=bearer(ADMIN))
    assert a.status == 401, (a.status, a.text)
    a = gateway.get(path + "?" + "a=b&" * 65)
    assert a.status == (400 if path == "/metrics" else 401), (a.status, a.text)


@pytest.mark.parametrize("level, form", [("debug", "text"), ("debug", "json"), ("info", "text")])
def test_keys_do_not_reach_the_log(tmp_path, level, form):
    (tmp_path / "admin-keys").write_text(ADMIN + "\n")
    (tmp_path / "secret").write_text("the-secret-of-this-test-0123456789abcdef\n")
    gateway = g.Gateway(engine="builtin:echo", workers=2, admin_key_file=str(tmp_path / "admin-keys"), log_level=level,
                        log_format=form, key_secret_file=str(tmp_path / "secret")).start(wait=False)
    gateway.wait_line(r"\bserving\b")
    s = new(gateway)
    for method, path, body, _ in ROUTES:
        for key in (ADMIN, s["api_key"], s["runner_key"], forged(s["api_key"])):
            if not path.startswith("/admin") and method != "DELETE":
                send(gateway, method, path, body, key, s)
    for secret in (ADMIN, s["api_key"], s["runner_key"]):     # where keys do not belong
        gateway.get(f"/sessions/{s['session_id']}?key={secret}")
        gateway.get(f"/sessions/{secret}")
        gateway.get(f"/{secret}", headers=bearer(ADMIN))
        gateway.get("/sessions", headers={"Authorization": secret, "Cookie": secret, "Rollgate-Request-Id": secret})
        gateway.post(f"/sessions/{s['session_id']}/v1/chat/completions", {"model": secret, "messages": [{"role": secret}]},
                     headers=bearer(ADMIN))
    gateway.signal(signal.SIGHUP)
    gateway.wait_line("configuration reloaded")
    gateway.stop()
    for secret in (ADMIN, "the-secret-of-this-test", s["api_key"][-40:], s["runner_key"][-40:]):
        assert secret not in gateway.log()


def test_with_keys_no_call_makes_a_session(gateway):
    s = new(gateway)
    gateway.request("DELETE", f"/sessions/{s['session_id']}", headers=bearer(ADMIN))
    a = send(gateway, "POST", "{id}/v1/chat/completions", CALL, s["api_key"], s)
    assert a.status == 410
    unknown = {"session_id": "w0-" + "0" * 32}
    assert send(gateway, "POST", "{id}/v1/chat/completions", CALL, s["api_key"], unknown).status == 403
    assert send(gateway, "POST", "{id}/v1/chat/completions", CALL, None, unknown).status == 401
    for unknown in (unknown, {"session_id": "w77-" + "0" * 32}, {"session_id": "nonsense"}):
        a = send(gateway, "POST", "{id}/v1/chat/completions", CALL, ADMIN, unknown)
        assert a.status == 404 and a.json()["error"]["code"] == "unknown_session", a.text

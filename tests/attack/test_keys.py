"""Who may do what: route x spelling x verb x key x header place, keys of several places at once, keys of
sessions that have ended, bodies before keys. The router and the worker must judge alike."""
import itertools
import json
import socket

import pytest

import gateway as g
from stub_engines import StubEngine
from test_authorization import ADMIN, CALL, bearer, executors_key, forged, made_with, new

SECRET = b"a secret of this test, long enough 0123456789"


@pytest.fixture
def gateway(start, tmp_path):
    (tmp_path / "admin-keys").write_text(ADMIN + "\n")
    (tmp_path / "secret").write_text(SECRET.decode() + "\n")
    return start(engine="builtin:echo", workers=2, admin_key_file=str(tmp_path / "admin-keys"),
                 key_secret_file=str(tmp_path / "secret"))


# how a key is shown; whether it counts at all
PLACES = {
    "bearer": (lambda k: [("Authorization", f"Bearer {k}")], True),
    "BEARER": (lambda k: [("AUTHORIZATION", f"BEARER   {k}  ")], True),
    "tab": (lambda k: [("authorization", f"bearer\t{k}")], True),
    "x-api-key": (lambda k: [("x-api-key", k)], True),
    "X-API-KEY": (lambda k: [("X-API-KEY", f"  {k} ")], True),
    "api-key": (lambda k: [("Api-Key", k)], True),
    "behind a foreign token": (lambda k: [("Authorization", "Bearer sk-else"), ("x-api-key", k)], True),
    "before a foreign token": (lambda k: [("Authorization", f"Bearer {k}"), ("api-key", "else")], True),
    "second authorization": (lambda k: [("Authorization", "Basic eDp5"), ("Authorization", f"Bearer {k}")], True),
    "thrice": (lambda k: [("Authorization", f"Bearer {k}"), ("x-api-key", k), ("api-key", k)], True),
    "basic": (lambda k: [("Authorization", f"Basic {k}")], False),
    "bare": (lambda k: [("Authorization", k)], False),
    "token": (lambda k: [("Authorization", f"Token {k}")], False),
    "glued": (lambda k: [("Authorization", f"Bearer{k}")], False),
    "two in one": (lambda k: [("Authorization", f"Bearer {k}, Bearer {k}")], False),
    "quoted": (lambda k: [("x-api-key", f'"{k}"')], False),
    "bearer in x-api-key": (lambda k: [("x-api-key", f"Bearer {k}")], False),
    "cookie": (lambda k: [("Cookie", f"key={k}")], False),
    "underscore": (lambda k: [("x_api_key", k)], False),
    "proxy": (lambda k: [("Proxy-Authorization", f"Bearer {k}")], False),
}


def raw(gateway, method, target, headers, body=b""):
    """Exactly this request on a connection of its own; its status and Rollgate-Session."""
    head = f"{method} {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\nConnection: close\r\n"
    head += "".join(f"{n}: {v}\r\n" for n, v in headers) + "\r\n"
    with socket.create_connection(("127.0.0.1", gateway.port), 30) as s:
        s.sendall(head.encode() + body)
        answer = b""
        while chunk := s.recv(65536):
            answer += chunk
    lines = answer.split(b"\r\n\r\n")[0].decode().split("\r\n")
    named = [line.split(": ")[1] for line in lines if line.lower().startswith("rollgate-session:")]
    return int(lines[0].split()[1]), (named or [None])[0]


# what a target is: its method, body, and who besides admin; {id} is the session
TARGETS = [
    ("GET", "/sessions", b"", ()), ("GET", "/sessions?limit=1", b"", ()), ("POST", "/admin/resume", b"{}", ()),
    ("GET", "/sessions/{id}", b"", ("runner",)), ("GET", "/sessions/{id}?records=1", b"", ("runner",)),
    ("POST", "/sessions/{id}/reward_info", b'{"reward_info": {}}', ("runner",)),
    ("GET", "/sessions/{id}/trajectories", b"", ()),
    ("POST", "/sessions/{id}/v1/chat/completions", json.dumps(CALL).encode(), ("agent",)),
    ("POST", "/sessions/{id}/openai/deployments/m/chat/completions?api-version=1", json.dumps(CALL).encode(), ("agent",)),
    ("GET", "/sessions/{id}/v1/models", b"", ("agent",)),
    ("POST", "/v1/chat/completions", json.dumps(CALL).encode(), ("agent",)),
    ("POST", "/chat/completions", json.dumps(CALL).encode(), ("agent",)),
    ("GET", "/v1/models", b"", ("agent",)),
    ("POST", "/attempts/claim", b'{"executor": "x", "slots": {"none": 1}, "wait_s": 0}', ("executor",)),
    ("POST", "/attempts/renew", b'{"executor": "x", "attempts": []}', ("executor",)),
    ("GET", "/attempts", b"", ()), ("GET", "/groups", b"", ()), ("GET", "/queues/train", b"", ()),
]


def kinds(mine, other):
    agent = mine["api_key"]
    return {"none": "", "garbage": "sk-x", "forged": forged(agent), "truncated": agent[:-1],
            "capitals": agent.upper(), "of another secret": made_with(b"x" * 40, b"agent", mine["session_id"]),
            "other agent": other["api_key"], "other runner": other["runner_key"],
            "of no worker": made_with(SECRET, b"agent", "w77-" + "1" * 32),
            "executor": executors_key(SECRET, "x"), "forged executor": forged(executors_key(SECRET, "x")),
            "agent": agent, "runner": mine["runner_key"], "admin": ADMIN}


def expected(kind, counts, target, allowed):
    in_session = "{id}" in target
    if not counts or kind in ("none", "garbage", "forged", "forged executor", "truncated", "capitals", "of another secret"):
        return 401
    if kind == "admin" or kind in allowed:
        return 200
    if kind == "other agent" and "agent" in allowed and not in_session:
        return 200      # its own session
    return 403


@pytest.mark.parametrize("place", PLACES)
def test_every_target_key_and_place(gateway, place):
    mine, other = new(gateway), new(gateway)
    show, counts = PLACES[place]
    off = []
    for method, target, body, allowed in TARGETS:
        for kind, key in kinds(mine, other).items():
            wanted = expected(kind, counts, target, allowed)
            got, session = raw(gateway, method, target.format(id=mine["session_id"]), show(key), body)
            if got != wanted:
                off.append((method, target, kind, got, wanted))
            elif got == 200 and kind == "other agent" and session != other["session_id"]:
                off.append((method, target, kind, "in", session))
    assert not off
    assert not [r for r in gateway.get("/sessions?reseeded=true", headers=bearer(ADMIN)).json()["sessions"]
                if r["reseeded_from"]]


VERBS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")


@pytest.mark.parametrize("verb", VERBS)
def test_no_spelling_of_a_guarded_path_gets_an_agent_past(gateway, verb):
    """Every spelling is refused, or does nothing to the session."""
    mine = new(gateway)
    i = mine["session_id"]
    control = ["", "/finalize", "/trajectories", "/samples", "/abort", "/reward_info", "/complete", "/wait?timeout_s=0"]
    spelt = []
    for rest in control:
        base = f"/sessions/{i}"
        spelt += [base + rest, f"/{base}{rest}", f"/sessions//{i}{rest}", f"{base}/{rest}", f"{base}/.{rest}",
                  f"/./sessions/{i}{rest}", f"/x/../sessions/{i}{rest}", f"/Sessions/{i}{rest}",
                  f"/sessions/{i.upper()}{rest}", f"/%73essions/{i}{rest}", f"/sessions%2f{i}{rest}",
                  f"{base}{rest.upper()}", f"{base}/v1{rest}", f"{base};x{rest}", f"{base}%00{rest}",
                  f"{base}{rest.split('?')[0]}%20", f"{base}{rest.split('?')[0]}/", f"/v1{base}{rest}"]
    for target, key in itertools.product(spelt, (mine["api_key"], forged(mine["runner_key"]), "")):
        status, _ = raw(gateway, verb, target, bearer(key).items() if key else [], b"{}" if verb not in ("GET", "HEAD") else b"")
        assert status in (400, 401, 403, 404, 405), (verb, target, status)
    state = gateway.get(f"/sessions/{i}", headers=bearer(ADMIN)).json()
    assert state["phase"] == "open" and not state["reward_info"] and state["num_branches"] == 0
    assert [r["session_id"] for r in gateway.get("/sessions", headers=bearer(ADMIN)).json()["sessions"]] == [i]


def test_two_different_keys_are_refused(gateway):
    a, b = new(gateway), new(gateway)
    keys = [a["api_key"], b["api_key"], a["runner_key"], ADMIN, forged(a["api_key"]), "rga-"]
    places = [lambda k: ("Authorization", f"Bearer {k}"), lambda k: ("x-api-key", k), lambda k: ("api-key", k)]
    for one, two in itertools.permutations(keys, 2):
        for p, q in itertools.product(places, repeat=2):
            for target in ("/v1/chat/completions", f"/sessions/{a['session_id']}/v1/chat/completions"):
                status, session = raw(gateway, "POST", target, [p(one), q(two)], json.dumps(CALL).encode())
                assert status == 400 and session in (None, a["session_id"]), (one[:4], two[:4], target, status)
    assert gateway.get("/health", headers={"Authorization": f"Bearer {a['api_key']}", "x-api-key": b["api_key"]}).status == 200
    for s in (a, b):
        assert gateway.get(f"/sessions/{s['session_id']}", headers=bearer(ADMIN)).json()["num_branches"] == 0


def test_an_agents_key_makes_no_session(gateway):
    """Valid keys of sessions that are not there: nothing new comes into being, for no header place."""
    a = new(gateway)
    for unknown in ("w0-" + "0" * 32, "w1-" + "a" * 32, "w77-" + "1" * 32, "w999999-" + "2" * 32):
        for scope in (b"agent", b"runner"):
            key = made_with(SECRET, scope, unknown)
            for place in ("bearer", "x-api-key", "behind a foreign token"):
                for target in ("/v1/chat/completions", "/v1/messages/count_tokens", f"/sessions/{unknown}/v1/chat/completions",
                               f"/sessions/{a['session_id']}/v1/chat/completions"):
                    status, _ = raw(gateway, "POST", target, PLACES[place][0](key), json.dumps(CALL).encode())
                    assert status in (403, 410), (unknown, scope, place, target, status)
    rows = gateway.get("/sessions", headers=bearer(ADMIN)).json()["sessions"]
    assert [r["session_id"] for r in rows] == [a["session_id"]]
    assert gateway.metrics()["rollgate_sessions_created_total"] == 1
    assert not gateway.metrics().get("rollgate_sessions_reseeded_total")


def test_an_ended_sessions_key_is_refused_for_good(start, tmp_path):
    (tmp_path / "admin-keys").write_text(ADMIN + "\n")
    gateway = start(engine="builtin:echo", workers=1, admin_key_file=str(tmp_path / "admin-keys"), tombstone_ttl="0",
                    export_retention="0")
    for end in ("DELETE", "finalize", "abort"):
        s = new(gateway)
        place = f"/sessions/{s['session_id']}"
        assert gateway.post(f"{place}/v1/chat/completions", CALL, headers=bearer(s["api_key"])).status == 200
        if end == "DELETE":
            gateway.request("DELETE", place, headers=bearer(ADMIN))
        else:
            gateway.post(f"{place}/{end}", {}, headers=bearer(ADMIN))
        # until the tombstone is forgotten, too
        g.wait_until(lambda: gateway.get(place, headers=bearer(ADMIN)).status == 404, what="it is forgotten")
        for target in (f"{place}/v1/chat/completions", "/v1/chat/completions", "/v1/messages"):
            a = gateway.post(target, {**CALL, "max_tokens": 5}, headers=bearer(s["api_key"]))
            assert a.status == 410, (end, target, a.status, a.text)
        for below in ("/v1/models", "/v1/models/m", "/models", "/v1/responses/resp_1", "/v1/something/else"):
            for target in (f"{place}{below}", below):
                a = gateway.get(target, headers=bearer(s["api_key"]))
                assert a.status == 410 and a.json()["error"]["code"] == "session_ended", (end, target, a.status, a.text)
        a = gateway.post(f"{place}/reward_info", {"reward_info": {"a": 1}}, headers=bearer(s["runner_key"]))
        assert a.status in (404, 410)
    assert gateway.get("/sessions", headers=bearer(ADMIN)).json()["sessions"] == []


@pytest.mark.parametrize("end", ["DELETE", "finalize", "abort"])
def test_an_ended_sessions_key_reaches_no_engine(start, tmp_path, end):
    """What --passthrough lets through to it, below the session and by the key alone."""
    (tmp_path / "admin-keys").write_text(ADMIN + "\n")
    with StubEngine("sglang") as engine:
        gateway = start(engine=engine.setting, workers=1, admin_key_file=str(tmp_path / "admin-keys"), passthrough="/echo")
        mine, other = new(gateway), new(gateway)
        place = f"/sessions/{mine['session_id']}"

        def told(target, key):
            """By the engine, or what the gateway refuses it for."""
            a = gateway.post(target, {"input": "x"}, headers=bearer(key))
            return a.json()["target"] if a.status == 200 else (a.status, a.json()["error"]["code"])
        targets = [f"{place}/echo", "/echo", "/echo?x=1"]
        assert [told(t, mine["api_key"]) for t in targets] == ["/echo", "/echo", "/echo?x=1"]
        if end == "DELETE":
            assert gateway.request("DELETE", place, headers=bearer(ADMIN)).status == 204
        else:
            assert gateway.post(f"{place}/{end}", {}, headers=bearer(ADMIN)).status in (200, 204)
        assert [told(t, mine["api_key"]) for t in targets] == [(410, "session_ended")] * 3
        assert told("/echo", other["api_key"]) == told("/echo", ADMIN) == "/echo"


@pytest.mark.parametrize("framing", ["Content-Length: 60000000", "Transfer-Encoding: chunked",
                                     "Content-Length: 60000000\r\nExpect: 100-continue"])
def test_a_body_without_a_key_is_not_waited_for(gateway, framing):
    """Nor at what everybody may read: the index, the viewer's files."""
    s = new(gateway)
    asked = [("POST", t) for t in ("/sessions", f"/sessions/{s['session_id']}/v1/messages", "/v1/chat/completions", "/whatever",
                                   "/", "/openapi.json", "/ui", "/ui/x", "/?x=1")]
    asked += [(verb, t) for verb in ("GET", "HEAD", "PUT") for t in ("/", "/openapi.json", "/ui/app.js")]
    for (verb, target), key in itertools.product(asked, ("", f"x-api-key: {forged(s['api_key'])}\r\n")):
        with socket.create_connection(("127.0.0.1", gateway.port), 30) as c:
            c.sendall(f"{verb} {target} HTTP/1.1\r\nHost: localhost\r\n{key}{framing}\r\n\r\n".encode())
            answer = c.recv(65536)      # no byte of the body comes; --body-timeout says 408
            assert answer.startswith(b"HTTP/1.1 401 "), (verb, target, answer)
    m = gateway.metrics()
    assert sum(v for k, v in m.items() if k.startswith("rollgate_requests_total") and 'status="401"' in k) == 2 * len(asked)


def test_what_everybody_may_read_is_read_and_no_more(gateway):
    """Without a key the index, the API's description and the viewer, by GET; nobody but an admin hears what else they say."""
    for target in ("/", "/openapi.json", "/ui", "/ui/app.js"):
        assert raw(gateway, "GET", target, [])[0] == 200, target
        for verb in ("POST", "PUT", "DELETE", "OPTIONS"):
            assert raw(gateway, verb, target, [])[0] == 401, (verb, target)
            assert raw(gateway, verb, target, bearer(ADMIN).items(), b"{}")[0] in (404, 405), (verb, target)

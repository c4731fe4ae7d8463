"""GET / and /openapi.json describe what the gateway does."""
import itertools
import re

import pytest

from stub_engines import StubEngine
from test_docs import code_routes, source

try:
    import jsonschema
except ImportError:
    jsonschema = None

METHODS = {"get", "put", "post", "delete"}


@pytest.fixture
def api(gateway_of_module):
    return gateway_of_module.get("/openapi.json").json()


@pytest.fixture
def gateway_of_module(kept):
    return kept.gateway(engine="builtin:echo", workers=1)


def operations(api):
    return {(method.upper(), path): o for path, item in api["paths"].items() for method, o in item.items()}


def test_every_route_is_told(api, gateway_of_module):
    told = operations(api)
    assert api["openapi"].startswith("3.1.") and api["info"]["title"] == "rollgate" and api["info"]["version"]
    assert code_routes() <= set(told)
    dispatcher = {(m, p.replace("{}", "{name}")) for m, p in re.findall(r'^X\("(\w+)", "([^"]*)"', source("paths.def"), re.M)}
    assert len(dispatcher) > 10 and dispatcher <= set(told)
    for path in ("chat/completions", "messages", "messages/count_tokens", "responses", "completions"):
        assert ("POST", f"/sessions/{{id}}/v1/{path}") in told
    index = gateway_of_module.get("/").json()
    assert {(r["method"], r["path"]) for r in index["routes"]} == set(told)
    assert index["version"] == api["info"]["version"] and index["links"]["api"] == "/openapi.json"
    for link in index["links"].values():
        assert gateway_of_module.get(link).status == 200, link


def test_the_form_is_openapi(api):
    """The structure that OpenAPI 3.1 demands, and each schema is one of JSON Schema 2020-12."""
    assert set(api) <= {"openapi", "info", "paths", "components"} and set(api["info"]) >= {"title", "version"}
    ids = [o["operationId"] for o in operations(api).values()]
    assert len(set(ids)) == len(ids)
    for path, item in api["paths"].items():
        assert path.startswith("/") and set(item) <= METHODS
        for o in item.values():
            assert o["summary"] and o["responses"] and o["tags"]
            assert all(set(s) <= set(api["components"]["securitySchemes"]) for s in o["security"])
            named = [(p["name"], p["in"]) for p in o["parameters"]]
            assert len(set(named)) == len(named)
            assert {n for n, where in named if where == "path"} == set(re.findall(r"\{(\w+)\}", path))
            assert all(p["required"] for p in o["parameters"] if p["in"] == "path")
    for schema in schemas(api):
        assert isinstance(schema.get("type", "object"), (str, list))
        if jsonschema:
            jsonschema.Draft202012Validator.check_schema(schema)
    for ref in refs(api):
        at = api
        for part in ref.removeprefix("#/").split("/"):
            at = at[part]
        assert at


def schemas(node):
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "schema":
                yield value
            yield from schemas(value)
    elif isinstance(node, list):
        for value in node:
            yield from schemas(value)


def refs(node):
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "$ref":
                yield value
            yield from refs(value)
    elif isinstance(node, list):
        for value in node:
            yield from refs(value)


def test_fields_and_limits_are_those_of_the_table(api):
    create = operations(api)["POST", "/sessions"]["requestBody"]["content"]["application/json"]["schema"]
    assert create["additionalProperties"] is False
    assert {"type": "integer", "minimum": 1, "maximum": 1024} in create["properties"]["count"]["anyOf"]
    assert create["properties"]["history"]["anyOf"][0]["enum"] == ["tree", "chains", "linear", "timelines"]
    sampling = create["properties"]["sampling_params"]["anyOf"][0]
    assert sampling["additionalProperties"] is False and {"temperature", "top_p", "max_tokens"} <= set(sampling["properties"])
    listing = {p["name"]: p["schema"] for p in operations(api)["GET", "/sessions"]["parameters"]}
    assert listing["limit"] == {"type": "integer", "minimum": 1, "maximum": 1000} and "local" not in listing


def schema_of(api, path, method="POST"):
    return operations(api)[method, path]["requestBody"]["content"]["application/json"]["schema"]


def test_fields_of_the_data_plane_are_those_that_are_read(api):
    """Of the table that dropped fields are told by, with the limits that their readers have."""
    chat = schema_of(api, "/sessions/{id}/v1/chat/completions")
    assert {"messages", "tools", "temperature", "stream_options", "response_format"} <= set(chat["properties"])
    assert chat.get("additionalProperties", True) is not False and not any("." in name for name in chat["properties"])
    assert chat["properties"]["top_p"] == {"type": "number", "minimum": 0, "maximum": 1}
    assert chat["properties"]["stream_options"]["properties"].keys() == {"include_usage"}
    messages = schema_of(api, "/sessions/{id}/v1/messages")["properties"]
    assert {"system", "output_config", "stop_sequences"} <= set(messages) and "mcp_servers" not in messages
    sampling = schema_of(api, "/sessions")["properties"]["sampling_params"]["anyOf"][0]["properties"]
    assert sampling["min_tokens"]["type"] == "integer" and sampling["engine_extra"]["type"] == ["object", "null"]


def known_of(gateway, method, path, query):
    """The names that the gateway itself says it knows, when it is asked with one that it does not. None: it says
    something else."""
    path = path.replace("{name}", "g1")
    a = gateway.request(method, path + ("?frob=1" if query else ""), body=None if query else {"frob": 1})
    text = a.json()["error"]["message"]
    if a.status != 400 or 'frob"' not in text:
        return None
    assert a.json()["error"]["param"] == "frob", a.text
    return set(text.split("Known: ")[1].split(", ")) if "Known: " in text else set()


def test_the_names_of_rollout_routes_are_those_of_the_dispatcher(api, gateway_of_module):
    checked = 0
    for (method, path), o in operations(api).items():
        if o["tags"] != ["rollouts"]:
            continue
        query = {p["name"] for p in o["parameters"] if p["in"] == "query"}
        body = set(schema_of(api, path, method)["properties"]) if "requestBody" in o else set()
        assert not (query and body)
        assert known_of(gateway_of_module, method, path, query=True) == query, (method, path)
        known = known_of(gateway_of_module, method, path, query=False) if body else None
        if known is not None:
            assert known == body - ({"defaults", "groups"} if path == "/groups" else set()), (method, path)
            checked += 1
    assert checked >= 7


def test_errors_that_come_are_told(api, gateway_of_module):
    """Wrong requests to every route: the status, and its code where it has one, stand with the route."""
    gateway = gateway_of_module
    sid = gateway.post("/sessions", {}).json()["session_id"]
    gone = gateway.post("/sessions", {}).json()["session_id"]
    gateway.post(f"/sessions/{gone}/finalize", {})
    seen = set()
    for (method, path), o in operations(api).items():
        for id in (sid, gone, sid[:-2] + "zz", "w9-1"):
            for query, body in (("?frob=1", None), ("", {"frob": 1}), ("", {}), ("?timeout_s=x", None)):
                slow = path.endswith(("/wait", "/abort", "/pause", "/events"))
                if not query and (slow or (method, path) == ("DELETE", "/sessions/{id}")):
                    continue
                real = re.sub(r"\{(response|name)\}", "nope", path.replace("{id}", id))
                a = gateway.request(method, real + query, body=body if method != "GET" else None)
                if a.status < 400:
                    continue
                code = a.json().get("error", {}).get("code")
                assert str(a.status) in o["responses"], (method, real, query, body, a.text)
                assert code is None or code in o["responses"][str(a.status)]["description"].split(", "), (method, real, a.text)
                seen.add(a.status)
        codes = [c for status, r in o["responses"].items() if status.isdigit() for c in r["description"].split(", ")]
        assert set(codes) <= {c["code"] for c in api["components"]["responses"]["Error"]["x-codes"]}
        assert len(set(codes)) == len(codes)
    assert {400, 404, 410} <= seen
    told = operations(api)
    assert "401" not in told["GET", "/health"]["responses"] and "409" not in told["GET", "/sessions"]["responses"]


def test_scopes_and_errors(api):
    o = operations(api)
    assert o["GET", "/"]["security"] == [] and o["GET", "/health"]["security"] == []
    assert o["POST", "/sessions"]["security"] == [{"admin": []}]
    assert o["POST", "/sessions/{id}/complete"]["security"] == [{"admin": []}, {"runner": []}]
    assert o["POST", "/sessions/{id}/v1/messages"]["security"] == [{"admin": []}, {"agent": []}]
    assert o["POST", "/attempts/claim"]["security"] == [{"admin": []}, {"executor": []}]
    codes = api["components"]["responses"]["Error"]["x-codes"]
    assert {"status": 503, "code": "engine_unavailable", "retry": True, "meaning": "No engine answers"} in codes
    error = api["components"]["schemas"]["Error"]["properties"]["error"]["properties"]
    assert [c["code"] for c in codes] == error["code"]["enum"]
    assert "config" not in {c["code"] for c in codes} and all(o["responses"]["default"] for o in operations(api).values())


def test_pages_need_no_key(start, tmp_path):
    keys = tmp_path / "admin.keys"
    keys.write_text("a-very-long-admin-key-of-the-tests\n")
    keys.chmod(0o600)
    gateway = start(engine="builtin:echo", workers=1, admin_key_file=str(keys))
    assert gateway.request("GET", "/").status == 200
    assert gateway.request("GET", "/openapi.json").status == 200
    assert gateway.request("GET", "/openapi.json?verbose=1").status == 400
    assert gateway.request("GET", "/sessions", headers={"Authorization": "Bearer nonsense"}).status == 401
    assert gateway.request("POST", "/").status == 401


def test_rollout_routes_tell_near_misses_and_names_that_stand_twice(gateway_of_module):
    gateway = gateway_of_module
    for method, path, body, param, said in (
            ("GET", "/groups?lable=a", None, "lable", 'did you mean "label"'),
            ("GET", "/groups?limit=1&limit=2", None, "limit", "twice"),
            ("POST", "/groups?n=1", {"runner": "r"}, "n", "takes no query parameters"),
            ("POST", "/groups", {"runer": "r"}, "runer", 'did you mean "runner"'),
            ("POST", "/groups", b'{"runner": "a", "runner": "b"}', None, '"runner" stands twice'),
            ("POST", "/attempts/claim", {"executr": "a"}, "executr", 'did you mean "executor"')):
        a = gateway.request(method, path, body=body)
        e = a.json()["error"]
        assert a.status == 400 and e["param"] == param and said in e["message"], a.text
    assert gateway.get("/groups/nope").json()["error"]["type"] == "not_found_error"     # as everywhere


@pytest.mark.parametrize("body,said", [
    ("a=b&c=d", "a form (NAME=VALUE), not JSON"), ("--x\r\nContent-Disposition: form-data", "a multipart form"),
    ('{"metadata": {"a": NaN}}', "NaN is not a JSON number at byte 19"), ('{"metadata": [-Infinity]}', "Infinity is not a JSON number"),
    ("{'metadata': {}}", "strings need double quotes"), ('{"metadata": None}', "None is null in JSON"), ('{"sink": True}', "True is true in JSON"),
    ('{"metadata": ?}', "JSON: unexpected character at byte 13")])
@pytest.mark.parametrize("path", ["/sessions", "/groups", "/sessions/{id}/v1/chat/completions"])
def test_a_body_that_is_not_json_is_answered_with_its_cause(gateway_of_module, path, body, said):
    gateway = gateway_of_module
    sid = gateway.post("/sessions", {}).json()["session_id"]
    a = gateway.request("POST", path.replace("{id}", sid), body.encode(), {"Content-Type": "application/x-www-form-urlencoded"})
    assert a.status == 400 and said in a.json()["error"]["message"], a.text


def test_the_engine_is_not_asked_for_a_misspelt_folder_of_ours(start):
    """`GET /session/ID` is 404 with the right path, also when an engine could have a path of its own there."""
    paths = ("/session/w0-1", "/Sessions/w0-1", "/v1/sessions/w0-1", "//sessions/w0-1")
    with StubEngine() as engine:
        gateway = start(workers=1, engine=f"sglang:{engine.url}")
        for method, path in itertools.product(("GET", "POST"), paths):
            a = gateway.request(method, path, b"{}" if method == "POST" else None)
            assert a.status == 404 and 'did you mean "/sessions/w0-1"' in a.json()["error"]["message"], a.text


@pytest.mark.parametrize("path,meant", [
    ("/sessions/{id}/reward_inf", "/sessions/{id}/reward_info"), ("/sessions/{id}/finalise", "/sessions/{id}/finalize"),
    ("/sessions/{id}/trajectory", "/sessions/{id}/trajectories"), ("/sessions/{id}/v1/message", "/v1/messages"),
    ("/sessions/{id}/v1/mesages", "/v1/messages"), ("/admin/pauze", "/admin/pause"), ("/sesions", "/sessions"),
    ("/openapi.jsn", "/openapi.json"), ("/metric", "/metrics"), ("/helth", "/health"), ("/group", "/groups"),
    ("/attempt/claim", "/attempts/claim"), ("/sesions/w0-1/complete", "/sessions/w0-1/complete"),
    ("/session/w0-1", "/sessions/w0-1"), ("/session/w0-1/v1/chat/completions", "/sessions/w0-1/v1/chat/completions"), ("/qqqq/x", None),
    # the case of letters
    ("/Sessions/{id}", "/sessions/{id}"), ("/SESSIONS/{id}/finalize", "/sessions/{id}/finalize"), ("/Groups/x", "/groups/x"),
    ("/groups/x/Cancel", "/groups/{id}/cancel"), ("/queues/q/Ack", "/queues/{id}/ack"), ("/attempts/Claim", "/attempts/claim"),
    # doubled and foreign prefixes, doubled and final slashes
    ("/v1/sessions", "/sessions"), ("/v1/sessions/{id}/v1/messages", "/sessions/{id}/v1/messages"),
    ("/sessions/{id}/v1/sessions/{id}/v1/responses", "/sessions/{id}/v1/responses"), ("/sessions/sessions/{id}", "/sessions/{id}"),
    ("/sessions/{id}/v1/v1/models", "/sessions/{id}/v1/models"), ("/sessions/{id}/v1/chat/completions/chat/completions", "/v1/chat/completions"),
    ("/v1/messages/v1/messages", "/v1/messages"), ("/admin/admin/pause", "/admin/pause"), ("/groups/groups/x", "/groups/{id}"),
    ("//sessions/{id}", "/sessions/{id}"), ("/sessions//{id}/finalize", "/sessions/{id}/finalize"), ("/sessions/{id}/", "/sessions/{id}"),
    ("/sessions/{id}/qqqq", None)])
def test_a_misspelt_path_is_answered_with_the_one_that_was_meant(gateway_of_module, path, meant):
    gateway = gateway_of_module
    sid = gateway.post("/sessions", {}).json()["session_id"]
    a = gateway.post(path.replace("{id}", sid), {})
    assert a.status == 404
    text = a.json()["error"]["message"].replace(sid, "{id}")
    assert (f'did you mean "{meant}"' in text) if meant else "did you mean" not in text, text

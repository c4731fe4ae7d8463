"""A collector of OTLP/HTTP traces for tests. It accepts JSON, and refuses fields that the protobuf definition of an
ExportTraceServiceRequest (opentelemetry-proto 1.x) does not have, by protobuf's JSON mapping with ids in hexadecimal
digits."""
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HEX = {"traceId": 32, "spanId": 16, "parentSpanId": 16}


def members(value, known, needed=()):
    assert isinstance(value, dict), value
    assert set(value) <= set(known) and set(needed) <= set(value), (value, known)


def check_value(v):
    assert isinstance(v, dict) and len(v) == 1, v
    (kind, value), = v.items()
    if kind == "stringValue":
        assert isinstance(value, str)
    elif kind == "intValue":
        assert isinstance(value, str) and re.fullmatch(r"-?[0-9]+", value) and -2**63 <= int(value) < 2**63, v
    elif kind == "doubleValue":
        assert isinstance(value, (int, float)) and not isinstance(value, bool)
    elif kind == "boolValue":
        assert isinstance(value, bool)
    else:
        assert kind == "arrayValue", v
        members(value, ["values"])
        for one in value["values"]:
            check_value(one)


def check_attributes(rows):
    for row in rows:
        members(row, ["key", "value"], ["key", "value"])
        assert row["key"] and isinstance(row["key"], str)
        check_value(row["value"])
    keys = [row["key"] for row in rows]
    assert len(keys) == len(set(keys)), keys


def check_span(s):
    members(s, ["traceId", "spanId", "traceState", "parentSpanId", "flags", "name", "kind", "startTimeUnixNano",
                "endTimeUnixNano", "attributes", "droppedAttributesCount", "events", "droppedEventsCount", "links",
                "droppedLinksCount", "status"],
            ["traceId", "spanId", "name", "kind", "startTimeUnixNano", "endTimeUnixNano"])
    for key, n in HEX.items():
        assert key not in s or re.fullmatch(f"[0-9a-f]{{{n}}}", s[key]) and set(s[key]) != {"0"}, s
    assert s["kind"] in range(6) and isinstance(s.get("flags", 0), int) and 0 <= s.get("flags", 0) < 2**32
    for key in ("startTimeUnixNano", "endTimeUnixNano"):
        assert isinstance(s[key], str) and re.fullmatch("[0-9]+", s[key]) and int(s[key]) < 2**64, s
    assert int(s["startTimeUnixNano"]) <= int(s["endTimeUnixNano"]), s
    assert s["name"] and isinstance(s["name"], str)
    check_attributes(s.get("attributes", []))
    members(s.get("status", {}), ["code", "message"])
    assert s.get("status", {}).get("code", 0) in (0, 1, 2)


def spans_of(document):
    """Returns the spans, each with its resource's attributes. Raises an error if the document is not an
    ExportTraceServiceRequest."""
    found = []
    members(document, ["resourceSpans"], ["resourceSpans"])
    for r in document["resourceSpans"]:
        members(r, ["resource", "scopeSpans", "schemaUrl"], ["resource", "scopeSpans"])
        members(r["resource"], ["attributes", "droppedAttributesCount"])
        check_attributes(r["resource"]["attributes"])
        for scope in r["scopeSpans"]:
            members(scope, ["scope", "spans", "schemaUrl"], ["spans"])
            members(scope.get("scope", {}), ["name", "version", "attributes", "droppedAttributesCount"])
            for s in scope["spans"]:
                check_span(s)
                found.append(Span(s, r["resource"]["attributes"]))
    return found


def plain(v):
    (kind, value), = v.items()
    if kind == "arrayValue":
        return [plain(one) for one in value["values"]]
    return int(value) if kind == "intValue" else value


class Span:
    def __init__(self, raw, resource):
        self.raw, self.name, self.trace, self.id = raw, raw["name"], raw["traceId"], raw["spanId"]
        self.parent = raw.get("parentSpanId")
        self.start, self.end = int(raw["startTimeUnixNano"]), int(raw["endTimeUnixNano"])
        self.has = {a["key"]: plain(a["value"]) for a in raw.get("attributes", [])}
        self.resource = {a["key"]: plain(a["value"]) for a in resource}
        self.failed = raw.get("status", {}).get("code") == 2

    def __repr__(self):
        return f"<{self.name} {self.id} of {self.parent}>"


class Collector:
    """`plan`: answers before the successful ones, each (status, headers, body). `spans`: spans that were accepted
    with 200; `bodies`: their requests. `asked`: path, headers and number of spans of each valid request. `wrong`:
    errors of invalid ones."""

    def __init__(self, listens=True):
        collector = self
        self.plan, self.spans, self.bodies, self.asked, self.wrong = [], [], [], [], []

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                raw = self.rfile.read(int(self.headers["Content-Length"]))
                status, headers, body = collector.take(self.path, dict(self.headers), raw)
                self.send_response(status)
                for k, v in {**headers, "Content-Type": "application/json", "Content-Length": str(len(body))}.items():
                    self.send_header(k, v)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler, bind_and_activate=False)
        self.server.daemon_threads = True
        self.server.server_bind()       # the port is reserved; until listen() connections to it are refused
        self.port = self.server.server_address[1]
        self.lock = threading.Lock()
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05})
        if listens:
            self.listen()

    def listen(self):
        self.server.server_activate()
        self.thread.start()

    def take(self, path, headers, raw):
        with self.lock:
            try:
                assert {k.lower(): v for k, v in headers.items()}.get("content-type") == "application/json", headers
                spans = spans_of(json.loads(raw))
            except (AssertionError, ValueError, KeyError, TypeError) as e:
                self.wrong.append(repr(e))
                return 400, {}, b"{}"
            self.asked.append((path, headers, len(spans)))
            if self.plan:
                return self.plan.pop(0)
            self.spans += spans
            self.bodies.append(raw)
            return 200, {}, b"{}"

    def close(self):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()
        assert not self.wrong, self.wrong

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

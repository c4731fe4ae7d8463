"""Odd and wrong answers of HTTP servers and engines in addition to test_gateway_faults: framing, heads, and fields of
every kind that are missing, of a different type or changed in transit. Valid HTTP is read. Faults end as
spec/engines.md says and leave the session unchanged, and the next good call works."""
import copy
import gzip
import json
import zlib

import pytest

from gateway import wait_until
from stub_engines import StubEngine
from test_gateway_faults import KINDS, OK, Scene, good


def head(kind, *lines, status="200 OK", version="1.1"):
    return f"HTTP/{version} {status}\r\n".encode() + b"".join(line.encode() + b"\r\n" for line in (f"content-type: {kind}", *lines)) + b"\r\n"


def sized(kind, parts, more=0, *lines, status="200 OK"):
    body = b"".join(parts)
    return head(kind, *lines, f"content-length: {len(body) + more}", status=status) + body


def chunked(kind, parts, extension=b"", tail=b"0\r\n\r\n", size=None):
    return head(kind, "transfer-encoding: chunked") + b"".join(
        (size or b"%x") % len(p) + extension + b"\r\n" + p + b"\r\n" if b"%" in (size or b"%x") else size + b"\r\n" + p + b"\r\n" for p in parts) + tail


def lines(change):
    """The same events written otherwise."""
    return lambda kind, parts: sized(kind, [change(p) for p in parts] if "event" in kind else parts)


# What HTTP and event streams allow: the answer is read.
ALLOWED = {
    "interim": {"frame": lambda k, p: b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n" + sized(k, p)},
    "extensions": {"frame": lambda k, p: chunked(k, p, b';a=b;c="d;e"')},
    "upper-hex": {"frame": lambda k, p: chunked(k, p, size=b"%04X")},
    "trailers": {"frame": lambda k, p: chunked(k, p, tail=b"0\r\nx-checksum: 1\r\n\r\n")},
    "until-close": {"frame": lambda k, p: head(k, "connection: close") + b"".join(p), "end": "close"},
    "http10": {"frame": lambda k, p: head(k, version="1.0") + b"".join(p), "end": "close"},
    "close-at-end": {"frame": sized, "end": "close"},
    "reset-at-end": {"frame": sized, "end": "reset"},
    "upper-case-type": {"frame": lambda k, p: sized(k.title(), p)},
    "charset": {"frame": lambda k, p: sized(k + " ; charset=UTF-8", p)},
    "crlf": {"frame": lines(lambda p: p.replace(b"\n", b"\r\n"))},
    "comments": {"frame": lines(lambda p: b": ping\n\nevent: message\nid: 7\nretry: 5\n" + p)},
    "no-blank": {"frame": lines(lambda p: p.replace(b"data: ", b"data:", 1))},
    "bytes-behind": {"frame": lambda k, p: sized(k, p) + b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"},
    "whole": {"whole": True},
}

# What no answer may be.
WRONG = {
    "short": ({"frame": lambda k, p: sized(k, [b"".join(p)[:len(b"".join(p)) // 2]], 40), "end": "close"}, 502),
    "short-stall": ({"frame": lambda k, p: sized(k, [b"".join(p)[:20]], 40)}, 504),
    "gzip": ({"frame": lambda k, p: sized(k, [gzip.compress(b"".join(p))], 0, "content-encoding: gzip")}, 502),
    "deflate": ({"frame": lambda k, p: sized(k, [zlib.compress(b"".join(p))], 0, "content-encoding: deflate")}, 502),
    "empty": ({"frame": lambda k, p: sized(k, [])}, 502),
    "no-content": ({"frame": lambda k, p: b"HTTP/1.1 204 No Content\r\n\r\n"}, 502),
    "accepted": ({"frame": lambda k, p: sized(k, p, status="202 Accepted")}, 502),
    "redirect": ({"frame": lambda k, p: sized(k, [b"{}"], 0, "location: http://127.0.0.1:9/", status="307 Temporary Redirect")}, 502),
    "moved": ({"frame": lambda k, p: sized(k, [b"{}"], 0, "location: /other", status="301 Moved")}, 502),
    "key": ({"frame": lambda k, p: sized(k, [b'{"error":"Unauthorized"}'], status="401 Unauthorized")}, 502),
    "two-lengths": ({"frame": lambda k, p: sized(k, p, 0, "content-length: 7")}, 502),
    "both-framings": ({"frame": lambda k, p: sized(k, p, 0, "transfer-encoding: chunked")}, 502),
    "chunk-size": ({"frame": lambda k, p: chunked(k, p, size=b"zz"), "end": "close"}, 502),
    "chunk-huge": ({"frame": lambda k, p: chunked(k, p, size=b"fffffffffffffffff"), "end": "close"}, 502),
    "head-huge": ({"frame": lambda k, p: sized(k, p, 0, "x-pad: " + "a" * 300_000)}, 502),
    "heads-many": ({"frame": lambda k, p: sized(k, p, 0, *[f"x-{i}: 1" for i in range(2000)])}, 502),
    "no-http": ({"frame": lambda k, p: b"SSH-2.0-OpenSSH_9.2\r\n", "end": "close"}, 502),
    "no-type": ({"frame": lambda k, p: sized(k, p).replace(b"content-type", b"x-type", 1)}, 502),
    "binary": ({"frame": lambda k, p: sized(k, [bytes(range(256))])}, 502),
    "an-array": ({"frame": lambda k, p: sized("application/json", [b"[]"])}, 502),
    "a-null": ({"frame": lambda k, p: sized("application/json", [b"null"])}, 502),
    "an-error": ({"frame": lambda k, p: sized("application/json", [b'{"error":{"message":"CUDA error","code":500}}'])}, 502),
    "an-error-text": ({"frame": lambda k, p: sized("application/json", [b'{"error":"CUDA error"}'])}, 502),
    "twice": ({"frame": lambda k, p: sized("application/json", [p[-1], p[-1]])}, 502),
    "nested": ({"frame": lambda k, p: sized("application/json", [b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"])}, 502),
    "not-utf8": ({"frame": lambda k, p: sized("application/json", [b'{"text":"\xff\xfe","choices":[{"message":{"content":"\xc3("}}]}'])}, 502),
}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("name", KINDS)
def test_answers_of_http_servers(start, name, stream):
    kind, stub, options = KINDS[name]
    with StubEngine(kind, **stub) as engine:
        gateway = start(workers=1, engine=engine.setting + options, engine_timeout="900ms", engine_idle_timeout="600ms")
        gateway.allow(".*")
        s = Scene(engine, gateway, stream)
        for what, plan in ALLOWED.items():
            s.works(kind, what=what, **plan)
        for what, (plan, status) in WRONG.items():
            fails(s, kind, what, plan, status)


def fails(s, kind, what, plan, status):
    before = s.state()
    s.engine.plan.clear()
    s.engine.plan.append(good(kind, **plan))
    a = s.call()
    if s.stream:
        assert '"error"' in a.text and '"finish_reason":"stop"' not in a.text, (what, a.status, a.text)
    else:
        assert a.status == status, (what, a.status, a.text)
        assert a.headers["x-should-retry"] == "true", (what, a.headers)
    assert s.state() == before, what
    s.works(kind)
    return a


def put(*path, value=None, last=False):
    """An edit that sets a place of every document (or the last) that has it; without a value the place is taken away."""
    def edit(docs):
        docs = copy.deepcopy(docs)
        for d in [d for d in docs if d.get("choices", True)][-1:] if last else docs:   # behind it may come usage alone
            at = d
            for step in path[:-1]:
                at = at[step] if isinstance(step, int) and len(at) > step or not isinstance(step, int) and step in at else None
                if at is None:
                    break
            if at and (path[-1] in at if isinstance(at, dict) else len(at) > path[-1]):
                if value is DELETE:
                    del at[path[-1]]
                else:
                    at[path[-1]] = value(at[path[-1]]) if callable(value) else value
        return docs
    return edit


DELETE = object()
IDS = {"float": lambda ids: [i + 0.5 for i in ids], "text": lambda ids: [str(i) for i in ids], "negative": lambda ids: [-1 for _ in ids],
       "huge": lambda ids: [2 ** 31 + i for i in ids], "nested": lambda ids: [[i] for i in ids], "null": lambda ids: [None for _ in ids],
       "object": lambda ids: {"0": 1}, "bool": lambda ids: [True for _ in ids]}
LOGPROBS = {"beyond": -1e39, "above": 1e39, "text": "-0.5", "object": {}, "bool": True, "null": None, "nan": float("nan")}


def misfits(kind, name, stream):
    """(what, edit) of each kind's own fields."""
    out = []
    if kind == "sglang":
        out += [(f"ids {k}", put("output_ids", value=v)) for k, v in IDS.items()]
        out += [(f"logprob {k}", put("meta_info", "output_token_logprobs", 0, 0, value=v)) for k, v in LOGPROBS.items()]
        out += [("triple of one", put("meta_info", "output_token_logprobs", 0, value=lambda t: t[:1])),
                ("triples null", put("meta_info", "output_token_logprobs", value=None)),
                ("no meta", put("meta_info", value=DELETE)), ("meta null", put("meta_info", value=None)), ("meta a list", put("meta_info", value=[])),
                ("finish unknown", put("meta_info", "finish_reason", last=True, value={"type": "whatever"})),
                ("finish empty", put("meta_info", "finish_reason", last=True, value={})),
                ("count", put("meta_info", "completion_tokens", value=99)),
                ("prompt count", put("meta_info", "prompt_tokens", value=2))]
    if kind == "vllm":
        out += [(f"ids {k}", put("choices", 0, "token_ids", value=v)) for k, v in IDS.items()]
        where = ("token_logprobs", 0) if "completions" in name else ("content", 0, "logprob")
        out += [(f"logprob {k}", put("choices", 0, "logprobs", *where, value=v)) for k, v in LOGPROBS.items()]
        out += [("finish unknown", put("choices", 0, "finish_reason", last=True, value="error")), ("logprobs null", put("choices", 0, "logprobs", value=None))]
        other = ("tokens", 0) if "completions" in name else ("content", 0, "token" if "names" in name else "token_id")
        out += [("logprob of another", put("choices", 0, "logprobs", *other, value=77 if other[-1] == "token_id" else "token_id:77"))]
        if not stream:
            out += [("no choices", put("choices", value=[])), ("choices null", put("choices", value=None))]
        if "completions" in name:
            out += [("another prompt", put("choices", 0, "prompt_token_ids", value=lambda p: [(i + 1) % 250 for i in p]))]
            if not stream:
                out += [("usage", put("usage", "completion_tokens", value=77))]
    if kind == "llamacpp":
        out += [(f"ids {k}", put("tokens", value=v)) for k, v in IDS.items()]
        out += [(f"logprob {k}", put("completion_probabilities", 0, "prob", value=v)) for k, v in LOGPROBS.items()]
        out += [("logprob of another", put("completion_probabilities", 0, "id", value=77)), ("no end", put("stop_type", value=DELETE)),
                ("probabilities null", put("completion_probabilities", value=None))]
    if kind == "openai" and not stream:
        out += [("no choices", put("choices", value=[])), ("choices null", put("choices", value=None)), ("message null", put("choices", 0, "message", value=None)),
                ("message text", put("choices", 0, "message", value="ok"))]
    if kind == "openai" and "vllm" in name:
        out += [(f"ids {k}", put("choices", 0, "token_ids", value=v)) for k, v in IDS.items() if k != "object"]
    return out


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("name", KINDS)
def test_fields_that_do_not_fit(start, name, stream):
    kind, stub, options = KINDS[name]
    with StubEngine(kind, **stub) as engine:
        gateway = start(workers=1, engine=engine.setting + options, engine_retries=0, on_engine_abort="fail")
        gateway.allow(".*")
        s = Scene(engine, gateway, stream)
        s.works(kind)
        bad = []
        for what, edit in misfits(kind, name, stream):
            try:
                fails(s, kind, what, {"edit": edit}, 502)
            except AssertionError as e:
                bad.append((what, str(e)[:300]))
        assert not bad, bad


FITTING = {
    "sglang": [("finish a text", put("meta_info", "finish_reason", last=True, value="stop")), ("no matched", put("meta_info", "finish_reason", "matched", value=DELETE)),
               ("version a number", put("meta_info", "weight_version", value=7)), ("no counts", put("meta_info", "completion_tokens", value=DELETE)),
               ("no prompt count", put("meta_info", "prompt_tokens", value=DELETE)), ("text null", put("text", value=None)), ("no text", put("text", value=DELETE))],
    "vllm": [("no index", put("choices", 0, "index", value=DELETE))],
    "llamacpp": [("no content", put("content", value=DELETE)), ("no count", put("tokens_evaluated", value=DELETE)),
                 ("tokens of a draft that were dropped", put("tokens_predicted", value=77))],
    "openai": [("no usage", put("usage", value=DELETE)), ("no role", put("choices", 0, "message", "role", value=DELETE)), ("no id", put("id", value=DELETE)),
               ("refusal null", put("choices", 0, "message", "refusal", value=None))],
}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("name", KINDS)
def test_fields_that_may_be_missing(start, name, stream):
    kind, stub, options = KINDS[name]
    with StubEngine(kind, **stub) as engine:
        gateway = start(workers=1, engine=engine.setting + options, engine_retries=0)
        gateway.allow(".*")
        s = Scene(engine, gateway, stream)
        for what, edit in FITTING[kind]:
            s.works(kind, edit=edit, what=what)


@pytest.mark.parametrize("name", ["sglang", "sglang-incremental"])
def test_weight_versions_that_change_within_a_stream(start, name):
    """A server without spans tells with each event the version that it then has."""
    kind, stub, options = KINDS[name]
    with StubEngine(kind, **stub) as engine:
        gateway = start(workers=1, engine=engine.setting + options)
        s = Scene(engine, gateway, True)

        def edit(docs):
            for i, d in enumerate(docs):
                d["meta_info"]["weight_version"] = "17" if i < 2 else "18"
            return docs
        s.works(kind, ids=OK * 2 + [257], chunk=1, edit=edit)
        t = gateway.get(f"/sessions/{s.sid}/trajectories").json()["trajectories"][0]
        assert t["response_versions"] == [17, 17, 18, 18, 18]
        assert t["turns"][0]["weight_versions"] == [{"version": "17", "start": 0, "end": 2}, {"version": "18", "start": 2, "end": 5}]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("name", ["sglang", "openai-sglang-ids"])
def test_weight_version_spans_have_an_end(start, name, stream):
    """Empty ones are allowed, so a short answer could bring any number of them into its record: 4,096 of one answer are taken, more is 502."""
    kind, stub, options = KINDS[name]

    def told(n):
        """The last span has all tokens; members of a span in any order."""
        spans = [{"end": 0, "version": "17", "start": 0}] * (n - 1) + [{"start": 0, "version": "18", "end": len(OK) + 1}]

        def edit(docs):
            for d in docs:
                for at in [d, *d.get("choices", [])]:
                    if "meta_info" in at:
                        at["meta_info"]["weight_versions"] = spans
            return docs
        return edit
    with StubEngine(kind, **stub) as engine:
        gateway = start(workers=1, engine=engine.setting + options, engine_retries=0)
        gateway.allow(".*")
        s = Scene(engine, gateway, stream)
        s.works(kind, edit=told(4096))
        fails(s, kind, "one more", {"edit": told(4097)}, 502)
        fails(s, kind, "many more", {"edit": told(50000)}, 502)
        gateway.wait_line("more than 4096 weight version spans")


def test_an_engine_that_comes_back_as_another(start):
    """Another version of the server, with another route and another context length, at the same address."""
    with StubEngine("vllm", info={"data": [{"id": "m", "max_model_len": 4096}]}) as engine:
        gateway = start(workers=1, engine=engine.setting, engine_health_interval="50ms")
        gateway.allow(".*")
        s = Scene(engine, gateway, False)
        gateway.wait_line("engine told its settings")
        s.works("vllm")
        assert engine.requests[-1]["path"] == "/inference/v1/generate"
        engine.routes = ("completions",)
        s.works("vllm")
        s.works("vllm")
        assert [r["path"] for r in engine.requests[1:]] == ["/v1/completions"] * 2
        engine.routes = ("generate",)
        s.works("vllm")
        assert engine.requests[-1]["path"] == "/inference/v1/generate"
        assert engine.requests[-1]["body"]["sampling_params"]["max_tokens"] > 3000
        engine.health = 503
        gateway.wait_line("engine is down")
        engine.info["data"][0]["max_model_len"] = 512
        engine.health = 200
        gateway.wait_line("engine is up")
        wait_until(lambda: engine.info_asked >= 2, 10, "asked again")
        wait_until(lambda: s.works("vllm") and engine.requests[-1]["body"]["sampling_params"]["max_tokens"] < 512, 10, "the new context")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_kinds_side_by_side(start, stream):
    """A generation given up by one kind is gone on with by another."""
    with StubEngine("sglang") as a, StubEngine("vllm") as b:
        gateway = start(workers=1, engine=[a.setting, b.setting])
        for _ in range(24):     # each session has its engine by chance
            s = Scene(a, gateway, stream)
            for e in (a, b):
                e.plan.clear()
                e.plan.append({"ids": [111], "finish": "abort"})
                e.plan.append({"ids": [107, 257], "matched": 257})
            assert s.text(s.call()) == "ok"
        assert a.requests and b.requests


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("name", KINDS)
def test_silence_within_an_answer(start, name, stream):
    """What has begun goes on; only a whole answer may take its time before the first byte."""
    kind, stub, options = KINDS[name]
    with StubEngine(kind, **stub) as engine:
        gateway = start(workers=1, engine=engine.setting + options, engine_timeout="300s", engine_idle_timeout="300ms")
        gateway.allow(".*")
        s = Scene(engine, gateway, stream)
        if not stream or kind == "llamacpp":
            s.works(kind, delay_s=1)
        fails(s, kind, "stall", {"cut": "stall", "cut_at": 0.6}, 504)
        wait_until(lambda: engine.left == 1, 10, "the engine to see that nobody listens")


FEWER = {
    "sglang": [("null", put("meta_info", "output_top_logprobs", value=None)), ("none", put("meta_info", "output_top_logprobs", value=DELETE)),
               ("one null", put("meta_info", "output_top_logprobs", 0, value=None)), ("one fewer", put("meta_info", "output_top_logprobs", 0, value=lambda t: t[:1])),
               ("one more", put("meta_info", "output_top_logprobs", 0, value=lambda t: t + t)), ("positions fewer", put("meta_info", "output_top_logprobs", value=lambda t: t[:1]))],
    "vllm": [("null", put("choices", 0, "logprobs", "content", 0, "top_logprobs", value=None)), ("none", put("choices", 0, "logprobs", "content", 0, "top_logprobs", value=DELETE)),
             ("fewer", put("choices", 0, "logprobs", "content", 0, "top_logprobs", value=lambda t: t[:1])), ("not a number", put("choices", 0, "logprobs", "content", 0, "top_logprobs", 1, "logprob", value=None)),
             ("completions null", put("choices", 0, "logprobs", "top_logprobs", value=None)), ("completions one null", put("choices", 0, "logprobs", "top_logprobs", 0, value=None)),
             ("completions fewer", put("choices", 0, "logprobs", "top_logprobs", 0, value=lambda t: dict(list(t.items())[:1])))],
    "llamacpp": [("null", put("completion_probabilities", 0, "top_probs", value=None)), ("none", put("completion_probabilities", 0, "top_probs", value=DELETE)),
                 ("fewer", put("completion_probabilities", 0, "top_probs", value=lambda t: t[:1]))],
}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("name", [n for n in KINDS if not n.startswith("openai")])
def test_fewer_alternatives_than_asked_for(start, name, stream):
    """They are not what is trained on: what is missing is left out, at its own place, and the answer stands."""
    kind, stub, options = KINDS[name]
    with StubEngine(kind, **stub) as engine:
        gateway = start(workers=1, engine=engine.setting + options, engine_retries=0)
        s = Scene(engine, gateway, stream)
        for what, edit in FEWER[kind]:
            engine.plan.append(good(kind, edit=edit))
            a = gateway.post(f"/sessions/{s.sid}/v1/chat/completions", {"messages": s.messages, "stream": stream, "logprobs": True, "top_logprobs": 2})
            assert a.status == 200 and '"error"' not in a.text, (what, a.text)
            documents = [a.json()] if not stream else [json.loads(x[6:]) for x in a.text.split("\n") if x.startswith("data: {")]
            entries = [e for d in documents for c in d["choices"] for e in (c.get("logprobs") or {}).get("content") or []]
            asked = OK + [257]
            assert len(entries) >= len(OK), (what, entries)
            if not {"null", "none"} & set(what.split()) and not what.startswith("positions"):
                assert len(entries[1]["top_logprobs"]) == 2, (what, entries)
            for i, e in enumerate(entries[:2]):
                tops = e["top_logprobs"]
                assert len(tops) <= 2 and all(t["logprob"] is not None and t["logprob"] <= 0 for t in tops), (what, entries)
                if tops and what not in ("fewer", "not a number"):
                    assert bytes(tops[0]["bytes"]) == bytes([asked[i]]), (what, i, entries)

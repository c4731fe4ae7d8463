"""A helper reads long answers that an upstream returns in one piece. Answers and records are the same, and clients
that leave or end things meanwhile have the usual results. `print` holds the helper at the first logprob (faults.c)."""
import asyncio
import contextlib
import json
import threading

import pytest

from gateway import MODELS, stays, wait_until
from stub_engines import StubEngine
from test_faults import faulty  # noqa: F401, a fixture
from test_helpers import helped
from test_long_answers import chosen, lasting, url
from test_streaming import new, user
from test_turn_cancel import branches, inflight

TOKENS = 3000
IDS = [97 + k % 26 for k in range(TOKENS)]
PROMPT = [3, 1, 4]
BODY = {"model": "m", "messages": user("go on"), "logprobs": True, "top_logprobs": 2}


def with_tops(docs):
    """Alternatives, and a number that strtod reads."""
    for doc in docs:
        content = doc["choices"][0].get("logprobs", {}).get("content", [])
        if len(content) == TOKENS:
            content[7]["logprob"] = -1e-60
        for entry in content:
            entry["top_logprobs"] = [{"token": f"\u00e4{k}\n", "logprob": entry["logprob"] - k, "bytes": None} for k in range(2)]
    return docs


PLAN = {"ids": IDS, "prompt_ids": PROMPT, "text": "a long text " * 500, "edit": with_tops, "finish": "length", "whole": True}


def setting(engine, ids):
    return engine.setting + (f",token-ids={ids}" if ids else "")


def answers(start, ids, stream, **settings):
    """What the client is told, first and once more, and what is kept; by a gateway of its own."""
    with StubEngine("openai") as engine:
        engine.plan.extend([PLAN, PLAN])
        gateway = start(engine=setting(engine, ids), workers=1, **settings)
        s = new(gateway)
        told = [gateway.post(url(s), {**BODY, "n": 2, "stream": stream}, headers=mark)
                for mark in ({}, {"x-stainless-retry-count": "1"})]
        assert [a.status for a in told] == [200, 200], told[0].text
        assert told[1].headers["Rollgate-Replayed"] == "1"
        kept = [{k: t[k] for k in ("prompt_ids", "response_ids", "response_logprobs")}
                for t in gateway.get(f"/sessions/{s['session_id']}/trajectories").json()["trajectories"]]
        first = chosen(told[0])
        for a in told:
            text, tokens, ends = chosen(a)[1]
            assert text == PLAN["text"] and ends == "length"
        assert len(first[0][1]) == TOKENS and first[0][1][5]["top_logprobs"][1]["token"] == "\u00e41\n"
        return first, [lasting(kept)], helped(gateway)


@pytest.mark.parametrize("ids, stream", [(None, False), ("vllm", False), ("sglang", False), ("sglang", True)])
def test_a_helper_reads_what_the_loop_would_have_read(start, ids, stream):
    *alone, none = answers(start, ids, stream, helpers=0)
    *beside, some = answers(start, ids, stream)
    assert alone == beside
    assert none == 0 and some >= 2
    if ids:
        assert [t["response_ids"] for t in alone[1][0]] == [IDS]    # equal answers are one timeline
        assert len(alone[1][0][0]["response_logprobs"]) == TOKENS


@pytest.mark.parametrize("edit, says", [
    (lambda docs: [{**docs[0], "choices": [{**docs[0]["choices"][0], "message": None}]}], "no message"),
    (lambda docs: [{"error": {"message": "it broke", "code": 500}, "pad": "x" * 100_000}], "the engine failed: 500"),
    (lambda docs: [{**docs[0], "choices": [{**docs[0]["choices"][0], "token_ids": IDS[1:]}]}], "differ"),
])
def test_long_answers_that_are_none_are_refused(start, edit, says):
    with StubEngine("openai") as engine:
        gateway = start(engine=setting(engine, "vllm"), workers=1)
        engine.plan.append({**PLAN, "edit": lambda docs: edit(with_tops(docs))})
        a = gateway.post(url(new(gateway)), BODY)
        assert a.status == 502 and says in a.text, a.text


class Read:
    """A gateway whose helper is held while it reads an upstream's answer."""

    def __init__(self, faulty, engine, tmp_path, **settings):  # noqa: F811
        self.engine = engine
        self.gateway, self.inject = faulty(engine=engine.setting, **settings)
        self.session, self.waits = new(self.gateway), tmp_path / "faults/waits"
        engine.plan.append(PLAN)
        self.inject("print", "1")

    def until_read(self):
        wait_until(self.waits.exists, 10, "a helper reads")


@pytest.fixture
def upstream():
    with StubEngine("openai") as engine:
        yield engine


def test_a_client_that_leaves_meanwhile(faulty, upstream, tmp_path):  # noqa: F811
    held = Read(faulty, upstream, tmp_path)
    with contextlib.closing(held.gateway.connect()) as c:
        c.request("POST", url(held.session), json.dumps(BODY))
        held.until_read()
        assert held.gateway.chat(new(held.gateway), "hello").status == 200       # nobody else waits
        stays(lambda: inflight(held.gateway, held.session) == 1, 0.3, "its answer is being read")
    wait_until(lambda: inflight(held.gateway, held.session) == 0, 20, "the call is given up")
    held.inject("print", None)
    assert branches(held.gateway, held.session) == 0
    upstream.plan.append(PLAN)
    assert held.gateway.post(url(held.session), BODY).status == 200
    assert branches(held.gateway, held.session) == 1


def test_a_worker_that_ends_meanwhile(faulty, upstream, tmp_path):  # noqa: F811
    """Within its grace it answers; else it ends though the helper does not."""
    held = Read(faulty, upstream, tmp_path, grace="500ms")
    held.gateway.allow("killed what did not end")
    with contextlib.closing(held.gateway.connect()) as c:
        c.request("POST", url(held.session), json.dumps(BODY))
        held.until_read()
        assert held.gateway.stop() == 0
    held.inject("print", None)
    held.gateway.start()
    upstream.plan.append(PLAN)
    assert held.gateway.post(url(held.session), BODY).status == 200


def test_a_helper_that_does_not_come_to_an_end(faulty, upstream, tmp_path):  # noqa: F811
    held = Read(faulty, upstream, tmp_path, helper_timeout="3s", grace="1s")
    held.gateway.allow("an engine's work does not end")
    held.gateway.allow("killed what did not end")
    got = []
    t = threading.Thread(target=lambda: got.append(held.gateway.post(url(held.session), BODY)))
    t.start()
    held.until_read()
    t.join()
    assert got[0].status == 502 and "took too long to read" in got[0].text, got[0].text
    held.inject("print", None)
    upstream.plan.append(PLAN)
    assert held.gateway.post(url(held.session), BODY).status == 200


# --- one long event of a stream ---

def in_one_event(docs):
    """All that the deltas tell in the second event."""
    whole = [d for d in docs if d["choices"] and d["choices"][0]["delta"].get("content")]
    parts = [d["choices"][0] for d in whole]
    one = {**parts[0], "delta": {"content": "".join(p["delta"]["content"] for p in parts)}}
    if "token_ids" in one:
        one["token_ids"] = [i for p in parts for i in p["token_ids"]]
    one["logprobs"] = {"content": [t for p in parts for t in p["logprobs"]["content"]]}
    return [docs[0], *with_tops([{**whole[0], "choices": [one]}]), *[d for d in docs[1:] if d not in whole]]


EVENT = {**PLAN, "edit": in_one_event, "whole": False}


def streamed(start, ids, **settings):
    with StubEngine("openai") as engine:
        engine.plan.append(EVENT)
        gateway = start(engine=setting(engine, ids), workers=1, **settings)
        s = new(gateway)
        a = gateway.post(url(s), {**BODY, "stream": True})
        assert a.status == 200, a.text
        kept = gateway.get(f"/sessions/{s['session_id']}/trajectories").json()["trajectories"]
        first = chosen(a)
        assert first[0][0] == PLAN["text"] and len(first[0][1]) == TOKENS and first[0][2] == "length"
        return first, [{k: t[k] for k in ("prompt_ids", "response_ids", "response_logprobs")} for t in kept], helped(gateway)


@pytest.mark.parametrize("ids", [None, "vllm"])
def test_a_long_event_is_read_on_the_loop(start, ids):
    *alone, none = streamed(start, ids, helpers=0)
    *beside, some = streamed(start, ids)
    assert alone == beside and none == some == 0
    if ids:
        assert [t["response_ids"] for t in alone[1]] == [IDS]


def cut_behind(n):
    """The connection ends behind so many events."""
    def frame(kind, parts):
        body = b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in parts[:n])
        return f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\n\r\n".encode() + body
    return {"frame": frame, "end": "close"}


@pytest.mark.parametrize("tops, n, told", [(0, 16_384, None), (0, 16_385, "16385 logprobs in one event; at most 16384"),
                                           (3, 4_097, "16388 logprobs in one event; at most 16384")])
def test_logprobs_of_an_event_are_counted(start, upstream, tops, n, told):
    def edit(docs):
        one = {"token": "a", "logprob": -1, "top_logprobs": [{"token": "b", "logprob": -2}] * tops}
        docs[1]["choices"][0]["logprobs"] = {"content": [one] * n}
        return docs
    gateway = start(engine=upstream.setting, workers=1, engine_retries=0)
    upstream.plan.append({"ids": [97], "prompt_ids": PROMPT, "text": "abc", "edit": edit, "finish": "length"})
    a = gateway.post(url(new(gateway)), {**BODY, "stream": True})
    assert told in a.text[-1000:] if told else "error" not in a.text, a.text[-300:]


def test_an_event_beyond_the_limit_is_refused(start, upstream):
    gateway = start(engine=upstream.setting, workers=1, engine_retries=0)
    upstream.plan.append({"text": "abc", "edit": lambda docs: [{**d, "pad": "x" * (1 << 20)} for d in docs]})
    a = gateway.post(url(new(gateway)), {**BODY, "stream": True})
    assert "an event of more than 1048576 bytes" in a.text, a.text[-300:]


@pytest.mark.parametrize("stream", [False, True])
def test_a_text_beyond_the_limit_is_refused(start, upstream, stream):
    """Named, and the next one is taken; so are too many calls in one event."""
    gateway = start(engine=upstream.setting, workers=1, engine_retries=0)
    s = new(gateway)
    body = {"model": "m", "messages": user("go on"), "stream": stream}
    long = "x" * ((2 << 20) + 1)

    def edit(docs):
        for doc in docs[1 if stream else 0:]:
            for choice in doc["choices"]:
                (choice.get("message") or choice["delta"]).update(content=long[:3 << 18] if stream else long)
        return docs
    upstream.plan.append({"text": "abc " * 4, "edit": edit})
    a = gateway.post(url(s), body)
    assert "its text has more than 2 MiB" in a.text[-1000:] and a.status == (200 if stream else 502)
    upstream.plan.append({"text": "abc"})
    assert gateway.post(url(s), body).status == 200


@pytest.mark.parametrize("one", [False, True])
def test_a_stream_that_nobody_asked_for(start, upstream, one):
    """An upstream that streams whatever it was asked: all of it is the answer."""
    def streams(docs):
        choice = docs[0]["choices"][0]
        texts = [choice["message"]["content"]] if one else choice["message"]["content"].partition(" te")
        chunks = [{**docs[0], "choices": [{"index": 0, "delta": {"content": t}, "finish_reason": None}]} for t in texts]
        return [*chunks, {**docs[0], "choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]}]

    def frame(_, parts):
        docs = streams([json.loads(parts[0])])
        body = b"".join(b"data: " + json.dumps(d).encode() + b"\n\n" for d in docs) + b"data: [DONE]\n\n"
        return f"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body
    gateway = start(engine=upstream.setting, workers=1)
    upstream.plan.append({"text": PLAN["text"], "frame": frame})
    a = gateway.post(url(new(gateway)), {"model": "m", "messages": user("go on")})
    choice = a.json()["choices"][0]
    assert (a.status, choice["message"]["content"], choice["finish_reason"]) == (200, PLAN["text"], "length")


def without_prompt(docs):
    for doc in docs:
        doc.pop("prompt_token_ids", None)
    return docs


@pytest.mark.parametrize("text, helps", [("short", 0), ("long " * 40_000, 1)], ids=["short", "long"])
def test_a_prompt_that_is_left_out_is_rendered_once(start, upstream, text, helps):
    """Our own rendering stands in for it where the upstream counts as many tokens: once for all answers of a call."""
    gateway = start(engine=upstream.setting, workers=1, model=MODELS / "chatml-bytes", context_length=1_000_000, engine_retries=0)
    prompt = [256, *f"user\n{text}".encode(), 257, 10, 256, *b"assistant\n"]
    works = []
    for count in (len(prompt), len(prompt) - 1):
        upstream.plan.extend([{"ids": [97, 98], "text": "ab", "prompt_tokens": count, "finish": "length", "edit": without_prompt}] * 2)
        s, before = new(gateway), helped(gateway)
        a = gateway.post(url(s), {"model": "m", "messages": user(text), "n": 2, "return_token_ids": True, "logprobs": True})
        assert a.status == 200, a.text[:300]
        works.append(helped(gateway) - before)
        kept = gateway.get(f"/sessions/{s['session_id']}/trajectories").json()["trajectories"]
        known = [(t["prompt_ids"], t["response_ids"]) for t in kept if t.get("response_ids") == [97, 98]]
        assert known == ([(prompt, [97, 98])] if count == len(prompt) else []), str(kept)[:500]
    assert works[0] == works[1], "whether it fits is known behind the rendering alone"
    assert works[0] >= 2 * helps, "the call's own rendering, and this one"


@pytest.mark.parametrize("history", ["tree", "chains", "linear", "timelines"])
@pytest.mark.parametrize("field", ["return_token_ids", "return_meta_info"])
def test_ids_without_a_prompt_s_are_left(start, upstream, history, field):
    """An agent asks for them by itself, and the upstream tells no prompt, or one that is not how the session goes on: the answer is
    kept as text, and the next turn behind it."""
    gateway = start(engine=upstream.setting, workers=1, engine_retries=0)
    s = new(gateway, history=history)
    messages = user("one")
    for told in ([3, 1, 4], None, [9, 9], None):
        upstream.plan.append({"ids": [97, 98], "text": "ab", "finish": "length", **({"prompt_ids": told} if told else {"edit": without_prompt})})
        a = gateway.post(url(s), {"model": "m", "messages": messages, field: True, "logprobs": True})
        assert a.status == 200, a.text[:300]
        messages = [*messages, a.json()["choices"][0]["message"], *user("more")]
    messages = gateway.get(f"/sessions/{s['session_id']}/trajectories").json()["trajectories"][-1]["messages"]
    assert [m["role"] for m in messages].count("assistant") == 4


# --- more logprobs in an event than are told in a turn of the loop ---

MANY = 9000
TEXT = "some text that is told"


def entry(at, tops=0):
    alternatives = [{"token": f"t{at}.{k}", "logprob": -k / 8, "bytes": None} for k in range(tops)]
    return {"token": f"t{at}", "logprob": -(at % 100) / 8, "bytes": None, "top_logprobs": alternatives}


def counted(sizes, tops=0, **more):
    """An answer whose events have so many logprobs, which count upwards."""
    def edit(docs):
        if "message" in docs[0]["choices"][0]:
            docs[0]["choices"][0]["logprobs"] = {"content": [entry(k, tops) for k in range(sum(sizes))]}
            return docs
        told, at = [d for d in docs if d["choices"] and d["choices"][0]["delta"].get("content")], 0
        for doc, n in zip(told, sizes, strict=True):
            doc["choices"][0]["logprobs"] = {"content": [entry(at + k, tops) for k in range(n)]}
            at += n
        return docs
    return {"ids": [97, 98, 99], "prompt_ids": PROMPT, "text": TEXT, "edit": edit, "finish": "length", **more}


def in_small_events(sizes, tops=0):
    """The same, of which no event is long: those of each piece of text are the first's, or have an empty one."""
    def edit(docs):
        docs = counted(sizes, tops)["edit"](docs)
        for doc in docs:
            choice = (doc["choices"] or [{}])[0]
            content = (choice.get("logprobs") or {}).get("content", []) if "delta" in choice else []
            yield {**doc, "choices": [{**choice, "logprobs": {"content": content[:100]}}]} if len(content) > 100 else doc
            for at in range(100, len(content), 100):
                yield {**doc, "choices": [{**choice, "delta": {"content": ""}, "logprobs": {"content": content[at:at + 100]}}]}
    return counted(sizes, tops, edit=lambda docs: list(edit(docs)))


LONG_SECOND = [1, MANY, 1, 1, 1]


def events_of(text):
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]


def check_counted(text, sizes, step=None, ordered=True):
    """All logprobs in their order, none twice, those of an event behind its text and before the next one's; then the end. What each told."""
    events = [e["choices"][0] for e in events_of(text) if e["choices"]]
    parts = [c["logprobs"]["content"] for c in events if c.get("logprobs")]
    assert [t["token"] for p in parts for t in p] == [f"t{k}" for k in range(sum(sizes))]
    assert "".join(c["delta"].get("content") or "" for c in events) == TEXT
    assert [c["finish_reason"] for c in events if c["finish_reason"]] == ["length"]
    assert events[-1]["finish_reason"]
    assert step is None or max(sum(1 + len(t["top_logprobs"]) for t in p) for p in parts) <= step
    if ordered:
        told, heard = "", 0
        for c in events:
            if c["delta"].get("content"):
                assert heard == sum(sizes[:len(told) // 5]), "a text before what came before it"
                told += c["delta"]["content"]
            heard += len((c.get("logprobs") or {}).get("content", []))
    return [t for p in parts for t in p]


def test_many_logprobs_of_an_event_are_told_as_those_of_small_ones(start, upstream):
    """As they would be if they came in small events, streamed, whole and told again."""
    gateway = start(engine=upstream.setting, workers=1)
    kept = []
    for plan in (counted(LONG_SECOND), in_small_events(LONG_SECOND)):
        s = new(gateway)
        upstream.plan.extend([plan, plan])
        told = check_counted(gateway.post(url(s), {**BODY, "stream": True}, headers={"Idempotency-Key": "a"}).text, LONG_SECOND)
        again = gateway.post(url(s), {**BODY, "stream": True}, headers={"Idempotency-Key": "a"})
        assert again.headers["Rollgate-Replayed"] == "1"
        whole = gateway.post(url(s), {**BODY, "stream": False}).json()["choices"][0]
        assert whole["logprobs"]["content"] == told and whole["message"]["content"] == TEXT
        kept.append((told, [{k: t[k] for k in ("prompt_ids", "response_ids", "response_logprobs")}
                            for t in gateway.get(f"/sessions/{s['session_id']}/trajectories").json()["trajectories"]]))
    assert kept[0] == kept[1]


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("helpers", [0, 2])
def test_long_events_that_come_at_once(start, upstream, chunked, helpers):
    """Some of them, with alternatives and without."""
    def frame(kind, parts):
        head = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\n"
        if chunked:
            return (head + "transfer-encoding: chunked\r\n\r\n").encode() + b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in [*parts, b""])
        return f"{head}content-length: {len(b''.join(parts))}\r\n\r\n".encode() + b"".join(parts)
    gateway = start(engine=upstream.setting, workers=1, helpers=helpers)
    for sizes, tops in (([600, 511, 513, 2000, 600], 0), ([200, 1, 30, 90, 3], 20), ([MANY] * 5, 0), ([512] * 5, 0)):
        upstream.plan.append(counted(sizes, tops, frame=frame))
        told = check_counted(gateway.post(url(new(gateway)), {**BODY, "stream": True}).text, sizes)
        assert all(len(t["top_logprobs"]) == tops for t in told)


@pytest.mark.parametrize("stream", [False, True])
def test_too_many_alternatives_of_a_token_are_refused(start, upstream, stream):
    """They would be told at once. As many as are taken are told."""
    gateway = start(engine=upstream.setting, workers=1, engine_retries=0)
    for n in (256, 257):
        for whole in (False, True):
            def edit(docs, n=n):
                for doc in docs:
                    for choice in doc["choices"]:
                        choice["logprobs"] = {"content": [entry(0, n)]}
                return docs
            upstream.plan.append({"ids": [97], "prompt_ids": PROMPT, "text": "abc", "edit": edit, "whole": whole})
            a = gateway.post(url(new(gateway)), {**BODY, "stream": stream})
            assert ("257 alternatives of one token; at most 256 are taken" in a.text) == (n > 256), a.text[-300:]
            assert ("t0.255" in a.text) == (n == 256)


def test_alternatives_of_a_whole_answer_are_told_in_steps(start, upstream):
    """Also where the first token has none."""
    n, tops = 3000, 20

    def edit(docs):
        docs[0]["choices"][0]["logprobs"] = {"content": [entry(k, tops if k else 0) for k in range(n)]}
        return docs
    gateway = start(engine=upstream.setting, workers=1)
    upstream.plan.append({"ids": [97], "prompt_ids": PROMPT, "text": TEXT, "edit": edit, "finish": "length", "whole": True})
    s = new(gateway)
    told = [gateway.post(url(s), {**BODY, "stream": True}, headers={"Idempotency-Key": "a"}).text for _ in range(2)]
    assert check_counted(told[0], [n], step=4096 + tops, ordered=False)       # TAKE_MAX of worker/plane/call/sample_whole.c
    assert len(upstream.requests) == 1


class Standing(StubEngine):
    """Stands still behind the long event until it may go on."""

    def __init__(self):
        super().__init__("openai")
        self.stands, self.may = threading.Event(), threading.Event()

    async def send(self, writer, pieces, plan, tail=b""):
        writer.write(b"".join(pieces[:4]))
        await writer.drain()
        self.stands.set()
        while not self.may.is_set():
            await asyncio.sleep(0.005)
        return await super().send(writer, pieces[4:], plan, tail)


def test_who_joins_behind_a_long_event_hears_all_of_it(start):
    with Standing() as engine:
        engine.plan.append(counted(LONG_SECOND))
        gateway = start(engine=engine.setting, workers=1)
        s, got = new(gateway), {"first": "", "second": ""}

        def ask(name):
            with contextlib.closing(gateway.connect()) as c:
                c.request("POST", url(s), json.dumps({**BODY, "stream": True}), {"Idempotency-Key": "k"})
                for line in c.getresponse():
                    got[name] += line.decode()
        threads = [threading.Thread(target=ask, args=(name,)) for name in got]
        threads[0].start()
        assert engine.stands.wait(20)
        wait_until(lambda: f'"t{MANY}"' in got["first"], 20, "the worker has read the long event")
        threads[1].start()
        wait_until(lambda: gateway.metrics().get("rollgate_joins_total") == 1, 10, "the second has joined")
        engine.may.set()
        for t in threads:
            t.join()
        check_counted(got["first"], LONG_SECOND)
        check_counted(got["second"], LONG_SECOND, step=1024, ordered=False)    # REPEAT_MAX of worker/plane/call/call_listeners.c
        assert len(engine.requests) == 1


def test_what_came_before_the_connection_broke_is_told(start, upstream):
    """Then that it did."""
    gateway = start(engine=upstream.setting, workers=1, engine_retries=0)
    upstream.plan.append({**counted(LONG_SECOND), **cut_behind(3)})
    events = events_of(gateway.post(url(new(gateway)), {**BODY, "stream": True}).text)
    content = [t["token"] for e in events[:-1] for c in e["choices"] for t in (c.get("logprobs") or {}).get("content", [])]
    assert content == [f"t{k}" for k in range(1 + MANY)]
    assert "error" in events[-1] and not any("error" in e for e in events[:-1])

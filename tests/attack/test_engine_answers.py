"""Engines that answer with what is long, odd or hostile: whatever an answer is, it is taken or refused, no worker dies, another
session's turns go on, and the worker's loop stands for no longer than a few milliseconds of a processor, whatever the answer's size."""
import contextlib
import json
import math
import threading

import pytest

import battle
import gateway as g
from gateway import fresh_memory
from stub_engines import StubEngine

pytestmark = pytest.mark.alone

ASK = {"model": "m", "messages": [{"role": "user", "content": "go on"}]}
KINDS = {"sglang": {"incremental": True}, "vllm": {"routes": ("generate",)}, "llamacpp": {}, "openai": {}}
DEEP = 400_000


def limit_ms():
    """What a slow machine keeps: a step, and 8 MiB of memory that it touches for the first time (an answer, its record, and the session's)."""
    return 10 + 2000 * fresh_memory()


def numbers(n):
    return [97 + i % 26 for i in range(n)]


def finish_of(kind, last):
    if kind == "sglang":
        return {"type": "length", "length": 1} if last else None
    return "length" if last else None


def document(kind, ids, last=True, so_far=0, stream=False, **more):
    """One answer, or one event of one, that fits; `more` are members that nobody knows, or others."""
    n = len(ids)
    if kind == "sglang":
        meta = {"id": "x", "finish_reason": finish_of(kind, last), "completion_tokens": so_far + n, "cached_tokens": 0, "weight_version": "1",
                "output_token_logprobs": [[-0.5, t, None] for t in ids]}
        return {"output_ids": ids, "meta_info": meta, **more}
    if kind == "vllm":
        content = [{"token": f"token_id:{t}", "logprob": -0.5, "top_logprobs": []} for t in ids]
        return {"request_id": "x", "choices": [{"index": 0, "token_ids": ids, "finish_reason": finish_of(kind, last), "logprobs": {"content": content}}], **more}
    if kind == "llamacpp":
        return {"tokens": ids, "stop": True, "stop_type": "limit", "truncated": False, "completion_probabilities": [
            {"id": t, "prob": 0.5, "top_probs": [{"id": t, "prob": 0.5}]} for t in ids], **more}
    content = [{"token": "t", "logprob": -0.5, "top_logprobs": []} for t in ids]
    said = {"role": "assistant", "content": "t" * n, **more.pop("said", {})}
    return {"id": "x", "model": "m", "choices": [{"index": 0, "delta" if stream else "message": said, "finish_reason": finish_of(kind, last),
                                                  "logprobs": {"content": content}}],
            "usage": {"prompt_tokens": 5, "completion_tokens": so_far + n}, **more}


def whole(kind, n=4, **more):
    return json.dumps(document(kind, numbers(n), **more)).encode()


def events(kind, sizes, **more):
    docs, at = [], 0
    for i, n in enumerate(sizes):
        docs.append(json.dumps(document(kind, numbers(n), i == len(sizes) - 1, at, True, **more)).encode())
        at += n
    return docs


def framed(stream, docs):
    body = b"".join(b"data: " + d + b"\n\n" for d in docs) + b"data: [DONE]\n\n" if stream else docs[0]
    return head(stream, len(body)) + body


def head(stream, n):
    kind = "text/event-stream" if stream else "application/json"
    return f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {n}\r\n\r\n".encode()


def put_in(doc, text):
    """Behind the document's first brace."""
    return b"{" + text + b"," + doc[1:]


def blank_events(kind, n):
    body = b"\n" * n + b": nothing\n" * n + b"data:\n" * (n // 8) + b"".join(b"data: " + d + b"\n\n" for d in events(kind, [4]))
    return head(True, len(body)) + body


def calls_of(kind, n, **index):
    return {"said": {"content": None, "tool_calls": [index or {}] * n}}


# Name -> whether it is streamed, and the answer's bytes for a size, of which the doubled one is played as well.
ANSWERS = {
    "many events": (True, lambda kind, n: framed(True, events(kind, [1] * (10_000 * n)))),
    "one event": (True, lambda kind, n: framed(True, events(kind, [4_000 * n] if kind == "openai" else [50_000 * n]))),
    "many tokens": (False, lambda kind, n: framed(False, [whole(kind, 50_000 * n)])),
    "one event, nested": (True, lambda kind, n: framed(True, [put_in(events(kind, [4])[0], b'"x":' + b"[" * (DEEP * n) + b"]" * (DEEP * n))])),
    "nested": (False, lambda kind, n: framed(False, [put_in(whole(kind), b'"x":' + b'{"a":' * (DEEP * n) + b"1" + b"}" * (DEEP * n))])),
    "members": (False, lambda kind, n: framed(False, [put_in(whole(kind), b",".join(b'"a%d":[{}]' % i for i in range(200_000 * n)))])),
    "one event, members": (True, lambda kind, n: framed(True, [put_in(events(kind, [4])[0], b",".join(b'"a%d":1' % i for i in range(100_000 * n)))])),
    "equal members": (False, lambda kind, n: framed(False, [put_in(whole(kind), b'"usage":{"prompt_tokens":5},' * (200_000 * n) + b'"x":1')])),
    "a long text": (False, lambda kind, n: framed(False, [put_in(whole(kind), b'"text":"' + b"\\u00e9" * (1_000_000 * n) + b'"')])),
    "blanks": (False, lambda kind, n: framed(False, [whole(kind)[:-1] + b" " * (4_000_000 * n) + b"}"])),
    "blank lines": (True, lambda kind, n: blank_events(kind, 400_000 * n)),
    "one event, blanks": (True, lambda kind, n: framed(True, [events(kind, [4])[0][:-1] + b" " * (1_500_000 * n) + b"}"])),
    "numbers": (False, lambda kind, n: framed(False, [put_in(whole(kind), b'"x":[' + b"1e308,-0.00001234567," * (200_000 * n) + b"1]")])),
}

# Of upstreams that are asked with messages alone.
MESSAGES = {
    "words": (False, lambda kind, n: framed(False, [whole(kind, said={"content": "word " * (200_000 * n)})])),
    "words, streamed": (True, lambda kind, n: framed(True, events(kind, [1] * 8, said={"content": "word " * (25_000 * n)}))),
    "more words than are taken": (False, lambda kind, n: framed(False, [whole(kind, said={"content": "word " * (1_000_000 * n)})])),
    "thought": (False, lambda kind, n: framed(False, [whole(kind, said={"reasoning_content": "\n" * (1_000_000 * n)})])),
    "calls": (False, lambda kind, n: framed(False, [whole(kind, **calls_of(kind, 2_000 * n))])),
    "calls without end": (False, lambda kind, n: framed(False, [whole(kind, **calls_of(kind, 1_000_000 * n))])),
    "calls in one event": (True, lambda kind, n: framed(True, events(kind, [1], **calls_of(kind, 100 * n)))),
    "pieces of one call": (True, lambda kind, n: framed(True, events(kind, [1], **calls_of(kind, 50_000 * n, index=0)))),
    "arguments": (True, lambda kind, n: framed(True, events(kind, [1], **calls_of(
        kind, 1, index=0, id="c", function={"name": "f", "arguments": json.dumps({"a": "b" * (500_000 * n)})})))),
    "logprobs in one event": (True, lambda kind, n: framed(True, events(kind, [16_000 * n]))),
    "ids in one event": (True, lambda kind, n: framed(True, [*events(kind, [1]), json.dumps(
        {"choices": [], "sglext": {"input_ids": [3] * 5, "output_ids": [numbers(200_000 * n)]}}).encode()])),
    "usage": (True, lambda kind, n: framed(True, events(kind, [1], usage={f"a{i}": 1 for i in range(100_000 * n)}))),
}


class Engine(StubEngine):
    """Answers those that ask for so many tokens with raw bytes, and others as its kind does."""

    def __init__(self, kind, **more):
        super().__init__(kind, **more)
        self.raw = {}
        self.otherwise = lambda body: self.hostile(body) or {"ids": [111, 107], "finish": "length"}

    def hostile(self, body):
        params = body.get("sampling_params") or {}
        most = next(filter(None, (params.get("max_new_tokens"), params.get("max_tokens"), body.get("n_predict"), body.get("max_tokens"))), None)
        return {"ids": [111], "frame": lambda *_: self.raw[most]} if most in self.raw else None


class Beside:
    """Turns of other sessions as long as it lasts, one at least."""

    def __init__(self, gateway):
        self.gateway, self.over, self.failed = gateway, threading.Event(), []
        self.thread = threading.Thread(target=self.make_turns)

    def make_turns(self):
        over = False
        while not over:
            a = self.gateway.chat(self.gateway.post("/sessions").json(), "hello", max_tokens=9)
            if a.status != 200:
                self.failed.append(a.text[:300])
            over = self.over.wait(0.02)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join(60)


@contextlib.contextmanager
def against(start, kind):
    with Engine(kind, **KINDS[kind]) as engine:
        gateway = start(engine=engine.setting, workers=1, context_length=10_000_000, engine_retries=0)
        gateway.allow(".*")
        yield engine, gateway


def play(engine, gateway, stream, make):
    """Both sizes: the longest hold so far."""
    pid = gateway.child("worker-0")
    for n in (1, 2):
        most = 900_000 + n
        engine.raw[most] = make(engine.kind, n)
        with Beside(gateway) as beside:
            a = gateway.post(f"/sessions/{gateway.post('/sessions').json()['session_id']}/v1/chat/completions",
                             {**ASK, "max_tokens": most, "stream": stream, "logprobs": True}, timeout=120)
        assert a.status in (200, 502), a.text[:300]
        assert not beside.failed, beside.failed[:3]
        assert gateway.chat(gateway.post("/sessions").json(), "hello", max_tokens=9).status == 200
    assert gateway.child("worker-0") == pid
    return battle.longest_hold_ms(gateway, "cpu_")


@pytest.mark.parametrize("kind", KINDS)
def test_no_answer_holds_the_loop(start, kind):
    """All on one gateway; one whose hold was too long is played again, each time on a new one."""
    cases = {**ANSWERS, **(MESSAGES if kind == "openai" else {})}
    again, limit = [], limit_ms()
    with against(start, kind) as (engine, gateway):
        for name, (stream, make) in cases.items():
            if stream and kind == "llamacpp":
                continue
            before = battle.longest_hold_ms(gateway, "cpu_")
            if play(engine, gateway, stream, make) > max(before, limit):
                again.append(name)
        assert gateway.stop() == 0
    for name in again:
        def alone():
            with against(start, kind) as (engine, gateway):
                held = play(engine, gateway, *cases[name])
                assert gateway.stop() == 0
            return held
        battle.holds_within(limit, alone, name)


VOCABULARY = 150_000


def with_vocabulary(folder):
    """A model of bytes whose tokenizer has as many further tokens as large models have."""
    folder.mkdir()
    for path in (g.MODELS / "chatml-bytes").iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    told = json.loads((folder / "tokenizer.json").read_text())
    told["model"]["vocab"].update({f"zz{i}": i for i in range(259, VOCABULARY)})
    (folder / "tokenizer.json").write_text(json.dumps(told))
    return folder


def every_token(n):
    """What llama.cpp says of its n best tokens; the bytes of texts are among them."""
    tops = b",".join(b'{"id":%d,"token":"zz%d","bytes":[122,122,48],"logprob":%.6f}' % (i, i, -9 - i / 40_000) for i in range(n))
    return lambda token: (b'{"content":"x","tokens":[%d],"stop":true,"stop_type":"limit","truncated":false,"completion_probabilities":[{"id":%d,"token":"",'
                          b'"bytes":[],"logprob":-30.0,"top_logprobs":[' % (token, token) + tops + b"]}]}")


class Scored(StubEngine):
    """A llama.cpp that tells as much of its vocabulary as it is asked for, where a token is forced."""
    told = {}

    async def answer(self, writer, route, body, plan):
        if not self.is_forced(body):
            return await super().answer(writer, route, body, plan)
        self.forced.append(body["n_probs"])
        writer.write(framed(False, [self.told[body["n_probs"]](body["logit_bias"][0][0])]))
        await writer.drain()
        return True


def test_a_vocabulary_of_logprobs_holds_nobody(start, tmp_path):
    """Tokens within characters have no logprob in an answer of llama.cpp: each is asked for, at such a temperature with every
    alternative."""
    folder = with_vocabulary(tmp_path / "model")
    Scored.told = {n: every_token(n) for n in (1024, VOCABULARY)}
    ids = list("\u9f98\U0001f980".encode())

    def play():
        with Scored("llamacpp") as engine:
            gateway = start(engine=engine.setting, model=folder, workers=1, engine_retries=0)
            gateway.allow("leaves logprobs out")
            engine.otherwise = lambda body: {"ids": [111, 107] if body["n_predict"] == 9 else ids, "finish": "length"}
            session = gateway.post("/sessions").json()
            with Beside(gateway) as beside:
                a = gateway.chat(session, "hello", max_tokens=len(ids), temperature=1.3)
            assert a.status == 200 and a.json()["choices"][0]["message"]["content"] == "\u9f98\U0001f980", a.text[:300]
            assert not beside.failed, beside.failed[:3]
            assert engine.forced == [1024, VOCABULARY] * 5
            t = gateway.get(f"/sessions/{session['session_id']}/trajectories").json()["trajectories"][0]
            assert t["turns"][0]["scored_tokens"] == 5
            total = sum(math.exp(-i / 40_000 / 1.3) for i in range(VOCABULARY))
            for at in (0, 1, 3, 4, 5):
                assert t["response_logprobs"][at] == pytest.approx(-ids[at] / 40_000 / 1.3 - math.log(total), abs=1e-4)
            held = battle.longest_hold_ms(gateway, "cpu_")
            assert gateway.stop() == 0
        return held
    battle.holds_within(limit_ms(), play)


def test_what_an_engine_tells_of_itself_holds_nobody(start):
    """Settings of a megabyte, as an engine with very many ranks would tell them."""
    info = {"context_length": 4321, "internal_states": [{"a": i, "b": [i]} for i in range(30_000)]}

    def play():
        with StubEngine("sglang", info=info) as engine:
            gateway = start(engine=engine.setting, workers=1)
            gateway.wait_line("context_length=4321")
            held = battle.longest_hold_ms(gateway, "cpu_")
            assert gateway.stop() == 0
        return held
    battle.holds_within(limit_ms(), play)

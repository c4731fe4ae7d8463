"""Stub engines for tests: SGLang, vLLM (both routes), llama.cpp and an OpenAI upstream. They follow the forms of
reference/wire.md, and can misbehave. vLLM's follow its sources after 0.30.0
(vllm/entrypoints/scale_out/token_in_token_out, protocol.py of commit 006ebac2), SGLang's those of September 2026
(rust/sglang-api-types of commit 09d9c399 for its Rust front). `form` and `front` select others.

    with StubEngine("sglang") as engine:
        engine.plan.append({"ids": [1, 2, 3], "finish": "stop"})
        ... POST engine.url + "/generate" ...
        engine.requests[0]["body"]["input_ids"]

Each model call uses the next entry of `plan`, or DEFAULT without one. Keys of an entry:
  ids, logprobs (default: by formula), finish (stop | length | abort), matched, version, versions
  prompt_tokens: reported number of prompt tokens;  cached: prompt tokens that were in the cache
  experts: bytes, or a function of the request;  chunk: tokens of an event;  text
  delay_s;  wait: threading.Event, the answer is held until it is set;  gap_s: pause between events
  hold_after: after this number of writes (the head is one) waits for give_up; `holding` counts such calls
  status + body, headers (lines): an HTTP error (with cut: broken off);  error_event: {...} after half of the events
  late_500: an HTTP error written into the middle of a good answer, which then ends
  truncated, held: llama.cpp's mark of a full context, and number of tokens in its slot at the end
  waiting: "alone" | "merged": SGLang aborts the stream in its queue (end_waiting)
  retractions: number of times that SGLang evicted the request and computed it again
  drop: a set of keys that are left out (ids, logprobs, finish, done, prompt_tokens, completion_tokens)
  lp_extra: n additional (or missing) logprobs;  lp_null: True;  lp_ids_wrong: True;  count_wrong: True
  split: writes n bytes at a time;  coalesce: everything in one write
  cut: "close" | "reset" | "stall" after `cut_at` (0..1) of the answer's bytes
  before: "close" | "reset" instead of any answer;  truncate: JSON ends half way (with right framing)
  type: content type;  pad: bytes of an unknown field
  stray: a function of the answer's bytes; its result precedes the next answer on the same connection
  request_id: the id that vLLM reports for the request (default: the request's)
  edit: a function of the documents, which returns changed ones
  frame: a function of content type and parts of the body, which returns the bytes of the whole answer;
  end: "close" | "reset" after these bytes
  whole: no stream although requested;  stream: whether it is one, regardless of the request"""
import asyncio
import base64
import collections
import json
import math
import socket
import struct
import threading

# The answer of SGLang's Rust front to /server_info (rust/sglang-server/src/api_server/http/info.rs of commit
# 96510958).
RUST_INFO = {"model_path": "m", "served_model_name": "m", "tokenizer_path": "m", "max_context_length": 4096, "max_total_num_tokens": 8192,
             "version": "0.6.0", "frontend": "rust", "internal_states": [{"last_gen_throughput": 1.5}]}
FIELD_OF = {"regex": "response_format", "structured_outputs": "response_format", "min_new_tokens": "min_tokens", "max_new_tokens": "max_tokens"}

DEFAULT = {"ids": [11, 12, 13, 2], "finish": "stop", "matched": 2}


def logprob(j, t):
    return -((t * 7 + j * 13) % 100) / 100


def ends_inside(text):
    """Reports whether the bytes end within a UTF-8 character, by llama.cpp's rule: by the last first byte near the
    end."""
    for i, b in enumerate(reversed(text[-4:]), 1):
        if b >> 5 == 0b110:
            return i < 2
        if b >> 4 == 0b1110:
            return i < 3
        if b >> 3 == 0b11110:
            return i < 4
    return False


class StubEngine:
    def __init__(self, kind="sglang", incremental=False, routes=("generate", "completions"), tls=None, health=200, health_delay=0.0,
                 key=None, info=None, form="ids", front=None, ignores=None, host="127.0.0.1"):
        self.kind, self.incremental, self.routes, self.tls, self.host = kind, incremental, routes, tls, host
        self.health, self.health_delay, self.key, self.info = health, health_delay, key, info
        self.form = form    # form of vLLM's logprobs at its first route: "ids", or "names" (until September 2026)
        # "rust": fronts that answer 200 to unknown fields; `ignores`: the ignored ones (names of engine_lacks.def).
        self.front, self.ignores = front, {"stop"} if ignores is None and front and kind == "vllm" else ignores or set()
        if front and kind == "sglang":
            self.info = info or RUST_INFO
        self.info_asked = 0
        self.plan = collections.deque()
        # llama.cpp: speculative: with a draft model; old: does not know post_sampling_probs; backend: started with
        # --backend-sampling; pieces: bytes of a token (default: byte-level);
        # dist: the model, ids so far -> every (id, logprob), best first; answered: its answers; forced: calls with
        # one forced token.
        self.speculative = self.old = self.backend = False
        self.pieces, self.dist, self.answered, self.forced, self.slot = {}, None, [], [], []
        self.requests, self.aborts, self.probes = [], [], 0
        self.otherwise = None  # a function of the request's body, which returns the entry when the plan is empty
        self.give_up = None    # threading.Event: while set, streams end with the tokens sent so far (SGLang's pause, vLLM's abort)
        self.loading, self.turned_away = False, []     # llama.cpp: it answers 503 because it loads its model
        self.refuses = set()   # llama.cpp: tokens for which it answers 500 when they are forced
        self.missing = []      # requested paths that do not exist
        self.strays = {}       # connection -> an answer that precedes the next one on it
        self.refused = 0       # number of answers that cannot be written as text
        self.left = 0  # number of clients that left before the end of their answer
        self.running = self.most_running = self.connections = self.holding = 0
        self.port = 0
        self.loop = asyncio.new_event_loop()
        self.writers = set()

    # --- life ---

    def __enter__(self):
        ready = threading.Event()

        def run():
            asyncio.set_event_loop(self.loop)
            self.server = self.loop.run_until_complete(asyncio.start_server(self.serve, self.host, self.port, ssl=self.tls, limit=1 << 26, backlog=4096))
            self.port = self.server.sockets[0].getsockname()[1]
            ready.set()
            self.loop.run_forever()
            self.server.close()
            for w in list(self.writers):
                w.transport.abort()
            self.loop.run_until_complete(asyncio.sleep(0.01))
            for t in asyncio.all_tasks(self.loop):
                t.cancel()
            self.loop.run_until_complete(asyncio.sleep(0.01))
            self.loop.close()
        self.thread = threading.Thread(target=run, daemon=True)
        self.thread.start()
        assert ready.wait(10)
        return self

    def __exit__(self, *_):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(10)

    @property
    def url(self):
        return f"http{'s' if self.tls else ''}://{self.host}:{self.port}"

    @property
    def setting(self):
        return f"{self.kind}:{self.url}"

    # --- HTTP ---

    async def serve(self, reader, writer):
        self.connections += 1
        self.writers.add(writer)
        try:
            while await self.one(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self.writers.discard(writer)
            writer.transport.abort()

    async def one(self, reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin1").split("\r\n")
        headers = {k.lower(): v.strip() for k, v in (x.split(":", 1) for x in lines if ":" in x)}
        raw = await reader.readexactly(int(headers.get("content-length", 0)))
        method, target, _ = first.split()
        path = target.split("?")[0]
        if self.loading:
            self.turned_away.append(path)
            return await self.reply(writer, 503, b'{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}')
        if path in ("/health", "/health_generate"):
            self.probes += 1
            await asyncio.sleep(self.health_delay)
            return await self.reply(writer, self.health, b"")
        if self.key and headers.get("authorization") != f"Bearer {self.key}":
            return await self.reply(writer, 401, b'{"error":"Unauthorized"}')
        body = json.loads(raw) if raw and headers.get("content-type", "").startswith("application/json") else {}
        if path == "/version" and self.kind == "vllm":
            return await self.reply(writer, 200, json.dumps({"version": "0.30.1", **({"rust_frontend_version": "0.2.0"} if self.front else {})}).encode())
        if path == {"sglang": "/server_info", "vllm": "/v1/models", "llamacpp": "/props"}.get(self.kind):
            self.info_asked += 1
            return await self.reply(writer, 200 if self.info else 404, json.dumps(self.info or {"detail": "Not Found"}).encode())
        if path == "/abort_request":
            self.aborts.append(body.get("rid"))
            return await self.reply(writer, 200, b"")
        route = {"/generate": ("sglang", "generate"), "/inference/v1/generate": ("vllm", "generate"), "/v1/completions": ("vllm", "completions"),
                 "/completion": ("llamacpp", ""), "/v1/chat/completions": ("openai", "")}.get(path)
        if not route or route[0] != self.kind or (route[0] == "vllm" and route[1] not in self.routes):
            if path == "/echo":
                return await self.reply(writer, 200, json.dumps({"method": method, "target": target, "headers": headers, "body": raw.decode()}).encode())
            self.missing.append(path)
            return await self.reply(writer, 404, b'{"detail":"Not Found"}')
        self.requests.append({"path": path, "headers": headers, "body": body, "port": writer.get_extra_info("peername")[1]})
        if writer in self.strays:
            writer.write(self.strays.pop(writer))
        plan = {**DEFAULT} if self.is_forced(body) else self.sampled(body) if self.front and self.is_probe(body) else {**DEFAULT, **(self.plan.popleft() if self.plan else self.otherwise(body) if self.otherwise else {})}
        plan.setdefault("request_id", headers.get("x-request-id") or body.get("request_id"))
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        gone = asyncio.ensure_future(self.watch(reader))
        try:
            work = asyncio.ensure_future(self.answer(writer, route, body, plan))
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
            if work.done() and not isinstance(work.exception(), ConnectionError):   # the client left before the first byte was sent
                return work.result()
            work.cancel()
            self.left += 1
            return False
        finally:
            gone.cancel()
            self.end(plan)

    # --- the gateway's questions to fronts, answered as by a sampler ---

    @staticmethod
    def is_probe(body):
        return str(body.get("rid") or body.get("request_id")).startswith("form-probe:") and set(body) != {"prompt"}

    def sampled(self, body):
        """Returns the entry of a sampler with one likely token (x) and certain biases. Letters are those of the byte
        vocabulary."""
        params = body.get("sampling_params", body)

        def get(*names):
            value = next((params[n] for n in names if params.get(n) is not None), None)
            return None if set(names) & self.ignores or FIELD_OF.get(names[0]) in self.ignores else value
        most, least = get("max_new_tokens", "max_tokens") or 9, get("min_new_tokens", "min_tokens") or 0
        bias, allowed, words = get("logit_bias"), get("allowed_token_ids"), [ord(w) for w in get("bad_words") or []]
        stops, ends = get("stop") or [], get("stop_token_ids") or []
        grammar = get("regex") or (get("structured_outputs") or {}).get("regex")
        ids = []
        while len(ids) < most:
            best = [ord("x"), ord("y")]
            if bias:
                best = [int(max(bias, key=bias.get)), *best]
            if allowed:
                best = allowed
            if grammar:
                best = [*grammar.encode()][len(ids):] or [257]
            ids.append(next(t for t in best if t not in words and (t not in ends or len(ids) >= least)))
            if ids[-1] in (*ends, 257):
                return {**DEFAULT, "ids": ids, "matched": ids[-1]}
            found = [s for s in stops if bytes(ids).endswith(s.encode())]
            if found:
                return {**DEFAULT, "ids": ids, "matched": found[0]}
        return {**DEFAULT, "ids": ids, "finish": "length", "matched": None}

    def end(self, plan):
        """Ends the count of a running call, just before the last byte of its answer is sent: a client that has read
        it sees the count."""
        self.running -= not plan.get("over")
        plan["over"] = True

    async def watch(self, reader):
        """Returns when the client has closed its connection."""
        while not reader.at_eof() and not reader.exception():
            await asyncio.sleep(0.005)

    async def reply(self, writer, status, body, kind="application/json", more=""):
        writer.write(f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\n{more}content-length: {len(body)}\r\n\r\n".encode() + body)
        await writer.drain()
        return True

    # --- model calls ---

    async def answer(self, writer, route, body, plan):
        await asyncio.sleep(plan.get("delay_s", 0))
        while "wait" in plan and not plan["wait"].is_set():
            await asyncio.sleep(0.005)
        if plan.get("before"):
            self.break_off(writer, plan["before"])
            return False
        if "status" in plan:
            raw = json.dumps(plan.get("body", {"error": {"message": "injected"}})).encode()
            head = f"HTTP/1.1 {plan['status']} X\r\ncontent-type: application/json\r\n{plan.get('headers', '')}content-length: {len(raw)}\r\n\r\n".encode()
            return await self.send(writer, [head + raw], plan)
        ids = [body["logit_bias"][0][0]] if self.is_forced(body) else plan["ids"]
        if self.kind == "llamacpp" and (self.no_text(ids) or self.is_forced(body) and ids[0] in self.refuses):
            self.refused += 1
            return await self.reply(writer, 500, json.dumps({"error": {
                "code": 500, "type": "server_error", "message": "The model produced output that does not match the expected Content-only format"}}).encode())
        stream = plan.get("stream", bool(body.get("stream")) and not plan.get("whole"))
        docs = plan.get("edit", lambda d: d)(getattr(self, route[0])(body, plan, stream, route[1]))
        if "frame" in plan:
            parts = [b"data: " + json.dumps(d).encode() + b"\n\n" for d in docs] + [b"data: [DONE]\n\n"] if stream else [json.dumps(docs[-1]).encode()]
            writer.write(plan["frame"]("text/event-stream" if stream else "application/json", parts))
            await writer.drain()
            if "end" in plan:
                await asyncio.sleep(0.02)
                self.break_off(writer, plan["end"])
            return "end" not in plan
        if not stream:
            raw = json.dumps(docs[-1]).encode()
            if plan.get("truncate"):
                raw = raw[:len(raw) // 2]
            head = f"HTTP/1.1 200 OK\r\ncontent-type: {plan.get('type', 'application/json')}\r\ncontent-length: {len(raw)}\r\n\r\n".encode()
            return await self.send(writer, [head + raw], plan)
        events = [b"data: " + json.dumps(d).encode() + b"\n\n" for d in docs]
        if "error_event" in plan:
            events = events[:len(events) // 2] + [b"data: " + json.dumps(plan["error_event"]).encode() + b"\n\n"]
        if plan.get("truncate"):
            events[-1] = events[-1][:len(events[-1]) // 2] + b"\n\n"
        if plan.get("garbage"):
            events.insert(len(events) // 2, b"data: <html>\n\n")
        if route[0] != "llamacpp" and "done" not in plan.get("drop", ()):
            events.append(b"data: [DONE]\n\n")
        pieces = [f"HTTP/1.1 200 OK\r\ncontent-type: {plan.get('type', 'text/event-stream')}\r\ntransfer-encoding: chunked\r\n\r\n".encode()]
        pieces += [b"%x\r\n%s\r\n" % (len(e), e) for e in events]
        if self.give_up:
            return await self.send_until_aborted(writer, pieces, plan, lambda n: getattr(self, route[0])(
                body, {**plan, "ids": plan["ids"][:n], "finish": "abort"}, True, route[1]))
        return await self.send(writer, pieces, plan, b"0\r\n\r\n")

    async def send_until_aborted(self, writer, pieces, plan, aborted):
        """Sends the events one by one. When give_up is set, ends with the tokens sent so far."""
        behind = sum(b'"choices": []' in p for p in pieces)     # usage without choices, after the end
        for i, piece in enumerate(pieces):
            if i == plan.get("hold_after"):
                self.holding += 1
                while not self.give_up.is_set():
                    await asyncio.sleep(0.005)
                self.holding -= 1
            if self.give_up.is_set() and 0 < i < len(pieces) - 1 - behind:
                doc = [d for d in aborted((i - 1) * plan.get("chunk", 2)) if d.get("choices", True)][-1] if i > 1 else None
                if not doc:
                    doc = aborted(0)[-1] if self.kind == "sglang" else {"request_id": f"generate-tokens-{plan['request_id']}", "choices": [{"index": 0, "token_ids": [], "logprobs": {"content": []}, "finish_reason": "abort"}]}
                elif self.kind == "vllm":
                    doc["choices"][0].update(token_ids=[], logprobs={"content": []})
                elif self.incremental:
                    doc["output_ids"] = []
                    doc["meta_info"]["output_token_logprobs"] = []
                text = b"data: " + json.dumps(doc).encode() + b"\n\ndata: [DONE]\n\n"
                return await self.send(writer, [b"%x\r\n%s\r\n" % (len(text), text)], plan, b"0\r\n\r\n")
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(plan.get("gap_s", 0))
        self.end(plan)
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

    def break_off(self, writer, how):
        if how == "reset":
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort() if how == "reset" else writer.close()

    async def send(self, writer, pieces, plan, tail=b""):
        pieces = pieces + [tail] if tail else pieces
        limit = None
        if "stray" in plan:
            self.strays[writer] = plan["stray"](b"".join(pieces))
        if plan.get("late_500"):
            whole = b"".join(pieces)
            pieces = [whole[:len(whole) // 2], b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 9\r\n\r\nsomething"]
            writer.write(b"".join(pieces))
            await writer.drain()
            self.break_off(writer, "close")
            return False
        if "cut" in plan:
            limit = int(sum(map(len, pieces)) * plan.get("cut_at", 0.5))
        if plan.get("coalesce"):
            pieces = [b"".join(pieces)]
        for piece in pieces:
            step = plan.get("split") or len(piece)
            for at in range(0, len(piece), step):
                part = piece[at:at + step]
                if piece is pieces[-1] and at + step >= len(piece) and limit is None:
                    self.end(plan)
                if limit is not None and len(part) >= limit:
                    writer.write(part[:limit])
                    await writer.drain()
                    await asyncio.sleep(0.02)
                    if plan["cut"] == "stall":
                        await asyncio.sleep(3600)
                    self.break_off(writer, plan["cut"])
                    return False
                limit = limit - len(part) if limit is not None else None
                writer.write(part)
                if plan.get("split"):
                    await writer.drain()
                    await asyncio.sleep(0)
            await writer.drain()
            await asyncio.sleep(plan.get("gap_s", 0))
        return True

    @staticmethod
    def experts(plan, body):
        e = plan["experts"]
        return base64.b64encode(e(body) if callable(e) else e).decode()

    def numbers(self, plan):
        ids = plan["ids"]
        lps = list(plan.get("logprobs") or [logprob(j, t) for j, t in enumerate(ids)])
        if plan.get("lp_null"):
            lps[len(lps) // 2] = None
        return ids, lps

    # --- SGLang ---

    def sglang(self, body, plan, stream, _):
        ids, lps = self.numbers(plan)
        drop = plan.get("drop", ())
        triples = [[p, t, None] for p, t in zip(lps, ids)]
        if plan.get("lp_ids_wrong"):
            triples[-1][1] += 1
        extra = plan.get("lp_extra", 0)
        triples = triples + [[-9.0, 65, None]] * extra if extra >= 0 else triples[:extra]
        finish = {"stop": {"type": "stop", "matched": plan.get("matched")}, "length": {"type": "length", "length": len(ids)},
                  "abort": {"type": "abort", "message": plan.get("message", "Aborted"),
                            "status_code": plan.get("abort_status"), "err_type": None}}[plan["finish"]]
        k = body.get("top_logprobs_num") or 0
        step = plan.get("chunk", 2)
        marks = list(range(step, len(ids), step)) + [len(ids)] if stream else [len(ids)]
        docs, low = [], 0
        for n in marks:
            last = n == len(ids)
            lo = low if self.incremental and stream else 0
            hi = len(triples) if last else n
            meta = {"id": body.get("rid"), "finish_reason": finish if last and "finish" not in drop else None,
                    "prompt_tokens": plan.get("prompt_tokens", len(body["input_ids"])), "weight_version": plan.get("version", "default"), "num_retractions": plan.get("retractions", 0),
                    "reasoning_tokens": 0, "completion_tokens": n + (3 if plan.get("count_wrong") else 0), "cached_tokens": plan.get("cached", 0), "dp_rank": None}
            if self.front:
                for key in ("num_retractions", "reasoning_tokens", "weight_version", "cached_tokens", "dp_rank"):
                    del meta[key]
            if plan.get("version") == "" and not self.front:
                del meta["weight_version"]
            if "versions" in plan and last and not self.front:
                meta["weight_versions"] = plan["versions"]
            for key in {"prompt_tokens", "completion_tokens"} & set(drop):
                del meta[key]
            if "logprobs" not in drop:
                meta.update(input_token_logprobs=[], output_token_logprobs=triples[lo:hi], output_token_logprobs_length=hi)
            if k:
                meta["output_top_logprobs"] = [[[p - j, t + j, None] for j in range(k)] for p, t, _ in triples[lo:hi]]
            if "experts" in plan and last and not self.front:
                meta["routed_experts"] = self.experts(plan, body)
            doc = {"text": "x" * n + plan.get("text", ""), "output_ids": ids[lo:n], "meta_info": meta}
            if "ids" in drop:
                del doc["output_ids"]
            if "pad" in plan:
                doc["zz_unknown"] = {"pad": "\u00e9\"]}" * (plan["pad"] // 5), "deep": [[{"a": [1, {"b": None}]}]]}
            docs.append(doc)
            low = n
        if plan.get("shrink") and len(docs) > 2:
            docs.insert(2, docs[0])
        if plan.get("waiting"):
            self.end_waiting(docs, plan["waiting"], ids, triples, lo)
        return docs

    def end_waiting(self, docs, way, ids, triples, lo):
        """Ends the stream of a request that waits in SGLang's queue again: with the last id, and with all logprobs. "merged":
        the client has not read the event before, which is dropped, or joined if the stream is incremental."""
        new = lo if self.incremental and way == "merged" else len(ids)
        doc = json.loads(json.dumps(docs[-1]))
        docs[-1]["meta_info"]["finish_reason"] = None
        doc.update(output_ids=ids[new:] + ids[-1:])
        doc["meta_info"].update(output_token_logprobs=triples[new:] + triples)
        del doc["meta_info"]["prompt_tokens"], doc["meta_info"]["cached_tokens"]
        docs[len(docs) - (way == "merged"):] = [doc]

    # --- vLLM ---

    def vllm(self, body, plan, stream, route):
        ids, lps = self.numbers(plan)
        drop = plan.get("drop", ())
        if plan.get("lp_extra", 0) < 0:
            lps = lps[:plan["lp_extra"]]
        params = body.get("sampling_params", body)
        k = params.get("logprobs") or 0
        step = plan.get("chunk", 2)
        starts = list(range(0, len(ids), step)) if stream else [0]
        docs = []
        for lo in starts:
            hi = min(lo + step, len(ids)) if stream else len(ids)
            last = hi == len(ids)
            choice = {"index": 0, "token_ids": ids[lo:hi], "finish_reason": plan["finish"] if last and "finish" not in drop else None}
            if route == "generate":
                def alternative(j, a):
                    p = lps[j] - a if lps[j] is not None else None
                    return {"token_id": ids[j] + a, "logprob": p, "rank": a + 1} if self.form == "ids" else \
                        {"token": f"token_id:{ids[j] + a}", "logprob": p, "bytes": None}

                def entry(j):
                    return {**alternative(j, 0), "top_logprobs": [alternative(j, a) for a in range(max(k, 1))]}
                choice["logprobs"] = {"content": [entry(j) for j in range(lo, min(hi, len(lps)))]}
            else:
                choice.update(text="x", stop_reason=plan.get("matched") if last else None,
                              logprobs={"text_offset": [0] * (hi - lo), "token_logprobs": lps[lo:hi],
                                        "tokens": [f"token_id:{t}" for t in ids[lo:hi]],
                                        "top_logprobs": [{f"token_id:{ids[j] + a}": (lps[j] or 0) - a for a in range(k + 1)} for j in range(lo, min(hi, len(lps)))]})
                if lo == 0 and body.get("return_token_ids"):
                    choice["prompt_token_ids"] = body["prompt"] if "prompt_tokens" not in plan else [1] * plan["prompt_tokens"]
            if "logprobs" in drop:
                choice["logprobs"] = None
            if "ids" in drop:
                choice["token_ids"] = None
            if "experts" in plan and last and not self.front:
                choice["routed_experts"] = self.experts(plan, body)
            if "versions" in plan and (route == "generate" or body.get("return_weight_versions") and last):     # since October 2026
                choice["weight_versions"] = plan["versions"] if last else None
            doc = {"request_id": f"generate-tokens-{plan['request_id']}", "choices": [choice]}
            if route == "completions":
                doc = {"id": f"cmpl-{plan['request_id']}", "object": "text_completion", "created": 1, "model": "m", "choices": [choice]}
            docs.append(doc)
        # Older versions and the Rust front report no usage at the first route; details need
        # --enable-prompt-tokens-details.
        usage = {"prompt_tokens": len(body.get("prompt") or body.get("token_ids")), "completion_tokens": len(ids), "total_tokens": 0}
        if "cached" in plan:
            usage["prompt_tokens_details"] = {"cached_tokens": plan["cached"]}
        if stream and (body.get("stream_options") or {}).get("include_usage"):
            docs.append({**docs[-1], "choices": [], "usage": usage})
        if not stream and (route == "completions" or "cached" in plan or self.form == "ids") and not (self.front and route == "generate"):
            docs[-1]["usage"] = usage
        return docs

    # --- llama.cpp ---

    def llamacpp(self, body, plan, stream, _):
        if self.is_forced(body):
            return [self.llamacpp_forced(body, body["logit_bias"][0][0])]
        ids, lps = self.numbers(plan)
        drop, prompt, word = plan.get("drop", ()), body["prompt"], plan["finish"] == "word"
        context = (self.info or {}).get("default_generation_settings", {}).get("n_ctx")
        edge = bool(context) and len(prompt) + len(ids) >= context
        if edge:
            ids, lps = ids[:context - len(prompt)], lps[:context - len(prompt)]
        if self.dist:
            lps = [dict(self.after_sampling(self.dist(prompt + ids[:j]), body) if body.get("post_sampling_probs") else self.dist(prompt + ids[:j]))[t]
                   for j, t in enumerate(ids)]
        self.answered.append((prompt, ids, lps, not {"lp_extra", "lp_null", "unscorable"} & set(plan) and "logprobs" not in drop))
        entries = self.llamacpp_entries(body, plan, ids, lps)
        if word:  # it removes as many entries at the end as it needs tokens for the word alone
            del entries[max(len(entries) - plan.get("word_tokens", len(plan["matched"].encode())), 0):]
        if plan.get("lp_extra", 0) < 0:
            del entries[plan["lp_extra"]:]
        doc = {"index": 0, "content": "x", "tokens": ids, "id_slot": 0, "stop": True, "model": "m", "tokens_predicted": len(ids),
               "tokens_evaluated": plan.get("prompt_tokens", len(prompt)), "generation_settings": {"n_predict": 1, "seed": body["seed"] % (1 << 32)}, "prompt": "", "has_new_line": False,
               "truncated": plan.get("truncated", edge),
               "stop_type": "limit" if edge else {"stop": "eos", "length": "limit", "word": "word", "none": "none"}[plan["finish"]],
               "stopping_word": plan.get("matched", "") if word else "", "tokens_cached": plan.get("held", len(prompt) + len(ids) - 1),
               "timings": self.llamacpp_timings(prompt, ids)}
        if entries and body.get("n_probs") and "logprobs" not in drop:
            doc["completion_probabilities"] = entries
        if "ids" in drop:
            doc["tokens"] = []
        return [doc]

    def llamacpp_timings(self, prompt, ids):
        """Makes the timings of a server with one slot, which keeps its last sequence."""
        same = next((i for i, (a, b) in enumerate(zip(self.slot, prompt)) if a != b), min(len(self.slot), len(prompt)))
        same = min(same, len(prompt) - 1)
        self.slot = prompt + ids
        return {"cache_n": same, "prompt_n": len(prompt) - same, "predicted_n": len(ids), "predicted_ms": 1.5}

    def is_forced(self, body):
        return self.kind == "llamacpp" and body.get("n_predict") == 1 and isinstance(body.get("logit_bias"), list) and [b for _, b in body["logit_bias"]] == [1000]

    def piece(self, t):
        return self.pieces[t] if t in self.pieces else bytes([t]) if t < 256 else b""

    def no_text(self, ids):
        """Reports whether the text is not UTF-8, except for an incomplete character at its end."""
        text = b"".join(map(self.piece, ids))
        while ends_inside(text):
            text = text[:-1]
        try:
            text.decode()
            return False
        except UnicodeDecodeError:
            return True

    def llamacpp_entries(self, body, plan, ids, lps):
        """Makes an entry for each token after which the text does not end inside a character. Bytes of other tokens
        belong to the next entry."""
        post, k = body.get("post_sampling_probs") and not self.old, body.get("n_probs") or 0
        name, tops = ("prob", "top_probs") if post else ("logprob", "top_logprobs")
        say = (lambda p: p if p is None else math.exp(p)) if post else lambda p: p
        out, text, held = [], b"", b""
        for j, (t, p) in enumerate(zip(ids, lps)):
            text, held = text + self.piece(t), held + self.piece(t)
            if ends_inside(text):
                continue
            e = {"id": t, "token": held.decode(errors="ignore"), "bytes": list(held)}
            if self.speculative and j > 0:  # no logprobs are computed after the first token
                e |= {name: say(0.0), tops: []}
            elif post and body.get("backend_sampling", self.backend):  # the sampled token is the only candidate
                e |= {name: 1.0, tops: [{"id": t, "token": "x", "bytes": [120], name: 1.0}]}
            else:
                best = [(t + a, p - a if p is not None else None) for a in range(k)]
                if self.dist:
                    d = self.dist(body["prompt"] + ids[:j])
                    best = (self.after_sampling(d, body) if post else d)[:k]
                e |= {name: say(p), tops: [{"id": i, "token": "x", "bytes": [120], name: say(x)} for i, x in best]}
            out.append(e)
            held = b""
        return out

    def llamacpp_forced(self, body, token):
        """Answers a call with one token that a bias forces. Its logprob and the others are those before any bias."""
        prompt = body["prompt"]
        self.forced.append(body)
        known = next((fine and (i[len(prompt) - len(p)], lp[len(prompt) - len(p)]) for p, i, lp, fine in reversed(self.answered)
                      if len(p) <= len(prompt) < len(p) + len(i) and prompt == p + i[:len(prompt) - len(p)]), None)
        doc = {"index": 0, "content": "x", "tokens": [token], "stop": True, "generation_settings": {"seed": body.get("seed", -1) % (1 << 32)}, "tokens_predicted": 1, "tokens_evaluated": len(prompt), "truncated": False,
               "stop_type": "limit", "stopping_word": "", "timings": self.llamacpp_timings(prompt, [token])}
        if known and not ends_inside(self.piece(token)):
            best = self.dist(prompt) if self.dist else sorted([known, (known[0] + 1, known[1] - 1), (known[0] + 2, known[1] - 2)], key=lambda x: -x[1])
            best = best[:body["n_probs"]]
            own = dict(self.dist(prompt)).get(token, -30.0) if self.dist else known[1] if token == known[0] else -20.0
            doc["completion_probabilities"] = [{"id": token, "token": "", "bytes": [], "logprob": own, "top_logprobs": [
                {"id": i, "token": "x", "bytes": [120], "logprob": x} for i, x in best]}]
        return doc

    @staticmethod
    def after_sampling(best, body):
        """Returns the distribution that tokens are sampled from. `best` has (id, logprob), best first. Samplers apply
        in the request's order."""
        t = body["temperature"]
        left = [(i, math.exp((p - best[0][1]) / t)) for i, p in best]
        if body["top_k"] > 0:
            left = left[:body["top_k"]]
        total, so_far = sum(w for _, w in left), 0.0
        for n, (_, w) in enumerate(left):
            so_far += w / total
            if so_far >= body["top_p"]:
                left = left[:n + 1]
                break
        left = [x for x in left if x[1] >= body["min_p"] * left[0][1]]
        total = sum(w for _, w in left)
        return [(i, math.log(w / total)) for i, w in left]

    # --- OpenAI ---

    def openai(self, body, plan, stream, _):
        text = plan.get("text", "Hello there.")
        base = {"id": body.get("rid") or f"chatcmpl-{plan['request_id'] if body.get('return_token_ids') else 1}", "created": 1, "model": body.get("model", "m")}
        finish = None if "finish" in plan.get("drop", ()) else plan["finish"]
        message = {"role": "assistant", "content": text, **plan.get("message_extra", {})}
        tell, drop = self.telling(body), plan.get("drop", ())
        ids, lps = self.numbers(plan)
        lps = lps[:len(lps) + plan.get("lp_extra", 0)]
        prompt = plan.get("prompt_ids", [3, 1, 4])
        usage = {"prompt_tokens": plan.get("prompt_tokens", len(prompt) if tell else 5),
                 "completion_tokens": (len(ids) if tell else 3) + (2 if plan.get("count_wrong") else 0), "total_tokens": 8}
        content = [{"token": f"t{t}", "logprob": p, "bytes": None, "top_logprobs": []} for t, p in zip(ids, lps)]
        lp = {"logprobs": {"content": content}} if body.get("logprobs") and "logprobs" not in drop else {}
        if not stream:
            choice = {"index": 0, "message": message, "finish_reason": finish, **lp}
            if isinstance(plan.get("matched"), str):
                choice["stop_reason"] = plan["matched"]
            doc = {**base, "object": "chat.completion", "choices": [choice], "usage": usage}
            if tell == "vllm" and "ids" not in drop:
                choice["token_ids"] = ids
                doc["prompt_token_ids"] = prompt
            if "versions" in plan and body.get("return_weight_versions"):
                choice["weight_versions"] = plan["versions"]
            if tell == "sglang" and "ids" not in drop:
                triples = [] if "logprobs" in drop else [[p, t, None] for p, t in zip(lps, ids)]
                choice["meta_info"] = {"output_token_logprobs": triples, "completion_tokens": len(ids), "weight_version": plan.get("version", "default")}
                if body.get("return_prompt_token_ids"):
                    choice["prompt_token_ids"] = prompt
            return [doc]
        matched = {"stop_reason": plan["matched"]} if isinstance(plan.get("matched"), str) else {}
        docs = [{**base, "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]}]
        if tell == "vllm" and "ids" not in drop:
            docs[0]["prompt_token_ids"] = prompt
        calls = message.get("tool_calls") or []
        deltas = [{"content": text[at:at + 5]} for at in range(0, len(text or ""), 5)]
        for i, c in enumerate(calls):
            whole = c["function"]["arguments"]
            deltas.append({"tool_calls": [{"index": i, "id": c["id"], "type": "function", "function": {"name": c["function"]["name"], "arguments": ""}}]})
            deltas += [{"tool_calls": [{"index": i, "function": {"arguments": whole[at:at + 3]}}]} for at in range(0, len(whole), 3)]
        for i, delta in enumerate(deltas):
            choice = {"index": 0, "delta": delta, "finish_reason": None}
            lo, hi = (i * len(ids) // len(deltas), (i + 1) * len(ids) // len(deltas))
            if tell == "vllm" and "ids" not in drop:
                choice["token_ids"] = ids[lo:hi]
            if lp:
                choice["logprobs"] = {"content": content[lo:hi]}
            docs.append({**base, "object": "chat.completion.chunk", "choices": [choice]})
        versions = {"weight_versions": plan["versions"]} if "versions" in plan and body.get("return_weight_versions") else {}
        docs.append({**base, "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {}, "finish_reason": finish, **matched, **versions}]})
        if body.get("stream_options", {}).get("include_usage"):
            docs.append({**base, "object": "chat.completion.chunk", "choices": [], "usage": usage})
        return docs

    @staticmethod
    def telling(body):
        """Returns whose fields for ids the request uses."""
        return "vllm" if body.get("return_token_ids") else "sglang" if body.get("return_meta_info") else None

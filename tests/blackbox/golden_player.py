"""Plays golden session scenarios against a running gateway and compares every answer.

    golden_player.py --url http://127.0.0.1:8600 --engine-port 9300 FILE.jsonl[.xz] [...]

The gateway's engine is `sglang:http://127.0.0.1:9300`, its model a folder of tests/data/models (chatml-drift for
timelines, else chatml-bytes), its parsers `none`. This program is the engine: it holds each POST /generate until the
scenario releases it. Scenarios run side by side; a request is told to its scenario by its X-SMG-Routing-Key header.
Exit status 0 when all hold; the last line is `N passed, N failed`."""
import argparse
import asyncio
import json
import lzma
import os
import re
import sys
from pathlib import Path

SPECIALS = {"<|im_start|>": 256, "<|im_end|>": 257, "<|endoftext|>": 258}
TEXT_OF = {v: k for k, v in SPECIALS.items()}
SPLIT = re.compile("(" + "|".join(re.escape(s) for s in SPECIALS) + ")")
OPTIONS = ("history", "rollback_last_assistant", "prompt_length", "response_length", "message_matcher", "idempotent_retry",
           "timeline_compare_level", "ignore_tools", "sampling_params")
WIDE = 1 << 26      # most bytes that a stream reader may hold
ANSWERS = {200: "OK", 500: "Internal Server Error"}


# --- the byte tokenizer of the folders ---

def encode(text):
    ids = []
    for part in SPLIT.split(text):
        ids.extend([SPECIALS[part]] if part in SPECIALS else part.encode("utf-8"))
    return ids


def decode(ids):
    out, run = [], bytearray()
    for i in ids:
        if i < 256:
            run.append(i)
        else:
            out.append(run.decode("utf-8", "replace"))
            run = bytearray()
            out.append(TEXT_OF.get(i, f"<{i}>"))
    return "".join(out) + run.decode("utf-8", "replace")


def runs(values):
    """Returns run lengths: [[value, count], ...]"""
    out = []
    for v in values:
        if out and out[-1][0] == v:
            out[-1][1] += 1
        else:
            out.append([v, 1])
    return out


# --- the engine ---

def generated(event, request):
    """Makes the scenario's answer of SGLang's /generate."""
    ids = event["ids"] if "ids" in event else encode(event["text"])
    reason = {"type": "length", "length": len(ids)} if event.get("finish") == "length" else {"type": "stop", "matched": ids[-1] if ids else None}
    meta = {"id": request.get("rid"), "finish_reason": reason, "prompt_tokens": len(request["input_ids"]),
            "completion_tokens": len(ids), "cached_tokens": 0,
            "output_token_logprobs": [[-((t * 7 + j * 13) % 100) / 100, t, None] for j, t in enumerate(ids)]}
    versions = event.get("versions")
    if versions:
        first, last = str(versions["min_global_steps"]), str(versions["max_global_steps"])
        meta["weight_version"] = last
        if first != last:
            half = max(1, len(ids) // 2)
            meta["weight_versions"] = [{"version": first, "start": 0, "end": half},
                                       {"version": last, "start": half, "end": len(ids)}]
    return {"text": decode([i for i in ids if i not in TEXT_OF]), "output_ids": ids, "meta_info": meta}


def answer(status, body):
    return (f"HTTP/1.1 {status} {ANSWERS[status]}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\n\r\n").encode() + body


def streamed(events):
    out = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    for event in events:
        data = b"data: " + event.encode() + b"\n\n"
        out += b"%x\r\n" % len(data) + data + b"\r\n"
    return out + b"0\r\n\r\n"


async def read_body(reader, headers):
    if headers.get("transfer-encoding") != "chunked":
        return await reader.readexactly(int(headers.get("content-length", 0)))
    body = b""
    while True:
        n = int((await reader.readline()).split(b";")[0], 16)
        body += (await reader.readexactly(n + 2))[:-2]
        if n == 0:
            return body


class Engine:
    def __init__(self):
        self.queues = {}

    def queue(self, session):
        """Returns the queue of a session's requests: (request, future of the event that answers it)."""
        return self.queues.setdefault(session, asyncio.Queue())

    async def generate(self, request, headers):
        event = asyncio.get_running_loop().create_future()
        await self.queue(headers.get("x-smg-routing-key", "?")).put((request, event))
        event = await event
        if event["op"] == "engine_error":
            return answer(500, b'{"error":{"message":"engine failed"}}')
        text = json.dumps(generated(event, request))
        return streamed([text, "[DONE]"]) if request.get("stream") else answer(200, text.encode())

    async def serve(self, reader, writer):
        known = {"status": "ok", "incremental_streaming_output": False, "model_path": "m", "max_model_len": 1 << 20, "context_length": 1 << 20}
        try:
            while True:
                line, *fields = (await reader.readuntil(b"\r\n\r\n")).decode("latin1").split("\r\n")
                headers = {k.lower(): v.strip() for k, v in (f.split(":", 1) for f in fields if ":" in f)}
                body = await read_body(reader, headers)
                path = line.split()[1].split("?")[0]
                if path == "/generate":
                    writer.write(await self.generate(json.loads(body), headers))
                elif path in ("/health", "/health_generate", "/abort_request"):
                    writer.write(answer(200, b""))
                else:
                    writer.write(answer(200, json.dumps(known).encode()))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


# --- a scenario ---

def verl_rows(data):
    """Returns the columns without tensors, a row for each trajectory."""
    header = json.loads(data[8:8 + int.from_bytes(data[:8], "little")])
    return json.loads(header["__metadata__"]["rows"])


async def http(where, method, path, body=None):
    """Sends a request. Returns (status, value)."""
    host, port = where.url.split("//")[1].rstrip("/").split(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=WIDE)
    data = b"" if body is None else json.dumps(body).encode()
    head = [f"{method} {path} HTTP/1.1", f"host: {host}", "connection: close", "accept: application/json",
            "content-type: application/json", f"content-length: {len(data)}"]
    if where.key:
        head.append(f"authorization: Bearer {where.key}")
    writer.write("\r\n".join(head).encode() + b"\r\n\r\n" + data)
    await writer.drain()
    line, *fields = (await reader.readuntil(b"\r\n\r\n")).decode("latin1").lower().split("\r\n")
    chunked = any(f.replace(" ", "") == "transfer-encoding:chunked" for f in fields)
    text = await read_body(reader, {"transfer-encoding": "chunked"}) if chunked else await reader.read()
    writer.close()
    if path.endswith("format=verl"):
        return int(line.split()[1]), verl_rows(text)
    return int(line.split()[1]), json.loads(text) if text else None


class Play:
    """Plays one scenario on its own session."""

    def __init__(self, where, engine, scenario):
        self.where, self.scenario, self.expect = where, scenario, scenario["expect"]
        self.engine, self.queue = engine, None
        self.path = ""
        self.calls, self.held, self.prompts, self.limits = {}, {}, {}, {}
        self.bad = []

    def same(self, what, got, want):
        if got != want:
            self.bad.append(f"{what}: got {json.dumps(got, ensure_ascii=False)[:160]} want {json.dumps(want, ensure_ascii=False)[:160]}")

    async def ask(self, method, path, body=None):
        return await http(self.where, method, self.path + path, body)

    async def chat(self, event):
        """Waits until the engine has the request, or it is answered without the engine."""
        c = event["call"]
        body = {"model": "m", "messages": event["messages"], **event.get("sampling", {})}
        if event.get("tools"):
            body["tools"] = event["tools"]
        call = asyncio.ensure_future(self.ask("POST", "/v1/chat/completions", body))
        arrival = asyncio.ensure_future(self.queue.get())
        done, _ = await asyncio.wait({call, arrival}, return_when=asyncio.FIRST_COMPLETED, timeout=self.where.timeout)
        if arrival in done:
            request, self.held[c] = arrival.result()
            self.prompts[c] = request["input_ids"]
            self.limits[c] = request.get("sampling_params", {}).get("max_new_tokens")
        else:
            arrival.cancel()
            assert call in done, f"call {c}: neither an engine request nor an answer"
        self.calls[c] = call

    async def release(self, event):
        c = event["call"]
        if c in self.held:
            self.held.pop(c).set_result(event)
        await asyncio.wait_for(asyncio.shield(self.calls[c]), self.where.timeout)

    async def happen(self):
        for event in self.scenario["events"]:
            if event["op"] == "chat":
                await self.chat(event)
            elif event["op"] in ("engine", "engine_error"):
                await self.release(event)
            elif event["op"] == "reward_info":
                status, _ = await self.ask("POST", "/reward_info", {"reward_info": event["reward_info"]})
                self.same("reward_info", status, 200)
            else:
                raise AssertionError(f"unknown event {event['op']}")
        for call in self.calls.values():
            await asyncio.wait_for(call, self.where.timeout)

    def check_call(self, e):
        c = e["call"]
        status, body = self.calls[c].result()
        if e["status"] == "5xx" or (isinstance(e["status"], int) and e["status"] >= 500):
            self.same(f"call {c} status class", status >= 500, True)
            return
        self.same(f"call {c} status", status, e["status"])
        self.same(f"call {c} engine prompt", decode(self.prompts[c]) if c in self.prompts else None, e["engine_prompt"])
        if "engine_max_tokens" in e:
            self.same(f"call {c} max tokens", self.limits.get(c), e["engine_max_tokens"])
        if status == 200 and "content" in e:
            choice, usage = body["choices"][0], body["usage"]
            self.same(f"call {c} content", choice["message"].get("content") or "", e["content"])
            self.same(f"call {c} finish_reason", choice["finish_reason"], e["finish_reason"])
            self.same(f"call {c} usage", [usage["prompt_tokens"], usage["completion_tokens"]], [e["prompt_tokens"], e["completion_tokens"]])

    def check_nodes(self, nodes):
        by_id = {n["id"]: n for n in nodes}
        made = sorted((n for n in nodes if n.get("generated")), key=lambda n: n["seq"])
        number = {n["id"]: i for i, n in enumerate(made)}

        def parent(n):
            above = n["parent"]
            while above is not None and above not in number:
                above = by_id[above]["parent"]
            return None if above is None else number[above]
        self.same("tree nodes", [[parent(n), n["truncated"], list(n["completion_span"]), n["num_tokens"]] for n in made],
                  [[n["parent"], n["truncated"], n["completion_span"], n["num_tokens"]] for n in self.expect["nodes"]])

    async def check_state(self):
        status, state = await self.ask("GET", "")
        self.same("GET state", status, 200)
        for key, want in self.expect.get("state", {}).items():
            self.same(f"state.{key}", state.get(key), want)
        if "accumulated" in self.expect:
            self.same("accumulated_token_ids", decode(state.get("accumulated_token_ids") or []), self.expect["accumulated"])
        if "nodes" in self.expect:
            self.check_nodes(state["tree"]["nodes"])

    async def check_selections(self):
        for key, query in (("samples_all_leaves", "select=leaves&pick=all&train_once=off"),
                           ("samples_default_pick", "select=leaves&pick=drop_retries&train_once=on")):
            if key not in self.expect:
                continue
            status, out = await self.ask("GET", f"/trajectories?{query}")
            got = sorted([decode(t["prompt_ids"]), decode(t["response_ids"]), runs(t["response_mask"])]
                         for t in out["trajectories"]) if status == 200 else [status, out]
            self.same(key, got, sorted([t["prompt"], t["response"], t["loss_mask_rle"]] for t in self.expect[key]))

    def check_trajectory(self, i, got, want):
        self.same(f"trajectory {i} prompt", decode(got["prompt_ids"]), want["prompt"])
        self.same(f"trajectory {i} response", decode(got["response_ids"]), want["response"])
        self.same(f"trajectory {i} mask", runs(got["response_mask"]), want["response_mask_rle"])
        lists = [v and [round(x, 4) for x in v] for v in (got["response_logprobs"], want["response_logprobs"])]
        self.same(f"trajectory {i} logprobs", *lists)
        self.same(f"trajectory {i} num_turns", got["num_turns"], len(got["turns"]))
        self.same(f"trajectory {i} reward_info", got["reward_info"], want["reward_info"])
        for key in ("min_global_steps", "max_global_steps", "materialization_reason"):
            self.same(f"trajectory {i} {key}", (got.get("extra_fields") or {}).get(key), want["extra_fields"].get(key))

    def check_timelines(self, trajectories):
        def flat(message):
            """Returns its text. Equal messages are stored once, as the first was sent, so white space that may be
            beside calls is not compared."""
            content = message.get("content")
            text = content if isinstance(content, str) else "".join(p.get("text", "") for p in content or [])
            return text if text.strip() or message["role"] != "assistant" else ""
        got = []
        for t in trajectories:
            written, at = [], 0
            for mask, n in runs(t["response_mask"]):
                if mask:
                    written.append(t["response_ids"][at:at + n])
                at += n
            got.append([[["llm" if m.get("generated") else "env", m["role"], flat(m)] for m in t["messages"]], written])
        want = [[[[author, m[0], m[1]] for author, m in zip(t["authors"], t["messages"])], t["generated_ids"]]
                for t in self.expect["timelines"]]
        self.same("timelines", sorted(got, key=json.dumps), sorted(want, key=json.dumps))

    async def check_end(self):
        status, out = await self.ask("POST", "/finalize", {})
        self.same("finalize", status, 200)
        if status == 200 and "trajectories" in self.expect:
            self.same("trajectory count", len(out["trajectories"]), len(self.expect["trajectories"]))
            for i, (got, want) in enumerate(zip(out["trajectories"], self.expect["trajectories"])):
                self.check_trajectory(i, got, want)
            _, rows = await self.ask("GET", "/trajectories?format=verl")
            self.same("num_turns of verl", [r["num_turns"] for r in rows], [t["num_turns"] for t in self.expect["trajectories"]])
        if status == 200 and "timelines" in self.expect:
            self.check_timelines(out["trajectories"])
        status, _ = await self.ask("POST", "/v1/chat/completions", {"model": "m", "messages": [{"role": "user", "content": "x"}]})
        self.same("call after finalize", status, 410)

    async def run(self):
        """Returns the failed expectations."""
        options = {k: self.scenario["session"][k] for k in OPTIONS if k in self.scenario["session"]}
        status, session = await self.ask("POST", "/sessions", options)
        assert status == 200, f"POST /sessions: {status} {session}"
        self.path, self.queue = f"/sessions/{session['session_id']}", self.engine.queue(session["session_id"])
        await self.happen()
        for e in self.expect.get("calls", []):
            self.check_call(e)
        await self.check_state()
        await self.check_selections()
        await self.check_end()
        return self.bad


def scenarios(path):
    data = Path(path).read_bytes()
    text = (lzma.decompress(data) if path.endswith(".xz") else data).decode()
    return [json.loads(line) for line in text.split("\n") if line.strip()]


async def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--url", required=True)
    p.add_argument("--engine-port", type=int, required=True)
    p.add_argument("--key", default="", help="an admin key, where the gateway has some")
    p.add_argument("--timeout", type=float, default=10)
    p.add_argument("--jobs", type=int, default=8)
    p.add_argument("--show", type=int, default=10)
    p.add_argument("--only", default="", help="scenarios with this in their name")
    p.add_argument("files", nargs="+")
    where = p.parse_args()
    engine, room, results = Engine(), asyncio.Semaphore(where.jobs), {}
    await asyncio.start_server(engine.serve, "127.0.0.1", where.engine_port, limit=WIDE)

    async def one(scenario):
        async with room:
            try:
                results[scenario["name"]] = await asyncio.wait_for(Play(where, engine, scenario).run(), 60)
            except Exception as e:
                results[scenario["name"]] = [f"{type(e).__name__}: {e}"]
    chosen = [s for f in where.files for s in scenarios(f) if where.only in s["name"]]
    await asyncio.gather(*(one(s) for s in chosen))
    assert len(results) == len(chosen), "two scenarios of one name"
    failed = {name: bad for name, bad in results.items() if bad}
    for name, bad in list(failed.items())[:where.show]:
        print(f"FAIL {name}")
        for line in bad[:5]:
            print("    " + line)
    print(f"{len(results) - len(failed)} passed, {len(failed)} failed")
    sys.stdout.flush()
    os._exit(1 if failed or not results else 0)  # the gateway's connections are left open


if __name__ == "__main__":
    asyncio.run(main())

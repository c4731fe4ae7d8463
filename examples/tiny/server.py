"""An inference server of SGLang's shape for the tiny policy: ids in, sampled ids and logprobs out, streamed.

    python3 server.py PORT WEIGHTS.npy

POST /generate, /abort_request, /pause_generation, /continue_generation, /update_weights_from_disk; GET /health.
"""
from __future__ import annotations

import asyncio
import json
import sys
from typing import Any, AsyncIterator

import numpy

import policy


class Server:
    def __init__(self, weights: str):
        self.random = numpy.random.default_rng(7)
        self.open = asyncio.Event()
        self.open.set()
        self.aborted: set[str] = set()
        self.load(weights, "0")

    def load(self, path: str, version: str) -> None:
        self.table, self.version = policy.log_softmax(numpy.load(path)), version

    # --- sampling ---

    async def generate(self, body: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        """Whole results as SGLang streams them: each holds everything so far."""
        ids, given = body["input_ids"], body["sampling_params"]
        task, written = policy.digits_before(ids), 0
        random = numpy.random.default_rng(given["sampling_seed"]) if "sampling_seed" in given else self.random
        out: list[int] = []
        told: list[Any] = []
        for _ in range(given.get("max_new_tokens", 128)):
            await self.open.wait()      # a pause holds what runs
            if body.get("rid") in self.aborted:
                self.aborted.discard(body["rid"])
                yield self.result(body, ids, out, told, {"type": "abort", "message": "Aborted"})
                return
            logprobs = self.table[policy.context(task, written)]
            if given.get("temperature", 1.0) == 0:
                action = int(logprobs.argmax())
            else:
                action = int(random.choice(len(logprobs), p=numpy.exp(logprobs)))
            token = policy.ACTIONS[action]
            out.append(token)
            told.append([float(logprobs[action]), token, None])
            written += policy.letters_in(token)
            if token == policy.END:
                yield self.result(body, ids, out, told, {"type": "stop", "matched": token})
                return
            if len(out) < given.get("max_new_tokens", 128):
                yield self.result(body, ids, out, told, None)
        yield self.result(body, ids, out, told, {"type": "length", "length": len(out)})

    def result(self, body: dict[str, Any], ids: list[int], out: list[int], told: list[Any], reason: Any) -> dict[str, Any]:
        return {"text": "", "output_ids": list(out), "meta_info": {
            "id": body.get("rid", ""), "finish_reason": reason, "prompt_tokens": len(ids), "completion_tokens": len(out),
            "cached_tokens": 0, "weight_version": self.version, "output_token_logprobs": list(told)}}

    # --- HTTP ---

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in head[1:])}
                raw = await reader.readexactly(int(headers.get("content-length", 0)))
                await self.answer(head[0].split()[1].split("?")[0], json.loads(raw or b"{}"), writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def answer(self, path: str, body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        if path == "/generate":
            await self.answer_generate(body, writer)
        elif path == "/update_weights_from_disk":
            self.load(body["model_path"], str(body["weight_version"]))
            self.reply(writer, 200, {"success": True, "message": "", "num_paused_requests": 0})
        elif path in ("/pause_generation", "/continue_generation"):
            (self.open.clear if path[1] == "p" else self.open.set)()
            self.reply(writer, 200, {"status": "ok"})
        elif path == "/abort_request":
            self.aborted.add(str(body.get("rid")))
            self.reply(writer, 200, {})
        else:
            self.reply(writer, 200 if path == "/health" else 404, {})
        await writer.drain()

    async def answer_generate(self, body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        if not body.get("stream"):
            async for last in self.generate(body):
                pass
            self.reply(writer, 200, last)
            return
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        async for result in self.generate(body):
            self.chunk(writer, json.dumps(result))
            await writer.drain()
        self.chunk(writer, "[DONE]")
        writer.write(b"0\r\n\r\n")

    def chunk(self, writer: asyncio.StreamWriter, text: str) -> None:
        data = b"data: " + text.encode() + b"\n\n"
        writer.write(b"%x\r\n%s\r\n" % (len(data), data))

    def reply(self, writer: asyncio.StreamWriter, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        writer.write(b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (status, len(data), data))


async def main(port: int, weights: str) -> None:
    server = await asyncio.start_server(Server(weights).serve, "127.0.0.1", port, limit=1 << 24, backlog=1024)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2]))

"""Serves an engine in a trainer's process to the gateway, by HTTP in SGLang's form (POST /generate: ids in, sampled
ids and their log-probabilities out). Adapters of trainers without an inference server start one and register it at
the gateway."""
from __future__ import annotations

import asyncio
import atexit
import functools
import json
import logging
import os
import socket
import ssl
from typing import Any, Awaitable, Callable, Mapping, NamedTuple, Optional, Sequence

from .aio import AsyncClient
from .client import Client
from .errors import RollgateError

log = logging.getLogger("rollgate.engine")
HEAD_MAX, BODY_MAX, LEAVE_S = 1 << 16, 1 << 28, 10.0


class Sampled(NamedTuple):
    """What the trainer's engine sampled, with one log-probability for each id. finish: `stop` or `length`."""

    ids: Sequence[int]
    logprobs: Sequence[float]
    finish: str


Sample = Callable[[list[int], Mapping[str, Any]], Awaitable[Sampled]]


# SGLang's names in a request -> vLLM's; None: how text is written, which ids do not need
VLLM_NAMES: dict[str, Optional[str]] = {
    "max_new_tokens": "max_tokens", "min_new_tokens": "min_tokens", "sampling_seed": "seed", "skip_special_tokens": None,
    "spaces_between_special_tokens": None, "no_stop_trim": None,
    **{name: name for name in ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty",
                               "stop", "stop_token_ids", "ignore_eos")}}


def vllm_parameters(given: Mapping[str, Any]) -> dict[str, Any]:
    """Converts parameters to the names of vLLM's SamplingParams. Raises ValueError for a parameter without such a
    name."""
    unknown = [name for name in given if name not in VLLM_NAMES]
    if unknown:
        raise ValueError(f"the trainer's engine is not asked for {', '.join(sorted(unknown))}")
    return {ours: given[name] for name, ours in VLLM_NAMES.items() if ours and given.get(name) is not None}


def own_address() -> str:
    """Returns the address at which other machines reach this one, or 127.0.0.1 if it has no other."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        try:
            s.connect(("192.0.2.1", 9))     # sends nothing: it chooses a route
            return str(s.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def bind_address(host: Optional[str]) -> str:
    """Returns the address to listen at for a gateway that reaches this process by `host` (None: own_address()). A
    name, or the address of a different machine that forwards here, does not name an address of this machine: then all
    addresses."""
    return own_address() if host is None else host if host in ("127.0.0.1", "::1") else "0.0.0.0"


def engine_setting(trainer: str, host: Optional[str], port: int) -> tuple[str, str]:
    """Returns (name, setting) of an engine at that port, for POST /admin/engines. host: default this machine's
    address."""
    host = host or own_address()
    name = f"{trainer}-{host.replace(':', '-')}-{port}"
    return name, f"{name}=sglang:http://{f'[{host}]' if ':' in host else host}:{port}"


def remove_engine(pid: int, url: str, key: Optional[str], tls: Optional[ssl.SSLContext], name: str) -> None:
    """Removes an engine from the gateway, in the process that registered it. A failure is only logged, because a
    process that ends has no caller."""
    if os.getpid() != pid:
        return
    try:
        with Client(url, key, timeout=LEAVE_S, retry_s=0, tls=tls) as client:
            client.remove_engines([name])
    except RollgateError as e:
        log.warning("the engine %s stays in the gateway: %s", name, e)


class EngineServer:
    """sample(ids, parameters) returns Sampled; parameters are SGLang's `sampling_params`. version() returns the
    weights' version; None: unknown. If a request's connection closes, its sample is cancelled."""

    def __init__(self, sample: Sample, version: Callable[[], Optional[str]] = lambda: None):
        self.sample, self.version = sample, version
        self._running: dict[str, asyncio.Future[Any]] = {}
        self._server: Optional[asyncio.Server] = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._stay: Optional[asyncio.Task[None]] = None

    async def start(self, host: Optional[str] = None) -> int:
        """Serves on the running loop, at bind_address(host). Returns the port. Requests need no key."""
        self._server = await asyncio.start_server(self._serve, bind_address(host), 0, limit=HEAD_MAX, backlog=1024)
        return int(self._server.sockets[0].getsockname()[1])

    async def join(self, client: AsyncClient, trainer: str, host: Optional[str] = None) -> str:
        """Starts, and registers at the gateway. Returns the engine's name there. Closes the port on failure. leave(),
        the end of asyncio.run and the end of the process remove the engine again."""
        name, setting = engine_setting(trainer, host, await self.start(host))
        try:
            await client.add_engines([setting])
        except BaseException:
            await self.close()
            raise
        remove = functools.partial(remove_engine, os.getpid(), client.address.url, client.key, client._tls, name)
        atexit.register(remove)
        self._stay = asyncio.ensure_future(self._remove_at_end(remove))
        self._stay._log_destroy_pending = False  # type: ignore[attr-defined]     # a loop that is never closed ends with the process
        return name

    async def _remove_at_end(self, remove: Callable[[], None]) -> None:
        """Waits until it is cancelled: by leave(), or by asyncio.run at its end."""
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            atexit.unregister(remove)
            await asyncio.to_thread(remove)
            await self.close()

    async def leave(self) -> None:
        """Removes the engine from the gateway, and closes its port."""
        if self._stay:
            self._stay.cancel()
            await asyncio.gather(self._stay, return_exceptions=True)

    async def close(self) -> None:
        """Closes the port and its connections. Cancels running samples."""
        if self._server:
            self._server.close()
            for writer in list(self._writers):
                writer.close()
            for work in list(self._running.values()):
                work.cancel()
            await asyncio.sleep(0)
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in head[1:])}
                length = int(headers.get("content-length") or 0)
                if length > BODY_MAX:
                    raise ValueError(f"a body of {length} bytes")
                body = await reader.readexactly(length)
                await self._answer(head[0].split()[1].partition("?")[0], body, reader, writer)
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError, ValueError, IndexError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _answer(self, path: str, body: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = json.loads(body) if body else {}
        if path == "/abort_request" and request.get("rid") in self._running:
            self._running[request["rid"]].cancel()
        if path != "/generate":
            self._reply(writer, 200 if path in ("/health", "/abort_request") else 404, {})
            await writer.drain()
            return
        work = asyncio.ensure_future(self._generate(request))
        self._running[request.get("rid") or ""] = work
        work.add_done_callback(lambda _: self._running.pop(request.get("rid") or "", None))
        gone = asyncio.ensure_future(reader.read(1))      # the gateway sends nothing before it has its answer
        await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        if gone.done():
            work.cancel()
            raise ConnectionError
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        if work.cancelled():
            raise ConnectionError
        stream, result = work.result()
        if stream:
            text = b"data: " + json.dumps(result).encode() + b"\n\ndata: [DONE]\n\n"
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text))
        else:
            self._reply(writer, 500 if "error" in result else 200, result)
        await writer.drain()

    async def _generate(self, body: Mapping[str, Any]) -> tuple[bool, dict[str, Any]]:
        """Returns (whether to send events, the result)."""
        ids, given = list(body["input_ids"]), body.get("sampling_params") or {}
        version = self.version()        # version of the weights that sample; it may change before the end
        try:
            out = await self.sample(ids, given)
            if len(out.ids) != len(out.logprobs):
                raise ValueError(f"{len(out.ids)} ids with {len(out.logprobs)} log-probabilities")
        except Exception as e:
            log.exception("the trainer's engine")
            return False, {"error": {"message": f"{type(e).__name__}: {e}"}}
        reason: dict[str, Any] = {"type": out.finish, **({"length": len(out.ids)} if out.finish == "length" else
                                                         {"matched": out.ids[-1]} if out.ids else {})}
        return bool(body.get("stream")), {"text": "", "output_ids": list(out.ids), "meta_info": {
            "id": body.get("rid", ""), "finish_reason": reason, "prompt_tokens": len(ids), "completion_tokens": len(out.ids),
            "cached_tokens": 0, **({} if version is None else {"weight_version": version}),
            "output_token_logprobs": [[float(p), int(t), None] for p, t in zip(out.logprobs, out.ids)]}}

    def _reply(self, writer: asyncio.StreamWriter, status: int, body: Mapping[str, Any]) -> None:
        data = json.dumps(body).encode()
        writer.write(b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (status, len(data), data))

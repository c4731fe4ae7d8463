"""The gateway for asyncio: `AsyncClient`, HTTP/1.1 over asyncio's own streams. A pool keeps the connections; each
serves one call at a time. A cancelled call closes its connection, which the gateway notices."""
from __future__ import annotations

import asyncio
import ssl
import weakref
from typing import TYPE_CHECKING, Any, AsyncIterator, Awaitable, Callable, Mapping, Optional, Sequence

from .calls import POLL_S, Call, Calls, next_cursor
from .errors import BadAnswer, RollgateError, Unreachable, from_answer
from .forks import close_descriptor, watch_forks
from .retries import Address, Patience, client_arguments, heads, key_from_environment, rebuild_client
from .session import AsyncSession

if TYPE_CHECKING:
    from .answers import GroupResult, SessionState
    from .signatures import AsyncCalls
else:
    AsyncCalls = Calls


class _Connection:
    """One connection, which sends a request and then reads its whole answer."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self.reader, self.writer, self.good = reader, writer, True

    def idle(self) -> bool:
        """Reports whether the next request may use it: the gateway has neither closed it nor sent anything."""
        return self.good and not self.reader.at_eof() and not getattr(self.reader, "_buffer") and not self.writer.is_closing()

    def close(self) -> None:
        self.good = False
        self.writer.transport.abort()

    def release(self) -> None:
        """Closes its descriptor without its event loop, which is closed or belongs to the parent process."""
        self.good = False
        sock = getattr(self.writer.get_extra_info("socket"), "_sock", None)
        if sock is not None:
            close_descriptor(sock)

    async def ask(self, method: str, target: str, host: str, headers: dict[str, str], body: Optional[bytes]) -> tuple[int, dict[str, str], bytes]:
        """Sends a request and reads the answer: (status, headers in lower case, body)."""
        lines = [f"{method} {target} HTTP/1.1", f"Host: {host}", *(f"{k}: {v}" for k, v in headers.items())]
        if body is not None or method in ("POST", "PUT"):
            lines.append(f"Content-Length: {len(body or b'')}")
        self.writer.write("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + (body or b""))
        await self.writer.drain()
        status = 100
        while status < 200:     # interim answers have no meaning for the call
            status, got = await self._head()
        return status, got, await self._body(method, status, got)

    async def _head(self) -> tuple[int, dict[str, str]]:
        first, *rest = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        version, status, *_ = first.split(" ")
        headers = {}
        for line in rest:
            name, colon, value = line.partition(":")
            if colon:
                headers[name.strip().lower()] = value.strip()
        if not version.startswith("HTTP/1."):
            raise ValueError(f"not HTTP/1: {first[:60]!r}")
        if headers.get("connection", "").lower() == "close" or version == "HTTP/1.0":
            self.good = False
        return int(status), headers

    async def _body(self, method: str, status: int, headers: dict[str, str]) -> bytes:
        if method == "HEAD" or status in (204, 304):
            return b""
        if headers.get("transfer-encoding", "").lower() == "chunked":
            return await self._chunks()
        if "content-length" in headers:
            return await self.reader.readexactly(int(headers["content-length"]))
        self.good = False
        return await self.reader.read()

    async def _chunks(self) -> bytes:
        parts: list[bytes] = []
        while True:
            size = int((await self.reader.readline()).split(b";")[0], 16)
            if size == 0:
                while (await self.reader.readline()).strip():
                    pass
                return b"".join(parts)
            parts.append(await self.reader.readexactly(size))
            await self.reader.readexactly(2)


class _Pool:
    """The connections of one client in one event loop: at most `limit` are open. The loop owns its pools (on_loop),
    and all other references to a pool are weak: a connection refers to its loop, which would never be freed
    otherwise."""

    def __init__(self, limit: int, loop: asyncio.AbstractEventLoop):
        self.idle: list[_Connection] = []
        self.open: "weakref.WeakSet[_Connection]" = weakref.WeakSet()
        self.slots = asyncio.Semaphore(limit)
        self.loop = weakref.ref(loop)
        self.released = False

    def is_over(self) -> bool:
        """Reports whether its loop is closed, and so cannot close its connections."""
        loop = self.loop()
        return loop is None or loop.is_closed()

    def release(self) -> None:
        """Closes the descriptors. The pool is unusable afterwards."""
        self.released = True
        for connection in list(self.open):
            connection.release()
        self.idle.clear()


def on_loop(loop: asyncio.AbstractEventLoop, name: str, make: Callable[[], Any]) -> Any:
    """Returns the object that the event loop owns under that name; `make` makes it at the first call. It is freed
    with the loop."""
    owned = vars(loop).setdefault("_rollgate", {})
    if name not in owned:
        owned[name] = make()
    return owned[name]


class AsyncClient(AsyncCalls):
    """A gateway, for the tasks of any event loop. Each loop and each forked process has its own connections.
    Arguments are those of Client. connections: the most open connections of a loop; further calls wait for one."""

    def __init__(self, url: Optional[str] = None, key: Optional[str] = None, *, timeout: float = 60.0,
                 retry_s: float = 60.0, tls: Optional[ssl.SSLContext] = None, connections: int = 1024):
        self.address, self.key = Address(url), key_from_environment(key)
        self.timeout, self.retry_s, self._tls = timeout, retry_s, tls
        self._limit = connections
        self._pools: "weakref.WeakSet[_Pool]" = weakref.WeakSet()
        watch_forks(self)

    def __reduce__(self) -> tuple[Any, ...]:
        """Returns the arguments for pickle, including the key. The copy opens its own connections."""
        return rebuild_client, (type(self), {**client_arguments(self), "connections": self._limit})

    def _drop_inherited(self) -> None:
        """Drops the parent's connections, which the parent still uses. Runs in a forked process."""
        for pool in list(self._pools):
            pool.release()
        self._pools = weakref.WeakSet()

    def _pool(self) -> _Pool:
        """Returns the running loop's pool. Releases connections of closed loops."""
        loop = asyncio.get_running_loop()
        pools: "weakref.WeakKeyDictionary[AsyncClient, _Pool]" = on_loop(loop, "pools", weakref.WeakKeyDictionary)
        pool = pools.get(self)
        if pool is None or pool.released:
            for other in [x for x in list(self._pools) if x.is_over()]:
                other.release()
                self._pools.discard(other)
            pool = pools[self] = _Pool(self._limit, loop)
            self._pools.add(pool)
        return pool

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"AsyncClient({self.address.url!r})"

    def _as_session(self, fields: Mapping[str, Any]) -> AsyncSession:
        return AsyncSession(fields, self)

    async def close(self) -> None:
        """Closes the unused connections of the running loop. Connections of other open loops stay."""
        pool = self._pool()
        while pool.idle:
            pool.idle.pop().close()
        await asyncio.sleep(0)

    async def _connection(self, pool: _Pool) -> _Connection:
        while pool.idle:
            connection = pool.idle.pop()
            if connection.idle():
                return connection
            connection.close()
        a = self.address
        tls = (self._tls or ssl.create_default_context()) if a.tls else None
        try:
            async with asyncio.timeout(min(self.timeout, 10.0)):    # wait_for may swallow a cancellation
                streams = await asyncio.open_connection(a.host, a.port, ssl=tls, limit=1 << 20)
        except (OSError, asyncio.TimeoutError) as e:
            raise Unreachable(f"{a.url} cannot be reached: {e or 'timed out'}", retry=True) from e
        connection = _Connection(*streams)
        pool.open.add(connection)
        return connection

    async def _once(self, call: Call) -> Any:
        pool = self._pool()
        async with pool.slots:
            connection = await self._connection(pool)
            done = False
            try:
                a = self.address
                async with asyncio.timeout(self.timeout + call.wait_s):
                    status, headers, body = await connection.ask(
                        call.method, a.prefix + call.path, f"{a.host}:{a.port}", heads(call, self.key), call.body)
                done = True
            except (OSError, EOFError, ValueError, asyncio.TimeoutError, asyncio.LimitOverrunError) as e:
                raise Unreachable(f"{call.method} {call.path}: no answer ({type(e).__name__}: {e})") from e
            finally:
                if done and connection.good:
                    pool.idle.append(connection)
                else:
                    connection.close()
        if status >= 400:
            raise from_answer(status, headers, body)
        try:
            return call.read(status, headers, body)
        except (ValueError, KeyError, IndexError) as e:
            raise BadAnswer(f"{call.method} {call.path}: the answer cannot be read: {e}", status=status) from e

    async def send(self, call: Call) -> Any:
        """Sends a call. Returns its value, or raises the error that it ends with."""
        patience = Patience(call, self.retry_s)
        while True:
            try:
                return await self._once(call)
            except RollgateError as e:
                seconds = patience.pause(e)
            await asyncio.sleep(seconds)

    async def _send_each(self, calls: Sequence[Call], merge: Callable[[list[Any]], Any]) -> Any:
        return merge([await self.send(call) for call in calls])

    # --- waits of any length ---

    async def _poll(self, once: Callable[[float], Awaitable[Any]], timeout_s: Optional[float],
                    progress: Optional[Callable[[], Awaitable[None]]]) -> Any:
        loop = asyncio.get_running_loop()
        until = None if timeout_s is None else loop.time() + timeout_s
        while True:
            left = POLL_S if until is None else min(POLL_S, until - loop.time())
            if left <= 0:
                return None
            value = await once(max(left, 1.0))
            if value is not None:
                return value
            if progress:
                await progress()

    async def wait(self, session_id: str, timeout_s: Optional[float] = None,
                   progress: Optional[Callable[["SessionState"], None]] = None) -> Optional["SessionState"]:
        """Like Client.wait."""
        async def tell() -> None:
            if progress:
                progress(await self.session(session_id))
        state: Optional["SessionState"] = await self._poll(lambda s: self.wait_once(session_id, s), timeout_s, tell if progress else None)
        return state

    async def wait_group(self, group_id: str, timeout_s: Optional[float] = None,
                         progress: Optional[Callable[["GroupResult"], None]] = None) -> Optional["GroupResult"]:
        """Like Client.wait_group."""
        async def tell() -> None:
            if progress:
                progress(await self.group(group_id))
        result: Optional["GroupResult"] = await self._poll(lambda s: self.wait_group_once(group_id, s), timeout_s,
                                                           tell if progress else None)
        return result

    async def all_sessions(self, **filters: Any) -> AsyncIterator["SessionState"]:
        """Like Client.all_sessions."""
        cursor = None
        while True:
            page = await self.list_sessions(cursor=cursor, **filters)
            for row in page["sessions"]:
                yield row
            cursor = next_cursor(page)
            if not cursor:
                return

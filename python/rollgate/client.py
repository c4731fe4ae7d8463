"""The gateway for threads: `Client` keeps one connection for each thread (http.client)."""
from __future__ import annotations

import http.client
import os
import select
import socket
import ssl
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any, Callable, Iterator, Mapping, Optional, Sequence

from .calls import POLL_S, Call, Calls, next_cursor
from .errors import BadAnswer, RollgateError, Unreachable, from_answer
from .forks import close_descriptor, watch_forks
from .retries import Address, Patience, client_arguments, heads, key_from_environment, rebuild_client
from .session import Session

if TYPE_CHECKING:
    from .answers import GroupResult, SessionState
    from .signatures import SyncCalls
else:
    SyncCalls = Calls


def _readable(sock: socket.socket) -> bool:
    """Reports whether bytes are available, without waiting. Uses poll, because select accepts no descriptor above
    1023, and a trainer has many."""
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))


class _Mine:
    """A thread's connection, which is closed when the thread ends."""

    def __init__(self, connection: http.client.HTTPConnection):
        self.connection, self.pid = connection, os.getpid()

    def __del__(self) -> None:
        if self.pid == os.getpid():
            self.connection.close()
        elif self.connection.sock is not None:      # in a forked process, whose parent's thread may have been reading
            close_descriptor(self.connection.sock)


class Client(SyncCalls):
    """A gateway, for any number of threads, and for processes that fork.

    url: http://HOST:PORT; default: ROLLGATE_URL, else http://127.0.0.1:8600.
    key: an admin's (or executor's) key; default: ROLLGATE_KEY, else the file of ROLLGATE_KEY_FILE.
    timeout: longest silence of the gateway in seconds, in addition to a call's own wait.
    retry_s: seconds in which a call is repeated if that is allowed (retries.py). 0: never.
    tls: a context for https; default: the system's certificates.
    """

    def __init__(self, url: Optional[str] = None, key: Optional[str] = None, *, timeout: float = 60.0,
                 retry_s: float = 60.0, tls: Optional[ssl.SSLContext] = None):
        self.address, self.key = Address(url), key_from_environment(key)
        self.timeout, self.retry_s, self._tls = timeout, retry_s, tls
        self._own_nothing()
        watch_forks(self)

    def __reduce__(self) -> tuple[Any, ...]:
        """Returns the arguments for pickle, including the key. The copy opens its own connections."""
        return rebuild_client, (type(self), client_arguments(self))

    def _own_nothing(self) -> None:
        self._mine = threading.local()
        self._all: "weakref.WeakSet[http.client.HTTPConnection]" = weakref.WeakSet()
        self._lock = threading.Lock()

    def _drop_inherited(self) -> None:
        """Drops the parent's connections and lock: the parent still uses the connections, and may have held the lock.
        Runs in a forked process."""
        for connection in list(self._all):
            if connection.sock is not None:
                close_descriptor(connection.sock)
        self._own_nothing()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({self.address.url!r})"

    def close(self) -> None:
        """Closes the connections of all threads. A later call opens a new one."""
        with self._lock:
            for connection in list(self._all):
                connection.close()
            self._all.clear()

    def _as_session(self, fields: Mapping[str, Any]) -> Session:
        return Session(fields, self)

    # --- connections ---

    def _connection(self) -> http.client.HTTPConnection:
        mine = getattr(self._mine, "mine", None)
        if mine is None:
            a = self.address
            connection: http.client.HTTPConnection
            if a.tls:
                connection = http.client.HTTPSConnection(a.host, a.port, context=self._tls or ssl.create_default_context())
            else:
                connection = http.client.HTTPConnection(a.host, a.port)
            mine = self._mine.mine = _Mine(connection)
        found: http.client.HTTPConnection = mine.connection
        return found

    def _connect(self, connection: http.client.HTTPConnection) -> None:
        """Opens the connection, unless it is still usable: no bytes may be waiting between two answers."""
        if connection.sock and _readable(connection.sock):
            connection.close()
        if connection.sock is None:
            try:
                connection.timeout = min(self.timeout, 10.0)
                connection.connect()
                assert connection.sock is not None
                connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            except OSError as e:
                connection.close()
                raise Unreachable(f"{self.address.url} cannot be reached: {e}", retry=True) from e
            with self._lock:
                self._all.add(connection)

    def _once(self, call: Call) -> Any:
        connection = self._connection()
        self._connect(connection)
        try:
            connection.sock.settimeout(self.timeout + call.wait_s)
            connection.request(call.method, self.address.prefix + call.path, call.body, heads(call, self.key))
            answer = connection.getresponse()
            body = answer.read()
        except (OSError, http.client.HTTPException) as e:
            connection.close()
            raise Unreachable(f"{call.method} {call.path}: no answer ({type(e).__name__}: {e})") from e
        except BaseException:
            connection.close()      # the answer was not read completely
            raise
        headers = {k.lower(): v for k, v in answer.getheaders()}
        if answer.status >= 400:
            raise from_answer(answer.status, headers, body)
        try:
            return call.read(answer.status, headers, body)
        except (ValueError, KeyError, IndexError) as e:
            raise BadAnswer(f"{call.method} {call.path}: the answer cannot be read: {e}", status=answer.status) from e

    def send(self, call: Call) -> Any:
        """Sends a call. Returns its value, or raises the error that it ends with."""
        patience = Patience(call, self.retry_s)
        while True:
            try:
                return self._once(call)
            except RollgateError as e:
                seconds = patience.pause(e)
            time.sleep(seconds)

    def _send_each(self, calls: Sequence[Call], merge: Callable[[list[Any]], Any]) -> Any:
        return merge([self.send(call) for call in calls])

    # --- waits of any length ---

    def _poll(self, once: Callable[[float], Any], timeout_s: Optional[float], progress: Optional[Callable[[], None]]) -> Any:
        until = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left = POLL_S if until is None else min(POLL_S, until - time.monotonic())
            if left <= 0:
                return None
            value = once(max(left, 1.0))
            if value is not None:
                return value
            if progress:
                progress()

    def wait(self, session_id: str, timeout_s: Optional[float] = None,
             progress: Optional[Callable[["SessionState"], None]] = None) -> Optional["SessionState"]:
        """Waits until the session is completed, finalized or aborted. Returns its state, or None after timeout_s
        (None: no limit). progress(state) is called with the current state every 30 s."""
        tell = (lambda: progress(self.session(session_id))) if progress else None
        state: Optional["SessionState"] = self._poll(lambda s: self.wait_once(session_id, s), timeout_s, tell)
        return state

    def wait_group(self, group_id: str, timeout_s: Optional[float] = None,
                   progress: Optional[Callable[["GroupResult"], None]] = None) -> Optional["GroupResult"]:
        """Waits until the group has settled. Returns its result, or None after timeout_s. progress(result so far) is
        called every 30 s."""
        tell = (lambda: progress(self.group(group_id))) if progress else None
        result: Optional["GroupResult"] = self._poll(lambda s: self.wait_group_once(group_id, s), timeout_s, tell)
        return result

    def all_sessions(self, **filters: Any) -> Iterator["SessionState"]:
        """Yields every session of every page. Raises Unreachable after the first page that lacks a worker's
        sessions."""
        cursor = None
        while True:
            page = self.list_sessions(cursor=cursor, **filters)
            yield from page["sessions"]
            cursor = next_cursor(page)
            if not cursor:
                return

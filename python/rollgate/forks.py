"""A forked process drops its parent's connections and opens its own. Otherwise both would read from one stream, and
each could get the other's answers."""
from __future__ import annotations

import os
import socket
import weakref
from typing import Any

_watched: "weakref.WeakSet[Any]" = weakref.WeakSet()


def watch_forks(client: Any) -> None:
    """Calls client._drop_inherited() in every process that this one forks."""
    _watched.add(client)


def close_descriptor(sock: socket.socket) -> None:
    """Closes only the descriptor. Stream, TLS session and event loop are not used, because they may belong to another
    process, or be closed."""
    descriptor = sock.detach()
    if descriptor >= 0:
        os.close(descriptor)


def _drop_inherited() -> None:
    for client in list(_watched):
        client._drop_inherited()


os.register_at_fork(after_in_child=_drop_inherited)

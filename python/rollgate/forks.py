"""Processes that fork: a child drops the connections of its parent, and opens its own. Both would read from one stream
otherwise, and each would get answers of the other."""
from __future__ import annotations

import os
import socket
import weakref
from typing import Any

_watched: "weakref.WeakSet[Any]" = weakref.WeakSet()


def watch_forks(client: Any) -> None:
    """Calls client._drop_inherited() in every process that forks from this one."""
    _watched.add(client)


def close_descriptor(sock: socket.socket) -> None:
    """Closes the descriptor alone. No stream, TLS session or event loop is used: they may be another process's, or closed."""
    descriptor = sock.detach()
    if descriptor >= 0:
        os.close(descriptor)


def _drop_inherited() -> None:
    for client in list(_watched):
        client._drop_inherited()


os.register_at_fork(after_in_child=_drop_inherited)

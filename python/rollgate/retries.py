"""Decides when a request is sent again, for both clients: as the gateway requests (`x-should-retry`, Retry-After), if
it arrived too slowly to be read (408: the gateway did nothing), and if no answer arrived and a second request has no
further effect."""
from __future__ import annotations

import logging
import os
import random
import time
from typing import Any, Optional
from urllib.parse import urlsplit

from .calls import Call
from .errors import RollgateError, Unreachable

log = logging.getLogger("rollgate")
FIRST_S, MOST_S = 0.1, 8.0
TOO_SLOW = "request_timeout"     # of the gateway; an engine's own 408 has a different meaning


class Address:
    """The address of a gateway from a URL; default: ROLLGATE_URL, else http://127.0.0.1:8600."""

    def __init__(self, url: Optional[str]):
        url = url or os.environ.get("ROLLGATE_URL") or "http://127.0.0.1:8600"
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"a gateway's URL is http://HOST:PORT or https://HOST:PORT, not {url!r}")
        self.url = url.rstrip("/")
        self.host, self.tls = parts.hostname, parts.scheme == "https"
        self.port = parts.port or (443 if self.tls else 80)
        self.prefix = parts.path.rstrip("/")


def key_from_environment(key: Optional[str]) -> Optional[str]:
    """Returns the given key, else ROLLGATE_KEY, else the first line of the file that ROLLGATE_KEY_FILE names."""
    if key or os.environ.get("ROLLGATE_KEY"):
        return key or os.environ["ROLLGATE_KEY"]
    path = os.environ.get("ROLLGATE_KEY_FILE")
    if not path:
        return None
    with open(path, encoding="utf-8") as f:
        return f.readline().strip()


def client_arguments(client: Any) -> dict[str, Any]:
    """Returns the arguments that make the same client in a different process. Raises TypeError if it has a TLS
    context, which belongs to this process."""
    if client._tls is not None:
        raise TypeError(f"{client!r} has a TLS context (tls=), which cannot be pickled: make the client in the process that uses it")
    return {"url": client.address.url, "key": client.key, "timeout": client.timeout, "retry_s": client.retry_s}


def rebuild_client(kind: type, arguments: dict[str, Any]) -> Any:
    """Makes the client of these arguments, for pickle."""
    return kind(**arguments)


def heads(call: Call, key: Optional[str]) -> dict[str, str]:
    """Returns the headers of a call, without those of framing. The gateway may count a lost answer as delivered, and
    the same body as a new sample. The call's own key marks a repeated request (docs/sessions.md, section 4)."""
    out = {"Accept-Encoding": "identity"}
    if call.once:
        out["Idempotency-Key"] = call.once
    if call.body is not None:
        out["Content-Type"] = "application/json"
    if call.key or key:
        out["Authorization"] = f"Bearer {call.key or key}"
    return out


class Patience:
    """The attempts of one call. `pause(error)` returns the seconds until the next one. It raises the error if there
    is none, because the call may not be repeated or `retry_s` have passed."""

    def __init__(self, call: Call, retry_s: float):
        self.call, self.tries = call, 0
        self.until = time.monotonic() + retry_s

    def pause(self, error: RollgateError) -> float:
        lost = isinstance(error, Unreachable)
        slow = error.code == TOO_SLOW or error.status == 408 and error.code == RollgateError.code     # of a proxy in front
        again = error.retry or slow or lost and self.call.repeatable
        seconds: float = min(FIRST_S * 2 ** self.tries, MOST_S) * random.uniform(0.75, 1.0)
        if error.retry_after is not None:
            seconds = max(seconds, error.retry_after)
        if not again or time.monotonic() + seconds > self.until:
            raise error
        self.tries += 1
        log.log(logging.INFO if self.tries == 1 else logging.WARNING, "%s %s is sent again in %.1f s (try %d): %s",
                self.call.method, self.call.path, seconds, self.tries + 1, error)
        return seconds

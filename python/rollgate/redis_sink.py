"""A consumer of `--sink redis:` that trains each trajectory once, whatever dies between.

The stream delivers at least once: an entry comes again when its consumer died, and a trajectory may stand in two
entries when a gateway died. Each has a `key`. Keys that were committed are remembered in Redis, beside the stream, in
the same transaction that takes the entries away; keys that were taken and not committed go into the trainer's checkpoint:

    consumer = Consumer(redis.Redis(), "trainer")
    consumer.restore(checkpoint["rollgate"])          # what the checkpoint has trained already
    while True:
        entries = consumer.take(64)
        train([e.trajectory for e in entries])
        save({..., "rollgate": consumer.state()})
        consumer.commit()

`redis` (Debian's python3-redis) is the caller's: any client with its methods will do.
"""
from __future__ import annotations

import logging
import os
import socket
import time
from dataclasses import dataclass
from typing import Any, Callable, Iterable, Optional

from .records import unpack
from .trajectory import Trajectory

log = logging.getLogger("rollgate.redis_sink")

STREAM = "rollgate:trajectories"


@dataclass
class Entry:
    """One trajectory and its origin. `key`: SESSION/INDEX; `trajectories`: number of trajectories of its session."""

    key: str
    id: bytes
    session_id: str
    trajectories: int
    group: Optional[str]
    rollout: Optional[int]
    group_size: Optional[int]
    trajectory: Trajectory


def read_span(file: str, offset: int, length: int) -> bytes:
    """Reads the bytes of an entry that was too large for Redis. Raises EOFError if the file is shorter."""
    with open(file, "rb") as f:
        f.seek(offset)
        data = f.read(length)
    if len(data) != length:
        raise EOFError(f"{file} has {len(data)} of {length} bytes at {offset}")
    return data


class Consumer:
    """One consumer of a group. The consumers of a group share the stream.

    redis: a client that returns bytes. idle_s: age after which entries of a dead consumer are taken over (longer than
    a step). remember_s: time for which committed keys are remembered (longer than a gateway's spool may lag).
    far(node, file, offset, length): returns the bytes of an entry that is in a file. By default the file is opened
    here, so `node` must share it."""

    def __init__(self, redis: Any, group: str, stream: str = STREAM, name: Optional[str] = None, *, idle_s: float = 3600.0,
                 remember_s: float = 7 * 86400.0, far: Optional[Callable[[str, str, int, int], bytes]] = None):
        self.redis, self.group, self.stream = redis, group, stream
        self.name = name or f"{socket.gethostname()}.{os.getpid()}"
        self.done = f"{stream}:{group}:done"        # a sorted set: key, by the time of its commit
        self.idle_ms, self.remember_s = int(idle_s * 1000), remember_s
        self.far = far or (lambda node, file, offset, length: read_span(file, offset, length))
        self._taken: dict[str, set[bytes]] = {}     # key -> its entries, until commit
        self._trained: set[str] = set()             # keys of a checkpoint whose commit may not have happened
        try:
            redis.xgroup_create(stream, group, id="0", mkstream=True)
        except Exception as e:
            if "BUSYGROUP" not in str(e):
                raise

    def take(self, n: int = 32, block_s: float = 5.0) -> list[Entry]:
        """Returns up to n trajectories that were neither committed nor taken yet. After block_s returns fewer, or
        none. An entry that cannot be read is logged and delivered again after idle_s; if there is no other entry, its
        error is raised. After an error nothing is taken: the entries read so far are delivered again."""
        found: list[Entry] = []
        unread: list[Exception] = []
        try:
            left = self.redis.xautoclaim(self.stream, self.group, self.name, self.idle_ms, count=n)[1]
            self._add_fresh(found, unread, left)
            if len(found) < n:
                # without pending entries the first read waits, after some it does not
                more = self.redis.xreadgroup(self.group, self.name, {self.stream: ">"}, count=n - len(found),
                                             block=None if found else max(1, int(block_s * 1000)))
                self._add_fresh(found, unread, more[0][1] if more else [])
        except BaseException:
            for entry in found:     # it is not trained: a commit would lose it
                self._taken.pop(entry.key, None)
            raise
        if unread and not found:
            raise unread[0]
        return found

    def _add_fresh(self, found: list[Entry], unread: list[Exception], entries: Iterable[tuple[bytes, dict[bytes, bytes]]]) -> None:
        for entry_id, fields in entries:
            if not fields:      # deleted while it was pending
                self.redis.xack(self.stream, self.group, entry_id)
                continue
            key = fields[b"key"].decode()
            if key in self._taken:
                self._taken[key].add(entry_id)
            elif key in self._trained or self.redis.zscore(self.done, key) is not None:
                self._finish({key: {entry_id}})
            else:
                try:
                    found.append(self._read(key, entry_id, fields))
                except Exception as e:      # the other entries are good
                    log.exception("entry %s of %s", entry_id.decode(), self.stream)
                    unread.append(e)
                    continue
                self._taken[key] = {entry_id}

    def _read(self, key: str, entry_id: bytes, fields: dict[bytes, bytes]) -> Entry:
        def number(name: bytes) -> Optional[int]:
            return int(fields[name]) if name in fields else None
        data = fields.get(b"data")
        if data is None:
            data = self.far(fields[b"node"].decode(), fields[b"file"].decode(), int(fields[b"offset"]), int(fields[b"length"]))
        group = fields[b"group"].decode() if b"group" in fields else None
        return Entry(key, entry_id, fields[b"session_id"].decode(), int(fields[b"trajectories"]), group, number(b"rollout"),
                     number(b"group_size"), Trajectory(unpack(data), session_id=fields[b"session_id"].decode()))

    def state(self) -> list[str]:
        """Returns the keys for the checkpoint: trained in this run or the previous one, and not yet remembered by
        commit()."""
        return sorted({*self._taken, *self._trained})

    def restore(self, state: Iterable[str]) -> None:
        """Restores the keys of the checkpoint that training continues from. They are never returned again."""
        self._trained = set(state)

    def restored(self) -> set[str]:
        """Keys of the checkpoint that no commit has remembered yet."""
        return set(self._trained)

    def commit(self, keys: Optional[Iterable[str]] = None) -> int:
        """Acknowledges, deletes and remembers everything taken (or these keys), all or nothing. Call it after the
        checkpoint. Returns the number of trajectories. Restored keys are remembered, too: their entries, which
        another consumer may have, are deleted when they arrive."""
        done = self._taken if keys is None else {key: self._taken[key] for key in keys if key in self._taken}
        self._finish({**{key: set() for key in self._trained}, **done})
        self._taken = {key: entries for key, entries in self._taken.items() if key not in done}
        self._trained = set()
        return len(done)

    def drop(self) -> int:
        """Drops what was taken without training it. It stays pending here, and another consumer gets it after idle_s.
        Returns the number of trajectories."""
        n = len(self._taken)
        self._taken = {}
        return n

    def _finish(self, keys: dict[str, set[bytes]]) -> None:
        if not keys:
            return
        now = time.time()
        entries = [e for ids in keys.values() for e in ids]
        p = self.redis.pipeline(transaction=True)
        p.zadd(self.done, {key: now for key in keys})
        p.zremrangebyscore(self.done, "-inf", now - self.remember_s)
        if entries:
            p.xack(self.stream, self.group, *entries)
            p.xdel(self.stream, *entries)
        p.execute()

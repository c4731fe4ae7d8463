"""Trajectories from files and from the Redis sink, one after the other.

    data = rollgate.dataset("episodes/*.msgpack", shuffle=7, where=lambda t: t.trained_tokens > 0)
    for bin in data.pack(8192):
        train(rollgate.to_torch(bin))
        save({..., "data": data.state()})

Files are what a file sink writes (.msgpack), exports with format json (.json) and JSON lines (.jsonl, `rollgate export --to jsonl`).
"""
from __future__ import annotations

import glob
import hashlib
import itertools
import json
import os
import random
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Callable, Iterable, Iterator, Optional, Union, overload

from .records import decode_arrays, from_json, from_msgpack
from .trajectory import Trajectory, pack, pad

if TYPE_CHECKING:
    from .redis_sink import Consumer

Where = Callable[[Trajectory], bool]
Path = Union[str, "os.PathLike[str]"]


def _read_lines(data: bytes) -> list[Trajectory]:
    out = []
    for line in data.splitlines():
        if line.strip():
            fields = decode_arrays(json.loads(line))
            out.append(Trajectory(fields, session_id=fields.pop("session_id", None)))
    return out


READERS: dict[str, Callable[[bytes], list[Trajectory]]] = {
    ".msgpack": lambda data: from_msgpack(data).trajectories, ".json": lambda data: from_json(data).trajectories, ".jsonl": _read_lines}


def read_file(path: str) -> list[Trajectory]:
    """The trajectories of a file, by how its name ends. ValueError names the file when it cannot be read."""
    kind = os.path.splitext(path)[1]
    if kind not in READERS:
        raise ValueError(f"{path}: a file of trajectories ends in {', '.join(READERS)}")
    with open(path, "rb") as f:
        data = f.read()
    try:
        return READERS[kind](data)
    except (ValueError, KeyError, TypeError) as e:
        raise ValueError(f"{path} holds no trajectories: {type(e).__name__}: {e}") from e


def find_files(source: Union[Path, Iterable[Path]]) -> list[str]:
    """The files that a pattern, or each of several, names, in the order of their names. FileNotFoundError: none."""
    patterns = [os.fspath(one) for one in ([source] if isinstance(source, (str, os.PathLike)) else source)]
    found = sorted({path for pattern in patterns for path in glob.glob(pattern, recursive=True)})
    if not found:
        raise FileNotFoundError(f"no file matches {', '.join(patterns)}")
    return found


@dataclass(frozen=True)
class Position:
    """How far a pass has come: `done` trajectories of the shards from `shard` on, and `bins` bins of the chunk after these."""

    epoch: int = 0
    shard: int = 0
    done: int = 0
    bins: int = 0
    chunk: int = 0          # trajectories of a chunk, and
    max_len: int = 0        # tokens of a bin, where bins is not 0


class Dataset:
    """Iteration gives each trajectory once; the next iteration is the next epoch. See dataset()."""

    def __init__(self, files: list[str], where: Optional[Where], shuffle: Optional[int], window: int):
        if window < 1:
            raise ValueError(f"window must be 1 or more, not {window}")
        self.files, self.where, self.shuffle = files, where, shuffle
        self.window = window if shuffle is not None else 1
        self._position = Position()

    def __repr__(self) -> str:
        return f"Dataset({len(self.files)} files, epoch {self._position.epoch})"

    # --- one by one ---

    def _shards(self, epoch: int) -> list[str]:
        files = list(self.files)
        if self.shuffle is not None:
            random.Random(f"{self.shuffle}/{epoch}").shuffle(files)
        return files

    def _load(self, files: list[str], epoch: int, shard: int) -> list[Trajectory]:
        out = [t for path in files[shard:shard + self.window] for t in read_file(path)]
        if self.shuffle is not None:
            random.Random(f"{self.shuffle}/{epoch}/{shard}").shuffle(out)
        return out

    def __iter__(self) -> Iterator[Trajectory]:
        if self._position.bins:
            raise ValueError("the position is between the bins of pack(): go on with pack()")
        return self._walk()

    def _walk(self) -> Iterator[Trajectory]:
        at = replace(self._position, bins=0, chunk=0, max_len=0)
        files = self._shards(at.epoch)
        while at.shard < len(files):
            trajectories = self._load(files, at.epoch, at.shard)
            for i in range(at.done, len(trajectories)):
                self._position = replace(at, done=i + 1)
                if self.where is None or self.where(trajectories[i]):
                    yield trajectories[i]
            self._position = at = replace(at, shard=at.shard + self.window, done=0)
        self._position = Position(epoch=at.epoch + 1)

    # --- batches ---

    def pad(self, rows: int, **options: Any) -> Iterator[dict[str, Any]]:
        """Batches of so many trajectories (the last of an epoch may have fewer), as rollgate.pad makes them with these options."""
        walk = iter(self)
        while chunk := list(itertools.islice(walk, rows)):
            yield pad(chunk, **options)

    def pack(self, max_len: int, *, chunk: int = 256, images: str = "refuse") -> Iterator[dict[str, Any]]:
        """Bins of at most max_len tokens, as rollgate.pack makes them of `chunk` trajectories at a time."""
        skip = self._position.bins
        if skip and (self._position.chunk, self._position.max_len) != (chunk, max_len):
            raise ValueError(f"the position is between bins of pack({self._position.max_len}, chunk={self._position.chunk}), "
                             f"not of pack({max_len}, chunk={chunk})")
        walk = self._walk()
        begin = replace(self._position, bins=0, chunk=0, max_len=0)
        while trajectories := list(itertools.islice(walk, chunk)):
            end = self._position
            bins = pack(trajectories, max_len, images)
            for i, one in enumerate(bins):
                if i < skip:
                    continue
                self._position = end if i + 1 == len(bins) else replace(begin, bins=i + 1, chunk=chunk, max_len=max_len)
                yield one
            begin, skip = end, 0

    # --- the position ---

    def _digest(self) -> str:
        return hashlib.sha256("\n".join(self.files).encode()).hexdigest()[:16]

    def state(self) -> dict[str, Any]:
        """For the checkpoint: the position behind all that was given, as JSON."""
        return {**asdict(self._position), "shuffle": self.shuffle, "window": self.window, "files": len(self.files), "digest": self._digest()}

    def restore(self, state: dict[str, Any]) -> "Dataset":
        """Goes on behind a checkpoint's state. ValueError: it is of other files, or of another order."""
        for name, mine in (("files", len(self.files)), ("digest", self._digest()), ("shuffle", self.shuffle), ("window", self.window)):
            if state[name] != mine:
                raise ValueError(f"the state is of another order: {name} was {state[name]!r} and is {mine!r}")
        self._position = Position(**{k: state[k] for k in asdict(Position())})
        return self

    # --- files ---

    def write_parquet(self, path: str, rows: int = 1024) -> int:
        """Writes what is left of the epoch as Parquet, in groups of so many rows (columns.py). How many. Needs pyarrow."""
        from .columns import write_parquet
        return write_parquet(path, self, rows)

    def write_arrow(self, path: str, rows: int = 1024) -> int:
        """The same as an Arrow file."""
        from .columns import write_arrow
        return write_arrow(path, self, rows)

    def write_jsonl(self, path: str) -> int:
        """The same as JSON lines, like `rollgate export --to jsonl`. Needs nothing."""
        from .columns import write_jsonl
        return write_jsonl(path, self)


class StreamDataset:
    """Trajectories of the Redis sink as they come; iteration ends when none has come for wait_s. `state`, `restore` and `commit` are
    those of its Consumer, of what was given alone: entries that were read ahead stay pending."""

    def __init__(self, consumer: "Consumer", where: Optional[Where], wait_s: float, ahead: int = 32):
        self.consumer, self.where, self.wait_s, self.ahead = consumer, where, wait_s, ahead
        self._given: set[str] = set()
        self._read: list[Any] = []

    def _entries(self) -> Iterator[Any]:
        while True:
            if not self._read:
                self._read = self.consumer.take(self.ahead, self.wait_s)
            if not self._read:
                return
            entry = self._read.pop(0)
            if self.where is None or self.where(entry.trajectory):
                yield entry
            else:
                self._given.add(entry.key)

    def __iter__(self) -> Iterator[Trajectory]:
        for entry in self._entries():
            self._given.add(entry.key)
            yield entry.trajectory

    def pad(self, rows: int, **options: Any) -> Iterator[dict[str, Any]]:
        """As Dataset.pad; the last batch has what came within wait_s."""
        walk = self._entries()
        while chunk := list(itertools.islice(walk, rows)):
            batch = pad([entry.trajectory for entry in chunk], **options)
            self._given.update(entry.key for entry in chunk)
            yield batch

    def pack(self, max_len: int, *, chunk: int = 256, images: str = "refuse") -> Iterator[dict[str, Any]]:
        """As Dataset.pack."""
        walk = self._entries()
        while entries := list(itertools.islice(walk, chunk)):
            for one in pack([entry.trajectory for entry in entries], max_len, images):
                self._given.update(entries[i].key for i in one["index"])
                yield one

    def state(self) -> list[str]:
        """For the checkpoint: what was given and is not committed."""
        return sorted(self._given | self.consumer.restored())

    def restore(self, state: Iterable[str]) -> "StreamDataset":
        """Goes on behind a checkpoint's state: what it holds never comes again."""
        self.consumer.restore(state)
        return self

    def commit(self) -> int:
        """After the checkpoint: what was given is acknowledged and deleted. How many."""
        given, self._given = self._given, set()
        return self.consumer.commit(given)


@overload
def dataset(source: "Consumer", *, where: Optional[Where] = None, wait_s: float = 5.0) -> StreamDataset: ...
@overload
def dataset(source: Union[Path, Iterable[Path]], *, where: Optional[Where] = None, shuffle: Optional[int] = None,
            window: int = 16) -> Dataset: ...


def dataset(source: Any, *, where: Optional[Where] = None, shuffle: Optional[int] = None, window: int = 16,
            wait_s: float = 5.0) -> Union[Dataset, StreamDataset]:
    """Trajectories of files (a pattern or several: a Dataset), or of a redis_sink.Consumer (a StreamDataset).

    where: a filter, called with each trajectory. shuffle: a seed; files come in another order each epoch, and `window` files at a time
    are mixed. wait_s: how long a stream may be silent before its iteration ends. ValueError: a stream is to be shuffled.
    """
    from .redis_sink import Consumer
    if isinstance(source, Consumer):
        if shuffle is not None:
            raise ValueError("a stream cannot be shuffled: shuffle= is for files")
        return StreamDataset(source, where, wait_s)
    return Dataset(find_files(source), where, shuffle, window)

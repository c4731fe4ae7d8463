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
import logging
import os
import random
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, BinaryIO, Callable, Iterable, Iterator, Optional, Union, overload

from .records import Export, decode_arrays, from_json, from_msgpack
from .trajectory import Trajectory, pack, pad

if TYPE_CHECKING:
    from .redis_sink import Consumer

log = logging.getLogger("rollgate.datasets")
Where = Callable[[Trajectory], bool]
Path = Union[str, "os.PathLike[str]"]
WINDOW, WAIT_S = 16, 5.0


def _read_lines(f: BinaryIO) -> Iterator[Trajectory]:
    """Reads lines, one in memory at a time."""
    at = 0
    for number, line in enumerate(f, 1):
        try:
            if line.strip():
                fields = decode_arrays(json.loads(line))
                yield Trajectory(fields, session_id=fields.pop("session_id", None))
        except UNREADABLE as e:
            raise ValueError(f"line {number}, at byte {at}: {type(e).__name__}: {e}") from e
        at += len(line)


def _trained(f: BinaryIO, export: Export) -> list[Trajectory]:
    """Yields trajectories for training. An export may be an evaluation; sinks and lines have none."""
    if export.summary.get("evaluation"):
        log.warning("%s is of an evaluation: left out", f.name)
        return []
    return export.trajectories


UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
READERS: dict[str, Callable[[BinaryIO], Iterable[Trajectory]]] = {
    ".msgpack": lambda f: _trained(f, from_msgpack(f.read())), ".json": lambda f: _trained(f, from_json(f.read())), ".jsonl": _read_lines}


def read_file(path: str) -> Iterator[Trajectory]:
    """Yields the trajectories of a file. The end of its name gives the format. ValueError names the file and the
    position if it cannot be read."""
    kind = os.path.splitext(path)[1]
    if kind not in READERS:
        raise ValueError(f"{path}: a file of trajectories ends in {', '.join(READERS)}")
    with open(path, "rb") as f:
        try:
            yield from READERS[kind](f)
        except UNREADABLE as e:
            raise ValueError(f"{path} holds no trajectories: {type(e).__name__}: {e}") from e


def find_files(source: Union[Path, Iterable[Path]]) -> list[str]:
    """Returns the files of one or several patterns, sorted by name. Raises FileNotFoundError if a pattern matches no
    file."""
    patterns = [os.fspath(one) for one in ([source] if isinstance(source, (str, os.PathLike)) else source)]
    found = {pattern: glob.glob(pattern, recursive=True) for pattern in patterns}
    empty = [pattern for pattern, paths in found.items() if not paths]
    if empty or not found:
        raise FileNotFoundError(f"no file matches {', '.join(empty) or 'an empty list of patterns'}")
    return sorted({path for paths in found.values() for path in paths})


def check_count(name: str, n: int) -> None:
    """Raises ValueError if n is below 1."""
    if n < 1:
        raise ValueError(f"{name} must be 1 or more, not {n}")


@dataclass(frozen=True)
class Position:
    """Progress of an epoch: `done` trajectories from shard `shard` on, and `bins` bins of the chunk after these."""

    epoch: int = 0
    shard: int = 0
    done: int = 0
    bins: int = 0
    chunk: int = 0          # trajectories of a chunk
    max_len: int = 0        # tokens of a bin, if bins is not 0


class Dataset:
    """Iteration yields each trajectory once; the next iteration is the next epoch. See dataset()."""

    def __init__(self, files: list[str], where: Optional[Where], shuffle: Optional[int], window: Optional[int]):
        if window is not None:
            check_count("window", window)
            if shuffle is None:
                raise ValueError(f"window={window} is how many files shuffle= mixes: give a seed, or leave it out")
        self.files, self.where, self.shuffle = files, where, shuffle
        self.window = 1 if shuffle is None else WINDOW if window is None else window
        self.digest = self._digest()
        self._position = Position()

    def __repr__(self) -> str:
        return f"Dataset({len(self.files)} files, epoch {self._position.epoch})"

    # --- one by one ---

    def _shards(self, epoch: int) -> list[str]:
        files = list(self.files)
        if self.shuffle is not None:
            random.Random(f"{self.shuffle}/{epoch}").shuffle(files)
        return files

    def _load(self, files: list[str], epoch: int, shard: int) -> Iterable[Trajectory]:
        read = itertools.chain.from_iterable(map(read_file, files[shard:shard + self.window]))
        if self.shuffle is None:
            return read
        out = list(read)
        random.Random(f"{self.shuffle}/{epoch}/{shard}").shuffle(out)
        return out

    def __iter__(self) -> Iterator[Trajectory]:
        if self._position.bins:
            raise ValueError("the position is between the bins of pack(): go on with pack()")
        return self._each()

    def _each(self) -> Iterator[Trajectory]:
        for trajectory, after in self._walk():
            self._position = after
            yield trajectory
        self._position = Position(epoch=self._position.epoch + 1)

    def _walk(self) -> Iterator[tuple[Trajectory, Position]]:
        """Yields the rest of the epoch, each trajectory with the position after it. The caller moves to that position
        when it yields the trajectory."""
        at = replace(self._position, bins=0, chunk=0, max_len=0)
        files = self._shards(at.epoch)
        while at.shard < len(files):
            for i, trajectory in enumerate(self._load(files, at.epoch, at.shard)):
                if i >= at.done and (self.where is None or self.where(trajectory)):
                    yield trajectory, replace(at, done=i + 1)
            at = replace(at, shard=at.shard + self.window, done=0)

    # --- batches ---

    def pad(self, rows: int, **options: Any) -> Iterator[dict[str, Any]]:
        """Yields batches of `rows` trajectories, as rollgate.pad makes them with these options. The last batch of an
        epoch may be smaller."""
        check_count("rows", rows)
        if self._position.bins:
            raise ValueError("the position is between the bins of pack(): go on with pack()")
        walk = self._walk()
        while given := list(itertools.islice(walk, rows)):
            batch = pad([trajectory for trajectory, _ in given], **options)
            self._position = given[-1][1]
            yield batch
        self._position = Position(epoch=self._position.epoch + 1)

    def pack(self, max_len: int, *, chunk: int = 256, images: str = "refuse") -> Iterator[dict[str, Any]]:
        """Yields bins of at most max_len tokens, as rollgate.pack makes them of `chunk` trajectories at a time."""
        check_count("max_len", max_len)
        check_count("chunk", chunk)
        skip = self._position.bins
        if skip and (self._position.chunk, self._position.max_len) != (chunk, max_len):
            raise ValueError(f"the position is between bins of pack({self._position.max_len}, chunk={self._position.chunk}), "
                             f"not of pack({max_len}, chunk={chunk})")
        walk = self._walk()
        begin = replace(self._position, bins=0, chunk=0, max_len=0)
        while given := list(itertools.islice(walk, chunk)):
            end = given[-1][1]
            bins = pack([trajectory for trajectory, _ in given], max_len, images)
            if skip >= len(bins):
                raise ValueError(f"the position is after {skip} bins of a chunk that has {len(bins)}: the state is of another filter")
            for i, one in enumerate(bins):
                if i < skip:
                    continue
                self._position = end if i + 1 == len(bins) else replace(begin, bins=i + 1, chunk=chunk, max_len=max_len)
                yield one
            begin, skip = end, 0
        self._position = Position(epoch=self._position.epoch + 1)

    # --- the position ---

    def _digest(self) -> str:
        """Returns a digest of names and sizes: a changed file has different trajectories at a position."""
        rows = (f"{os.path.getsize(path)} {path}" for path in self.files)
        return hashlib.sha256("\n".join(rows).encode()).hexdigest()[:16]

    def state(self) -> dict[str, Any]:
        """Returns the position after all yielded trajectories as JSON, for the checkpoint."""
        return {**asdict(self._position), "shuffle": self.shuffle, "window": self.window, "files": len(self.files), "digest": self.digest}

    def restore(self, state: dict[str, Any]) -> "Dataset":
        """Continues after a checkpoint's state. Raises ValueError if it belongs to other files or a different order."""
        for name, mine in (("files", len(self.files)), ("digest", self.digest), ("shuffle", self.shuffle), ("window", self.window)):
            if state[name] != mine:
                raise ValueError(f"the state is of another order: {name} was {state[name]!r} and is {mine!r}")
        self._position = Position(**{k: state[k] for k in asdict(Position())})
        return self

    # --- files ---

    def write_parquet(self, path: str, rows: int = 1024) -> int:
        """Writes the rest of the epoch as Parquet, in groups of `rows` rows (columns.py). Returns the number of rows.
        Needs pyarrow."""
        from .columns import write_parquet
        return write_parquet(path, self, rows)

    def write_arrow(self, path: str, rows: int = 1024) -> int:
        """Writes an Arrow file like write_parquet."""
        from .columns import write_arrow
        return write_arrow(path, self, rows)

    def write_jsonl(self, path: str) -> int:
        """Writes JSON lines like `rollgate export --to jsonl`. Returns their number. Needs no package."""
        from .columns import write_jsonl
        return write_jsonl(path, self)


class StreamDataset:
    """Trajectories of the Redis sink in order of arrival. Iteration ends if none arrives for wait_s. `state`,
    `restore` and `commit` are those of its Consumer, but only for yielded trajectories: entries that were read ahead
    stay pending."""

    def __init__(self, consumer: "Consumer", where: Optional[Where], wait_s: Optional[float], ahead: int = 32):
        self.consumer, self.where, self.ahead = consumer, where, ahead
        self.wait_s = WAIT_S if wait_s is None else wait_s
        self._given: set[str] = set()
        self._read: list[Any] = []

    def _entries(self) -> Iterator[Any]:
        while True:
            if not self._read:
                self._read = self.consumer.take(self.ahead, self.wait_s)
            if not self._read:
                return
            wanted = self.where is None or self.where(self._read[0].trajectory)
            entry = self._read.pop(0)
            if wanted:
                yield entry
            else:
                self._given.add(entry.key)

    def __iter__(self) -> Iterator[Trajectory]:
        for entry in self._entries():
            self._given.add(entry.key)
            yield entry.trajectory

    def _take_chunk(self, n: int) -> list[Any]:
        chunk: list[Any] = []
        try:
            chunk.extend(itertools.islice(self._entries(), n))
        except BaseException:
            self._read[:0] = chunk      # they are yielded next
            raise
        return chunk

    def pad(self, rows: int, **options: Any) -> Iterator[dict[str, Any]]:
        """Like Dataset.pad. The last batch has what arrived within wait_s."""
        check_count("rows", rows)
        while chunk := self._take_chunk(rows):
            try:
                batch = pad([entry.trajectory for entry in chunk], **options)
            except BaseException:
                self._read[:0] = chunk
                raise
            self._given.update(entry.key for entry in chunk)
            yield batch

    def pack(self, max_len: int, *, chunk: int = 256, images: str = "refuse") -> Iterator[dict[str, Any]]:
        """Like Dataset.pack. If a loop ends early, the next one gets the rest."""
        check_count("max_len", max_len)
        check_count("chunk", chunk)
        while entries := self._take_chunk(chunk):
            left = dict(enumerate(entries))
            try:
                for one in pack([entry.trajectory for entry in entries], max_len, images):
                    self._given.update(left.pop(i).key for i in one["index"].tolist())
                    yield one
            finally:
                self._read[:0] = left.values()

    def state(self) -> list[str]:
        """Returns the keys that were yielded and not committed, for the checkpoint."""
        return sorted(self._given | self.consumer.restored())

    def restore(self, state: Iterable[str]) -> "StreamDataset":
        """Continues after a checkpoint's state: its trajectories are never yielded again."""
        self.consumer.restore(state)
        return self

    def commit(self) -> int:
        """Acknowledges and deletes what was yielded. Call it after the checkpoint. Returns the number of
        trajectories."""
        given, self._given = self._given, set()
        return self.consumer.commit(given)


@overload
def dataset(source: "Consumer", *, where: Optional[Where] = None, wait_s: Optional[float] = None) -> StreamDataset: ...
@overload
def dataset(source: Union[Path, Iterable[Path]], *, where: Optional[Where] = None, shuffle: Optional[int] = None,
            window: Optional[int] = None) -> Dataset: ...


def dataset(source: Any, *, where: Optional[Where] = None, shuffle: Optional[int] = None,
            window: Optional[int] = None, wait_s: Optional[float] = None) -> Union[Dataset, StreamDataset]:
    """Opens trajectories of files (a pattern or several: a Dataset), or of a redis_sink.Consumer (a StreamDataset).

    where: a filter, called with each trajectory. shuffle: a seed; each epoch has a different order of files, and
    mixes `window` files (16) at a time in memory. wait_s: longest silence (5) of a stream before its iteration ends.
    Raises ValueError for an option of the other kind."""
    from .redis_sink import Consumer
    if isinstance(source, Consumer):
        if shuffle is not None or window is not None:
            raise ValueError("a stream cannot be shuffled: shuffle= and window= are for files")
        return StreamDataset(source, where, wait_s)
    if wait_s is not None:
        raise ValueError(f"files do not wait: wait_s={wait_s} is for a Consumer")
    return Dataset(find_files(source), where, shuffle, window)

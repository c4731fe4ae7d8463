"""Reads exports without copying: arrays are views of the received bytes.

Both readers are our own and need only the standard library: `msgpack` (the native format, with its three ext types)
and safetensors. Arrays are typed memoryviews here. `Trajectory` and `Tensors` make numpy arrays of them."""
from __future__ import annotations

import base64
import json
import struct
from typing import TYPE_CHECKING, Any, Callable, Iterator, Mapping, Optional

from .pickling import replace_views

if TYPE_CHECKING:
    import numpy

    from .trajectory import Trajectory

EXT_DTYPES = {1: "i", 2: "B", 3: "f"}       # ids, masks, logprobs (docs/trajectories.md)
# safetensors: (numpy's name, bytes of one value); BF16 has no numpy type: its 16 bits are returned
TENSOR_DTYPES = {"BOOL": ("?", 1), "U8": ("u1", 1), "I8": ("i1", 1), "U16": ("<u2", 2), "I16": ("<i2", 2), "F16": ("<f2", 2),
                 "BF16": ("<u2", 2), "U32": ("<u4", 4), "I32": ("<i4", 4), "F32": ("<f4", 4), "U64": ("<u8", 8),
                 "I64": ("<i8", 8), "F64": ("<f8", 8)}
HEADER_MAX = 100_000_000


# --- msgpack ---

_SIZED = {0xc4: (">B", 1, "bin"), 0xc5: (">H", 2, "bin"), 0xc6: (">I", 4, "bin"), 0xd9: (">B", 1, "str"),
          0xda: (">H", 2, "str"), 0xdb: (">I", 4, "str"), 0xdc: (">H", 2, "array"), 0xdd: (">I", 4, "array"),
          0xde: (">H", 2, "map"), 0xdf: (">I", 4, "map"), 0xc7: (">B", 1, "ext"), 0xc8: (">H", 2, "ext"), 0xc9: (">I", 4, "ext")}
_NUMBERS = {0xca: (">f", 4), 0xcb: (">d", 8), 0xcc: (">B", 1), 0xcd: (">H", 2), 0xce: (">I", 4), 0xcf: (">Q", 8),
            0xd0: (">b", 1), 0xd1: (">h", 2), 0xd2: (">i", 4), 0xd3: (">q", 8)}
_CONSTANTS = {0xc0: None, 0xc2: False, 0xc3: True}
_DEEPEST = 200


class _Reader:
    """A cursor in one msgpack document."""

    def __init__(self, data: memoryview):
        self.data, self.at, self.depth = data, 0, 0

    def take(self, n: int) -> memoryview:
        if self.at + n > len(self.data):
            raise ValueError(f"msgpack ends at byte {len(self.data)}, inside a value of {n} bytes at {self.at}")
        self.at += n
        return self.data[self.at - n:self.at]

    def number(self, kind: str, n: int) -> Any:
        return struct.unpack(kind, self.take(n))[0]

    def value(self) -> Any:
        head = self.take(1)[0]
        if head < 0x80:
            return head
        if head >= 0xe0:
            return head - 0x100
        if head < 0x90:
            return self.sized("map", head & 15)
        if head < 0xa0:
            return self.sized("array", head & 15)
        if head < 0xc0:
            return self.sized("str", head & 31)
        if head in _CONSTANTS:
            return _CONSTANTS[head]
        if head in _NUMBERS:
            return self.number(*_NUMBERS[head])
        if 0xd4 <= head <= 0xd8:
            return self.sized("ext", 1 << (head - 0xd4))
        if head not in _SIZED:
            raise ValueError(f"0x{head:02x} at byte {self.at - 1} begins no msgpack value")
        kind, n, what = _SIZED[head]
        return self.sized(what, self.number(kind, n))

    def sized(self, what: str, n: int) -> Any:
        if what == "str":
            return str(self.take(n), "utf-8")
        if what == "bin":
            return self.take(n)
        if what == "ext":
            return self.ext(n)
        self.depth += 1
        if self.depth > _DEEPEST:
            raise ValueError(f"msgpack is nested deeper than {_DEEPEST}")
        if n > len(self.data) - self.at:        # a value needs at least one byte
            raise ValueError(f"msgpack promises {n} values where {len(self.data) - self.at} bytes are left")
        out = [self.value() for _ in range(n)] if what == "array" else {self.value(): self.value() for _ in range(n)}
        self.depth -= 1
        return out

    def ext(self, n: int) -> memoryview:
        kind = self.number(">b", 1)
        if kind not in EXT_DTYPES:
            raise ValueError(f"ext type {kind} is none of an export's (1 ids, 2 masks, 3 logprobs)")
        raw = self.take(n)
        if n % struct.calcsize(EXT_DTYPES[kind]):
            raise ValueError(f"an array of ext type {kind} has {n} bytes")
        return raw.cast(EXT_DTYPES[kind])


def unpack(data: bytes) -> Any:
    """Reads a document of native msgpack. Ext types become typed memoryviews of `data` (int32, uint8, float32), bin a
    memoryview of bytes. Raises ValueError if it is broken or followed by bytes."""
    reader = _Reader(memoryview(data))
    document = reader.value()
    if reader.at != len(reader.data):
        raise ValueError(f"{len(reader.data) - reader.at} bytes behind the end of msgpack")
    return document


# --- safetensors ---

class Tensors(Mapping[str, "numpy.ndarray[Any, Any]"]):
    """A file of tensors: name -> numpy array, a read-only view of the file's bytes with the file's shape and dtype
    (BF16: its bits as uint16). `notes`: its texts, parsed if they are JSON."""

    def __init__(self, data: bytes):
        view = memoryview(data)
        if len(view) < 8:
            raise ValueError("a file of tensors has 8 bytes at least")
        (n,) = struct.unpack("<Q", view[:8])
        if n > min(HEADER_MAX, len(view) - 8):
            raise ValueError(f"a header of {n} bytes in a file of {len(view)}")
        head = json.loads(bytes(view[8:8 + n]))
        self.notes: dict[str, Any] = {k: _read_note(v) for k, v in head.pop("__metadata__", {}).items()}
        self._head, self._data = head, view[8 + n:]
        for name, t in head.items():
            self._check(name, t)

    def __getstate__(self) -> dict[str, Any]:
        """Returns the bytes of all tensors, for pickle."""
        state: dict[str, Any] = replace_views(self.__dict__)
        return state

    def _check(self, name: str, t: Mapping[str, Any]) -> None:
        begin, end = t["data_offsets"]
        if t["dtype"] not in TENSOR_DTYPES:
            raise ValueError(f"tensor {name}: dtype {t['dtype']} is not known")
        size = TENSOR_DTYPES[t["dtype"]][1]
        for side in t["shape"]:
            size *= side
        if not 0 <= begin <= end <= len(self._data) or end - begin != size:
            raise ValueError(f"tensor {name}: {t['dtype']} {t['shape']} does not fit bytes {begin} to {end}")

    def view(self, name: str) -> memoryview:
        """Returns the bytes of a tensor."""
        begin, end = self._head[name]["data_offsets"]
        return self._data[begin:end]

    def dtype(self, name: str) -> str:
        """Returns the file's name of a tensor's type: F32, I64 ..."""
        return str(self._head[name]["dtype"])

    def shape(self, name: str) -> list[int]:
        """Returns the sizes of a tensor's axes."""
        return list(self._head[name]["shape"])

    def __getitem__(self, name: str) -> "numpy.ndarray[Any, Any]":
        import numpy
        t = self._head[name]
        return numpy.frombuffer(self.view(name), TENSOR_DTYPES[t["dtype"]][0]).reshape(t["shape"])

    def __iter__(self) -> Iterator[str]:
        return iter(self._head)

    def __len__(self) -> int:
        return len(self._head)

    def __repr__(self) -> str:
        return "Tensors(" + ", ".join(f"{k}: {self.dtype(k)}{self.shape(k)}" for k in self._head) + ")"

    def row(self, i: int) -> dict[str, "numpy.ndarray[Any, Any]"]:
        """Returns the tensors of trajectory i: `name.{i}` as name. Files of pictures (`media.{k}`) belong to no
        trajectory."""
        return {name: self[whole] for whole, name, k in self._parts() if k == i}

    @property
    def rows(self) -> int:
        """The number of trajectories in the file."""
        return 1 + max((k for _, _, k in self._parts()), default=-1)

    def _parts(self) -> Iterator[tuple[str, str, int]]:
        """Yields (name.{i}, name, i) of every tensor of a trajectory."""
        for whole in self._head:
            name, _, k = whole.rpartition(".")
            if k.isdecimal() and name != "media":
                yield whole, name, int(k)


def _read_note(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


# --- exports ---

class Export:
    """The trajectories of a session, as finalize returns them: `trajectories` (list of Trajectory), `session_id`,
    `phase`, `summary`, and, if known, `group`, `rollout`, `group_size`, `attempt`."""

    def __init__(self, document: Mapping[str, Any]):
        from .trajectory import Trajectory
        self.session_id: str = document["session_id"]
        self.phase: str = document["phase"]
        self.summary: dict[str, Any] = document["summary"]
        self.group: Optional[str] = document.get("group")
        self.rollout: Optional[int] = document.get("rollout")
        self.group_size: Optional[int] = document.get("group_size")
        self.attempt: Any = document.get("attempt")
        media = self.summary.get("media") or []
        self.trajectories: list["Trajectory"] = [Trajectory(t, media, self.session_id) for t in document["trajectories"]]

    def __getstate__(self) -> dict[str, Any]:
        """Returns the state for pickle. Trajectories share one table of pictures there, too."""
        state: dict[str, Any] = replace_views({**self.__dict__, "trajectories": [vars(t) for t in self.trajectories]})
        return state

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        from .trajectory import Trajectory
        self.__dict__.update(state)
        self.trajectories = []
        for fields in state["trajectories"]:
            t = Trajectory.__new__(Trajectory)
            t.__dict__.update(fields)
            self.trajectories.append(t)

    @property
    def warnings(self) -> list[str]:
        """Returns what a trainer would miss, as sentences."""
        return list(self.summary.get("warnings", []))

    def longest(self) -> "Trajectory":
        """Returns the trajectory with the most trained tokens. Raises ValueError if there is none."""
        if not self.trajectories:
            raise ValueError(f"session {self.session_id} has no trajectory")
        return max(self.trajectories, key=lambda t: t.trained_tokens)

    def __iter__(self) -> "Iterator[Trajectory]":
        return iter(self.trajectories)

    def __len__(self) -> int:
        return len(self.trajectories)

    def __getitem__(self, i: int) -> "Trajectory":
        return self.trajectories[i]

    def __repr__(self) -> str:
        return f"Export({self.session_id}, {self.phase}, {len(self)} trajectories, {self.summary.get('trained_tokens')} trained)"


def from_msgpack(data: bytes) -> Export:
    """Reads an export with format=msgpack."""
    return Export(unpack(data))


_JSON_KINDS = {"int32": "i", "float32": "f"}


def decode_arrays(t: dict[str, Any]) -> dict[str, Any]:
    """Decodes a trajectory of format=json: arrays that are text there (base64) become views."""
    for name in [k.removesuffix("_dtype") for k in t if k.endswith("_dtype")]:
        if isinstance(t.get(name), str):
            raw = base64.b64decode(t[name])
            # routed_experts keep their dtype, as in msgpack; views of the others have it
            t[name] = raw if name == "routed_experts" else memoryview(raw).cast(_JSON_KINDS[t.pop(f"{name}_dtype")])
    return t


def from_json(data: bytes) -> Export:
    """Reads an export with format=json: the same fields, with arrays that are text there (base64) as views."""
    document = json.loads(data)
    for t in document["trajectories"]:
        decode_arrays(t)
    for row in document["summary"].get("media") or ():
        if isinstance(row.get("data"), str):
            row["data"] = base64.b64decode(row["data"])
    return Export(document)


_NATIVE = ("prompt_ids", "response_ids", "response_mask", "response_logprobs", "response_versions", "routed_experts")
_PLACES = ("image_media", "image_spans", "image_grid_thw")      # the notes have them as `images`
_TENSOR_KINDS = {"U8": "B", "I16": "h", "I32": "i", "I64": "q", "F32": "f", "F64": "d"}
_OF_SESSION = ("group", "rollout", "group_size", "attempt")     # the trajectories have them, the file has not


def from_safetensors(data: bytes) -> Export:
    """Reads an export with format=safetensors: the same fields. Ids and versions are int64 there."""
    tensors = Tensors(data)
    notes = dict(tensors.notes)
    rows = notes["trajectories"]
    for t in rows:
        for name in _NATIVE:    # named versions are in the notes
            t.setdefault(name, None)
    for whole, name, i in tensors._parts():
        if name not in _PLACES:
            _add_tensor(rows[i], name, tensors, whole)
    for name in _OF_SESSION:
        if rows and name in rows[0]:
            notes[name] = rows[0][name]
    for k, row in enumerate(notes["summary"].get("media") or ()):
        if f"media.{k}" in tensors:
            row["data"] = tensors.view(f"media.{k}")
    return Export(notes)


def _add_tensor(t: dict[str, Any], name: str, tensors: Tensors, whole: str) -> None:
    dtype = tensors.dtype(whole)
    t[name] = tensors.view(whole)
    if name == "routed_experts":
        t[f"{name}_dtype"] = {"U8": "uint8", "I16": "int16", "I32": "int32"}[dtype]
    else:
        t[name] = t[name].cast(_TENSOR_KINDS[dtype])
    if name == "routed_experts" or name not in _NATIVE:
        t[f"{name}_shape"] = tensors.shape(whole)


def _lines(data: bytes) -> list[Any]:
    return [json.loads(line) for line in data.split(b"\n") if line]


_READERS: dict[str, Callable[[bytes], Any]] = {
    "json": from_json, "msgpack": from_msgpack, "safetensors": from_safetensors, "verl": Tensors, "miles": Tensors,
    "areal": Tensors, "slime": json.loads, "prime-rl": json.loads, "none": json.loads, "openai-messages": _lines,
    "prefix-tree": Tensors, "skyrl": json.loads, "nemo-gym": json.loads, "atif": json.loads}


def reader(format: str) -> Callable[[int, Mapping[str, str], bytes], Any]:
    """Returns the function that reads an export of that format. ValueError for an unknown format names the known
    ones."""
    if format not in _READERS:
        raise ValueError(f"format must be one of {', '.join(_READERS)}, not {format!r}")
    read = _READERS[format]
    return lambda status, headers, body: read(body)

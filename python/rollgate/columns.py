"""Writes trajectories as rows of a table: Parquet and Arrow with pyarrow, JSON lines without."""
from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
from typing import Any, Iterable, Iterator, Optional

from .trajectory import Trajectory

# arrays that a session requests: bytes and two more columns, as for routed_experts
ARRAYS = ("routed_experts", "indexer_topk", "response_top_ids", "response_top_logprobs", "response_support_counts", "response_support_ids",
          "response_support_logprobs", *(f"{by}_{what}" for by in ("teacher", "reference", "self") for what in ("logprobs", "top_ids", "top_logprobs")))
DTYPES = {"i": "int32", "f": "float32"}
# column -> name of pyarrow's type; JSON: text of values without fixed columns
COLUMNS = {"session_id": "string", "trajectory_index": "int32", "uid": "string", "group": "string", "rollout": "int32", "group_size": "int32",
           "prompt_ids": "list<int32>", "response_ids": "list<int32>", "response_mask": "list<uint8>", "response_logprobs": "list<float32>",
           "response_versions": "list<string>", "reward": "float64", "reward_info": "json", "turn_rewards": "json", "num_turns": "int32",
           "messages": "json", "turns": "json", "extra_fields": "json", "attempt": "json", "images": "json",
           **{f"{name}{end}": kind for name in ARRAYS for end, kind in (("", "binary"), ("_shape", "list<int32>"), ("_dtype", "string"))}}
PLAIN = ("prompt_ids", "response_ids", "response_mask", "response_logprobs")     # lists of numbers in JSON


def array_dtype(t: Trajectory, name: str) -> Optional[str]:
    """Returns the name of the type of an array's items."""
    value = t.get(name)
    return t.get(f"{name}_dtype") or (DTYPES[value.format] if isinstance(value, memoryview) else None)


def _cell(t: Trajectory, name: str, kind: str) -> Any:
    if name.endswith("_dtype"):
        return array_dtype(t, name.removesuffix("_dtype"))
    value: Any = t.session_id if name == "session_id" else t.num_turns if name == "num_turns" else t.get(name)
    if value is None:
        return None
    if kind == "json":
        return json.dumps(value)
    if kind == "list<string>":
        return [str(v) for v in value]
    if kind == "binary":
        return bytes(value)
    return list(value) if kind.startswith("list") else value


def rows_of(trajectories: Iterable[Trajectory]) -> Iterator[dict[str, Any]]:
    """Yields a flat row for each trajectory: ids and logprobs as lists, versions as texts, messages and the like as
    JSON. Arrays that the session requested (ARRAYS) are bytes, with columns NAME_shape and NAME_dtype; missing ones
    are null. Raises ValueError for an array without a column."""
    for t in trajectories:
        unknown = [name for name, value in t.items() if isinstance(value, (bytes, memoryview)) and name not in COLUMNS]
        if unknown:
            raise ValueError(f"{', '.join(unknown)} of session {t.session_id}: this version of rollgate has no column for it")
        yield {name: _cell(t, name, kind) for name, kind in COLUMNS.items()}


@contextlib.contextmanager
def whole_file(path: str) -> Iterator[str]:
    """Yields a path to write to. It becomes `path` when everything is written, and is removed on an error."""
    unfinished = f"{path}.unfinished"
    try:
        yield unfinished
        os.replace(unfinished, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(unfinished)
        raise


def import_pyarrow() -> Any:
    """Imports pyarrow. ImportError names the extra that installs it."""
    try:
        import pyarrow
    except ImportError as e:
        raise ImportError("Parquet and Arrow files need pyarrow: install rollgate[arrow]") from e
    return pyarrow


def schema_of(pyarrow: Any) -> Any:
    def kind(text: str) -> Any:
        if text.startswith("list<"):
            return pyarrow.list_(kind(text[5:-1]))
        return getattr(pyarrow, {"json": "string"}.get(text, text))()
    return pyarrow.schema([(name, kind(text)) for name, text in COLUMNS.items()])


def _write_tables(writer: Any, trajectories: Iterable[Trajectory], rows: int, pyarrow: Any, schema: Any) -> int:
    all_, n = rows_of(trajectories), 0
    while chunk := list(itertools.islice(all_, rows)):
        writer.write_table(pyarrow.Table.from_pylist(chunk, schema=schema))
        n += len(chunk)
    return n


def write_parquet(path: str, trajectories: Iterable[Trajectory], rows: int) -> int:
    """Writes Parquet in groups of at most `rows` rows. Returns the number of rows."""
    pyarrow = import_pyarrow()
    from pyarrow import parquet
    schema = schema_of(pyarrow)
    with whole_file(path) as unfinished, parquet.ParquetWriter(unfinished, schema) as writer:
        return _write_tables(writer, trajectories, rows, pyarrow, schema)


def write_arrow(path: str, trajectories: Iterable[Trajectory], rows: int) -> int:
    """Writes Arrow's file format like write_parquet."""
    pyarrow = import_pyarrow()
    schema = schema_of(pyarrow)
    with whole_file(path) as unfinished, pyarrow.ipc.new_file(unfinished, schema) as writer:
        return _write_tables(writer, trajectories, rows, pyarrow, schema)


def _json_fields(t: Trajectory) -> dict[str, Any]:
    """Returns the fields as format=json has them: lists of ids and logprobs, base64 of other arrays with their
    dtype."""
    out: dict[str, Any] = {"session_id": t.session_id}
    for name, value in t.items():
        if not isinstance(value, (bytes, memoryview)):
            out[name] = value
        elif name in PLAIN or name == "response_versions":
            out[name] = memoryview(value).tolist()
        else:
            out[name] = base64.b64encode(memoryview(value).cast("B")).decode()
            out[f"{name}_dtype"] = array_dtype(t, name)
    return out


def write_jsonl(path: str, trajectories: Iterable[Trajectory]) -> int:
    """Writes JSON lines. Returns their number."""
    n = 0
    with whole_file(path) as unfinished, open(unfinished, "w", encoding="utf-8") as f:
        for t in trajectories:
            f.write(json.dumps(_json_fields(t), separators=(",", ":")) + "\n")
            n += 1
    return n

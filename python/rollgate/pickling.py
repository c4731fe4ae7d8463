"""What the objects of an export write for pickle (Ray, multiprocessing): views of received bytes cannot be pickled."""
from __future__ import annotations

import pickle
from typing import Any, Optional


def view_of(data: Any, kind: str) -> memoryview:
    """Makes the typed view of the bytes that View wrote."""
    return memoryview(data).cast("B").cast(kind)


class View:
    """A memoryview for pickle: only its own bytes, in a separate buffer if the protocol has buffers (5). It is read
    back as a memoryview."""

    def __init__(self, view: memoryview):
        self.view = view

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        raw = self.view.cast("B")
        return view_of, (pickle.PickleBuffer(raw) if protocol >= 5 else bytes(raw), self.view.format)


def replace_views(value: Any, seen: Optional[dict[int, Any]] = None) -> Any:
    """Copies the value's mappings and lists, with a View for each memoryview. An object that occurs twice occurs
    twice in the copy, and is pickled once."""
    seen = {} if seen is None else seen
    if id(value) in seen:
        return seen[id(value)]
    if isinstance(value, memoryview):
        copy: Any = View(value)
    elif type(value) is dict:
        copy = {k: replace_views(v, seen) for k, v in value.items()}
    elif type(value) in (list, tuple):
        copy = type(value)(replace_views(v, seen) for v in value)
    else:
        return value
    seen[id(value)] = copy
    return copy

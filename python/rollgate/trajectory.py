"""One trajectory as numpy views of the received bytes, and batches of many. Needs numpy for the first requested
array. Reading and forwarding exports needs no numpy."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterable, Iterator, Mapping, Optional, Sequence

from .pickling import replace_views

if TYPE_CHECKING:
    import numpy

EXPERT_DTYPES = {"uint8": "u1", "int16": "<i2", "int32": "<i4"}


def _array(values: Any, dtype: str) -> "numpy.ndarray[Any, Any]":
    """Returns a view of a memoryview (same item type), or a copy of a list."""
    import numpy
    return numpy.asarray(values) if isinstance(values, memoryview) else numpy.array(values, dtype)


class Trajectory(Mapping[str, Any]):
    """What an engine saw and sampled, as one sequence of tokens. With P prompt and R response tokens, T = P + R.

    As a mapping it has every native field by its name (docs/trajectories.md, section 1). Arrays are the properties
    below. A trajectory captured as text has no arrays: they raise ValueError (see `has_tokens`)."""

    def __init__(self, fields: Mapping[str, Any], media: Sequence[Mapping[str, Any]] = (), session_id: Optional[str] = None):
        self.session_id = session_id    # None: unknown
        self._fields = fields
        self._media = media     # the export's table of pictures

    def __getstate__(self) -> dict[str, Any]:
        """Returns the state for pickle, with copies of the arrays."""
        state: dict[str, Any] = replace_views(self.__dict__)
        return state

    def __getitem__(self, name: str) -> Any:
        return self._fields[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    # --- arrays ---

    @property
    def has_tokens(self) -> bool:
        """Whether ids are known. The text of an upstream that reports none has no ids."""
        return self._fields.get("response_ids") is not None

    def _tokens(self, name: str, dtype: str) -> "numpy.ndarray[Any, Any]":
        if not self.has_tokens:
            raise ValueError(f"this trajectory was captured as text: it has no {name}")
        return _array(self._fields[name], dtype)

    @property
    def prompt_ids(self) -> "numpy.ndarray[Any, Any]":
        """[P], int32 (int64 from safetensors)."""
        return self._tokens("prompt_ids", "i4")

    @property
    def response_ids(self) -> "numpy.ndarray[Any, Any]":
        """[R], int32 (int64 from safetensors)."""
        return self._tokens("response_ids", "i4")

    @property
    def response_mask(self) -> "numpy.ndarray[Any, Any]":
        """[R], uint8: 1 where the model sampled the token in this session."""
        return self._tokens("response_mask", "u1")

    @property
    def response_logprobs(self) -> Optional["numpy.ndarray[Any, Any]"]:
        """[R], float32: the engine's logprob where the mask is 1, 0.0 elsewhere. None: the engine reported none."""
        return None if self._fields.get("response_logprobs") is None else self._tokens("response_logprobs", "f4")

    @property
    def response_versions(self) -> Optional["numpy.ndarray[Any, Any]"]:
        """[R], int64 (-1 where the mask is 0), or texts if versions are names. None: no engine reported one."""
        versions = self._fields.get("response_versions")
        if versions is None:
            return None
        import numpy
        return numpy.asarray(versions) if isinstance(versions, memoryview) else numpy.array(versions)

    @property
    def routed_experts(self) -> Optional["numpy.ndarray[Any, Any]"]:
        """[T-1, layers, top-k], uint8, int16 or int32. None: the engine reported none."""
        raw = self._fields.get("routed_experts")
        if raw is None:
            return None
        import numpy
        dtype = EXPERT_DTYPES[self._fields["routed_experts_dtype"]]
        return numpy.frombuffer(raw, dtype).reshape(self._fields["routed_experts_shape"])

    def array(self, name: str) -> Optional["numpy.ndarray[Any, Any]"]:
        """Returns an array that the session requested (`indexer_topk`, `response_top_ids`, `teacher_logprobs` ...),
        in its shape: int32 or float32. None: it is unknown."""
        if self._fields.get(name) is None:
            return None
        import numpy
        return numpy.asarray(self._fields[name]).reshape(self._fields[f"{name}_shape"])

    @property
    def ids(self) -> "numpy.ndarray[Any, Any]":
        """[T], int64: prompt and response (a copy)."""
        import numpy
        ids: "numpy.ndarray[Any, Any]" = numpy.concatenate([self.prompt_ids, self.response_ids]).astype("i8")
        return ids

    def whole(self, response: "numpy.ndarray[Any, Any]", fill: Any) -> "numpy.ndarray[Any, Any]":
        """Extends an array over the response to [T], with `fill` over the prompt."""
        import numpy
        return numpy.concatenate([numpy.full(self.prompt_len, fill, response.dtype), response])

    # --- images ---

    @property
    def images(self) -> list[Mapping[str, Any]]:
        """The pictures in the order of their tokens: `media` (SHA-256), `turn`, `offset` and `length` in `ids`,
        `grid_thw`."""
        return self._fields.get("images") or []

    def image_files(self) -> list[bytes]:
        """The bytes of `images`, as the engine saw them. Raises ValueError if the export was requested without
        media=inline."""
        table = {row["sha256"]: row.get("data") for row in self._media}
        files = [table.get(image["media"]) for image in self.images]
        known = [bytes(data) for data in files if data is not None]
        if len(known) < len(files):
            raise ValueError("the export has places of images and not their bytes: ask for it with media=inline")
        return known

    def pil_images(self) -> list[Any]:
        """Opens `images` with Pillow: not resized, not turned by EXIF, as engines use them. For the model's own
        processor. Needs Pillow."""
        import io

        from PIL import Image
        return [Image.open(io.BytesIO(data)) for data in self.image_files()]

    def without_images(self, who: str) -> None:
        """Raises ValueError if there are images: `who` would train their tokens without their content."""
        if self.images:
            raise ValueError(f"{who} takes no images, and this trajectory shows {len(self.images)}")

    # --- numbers ---

    @property
    def prompt_len(self) -> int:
        """P: number of tokens of the prompt."""
        return len(self._fields["prompt_ids"] or ())

    @property
    def response_len(self) -> int:
        """R: number of tokens of the response."""
        return len(self._fields["response_ids"] or ())

    @property
    def trained_tokens(self) -> int:
        """Number of tokens with mask 1."""
        mask = self._fields.get("response_mask")
        return sum(mask) if mask is not None else 0

    @property
    def num_turns(self) -> int:
        """Number of the model's answers."""
        return len(self._fields.get("turns") or [])

    @property
    def verl_num_turns(self) -> int:
        """`num_turns` by verl's definition: user and assistant messages plus one."""
        return 1 + sum(m["role"] in ("user", "assistant") for m in self._fields.get("messages") or [])

    @property
    def reward(self) -> Optional[float]:
        """The reward. None: unknown, which is not 0."""
        return self._fields.get("reward")

    @property
    def reward_info(self) -> dict[str, Any]:
        """All values that scorers set for the session, including `reward`; empty if there are none."""
        return dict(self._fields.get("reward_info") or {})

    @property
    def turn_rewards(self) -> dict[str, dict[str, Any]]:
        """Values that scorers set for single turns, by `response_id`."""
        return dict(self._fields.get("turn_rewards") or {})

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The conversation. Sampled messages have `generated`."""
        return list(self._fields.get("messages") or [])

    @property
    def turns(self) -> list[dict[str, Any]]:
        """One entry for each answer of the model: `response_id`, `start` and `end` in the response, `finish_reason`,
        `trained` ..."""
        return list(self._fields.get("turns") or [])

    @property
    def truncated(self) -> bool:
        """Whether the last answer or the trajectory was cut by a length."""
        turns = self._fields.get("turns") or []
        cut = self._fields.get("extra_fields", {}).get("materialization_reason")
        return bool(cut) or bool(turns) and turns[-1].get("finish_reason") == "length"

    @property
    def drift(self) -> int:
        """Number of positions where a fresh rendering of the same messages would have different tokens. This is
        harmless here."""
        drift = self._fields.get("extra_fields", {}).get("drift")
        return drift.get("count", 0) if isinstance(drift, Mapping) else 0

    @property
    def versions(self) -> Optional[tuple[int, int]]:
        """The oldest and the newest weight version that sampled tokens of it."""
        extra = self._fields.get("extra_fields", {})
        return (extra["min_global_steps"], extra["max_global_steps"]) if "min_global_steps" in extra else None

    def spans(self) -> list[tuple[int, int]]:
        """Runs of mask 1 as (begin, end) in the response. Each is one answer of the model."""
        spans, begin = [], None
        for i, m in enumerate(self._fields.get("response_mask") or ()):
            if m and begin is None:
                begin = i
            elif not m and begin is not None:
                spans.append((begin, i))
                begin = None
        return spans if begin is None else [*spans, (begin, self.response_len)]

    def __repr__(self) -> str:
        f = self._fields
        where = f"{self.session_id or f.get('uid') or '-'}#{f.get('trajectory_index', 0)}"
        if not self.has_tokens:
            return f"Trajectory({where}, text of {len(f.get('messages', []))} messages, reward {self.reward})"
        trained = self.trained_tokens
        share = f"{100 * trained / max(self.response_len, 1):.0f}%"
        parts = [where, f"{self.prompt_len}+{self.response_len} tokens", f"{trained} trained ({share})",
                 f"{self.num_turns} turns", "reward unknown" if self.reward is None else f"reward {self.reward:g}"]
        if self.versions:
            parts.append(f"version {self.versions[0]}" + ("" if len(set(self.versions)) == 1 else f"-{self.versions[1]}"))
        if f.get("response_logprobs") is None:
            parts.append("no logprobs")
        parts += [f"drift {self.drift}"] * bool(self.drift) + ["truncated"] * self.truncated
        return f"Trajectory({', '.join(parts)})"

    def to_torch(self) -> dict[str, Any]:
        """Returns torch tensors with their own memory: `ids` int64 [T], `loss_mask` int64 [T], `logprobs` float32 [T]
        or None, `versions` int64 [T] or None, `routed_experts` or None, `reward`. Images are not included. Needs
        torch."""
        batch = pad([self], images="apart")
        out = to_torch(batch)
        one = {k: out[k][0] if k in out and batch[k].dtype.kind != "O" else None for k in ("loss_mask", "logprobs", "versions")}
        experts = self.routed_experts
        import torch
        return {"ids": out["input_ids"][0], **one, "reward": self.reward,
                "routed_experts": None if experts is None else torch.from_numpy(experts.copy())}


# --- batches ---

def _columns(all_: Sequence[Trajectory]) -> dict[str, tuple[Any, str]]:
    """Returns the columns that every trajectory has: name -> (function of a trajectory that returns its array over
    [T], dtype)."""
    columns: dict[str, tuple[Any, str]] = {
        "input_ids": (lambda t: t.ids, "i8"), "loss_mask": (lambda t: t.whole(t.response_mask, 0), "i8")}
    if all(t["response_logprobs"] is not None for t in all_):
        columns["logprobs"] = (lambda t: t.whole(t.response_logprobs, 0.0), "f4")
    if all(t["response_versions"] is not None for t in all_):
        versions = [t.response_versions for t in all_]
        if all(v is not None and v.dtype.kind == "i" for v in versions):
            columns["versions"] = (lambda t: t.whole(t.response_versions, -1), "i8")
        else:       # some trajectories have named versions
            columns["versions"] = (lambda t: t.whole(_named(t.response_versions), "-1"), "O")
    return columns


def _named(versions: "numpy.ndarray[Any, Any]") -> "numpy.ndarray[Any, Any]":
    """Returns versions as texts: an array of objects, so that none is cut to the width of others."""
    import numpy
    return numpy.array([str(v) for v in versions.tolist()], "O")


def _rewards(all_: Sequence[Trajectory]) -> "numpy.ndarray[Any, Any]":
    import numpy
    unknown = [i for i, t in enumerate(all_) if t.reward is None]
    return numpy.array([numpy.nan if i in unknown else t.reward for i, t in enumerate(all_)], "f4")


def _checked(trajectories: Iterable[Trajectory], max_len: Optional[int], images: str) -> list[Trajectory]:
    all_ = list(trajectories)
    if images not in ("refuse", "apart"):
        raise ValueError(f"images must be refuse or apart, not {images!r}")
    if not all_:
        raise ValueError("a batch of no trajectories")
    for i, t in enumerate(all_):
        if not t.has_tokens:
            raise ValueError(f"trajectory {i} was captured as text: it cannot be batched")
        if images == "refuse":
            t.without_images("a batch of ids (unless images='apart')")
        if max_len is not None and t.prompt_len + t.response_len > max_len:
            raise ValueError(f"trajectory {i} has {t.prompt_len + t.response_len} tokens, more than max_len {max_len}; "
                             "finalize with max_tokens cuts by whole turns")
    return all_


def pad(trajectories: Iterable[Trajectory], pad_id: int = 0, max_len: Optional[int] = None, left: bool = False,
        images: str = "refuse") -> dict[str, Any]:
    """Makes one row for each trajectory, padded to the longest (or to max_len). With B rows and length L:

    `input_ids` int64 [B, L] (pad_id on pads), `attention_mask` int64 [B, L], `position_ids` int64 [B, L], `loss_mask`
    int64 [B, L], `lengths` int64 [B], `rewards` float32 [B]: NaN if unknown, so that nothing trains on it unnoticed.
    If every trajectory has them: `logprobs` float32 [B, L], `versions` int64 [B, L] (-1). If any version is a name,
    all are texts. left: pads come first. images: `refuse` trajectories with pictures, or `apart`: the caller adds
    them (and their positions, if the model has others). Raises ValueError for no trajectories, and for one captured
    as text, with pictures, or longer than max_len."""
    import numpy
    all_ = _checked(trajectories, max_len, images)
    lengths = numpy.array([t.prompt_len + t.response_len for t in all_], "i8")
    size = max_len or int(lengths.max())
    columns = _columns(all_)
    fills = {"input_ids": pad_id, "versions": "-1" if columns.get("versions", (None, ""))[1] == "O" else -1}
    batch = {k: numpy.full((len(all_), size), fills.get(k, 0), d) for k, (_, d) in columns.items()}
    batch["attention_mask"] = numpy.zeros((len(all_), size), "i8")
    batch["position_ids"] = numpy.zeros((len(all_), size), "i8")
    for i, t in enumerate(all_):
        n = int(lengths[i])
        place = slice(size - n, size) if left else slice(0, n)
        for name, (get, _) in columns.items():
            batch[name][i, place] = get(t)
        batch["attention_mask"][i, place] = 1
        batch["position_ids"][i, place] = numpy.arange(n)
    return {**batch, "lengths": lengths, "rewards": _rewards(all_)}


def pack(trajectories: Iterable[Trajectory], max_len: Optional[int] = None, images: str = "refuse") -> list[dict[str, Any]]:
    """Concatenates trajectories in bins of at most max_len tokens (None: one bin), the longest first, each into the
    first bin with space. For a bin with N tokens and S sequences:

    `input_ids`, `position_ids` (from 0 in each), `loss_mask` int64 [N]; if every trajectory has them, `logprobs`
    float32 [N] and `versions` int64 [N], as in pad; `cu_seqlens` int32 [S+1]; `index` int64 [S]: the index of each
    trajectory; `rewards` float32 [S]. images: as in pad."""
    import numpy
    all_ = _checked(trajectories, max_len, images)
    lengths = [t.prompt_len + t.response_len for t in all_]
    bins: list[list[int]] = []
    room: list[int] = []
    for i in sorted(range(len(all_)), key=lambda i: -lengths[i]):
        place = next((b for b, free in enumerate(room) if free >= lengths[i]), None) if max_len else (0 if bins else None)
        if place is None:
            bins.append([])
            room.append(max_len or 0)
            place = len(bins) - 1
        bins[place].append(i)
        room[place] -= lengths[i]
    columns = _columns(all_)
    rewards = _rewards(all_)
    out = []
    for members in bins:
        one = {name: numpy.concatenate([get(all_[i]) for i in members]).astype(d) for name, (get, d) in columns.items()}
        one["position_ids"] = numpy.concatenate([numpy.arange(lengths[i]) for i in members])
        one["cu_seqlens"] = numpy.cumsum([0, *(lengths[i] for i in members)]).astype("i4")
        one["index"], one["rewards"] = numpy.array(members, "i8"), rewards[members]
        out.append(one)
    return out


def to_torch(batch: Any) -> Any:
    """Converts the arrays of a batch (pad), or of each bin of a list (pack), to torch tensors. Named versions stay an
    array of texts, because no tensor holds them. Needs torch."""
    import torch
    if not isinstance(batch, Mapping):
        return [to_torch(one) for one in batch]
    return {k: v if v.dtype.kind == "O" else torch.from_numpy(v) for k, v in batch.items()}


# --- differences ---

class Difference:
    """The differences of b from a, by kind. It is empty (and false) if there are none. str() is for reading."""

    def __init__(self, parts: Sequence[str]):
        self.parts = list(parts)

    def __bool__(self) -> bool:
        return bool(self.parts)

    def __str__(self) -> str:
        return "\n".join(self.parts) or "equal"

    __repr__ = __str__


def _first(a: Sequence[Any], b: Sequence[Any]) -> Optional[int]:
    for i, (x, y) in enumerate(zip(a, b)):
        if x != y:
            return i
    return None if len(a) == len(b) else min(len(a), len(b))


def _around(values: Sequence[Any], i: int) -> str:
    low = max(0, i - 3)
    return ("... " if low else "") + " ".join(f"[{v}]" if low + k == i else str(v) for k, v in enumerate(values[low:i + 4]))


def diff(a: Trajectory, b: Trajectory, tolerance: float = 1e-6) -> Difference:
    """Compares ids, masks, versions, logprobs (beyond tolerance), reward and number of turns. Reports the first
    position of each difference with its neighbours."""
    parts = []
    for name in ("prompt_ids", "response_ids", "response_mask", "response_versions"):
        x, y = (list(v) if v is not None else None for v in (a.get(name), b.get(name)))
        if x is None or y is None:
            parts += [f"{name}: only one has it"] * ((x is None) != (y is None))
            continue
        i = _first(x, y)
        if i is not None:
            parts.append(f"{name}: {len(x)} and {len(y)}, first difference at {i}: {_around(x, i)} / {_around(y, i)}")
    x, y = a.get("response_logprobs"), b.get("response_logprobs")
    if (x is None) != (y is None):
        parts.append("response_logprobs: only one has them")
    elif x is not None and y is not None:
        far = [(abs(p - q), i) for i, (p, q) in enumerate(zip(x, y)) if not abs(p - q) <= tolerance]
        if far:
            worst, i = max(far)
            parts.append(f"response_logprobs: {len(far)} differ, worst by {worst:.3g} at {i}: {x[i]:.6g} / {y[i]:.6g}")
    if a.reward != b.reward:
        parts.append(f"reward: {a.reward} / {b.reward}")
    if a.num_turns != b.num_turns:
        parts.append(f"turns: {a.num_turns} / {b.num_turns}")
    return Difference(parts)

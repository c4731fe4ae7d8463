"""What the adapters share: a trainer's hook requests rollouts of one task, waits for them, and fetches their export.

Every hook uses a group of the gateway. So executors, limits, retries and time-outs are the gateway's, and the
trainer's abort reaches the agents: abort() cancels every group that a hook still waits for."""
from __future__ import annotations

import asyncio
import logging
import uuid
from typing import Any, Coroutine, Iterable, Iterator, Mapping, NamedTuple, Optional, TypeVar

from .aio import AsyncClient, on_loop
from .calls import plain
from .errors import RollgateError
from .trajectory import Trajectory

log = logging.getLogger("rollgate.hooks")
T = TypeVar("T")
CANCEL_S = 10.0     # seconds that a cancelled hook may delay its trainer

# names of trainers' and engines' parameters -> the gateway's; None: how text is written, which ids do not need
SAMPLING = {
    "temperature": "temperature", "top_p": "top_p", "top_k": "top_k", "min_p": "min_p", "stop": "stop", "seed": "seed",
    "repetition_penalty": "repetition_penalty", "presence_penalty": "presence_penalty", "frequency_penalty": "frequency_penalty",
    "max_tokens": "max_tokens", "max_new_tokens": "max_tokens", "max_generate_length": "max_tokens", "sampling_seed": "seed",
    "engine_extra": "engine_extra", "stop_token_ids": "stop_token_ids", "min_new_tokens": "min_tokens",
    "min_tokens": "min_tokens", "logprobs": None,
    "skip_special_tokens": None, "no_stop_trim": None, "spaces_between_special_tokens": None, "include_stop_str_in_output": None}
# parameters of the sampling distribution: the trainer's, or neutral if it names none
LOCKED = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "repeat_last_n",
          "logit_bias", "bad_words", "allowed_token_ids", "min_tokens", "ignore_eos", "max_thinking_tokens", "response_format")


TRAINERS = ("id", "queue", "runner", "input", "n")       # fields of a group that the trainer and the adapter set


class RolloutFailed(RuntimeError):
    """A rollout without training data. `result` is the result of its group."""

    def __init__(self, result: Mapping[str, Any]):
        self.result = result
        why = next((f"{m['outcome']}: {m['reason']}" for m in result["members"] if m.get("reason")), "no reason told")
        of = f"{result['succeeded']} of {result['n']}"
        super().__init__(f"group {result['id']} is {result['state']} with {of} rollouts ({why})")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.result,)


class Turn(NamedTuple):
    """One trained answer: the ids before it, the sampled ids with their log-probabilities, and its entry in the
    trajectory's `turns`."""

    prompt_ids: list[int]
    ids: list[int]
    logprobs: list[float]
    told: Mapping[str, Any]


def trained_turns(trajectories: Iterable[Trajectory], trainer: str) -> Iterator[Turn]:
    """Yields the trained answers of a rollout, branch by branch, for trainers that accept calls instead of rows.
    Raises ValueError for an answer that such a trainer cannot use as a whole (no ids or log-probabilities, images,
    routed experts, a mask within it)."""
    for t in trajectories:
        t.without_images(trainer)
        if not t.has_tokens or t.response_logprobs is None:
            raise ValueError(f"session {t.session_id}: the engine told no {'log-probabilities' if t.has_tokens else 'ids'}")
        if t.routed_experts is not None:
            raise ValueError(f"session {t.session_id} kept routed experts, and {trainer} has no place for them")
        ids, logprobs, mask = t.ids.tolist(), t.response_logprobs.tolist(), t.response_mask.tolist()
        for turn in t.turns:
            start, end = turn["start"], turn["end"]
            if not any(mask[start:end]):
                continue
            if not all(mask[start:end]):
                raise ValueError(f"answer {turn['response_id']} is trained in part, and {trainer} trains whole answers")
            at = t.prompt_len + start
            yield Turn(ids[:at], ids[at:t.prompt_len + end], logprobs[start:end], turn)


def numbers_of(reward_info: Mapping[str, Any]) -> dict[str, float]:
    """Returns the numbers of reward_info except the reward, for a trainer's metrics."""
    return {k: float(v) for k, v in reward_info.items() if k not in ("reward", "finished") and isinstance(v, (int, float))}


def sampling(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Converts a trainer's sampling parameters to the gateway's names, without those that are None. Raises ValueError
    for an unknown one."""
    out: dict[str, Any] = {}
    for name, value in parameters.items():
        if value is None or value == []:
            continue
        if name not in SAMPLING:
            raise ValueError(f"sampling parameter {name}={value!r} has no counterpart in the gateway")
        ours = SAMPLING[name]
        if ours:
            out[ours] = plain(value, name)
    return out


def session_options(given: Optional[Mapping[str, Any]], sampling_params: Mapping[str, Any], labels: Optional[Mapping[str, str]] = None,
                    metadata: Optional[Mapping[str, Any]] = None, evaluation: bool = False) -> dict[str, Any]:
    """Returns options of a session: the adapter's settings, overridden by the trainer's sampling, labels and
    metadata. Unless the settings say otherwise, the trainer's sampling is locked, and its validation is an
    `evaluation`."""
    out: dict[str, Any] = plain(given or {}, "session")
    told = {"sampling_params": sampling(sampling_params), "labels": labels, "metadata": metadata}
    for name, more in told.items():
        if more is not None:
            out[name] = {**(out.get(name) or {}), **more}
    if evaluation:
        out.setdefault("evaluation", True)
    out.setdefault("lock_sampling", list(LOCKED))
    return out


def export_options(given: Optional[Mapping[str, Any]], one_row: bool = False) -> dict[str, Any]:
    """Returns options of a trainer's exports: the given ones without `format`, which belongs to the sinks (each
    adapter has its own). A turn that branches share is trained once, unless they say `train_once: false`. one_row: as
    in Hook."""
    out = {k: v for k, v in plain(given or {}, "export").items() if k != "format"}
    if one_row and out.setdefault("select", "longest") not in ("longest", "last"):
        raise ValueError(f"the trainer takes one row of a rollout: export.select must be longest or last, not {out['select']!r}")
    out.setdefault("train_once", True)
    return out


def group_options(group: Optional[Mapping[str, Any]], session: Optional[Mapping[str, Any]],
                  export: Optional[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns a group with the adapter's `session` and `export` options. Raises ValueError if the group has one of
    them with a different value."""
    out: dict[str, Any] = plain(group or {}, "group")
    for name, more in (("session", session), ("export", export)):
        given = plain(more or {}, name)
        mine = out.get(name) or {}
        for key in [k for k in given if k in mine and mine[k] != given[k]]:
            raise ValueError(f"{name}.{key} is {given[key]!r}, and the group's {name}.{key} is {mine[key]!r}: set one of them")
        if given:
            out[name] = {**mine, **given}
    return out


def clients_of(loop: asyncio.AbstractEventLoop) -> dict[tuple[Any, ...], AsyncClient]:
    """Returns the loop's clients, by url, key and waits. They are freed with the loop."""
    mine: dict[tuple[Any, ...], AsyncClient] = on_loop(loop, "clients", dict)
    return mine


def connect(url: Optional[str] = None, key: Optional[str] = None, *, waits: bool = False) -> AsyncClient:
    """Returns the running loop's client of that gateway: trainers call their hooks on loops of their choice. waits: a
    separate client for waits of groups, so that no submission, cancellation or export waits for one of them."""
    mine = clients_of(asyncio.get_running_loop())
    if (url, key, waits) not in mine:
        mine[url, key, waits] = AsyncClient(url, key, retry_s=600.0)
    return mine[url, key, waits]


async def all_or_none(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Runs coroutines side by side and returns their results. If one fails, cancels the others and raises its error."""
    tasks = [asyncio.ensure_future(w) for w in work]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


class Hook:
    """One trainer's use of a gateway: the runner, the defaults of its groups (docs/rollouts.md), and the pending
    groups.

    group: fields of every group, such as {"reward": "external", "run_timeout_s": 900, "attempts": 2}.
    session: options of every session (docs/http.md): `history`, `lock_sampling`, `evaluation`, `sampling_params` ...
    export: options of the exports of trainer and sinks (docs/trajectories.md): `train_once`, `select`, `pick` ...
    `group` may have both instead.
    one_row: the trainer uses one row of a rollout. Raises ValueError if the group's export selects several."""

    def __init__(self, runner: str, url: Optional[str] = None, key: Optional[str] = None,
                 group: Optional[Mapping[str, Any]] = None, *, session: Optional[Mapping[str, Any]] = None,
                 export: Optional[Mapping[str, Any]] = None, one_row: bool = False):
        if not runner:
            raise ValueError("which runner? Its name is needed: as executors offer it")
        self.runner, self.url, self.key, self.group = runner, url, key, group_options(group, session, export)
        for name in [k for k in TRAINERS if k in self.group]:
            raise ValueError(f"group.{name} is {self.group[name]!r}, and the trainer's own would go before it: leave it out")
        self.exports = export_options(self.group.get("export"), one_row)
        self.live: dict[str, AsyncClient] = {}

    @property
    def external(self) -> bool:
        """Reports whether the trainer scores."""
        return bool(self.group.get("reward") == "external")

    async def run(self, input: Any, sampling_params: Mapping[str, Any], *, n: int = 1, group_id: Optional[str] = None,
                  labels: Optional[Mapping[str, str]] = None, evaluation: bool = False, **group: Any) -> dict[str, Any]:
        """Returns the settled result of a group of n, with `labels` in addition to those of every group. evaluation:
        for the trainer's validation, so no sink gets it. The group is cancelled with the waiting task, or if waiting
        fails. Raises RolloutFailed if no rollout succeeded."""
        client = connect(self.url, self.key)
        name = group_id or f"h-{uuid.uuid4().hex}"
        options = session_options(self.group.get("session"), sampling_params, evaluation=evaluation)
        labels = {**(self.group.get("labels") or {}), **(labels or {})}
        own = {"queue": None, "runner": self.runner, "input": plain(input, "input"), "n": n, "session": options, "labels": labels}
        self.live[name] = client
        try:
            await client.put_group(name, **{**self.group, **own, **{k: v for k, v in group.items() if v is not None}})
            result: Any = await connect(self.url, self.key, waits=True).wait_group(name)
        except (Exception, asyncio.CancelledError) as e:
            if not isinstance(e, RollgateError) or not 400 <= e.status < 500:   # otherwise the group does not exist, or belongs to another trainer
                await self._cancel(client, name)
            raise
        finally:
            self.live.pop(name, None)
        if not result["succeeded"]:
            raise RolloutFailed(result)
        return dict(result)

    async def export(self, member: Mapping[str, Any], format: str = "msgpack", pick: Optional[str] = None, **needed: Any) -> Any:
        """Finalizes a member like Client.finalize. The group's export options override `pick`, and `needed` overrides
        both. The gateway keeps the export until the group is gone, so it can be fetched again."""
        options: dict[str, Any] = {**({"pick": pick} if pick else {}), **self.exports, **needed}
        return await connect(self.url, self.key).finalize(member["session_id"], format, **options)

    async def one(self, input: Any, sampling_params: Mapping[str, Any], **group: Any) -> dict[str, Any]:
        """Runs a group of one. Returns its member."""
        result = await self.run(input, sampling_params, **group)
        return next(m for m in result["members"] if m["state"] == "succeeded")

    async def abort(self) -> int:
        """Cancels every group that a hook waits for; the waiters get RolloutFailed. Returns the number of groups."""
        names = list(self.live.items())
        await asyncio.gather(*(self._cancel(connect(self.url, self.key), name) for name, _ in names))
        return len(names)

    async def _cancel(self, client: AsyncClient, name: str) -> None:
        try:
            async with asyncio.timeout(CANCEL_S):
                await client.cancel_group(name)
        except (RollgateError, TimeoutError) as e:
            log.error("group %s cannot be cancelled: %s", name, e)

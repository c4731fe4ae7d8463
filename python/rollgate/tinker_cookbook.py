"""tinker-cookbook: a rollout strategy of its RL trainer, and the data set of tasks.

    Config(rollout_error_tolerance=RollgateStrategy("swe"), dataset_builder=RollgateTasks(tasks="tasks.jsonl"), ...)

engine="tinker": the cookbook's sampling client samples; the strategy serves it to the gateway (engine_server.py), which starts with
`--engine none`. Contract: tinker-cookbook 9dfcc3a, rl/rollout_strategy.py,
rl/rollouts.py (do_group_rollout), rl/data_processing.py (trajectory_to_data), rl/types.py, completers.py; tinker d595dc2.
"""
from __future__ import annotations

import asyncio
import json
import os
from dataclasses import dataclass, field
from typing import Any, Mapping, Optional, Sequence

import chz
import tinker
from tinker_cookbook.completers import TokensWithLogprobs
from tinker_cookbook.exceptions import AllTrajectoriesFailedError
from tinker_cookbook.rl.rollout_strategy import RolloutResult, RolloutStrategy
from tinker_cookbook.rl.types import EnvGroupBuilder, RLDataset, RLDatasetBuilder, RolloutError, StopReason
from tinker_cookbook.rl.types import Trajectory as CookbookTrajectory
from tinker_cookbook.rl.types import Transition

from .aio import on_loop
from .engine_server import EngineServer, Sampled, vllm_parameters
from .hooks import Hook, RolloutFailed, connect, numbers_of, trained_turns
from .records import Export

NEUTRAL = {"top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0,
           "min_tokens": 0, "ignore_eos": False}


@dataclass(frozen=True)
class RollgateGroup(EnvGroupBuilder):
    """One task for the runner, with n rollouts. evaluation: no sink gets them."""

    task: Any
    n: int = 1
    evaluation: bool = False

    async def make_envs(self) -> Sequence[Any]:
        raise TypeError("rollouts run behind the gateway: set rollout_error_tolerance=RollgateStrategy(...)")


class _Dataset(RLDataset):
    def __init__(self, path: str, batch: int, n: int, evaluation: bool):
        with open(path, encoding="utf-8") as lines:
            self.groups = [RollgateGroup(json.loads(line), n, evaluation) for line in lines if line.strip()]
        self.batch = batch

    def get_batch(self, index: int) -> Sequence[RollgateGroup]:
        return self.groups[index * self.batch:(index + 1) * self.batch]

    def __len__(self) -> int:
        return -(-len(self.groups) // self.batch)


@chz.chz
class RollgateTasks(RLDatasetBuilder):
    """Tasks from files of JSON lines: `batch` groups for each step, `n` rollouts for each group. `held_out` are
    evaluations, one rollout each."""

    tasks: str
    held_out: Optional[str] = None
    batch: int = 32
    n: int = 8

    async def __call__(self) -> tuple[RLDataset, Optional[RLDataset]]:
        held_out = _Dataset(self.held_out, self.batch, 1, True) if self.held_out else None
        return _Dataset(self.tasks, self.batch, self.n, False), held_out


@dataclass(frozen=True)
class RollgateStrategy(RolloutStrategy):
    """The rollout strategy. group, session, export: as in hooks.Hook. on_failure: `raise` (a rollout that failed for
    good ends the step) or `drop` (its siblings stay; a group without any is skipped). engine: `tinker`, or None: the
    gateway has its own engines. host: the address at which the gateway reaches this process."""

    runner: str
    url: Optional[str] = None
    key: Optional[str] = None
    group: Mapping[str, Any] = field(default_factory=dict)
    session: Mapping[str, Any] = field(default_factory=dict)
    export: Mapping[str, Any] = field(default_factory=dict)
    on_failure: str = "raise"
    engine: Optional[str] = "tinker"
    host: Optional[str] = None
    pid: int = field(default_factory=os.getpid, repr=False)

    def __post_init__(self) -> None:
        if self.on_failure not in ("raise", "drop"):
            raise ValueError(f"on_failure must be raise or drop, not {self.on_failure!r}")
        if self.engine not in ("tinker", None):
            raise ValueError(f"engine must be tinker or None, not {self.engine!r}")
        if self.hook.external:
            raise ValueError("tinker-cookbook takes rewards from its rollouts: reward: external would leave them unknown")

    @property
    def hook(self) -> Hook:
        return Hook(self.runner, self.url, self.key, self.group, session=self.session, export=self.export)

    @property
    def catches_group_errors(self) -> bool:
        return self.on_failure == "drop"

    async def execute(self, env_group_builder: Any, policy: Any) -> Any:
        """Runs one group. Raises RolloutFailed. With on_failure `drop` raises AllTrajectoriesFailedError, which the
        cookbook skips."""
        if not isinstance(env_group_builder, RollgateGroup):
            raise TypeError(f"RollgateStrategy runs RollgateGroup, not {type(env_group_builder).__name__}")
        hook, sampling = self.hook, {"temperature": policy.temperature, "max_tokens": policy.max_tokens}
        version = (await self._serve(policy)).version if self.engine else None
        try:
            result = await hook.run(env_group_builder.task, sampling, n=env_group_builder.n, version=version, evaluation=env_group_builder.evaluation)
            if result["succeeded"] < result["n"] and self.on_failure == "raise":
                raise RolloutFailed(result)
        except RolloutFailed as e:
            if self.on_failure == "drop":
                raise AllTrajectoriesFailedError(str(e)) from e
            raise
        good = [m for m in result["members"] if m["state"] == "succeeded"]
        exports = await asyncio.gather(*(hook.export(m, require_reward=True, require_trained=True) for m in good))
        errors = [RolloutError("RolloutFailed", f"{m['outcome']}: {m['reason']}") for m in result["members"] if m["state"] == "failed"]
        return RolloutResult([trajectory_of(e) for e in exports], [], errors)

    async def _serve(self, policy: Any) -> "_Served":
        """Returns the engine of the running loop, which samples with the newest policy."""
        if os.getpid() != self.pid:
            raise ValueError("engine='tinker' serves the trainer's own process: with set_rollout_executor the engine must be None")
        served: _Served = on_loop(asyncio.get_running_loop(), f"tinker {self.url} {self.host}", _Served)
        served.use(policy)
        async with served.lock:
            if not served.engine:
                server = EngineServer(served.sample, lambda: str(served.version))
                served.engine = await server.join(connect(self.url, self.key), "tinker", self.host)
        return served


class _Served:
    """The cookbook's policy as an engine. version: number of the sampling client, from 0."""

    def __init__(self) -> None:
        self.policy: Any = None
        self.version, self.engine, self.lock = -1, "", asyncio.Lock()

    def use(self, policy: Any) -> None:
        if self.policy is None or policy.sampling_client is not self.policy.sampling_client:
            self.version += 1
        self.policy = policy

    async def sample(self, ids: list[int], given: Mapping[str, Any]) -> Sampled:
        """Samples with the sampling client. Raises ValueError for a parameter that it does not have."""
        params = {name: value for name, value in vllm_parameters(given).items() if NEUTRAL.get(name) != value}
        stops = params.pop("stop_token_ids", None) or []
        texts = params.pop("stop", None) or []
        if stops and texts:
            raise ValueError("Tinker stops at texts or at ids, not at both")
        known = {k: params.pop(k) for k in ("temperature", "max_tokens", "top_p", "top_k", "seed") if k in params}
        if params:
            raise ValueError(f"Tinker samples without {', '.join(sorted(params))}")
        result = await self.policy.sampling_client.sample_async(
            prompt=tinker.ModelInput.from_ints(ids), num_samples=1,
            sampling_params=tinker.SamplingParams(stop=stops or ([texts] if isinstance(texts, str) else list(texts)) or None, **known))
        one = result.sequences[0]
        if one.logprobs is None:
            raise ValueError("Tinker told no log-probabilities")
        return Sampled(list(one.tokens), list(one.logprobs), one.stop_reason)


def trajectory_of(export: Export) -> Any:
    """Converts a rollout to the cookbook's Trajectory: a transition for each trained answer, branch by branch, with
    the reward at the last."""
    turns, (first, *_) = list(trained_turns(export, "tinker-cookbook")), list(export)
    last = len(turns) - 1
    transitions = [
        Transition(ob=tinker.ModelInput.from_ints(turn.prompt_ids), ac=TokensWithLogprobs(turn.ids, turn.logprobs, stop_of(turn.told)),
                   reward=float(first.reward or 0.0) if i == last else 0.0, episode_done=i == last,
                   metrics=numbers_of(first.reward_info) if i == last else {})
        for i, turn in enumerate(turns)]
    cut = any(t.truncated for t in export)
    return CookbookTrajectory(transitions, tinker.ModelInput.from_ints(turns[-1].prompt_ids + turns[-1].ids),
                              StopReason.MAX_TOKENS if cut else StopReason.COMPLETED)


def stop_of(told: Mapping[str, Any]) -> str:
    return "length" if told["finish_reason"] == "length" else "stop"

"""prime-rl: an environment of verifiers whose episodes run behind the gateway. In prime-rl's orchestrator TOML, per source:

    [[train.source]]
    env.id = "rollgate-prime-rl"                # the module beside this package
    env.runner = "swe"                          # as the executors offer it
    env.url = "http://gateway:8600"             # else ROLLGATE_URL; keys by ROLLGATE_KEY or ROLLGATE_KEY_FILE
    env.group = {attempts = 2, run_timeout_s = 1800}
    env.taskset.id = "gsm8k"

prime-rl keeps tasks, groups, advantages and its dispatcher; env servers run this class in place of a harness. A task's
data is the runner's input. Contract: verifiers a60a606, v1/env.py (Env.run_episode), v1/episode.py, v1/trace.py (Trace, Branch),
v1/graph.py (MessageNode); prime-rl 559b447, orchestrator/trajectories.py (trace_to_samples), orchestrator/envs.py and
its configs/orchestrator.py (sampling).
"""
from __future__ import annotations

from typing import Any, Callable, Mapping, Optional

import verifiers.v1 as vf

from .hooks import SAMPLING, Hook, RolloutFailed
from .retries import key_from_environment
from .trajectory import Trajectory

NAMES = {"max_completion_tokens": "max_tokens"}     # in addition to those of every trainer
NOT_OURS = ("cache_salt", "return_token_ids", "reasoning_effort")     # fields of the gateway's engine, its ids, and its agents


def sampling_of(given: Any) -> dict[str, Any]:
    """Converts a verifiers SamplingConfig to the gateway's parameters. Unknown fields of extra_body are passed to the
    engine."""
    all_ = given.model_dump(exclude_none=True, exclude_unset=True) if given is not None else {}
    body = dict(all_.pop("extra_body", None) or {})
    for name in [k for k in body if k in SAMPLING or k in NAMES]:
        all_[name] = body.pop(name)
    out = {NAMES.get(k, k): v for k, v in all_.items() if k not in NOT_OURS}
    rest = {k: v for k, v in body.items() if k not in NOT_OURS}
    return {**out, **({"engine_extra": rest} if rest else {})}


def is_evaluation(given: Any) -> bool:
    """Reports whether prime-rl's request belongs to an evaluation: it requests log-probabilities only for training
    (configs/orchestrator.py, TrainSamplingConfig and EvalSamplingConfig)."""
    return not (given is not None and given.model_dump(exclude_none=True, exclude_unset=True).get("logprobs"))


class RollgateEnvConfig(vf.EnvConfig):
    """Settings of the environment. Its one seat is the policy. Harness and runtime are unused, because executors run
    the agent."""

    agent: vf.AgentConfig = vf.AgentConfig()
    runner: str = ""
    url: Optional[str] = None
    key: Optional[str] = None
    group: dict[str, Any] = {}
    session: dict[str, Any] = {}
    export: dict[str, Any] = {}


class RollgateEnv(vf.Env[RollgateEnvConfig]):
    """One rollout of a group of one for each task. Each branch of its session is a branch of the trace. An answer
    that branches share is trained in one of them. A failed rollout is a failed episode without traces, which prime-rl
    drops."""

    def __init__(self, config: RollgateEnvConfig):
        super().__init__(config)
        if (config.group or {}).get("reward") == "external":
            raise ValueError("prime-rl takes rewards from its environments: reward: external would leave them unknown")
        self.hook = Hook(config.runner, config.url, key_from_environment(config.key), config.group, session=config.session, export=config.export)

    async def run(self, task: Any, agents: Any) -> None:
        raise NotImplementedError("episodes run behind the gateway: run_episode")

    async def run_episode(self, task: Any, ctx: Any, *, on_trace: Optional[Callable[[Any], None]] = None,
                          on_discard: Optional[Callable[[Any], None]] = None) -> Any:
        """Returns the Episode of one rollout. Raises ValueError if its log-probabilities or ids are unknown, or it
        has images."""
        told = vf.TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash)
        episode = vf.Episode(env=vf.EnvInfo(id=self.config.env_id), task=told)
        try:
            member = await self.hook.one(task.data.model_dump(mode="json"), sampling_of(ctx.sampling),
                                         labels={"task": str(task.key or task.hash or "")}, evaluation=is_evaluation(ctx.sampling))
        except RolloutFailed as e:
            episode.errors.append(vf.Error(type="RolloutFailed", message=str(e)))
            return episode
        export = await self.hook.export(member, require_reward=True)
        trace = vf.Trace(task=told, agent=vf.AgentInfo(config=self.config.agent, name="agent"))
        for t in export:
            add_branch(trace, t, ctx.model)
        reward_info = next(iter(export)).get("reward_info") or {}
        trace.record_reward("reward", next(iter(export)).reward)
        trace.record_metrics({k: float(v) for k, v in reward_info.items()
                              if k not in ("reward", "finished") and isinstance(v, (int, float))})
        trace.info["rollgate"] = {"session": member["session_id"], "versions": [t.versions for t in export]}
        trace.is_completed, trace.ok = True, True
        trace.stop_condition = "max_output_tokens" if any(t.truncated for t in export) else None
        episode.traces.append(trace)
        episode.ok = True
        if on_trace:
            on_trace(trace)
        return episode


def message(given: Mapping[str, Any]) -> Any:
    """Converts a message of an export to verifiers' types."""
    role, content = given["role"], given.get("content") or ""
    if isinstance(content, list):
        content = "".join(part.get("text", "") for part in content)
    if role == "assistant":
        calls = [vf.ToolCall(id=c.get("id") or "", name=c["function"]["name"], arguments=c["function"]["arguments"])
                 for c in given.get("tool_calls") or []]
        return vf.AssistantMessage(content=content, reasoning_content=given.get("reasoning_content"), tool_calls=calls or None)
    if role == "tool":
        return vf.ToolMessage(tool_call_id=given.get("tool_call_id") or "", content=content)
    return vf.UserMessage(content=content) if role == "user" else vf.SystemMessage(content=content)


def add_branch(trace: Any, t: Trajectory, model: Optional[str]) -> None:
    """Adds a trajectory as a path of nodes: before each answer the messages since the last one, then the answer with
    its sampled tokens. The last of these messages has the tokens of all, including template and generation prompt.
    Concatenated they are the trajectory's ids."""
    t.without_images("prime-rl's trace, whose pictures are tensors of its own renderer,")
    if not t.has_tokens or t.response_logprobs is None:
        raise ValueError(f"session {t['session_id']}: the engine told no {'log-probabilities' if t.has_tokens else 'ids'}")
    ids, logprobs = t.ids.tolist(), t.response_logprobs.tolist()
    mask, experts = t.response_mask.tolist(), t.routed_experts
    at, parent, waiting = 0, None, []
    turns = iter(t["turns"])

    def node(content: Any, end: int, sampled: bool) -> None:
        nonlocal at, parent
        kept = [sampled and i >= t.prompt_len and bool(mask[i - t.prompt_len]) for i in range(at, end)]
        trace.nodes.append(vf.MessageNode(
            parent=parent, message=content, sampled=sampled, token_ids=ids[at:end], mask=kept,
            logprobs=[logprobs[at + i - t.prompt_len] for i, on in enumerate(kept) if on],
            routed_experts=None if experts is None else rows(experts, at, end)))
        at, parent = end, len(trace.nodes) - 1

    for m in t["messages"]:
        if not m.get("generated"):
            waiting.append(m)
            continue
        turn = next(turns)
        for k, before in enumerate(waiting):
            node(message(before), t.prompt_len + turn["start"] if k == len(waiting) - 1 else at, False)
        waiting = []
        node(message(m), t.prompt_len + turn["end"], True)
        trace.calls.append(vf.ModelCall(node=parent, model=model, finish_reason=turn["finish_reason"],
                                        usage=vf.Usage(prompt_tokens=t.prompt_len + turn["start"],
                                                       completion_tokens=turn["end"] - turn["start"])))


def rows(experts: Any, start: int, end: int) -> Any:
    """Returns the experts of the ids [start, end). The last token of all passed through no layer: the row before it
    is repeated."""
    import numpy
    part = experts[start:end]
    return part.copy() if len(part) == end - start else numpy.concatenate([part, experts[-1:]])

"""verl: an agent loop whose rollouts run behind the gateway (hook A). In verl's agent_loop_config_path YAML:

    - name: rollgate
      _target_: rollgate.verl.RollgateAgentLoop
      runner: swe                       # as the executors offer it
      url: http://gateway:8600          # else ROLLGATE_URL; keys by ROLLGATE_KEY or ROLLGATE_KEY_FILE
      group: {run_timeout_s: 1800, attempts: 2}
      session: {history: tree}          # and export: {train_once: true}; both may stand in group

and `agent_name: rollgate` in the data set, or as default_agent_loop. verl keeps n, the states of groups, rows and its
reward loop; whole groups at once: verl_manager.py. The runner's input is the row's columns, `raw_prompt`
among them. Contract: verl 1dda039, experimental/agent_loop/agent_loop.py
(AgentLoopBase, AgentLoopOutput) and trainer/ppo/v1/agent_loop_tq.py.
"""
from __future__ import annotations

import functools
import logging
import sys
import types
from typing import Any, Mapping, Optional

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput

from .hooks import Hook, RolloutFailed, group_options
from .trajectory import Trajectory

log = logging.getLogger("rollgate.verl")
OUR_COLUMNS = ("uid", "session_id", "global_steps", "index")     # fields that the group has itself


def with_select(group: Optional[Mapping[str, Any]], select: Optional[str]) -> dict[str, Any]:
    """Returns the group with a `select` setting (all or longest) in its export options. Raises ValueError if it is
    neither, or they differ."""
    out = {k: v for k, v in (group or {}).items()}
    if select is None:
        return out
    if select not in ("all", "longest"):
        raise ValueError(f"select must be all or longest, not {select!r}")
    word, export = "leaves" if select == "all" else "longest", out.get("export") or {}
    if export.get("select", word) != word:
        raise ValueError(f"select is {select!r}, and the group's export.select is {export['select']!r}: set one of them")
    return {**out, "export": {**export, "select": word}}


def is_validation(columns: Mapping[str, Any]) -> bool:
    """Reports whether a rollout belongs to verl's validation. verl informs only its own worker (`trajectory` of
    _run_agent_loop), and calls an agent loop without it, so it is read there. A column `validate` of the data wins.
    Without either it is training, which is logged once."""
    if columns.get("validate") is not None:
        return bool(columns["validate"])
    frame: Optional[types.FrameType] = sys._getframe(1)
    while frame is not None:
        said = frame.f_locals.get("trajectory") if frame.f_code.co_name == "_run_agent_loop" else None
        if isinstance(said, Mapping) and "validate" in said:
            return bool(said["validate"])
        frame = frame.f_back
    warn_once()
    return False


@functools.cache
def warn_once() -> None:
    log.warning("this verl does not say which rollouts are its validation: all count as training, so sinks get them, too. Give rows "
                "of the validation set a column `validate`")


class RollgateAgentLoop(AgentLoopBase):
    """Runs the rollout of one row as a group of one.

    on_failure: `raise` (verl ends the prompt's group as a failure) or `drop` (an empty list: the other rollouts of
    the prompt are trained). Nothing is ever padded. select: `all` (a row for every branch; verl groups by rollout) or
    `longest` (for workers that accept one output). Default: `group.export.select`, else all. A turn that branches
    share is trained in the earliest row."""

    def __init__(self, *args: Any, runner: str, url: Optional[str] = None, key: Optional[str] = None,
                 group: Optional[Mapping[str, Any]] = None, session: Optional[Mapping[str, Any]] = None,
                 export: Optional[Mapping[str, Any]] = None, on_failure: str = "raise", select: Optional[str] = None, **more: Any):
        super().__init__(*args, **more)
        self.sees = more.get("processor") is not None
        if on_failure not in ("raise", "drop"):
            raise ValueError(f"on_failure must be raise or drop, not {on_failure!r}")
        self.hook, self.on_failure = Hook(runner, url, key, with_select(group_options(group, session, export), select)), on_failure

    async def run(self, sampling_params: dict[str, Any], **columns: Any) -> Any:
        """Returns AgentLoopOutput, or a list of them. Raises RolloutFailed, or ValueError if required
        log-probabilities are missing."""
        evaluation = is_validation(columns)
        steps = columns.get("global_steps")
        steps = -1 if steps is None else int(steps)
        given = {k: v for k, v in columns.items() if k not in OUR_COLUMNS}
        labels = {"uid": str(columns.get("uid", "")), "session_index": str(columns.get("session_id", 0))}
        try:
            member = await self.hook.one(given, sampling_params, version=steps if steps >= 0 else None, labels=labels,
                                         evaluation=evaluation)
        except RolloutFailed:
            if self.on_failure == "raise":
                raise
            return []
        export = await self.hook.export(member, media="inline")
        outputs = [self.output(t, member, sampling_params, steps) for t in export]
        return outputs[0] if len(outputs) == 1 else outputs

    def output(self, t: Trajectory, member: Mapping[str, Any], sampling_params: Mapping[str, Any], steps: int) -> AgentLoopOutput:
        if not self.sees:
            t.without_images("verl without a processor of the model")
        return output_of(t, member, self.hook.external, bool(sampling_params.get("logprobs")), steps)


def output_of(t: Trajectory, member: Mapping[str, Any], external: bool, with_logprobs: bool, steps: int) -> AgentLoopOutput:
    """Converts a trajectory for verl. Raises ValueError if a reward (unless external), or required log-probabilities,
    are unknown."""
    if t.reward is None and not external:
        raise ValueError(f"session {member['session_id']} has no reward; verl scores only what has reward: external")
    logprobs = t.response_logprobs
    if logprobs is None and with_logprobs:
        raise ValueError(f"calculate_log_probs is set, and the engine of session {member['session_id']} told none")
    oldest, newest = t.versions or (steps, steps)
    told = {k: v for k, v in (t.get("reward_info") or {}).items() if k not in ("reward", "finished")}
    extra = {"min_global_steps": oldest, "max_global_steps": newest, "reward_extra_info": told}
    given: dict[str, Any] = {} if logprobs is None else {"response_logprobs": logprobs.tolist()}
    if t.routed_experts is not None:
        given["routed_experts"] = t.routed_experts.copy()    # torch needs writable memory, which does not keep a whole answer alive
    if t.reward is not None:
        given["reward_score"] = t.reward
    if t.images:
        given["multi_modal_data"] = {"images": t.pil_images()}
    return AgentLoopOutput(
        prompt_ids=t.prompt_ids.tolist(), response_ids=t.response_ids.tolist(), response_mask=t.response_mask.tolist(),
        num_turns=t.verl_num_turns, metrics=AgentLoopMetrics(generate_sequences=(member.get("timings") or {}).get("run", 0.0)),
        extra_fields=extra, **given)

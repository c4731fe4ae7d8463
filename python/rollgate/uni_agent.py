"""uni-agent: its framework and every runner stay; sessions are the gateway's. In verl's configuration:

    actor_rollout_ref.rollout.agent.agent_loop_manager_class: rollgate.uni_agent.RollgateRolloutAdapter
    actor_rollout_ref.rollout.custom.agent_framework.rollgate: {url: "http://gateway:8600"}

Contract: uni-agent 6f4a7c9, framework/entry.py (AgentFrameworkRolloutAdapter), gateway/manager.py (create_session,
finalize_session, abort_session) and gateway/session/types.py (SessionHandle, Trajectory).
"""
from __future__ import annotations

import logging
from typing import Any, Callable, Mapping, Optional

from uni_agent.framework.entry import AgentFrameworkRolloutAdapter, AgentFrameworkWorker
from uni_agent.gateway.session.types import SessionHandle, Trajectory

from . import hooks
from .calls import plain
from .errors import Retryable, RollgateError

log = logging.getLogger("rollgate.uni_agent")


class RollgateGatewayManager:
    """The three methods that uni-agent's framework calls. It can be pickled: it has settings and ids only.

    session: options of every session (docs/http.md), such as {"rollback_last_assistant": true}. Default of `history`:
    `chains`, which is uni-agent's own rule. export: options of every export (docs/trajectories.md). evaluation: the
    sessions belong to the trainer's validation."""

    def __init__(self, url: Optional[str] = None, key: Optional[str] = None, session: Optional[Mapping[str, Any]] = None,
                 export: Optional[Mapping[str, Any]] = None, evaluation: bool = False):
        self.url, self.key, self.session = url, key, {"history": "chains", **(session or {})}
        self.exports, self.evaluation = hooks.export_options(export), evaluation
        self._ours: dict[str, str] = {}     # the framework's session ids -> the gateway's

    async def create_session(self, session_id: str, sampling_params: Optional[Mapping[str, Any]] = None,
                             **metadata: Any) -> SessionHandle:
        options = hooks.session_options(self.session, sampling_params or {}, labels={"uni_agent": session_id},
                                        metadata={"session_id": session_id, **plain(metadata)}, evaluation=self.evaluation)
        made = await hooks.connect(self.url, self.key).create_session(**options)
        self._ours[session_id] = made["session_id"]
        return SessionHandle(session_id=session_id, base_url=made["base_url"], reward_info_url=made["reward_info_url"])

    def _id(self, session_id: str) -> str:
        if session_id not in self._ours:
            raise KeyError(session_id)
        return self._ours[session_id]

    async def finalize_session(self, session_id: str) -> list[Trajectory]:
        """Returns every branch as uni-agent's own Trajectory: its framework scores, selects and writes them. A turn
        that branches share is trained in the earliest."""
        options: dict[str, Any] = {**self.exports, "media": "inline"}
        export = await hooks.connect(self.url, self.key).finalize(self._id(session_id), **options)
        self._ours.pop(session_id)
        return [_trajectory(t) for t in export]

    async def abort_session(self, session_id: str) -> None:
        await hooks.connect(self.url, self.key).abort(self._id(session_id))
        self._ours.pop(session_id, None)

    async def shutdown(self) -> None:
        """Aborts the sessions that were not finalized. If the gateway refuses one, logs that and continues."""
        for session_id in list(self._ours):
            try:
                await self.abort_session(session_id)
            except Retryable:       # the others would wait as long
                raise
            except RollgateError as e:
                log.error("session %s cannot be aborted: %s", session_id, e)


def _trajectory(t: Any) -> Trajectory:
    extra = dict(t["extra_fields"])
    kept = {k: extra[k] for k in ("min_global_steps", "max_global_steps", "materialization_reason") if k in extra}
    logprobs = t.response_logprobs
    reward_info = dict(t["reward_info"] or {})
    if reward_info.get("reward") is None and t.reward is not None:      # the framework reads the reward under its other name, `score`
        reward_info["reward"] = t.reward
    pictures = {"multi_modal_data": {"images": t.pil_images()}} if t.images else {}
    return Trajectory(
        prompt_ids=t.prompt_ids.tolist(), response_ids=t.response_ids.tolist(), response_mask=t.response_mask.tolist(),
        response_logprobs=None if logprobs is None else logprobs.tolist(), reward_info=reward_info,
        num_turns=t.verl_num_turns, routed_experts=_experts(t), extra_fields=kept, **pictures)


def _experts(t: Any) -> Any:
    """Returns [T, layers, top-k], because its rows must match input_ids. The last id passed through no layer: zeros.
    None: unknown."""
    if t.routed_experts is None:
        return None
    import numpy
    return numpy.pad(t.routed_experts, ((0, 1), (0, 0), (0, 0)))


class RollgateRolloutAdapter(AgentFrameworkRolloutAdapter):
    """The adapter of uni-agent's entry, with our manager instead of its pool of gateways."""

    @classmethod
    def create(cls, *, config: Any, llm_client: Any, teacher_client: Any = None, reward_loop_worker_handles: Any = None,
               **_: Any) -> "RollgateRolloutAdapter":
        if teacher_client is not None:
            raise ValueError("a teacher policy is not supported here: its log-probabilities need the trainer's own agent loop")
        framework = config.actor_rollout_ref.rollout.custom.agent_framework
        settings = {k: framework["rollgate"][k] for k in framework["rollgate"]} if "rollgate" in framework else {}
        unknown = set(settings) - {"url", "key", "session", "export"}
        if unknown:
            raise ValueError(f"agent_framework.rollgate knows url, key, session and export, not {', '.join(sorted(unknown))}")
        def begin(evaluation: bool) -> "RollgateRolloutAdapter":
            made = cls()
            made.gateway_manager = RollgateGatewayManager(**settings, evaluation=evaluation)
            made.framework_worker = AgentFrameworkWorker.remote(
                config=config, gateway_manager=made.gateway_manager, reward_loop_worker_handles=reward_loop_worker_handles)
            return made
        training = begin(False)
        training._begin_evaluation = lambda: begin(True)
        return training

    _begin_evaluation: Optional[Callable[[], "RollgateRolloutAdapter"]] = None     # None: in the adapter of evaluations
    _evaluation: Optional["RollgateRolloutAdapter"] = None

    def _runs(self, prompts: Any) -> Any:
        """Returns the worker of a batch. Validation has a separate worker, made with its first batch, whose sessions
        are evaluations."""
        if self._begin_evaluation is None or not ("validate" in prompts and prompts["validate"]):
            return super()
        self._evaluation = self._evaluation or self._begin_evaluation()
        return self._evaluation

    def generate_sequences(self, prompts: Any) -> Any:
        return self._runs(prompts).generate_sequences(prompts)

    def generate_sequences_and_wait(self, prompts: Any) -> Any:
        return self._runs(prompts).generate_sequences_and_wait(prompts)

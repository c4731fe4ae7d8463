"""AReaL: a workflow. `trainer.train(workflow=RollgateWorkflow("swe"), ...)`, or by its import path with workflow_kwargs.

The data set's row is the runner's input. A rollout that failed is None: rejected, the others of its group are trained. Before
the first rollout under new weights the gateway is told their version, because AReaL's servers tell none. Contract: AReaL
4aef98d, api/workflow_api.py (RolloutWorkflow), infra/workflow_executor.py (check_trajectory_format),
infra/remote_inf_engine.py (GroupedRolloutWorkflow), infra/workflow_context.py (is_eval).
"""
from __future__ import annotations

import logging
from typing import Any, Mapping, Optional

from areal.api.workflow_api import RolloutWorkflow
from areal.infra import workflow_context

from . import hooks

log = logging.getLogger("rollgate.areal")
COLUMNS = ("input_ids", "loss_mask", "logprobs", "versions", "attention_mask", "rewards")
SCORES = {"teacher": "teacher_logp", "reference": "ref_logp"}   # columns for sessions with these scores


class RollgateWorkflow(RolloutWorkflow):
    """A workflow of AReaL. sampling_params: for every rollout, by the gateway's or SGLang's names. group, session,
    export: as in hooks.Hook."""

    def __init__(self, runner: str, url: Optional[str] = None, key: Optional[str] = None,
                 group: Optional[Mapping[str, Any]] = None, sampling_params: Optional[Mapping[str, Any]] = None,
                 session: Optional[Mapping[str, Any]] = None, export: Optional[Mapping[str, Any]] = None):
        if (group or {}).get("reward") == "external":
            raise ValueError("AReaL takes rewards from its workflows: reward: external would leave them unknown")
        self.hook = hooks.Hook(runner, url, key, group, session=session, export=export, one_row=True)
        self.sampling_params = dict(sampling_params or {})
        self._version: Optional[int] = None
        scores = [one.get("what", "teacher") for one in (self.hook.group.get("session") or {}).get("score") or []]
        self.columns = (*COLUMNS, *(column for what, column in SCORES.items() if what in scores))

    async def _tell_version(self, engine: Any) -> Optional[int]:
        version: Optional[int] = engine.get_version()
        if version != self._version:
            await hooks.connect(self.hook.url, self.hook.key).weight_version(version)
            self._version = version
        return version

    async def arun_episode(self, engine: Any, data: dict[str, Any]) -> Optional[dict[str, Any]]:
        """Returns the branch with the most trained tokens, of length T: `input_ids` int64, `loss_mask` int32,
        `logprobs` float32, `versions` int32 and `attention_mask` bool, all [1, T], and `rewards` float32 [1]. With
        scores of the group's sessions also `teacher_logp` and `ref_logp` float32 [1, T], for AReaL's loss and its KL
        reward."""
        import torch
        version = await self._tell_version(engine)
        try:
            member = await self.hook.one(data, self.sampling_params, version=version, evaluation=workflow_context.get().is_eval)
        except hooks.RolloutFailed as e:
            log.warning("rejected: %s", e)
            return None
        row = (await self.hook.export(member, "areal")).row(0)
        if "image_media" in row:
            raise ValueError(f"AReaL's workflow takes no images, and session {member['session_id']} shows some")
        if set(row) != set(self.columns):
            log.error("rejected: session %s has the columns %s", member["session_id"], sorted(row))
            return None
        return {name: torch.from_numpy(row[name].copy()) for name in self.columns}

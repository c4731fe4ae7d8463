"""slime: a generate function. In its arguments (and attributes set by its --custom-config-path):

    --custom-generate-function-path rollgate.slime.generate
    rollgate_runner: swe
    rollgate_url: http://gateway:8600          # else ROLLGATE_URL
    rollgate_group: {run_timeout_s: 1800}
    --dynamic-sampling-filter-path rollgate.slime.complete

One rollout gives one sample, the branch with the most trained tokens: slime's group normalisation counts samples, so several
of one rollout would shift the baseline of others (slime#1414). A group of which a rollout failed has a sample without a reward,
which slime cannot train: `complete` keeps it out of the batch, and slime takes another group. With --rollout-top-p other than 1
slime wants the ids that were kept at each step: rollgate_group: {session: {sampling_support: true}}, and engines that tell them
(docs/engines.md). Pictures become `multimodal_inputs` and, by the processor of
slime's own state, `multimodal_train_inputs`.
Contract: slime 624b824, utils/types.py (Sample), rollout/sglang_rollout.py (generate_and_rm, abort, GenerateState).
"""
from __future__ import annotations

import asyncio
from typing import Any

from slime.rollout.sglang_rollout import GenerateState

from . import samples
from .hooks import Hook

LOOK_S = 0.5
_hooks: dict[tuple[Any, ...], Hook] = {}


def complete(args: Any, samples: list[Any], **_: Any) -> bool:
    """A filter of groups for slime: keeps a group if every rollout has a sample that can be trained."""
    flat = [s for one in samples for s in (one if isinstance(one, list) else [one])]
    return not any(s.status == type(s).Status.ABORTED for s in flat)


async def generate(args: Any, sample: Any, sampling_params: dict[str, Any], evaluation: bool = False) -> Any:
    """Returns the sample of one rollout. slime reports its abort only by GenerateState.aborted, so that is checked
    while waiting."""
    hook, state = samples.hook_of(args, _hooks, one_row=True), GenerateState(args)
    supported = (hook.group.get("session") or {}).get("sampling_support")
    if sampling_params.get("top_p", 1.0) != 1.0 and not evaluation and not supported:
        raise ValueError(f"--rollout-top-p {sampling_params['top_p']} cannot be served: slime trains such samples only with "
                         "the ids that top-p kept at each step: set sampling_support in rollgate_group.session")
    given = {k: v for k, v in sampling_params.items() if k != "custom_params"}
    work = asyncio.ensure_future(samples.generate(hook, sample, given, evaluation, processor=getattr(state, "processor", None)))
    try:
        while not work.done():
            await asyncio.wait({work}, timeout=LOOK_S)
            if state.aborted and not work.done():
                work.cancel()       # cancels its group
                await asyncio.wait({work})
                return samples.refused(sample, "aborted by slime")
    except asyncio.CancelledError:
        work.cancel()
        raise
    return work.result()[0]

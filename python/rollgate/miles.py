"""miles (rollout v2): a generate function, and the hook of its abort. In its arguments and --custom-config-path YAML:

    --custom-generate-function-path rollgate.miles.generate
    --custom-agent-function-path rollgate.miles.generate     # where miles looks for `abort`
    rollgate_runner: swe
    rollgate_url: http://gateway:8600                        # else ROLLGATE_URL
    rollgate_group: {run_timeout_s: 1800}

One rollout gives a sample for each of its branches but those that a retry replaced, as miles' own server does. Siblings share
`rollout_id`, which miles aggregates by, and a turn that they share is trained in the earliest.
Contract: miles 31f1ca9,
rollout/base_types.py (GenerateFnInput, GenerateFnOutput), utils/types.py (Sample), utils/misc.py (call_agent_abort_hook).
miles v1 needs no Python: docs/trainers.md.
"""
from __future__ import annotations

from typing import Any

from miles.rollout.base_types import GenerateFnInput, GenerateFnOutput

from . import samples
from .hooks import Hook

_hooks: dict[tuple[Any, ...], Hook] = {}


async def generate(input: GenerateFnInput) -> GenerateFnOutput:
    """Returns the samples of one rollout. A failed rollout returns its sample, ABORTED and without loss."""
    sample = input.sample
    got = await samples.generate(samples.hook_of(input.args, _hooks), sample, input.sampling_params, input.evaluation,
                                 "drop_retries", getattr(input.state, "processor", None))
    rollout_id = sample.rollout_id if sample.rollout_id is not None else sample.index
    if len(got) > 1 and rollout_id is None:
        raise ValueError("several samples of one rollout need its rollout_id or index")
    for one in got if len(got) > 1 else ():
        one.rollout_id = rollout_id
    return GenerateFnOutput(samples=got)


async def abort(args: Any) -> None:
    """Cancels the rollouts that miles no longer waits for at the end of a step, including their agents."""
    for hook in _hooks.values():
        await hook.abort()

"""verl: a manager of agent loops that runs each prompt's rollouts as one group behind the gateway (hook B). In verl's
configuration:

    actor_rollout_ref.rollout.agent.agent_loop_manager_class: rollgate.verl_manager.RollgateManager
    actor_rollout_ref.rollout.custom.rollgate: {runner: swe, url: "http://gateway:8600", group: {min: 6, extra: 2}}

A prompt's agent_name selects its runner: `runner` is for data without one, or a mapping of agent_name to runner.
The group's own rules hold for a prompt then: `extra` members and `min` survivors, retries, one deadline, cancelling
what is surplus. Rows, tags, rewards of verl's own reward loop and its replay buffer stay verl's. Contract: verl 1dda039,
trainer/ppo/v1/agent_loop_tq.py
(AgentLoopManagerTQ, AgentLoopWorkerTQ._run_prompt and _agent_loop_postprocess), trainer/ppo/v1/replay_buffer.py (statuses).
"""
from __future__ import annotations

import asyncio
import logging
from typing import Any, Callable, Mapping, Optional

import ray
import transfer_queue as tq
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ, AgentLoopWorkerTQ, apply_greedy_sampling_params

from .hooks import Hook, group_options
from .retries import key_from_environment
from .verl import OUR_COLUMNS, output_of, with_select

log = logging.getLogger("rollgate.verl")
SETTINGS = ("runner", "url", "key", "group", "session", "export", "select")
SETTLED = ("finished", "partial")       # a group with fewer than its `min` is neither


def runners_of(config: Any, settings: Mapping[str, Any]) -> Callable[[Optional[str]], str]:
    """Returns the function that maps a prompt's agent_name to a runner. With one `runner`, a name in the data is a
    runner's name; verl's default name means data without a name, and selects `runner`. With a mapping of agent_name
    to runner, raises ValueError for an unknown name."""
    given = settings["runner"]
    if isinstance(given, str):
        agent = config.actor_rollout_ref.rollout.get("agent") or {}
        usual = agent.get("default_agent_loop")
        return lambda name: str(given) if name is None or usual is None or name == usual else str(name)
    runners = {str(k): given[k] for k in given}

    def selected(name: Optional[str]) -> str:
        if name is None or name not in runners:
            raise ValueError(f"agent_name {name!r} selects no runner: rollout.custom.rollgate.runner has {', '.join(runners)}")
        return str(runners[name])
    return selected


def settings_of(config: Any) -> dict[str, Any]:
    """Returns rollout.custom.rollgate of verl's configuration, with `select` in the group's export options. Raises
    ValueError if it is missing, or has an unknown name."""
    given = (config.actor_rollout_ref.rollout.get("custom") or {}).get("rollgate") or {}
    out = {k: given[k] for k in given}
    unknown = set(out) - set(SETTINGS)
    if unknown or not out.get("runner"):
        raise ValueError(f"rollout.custom.rollgate needs a runner and knows {', '.join(SETTINGS)}; "
                         f"given: {', '.join(sorted(out)) or 'nothing'}")
    group = group_options(out.get("group"), out.pop("session", None), out.pop("export", None))
    return {**out, "group": with_select(group, out.pop("select", None))}


class Worker(AgentLoopWorkerTQ.__ray_metadata__.modified_class):
    """verl's worker, which runs prompts as groups."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        given = settings_of(self.config)
        self.runner_of = runners_of(self.config, given)
        self.hook = Hook("by agent_name", given.get("url"), key_from_environment(given.get("key")), given["group"])

    async def _run_prompt(self, prompt: dict[str, Any], sampling_params: dict[str, Any], trajectory: dict[str, Any], trace: bool = False) -> None:
        """Runs one group of n. Writes its rows before its status: `finished`, or `failure` without a row."""
        uid, partition = prompt["uid"], "val" if trajectory["validate"] else "train"
        await tq.async_kv_put(key=uid, partition_id=partition, tag={"status": "running"})
        try:
            await self._run_group(prompt, sampling_params, trajectory["validate"])
            status = "finished"
        except Exception as e:
            log.error("prompt %s: %s", uid, e, exc_info=e)
            status = "failure"
        await tq.async_kv_put(key=uid, partition_id=partition, tag={"status": status})

    async def _run_group(self, prompt: dict[str, Any], sampling_params: Mapping[str, Any], validate: bool) -> None:
        rollout = self.config.actor_rollout_ref.rollout
        n = prompt.pop("__rollout_n__", rollout.val_kwargs.n if validate else rollout.n)
        params = dict(sampling_params)
        if not prompt.pop("__do_sample__", True) and not validate:
            apply_greedy_sampling_params(params)
        columns = {k: v for k, v in prompt.items() if k != "agent_name"}
        steps = int(columns["global_steps"]) if columns.get("global_steps") is not None else -1
        runner = self.runner_of(prompt.get("agent_name"))
        task = {k: v for k, v in columns.items() if k not in OUR_COLUMNS}
        labels = {"uid": str(prompt["uid"])}
        result = await self.hook.run(task, params, n=int(n), version=steps if steps >= 0 else None, labels=labels,
                                     evaluation=validate, runner=runner)
        if result["state"] not in SETTLED:
            raise RuntimeError(f"group {result['id']} is {result['state']} with {result['succeeded']} of {result['n']}")
        done = [m for m in result["members"] if m["state"] == "succeeded"]
        outputs = await asyncio.gather(*(self._outputs(m, params, steps) for m in done))
        for session_id, given in enumerate(outputs):      # [0, n), as in verl's keys, whichever members succeeded
            await self._agent_loop_postprocess(given, validate, session_id=session_id, **columns)

    async def _outputs(self, member: Mapping[str, Any], params: Mapping[str, Any], steps: int) -> list[Any]:
        export = await self.hook.export(member, media="inline")
        for t in export if getattr(self, "processor", None) is None else ():
            t.without_images("verl without a processor of the model")
        return [output_of(t, member, self.hook.external, bool(params.get("logprobs")), steps) for t in export]


class RollgateManager(AgentLoopManagerTQ):
    """verl's manager with our workers."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        settings_of(self.config)        # wrong settings fail here, not in every worker
        self.agent_loop_workers_class = ray.remote(Worker)

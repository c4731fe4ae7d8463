"""OpenRLHF: an agent executor whose rollouts run behind the gateway. The file that --train.agent_func_path names:

    from rollgate.openrlhf import RollgateExecutor

    class AgentExecutor(RollgateExecutor):
        def __init__(self):
            super().__init__("swe", url="http://gateway:8600", group={"run_timeout_s": 1800, "attempts": 2})

OpenRLHF has its vLLM inside its rollout actors: each actor serves it to the gateway (engine_server.py) and names it by
POST /admin/engines, so the gateway starts with `--engine none`. Contract: OpenRLHF 3c3be62, utils/agent.py (AgentExecutorBase.execute and
what it returns), trainer/ray/vllm_engine.py (RolloutRayActor), trainer/ppo_utils/samples_generator.py (what becomes of it).
"""
from __future__ import annotations

import asyncio
from typing import Any, Mapping, Optional

from openrlhf.utils.agent import AgentExecutorBase

from .engine_server import EngineServer, Sampled, vllm_parameters
from .hooks import Hook, connect
from .trajectory import Trajectory

# members of vLLM's SamplingParams that set a rollout's sampling
PARAMETERS = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "max_tokens",
              "min_tokens", "stop", "stop_token_ids", "seed")


class RollgateExecutor(AgentExecutorBase):
    """One sample for each rollout: the branch with the most trained tokens. A rollout that failed for good raises,
    which ends OpenRLHF's step: give groups the attempts that they need.

    engine: `served` (the actor's own vLLM) or None: the gateway has its engines, and their weights are updated
    elsewhere. host: the address at which the gateway reaches this actor."""

    def __init__(self, runner: str, url: Optional[str] = None, key: Optional[str] = None, group: Optional[Mapping[str, Any]] = None,
                 session: Optional[Mapping[str, Any]] = None, export: Optional[Mapping[str, Any]] = None,
                 engine: Optional[str] = "served", host: Optional[str] = None):
        if (group or {}).get("reward") == "external":
            raise ValueError("OpenRLHF takes rewards from its agents: reward: external would leave them unknown")
        if engine not in ("served", None):
            raise ValueError(f"engine must be served or None, not {engine!r}")
        self.hook = Hook(runner, url, key, group, session=session, export=export, one_row=True)
        self.engine, self.host = engine, host
        self._serving: Optional[asyncio.Future[None]] = None

    def is_evaluation(self, prompt: Any, label: Any) -> bool:
        """Reports whether a rollout belongs to the evaluation. OpenRLHF does not report that: override this function
        if labels or prompts show it."""
        return False

    async def execute(self, prompt: Any, label: Any, sampling_params: Any, max_length: int, hf_tokenizer: Any, llm_engine: Any,
                      images: Any = None) -> dict[str, Any]:
        """Returns OpenRLHF's sample. Raises RolloutFailed, or ValueError for images, or required log-probabilities
        that are missing."""
        if images:
            raise ValueError("OpenRLHF's images are not sent to agents: an agent brings its own")
        if self.engine:
            if self._serving is None or self._serving.get_loop() is not asyncio.get_running_loop():
                self._serving = asyncio.ensure_future(self._serve(llm_engine))
            await asyncio.shield(self._serving)
        given = {name: getattr(sampling_params, name, None) for name in PARAMETERS}
        member = await self.hook.one({"prompt": prompt, "label": label}, given, evaluation=self.is_evaluation(prompt, label))
        # OpenRLHF cuts samples at max_length, at any token; the gateway cuts whole turns
        limit: dict[str, Any] = {} if "max_tokens" in self.hook.exports else {"max_tokens": max_length}
        export = await self.hook.export(member, require_reward=True, require_trained=True, **limit)
        t = export.longest()
        t.without_images("OpenRLHF's agent sample")
        return {"prompt": prompt, "label": label, "images": None, "mm_train_inputs": None, **sample_of(t, sampling_params.logprobs is not None)}

    async def _serve(self, llm_engine: Any) -> None:
        """Serves the actor's vLLM, and registers it at the gateway. If that fails, the next rollout tries it again."""
        try:
            server = EngineServer(lambda ids, given: generate(llm_engine, ids, given))
            await server.join(connect(self.hook.url, self.hook.key), "openrlhf", self.host)
        except BaseException:
            self._serving = None
            raise


async def generate(llm_engine: Any, ids: list[int], given: Mapping[str, Any]) -> Sampled:
    """Generates one sample with the actor's engine: RolloutRayActor.generate."""
    from vllm import SamplingParams
    output = (await llm_engine.generate(ids, SamplingParams(**vllm_parameters(given), logprobs=1))).outputs[0]
    sampled = [int(t) for t in output.token_ids]
    return Sampled(sampled, [float(p[t].logprob) for t, p in zip(sampled, output.logprobs)], output.finish_reason or "stop")


def sample_of(t: Trajectory, with_logprobs: bool) -> dict[str, Any]:
    """Converts a trajectory to the members that samples_generator.py reads."""
    logprobs, info = t.response_logprobs, t.reward_info
    if with_logprobs and logprobs is None:
        raise ValueError(f"is_correction_enable wants log-probabilities, and the engine of session {t.session_id} told none")
    told = {k: float(v) for k, v in info.items() if k not in ("reward", "score", "finished") and isinstance(v, (int, float))}
    rollout = [0.0] * t.prompt_len + logprobs.tolist() if with_logprobs and logprobs is not None else None
    return {"observation_tokens": t.ids.tolist(), "action_ranges": [(t.prompt_len + a, t.prompt_len + b) for a, b in t.spans()],
            "rollout_log_probs": rollout, "reward": t.reward, "scores": float(info["score"]) if "score" in info else t.reward,
            "truncated": t.truncated, "extra_logs": told}

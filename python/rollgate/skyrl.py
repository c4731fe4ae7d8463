"""SkyRL: a generator. In a subclass of BasePPOExp:

    def get_generator(self, cfg, tokenizer, inference_engine_client):
        return RollgateGenerator("swe", url="http://gateway:8600")

Contract: SkyRL a956457, train/generators/base.py (GeneratorInput, GeneratorOutput, GeneratorInterface).
"""
from __future__ import annotations

from typing import Any, Mapping, Optional

from skyrl.train.generators.base import GeneratorInterface

from .hooks import Hook, all_or_none


class RollgateGenerator(GeneratorInterface):
    """One row for each rollout, in the order of the batch. SkyRL needs a row for every input and would train a padded
    one. So a rollout that failed for good (after its group's attempts) fails the batch: give groups the attempts that
    they need."""

    def __init__(self, runner: str, url: Optional[str] = None, key: Optional[str] = None,
                 group: Optional[Mapping[str, Any]] = None, session: Optional[Mapping[str, Any]] = None,
                 export: Optional[Mapping[str, Any]] = None):
        if (group or {}).get("reward") == "external":
            raise ValueError("SkyRL takes rewards from its generator: reward: external would leave them unknown")
        self.hook = Hook(runner, url, key, group, session=session, export=export, one_row=True)

    async def generate(self, input_batch: Mapping[str, Any]) -> dict[str, Any]:
        """Returns GeneratorOutput. Raises RolloutFailed for a rollout without training data; the others of the batch
        are cancelled."""
        n = len(input_batch["prompts"])
        rows = await all_or_none(self._row(input_batch, i) for i in range(n))
        return self._output(rows, input_batch.get("trajectory_ids"))

    async def _row(self, batch: Mapping[str, Any], i: int) -> tuple[Any, Mapping[str, Any]]:
        def of(name: str) -> Any:
            return batch[name][i] if batch.get(name) is not None else None
        ids, meta = of("trajectory_ids"), batch.get("batch_metadata")
        labels = {"instance_id": str(ids.instance_id), "repetition_id": str(ids.repetition_id)} if ids is not None else {}
        task = {"prompt": of("prompts"), "env_class": of("env_classes"), "env_extras": of("env_extras"),
                "training_phase": meta.training_phase if meta is not None else None}
        member = await self.hook.one(task, batch.get("sampling_params") or {}, labels=labels,
                                     version=meta.global_step if meta is not None else None,
                                     evaluation=meta is not None and meta.training_phase == "eval")
        export = await self.hook.export(member, require_reward=True)
        longest = export.longest()
        longest.without_images("SkyRL's generator")
        return longest, member

    def _output(self, rows: list[tuple[Any, Mapping[str, Any]]], trajectory_ids: Any) -> dict[str, Any]:
        all_ = [t for t, _ in rows]

        def every(name: str) -> bool:
            return all(getattr(t, name) is not None for t in all_)
        return {
            "prompt_token_ids": [t.prompt_ids.tolist() for t in all_], "response_ids": [t.response_ids.tolist() for t in all_],
            "loss_masks": [t.response_mask.tolist() for t in all_], "rewards": [float(t.reward) for t in all_],
            "stop_reasons": ["length" if t.truncated else "stop" for t in all_],
            "rollout_logprobs": [t.response_logprobs.tolist() for t in all_] if every("response_logprobs") else None,
            "rollout_expert_indices": [t.routed_experts.tolist() for t in all_] if every("routed_experts") else None,
            "trajectory_ids": trajectory_ids, "rollout_metrics": None, "is_last_step": None,
            "trajectory_generation_times": [(m.get("timings") or {}).get("run", 0.0) for _, m in rows]}

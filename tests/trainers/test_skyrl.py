"""SkyRL: its generator's interface, the check of its trainer, and the tensors that it makes."""
import own

own.use("skyrl", without=["ray", "transformers", "tensordict", "jaxtyping", "hydra", "vllm", "wandb", "datasets", "skyrl_gym", "peft", "accelerate",
                          "cloudpathlib", "pybase64", "torchdata"])

from skyrl.train.dataset.preprocess import convert_prompts_responses_to_batch_tensors     # noqa: E402
from skyrl.train.generators.base import BatchMetadata, GeneratorInterface, TrajectoryID     # noqa: E402
from skyrl.train.utils.trainer_utils import validate_generator_output     # noqa: E402

import rollgate.skyrl     # noqa: E402
from test_adapters import ONCE, run     # noqa: E402


def test_tensors_are_what_the_engine_sampled(place):
    generator = rollgate.skyrl.RollgateGenerator("agent", place.url, group=ONCE)
    assert isinstance(generator, GeneratorInterface)
    kinds = ["x", "yy", "zzz"]
    out = run(generator.generate({
        "prompts": [[{"role": "user", "content": k}] for k in kinds], "env_classes": ["e"] * 3, "env_extras": [{}] * 3,
        "sampling_params": {"temperature": 1.0, "max_generate_length": 64}, "trajectory_ids": [TrajectoryID("i", n) for n in range(3)],
        "batch_metadata": BatchMetadata(global_step=3, training_phase="train")}))
    validate_generator_output(3, out)
    rewards = [[0.0] * (len(ids) - 1) + [r] for ids, r in zip(out["response_ids"], out["rewards"])]
    ids, attention, _, _, masks, logprobs, _ = convert_prompts_responses_to_batch_tensors(
        0, out["prompt_token_ids"], out["response_ids"], rewards, out["loss_masks"], out["rollout_logprobs"], out["rollout_expert_indices"])
    rows = []
    for i in range(3):
        row, n = ids[i][attention[i].bool()].tolist(), len(out["response_ids"][i])
        before = len(row) - n
        rows.append((row, [0] * before + [int(m) for m in masks[i][-n:]], [0.0] * before + logprobs[i][-n:].tolist()))
    place.check(rows)

"""TRL: GRPOTrainer's own functions that call a rollout function and reward functions."""
import types
from collections import defaultdict

import own

own.use("trl", without=["transformers", "accelerate", "datasets", "peft", "deepspeed", "vllm", "liger_kernel", "huggingface_hub", "pyarrow"])

import torch     # noqa: E402
import trl.trainer.grpo_trainer as theirs     # noqa: E402
from trl.trainer.grpo_trainer import GRPOTrainer     # noqa: E402

import rollgate.trl     # noqa: E402
from test_adapters import ONCE     # noqa: E402
from test_vllm_trainers import conversation, trl_trainer     # noqa: E402


class Trainer:
    """What GRPOTrainer._generate reads of itself."""

    def __init__(self, rollouts):
        vars(self).update(vars(trl_trainer()))
        self.accelerator = types.SimpleNamespace(device="cpu", gather=lambda x: x)
        self.rollout_func, self.use_vllm, self.tools, self._metrics = rollouts, False, None, {"train": defaultdict(list)}
        self.processing_class.batch_decode = lambda ids, **_: ["x"] * len(ids)
        self.processing_class.eos_token_id = 1
        self._tokenizer = self.processing_class
        self.state.num_input_tokens_seen = 0


def test_what_it_generates_is_what_the_engine_sampled(place):
    rollouts = rollgate.trl.RollgateRollouts("agent", place.url, group=ONCE)
    prompts, completions, mask, _, logprobs, extra, *_ = GRPOTrainer._generate(Trainer(rollouts), [conversation("x"), conversation("yy")])
    rollouts.close()
    place.check([(p + c, [0] * len(p) + m, [0.0] * len(p) + lp) for p, c, m, lp in zip(prompts, completions, mask, logprobs)])
    assert extra["rollgate_reward"] == [0.5, 0.5]


def test_its_rewards_are_the_runners(place, monkeypatch):
    rollouts = rollgate.trl.RollgateRollouts("agent", place.url, group=ONCE)
    trainer = Trainer(rollouts)
    *_, extra, _, _ = GRPOTrainer._generate(trainer, [conversation("x")])
    rollouts.close()
    trainer.reward_funcs, trainer.reward_func_names, trainer.reward_processing_classes = [rollgate.trl.reward], ["reward"], [None]
    trainer.environments, trainer.args.report_to, trainer.accelerator.is_main_process = None, [], True
    trainer._log_completion_extra = trainer._log_metric = None
    monkeypatch.setattr(theirs, "gather", lambda x: x)
    inputs = [{"prompt": conversation("x"), **{k: v[0] for k, v in extra.items()}}]
    made = GRPOTrainer._calculate_rewards(trainer, inputs, [conversation("x")], [[{"role": "assistant", "content": "x"}]], [[1]])
    assert torch.equal(made, torch.tensor([[0.5]]))

"""slime: Sample, the filter's call, and what its rollout manager makes of samples."""
import types

import own

own.use("slime", without=["ray", "transformers", "sglang", "sglang_router", "wandb", "datasets", "megatron", "pybase64", "mbridge", "tensordict", "pylatexenc"])

from slime.ray.rollout import RolloutManager     # noqa: E402
from slime.rollout.filter_hub.base_types import call_dynamic_filter     # noqa: E402
from slime.utils.types import Sample     # noqa: E402

import slime.rollout.sglang_rollout as theirs     # noqa: E402

import pytest     # noqa: E402
import rollgate.slime     # noqa: E402
from test_adapters import ONCE, SAMPLES_PARAMS, run     # noqa: E402


@pytest.fixture(autouse=True)
def tokenizer(monkeypatch):
    """GenerateState, whose `aborted` the adapter watches, loads a model's tokenizer: not needed here."""
    for name in ("load_tokenizer", "load_processor"):
        monkeypatch.setattr(theirs, name, lambda *_, **__: None)
    monkeypatch.setattr(theirs, "get_rollout_num_engines", lambda args: 1)


def samples(place, *kinds):
    args = types.SimpleNamespace(rollgate_runner="agent", rollgate_url=place.url, rollgate_group=ONCE, hf_checkpoint="", rollout_temperature=1.0,
                                 sglang_server_concurrency=8, sglang_dp_size=1, rollout_top_p=1.0, rollout_top_k=-1, rollout_max_response_len=64,
                                 rollout_stop=None, rollout_stop_token_ids=None, rollout_skip_special_tokens=False)
    given = [Sample(index=i, group_index=0, prompt=[{"role": "user", "content": kind}], metadata={}) for i, kind in enumerate(kinds)]
    return [run(rollgate.slime.generate(args, one, dict(SAMPLES_PARAMS))) for one in given]


def test_train_data_is_what_the_engine_sampled(place):
    made = samples(place, "x", "y")
    args = types.SimpleNamespace(reward_key=None, advantage_estimator="grpo", rewards_normalization=False, n_samples_per_prompt=2)
    self = types.SimpleNamespace(args=args, custom_reward_post_process_func=None, custom_convert_samples_to_train_data_func=None)
    manager = getattr(RolloutManager, "__ray_actor_class__", RolloutManager)
    self._post_process_rewards = lambda s: manager._post_process_rewards(self, s)
    data = manager._convert_samples_to_train_data(self, made)
    rows = []
    for tokens, mask, logprobs in zip(data["tokens"], data["loss_masks"], data["rollout_log_probs"]):
        before = len(tokens) - len(mask)
        rows.append((list(tokens), [0] * before + list(mask), [0.0] * before + list(logprobs)))
    place.check(rows)
    assert data["rewards"] == [0.5, 0.5]


def test_its_filter_drops_groups_with_failures(place):
    whole, failed = samples(place, "x", "fails")
    args = types.SimpleNamespace()
    assert call_dynamic_filter(rollgate.slime.complete, args, [whole, whole]).keep
    assert not call_dynamic_filter(rollgate.slime.complete, args, [whole, failed]).keep and failed.status == Sample.Status.ABORTED

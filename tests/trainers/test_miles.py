"""miles: the types of a generate function, Sample, its filter, and what its rollout manager makes of samples."""
import types

import own

own.use("miles", without=["ray", "transformers", "sglang", "sglang_router", "wandb", "datasets", "megatron", "pybase64", "tensordict", "huggingface_hub",
                          "pylatexenc", "tokenizers"])

from miles.ray.rollout import train_data_conversion as theirs     # noqa: E402
from miles.rollout.base_types import GenerateFnInput     # noqa: E402
from miles.rollout.filter_hub.dynamic_sampling_filters import check_no_aborted     # noqa: E402
from miles.utils.types import Sample     # noqa: E402

import rollgate.miles     # noqa: E402
from test_adapters import ONCE, SAMPLES_PARAMS, run     # noqa: E402


def samples(place, *kinds):
    args = types.SimpleNamespace(rollgate_runner="agent", rollgate_url=place.url, rollgate_group=ONCE)
    out = []
    for i, kind in enumerate(kinds):
        given = Sample(index=i, group_index=0, prompt=[{"role": "user", "content": kind}], metadata={})
        state = types.SimpleNamespace(args=args, processor=None)
        out += run(rollgate.miles.generate(GenerateFnInput(state=state, sample=given, sampling_params=dict(SAMPLES_PARAMS), evaluation=False))).samples
    return out


def test_train_data_is_what_the_engine_sampled(place, monkeypatch):
    made = samples(place, "x", "shares")
    assert len(made) == 3 and made[1].rollout_id == made[2].rollout_id == 1
    for one in made:
        one.validate()
    monkeypatch.setattr(theirs, "_post_process_rewards", lambda args, s, **_: ([x.reward for x in s], [x.reward for x in s]))
    monkeypatch.setattr(theirs, "is_multi_lora_enabled", lambda args: False)
    data = theirs.convert_samples_to_train_data(types.SimpleNamespace(use_dynamic_global_batch_size=False), made, {}, None, None)
    rows = []
    for tokens, mask, logprobs in zip(data["tokens"], data["loss_masks"], data["rollout_log_probs"]):
        before = len(tokens) - len(mask)
        rows.append((list(tokens), [0] * before + list(mask), [0.0] * before + list(logprobs)))
    place.check(rows)
    assert data["rewards"] == [0.5] * 3 and data["rollout_ids"] == [0, 1, 1]


def test_its_filter_drops_groups_with_failures(place):
    whole, failed = samples(place, "x", "fails")
    assert check_no_aborted(types.SimpleNamespace(), [whole, whole]).keep and not check_no_aborted(types.SimpleNamespace(), [whole, failed]).keep

"""tinker and tinker-cookbook: group rollouts with the strategy, and the data that both make of them."""
import types

import own

own.use("tinker", "tinker-cookbook", without=["chz", "transformers", "pyqwest", "datasets", "blobfile", "tml_renderers", "wandb", "huggingface_hub"])

import dataclasses     # noqa: E402
import importlib.metadata     # noqa: E402

import chz     # noqa: E402
chz.chz = dataclasses.dataclass
installed = importlib.metadata.version
importlib.metadata.version = lambda name: "0.0.0" if name == "tinker" else installed(name)     # its sources are not installed

import pytest     # noqa: E402
import tinker     # noqa: E402
from tinker_cookbook.completers import TinkerTokenCompleter     # noqa: E402
from tinker_cookbook.rl.data_processing import assemble_training_data, compute_advantages     # noqa: E402
from tinker_cookbook.rl.rollout_strategy import rollout_strategy_from_config     # noqa: E402
from tinker_cookbook.rl.rollouts import do_group_rollout, do_group_rollout_and_filter_constant_reward     # noqa: E402

import gateway as g     # noqa: E402
import rollgate     # noqa: E402
from rollgate.tinker import datum     # noqa: E402
from rollgate.tinker_cookbook import RollgateGroup, RollgateStrategy     # noqa: E402
from test_adapters import ONCE, agent, run     # noqa: E402
from test_executor import Running     # noqa: E402


def row_of(d):
    """A Datum as (ids, mask, log-probabilities)."""
    get = {k: v.tolist() for k, v in d.loss_fn_inputs.items()}
    ids = d.model_input.to_ints()
    assert ids[1:] == get["target_tokens"][:-1] and d.loss_fn_inputs["target_tokens"].dtype == "int64"
    return [ids[0], *get["target_tokens"]], [0, *(float(a) != 0 for a in get["advantages"])], [0.0, *get["logprobs"]]


def test_their_data_is_what_the_engine_sampled(place):
    strategy = rollout_strategy_from_config(RollgateStrategy("agent", place.url, group=ONCE, engine=None))
    policy = TinkerTokenCompleter(None, max_tokens=64, temperature=0.5)
    group = run(do_group_rollout(RollgateGroup("shares", n=2), policy, strategy=strategy))
    assert group.get_total_rewards() == [0.5, 0.5] and [float(a) for a in compute_advantages([group])[0]] == [0.0, 0.0]
    data, of = assemble_training_data([group], [[1.0, 2.0]])
    assert len(data) == 4 and [x["traj_idx"] for x in of] == [0, 0, 1, 1], "two branches of each rollout"
    assert all((float(a) != 0) == (m != 0) for d in data for a, m in zip(d.loss_fn_inputs["advantages"].tolist(), d.loss_fn_inputs["mask"].tolist()))
    place.check([row_of(d) for d in data])


def test_our_data_is_theirs(place):
    strategy = RollgateStrategy("agent", place.url, group=ONCE, engine=None)
    group = run(do_group_rollout(RollgateGroup("x"), TinkerTokenCompleter(None, max_tokens=64), strategy=strategy))
    (data,), _ = assemble_training_data([group], [[2.0]])
    with rollgate.Client(place.url) as client:
        (session,) = client.all_sessions()
        (ours,) = [datum(t, 2.0) for t in client.trajectories(session["session_id"])]
    assert row_of(ours) == row_of(data) and ours.model_input == data.model_input
    place.check([row_of(ours)])


class SamplingClient:
    async def sample_async(self, prompt, num_samples, sampling_params):
        assert type(sampling_params) is tinker.SamplingParams and sampling_params.stop == [257, 258] and num_samples == 1
        one = tinker.types.SampledSequence(stop_reason="stop", _tokens_list=[40 + prompt.length % 9, 41, 257], _logprobs_list=[-0.5, -0.25, -0.125])
        return types.SimpleNamespace(sequences=[one])


def test_their_sampling_client_samples(start):
    gateway = start(engine="none", model=g.MODELS / "chatml-bytes")
    strategy = RollgateStrategy("agent", gateway.url, group=ONCE, host="127.0.0.1")
    with Running(gateway, agent):
        group = run(do_group_rollout_and_filter_constant_reward(SamplingClient(), RollgateGroup("x", n=2), 64, 1.0, False, strategy=strategy))
    for t in group.trajectories_G:
        (one,) = t.transitions
        assert one.ac.tokens == [40 + one.ob.length % 9, 41, 257] and one.ac.logprobs == pytest.approx([-0.5, -0.25, -0.125])


def test_their_skipping_of_groups(place):
    strategy = RollgateStrategy("agent", place.url, group=ONCE, engine=None, on_failure="drop")
    ran = do_group_rollout_and_filter_constant_reward(None, RollgateGroup("fails"), 64, 1.0, False, strategy=strategy)
    assert run(ran) is None

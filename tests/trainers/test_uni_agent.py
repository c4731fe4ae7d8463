"""uni-agent: its session types, and the fields that its framework puts into TransferQueue."""
import asyncio
import types

import own

own.use("uni-agent", "verl", without=["ray", "hydra", "transformers", "tensordict", "transfer_queue", "codetiming", "wandb", "datasets", "torchdata", "peft"])

import uni_agent.framework.framework as theirs     # noqa: E402
from uni_agent.gateway.session.types import SessionHandle, Trajectory     # noqa: E402

import rollgate.uni_agent     # noqa: E402
from rollgate import hooks     # noqa: E402
from test_adapters import PARAMS, run     # noqa: E402


def test_fields_are_what_the_engine_sampled(place):
    manager = rollgate.uni_agent.RollgateGatewayManager(place.url)

    async def session():
        handle = await manager.create_session("u1_0", sampling_params=PARAMS)
        assert type(handle) is SessionHandle
        client, sid = hooks.connect(place.url), handle.base_url.split("/sessions/")[1].split("/")[0]
        first = [{"role": "user", "content": "one"}]
        first.append((await client.chat(sid, first))["choices"][0]["message"])
        for how in ("left", "right"):
            await client.chat(sid, [*first, {"role": "user", "content": how}])
        await client.reward(sid, {"score": 0.25, "finished": True})
        return await manager.finalize_session("u1_0")
    made = run(session())
    assert all(type(t) is Trajectory for t in made)
    framework = next(c for c in vars(theirs).values() if isinstance(c, type) and "_trajectory_to_tq_field_and_tag" in vars(c))
    rows = []
    for t in made:
        t.reward_score = t.reward_info["reward"]
        self = types.SimpleNamespace(_mask_unfinished_episode=True, _processor=None)
        field, tag = framework._trajectory_to_tq_field_and_tag(self, trajectory=t, sample_fields={"uid": "u1"}, session_index=0, global_steps=7, uid="u1")
        before = field["prompts"].shape[0]
        rows.append((field["input_ids"].tolist(), [0] * before + field["loss_mask"].tolist(), [0.0] * before + field["rollout_log_probs"].tolist()))
        assert float(field["rm_scores"].sum()) == 0.25 and (tag["min_global_steps"], tag["max_global_steps"]) == (7, 7)
    place.check(rows)
    assert asyncio.iscoroutinefunction(manager.abort_session)

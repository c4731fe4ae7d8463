"""agent-lightning: its server, its rollout manager and its adapter to verl's rows, with the controller between them."""
import asyncio
import types

import own

own.use("agent-lightning", without=["hydra", "ray", "verl", "tensordict", "httpx_retries", "wandb", "pyarrow"])

import fastapi.routing     # noqa: E402
import httpx     # noqa: E402
import pytest     # noqa: E402

told = fastapi.routing.get_typed_return_annotation      # Debian's takes `-> "None"` for a body
fastapi.routing.get_typed_return_annotation = lambda call: None if told(call) is type(None) else told(call)

from agentlightning.schemas import TERMINAL_STATES, Rollout, RolloutCreate     # noqa: E402
from agentlightning.server.app import create_app     # noqa: E402
from agentlightning.verl import agl_rollout_manager as theirs     # noqa: E402
from agentlightning.verl.rollout_adapter import RolloutAdapter     # noqa: E402

import rollgate.agent_lightning     # noqa: E402
from test_adapters import ONCE, evaluations, run     # noqa: E402

PROXY = {"model_name": "policy", "train": {"temperature": 1.0}, "val": {"temperature": 0.0}}


async def completed(place, rollouts):
    """Submits them to their server, runs the controller until they have ended, and gives their manager's CompletedRollout of each."""
    app = create_app({"key": "k", "default_proxy": PROXY})

    def client():
        return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://agl", headers={"Authorization": "Bearer k"})
    controller = rollgate.agent_lightning.RollgateController("agent", "http://agl", "k", place.url, group=ONCE, poll_s=0.02)
    await controller.api.aclose()
    controller.api = client()
    work = asyncio.ensure_future(controller.run())
    async with client() as api:
        sent = await api.post("/api/rollouts", json=[r.model_dump(mode="json", exclude_none=True) for r in rollouts])
        out = []
        for made in map(Rollout.model_validate, sent.json()):
            while (rollout := Rollout.model_validate((await api.get(f"/api/rollouts/{made.rollout_id}")).json()["rollout"])).status.state not in TERMINAL_STATES:
                await asyncio.sleep(0.02)
            events = [(await api.get(f"/api/rollouts/{made.rollout_id}/events", params=p)).json() for p in ({}, {"format": "triplet"})]
            self = types.SimpleNamespace(_fetch_rollout_events=lambda _: [[theirs.Event.model_validate(e) for e in es] for es in events])
            enqueued = theirs.EnqueuedRollout(data_id="d", rollout_id=made.rollout_id, step=0, sample_idx_in_step=len(out), enqueue_time=0.0)
            out.append(theirs.AglRolloutManagerBase._build_completed_rollout(self, enqueued, rollout))
    controller.stop()
    await work
    return out


@pytest.mark.parametrize("level", ["transition", "trajectory"])
def test_rows_are_what_the_engine_sampled(place, monkeypatch, level):
    made = run(completed(place, [RolloutCreate(input="shares"), RolloutCreate(input="x")]))
    assert [r.final_reward for r in made] == [0.5, 0.5] and [len(r.triplets) for r in made] == [5, 1]
    rows = []
    monkeypatch.setattr("agentlightning.verl.rollout_adapter.TensorDict", lambda batch, **_: batch)
    monkeypatch.setattr("agentlightning.verl.rollout_adapter.DataProto", lambda batch: types.SimpleNamespace(batch=batch, non_tensor_batch={}))
    import torch
    adapter = RolloutAdapter(max_prompt_length=200, max_response_length=400, device=torch.device("cpu"), pad_token_id=0, trace_aggregator_level=level)
    batch = adapter.get_train_data_batch(made)[0].batch
    for i in range(len(batch["input_ids"])):
        prompt = batch["prompts"][i][batch["attention_mask"][i][:200].bool()].tolist()
        n = int(batch["attention_mask"][i][200:].sum())
        mask = batch["response_mask"][i][:n].tolist() if "response_mask" in batch else [1] * n
        rows.append((prompt + batch["responses"][i][:n].tolist(), [0] * len(prompt) + mask, [0.0] * len(prompt) + batch["rollout_log_probs"][i][:n].tolist()))
    assert len(rows) == {"transition": 6, "trajectory": 3}[level]
    place.check(rows)


def test_states_and_evaluations(place):
    failed, checked = run(completed(place, [RolloutCreate(input="fails"), RolloutCreate(input="x", is_train=False)]))
    assert failed.rollout_state == "failed" and failed.triplets == [] and "the agent broke" in failed.error_message
    assert checked.rollout_state == "succeeded" and evaluations(place) == 1

"""verl: AgentLoopOutput, which validates its types, and what its agent loop's worker puts into TransferQueue."""
import types

import own

own.use("verl", without=["ray", "hydra", "transformers", "tensordict", "transfer_queue", "codetiming", "wandb", "datasets", "torchdata", "peft", "pyvers",
                         "accelerate"])

import pytest     # noqa: E402
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput     # noqa: E402
from verl.trainer.ppo.v1 import agent_loop_tq as theirs     # noqa: E402

import rollgate.verl     # noqa: E402
from test_adapters import COLUMNS, ONCE, PARAMS, run     # noqa: E402


async def nothing(*_, **__):
    pass


@pytest.fixture
def queue(monkeypatch):
    """What is written to TransferQueue."""
    written = []

    async def put(keys, fields, tags, partition_id):
        written.extend(zip(keys, fields, tags, [partition_id] * len(keys)))
    monkeypatch.setattr(theirs, "list_of_dict_to_tensordict", lambda fields: fields)
    monkeypatch.setattr(theirs.tq, "async_kv_batch_put", put, raising=False)
    return written


@pytest.mark.parametrize("kind", ["x", "shares"])
def test_rows_are_what_the_engine_sampled(place, queue, kind):
    loop = rollgate.verl.RollgateAgentLoop.__new__(rollgate.verl.RollgateAgentLoop)
    base = rollgate.verl.RollgateAgentLoop.__mro__[1]
    made, base.__init__ = base.__init__, lambda self, *_, **__: None     # which reads a whole trainer's config
    try:
        loop.__init__(trainer_config=None, server_manager=None, tokenizer=None, processor=None, dataset_cls=None, data_config=None, runner="agent",
                      url=place.url, group=ONCE)
    finally:
        base.__init__ = made
    out = run(loop.run(PARAMS, **COLUMNS, tools_kwargs={"kind": kind}))
    assert all(type(one) is AgentLoopOutput for one in (out if isinstance(out, list) else [out]))
    worker = types.SimpleNamespace(_compute_score=nothing, _compute_teacher_logprobs=nothing, _compute_multi_modal_inputs=lambda *_: {},
                                   _compute_position_ids=lambda ids, mask, _: mask)
    cls = getattr(theirs.AgentLoopWorkerTQ, "__ray_metadata__", None)
    cls = cls.modified_class if cls else theirs.AgentLoopWorkerTQ
    run(cls._agent_loop_postprocess(worker, out, False, **COLUMNS))
    rows = []
    for i, (key, field, tag, partition) in enumerate(queue):
        before = field["prompts"].shape[0]
        rows.append((field["input_ids"].tolist(), [0] * before + field["loss_mask"].tolist(), [0.0] * before + field["rollout_log_probs"].tolist()))
        assert key == f"u_1_3_{i}" and partition == "train" and (tag["min_global_steps"], tag["max_global_steps"]) == (7, 7)
        assert float(field["rm_scores"].sum()) == 0.5
    assert len(rows) == {"x": 1, "shares": 2}[kind]
    place.check(rows)

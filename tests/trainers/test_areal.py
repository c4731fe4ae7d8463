"""AReaL: its workflow's base, the check of its executor, and the batch that it makes."""
import types

import own

own.use("areal", without=["ray", "transformers", "tensordict", "hydra", "wandb", "datasets", "swanlab", "torchdata", "megatron", "trackio", "peft", "einops",
                          "flask", "werkzeug", "lark", "numba", "openai", "tenacity", "setproctitle"])

import torch.distributed.checkpoint.staging as staging     # noqa: E402
import torch.distributed.checkpoint.state_dict_saver as saver     # noqa: E402

import stand_ins     # noqa: E402

for module, names in ((staging, ("DefaultStager", "StagingOptions")), (saver, ("AsyncCheckpointerType", "AsyncSaveResponse"))):
    for lacking in names:       # of a later torch
        setattr(module, lacking, stand_ins.named(lacking))

from areal.api.workflow_api import RolloutWorkflow     # noqa: E402
from areal.infra import workflow_context     # noqa: E402
from areal.infra.workflow_executor import check_trajectory_format     # noqa: E402
from areal.utils.data import concat_padded_tensors     # noqa: E402

import rollgate.areal     # noqa: E402
from test_adapters import ONCE, evaluations, run     # noqa: E402

KEEPS_CONNECTIONS = True        # its loggers open files


def test_the_batch_is_what_the_engine_sampled(place):
    workflow = rollgate.areal.RollgateWorkflow("agent", place.url, group=ONCE, sampling_params={"temperature": 1.0})
    assert isinstance(workflow, RolloutWorkflow)
    engine = types.SimpleNamespace(get_version=lambda: 7)
    made = [run(workflow.arun_episode(engine, {"question": kind})) for kind in ("x", "y")]
    keys = set(made[0])
    assert all(check_trajectory_format(one, batch_size=1, expected_keys=keys) for one in made)
    batch = concat_padded_tensors(made)
    rows = []
    for i in range(2):
        on = batch["attention_mask"][i].bool()
        rows.append((batch["input_ids"][i][on].tolist(), batch["loss_mask"][i][on].tolist(), batch["logprobs"][i][on].tolist()))
        assert set(batch["versions"][i][on].tolist()) == {-1, 7}
    assert batch["rewards"].tolist() == [0.5, 0.5]
    place.check(rows)
    assert check_trajectory_format(run(workflow.arun_episode(engine, {"question": "fails"}))), "None: rejected"


def test_its_evaluation_is_ours(place):
    workflow = rollgate.areal.RollgateWorkflow("agent", place.url, group=ONCE)

    async def evaluate():
        workflow_context.set(workflow_context.WorkflowContext(is_eval=True, task_id=7))
        return await workflow.arun_episode(types.SimpleNamespace(get_version=lambda: 7), {"question": "x"})
    assert run(evaluate()) is not None and evaluations(place) == 1

"""rLLM: the manager that it makes, and TraceRecord, which validates its types."""
import asyncio
import types

import own

own.use("rllm", without=["ray", "transformers", "datasets", "wandb", "hydra", "tensordict", "verl"])

from rllm.gateway import manager as theirs     # noqa: E402
from rllm_model_gateway.models import TraceRecord     # noqa: E402

import rollgate.rllm     # noqa: E402


def test_traces_are_what_the_engine_sampled(place):
    rollgate.rllm.install(url=place.url)
    manager = theirs.GatewayManager({"rllm": {}}, mode="process")
    manager.start(types.SimpleNamespace(train_sampling_params={"temperature": 0.5}, val_sampling_params={}))
    manager.create_session("task:0")
    sid = manager.get_session_url("task:0").split("/sessions/")[1].split("/")[0]
    messages = [{"role": "user", "content": "one"}]
    for _ in range(3):
        answer = manager.client.chat(sid, messages)
        messages += [answer["choices"][0]["message"], {"role": "user", "content": "more"}]
    traces = asyncio.run(manager.aget_traces("task:0"))
    assert len(traces) == 3 and all(type(t) is TraceRecord for t in traces)
    place.check([(t.prompt_token_ids + t.completion_token_ids, [0] * len(t.prompt_token_ids) + [1] * len(t.completion_token_ids),
                  [0.0] * len(t.prompt_token_ids) + t.logprobs) for t in traces])
    assert all(TraceRecord.model_validate_json(t.model_dump_json()) == t and t.weight_version == 7 for t in traces)
    manager.stop()

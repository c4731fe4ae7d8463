"""NeMo Gym: an agent server behind its own FastAPI application, its models, and its check that prompts go on."""
import importlib
import typing

import own

own.use("nemo-gym", without=["ray", "hydra", "wandb", "mlflow", "datasets", "devtools", "gprof2dot", "pydot", "mcp", "git", "yappi"])

import openai.types.chat     # noqa: E402
import openai.types.responses     # noqa: E402
import pydantic     # noqa: E402
import pytest     # noqa: E402

import stand_ins     # noqa: E402



# Debian's openai is older than NeMo Gym's: kinds of items that it lacks match nothing
def lacking(name):
    annotations = {"type": typing.Literal[f"not of this openai: {name}"]}
    if name.endswith("Param") or name in ("Annotation", "Logprob"):
        return typing.TypedDict(name, annotations)
    return type(name, (pydantic.BaseModel,), {"__annotations__": annotations, "__module__": __name__})


def import_with_what_lacks(name):
    """The module; what openai's modules lack for it is made. At most 60 names."""
    for _ in range(60):
        try:
            return importlib.import_module(name)
        except ImportError as e:
            if not (e.name or "").startswith("openai"):
                raise
            what = str(e).split("'")[1]
            setattr(importlib.import_module(e.name), what, lacking(what))
    raise AssertionError("openai lacks too much")


stand_ins.install(["openai"], makes=lacking)
theirs = import_with_what_lacks("nemo_gym.openai_utils")

import fastapi.testclient     # noqa: E402
from nemo_gym.base_resources_server import BaseVerifyResponse     # noqa: E402
from nemo_gym.server_utils import ServerClient     # noqa: E402
from nemo_gym.token_id_capture.builder import assert_prefix_contiguity     # noqa: E402

import rollgate.nemo_gym     # noqa: E402
from test_adapters import ONCE     # noqa: E402


@pytest.fixture
def server(place):
    """An agent server as its run_webserver() makes it, in this process."""
    def make(**more):
        config = rollgate.nemo_gym.RollgateAgentConfig(name="rollgate_agent", host="127.0.0.1", port=1, entrypoint="app.py", runner="agent", url=place.url,
                                                       group=ONCE, **more)
        agent = rollgate.nemo_gym.RollgateAgent(config=config, server_client=ServerClient.model_construct(global_config_dict={}))
        return fastapi.testclient.TestClient(agent.setup_webserver())
    return make


def test_responses_are_what_the_engine_sampled(place, server):
    with server() as client:
        answers = [client.post("/run", json={"responses_create_params": {"input": kind, "temperature": 0.5}, "task_id": 7}) for kind in ("x", "yy")]
    rows = []
    for answer in answers:
        assert answer.status_code == 200, answer.text
        told = answer.json()
        assert told["reward"] == 0.5 and told["task_id"] == 7 and BaseVerifyResponse.model_validate(told).reward == 0.5
        assert_prefix_contiguity(told["response"])
        (item,) = [theirs.NeMoGymResponseOutputMessageForTraining.model_validate(i) for i in told["response"]["output"]]
        before = len(item.prompt_token_ids)
        rows.append((item.prompt_token_ids + item.generation_token_ids, [0] * before + [1] * len(item.generation_token_ids),
                     [0.0] * before + item.generation_log_probs))
    place.check(rows)


def test_a_conversation_goes_on(place, server):
    with server() as client:
        told = client.post("/run", json={"responses_create_params": {"input": "shares"}}).json()
    assert_prefix_contiguity(told["response"])
    trained = [i for i in told["response"]["output"] if i.get("generation_token_ids")]
    assert len(trained) == 3 and theirs.NeMoGymResponse.model_validate(told["response"]).output
    ids, mask, logprobs = [], [], []
    for i in trained:
        between = i["prompt_token_ids"][len(ids):]
        ids = i["prompt_token_ids"] + i["generation_token_ids"]
        mask += [0] * len(between) + [1] * len(i["generation_token_ids"])
        logprobs += [0.0] * len(between) + i["generation_log_probs"]
    place.check([(ids, mask, logprobs)], each_once=False)


def test_failures_are_errors(server):
    with server() as client, pytest.raises(rollgate.hooks.RolloutFailed, match="the agent broke"):
        client.post("/run", json={"responses_create_params": {"input": "fails"}})

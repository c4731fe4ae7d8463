"""Trainers that take calls instead of rows (NeMo Gym, Tinker, agent-lightning): their adapters against fakes written from their
contracts. tests/trainers runs the same adapters against the trainers' own modules."""
import asyncio
import dataclasses
import json
import types

import pytest

import gateway as g
import rollgate
from rollgate import hooks
from test_adapters import EXPORT, ONCE, SESSION, adapter, agent, evaluations, fake, place, run     # noqa: F401
from test_executor import Running
from test_vllm_trainers import engines_of, prompts_and_samples

SAMPLED = [40, 41, 42, 1]


def contiguous(items):
    """NeMo Gym's assert_prefix_contiguity; the trained items."""
    seen, trained = [], [i for i in items if i.get("generation_token_ids")]
    for item in trained:
        assert item["prompt_token_ids"][:len(seen)] == seen
        seen = item["prompt_token_ids"] + item["generation_token_ids"]
    return trained


# --- what they share ---

def test_turns_are_what_the_engine_saw_and_sampled(place):
    hook = hooks.Hook("agent", place.url, group=ONCE)
    export = run(exported(hook, "shares"))
    turns = list(hooks.trained_turns(export, "a trainer"))
    assert sorted((t.prompt_ids, t.ids) for t in turns) == sorted(prompts_and_samples(place)) and len(turns) == 5, "the shared one once"
    assert all(len(t.logprobs) == 4 and t.told["finish_reason"] == "stop" for t in turns)


async def exported(hook, task):
    return await hook.export(await hook.one(task, {}))


def test_turns_that_cannot_be_taken_whole_are_refused():
    def trajectory(**more):
        return rollgate.Trajectory({"prompt_ids": [1, 2], "response_ids": [3, 4], "response_mask": [1, 1], "response_logprobs": [-1.0, -1.0],
                                    "session_id": "s", "turns": [{"response_id": "r", "start": 0, "end": 2}], **more})
    assert next(hooks.trained_turns([trajectory()], "T"))[:3] == ([1, 2], [3, 4], [-1.0, -1.0])
    assert not list(hooks.trained_turns([trajectory(response_mask=[0, 0])], "T"))
    for wrong, why in (({"response_mask": [0, 1]}, "answer r is trained in part, and T trains whole answers"), ({"response_logprobs": None}, "no log-prob"),
                       ({"routed_experts": bytes(range(6)), "routed_experts_shape": [3, 2, 1], "routed_experts_dtype": "uint8"}, "no place for them")):
        with pytest.raises(ValueError, match=why):
            list(hooks.trained_turns([trajectory(**wrong)], "T"))


# --- NeMo Gym 07d6b0d: nemo_gym/base_responses_api_agent.py, base_resources_server.py ---

class Given:
    """A pydantic model as far as the adapter goes."""

    def __init__(self, **given):
        vars(self).update(given)

    def model_post_init(self, context):
        pass

    def model_dump(self, **_):
        return {k: vars(v) if isinstance(v, Given) else v for k, v in vars(self).items()}

    @classmethod
    def model_validate(cls, given):
        return cls(**given)


@pytest.fixture
def gym(monkeypatch, place):
    fake(monkeypatch, "fastapi", Body=lambda: None)
    fake(monkeypatch, "pydantic", ConfigDict=dict, PrivateAttr=lambda: None)
    fake(monkeypatch, "nemo_gym.base_resources_server", BaseRunRequest=Given, BaseVerifyResponse=Given)
    fake(monkeypatch, "nemo_gym.base_responses_api_agent", BaseResponsesAPIAgentConfig=Given, SimpleResponsesAPIAgent=Given)
    fake(monkeypatch, "nemo_gym.openai_utils", NeMoGymResponse=Given, NeMoGymResponseCreateParamsNonStreaming=Given)
    module = adapter(monkeypatch, "nemo_gym")

    def make(**more):
        agent_server = module.RollgateAgent(config=module.RollgateAgentConfig(**{"runner": "agent", "url": place.url, "group": ONCE, **more}))
        agent_server.model_post_init(None)
        return agent_server

    def ask(kind, **params):
        asked = {"input": kind, "temperature": 0.25, "top_p": None, "max_output_tokens": 32, "model": None, "parallel_tool_calls": True, "tools": [],
                 "tool_choice": "auto", **params}
        return module.RunRequest(responses_create_params=Given(**asked), task_id=7)
    return make, ask


def test_nemo_gym(gym, place):
    make, ask = gym
    out = run(make().run(ask("shares hot")))
    assert out.reward == 0.5 and out.acc == 1 and out.task_id == 7
    items = contiguous(out.response["output"])
    assert [i["generation_token_ids"] for i in items] == [SAMPLED] * 3, "one branch, three answers"
    assert all(len(i["generation_log_probs"]) == 4 and i["role"] == "assistant" for i in items)
    assert [i["role"] for i in out.response["output"]] == ["assistant", "user", "assistant", "user", "assistant"]
    whole = [(i["prompt_token_ids"], i["generation_token_ids"]) for i in items]
    assert all(one in list(prompts_and_samples(place)) for one in whole)
    sent = place.requests[-1]["body"]["sampling_params"]
    assert sent["temperature"] == 0.25 and sent["max_new_tokens"] == 32, "the agent wanted 2.0"
    assert evaluations(place) == 0
    run(make(session={"evaluation": True}).run(ask("x")))
    assert evaluations(place) == 1


def test_nemo_gym_refuses(gym):
    make, ask = gym
    with pytest.raises(hooks.RolloutFailed, match="the agent broke"):
        run(make().run(ask("fails")))
    with pytest.raises(ValueError, match="external"):
        make(group={"reward": "external"})
    with pytest.raises(NotImplementedError, match="/run"):
        run(make().responses(None))


def test_nemo_gym_has_calls_of_tools_as_items(gym):
    import rollgate.nemo_gym as module
    turn = hooks.Turn([1], [2, 3], [-1.0, -2.0], {})
    call = {"id": "c1", "function": {"name": "f", "arguments": "{}"}}
    items = module.answer_items({"content": "", "reasoning_content": "hm", "tool_calls": [call, call]}, "r", turn)
    assert [i["type"] for i in items] == ["reasoning", "function_call", "function_call"]
    assert [i.get("generation_token_ids") for i in items] == [None, None, [2, 3]], "the last item has the ids"


# --- Tinker d595dc2; tinker-cookbook 9dfcc3a: rl/rollout_strategy.py, rl/types.py, completers.py ---

@dataclasses.dataclass
class ModelInput:
    ids: list

    @classmethod
    def from_ints(cls, ids):
        assert type(ids) is list
        return cls(ids)


class SamplingClient:
    """What a tinker.SamplingClient answers: three letters and the end, each with its own logprob."""

    def __init__(self):
        self.calls = []

    async def sample_async(self, prompt, num_samples, sampling_params):
        self.calls.append((prompt.ids, vars(sampling_params)))
        one = types.SimpleNamespace(tokens=[40 + len(prompt.ids) % 7, 41, 42, 257], logprobs=[-0.1, -0.2, -0.3, -0.4], stop_reason="stop")
        return types.SimpleNamespace(sequences=[one])


@pytest.fixture
def tinker(monkeypatch):
    def record(*names):
        return dataclasses.make_dataclass("Record", names)
    trajectory = dataclasses.make_dataclass("Trajectory", ["transitions", "final_ob", ("stop_reason", object, None)])
    fake(monkeypatch, "chz", chz=dataclasses.dataclass)
    fake(monkeypatch, "tinker", ModelInput=ModelInput, Datum=record("model_input", "loss_fn_inputs"),
         SamplingParams=type("SamplingParams", (types.SimpleNamespace,), {}))
    fake(monkeypatch, "tinker_cookbook.completers", TokensWithLogprobs=record("tokens", "logprobs", "stop_reason"))
    fake(monkeypatch, "tinker_cookbook.exceptions", AllTrajectoriesFailedError=type("AllTrajectoriesFailedError", (Exception,), {}))
    fake(monkeypatch, "tinker_cookbook.rl.rollout_strategy", RolloutResult=record("trajectories", "envs", "errors"),
         RolloutStrategy=type("RolloutStrategy", (), {}))
    fake(monkeypatch, "tinker_cookbook.rl.types", Trajectory=trajectory, RolloutError=record("error_type", "error_message"),
         StopReason=types.SimpleNamespace(MAX_TOKENS="max_tokens", COMPLETED="completed"),
         Transition=record("ob", "ac", "reward", "episode_done", "metrics"),
         **{name: type(name, (), {}) for name in ("EnvGroupBuilder", "RLDataset", "RLDatasetBuilder")})
    return adapter(monkeypatch, "tinker_cookbook")


def policy_of(client):
    return types.SimpleNamespace(sampling_client=client, temperature=0.5, max_tokens=48)


def test_a_datum_of_tinker(tinker, monkeypatch):
    t = rollgate.Trajectory({"prompt_ids": [1, 2], "response_ids": [3, 4, 5], "response_mask": [1, 0, 1], "response_logprobs": [-0.5, -9.0, -0.25],
                             "session_id": "s"})
    d = adapter(monkeypatch, "tinker").datum(t, 2.0)
    assert d.model_input.ids == [1, 2, 3, 4]
    assert d.loss_fn_inputs == {"target_tokens": [2, 3, 4, 5], "logprobs": [0.0, -0.5, 0.0, -0.25], "advantages": [0.0, 2.0, 0.0, 2.0]}


def test_tinker_cookbook_through_its_sampling_client(tinker, start):
    gateway = start(engine="none", model=g.MODELS / "chatml-bytes")
    strategy = tinker.RollgateStrategy("agent", gateway.url, group=ONCE, host="127.0.0.1")
    client, newer = SamplingClient(), SamplingClient()

    async def scene():
        with Running(gateway, agent):
            first = await strategy.execute(tinker.RollgateGroup("shares hot", n=2), policy_of(client))
            return first, await strategy.execute(tinker.RollgateGroup("x", evaluation=True), policy_of(newer))
    first, second = run(scene())
    assert engines_of(gateway) == [], "the loop that served it has ended"
    assert len(first.trajectories) == 2 and first.errors == []
    for t in first.trajectories:
        assert len(t.transitions) == 5 and [x.reward for x in t.transitions] == [0, 0, 0, 0, 0.5] and t.stop_reason == "completed"
        assert [x.episode_done for x in t.transitions] == [False] * 4 + [True] and t.transitions[-1].metrics == {"acc": 1.0}
    got = sorted((x.ob.ids, x.ac.tokens) for r in (first, second) for t in r.trajectories for x in t.transitions)
    assert got == sorted(prompts_and_samples(gateway)) and len(client.calls) == 10 and len(newer.calls) == 1
    assert all(abs(p + (i + 1) / 10) < 1e-6 for t in first.trajectories for x in t.transitions for i, p in enumerate(x.ac.logprobs))
    for _, params in client.calls:
        assert params == {"temperature": 0.5, "max_tokens": 48, "stop": [257, 258]}
    assert evaluations(gateway) == 1
    with rollgate.Client(gateway.url) as c:
        assert {c.trajectories(s["session_id"])[0].versions for s in c.all_sessions()} == {(0, 0), (1, 1)}, "one for each sampling client"


def test_tinker_cookbook_failures(tinker, place):
    def strategy(**more):
        return tinker.RollgateStrategy("agent", place.url, group=ONCE, engine=None, **more)
    failed = tinker.AllTrajectoriesFailedError
    with pytest.raises(hooks.RolloutFailed, match="the agent broke"):
        run(strategy().execute(tinker.RollgateGroup("fails"), policy_of(None)))
    with pytest.raises(failed, match="the agent broke"):
        run(strategy(on_failure="drop").execute(tinker.RollgateGroup("fails"), policy_of(None)))
    assert strategy(on_failure="drop").catches_group_errors and not strategy().catches_group_errors
    with pytest.raises(TypeError, match="runs RollgateGroup, not int"):
        run(strategy().execute(7, policy_of(None)))
    for wrong in ({"on_failure": "pad"}, {"engine": "vllm"}, {"group": {"reward": "external"}}):
        with pytest.raises(ValueError, match="on_failure|engine|external"):
            tinker.RollgateStrategy("agent", place.url, **wrong)
    with pytest.raises(ValueError, match="own process"):
        run(dataclasses.replace(strategy(), engine="tinker", pid=1).execute(tinker.RollgateGroup("x"), policy_of(None)))


def test_tinker_samples_what_it_can(tinker):
    served = tinker._Served()
    served.use(policy_of(SamplingClient()))
    asked = {"temperature": 1.0, "max_new_tokens": 4, "top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0, "stop_token_ids": [5]}
    assert run(served.sample([1, 2], asked)).finish == "stop"
    for wrong, why in (({"min_p": 0.5}, "samples without min_p"), ({"stop": ["x"]}, "at texts or at ids")):
        with pytest.raises(ValueError, match=why):
            run(served.sample([1, 2], {**asked, **wrong}))


def test_tasks_of_tinker_cookbook(tinker, tmp_path):
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps({"q": i}) + "\n" for i in range(5)))
    path = str(tmp_path / "tasks.jsonl")
    train, held_out = run(tinker.RollgateTasks(tasks=path, held_out=path, batch=2, n=4)())
    assert len(train) == 3 and [len(train.get_batch(i)) for i in range(3)] == [2, 2, 1]
    assert train.get_batch(1)[0].task == {"q": 2} and train.get_batch(1)[0].n == 4 and held_out.get_batch(0)[0].evaluation


# --- agent-lightning c632d8d: schemas.py, server/routes/{rollouts,events}.py ---

class Server:
    """agent-lightning's server: states that only go forward, events by rollout."""

    NEXT = {"queuing": {"running", "failed"}, "running": {"succeeded", "failed"}}

    def __init__(self):
        self.states, self.inputs, self.events, self.told = {}, {}, {}, {}

    def submit(self, name, kind, is_train=True):
        self.states[name], self.inputs[name], self.events[name] = "queuing", (kind, is_train), []

    def client(self, base_url, key=None):
        assert base_url == "http://agl" and key in (None, "k")
        return self

    async def aclose(self):
        pass

    def answer(self, status, body=None):
        def check():
            assert status < 400, status
        return types.SimpleNamespace(status_code=status, json=lambda: body, raise_for_status=check)

    async def get(self, path, params):
        assert path == "/api/rollouts"
        return self.answer(200, [{"rollout_id": n, "input": self.inputs[n][0], "is_train": self.inputs[n][1], "state": s}
                                 for n, s in self.states.items() if s in params["state_in"]])

    async def patch(self, path, json):
        name, status = path.rsplit("/", 1)[1], json["status"]
        if name not in self.states:
            return self.answer(404)
        if status["state"] not in self.NEXT.get(self.states[name], ()):
            return self.answer(409)
        self.states[name], self.told[name] = status["state"], status.get("error_message")
        return self.answer(200)

    async def post(self, path, json):
        name = path.split("/")[3]
        assert path == f"/api/rollouts/{name}/attempt/0/events" and self.states[name] == "running"
        self.events[name].append(json)
        return self.answer(200)


@pytest.fixture
def agl(monkeypatch):
    server = Server()

    class Rollout:
        @staticmethod
        def model_validate(d):
            return types.SimpleNamespace(**d, status=types.SimpleNamespace(state=d["state"]), config=types.SimpleNamespace(timeout_seconds=60))

    def dumped(**given):
        return types.SimpleNamespace(**given, model_dump=lambda mode, exclude_unset=False: {
            k: v.model_dump(mode) if hasattr(v, "model_dump") else v for k, v in given.items()})
    fake(monkeypatch, "agentlightning.client", AgentLightningAsyncClient=server.client)
    fake(monkeypatch, "agentlightning.schemas", DEFAULT_ATTEMPT_ID="0", EventCreate=dumped, Rollout=Rollout, RolloutPatch=dumped, RolloutStatusPatch=dumped,
         RolloutState=types.SimpleNamespace(QUEUING="queuing", RUNNING="running", SUCCEEDED="succeeded", FAILED="failed"))
    return adapter(monkeypatch, "agent_lightning"), server


def drive(module, server, place, until, **more):
    """The controller until that holds."""
    async def scene():
        controller = module.RollgateController("agent", "http://agl", "k", place.url, group=ONCE, poll_s=0.02, **more)
        work = asyncio.ensure_future(controller.run())
        while not until():
            await asyncio.sleep(0.02)
        controller.stop()
        await work
    run(scene())


def test_agent_lightning(agl, place):
    module, server = agl
    for name, kind, is_train in (("a", "shares", True), ("b", "fails", True), ("c", "x", False), ("d", "retries", True)):
        server.submit(name, kind, is_train)
    drive(module, server, place, lambda: not {"queuing", "running"} & set(server.states.values()))
    assert server.states == {"a": "succeeded", "b": "failed", "c": "succeeded", "d": "succeeded"} and "the agent broke" in server.told["b"]
    assert server.events["b"] == [] and len(server.events["a"]) == 6 and len(server.events["d"]) == 3, "a retry replaces its sibling"
    got = sorted((e["data"]["response"]["prompt_token_ids"], e["data"]["response"]["choices"][0]["token_ids"])
                 for n in ("a", "c") for e in server.events[n] if e["event_type"] == "model_request")
    assert all(one in list(prompts_and_samples(place)) for one in got) and len(got) == 6
    first = server.events["a"][0]["data"]
    assert [type(p["logprob"]) for p in first["response"]["choices"][0]["logprobs"]["content"]] == [float] * 4 and first["server"]["version"] == "7"
    assert server.events["a"][-1] == {"event_type": "reward", "data": {"value": 0.5, "source": "agent"}} and evaluations(place) == 1


def test_agent_lightning_leaves_nothing_running(agl, place):
    module, server = agl
    server.states["old"], server.inputs["old"] = "running", ("x", True)     # its controller is gone
    server.submit("deleted", "hangs")
    server.submit("stopped", "hangs")

    def running():
        with rollgate.Client(place.url) as client:
            return sum(x["running"] for x in client.list_groups()["groups"])

    def deleted():
        if "deleted" in server.states and running() == 2:
            del server.states["deleted"]
        return "deleted" not in server.states and running() == 1
    drive(module, server, place, deleted)
    g.wait_until(lambda: running() == 0, 20, "what ran is cancelled")
    assert server.states == {"old": "failed", "stopped": "failed"} and server.told["stopped"] == "cancelled"
    for wrong in ({"group": {"reward": "external"}}, {"export": {"train_once": False}}):
        with pytest.raises(ValueError, match="external|train_once"):
            module.RollgateController("agent", "http://agl", **wrong)


def test_agent_lightning_has_options_on_its_command_line(agl, monkeypatch):
    module, _ = agl
    made = []
    monkeypatch.setattr(module, "_main", lambda controller: made.append(controller) or asyncio.sleep(0))
    monkeypatch.setenv("AGL_KEY", "k")
    module.main(["swe", "--server", "http://agl", "--url", "http://gw", "--slots", "3", "--session", '{"history": "chains"}', "--export", '{"pick": "all"}'])
    assert made[0].slots == 3 and made[0].hook.group["session"] == {"history": "chains"} and made[0].hook.exports["pick"] == "all"


# --- the same options everywhere ---

def test_these_adapters_take_the_same_options(gym, tinker, agl, place):
    options = {"group": ONCE, "session": SESSION, "export": {**EXPORT, "train_once": True}}
    made = [gym[0](**options)._hook, tinker.RollgateStrategy("agent", place.url, **options).hook,
            agl[0].RollgateController("agent", "http://agl", None, place.url, **options).hook]
    for hook in made:
        member = run(hook.one("x", {"temperature": 0.25}))
        with rollgate.Client(place.url) as client:
            state = client.session(member["session_id"])
        assert state["history"] == "chains" and state["evaluation"] is True and hook.exports == options["export"]
        assert place.requests[-1]["body"]["sampling_params"]["sampling_seed"] == 5

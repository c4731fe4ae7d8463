"""Every adapter against a fake of its trainer, written from the trainer's contract, which each section names; the
rollouts run through a real gateway and a real executor, on a stub engine that tells ids and logprobs."""
import asyncio
import collections
import contextvars
import dataclasses
import enum
import importlib
import sys
import types
import typing

import numpy
import pytest

import gateway as g
import rollgate
from odds_engine import OddsEngine
from rollgate import hooks
from rollgate.executor import runner
from scoring_engine import ScoringEngine
from stub_engines import StubEngine
from test_executor import Running


def fake(monkeypatch, name, **members):
    """A module of a trainer that is not installed, and the packages above it."""
    parts = name.split(".")
    for i in range(1, len(parts) + 1):
        above = ".".join(parts[:i])
        if above not in sys.modules:
            monkeypatch.setitem(sys.modules, above, types.ModuleType(above))
    vars(sys.modules[name]).update(members)


def adapter(monkeypatch, name):
    monkeypatch.delitem(sys.modules, f"rollgate.{name}", raising=False)
    module = importlib.import_module(f"rollgate.{name}")
    monkeypatch.delitem(sys.modules, f"rollgate.{name}")
    return module


def fits(value, kind):
    """Whether a pydantic field of that type takes the value. Strings that name a number do not count as one here."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if kind is typing.Any:
        return True
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, k) for k in inner)
    if origin is list:
        return isinstance(value, list) and all(fits(x, inner[0]) for x in value)
    if origin is dict:
        return isinstance(value, dict) and all(fits(k, inner[0]) and fits(v, inner[1]) for k, v in value.items())
    if kind is float:
        return isinstance(value, (int, float))
    return isinstance(value, kind) and not (kind is int and isinstance(value, bool))


class Model:
    """Stands for pydantic's BaseModel: keywords alone, validated against the annotations; what has no field is ignored."""

    def __init_subclass__(cls):
        dataclasses.dataclass(cls, kw_only=True)
        cls.__init__ = Model.__init__

    def __init__(self, **given):
        for field in dataclasses.fields(self):
            absent = field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default
            value = given.get(field.name, absent)
            if value is dataclasses.MISSING or not fits(value, typing.get_type_hints(type(self))[field.name]):
                raise ValueError(f"{type(self).__name__}.{field.name} is a {field.type}, not {value!r:.60}")
            setattr(self, field.name, value)


HOT = {"temperature": 2.0, "top_k": 5, "min_p": 0.25, "repetition_penalty": 1.5, "presence_penalty": 0.5, "frequency_penalty": 0.5,
       "logit_bias": {"40": 5}, "bad_words": ["x"], "allowed_token_ids": [40, 41], "min_tokens": 2, "ignore_eos": True,
       "max_thinking_tokens": 3, "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}}}


@runner("agent", slots=8)
async def agent(task, session):
    """Two turns; the task says what becomes of it, wherever the trainer puts that."""
    kind = str(task.input)
    answer = await session.chat([{"role": "user", "content": "one"}], **(HOT if "hot" in kind else {}))
    if "shares" in kind:        # two branches go on from one turn, by two turns each
        first = [{"role": "user", "content": "one"}, answer["choices"][0]["message"]]
        for how in ("left", "right"):
            messages = [*first, {"role": "user", "content": how}]
            answer = await session.chat(messages)
            await session.chat([*messages, answer["choices"][0]["message"], {"role": "user", "content": "on"}])
    if "retries" in kind:
        messages = [{"role": "user", "content": "one"}, answer["choices"][0]["message"], {"role": "user", "content": "on"}]
        for _ in range(2):
            await session.chat(messages)
    if "branches" in kind:
        await session.chat([{"role": "user", "content": "another beginning"}])
    if "fails" in kind:
        raise RuntimeError("the agent broke")
    if "hangs" in kind:
        await asyncio.sleep(120)
    return None if "unscored" in kind else {"reward": 0.5, "acc": 1}


@pytest.fixture
def place(start):
    with StubEngine("sglang") as engine:
        engine.otherwise = lambda body: {"ids": [40, 41, 42, 1], "finish": "stop", "matched": 1, "version": "7"}
        gateway = start(engine=engine.setting, model=g.MODELS / "chatml-bytes")
        gateway.requests, gateway.stub = engine.requests, engine
        with Running(gateway, agent):
            yield gateway


def run(coroutine):
    async def inside():
        try:
            return await asyncio.wait_for(coroutine, 60)
        finally:
            for client in hooks.clients_of(asyncio.get_running_loop()).values():
                await client.close()
            await asyncio.sleep(0.02)
    return asyncio.run(inside())


ONCE = {"attempts": 1}

# --- what they share ---


def test_sampling_parameters_have_one_name():
    given = {"temperature": 1.0, "max_new_tokens": 9, "stop": None, "stop_token_ids": [], "skip_special_tokens": False,
             "logprobs": True}
    assert hooks.sampling(given) == {"temperature": 1.0, "max_tokens": 9}
    with pytest.raises(ValueError, match="beam_width=4 has no counterpart"):
        hooks.sampling({"beam_width": 4})
    with pytest.raises(TypeError, match=r"input.a\[1\] is a object"):
        hooks.plain({"a": [1, object()]}, "input")
    with pytest.raises(ValueError, match="which runner"):
        hooks.Hook("")
    for name, value in (("n", 8), ("runner", "other"), ("input", {}), ("queue", "train"), ("id", "x")):
        with pytest.raises(ValueError, match=f"group.{name} is {value!r}, and the trainer's own"):
            hooks.Hook("agent", group={name: value})


def test_who_waits_no_more_cancels(place):
    async def scene():
        hook = hooks.Hook("agent", place.url)
        task = asyncio.ensure_future(hook.run("hangs", {}, group_id="gone"))
        client = hooks.connect(place.url)
        while (await client.list_groups())["groups"] == [] or (await client.group("gone"))["running"] == 0:
            await asyncio.sleep(0.02)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return await client.wait_group("gone", 20)
    assert run(scene())["state"] == "cancelled"


def test_a_wait_that_fails_cancels(place, monkeypatch):
    """Nobody would hear of the group any more, and abort() would not reach it. Another's of that name is left alone."""
    async def fails(self, name, *rest):
        raise rollgate.errors.Unreachable("gone")

    async def scene():
        hook, client = hooks.Hook("agent", place.url), hooks.connect(place.url)
        with monkeypatch.context() as m, pytest.raises(rollgate.errors.Unreachable):
            m.setattr(rollgate.AsyncClient, "wait_group", fails)
            await hook.run("hangs", {}, group_id="lost")
        assert (await client.wait_group("lost", 20))["state"] == "cancelled"
        await client.put_group("theirs", queue=None, runner="agent", input="hangs", n=1)
        with pytest.raises(rollgate.RollgateError, match="409"):
            await hook.run("hangs", {}, group_id="theirs")
        assert (await client.group("theirs"))["state"] != "cancelled"
        await client.cancel_group("theirs")
    run(scene())


def test_waits_keep_no_cancellation_from_its_connection(place, monkeypatch):
    """Of a trainer that waits for more rollouts than an AsyncClient has connections."""
    real = rollgate.AsyncClient
    monkeypatch.setattr(hooks, "AsyncClient", lambda *a, **more: real(*a, **{**more, "connections": 2}))

    async def scene():
        hook = hooks.Hook("agent", place.url)
        tasks = [asyncio.ensure_future(hook.run("hangs", {}, group_id=f"g{i}")) for i in range(3)]
        client = hooks.connect(place.url)
        while sum(x["running"] for x in (await client.list_groups())["groups"]) < 3:
            await asyncio.sleep(0.02)
        assert await hook.abort() == 3
        return await asyncio.gather(*tasks, return_exceptions=True)
    failed = run(scene())
    assert all(isinstance(e, hooks.RolloutFailed) and "cancelled" in str(e) for e in failed), failed


def test_the_trainers_parameters_are_locked(place):
    run(hooks.Hook("agent", place.url).one("hot", {"temperature": 0.25, "top_p": 0.5}))
    sent = place.requests[-1]["body"]["sampling_params"]
    assert sent["temperature"] == 0.25 and sent["top_p"] == 0.5, "the agent wanted 2.0"
    run(hooks.Hook("agent", place.url).one("x", {"temperature": 0.25, "top_p": 0.5}))
    cold = place.requests[-1]["body"]["sampling_params"]
    assert sent == cold, "what the trainer does not name is neutral, whatever the agent asks"
    with rollgate.Client(place.url) as client:
        told = [n.get("dropped_fields", []) for s in client.all_sessions() for n in client.session(s["session_id"])["tree"]["nodes"]]
    assert {name for names in told for name in names} >= set(HOT), "and is told"


SETTINGS = {"labels": {"team": "b"}, "metadata": {"exp": "x"}, "sampling_params": {"seed": 5, "temperature": 0.125}}


def test_settings_stay_beside_what_the_trainer_says(place):
    """Also those of a configuration that has mappings and lists of its own (OmegaConf)."""
    group = collections.UserDict({**ONCE, "labels": collections.UserDict({"exp": "a"}), "on": collections.UserDict({"error": "drop"}),
                                  "session": collections.UserDict({**SETTINGS, "lock_sampling": collections.UserList(["temperature"])})})
    hook = hooks.Hook("agent", place.url, group=group)
    result = run(hook.run("x", {"temperature": 0.25}, labels={"index": "4"}))
    assert result["labels"] == {"exp": "a", "index": "4"}
    sent = place.requests[-1]["body"]["sampling_params"]
    assert sent["temperature"] == 0.25 and sent["sampling_seed"] == 5
    assert hook.group["on"] == {"error": "drop"} and group["session"]["sampling_params"]["temperature"] == 0.125


def check_settings(sessions):
    """Of one session that an adapter made with SETTINGS."""
    (row,) = [s for s in sessions if s["labels"].get("team") == "b"]
    assert len(row["labels"]) == 2


# --- verl: 1dda039 verl/experimental/agent_loop/agent_loop.py AgentLoopBase, AgentLoopOutput; trainer/ppo/v1/agent_loop_tq.py ---

class AgentLoopMetrics(Model):
    generate_sequences: float = 0.0
    tool_calls: float = 0.0
    compute_score: float = 0.0
    num_preempted: int = -1


class AgentLoopOutput(Model):
    prompt_ids: list[int]
    response_ids: list[int]
    response_mask: list[int]
    response_logprobs: list[float] | None = None
    routed_experts: typing.Any = None
    multi_modal_data: dict[str, typing.Any] | None = None
    reward_score: float | None = None
    num_turns: int = 0
    metrics: AgentLoopMetrics
    extra_fields: dict[str, typing.Any] = dataclasses.field(default_factory=dict)
    mm_processor_kwargs: dict[str, typing.Any] | None = None


class AgentLoopBase:
    def __init__(self, trainer_config, server_manager, tokenizer, processor, dataset_cls, data_config, hf_model_type=None,
                 **kwargs):
        self.config = trainer_config


@pytest.fixture
def verl_loop(monkeypatch, place):
    fake(monkeypatch, "verl.experimental.agent_loop.agent_loop", AgentLoopBase=AgentLoopBase, AgentLoopMetrics=AgentLoopMetrics,
         AgentLoopOutput=AgentLoopOutput)
    verl = adapter(monkeypatch, "verl")

    def make(**more):       # as hydra.utils.instantiate calls it
        return verl.RollgateAgentLoop(trainer_config=None, server_manager=None, tokenizer=None, processor=None, dataset_cls=None,
                                      data_config=None, hf_model_type="qwen3", tools=None, runner="agent", url=place.url,
                                      **{"group": ONCE, **more})
    return make


PARAMS = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "repetition_penalty": 1.0, "logprobs": True}
COLUMNS = {"uid": "u_1", "session_id": 3, "global_steps": 5, "raw_prompt": [{"role": "user", "content": "one"}], "index": 0}


def test_verl_one_row(verl_loop):
    out = run(verl_loop().run(PARAMS, **COLUMNS))
    assert len(out.response_ids) == len(out.response_mask) == len(out.response_logprobs) == 4 and sum(out.response_mask) == 4
    assert all(type(x) is int for x in out.prompt_ids + out.response_ids + out.response_mask)
    assert type(out.response_logprobs[0]) is float
    assert out.reward_score == 0.5 and out.num_turns == 3 and out.multi_modal_data is None
    # the DAPO filter reads it and raises when it is absent; staleness casts both steps to int
    assert out.extra_fields == {"min_global_steps": 7, "max_global_steps": 7, "reward_extra_info": {"acc": 1}}


def test_verl_several_rows_of_one_rollout(verl_loop):
    outs = run(verl_loop().run(PARAMS, **COLUMNS, tools_kwargs={"kind": "branches"}))
    assert isinstance(outs, list) and len(outs) == 2
    # agent_loop_tq copies reward_extra_info of the last row to the others
    assert all("reward_extra_info" in o.extra_fields and o.reward_score == 0.5 for o in outs)
    assert not isinstance(run(verl_loop(select="longest").run(PARAMS, **COLUMNS, tools_kwargs={"kind": "branches"})), list)


def test_verl_failures_are_never_padded(verl_loop):
    with pytest.raises(hooks.RolloutFailed, match="the agent broke"):
        run(verl_loop().run(PARAMS, **COLUMNS, tools_kwargs={"kind": "fails"}))
    assert run(verl_loop(on_failure="drop").run(PARAMS, **COLUMNS, tools_kwargs={"kind": "fails"})) == []
    with pytest.raises(ValueError, match="on_failure must be"):
        verl_loop(on_failure="pad")


def test_verl_unknown_reward_is_not_zero(verl_loop):
    with pytest.raises(hooks.RolloutFailed):
        run(verl_loop().run(PARAMS, **COLUMNS, tools_kwargs={"kind": "unscored"}))
    out = run(verl_loop(group={"reward": "external"}).run(PARAMS, **COLUMNS, tools_kwargs={"kind": "unscored"}))
    assert out.reward_score is None     # verl's reward loop fills it


class VerlLoopWorker:
    """How verl 1dda039 calls an agent loop (agent_loop.py AgentLoopWorker._run_agent_loop): it alone knows what a validation is."""

    def __init__(self, make):
        self.make = make

    async def _run_agent_loop(self, sampling_params, trajectory, *, agent_name, trace=True, **kwargs):
        agent_loop = self.make()
        output = await agent_loop.run(sampling_params, **kwargs)
        return output, trajectory["validate"]


def evaluations(place):
    with rollgate.Client(place.url) as client:
        return sum(s.get("evaluation", False) for s in client.all_sessions())


def test_verl_validation_is_an_evaluation(verl_loop, place, caplog):
    worker = VerlLoopWorker(verl_loop)

    async def batch(validate):
        step = {"step": 5, "sample_index": 0, "rollout_n": 0, "validate": validate}
        tasks = [asyncio.create_task(worker._run_agent_loop(dict(PARAMS), step, agent_name="rollgate", **COLUMNS)) for _ in range(2)]
        return await asyncio.gather(*tasks)
    run(batch(True))
    assert evaluations(place) == 2, "also the first batch, which verl runs before it trains"
    run(batch(False))
    assert evaluations(place) == 2 and not caplog.records
    run(verl_loop().run(PARAMS, **COLUMNS, validate=True))
    assert evaluations(place) == 3, "a column of the data says so for other workers"
    run(verl_loop().run(PARAMS, **COLUMNS))
    run(verl_loop().run(PARAMS, **COLUMNS))
    assert evaluations(place) == 3
    assert [r.message[:40] for r in caplog.records if r.name == "rollgate.verl"] == ["this verl does not say which rollouts ar"], "once"


SHARED = {"tools_kwargs": {"kind": "shares"}}


def test_a_turn_that_branches_share_is_trained_once(verl_loop, place):
    """The shared turn and two turns of each branch are 20 sampled tokens; trained with both branches it would be 24."""
    first, second = run(verl_loop().run(PARAMS, **COLUMNS, **SHARED))
    assert sum(first.response_mask) + sum(second.response_mask) == 20
    assert sum(first.response_mask) == 12
    always = run(verl_loop(group={**ONCE, "export": {"train_once": False}}).run(PARAMS, **COLUMNS, **SHARED))
    assert [sum(o.response_mask) for o in always] == [12, 12]
    longest = run(verl_loop(select="longest").run(PARAMS, **COLUMNS, **SHARED))
    assert sum(longest.response_mask) == 12, "nothing is missing from the only row"


def test_export_options_of_groups_are_obeyed(verl_loop):
    one = run(verl_loop(group={**ONCE, "export": {"select": "last", "format": "json"}}).run(PARAMS, **COLUMNS, **SHARED))
    assert sum(one.response_mask) == 12
    cut = run(verl_loop(group={**ONCE, "export": {"max_tokens": len(one.prompt_ids) + 4}}).run(PARAMS, **COLUMNS, **SHARED))
    assert len(cut.response_ids) == 4
    with pytest.raises(ValueError, match="select is 'all', and the group's export.select is 'last'"):
        verl_loop(select="all", group={"export": {"select": "last"}})


def test_trainers_of_one_row_select_one():
    with pytest.raises(ValueError, match="export.select must be longest or last, not 'leaves'"):
        hooks.Hook("agent", group={"export": {"select": "leaves"}}, one_row=True)
    assert hooks.Hook("agent", group={"export": {"select": "last"}}, one_row=True).exports["select"] == "last"
    assert hooks.Hook("agent", one_row=True).exports["select"] == "longest"


def test_validation_is_an_evaluation(place):
    """Sinks get none of it. What the settings say goes first."""
    for given, want in ((None, True), ({"evaluation": False}, False)):
        member = run(hooks.Hook("agent", place.url, group={**ONCE, **({"session": given} if given else {})}).one("x", {}, evaluation=True))
        with rollgate.Client(place.url) as client:
            assert client.session(member["session_id"]).get("evaluation", False) is want


# --- verl's manager: 1dda039 trainer/ppo/v1/agent_loop_tq.py, replay_buffer.py (keys, statuses) ---

class VerlWorker:
    """What of AgentLoopWorkerTQ a manager's worker stands on: its config, and the writer of rows."""
    queue = None        # (key, partition, what) in the order of writing

    def __init__(self, config, *_):
        self.config = config

    async def _agent_loop_postprocess(self, output, validate, **kwargs):
        outputs = output if isinstance(output, list) else [output]
        for i, one in enumerate(outputs):
            VerlWorker.queue.append((f"{kwargs['uid']}_{kwargs['session_id']}_{i}", "val" if validate else "train", one, kwargs))


class VerlManager:
    def __init__(self, config, *_):
        self.config, self.agent_loop_workers_class = config, "verl's own"


async def kv_put(key, partition_id, tag):
    VerlWorker.queue.append((key, partition_id, tag["status"], None))


@pytest.fixture
def verl_worker(monkeypatch, place):
    def remote(cls):
        return types.SimpleNamespace(__ray_metadata__=types.SimpleNamespace(modified_class=cls))

    def greedy(params):
        params.update(top_p=1.0, top_k=-1, temperature=0)
    fake(monkeypatch, "verl.experimental.agent_loop.agent_loop", AgentLoopBase=AgentLoopBase, AgentLoopMetrics=AgentLoopMetrics,
         AgentLoopOutput=AgentLoopOutput)
    fake(monkeypatch, "verl.trainer.ppo.v1.agent_loop_tq", AgentLoopManagerTQ=VerlManager, AgentLoopWorkerTQ=remote(VerlWorker),
         apply_greedy_sampling_params=greedy)
    fake(monkeypatch, "ray", remote=remote)
    fake(monkeypatch, "transfer_queue", async_kv_put=kv_put)
    monkeypatch.setattr(VerlWorker, "queue", [])
    module = adapter(monkeypatch, "verl_manager")

    def make(**given):
        agent = {"default_agent_loop": "single"}
        rollout = types.SimpleNamespace(n=2, val_kwargs=types.SimpleNamespace(n=1), get={"custom": {"rollgate": given}, "agent": agent}.get)
        config = types.SimpleNamespace(actor_rollout_ref=types.SimpleNamespace(rollout=rollout))
        manager = module.RollgateManager(config, None)
        return manager.agent_loop_workers_class.__ray_metadata__.modified_class(config, None)
    return make


def prompt_of(kind, **more):
    return {"uid": "u1", "global_steps": 5, "raw_prompt": [{"role": "user", "content": kind}], "agent_name": "single", **more}


def test_verl_manager_runs_groups(verl_worker, place):
    worker = verl_worker(runner="agent", url=place.url, group=ONCE, select="all")
    run(worker._run_prompt(prompt_of("branches"), PARAMS, {"validate": False}))
    first, *rows, last = VerlWorker.queue
    assert first == ("u1", "train", "running", None) and last == ("u1", "train", "finished", None)
    assert [r[0] for r in rows] == ["u1_0_0", "u1_0_1", "u1_1_0", "u1_1_1"], "{uid}_{session}_{index}"
    assert all(r[2].reward_score == 0.5 and r[2].extra_fields["reward_extra_info"] == {"acc": 1} for r in rows)
    assert all("agent_name" not in r[3] and r[3]["raw_prompt"] for r in rows)
    groups = place.get("/groups").json()["groups"]
    assert len(groups) == 1 and groups[0]["n"] == 2, "one group, not two"


def test_verl_manager_takes_what_verl_asks_of_one_prompt(verl_worker, place):
    worker = verl_worker(runner="agent", url=place.url, group=ONCE, select="longest")
    run(worker._run_prompt(prompt_of("branches", __rollout_n__=3, __do_sample__=False), PARAMS, {"validate": False}))
    assert [r[0] for r in VerlWorker.queue[1:-1]] == ["u1_0_0", "u1_1_0", "u1_2_0"]
    assert all(r["body"]["sampling_params"]["temperature"] == 0 for r in place.requests if "input_ids" in r["body"])
    VerlWorker.queue.clear()
    run(worker._run_prompt(prompt_of("x"), PARAMS, {"validate": True}))
    with rollgate.Client(place.url) as client:
        assert [s.get("evaluation", False) for s in client.all_sessions()].count(True) == 1
    told = [(r[0], r[2] if r[3] is None else r[1]) for r in VerlWorker.queue]
    assert told == [("u1", "running"), ("u1_0_0", "val"), ("u1", "finished")]


def test_verl_manager_runs_the_agent_that_a_prompt_names(verl_worker, place):
    def ran():
        with rollgate.Client(place.url) as client:
            return sorted(client.group(x["id"])["runner"] for x in client.list_groups()["groups"])

    @runner("other", slots=4)
    async def other(task, session):
        return await agent.function(task, session)
    with Running(place, other):
        worker = verl_worker(runner="agent", url=place.url, group=ONCE)
        run(worker._run_prompt(prompt_of("x", agent_name="other"), PARAMS, {"validate": False}))
        assert ran() == ["other"]
        run(worker._run_prompt(prompt_of("x"), PARAMS, {"validate": False}))
        assert ran() == ["agent", "other"], "verl's default name is no choice of the data"
        worker = verl_worker(runner={"single": "agent", "coder": "other"}, url=place.url, group=ONCE)
        run(worker._run_prompt(prompt_of("x", agent_name="coder"), PARAMS, {"validate": False}))
        assert ran() == ["agent", "other", "other"]
        VerlWorker.queue.clear()
        run(worker._run_prompt(prompt_of("x", agent_name="judge"), PARAMS, {"validate": False}))
        assert [r[2] for r in VerlWorker.queue] == ["running", "failure"] and len(ran()) == 3


def test_verl_manager_never_pads(verl_worker, place):
    worker = verl_worker(runner="agent", url=place.url, group=ONCE)
    run(worker._run_prompt(prompt_of("fails"), PARAMS, {"validate": False}))
    assert VerlWorker.queue == [("u1", "train", "running", None), ("u1", "train", "failure", None)]
    VerlWorker.queue.clear()
    run(worker._run_prompt(prompt_of("unscored"), PARAMS, {"validate": False}))
    assert [r[2] for r in VerlWorker.queue] == ["running", "failure"]
    for wrong in ({}, {"runner": "agent", "ulr": "x"}):
        with pytest.raises(ValueError, match="needs a runner and knows"):
            verl_worker(**wrong)
    with pytest.raises(ValueError, match="select must be all or longest, not 'last'"):
        verl_worker(runner="agent", select="last")


# --- uni-agent: 6f4a7c9 framework/entry.py, gateway/manager.py, gateway/session/types.py ---

@dataclasses.dataclass
class SessionHandle:
    session_id: str
    base_url: str = None
    reward_info_url: str = None


@dataclasses.dataclass
class UniTrajectory:
    prompt_ids: list
    response_ids: list
    response_mask: list
    response_logprobs: list = None
    reward_info: dict = dataclasses.field(default_factory=dict)
    reward_score: float = None
    num_turns: int = 0
    routed_experts: object = None
    multi_modal_data: dict = None
    extra_fields: dict = dataclasses.field(default_factory=dict)


def test_uni_agent(monkeypatch, place):
    made, ran = [], []

    class Worker:
        @staticmethod
        def remote(**given):
            made.append(given)
            return "worker"

    class Base:
        def __init__(self):
            self.framework_worker = self.gateway_manager = None

        def generate_sequences(self, prompts):
            ran.append((self.gateway_manager.evaluation, prompts))
    fake(monkeypatch, "uni_agent.framework.entry", AgentFrameworkRolloutAdapter=Base, AgentFrameworkWorker=Worker)
    fake(monkeypatch, "uni_agent.gateway.session.types", SessionHandle=SessionHandle, Trajectory=UniTrajectory)
    uni = adapter(monkeypatch, "uni_agent")
    framework = {"rollgate": {"url": place.url, "session": SETTINGS}}
    config = types.SimpleNamespace(actor_rollout_ref=types.SimpleNamespace(rollout=types.SimpleNamespace(
        custom=types.SimpleNamespace(agent_framework=framework))))
    rollout = uni.RollgateRolloutAdapter.create(config=config, llm_client=None, reward_loop_worker_handles=[1])
    manager = made[0]["gateway_manager"]
    assert rollout.framework_worker == "worker" and manager is rollout.gateway_manager
    with pytest.raises(ValueError, match="teacher"):
        uni.RollgateRolloutAdapter.create(config=config, llm_client=None, teacher_client=object())

    async def scene():
        handle = await manager.create_session("u1_0", sampling_params=PARAMS)
        client = hooks.connect(place.url)
        sid = handle.base_url.split("/sessions/")[1].split("/")[0]
        await client.chat(sid, [{"role": "user", "content": "one"}])
        assert place.requests[-1]["body"]["sampling_params"]["sampling_seed"] == 5
        check_settings([s async for s in client.all_sessions()])
        state = await client.session(sid)
        assert state["metadata"] == {"exp": "x", "session_id": "u1_0"}, state
        await client.reward(sid, {"reward": 1.0, "finished": True})
        (t,) = await manager.finalize_session("u1_0")
        with pytest.raises(KeyError):
            await manager.finalize_session("u1_0")
        await manager.create_session("u1_1")
        await manager.abort_session("u1_1")
        return handle, t, [s["phase"] async for s in client.all_sessions(label="uni_agent=u1_1")]
    handle, t, phases = run(scene())

    async def branches(reward_info, **settings):
        manager = uni.RollgateGatewayManager(place.url, **settings)
        handle = await manager.create_session("u2_0", sampling_params=PARAMS)
        client, sid = hooks.connect(place.url), handle.base_url.split("/sessions/")[1].split("/")[0]
        first = [{"role": "user", "content": "one"}]
        first.append((await client.chat(sid, first))["choices"][0]["message"])
        for how in ("left", "right"):
            await client.chat(sid, [*first, {"role": "user", "content": how}])
        await client.reward(sid, reward_info)
        state = await client.session(sid)
        return state, await manager.finalize_session("u2_0")
    state, rows = run(branches({"score": 0.25, "acc": 1}))
    assert state["history"] == "chains" and not state.get("evaluation")
    assert [row.reward_info for row in rows] == [{"score": 0.25, "acc": 1, "reward": 0.25}] * len(rows), "the framework reads `reward`"
    state, rows = run(branches({"reward": 1.0}, session={"history": "tree"}, evaluation=True))
    assert state["history"] == "tree" and state["evaluation"] is True
    assert len(rows) == 2 and sum(sum(row.response_mask) for row in rows) == 12
    _, rows = run(branches({"reward": 1.0}, session={"history": "tree"}, export={"train_once": False}))
    assert sum(sum(row.response_mask) for row in rows) == 16
    batches = [{"n": 1}, {"validate": True}, {"validate": False}, {"validate": True, "n": 2}]
    for batch in batches:
        rollout.generate_sequences(batch)
    assert ran == [(False, batches[0]), (True, batches[1]), (False, batches[2]), (True, batches[3])] and len(made) == 2
    assert handle.session_id == "u1_0" and handle.base_url.endswith("/v1") and handle.reward_info_url.endswith("/reward_info")
    assert t.num_turns == 3 and t.response_mask == [1] * 4 and len(t.response_logprobs) == 4 and t.reward_info == {"reward": 1.0, "finished": True}
    assert t.extra_fields == {"min_global_steps": 7, "max_global_steps": 7} and phases in ([], ["aborted"])


def test_experts_belong_to_the_trainer(monkeypatch, verl_loop):
    """verl makes a tensor over the array it is given (agent_loop.py, _agent_loop_postprocess), which needs memory
    that may be written;
    uni-agent's rows are as long as input_ids (framework.py, _trajectory_to_tq_field_and_tag): the last id has zeros."""
    fake(monkeypatch, "uni_agent.framework.entry", AgentFrameworkRolloutAdapter=object, AgentFrameworkWorker=object)
    fake(monkeypatch, "uni_agent.gateway.session.types", SessionHandle=SessionHandle, Trajectory=UniTrajectory)
    t = rollgate.Trajectory({
        "prompt_ids": [1, 2], "response_ids": [3, 4], "response_mask": [1, 1], "response_logprobs": [-1.0, -1.0], "reward": 1.0,
        "reward_info": {}, "num_turns": 2, "response_versions": None, "extra_fields": {}, "routed_experts": bytes(range(1, 13)),
        "routed_experts_shape": [3, 2, 2], "routed_experts_dtype": "uint8"})
    out = verl_loop().output(t, {"session_id": "s"}, PARAMS, 5)
    assert out.routed_experts.shape == (3, 2, 2) and out.routed_experts.flags.writeable
    got = adapter(monkeypatch, "uni_agent")._trajectory(t)
    assert got.routed_experts.shape == (4, 2, 2) and got.routed_experts.flags.writeable and not got.routed_experts[3].any()
    assert got.routed_experts.ravel().tolist()[:12] == out.routed_experts.ravel().tolist() == list(range(1, 13))


# --- miles 31f1ca9 and slime 624b824: utils/types.py Sample; rollout/base_types.py; sglang_rollout.py ---

@dataclasses.dataclass
class Sample:
    class Status(enum.Enum):
        PENDING = "pending"
        COMPLETED = "completed"
        TRUNCATED = "truncated"
        ABORTED = "aborted"
        FAILED = "failed"

    @dataclasses.dataclass
    class PrefixCacheInfo:
        cached_tokens: int = 0
        total_prompt_tokens: int = 0

        @staticmethod
        def from_dict(d):
            return Sample.PrefixCacheInfo(d.get("cached_tokens", 0), d.get("total_prompt_tokens", 0))
    group_index: int = None
    index: int = None
    rollout_id: int = None
    prompt: object = ""
    tokens: list = dataclasses.field(default_factory=list)
    response: str = ""
    response_length: int = 0
    label: str = None
    reward: float = None
    loss_mask: list = None
    weight_versions: list = dataclasses.field(default_factory=list)
    rollout_log_probs: list = None
    rollout_routed_experts: object = None
    remove_sample: bool = False
    status: Status = Status.PENDING
    metadata: dict = dataclasses.field(default_factory=dict)
    prefix_cache_info: PrefixCacheInfo = dataclasses.field(default_factory=PrefixCacheInfo)

    def validate(self):     # of miles' Sample.validate
        assert len(self.tokens) >= self.response_length >= 0
        assert self.loss_mask is None or len(self.loss_mask) == self.response_length
        assert self.rollout_log_probs is None or len(self.rollout_log_probs) == self.response_length


@dataclasses.dataclass(frozen=True)
class GenerateFnInput:
    state: object
    sample: Sample
    sampling_params: dict
    evaluation: bool

    @property
    def args(self):
        return self.state.args


@dataclasses.dataclass(frozen=True)
class GenerateFnOutput:
    samples: object


SAMPLES_PARAMS = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "max_new_tokens": 64, "stop": None, "stop_token_ids": None,
                  "skip_special_tokens": False, "no_stop_trim": True, "spaces_between_special_tokens": False}


def trained(sample):
    """What the train data is made of: slime's and miles' _convert_samples_to_train_data read these."""
    sample.validate()
    assert sample.status == Sample.Status.COMPLETED and not sample.remove_sample and sample.reward == 0.5
    assert sample.loss_mask == [1] * 4 and all(type(x) is float for x in sample.rollout_log_probs)
    assert sample.weight_versions == ["7"] and sample.response and sample.metadata["given"] == 1
    return True


def sample_of(kind, of=Sample, **more):
    return of(index=4, group_index=1, prompt=[{"role": "user", "content": kind}], metadata={"given": 1}, **more)


@pytest.fixture
def miles(monkeypatch, place):
    fake(monkeypatch, "miles.rollout.base_types", GenerateFnInput=GenerateFnInput, GenerateFnOutput=GenerateFnOutput)
    module = adapter(monkeypatch, "miles")
    place.stub.otherwise = lambda body: {"ids": [40, 41, 42 + len(place.requests) % 50, 1], "finish": "stop", "matched": 1, "version": "7"}
    args = types.SimpleNamespace(rollgate_runner="agent", rollgate_url=place.url, rollgate_group=ONCE)

    def generate(sample):
        return module.generate(GenerateFnInput(types.SimpleNamespace(args=args), sample, dict(SAMPLES_PARAMS), False))
    return module, generate, args


META = {"response": "x", "response_length": 1, "status": "completed", "weight_versions": [], "prefix_cache_info": {}, "metadata": {}, "reward": None}


def sample_with(*names):
    return dataclasses.make_dataclass("Sample", [(name, object, None) for name in names], bases=(Sample,))


def test_what_a_session_asks_for_reaches_its_place_in_samples():
    """miles' samples have a place for some of it (31f1ca9, utils/types.py); where there is none it is not dropped without a word."""
    from rollgate.samples import overlay
    rows = numpy.arange(12, dtype="int32").reshape(2, 2, 3)
    told = {"rollout_indexer_topk": (rows, "indexer_topk"), "teacher_log_probs": (numpy.array([-0.5], "f4"), "score"),
            "rollout_topk_token_ids": (rows[0], "top_logprobs"), "rollout_topk_log_probs": (rows[0].astype("f4"), "top_logprobs"),
            "rollout_sampling_mask_ids": (rows[0, 0], "sampling_support"),
            "rollout_sampling_mask_offsets": (rows[0, 0], "sampling_support")}
    bare = {"tokens.0": numpy.array([1, 2, 3]), "loss_mask.0": numpy.array([1]), "tokens.1": numpy.array([4])}
    for name, (array, option) in told.items():
        tensors = {**bare, f"{name}.0": array}
        with pytest.raises(ValueError, match=f"kept {name} .by {option}., and the trainer's samples have no place"):
            overlay(Sample(), tensors, 0, META)
        place = sample_with(name)
        got = getattr(overlay(place(), tensors, 0, META), name)
        assert got == array.tolist() if name.endswith("_log_probs") else (got == array).all() and got.flags.writeable
        overlay(Sample(), {**bare, f"{name}.1": array}, 0, META)       # another sample's
    again = sample_with("teacher_log_probs", "rollout_indexer_topk")(teacher_log_probs=[-1.0], rollout_indexer_topk=rows)
    again = overlay(again, bare, 0, META)
    assert again.teacher_log_probs is None and again.rollout_indexer_topk is None, "of other tokens"


def test_a_teachers_score_reaches_miles_and_slime(monkeypatch, start):
    fake(monkeypatch, "miles.rollout.base_types", GenerateFnInput=GenerateFnInput, GenerateFnOutput=GenerateFnOutput)
    fake(monkeypatch, "slime.rollout.sglang_rollout", GenerateState=lambda args: types.SimpleNamespace(aborted=False))
    miles, slime = adapter(monkeypatch, "miles"), adapter(monkeypatch, "slime")
    place = sample_with("teacher_log_probs")
    with StubEngine("sglang") as engine, ScoringEngine("sglang") as teacher:
        engine.otherwise = lambda body: {"ids": [40, 41, 42, 1], "finish": "stop", "matched": 1, "version": "7"}
        gateway = start(engine=engine.setting, model=g.MODELS / "chatml-bytes", scorer=f"big={teacher.setting}")
        group = {**ONCE, "session": {"score": [{"engine": "big"}]}}
        args = types.SimpleNamespace(rollgate_runner="agent", rollgate_url=gateway.url, rollgate_group=group)
        given = sample_of("x", of=place)
        with Running(gateway, agent):
            ours = GenerateFnInput(types.SimpleNamespace(args=args), given, dict(SAMPLES_PARAMS), False)
            for sample in (run(miles.generate(ours)).samples[0], run(slime.generate(args, given, dict(SAMPLES_PARAMS)))):
                assert trained(sample)
                n = len(sample.tokens) - sample.response_length
                assert sample.teacher_log_probs == [teacher.value(n + k, t) for k, t in enumerate(sample.tokens[n:])]


def test_slime_trains_top_p_by_the_ids_that_were_kept(monkeypatch, start):
    """slime 624b824, utils/types.py (rollout_top_p_token_*, _pad_rollout_top_p_offsets) and ray/rollout.py, which asserts this."""
    @runner("turns", slots=4)
    async def turns(task, session):
        messages = [{"role": "user", "content": "one"}]
        for _ in range(2):
            answer = await session.chat(messages)
            messages += [answer["choices"][0]["message"], {"role": "user", "content": "more"}]
        return 0.5
    fake(monkeypatch, "slime.rollout.sglang_rollout", GenerateState=lambda args: types.SimpleNamespace(aborted=False))
    module = adapter(monkeypatch, "slime")
    params = {**SAMPLES_PARAMS, "top_p": 0.9}
    with OddsEngine("sglang") as engine:
        engine.otherwise = lambda body: {"ids": [40, 41, 42, 1], "finish": "stop", "matched": 1, "version": "7"}
        gateway = start(engine=engine.setting, model=g.MODELS / "chatml-bytes")
        args = types.SimpleNamespace(rollgate_runner="turns", rollgate_url=gateway.url,
                                     rollgate_group={**ONCE, "session": {"sampling_support": True}})
        given = sample_of("x", of=sample_with("rollout_top_p_token_ids", "rollout_top_p_token_offsets"))
        with Running(gateway, turns):
            sample = run(module.generate(args, given, params))
        assert all(r["body"]["sampling_params"]["top_p"] == 0.9 for r in engine.requests)
        rows, _ = engine.support({}, [40, 41, 42, 1])
    at = sample.rollout_top_p_token_offsets
    got = [sample.rollout_top_p_token_ids[a:b] for a, b in zip(at, at[1:])]
    assert len(got) == sample.response_length and at[-1] == len(sample.rollout_top_p_token_ids) and sum(sample.loss_mask) == 8
    assert got[:4] == got[-4:] == rows and got[4:-4] and not any(got[4:-4])


def test_miles(miles):
    _, generate, _ = miles
    (one,) = run(generate(sample_of("x"))).samples
    assert trained(one) and one.rollout_id is None
    two = run(generate(sample_of("branches"))).samples
    assert len(two) == 2 and all(trained(s) for s in two) and [s.rollout_id for s in two] == [4, 4]
    left, right = run(generate(sample_of("shares"))).samples
    assert sum(left.loss_mask) + sum(right.loss_mask) == 20, "the shared turn is trained once"
    (one,) = run(generate(sample_of("retries"))).samples
    assert sum(one.loss_mask) == 8, "a retry replaces its sibling, as in miles"
    given = sample_of("fails")
    (bad,) = run(generate(given)).samples
    assert bad.status == Sample.Status.ABORTED and bad.remove_sample and bad.tokens == [] and bad.reward is None
    assert "the agent broke" in bad.metadata["rollgate_failure"] and given.status == Sample.Status.PENDING


def test_miles_arguments_that_differ_have_their_own_groups(miles, place):
    module, generate, args = miles
    run(generate(sample_of("x")))
    args.rollgate_group = {**ONCE, "labels": {"suite": "second"}, "export": {"pick": "all"}}
    assert len(run(generate(sample_of("retries"))).samples) == 2
    with rollgate.Client(place.url) as client:
        assert len(client.list_groups()["groups"]) == 2 and len(client.list_groups(label="suite=second")["groups"]) == 1
    ours = GenerateFnInput(types.SimpleNamespace(args=args), sample_of("x"), dict(SAMPLES_PARAMS), True)
    run(module.generate(ours))
    with rollgate.Client(place.url) as client:
        assert [s.get("evaluation", False) for s in client.all_sessions()].count(True) == 1


def test_miles_abort_reaches_the_groups(miles, place):
    module, generate, args = miles

    async def scene():
        task = asyncio.ensure_future(generate(sample_of("hangs")))
        client = hooks.connect(place.url)
        while not any(x["running"] for x in (await client.list_groups())["groups"]):
            await asyncio.sleep(0.02)
        await module.abort(args)
        return (await task).samples
    (sample,) = run(scene())
    assert sample.status == Sample.Status.ABORTED and sample.remove_sample and "cancelled" in sample.metadata["rollgate_failure"]


def test_slime(monkeypatch, place):
    class GenerateState:        # a singleton there: what abort() sets is seen by all
        aborted = False

        def __init__(self, args):
            pass
    fake(monkeypatch, "slime.rollout.sglang_rollout", GenerateState=GenerateState)
    module = adapter(monkeypatch, "slime")
    args = types.SimpleNamespace(rollgate_runner="agent", rollgate_url=place.url, rollgate_group=ONCE)
    assert trained(run(module.generate(args, sample_of("x"), dict(SAMPLES_PARAMS))))
    one = run(module.generate(args, sample_of("branches"), dict(SAMPLES_PARAMS), evaluation=True))
    assert trained(one), "one sample of one rollout"
    bad = run(module.generate(args, sample_of("fails"), dict(SAMPLES_PARAMS)))
    assert bad.status == Sample.Status.ABORTED and bad.remove_sample
    # slime 624b824 ray/rollout.py _post_process_rewards: a tensor of all rewards, which takes no None; filter_hub/base_types.py
    # call_dynamic_filter: fn(args, group) -> bool, before a group joins the batch
    assert bad.reward is None and not module.complete(args, [one, bad]) and not module.complete(args, [[one], [bad]])
    assert module.complete(args, [one, one]) and module.complete(args, [[one], one])
    with pytest.raises(ValueError, match="rollout-top-p 0.9 cannot be served"):
        run(module.generate(args, sample_of("x"), {**SAMPLES_PARAMS, "top_p": 0.9}))

    async def scene():
        task = asyncio.ensure_future(module.generate(args, sample_of("hangs"), dict(SAMPLES_PARAMS)))
        client = hooks.connect(place.url)
        while not any(x["running"] for x in (await client.list_groups())["groups"]):
            await asyncio.sleep(0.02)
        GenerateState.aborted = True
        sample = await task
        while any(x["running"] for x in (await client.list_groups())["groups"]):
            await asyncio.sleep(0.02)
        return sample
    assert run(scene()).metadata["rollgate_failure"] == "aborted by slime"


# --- AReaL: 4aef98d api/workflow_api.py, infra/workflow_executor.py check_trajectory_format, utils/data.py
# concat_padded_tensors ---

def areal_fakes(monkeypatch):
    """AReaL's modules; gives the ContextVar of infra/workflow_context.py, which its executor sets for each task of its own."""
    var = contextvars.ContextVar("workflow_context", default=types.SimpleNamespace(is_eval=False, task_id=None))
    fake(monkeypatch, "areal.api.workflow_api", RolloutWorkflow=type("RolloutWorkflow", (), {}))
    fake(monkeypatch, "areal.infra.workflow_context", get=var.get, set=var.set)
    vars(sys.modules["areal.infra"])["workflow_context"] = sys.modules["areal.infra.workflow_context"]
    fake(monkeypatch, "torch", from_numpy=lambda array: array)
    return var


def test_areal(monkeypatch, place):
    context = areal_fakes(monkeypatch)
    module = adapter(monkeypatch, "areal")
    engine = types.SimpleNamespace(get_version=lambda: 11)
    workflow = module.RollgateWorkflow("agent", place.url, group=ONCE, sampling_params={"temperature": 1.0})
    a, b = (run(workflow.arun_episode(engine, {"question": kind})) for kind in ("x", "branches"))
    assert set(a) == set(b), "concat_padded_tensors wants equal keys"
    n = a["input_ids"].shape[1]
    assert all(a[k].shape == (1, n) for k in ("input_ids", "loss_mask", "logprobs", "versions", "attention_mask"))
    assert a["rewards"].shape == (1,) and a["rewards"][0] == 0.5 and a["loss_mask"].sum() == 4 and a["attention_mask"].all()
    assert a["versions"][0, 0] == -1 and a["versions"][0, -1] == 7
    assert run(workflow.arun_episode(engine, {"question": "fails"})) is None, "rejected, not raised: the group goes on"
    assert evaluations(place) == 0

    async def evaluate():       # WorkflowExecutor: the context is set within the task
        context.set(types.SimpleNamespace(is_eval=True, task_id=7))
        return await workflow.arun_episode(engine, {"question": "x"})
    run(evaluate())
    assert evaluations(place) == 1
    with pytest.raises(ValueError, match="external"):
        module.RollgateWorkflow("agent", group={"reward": "external"})


# --- prime-rl: verifiers a60a606 v1/{env,episode,trace,graph,types}.py; prime-rl 559b447 orchestrator/trajectories.py ---

def test_scores_reach_areal(monkeypatch, start):
    """AReaL 4aef98d, trainer/ppo/actor.py: both are looked for in the rollout's tensors, as its own compute_logp makes them."""
    areal_fakes(monkeypatch)
    module = adapter(monkeypatch, "areal")
    with StubEngine("sglang") as engine, ScoringEngine("sglang") as scorer:
        engine.otherwise = lambda body: {"ids": [40, 41, 42, 1], "finish": "stop", "matched": 1, "version": "7"}
        gateway = start(engine=engine.setting, model=g.MODELS / "chatml-bytes", scorer=f"big={scorer.setting}")
        scores = [{"engine": "big"}, {"engine": "big", "what": "reference"}, {"engine": "big", "what": "self"}]
        workflow = module.RollgateWorkflow("agent", gateway.url, group={**ONCE, "session": {"score": scores}})
        with Running(gateway, agent):
            row = run(workflow.arun_episode(types.SimpleNamespace(get_version=lambda: 11), {"question": "x"}))
    ids = row["input_ids"][0].tolist()
    want = [scorer.value(i, t) for i, t in enumerate(ids)][1:] + [0.0]
    assert row["teacher_logp"].tolist() == row["ref_logp"].tolist() == [want] and row["teacher_logp"].flags.writeable
    assert set(row) == {*module.COLUMNS, "teacher_logp", "ref_logp"}


def record(model, /, *fields, **defaults):
    """A pydantic model's stand-in: its fields and defaults, none beside them."""
    def default(v):
        return dataclasses.field(default_factory=lambda: v() if isinstance(v, type) else v)
    given = [(f, object) for f in fields] + [(k, object, default(v)) for k, v in defaults.items()]
    return dataclasses.make_dataclass(model, given)


class VfTrace(record("VfTrace", "task", "agent", nodes=list, calls=list, rewards=dict, metrics=dict, info=dict,
                     is_completed=False, ok=False, stop_condition=None, errors=list)):
    def record_reward(self, name, value, weight=1.0):
        self.rewards[name] = float(value) * weight

    def record_metrics(self, values):
        self.metrics.update(values)


class VfEnv:
    def __class_getitem__(cls, _):
        return cls

    def __init__(self, config):
        self.config = config


@dataclasses.dataclass
class VfEnvConfig:
    env_id: str = "rollgate-prime-rl+gsm8k"


VERIFIERS = {
    "Env": VfEnv, "EnvConfig": VfEnvConfig, "Trace": VfTrace, "AgentConfig": record("AgentConfig"),
    "AgentInfo": record("AgentInfo", "config", name="agent", trainable=True), "EnvInfo": record("EnvInfo", id="", name=None),
    "TraceTask": record("TraceTask", "type", "data", key=None, hash=None),
    "Error": record("Error", "type", "message", traceback=None),
    "Episode": record("Episode", env=None, task=None, ok=False, errors=list, traces=list),
    "MessageNode": record("MessageNode", parent=None, message=None, sampled=False, token_ids=list, mask=list, logprobs=list,
                          routed_experts=None),
    "ModelCall": record("ModelCall", node=None, model=None, finish_reason=None, usage=None),
    "Usage": record("Usage", "prompt_tokens", "completion_tokens"), "ToolCall": record("ToolCall", "id", "name", "arguments"),
    "SystemMessage": record("SystemMessage", "content"), "UserMessage": record("UserMessage", "content"),
    "AssistantMessage": record("AssistantMessage", content=None, reasoning_content=None, tool_calls=None),
    "ToolMessage": record("ToolMessage", "tool_call_id", "content")}


def samples_of(trace):
    """trace_to_samples: a sample for each leaf; a sampled node that branches share is trained in the first alone; logprobs of the
    sampled tokens lie where the mask is set."""
    parents = {n.parent for n in trace.nodes}
    trained, out = set(), []
    for leaf in (i for i in range(len(trace.nodes)) if i not in parents):
        path = []
        while leaf is not None:
            path.insert(0, trace.nodes[leaf])
            leaf = path[0].parent
        ids, mask, logprobs = [], [], []
        for n in path:
            assert len(n.mask) == len(n.token_ids) and len(n.logprobs) == sum(n.mask) and (n.sampled or not any(n.mask))
            given = iter(n.logprobs)
            ids += n.token_ids
            logprobs += [next(given) if on else 0.0 for on in n.mask]
            mask += [on and id(n) not in trained for on in n.mask]
        trained |= {id(n) for n in path if any(n.mask)}
        if any(mask):
            out.append((ids, mask, logprobs))
    return out


def vf_env(monkeypatch, **config):
    fake(monkeypatch, "verifiers.v1", **VERIFIERS)
    module = adapter(monkeypatch, "prime_rl")
    given = module.RollgateEnvConfig()
    vars(given).update({"runner": "agent", "agent": VERIFIERS["AgentConfig"](), "group": ONCE, **config})
    return module.RollgateEnv(given)


def vf_ctx(**sampling):
    return types.SimpleNamespace(model="m", client=None, sampling=types.SimpleNamespace(model_dump=lambda **_: dict(sampling)))


def vf_task(kind):
    data = types.SimpleNamespace(model_dump=lambda mode: {"idx": 1, "prompt": kind})
    return types.SimpleNamespace(data=data, key="k1", hash="h1")


def test_prime_rl(monkeypatch, place):
    env = vf_env(monkeypatch, url=place.url)
    seen = []
    args = {"temperature": 0.5, "top_p": 1.0, "logprobs": True, "max_completion_tokens": 64,
            "extra_body": {"top_k": 5, "priority": 3, "cache_salt": "4", "return_token_ids": True}}
    episode = run(env.run_episode(vf_task("branches"), vf_ctx(**args), on_trace=seen.append))
    assert episode.ok and seen == episode.traces and episode.task.key == "k1" and episode.env.id == "rollgate-prime-rl+gsm8k"
    (trace,) = episode.traces
    assert trace.ok and trace.rewards == {"reward": 0.5} and trace.metrics == {"acc": 1.0} and trace.stop_condition is None
    sent = [r["body"] for r in place.requests if "input_ids" in r["body"]]
    samples = samples_of(trace)
    whole = sorted(b["input_ids"] + [40, 41, 42, 1] for b in sent)
    assert sorted(ids for ids, _, _ in samples) == whole, "what the engine saw and sampled"
    assert all(sum(mask) == 4 and sum(p != 0 for p in lp) <= 4 for _, mask, lp in samples)
    assert [type(n.message).__name__ for n in trace.nodes if n.sampled] == ["AssistantMessage"] * 2
    assert all(c.finish_reason == "stop" and trace.nodes[c.node].sampled for c in trace.calls) and len(trace.calls) == 2
    assert all((b["sampling_params"]["temperature"], b["sampling_params"]["top_k"], b["priority"]) == (0.5, 5, 3) for b in sent)
    assert "cache_salt" not in sent[0] and evaluations(place) == 0
    run(env.run_episode(vf_task("x"), vf_ctx(temperature=0.5, reasoning_effort="low")))
    assert evaluations(place) == 1, "prime-rl asks for log-probabilities where it trains"


def test_prime_rl_drops_what_failed(monkeypatch, place):
    env = vf_env(monkeypatch, url=place.url)
    episode = run(env.run_episode(vf_task("fails"), vf_ctx()))
    assert not episode.ok and episode.traces == [] and "the agent broke" in episode.errors[0].message
    with pytest.raises(ValueError, match="external"):
        vf_env(monkeypatch, group={"reward": "external"})
    fake(monkeypatch, "verifiers.v1", **VERIFIERS)
    import rollgate_prime_rl    # verifiers imports env.id with its dashes as underscores
    assert [n for n in rollgate_prime_rl.__all__ if issubclass(getattr(rollgate_prime_rl, n), VfEnv)] == ["RollgateEnv"]
    for name in ("rollgate_prime_rl", "rollgate.prime_rl"):
        monkeypatch.delitem(sys.modules, name)


# --- SkyRL: a956457 skyrl/train/generators/base.py ---

def test_skyrl(monkeypatch, place):
    @dataclasses.dataclass
    class TrajectoryID:
        instance_id: str
        repetition_id: int

    @dataclasses.dataclass
    class BatchMetadata:
        global_step: int
        training_phase: str

    class GeneratorInterface:
        pass
    fake(monkeypatch, "skyrl.train.generators.base", GeneratorInterface=GeneratorInterface)
    generator = adapter(monkeypatch, "skyrl").RollgateGenerator("agent", place.url, group=ONCE)

    def batch(*kinds):
        return {"prompts": [[{"role": "user", "content": k}] for k in kinds], "env_classes": ["e"] * len(kinds),
                "env_extras": [{"kind": k} for k in kinds], "sampling_params": {"temperature": 1.0, "max_generate_length": 64},
                "trajectory_ids": [TrajectoryID("i", n) for n in range(len(kinds))], "batch_metadata": BatchMetadata(3, "train")}
    given = batch("x", "branches", "y")
    out = run(generator.generate(given))
    rows = ("prompt_token_ids", "response_ids", "loss_masks", "rewards", "stop_reasons", "rollout_logprobs")
    assert all(len(out[k]) == 3 for k in rows) and out["trajectory_ids"] == given["trajectory_ids"]
    for ids, mask, lps in zip(out["response_ids"], out["loss_masks"], out["rollout_logprobs"]):
        assert len(ids) == len(mask) == len(lps) == 4
    assert out["rewards"] == [0.5] * 3 and out["stop_reasons"] == ["stop"] * 3
    with pytest.raises(hooks.RolloutFailed, match="the agent broke"):
        run(generator.generate(batch("x", "fails", "hangs")))
    with rollgate.Client(place.url) as client:
        g.wait_until(lambda: not any(x["running"] for x in client.list_groups()["groups"]), 20, "the others are cancelled")


# --- rLLM: 9beb6e0 rllm/gateway/manager.py GatewayManager; rllm-model-gateway models.py TraceRecord ---

class TraceRecord(Model):
    trace_id: str
    session_id: str
    model: str = ""
    messages: list[dict[str, typing.Any]] = dataclasses.field(default_factory=list)
    prompt_token_ids: list[int] = dataclasses.field(default_factory=list)
    prompt_delta_token_ids: list[int] | None = None
    parent_trace_id: str | None = None
    response_message: dict[str, typing.Any] = dataclasses.field(default_factory=dict)
    completion_token_ids: list[int] = dataclasses.field(default_factory=list)
    logprobs: list[float] | None = None
    routing_matrices: list[str] | None = None
    finish_reason: str | None = None
    weight_version: int | None = None
    latency_ms: float = 0.0
    token_counts: dict[str, int] = dataclasses.field(default_factory=dict)
    timestamp: float = 0.0
    metadata: dict[str, typing.Any] = dataclasses.field(default_factory=dict)


def test_rllm(monkeypatch, place):
    fake(monkeypatch, "rllm.gateway.manager", GatewayManager=object)
    vars(sys.modules["rllm.gateway"])["manager"] = sys.modules["rllm.gateway.manager"]
    fake(monkeypatch, "rllm_model_gateway.models", TraceRecord=TraceRecord)
    module = adapter(monkeypatch, "rllm")
    module.install(url=place.url, session=SETTINGS)
    # as trainer/unified_trainer.py makes it
    manager = sys.modules["rllm.gateway.manager"].GatewayManager({"rllm": {}}, mode="process")
    manager.start(types.SimpleNamespace(train_sampling_params={"temperature": 0.5}, val_sampling_params={}))
    manager.set_weight_version(3)

    async def scene():
        await manager.acreate_session("task:0", is_validation=False)
        check_settings(manager.client.all_sessions())
        urls = [manager.get_session_url(s) for s in ("task:0", "task:0", "never created")]
        sid = urls[0].split("/sessions/")[1].split("/")[0]
        messages = [{"role": "user", "content": "one"}]
        for _ in range(2):
            answer = await asyncio.to_thread(manager.client.chat, sid, messages, temperature=2.0)
            messages += [answer["choices"][0]["message"], {"role": "user", "content": "more"}]
        got = await manager.aget_traces("task:0")
        deleted = [await manager.adelete_session("task:0"), await manager.adelete_sessions(["task:0", "unknown"])]
        return urls, got, deleted, await manager.aget_traces("unknown")
    urls, got, deleted, none = run(scene())
    assert urls[0] == urls[1] != urls[2] and urls[0].endswith("/v1") and deleted == [1, 0] and none == []
    sent = place.requests[-1]["body"]["sampling_params"]
    assert sent["temperature"] == 0.5 and sent["sampling_seed"] == 5
    first, second = got
    for t in got:
        assert len(t.completion_token_ids) == len(t.logprobs) == 4 and t.weight_version == 7 and t.session_id == "task:0"
        assert t.finish_reason == "stop" and t.response_message["role"] == "assistant" and t.prompt_token_ids
    n = len(first.prompt_token_ids)
    assert second.prompt_token_ids[:n] == first.prompt_token_ids
    assert second.prompt_token_ids[n:n + 4] == first.completion_token_ids, "the second prompt goes on from the first answer's ids"
    assert [len(t.messages) for t in got] == [1, 3]
    assert all(type(t.latency_ms) is float and t.latency_ms > 0 for t in got)
    manager.stop()


# --- the same options everywhere ---

SESSION = {"history": "chains", "lock_sampling": ["temperature"], "evaluation": True, "sampling_params": {"seed": 5}}
EXPORT = {"train_once": False, "select": "last"}


def hooks_of_all(monkeypatch, place, verl_loop, verl_worker, group, session, export):
    """The hook of each adapter, made with the same options by the adapter's own way."""
    fake(monkeypatch, "miles.rollout.base_types", GenerateFnInput=GenerateFnInput, GenerateFnOutput=GenerateFnOutput)
    areal_fakes(monkeypatch)
    fake(monkeypatch, "skyrl.train.generators.base", GeneratorInterface=type("GeneratorInterface", (), {}))
    fake(monkeypatch, "verifiers.v1", **VERIFIERS)
    from rollgate import samples
    more = {"group": group, "session": session, "export": export}
    yield "verl", verl_loop(**more).hook
    yield "verl, whole groups", verl_worker(runner="agent", url=place.url, **more).hook
    args = types.SimpleNamespace(rollgate_runner="agent", rollgate_url=place.url, **{f"rollgate_{k}": v for k, v in more.items()})
    yield "miles", samples.hook_of(args, {})
    yield "slime", samples.hook_of(args, {}, one_row=True)
    yield "areal", adapter(monkeypatch, "areal").RollgateWorkflow("agent", place.url, **more).hook
    yield "skyrl", adapter(monkeypatch, "skyrl").RollgateGenerator("agent", place.url, **more).hook
    yield "prime-rl", vf_env(monkeypatch, url=place.url, **more).hook
    yield "trl", adapter(monkeypatch, "trl").RollgateRollouts("agent", place.url, **more).hook
    fake(monkeypatch, "openrlhf.utils.agent", AgentExecutorBase=type("AgentExecutorBase", (), {}))
    yield "openrlhf", adapter(monkeypatch, "openrlhf").RollgateExecutor("agent", place.url, engine=None, **more).hook


def test_every_adapter_takes_the_same_options(monkeypatch, place, verl_loop, verl_worker):
    for group, session, export in ((ONCE, SESSION, EXPORT), ({**ONCE, "session": SESSION, "export": EXPORT}, None, None)):
        for name, hook in hooks_of_all(monkeypatch, place, verl_loop, verl_worker, group, session, export):
            member = run(hook.one("x", {"temperature": 0.25}, runner="agent"))
            with rollgate.Client(place.url) as client:
                state = client.session(member["session_id"])
            sent = place.requests[-1]["body"]["sampling_params"]
            assert state["history"] == "chains" and state["evaluation"] is True, name
            assert sent["sampling_seed"] == 5 and sent["temperature"] == 0.25, name
            assert hook.exports == EXPORT, name
            assert hook.group["session"]["lock_sampling"] == ["temperature"], name
    for name, hook in hooks_of_all(monkeypatch, place, verl_loop, verl_worker, ONCE, None, None):
        assert hook.exports["train_once"] is True, name


def test_options_that_contradict_each_other_are_named():
    group = {"session": {"history": "tree"}, "export": {"train_once": True}}
    for more, what in (({"session": {"history": "chains"}}, "session.history is 'chains', and the group's session.history is 'tree'"),
                       ({"export": {"train_once": False}}, "export.train_once is False")):
        with pytest.raises(ValueError, match=what):
            hooks.Hook("agent", group=group, **more)
    hook = hooks.Hook("agent", group=group, session={"history": "tree", "ttl_s": 9})
    assert hook.group["session"] == {"history": "tree", "ttl_s": 9}


def test_options_of_adapters_whose_trainers_run_the_agents(monkeypatch, place):
    fake(monkeypatch, "rllm.gateway.manager", GatewayManager=object)
    vars(sys.modules["rllm.gateway"])["manager"] = sys.modules["rllm.gateway.manager"]
    fake(monkeypatch, "rllm_model_gateway.models", TraceRecord=TraceRecord)
    fake(monkeypatch, "uni_agent.framework.entry", AgentFrameworkRolloutAdapter=object, AgentFrameworkWorker=object)
    fake(monkeypatch, "uni_agent.gateway.session.types", SessionHandle=SessionHandle, Trajectory=UniTrajectory)
    module = adapter(monkeypatch, "rllm")
    module.install(url=place.url, session=SESSION, export=EXPORT)
    manager = sys.modules["rllm.gateway.manager"].GatewayManager({}, mode="process")
    uni = adapter(monkeypatch, "uni_agent").RollgateGatewayManager(place.url, session=SESSION, export=EXPORT)
    assert manager.exports == uni.exports == EXPORT
    url = manager.get_session_url("task:0")

    async def scene():
        handle = await uni.create_session("u1_0", sampling_params=PARAMS)
        client = hooks.connect(place.url)
        return [await client.session(u.split("/sessions/")[1].split("/")[0]) for u in (url, handle.base_url)]
    for state in run(scene()):
        assert state["history"] == "chains" and state["evaluation"] is True
    sid = url.split("/sessions/")[1].split("/")[0]
    first = [{"role": "user", "content": "one"}]
    for messages in (first, [{"role": "user", "content": "two"}]):
        manager.client.chat(sid, messages)
    assert len(manager.get_traces("task:0")) == 1, "of two branches the last, as export.select says"
    # one that the gateway does not know any more, as after its restart, keeps no other open
    manager.create_session("task:1")

    async def shut():
        await uni.create_session("u1_1", sampling_params=PARAMS)
        client = hooks.connect(place.url)
        uni._ours["u1_0"] = unknown
        last = uni._ours["u1_1"]
        await uni.shutdown()
        with pytest.raises(rollgate.Ended):
            await client.session(last)
    unknown = "w0-" + "0" * 32
    run(shut())
    client, last = rollgate.Client(place.url), manager._ours["task:1"]["session_id"]
    manager._ours["task:0"] = {"session_id": unknown}
    with pytest.raises(rollgate.errors.UnknownSession):
        manager.delete_sessions(["task:0", "task:1"])
    assert set(manager._ours) == {"task:0", "task:1"}, "a deletion that failed forgets nothing"
    manager.stop()
    with pytest.raises(rollgate.Ended):
        client.session(last)
    client.close()

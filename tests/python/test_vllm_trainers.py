"""TRL and OpenRLHF, whose vLLM is the trainer's own: their adapters against fakes written from their contracts, the policy sampled by a
fake of their engines that the adapter serves to a gateway without engines."""
import asyncio
import json
import os
import subprocess
import sys
import threading
import types

import pytest

import gateway as g
import rollgate
from http_stub import Handler, HttpStub
from rollgate import hooks
from rollgate.engine_server import EngineServer, Sampled, bind_address, engine_setting, own_address
from test_adapters import ONCE, adapter, agent, evaluations, fake, place, run     # noqa: F401
from test_executor import Running

END = 257


def sampled_of(ids):
    """What the fakes sample behind a prompt: three letters and the end, by the prompt's length, each with its own logprob."""
    out = [40 + len(ids) % 7, 41, 42, END]
    return out, [-(t % 10) / 10 - 0.1 for t in out]


def prompts_and_samples(gateway):
    """What the engine saw and sampled, from the sessions' own records: (prompt ids, sampled ids)."""
    with rollgate.Client(gateway.url) as client:
        for s in client.all_sessions():
            for record in client.session(s["session_id"], records=True)["records"]:
                for answer in record["answers"]:
                    yield record["prompt_ids"], answer["output_ids"]


def engines_of(gateway):
    """Their names, without those that the gateway lets finish before it forgets them."""
    return [e["name"] for e in gateway.get("/admin/engines").json()["engines"] if e["state"] != "draining"]


# --- TRL f2cd577: trainer/grpo_trainer.py, scripts/vllm_serve.py ---

class TrlServe(HttpStub):
    """`trl vllm-serve`: POST /generate/ of GenerateRequest's fields alone; one request at a time."""

    FIELDS = {"prompts", "images", "n", "repetition_penalty", "temperature", "top_p", "top_k", "min_p", "max_tokens", "logprobs",
              "structured_outputs_regex", "generation_kwargs"}

    def __init__(self):
        serve = self
        self.requests, self.lock = [], threading.Lock()

        class Generate(Handler):
            def do_POST(self):
                body = json.loads(self.body())
                with serve.lock:
                    serve.requests.append((self.path, body))
                made = [sampled_of(ids) for ids in body["prompts"]]
                data = json.dumps({"prompt_ids": body["prompts"], "completion_ids": [ids for ids, _ in made],
                                   "logprobs": [[[p] for p in lps] for _, lps in made],
                                   "logprob_token_ids": [[[t] for t in ids] for ids, _ in made]}).encode()
                self.answer(200, data)
        super().__init__(Generate)


def trl_trainer(training=True, **args):
    given = {"temperature": 0.5, "top_p": 1.0, "top_k": 0, "min_p": None, "repetition_penalty": 1.0, "max_completion_length": 64,
             "generation_kwargs": None, "use_vllm": False, "vllm_mode": "server", "vllm_server_base_url": None, "vllm_server_host": "127.0.0.1",
             "vllm_server_port": 0, "vllm_importance_sampling_correction": True, **args}
    return types.SimpleNamespace(args=types.SimpleNamespace(**given), state=types.SimpleNamespace(global_step=3),
                                 model=types.SimpleNamespace(training=training), processing_class=types.SimpleNamespace(pad_token_id=0))


def generate(rollouts, prompts, trainer, reward_func):
    """GRPOTrainer._generate and _calculate_rewards: what they read of a rollout function's answer. Rewards that are unknown are NaN,
    and those rows have no advantage."""
    output = rollouts(prompts, trainer)
    assert not {"prompt_ids", "completion_ids", "logprobs"} - output.keys()
    extra = {k: v for k, v in output.items() if k not in ("prompt_ids", "completion_ids", "logprobs")}
    mask = extra.pop("env_mask")
    assert len(prompts) == len(output["prompt_ids"]) == len(output["completion_ids"]) == len(mask)
    for ids, on, logprobs in zip(output["completion_ids"], mask, output["logprobs"], strict=True):
        assert len(ids) == len(on) == len(logprobs) > 0 and all(type(t) is int for t in ids) and set(on) <= {0, 1}
    inputs = [{"prompt": p} for p in prompts]
    for i, row in enumerate(inputs):
        for key, values in extra.items():
            assert isinstance(values, list)
            row[key] = values[i]
    keys = [k for k in inputs[0] if k not in ("prompt", "completion", "completion_ids")]
    rewards = reward_func(prompts=prompts, completions=[[]] * len(prompts), completion_ids=output["completion_ids"],
                          trainer_state=trainer.state, **{k: [row[k] for row in inputs] for k in keys})
    return output["prompt_ids"], output["completion_ids"], mask, output["logprobs"], rewards


@pytest.fixture
def rollouts_of():
    """Rollout functions that are closed at the end of the test."""
    made = []

    def make(module, *given, **more):
        made.append(module.RollgateRollouts("agent", *given, **more))
        return made[-1]
    yield make
    for one in made:
        one.close()


def conversation(kind):
    return [{"role": "user", "content": kind}]


def test_trl_through_its_own_server(monkeypatch, start, rollouts_of):
    module, serve = adapter(monkeypatch, "trl"), TrlServe()
    gateway = start(engine="none", model=g.MODELS / "chatml-bytes")
    rollouts = rollouts_of(module, gateway.url, group=ONCE, engine="trl", host="127.0.0.1")
    trainer = trl_trainer(use_vllm=True, vllm_server_port=serve.port, generation_kwargs={"seed": 5})
    with Running(gateway, agent):
        rows = generate(rollouts, [conversation("x")] * 4, trainer, module.reward)
        again = generate(rollouts, [conversation("y")], trainer, module.reward)
    assert rows[4] == [0.5] * 4 and again[4] == [0.5]
    seen = list(prompts_and_samples(gateway))
    for prompt, completion, mask, logprobs in zip(*rows[:4], strict=True):
        assert (prompt, completion) in seen and mask == [1] * 4 and logprobs == pytest.approx(sampled_of(prompt)[1])
    assert all(path == "/generate/" and set(body) <= TrlServe.FIELDS and body["n"] == 1 and body["temperature"] == 0.5
               and body["generation_kwargs"]["seed"] == 5 for path, body in serve.requests)
    assert sum(len(body["prompts"]) for _, body in serve.requests) == 5 and evaluations(gateway) == 0
    assert [name.split("-")[0] for name in engines_of(gateway)] == ["trl"], "named once"
    with pytest.raises(ValueError, match="vllm_mode='server'"):
        rollouts_of(module, gateway.url, engine="trl")([conversation("x")], trl_trainer(use_vllm=True, vllm_mode="colocate"))
    rollouts.close()
    assert engines_of(gateway) == []
    serve.close()


def test_trl_rows(monkeypatch, place, rollouts_of):     # noqa: F811
    module = adapter(monkeypatch, "trl")
    rollouts = rollouts_of(module, place.url, group=ONCE)
    prompts, completions, masks, _, rewards = generate(rollouts, [conversation("shares"), conversation("x")], trl_trainer(), module.reward)
    assert [sum(m) for m in masks] == [12, 4] and rewards == [0.5, 0.5] and len(masks[0]) > 12, "what agents and templates wrote is not trained"
    generate(rollouts, [conversation("x")], trl_trainer(training=False), module.reward)
    assert evaluations(place) == 1, "the model is not training"
    sent = [r["body"]["sampling_params"] for r in place.requests if "input_ids" in r["body"]][-1]
    assert sent["temperature"] == 0.5 and sent["top_k"] == -1
    with rollgate.Client(place.url) as client:
        assert {client.group(x["id"])["version"] for x in client.list_groups()["groups"]} == {3}


def test_trl_failures_are_not_trained(monkeypatch, place, rollouts_of):     # noqa: F811
    module = adapter(monkeypatch, "trl")
    with pytest.raises(hooks.RolloutFailed, match="the agent broke"):
        rollouts_of(module, place.url, group=ONCE)([conversation("x"), conversation("fails")], trl_trainer())
    dropped = rollouts_of(module, place.url, group=ONCE, on_failure="drop")
    _, completions, masks, logprobs, rewards = generate(dropped, [conversation("fails"), conversation("x")], trl_trainer(), module.reward)
    assert (completions[0], masks[0], logprobs[0], rewards) == ([0], [0], [0.0], [None, 0.5])
    external = rollouts_of(module, place.url, group={**ONCE, "reward": "external"})
    assert generate(external, [conversation("unscored")], trl_trainer(), module.reward)[4] == [None], "TRL's own functions score"
    for wrong, what in (({"on_failure": "pad"}, "on_failure must be"), ({"engine": "vllm"}, "engine must be trl or None")):
        with pytest.raises(ValueError, match=what):
            rollouts_of(module, place.url, **wrong)


# --- OpenRLHF 3c3be62: utils/agent.py, trainer/ray/vllm_engine.py, trainer/ppo_utils/samples_generator.py ---

class SamplingParams:
    """vLLM's: keywords that it knows, no others."""

    def __init__(self, temperature=1.0, top_p=1.0, top_k=0, min_p=0.0, repetition_penalty=1.0, presence_penalty=0.0, frequency_penalty=0.0,
                 max_tokens=16, min_tokens=0, stop=None, stop_token_ids=None, seed=None, ignore_eos=False, skip_special_tokens=True, logprobs=None):
        vars(self).update({k: v for k, v in locals().items() if k != "self"})


class RolloutRayActor:
    """What executors are given as llm_engine, and how they are called."""

    def __init__(self):
        self.asked = []

    async def generate(self, prompt_token_ids, sampling_params, multi_modal_data=None):
        self.asked.append((prompt_token_ids, sampling_params))
        ids, logprobs = sampled_of(prompt_token_ids)
        told = [{t: types.SimpleNamespace(logprob=p), 9: types.SimpleNamespace(logprob=-9.0)} for t, p in zip(ids, logprobs)]
        return types.SimpleNamespace(outputs=[types.SimpleNamespace(token_ids=tuple(ids), logprobs=told, finish_reason="stop", text="")])

    async def generate_responses(self, executor, prompt, label, sampling_params, max_length, num_samples=1, images=None):
        tasks = [executor.execute(prompt=prompt, label=label, sampling_params=sampling_params, max_length=max_length, hf_tokenizer=None,
                                  llm_engine=self, images=images) for _ in range(num_samples)]
        return await asyncio.gather(*tasks)


def experience_of(response, truncate_length=2048):
    """SamplesGenerator._process_response_into_experience: (ids, mask of ids[1:], log-probabilities of ids[1:], reward, score, info)."""
    ids = response["observation_tokens"].copy()
    mask = [0] * len(ids)
    for start, end in response["action_ranges"]:
        mask[start:end] = [1] * (end - start)
    assert len(ids) <= truncate_length, "OpenRLHF would cut it anywhere"
    logprobs = response["rollout_log_probs"]
    assert logprobs is None or len(logprobs) == len(ids)
    return ids, mask[1:], logprobs and logprobs[1:], response.get("reward"), response.get("scores"), response.get("extra_logs", {})


@pytest.fixture
def openrlhf(monkeypatch):
    base = type("AgentExecutorBase", (), {})
    fake(monkeypatch, "openrlhf.utils.agent", AgentExecutorBase=base)
    fake(monkeypatch, "vllm", SamplingParams=SamplingParams)
    return adapter(monkeypatch, "openrlhf")


def test_openrlhf_through_its_own_engine(openrlhf, start):
    gateway, actor = start(engine="none", model=g.MODELS / "chatml-bytes"), RolloutRayActor()
    asked = SamplingParams(temperature=0.5, top_k=-1, max_tokens=64, min_tokens=1, skip_special_tokens=False, logprobs=1)

    class AgentExecutor(openrlhf.RollgateExecutor):      # as the file of agent_func_path has it
        def __init__(self):
            super().__init__("agent", gateway.url, group=ONCE, host="127.0.0.1")
    executor = AgentExecutor()

    async def step():
        made = await actor.generate_responses(executor, "one", "42", asked, 2048, 3)
        return made, await asyncio.to_thread(engines_of, gateway)
    with Running(gateway, agent):
        made, engines = run(step())
        again, _ = run(step())
    rows = [experience_of(r) for r in made + again]
    seen = [a + b for a, b in prompts_and_samples(gateway)]
    for ids, mask, logprobs, reward, score, info in rows:
        assert ids in seen and sum(mask) == 4 and mask[-4:] == [1] * 4 and reward == score == 0.5 and info == {"acc": 1.0}
        assert [p for p, on in zip(logprobs, mask) if on] == pytest.approx(sampled_of(ids[:-4])[1])
    assert len(actor.asked) == 6 and all(p.temperature == 0.5 and p.logprobs == 1 and p.min_tokens == 1 for _, p in actor.asked)
    assert len(engines) == 1, "one engine, however many rollouts"
    assert engines_of(gateway) == [], "the loop that served it has ended"
    with rollgate.Client(gateway.url) as client:
        inputs = [client.group(x["id"])["input"] for x in client.list_groups()["groups"] if "input" in client.group(x["id"])]
        assert all(i == {"prompt": "one", "label": "42"} for i in inputs)


def test_openrlhf_rows(openrlhf, place):     # noqa: F811
    executor, actor = openrlhf.RollgateExecutor("agent", place.url, group=ONCE, engine=None), RolloutRayActor()
    asked = SamplingParams(temperature=1.0, top_k=-1, max_tokens=None, logprobs=None)

    def execute(label, max_length=2048, **more):
        (response,) = run(actor.generate_responses(executor, "p", label, asked, max_length, **more))
        return experience_of(response, max_length)
    ids, mask, logprobs, *_ = execute("shares")
    assert logprobs is None and sum(mask) == 12, "OpenRLHF asks for log-probabilities only with is_correction_enable"
    limit = len(ids) - 6       # neither branch fits
    cut = execute("shares", limit)
    assert len(cut[0]) <= limit and 0 < sum(cut[1]) < 12, "cut by whole turns, where OpenRLHF would cut anywhere"
    with pytest.raises(hooks.RolloutFailed, match="the agent broke"):
        execute("fails")
    with pytest.raises(ValueError, match="images"):
        execute("x", images=["a.png"])
    with pytest.raises(ValueError, match="external"):
        openrlhf.RollgateExecutor("agent", group={"reward": "external"})
    before = evaluations(place)
    executor.is_evaluation = lambda prompt, label: label == "of the test set"
    execute("of the test set")
    assert evaluations(place) == before + 1


# --- the engine that an adapter serves ---

def test_a_served_engine_listens_where_it_is_reached():
    assert bind_address("127.0.0.1") == "127.0.0.1" and bind_address("trainer-0.cluster") == "0.0.0.0"
    assert bind_address(None) == own_address(), "not on every network that this machine is on"
    assert engine_setting("trl", "fd00::7", 81) == ("trl-fd00--7-81", "trl-fd00--7-81=sglang:http://[fd00::7]:81")


def test_a_served_engine_fails_calls_and_ends_cancelled_ones(start, caplog):
    """An error of the trainer's engine is the gateway's 502, and is in the trainer's log; a call that is cancelled cancels its sample."""
    state = {"cancelled": 0}

    async def sample(ids, given):
        if given.get("temperature") == 0.25:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                state["cancelled"] += 1
                raise
        if given.get("temperature") == 0.125:
            raise RuntimeError("out of memory")
        out, logprobs = sampled_of(ids)
        return Sampled(out, logprobs, "length" if len(out) >= given["max_new_tokens"] else "stop")

    async def scene():
        server = EngineServer(sample, version=lambda: "9")
        port = await server.start("127.0.0.1")
        gateway = await asyncio.to_thread(start, engine=f"sglang:http://127.0.0.1:{port}", model=g.MODELS / "chatml-bytes", engine_retries=0)
        async with rollgate.AsyncClient(gateway.url, retry_s=0) as client:
            s = await client.create_session()
            await s.chat([{"role": "user", "content": "a"}])
            (t,) = await s.trajectories()
            with pytest.raises(rollgate.errors.EngineInvalid, match="the engine failed: 500"):
                await s.chat([{"role": "user", "content": "b"}], temperature=0.125)
            call = asyncio.ensure_future(s.chat([{"role": "user", "content": "c"}], temperature=0.25))
            while (await s.state())["num_inflight_generations"] == 0:
                await asyncio.sleep(0.02)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
            await s.abort()
            while not state["cancelled"]:
                await asyncio.sleep(0.02)
        await server.close()
        return t
    t = run(scene())
    assert "out of memory" in caplog.text
    assert t.response_ids.tolist() == sampled_of(t.prompt_ids)[0] and t.versions == (9, 9) and t.truncated is False


def test_a_served_engine_tells_the_version_that_sampled():
    """Weights that change while a sample runs are not its own."""
    state = {"version": "1"}

    async def sample(ids, given):
        state["version"] = "2"
        return Sampled([7], [-0.5], "stop")
    server = EngineServer(sample, version=lambda: state["version"])
    _, result = asyncio.run(server._generate({"input_ids": [1], "sampling_params": {}}))
    assert result["meta_info"]["weight_version"] == "1"


def test_an_engine_that_cannot_be_named_is_closed(place):     # noqa: F811
    """The gateway refuses the name, or is gone: nobody would close the port any more."""
    async def sample(ids, given):
        raise AssertionError

    async def scene(url, host, error):
        server = EngineServer(sample)
        async with rollgate.AsyncClient(url, retry_s=0) as client:
            with pytest.raises(error):
                await server.join(client, "x", host)
        assert not server._server.is_serving()
    run(scene(place.url, "no host", rollgate.RollgateError))
    run(scene("http://127.0.0.1:1", "127.0.0.1", rollgate.errors.Unreachable))


ACTOR = """
import asyncio, os, sys, threading
import rollgate
from rollgate.engine_server import EngineServer

loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()      # as Ray runs an actor's

async def join():
    server = EngineServer(None)
    async with rollgate.AsyncClient(sys.argv[1]) as client:
        print(await server.join(client, "actor", "127.0.0.1"), flush=True)
asyncio.run_coroutine_threadsafe(join(), loop).result()
if os.fork() == 0:
    sys.exit()
os.wait()
print(*(e["name"] for e in rollgate.Client(sys.argv[1]).engines()["engines"] if e["state"] != "draining"), flush=True)
sys.stdin.readline()
"""


def test_an_engine_leaves_the_gateway_with_its_process(start):
    """Whose loop is never closed. A forked process that ends removes nothing; a gateway that is gone is a line in the log."""
    gateway = start(engine="none", model=g.MODELS / "chatml-bytes")
    for end, error in ((lambda: None, ""), (gateway.stop, "stays in the gateway")):
        command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", ACTOR, gateway.url]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              env={**os.environ, "PYTHONPATH": str(g.ROOT / "python")}) as actor:
            name, still = actor.stdout.readline(), actor.stdout.readline()
            end()
            _, said = actor.communicate("\n", timeout=60)
        assert name == still and name.startswith("actor-") and actor.returncode == 0
        assert error in said and (error or said == "") and (error or engines_of(gateway) == [])


def test_trl_knows_an_end_at_the_limit_from_a_cut(monkeypatch):
    """vLLM says `stop` of an answer whose last allowed token is its end."""
    serve = TrlServe()
    ask = adapter(monkeypatch, "trl").VllmServe(f"http://127.0.0.1:{serve.port}")._ask
    try:
        finishes = [ask({"max_tokens": n, **stops}, [[1]])[0].finish for n, stops in
                    ((4, {"stop_token_ids": [END]}), (4, {}), (4, {"stop_token_ids": [5]}), (5, {}))]
    finally:
        serve.close()
    assert finishes == ["stop", "length", "length", "stop"]

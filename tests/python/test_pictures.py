"""Pictures in exports as Python reads them, and in what the adapters hand to trainers: as files and places where a trainer takes
them, else an error; none is dropped unseen."""
import dataclasses
import io
import types

import pytest

import rollgate
import vision_kit as kit
from rollgate.executor import runner
from test_adapters import (COLUMNS, PARAMS, SAMPLES_PARAMS, AgentLoopBase, AgentLoopMetrics, AgentLoopOutput, GenerateFnInput,
                           GenerateFnOutput, ONCE, Sample, SessionHandle, UniTrajectory, adapter, fake, run, vf_ctx, vf_env,
                           vf_task)
from test_executor import Running

PIL = pytest.importorskip("PIL.Image")
SHOTS = [kit.png(640, 480), kit.png(100, 37)]


@runner("agent", slots=8)
async def agent(task, session):
    """Two turns, each with a picture."""
    messages = []
    for shot in SHOTS:
        messages.append(kit.user(kit.text("look"), kit.image(shot)))
        answer = await session.chat(messages)
        messages.append(answer["choices"][0]["message"])
    return {"reward": 0.5, "acc": 1}


@pytest.fixture
def place(start, tmp_path):
    with kit.VisionStub("sglang") as engine:
        engine.otherwise = lambda body: {**kit.GOOD, "version": "7"}
        gateway = start(engine=engine.setting, model=kit.model_folder(tmp_path / "m") or tmp_path / "m", workers=1)
        gateway.engine = engine
        with Running(gateway, agent):
            yield gateway


def talk(gateway):
    sid = kit.session(gateway)
    messages = []
    for shot in SHOTS:
        messages.append(kit.user(kit.text("look"), kit.image(shot)))
        messages.append(kit.chat(gateway, sid, messages).json()["choices"][0]["message"])
    return sid


def seen(images):
    """What a list of Pillow's pictures is, to be compared: sizes and pixels."""
    return [(i.size, i.convert("RGB").tobytes()) for i in images]


WANT = seen(PIL.open(io.BytesIO(s)) for s in SHOTS)


def test_trajectories_have_their_pictures(place):
    sid = talk(place)
    with rollgate.Client(place.url) as client:
        for form in ("json", "msgpack", "safetensors"):
            (t,) = client.trajectories(sid, format=form, media="inline")
            assert t.image_files() == SHOTS and seen(t.pil_images()) == WANT
            for image, shot in zip(t.images, SHOTS):
                assert set(t.ids[image["offset"]:image["offset"] + image["length"]].tolist()) == {kit.PAD}
                assert image["media"] == kit.sha(shot) and image["grid_thw"] == list(kit.grid(*kit.size_of(shot)))
            (t,) = client.trajectories(sid, format=form)
            assert len(t.images) == 2
            with pytest.raises(ValueError, match="media=inline"):
                t.image_files()
        with pytest.raises(ValueError, match="shows 2"):
            rollgate.pad([t])
        with pytest.raises(ValueError, match="shows 2"):
            rollgate.pack([t])
        with pytest.raises(ValueError, match="images must be"):
            rollgate.pad([t], images="yes")
        assert rollgate.pad([t], images="apart")["input_ids"].shape == (1, len(t.ids))
        assert len(rollgate.pack([t], images="apart")) == 1


def test_files_of_pictures_are_no_rows(place):
    """Two pictures of one trajectory: `media.1` is no second row, nor is `media.0` a column of the first."""
    sid = talk(place)
    with rollgate.Client(place.url) as client:
        client.reward(sid, 1)
        for form in ("verl", "miles", "areal"):
            tensors = client.trajectories(sid, format=form, media="inline")
            assert bytes(tensors.view("media.1")) == SHOTS[1] and tensors.rows == 1, form
            assert "image_spans" in tensors.row(0) and "media" not in tensors.row(0) and tensors.row(1) == {}


def test_verl(monkeypatch, place):
    fake(monkeypatch, "verl.experimental.agent_loop.agent_loop", AgentLoopBase=AgentLoopBase, AgentLoopMetrics=AgentLoopMetrics,
         AgentLoopOutput=AgentLoopOutput)
    verl = adapter(monkeypatch, "verl")

    def loop(processor):
        return verl.RollgateAgentLoop(trainer_config=None, server_manager=None, tokenizer=None, processor=processor,
                                      dataset_cls=None, data_config=None, runner="agent", url=place.url, group=ONCE)
    out = run(loop(object()).run(PARAMS, **COLUMNS))
    assert seen(out.multi_modal_data["images"]) == WANT
    ids = out.prompt_ids + out.response_ids
    assert ids.count(kit.PAD) == sum(kit.tokens(*kit.size_of(s)) for s in SHOTS)
    with pytest.raises(ValueError, match="verl without a processor"):
        run(loop(None).run(PARAMS, **COLUMNS))


def test_uni_agent(monkeypatch, place):
    fake(monkeypatch, "uni_agent.framework.entry", AgentFrameworkRolloutAdapter=object, AgentFrameworkWorker=object)
    fake(monkeypatch, "uni_agent.gateway.session.types", SessionHandle=SessionHandle, Trajectory=UniTrajectory)
    manager = adapter(monkeypatch, "uni_agent").RollgateGatewayManager(place.url)

    async def scene():
        handle = await manager.create_session("u")
        client = rollgate.hooks.connect(place.url)
        await client.chat(handle.base_url.split("/sessions/")[1].split("/")[0], [kit.user(kit.image(SHOTS[0]))])
        return await manager.finalize_session("u")
    (t,) = run(scene())
    assert seen(t.multi_modal_data["images"]) == WANT[:1]


class Grids(list):
    def tolist(self):
        return list(self)


class Processor:
    """The model's, as far as grids go; `wrong` resizes first, as qwen_vl_utils does."""

    def __init__(self, wrong=False):
        self.wrong = wrong

    def image_processor(self, images, return_tensors):
        assert return_tensors == "pt"
        grids = [list(kit.grid(*(7 * s if self.wrong else s for s in i.size))) for i in images]
        return {"pixel_values": seen(images), "image_grid_thw": Grids(grids)}


@dataclasses.dataclass
class SeeingSample(Sample):
    multimodal_inputs: dict = None
    multimodal_train_inputs: dict = None


def sample():
    return SeeingSample(index=4, group_index=1, prompt=[{"role": "user", "content": "x"}], metadata={})


def check_sample(generate):
    """generate(processor) -> the sample."""
    one = generate(Processor())
    assert one.status == Sample.Status.COMPLETED and seen(one.multimodal_inputs["images"]) == WANT
    assert one.multimodal_train_inputs["pixel_values"] == WANT
    assert one.tokens.count(kit.PAD) == sum(kit.tokens(*kit.size_of(s)) for s in SHOTS)
    with pytest.raises(ValueError, match="no processor"):
        generate(None)
    with pytest.raises(ValueError, match="that the engine saw as"):
        generate(Processor(wrong=True))


def test_miles(monkeypatch, place):
    fake(monkeypatch, "miles.rollout.base_types", GenerateFnInput=GenerateFnInput, GenerateFnOutput=GenerateFnOutput)
    module = adapter(monkeypatch, "miles")
    args = types.SimpleNamespace(rollgate_runner="agent", rollgate_url=place.url, rollgate_group=ONCE)

    def generate(processor):
        state = types.SimpleNamespace(args=args, processor=processor)
        return run(module.generate(GenerateFnInput(state, sample(), dict(SAMPLES_PARAMS), False))).samples[0]
    check_sample(generate)


def test_slime(monkeypatch, place):
    class GenerateState:
        aborted, processor = False, None

        def __init__(self, args):
            pass
    fake(monkeypatch, "slime.rollout.sglang_rollout", GenerateState=GenerateState)
    module = adapter(monkeypatch, "slime")
    args = types.SimpleNamespace(rollgate_runner="agent", rollgate_url=place.url, rollgate_group=ONCE)

    def generate(processor):
        GenerateState.processor = processor
        return run(module.generate(args, sample(), dict(SAMPLES_PARAMS)))
    check_sample(generate)


def test_trainers_that_take_none_say_so(monkeypatch, place):
    fake(monkeypatch, "areal.api.workflow_api", RolloutWorkflow=object)
    context = types.SimpleNamespace(get=lambda: types.SimpleNamespace(is_eval=False))
    fake(monkeypatch, "areal.infra", workflow_context=context)
    fake(monkeypatch, "torch", from_numpy=lambda array: array)
    workflow = adapter(monkeypatch, "areal").RollgateWorkflow("agent", place.url, group=ONCE)
    with pytest.raises(ValueError, match="AReaL's workflow takes no images"):
        run(workflow.arun_episode(types.SimpleNamespace(get_version=lambda: 11), {"question": "x"}))
    fake(monkeypatch, "skyrl.train.generators.base", GeneratorInterface=object)
    generator = adapter(monkeypatch, "skyrl").RollgateGenerator("agent", url=place.url, group=ONCE)
    with pytest.raises(ValueError, match="SkyRL's generator takes no images"):
        run(generator.generate({"prompts": ["x"]}))
    env = vf_env(monkeypatch, runner="agent", url=place.url, group=ONCE)
    with pytest.raises(ValueError, match="prime-rl's trace"):
        run(env.run_episode(vf_task("x"), vf_ctx()))

"""The package's types: `mypy --strict` passes on it, on examples/tiny and on a program that is written against the types alone; the
mistakes that they are for are reported. The typed face of the calls is what openapi.json makes it."""
import json
import os
import pathlib
import subprocess
import sys

import pytest

import gateway as g

PROGRAM = '''\
import asyncio
import pathlib
import rollgate
from rollgate.executor import Session, Task, runner


@runner("math", slots=2)
async def math(task: Task, session: Session) -> float:
    answer = await session.chat([{"role": "user", "content": str(task.input)}])
    return float("4" in answer["choices"][0]["message"]["content"])


def train(url: str, folder: str) -> float:
    with rollgate.Client(url) as gateway:
        with gateway.create_session(labels={"task": "42"}, sampling_params={"temperature": 0.5}, history="tree") as s:
            answer = s.chat([{"role": "user", "content": "What is 6 times 7?"}], max_tokens=32)
            print(answer["usage"])
            s.reward({"reward": 1.0})
        state = s.state()
        print(state["num_calls"] + 1, state["warnings"])
        export = s.finalize(train_once=True)
        tensors = gateway.finalize(s.id, "verl")
        print(tensors.rows, [t.reward_info.get("acc") for t in export])
        (pathlib.Path(folder) / "one.msgpack").write_bytes(gateway.finalize(s.id, raw=True))
        data = rollgate.dataset(f"{folder}/*.msgpack", shuffle=1, where=lambda t: t.trained_tokens > 0)
        print([bin["rewards"].tolist() for bin in data.pack(4096)], data.state()["epoch"])
        made = gateway.create_session(count=2)["sessions"]
        for one in made:
            one.delete()
        return sum(t.reward or 0.0 for t in export)


async def watch(url: str) -> int:
    async with rollgate.AsyncClient(url) as gateway:
        async with await gateway.create_session() as s:
            await s.chat([{"role": "user", "content": "hi"}])
        try:
            await s.chat([{"role": "user", "content": "more"}], stop=["x"])
        except (rollgate.Ended, rollgate.Retryable) as e:
            print(e.code, e.request_id)
        return len(await s.finalize())


if __name__ == "__main__":
    import sys
    print(train(sys.argv[1], sys.argv[2]), asyncio.run(watch(sys.argv[1])))
'''
MISTAKES = {        # what is written instead -> what is reported
    "a forgotten await": ("            await s.chat([{\"role\": \"user\", \"content\": \"hi\"}])\n",
                          "            s.chat([{\"role\": \"user\", \"content\": \"hi\"}])\n", "unused-coroutine"),
    "a value that was not awaited": ("return len(await s.finalize())", "return len(s.finalize())", "arg-type"),
    "a misspelt option": ('history="tree"', 'histroy="tree"', "call-overload"),
    "a misspelt parameter in a mapping": ('"temperature": 0.5', '"temprature": 0.5', "call-overload"),
    "a value that an option does not take": ('history="tree"', 'history="forest"', "call-overload"),
    "an option of an export": ("train_once=True", "train_ones=True", "call-arg"),
    "a misspelt member of an answer": ('state["num_calls"]', 'state["num_call"]', "typeddict-item"),
    "an option that a data set does not take": ("shuffle=1", "shuffled=1", "call-overload"),
    "a reward that may be unknown": ("t.reward or 0.0 for", "t.reward for", "misc")}
ENV = {**os.environ, "MYPYPATH": str(g.ROOT / "python"), "MYPY_CACHE_DIR": str(g.ROOT / "build/mypy")}


CONFIG = g.ROOT / "python/pyproject.toml"      # one for all: with other options mypy reads numpy again, for ten seconds


def mypy(*arguments, cwd=None, config=CONFIG):
    done = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--config-file", str(config), *map(str, arguments)], capture_output=True,
                          text=True, cwd=cwd, env=ENV)
    return done.stdout + done.stderr


@pytest.mark.cases(1)    # scripts/check reads it as 3.11's; each version takes ten seconds
@pytest.mark.parametrize("version", ["3.13", "3.10", "3.11", "3.12"])
def test_the_package_is_strictly_typed_from_the_oldest_python_that_it_requires(version):
    import tomllib
    oldest = tomllib.loads((g.ROOT / "python/pyproject.toml").read_text())["project"]["requires-python"].removeprefix(">=")
    said = mypy("--python-version", version, cwd=g.ROOT / "python")
    assert ("Success" in said) == (tuple(map(int, version.split("."))) >= tuple(map(int, oldest.split(".")))), said


@pytest.mark.whole      # scripts/check reads it, too
def test_the_example_is_strictly_typed():
    said = mypy("train.py", "agent.py", "algorithms.py", "policy.py", "server.py", cwd=g.ROOT / "examples/tiny")
    assert "Success" in said, said


TRAINERS = ["disallow_subclassing_any", "disallow_untyped_defs", "disallow_untyped_calls"]


def trainers_examples():
    return sorted(p.name for p in (g.ROOT / "examples/trainers").glob("*.py"))


def test_the_trainers_examples_are_typed(tmp_path):
    """Classes of trainers have no types here."""
    modules = json.dumps([name.removesuffix(".py") for name in trainers_examples()] + ["wrong"])
    config = tmp_path / "pyproject.toml"
    config.write_text(CONFIG.read_text() + f"\n[[tool.mypy.overrides]]\nmodule = {modules}\nignore_missing_imports = true\n"
                      + "".join(f"{option} = false\n" for option in TRAINERS))
    said = mypy(*trainers_examples(), cwd=g.ROOT / "examples/trainers", config=config)
    assert "Success" in said, said
    wrong = (g.ROOT / "examples/trainers/skyrl_generator.py").read_text().replace("group=", "gruop=")
    (tmp_path / "wrong.py").write_text(wrong)
    assert "[call-arg]" in mypy("wrong.py", cwd=tmp_path, config=config)


def test_a_program_of_the_types_alone_passes_and_runs(tmp_path, start):
    (tmp_path / "program.py").write_text(PROGRAM)
    said = mypy("program.py", cwd=tmp_path)
    assert "Success" in said, said
    done = subprocess.run([sys.executable, "program.py", start(workers=1).url, "."], capture_output=True, text=True, cwd=tmp_path,
                          env={**os.environ, "PYTHONPATH": str(g.ROOT / "python")})
    assert done.returncode == 0 and done.stdout.splitlines()[-1] == "1.0 2", done.stdout + done.stderr


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """mistake -> the lines of mypy's errors in the program that has it: one run reads all of them"""
    folder = tmp_path_factory.mktemp("mistakes")
    names = {mistake: f"mistake_{n}.py" for n, mistake in enumerate(MISTAKES)}
    for mistake, (right, wrong, _) in MISTAKES.items():
        assert PROGRAM.count(right) >= 1
        (folder / names[mistake]).write_text(PROGRAM.replace(right, wrong, 1))
    said = mypy(*names.values(), cwd=folder).splitlines()
    return {mistake: [x for x in said if x.startswith(f"{name}:") and "error" in x] for mistake, name in names.items()}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_reported(reports, mistake):
    right, _, code = MISTAKES[mistake]
    line = PROGRAM[:PROGRAM.index(right)].count("\n") + 1
    found = reports[mistake]
    assert any(f"[{code}]" in x and abs(int(x.split(":")[1]) - line) <= 1 for x in found), found


def test_signatures_are_what_the_gateway_says(start, tmp_path):
    path = tmp_path / "openapi.json"
    path.write_text(json.dumps(start(workers=1).get("/openapi.json").json()))
    done = subprocess.run([sys.executable, str(g.ROOT / "scripts/gen_python_types.py"), str(path), "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_answers_have_the_members_that_the_types_name(start):
    import rollgate
    from rollgate import answers
    with rollgate.Client(start(workers=1).url) as client:
        s = client.create_session(labels={"a": "b"}, group="g", rollout=0)
        s.chat([{"role": "user", "content": "hi"}])
        s.complete(1.0, finished=True, reason="done")
        state = client.session(s.id, records=True)
        optional = {"evaluation", "stop_reason"}
        assert set(answers.SessionState.__annotations__) - set(state) <= optional
        client.submit([{"id": "x", "runner": "nobody", "input": 1, "queue": "q"}])
        group = client.group("x")
        assert set(answers.GroupResult.__annotations__) <= set(group), set(answers.GroupResult.__annotations__) - set(group)
        assert set(answers.Member.__annotations__) - set(group["members"][0]) <= {"reason", "outcome", "reward_info", "timings", "session_id"}
        assert set(answers.QueueCounts.__annotations__) <= set(client.queue("q"))
        assert set(client.next("q")) == set(answers.QueueAnswer.__annotations__)
        client.cancel_group("x")
    assert pathlib.Path(answers.__file__).parent.joinpath("py.typed").exists()

"""Executors against a real dispatcher: outcomes, time-outs, cancellation, leases, pacing, a thousand rollouts."""
import asyncio
import math
import os
import signal
import subprocess
import sys
import threading
import time

import numpy
import pytest

import gateway as g
import rollgate
import rollgate.executor
from rollgate import errors, pace
from rollgate.executor import Executor, Infra, Task, _Running, find_runners, runner
from stub_engines import StubEngine


class Running:
    """An executor in a thread of its own."""

    def __init__(self, gateway, *runners, of=Executor, **more):
        self.ready, self.error, self.of = threading.Event(), None, of
        self.thread = threading.Thread(target=lambda: asyncio.run(self.main(gateway, runners, more)))

    async def main(self, gateway, runners, more):
        self.loop = asyncio.get_running_loop()
        self.executor = self.of(runners, gateway.url, **more)
        self.ready.set()
        try:
            await self.executor.run()
        except errors.RollgateError as e:
            self.error = e

    def __enter__(self):
        self.thread.start()
        assert self.ready.wait(10)
        return self.executor

    def __exit__(self, *_):
        if self.thread.is_alive():
            self.loop.call_soon_threadsafe(self.executor.stop)
        self.thread.join(30)
        assert not self.thread.is_alive(), "the executor does not end"


def take(client, n, queue="train", timeout=60, ack=True):
    groups, end = [], time.monotonic() + timeout
    while len(groups) < n:
        assert time.monotonic() < end, client.queue(queue)
        groups += client.next(queue, max=64, wait_s=2)["groups"]
    if ack:     # which frees what the gateway holds of their sessions
        client.ack(queue, [x["id"] for x in groups])
    return {x["id"]: x for x in groups}


def submit(client, *groups, **defaults):
    client.submit(groups, defaults={"input": None, "n": 1, **defaults})


async def talk(session, text="hello"):
    answer = await session.chat([{"role": "user", "content": text}])
    return answer["choices"][0]["message"]["content"]


@pytest.fixture
def place(start):
    gateway = start(engine="builtin:echo", attempt_lease="2s")
    with rollgate.Client(gateway.url) as client:
        yield gateway, client


def test_async_and_threads(place):
    gateway, client = place
    seen = {"most": 0, "now": 0}

    @runner("async", slots=3)
    async def one(task, session):
        seen["now"] += 1
        seen["most"] = max(seen["most"], seen["now"])
        await talk(session, task.input["q"])
        seen["now"] -= 1
        return {"reward": task.input["r"], "acc": 1}

    @runner("thread", slots=2)
    def two(task, session):
        session.chat([{"role": "user", "content": "x"}])
        assert session.env["OPENAI_BASE_URL"] == session.base_url
        return 0.5

    submit(client, *({"id": f"a{i}", "runner": "async", "input": {"q": f"q{i}", "r": i / 10}, "n": 4} for i in range(6)),
           *({"id": f"t{i}", "runner": "thread", "n": 2, "metadata": {"uid": "u"}} for i in range(4)))
    with Running(gateway, one, two) as executor:
        groups = take(client, 10, ack=False)
    assert all(x["state"] == "finished" for x in groups.values())
    assert [m["reward"] for m in groups["a3"]["members"]] == [0.3] * 4 and pace.rewards(groups["t1"]) == [0.5, 0.5]
    assert groups["t1"]["metadata"] == {"uid": "u"} and groups["a3"]["members"][0]["timings"]["run"] >= 0
    assert seen["most"] == 3 and executor.peak == {"async": 3, "thread": 2} and executor.ended == {"ok": 32}
    export = client.finalize(groups["a3"]["members"][2]["session_id"])
    assert export.group == "a3" and export[0].reward == 0.3 and export[0]["reward_info"] == {"reward": 0.3, "acc": 1}


def test_outcomes(place):
    gateway, client = place
    tries = {}

    def count(task):
        tries[task.input] = tries.get(task.input, 0) + 1

    @runner("r", slots=8, timeout=4)
    async def work(task, session):
        count(task)
        await talk(session)
        if task.input == "infra" and tries["infra"] < 3:
            raise Infra("the sandbox is gone")
        if task.input == "gateway" and tries["gateway"] < 2:
            raise errors.EngineUnavailable("no engine", status=503, retry=True)
        if task.input == "error":
            raise RuntimeError("a bug of the agent's")
        if task.input == "slow":
            await asyncio.sleep(60)
        if task.input == "strange":
            return "very good"
        return None if task.input == "external" else 1

    @runner("mute", slots=1)
    async def mute(task, session):
        return 1    # no model call: nothing to train

    @runner("stuck", slots=1, timeout=2)
    def stuck(task, session):
        session.chat([{"role": "user", "content": "x"}])
        while not task.stopped:
            time.sleep(0.02)

    names = ("infra", "gateway", "error", "slow", "strange", "external")
    submit(client, *({"id": n, "runner": "r", "input": n, "attempts": 2, "reward": "external" if n == "external" else "required"}
                     for n in names), {"id": "mute", "runner": "mute", "attempts": 1}, {"id": "stuck", "runner": "stuck"})
    with Running(gateway, work, mute, stuck):
        groups = take(client, 8)
    assert {n: x["state"] for n, x in groups.items()} == {
        "infra": "finished", "gateway": "finished", "error": "failed", "slow": "finished", "strange": "failed",
        "external": "finished", "mute": "failed", "stuck": "finished"}
    member = {n: x["members"][0] for n, x in groups.items()}
    assert tries["infra"] == 3 and tries["error"] == 2 and member["infra"]["attempts"] == 3
    assert "a bug of the agent's" in member["error"]["reason"] and "RuntimeError" in member["error"]["log_tail"]
    assert "a reward is a number or a mapping, not str" in member["strange"]["reason"]
    for n in ("slow", "stuck"):     # kept as it stands: not finished, the group's fail_reward
        assert (member[n]["outcome"], member[n]["finished"], member[n]["reward"]) == ("timeout", False, 0)
    assert member["external"]["reward"] is None and member["external"]["trained_tokens"] > 0


ODD_REWARDS = {     # what a runner returns -> the end's reward, or a part of the reason why there is none
    "float32": (lambda: {"reward": numpy.float32(0.5), "steps": numpy.int64(3), "by": numpy.array([1, 2])}, 0.5),
    "bool": (lambda: {"reward": 1, "finished": numpy.bool_(True)}, 1),
    "scalar": (lambda: numpy.float32(0.25), 0.25),
    "tensor": (lambda: {"reward": numpy.array(0.75)}, 0.75),
    "nan": (lambda: {"reward": math.nan}, "ValueError: reward_info.reward is nan"),
    "number nan": (lambda: math.nan, "ValueError: reward_info.reward is nan"),
    "inf": (lambda: {"reward": 1, "parts": [{"speed": numpy.float64("inf")}]}, "reward_info.parts[0].speed is inf"),
    "object": (lambda: {"reward": 1, "why": ValueError("deep inside")}, "reward_info.why is a ValueError, which JSON cannot write"),
    "text": (lambda: {"reward": 1, "file": "a\udc80b"}, "reward_info.file is a text that UTF-8 cannot write"),
    "key": (lambda: {"reward": 1, "a\udc80b": 1}, "UnicodeEncodeError"),
    "large": (lambda: {"reward": 1e300}, "reward"),     # JSON has it, a float32 does not
    "long": (lambda: {"reward": 1, "why": "x" * (5 << 20)}, "--max-control-body-bytes allows 1048576"),
    "raises": (lambda: open("/no/such/a\udc80b"), "/no/such/a\\udc80b"),
}


def test_every_reward_ends_its_attempt(place):
    """Without an end the attempt would be tried again and again, each time when its lease has run out."""
    gateway, client = place

    @runner("r", slots=4)
    async def work(task, session):
        await talk(session)
        return ODD_REWARDS[task.input][0]()
    submit(client, *({"id": x.replace(" ", "-"), "runner": "r", "input": x, "attempts": 1} for x in ODD_REWARDS))
    with Running(gateway, work) as executor:
        groups = take(client, len(ODD_REWARDS))
    for x, (_, want) in ODD_REWARDS.items():
        member = groups[x.replace(" ", "-")]["members"][0]
        assert member["attempts"] == 1, (x, member)
        if isinstance(want, str):
            assert (member["outcome"], member["state"]) == ("error", "failed") and want in member["reason"], (x, member)
        else:
            assert (member["outcome"], member["reward"], member["finished"]) == ("ok", want, True), (x, member)
    assert groups["float32"]["members"][0]["reward_info"] == {"reward": 0.5, "steps": 3, "by": [1, 2]}
    assert executor.ended == {"ok": 5, "error": 8}, "the large one is written, and refused by the session's worker"


def test_whatever_a_runner_does_its_attempt_ends_and_its_slot_is_free(place):
    gateway, client = place

    async def behave(task, session):
        await talk(session)
        if task.input == "exits":
            sys.exit("no such tool")
        return 1

    def behave_in_a_thread(task, session):
        session.chat([{"role": "user", "content": "x"}])
        if task.input == "exits":
            sys.exit(3)
        return next(iter([1] if task.input == "well" else []))

    async def too_few(task):
        return 1

    names = {"async": behave, "thread": behave_in_a_thread, "few": too_few, "few-thread": lambda task: 1}
    cases = [("async", "exits", "SystemExit('no such tool')"), ("thread", "exits", "SystemExit(3)"), ("thread", "ends", "StopIteration()"),
             ("few", "-", "TypeError"), ("few-thread", "-", "TypeError"), ("few", "+", "TypeError"), ("async", "well", None), ("thread", "well", None)]
    submit(client, *({"id": f"g{i}", "runner": name, "input": what, "attempts": 1} for i, (name, what, _) in enumerate(cases)))
    with Running(gateway, *(runner(name)(function) for name, function in names.items())):
        groups = take(client, len(cases))
    for i, (name, _, reason) in enumerate(cases):
        member = groups[f"g{i}"]["members"][0]
        assert member["outcome"] == ("error" if reason else "ok") and (reason or "") in (member["reason"] or ""), (name, member)


def test_an_attempt_that_came_as_the_executor_stopped_is_not_begun():
    told = []

    class Client:
        async def end_attempt(self, attempt_id, executor, outcome, **fields):
            told.append((outcome, fields["reason"], fields["stopping"]))

    async def never(task, session):
        raise AssertionError("it runs")
    never = runner("r")(never)

    async def scene():
        executor = Executor([never], "http://127.0.0.1:1", client=Client())
        executor._begin({"runner": "r", "run_timeout_s": 60, "input": None, "group": "g", "rollout": 0, "attempt": 1, "attempt_id": "a",
                         "session": {"session_id": "s", "base_url": "", "anthropic_base_url": ""}})
        executor._end_work(executor.running["a"], "stopping")
        await asyncio.wait(set(executor._tasks))
        assert executor._free() == {"r": 1}
    asyncio.run(scene())
    assert told == [("infra", "the executor is stopping", True)]


def test_answers_that_are_none_end_neither_claims_nor_renewals():
    calls = []

    class Client:
        async def claim(self, name, slots, wait_s):
            calls.append("claim")
            if calls.count("claim") == 1:
                return {}
            executor.stop()
            return {"attempts": []}

        async def renew(self, name, attempts, wait_s):
            calls.append("renew")
            if calls.count("renew") == 2:
                raise asyncio.CancelledError
            return None

    @runner("r")
    async def never(task, session):
        raise AssertionError

    async def scene():
        nonlocal executor
        executor = Executor([never], "http://127.0.0.1:1", client=Client())
        executor.client.retry_s = 1.0
        await executor._claim_loop()
        executor.running = {"a": None}
        with pytest.raises(asyncio.CancelledError):
            await executor._renew_loop()
    executor = None
    asyncio.run(scene())
    assert calls == ["claim", "claim", "renew", "renew"] and executor._free() == {"r": 1}


def test_ends_that_are_refused_or_not_taken(caplog):
    """What is refused for what it says is told as an error, once; what nobody takes at all is logged."""
    answers = {"unfit": [errors.InvalidRequest("a long name", status=400), {}], "broken": [RecursionError("too deep")] * 2,
               "gone": [errors.Unreachable("no answer")], "lost": [RecursionError("too deep"), errors.AttemptEnded("", status=410)]}
    told = []

    class Client:
        async def end_attempt(self, attempt_id, executor, outcome, **fields):
            told.append((attempt_id, outcome, fields.get("reason")))
            answer = answers[attempt_id].pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

    @runner("r")
    async def never(task, session):
        raise AssertionError

    async def ends():
        executor = Executor([never], "http://127.0.0.1:1", client=Client())
        for name in list(answers):
            task = Task(None, "g", 0, 1, name, "r", {}, 0.0)
            executor.running[name] = attempt = _Running(never, task)
            await executor._tell(attempt, {"outcome": "ok", "timings": {}})
        return executor
    executor = asyncio.run(ends())
    assert told == [("unfit", "ok", None), ("unfit", "error", "InvalidRequest: 400 invalid_request: a long name"),
                    ("broken", "ok", None), ("broken", "error", "RecursionError: too deep"), ("gone", "ok", None),
                    ("lost", "ok", None), ("lost", "error", "RecursionError: too deep")]
    assert executor.ended == {"error": 1, "untold": 2, "stopped": 1} and not executor.running and not any(answers.values())
    lines = [r.getMessage() for r in caplog.records if r.levelname == "ERROR"]
    assert lines == ["the end of attempt broken (error) is not taken: too deep",
                     "the end of attempt gone (ok) is not taken: - unreachable: no answer"]


def test_cancelled_by_the_trainer(place):
    gateway, client = place
    begun, ended = threading.Event(), threading.Event()

    @runner("r", slots=1)
    async def work(task, session):
        await talk(session)
        if task.input == "last":
            return 1
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            assert task.stopped
            ended.set()

    submit(client, {"id": "g", "runner": "r"})
    with Running(gateway, work) as executor:
        assert begun.wait(20)
        assert client.cancel_queue("train")["cancelled"] == ["g"]
        assert ended.wait(10), "the function is not told"
        submit(client, {"id": "h", "runner": "r", "input": "last"})
        assert take(client, 1)["h"]["state"] == "finished", "the slot is free again"
    assert executor.ended == {"stopped": 1, "ok": 1}


def test_long_attempts_keep_their_lease(place):
    gateway, client = place

    @runner("r", slots=2)
    async def work(task, session):
        await talk(session)
        await asyncio.sleep(5)      # more than two leases
        return 1
    submit(client, {"id": "g", "runner": "r", "n": 2})
    with Running(gateway, work):
        group = take(client, 1)["g"]
    assert [m["attempts"] for m in group["members"]] == [1, 1]


def test_a_deadline_that_the_gateway_tells_of_first_is_a_timeout(place):
    """As where the machine stood still behind the claim: the executor's own clock is late."""
    gateway, client = place

    class Late(Executor):
        def _begin(self, given):
            super()._begin({**given, "run_timeout_s": given["run_timeout_s"] + 60})

        async def _renew(self, ids, wait_s):
            rounds.append(len(ids))
            await super()._renew(ids, wait_s)
    rounds = []

    @runner("async", slots=2)
    async def one(task, session):
        await talk(session)
        try:
            await asyncio.sleep(60)
        finally:
            if task.input == "raises":
                raise RuntimeError("on the way out")
            await asyncio.sleep(2)      # it cleans up, and is told of by each renewal meanwhile

    @runner("thread")
    def two(task, session):
        session.chat([{"role": "user", "content": "x"}])
        task.stop.wait(60)
    submit(client, {"id": "a", "runner": "async"}, {"id": "b", "runner": "async", "input": "raises"}, {"id": "c", "runner": "thread"},
           deadline_s=2)
    with Running(gateway, one, two, of=Late) as executor:
        groups = take(client, 3)
    for x in groups.values():
        (member,) = x["members"]
        assert (member["outcome"], member["state"], member["reward"], member["finished"]) == ("timeout", "succeeded", 0, False), member
        assert member["reason"] == "not done at the group's deadline" and member["attempts"] == 1
    assert executor.ended == {"timeout": 3} and len(rounds) < 100, "no renewals one behind the other"


def test_agents_calls_keep_no_renewal_from_its_connection(start, monkeypatch):
    """Of more agents than an AsyncClient has connections."""
    real = rollgate.executor.AsyncClient
    monkeypatch.setattr(rollgate.executor, "AsyncClient", lambda *a, **more: real(*a, **{**more, "connections": 8}))
    end = threading.Event()
    with StubEngine("sglang") as engine:
        engine.otherwise = lambda body: {"ids": [40, 41, 1], "finish": "stop", "matched": 1, "wait": end}
        gateway = start(engine=engine.setting, model=g.MODELS / "chatml-bytes", attempt_lease="2s")

        @runner("r", slots=12)
        async def work(task, session):
            await talk(session)
            return 1
        with rollgate.Client(gateway.url) as client:
            submit(client, {"id": "g", "runner": "r", "n": 12})
            with Running(gateway, work) as executor:
                renewed = []
                before, executor._renew = executor._renew, lambda ids, s: renewed.append(time.monotonic()) or before(ids, s)
                g.wait_until(lambda: len(engine.requests) == 8, 20, "as many calls as connections")
                g.wait_until(lambda: renewed and renewed[-1] > renewed[0] + 5, 30, "two leases are over")
                end.set()
                group = take(client, 1)["g"]
    assert [m["attempts"] for m in group["members"]] == [1] * 12 and executor.ended == {"ok": 12}


def test_no_second_reason_breaks_into_a_clean_up(place):
    """Its own time and the group's deadline end it at about the same moment."""
    gateway, client = place
    cleaned = []

    @runner("r")
    async def work(task, session):
        await talk(session)
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(2.5)      # longer than two ticks of the dispatcher's, and two renewals
            cleaned.append(task.group)
    submit(client, {"id": "g", "runner": "r"}, deadline_s=2)
    with Running(gateway, work) as executor:
        (member,) = take(client, 1)["g"]["members"]
    assert cleaned == ["g"] and member["outcome"] == "timeout" and executor.ended == {"timeout": 1}


def test_a_clean_up_that_hangs_keeps_no_executor(place, monkeypatch):
    """Told to stop it gives its attempts back, though their functions do not end."""
    monkeypatch.setattr(rollgate.executor, "GRACE_S", 0.5)
    gateway, client = place
    begun = threading.Event()

    @runner("r")
    async def work(task, session):
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(60)
    submit(client, {"id": "g", "runner": "r"})
    with Running(gateway, work) as executor:
        assert begun.wait(20)
    assert executor.ended == {"infra": 1}


def test_an_attempt_that_cannot_be_begun_keeps_no_other(place):
    """As another gateway might tell it."""
    gateway, client = place

    class Odd(Executor):
        def _begin(self, given):
            super()._begin({**given, "session": {}} if given["group"] == "odd" else given)

    @runner("r", slots=2)
    async def work(task, session):
        await talk(session)
        return 1
    submit(client, {"id": "odd", "runner": "r"}, {"id": "g", "runner": "r"})
    with Running(gateway, work, of=Odd) as executor:
        assert take(client, 1)["g"]["succeeded"] == 1
        g.wait_until(lambda: executor.running == {} and executor.ended == {"ok": 1}, 10, "the one has ended, the other is none")
    client.cancel_group("odd")


def test_stopping_gives_attempts_back(place):
    gateway, client = place
    begun = threading.Event()

    @runner("r")
    async def work(task, session):
        begun.set()
        try:
            await asyncio.sleep(0 if task.attempt > 1 else 60)
        except asyncio.CancelledError:
            raise RuntimeError("on the way out") from None      # as agents do; it is no fault of the task's all the same
        await talk(session)
        return task.attempt
    submit(client, {"id": "g", "runner": "r"})
    with Running(gateway, work) as executor:
        assert begun.wait(20)
    assert executor.ended == {"infra": 1}
    with Running(gateway, work):
        member = take(client, 1)["g"]["members"][0]
    assert member["attempts"] == 2 and member["reward"] == 2


def test_a_refused_executor_says_so(start, tmp_path):
    (tmp_path / "keys").write_text("the-admin-of-this-test\n")
    (tmp_path / "keys").chmod(0o600)

    @runner("r")
    async def work(task, session):
        return 1
    for settings, error in (({"admin_key_file": tmp_path / "keys"}, errors.MissingKey), ({"dispatcher": "off"}, errors.NotFound)):
        running = Running(start(engine="builtin:echo", **settings), work)
        with running:
            running.thread.join(20)
            assert not running.thread.is_alive()
        assert isinstance(running.error, error)


RUNNERS = '''
from rollgate.executor import runner

@runner("cli", slots=4)
async def cli(task, session):
    await session.chat([{"role": "user", "content": "x"}])
    return 1.0
'''


def test_the_command(place, tmp_path):
    gateway, client = place
    (tmp_path / "my_runners.py").write_text(RUNNERS)
    submit(client, {"id": "g", "runner": "cli", "n": 4})
    process = subprocess.Popen([sys.executable, "-m", "rollgate.executor", "my_runners", "--url", gateway.url, "--name", "one"],
                               cwd=tmp_path, env=dict(os.environ, PYTHONPATH=str(g.ROOT / "python")), stderr=subprocess.PIPE,
                                text=True)
    try:
        assert take(client, 1)["g"]["succeeded"] == 4
    finally:
        process.send_signal(signal.SIGTERM)
        told = process.communicate(timeout=30)[1]
    assert process.returncode == 0 and "executor one has ended: {'ok': 4}" in told


def test_runners_are_found_or_told(tmp_path, monkeypatch, capsys):
    (tmp_path / "some_runners.py").write_text(RUNNERS + "\nmine = [cli]\nnothing = []\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("some_runners", "some_runners:cli", "some_runners:mine"):
        assert [r.name for r in find_runners(name)] == ["cli"]
    with pytest.raises(ValueError, match="has no runners"):
        find_runners("some_runners:nothing")
    with pytest.raises(SystemExit) as ended:
        rollgate.executor.main(["some_runners:nothing"])
    assert ended.value.code == 2 and "some_runners:nothing has no runners" in capsys.readouterr().err
    for bad in ({"slots": 0}, {"timeout": 0}):
        with pytest.raises(ValueError, match="runner x"):
            runner("x", **bad)


@pytest.mark.alone
def test_a_thousand_rollouts(start):
    gateway = start(engine="builtin:echo")

    @runner("r", slots=64)
    async def work(task, session):
        await talk(session, f"{task.group} {task.rollout}")
        return task.rollout / 8
    with rollgate.Client(gateway.url) as client:
        submit(client, *({"id": f"g{i}", "runner": "r", "n": 8} for i in range(125)))
        with Running(gateway, work) as executor:
            groups = take(client, 125, timeout=180)
    assert executor.ended == {"ok": 1000} and executor.peak["r"] == 64
    assert all(pace.rewards(x) == [k / 8 for k in range(8)] for x in groups.values())


# --- pacing ---

def test_capacity():
    assert pace.capacity(version=0, batch=8, max_staleness=1, accepted=0, running=0) == 16
    assert pace.capacity(version=3, batch=8, max_staleness=0, accepted=24, running=5) == 3
    assert pace.capacity(version=0, batch=8, max_staleness=0, accepted=8, running=4) == 0


def test_pace_collect_oversample(place):
    gateway, client = place

    @runner("r", slots=4)
    async def work(task, session):
        await talk(session)
        if task.input == "hangs":
            await asyncio.sleep(60)
        return task.rollout if task.input == "varied" else 1
    rhythm = pace.Pace(client, "train", batch=2, max_staleness=1)
    assert rhythm.room(0) == 4
    told = []
    with Running(gateway, work):
        submit(client, {"id": "same", "runner": "r", "n": 2, "input": "same"},
               {"id": "varied", "runner": "r", "n": 2, "input": "varied"})
        kept, dropped = pace.collect(client, "train", 1, [pace.varied, pace.at_least(2)],
                                     progress=lambda counts, n: told.append(n))
        assert [x["id"] for x in kept] == ["varied"] and {x["id"] for x in dropped} <= {"same"} and told[-1] == 1
        assert rhythm.room(0) == 2 and rhythm.room(1) == 4
        client.ack("train", ["varied", "same"])
        with pytest.raises(RuntimeError, match="nothing left: 0 of 1"):
            submit(client, {"id": "again", "runner": "r", "n": 2, "input": "same"})
            pace.collect(client, "train", 1, [pace.varied])
        submit(client, {"id": "others", "queue": "val", "runner": "nobody", "input": 1})
        kept, _, cancelled = pace.oversample(client, "val", [{"id": f"h{i}", "runner": "r", "input": "hangs"} for i in range(2)] +
                                             [{"id": "quick", "runner": "r", "input": 1}], 1)
        assert [x["id"] for x in kept] == ["quick"] and sorted(cancelled) == ["h0", "h1"]
        assert client.group("others")["state"] == "waiting", "what it did not submit stays"
    assert pace.fresh(lambda: 5, 1)({"min_version": 4, "version": 3})
    assert not pace.fresh(lambda: 5, 1)({"min_version": 3, "version": 5})


def test_dropped_groups_leave_room_for_others(place):
    """Of dynamic sampling: were they counted as accepted, the room of a long run would come to nothing."""
    gateway, client = place

    @runner("r", slots=4)
    async def work(task, session):
        await talk(session)
        return task.rollout if task.input == "varied" else 1
    rhythm = pace.Pace(client, "train", batch=1, max_staleness=0)
    with Running(gateway, work):
        for i in range(2):
            assert rhythm.room(0) == 1
            submit(client, {"id": f"same{i}", "runner": "r", "n": 2})
            with pytest.raises(RuntimeError, match="nothing left: 0 of 1 groups kept, 1 dropped"):
                rhythm.collect(1, [pace.varied])
        kept, _, _ = rhythm.oversample([{"id": x, "runner": "r", "n": 2, "input": x} for x in ("same", "varied")], 1, [pace.varied])
        assert rhythm.room(0) == 0 and rhythm.room(1) == 1
        client.ack("train", [x["id"] for x in kept])
        assert rhythm.room(0) == 0 and rhythm.room(1) == 1


def test_pace_of_a_trainer_or_a_dispatcher_that_comes_back(caplog):
    class Queue:
        total = 500

        def queue(self, name):
            return {"waiting": 1, "running": 2, "settled": 3, "taken": 4, "acked_total": self.total}
    client = Queue()
    rhythm = pace.Pace(client, "train", batch=10, max_staleness=1, version=100)
    assert rhythm.room(100) == 10, "not the rooms of the versions before it as well"
    client.total = 505
    assert rhythm.room(100) == 5
    assert caplog.text == ""
    client.total = 400      # its journal was compacted, and it started anew
    assert rhythm.room(100) == 5
    assert "counts 400 acknowledged groups, 505 before" in caplog.text
    client.total = 405
    assert rhythm.room(100) == 0


def test_a_group_whose_lease_runs_out_while_others_come_is_kept_once(place):
    gateway, client = place
    again = threading.Event()

    @runner("r", slots=2)
    async def work(task, session):
        await talk(session)
        while task.input == "late" and not again.is_set():
            await asyncio.sleep(0.05)
        return 1

    def progress(counts, kept):
        if client.group("early")["deliveries"] > 1:
            again.set()
    submit(client, {"id": "early", "runner": "r"}, {"id": "late", "runner": "r", "input": "late"})
    with Running(gateway, work):
        kept, dropped = pace.collect(client, "train", 2, lease_s=1, wait_s=1, progress=progress)
    assert [x["id"] for x in kept] == ["early", "late"] and dropped == []
    assert kept[0]["deliveries"] > 1, "the newest delivery is the one that the caller has"
    assert client.ack("train", [x["id"] for x in kept]) == {"acked": 2}


def test_more_attempts_than_a_renewal_may_name_are_renewed_in_several():
    """The gateway takes 10,000 ids in one; only the last call of a round waits."""
    ids = [f"{i:032x}" for i in range(25000)]
    calls = []

    class Client:
        async def renew(self, name, attempts, wait_s):
            assert len(attempts) <= 10000
            calls.append((attempts, wait_s))
            if len(calls) == 6:
                raise asyncio.CancelledError
            return {"kill": []}

    @runner("r")
    async def never(task, session):
        raise AssertionError

    async def rounds():
        executor = Executor([never], "http://127.0.0.1:1", client=Client())
        executor.running = dict.fromkeys(ids)
        with pytest.raises(asyncio.CancelledError):
            await executor._renew_loop()
    asyncio.run(rounds())
    for k in (0, 3):
        assert sum((page for page, _ in calls[k:k + 3]), []) == ids and [w > 0 for _, w in calls[k:k + 3]] == [False, False, True]

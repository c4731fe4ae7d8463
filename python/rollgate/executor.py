"""An executor: claims attempts of the gateway's groups, runs a Python function for each, and ends it.

    from rollgate.executor import Infra, runner

    @runner("math", slots=32, timeout=600)
    async def math(task, session):
        answer = await session.chat([{"role": "user", "content": task.input["question"]}])
        if answer["choices"][0]["finish_reason"] == "length":
            return {"reward": 0.0, "cut": 1}
        return float(task.input["answer"] in answer["choices"][0]["message"]["content"])

    $ python3 -m rollgate.executor my_runners --url http://127.0.0.1:8600

What a function gives decides the attempt's outcome (docs/rollouts.md):

| the function | outcome |
|---|---|
| returns a number, or a mapping with `reward` | ok, with that reward |
| returns None | ok without a reward: right where the trainer scores (`reward: external`) |
| is not done at its timeout, or at the group's deadline | timeout |
| raises Infra, or an error of the gateway's that is no fault of the task (5xx, unreachable) | infra: tried again elsewhere |
| raises anything else, or returns what is no reward or what JSON cannot write | error, with the traceback's end as its log |
| is told to stop (cancelled by the trainer, lease lost) | nothing: the gateway knows |

Functions may be async or not; those that are not run in threads and cannot be stopped: they see `task.stopped`.
Their slot stays taken until they return, whatever became of the attempt.
"""
from __future__ import annotations

import argparse
import asyncio
import concurrent.futures
import importlib
import inspect
import logging
import os
import signal
import socket
import sys
import threading
import time
import traceback
from dataclasses import dataclass, field
from typing import Any, Awaitable, Callable, Coroutine, Iterable, Mapping, Optional, Sequence, Union

from .aio import AsyncClient
from .calls import reward_object
from .errors import AttemptEnded, RollgateError, SessionEnded, Unreachable
from .retries import key_from_environment
from .session import anthropic_client, environment, openai_client

log = logging.getLogger("rollgate.executor")
CLAIM_S = 20.0      # seconds that a claim waits for work
RENEW_S = 2.0       # longest seconds until a new attempt is renewed
RENEW_MAX = 10000   # most ids of one renewal
GRACE_S = 10.0     # seconds that a cancelled function may clean up
TAIL = 4000         # characters of a traceback in an end
ENDS: dict[Optional[str], dict[str, Any]] = {   # reason of a forced end -> the reported end
    "timeout": {"outcome": "timeout", "reason": "not done in the time that it has"},
    "stopping": {"outcome": "infra", "reason": "the executor is stopping", "stopping": True},
    "deadline": {"outcome": "timeout", "reason": "not done at the group's deadline"}}
AGAIN_S = 0.5       # pause between renewals that repeat a kill for the deadline
UNFIT = (400, 413)  # statuses of an end whose content is refused


class Infra(Exception):
    """Raised by a runner if the environment failed, not the policy. The attempt is repeated and does not count."""


@dataclass
class Task:
    """The task of an attempt."""

    input: Any
    group: str
    rollout: int
    attempt: int
    attempt_id: str
    runner: str
    metadata: dict[str, Any]
    deadline: float                                     # seconds since 1970
    stop: threading.Event = field(default_factory=threading.Event, repr=False)

    @property
    def stopped(self) -> bool:
        """Whether the result is no longer needed: cancelled, timed out, lease lost, executor ending."""
        return self.stop.is_set()

    @property
    def left_s(self) -> float:
        """Seconds until the deadline."""
        return max(0.0, self.deadline - time.time())


class Session:
    """The attempt's session for an agent. `env` is the environment of a child process that calls a model."""

    def __init__(self, fields: Mapping[str, Any], client: AsyncClient, loop: asyncio.AbstractEventLoop):
        self.fields, self._client, self._loop = fields, client, loop
        self.id: str = fields["session_id"]
        self.base_url: str = fields["base_url"]
        self.anthropic_base_url: str = fields["anthropic_base_url"]
        self.api_key: str = fields.get("api_key") or "none"
        self.runner_key: Optional[str] = fields.get("runner_key")

    @property
    def env(self) -> dict[str, str]:
        return environment(self.fields)

    def openai(self, **options: Any) -> Any:
        """Makes openai.AsyncOpenAI for the session's calls, or openai.OpenAI in runners that are not async. Options
        are those of the class."""
        return openai_client(self.fields, not self._is_inside(), options)

    def anthropic(self, **options: Any) -> Any:
        """Makes anthropic.AsyncAnthropic, or anthropic.Anthropic, in the same way."""
        return anthropic_client(self.fields, not self._is_inside(), options)

    def chat(self, messages: Sequence[Mapping[str, Any]], **body: Any) -> Any:
        """Makes one model call (Chat Completions). Returns the JSON of the answer. Awaitable in async runners; blocks
        in others."""
        call = self._client.chat(self.id, messages, key=self.fields.get("api_key"), **body)
        return self._here(call)

    def reward(self, reward_info: Any, response_id: Optional[str] = None) -> Any:
        """Sets a reward before the end, or that of one turn. Awaitable in async runners; blocks in others."""
        return self._here(self._client.reward(self.id, reward_info, response_id, key=self.runner_key))

    def _is_inside(self) -> bool:
        """Reports whether the caller runs in the executor's event loop."""
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False

    def _here(self, call: Coroutine[Any, Any, Any]) -> Any:
        return call if self._is_inside() else asyncio.run_coroutine_threadsafe(call, self._loop).result()


def _writable(text: str) -> str:
    """Makes a text valid UTF-8: names of files may have other bytes."""
    return text.encode("utf-8", "backslashreplace").decode()


def _contained(e: BaseException) -> Exception:
    """Wraps an exception that neither a task nor a future may raise: the task would end the loop, and the future
    would lose it."""
    return RuntimeError(f"the runner raised {e!r}")


async def _awaited(function: Function, task: Task, session: Session) -> Any:
    try:
        return await function(task, session)
    except (Exception, asyncio.CancelledError):
        raise
    except BaseException as e:      # sys.exit, or a panic of a Rust library
        raise _contained(e) from e


def _called(function: Function, task: Task, session: Session) -> Any:
    if task.stopped:        # it was cancelled before a thread ran it
        return None
    try:
        return function(task, session)
    except StopIteration as e:
        raise _contained(e) from e
    except (Exception, asyncio.CancelledError):
        raise
    except BaseException as e:
        raise _contained(e) from e


async def _shielded(thread: asyncio.Future[Any]) -> Any:
    return await asyncio.shield(thread)


Function = Callable[[Task, Session], Union[Any, Awaitable[Any]]]


@dataclass(frozen=True)
class Runner:
    """A named way to run attempts: function, attempts at once, longest seconds of one (None: the group's)."""

    name: str
    function: Function
    slots: int = 1
    timeout: Optional[float] = None

    def __call__(self, task: Task, session: Session) -> Any:
        return self.function(task, session)

    @property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.function) or inspect.iscoroutinefunction(type(self.function).__call__)


def runner(name: str, slots: int = 1, timeout: Optional[float] = None) -> Callable[[Function], Runner]:
    """Makes a Runner of a function f(task, session). Raises ValueError for less than one slot, or a timeout that is
    not above 0."""
    if slots < 1:
        raise ValueError(f"runner {name}: slots must be at least 1, not {slots}")
    if timeout is not None and not timeout > 0:
        raise ValueError(f"runner {name}: timeout must be more than 0 seconds, not {timeout}")
    return lambda function: Runner(name, function, slots, timeout)


@dataclass
class _Running:
    """One attempt of this executor."""

    runner: Runner
    task: Task
    work: Optional[asyncio.Future[Any]] = None
    killed: Optional[str] = None      # reason of a forced end: a key of ENDS, or "dropped"
    ending: asyncio.Event = field(default_factory=asyncio.Event)    # set when it is killed


def default_name(key: Optional[str]) -> str:
    """Returns host.pid, or NAME/host.pid for a key rgx-NAME-MAC, which is valid for such names only."""
    here = f"{socket.gethostname()}.{os.getpid()}"
    key = key_from_environment(key) or ""
    return f"{key[4:].rpartition('-')[0]}/{here}" if key.startswith("rgx-") else here


class Executor:
    """Pulls attempts for its runners until stop(). Any number of executors may serve one gateway.

    name: its name in the gateway's log; default: host and pid, after the name of an executor's key. reconnect_s: time
    in which an end is repeated while the gateway cannot be reached. Counts since the start are in `ended` (by
    outcome) and `peak` (most attempts at once, by runner)."""

    def __init__(self, runners: Iterable[Runner], url: Optional[str] = None, key: Optional[str] = None, *,
                 name: Optional[str] = None, reconnect_s: float = 600.0, client: Optional[AsyncClient] = None):
        self.runners = {r.name: r for r in runners}
        if not self.runners:
            raise ValueError("an executor needs at least one runner")
        self.name = name or default_name(key)
        slots = sum(r.slots for r in self.runners.values())
        # an end may take minutes while a session is scored: with a connection for each, no renewal waits
        self.client = client or AsyncClient(url, key, retry_s=reconnect_s, connections=max(1024, slots + 16))
        # Agents' calls may take minutes, so they have separate connections: no renewal and no end waits for them. A
        # caller that passes a client must provide enough connections.
        self._agents = client or AsyncClient(url, key, retry_s=reconnect_s, connections=max(1024, slots))
        self.running: dict[str, _Running] = {}
        self.ended: dict[str, int] = {}
        self.peak = {r: 0 for r in self.runners}
        self._busy = {r: 0 for r in self.runners}       # slots with a function, or offered to a claim
        self._refused: Optional[RollgateError] = None
        self._lease_s = 30.0
        self._freed, self._begun, self._stop = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        threads = sum(r.slots for r in self.runners.values() if not r.is_async)
        self._threads = concurrent.futures.ThreadPoolExecutor(threads, "runner") if threads else None

    # --- life ---

    async def run(self) -> None:
        """Runs until stop(). Attempts that still run then end as infra, and are run elsewhere. Raises the gateway's
        answer to a claim if it is final: a wrong key, or no dispatcher."""
        keeper = asyncio.create_task(self._renew_loop())
        try:
            await self._claim_loop()
        finally:
            for attempt in list(self.running.values()):
                self._end_work(attempt, "stopping")
            while self._tasks:
                await asyncio.wait(set(self._tasks))
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)
            if self._threads:
                self._threads.shutdown(wait=False)
            await self.client.close()
            await self._agents.close()
        if self._refused:
            raise self._refused

    def stop(self) -> None:
        """Stops claiming and ends running attempts. Call it in the loop's thread."""
        self._stop.set()
        self._freed.set()
        for client in (self.client, self._agents):
            client.retry_s = min(client.retry_s, 10.0)

    def _spawn(self, work: Any) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # --- claims ---

    def _free(self) -> dict[str, int]:
        return {r.name: r.slots - self._busy[r.name] for r in self.runners.values() if r.slots > self._busy[r.name]}

    async def _claim_loop(self) -> None:
        """Claims attempts for free slots. A waiting claim holds the slots that it offers. Slots that become free
        meanwhile are offered by further claims, at most four at once."""
        claims: set[asyncio.Task[Any]] = set()
        while not self._stop.is_set():
            free = self._free()
            if free and len(claims) < 4:
                for name, n in free.items():
                    self._busy[name] += n
                claims.add(asyncio.create_task(self._claim(free)))
            else:
                self._freed.clear()
                await self._freed.wait()
            claims = {c for c in claims if not c.done()}
        for claim in claims:
            claim.cancel()      # attempts of a cancelled claim come back after their lease
        await asyncio.gather(*claims, return_exceptions=True)

    async def _claim(self, offer: dict[str, int]) -> None:
        given: list[dict[str, Any]] = []
        try:
            given = (await self.client.claim(self.name, offer, CLAIM_S))["attempts"]
        except RollgateError as e:
            log.error("claim: %s", e)
            if 400 <= e.status < 500 and e.status != 408 and not e.retry:
                self._refused = e       # a wrong key, or no dispatcher: every claim would fail
                self.stop()
            await self._pause(1.0)
        except Exception:
            log.exception("claim")      # an invalid answer
            await self._pause(1.0)
        finally:
            for name, n in offer.items():
                self._busy[name] -= n
            for attempt in given or ():
                try:
                    self._begin(attempt)
                except Exception:       # from a gateway of another version; its lease ends
                    log.exception("an attempt that cannot be begun: %.200r", attempt)
            self._freed.set()

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stop.wait()
        except TimeoutError:
            pass

    def _begin(self, given: Mapping[str, Any]) -> None:
        run = self.runners[given["runner"]]
        session = Session(given["session"], self._agents, asyncio.get_running_loop())
        limit = min(given["run_timeout_s"], run.timeout or given["run_timeout_s"])
        task = Task(given["input"], given["group"], given["rollout"], given["attempt"], given["attempt_id"], run.name,
                    given.get("metadata") or {}, time.time() + limit)
        self._lease_s = float(given.get("lease_s") or 30.0)
        attempt = _Running(run, task)
        self._busy[run.name] += 1
        self.peak[run.name] = max(self.peak[run.name], self._busy[run.name])
        self.running[task.attempt_id] = attempt
        self._begun.set()
        self._spawn(self._attempt(attempt, session))

    # --- one attempt ---

    async def _attempt(self, attempt: _Running, session: Session) -> None:
        began = time.monotonic()
        try:
            attempt.work = self._start(attempt, session)
            if attempt.killed:      # killed before it was started
                attempt.work.cancel()
            end = await self._watch(attempt)
        except Exception as e:
            log.exception("attempt %s", attempt.task.attempt_id)
            end = self._fault(e)
        attempt.task.stop.set()
        if end is None:
            self.running.pop(attempt.task.attempt_id, None)
            self._count("stopped")
        else:
            await self._tell(attempt, {**end, "timings": {"run": round(time.monotonic() - began, 3)}})

    def _start(self, attempt: _Running, session: Session) -> asyncio.Future[Any]:
        """Starts the function. Its slot is free when the function has ended, which may be after the attempt."""
        run = attempt.runner
        if run.is_async:
            work = asyncio.ensure_future(_awaited(run.function, attempt.task, session))
            work.add_done_callback(lambda _: self._leave(run))
            return work
        try:
            thread = asyncio.get_running_loop().run_in_executor(self._threads, _called, run.function, attempt.task, session)
        except RuntimeError as e:       # no thread is available; the call waits in the pool nevertheless
            attempt.task.stop.set()
            self._leave(run)
            raise Infra(f"no thread for the runner: {e}") from e
        thread.add_done_callback(lambda _: self._leave(run))
        return asyncio.ensure_future(_shielded(thread))

    def _leave(self, run: Runner) -> None:
        self._busy[run.name] -= 1
        self._freed.set()

    async def _watch(self, attempt: _Running) -> Optional[dict[str, Any]]:
        """Waits for the end of the attempt. Returns how it ended, or None if the end is not reported."""
        work, ending = attempt.work, asyncio.ensure_future(attempt.ending.wait())
        assert work is not None
        both: set[asyncio.Future[Any]] = {work, ending}
        await asyncio.wait(both, timeout=attempt.task.left_s, return_when=asyncio.FIRST_COMPLETED)
        ending.cancel()
        if not work.done():
            self._end_work(attempt, "timeout")      # does nothing if it is being ended
            await asyncio.wait({work}, timeout=GRACE_S)
        if attempt.killed == "timeout" or not work.done():
            return self._killed(attempt)
        try:
            return self._verdict(work.result())
        except asyncio.CancelledError:
            return self._killed(attempt) if attempt.killed else {"outcome": "error", "reason": "the runner cancelled itself"}
        except Exception as e:
            if attempt.killed in ENDS:
                return {**ENDS[attempt.killed], "log_tail": self._fault(e)["log_tail"]}
            return None if attempt.killed else self._fault(e)

    def _killed(self, attempt: _Running) -> Optional[dict[str, Any]]:
        return dict(ENDS[attempt.killed]) if attempt.killed in ENDS else None

    def _verdict(self, value: Any) -> dict[str, Any]:
        """Converts a function's result to an end. Raises TypeError or ValueError if it is not a reward, or JSON
        cannot represent it."""
        if value is None:
            return {"outcome": "ok"}
        info = reward_object(value)
        finished = info.get("finished")
        return {"outcome": "ok", "reward_info": info, **({"finished": finished} if isinstance(finished, bool) else {})}

    def _fault(self, e: Exception) -> dict[str, Any]:
        reason = f"{type(e).__name__}: {e}"[:1000]
        outside = isinstance(e, Infra) or isinstance(e, RollgateError) and (isinstance(e, Unreachable) or e.status >= 500 or e.retry)
        tail = "".join(traceback.format_exception(e))[-TAIL:]
        return {"outcome": "infra" if outside else "error", "reason": _writable(reason), "log_tail": _writable(tail)}

    async def _tell(self, attempt: _Running, end: dict[str, Any]) -> None:
        """Reports the end to the gateway. If the end cannot be written, or the gateway refuses its content, reports
        an error instead (or infra, if it was that). Otherwise the attempt would be repeated only after its lease."""
        try:
            try:
                await self._send(attempt, end)
            except Exception as e:
                if isinstance(e, RollgateError) and e.status not in UNFIT:
                    raise
                outcome = "infra" if end["outcome"] == "infra" else "error"
                end = {**self._fault(e), "outcome": outcome, "timings": end["timings"]}
                await self._send(attempt, end)
            self._count(end["outcome"])
        except (AttemptEnded, SessionEnded):
            self._count("stopped")
        except Exception as e:
            self._count("untold")
            log.error("the end of attempt %s (%s) is not taken: %s", attempt.task.attempt_id, end["outcome"], e,
                      exc_info=not isinstance(e, RollgateError))
        finally:
            self.running.pop(attempt.task.attempt_id, None)
        if end["outcome"] in ("error", "infra"):
            log.warning("group %s rollout %d attempt %d: %s: %s", attempt.task.group, attempt.task.rollout, attempt.task.attempt,
                        end["outcome"], end.get("reason"))

    async def _send(self, attempt: _Running, end: Mapping[str, Any]) -> None:
        fields = {k: v for k, v in end.items() if k != "outcome"}
        await self.client.end_attempt(attempt.task.attempt_id, self.name, end["outcome"], **fields)

    def _count(self, outcome: str) -> None:
        self.ended[outcome] = self.ended.get(outcome, 0) + 1

    # --- leases ---

    async def _renew_loop(self) -> None:
        """Renews the leases of running attempts, and ends those that the gateway names."""
        while True:
            ids = list(self.running)
            if not ids:
                self._begun.clear()
                await self._begun.wait()
                continue
            try:
                for at in range(0, len(ids), RENEW_MAX):
                    last = at + RENEW_MAX >= len(ids)   # only the last batch waits: later ones are due, too
                    await self._renew(ids[at:at + RENEW_MAX], min(RENEW_S, self._lease_s / 4) if last else 0)
            except Exception as e:      # for any error: without renewals every attempt would be lost
                log.error("renew: %s", e, exc_info=not isinstance(e, RollgateError))
                await asyncio.sleep(min(1.0, self._lease_s / 10))

    async def _renew(self, ids: list[str], wait_s: float) -> None:
        kills = (await self.client.renew(self.name, ids, wait_s))["kill"]
        news = not kills
        for kill in kills:
            reason = "deadline" if kill["reason"] == "deadline" else "dropped"
            attempt = self.running.get(kill["attempt_id"])
            if not attempt or attempt.killed == reason or attempt.killed and reason in ENDS:
                continue
            news = True
            if reason == "dropped":     # its end is not reported
                del self.running[kill["attempt_id"]]
            self._end_work(attempt, reason)
        if not news:
            await asyncio.sleep(AGAIN_S)

    def _end_work(self, attempt: _Running, reason: str) -> None:
        """Ends an attempt, once: a second reason does not interrupt its clean-up. "dropped" always replaces the
        reason, because the end is not reported then."""
        ends = attempt.killed is not None
        if ends and reason in ENDS:
            return
        attempt.killed = reason
        if ends:
            return
        attempt.ending.set()
        attempt.task.stop.set()
        if attempt.work:
            attempt.work.cancel()


# --- the command ---

def find_runners(place: str) -> list[Runner]:
    """Returns the runners of `module` (all that it has) or `module:name` (a Runner, or a list of them)."""
    module_name, _, attribute = place.partition(":")
    module = importlib.import_module(module_name)
    found = getattr(module, attribute) if attribute else [v for v in vars(module).values() if isinstance(v, Runner)]
    runners = [found] if isinstance(found, Runner) else list(found)
    if not runners or not all(isinstance(r, Runner) for r in runners):
        raise ValueError(f"{place} has no runners: functions under @runner(...)")
    return runners


async def serve(runners: Iterable[Runner], url: Optional[str] = None, key: Optional[str] = None, name: Optional[str] = None) -> None:
    """Runs an executor until SIGTERM or SIGINT."""
    executor = Executor(runners, url, key, name=name)
    for signo in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(signo, executor.stop)
    log.info("executor %s serves %s at %s", executor.name, {r.name: r.slots for r in executor.runners.values()}, executor.client)
    await executor.run()
    log.info("executor %s has ended: %s", executor.name, executor.ended)


def main(argv: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser(prog="python3 -m rollgate.executor", description="Runs attempts of a gateway's groups.")
    parser.add_argument("runners", help="module, or module:name of a runner or of a list of runners")
    parser.add_argument("--url", help="the gateway; default: ROLLGATE_URL, else http://127.0.0.1:8600")
    parser.add_argument("--key-file", help="file whose first line is an executor's key; default: ROLLGATE_KEY")
    parser.add_argument("--name", help="the executor's name; default: host and pid")
    given = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    sys.path.insert(0, os.getcwd())
    key = None
    if given.key_file:
        with open(given.key_file, encoding="utf-8") as f:
            key = f.readline().strip()
    try:
        runners = find_runners(given.runners)
    except ValueError as e:
        parser.error(str(e))
    asyncio.run(serve(runners, given.url, key, given.name))
    return 0


if __name__ == "__main__":
    # a module's `from rollgate.executor import runner` then makes the same Runner class
    from rollgate.executor import main as real_main
    sys.exit(real_main())

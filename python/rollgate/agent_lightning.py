"""agent-lightning: a controller whose rollouts run behind the gateway, in place of agentlightning.controller:

    $ python3 -m rollgate.agent_lightning swe --server http://agl:8000 --url http://gateway:8600

It takes the server's queued rollouts, runs each as a group, and posts what the trainer's rollout manager reads: an event for each
trained answer with its ids and log-probabilities, one for the reward, and the state. Contract: agent-lightning c632d8d, schemas.py,
server/routes/events.py (triplets), server/routes/rollouts.py (states), verl/agl_rollout_manager.py, verl/rollout_adapter.py.
"""
from __future__ import annotations

import argparse
import asyncio
import functools
import json
import logging
import os
import signal
from typing import Any, Mapping, Optional, Sequence

from agentlightning.client import AgentLightningAsyncClient
from agentlightning.schemas import DEFAULT_ATTEMPT_ID, EventCreate, Rollout, RolloutPatch, RolloutState, RolloutStatusPatch

from .hooks import Hook, RolloutFailed, trained_turns
from .records import Export

log = logging.getLogger("rollgate.agent_lightning")


class RollgateController:
    """Runs agent-lightning's rollouts. group, session, export: as in hooks.Hook. server, server_key:
    agent-lightning's own. slots: most rollouts at once.

    A rollout that failed for good is `failed` without answers. The trainer has its own rule for these."""

    def __init__(self, runner: str, server: str, server_key: Optional[str] = None, url: Optional[str] = None, key: Optional[str] = None,
                 group: Optional[Mapping[str, Any]] = None, session: Optional[Mapping[str, Any]] = None,
                 export: Optional[Mapping[str, Any]] = None, *, slots: int = 256, poll_s: float = 1.0):
        self.hook = Hook(runner, url, key, group, session=session, export=export)
        if self.hook.external:
            raise ValueError("agent-lightning takes rewards as events of its rollouts: reward: external would leave them unknown")
        if not self.hook.exports["train_once"]:
            raise ValueError("agent-lightning keeps one answer of each prompt: train_once cannot be false")
        self.slots, self.poll_s = slots, poll_s
        self.api = AgentLightningAsyncClient(base_url=server, key=server_key)
        self._running: dict[str, asyncio.Task[None]] = {}
        self._stop = asyncio.Event()

    def stop(self) -> None:
        """Stops accepting rollouts. Running ones are cancelled and `failed`. Call it in the loop's thread."""
        self._stop.set()

    async def run(self) -> None:
        """Runs until stop(). An error of the server is logged, and the request repeated."""
        try:
            while not self._stop.is_set():
                try:
                    await self._take()
                except Exception:
                    log.exception("the server's rollouts")
                try:
                    await asyncio.wait_for(self._stop.wait(), self.poll_s)
                except TimeoutError:
                    pass
        finally:
            for work in list(self._running.values()):
                work.cancel()
            await asyncio.gather(*self._running.values(), return_exceptions=True)
            await self.api.aclose()

    async def _take(self) -> None:
        """Starts queued rollouts while slots are free. Cancels those that the trainer has deleted."""
        answer = await self.api.get("/api/rollouts", params={"state_in": ["queuing", "running"], "limit": 1 << 20})
        answer.raise_for_status()
        known = {r.rollout_id: r for r in map(Rollout.model_validate, answer.json())}
        for name in [n for n in self._running if n not in known]:
            self._running[name].cancel()
        for rollout in known.values():
            if rollout.rollout_id in self._running or len(self._running) >= self.slots:
                continue
            if rollout.status.state == RolloutState.RUNNING:      # left by a controller that died
                await self._patch(rollout.rollout_id, RolloutState.FAILED, "its controller ended")
                continue
            work = asyncio.ensure_future(self._rollout(rollout))
            self._running[rollout.rollout_id] = work
            work.add_done_callback(functools.partial(self._forget, rollout.rollout_id))

    def _forget(self, name: str, _: Any) -> None:
        del self._running[name]

    async def _rollout(self, rollout: Any) -> None:
        name = rollout.rollout_id
        try:
            if not await self._patch(name, RolloutState.RUNNING):
                return
            mine = self.hook.group.get("run_timeout_s")
            member = await self.hook.one(rollout.input, {}, labels={"agl": name}, evaluation=not rollout.is_train,
                                         run_timeout_s=mine or rollout.config.timeout_seconds)
            for event in events_of(await self.hook.export(member, pick="drop_retries", require_reward=True, require_trained=True)):
                answer = await self.api.post(f"/api/rollouts/{name}/attempt/{DEFAULT_ATTEMPT_ID}/events", json=event.model_dump(mode="json"))
                answer.raise_for_status()
            await self._patch(name, RolloutState.SUCCEEDED)
        except (Exception, asyncio.CancelledError) as e:
            if not isinstance(e, (RolloutFailed, asyncio.CancelledError)):
                log.exception("rollout %s", name)
            await self._patch(name, RolloutState.FAILED, str(e) or "cancelled")
            if isinstance(e, asyncio.CancelledError):
                raise

    async def _patch(self, name: str, state: Any, error: Optional[str] = None) -> bool:
        """Changes the state of a rollout. Returns False if it was deleted, or another controller has started or ended
        it."""
        status = RolloutStatusPatch(state=state, last_attempt_id=DEFAULT_ATTEMPT_ID, **({"error_message": error} if error else {}))
        answer = await self.api.patch(f"/api/rollouts/{name}", json=RolloutPatch(status=status).model_dump(mode="json", exclude_unset=True))
        if answer.status_code in (404, 409):
            return False
        answer.raise_for_status()
        return True


def events_of(export: Export) -> list[Any]:
    """Yields a `model_request` for each trained answer in the form of the server's proxy, branch by branch, and one
    `reward`."""
    out = []
    for turn in trained_turns(export, "agent-lightning"):
        spans = turn.told["weight_versions"]
        choice = {"index": 0, "finish_reason": turn.told["finish_reason"], "token_ids": turn.ids,
                  "logprobs": {"content": [{"logprob": p} for p in turn.logprobs]}}
        version = spans[0]["version"] if spans else None
        out.append(EventCreate(event_type="model_request", data={
            "model": "policy", "server": {"model": "policy", "version": version}, "request": {}, "http_status": 200, "status": "ok",
            "latency_ms": float(sum(turn.told["latency_ms"].values())), "finish_reason": turn.told["finish_reason"],
            "response": {"prompt_token_ids": turn.prompt_ids, "choices": [choice]}}))
    reward = next(iter(export)).reward
    return [*out, EventCreate(event_type="reward", data={"value": reward, "source": "agent"})]


async def _main(controller: RollgateController) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, controller.stop)
    await controller.run()


def main(arguments: Optional[Sequence[str]] = None) -> None:
    """Runs the controller until SIGTERM. Options are mappings as JSON."""
    parser = argparse.ArgumentParser(prog="python3 -m rollgate.agent_lightning", description="Runs agent-lightning's rollouts behind a rollgate gateway.")
    parser.add_argument("runner", help="which runner of the executors")
    parser.add_argument("--server", required=True, help="agent-lightning's server")
    parser.add_argument("--url", help="the gateway, else ROLLGATE_URL; its key is ROLLGATE_KEY or ROLLGATE_KEY_FILE")
    parser.add_argument("--slots", type=int, default=256, help="rollouts at once, at most (256)")
    for name in ("group", "session", "export"):
        parser.add_argument(f"--{name}", type=json.loads, default={}, metavar="JSON", help=f"fields of every {name}")
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    asyncio.run(_main(RollgateController(given.runner, given.server, os.environ.get("AGL_KEY"), given.url, None, given.group, given.session,
                                         given.export, slots=given.slots)))


if __name__ == "__main__":
    main()

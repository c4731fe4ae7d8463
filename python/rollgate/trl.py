"""TRL: a rollout function of GRPOTrainer.

    from rollgate.trl import RollgateRollouts, reward

    trainer = GRPOTrainer(model, reward_funcs=reward, rollout_func=RollgateRollouts("swe", url="http://gateway:8600", engine="trl"), ...)

engine="trl": `trl vllm-serve` samples (use_vllm=True, vllm_mode="server"); the function serves it to the gateway (engine_server.py), which
starts with `--engine none`. Contract: TRL f2cd577, trainer/grpo_trainer.py (_generate, _generate_and_score_completions,
_calculate_rewards), scripts/vllm_serve.py (/generate/).
"""
from __future__ import annotations

import asyncio
import json
import threading
import urllib.request
from typing import Any, Coroutine, Mapping, Optional, Sequence

from .engine_server import EngineServer, Sampled, vllm_parameters
from .hooks import Hook, RolloutFailed, all_or_none, clients_of, connect
from .trajectory import Trajectory


def reward(completions: Sequence[Any], *, rollgate_reward: Sequence[Optional[float]], **_: Any) -> list[Optional[float]]:
    """A reward function of TRL: returns the rewards of the gateway's runners. None: unknown, which TRL leaves out of
    baselines."""
    return list(rollgate_reward)


class RollgateRollouts:
    """One rollout for each prompt of the batch (TRL repeats prompts itself), one row each: the branch with the most
    trained tokens.

    on_failure: `raise` (a rollout that failed for good ends the step) or `drop` (its row has no trained token and no
    reward, so TRL leaves it out of the loss and of its group's baseline). engine: `trl` or None: the gateway has its
    engines, and their weights are updated elsewhere. host: the address at which the gateway reaches this process."""

    def __init__(self, runner: str, url: Optional[str] = None, key: Optional[str] = None, group: Optional[Mapping[str, Any]] = None,
                 session: Optional[Mapping[str, Any]] = None, export: Optional[Mapping[str, Any]] = None,
                 on_failure: str = "raise", engine: Optional[str] = None, host: Optional[str] = None):
        if on_failure not in ("raise", "drop"):
            raise ValueError(f"on_failure must be raise or drop, not {on_failure!r}")
        if engine not in ("trl", None):
            raise ValueError(f"engine must be trl or None, not {engine!r}")
        self.hook = Hook(runner, url, key, group, session=session, export=export, one_row=True)
        self.on_failure, self.engine, self.host = on_failure, engine, host
        self._loop: Optional[asyncio.AbstractEventLoop] = None
        self._thread: Optional[threading.Thread] = None
        self._server: Optional[EngineServer] = None

    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, Any]:
        """Returns TRL's dict. Raises RolloutFailed, or ValueError for images, or required log-probabilities that are
        missing."""
        return self._run(self._batch(prompts, trainer))

    def _run(self, work: Coroutine[Any, Any, dict[str, Any]]) -> dict[str, Any]:
        """Runs the work in a loop of a permanent thread: TRL's thread has no loop, and a notebook's is busy. An
        interrupt cancels the rollouts."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, name="rollgate", daemon=True)
            self._thread.start()
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Removes the engine from the gateway, and closes connections. A later call starts again. The end of the
        process does the same."""
        if self._loop is None or self._thread is None:
            return
        asyncio.run_coroutine_threadsafe(self._leave(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._loop = self._thread = None

    async def _leave(self) -> None:
        if self._server:
            await self._server.leave()
            self._server = None
        for client in clients_of(asyncio.get_running_loop()).values():
            await client.close()

    async def _batch(self, prompts: Sequence[Any], trainer: Any) -> dict[str, Any]:
        if self.engine and not self._server:
            await self._serve(trainer.args)
        rows = await all_or_none(self._row(prompt, trainer) for prompt in prompts)
        return output_of(rows, trainer)

    async def _row(self, prompt: Any, trainer: Any) -> Optional[Trajectory]:
        try:
            member = await self.hook.one({"prompt": prompt}, sampling_of(trainer.args), version=int(trainer.state.global_step),
                                         evaluation=not trainer.model.training)
        except RolloutFailed:
            if self.on_failure == "raise":
                raise
            return None
        export = await self.hook.export(member, require_reward=not self.hook.external, require_trained=True)
        longest: Trajectory = export.longest()
        longest.without_images("TRL's rollout_func")
        return longest

    async def _serve(self, args: Any) -> None:
        """Serves `trl vllm-serve` to the gateway, and registers it there."""
        if not args.use_vllm or args.vllm_mode != "server":
            raise ValueError("engine='trl' needs use_vllm=True and vllm_mode='server': a colocated vLLM samples in the trainer's own thread")
        base = (args.vllm_server_base_url or f"http://{args.vllm_server_host}:{args.vllm_server_port}").rstrip("/")
        server = EngineServer(VllmServe(base).sample)
        await server.join(connect(self.hook.url, self.hook.key), "trl", self.host)
        self._server = server


class VllmServe:
    """`trl vllm-serve`, which runs one request at a time. Samples that wait meanwhile are sent together in the next
    one."""

    OWN = ("repetition_penalty", "temperature", "top_p", "top_k", "min_p", "max_tokens")     # the others are generation_kwargs

    def __init__(self, base: str):
        self.base = base
        self._waiting: list[tuple[str, list[int], asyncio.Future[Sampled]]] = []
        self._work: Optional[asyncio.Task[None]] = None

    async def sample(self, ids: list[int], given: Mapping[str, Any]) -> Sampled:
        done: asyncio.Future[Sampled] = asyncio.get_running_loop().create_future()
        self._waiting.append((json.dumps(vllm_parameters(given), sort_keys=True), ids, done))
        if self._work is None or self._work.done():
            self._work = asyncio.ensure_future(self._send_all())
        return await done

    async def _send_all(self) -> None:
        while self._waiting:
            same = self._waiting[0][0]
            batch = [w for w in self._waiting if w[0] == same and not w[2].done()]
            self._waiting = [w for w in self._waiting if w[0] != same]
            try:
                if batch:
                    answers = await asyncio.to_thread(self._ask, json.loads(same), [ids for _, ids, _ in batch])
                    for (_, _, done), answer in zip(batch, answers, strict=True):
                        if not done.done():
                            done.set_result(answer)
            except Exception as e:
                for _, _, done in batch:
                    if not done.done():
                        done.set_exception(RuntimeError(f"{self.base}: {e}"))

    def _ask(self, given: dict[str, Any], prompts: list[list[int]]) -> list[Sampled]:
        own = {name: given.pop(name) for name in self.OWN if name in given}
        body = json.dumps({"prompts": prompts, "n": 1, "logprobs": 0, **own, "generation_kwargs": given}).encode()
        request = urllib.request.Request(self.base + "/generate/", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=3600) as answer:
            told = json.load(answer)
        ends, most = given.get("stop_token_ids") or [], own.get("max_tokens")
        return [Sampled(ids, [p[0] for p in logprobs], "length" if most is not None and len(ids) >= most and ids[-1] not in ends else "stop")
                for ids, logprobs in zip(told["completion_ids"], told["logprobs"], strict=True)]


def sampling_of(args: Any) -> dict[str, Any]:
    """Returns the sampling of a GRPOConfig, whose top_k is 0 for none."""
    given = {"temperature": args.temperature, "top_p": args.top_p, "top_k": args.top_k or -1, "min_p": args.min_p,
             "repetition_penalty": args.repetition_penalty, "max_tokens": args.max_completion_length}
    return {**given, **(args.generation_kwargs or {})}


def output_of(rows: Sequence[Optional[Trajectory]], trainer: Any) -> dict[str, Any]:
    """Makes the dict for _generate. `env_mask` is 0 where the model did not sample. Other members are passed to
    reward functions."""
    pad = [int(getattr(trainer, "_tokenizer", trainer.processing_class).pad_token_id or 0)]
    known = [t for t in rows if t is not None]
    logprobs: Optional[list[list[float]]] = None
    if all(t.response_logprobs is not None for t in known):
        logprobs = [[0.0] if t is None or t.response_logprobs is None else t.response_logprobs.tolist() for t in rows]
    elif trainer.args.use_vllm and trainer.args.vllm_importance_sampling_correction:
        raise ValueError("vllm_importance_sampling_correction wants log-probabilities, and an engine told none")
    return {"prompt_ids": [pad if t is None else t.prompt_ids.tolist() for t in rows],
            "completion_ids": [pad if t is None else t.response_ids.tolist() for t in rows], "logprobs": logprobs,
            "env_mask": [[0] if t is None else t.response_mask.tolist() for t in rows],
            "rollgate_reward": [None if t is None else t.reward for t in rows],
            "rollgate_info": [{} if t is None else t.reward_info for t in rows]}

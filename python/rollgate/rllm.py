"""rLLM: its GatewayManager with sessions of our gateway. rLLM has no key for it, so it is put in place before the
trainer is made:

    import rollgate.rllm
    rollgate.rllm.install(url="http://gateway:8600")

after which rllm.gateway.manager.GatewayManager is ours. Agents talk to get_session_url(); the engines are the gateway's own
(`--engine`). rLLM itself scores, retries and counts a remote task that failed as reward 0: that is its rule, not ours.
Contract: rLLM 9beb6e0, gateway/manager.py, engine/agentflow_engine.py, engine/remote_agent_flow_engine.py, rllm-model-
gateway's models.py (TraceRecord).
"""
from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any, Mapping, Optional, Sequence

from rllm.gateway import manager as rllm_manager
from rllm_model_gateway.models import TraceRecord

from . import hooks
from .client import Client
from .errors import Retryable, RollgateError
from .records import Export

log = logging.getLogger("rollgate.rllm")


class RollgateGatewayManager:
    """The methods of a gateway manager that rLLM's engines and trainer call, from any thread.

    settings (by install): url, key, session: options of every session, export: options of every export
    (docs/trajectories.md)."""

    settings: dict[str, Any] = {}

    def __init__(self, config: Any, mode: str = "thread"):
        given = dict(self.settings)
        self.session = dict(given.pop("session", None) or {})
        self.exports = hooks.export_options(given.pop("export", None))
        self.client = Client(**given, retry_s=600.0)
        self._ours: dict[str, Mapping[str, Any]] = {}       # rLLM's session ids -> the gateway's sessions
        self._lock = threading.Lock()
        self._train: dict[str, Any] = {}
        self._validation: dict[str, Any] = {}

    @property
    def gateway_url(self) -> str:
        return self.client.address.url

    def start(self, rollout_engine: Any) -> None:
        """Raises an error unless the gateway serves. The gateway has its engines, and is not started from here."""
        self.client.ready()
        self._train = getattr(rollout_engine, "train_sampling_params", None) or {}
        self._validation = getattr(rollout_engine, "val_sampling_params", None) or {}

    def stop(self) -> None:
        """Aborts the sessions that were not deleted. If the gateway refuses one, logs that and continues."""
        for session_id in list(self._ours):
            try:
                self.client.abort(self._ours.pop(session_id)["session_id"])
            except Retryable:       # the others would wait as long
                raise
            except RollgateError as e:
                log.error("session %s cannot be aborted: %s", session_id, e)
        self.client.close()

    # --- sessions ---

    def create_session(self, session_id: str, is_validation: bool = False,
                       sampling_params: Optional[Mapping[str, Any]] = None) -> str:
        """Creates a session unless it exists: rLLM requests addresses of sessions that it did not create."""
        with self._lock:
            if session_id not in self._ours:
                default = self._validation if is_validation else self._train
                given = default if sampling_params is None else sampling_params
                options = hooks.session_options(self.session, given, labels={"rllm": session_id},
                                                evaluation=is_validation)
                self._ours[session_id] = self.client.create_session(**options)
        return session_id

    def get_session_url(self, session_id: str, *, public: bool = True) -> str:
        self.create_session(session_id)
        return str(self._ours[session_id]["base_url"])

    def get_traces(self, session_id: str) -> list[TraceRecord]:
        """Returns a record for each model call, in the order of the calls, with the ids and logprobs of the engine."""
        if session_id not in self._ours:
            return []
        ours = self._ours[session_id]["session_id"]
        return traces(session_id, self.client.session(ours, records=True)["records"], self.client.trajectories(ours, **self.exports))

    def delete_sessions(self, session_ids: Sequence[str]) -> int:
        made = [s for s in dict.fromkeys(session_ids) if s in self._ours]
        for one in made:
            self.client.delete(self._ours[one]["session_id"])
            self._ours.pop(one, None)       # only now: stop() aborts the others
        return len(made)

    async def acreate_session(self, session_id: str, is_validation: bool = False,
                              sampling_params: Optional[Mapping[str, Any]] = None) -> str:
        return await asyncio.to_thread(self.create_session, session_id, is_validation, sampling_params)

    async def aget_traces(self, session_id: str) -> list[TraceRecord]:
        return await asyncio.to_thread(self.get_traces, session_id)

    async def adelete_session(self, session_id: str) -> int:
        return await asyncio.to_thread(self.delete_sessions, [session_id])

    async def adelete_sessions(self, session_ids: Sequence[str]) -> int:
        return await asyncio.to_thread(self.delete_sessions, session_ids)

    # --- versions ---

    def set_weight_version(self, weight_version: int) -> None:
        self.client.weight_version(weight_version)

    async def aset_weight_version(self, weight_version: int) -> None:
        await asyncio.to_thread(self.set_weight_version, weight_version)


def traces(session_id: str, records: Sequence[Mapping[str, Any]], export: Export) -> list[TraceRecord]:
    """Makes the TraceRecords of a session from its records (order, ids, messages) and its trajectories (logprobs,
    versions)."""
    for t in export:
        t.without_images("rLLM's trace")
    turns = {turn["response_id"]: (t, turn) for t in export for turn in t["turns"]}
    out = []
    for record in records:
        for answer in record["answers"]:
            if answer["response_id"] not in turns:      # abandoned: no trajectory trains it
                continue
            t, turn = turns[answer["response_id"]]
            logprobs = t.response_logprobs
            spans = turn["weight_versions"]
            out.append(TraceRecord(
                trace_id=answer["response_id"], session_id=session_id, messages=record["request"]["messages"],
                prompt_token_ids=record["prompt_ids"], response_message=answer["message"],
                completion_token_ids=answer["output_ids"],
                logprobs=None if logprobs is None else logprobs[turn["start"]:turn["end"]].tolist(),
                finish_reason=answer["finish_reason"], weight_version=_number(spans[0]["version"]) if spans else None,
                latency_ms=float(sum(turn["latency_ms"].values())),
                token_counts={"prompt": len(record["prompt_ids"]), "completion": len(answer["output_ids"])}))
    return out


def _number(version: Any) -> Optional[int]:
    """Returns the version as an integer, as rLLM needs it; None for a name."""
    return int(version) if str(version).isdecimal() else None


def install(url: Optional[str] = None, key: Optional[str] = None, session: Optional[Mapping[str, Any]] = None,
            export: Optional[Mapping[str, Any]] = None) -> None:
    """Replaces rLLM's manager with ours. Call it before the trainer is made."""
    RollgateGatewayManager.settings = {"url": url, "key": key, "session": dict(session or {}), "export": dict(export or {})}
    rllm_manager.GatewayManager = RollgateGatewayManager

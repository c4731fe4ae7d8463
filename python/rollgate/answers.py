"""What the gateway answers, as type checkers see it: the members that programs read. Others come, too (docs/http.md)."""
from __future__ import annotations

from typing import Any, Optional, TypedDict


class SessionState(TypedDict, total=False):
    """Of GET /sessions/{id}, and of waits."""

    session_id: str
    phase: str
    history: str
    evaluation: bool
    stop_reason: str
    finished: bool
    reason: str
    group: str
    rollout: int
    labels: dict[str, Any]
    metadata: dict[str, Any]
    num_calls: int
    num_branches: int
    num_tokens: int
    num_inflight_generations: int
    forks_by_cause: dict[str, int]
    warnings: list[str]
    reward: Optional[float]
    reward_info: dict[str, Any]
    turn_rewards: dict[str, dict[str, Any]]
    tree: dict[str, Any]
    records: list[dict[str, Any]]


class SessionPage(TypedDict, total=False):
    sessions: list[SessionState]
    next_cursor: Optional[str]
    unreachable: list[Any]


class Member(TypedDict, total=False):
    """A rollout of a group."""

    rollout: int
    state: str
    session_id: str
    outcome: str
    reason: str
    reward: Optional[float]
    reward_info: dict[str, Any]
    attempts: int
    timings: dict[str, float]


class GroupResult(TypedDict, total=False):
    id: str
    state: str
    queue: Optional[str]
    runner: str
    n: int
    succeeded: int
    deliveries: int
    running: int
    version: Any
    min_version: Optional[int]
    max_version: Optional[int]
    labels: dict[str, Any]
    metadata: dict[str, Any]
    members: list[Member]


class GroupPage(TypedDict, total=False):
    groups: list[GroupResult]
    next_cursor: Optional[str]


class QueueCounts(TypedDict, total=False):
    waiting: int
    running: int
    rollouts_running: int
    settled: int
    taken: int
    acked_total: int
    oldest_s: Optional[float]
    blocked: Any


class QueueAnswer(TypedDict):
    groups: list[GroupResult]
    queue: QueueCounts


class SubmittedGroup(TypedDict):
    id: str
    state: str
    created: bool


class Submitted(TypedDict):
    groups: list[SubmittedGroup]


class Claims(TypedDict):
    attempts: list[dict[str, Any]]

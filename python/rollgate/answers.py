"""The gateway's answers for type checkers: the members that programs read. Answers have others, too (docs/http.md)."""
from __future__ import annotations

from typing import Any, Optional, TypedDict


class SessionState(TypedDict, total=False):
    """The answer of GET /sessions/{id}, and of waits."""

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
    """A rollout of a group. `state`: waiting, running, succeeded, failed, cancelled, or lost: it had succeeded, but a
    fleet has lost its session."""

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


class Figures(TypedDict, total=False):
    """The figures of a range of ended sessions. A mean is None if nothing was counted."""

    sessions: int
    turns: int
    tokens: int
    sampled_tokens: int
    trained_tokens: int
    run_s: float
    turns_mean: Optional[float]
    tokens_mean: Optional[float]
    run_mean_s: Optional[float]
    rewarded: int
    reward_sum: float
    reward_square_sum: float
    reward_mean: Optional[float]
    reward_std: Optional[float]
    passed: int
    pass_rate: Optional[float]
    truncated: int
    unmeasured: int
    ended: dict[str, int]
    trajectories: int
    drifted: int
    staleness_sessions: int
    staleness_sum: int
    staleness_mean: Optional[float]
    time_s: dict[str, float]
    attempts: dict[str, int]
    attempt_run_s: float
    attempt_score_s: float


class Point(Figures, total=False):
    at: int


class FiguresRow(TypedDict):
    name: str
    other: bool
    total: Figures
    series: list[Point]


class Stats(TypedDict, total=False):
    """The answer of GET /stats. Times are Unix seconds."""

    now: float
    since: float
    step: int
    held_s: int
    total: Figures
    series: list[Point]
    evaluation: Figures
    by: Optional[str]
    rows: list[FiguresRow]
    row_limit: int
    slowest: list[dict[str, Any]]
    mismatch: dict[str, Any]
    unreachable: list[str]


class Reported(TypedDict):
    """The trainer's logprobs minus the sampler's. None: no token has both."""

    status: str
    turns: int
    tokens: int
    mean: Optional[float]
    mean_abs: Optional[float]
    p99: Optional[float]
    max: Optional[float]


class Claims(TypedDict):
    attempts: list[dict[str, Any]]

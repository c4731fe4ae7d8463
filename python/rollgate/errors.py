"""Errors of the gateway: one class for each code of the error table (docs/http.md, section 4), such as SessionEnded.
Base classes group them by what a caller can do: Retryable (again, later), Ended (no more calls of this session),
NotFound.

Every error has `status` (HTTP), `code`, `param` (the wrong field, or None), `retry` (whether the same request may be
sent again), `retry_after` (seconds, or None) and `request_id` (which names it in the gateway's log)."""
from __future__ import annotations

import json
from typing import Any, Iterator, Mapping, Optional


class RollgateError(Exception):
    """Any answer that is an error, and any failure to get an answer."""

    code = "unknown"

    def __init__(self, message: str, *, status: int = 0, code: Optional[str] = None, param: Optional[str] = None,
                 retry: bool = False, retry_after: Optional[float] = None, request_id: Optional[str] = None):
        super().__init__(message)
        self.message, self.status, self.param = message, status, param
        self.code = code or type(self).code
        self.retry, self.retry_after, self.request_id = retry, retry_after, request_id

    def __str__(self) -> str:
        where = f" (field {self.param})" if self.param else ""
        request = f" [request {self.request_id}]" if self.request_id else ""
        return f"{self.status or '-'} {self.code}: {self.message}{where}{request}"


class Retryable(RollgateError):
    """The same request may succeed later; `retry_after` may have the time. Both clients repeat it for retry_s."""

    code = ""


class Ended(RollgateError):
    """The session, the attempt or the group has ended: finalized, aborted, cancelled, lost, or its budget is used up."""

    code = ""


class NotFound(RollgateError):
    """The session (UnknownSession), the group (UnknownGroup) or the path does not exist."""

    code = "not_found"


class Unreachable(Retryable):
    """No answer arrived: the connection was refused, broke, or was silent for longer than the time-out."""

    code = "unreachable"


class BadAnswer(RollgateError):
    """The answer is not one of a gateway: broken HTTP, or a body that does not fit its type."""

    code = "bad_answer"


class InvalidRequest(RollgateError):
    code = "invalid_request"


class ContextLengthExceeded(RollgateError):
    code = "context_length_exceeded"


class InvalidImage(RollgateError):
    code = "invalid_image"


class HistoryConflict(RollgateError):
    code = "history_conflict"


class EngineRefused(RollgateError):
    code = "engine_refused"


class MissingKey(RollgateError):
    code = "missing_key"


class WrongScope(RollgateError):
    code = "wrong_scope"


class HostNotAllowed(RollgateError):
    code = "host_not_allowed"


class OriginNotAllowed(RollgateError):
    code = "origin_not_allowed"


class UnknownSession(NotFound):
    code = "unknown_session"


class UnknownGroup(NotFound):
    code = "unknown_group"


class MethodNotAllowed(RollgateError):
    code = "method_not_allowed"


class RequestTimeout(Retryable):
    code = "request_timeout"


class StateConflict(Retryable):
    code = "state_conflict"


class ForeignSession(RollgateError):
    code = "foreign_session"


class TruncatedGeneration(RollgateError):
    code = "truncated_generation"


class GroupExists(RollgateError):
    code = "group_exists"


class SessionEnded(Ended):
    code = "session_ended"


class BudgetExhausted(Ended):
    code = "budget_exhausted"


class SessionLost(Ended):
    code = "session_lost"


class GroupLost(Ended):
    code = "group_lost"


class AttemptEnded(Ended):
    code = "attempt_ended"


class BodyTooLarge(RollgateError):
    code = "body_too_large"


class UnsupportedEncoding(RollgateError):
    code = "unsupported_encoding"


class ExpectationFailed(RollgateError):
    code = "expectation_failed"


class Misdirected(RollgateError):
    code = "misdirected"


class Unassemblable(RollgateError):
    code = "unassemblable"


class RewardMissing(RollgateError):
    code = "reward_missing"


class UpgradeRequired(RollgateError):
    code = "upgrade_required"


class Overloaded(Retryable):
    code = "overloaded"


class QueueFull(Retryable):
    code = "queue_full"


class MaxNodes(RollgateError):
    code = "max_nodes"


class HeadersTooLarge(RollgateError):
    code = "headers_too_large"


class Internal(RollgateError):
    code = "internal"


class PromptLeak(RollgateError):
    code = "prompt_leak"


class EngineInvalid(Retryable):
    code = "engine_invalid"


class WorkerInvalid(Retryable):
    code = "worker_invalid"


class WorkerUnavailable(Retryable):
    code = "worker_unavailable"


class Draining(Retryable):
    code = "draining"


class EngineUnavailable(Retryable):
    code = "engine_unavailable"


class NoOwner(Retryable):
    code = "no_owner"


class FleetPartial(Retryable):
    code = "fleet_partial"


class StorageFull(Retryable):
    code = "storage_full"


class StorageFailed(Retryable):
    code = "storage_failed"


class StorageUnavailable(Retryable):
    code = "storage_unavailable"


class OwnerChanged(Retryable):
    code = "owner_changed"


class MemoryFull(Retryable):
    code = "memory_full"


class EngineTimeout(Retryable):
    code = "engine_timeout"


class HttpVersionNotSupported(RollgateError):
    code = "http_version_not_supported"


class LoopDetected(RollgateError):
    code = "loop_detected"


def _kinds(of: type[RollgateError]) -> Iterator[type[RollgateError]]:
    for kind in of.__subclasses__():
        yield kind
        yield from _kinds(kind)


BY_CODE: dict[str, type[RollgateError]] = {kind.code: kind for kind in _kinds(RollgateError) if kind.code}


def _seconds(text: Optional[str]) -> Optional[float]:
    try:
        return max(0.0, float(text)) if text else None
    except ValueError:
        return None


def from_answer(status: int, headers: Mapping[str, str], body: bytes) -> RollgateError:
    """Makes the error for an answer with a status of 400 or above. headers: names in lower case."""
    told: dict[str, Any] = {}
    again = headers.get("x-should-retry") == "true"
    try:
        document = json.loads(body)
        if isinstance(document, dict) and isinstance(document.get("error"), dict):
            told = document["error"]
    except ValueError:
        pass
    code = told.get("code") or told.get("type") or "unknown"
    message = told.get("message") or body[:200].decode("utf-8", "replace") or "no text"
    return BY_CODE.get(str(code), Retryable if again else RollgateError)(
        str(message), status=status, code=str(code), param=told.get("param"), retry=again, retry_after=_seconds(headers.get("retry-after")),
        request_id=headers.get("rollgate-request-id"))

"""What the gateway answers when it does not do what it was asked: one class for each code of the error
table (docs/http.md, section 4), so that `except SessionEnded` reads as what it is.

Every error carries `status` (HTTP), `code`, `param` (the wrong field, or None), `retry` (whether the same
request may be sent again), `retry_after` (seconds, or None) and `request_id` (names it in the gateway's log).
"""
from __future__ import annotations

import json
from typing import Mapping, Optional


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


class Unreachable(RollgateError):
    """No answer came: connection refused, broken or silent for longer than the time-out."""

    code = "unreachable"


class BadAnswer(RollgateError):
    """What came is no answer of a gateway: broken HTTP, or a body that is not what its type says."""

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


class UnknownSession(RollgateError):
    code = "unknown_session"


class NotFound(RollgateError):
    code = "not_found"


class UnknownGroup(RollgateError):
    code = "unknown_group"


class MethodNotAllowed(RollgateError):
    code = "method_not_allowed"


class RequestTimeout(RollgateError):
    code = "request_timeout"


class StateConflict(RollgateError):
    code = "state_conflict"


class ForeignSession(RollgateError):
    code = "foreign_session"


class TruncatedGeneration(RollgateError):
    code = "truncated_generation"


class GroupExists(RollgateError):
    code = "group_exists"


class SessionEnded(RollgateError):
    code = "session_ended"


class BudgetExhausted(RollgateError):
    code = "budget_exhausted"


class AttemptEnded(RollgateError):
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


class Overloaded(RollgateError):
    code = "overloaded"


class QueueFull(RollgateError):
    code = "queue_full"


class MaxNodes(RollgateError):
    code = "max_nodes"


class HeadersTooLarge(RollgateError):
    code = "headers_too_large"


class Internal(RollgateError):
    code = "internal"


class PromptLeak(RollgateError):
    code = "prompt_leak"


class EngineInvalid(RollgateError):
    code = "engine_invalid"


class WorkerInvalid(RollgateError):
    code = "worker_invalid"


class WorkerUnavailable(RollgateError):
    code = "worker_unavailable"


class Draining(RollgateError):
    code = "draining"


class EngineUnavailable(RollgateError):
    code = "engine_unavailable"


class StorageFull(RollgateError):
    code = "storage_full"


class StorageFailed(RollgateError):
    code = "storage_failed"


class MemoryFull(RollgateError):
    code = "memory_full"


class EngineTimeout(RollgateError):
    code = "engine_timeout"


class HttpVersionNotSupported(RollgateError):
    code = "http_version_not_supported"


class LoopDetected(RollgateError):
    code = "loop_detected"


BY_CODE: dict[str, type[RollgateError]] = {c.code: c for c in RollgateError.__subclasses__()}


def _seconds(text: Optional[str]) -> Optional[float]:
    try:
        return max(0.0, float(text)) if text else None
    except ValueError:
        return None


def from_answer(status: int, headers: Mapping[str, str], body: bytes) -> RollgateError:
    """The error that an answer of 400 and above is. headers: names in lower case."""
    told: dict = {}
    try:
        document = json.loads(body)
        if isinstance(document, dict) and isinstance(document.get("error"), dict):
            told = document["error"]
    except ValueError:
        pass
    code = told.get("code") or told.get("type") or "unknown"
    message = told.get("message") or body[:200].decode("utf-8", "replace") or "no text"
    return BY_CODE.get(str(code), RollgateError)(
        str(message), status=status, code=str(code), param=told.get("param"),
        retry=headers.get("x-should-retry") == "true", retry_after=_seconds(headers.get("retry-after")),
        request_id=headers.get("rollgate-request-id"))

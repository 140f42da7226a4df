"""What a client is told when something is wrong: a status, and JSON with an `error` in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from starlette.responses import Response

from noetic_ray.canonical import to_json_bytes
from noetic_ray.error_record import clip, text_of
from noetic_ray.errors import ConfigError, ModelRateLimited, NoeticError, StepFailed

MAX_MESSAGE = 4_000
_MAX_RETRY_AFTER = 86_400

#: The class of an error in the words of OpenAI's API.
_TYPES: Mapping[int, str] = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    429: "rate_limit_error",
}
_STATUS: Mapping[str, int] = {
    "budget_exceeded": 429,
    "cancelled": 409,
    "channel_closed": 409,
    "channel_schema_error": 422,
    "channel_timeout": 504,
    "duplicate_item": 422,
    "item_schema_mismatch": 422,
    "mcp_error": 502,
    "message_error": 500,
    "model_failed": 502,
    "model_parse_error": 502,
    "model_rate_limit": 429,
    "model_refused": 422,
    "steering_denied": 403,
}
#: Config errors that the one who starts a run can cause.
_CONFIG_STATUS: Mapping[str, int] = {
    "CHANNEL_CONFLICT": 409,
    "HARNESS_CLOSED": 503,
    "INVALID_REQUEST": 422,
    "INVALID_RESOURCE_ID": 422,
    "INVALID_RUN_ID": 422,
    "INVALID_THREAD_ID": 422,
    "INVALID_TIMEOUT": 422,
    "RUN_ID_TAKEN": 409,
    "UNKNOWN_RUN": 404,
}


class Problem(Exception):
    """Ends a request with an error. `kind` is one of ours, or a word for a bad request."""

    def __init__(
        self,
        status: int,
        kind: str,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.message = clip(message, MAX_MESSAGE)
        self.code = code or kind
        self.param = param
        self.headers = dict(headers or {})

    @property
    def type(self) -> str:
        """The class of the error in the words of OpenAI's API."""
        known = _TYPES.get(self.status)
        return known or ("server_error" if self.status >= 500 else "invalid_request_error")

    def as_dict(self) -> dict[str, Any]:
        """The `error` in the body."""
        return {
            "kind": self.kind,
            "message": self.message,
            "type": self.type,
            "code": self.code,
            "param": self.param,
        }

    def response(self) -> Response:
        """The whole answer."""
        return json_response({"error": self.as_dict()}, self.status, self.headers)


def json_response(
    content: Any, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Any value as JSON that can be written."""
    body = to_json_bytes(content)
    return Response(body, status, dict(headers or {}), media_type="application/json")


def of_error(error: NoeticError, *, ran: bool = False) -> Problem:
    """One of our errors for a client: without its traceback.

    `ran` says that a run came to this, so that a client must not try again by itself: it would
    run the agent once more. A model that asked for patience is the exception.
    """
    headers: dict[str, str] = {}
    if isinstance(error, ModelRateLimited):
        headers = _patience(error.retry_after)
    elif ran:
        headers = {"x-should-retry": "false"}
    code = error.code if isinstance(error, ConfigError) else None
    return Problem(_status(error, ran), error.kind, text_of(error), code=code, headers=headers)


def of_shape(wrong: ValidationError) -> Problem:
    """JSON of the wrong shape; what was sent is not repeated."""
    errors = wrong.errors(include_url=False, include_context=False, include_input=False)
    said = "; ".join(f"{_place(each['loc'])}: {each['msg']}" for each in errors[:3])
    param = _place(errors[0]["loc"]) if errors else None
    return Problem(422, "invalid_request", said, code="invalid_shape", param=param)


def unknown_run(run_id: str) -> Problem:
    """No run of this id, or no longer."""
    return Problem(404, "not_found", f"there is no run {run_id!r} here", code="run_not_found")


def closing() -> Problem:
    """The server ends."""
    return Problem(503, "unavailable", "the server is shutting down", code="shutting_down")


def internal() -> Problem:
    """A fault of ours; what it was is in the server's log only."""
    return Problem(500, "internal_error", "the server could not answer this request")


def _place(loc: Sequence[int | str]) -> str:
    return ".".join(map(str, loc)) or "body"


def _status(error: NoeticError, ran: bool) -> int:
    if isinstance(error, ConfigError):
        closed = error.code == "HARNESS_CLOSED"
        return 500 if ran and not closed else _CONFIG_STATUS.get(error.code, 500)
    if isinstance(error, StepFailed) and error.cause.type == "TimeoutError":
        return 504
    return _STATUS.get(error.kind, 500)


def _patience(seconds: float | None) -> dict[str, str]:
    if seconds is None:
        return {}
    return {"Retry-After": str(min(_MAX_RETRY_AFTER, max(1, round(seconds + 0.5))))}

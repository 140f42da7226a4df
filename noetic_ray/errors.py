"""Every error the library raises on purpose.

::

    NoeticError                      .kind
    ├── ConfigError                  config_error          code, hint
    ├── StepFailed                   step_failed           step_id, cause, retries_exhausted
    ├── ModelFailed                  model_failed          status, base_url, attempts, partial,
    │   │                                                  retryable, detail
    │   └── ModelRateLimited         model_rate_limit      + retry_after
    ├── ModelRefused                 model_refused         text, step_id
    ├── ModelParseError              model_parse_error     raw, detail, step_id
    ├── ParallelFailed               fork_partial          succeeded, failed, step_id
    ├── ChannelTimeout               channel_timeout       channel_name, timeout
    ├── ChannelClosed                channel_closed        channel_name
    ├── ChannelSchemaError           channel_schema_error  channel_name, errors
    ├── Cancelled                    cancelled             reason
    ├── BudgetExceeded               budget_exceeded       field, limit, actual
    ├── SteeringDenied               steering_denied       guidance
    ├── ItemSchemaMismatch           item_schema_mismatch  category, item_type, detail
    ├── DuplicateItem                duplicate_item        item_id
    ├── ContextLost                  context_lost          context_id, detail
    ├── MessageError                 message_error         message_id
    ├── TraceError                   trace_error           node_id, space_id
    └── McpError                     mcp_error             client, code, data

All of them pickle with their fields, and compare equal when type, message and fields are equal.
A subclass inherits ``kind`` from its base unless it sets its own. Between processes errors travel
as the plain data of :func:`to_wire`, so a subclass the other side cannot import still arrives, as
its nearest base in this tree with message, kind and that base's fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from noetic_ray.client_errors import McpError, MessageError, TraceError
from noetic_ray.error_base import MAX_NESTING, NoeticError, plain, rebuild
from noetic_ray.error_record import MAX_MESSAGE, ErrorRecord, clip, text_of, type_name

__all__ = [
    "BudgetExceeded",
    "Cancelled",
    "ChannelClosed",
    "ChannelSchemaError",
    "ChannelTimeout",
    "ConfigError",
    "ContextLost",
    "DuplicateItem",
    "ErrorRecord",
    "ItemSchemaMismatch",
    "McpError",
    "MessageError",
    "ModelFailed",
    "ModelParseError",
    "ModelRateLimited",
    "ModelRefused",
    "NoeticError",
    "ParallelFailed",
    "PathFailed",
    "PathSucceeded",
    "SteeringDenied",
    "StepFailed",
    "TraceError",
    "from_wire",
    "to_wire",
]


class PathSucceeded(NamedTuple):
    """One finished path of a failed ``in_parallel``."""

    step_id: str
    value: Any


class PathFailed(NamedTuple):
    """One failed path of a failed ``in_parallel``."""

    step_id: str
    error: BaseException


class ConfigError(NoeticError):
    """Something was set up wrong. ``code`` is upper case and stable, ``hint`` says what to do."""

    kind = "config_error"
    _fields: ClassVar[dict[str, Any]] = {"code": "", "hint": None}

    def __init__(self, code: str, message: str = "", hint: str | None = None) -> None:
        self.code = code
        self.hint = hint
        text = f"{message} [{code}]" if message else code
        super().__init__(f"{text} {hint}" if hint else text)


class StepFailed(NoeticError):
    """A step's own code raised, or its limits ran out. ``cause`` is what happened, as data."""

    kind = "step_failed"
    _fields: ClassVar[dict[str, Any]] = {
        "step_id": "",
        "cause": ErrorRecord("", ""),
        "retries_exhausted": False,
    }

    def __init__(
        self,
        step_id: str,
        cause: ErrorRecord | BaseException,
        retries_exhausted: bool = False,
    ) -> None:
        self.step_id = step_id
        self.cause = cause if isinstance(cause, ErrorRecord) else ErrorRecord.of(cause)
        self.retries_exhausted = retries_exhausted
        tried = " after its last retry" if retries_exhausted else ""
        what = ": ".join(part for part in (self.cause.type, self.cause.message) if part)
        super().__init__(f"step {step_id!r} failed{tried}: {what}")

    def _dump(self, depth: int) -> dict[str, Any]:
        cause = self.__dict__.get("cause")
        record = cause.as_dict() if isinstance(cause, ErrorRecord) else None
        others = {k: plain(v, depth) for k, v in self._field_values().items() if k != "cause"}
        return {**others, "cause": record}

    @classmethod
    def _load(cls, fields: dict[str, Any]) -> dict[str, Any]:
        record = fields.get("cause")
        cause = ErrorRecord.from_dict(record) if isinstance(record, Mapping) else record
        return {**fields, "cause": cause or ErrorRecord("", "")}


class ModelFailed(NoeticError):
    """A model could not be reached or answered with an error.

    ``status`` is None when there was no HTTP response, ``partial`` the text that had arrived,
    ``retryable`` whether trying again later can help.
    """

    kind = "model_failed"
    _fields: ClassVar[dict[str, Any]] = {
        "status": None,
        "base_url": None,
        "attempts": 1,
        "partial": "",
        "retryable": False,
        "detail": "",
    }

    def __init__(
        self,
        status: int | None = None,
        base_url: str | None = None,
        attempts: int = 1,
        partial: str = "",
        retryable: bool = False,
        *,
        detail: str = "",
    ) -> None:
        self.status = status
        self.base_url = base_url
        self.attempts = attempts
        self.partial = partial
        self.retryable = retryable
        self.detail = detail
        super().__init__(self._describe())

    def _describe(self) -> str:
        where = f" at {self.base_url}" if self.base_url else ""
        what = f"HTTP {self.status}" if self.status is not None else "no response"
        tries = "1 attempt" if self.attempts == 1 else f"{self.attempts} attempts"
        said = f": {clip(self.detail, 2_000)}" if self.detail else ""
        if self.status is None and self.base_url:
            advice = "check base_url, the network, and the proxy settings"
        elif self.retryable:
            advice = "try again later"
        else:
            advice = "trying the same again will not help"
        return f"model call{where} failed after {tries} ({what}){said}; {advice}"


class ModelRateLimited(ModelFailed):
    """The provider asked for fewer requests; ``retry_after``: the seconds it named, or None."""

    kind = "model_rate_limit"
    _fields: ClassVar[dict[str, Any]] = {**ModelFailed._fields, "retry_after": None}

    def __init__(
        self,
        retry_after: float | None = None,
        *,
        status: int | None = 429,
        base_url: str | None = None,
        attempts: int = 1,
        partial: str = "",
        retryable: bool = True,
        detail: str = "",
    ) -> None:
        self.retry_after = retry_after
        super().__init__(status, base_url, attempts, partial, retryable, detail=detail)

    def _describe(self) -> str:
        wait = f", in {self.retry_after:g} s" if self.retry_after is not None else ""
        return super()._describe().replace("failed after", "was rate limited after", 1) + wait


class ModelRefused(NoeticError):
    """The model declined to answer; ``text`` is its refusal."""

    kind = "model_refused"
    _fields: ClassVar[dict[str, Any]] = {"text": "", "step_id": None}

    def __init__(self, text: str = "", step_id: str | None = None) -> None:
        self.text = text
        self.step_id = step_id
        where = f" in step {step_id!r}" if step_id else ""
        said = f": {clip(text, 2_000)}" if text else ""
        super().__init__(f"the model refused to answer{where}{said}")


class ModelParseError(NoeticError):
    """The model's text is not what ``output=`` asks for; ``raw`` is that text, unchanged."""

    kind = "model_parse_error"
    _fields: ClassVar[dict[str, Any]] = {"raw": "", "detail": "", "step_id": None}

    def __init__(self, raw: str, detail: str = "", step_id: str | None = None) -> None:
        self.raw = raw
        self.detail = detail
        self.step_id = step_id
        where = f" in step {step_id!r}" if step_id else ""
        why = f" ({clip(detail, 2_000)})" if detail else ""
        super().__init__(
            f"the model's answer{where} does not fit the output type{why}: {clip(raw, 500)!r}"
        )


class ParallelFailed(NoeticError):
    """Paths of an ``in_parallel`` failed; the records keep what the others produced."""

    kind = "fork_partial"
    _fields: ClassVar[dict[str, Any]] = {"succeeded": [], "failed": [], "step_id": None}

    def __init__(
        self,
        succeeded: Iterable[tuple[str, Any]] = (),
        failed: Iterable[tuple[str, BaseException]] = (),
        step_id: str | None = None,
    ) -> None:
        self.succeeded = [PathSucceeded(*each) for each in succeeded]
        self.failed = [PathFailed(*each) for each in failed]
        self.step_id = step_id
        name = f"in_parallel {step_id!r}" if step_id else "in_parallel"
        total = len(self.succeeded) + len(self.failed)
        shown = "; ".join(f"{path}: {clip(text_of(e), 300)}" for path, e in self.failed[:3])
        more = f"; and {len(self.failed) - 3} more" if len(self.failed) > 3 else ""
        super().__init__(f"{name}: {len(self.failed)} of {total} paths failed: {shown}{more}")

    def _dump(self, depth: int) -> dict[str, Any]:
        held = self._field_values()
        return {
            "succeeded": [[each[0], each[1]] for each in held["succeeded"]],
            "failed": [[each[0], _encode(each[1], depth + 1)] for each in held["failed"]],
            "step_id": held["step_id"],
        }

    @classmethod
    def _load(cls, fields: dict[str, Any]) -> dict[str, Any]:
        succeeded = [PathSucceeded(*each) for each in fields.get("succeeded") or ()]
        failed = [PathFailed(step, from_wire(error)) for step, error in fields.get("failed") or ()]
        return {**fields, "succeeded": succeeded, "failed": failed}


class ChannelTimeout(NoeticError):
    """A send or recv waited ``timeout`` seconds on a channel in vain."""

    kind = "channel_timeout"
    _fields: ClassVar[dict[str, Any]] = {"channel_name": "", "timeout": None}

    def __init__(self, channel_name: str, timeout: float | None = None) -> None:
        self.channel_name = channel_name
        self.timeout = timeout
        waited = "" if timeout is None else f" within {timeout:g} s"
        super().__init__(
            f"channel {channel_name!r}: the other side did not come{waited}; "
            "give a longer timeout, or None to wait for ever"
        )


class ChannelClosed(NoeticError):
    """The channel, or this handle on it, is closed."""

    kind = "channel_closed"
    _fields: ClassVar[dict[str, Any]] = {"channel_name": ""}

    def __init__(self, channel_name: str) -> None:
        self.channel_name = channel_name
        super().__init__(
            f"channel {channel_name!r} is closed; it closes with its run or its harness"
        )


class ChannelSchemaError(NoeticError):
    """A value does not fit the channel's schema. ``errors`` are dicts with loc, msg and type."""

    kind = "channel_schema_error"
    _fields: ClassVar[dict[str, Any]] = {"channel_name": "", "errors": []}

    def __init__(self, channel_name: str, errors: Sequence[Mapping[str, Any]] = ()) -> None:
        self.channel_name = channel_name
        self.errors = [dict(each) for each in errors]
        shown = "; ".join(_schema_line(each) for each in self.errors[:3])
        super().__init__(
            f"channel {channel_name!r}: the value does not fit its schema and was not sent: {shown}"
        )


def _schema_line(error: Mapping[str, Any]) -> str:
    where = ".".join(str(part) for part in error.get("loc") or ())
    said = str(error.get("msg", ""))
    return f"{where}: {said}" if where else said


class Cancelled(NoeticError):
    """The context was aborted; ``reason`` is the text given to the first abort."""

    kind = "cancelled"
    _fields: ClassVar[dict[str, Any]] = {"reason": "context aborted"}

    def __init__(self, reason: str | None = None) -> None:
        self.reason = "context aborted" if reason is None else reason
        super().__init__(f"cancelled: {self.reason}")


class BudgetExceeded(NoeticError):
    """A limit of the run's budget is used up."""

    kind = "budget_exceeded"
    _fields: ClassVar[dict[str, Any]] = {"field": "", "limit": 0, "actual": 0}

    def __init__(self, field: str, limit: float, actual: float) -> None:
        self.field = field
        self.limit = limit
        self.actual = actual
        super().__init__(
            f"budget exceeded: {field} is {actual}, its limit {limit}; "
            "raise the limit or give the run less to do"
        )


class SteeringDenied(NoeticError):
    """A layer or a person refused a tool call; ``guidance`` is what they said."""

    kind = "steering_denied"
    _fields: ClassVar[dict[str, Any]] = {"guidance": None}

    def __init__(self, guidance: str | None = None) -> None:
        self.guidance = guidance
        super().__init__(f"the call was denied: {guidance}" if guidance else "the call was denied")


class ItemSchemaMismatch(NoeticError):
    """Something offered as an item is none.

    ``category`` is ``items``, ``developerMessages``, ``toolCalls`` or ``toolResults``;
    ``item_type`` the type it claimed, or None when it claimed none.
    """

    kind = "item_schema_mismatch"
    _fields: ClassVar[dict[str, Any]] = {"category": "", "item_type": None, "detail": ""}

    def __init__(self, category: str, item_type: str | None = None, detail: str = "") -> None:
        self.category = category
        self.item_type = item_type
        self.detail = detail
        what = f"an item of type {item_type!r}" if item_type else "an item without a usable type"
        why = f": {clip(detail, 2_000)}" if detail else ""
        super().__init__(f"{what} does not fit the schema of {category}{why}")


class DuplicateItem(NoeticError):
    """The log already has other content under this id."""

    kind = "duplicate_item"
    _fields: ClassVar[dict[str, Any]] = {"item_id": ""}

    def __init__(self, item_id: str) -> None:
        self.item_id = item_id
        super().__init__(
            f"item {item_id!r} is already in the log with other content; "
            "the log is append-only, leave the id out to get a fresh one"
        )


class ContextLost(NoeticError):
    """The process of a context died, and what the context knew with it."""

    kind = "context_lost"
    _fields: ClassVar[dict[str, Any]] = {"context_id": "", "detail": ""}

    def __init__(self, context_id: str, detail: str = "") -> None:
        self.context_id = context_id
        self.detail = detail
        why = f" ({clip(detail, 2_000)})" if detail else ""
        super().__init__(
            f"context {context_id} was lost with its process{why}; "
            "what it had logged stands in the journal: catch this to run its step again"
        )


_KNOWN: dict[str, type[NoeticError]] = {
    name: value
    for name, value in list(globals().items())
    if isinstance(value, type) and issubclass(value, NoeticError)
}


def to_wire(exc: BaseException) -> dict[str, Any]:
    """An error as plain data that pickles and turns into JSON. Never raises.

    ``ParallelFailed.succeeded`` values are passed through as they are. The traceback and
    ``__cause__`` stay behind; notes are kept. An exception that is not ours becomes a plain
    NoeticError naming its type.
    """
    return _encode(exc, 0)


def from_wire(data: Mapping[str, Any]) -> NoeticError:
    """Rebuild what :func:`to_wire` made. Never raises: unknown names give a NoeticError."""
    try:
        return _decode(data)
    except Exception as failure:
        return NoeticError(f"an error arrived in a form that cannot be read ({failure!r})")


def _encode(exc: BaseException, depth: int) -> dict[str, Any]:
    base = next((c for c in type(exc).__mro__ if _KNOWN.get(c.__name__) is c), NoeticError)
    ours = isinstance(exc, NoeticError)
    message = text_of(exc) if ours else f"{type_name(type(exc))}: {text_of(exc)}"
    wire: dict[str, Any] = {"base": base.__name__, "kind": NoeticError.kind, "message": message}
    try:
        if isinstance(exc, NoeticError):
            wire["kind"] = str(exc.kind)
            if depth < MAX_NESTING:
                wire["fields"] = base._dump(exc, depth)
        notes = [clip(n, MAX_MESSAGE) for n in getattr(exc, "__notes__", ()) if type(n) is str]
        if notes:
            wire["notes"] = notes
    except Exception as failure:
        wire["notes"] = [f"some fields were lost on the way: {type(failure).__name__}"]
    return wire


def _decode(data: Mapping[str, Any]) -> NoeticError:
    base = _KNOWN.get(str(data.get("base")), NoeticError)
    defaults = {k: list(v) if isinstance(v, list) else v for k, v in base._fields.items()}
    fields = {**defaults, **(data.get("fields") or {})}
    kept = base._load({name: fields[name] for name in defaults})
    exc = rebuild(base, (str(data.get("message", "")),), kept)
    kind = data.get("kind")
    if isinstance(kind, str) and kind and kind != base.kind:
        exc.kind = kind
    for note in data.get("notes") or ():
        exc.add_note(str(note))
    return exc

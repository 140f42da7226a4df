"""A node of the trace, as an agent holds it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from noetic_ray.client.trace_records import (
    ParallelInput,
    TraceLog,
    TraceNodeOption,
    TraceNodeRecord,
)
from noetic_ray.error_record import text_of, type_name
from noetic_ray.errors import TraceError

if TYPE_CHECKING:
    from noetic_ray.client.trace import Trace


class _Unset:
    def __repr__(self) -> str:
        return "UNSET"


UNSET: Any = _Unset()


class TraceNode:
    """One node. Methods return the node, so that they chain; the node's facts are attributes.

    `status` is `running`, `completed` or `failed`; a node ends once. Output and metadata may be
    set after its end. Times are seconds since the epoch. `children` and `logs` are complete on a
    node from `get_node`.
    """

    __slots__ = ("_trace", "record")

    def __init__(self, trace: Trace, record: TraceNodeRecord) -> None:
        self._trace = trace
        self.record = record

    def __repr__(self) -> str:
        record = self.record
        return f"TraceNode({record.id!r}, label={record.label!r}, status={record.status!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TraceNode) and other.record.id == self.record.id

    def __hash__(self) -> int:
        return hash(self.record.id)

    # -- what happens to it ----------------------------------------------------------------------

    def set_output(self, output: Any) -> TraceNode:
        """Set the output; the last one stays."""
        self.record.output = output
        self._trace.update(self, {"output": output})
        return self

    def set_metadata(self, key: str, value: Any) -> TraceNode:
        """Set one key of the metadata. Raises TraceError for a key that is no text."""
        if not isinstance(key, str):
            raise TraceError(f"a key of metadata is a text, not {key!r}", self.id)
        self.record.metadata[key] = value
        self._trace.update(self, {"metadata": {key: value}})
        return self

    def complete(self, output: Any = UNSET) -> TraceNode:
        """End the node well; an output given takes the place of one set before."""
        record = self.record
        if output is not UNSET and record.status == "running":
            record.output = output
        known = record.output is not None and self._trace.is_mine(self)
        given = output is not UNSET or known
        self._trace.end(self, "completed", {"output": record.output} if given else {})
        return self

    def fail(self, error: Any) -> TraceNode:
        """End the node badly, with an exception or a text; it is logged to the node too."""
        said = said_of(error)
        if self.record.status == "running":
            self._trace.log_to((self.id,), "error", f"Node failed: {said}", None)
        self._trace.end(self, "failed", {"error": said})
        return self

    def add(
        self,
        input: Any,
        *,
        label: str = "",
        type: str = "",
        icon: str = "",
        description: str = "",
        metadata: Mapping[str, Any] | None = None,
    ) -> TraceNode:
        """Begin a node below this one, which goes on; the context's current nodes stay."""
        option = TraceNodeOption(label, type, icon, description, metadata)
        return self._trace.below(self, [ParallelInput(input, option)])[0]

    def parallel(self, inputs: Iterable[ParallelInput | Mapping[str, Any]]) -> list[TraceNode]:
        """Begin several nodes below this one; an empty list gives none."""
        from noetic_ray.client.trace import as_inputs

        return self._trace.below(self, as_inputs(inputs))

    def info(self, message: str, data: Any = None) -> TraceNode:
        """Log to this node, whether it runs or has ended."""
        return self._log("info", message, data)

    def debug(self, message: str, data: Any = None) -> TraceNode:
        """`info` at the level debug."""
        return self._log("debug", message, data)

    def warn(self, message: str, data: Any = None) -> TraceNode:
        """`info` at the level warn."""
        return self._log("warn", message, data)

    def error(self, message: str, data: Any = None) -> TraceNode:
        """`info` at the level error. What a node failed with is `node.record.error`."""
        return self._log("error", message, data)

    def _log(self, level: str, message: str, data: Any) -> TraceNode:
        self._trace.log_to((self.id,), level, message, data)
        return self

    # -- its facts -------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """12 of 0-9 and a-z."""
        return self.record.id

    @property
    def parent_ids(self) -> list[str]:
        """Ids of the nodes it stands below."""
        return self.record.parent_ids

    @property
    def label(self) -> str:
        """What people see."""
        return self.record.label

    @property
    def type(self) -> str:
        """What kind of work it is."""
        return self.record.type

    @property
    def icon(self) -> str:
        """The name of an icon."""
        return self.record.icon

    @property
    def description(self) -> str:
        """A sentence for people."""
        return self.record.description

    @property
    def metadata(self) -> dict[str, Any]:
        """What was set, by key."""
        return self.record.metadata

    @property
    def status(self) -> str:
        """`running`, `completed` or `failed`."""
        return self.record.status

    @property
    def input(self) -> Any:
        """What the node was given."""
        return self.record.input

    @property
    def output(self) -> Any:
        """What came out, None while nothing did."""
        return self.record.output

    @property
    def children(self) -> list[TraceNodeRecord]:
        """The nodes below."""
        return self.record.children

    @property
    def logs(self) -> list[TraceLog]:
        """Lines logged to it, in a node from `get_node`."""
        return self.record.logs

    @property
    def created_at(self) -> float | None:
        """Seconds since the epoch."""
        return self.record.created_at

    @property
    def started_at(self) -> float | None:
        """Seconds since the epoch."""
        return self.record.started_at

    @property
    def ended_at(self) -> float | None:
        """Seconds since the epoch; None while it runs."""
        return self.record.ended_at


def said_of(error: Any) -> str:
    """What a node failed with, as text: an exception's type stands before its message."""
    if isinstance(error, BaseException):
        return f"{type_name(type(error))}: {text_of(error)}"
    return error if isinstance(error, str) else str(error)

"""How context specs and replies cross between processes: one bytes object a call.

A step travels as a pickled program named by its digest; a process that has seen a digest keeps
the loaded step. Inputs shared by many children of one call are pickled once.
"""

from __future__ import annotations

import hashlib
import pickle
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from ray import cloudpickle

from noetic_ray.actors import codec
from noetic_ray.actors.layer_wire import (
    LayerPacker,
    Ref,
    pack_remains,
    pickled_state,
    read_seeds,
    unpack_remains,
)
from noetic_ray.engine.spec import ContextSpec, Reply, RunScope
from noetic_ray.errors import ConfigError, ErrorRecord, NoeticError, StepFailed, to_wire
from noetic_ray.layers.base import ContextLayer
from noetic_ray.steps import Step

MAX_PROGRAMS = 1_024
MAX_SCOPES = 256
_PROTOCOL = 5


class Rows(NamedTuple):
    """What a `run` call carries."""

    group: int
    programs: dict[bytes, bytes]
    inputs: list[bytes]
    contexts: list[tuple[Any, ...]]


class ProgramPacker:
    """Pickles steps, once per step object unless asked to look again."""

    def __init__(self, layers: Sequence[ContextLayer[Any]] = ()) -> None:
        self.layers = LayerPacker(layers)
        self._known: WeakKeyDictionary[Any, tuple[bytes, bytes]] = WeakKeyDictionary()

    def pack(self, step: Step[Any, Any], fresh: bool = False) -> tuple[bytes, bytes]:
        """(digest, program). `fresh` sees what a notebook cell changed since."""
        known = None if fresh else self._known.get(step)
        if known is None:
            try:
                program = bytes(cloudpickle.dumps(step, _PROTOCOL))
            except Exception as error:
                raise ConfigError(
                    "UNPICKLABLE_CAPTURE",
                    f"step {step.id!r} cannot be sent to another process: {error}",
                    "create clients, locks and files inside the step, not around it",
                ) from None
            known = (hashlib.blake2b(program, digest_size=16).digest(), program)
            self._known[step] = known
        return known


def pack_specs(
    packer: ProgramPacker, group: int, specs: Sequence[ContextSpec], fresh: bool = False
) -> bytes:
    """The payload of a `run` call. Raises ConfigError naming what cannot be pickled."""
    rows = Rows(group, {}, [], [])
    places: dict[int, int] = {}
    for spec in specs:
        digest, program = packer.pack(spec.step, fresh)
        rows.programs[digest] = program
        place = places.get(id(spec.input))
        if place is None:
            place = places[id(spec.input)] = len(rows.inputs)
            rows.inputs.append(_pickled(spec.input, f"the input of step {spec.step.id!r}"))
        layers = packer.layers.seeds(spec.layers, rows.programs)
        rows.contexts.append(_row(spec, digest, place, layers))
    return pickle.dumps(tuple(rows), _PROTOCOL)


def _row(spec: ContextSpec, digest: bytes, place: int, layers: tuple[Any, ...]) -> tuple[Any, ...]:
    state = None
    if spec.state is not None:
        state = _pickled(spec.state, f"the state given to step {spec.step.id!r}")
    scope = spec.scope
    return (
        (scope.run_id, scope.request, scope.trace_id),
        spec.id,
        digest,
        place,
        spec.depth,
        spec.parent,
        spec.path,
        state,
        spec.items,
        spec.origin,
        spec.thread_id,
        spec.resource_id,
        spec.parent_span,
        spec.detached,
        spec.wants_state,
        spec.aborted,
        spec.abort_reason,
        layers,
        spec.named_thread,
        spec.quiet,
        spec.preview,
        spec.wants_layers,
        spec.sent,
        spec.trace_place,
        spec.marks,
        spec.inbox,
    )


def _pickled(value: Any, what: str) -> bytes:
    try:
        return codec.dumps(value)
    except Exception as error:
        raise ConfigError(
            "UNPICKLABLE_VALUE",
            f"{what} cannot be sent to another process: {error}",
            "pass plain data; open files, locks and clients where they are used",
        ) from None


class SpecReader:
    """Unpacks `run` calls in the process that hosts the contexts."""

    def __init__(self, params: Mapping[str, Any], layers: Sequence[ContextLayer[Any]] = ()) -> None:
        self._params = params
        self._layers = tuple(layers)
        self._programs: OrderedDict[bytes, Any] = OrderedDict()
        self._scopes: OrderedDict[str, RunScope] = OrderedDict()

    def read(self, payload: bytes) -> tuple[int, list[ContextSpec | tuple[str, NoeticError]]]:
        """(group, specs); a context whose step or input cannot be loaded is (id, error)."""
        rows = Rows(*pickle.loads(payload))
        inputs = [_Lazy(data) for data in rows.inputs]
        return rows.group, [self._spec(rows, inputs, row) for row in rows.contexts]

    def _spec(
        self, rows: Rows, inputs: list[_Lazy], row: tuple[Any, ...]
    ) -> ContextSpec | tuple[str, NoeticError]:
        (run_id, request, trace_id), id, digest, place, *rest = row
        try:
            step = self._program(digest, rows.programs[digest])
            value = inputs[place].get()
            rest[3] = codec.loads(rest[3]) if rest[3] is not None else None
            rest[13] = read_seeds(rest[13], lambda ref: self._layer(ref, rows.programs))
        except Exception as error:
            return id, _load_error(error)
        return self._build(self._scope(run_id, request, trace_id), id, step, value, rest)

    def _build(
        self, scope: RunScope, id: str, step: Any, input: Any, rest: list[Any]
    ) -> ContextSpec:
        depth, parent, path, state, items, origin, thread, resource, span, *flags = rest
        detached, wants_state, aborted, abort_reason, layers, *more = flags
        named_thread, quiet, preview, wants_layers, sent, trace_place, marks, inbox = more
        return ContextSpec(
            scope=scope,
            id=id,
            step=step,
            input=input,
            depth=depth,
            parent=parent,
            path=path,
            state=state,
            items=items,
            origin=origin,
            thread_id=thread,
            resource_id=resource,
            parent_span=span,
            detached=detached,
            wants_state=wants_state,
            aborted=aborted,
            abort_reason=abort_reason,
            layers=layers,
            named_thread=named_thread,
            quiet=quiet,
            preview=preview,
            wants_layers=wants_layers,
            sent=sent,
            trace_place=trace_place,
            marks=marks,
            inbox=inbox,
        )

    def _layer(self, ref: Ref, programs: Mapping[bytes, bytes]) -> Any:
        return self._layers[ref] if isinstance(ref, int) else self._program(ref, programs[ref])

    def _program(self, digest: bytes, program: bytes) -> Any:
        step = self._programs.get(digest)
        if step is None:
            step = self._programs[digest] = cloudpickle.loads(program)
            _trim(self._programs, MAX_PROGRAMS)
        return step

    def _scope(self, run_id: str, request: Any, trace_id: int) -> RunScope:
        scope = self._scopes.get(run_id)
        if scope is None or scope.request != request:
            scope = self._scopes[run_id] = RunScope(run_id, self._params, request, trace_id)
            _trim(self._scopes, MAX_SCOPES)
        return scope


class _Lazy:
    """A shared input: every context gets a copy of its own, the last bytes are the master."""

    __slots__ = ("_data",)

    def __init__(self, data: bytes) -> None:
        self._data = data

    def get(self) -> Any:
        return codec.loads(self._data)


def _trim(kept: OrderedDict[Any, Any], limit: int) -> None:
    while len(kept) > limit:
        kept.popitem(last=False)


def _load_error(error: Exception) -> NoeticError:
    if isinstance(error, NoeticError):
        return error
    return ConfigError(
        "STEP_NOT_LOADABLE",
        f"a step or its input cannot be loaded in this process: {type(error).__name__}: {error}",
        "make its module importable on every node (installed, or in the job's working_dir)",
    )


Packed = tuple[Any, ...]


def pack_reply(reply: Reply, step_of: Callable[[str], str]) -> Packed:
    """A reply as plain data; an output that cannot be pickled becomes a failure."""
    output: bytes | None = None
    status, error = reply.status, reply.error
    if error is None:
        try:
            output = codec.dumps(reply.output)
        except Exception as problem:
            status, error = "failed", _output_error(step_of(reply.id), reply.output, problem)
    state = None
    if reply.state is not None and error is None:
        try:
            state = codec.dumps(reply.state)
        except Exception as problem:
            status, output, error = "failed", None, _state_error(reply.id, problem)
    layers = None
    if reply.layer_states is not None and error is None:
        try:
            layers = {id: pickled_state(id, each) for id, each in reply.layer_states.items()}
        except ConfigError as problem:
            status, output, error = "failed", None, to_wire(problem)
    tokens = reply.tokens
    return (
        reply.id,
        status,
        output,
        error,
        (tokens.input, tokens.output, tokens.total, tokens.cached, tokens.unreported),
        reply.cost,
        state,
        reply.outcomes,
        reply.marks,
        reply.settled,
        layers,
        reply.items,
        pack_remains(reply.remains),
        reply.layer_usage,
    )


def _output_error(step_id: str, output: Any, problem: Exception) -> dict[str, Any]:
    cause = TypeError(
        f"the output of step {step_id!r}, a {type(output).__name__}, cannot be sent to another "
        f"process: {problem}; return plain data instead"
    )
    return to_wire(StepFailed(step_id, ErrorRecord.of(cause), False))


def _state_error(id: str, problem: Exception) -> dict[str, Any]:
    error = ConfigError(
        "UNPICKLABLE_STATE",
        f"the state of context {id} cannot be sent to its parent: {problem}",
        "keep only picklable values in ctx.state",
    )
    return to_wire(error)


def unpack_reply(packed: Packed) -> Reply:
    """The reply; what cannot be loaded here becomes a failure."""
    from noetic_ray.usage import TokenUsage

    id, status, output, error, tokens, cost, state, outcomes, marks, settled, *more = packed
    layers, items, remains, layer_usage = more
    value: Any = None
    if output is not None:
        try:
            value = codec.loads(output)
        except Exception as problem:
            status = "failed"
            error = to_wire(StepFailed("", ErrorRecord.of(problem), False))
    return Reply(
        id=id,
        status=status,
        output=value,
        error=error,
        tokens=TokenUsage(*tokens),
        cost=cost,
        state=codec.loads(state) if state is not None else None,
        outcomes=outcomes,
        marks=marks,
        settled=settled,
        layer_states=None if layers is None else {k: codec.loads(v) for k, v in layers.items()},
        items=items,
        remains=unpack_remains(remains),
        layer_usage=layer_usage,
    )

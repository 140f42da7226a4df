from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from ray import cloudpickle

from noetic_ray import errors
from noetic_ray.errors import (
    BudgetExceeded,
    Cancelled,
    ChannelClosed,
    ChannelSchemaError,
    ChannelTimeout,
    ConfigError,
    ContextLost,
    DuplicateItem,
    ErrorRecord,
    ItemSchemaMismatch,
    McpError,
    MessageError,
    ModelFailed,
    ModelParseError,
    ModelRateLimited,
    ModelRefused,
    NoeticError,
    ParallelFailed,
    SteeringDenied,
    StepFailed,
    TraceError,
    from_wire,
    to_wire,
)

RECORD = ErrorRecord("ValueError", "boom", "Traceback ...", ErrorRecord("KeyError", "'k'"))

EXAMPLES: list[tuple[NoeticError, str, dict[str, Any]]] = [
    (NoeticError("plain"), "noetic_error", {}),
    (
        ConfigError("BAD_THING", "It is bad.", "Do better."),
        "config_error",
        {"code": "BAD_THING", "hint": "Do better."},
    ),
    (
        StepFailed("s1", RECORD, retries_exhausted=True),
        "step_failed",
        {"step_id": "s1", "cause": RECORD, "retries_exhausted": True},
    ),
    (
        ModelFailed(503, "http://m/v1", 5, "half an", True, detail="overloaded"),
        "model_failed",
        {
            "status": 503,
            "base_url": "http://m/v1",
            "attempts": 5,
            "partial": "half an",
            "retryable": True,
        },
    ),
    (
        ModelRateLimited(12.5, base_url="http://m/v1", attempts=2),
        "model_rate_limit",
        {"retry_after": 12.5, "status": 429, "retryable": True, "attempts": 2},
    ),
    (ModelRefused("no", "s"), "model_refused", {"text": "no", "step_id": "s"}),
    (ModelParseError("{oops", "not JSON"), "model_parse_error", {"raw": "{oops"}),
    (
        ParallelFailed([("a", 1)], [("b", StepFailed("b", RECORD))], "both"),
        "fork_partial",
        {"succeeded": [("a", 1)], "failed": [("b", StepFailed("b", RECORD))]},
    ),
    (ChannelTimeout("c", 1.5), "channel_timeout", {"channel_name": "c", "timeout": 1.5}),
    (ChannelClosed("c"), "channel_closed", {"channel_name": "c"}),
    (
        ChannelSchemaError("c", [{"loc": ["x", 0], "msg": "no int", "type": "int"}]),
        "channel_schema_error",
        {"errors": [{"loc": ["x", 0], "msg": "no int", "type": "int"}]},
    ),
    (Cancelled("stop pressed"), "cancelled", {"reason": "stop pressed"}),
    (
        BudgetExceeded("cost", 1.0, 1.25),
        "budget_exceeded",
        {"field": "cost", "limit": 1.0, "actual": 1.25},
    ),
    (SteeringDenied("not now"), "steering_denied", {"guidance": "not now"}),
    (
        ItemSchemaMismatch("items", "x:y", "data: wrong"),
        "item_schema_mismatch",
        {"category": "items", "item_type": "x:y"},
    ),
    (DuplicateItem("i1"), "duplicate_item", {"item_id": "i1"}),
    (ContextLost("ctx1"), "context_lost", {"context_id": "ctx1"}),
    (MessageError("no", "M1"), "message_error", {"message_id": "M1"}),
    (TraceError("no", "n1", "s1"), "trace_error", {"node_id": "n1", "space_id": "s1"}),
    (
        McpError("files", "no", code=-32601, data={"a": [1]}),
        "mcp_error",
        {"client": "files", "code": -32601, "data": {"a": [1]}},
    ),
]
every_error = pytest.mark.parametrize(
    ("error", "kind", "fields"), EXAMPLES, ids=[type(e).__name__ for e, _, _ in EXAMPLES]
)


def test_every_class_of_the_tree_has_an_example_and_a_place_in_the_docstring() -> None:
    classes = {
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, NoeticError)
    }
    assert classes == {type(error) for error, _, _ in EXAMPLES}
    for cls in classes:
        assert cls.__name__ in (errors.__doc__ or "")
        assert cls.kind in (errors.__doc__ or "") or cls is NoeticError


@every_error
def test_kind_and_fields(error: NoeticError, kind: str, fields: dict[str, Any]) -> None:
    assert error.kind == kind
    assert {name: getattr(error, name) for name in fields} == fields
    assert str(error)


@every_error
@pytest.mark.parametrize("pickler", [pickle, cloudpickle])
def test_pickling_keeps_type_message_and_fields(
    pickler: Any, error: NoeticError, kind: str, fields: dict[str, Any]
) -> None:
    copy = pickler.loads(pickler.dumps(error))
    assert type(copy) is type(error)
    assert copy == error
    assert str(copy) == str(error)
    assert {name: getattr(copy, name) for name in fields} == fields


@every_error
def test_the_wire_form_is_json_and_gives_the_same_error(
    error: NoeticError, kind: str, fields: dict[str, Any]
) -> None:
    wire = json.loads(json.dumps(to_wire(error)))
    copy = from_wire(wire)
    assert type(copy) is type(error)
    assert copy == error
    assert copy.kind == kind
    assert str(copy) == str(error)


@every_error
def test_the_wire_form_can_be_sent_on_again(
    error: NoeticError, kind: str, fields: dict[str, Any]
) -> None:
    assert to_wire(from_wire(to_wire(error))) == to_wire(error)


def test_message_says_what_happened_to_what_and_what_to_do() -> None:
    assert str(ChannelTimeout("jobs", 2)) == (
        "channel 'jobs': the other side did not come within 2 s; "
        "give a longer timeout, or None to wait for ever"
    )
    assert str(ConfigError("X", "Broken.", "Mend it.")) == "Broken. [X] Mend it."
    assert "step 'work' failed: ValueError: boom" in str(StepFailed("work", RECORD))
    failed = str(EXAMPLES[3][0])
    assert "http://m/v1" in failed
    assert "5 attempts (HTTP 503): overloaded" in failed
    parallel = str(EXAMPLES[7][0])
    assert parallel.startswith("in_parallel 'both': 1 of 2 paths failed: b: step 'b' failed")


def test_equality_is_by_type_and_fields() -> None:
    assert ChannelClosed("a") == ChannelClosed("a")
    assert hash(ChannelClosed("a")) == hash(ChannelClosed("a"))
    assert ChannelClosed("a") != ChannelClosed("b")
    assert ModelFailed(429) != ModelRateLimited(None)
    assert Cancelled() != "cancelled"


def test_rate_limit_is_a_model_failure() -> None:
    with pytest.raises(ModelFailed) as caught:
        raise ModelRateLimited(3)
    assert "rate limited" in str(caught.value)
    assert "in 3 s" in str(caught.value)


def test_cancelled_without_a_reason_says_that_the_context_was_aborted() -> None:
    assert Cancelled().reason == "context aborted"
    assert Cancelled(None).reason == "context aborted"


def test_step_failed_turns_an_exception_into_a_record() -> None:
    try:
        raise ValueError("inner")
    except ValueError as exc:
        failed = StepFailed("s", exc)
    assert failed.cause.type == "ValueError"
    assert failed.cause.message == "inner"
    assert 'raise ValueError("inner")' in failed.cause.traceback
    assert failed.cause.cause is None


def test_parallel_records_have_names() -> None:
    error = ParallelFailed([("a", 1)], [("b", Cancelled())])
    assert error.succeeded[0].step_id == "a"
    assert error.succeeded[0].value == 1
    assert error.failed[0].step_id == "b"
    assert error.failed[0].error == Cancelled()


def test_a_long_list_of_failed_paths_is_summed_up() -> None:
    error = ParallelFailed([], [(str(n), Cancelled("x" * 5000)) for n in range(100)])
    assert "and 97 more" in str(error)
    assert len(str(error)) < 2500


def test_notes_travel_and_do_not_matter_for_equality() -> None:
    error = ChannelClosed("c")
    error.add_note("while closing")
    copy = from_wire(to_wire(error))
    assert copy.__notes__ == ["while closing"]
    assert pickle.loads(pickle.dumps(error)).__notes__ == ["while closing"]
    assert copy == ChannelClosed("c")


def test_record_follows_cause_and_context() -> None:
    try:
        try:
            try:
                raise KeyError("first")
            except KeyError:
                raise ValueError("second")  # noqa: B904
        except ValueError as exc:
            raise RuntimeError("third") from exc
    except RuntimeError as exc:
        record = ErrorRecord.of(exc)
    names = []
    following: ErrorRecord | None = record
    while following:
        names.append(following.type)
        following = following.cause
    assert names == ["RuntimeError", "ValueError", "KeyError"]


def test_record_leaves_out_a_suppressed_context() -> None:
    try:
        try:
            raise KeyError("hidden")
        except KeyError:
            raise ValueError("shown") from None
    except ValueError as exc:
        record = ErrorRecord.of(exc)
    assert record.message == "shown"
    assert record.cause is None


def test_record_type_is_qualified_but_bare_for_builtins() -> None:
    assert ErrorRecord.of(OSError("x")).type == "OSError"
    assert ErrorRecord.of(json.JSONDecodeError("m", "d", 0)).type == "json.decoder.JSONDecodeError"
    assert ErrorRecord.of(ChannelClosed("c")).type == "noetic_ray.errors.ChannelClosed"


def test_record_of_an_exception_that_cannot_be_shown() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

        __repr__ = __str__

    record = ErrorRecord.of(Mute())
    assert "failed" in record.message
    assert record.type.endswith("Mute")
    assert from_wire(to_wire(Mute())).kind == "noetic_error"


def test_record_survives_cycles_and_is_bounded_in_depth_and_size() -> None:
    one, other = ValueError("one"), ValueError("other")
    one.__cause__, other.__cause__ = other, one
    record = ErrorRecord.of(one)
    assert record.cause is not None
    assert record.cause.cause is None

    top = deep = ValueError("0")
    for n in range(100):
        deep.__cause__ = deep = ValueError(str(n))
    depth, following = 0, ErrorRecord.of(top)
    while following.cause is not None:
        depth, following = depth + 1, following.cause
    assert depth < 10

    big = ErrorRecord.of(ValueError("x" * 10_000_000))
    assert len(big.message) < 10_000
    assert len(big.traceback) < 20_000


def test_record_of_deep_recursion() -> None:
    def down() -> None:
        down()

    with pytest.raises(RecursionError) as caught:
        down()
    record = ErrorRecord.of(caught.value)
    assert record.type == "RecursionError"
    assert len(record.traceback) < 20_000


def test_record_of_a_step_failure_from_elsewhere_keeps_its_cause() -> None:
    arrived = from_wire(to_wire(StepFailed("child", RECORD)))
    record = ErrorRecord.of(arrived)
    assert record.type == "noetic_ray.errors.StepFailed"
    assert record.cause == RECORD


def test_record_as_dict_and_back() -> None:
    assert ErrorRecord.from_dict(json.loads(json.dumps(RECORD.as_dict()))) == RECORD
    assert pickle.loads(pickle.dumps(RECORD)) == RECORD


class OddError(ChannelTimeout):
    """Breaks the constructor of its base and forgets to call it."""

    kind = "odd"

    def __init__(self, *, only: object) -> None:
        Exception.__init__(self, f"odd: {only}")
        self.only = only
        self.message = "its own"


def test_a_subclass_with_another_constructor_pickles() -> None:
    copy = pickle.loads(pickle.dumps(OddError(only=7)))
    assert type(copy) is OddError
    assert copy.only == 7
    assert copy == OddError(only=7)


def test_a_subclass_travels_as_its_nearest_known_base() -> None:
    copy = from_wire(to_wire(OddError(only=object)))
    assert type(copy) is ChannelTimeout
    assert copy.kind == "odd"
    assert str(copy) == f"odd: {object}"
    assert copy.channel_name == ""
    assert copy.timeout is None


def test_a_local_subclass_of_the_root_travels() -> None:
    class Mine(NoeticError):
        kind = "mine"

    copy = from_wire(to_wire(Mine("hello")))
    assert type(copy) is NoeticError
    assert copy.kind == "mine"
    assert pickle.loads(pickle.dumps(copy)).kind == "mine"


def test_unknown_names_on_the_wire_keep_kind_and_message() -> None:
    error = from_wire({"base": "FromTheFuture", "kind": "future", "message": "hi", "fields": {}})
    assert type(error) is NoeticError
    assert (error.kind, str(error)) == ("future", "hi")


@pytest.mark.parametrize(
    "garbage",
    [
        {},
        {"base": "StepFailed"},
        {"base": "StepFailed", "fields": {"cause": 3}},
        {"base": "ParallelFailed", "fields": {"failed": [1]}},
        {"base": "ConfigError", "fields": "no"},
        {"base": [], "kind": {}, "message": None, "notes": 3},
        None,
        "text",
    ],
)
def test_reading_garbage_gives_an_error_and_never_raises(garbage: Any) -> None:
    assert isinstance(from_wire(garbage), NoeticError)


def test_values_of_finished_paths_are_passed_through_as_they_are() -> None:
    value = lambda: None  # noqa: E731
    wire = to_wire(ParallelFailed([("a", value)], [("b", ValueError("x"))]))
    copy = from_wire(wire)
    assert isinstance(copy, ParallelFailed)
    assert copy.succeeded[0].value is value
    assert str(copy.failed[0].error) == "ValueError: x"


def test_a_failure_inside_itself_can_be_sent() -> None:
    error = ParallelFailed([], [])
    error.failed.append(errors.PathFailed("again", error))
    assert isinstance(from_wire(to_wire(error)), ParallelFailed)


def test_other_field_values_become_plain_data() -> None:
    wire = to_wire(ChannelSchemaError("c", [{"msg": object(), "loc": (1, {2})}]))
    json.dumps(wire)
    assert isinstance(from_wire(wire), ChannelSchemaError)


def test_defaults_are_not_shared_between_errors() -> None:
    one = from_wire({"base": "ChannelSchemaError"})
    other = from_wire({"base": "ChannelSchemaError"})
    assert isinstance(one, ChannelSchemaError)
    assert isinstance(other, ChannelSchemaError)
    one.errors.append({})
    assert other.errors == []

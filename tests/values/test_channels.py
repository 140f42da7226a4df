from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError
from typing import Annotated, Any

import pytest
from annotated_types import Gt
from pydantic import BaseModel, BeforeValidator
from ray import cloudpickle

from noetic_ray.channels import Channel, channel
from noetic_ray.errors import ChannelSchemaError, ConfigError


class Job(BaseModel):
    id: int
    note: str = ""


class Plain:
    pass


def test_defaults() -> None:
    made = channel("jobs", int)
    assert (made.name, made.schema, made.mode) == ("jobs", int, "value")
    assert (made.capacity, made.external) == (1000, False)


def test_channels_are_frozen_and_equal_by_their_settings() -> None:
    one, other = channel("a", int, "queue", 3), channel("a", int, "queue", 3)
    one.validate("7")
    assert one == other
    assert hash(one) == hash(other)
    assert one != channel("a", int, "queue", 4)
    with pytest.raises(FrozenInstanceError):
        one.name = "b"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"name": ""}, "EMPTY_CHANNEL_NAME"),
        ({"name": "  "}, "EMPTY_CHANNEL_NAME"),
        ({"name": 5}, "EMPTY_CHANNEL_NAME"),
        ({"mode": "stack"}, "UNKNOWN_CHANNEL_MODE"),
        ({"mode": None}, "UNKNOWN_CHANNEL_MODE"),
        ({"capacity": 0}, "INVALID_CAPACITY"),
        ({"capacity": -1, "mode": "queue"}, "INVALID_CAPACITY"),
        ({"capacity": 1.5}, "INVALID_CAPACITY"),
        ({"capacity": True}, "INVALID_CAPACITY"),
        ({"capacity": None}, "INVALID_CAPACITY"),
    ],
)
def test_wrong_settings_are_refused_at_once(arguments: dict[str, Any], code: str) -> None:
    with pytest.raises(ConfigError) as caught:
        channel(**{"name": "c", "schema": int, **arguments})
    assert caught.value.code == code
    assert caught.value.hint


@pytest.mark.parametrize("schema", [None, object, Any])
def test_anything_passes_without_a_schema(schema: Any) -> None:
    value = Plain()
    made = channel("c", schema)
    assert made.validate(value) is value
    assert made == channel("c")


@pytest.mark.parametrize(
    ("schema", "value", "result"),
    [
        (int, 5, 5),
        (int, "5", 5),
        (bool, True, True),
        (str, "x", "x"),
        (float, 1, 1.0),
        (list[int], ["1", 2], [1, 2]),
        (int | None, None, None),
        (Job, {"id": "3"}, Job(id=3)),
        (dict[str, Job], {"a": {"id": 1}}, {"a": Job(id=1)}),
        (Annotated[int, Gt(0)], 1, 1),
    ],
)
def test_the_value_is_returned_as_the_schema_makes_it(schema: Any, value: Any, result: Any) -> None:
    made: Channel[Any] = channel("c", schema)
    got = made.validate(value)
    assert got == result
    assert type(got) is type(result)


def test_a_model_instance_passes_as_it_is() -> None:
    job = Job(id=1)
    assert channel("c", Job).validate(job) is job


def test_a_value_that_does_not_fit_names_the_channel_and_the_place() -> None:
    with pytest.raises(ChannelSchemaError) as caught:
        channel("jobs", list[Job]).validate([{"id": 1}, {"id": "x"}])
    error = caught.value
    assert error.channel_name == "jobs"
    assert [each["loc"] for each in error.errors] == [[1, "id"]]
    assert set(error.errors[0]) == {"loc", "msg", "type"}
    assert "1.id" in str(error)
    assert pickle.loads(pickle.dumps(error)) == error


def test_the_list_of_errors_is_short() -> None:
    with pytest.raises(ChannelSchemaError) as caught:
        channel("c", list[int]).validate(["x"] * 1000)
    assert len(caught.value.errors) == 10


def test_exact_types_are_not_confused() -> None:
    with pytest.raises(ChannelSchemaError):
        channel("c", str).validate(5)
    assert channel("c", int).validate(True) == 1


def test_a_validator_that_breaks_is_a_schema_error() -> None:
    def broken(value: Any) -> Any:
        raise RuntimeError("validator broke")

    with pytest.raises(ChannelSchemaError, match="validator broke"):
        channel("c", Annotated[int, BeforeValidator(broken)]).validate(1)


def test_a_plain_class_checks_for_its_instances() -> None:
    made = channel("c", Plain)
    value = Plain()
    assert made.validate(value) is value
    with pytest.raises(ChannelSchemaError):
        made.validate(5)


def test_plain_classes_may_stand_inside_other_types() -> None:
    value = [Plain()]
    assert channel("c", list[Plain]).validate(value) == value
    with pytest.raises(ChannelSchemaError):
        channel("c", list[Plain]).validate([5])


def test_a_schema_that_is_no_type_is_a_config_error() -> None:
    with pytest.raises(ConfigError) as caught:
        channel("c", 5).validate(1)
    assert caught.value.code == "INVALID_CHANNEL_SCHEMA"


@pytest.mark.parametrize("pickler", [pickle, cloudpickle])
def test_channels_pickle_without_their_compiled_schema(pickler: Any) -> None:
    made = channel("c", list[Job], "queue", 5, external=True)
    made.validate([])
    copy = pickler.loads(pickler.dumps(made))
    assert copy == made
    assert copy.external is True
    assert copy._adapter is None
    assert copy.validate([{"id": 1}]) == [Job(id=1)]


def test_a_channel_of_a_local_class_travels_by_value() -> None:
    class Local(BaseModel):
        n: int

    copy = cloudpickle.loads(cloudpickle.dumps(channel("c", Local)))
    assert copy.validate({"n": 1}).n == 1

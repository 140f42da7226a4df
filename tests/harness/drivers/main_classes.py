"""A script whose classes live in `__main__`; prints what became of them, as JSON."""

from __future__ import annotations

import enum
import json
import sys
from dataclasses import dataclass, field
from typing import Any

import pydantic

import noetic_ray as nr


@dataclass
class Point:
    x: int
    tags: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Fixed:
    name: str


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntFlag):
    LOW = 1
    HIGH = 2


class Oops(Exception):
    def __init__(self, *, code: int) -> None:
        super().__init__(f"code {code}")
        self.code = code

    def __reduce__(self) -> Any:
        return _oops, (self.code,)


def _oops(code: int) -> Oops:
    return Oops(code=code)


class Town(pydantic.BaseModel):
    """Where people live."""

    model_config = pydantic.ConfigDict(frozen=True)
    name: str
    color: Color = Color.RED


class Trip(pydantic.BaseModel):
    towns: list[Town] = pydantic.Field(default_factory=list)
    days: int = pydantic.Field(default=1, ge=1)
    note: str = ""

    @pydantic.field_validator("note")
    @classmethod
    def _shout(cls, note: str) -> str:
        if note == "forbidden":
            raise ValueError("this note is forbidden")
        return note.upper()


def _all() -> list[Any]:
    return [
        Point(1, ["a"]),
        Fixed("f"),
        Color.BLUE,
        Level.LOW | Level.HIGH,
        Town(name="Bonn", color=Color.BLUE),
        Trip(towns=[Town(name="Rome")], note="hey"),
    ]


@nr.step
async def makes(_: Any, ctx: nr.Context) -> list[Any]:
    return _all()


@nr.step
async def makes_below(_: Any, ctx: nr.Context) -> list[Any]:
    return await ctx.spawn(makes)


@nr.step
async def makes_an_error(_: Any, ctx: nr.Context) -> Any:
    return Oops(code=4)


@nr.step
async def knows(given: list[Any], ctx: nr.Context) -> list[bool]:
    """Whether what came in is of the classes this function knows."""
    ctx.state["kept"] = given
    return [type(each) is type(mine) for each, mine in zip(given, _all(), strict=True)]


@nr.step
async def knows_state(_: Any, ctx: nr.Context) -> list[bool]:
    kept = ctx.state["kept"]
    return [type(each) is type(mine) for each, mine in zip(kept, _all(), strict=True)]


@nr.step
async def raises(_: Any, ctx: nr.Context) -> None:
    raise Oops(code=4)


@nr.tool
async def plan(trip: Trip, color: Color, home: Town) -> str:
    """Plan a trip."""
    kinds = (type(trip) is Trip, type(color) is Color, type(home) is Town)
    return f"{kinds} {trip.note} {trip.days} {len(trip.towns)} {color.name} {home.name}"


def answer(request: Any) -> Any:
    """Call `plan` with good and bad arguments, then give the results as a Trip's note."""
    done = [item for item in request.items if item.type == "function_call_output"]
    if request.model == "schema":
        return json.dumps({"note": json.dumps(request.output.schema, sort_keys=True)})
    if request.model == "bad":
        return json.dumps({"note": "forbidden"})
    if not done:
        home = {"name": "Bonn"}
        good = nr.testing.call("plan", trip={"note": "sea"}, color="blue", home=home)
        bad = nr.testing.call("plan", trip={"days": 0, "note": "forbidden"}, color="x", home={})
        return [good, bad]
    return json.dumps({"note": " | ".join(each.output for each in done), "days": 3})


@nr.step
async def schemas(_: Any, ctx: nr.Context) -> list[Any]:
    """The schemas as this process makes them."""
    return [plan.parameters, Trip.model_json_schema(), Town.model_json_schema()]


@nr.step
async def rules(_: Any, ctx: nr.Context) -> list[str]:
    """What the models refuse here."""
    said = []
    for build in (lambda: Trip(days=0), lambda: Trip(note="forbidden"), lambda: Town(name=5)):  # type: ignore[arg-type]
        try:
            build()
        except pydantic.ValidationError as error:
            said.append(str(error))
    try:
        Town(name="a").name = "b"  # type: ignore[misc]
    except pydantic.ValidationError as error:
        said.append(str(error))
    one, two = Trip(), Trip()
    said.append(str(one.towns is two.towns))
    return said


def main(placement: str) -> None:
    """Run everything once, and the first part again with the classes known everywhere."""
    found: dict[str, Any] = {}
    model = nr.testing.ScriptedModel(answer)
    with nr.Harness("main-classes", model, tools=[plan], placement=placement) as harness:
        for name, step in (("child", nr.spawn("s", makes)), ("below", makes_below)):
            made = harness.run(step)
            found[name] = [
                type(each) is type(mine) and isinstance(each, type(mine)) and each == mine
                for each, mine in zip(made, _all(), strict=True)
            ]
            found[f"{name} is"] = [made[2] is Color.BLUE, made[4].color is Color.BLUE]
        found["knows"] = harness.run(nr.spawn("s", knows), _all())
        found["state"] = harness.run(nr.sequence("q", [knows, nr.spawn("s", knows_state)]), _all())
        oops = harness.run(nr.spawn("s", makes_an_error))
        found["error"] = [type(oops) is Oops, oops.code]
        try:
            harness.run(nr.spawn("s", raises))
        except nr.StepFailed as error:
            found["raised"] = [error.cause.type, error.cause.message]
        there = harness.run(nr.spawn("s", schemas))
        found["schemas"] = there == [
            plan.parameters, Trip.model_json_schema(), Town.model_json_schema()
        ]  # fmt: skip
        found["rules"] = harness.run(nr.spawn("s", rules))
        found["rules here"] = harness.run(nr.spawn("s", rules, placement="inline"))
        trip = harness.run(nr.spawn("s", nr.call_model("m", "talk", output=Trip)), "go")
        found["output"] = [type(trip) is Trip, trip.days, trip.note]
        told = harness.run(nr.spawn("s", nr.call_model("m", "schema", output=Trip)), "go")
        found["output schema"] = json.loads(told.note.lower()) == json.loads(
            json.dumps(Trip.model_json_schema()).lower()
        )
        try:
            harness.run(nr.spawn("s", nr.call_model("m", "bad", output=Trip)), "go")
        except nr.ModelParseError as error:
            found["refused"] = "forbidden" in error.detail
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])

from __future__ import annotations

import dataclasses
import datetime
import enum
import json
import os
import pickle
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, field_validator

from noetic_ray import steps
from noetic_ray.context import Context as RealContext
from noetic_ray.errors import ConfigError
from noetic_ray.tools import (
    FunctionTool,
    Tool,
    ToolArgumentsError,
    as_tool,
    tool,
    tool_output,
    wire_names,
)
from tests.support.ids import plain_id

if TYPE_CHECKING:
    from noetic_ray.context import Context

ROOT = Path(__file__).resolve().parent.parent


class Unit(enum.Enum):
    C = "celsius"
    F = "fahrenheit"


class Place(BaseModel):
    model_config = ConfigDict(frozen=True)
    city: str
    tags: list[str] = Field(default_factory=list)

    @field_validator("city")
    @classmethod
    def _named(cls, value: str) -> str:
        if not value:
            raise ValueError("a city has a name")
        return value.title()


@tool
def weather(
    place: Place,
    days: Annotated[int, Field(description="how many days", ge=1, le=14)] = 3,
    unit: Unit = Unit.C,
) -> str:
    """Tell the weather.

    Only for cities.
    """
    return f"{place.city} {days} {unit.name}"


@tool
def now() -> str:
    return "noon"


@tool(name="book_room", description="Book.", needs_approval=True)
async def book(ctx: Context, nights: int) -> tuple[Any, int]:
    """Not this text."""
    return ctx, nights


def code_of(make: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        make()
    return caught.value.code


def refused(any_tool: Tool, text: str) -> str:
    with pytest.raises(ToolArgumentsError) as caught:
        any_tool.validate(any_tool.parse(text))
    return str(caught.value)


class TestDefinition:
    def test_name_and_description_come_from_the_function(self) -> None:
        assert weather.name == "weather"
        assert weather.description == "Tell the weather.\n\nOnly for cities."
        assert (weather.is_async, weather.takes_context, weather.needs_approval) == (
            False,
            False,
            False,
        )

    def test_options_replace_them(self) -> None:
        assert (book.name, book.description) == ("book_room", "Book.")
        assert (book.is_async, book.takes_context, book.needs_approval) == (True, True, True)

    def test_a_function_without_docstring_has_an_empty_description(self) -> None:
        assert now.description == ""
        assert tool(Later).description == ""

    def test_the_schema_is_an_object_made_from_the_hints(self) -> None:
        schema = weather.parameters
        assert schema["type"] == "object"
        assert schema["required"] == ["place"]
        assert schema["additionalProperties"] is False
        assert list(schema["properties"]) == ["place", "days", "unit"]
        assert schema["properties"]["days"] == {
            "type": "integer",
            "description": "how many days",
            "minimum": 1,
            "maximum": 14,
            "default": 3,
        }
        assert "title" not in schema
        json.dumps(schema)

    def test_a_tool_without_parameters_has_an_empty_object(self) -> None:
        assert now.parameters == {"type": "object", "properties": {}, "additionalProperties": False}

    def test_the_context_is_not_in_the_schema(self) -> None:
        assert list(book.parameters["properties"]) == ["nights"]

    def test_calling_the_tool_calls_the_function(self) -> None:
        assert weather(Place(city="rome")) == "Rome 3 C"
        assert now() == "noon"

    async def test_an_async_tool_gives_an_awaitable(self) -> None:
        ctx: Any = object()
        assert await book(ctx, 2) == (ctx, 2)
        assert await book.invoke(book.validate({"nights": "2"}), ctx) == (ctx, 2)

    def test_tools_are_immutable_and_compare_by_identity(self) -> None:
        with pytest.raises(AttributeError):
            now.name = "later"
        assert tool(now.fn) != tool(now.fn)
        assert repr(now) == "FunctionTool('now')"

    @pytest.mark.parametrize(
        "annotation",
        [
            RealContext,
            RealContext | None,
            Annotated[RealContext, "here"],
            "Context",
            "nr.Context",
            "Context | None",
            "Optional[Context]",
            "typing.Optional[nr.Context]",
        ],
        ids=plain_id,
    )
    def test_a_context_is_known_by_its_annotation(self, annotation: Any) -> None:
        def fn(x: int, where: Any = None) -> Any:
            return x, where

        fn.__annotations__["where"] = annotation
        made = tool(fn)
        assert list(made.parameters["properties"]) == ["x"]
        assert made.invoke({"x": 1}, "here") == (1, "here")

    def test_a_type_of_the_users_that_is_called_context_is_an_argument(self) -> None:
        class Context(BaseModel):
            text: str

        @tool
        def fn(where: Context) -> str:
            return where.text

        assert list(fn.parameters["properties"]) == ["where"]
        assert fn.invoke(fn.validate({"where": {"text": "a"}}), None) == "a"

    def test_types_defined_next_to_the_tool_are_found(self) -> None:
        class Local(BaseModel):
            n: int

        @tool
        def plain(value: Local, more: list[Local]) -> int:
            return value.n

        @tool(name="other")
        def with_options(value: dict[str, Local]) -> int:
            return len(value)

        assert plain.validate({"value": {"n": 1}, "more": [{"n": 2}]})["more"] == [Local(n=2)]
        assert with_options.validate({"value": {"a": {"n": 1}}}) == {"value": {"a": Local(n=1)}}

    def test_types_defined_later_in_the_module_are_found(self) -> None:
        assert later.validate({"value": {"n": 1}}) == {"value": Later(n=1)}

    def test_a_parameter_without_a_hint_may_be_anything(self) -> None:
        made = tool(lambda value: value)
        assert made.parameters["properties"] == {"value": {}}
        assert made.validate({"value": [1, "a"]}) == {"value": [1, "a"]}

    def test_parameters_may_be_named_like_anything(self) -> None:
        def fn(json: int, schema: str, model_config: int = 1, _hidden: int = 2) -> int:
            return json

        assert tool(fn).validate({"json": 1, "schema": "a"}) == {"json": 1, "schema": "a"}
        assert "_hidden" in tool(fn).parameters["properties"]

    def test_a_property_named_title_stays(self) -> None:
        def fn(title: str) -> str:
            return title

        assert tool(fn).parameters["properties"] == {"title": {"type": "string"}}

    def test_only_json_defaults_are_shown(self) -> None:
        marker = object()

        def fn(a: Any = marker, b: list[int] = [1], c: str | None = None) -> Any:  # noqa: B006
            return a

        properties = tool(fn).parameters["properties"]
        assert "default" not in properties["a"]
        assert properties["b"]["default"] == [1]
        assert properties["c"]["default"] is None
        assert tool(fn).invoke(tool(fn).validate({}), None) is marker

    def test_methods_are_tools_without_their_self(self) -> None:
        class Box:
            def put(self, n: int) -> int:
                return n + 1

        made = tool(Box().put)
        assert (made.name, made.invoke(made.validate({"n": 1}), None)) == ("put", 2)

    def test_signatures_a_model_cannot_fill_are_refused_where_they_are_written(self) -> None:
        def field_default(x: int = Field(3)) -> int:
            return x

        for fn in (
            lambda *args: args,
            lambda **kwargs: kwargs,
            lambda a, /: a,
            lambda a, ctx: a,
            field_default,
        ):
            assert code_of(lambda fn=fn: tool(fn)) == "INVALID_TOOL_SIGNATURE"

    def test_what_is_no_function_is_refused(self) -> None:
        anything: Any = tool
        code = steps.run_code("a", len)
        for wrong in (3, weather, code, lambda: (yield 1)):
            assert code_of(lambda wrong=wrong: anything(wrong)) == "INVALID_TOOL"
        assert code_of(lambda: anything(needs_approval="yes")(_plain)) == "INVALID_TOOL"

    @pytest.mark.parametrize("name", ["", "two words", "a/b", "ü", "x" * 65, 7])
    def test_a_given_name_must_be_one_providers_accept(self, name: Any) -> None:
        assert code_of(lambda: tool(name=name)(now.fn)) == "INVALID_TOOL_NAME"

    def test_an_unknown_type_is_named_when_the_schema_is_needed(self) -> None:
        def fn(value: Missing) -> int:  # type: ignore[name-defined]  # noqa: F821
            return 1

        made = tool(fn)
        with pytest.raises(ConfigError, match="Missing") as caught:
            _ = made.parameters
        assert caught.value.code == "INVALID_TOOL_SIGNATURE"

    def test_a_type_without_a_schema_is_named(self) -> None:
        class Opaque:
            pass

        @tool
        def fn(value: Opaque) -> int:
            return 1

        with pytest.raises(ConfigError, match="'fn'") as caught:
            _ = fn.parameters
        assert caught.value.code == "INVALID_TOOL_TYPE"


@tool
def later(value: Later) -> int:
    return value.n


class Later(BaseModel):
    n: int


class TestArguments:
    def test_arguments_are_parsed_and_validated(self) -> None:
        given = weather.parse('{"place": {"city": "rome"}, "unit": "fahrenheit"}')
        kwargs = weather.validate(given)
        assert kwargs == {"place": Place(city="Rome"), "unit": Unit.F}
        assert weather.invoke(kwargs, None) == "Rome 3 F"

    def test_python_values_are_fine_too(self) -> None:
        place = Place(city="oslo")
        assert weather.validate({"place": place, "days": 2})["place"] == place

    @pytest.mark.parametrize("text", ["", "  ", "\n", "{}"])
    def test_nothing_is_enough_for_a_tool_without_parameters(self, text: str) -> None:
        assert now.validate(now.parse(text)) == {}

    @pytest.mark.parametrize(
        ("text", "why"),
        [
            ("", "empty"),
            ("{", "not valid JSON"),
            ("null", "null"),
            ("[]", "an array"),
            ('"x"', "a text"),
            ("3", "a number"),
            ("true", "a boolean"),
            ('{"a":1}{"b":2}', "Extra data"),
            ('{"days": 1, "days": 2}', "'days' is given twice"),
            ('{"days": NaN}', "NaN"),
            ('{"days": -Infinity}', "-Infinity"),
            ('{"place": {"city": "\\ud800"}}', "surrogates"),
            ("[" * 100_000, "nested too deep"),
            ('{"days": ' + "9" * 5000 + "}", "not valid JSON"),
            ("{}", "place"),
            ('{"place": {"city": ""}}', "a city has a name"),
            ('{"place": {"city": "a"}, "days": 99}', "days"),
            ('{"place": {"city": "a"}, "dayz": 1}', "dayz"),
        ],
        ids=lambda value: value[:20],
    )
    def test_bad_arguments_are_explained_to_the_model(self, text: str, why: str) -> None:
        said = refused(weather, text)
        assert why in said
        assert "weather was not called" in said
        assert '"properties":{"place"' in said

    @pytest.mark.parametrize("text", ["null", "[]", "{", '"x"', '{"a": 1}'])
    def test_a_tool_without_parameters_refuses_the_same(self, text: str) -> None:
        assert "now was not called" in refused(now, text)

    def test_optional_parameters_are_no_reason_to_accept_nothing(self) -> None:
        def fn(a: int = 1) -> int:
            return a

        assert "empty" in refused(tool(fn), "")

    def test_a_megabyte_of_garbage_gives_a_short_text(self) -> None:
        said = refused(weather, "x" * 1_000_000)
        assert len(said) < 6_000
        assert "999,700 characters more" in said
        assert len(refused(weather, json.dumps({"place": {"city": "a"}, "q": "y" * 10**6}))) < 6_000

    def test_many_problems_are_counted(self) -> None:
        said = refused(weather, json.dumps({f"k{i}": i for i in range(30)}))
        assert "and 26 more" in said

    def test_what_is_no_mapping_is_refused(self) -> None:
        wrong: Any = ["a"]
        with pytest.raises(ToolArgumentsError, match="a list, not an object"):
            weather.validate(wrong)

    def test_strict_models_accept_the_json_form(self) -> None:
        class Visit(BaseModel):
            model_config = ConfigDict(strict=True)
            day: datetime.date

        @tool
        def visit(v: Visit) -> str:
            return v.day.isoformat()

        kwargs = visit.validate(visit.parse('{"v": {"day": "2030-01-02"}}'))
        assert visit.invoke(kwargs, None) == "2030-01-02"
        assert "day" in refused(visit, '{"v": {"day": 3}}')

    def test_the_error_survives_pickling(self) -> None:
        error = ToolArgumentsError("no")
        assert str(pickle.loads(pickle.dumps(error))) == "no"


class TestTravel:
    def test_a_tool_of_a_module_travels_by_name(self) -> None:
        assert pickle.loads(pickle.dumps(weather)) is weather

    def test_another_tool_keeps_its_schema_and_types(self) -> None:
        renamed = tool(name="renamed")(_plain)
        back = pickle.loads(pickle.dumps(renamed))
        assert back is not renamed
        assert back.parameters == renamed.parameters
        assert (back.name, back.takes_context) == ("renamed", True)
        assert back.invoke({"place": 1}, "here") == (1, "here")

    def test_types_of_a_script_work_on_the_other_side(self, tmp_path: Path) -> None:
        script = tmp_path / "script.py"
        script.write_text(textwrap.dedent(_SCRIPT))
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        sent = tmp_path / "tool.bin"
        for role in ("driver", "worker"):
            command = [sys.executable, str(script), str(sent)]
            if role == "worker":
                command = [sys.executable, "-c", _WORKER, str(sent)]
            done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=100)
            assert done.returncode == 0, done.stderr
            if role == "driver":
                expected = done.stdout
        assert json.loads(done.stdout) == json.loads(expected)


def _plain(place: Place | int, ctx: Context) -> Any:
    return place, ctx


_SCRIPT = """
    from __future__ import annotations
    import json, sys
    from typing import Annotated, Literal
    from pydantic import BaseModel, ConfigDict, Field, field_validator
    import ray.cloudpickle
    from noetic_ray.tools import tool

    class Query(BaseModel):
        model_config = ConfigDict(frozen=True)
        words: list[str] = Field(default_factory=list)
        mode: Literal["any", "all"] = "any"

        @field_validator("words")
        @classmethod
        def lower(cls, value):
            return [each.lower() for each in value]

    @tool
    def search(query: Query, limit: Annotated[int, Field(description="most")] = 3) -> list[str]:
        "Search."
        return query.words[:limit]

    def ran(made):
        kwargs = made.validate(made.parse('{"query": {"words": ["A", "B"]}, "limit": 1}'))
        return json.dumps([made.name, made.description, made.parameters, made.invoke(kwargs, None)])

    print(ran(search))
    with open(sys.argv[1], "wb") as file:
        file.write(ray.cloudpickle.dumps((search, ran)))
"""
_WORKER = """
import pickle, sys
made, ran = pickle.load(open(sys.argv[1], "rb"))
print(ran(made))
"""


class TestStepsAsTools:
    def test_a_step_is_a_tool_with_one_text(self) -> None:
        agent = steps.call_model("writer", "gpt")
        made = as_tool(agent)
        assert (made.name, made.step) == ("writer", agent)
        assert "writer" in made.description
        assert made.parameters["required"] == ["input"]
        assert made.parameters["properties"] == {"input": {"type": "string"}}
        assert (made.is_async, made.takes_context) == (True, True)

    def test_a_functions_docstring_describes_it(self) -> None:
        @steps.step
        def helper(text: str) -> str:
            """Help."""
            return text

        assert as_tool(helper).description == "Help."
        assert as_tool(helper, "aid", "Aid.").name == "aid"
        assert as_tool(helper, "aid", "Aid.").description == "Aid."

    def test_each_call_is_a_child_context(self) -> None:
        class Here:
            def spawn(self, step: Any, input: Any) -> Any:
                return ("child", step, input)

        agent = steps.call_model("writer", "gpt")
        made = as_tool(agent)
        kwargs = made.validate(made.parse('{"input": "go"}'))
        assert made.invoke(kwargs, Here()) == ("child", agent, "go")
        assert "input" in refused(made, "{}")

    def test_it_survives_pickling(self) -> None:
        back = pickle.loads(pickle.dumps(as_tool(steps.call_model("writer", "gpt"), "w")))
        assert (back.name, back.step.id) == ("w", "writer")

    def test_only_steps_and_legal_names(self) -> None:
        wrong: Any = len
        agent = steps.call_model("writer", "gpt")
        assert code_of(lambda: as_tool(wrong)) == "INVALID_STEP"
        assert code_of(lambda: as_tool(agent, "a b")) == "INVALID_TOOL_NAME"


def named(name: str) -> Tool:
    return FunctionTool(name, "", False, now.fn, {})


class TestWireNames:
    def test_legal_names_are_kept_in_order(self) -> None:
        assert wire_names([weather, now]) == {"weather": weather, "now": now}

    def test_illegal_characters_are_replaced(self) -> None:
        pad = named("pad/add item")
        assert wire_names([pad]) == {"pad_add_item": pad}

    def test_clashes_are_told_apart_whatever_the_order(self) -> None:
        clashing = [named("a/b"), named("a.b"), named("a_b"), named("c/d")]
        names = {each.name: wire for wire, each in wire_names(clashing).items()}
        back = {each.name: wire for wire, each in wire_names(clashing[::-1]).items()}
        assert names == back
        assert names["a_b"] == "a_b"
        assert names["c/d"] == "c_d"
        assert len(set(names.values())) == 4

    def test_every_name_fits_the_pattern(self) -> None:
        odd = [
            named(each) for each in ("ü", "日本", "日光", "x" * 200, "x" * 201, "<lambda>", " a ")
        ]
        names = wire_names(odd)
        assert len(names) == len(odd)
        for wire in names:
            assert 1 <= len(wire) <= 64
            assert all(ch.isascii() and (ch.isalnum() or ch in "_-") for ch in wire)

    def test_two_tools_of_one_name_are_refused_and_one_twice_is_not(self) -> None:
        assert code_of(lambda: wire_names([named("a"), named("a")])) == "DUPLICATE_TOOL"
        assert list(wire_names([now, now])) == ["now"]


@dataclasses.dataclass
class Point:
    x: int


class Odd:
    def __repr__(self) -> str:
        return "<odd>"


class Mood(str, enum.Enum):  # noqa: UP042
    GOOD = "good"


class TestOutput:
    @pytest.mark.parametrize(
        ("value", "text"),
        [
            ("as it is", "as it is"),
            ('"quoted"', '"quoted"'),
            ("", ""),
            (None, "null"),
            (3, "3"),
            (True, "true"),
            ([1, "ü"], '[1,"ü"]'),
            ({"a": None}, '{"a":null}'),
            (Place(city="rome"), '{"city":"Rome","tags":[]}'),
            (Point(1), '{"x":1}'),
            (datetime.date(2030, 1, 2), "2030-01-02"),
            (float("nan"), "NaN"),
            (Mood.GOOD, "good"),
            (Odd(), "<odd>"),
            ([Odd()], '["<odd>"]'),
            ("bad \ud800", "bad \ufffd"),
        ],
        ids=plain_id,
    )
    def test_results_become_text(self, value: Any, text: str) -> None:
        assert tool_output(value) == text


def test_literals_and_unions_are_described() -> None:
    def fn(mode: Literal["a", "b"], size: int | None = None) -> str:
        return mode

    made = tool(fn)
    assert made.parameters["properties"]["mode"]["enum"] == ["a", "b"]
    assert made.validate({"mode": "a", "size": None}) == {"mode": "a", "size": None}

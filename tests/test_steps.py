from __future__ import annotations

import copy
import functools
import gc
import pickle
import weakref
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel

from noetic_ray import steps, until
from noetic_ray.channels import channel
from noetic_ray.errors import ConfigError
from noetic_ray.placement import Placement
from noetic_ray.steps import Retry, step
from noetic_ray.tools import as_tool, tool
from tests.support.ids import plain_id

if TYPE_CHECKING:
    from noetic_ray.context import Context
    from noetic_ray.context import Context as Ctx

mail = channel("mail", str, mode="queue")


@step
def double(value: int) -> int:
    return value * 2


@step(id="shouter", retry=Retry(attempts=2))
async def shout(text: str, ctx: Context) -> str:
    return text.upper()


@tool
def lookup(city: str) -> str:
    return city


def code_of(make: Callable[[], Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        make()
    assert caught.value.hint, "an error about configuration says what to do"
    return caught.value.code


class TestFunctionsAsSteps:
    def test_the_bare_decorator_takes_the_functions_name(self) -> None:
        assert (double.id, double.kind, double.retry) == ("double", "run_code", None)
        assert not double.takes_context
        assert not double.is_async

    def test_the_decorator_takes_an_id_and_a_retry(self) -> None:
        assert (shout.id, shout.retry) == ("shouter", Retry(attempts=2))
        assert shout.takes_context
        assert shout.is_async

    async def test_calling_the_step_calls_the_function(self) -> None:
        assert double(4) == 8
        assert double(value=4) == 8  # type: ignore[call-arg]
        context: Any = object()
        assert await shout("a", context) == "A"

    def test_run_code_is_the_same_without_a_decorator(self) -> None:
        made = steps.run_code("plus", lambda value, ctx: value + ctx, Retry(attempts=4))
        assert made.kind == "run_code"
        assert made.takes_context
        assert made.invoke(1, 2) == 3
        assert made.retry == Retry(attempts=4)

    def test_run_code_on_a_step_uses_its_function(self) -> None:
        assert steps.run_code("again", double).execute is double.execute

    def test_a_loop_variable_kept_in_a_default_is_no_context(self) -> None:
        made = [steps.run_code(f"p{i}", lambda value, i=i: i) for i in range(3)]
        assert [each.invoke("in", "ctx") for each in made] == [0, 1, 2]

    def test_an_optional_context_is_found_by_name_or_annotation(self) -> None:
        def by_name(value: int, ctx: Any = None) -> Any:
            return ctx

        def by_annotation(value: int, where: Context | None = None) -> Any:
            return where

        assert steps.run_code("a", by_name).invoke(1, "ctx") == "ctx"
        assert steps.run_code("b", by_annotation).invoke(1, "ctx") == "ctx"

    def test_a_context_may_be_keyword_only(self) -> None:
        def body(value: int, *, where: Context, scale: int = 2) -> Any:
            return (value * scale, where)

        made = steps.run_code("a", body)
        assert made.takes_context
        assert made.invoke(2, "ctx") == (4, "ctx")

    def test_partials_methods_and_builtins_are_functions_too(self) -> None:
        class Greeter:
            def greet(self, name: str, ctx: Any) -> str:
                return f"hi {name}"

            async def __call__(self, name: str) -> str:
                return name

        def scaled(factor: int, value: int) -> int:
            return factor * value

        assert steps.run_code("a", Greeter().greet).invoke("Bo", None) == "hi Bo"
        assert steps.run_code("b", functools.partial(scaled, 3)).invoke(2, None) == 6
        assert steps.run_code("c", len).invoke("abc", None) == 3
        assert steps.run_code("d", int).invoke("7", None) == 7
        assert steps.run_code("e", Greeter()).is_async
        assert step(functools.partial(scaled, 3)).id == "scaled"

    def test_a_decorator_that_wraps_is_seen_through(self) -> None:
        def logged(fn: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(fn)
            def wrapper(*args: Any) -> Any:
                return fn(*args)

            return wrapper

        @step
        @logged
        def body(value: int, ctx: Context) -> Any:
            return (value, ctx)

        assert body.id == "body"
        assert body.invoke(1, "ctx") == (1, "ctx")

    @pytest.mark.parametrize(
        "fn",
        [
            lambda: 1,
            lambda ctx: 1,
            lambda a, b, c: 1,
            lambda a, *, needed: 1,
            lambda a: (yield a),
        ],
        ids=["no input", "context first", "three", "keyword left open", "generator"],
    )
    def test_a_body_that_cannot_be_called_is_refused_where_it_is_written(
        self, fn: Callable[..., Any]
    ) -> None:
        assert code_of(lambda: steps.run_code("a", fn)) == "INVALID_STEP_FUNCTION"

    def test_a_lone_context_parameter_is_refused(self) -> None:
        def body(where: Context) -> None: ...

        assert code_of(lambda: step(body)) == "INVALID_STEP_FUNCTION"

    def test_something_not_callable_is_refused(self) -> None:
        nothing: Any = 3
        assert code_of(lambda: steps.run_code("a", nothing)) == "INVALID_STEP_FUNCTION"

    def test_an_own_class_named_context_is_not_mistaken_for_ours(self) -> None:
        class Context(BaseModel):
            text: str

        def body(value: int, where: Context = Context(text="mine")) -> Any:  # noqa: B008
            return where

        body.__annotations__["where"] = Context
        assert not steps.run_code("a", body).takes_context

    def test_an_alias_for_type_checkers_only_counts_when_it_must_be_given(self) -> None:
        def body(value: int, where: Ctx) -> Any:
            return where

        assert steps.run_code("a", body).takes_context


class TestSteps:
    def test_all_kinds_have_an_id_a_kind_and_cannot_be_changed(self) -> None:
        made = [
            double,
            steps.call_model("m", "gpt"),
            steps.invoke_tool("t", lookup),
            steps.conditional("c", lambda value, ctx: double),
            steps.in_parallel("p", [double]),
            steps.spawn("s", double),
            steps.loop("l", double, until.never()),
            steps.sequence("q", [double, double]),
            steps.every("e", double, 1.0),
        ]
        assert [each.kind for each in made] == [
            "run_code",
            "call_model",
            "invoke_tool",
            "conditional",
            "in_parallel",
            "spawn",
            "loop",
            "sequence",
            "every",
        ]
        for each in made:
            assert isinstance(each, steps.Step)
            with pytest.raises(FrozenInstanceError):
                each.id = "other"  # type: ignore[misc]
            with pytest.raises((AttributeError, TypeError)):
                each.extra = 1  # type: ignore[attr-defined]
            assert repr(each).endswith(f"({each.id!r})")

    def test_steps_compare_by_identity_and_take_weak_references(self) -> None:
        one, other = steps.sequence("q", [double]), steps.sequence("q", [double])
        assert one != other
        assert len({one, other, one}) == 2
        watcher = weakref.ref(one)
        del one
        gc.collect()
        assert watcher() is None

    @pytest.mark.parametrize("id", ["", "  ", None])
    def test_an_empty_id_is_refused_by_every_builder(self, id: Any) -> None:
        builders: list[Callable[[], Any]] = [
            lambda: step(id="")(lambda value: value),
            lambda: steps.run_code(id, len),
            lambda: steps.call_model(id, "gpt"),
            lambda: steps.invoke_tool(id, lookup),
            lambda: steps.conditional(id, lambda value, ctx: None),
            lambda: steps.in_parallel(id, []),
            lambda: steps.spawn(id, double),
            lambda: steps.loop(id, double, until.never()),
            lambda: steps.sequence(id, []),
            lambda: steps.every(id, double, 1.0),
        ]
        assert {code_of(make) for make in builders} == {"EMPTY_STEP_ID"}

    def test_an_id_that_is_no_text_is_refused(self) -> None:
        number: Any = 7
        assert code_of(lambda: steps.run_code(number, len)) == "INVALID_STEP_ID"

    def test_a_wrong_python_call_stays_a_type_error(self) -> None:
        anything: Any = steps
        wrongs: list[Callable[[], Any]] = [
            lambda: anything.run_code("a"),
            lambda: anything.spawn("a", double, limit=1),
            lambda: anything.call_model("a", "m", windows=None),
            lambda: anything.every("a", double),
        ]
        for wrong in wrongs:
            with pytest.raises(TypeError):
                wrong()

    def test_a_kind_without_a_function_is_not_callable(self) -> None:
        spawned: Any = steps.spawn("s", double)
        assert not callable(spawned)
        with pytest.raises(TypeError):
            spawned(1)

    def test_a_decorated_function_of_a_module_travels_by_name(self) -> None:
        assert pickle.loads(pickle.dumps(double)) is double
        assert len(pickle.dumps(double)) < 200

    def test_a_step_that_is_not_what_its_name_means_travels_by_value(self) -> None:
        renamed: Any = steps.run_code("renamed", _plain_body)
        back = pickle.loads(pickle.dumps(renamed))
        assert back is not renamed
        assert (back.id, back.execute, back.retry) == ("renamed", _plain_body, None)
        assert copy.copy(renamed).execute is _plain_body

    def test_composed_steps_survive_pickling(self) -> None:
        tree = steps.loop(
            "l",
            [steps.in_parallel("p", [double, double], placement="inline"), double],
            until.max_steps(2) | until.converged(0.5),
            inbox=mail,
        )
        back = pickle.loads(pickle.dumps(tree))
        assert (back.kind, back.id, back.steps[1]) == ("loop", "l", double)
        assert back.inbox == mail
        assert back.steps[0].paths == (double, double)

    def test_a_name_that_means_something_else_over_there_is_an_error(self) -> None:
        with pytest.raises(ConfigError, match="not a RunCode") as caught:
            steps.references.load(__name__, "_plain_body", steps.RunCode)
        assert caught.value.code == "UNKNOWN_REFERENCE"


def _plain_body(value: int) -> int:
    return value


class TestRetry:
    @pytest.mark.parametrize(
        ("backoff", "delays"),
        [
            ("fixed", [1, 1, 1, 1]),
            ("linear", [1, 2, 3, 4]),
            ("exponential", [1, 2, 4, 5]),
        ],
    )
    def test_delays_grow_as_asked_up_to_the_cap(self, backoff: Any, delays: list[float]) -> None:
        retry = Retry(attempts=5, delay=1.0, backoff=backoff, max_delay=5.0)
        assert [retry.delay_for(attempt) for attempt in (1, 2, 3, 4)] == delays

    def test_a_very_late_attempt_waits_the_cap(self) -> None:
        assert Retry(delay=0.1).delay_for(10**6) == 30.0
        assert Retry(delay=0.0).delay_for(10**6) == 0.0

    @pytest.mark.parametrize(
        "options",
        [
            {"attempts": 0},
            {"attempts": -1},
            {"attempts": 1.5},
            {"attempts": True},
            {"delay": -0.1},
            {"delay": float("nan")},
            {"max_delay": float("inf")},
            {"backoff": "cubic"},
        ],
        ids=plain_id,
    )
    def test_wrong_options_are_refused(self, options: dict[str, Any]) -> None:
        assert code_of(lambda: Retry(**options)) == "INVALID_RETRY"

    def test_a_number_is_no_retry(self) -> None:
        three: Any = 3
        assert code_of(lambda: steps.run_code("a", len, three)) == "INVALID_RETRY"


class Answer(BaseModel):
    text: str


class TestCallModel:
    def test_defaults(self) -> None:
        made = steps.call_model("m", "gpt")
        assert (made.model, made.instructions, made.tools, made.output) == ("gpt", None, None, None)
        assert (made.settings, made.emit, made.max_rounds) == ({}, True, 32)
        assert (made.output_retries, made.on_refusal) == (0, "raise")

    def test_options_are_kept(self) -> None:
        sub = as_tool(double)
        made = steps.call_model(
            "m", "gpt", lambda ctx: "be brief", [lookup, sub], Answer, {"temperature": 0}
        )
        assert made.tools == (lookup, sub)
        assert made.output is Answer
        assert made.settings == {"temperature": 0}
        assert callable(made.instructions)

    def test_settings_are_copied(self) -> None:
        settings = {"temperature": 0}
        made = steps.call_model("m", "gpt", settings=settings)
        settings["temperature"] = 1
        assert made.settings == {"temperature": 0}

    def test_no_tools_at_all_differs_from_all_tools(self) -> None:
        assert steps.call_model("m", "gpt", tools=[]).tools == ()
        assert steps.call_model("m", "gpt", tools=None).tools is None

    @pytest.mark.parametrize("model", ["", " ", None])
    def test_a_missing_model_is_refused(self, model: Any) -> None:
        assert code_of(lambda: steps.call_model("m", model)) == "MISSING_MODEL"

    def test_a_model_left_out_is_missing_too(self) -> None:
        assert code_of(lambda: steps.call_model("m")) == "MISSING_MODEL"

    @pytest.mark.parametrize(
        ("options", "code"),
        [
            ({"model": 3}, "INVALID_MODEL"),
            ({"max_rounds": 0}, "INVALID_MAX_ROUNDS"),
            ({"output_retries": -1}, "INVALID_OUTPUT_RETRIES"),
            ({"on_refusal": "ignore"}, "UNKNOWN_MODE"),
            ({"settings": [1]}, "INVALID_SETTINGS"),
            ({"tools": [len]}, "INVALID_TOOL"),
            ({"tools": [double]}, "INVALID_TOOL"),
            ({"tools": lookup}, "INVALID_TOOL"),
            ({"instructions": 3}, "INVALID_CALLBACK"),
            ({"instructions": lambda: "x"}, "INVALID_CALLBACK"),
            ({"instructions": shout.execute}, "INVALID_CALLBACK"),
        ],
        ids=plain_id,
    )
    def test_wrong_options_are_refused(self, options: dict[str, Any], code: str) -> None:
        assert code_of(lambda: steps.call_model("m", **{"model": "gpt", **options})) == code

    def test_async_instructions_are_refused(self) -> None:
        async def instructions(ctx: Any) -> str:
            return "x"

        made: Any = instructions
        assert code_of(lambda: steps.call_model("m", "gpt", made)) == "INVALID_INSTRUCTIONS"

    def test_two_tools_of_one_name_are_refused(self) -> None:
        other = tool(name="lookup")(lambda city: city)
        assert code_of(lambda: steps.call_model("m", "gpt", tools=[lookup, other])) == (
            "DUPLICATE_TOOL"
        )

    def test_the_output_adapter_is_made_once_and_validates(self) -> None:
        made = steps.call_model("m", "gpt", output=Answer)
        adapter = steps.output_adapter(made)
        assert adapter is not None
        assert adapter.validate_json('{"text": "hi"}') == Answer(text="hi")
        assert steps.output_adapter(made) is adapter
        assert steps.output_adapter(steps.call_model("m", "gpt")) is None

    def test_generic_output_types_work(self) -> None:
        adapter = steps.output_adapter(steps.call_model("m", "gpt", output=list[int]))
        assert adapter is not None
        assert adapter.validate_json("[1, 2]") == [1, 2]

    def test_an_output_without_a_schema_is_named(self) -> None:
        class Opaque:
            pass

        made = steps.call_model("m", "gpt", output=Opaque)
        assert code_of(lambda: steps.output_adapter(made)) == "INVALID_OUTPUT"


class TestOtherKinds:
    def test_invoke_tool_keeps_preset_args(self) -> None:
        made = steps.invoke_tool("t", lookup, {"city": "Rome"})
        assert (made.tool, made.args) == (lookup, {"city": "Rome"})
        wrong: Any = [1]
        assert code_of(lambda: steps.invoke_tool("t", lookup, wrong)) == "INVALID_ARGS"
        assert code_of(lambda: steps.invoke_tool("t", wrong)) == "INVALID_TOOL"

    def test_a_route_takes_input_and_context(self) -> None:
        wrong: Any = lambda value: None  # noqa: E731
        assert code_of(lambda: steps.conditional("c", wrong)) == "INVALID_CALLBACK"
        assert code_of(lambda: steps.conditional("c", None)) == "INVALID_CALLBACK"  # type: ignore[arg-type]

    def test_parallel_paths_may_be_a_list_or_a_function(self) -> None:
        listed = steps.in_parallel("p", [double, shout], "settle", concurrency=2)
        assert listed.paths == (double, shout)
        assert (listed.mode, listed.concurrency, listed.placement) == ("settle", 2, None)
        computed = steps.in_parallel("p", lambda value, ctx: [double], merge=lambda results, ctx: 1)
        assert callable(computed.paths)
        assert steps.in_parallel("p", []).paths == ()

    @pytest.mark.parametrize(
        ("options", "code"),
        [
            ({"mode": "any"}, "UNKNOWN_MODE"),
            ({"concurrency": 0}, "INVALID_CONCURRENCY"),
            ({"concurrency": True}, "INVALID_CONCURRENCY"),
            ({"paths": [len]}, "INVALID_STEP"),
            ({"paths": "ab"}, "INVALID_STEP"),
            ({"paths": lambda value: []}, "INVALID_CALLBACK"),
            ({"merge": lambda results: 1}, "INVALID_CALLBACK"),
            ({"placement": "moon"}, "UNKNOWN_PLACEMENT"),
        ],
        ids=plain_id,
    )
    def test_wrong_parallel_options_are_refused(self, options: dict[str, Any], code: str) -> None:
        assert code_of(lambda: steps.in_parallel("p", **{"paths": [double], **options})) == code

    def test_a_placement_may_be_written_as_its_mode(self) -> None:
        assert steps.spawn("s", double, placement="shared").placement == Placement(mode="shared")
        given = Placement(mode="strict")
        assert steps.spawn("s", double, placement=given).placement is given

    @pytest.mark.parametrize("timeout", [-1, float("nan"), float("inf"), "1", True])
    def test_a_wrong_spawn_timeout_is_refused(self, timeout: Any) -> None:
        assert code_of(lambda: steps.spawn("s", double, timeout=timeout)) == "INVALID_TIMEOUT"

    def test_a_spawn_needs_a_child(self) -> None:
        nothing: Any = len
        assert code_of(lambda: steps.spawn("s")) == "MISSING_CHILD_STEP"
        assert code_of(lambda: steps.spawn("s", nothing)) == "INVALID_STEP"

    def test_a_loop_takes_one_step_or_several(self) -> None:
        assert steps.loop("l", double, until.never()).steps == (double,)
        made = steps.loop("l", [double, shout], until.never())
        assert made.steps == (double, shout)
        assert (made.max_iterations, made.max_history, made.park_timeout) == (1000, 100, 0.0)
        patient = steps.loop("l", double, until.never(), inbox=mail, park_timeout=None)
        assert (patient.inbox, patient.park_timeout) == (mail, None)

    @pytest.mark.parametrize(
        ("options", "code"),
        [
            ({"steps": []}, "MISSING_LOOP_BODY"),
            ({"steps": None}, "MISSING_LOOP_BODY"),
            ({"steps": [len]}, "INVALID_STEP"),
            ({"until": None}, "MISSING_UNTIL_PREDICATE"),
            ({"until": until.never}, "INVALID_UNTIL"),
            ({"until": lambda snapshot: True}, "INVALID_UNTIL"),
            ({"max_iterations": 0}, "INVALID_MAX_ITERATIONS"),
            ({"max_iterations": -1}, "INVALID_MAX_ITERATIONS"),
            ({"max_iterations": float("nan")}, "INVALID_MAX_ITERATIONS"),
            ({"max_iterations": float("inf")}, "INVALID_MAX_ITERATIONS"),
            ({"max_history": -1}, "INVALID_MAX_HISTORY"),
            ({"park_timeout": -1.0}, "INVALID_TIMEOUT"),
            ({"inbox": "mail"}, "INVALID_CHANNEL"),
            ({"prepare_next": lambda output: 1}, "INVALID_CALLBACK"),
            ({"on_error": "retry"}, "INVALID_CALLBACK"),
        ],
        ids=plain_id,
    )
    def test_wrong_loop_options_are_refused(self, options: dict[str, Any], code: str) -> None:
        given = {"steps": double, "until": until.never(), **options}
        assert code_of(lambda: steps.loop("l", **given)) == code

    def test_what_a_loop_cannot_do_without_may_not_be_left_out(self) -> None:
        assert code_of(lambda: steps.loop("l", until=until.never())) == "MISSING_LOOP_BODY"
        assert code_of(lambda: steps.loop("l", double)) == "MISSING_UNTIL_PREDICATE"

    def test_a_sequence_is_made_of_steps(self) -> None:
        assert steps.sequence("q", [double, shout]).steps == (double, shout)
        wrong: Any = [double, len]
        assert code_of(lambda: steps.sequence("q", wrong)) == "INVALID_STEP"

    @pytest.mark.parametrize(
        ("options", "code"),
        [
            ({"interval": 0}, "INVALID_INTERVAL"),
            ({"interval": -1}, "INVALID_INTERVAL"),
            ({"interval": float("inf")}, "INVALID_INTERVAL"),
            ({"jitter": -0.1}, "INVALID_JITTER"),
            ({"on_error": "stop"}, "UNKNOWN_MODE"),
            ({"wake": "mail"}, "INVALID_CHANNEL"),
            ({"step": None}, "MISSING_BODY_STEP"),
            ({"step": len}, "INVALID_STEP"),
        ],
        ids=plain_id,
    )
    def test_wrong_schedules_are_refused(self, options: dict[str, Any], code: str) -> None:
        given = {"step": double, "interval": 1.0, **options}
        assert code_of(lambda: steps.every("e", **given)) == code

    def test_a_schedule_keeps_its_options(self) -> None:
        made = steps.every("e", double, 5, jitter=1, wake=mail, on_error="raise")
        assert (made.step, made.interval, made.jitter) == (double, 5, 1)
        assert (made.wake, made.on_error) == (mail, "raise")

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest

from noetic_ray import until
from noetic_ray.errors import Cancelled, ConfigError
from noetic_ray.testing import call
from noetic_ray.until import Predicate, Snapshot, Verdict
from noetic_ray.usage import RoundMeta, StepMeta, TokenUsage


def snapshot(output: Any = None, **changes: Any) -> Snapshot:
    given: dict[str, Any] = {
        "step_count": 1,
        "tokens": TokenUsage(),
        "elapsed": 0.0,
        "cost": 0.0,
        "last_output": output,
        "last_text": "",
        "history": (output,),
        "depth": 0,
        "last_step_meta": None,
        **changes,
    }
    return Snapshot(**given)


async def stops(predicate: Predicate, output: Any = None, **changes: Any) -> bool:
    return (await predicate.check(snapshot(output, **changes))).stop


async def verdicts(predicate: Predicate, *outputs: Any) -> list[bool]:
    return [await stops(predicate, each) for each in outputs]


class TestLimits:
    @pytest.mark.parametrize(
        ("predicate", "field"),
        [
            (until.max_steps(3), "step_count"),
            (until.max_cost(3), "cost"),
            (until.max_duration(3), "elapsed"),
        ],
        ids=["steps", "cost", "duration"],
    )
    async def test_a_limit_stops_when_it_is_reached(self, predicate: Predicate, field: str) -> None:
        assert not await stops(predicate, **{field: 2})
        assert await stops(predicate, **{field: 3})
        assert await stops(predicate, **{field: 4})

    async def test_the_reason_tells_the_figures(self) -> None:
        verdict = await until.max_cost(0.5).check(snapshot(cost=0.75))
        assert verdict == Verdict(True, "max_cost: 0.75 of 0.5")

    @pytest.mark.parametrize(
        "make",
        [
            lambda: until.max_steps(0),
            lambda: until.max_steps(-1),
            lambda: until.max_steps(1.5),  # type: ignore[arg-type]
            lambda: until.max_steps(True),
            lambda: until.max_cost(-0.1),
            lambda: until.max_cost(float("nan")),
            lambda: until.max_duration(-1),
            lambda: until.max_duration(float("inf")),
            lambda: until.max_duration("1"),  # type: ignore[arg-type]
            lambda: until.converged(1.5),
            lambda: until.converged(-0.1),
            lambda: until.converged(float("nan")),
            lambda: until.converged(embed=3),  # type: ignore[arg-type]
            lambda: until.output_contains(""),
            lambda: until.output_equals(None),  # type: ignore[arg-type]
            lambda: until.verified(True),  # type: ignore[arg-type]
            lambda: until.custom(None),  # type: ignore[arg-type]
        ],
    )
    def test_wrong_arguments_are_refused_where_they_are_written(
        self, make: Callable[[], Any]
    ) -> None:
        with pytest.raises(ConfigError) as caught:
            make()
        assert caught.value.hint
        assert caught.value.code.startswith("INVALID_")


class TestNoToolCalls:
    async def test_it_judges_the_last_round_only(self) -> None:
        asked, answered = RoundMeta(tool_calls=(call("lookup"),)), RoundMeta()
        predicate = until.no_tool_calls()
        assert await stops(predicate, last_step_meta=StepMeta.over([asked, answered]))
        assert not await stops(predicate, last_step_meta=StepMeta.over([answered, asked]))

    async def test_it_needs_a_step_and_stops_when_no_model_spoke(self) -> None:
        assert not await stops(until.no_tool_calls(), step_count=0)
        assert await stops(until.no_tool_calls(), step_count=1)

    async def test_it_falls_back_on_calls_without_rounds(self) -> None:
        meta = StepMeta(tool_calls=(call("lookup"),))
        assert not await stops(until.no_tool_calls(), last_step_meta=meta)


class TestOutputs:
    async def test_contains_and_equals_look_at_a_text_output(self) -> None:
        assert await stops(until.output_contains("DONE"), "all DONE.", last_text="stale")
        assert not await stops(until.output_contains("DONE"), "all done.", last_text="DONE")
        assert await stops(until.output_equals("yes"), "yes")
        assert not await stops(until.output_equals("yes"), "yes ")

    async def test_other_outputs_are_judged_by_the_last_text_or_as_json(self) -> None:
        assert await stops(until.output_contains("DONE"), 3, last_text="DONE")
        assert await stops(until.output_contains('"a":1'), {"a": 1})
        assert await stops(until.output_equals("3"), 3)


class TestVerified:
    async def test_it_stops_when_passed_and_carries_feedback_when_not(self) -> None:
        predicate = until.verified(lambda output: (output > 3, f"{output} is too small"))
        assert await predicate.check(snapshot(2)) == Verdict(False, None, "2 is too small")
        assert (await predicate.check(snapshot(4))).stop

    async def test_it_takes_async_functions_and_plain_answers(self) -> None:
        async def judge(output: int) -> bool:
            return output == 1

        assert await verdicts(until.verified(judge), 0, 1) == [False, True]

    async def test_synchronous_judges_run_where_the_caller_says(self) -> None:
        seen: list[int] = []

        def judge(output: Any) -> bool:
            seen.append(threading.get_ident())
            return True

        async def judge_later(output: Any) -> bool:
            seen.append(threading.get_ident())
            return True

        for predicate in (until.verified(judge), until.verified(judge_later)):
            assert (await predicate.check(snapshot(), asyncio.to_thread)).stop
        here = threading.get_ident()
        assert seen[0] != here
        assert seen[1] == here


class TestConverged:
    async def test_equal_outputs_converge_and_the_first_never_does(self) -> None:
        assert await verdicts(until.converged().fresh(), "a", "b", "b") == [False, False, True]

    async def test_outputs_that_are_no_text_compare_as_json(self) -> None:
        assert await verdicts(until.converged().fresh(), {"a": 1}, {"a": 1}) == [False, True]
        assert await verdicts(until.converged().fresh(), None, None) == [False, True]

    async def test_similarity_is_the_share_of_adjacent_word_pairs(self) -> None:
        # "a b c d" has 5 pairs with its ends, "a b c e" too; 3 are shared: 6 / 10.
        assert await verdicts(until.converged(0.6).fresh(), "a b c d", "a b c e")
        assert (await verdicts(until.converged(0.6).fresh(), "a b c d", "a b c e"))[1]
        assert not (await verdicts(until.converged(0.61).fresh(), "a b c d", "a b c e"))[1]

    async def test_other_words_or_another_order_are_not_equal(self) -> None:
        assert await verdicts(until.converged().fresh(), "a b", "b a") == [False, False]
        assert await verdicts(until.converged().fresh(), "a  b", "a b") == [False, False]

    async def test_a_long_text_is_compared_quickly(self) -> None:
        one, other = "x y " * 100_000, "y x " * 100_000
        async with asyncio.timeout(10):
            assert await verdicts(until.converged().fresh(), one, other) == [False, False]

    async def test_embeddings_are_compared_by_their_cosine(self) -> None:
        vectors = {"a": [1.0, 0.0], "b": [0.0, 1.0], "c": [0.1, 0.7]}

        async def embed(text: str) -> list[float]:
            return vectors[text]

        predicate = until.converged(0.9, embed).fresh()
        assert await verdicts(predicate, "a", "b", "c") == [False, False, True]

    async def test_vectors_of_one_direction_are_fully_alike(self) -> None:
        vectors = {"a": [0.1, 0.2, 0.3], "b": [0.3, 0.6, 0.9], "c": [0.0, 0.0, 0.0]}
        predicate = until.converged(1.0, lambda text: vectors[text]).fresh()
        assert await verdicts(predicate, "a", "b", "c") == [False, True, False]

    async def test_vectors_of_different_sizes_stop_with_a_reason(self) -> None:
        predicate = until.converged(0.9, lambda text: [1.0] * len(text)).fresh()
        await predicate.check(snapshot("a"))
        verdict = await predicate.check(snapshot("bb"))
        assert verdict.stop
        assert "1 and 2 numbers" in str(verdict.reason)

    async def test_what_one_run_saw_is_unknown_to_the_next(self) -> None:
        shared = until.max_steps(99) | until.converged()
        first, second = shared.fresh(), shared.fresh()
        assert await verdicts(first, "a") == [False]
        assert await verdicts(second, "a") == [False]
        assert await verdicts(first, "a") == [True]
        assert await verdicts(shared.fresh(), "a") == [False]


class TestCustomAndErrors:
    async def test_custom_gives_a_verdict_or_a_bool(self) -> None:
        told = Verdict(True, "because", "advice")
        assert await until.custom(lambda seen: told).check(snapshot()) == told
        assert await verdicts(until.custom(lambda seen: seen.last_output == 2), 1, 2) == [
            False,
            True,
        ]

    async def test_a_predicate_that_raises_stops_with_the_error_as_reason(self) -> None:
        def broken(seen: Snapshot) -> bool:
            raise KeyError("score")

        verdict = await until.custom(broken).check(snapshot())
        assert verdict.stop
        assert "KeyError: 'score'" in str(verdict.reason)
        assert "custom" in str(verdict.reason)

    async def test_an_answer_of_another_type_stops_with_a_reason(self) -> None:
        wrong: Any = lambda seen: "yes"  # noqa: E731
        verdict = await until.custom(wrong).check(snapshot())
        assert verdict.stop
        assert "TypeError" in str(verdict.reason)

    async def test_an_abort_passes_through(self) -> None:
        def aborted(seen: Snapshot) -> bool:
            raise Cancelled("stop")

        for predicate in (until.custom(aborted), until.never() | until.custom(aborted)):
            with pytest.raises(Cancelled, match="stop"):
                await predicate.check(snapshot())

    async def test_never_never_stops(self) -> None:
        assert not await stops(until.never(), step_count=10**9, cost=10**9)


class TestCombinations:
    async def test_any_stops_with_the_first_reason(self) -> None:
        predicate = until.max_steps(5) | until.output_equals("x")
        assert await predicate.check(snapshot("x")) == Verdict(True, "the output is 'x'")
        assert not await stops(predicate, "y")
        assert await stops(predicate, "y", step_count=5)

    async def test_all_needs_every_part_and_tells_all_reasons(self) -> None:
        predicate = until.max_steps(2) & until.output_equals("x")
        assert not await stops(predicate, "x", step_count=1)
        assert not await stops(predicate, "y", step_count=2)
        verdict = await predicate.check(snapshot("x", step_count=2))
        assert verdict == Verdict(True, "max_steps: 2 of 2; the output is 'x'")

    async def test_feedback_of_undecided_parts_is_joined(self) -> None:
        predicate = until.verified(lambda o: (False, "shorter")) | until.verified(
            lambda o: (False, "kinder")
        )
        assert (await predicate.check(snapshot())).feedback == "shorter\nkinder"

    async def test_later_parts_are_not_asked_once_it_is_decided(self) -> None:
        asked: list[str] = []

        def judge(output: Any) -> bool:
            asked.append(output)
            return True

        await (until.max_steps(1) | until.verified(judge)).check(snapshot("a"))
        await (until.never() & until.verified(judge)).check(snapshot("b"))
        assert asked == []
        assert await stops(until.max_steps(1) & until.verified(judge), "c")
        assert asked == ["c"]

    async def test_a_part_that_was_not_asked_still_sees_the_output(self) -> None:
        predicate = (until.max_steps(2) & until.converged()).fresh()
        assert not await stops(predicate, "same", step_count=1)
        assert await stops(predicate, "same", step_count=2)

    async def test_combinations_nest(self) -> None:
        predicate = until.output_equals("a") | (until.max_steps(2) & until.output_equals("b"))
        assert await stops(predicate, "a")
        assert not await stops(predicate, "b")
        assert await stops(predicate, "b", step_count=2)

    def test_only_predicates_combine(self) -> None:
        other: Any = until.never
        with pytest.raises(TypeError):
            until.max_steps(1) | other
        with pytest.raises(TypeError):
            until.max_steps(1) & other

    async def test_predicates_survive_pickling(self) -> None:
        predicate = (until.max_steps(3) & until.output_contains("x")) | until.converged(0.5)
        back = pickle.loads(pickle.dumps(predicate)).fresh()
        assert await stops(back, "x", step_count=3)
        assert back.name == predicate.name == "((max_steps & output_contains) | converged)"

"""instructions, history, temporal and tool_calls."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import noetic_ray as nr
from tests.layers.builtin.support import Hosted


async def test_instructions_are_shown_in_their_tag() -> None:
    layer = await Hosted(nr.layers.instructions("Be kind.")).init()
    assert await layer.recall() == "<instructions>\nBe kind.\n</instructions>"
    assert layer.data("text") == "Be kind."


async def test_long_instructions_are_cut_before_the_closing_tag() -> None:
    layer = await Hosted(nr.layers.instructions("Be kind. " * 100)).init()
    shown = await layer.recall(budget=20)
    assert len(shown) <= 80
    assert shown.endswith("</instructions>")
    assert await layer.recall(budget=0) == await layer.recall(budget=None)
    assert ("Be kind. " * 100) in await layer.recall(budget=0)


async def test_instructions_come_from_a_file_read_once(tmp_path: Path) -> None:
    file = tmp_path / "AGENTS.md"
    file.write_text("From a file.")
    layer = await Hosted(nr.layers.instructions(file)).init()
    file.unlink()
    child = await layer.spawn()
    assert "From a file." in await child.recall()
    with pytest.raises(nr.ConfigError) as caught:
        await Hosted(nr.layers.instructions(file)).init()
    assert caught.value.code == "INSTRUCTIONS_UNREADABLE"


async def test_instructions_come_from_a_function() -> None:
    async def later(ctx: Any) -> str:
        return f"for {ctx.thread_id}"

    assert "for t" in await (await Hosted(nr.layers.instructions(later)).init()).recall()
    plain = nr.layers.instructions(lambda ctx: f"plain {ctx.id}")
    assert "plain ctx" in await (await Hosted(plain).init()).recall()
    with pytest.raises(nr.ConfigError):
        nr.layers.instructions(7)  # type: ignore[arg-type]


def talk(count: int) -> list[Any]:
    makers = (nr.user_message, nr.assistant_message)
    return [makers[i % 2](str(i)) for i in range(count)]


async def test_a_short_history_is_the_very_object() -> None:
    layer = Hosted(nr.layers.history(40))
    items = talk(40)
    assert await layer.project(items) is items


async def test_a_long_history_is_cut_to_the_newest() -> None:
    layer = Hosted(nr.layers.history(40))
    items = talk(50)
    assert await layer.project(items) == items[10:]


async def test_the_cut_goes_back_to_a_user_s_and_an_assistant_s_message() -> None:
    layer = Hosted(nr.layers.history(4))
    items = [*talk(2), *(nr.developer_message(str(i)) for i in range(6))]
    assert await layer.project(items) == items


async def test_the_cut_goes_back_four_times_at_most() -> None:
    layer = Hosted(nr.layers.history(40))
    items = [nr.user_message("first"), *(nr.assistant_message(str(i)) for i in range(300))]
    assert await layer.project(items) == items[-40:]


async def test_an_early_system_message_stays() -> None:
    layer = Hosted(nr.layers.history(4))
    items = [nr.system_message("rules"), *talk(20)]
    assert await layer.project(items) == [items[0], *items[-4:]]


def pair(n: int) -> list[Any]:
    call = nr.FunctionCallItem(call_id=f"c{n}", name="t", arguments="{}")
    return [call, nr.FunctionCallOutputItem(call_id=f"c{n}", output="o")]


@settings(deadline=None)
@given(st.lists(st.sampled_from(["user", "assistant", "pair"]), max_size=60), st.integers(2, 12))
async def test_no_call_is_without_its_output(kinds: list[str], max_items: int) -> None:
    items: list[Any] = []
    for n, kind in enumerate(kinds):
        if kind == "pair":
            items += pair(n)
        else:
            items.append(nr.MessageItem(role=kind, content=[nr.InputText(text=str(n))]))
    shown = list(await Hosted(nr.layers.history(max_items)).project(items))
    calls = {item.call_id for item in shown if item.type == "function_call"}
    outputs = {item.call_id for item in shown if item.type == "function_call_output"}
    assert calls == outputs or len(items) <= max_items
    assert [item for item in items if item in shown] == shown


async def test_a_history_looks_only_at_its_end() -> None:
    class Counting(list[Any]):
        seen = 0

        def __getitem__(self, index: Any) -> Any:
            Counting.seen += index.stop - index.start if isinstance(index, slice) else 1
            return super().__getitem__(index)

        def __iter__(self) -> Any:
            raise AssertionError("the whole history was read")

    items = Counting(talk(10_000))

    class Sliced(Counting):
        pass

    original = Counting.__getitem__

    def getitem(self: Any, index: Any) -> Any:
        if isinstance(index, slice):
            start, stop, _ = index.indices(len(self))
            return original(self, slice(start, stop))
        return original(self, index)

    Sliced.__getitem__ = getitem  # type: ignore[method-assign]
    shown = await Hosted(nr.layers.history(40)).project(Sliced(talk(10_000)))
    assert len(shown) == 40
    assert Counting.seen < 400
    assert len(items) == 10_000


@pytest.mark.parametrize("wrong", [1, 10_001, True, 2.0, "40", None])
def test_a_history_has_a_sane_length(wrong: Any) -> None:
    with pytest.raises(nr.ConfigError):
        nr.layers.history(wrong)


def noon() -> datetime:
    return datetime(2026, 6, 1, 12, 34, 56, tzinfo=UTC)


@pytest.mark.parametrize(
    ("granularity", "shown"),
    [
        ("second", "Now: Monday 2026-06-01T14:34:56+02:00 (Europe/Oslo)"),
        ("minute", "Now: Monday 2026-06-01T14:34+02:00 (Europe/Oslo)"),
        ("hour", "Now: Monday 2026-06-01T14+02:00 (Europe/Oslo)"),
        ("day", "Now: Monday 2026-06-01 (Europe/Oslo)"),
    ],
)
async def test_the_time_is_told_as_coarsely_as_asked(granularity: Any, shown: str) -> None:
    layer = nr.layers.temporal("Europe/Oslo", granularity=granularity, clock=noon)
    hosted = Hosted(pickle.loads(pickle.dumps(layer)))
    assert await hosted.recall() == shown
    assert hosted.data("now") == shown.removeprefix("Now: ")


def test_time_zones_and_grains_are_checked() -> None:
    with pytest.raises(nr.ConfigError):
        nr.layers.temporal("Mars/Olympus")
    with pytest.raises(nr.ConfigError):
        nr.layers.temporal(granularity="week")  # type: ignore[arg-type]


async def test_the_last_tool_calls_are_shown_newest_first() -> None:
    layer = Hosted(nr.layers.tool_calls(max_calls=2))
    assert await layer.recall() is None
    failed = nr.FunctionCallOutputItem(call_id="c9", output="no\nsuch file", status="failed")
    await layer.store(*pair(1), *pair(2))
    await layer.store(nr.FunctionCallItem(call_id="c9", name="read", arguments="{}"), failed)
    assert await layer.recall() == (
        "<tool_calls>\n- read({}) failed: no such file\n- t({}) ok: o\n</tool_calls>"
    )
    assert layer.data("count") == 3
    assert [call["name"] for call in layer.data("calls")] == ["t", "read"]

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console

import noetic_ray as nr
from noetic_ray.journal.events import Event
from noetic_ray.view.live import following
from noetic_ray.view.plain import PlainLines
from noetic_ray.view.watch import Watch

Make = Callable[..., nr.Harness]
OPENED = nr.channel("opened", bool, external=True)


@nr.step
async def child(text: str, ctx: nr.Context) -> bool:
    return await ctx.recv(OPENED)


@nr.step
async def parent(text: str, ctx: nr.Context) -> bool:
    ctx.item_log.append(nr.user_message(text))
    return await ctx.spawn(child, text)


def test_on_a_terminal_the_tree_moves_and_then_disappears(make_harness: Make) -> None:
    harness = make_harness(placement="inline")
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100, height=20)
    run = harness.start(parent, "the task")
    with following(run, console) as watch:
        for event in run.events():
            if event.type == "context.started" and event.context_id != run.id:
                break
        harness.channel(OPENED).send(True)
        assert run.result(10) is True
    assert "parent" in out.getvalue()
    assert "Ctrl-C aborts" in out.getvalue()
    assert "\x1b[?25h" in out.getvalue()
    assert out.getvalue().rstrip("\n").endswith("\x1b[2K")
    assert watch.about(run.id) == "the task"
    assert [each.row.status for each in watch.settled(run)] == ["completed", "completed"]


def test_elsewhere_there_is_a_line_for_each_start_and_end(make_harness: Make) -> None:
    harness = make_harness(placement="inline")
    out = io.StringIO()
    run = harness.start(parent, "the task")
    with following(run, Console(file=out, width=100)) as watch:
        harness.channel(OPENED).send(True)
        run.result(10)
    lines = out.getvalue().splitlines()
    assert len(lines) == 4
    assert "started in process" in lines[0]
    assert "completed: 1 item, 0 tokens, $0" in lines[-1]
    assert watch.at_work.is_set()


def test_a_view_ends_when_its_harness_is_closed(make_harness: Make) -> None:
    harness = make_harness(placement="inline")
    run = harness.start(parent, "the task")
    with following(run, Console(file=io.StringIO())) as watch:
        harness.close()
        assert watch.at_work.wait(10)


@pytest.mark.parametrize(
    ("type_", "data", "says"),
    [
        ("context.lost", {"reason": "its process died"}, "lost: its process died"),
        ("context.aborted", {"reason": None}, "aborted: no reason given"),
        ("model.retried", {"error": {"message": "busy"}}, "asks the model again: busy"),
        ("approval.requested", {"tool": "pay"}, "waits for approval of pay"),
        ("tool.started", {"tool": "add"}, "calls add"),
        ("tool.failed", {"tool": "add", "error": {"message": "no"}}, "add failed: no"),
        (
            "context.ended",
            {"status": "failed", "items": 2, "error": {"message": "bad [b]luck[/b]"}},
            "failed: 2 items, 0 tokens, $0, 0.00 s: bad [b]luck[/b]",
        ),
    ],
)
def test_what_goes_wrong_is_told(type_: str, data: dict[str, Any], says: str) -> None:
    out = io.StringIO()
    lines = PlainLines(Console(file=out, width=50), Watch("r"), tools=True)
    lines.tell(Event(1, "run.started", "r", "r", 5.0, {}))
    lines.tell(Event(2, type_, "r", "r", 6.5, data))
    assert out.getvalue().startswith("   1.50 s  ")
    assert out.getvalue().endswith(f" {says}\n")

"""The last hooks: when they run, in which order, and that they run once."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

import noetic_ray as nr
from tests.support.wait import wait_until


class Diary(nr.ContextLayer):
    """Writes its hooks down in a file that every process can append to."""

    def __init__(self, id: str, file: Path) -> None:
        self.id, self.file = id, str(file)

    def note(self, hook: str) -> None:
        with open(self.file, "a") as out:
            out.write(f"{self.id}.{hook}\n")

    async def init(self, params: Any) -> dict[str, str]:
        self.note("init")
        return {"from": self.id}

    async def on_complete(self, params: Any) -> None:
        self.note(f"on_complete:{params.outcome}:{params.state['from']}")

    async def dispose(self, params: Any) -> None:
        self.note("dispose")


def lines(file: Path) -> list[str]:
    return file.read_text().split() if file.exists() else []


def last(file: Path) -> list[str]:
    return [line for line in lines(file) if not line.endswith(".init")]


@nr.step
async def ends(_: Any, ctx: nr.Context) -> str:
    return "done"


@nr.step
async def fails(_: Any, ctx: nr.Context) -> None:
    raise ValueError("no")


@nr.step
async def waits(_: Any, ctx: nr.Context) -> None:
    await asyncio.Event().wait()


def test_a_run_that_succeeds_completes_and_disposes(telling: nr.Harness, tmp_path: Path) -> None:
    file = tmp_path / "diary"
    assert telling.run(ends, layers=[Diary("r", file)]) == "done"
    assert lines(file) == ["r.init", "r.on_complete:completed:r", "r.dispose"]


def test_a_run_that_fails_too(telling: nr.Harness, tmp_path: Path) -> None:
    file = tmp_path / "diary"
    with pytest.raises(nr.StepFailed):
        telling.run(fails, layers=[Diary("r", file)])
    assert last(file) == ["r.on_complete:failed:r", "r.dispose"]


def test_completing_early_is_a_completion(telling: nr.Harness, tmp_path: Path) -> None:
    @nr.step
    async def completes(_: Any, ctx: nr.Context) -> None:
        ctx.complete("early")

    file = tmp_path / "diary"
    assert telling.run(completes, layers=[Diary("r", file)]) == "early"
    assert last(file) == ["r.on_complete:completed:r", "r.dispose"]


def test_layers_are_disposed_in_reverse(telling: nr.Harness, tmp_path: Path) -> None:
    file = tmp_path / "diary"
    telling.run(ends, layers=[Diary("a", file), Diary("b", file)])
    assert last(file) == [
        "a.on_complete:completed:a",
        "b.on_complete:completed:b",
        "b.dispose",
        "a.dispose",
    ]


def tree_of(file: Path) -> Any:
    """root -> A -> A1, and B beside A; each with a layer of its own."""

    @nr.step
    async def a(_: Any, ctx: nr.Context) -> None:
        await ctx.spawn(waits, layers=[Diary("A1", file)])

    @nr.step
    async def root(_: Any, ctx: nr.Context) -> None:
        first = ctx.detach(nr.spawn("a", a, layers=[Diary("A", file)]))
        while "A1.init" not in lines(file):
            await asyncio.sleep(0.01)
        await ctx.spawn(waits, layers=[Diary("B", file)])
        await first

    return root


def started(file: Path, *ids: str) -> bool:
    return {f"{id}.init" for id in ids} <= set(lines(file))


def words(*ids: str) -> list[str]:
    return [word for id in ids for word in (f"{id}.on_complete:aborted:{id}", f"{id}.dispose")]


def test_cancel_runs_the_last_hooks_from_the_bottom_up(telling: nr.Harness, tmp_path: Path) -> None:
    file = tmp_path / "diary"
    run = telling.start(tree_of(file), layers=[Diary("R", file)])
    wait_until(lambda: started(file, "R", "A", "A1", "B"))
    report = run.cancel("enough")
    assert report.abandoned == report.killed == 0
    assert last(file) == words("B", "A1", "A", "R", "R")
    assert run.status == "cancelled"
    run.cancel("again")
    assert len(last(file)) == 10


def test_a_bare_abort_skips_them_until_somebody_cancels(
    telling: nr.Harness, tmp_path: Path
) -> None:
    file = tmp_path / "diary"
    run = telling.start(tree_of(file), layers=[Diary("R", file)])
    wait_until(lambda: started(file, "R", "A", "A1", "B"))
    run.abort("stop")
    assert last(file) == []
    run.cancel()
    assert last(file) == words("B", "A1", "A", "R", "R")
    run.cancel()
    assert len(last(file)) == 10


def test_a_context_that_never_ran_has_no_last_hooks(telling: nr.Harness, tmp_path: Path) -> None:
    file = tmp_path / "diary"

    @nr.step
    async def aborts_and_spawns(_: Any, ctx: nr.Context) -> None:
        ctx.abort("first")
        await ctx.spawn(ends, layers=[Diary("never", file)])

    run = telling.start(aborts_and_spawns)
    with pytest.raises(nr.Cancelled):
        run.result()
    run.cancel()
    assert lines(file) == []


def test_a_child_that_settled_long_ago_is_left_alone(telling: nr.Harness, tmp_path: Path) -> None:
    file = tmp_path / "diary"

    @nr.step
    async def parent(_: Any, ctx: nr.Context) -> None:
        await ctx.detach(nr.spawn("s", ends, layers=[Diary("child", file)]))
        await ctx.spawn(waits, layers=[Diary("other", file)])

    run = telling.start(parent)
    wait_until(lambda: started(file, "other"))
    assert last(file) == ["child.on_complete:completed:child", "child.dispose"]
    run.cancel()
    assert last(file)[2:] == words("other")


def test_a_child_ended_by_the_engine_gets_its_last_hooks(
    telling: nr.Harness, tmp_path: Path
) -> None:
    file = tmp_path / "diary"
    slow = nr.spawn("slow", waits, layers=[Diary("slow", file)], timeout=0.3)
    with pytest.raises(nr.StepFailed):
        telling.run(slow)
    assert last(file) in ([], words("slow"))  # a slow start may end before init

    @nr.step
    async def wins(_: Any, ctx: nr.Context) -> str:
        while "loser.init" not in lines(file):
            await asyncio.sleep(0.01)
        return "won"

    loser = nr.spawn("loser", waits, layers=[Diary("loser", file)])
    race = nr.in_parallel("race", [loser, wins], mode="race")
    assert telling.run(race) == "won"
    assert last(file)[-2:] == words("loser")


def test_a_body_that_ignores_the_abort_has_ended_before_the_hooks(
    telling: nr.Harness, tmp_path: Path
) -> None:
    file = tmp_path / "diary"

    @nr.step
    async def stubborn(_: Any, ctx: nr.Context) -> None:
        layer = Diary("R", file)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0.2)
            layer.note("body")

    run = telling.start(stubborn, layers=[Diary("R", file)])
    wait_until(lambda: started(file, "R"))
    run.cancel()
    assert last(file) == ["R.body", *words("R")]


class Connection(nr.ContextLayer):
    """Holds something that lives in one process only."""

    def __init__(self, id: str, file: Path) -> None:
        self.id, self.file = id, str(file)

    async def init(self, params: Any) -> Any:
        with open(self.file, "a") as out:
            out.write(f"{self.id}.init\n")
        return threading.Lock()

    async def dispose(self, params: Any) -> None:
        assert params.state.acquire(timeout=1)
        with open(self.file, "a") as out:
            out.write(f"{self.id}.dispose\n")


@pytest.mark.parametrize("how", ["cancel", "abort"])
def test_what_cannot_leave_its_process_is_let_go_there(
    telling: nr.Harness, tmp_path: Path, how: str
) -> None:
    file = tmp_path / "diary"
    child = nr.spawn("child", waits, layers=[Connection("C", file)])
    run = telling.start(child, layers=[Connection("R", file)])
    wait_until(lambda: started(file, "R", "C"))
    report = getattr(run, how)("enough")
    assert (report.reached, report.settled) == (2, 2)
    assert run.status == "cancelled"
    run.cancel()
    assert sorted(last(file)) == ["C.dispose", "R.dispose"]


def test_last_hooks_may_still_run_steps_after_complete(telling: nr.Harness, tmp_path: Path) -> None:
    file = tmp_path / "diary"

    class Works(Diary):
        async def on_complete(self, params: Any) -> None:
            self.note(await params.ctx.run(ends))
            params.ctx.complete("not this")

    @nr.step
    async def completes(_: Any, ctx: nr.Context) -> None:
        ctx.complete("early")

    layers = [Works("a", file), Works("b", file)]
    assert telling.run(completes, layers=layers) == "early"
    assert last(file) == ["a.done", "b.done", "b.dispose", "a.dispose"]


@pytest.mark.ray
def test_a_root_that_had_to_be_killed_is_torn_down_too(
    ray_harness: nr.Harness, tmp_path: Path
) -> None:
    file = tmp_path / "diary"

    class Final(nr.ContextLayer):
        id = "final"

        async def dispose(self, params: Any) -> None:
            with open(file, "a") as out:
                out.write(f"dispose:{params.state}\n")

    @nr.step
    def stubborn(_: Any, ctx: nr.Context) -> None:
        Path(f"{file}.started").touch()
        while not threading.Event().wait(0.05):
            continue

    run = ray_harness.start(stubborn, layers=[Final()])
    wait_until(lambda: Path(f"{file}.started").exists())
    assert run.cancel("enough").killed == 1
    assert lines(file) == ["dispose:None"]

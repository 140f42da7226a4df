"""Layer states that go into children and come back."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import noetic_ray as nr


class Files(nr.ContextLayer):
    """A set of file names; children add theirs to what they were given."""

    id = "files"

    async def init(self, params: Any) -> list[str]:
        return ["c.ts"]

    async def on_spawn(self, params: Any) -> nr.SpawnSeed:
        return nr.SpawnSeed(list(params.parent_state))

    async def on_return(self, params: Any) -> nr.Merge:
        await asyncio.sleep(0)  # a merge that reads, waits and writes must not lose another's
        return nr.Merge(state=sorted({*params.parent_state, *params.child_state}))

    provides = {"names": nr.layer_data(lambda state: list(state))}


async def put(args: str, state: Any, ctx: nr.Context) -> nr.Provided:
    return nr.Provided(None, [*state, args])


class Writable(Files):
    provides = {**Files.provides, "put": nr.layer_function(put)}


@nr.step
async def adds(name: str, ctx: nr.Context) -> list[str]:
    await ctx.context["files"].put(args=name)
    return list(ctx.context["files"].names)


@nr.step
async def fails_after_adding(name: str, ctx: nr.Context) -> None:
    await ctx.context["files"].put(args=name)
    raise ValueError("no")


def names_after(harness: nr.Harness, inner: Any, **options: Any) -> Any:
    @nr.step
    async def looks(given: Any, ctx: nr.Context) -> list[str]:
        return list(ctx.context["files"].names)

    return harness.run(nr.sequence("all", [inner, looks]), None, layers=[Writable()], **options)


def path(name: str) -> Any:
    @nr.step(id=f"adds {name}")
    async def one(_: Any, ctx: nr.Context) -> Any:
        return await ctx.run(adds, name)

    return one


def test_parallel_paths_add_to_what_the_parent_had(telling: nr.Harness) -> None:
    both = nr.in_parallel("both", [path("a.ts"), path("b.ts")])
    assert names_after(telling, both) == ["a.ts", "b.ts", "c.ts"]


def test_only_successful_paths_are_merged(telling: nr.Harness) -> None:
    @nr.step
    async def bad(_: Any, ctx: nr.Context) -> Any:
        return await ctx.run(fails_after_adding, "bad.ts")

    both = nr.in_parallel("both", [path("a.ts"), bad], mode="settle")
    assert names_after(telling, both) == ["a.ts", "c.ts"]


def test_a_success_is_merged_though_the_whole_fails(telling: nr.Harness) -> None:
    @nr.step
    async def bad(_: Any, ctx: nr.Context) -> Any:
        await ctx.recv(gate, timeout=60)
        raise ValueError("late")

    @nr.step
    async def survives(_: Any, ctx: nr.Context) -> None:
        with pytest.raises(nr.ParallelFailed):
            await ctx.run(nr.in_parallel("both", [path("a.ts"), bad, opens]))

    @nr.step
    async def opens(_: Any, ctx: nr.Context) -> None:
        while "a.ts" not in seen_by_parent:
            seen_by_parent.append("a.ts")
        await ctx.send(gate, 1)

    seen_by_parent: list[str] = []
    gate = nr.channel(f"gate-{telling.name}", int, mode="queue")
    assert "a.ts" in names_after(telling, survives)


def test_a_race_merges_its_winner_alone(telling: nr.Harness) -> None:
    @nr.step
    async def slow(_: Any, ctx: nr.Context) -> None:
        await ctx.run(adds, "slow.ts")
        await asyncio.Event().wait()

    race = nr.in_parallel("race", [slow, path("fast.ts")], mode="race")
    assert names_after(telling, race) == ["c.ts", "fast.ts"]


def test_two_hundred_children_lose_no_update(telling: nr.Harness) -> None:
    names = [f"{i:03}.ts" for i in range(200)]
    many = nr.in_parallel("many", [path(name) for name in names], placement="shared")
    assert names_after(telling, many) == [*names, "c.ts"]


def test_a_spawned_child_brings_its_state_back(telling: nr.Harness) -> None:
    assert names_after(telling, nr.spawn("s", path("x.ts"))) == ["c.ts", "x.ts"]


def test_a_failed_child_brings_nothing_back(telling: nr.Harness) -> None:
    @nr.step
    async def tries(_: Any, ctx: nr.Context) -> None:
        with pytest.raises(nr.StepFailed):
            await ctx.spawn(fails_after_adding, "bad.ts")

    assert names_after(telling, tries) == ["c.ts"]


def test_a_detached_child_is_merged_when_it_ends(telling: nr.Harness) -> None:
    @nr.step
    async def detaches(_: Any, ctx: nr.Context) -> None:
        await ctx.detach(adds, "d.ts")

    assert names_after(telling, detaches) == ["c.ts", "d.ts"]


class Greeter(nr.ContextLayer):
    """Gives children something to begin with."""

    id = "greeter"

    def __init__(self, id: str = "greeter", slot: float = 200, word: str = "hello") -> None:
        self.id, self.slot, self.word = id, slot, word

    async def on_spawn(self, params: Any) -> nr.SpawnSeed:
        return nr.SpawnSeed(None, [nr.user_message(self.word)])

    async def on_return(self, params: Any) -> nr.Merge:
        return nr.Merge(result=f"{self.word}({params.result})")


@nr.step
async def tells_its_log(_: Any, ctx: nr.Context) -> list[str]:
    return [nr.item_text(item) for item in ctx.item_log]


def test_a_child_begins_with_what_layers_gave_it_in_slot_order(telling: nr.Harness) -> None:
    @nr.step
    async def parent(_: Any, ctx: nr.Context) -> Any:
        ctx.item_log.append(nr.user_message("not for children"))
        return await ctx.spawn(tells_its_log)

    class Quiet(Greeter):
        async def on_return(self, params: Any) -> None:
            return None

    layers = [Quiet("b", 200, "second"), Quiet("a", 100, "first")]
    assert telling.run(parent, layers=layers) == ["first", "second"]


def test_a_parallel_path_sees_its_parent_s_log_and_no_seeded_items(telling: nr.Harness) -> None:
    class Quiet(Greeter):
        async def on_return(self, params: Any) -> None:
            return None

    @nr.step
    async def parent(_: Any, ctx: nr.Context) -> Any:
        ctx.item_log.append(nr.user_message("one"))
        return await ctx.run(nr.in_parallel("p", [tells_its_log]))

    assert telling.run(parent, layers=[Quiet()]) == [["one"]]


def test_results_pass_through_the_layers_in_slot_order(telling: nr.Harness) -> None:
    @nr.step
    async def says(_: Any, ctx: nr.Context) -> str:
        return "x"

    layers = [Greeter("b", 200, "outer"), Greeter("a", 100, "inner")]
    assert telling.run(nr.spawn("s", says), layers=layers) == "outer(inner(x))"


class Local(nr.ContextLayer):
    """Belongs to the child alone."""

    id = "local"

    async def init(self, params: Any) -> dict[str, Any]:
        return {"depth": params.ctx.depth}

    async def recall(self, params: Any) -> str:
        return f"depth {params.state['depth']}"

    provides = {"depth": nr.layer_data(lambda state: state["depth"])}


@nr.step
async def reads_local(_: Any, ctx: nr.Context) -> Any:
    return [list(ctx.context), ctx.context["local"].depth]


def test_a_layer_given_to_a_child_is_initialised_there(telling: nr.Harness) -> None:
    child = nr.spawn("s", reads_local, layers=[Local()])
    assert telling.run(child, layers=[Files()]) == [["local"], 1]


def test_a_child_inherits_layers_and_inits_those_no_hook_seeds(telling: nr.Harness) -> None:
    assert telling.run(nr.spawn("s", reads_local), layers=[Local()]) == [["local"], 1]


def test_a_layer_whose_spawn_hook_fails_is_left_out_of_the_child(telling: nr.Harness) -> None:
    class Broken(Local):
        async def on_spawn(self, params: Any) -> nr.SpawnSeed:
            raise RuntimeError("cannot")

    @nr.step
    async def lists(_: Any, ctx: nr.Context) -> list[str]:
        return list(ctx.context)

    run = telling.start(nr.spawn("s", lists), layers=[Broken()])
    assert run.result() == []
    found = [event.data for event in run.events() if event.type == "layer.diagnostic"]
    assert [(each["layer"], each["hook"]) for each in found] == [("local", "on_spawn")]


class Big(nr.ContextLayer):
    """Five megabytes of state."""

    id = "big"

    async def init(self, params: Any) -> dict[str, str]:
        return {"body": "x" * 5_000_000, "tail": ""}

    async def on_spawn(self, params: Any) -> nr.SpawnSeed:
        return nr.SpawnSeed(params.parent_state)

    async def on_return(self, params: Any) -> nr.Merge:
        return nr.Merge(state=params.child_state)

    provides = {
        "size": nr.layer_data(lambda state: len(state["body"])),
        "tail": nr.layer_data(lambda state: state["tail"]),
    }


async def set_tail(args: str, state: Any, ctx: nr.Context) -> nr.Provided:
    return nr.Provided(None, {**state, "tail": args})


class BigWritable(Big):
    provides = {**Big.provides, "set_tail": nr.layer_function(set_tail)}


def test_a_state_of_five_megabytes_travels_there_and_back(telling: nr.Harness) -> None:
    @nr.step
    async def writes(_: Any, ctx: nr.Context) -> int:
        await ctx.context["big"].set_tail("done")
        return int(ctx.context["big"].size)

    @nr.step
    async def parent(_: Any, ctx: nr.Context) -> Any:
        size = await ctx.spawn(writes)
        return [size, ctx.context["big"].size, ctx.context["big"].tail]

    assert telling.run(parent, layers=[BigWritable()]) == [5_000_000, 5_000_000, "done"]


def test_what_the_child_logged_is_shown_to_the_merge(telling: nr.Harness) -> None:
    class Reads(nr.ContextLayer):
        id = "reads"

        async def on_return(self, params: Any) -> nr.Merge:
            return nr.Merge(result=[nr.item_text(item) for item in params.child_log])

    @nr.step
    async def logs(_: Any, ctx: nr.Context) -> None:
        ctx.item_log.append(nr.user_message("from the child"))

    assert telling.run(nr.spawn("s", logs), layers=[Reads()]) == ["from the child"]


class Seeds(nr.ContextLayer):
    """Gives children what it was made with."""

    id = "seeds"

    def __init__(self, seed: Any) -> None:
        self.seed = seed

    async def on_spawn(self, params: Any) -> nr.SpawnSeed:
        return nr.SpawnSeed(self.seed)

    provides = {"value": nr.layer_data(lambda state: state)}


@pytest.mark.parametrize("seed", [{}, [], "", 0, None])
def test_an_empty_seed_arrives_as_it_is(telling: nr.Harness, seed: Any) -> None:
    @nr.step
    async def reads(_: Any, ctx: nr.Context) -> Any:
        return ctx.context["seeds"].value

    assert telling.run(nr.spawn("s", reads), layers=[Seeds(seed)]) == seed


def test_an_inner_layer_of_the_child_does_not_come_back(telling: nr.Harness) -> None:
    class Inner(nr.ContextLayer):
        id = "files"

        async def init(self, params: Any) -> list[str]:
            return ["INNER"]

    @nr.step
    async def nothing(_: Any, ctx: nr.Context) -> None:
        return None

    child = nr.spawn("s", nr.with_context("w", nothing, [Inner()]))
    assert names_after(telling, child) == ["c.ts"]


def test_a_detached_child_s_handle_is_resolved_whatever_its_merge_does(
    telling: nr.Harness,
) -> None:
    class Completes(nr.ContextLayer):
        id = "completes"

        async def on_return(self, params: Any) -> nr.Merge:
            params.ctx.complete("early")
            await params.ctx.run(tells_its_log)
            return nr.Merge()

    @nr.step
    async def detaches(_: Any, ctx: nr.Context) -> Any:
        return await ctx.detach(tells_its_log)

    assert telling.run(detaches, layers=[Completes()], timeout=30) == "early"


def test_layers_that_call_each_other_do_not_wait_for_ever(telling: nr.Harness) -> None:
    async def bump(args: Any, state: int, ctx: nr.Context) -> nr.Provided:
        await asyncio.sleep(0.01)
        return nr.Provided(None, state + 1)

    class Calls(nr.ContextLayer):
        timeouts = {"store": 5.0}

        def __init__(self, id: str, other: str) -> None:
            self.id, self.other = id, other

        async def init(self, params: Any) -> int:
            return 0

        async def store(self, params: Any) -> None:
            await asyncio.sleep(0.01)
            await params.ctx.context[self.other].bump()

        provides = {
            "bump": nr.layer_function(bump),
            "n": nr.layer_data(lambda state: state),
        }

    @nr.step
    async def asks(_: Any, ctx: nr.Context) -> list[int]:
        await ctx.run(nr.call_model("ask", model="m", tools=[]), "x")
        return [ctx.context["a"].n, ctx.context["b"].n]

    assert telling.run(asks, layers=[Calls("a", "b"), Calls("b", "a")]) == [1, 1]


def test_store_hooks_may_spawn(telling: nr.Harness) -> None:
    class Spawns(Seeds):
        async def store(self, params: Any) -> nr.Update:
            return nr.Update(await params.ctx.spawn(tells_its_log))

    class Other(Spawns):
        id = "other"

    @nr.step
    async def asks(_: Any, ctx: nr.Context) -> Any:
        await ctx.run(nr.call_model("ask", model="m", tools=[]), "x")
        return [ctx.context["seeds"].value, ctx.context["other"].value]

    assert telling.run(asks, layers=[Spawns(1), Other(2)]) == [[], []]

"""What the journal says about channels."""

from __future__ import annotations

from collections.abc import Callable

import noetic_ray as nr

full = nr.channel("drops-are-told", int, mode="queue", capacity=2, external=True)
go = nr.channel("drops-go", str, mode="queue", external=True)


@nr.step
async def waits(_: None, ctx: nr.Context) -> list[int]:
    await ctx.recv(go)
    return await ctx.recv_many(full, 10)


def test_a_dropped_value_is_an_event_of_the_live_run(
    backend: str, make_harness: Callable[..., nr.Harness]
) -> None:
    harness = make_harness(placement=backend)
    run = harness.start(waits)
    handle = harness.channel(full)
    for value in range(4):
        handle.send(value)
    harness.channel(go).send("go")
    assert run.result() == [2, 3]
    dropped = [event.data for event in run.events() if event.type == "channel.dropped"]
    assert sum(data["count"] for data in dropped) == 2
    assert {data["channel"] for data in dropped} == {"drops-are-told"}

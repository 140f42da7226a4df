"""A small swarm on the cluster named by the environment; prints where its contexts ran."""

from __future__ import annotations

import json

import noetic_ray as nr
from noetic_ray.testing import ScriptedModel, reply

found = nr.channel("found", str, mode="queue")
WORKERS = 4


@nr.step
async def researcher(topic: str, ctx: nr.Context) -> str:
    answer = await ctx.run(nr.call_model("answer", "any"), topic)
    await ctx.send(found, answer)
    return answer


@nr.step
async def collector(count: int, ctx: nr.Context) -> list[str]:
    return [await ctx.recv(found, timeout=30.0) for _ in range(count)]


@nr.step
async def lead(topics: list[str], ctx: nr.Context) -> list[str]:
    gathering = ctx.detach(collector, len(topics))
    for topic in topics:
        ctx.detach(researcher, topic)
    return sorted(await gathering.result(timeout=60.0))


def answer(request: object) -> object:
    return reply("an answer", input_tokens=3, output_tokens=2)


def main() -> None:
    with nr.Harness("swarm", ScriptedModel(answer)) as harness:
        run = harness.start(lead, [f"topic {n}" for n in range(WORKERS)])
        output = run.result()
        run.response()
        tree = run.tree()
    contexts = [tree, *tree.children]
    print(
        json.dumps(
            {
                "output": output,
                "status": run.status,
                "nodes": [each.node for each in contexts],
                "pids": [each.pid for each in contexts],
                "steps": [each.step for each in contexts],
                "tokens": run.usage.total,
            }
        )
    )


if __name__ == "__main__":
    main()

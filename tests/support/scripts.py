"""Model scripts for the shared harnesses: a step names one with its `model`.

A script is a function of the request at module level, so that actors can import it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import noetic_ray as nr
from tests.support.marks import mark

Script = Callable[[Any], Any]
_scripts: dict[str, Script] = {}


def script(fn: Script) -> Script:
    """Register a script under its function's name."""
    _scripts[fn.__name__] = fn
    return fn


def play(request: Any) -> Any:
    """Answer a request with the script its model names."""
    return _scripts[request.model](request)


def outputs(request: Any) -> list[Any]:
    """The function outputs so far."""
    return [item for item in request.items if item.type == "function_call_output"]


def last_user(request: Any) -> str:
    """The text of the newest user message."""
    users = [item for item in request.items if getattr(item, "role", None) == "user"]
    return users[-1].content[0].text if users else ""


@script
def echo(request: Any) -> Any:
    """Repeat the user's text; ten tokens in, five out, a cent."""
    return nr.testing.reply(
        f"echo: {last_user(request)}", input_tokens=10, output_tokens=5, cost=0.01
    )


@script
def silent_usage(request: Any) -> Any:
    """Answer without any usage."""
    return nr.testing.reply("ok")


@script
def adds(request: Any) -> Any:
    """Call `add` once, then say its result."""
    done = outputs(request)
    if not done:
        return nr.testing.reply(
            calls=[nr.testing.call("add", a=2, b=3)], input_tokens=7, output_tokens=1
        )
    return nr.testing.reply(f"sum {done[-1].output}", input_tokens=9, output_tokens=2)


@script
async def hangs(request: Any) -> Any:
    """Leave a sign in the folder named by the instructions, and never answer."""
    mark(request.instructions, "there")
    await asyncio.sleep(60)


@script
def calls_three(request: Any) -> Any:
    """Call `works` three times in one round, with 0, 1 and 2; then stop."""
    if outputs(request):
        return nr.testing.reply("done")
    return nr.testing.reply(calls=[nr.testing.call("works", n=n) for n in range(3)])

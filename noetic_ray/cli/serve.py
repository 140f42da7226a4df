"""`noetic-ray serve module:agent`: agents behind HTTP, for OpenAI clients and others."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noetic_ray.cli.common import bad_usage, exit_codes, say
from noetic_ray.cli.options import Address, BaseUrl, Placement

if TYPE_CHECKING:
    from noetic_ray.channels import Channel
    from noetic_ray.steps import Step

TARGET = "MODULE:AGENT"


Targets = Annotated[
    list[str],
    typer.Argument(
        metavar=f"{TARGET}...", help="Steps, and lists or dicts of them, by module and name."
    ),
]
Host = Annotated[
    str, typer.Option(help="The address to listen on; any but this machine needs a token.")
]
Port = Annotated[int, typer.Option(min=0, max=65_535, help="The port; 0 takes a free one.")]
Token = Annotated[
    str | None,
    typer.Option(
        envvar="NOETIC_RAY_TOKEN",
        help="What clients must send as Authorization: Bearer. Better in the variable: other "
        "users of this machine see command lines.",
    ),
]
Channels = Annotated[
    list[str] | None,
    typer.Option(
        metavar="MODULE:NAME", help="An external channel clients may send to. May be repeated."
    ),
]
Store = Annotated[str | None, typer.Option(help="An SQLite file that keeps what happened.")]
Name = Annotated[str | None, typer.Option(help="The harness's name. [default: serve-<process id>]")]
ModelProvider = Annotated[
    str | None, typer.Option(metavar="MODULE:NAME", help="A model provider of your own.")
]


def serve(
    targets: Targets,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    token: Token = None,
    channel: Channels = None,
    placement: Placement = "actor",
    store: Store = None,
    name: Name = None,
    address: Address = None,
    base_url: BaseUrl = None,
    model_provider: ModelProvider = None,
) -> None:
    """Serve agents over HTTP until Ctrl-C: OpenAI's chat completions, and runs.

    An agent is a model for clients, named by its step's id or its key in a dict. Modules are
    looked for in the current folder first, and the model provider is found as for `run`.
    /openapi.json describes all routes.

    Exit codes: 1 it could not start, 2 wrong arguments, 130 Ctrl-C, 143 SIGTERM.
    """
    with exit_codes():
        _expect_safe(host, token)
        from noetic_ray import Harness
        from noetic_ray.cli.run import model_of
        from noetic_ray.serve import make_app
        from noetic_ray.serve.server import run_app

        agents = _agents(targets)
        channels = [_channel(each) for each in channel or ()]
        model = model_of(model_provider, base_url)
        with Harness(
            name or f"serve-{os.getpid()}", model, store=store, placement=placement, address=address
        ) as harness:
            app = make_app(harness, agents, token=token, channels=channels)
            run_app(app, host, port, lambda url: _ready(url, agents))


def _expect_safe(host: str, token: str | None) -> None:
    """Before anything is loaded or started."""
    from noetic_ray.serve import expect_installed

    expect_installed()
    from noetic_ray.serve.guard import check_binding

    check_binding(host, token)


def _ready(url: str, agents: Mapping[str, Step[Any, Any]]) -> None:
    say(f"serving {', '.join(agents)} on {url}/v1 (Ctrl-C ends it)")


def _agents(targets: list[str]) -> dict[str, Step[Any, Any]]:
    """All steps by their names; a name twice is a usage error."""
    found: dict[str, Step[Any, Any]] = {}
    for target in targets:
        for name, step in _named(target):
            if name in found:
                bad_usage(f"two agents are named {name!r}", TARGET)
            found[name] = step
    return found


def _named(target: str) -> list[tuple[str, Step[Any, Any]]]:
    from noetic_ray.cli.target import load
    from noetic_ray.steps import Step

    found = load(target, TARGET)
    if isinstance(found, Step):
        return [(found.id, found)]
    if isinstance(found, Mapping):
        pairs = list(found.items())
    elif isinstance(found, list | tuple):
        pairs = [(getattr(each, "id", ""), each) for each in found]
    else:
        what = f"{target} is {type(found).__name__}, no step; make one with @nr.step"
        bad_usage(what, TARGET)
    for name, step in pairs:
        if not isinstance(name, str) or not name or not isinstance(step, Step):
            bad_usage(f"{target} holds {step!r:.100}, which is no step with a name", TARGET)
    if not pairs:
        bad_usage(f"{target} is empty", TARGET)
    return pairs


def _channel(target: str) -> Channel[Any]:
    from noetic_ray.channels import Channel
    from noetic_ray.cli.target import load

    found = load(target, "--channel")
    if not isinstance(found, Channel):
        bad_usage(f"{target} is {type(found).__name__}, not a channel", "--channel")
    return found

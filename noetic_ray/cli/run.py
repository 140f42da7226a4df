"""`noetic-ray run module:agent`: one run of an agent, from the command line."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from noetic_ray.cli.common import answer_alone, bad_usage, console, exit_codes, failed, provider
from noetic_ray.cli.options import Address, BaseUrl, Placement

if TYPE_CHECKING:
    from noetic_ray.errors import NoeticError
    from noetic_ray.harness import Harness, Run
    from noetic_ray.models import Model
    from noetic_ray.steps import Step


def run(
    target: Annotated[
        str, typer.Argument(metavar="MODULE:AGENT", help="A step, by its module and name.")
    ],
    input: Annotated[
        str | None,
        typer.Option("--input", "-i", metavar="TEXT|@FILE|-", help="What the agent is given."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as one JSON object on stdout.")
    ] = False,
    placement: Placement = "actor",
    store: Annotated[
        str | None, typer.Option(help="An SQLite file that keeps what happened.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="The harness's name. [default: run-<process id>]")
    ] = None,
    address: Address = None,
    base_url: BaseUrl = None,
    model_provider: Annotated[
        str | None,
        typer.Option(metavar="MODULE:NAME", help="A model provider of your own."),
    ] = None,
) -> None:
    """Run an agent and print its output; progress goes to stderr.

    Modules are looked for in the current folder first. The model provider is the environment's
    (OPENAI_BASE_URL, OPENAI_API_KEY) unless given.

    Exit codes: 0 done, 1 the run failed, 2 wrong arguments, 130 Ctrl-C, 143 SIGTERM.
    """
    with exit_codes(), answer_alone(as_json) as stdout:
        from noetic_ray import Harness
        from noetic_ray.cli.target import load_step

        step = load_step(target)
        model = model_of(model_provider, base_url)
        given = _input(input)
        with Harness(
            name or f"run-{os.getpid()}", model, store=store, placement=placement, address=address
        ) as harness:
            error = _perform(harness, step, given, as_json, stdout)
        if error is not None:
            failed(error)


def model_of(model_provider: str | None, base_url: str | None) -> Model | None:
    """The provider that options ask for; None when none does and no environment names one."""
    if model_provider is None:
        return provider(base_url)
    if base_url is not None:
        bad_usage("give one of --model-provider and --base-url", "--model-provider")
    from noetic_ray.cli.target import load_model

    return load_model(model_provider)


def _perform(
    harness: Harness, step: Step[Any, Any], given: str | None, as_json: bool, stdout: TextIO
) -> NoeticError | None:
    """Run to the end and print what came of it; the error, if it failed."""
    from noetic_ray.view.live import following

    started = time.monotonic()
    running = harness.start(step, given)
    with following(running, console(stderr=True)):
        output, error = _wait(running)
    elapsed = time.monotonic() - started
    if as_json:
        print(_json(running, output, error, elapsed), file=stdout)
    elif error is None:
        print(_text(output), file=stdout)
    return error


def _input(given: str | None) -> str | None:
    """The text itself, a file's after `@`, or what comes on stdin for `-`."""
    try:
        if given == "-":
            return sys.stdin.read()
        if given is not None and given.startswith("@"):
            return Path(given[1:]).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        bad_usage(f"cannot read {given}: {error}", "--input")
    return given


def _wait(run: Run[Any]) -> tuple[Any, NoeticError | None]:
    from noetic_ray.errors import NoeticError

    try:
        return run.result(), None
    except NoeticError as error:
        return None, error


def _text(output: Any) -> str:
    """Text as it is, everything else as JSON."""
    from noetic_ray.canonical import to_json_bytes

    return output if isinstance(output, str) else to_json_bytes(output).decode()


def _json(run: Run[Any], output: Any, error: NoeticError | None, elapsed: float) -> str:
    from dataclasses import asdict

    from noetic_ray.errors import to_wire

    return _text(
        {
            "run_id": run.id,
            "status": run.status,
            "output": output,
            "error": None if error is None else to_wire(error),
            "usage": asdict(run.usage),
            "cost": run.cost,
            "elapsed": elapsed,
        }
    )

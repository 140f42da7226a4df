"""`noetic-ray demo`: a swarm that reads documents."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from noetic_ray.cli.common import (
    FAILED,
    answer_alone,
    bad_usage,
    console,
    exit_codes,
    provider,
    say,
)
from noetic_ray.cli.options import Address, BaseUrl, Placement, PlacementMode

if TYPE_CHECKING:
    from noetic_ray.cli.demo_result import Result
    from noetic_ray.demo.documents import Document, Problem
    from noetic_ray.demo.report import Report
    from noetic_ray.harness import Harness, Run
    from noetic_ray.models import Model

DEFAULT_MODEL = "gpt-4.1-mini"
DEFAULT_PACE = 0.15
#: A reader takes at least four rounds, so with a third of the time for each it is still busy then.
_ROUNDS_BEFORE_ABORT = 3
_PROBLEMS_SHOWN = 20

Agents = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="How many readers; documents are cut, shared out or read again to that number. "
        "Otherwise one for each document.",
    ),
]
Pace = Annotated[
    float | None,
    typer.Option(
        min=0.0,
        metavar="S",
        help=f"Seconds the embedded model takes for an answer. [default: {DEFAULT_PACE}]",
    ),
]


def demo(
    paths: Annotated[
        list[str] | None,
        typer.Argument(help="Text files, and folders of them. Without any, four that came along."),
    ] = None,
    agents: Agents = None,
    abort_after: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            metavar="S",
            help="Abort the swarm after S seconds of work and tell how it went.",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object, and nothing else, on stdout.")
    ] = False,
    placement: Placement = "actor",
    address: Address = None,
    base_url: BaseUrl = None,
    model: Annotated[
        str | None, typer.Option(help=f"The provider's model. [default: {DEFAULT_MODEL}]")
    ] = None,
    pace: Pace = None,
) -> None:
    """Let a swarm of agents read documents, one reader for each, and report on them.

    A planner starts the readers and a collector, readers call tools and ask helpers for long
    documents, and each of them is a context in an actor of its own. Without a provider
    (OPENAI_BASE_URL, OPENAI_API_KEY, --base-url) they ask an embedded model that works by rules.

    Documents that cannot be read are listed and the others read all the same. The exit code is 0
    if at least one was read, and after an abort that was asked for; otherwise 1.
    """
    with exit_codes(), answer_alone(as_json) as stdout:
        chosen = _model(base_url, model, pace, abort_after)
        result = _perform(
            _Wanted(paths, agents, abort_after, as_json, placement, address),
            chosen,
            model or DEFAULT_MODEL,
        )
        if as_json:
            print(result.json(), file=stdout)
        else:
            result.show(console())
        if not result.succeeded:
            raise typer.Exit(FAILED)


class _Wanted(NamedTuple):
    paths: list[str] | None
    agents: int | None
    abort_after: float | None
    as_json: bool
    placement: PlacementMode
    address: str | None


def _perform(wanted: _Wanted, model: Model, model_name: str) -> Result:
    """Read the documents there are, if any."""
    from noetic_ray import Harness
    from noetic_ray.cli.demo_result import Result
    from noetic_ray.view.texts import plural

    documents, problems = _documents(wanted.paths)
    _tell(problems)
    result = Result()
    if documents:
        if not wanted.as_json:
            place = "in this process" if wanted.placement == "inline" else "Ray"
            say(f"{plural(len(documents), 'document')}; starting {place} ...")
        with Harness(
            f"demo-{os.getpid()}",
            model,
            params={"model": model_name},
            placement=wanted.placement,
            address=wanted.address,
        ) as harness:
            result = _read(harness, documents, wanted)
    result.add(problems)
    return result


def _model(
    base_url: str | None, model: str | None, pace: float | None, abort_after: float | None
) -> Model:
    """The provider, or the embedded model, slow enough to be caught by an abort."""
    given = provider(base_url)
    if given is not None:
        if pace is not None:
            bad_usage("the pace is the embedded model's, but there is a provider", "--pace")
        return given
    if model is not None:
        bad_usage("needs a provider: --base-url, OPENAI_BASE_URL or OPENAI_API_KEY", "--model")
    from noetic_ray.demo.model import ReaderModel

    if pace is None:
        pace = max(DEFAULT_PACE, (abort_after or 0.0) / _ROUNDS_BEFORE_ABORT)
    return ReaderModel(pace)


def _documents(paths: list[str] | None) -> tuple[list[Document], list[Problem]]:
    from noetic_ray.demo.documents import load, samples

    return load(paths) if paths else (samples(), [])


def _tell(problems: list[Problem]) -> None:
    for problem in problems[:_PROBLEMS_SHOWN]:
        say(f"error: cannot read {problem}")
    if len(problems) > _PROBLEMS_SHOWN:
        say(f"... and {len(problems) - _PROBLEMS_SHOWN} more")


def _read(harness: Harness, documents: list[Document], wanted: _Wanted) -> Result:
    """Run the swarm to its end, or to its abort."""
    from noetic_ray.demo.swarm import Task, planner
    from noetic_ray.view.live import following

    started = time.monotonic()
    run = harness.start(planner, Task(documents, wanted.agents))
    progress = following(run, console(stderr=True), tools=False, quiet=wanted.as_json)
    with progress as watch:
        if wanted.abort_after is not None:
            watch.at_work.wait()
        result = _wait(run, wanted.abort_after)
    result.elapsed = time.monotonic() - started
    result.lines = watch.settled(run)
    result.usage = run.usage
    return result


def _wait(run: Run[Report], abort_after: float | None) -> Result:
    from noetic_ray.cli.demo_result import Result
    from noetic_ray.errors import NoeticError

    try:
        return Result(report=run.result(abort_after))
    except TimeoutError:
        return Result(abort=run.abort(f"asked to after {abort_after:g} s"))
    except NoeticError as error:
        return Result(error=error)

"""What the commands share: exit codes, the two consoles, the provider of the environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn, TextIO

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from noetic_ray.errors import NoeticError
    from noetic_ray.models import OpenAI

FAILED = 1
BAD_USAGE = 2
INTERRUPTED = 130
_PROVIDER_VARIABLES = ("OPENAI_BASE_URL", "OPENAI_API_KEY")
_PLAIN_WIDTH = 160


@contextmanager
def exit_codes() -> Iterator[None]:
    """Turn what ends a command into its exit code: 1 for our errors, 130 for Ctrl-C.

    SIGTERM, which ends every harness first, is 143.
    """
    from noetic_ray.errors import NoeticError
    from noetic_ray.harness import signals

    signals.install()
    try:
        yield
    except KeyboardInterrupt:
        say("interrupted")
        raise typer.Exit(INTERRUPTED) from None
    except NoeticError as error:
        failed(error)


@contextmanager
def answer_alone(wanted: bool) -> Iterator[TextIO]:
    """The stream for a command's answer; with `wanted` nothing else gets to stdout meanwhile.

    Ray, and steps that run in this process, print there too.
    """
    stdout = sys.stdout
    if not wanted:
        yield stdout
        return
    sys.stdout = sys.stderr
    try:
        yield stdout
        stdout.flush()
    finally:
        sys.stdout = stdout


def say(text: str) -> None:
    """A line for people, on stderr."""
    print(text, file=sys.stderr, flush=True)


def bad_usage(text: str, parameter: str) -> NoReturn:
    """End with exit code 2 and a text about one argument."""
    raise typer.BadParameter(text, param_hint=parameter)


def console(stderr: bool = False) -> Console:
    """A console that is wide enough for a table where there is no terminal to ask."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _PLAIN_WIDTH
    return Console(stderr=stderr, width=width, highlight=False)


def provider(base_url: str | None) -> OpenAI | None:
    """The provider that was asked for, or that the environment names, or none."""
    if base_url is None and not any(os.environ.get(name) for name in _PROVIDER_VARIABLES):
        return None
    from noetic_ray.errors import ConfigError
    from noetic_ray.models import OpenAI

    try:
        return OpenAI(base_url)
    except ConfigError as error:
        bad_usage(str(error), "--base-url" if base_url is not None else "the environment")


def failed(error: NoeticError) -> NoReturn:
    """End with exit code 1 and the error, under the traceback of the code that raised it."""
    from noetic_ray.errors import StepFailed

    if isinstance(error, StepFailed) and error.cause.traceback:
        say(error.cause.traceback.rstrip())
    say(f"error: {error.kind}: {error}")
    raise typer.Exit(FAILED) from None

"""The commands put together. Only what `--help` needs is imported here."""

from __future__ import annotations

from typing import Annotated

import typer

import noetic_ray
from noetic_ray.cli.demo import demo
from noetic_ray.cli.run import run
from noetic_ray.cli.serve import serve
from noetic_ray.cli.submit import submit

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(demo)
app.command()(run)
app.command()(serve)
app.command()(submit)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"noetic-ray {noetic_ray.__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Swarms of agents on Ray: every execution context is an actor that owns its log."""

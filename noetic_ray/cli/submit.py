"""`noetic-ray submit module:agent`: a run as a job of a Ray cluster."""

from __future__ import annotations

import os
import secrets
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from noetic_ray.cli.common import bad_usage, exit_codes, say

MAX_INPUT = 100_000
"""Bytes of input that a command line carries safely."""
DEFAULT_ADDRESS = "http://127.0.0.1:8265"

Target = Annotated[
    str, typer.Argument(metavar="MODULE:AGENT", help="A step, by its module and name.")
]
Input = Annotated[
    str | None,
    typer.Option("--input", "-i", metavar="TEXT|@FILE|-", help="What the agent is given."),
]
AsJson = Annotated[
    bool, typer.Option("--json", help="The job prints its result as one JSON object.")
]
Address = Annotated[
    str,
    typer.Option(help="The URL of the cluster's job server.", envvar="RAY_API_SERVER_ADDRESS"),
]
WorkingDir = Annotated[Path, typer.Option(help="The folder to send; the job starts in it.")]
Needs = Annotated[
    list[Path] | None,
    typer.Option(metavar="PATH", help="A file or folder the job opens. May be repeated."),
]
Exclude = Annotated[
    list[str] | None,
    typer.Option(metavar="PATTERN", help="Not to be sent, as in .gitignore. Repeatable."),
]
NoGitignore = Annotated[
    bool, typer.Option("--no-gitignore", help="Send what .gitignore files leave out.")
]
Env = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME[=VALUE]",
        help="A variable for the job, this shell's without =VALUE. The cluster's dashboard "
        "shows it.",
    ),
]
BaseUrl = Annotated[
    str | None, typer.Option(help="A model server, as for `run`, seen from the cluster.")
]
ModelProvider = Annotated[
    str | None,
    typer.Option(metavar="MODULE:NAME", help="A model provider of your own, as for `run`."),
]
NoWait = Annotated[bool, typer.Option("--no-wait", help="Print the job's id and return at once.")]
Leave = Annotated[
    bool, typer.Option("--leave", help="Ctrl-C leaves the job running; otherwise stops it.")
]


def submit(
    target: Target,
    input: Input = None,
    as_json: AsJson = False,
    address: Address = DEFAULT_ADDRESS,
    working_dir: WorkingDir = Path(),
    needs: Needs = None,
    exclude: Exclude = None,
    no_gitignore: NoGitignore = False,
    env: Env = None,
    base_url: BaseUrl = None,
    model_provider: ModelProvider = None,
    no_wait: NoWait = False,
    leave: Leave = False,
) -> None:
    """Send this folder to a cluster, run an agent there as a job and follow its log.

    What is sent is checked first: its size, and that files the module imports or that --needs
    names are not left out by ignore files.

    Exit codes: those of the job; 1 when it was not started, failed without one, or was stopped
    by somebody else; 130 Ctrl-C.
    """
    with exit_codes():
        from noetic_ray.cli import jobs, preflight

        module = _module(target)
        root = working_dir.absolute()
        argument, needed = _input(input, root)
        package, warnings = preflight.check(
            root,
            module,
            [*(needs or ()), *needed, *_own_modules(model_provider)],
            excludes=exclude or (),
            gitignore=not no_gitignore,
        )
        for warning in warnings:
            say(f"warning: {warning}")
        client = jobs.connect(address)
        say(f"sending {preflight.amount(package.size)} from {root}, files: {len(package.sent)}")
        job = jobs.start(
            client,
            _entrypoint(target, argument, as_json, base_url, model_provider),
            root,
            exclude or (),
            not no_gitignore,
            _variables(env or ()),
        )
        if no_wait:
            print(job)
            say(f"follow it with: ray job logs {job} --follow --address {address}")
            return
        say(f"job {job} is submitted")
        code = jobs.follow(client, job, stop_on_interrupt=not leave)
    raise typer.Exit(code)


def _module(target: str) -> str:
    module, colon, name = target.partition(":")
    if not (module and colon and name):
        bad_usage(f"{target!r} is not of the form module:name", "MODULE:AGENT")
    return module


def _own_modules(provider: str | None) -> list[Path]:
    """The file of a provider's module, when it is one of the working directory."""
    if provider is None:
        return []
    path = Path(*_module(provider).split(".")).with_suffix(".py")
    return [path] if path.is_file() else []


def _input(given: str | None, root: Path) -> tuple[str | None, list[Path]]:
    """What the job gets as its --input, and the files that it reads for it.

    A file of the working directory is named to the job; what comes from elsewhere is read here.
    """
    if given is None:
        return None, []
    if given.startswith("@"):
        path = Path(os.path.normpath(Path(given[1:]).absolute()))
        if path.is_relative_to(root):
            inside = path.relative_to(root)
            return f"@{inside.as_posix()}", [inside]
    text = _read(given)
    if len(text.encode()) > MAX_INPUT:
        bad_usage(
            f"more than {MAX_INPUT} bytes do not fit on a command line; put them into a file of "
            "the working directory and give @FILE",
            "--input",
        )
    return text, []


def _read(given: str) -> str:
    try:
        if given == "-":
            return sys.stdin.read()
        if given.startswith("@"):
            return Path(given[1:]).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        bad_usage(f"cannot read {given}: {error}", "--input")
    return given


def _entrypoint(
    target: str,
    argument: str | None,
    as_json: bool,
    base_url: str | None,
    model_provider: str | None,
) -> str:
    """The job's command, for a shell of the cluster."""
    name = f"job-{secrets.token_hex(4)}"  # process ids repeat in the containers of a cluster
    words = ["python", "-m", "noetic_ray.cli", "run", target, f"--name={name}"]
    if argument is not None:
        words.append(f"--input={argument}")
    if as_json:
        words.append("--json")
    if base_url is not None:
        words.append(f"--base-url={base_url}")
    if model_provider is not None:
        words.append(f"--model-provider={model_provider}")
    return shlex.join(words)


def _variables(given: list[str] | tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals and name not in os.environ:
            bad_usage(f"{name} is not set in this shell", "--env")
        found[name] = value if equals else os.environ[name]
    return found

from __future__ import annotations

import subprocess
import sys

import noetic_ray as nr
from tests.cli.conftest import Here

HEAVY = ("ray", "rich", "httpx", "pydantic", "opentelemetry")


def loaded_by(code: str) -> set[str]:
    """Which heavy modules a program has imported at its end."""
    script = f"{code}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split()) & {*HEAVY, "typer"}


def test_importing_the_library_loads_nothing_heavy() -> None:
    assert loaded_by("import noetic_ray") == set()


def test_help_needs_nothing_heavy() -> None:
    assert loaded_by("import noetic_ray.cli.app") == {"typer"}


def test_the_version_is_the_library_s(cli: Here) -> None:
    assert cli("--version") == (0, f"noetic-ray {nr.__version__}\n", "")


def test_help_names_every_command(cli: Here) -> None:
    done = cli("--help")
    assert done.code == 0
    assert all(f"\n  {command} " in done.out for command in ("demo", "run", "submit"))


def test_every_option_is_explained(cli: Here) -> None:
    for command in ("demo", "run"):
        done = cli(command, "--help")
        assert done.code == 0
        assert "--placement" in done.out


def test_an_unknown_command_is_a_usage_error(cli: Here) -> None:
    assert cli("dance").code == 2

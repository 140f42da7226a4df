"""The `noetic-ray` command."""

from __future__ import annotations


def main() -> None:
    """Run the command with the arguments of this process, and exit."""
    from noetic_ray.cli.app import app

    app(prog_name="noetic-ray")

"""`python -m noetic_ray.cli`: the command without its script."""

from __future__ import annotations

from noetic_ray.cli import main

if __name__ == "__main__":
    main()

"""What importing the library costs beyond importing Ray."""

from __future__ import annotations

import statistics
import subprocess
import sys

RAY = "import ray"
OURS = "import noetic_ray as nr; nr.Harness, nr.step, nr.MessageItem, nr.models.OpenAI"
TIMED = "import time; t = time.perf_counter(); {code}; print(time.perf_counter() - t)"


def _seconds(code: str, before: str = "") -> float:
    script = (f"{before}; " if before else "") + TIMED.format(code=code)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    return float(done.stdout)


def run(repeats: int = 7) -> dict[str, float]:
    """import_over_ray: our import in a process that has imported Ray, over Ray's own."""
    _seconds(RAY)
    _seconds(OURS, RAY)
    ray_seconds, ours = [], []
    for _ in range(repeats):
        ray_seconds.append(_seconds(RAY))
        ours.append(_seconds(OURS, RAY))
    ray_median, ours_median = statistics.median(ray_seconds), statistics.median(ours)
    return {
        "import_over_ray": ours_median / ray_median,
        "import_ray_s": ray_median,
        "import_noetic_ray_s": ours_median,
    }

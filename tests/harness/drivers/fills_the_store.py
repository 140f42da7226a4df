"""Returns more than the object store holds, and reads a long log again and again."""

from __future__ import annotations

import re
import sys

import ray
from ray._private.internal_api import memory_summary

from tests.harness.drivers.steps import harness, thirty_megabytes, writes_a_long_log
from tests.support.marks import mark

READS = 100
ITEMS = 5_000


def megabytes_used() -> float:
    """What the object store holds now."""
    summary = memory_summary(ray.get_runtime_context().gcs_address, stats_only=True)
    found = re.search(r"Plasma memory usage (\d+) MiB", summary)
    assert found, summary
    return float(found[1])


def main(folder: str) -> None:
    ray.init(
        address="local", include_dashboard=False, log_to_driver=False, num_cpus=2,
        object_store_memory=100 * 1024 * 1024,
    )  # fmt: skip
    with harness() as opened:
        outputs = opened.map(thirty_megabytes, range(8))
        mark(folder, "outputs", [(len(each), each[0], each[-1]) for each in outputs])
        run = opened.start(writes_a_long_log, ITEMS)
        run.result()
        lengths = {len(run.items(since=n * 49)) for n in range(READS)}
        mark(folder, "lengths", [max(lengths), min(lengths), len(lengths)])
        mark(folder, "used", megabytes_used())
    ray.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])

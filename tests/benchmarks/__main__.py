"""`make bench`: run every measurement and write `.bench/results.json`.

python -m tests.benchmarks                 all of them
python -m tests.benchmarks spawning swarm  some of them
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import time
from pathlib import Path

#: Module and the keys it must reach: (key, reach, "most" or "least").
MEASUREMENTS: dict[str, list[tuple[str, float, str]]] = {
    "importing": [("import_over_ray", 0.35, "most")],
    "journal": [("append_over_list", 5.0, "most")],
    "stepping": [("step_us_200", 400, "most"), ("step_200_over_20", 1.2, "most")],
    "spawning": [
        ("spawn_warm_over_call", 1.6, "most"),
        ("spawn_shared_1000_over_calls", 0.5, "most"),
        ("spawn_inline_over_call", 0.1, "most"),
    ],
    "channels": [("channel_one_by_one", 0.9, "least"), ("channel_bulk", 100, "least")],
    "aborting": [
        ("abort_111_over_calls", 2.0, "most"),
        ("abort_111_shared_over_calls", 1.0, "most"),
    ],
    "windows": [
        ("assembly_10k_over_1k", 1.3, "most"),
        ("prefix_stable_turns", 1.0, "least"),
        ("cached_share", 3.0, "least"),
    ],
    "tracing": [("trace_add_us", 60, "most")],
    "mcp_calls": [
        ("mcp_call_overhead", 1.8, "most"),
        ("mcp_100_parallel_over_serial", 1.3, "most"),
    ],
    "first_token": [("first_token_added_ms", 15, "most")],
    "memory": [("shared_context_kb", 16, "most"), ("actor_uss_over_raw", 1.25, "most")],
    "swarm": [("swarm_1000_over_asyncio", 3.0, "most"), ("swarm_cpu_ms_per_agent", 4.0, "most")],
}
RESULTS = Path(".bench/results.json")
ONE = """
import json, sys, importlib
figures = importlib.import_module("tests.benchmarks." + sys.argv[1]).run()
print("RESULT " + json.dumps(figures))
"""


def measure(name: str) -> dict[str, float]:
    """Run one module in a process of its own, so that none disturbs the next."""
    command = [sys.executable, "-c", ONE, name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    for line in done.stdout.splitlines():
        if line.startswith("RESULT "):
            figures: dict[str, float] = json.loads(line[7:])
            return figures
    raise SystemExit(f"{name} gave no result:\n{done.stderr[-4000:]}")


def main(names: list[str]) -> None:
    """Measure, print a table, write the file."""
    unknown = [name for name in names if name not in MEASUREMENTS]
    if unknown:
        raise SystemExit(f"unknown: {', '.join(unknown)}; known: {', '.join(MEASUREMENTS)}")
    results = json.loads(RESULTS.read_text()) if names and RESULTS.exists() else {}
    for name in names or list(MEASUREMENTS):
        begun = time.monotonic()
        figures = measure(name)
        results.update({key: round(value, 4) for key, value in figures.items()})
        for key, reach, kind in MEASUREMENTS[name]:
            value = results[key]
            met = value <= reach if kind == "most" else value >= reach
            sign = "<=" if kind == "most" else ">="
            print(f"{key:32} {value:10.3f}  {sign} {reach:<6g} {'ok' if met else 'MISSED'}")
        print(f"  ({name}: {time.monotonic() - begun:.0f} s)", flush=True)
    results["machine"] = f"{platform.machine()} {platform.python_version()}"
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])

"""Every notebook runs from top to bottom in a fresh kernel of this environment."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

from tests.docs.fences import ROOT, matches

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
#: What cells must give, by notebook and cell id; `...` stands for anything on its line.
EXPECTED = {
    "01_quickstart": {
        "run": "{'clouds': 'clouds move', 'tides': 'tides move', 'winds': 'winds move'}",
        "tree": (
            "planner completed 0 66\n" + "  reader completed 2 22\n" * 3 + "... processes, $0.003"
        ),
        "items": (
            "[[('user', 'clouds'), ('assistant', 'clouds move')],\n"
            " [('user', 'tides'), ('assistant', 'tides move')],\n"
            " [('user', 'winds'), ('assistant', 'winds move')]]"
        ),
        "await": "'stars move'",
        "abort": "4 reached, 4 settled, 0 killed; cancelled",
    },
    "02_context_layers": {
        "compare": (
            "without anchoring: 1% of 34,221 prompt tokens were cached\n"
            "with anchoring: 89% of 35,903 prompt tokens were cached"
        ),
        "window": "WindowView(model='gpt-4.1-mini', tokens=..., bands=6, layers=3)",
        "usage": (
            "clock anchor pinned changed\n"
            "instructions anchor pinned unchanged\n"
            "scratchpad anchor pinned unchanged\n"
            "epoch 0 age 30 None"
        ),
        "preview": (
            "[('developer', 'It is 00:01.'),\n"
            " ('developer', '<instructions>\\nFerries leave'),\n"
            " ('user', 'And on Sundays?')]"
        ),
        "children": ("{'each reader knew': [1, 1, 1], 'all know': ['clouds', 'tides', 'winds']}"),
    },
    "03_human_in_the_loop": {
        "start": (
            "M1 text {'content': 'Step 2/3: 3 orders were late, waiting for a person.'}\n"
            "question approval {'refund': ['tea', 'bread', 'jam']}"
        ),
        "answer": "'Good news: Refunds for tea, bread, jam: sent.'",
        "shown": (
            "M1 text {'content': 'Step 3/3: done.'}\nquestion text {'content': 'Answered: yes.'}"
        ),
        "frames": (
            "{'type': 'text', 'props': {'content': 'Step 1/3: checking 4 orders...'}, "
            "'message_id': 'M1'}\n"
            "{'type': 'text', 'props': {'content': 'Step 2/3: 3 orders were late, waiting for a "
            "person.'}, 'message_id': 'M1', 'delta': True, 'delta_action': 'replace'}"
        ),
        "trace": "TraceView(...)",
        "nodes": (
            "Ask a person approval completed {'allowed': True}\n"
            "Check bread check completed {'late': True}\n"
            "Check coffee check completed {'late': False}\n"
            "Check jam check completed {'late': True}\n"
            "Check tea check completed {'late': True}\n"
            "Refunds plan completed None"
        ),
        "tools": (
            "delete_order {'order': 'jam'}\n"
            "'error: the call was denied: orders are kept for a year'"
        ),
    },
}


class ThisPython(KernelSpecManager):
    """Kernels are this interpreter, whatever is installed under that name elsewhere."""

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        """The kernel `python3`, the only one notebooks here may ask for."""
        assert kernel_name == "python3"
        command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        return KernelSpec(argv=command, display_name="Python 3", language="python")


def _run(path: Path, folder: Path) -> Any:
    notebook = nbformat.read(path, as_version=4)
    manager = AsyncKernelManager(kernel_name="python3", kernel_spec_manager=ThisPython())
    client = NotebookClient(
        notebook,
        km=manager,
        timeout=100,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
    )
    try:
        return client.execute(env={**os.environ, "RAY_ADDRESS": "local"})
    finally:
        asyncio.run(_shut_down(manager))


async def _shut_down(manager: AsyncKernelManager) -> None:
    """The client leaves a kernel alone that it was given."""
    if await manager.is_alive():
        await manager.shutdown_kernel(now=True)


def _given(cell: Any) -> str:
    """What a cell printed, then its value."""
    printed = "".join(out.text for out in cell.outputs if out.get("name") == "stdout")
    values = [out.data["text/plain"] for out in cell.outputs if out.output_type == "execute_result"]
    return printed + "".join(values)


@pytest.mark.ray
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_gives_what_is_expected(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    notebook = _run(path, tmp_path)  # a cell that fails raises CellExecutionError with its text
    given = {cell.id: _given(cell) for cell in notebook.cells if cell.cell_type == "code"}
    expected = EXPECTED[path.stem]
    assert expected.keys() <= given.keys()
    wrong = {id: given[id] for id, shown in expected.items() if not matches(shown, given[id])}
    assert wrong == {}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_without_outputs_for_the_plain_kernel(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert notebook.metadata.kernelspec.name == "python3"
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in cells)


def test_every_notebook_has_expected_outputs() -> None:
    assert {path.stem for path in NOTEBOOKS} == EXPECTED.keys()

from __future__ import annotations

import sys
from pathlib import Path

import pytest

mypy = pytest.importorskip("mypy.api")
HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def complaints(path: Path, tmp_path: Path) -> list[str]:
    """What mypy says about one file, not about what it imports."""
    options = [
        "--strict",
        "--follow-imports=silent",
        f"--cache-dir={tmp_path}",
        f"--python-executable={sys.executable}",
        f"--config-file={ROOT / 'pyproject.toml'}",
    ]
    said, trouble, _ = mypy.run([*options, str(path)])
    assert not trouble, trouble
    return [line for line in said.splitlines() if ": error:" in line]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_steps_and_tools_keep_the_types_of_their_functions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    assert complaints(HERE / "steps_and_tools.py", tmp_path) == []
    broken = tmp_path / "broken.py"
    broken.write_text(
        "from noetic_ray.steps import step\n\n\n"
        "@step\n"
        "def count(text: str) -> int:\n"
        "    return len(text)\n\n\n"
        "result: str = count(3)\n"
    )
    found = complaints(broken, tmp_path)
    assert len(found) == 2, found


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_layers_have_typed_handles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert complaints(HERE / "layers.py", tmp_path) == []
    broken = tmp_path / "broken.py"
    broken.write_text(
        "import noetic_ray as nr\n"
        "from tests.typing.layers import counter\n\n\n"
        "async def body(_: None, ctx: nr.Context) -> None:\n"
        "    await ctx.context[counter].add(m=1)\n"
        "    ctx.context[counter].nothing\n"
    )
    found = complaints(broken, tmp_path)
    assert len(found) == 2, found


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_messages_trace_and_spaces_are_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    assert complaints(HERE / "client.py", tmp_path) == []

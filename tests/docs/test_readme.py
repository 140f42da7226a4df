"""What the README shows is run, and what it says was printed is compared."""

from __future__ import annotations

import ast
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import noetic_ray as nr
from noetic_ray import errors
from tests.docs.fences import ROOT, Block, Ran, blocks, matches, run_session
from tests.support.model_server import ModelServer, Part

README = ROOT / "README.md"
BLOCKS = blocks(README)
PYTHON = [block for block in BLOCKS if block.language == "python"]
COMMANDS = [
    line.partition("#")[0].strip()
    for block in BLOCKS
    if block.language == "bash"
    for line in block.code.splitlines()
    if line.startswith(("noetic-ray ", "make "))
]
TEXT = README.read_text("utf-8")


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> list[Ran]:
    """All Python blocks, run in order, with a local server in the place of OpenAI's."""
    with ModelServer(Part(rounds=0, text="Sunny.")) as server:
        environment = {
            "OPENAI_BASE_URL": server.url,
            "OPENAI_API_KEY": "sk-test",
            "RAY_ADDRESS": "",
        }
        folder = tmp_path_factory.mktemp("readme")
        ran = run_session("README.md", PYTHON, folder, environment, timeout=110)
        assert len(server.requests) == 2, "the block with a real provider asks it twice"
    return ran


def test_every_fence_has_a_language() -> None:
    assert {block.language for block in BLOCKS} == {"python", "bash"}


@pytest.mark.ray
@pytest.mark.parametrize("number", range(len(PYTHON)), ids=lambda n: f"line {PYTHON[n].line}")
def test_a_python_block_runs_and_prints_what_is_shown(session: list[Ran], number: int) -> None:
    block = PYTHON[number]
    assert number < len(session), "a block before this one failed"
    ran = session[number]
    assert ran.error is None, ran.error
    if block.shown is not None:
        assert matches(block.shown, ran.printed), f"shown:\n{block.shown}\nprinted:\n{ran.printed}"


@pytest.mark.ray
def test_the_test_that_is_shown_was_called(session: list[Ran]) -> None:
    assert [test for ran in session for test in ran.tests] == [
        "test_the_clerk_looks_before_it_answers"
    ]


def test_the_first_program_is_short_and_shows_its_output() -> None:
    first = PYTHON[0]
    assert len(first.code.splitlines()) < 12
    assert first.shown is not None
    assert "ScriptedModel" in first.code


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith("noetic-ray ")])
def test_a_command_that_is_shown_exists(command: str) -> None:
    words = shlex.split(command)[1:]
    options = [word for word in words if word.startswith("--")]
    code = "import sys; from noetic_ray.cli import main; sys.argv[0] = 'noetic-ray'; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, words[0], "--help"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f"noetic-ray {words[0]} " in done.stdout
    assert [option for option in options if f"{option} " not in done.stdout] == []


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith("make ")])
def test_a_make_target_that_is_shown_exists(command: str) -> None:
    done = subprocess.run(
        [*shlex.split(command), "--dry-run"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_targets_and_commands_named_in_the_text_exist() -> None:
    targets = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert targets is not None
    assert set(re.findall(r"`make (\w+)`", TEXT)) <= set(targets[1].split())
    assert set(re.findall(r"`noetic-ray (\w+)", TEXT)) <= {"demo", "run", "serve", "submit"}


def test_links_lead_to_files() -> None:
    links = [link for link in re.findall(r"\]\(([^)]+)\)", TEXT) if "://" not in link]
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_table_of_errors_is_complete() -> None:
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \|", TEXT, re.MULTILINE)
    public = {
        name: getattr(nr, name)
        for name in nr.__all__
        if isinstance(getattr(nr, name), type)
        and issubclass(getattr(nr, name), errors.NoeticError)
        and name != "NoeticError"
    }
    assert dict(rows) == {cls.kind: name for name, cls in public.items()}


def _names(code: str) -> set[str]:
    return {
        node.attr
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "nr"
    }


def test_names_of_the_package_in_the_text_exist() -> None:
    prose = set(re.findall(r"\bnr\.(\w+)", TEXT))
    shown = {name for block in PYTHON for name in _names(block.code)}
    assert prose | shown <= set(nr.__all__)


def test_dots_in_an_output_stand_for_anything_on_their_line(tmp_path: Path) -> None:
    assert matches("a(...)\nb", "a(1, 2)\nb\n")
    assert not matches("a ... b", "a\nb")
    assert not matches("a", "a b")
    page = tmp_path / "page.md"
    page.write_text("x\n```python\n1\n```\n\n```text\n2\n```\n\nthen\n```text\n3\n```\n")
    assert blocks(page) == [Block("python", "1\n", 3, "2\n"), Block("text", "3\n", 12, None)]

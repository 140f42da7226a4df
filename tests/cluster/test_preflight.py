"""What would be sent to a cluster, and what is refused before anything is."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ray._private import ray_constants
from ray._private.runtime_env import packaging

from noetic_ray import ConfigError
from noetic_ray.cli import preflight
from noetic_ray.cli.imports import reach

Make = Callable[..., Path]


@pytest.fixture
def project(tmp_path: Path) -> Make:
    """Makes a working directory of files with the given contents, sizes or a default."""

    def make(**files: str | int) -> Path:
        root = tmp_path / "project"
        for name, content in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content if isinstance(content, str) else "x" * content)
        return root

    return make


@pytest.fixture
def small_limit(monkeypatch: pytest.MonkeyPatch) -> int:
    """Lets the job server take a megabyte."""
    monkeypatch.setattr(ray_constants, "DASHBOARD_CLIENT_MAX_SIZE", 2**20)
    return 2**20


def packed_by_ray(root: Path, target: Path, excludes: list[str], gitignore: bool) -> Iterator[str]:
    """The files in the archive that Ray makes."""
    packaging.create_package(
        str(root),
        target,
        include_gitignore=gitignore,
        excludes=[*ray_constants.get_runtime_env_default_excludes(), *excludes],
    )
    with zipfile.ZipFile(target) as archive:
        yield from (name for name in archive.namelist() if not name.endswith("/"))


@pytest.mark.parametrize("gitignore", [True, False])
@pytest.mark.parametrize("excludes", [[], ["*.bin"], ["*"], ["data/", "!data/keep.txt"]])
def test_the_package_is_the_one_that_ray_makes(
    project: Make, tmp_path: Path, excludes: list[str], gitignore: bool
) -> None:
    root = project(
        **{
            "agent.py": "",
            "data/keep.txt": "k",
            "data/model.bin": "m",
            "prompts/secret.txt": "s",
            "prompts/open.txt": "o",
            "prompts/.gitignore": "secret.txt\n",
            ".gitignore": "*.log\nbuild/\n!kept.log\n",
            ".rayignore": "heavy\n",
            "heavy/weights": "w",
            "run.log": "l",
            "kept.log": "l",
            "build/out.txt": "b",
            ".git/objects/ab": "g",
            "pkg/__pycache__/a.pyc": "p",
            "pkg/__init__.py": "",
        }
    )
    package = preflight.pack(root, excludes=excludes, gitignore=gitignore)
    archive = tmp_path / "package.zip"
    assert set(package.sent) == set(packed_by_ray(root, archive, excludes, gitignore))
    assert package.size == archive.stat().st_size


def test_a_directory_over_the_limit_is_refused_with_its_largest_paths(
    project: Make, small_limit: int
) -> None:
    root = project(
        **{
            "agent.py": "",
            "data/a.bin": 700_000,
            "data/b.bin": 400_000,
            "notes.txt": 10,
            ".git/pack": 5_000_000,
        }
    )
    with pytest.raises(ConfigError) as caught:
        preflight.check(root, "agent")
    assert caught.value.code == "WORKING_DIR_TOO_LARGE"
    lines = [line.split() for line in str(caught.value).splitlines()[1:4]]
    assert lines == [
        ["1.0", "MiB", "data/"],
        ["0.7", "MiB", "data/a.bin"],
        ["0.4", "MiB", "data/b.bin"],
    ]
    assert "takes 1.0 MiB" in str(caught.value)
    assert ".rayignore" in str(caught.value.hint)

    package, _ = preflight.check(root, "agent", excludes=["data/a.bin"])
    assert package.size < small_limit


def test_what_git_keeps_does_not_count(project: Make, small_limit: int) -> None:
    root = project(**{"agent.py": "", ".git/pack": 5_000_000, ".venv/lib/x.py": 5_000_000})
    package, _ = preflight.check(root, "agent")
    assert set(package.sent) == {"agent.py"}


def test_ignored_files_that_a_job_needs_are_refused(project: Make) -> None:
    root = project(
        **{
            "agent.py": "import helpers.texts\nfrom settings import KEY\n",
            "helpers/__init__.py": "",
            "helpers/texts.py": "from . import local\n",
            "helpers/local.py": "",
            "settings.py": "KEY = 1\n",
            "prompts/system.txt": "p",
            ".gitignore": "settings.py\nprompts/\nhelpers/local.py\n",
        }
    )
    with pytest.raises(ConfigError) as caught:
        preflight.check(root, "agent", [Path("prompts/system.txt"), Path("nowhere.txt")])
    assert caught.value.code == "NEEDED_FILES_MISSING"
    told = [line.strip() for line in str(caught.value).splitlines()[1:5]]
    assert sorted(told) == [
        "helpers/local.py is ignored by .gitignore",
        "nowhere.txt does not exist",
        "prompts/system.txt is ignored by .gitignore",
        "settings.py is ignored by .gitignore",
    ]
    package, _ = preflight.check(root, "agent", [Path("prompts")], gitignore=False)
    assert "prompts/system.txt" in package.sent


def test_a_needed_folder_with_an_ignored_file_is_refused(project: Make) -> None:
    root = project(**{"agent.py": "", "p/a.txt": "a", "p/b.txt": "b", ".rayignore": "p/b.txt\n"})
    with pytest.raises(ConfigError, match=r"p holds p/b.txt, which is ignored by .rayignore"):
        preflight.check(root, "agent", [Path("p")])


def test_a_needed_file_outside_of_the_directory_is_refused(project: Make) -> None:
    root = project(**{"agent.py": ""})
    with pytest.raises(ConfigError, match=r"other\.txt is outside the working directory"):
        preflight.check(root, "agent", [root.parent / "other.txt"])


def test_ignored_files_whose_names_stand_in_the_code_are_warned_of(project: Make) -> None:
    root = project(
        **{
            "agent.py": "from pkg import texts\nPROMPTS = open('prompts.txt')\n",
            "pkg/__init__.py": "",
            "pkg/texts.py": "NAME = 'words.txt'\nOTHER = 'sent.txt'\n",
            "pkg/words.txt": "w",
            "sent.txt": "s",
            "prompts.txt": "p",
            ".gitignore": "prompts.txt\nwords.txt\n",
        }
    )
    _, warnings = preflight.check(root, "agent")
    assert sorted(warnings) == [
        "agent.py mentions 'prompts.txt', which is ignored by .gitignore",
        "pkg/texts.py mentions 'words.txt', which is ignored by .gitignore",
    ]


def test_excluding_everything_is_noticed(project: Make) -> None:
    root = project(**{"agent.py": ""})
    with pytest.raises(ConfigError, match=r"agent\.py is ignored by --exclude"):
        preflight.check(root, "agent", excludes=["*"])


def test_a_module_that_is_nowhere_is_refused(project: Make) -> None:
    root = project(**{"agent.py": "", "broken.py": "def"})
    with pytest.raises(ConfigError, match="no module 'agnet'") as caught:
        preflight.check(root, "agnet")
    assert caught.value.code == "UNKNOWN_MODULE"
    with pytest.raises(ConfigError) as caught:
        preflight.check(root, "broken")
    assert caught.value.code == "BROKEN_MODULE"
    with pytest.raises(ConfigError) as caught:
        preflight.check(root / "absent", "agent")
    assert caught.value.code == "NO_WORKING_DIR"
    preflight.check(root, "json.decoder")


def test_a_folder_linked_into_itself_is_refused(project: Make) -> None:
    root = project(**{"agent.py": ""})
    (root / "loop").symlink_to(root)
    with pytest.raises(ConfigError) as caught:
        preflight.check(root, "agent")
    assert caught.value.code == "WORKING_DIR_LOOP"
    package, _ = preflight.check(root, "agent", excludes=["loop"])
    assert set(package.sent) == {"agent.py"}


def test_imports_are_followed_through_packages_and_functions(project: Make) -> None:
    root = project(
        **{
            "app/__init__.py": "",
            "app/main.py": "import os\nfrom .parts import one\nfrom ..lib import x\n",
            "app/parts/__init__.py": "from .. import shared as s\n",
            "app/parts/one.py": "def f():\n    import late.deep\n",
            "app/shared.py": "import app.main\n",
            "late/deep.py": "",
            "unused.py": "",
        }
    )
    found = {path.relative_to(root).as_posix() for path in reach(root, "app.main").files}
    assert found == {
        "app/__init__.py",
        "app/main.py",
        "app/parts/__init__.py",
        "app/parts/one.py",
        "app/shared.py",
        "late/deep.py",
    }

"""What a job's working directory would be on the cluster, found out before anything is sent.

Ray packs the directory, without what its ignore files and default excludes match, into one
uncompressed archive and uploads it to the job server. Ray's own matching is used here, so that
the two agree.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from noetic_ray.cli.imports import Reached, reach
from noetic_ray.errors import ConfigError

LISTED = 8
"""How many paths a message names."""
_ENTRY_BYTES = 76
_ARCHIVE_BYTES = 22
Rule = tuple[str, Callable[[Path], bool]]


@dataclass(frozen=True, slots=True)
class Package:
    """What is sent of a directory: sizes in bytes by relative path, and what is not, with why."""

    root: Path
    sent: Mapping[str, int]
    ignored: Mapping[str, str]
    limit: int

    @property
    def size(self) -> int:
        """Bytes of the archive: Ray does not compress it."""
        names = sum(2 * len(os.fsencode(name)) + _ENTRY_BYTES for name in self.sent)
        return sum(self.sent.values()) + names + _ARCHIVE_BYTES

    def largest(self) -> list[tuple[str, int]]:
        """The biggest files, and the biggest folders of the first level, biggest first."""
        sizes: Counter[str] = Counter()
        for name, size in self.sent.items():
            top, slash, _ = name.partition("/")
            sizes[top + slash] += size
            sizes[name] += size if slash else 0
        return sizes.most_common(LISTED)

    def why_missing(self, path: Path) -> str | None:
        """Why a file or folder is not on the cluster; None when it is."""
        place = path if path.is_absolute() else self.root / path
        try:
            name = Path(os.path.normpath(place)).relative_to(self.root).as_posix()
        except ValueError:
            return "is outside the working directory"
        for part in (name, *(parent.as_posix() for parent in Path(name).parents)):
            if part in self.ignored:
                return f"is ignored by {self.ignored[part]}"
        inside = [each for each in self.ignored if each.startswith(f"{name}/")]
        if inside:
            return f"holds {inside[0]}, which is ignored by {self.ignored[inside[0]]}"
        return None if place.exists() else "does not exist"


def check(
    root: Path,
    module: str,
    needs: Iterable[Path] = (),
    *,
    excludes: Iterable[str] = (),
    gitignore: bool = True,
) -> tuple[Package, list[str]]:
    """The package of a job, and warnings about files its code only mentions.

    Raises ConfigError: NO_WORKING_DIR, UNKNOWN_MODULE, NEEDED_FILES_MISSING,
    WORKING_DIR_TOO_LARGE.
    """
    root = Path(os.path.normpath(root.absolute()))
    if not root.is_dir():
        raise ConfigError("NO_WORKING_DIR", f"{root} is not a directory")
    package = pack(root, excludes=excludes, gitignore=gitignore)
    reached = reach(root, module)
    _require(package, [*reached.files, *needs])
    if package.size >= package.limit:
        raise _too_large(package)
    return package, list(_mentioned(package, reached))


def pack(root: Path, *, excludes: Iterable[str] = (), gitignore: bool = True) -> Package:
    """Go through a directory as Ray's packaging does."""
    from ray._private import ray_constants
    from ray._private.runtime_env import packaging

    defaults = ray_constants.get_runtime_env_default_excludes()
    rules: list[Rule] = [
        ("Ray's default excludes", packaging._get_excludes(root, defaults)),
        ("--exclude", packaging._get_excludes(root, list(excludes))),
    ]
    walk = _Walk(root, gitignore)
    walk.visit(root, rules, ())
    limit = min(ray_constants.DASHBOARD_CLIENT_MAX_SIZE, packaging.GCS_STORAGE_MAX_SIZE)
    return Package(root, walk.sent, walk.ignored, int(limit))


class _Walk:
    """One pass over a directory."""

    def __init__(self, root: Path, gitignore: bool) -> None:
        self.root = root
        self.gitignore = gitignore
        self.sent: dict[str, int] = {}
        self.ignored: dict[str, str] = {}

    def visit(self, path: Path, rules: list[Rule], above: tuple[Path, ...]) -> None:
        """Take in a file, or a folder with all that is in it."""
        name = path.relative_to(self.root).as_posix()
        rules = [*rules, *self._ignore_files(path)]
        for source, matches in rules:
            if matches(path):
                self.ignored[name] = source
                return
        if path.is_file():
            self.sent[name] = path.stat().st_size
        elif path.is_dir():
            self._folder(path, rules, above)

    def _folder(self, path: Path, rules: list[Rule], above: tuple[Path, ...]) -> None:
        real = path.resolve()
        if real in above:
            raise ConfigError(
                "WORKING_DIR_LOOP",
                f"{path} is a link to a folder that it is in",
                "remove it, or ignore it in .rayignore",
            )
        for each in sorted(path.iterdir()):
            self.visit(each, rules, (*above, real))

    def _ignore_files(self, path: Path) -> list[Rule]:
        from ray._private.runtime_env import packaging

        if not path.is_dir():
            return []
        names = [".gitignore"] if self.gitignore else []
        found: list[Rule] = []
        for name in (*names, ".rayignore"):
            matches: Any = packaging._get_ignore_file(path, name)
            if matches is not None:
                found.append(((path / name).relative_to(self.root).as_posix(), matches))
        return found


def _require(package: Package, paths: Iterable[Path]) -> None:
    missing = {str(path): why for path in paths if (why := package.why_missing(path)) is not None}
    if not missing:
        return
    lines = [f"\n  {_shown(package, Path(path))} {why}" for path, why in missing.items()]
    raise ConfigError(
        "NEEDED_FILES_MISSING",
        f"the job would not find what it needs:{_clipped(lines)}\n",
        "take them out of the ignore files (or use --no-gitignore and a .rayignore), or move "
        "them into the working directory",
    )


def _shown(package: Package, path: Path) -> str:
    return str(path.relative_to(package.root) if path.is_relative_to(package.root) else path)


def _too_large(package: Package) -> ConfigError:
    lines = [f"\n  {amount(size):>12}  {name}" for name, size in package.largest()]
    return ConfigError(
        "WORKING_DIR_TOO_LARGE",
        f"{package.root} is {amount(package.size)} in {len(package.sent)} files; the job server "
        f"takes {amount(package.limit)}. The largest:{''.join(lines)}\n",
        "list what the job does not need in .rayignore, or give --exclude PATTERN",
    )


def _mentioned(package: Package, reached: Reached) -> Iterable[str]:
    """Ignored files whose names stand in the code: perhaps it opens them."""
    for source, text in reached.texts:
        for place in (package.root / text, source.parent / text):
            why = package.why_missing(place) if place.is_file() else None
            if why is not None:
                yield f"{_shown(package, source)} mentions {text!r}, which {why}"
                break


def _clipped(lines: list[str]) -> str:
    more = f"\n  and {len(lines) - LISTED} more" if len(lines) > LISTED else ""
    return "".join(lines[:LISTED]) + more


def amount(size: int) -> str:
    """Bytes for people."""
    return f"{size / 2**20:.1f} MiB" if size >= 2**20 // 10 else f"{size / 2**10:.1f} KiB"

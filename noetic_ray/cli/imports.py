"""Which files of a directory a module imports, read from the sources without running them."""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeGuard

from noetic_ray.errors import ConfigError

MAX_TEXT = 200


@dataclass(slots=True)
class Reached:
    """Files of the directory that would be imported, and the short texts in them."""

    files: list[Path] = field(default_factory=list)
    texts: list[tuple[Path, str]] = field(default_factory=list)


def reach(root: Path, module: str) -> Reached:
    """Follow the imports of `module` through the files under `root`.

    Raises ConfigError UNKNOWN_MODULE when the module is neither there nor installed.
    """
    found = Reached()
    waiting = list(_files(root, module))
    if not waiting and not _installed(module):
        raise ConfigError(
            "UNKNOWN_MODULE",
            f"there is no module {module!r} in {root}, and none is installed",
            "give the folder that the module is imported from with --working-dir",
        )
    while waiting:
        path = waiting.pop()
        if path not in found.files:
            found.files.append(path)
            waiting += _imports(root, path, found)
    return found


def _imports(root: Path, path: Path, found: Reached) -> Iterator[Path]:
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError) as error:
        raise ConfigError("BROKEN_MODULE", f"{path} is not valid Python: {error}") from None
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _files(root, alias.name)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(root, path, node)
            for alias in node.names:
                yield from _files(root, f"{base}.{alias.name}".strip("."))
        elif isinstance(node, ast.Constant) and _may_be_a_name(node.value):
            found.texts.append((path, node.value))


def _may_be_a_name(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and 0 < len(value) <= MAX_TEXT and value.isprintable()


def _absolute(root: Path, path: Path, node: ast.ImportFrom) -> str:
    """The module that a `from` names, relative ones resolved by the file's place."""
    if not node.level:
        return node.module or ""
    package = path.relative_to(root).parent.parts
    parts = package[: len(package) - (node.level - 1)]
    return ".".join([*parts, *(node.module or "").split(".")]).strip(".")


def _files(root: Path, module: str) -> Iterator[Path]:
    """The files under `root` that importing a dotted name reads; none when it is elsewhere.

    The last part may be a name inside a module.
    """
    place = root
    for part in module.split("."):
        place = place / part
        package, plain = place / "__init__.py", place.with_name(f"{part}.py")
        if package.is_file():
            yield package
        elif plain.is_file():
            yield plain
            return
        elif not place.is_dir():
            return


def _installed(module: str) -> bool:
    """Whether this environment, and so probably the cluster's, has a module of that name."""
    top = module.partition(".")[0]
    if top in sys.modules:
        return True
    try:
        return importlib.util.find_spec(top) is not None
    except (ImportError, ValueError):
        return False

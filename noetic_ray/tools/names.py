"""Names that providers accept."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable

from noetic_ray.errors import ConfigError
from noetic_ray.tools.tool import LEGAL_NAME, Tool

_ILLEGAL = re.compile(r"[^a-zA-Z0-9_-]")
_MAX = 64


def wire_names(tools: Iterable[Tool]) -> dict[str, Tool]:
    """Tools by the name a model sees, in the order given.

    Legal names are kept. Others have each illegal character replaced by `_`; where that is too
    long or already means another tool, a digest of the original name makes it unique, whatever the
    order of the tools. The same tool given twice counts once; two tools of one name are a
    ConfigError `DUPLICATE_TOOL`.
    """
    by_name: dict[str, Tool] = {}
    for each in tools:
        if by_name.setdefault(each.name, each) is not each:
            raise ConfigError(
                "DUPLICATE_TOOL",
                f"two tools are named {each.name!r}",
                "Rename one with @nr.tool(name=...).",
            )
    legal = {name for name in by_name if LEGAL_NAME.fullmatch(name)}
    wanted = Counter(_cleaned(name) for name in by_name if name not in legal)
    names: dict[str, Tool] = {}
    for name, each in by_name.items():
        wire = name
        if name not in legal:
            wire = _cleaned(name)
            if len(wire) > _MAX or wanted[wire] > 1 or wire in legal:
                wire = _digested(name, legal | set(wanted))
        names[wire] = each
    return names


def _cleaned(name: str) -> str:
    return _ILLEGAL.sub("_", name)


def _digested(name: str, taken: set[str]) -> str:
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    for length in range(8, _MAX):
        wire = f"{_cleaned(name)[: _MAX - length - 1]}_{digest[:length]}"
        if wire not in taken:
            return wire
    raise ConfigError("DUPLICATE_TOOL", f"there is no name left for tool {name!r}")

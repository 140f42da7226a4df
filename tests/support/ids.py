"""Names of test cases."""

from __future__ import annotations

import re


def plain_id(value: object) -> str:
    """A value's text without addresses: every process that collects the tests finds the same."""
    return re.sub(r" at 0x[0-9a-f]+", "", str(value))

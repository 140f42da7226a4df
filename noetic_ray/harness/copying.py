"""Copies of values within one process."""

from __future__ import annotations

import pickle
from typing import Any


class CopyCodec:
    """Copies values by pickling; what the standard pickle cannot do, Ray's cloudpickle does."""

    def dumps(self, value: Any) -> bytes:
        """Raises whatever pickling raises."""
        try:
            return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
        except Exception:
            from ray import cloudpickle

            return bytes(cloudpickle.dumps(value))

    def loads(self, data: bytes) -> Any:
        """The copy."""
        return pickle.loads(data)

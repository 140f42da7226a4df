"""How layers and their states cross between processes.

A layer of the harness is named by its place among them; others travel as pickled programs, like
steps, and are one object per process.
"""

from __future__ import annotations

import hashlib
import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from ray import cloudpickle

from noetic_ray.actors import codec
from noetic_ray.engine.layers.remains import Remains
from noetic_ray.engine.spec import LayerSeed
from noetic_ray.errors import ConfigError
from noetic_ray.layers.base import ContextLayer

Ref = int | bytes
Row = tuple[Any, ...]
MAX_LAYERS = 1_024
log = logging.getLogger("noetic_ray")
_PROTOCOL = 5


class LayerPacker:
    """Pickles layers, each object once."""

    def __init__(self, of_harness: Sequence[ContextLayer[Any]] = ()) -> None:
        self._places = {id(layer): place for place, layer in enumerate(of_harness)}
        self._of_harness = tuple(of_harness)
        self._known: OrderedDict[int, tuple[ContextLayer[Any], bytes, bytes]] = OrderedDict()

    def ref(self, layer: ContextLayer[Any], programs: dict[bytes, bytes]) -> Ref:
        """How a layer is named in a payload; what its reader may lack goes into `programs`."""
        place = self._places.get(id(layer))
        if place is not None:
            return place
        known = self._known.get(id(layer))
        if known is None:
            program = _pickled_layer(layer)
            digest = hashlib.blake2b(program, digest_size=16).digest()
            known = self._known[id(layer)] = (layer, digest, program)
            if len(self._known) > MAX_LAYERS:
                self._known.popitem(last=False)
        programs[known[1]] = known[2]
        return known[1]

    def seeds(self, seeds: Sequence[LayerSeed], programs: dict[bytes, bytes]) -> tuple[Row, ...]:
        """A context's layers as plain data. Raises ConfigError naming what cannot be pickled."""
        return tuple(
            (self.ref(seed.layer, programs), seed.seeded, _pickled_state(seed), seed.owned)
            for seed in seeds
        )


def read_seeds(rows: Sequence[Row], find: Callable[[Ref], ContextLayer[Any]]) -> tuple[Any, ...]:
    """The layers of a context, from plain data."""
    return tuple(
        LayerSeed(find(ref), seeded, None if state is None else codec.loads(state), owned)
        for ref, seeded, state, owned in rows
    )


def _pickled_layer(layer: ContextLayer[Any]) -> bytes:
    try:
        return bytes(cloudpickle.dumps(layer, _PROTOCOL))
    except Exception as error:
        raise ConfigError(
            "UNPICKLABLE_CAPTURE",
            f"layer {layer.id!r} cannot be sent to another process: {error}",
            "open clients, locks and files in init, and keep in the layer what names them",
        ) from None


def _pickled_state(seed: LayerSeed) -> bytes | None:
    if seed.state is None:
        return None
    return pickled_state(seed.layer.id, seed.state)


def pickled_state(layer_id: str, state: Any) -> bytes:
    """A layer's state. Raises ConfigError `UNPICKLABLE_STATE`."""
    try:
        return codec.dumps(state)
    except Exception as error:
        raise ConfigError(
            "UNPICKLABLE_STATE",
            f"the state of layer {layer_id!r} cannot be sent to another process: {error}",
            "keep only picklable values in a layer's state",
        ) from None


def pack_remains(remains: Sequence[Remains]) -> bytes | None:
    """What aborted contexts left behind, whole: whoever reads it may know none of the layers."""
    if not remains:
        return None
    try:
        return bytes(cloudpickle.dumps(list(remains), _PROTOCOL))
    except Exception as error:  # an abort must come to its end, whatever layers hold
        log.warning("the last hooks of some layers will not run: %s", error)
        return None


def unpack_remains(data: bytes | None) -> list[Remains]:
    """The reverse of `pack_remains`."""
    return [] if data is None else list(cloudpickle.loads(data))

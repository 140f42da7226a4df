"""How layer states get into children, and what of them comes back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from noetic_ray.engine.layers.hooks import FAILED, diagnose, keep_state, try_hook
from noetic_ray.engine.layers.stack import Active, those_with
from noetic_ray.engine.spec import ContextSpec, LayerSeed, Reply
from noetic_ray.errors import NoeticError
from noetic_ray.items import Item, parse_item
from noetic_ray.layers.base import ContextLayer, has_hook
from noetic_ray.layers.hooks import (
    UNSET,
    ChildInfo,
    Merge,
    ReturnParams,
    SpawnParams,
    SpawnSeed,
)

if TYPE_CHECKING:
    from noetic_ray.engine.cell import Cell
    from noetic_ray.engine.layers.entry import LayerEntry


def child_layers(
    here: Active, own: Sequence[ContextLayer[Any]] | None
) -> list[tuple[ContextLayer[Any], LayerEntry | None]]:
    """The layers a child gets, each with the parent's layer of that id, if it has one.

    `own` replaces what the child would inherit.
    """
    parents = {entry.layer.id: entry for entry in here if entry.live}
    if own is not None:
        return [(layer, parents.get(layer.id)) for layer in own]
    return [(entry.layer, entry) for entry in here if entry.live]


def needs_seeding(here: Active, own: Sequence[ContextLayer[Any]] | None) -> bool:
    """Whether a hook has to run before a child can start."""
    return any(
        parent is not None and has_hook(layer, "on_spawn")
        for layer, parent in child_layers(here, own)
    )


async def seed(
    cell: Cell,
    spec: ContextSpec,
    here: Active,
    own: Sequence[ContextLayer[Any]] | None,
    with_items: bool,
) -> None:
    """Ask the parent's layers, in slot order, what the child begins with; puts it into `spec`."""
    info = ChildInfo(spec.id, spec.depth, spec.thread_id, spec.step.id)
    seeds: list[LayerSeed] = []
    items: list[Item] = []
    pairs = child_layers(here, own)
    for layer, parent in sorted(pairs, key=lambda pair: pair[0].slot):
        if parent is None or not has_hook(layer, "on_spawn"):
            seeds.append(LayerSeed(layer, owned=parent is None))
            continue
        answer = await _ask(cell, layer, parent, info)
        if answer is FAILED:
            continue  # a child without the layer is better than one with a wrong state
        if answer is None:
            seeds.append(LayerSeed(layer, owned=False))
            continue
        seeds.append(LayerSeed(layer, True, _copy(cell, layer, answer.state), owned=False))
        if with_items:
            items += _checked(cell, layer, answer.items)
    spec.layers = tuple(seeds)
    spec.items = (*items, *spec.items)


def plain_seeds(here: Active, own: Sequence[ContextLayer[Any]] | None) -> tuple[LayerSeed, ...]:
    """The same where no hook has a say."""
    return tuple(
        LayerSeed(layer, owned=parent is None) for layer, parent in child_layers(here, own)
    )


async def _ask(
    cell: Cell, layer: ContextLayer[Any], parent: LayerEntry, info: ChildInfo
) -> SpawnSeed | Any:
    return await try_hook(
        cell,
        parent,
        "on_spawn",
        lambda: SpawnParams(cell.ctx, parent.storage, parent.state, info),
        SpawnSeed,
    )


def _copy(cell: Cell, layer: ContextLayer[Any], state: Any) -> Any:
    """A child in this process must not share the state; one elsewhere gets a copy on the way."""
    from noetic_ray.engine.children import copy_value

    return copy_value(cell.rt.codec, state, f"layer {layer.id!r} of context {cell.ctx.id}")


def _checked(cell: Cell, layer: ContextLayer[Any], items: Sequence[Any]) -> list[Item]:
    try:
        return [parse_item(item) for item in items]
    except (NoeticError, TypeError) as error:
        diagnose(cell, layer.id, "on_spawn", error)
        return []


def wanted_back(spec: ContextSpec) -> tuple[str, ...]:
    """The ids of a child's layers whose states the parent merges."""
    return tuple(
        seed.layer.id
        for seed in spec.layers or ()
        if not seed.owned and has_hook(seed.layer, "on_return")
    )


async def merge(cell: Cell, here: Active, spec: ContextSpec, reply: Reply) -> Any:
    """The result of a successful child, after the parent's layers took in what it brought back.

    One merge of a context at a time; within one, in slot order.
    """
    if reply.layer_states is None:
        return reply.output
    stack = cell.layers
    assert stack is not None
    return await stack.merges.run(lambda: _merge(cell, here, spec, reply))


async def _merge(cell: Cell, here: Active, spec: ContextSpec, reply: Reply) -> Any:
    result = reply.output
    states = reply.layer_states or {}
    info = ChildInfo(spec.id, spec.depth, spec.thread_id, spec.step.id)
    for entry in those_with(here, "on_return"):
        if entry.layer.id in states:
            result = await _merge_by(cell, entry, states[entry.layer.id], info, reply, result)
    return result


async def _merge_by(
    cell: Cell, entry: LayerEntry, child_state: Any, info: ChildInfo, reply: Reply, result: Any
) -> Any:
    def params() -> ReturnParams:
        return ReturnParams(
            cell.ctx, entry.storage, entry.state, child_state, reply.items, info, result
        )

    answer = await try_hook(cell, entry, "on_return", params, Merge)
    if not answer:
        return result
    if answer.state is not UNSET:
        keep_state(cell, entry, answer.state)
    return result if answer.result is UNSET else answer.result

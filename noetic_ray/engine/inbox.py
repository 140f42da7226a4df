"""Messages for a run that is under way: its root's model steps take them between their rounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from noetic_ray.engine.blocking import blocking
from noetic_ray.engine.layers.hooks import diagnose
from noetic_ray.errors import ChannelClosed, ChannelTimeout, ItemSchemaMismatch
from noetic_ray.items import Item, parse_item, user_message

if TYPE_CHECKING:
    from noetic_ray.engine.cell import Cell

MAX_MAIL = 100


async def take_mail(cell: Cell) -> list[Item]:
    """What is in the inbox now, as items for the log; what is no message is passed over."""
    inbox = cell.spec.inbox
    assert inbox is not None
    try:
        values = await blocking(cell, cell.rt.channels.recv(inbox, MAX_MAIL, 0, cell.ctx.id))
    except (ChannelTimeout, ChannelClosed):
        return []
    items: list[Item] = []
    for value in values:
        try:
            items.append(_as_item(cell, value))
        except (ItemSchemaMismatch, TypeError) as error:
            # Mail is written by somebody outside: what is wrong with it must not end the run.
            diagnose(cell, "inbox", "take_mail", error)
    return items


def _as_item(cell: Cell, value: Any) -> Item:
    if isinstance(value, str):
        return user_message(value)
    if not isinstance(value, Mapping):
        raise TypeError(f"the inbox brought a {type(value).__name__}, which is no message")
    config = cell.rt.config
    return parse_item(value, extension_types=config.item_types, strict=config.strict_items)

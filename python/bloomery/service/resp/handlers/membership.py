"""What BF and CF commands share: the filter of a name, and whether it contains keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bloomery.errors import UnknownFilter
from bloomery.service.domain.entry import Entry
from bloomery.service.engine import Outcome
from bloomery.service.resp.client import ClientState
from bloomery.service.resp.replies import NOT_FOUND, WRONG_TYPE, ArrayReply, Raw
from bloomery.service.slices import batches


def filter_at(client: ClientState, name: bytes, family: str) -> Entry | None:
    """Return the filter of a name; None if there is none. WRONGTYPE if it answers to the commands
    of another family than "bf" or "cf"."""
    entry = client.context.engine.find(name)
    if entry is not None and entry.settings.get("door", "bf") != family:
        raise WRONG_TYPE
    return entry


def existing_filter(client: ClientState, name: bytes, family: str) -> Entry:
    """Return the filter of a name; an error if there is none, or one of another family."""
    entry = filter_at(client, name, family)
    if entry is None:
        raise NOT_FOUND
    return entry


async def add(
    client: ClientState,
    name: bytes,
    family: str,
    keys: Any,
    settings: Mapping[str, Any],
    *,
    only_new: bool = False,
) -> Outcome:
    """Add keys to the filter of this name and family, for all of them a byte. If there is none, it
    is created with these settings in the same step."""
    commands = client.context.commands
    if filter_at(client, name, family) is None:
        await commands.discover(name)  # another node can have created it
    if filter_at(client, name, family) is None:
        return await commands.create_with(name, keys, settings, only_new=only_new)
    return await commands.try_each(name, keys, only_new=only_new)


def contains(client: ClientState, words: list[bytes], family: str) -> list[bool]:
    """Tell of each key whether it may have been added; a filter that is not there has none."""
    name, *keys = words
    if filter_at(client, name, family) is None:
        return [False] * len(keys)
    return [bool(answer) for answer in client.context.commands.contains(name, keys)]


async def contains_many(client: ClientState, words: list[bytes], family: str) -> Any:
    """Return for each of any number of keys whether it may have been added; many are checked in
    slices between which other clients are served."""
    if client.slices(words):
        return await _contains_many(client, words, family)
    return contains(client, words, family)


async def _read(client: ClientState, words: list[bytes], family: str) -> bytes:
    name, *keys = words
    filter_at(client, name, family)  # 0 of a filter of another family would be a wrong no
    try:
        return await client.context.commands.read(name, keys, client.strong)
    except UnknownFilter:
        return bytes(len(keys))


async def _contains_many(client: ClientState, words: list[bytes], family: str) -> Raw:
    replies = ArrayReply(client.protocol)
    async for answers in batches(await _read(client, words, family)):
        replies.extend([bool(answer) for answer in answers])
    return replies.encoded()

"""What BF and CF commands share: the filter of a name, and whether it contains keys."""

from __future__ import annotations

from typing import Any

from bloomery.service.domain.state import Entry
from bloomery.service.resp import failures
from bloomery.service.resp.client import ClientState
from bloomery.service.resp.replies import ArrayReply, Failure, Raw
from bloomery.service.slices import batches

__all__ = ["contains", "contains_many", "existing_filter", "filter_at", "filter_if_any"]


def filter_at(client: ClientState, name: bytes, family: str) -> Entry | None:
    """Return the filter of a name; None if there is none. WRONGTYPE if it answers to the commands
    of another family than "bf" or "cf"."""
    entry = client.context.engine.find(name)
    if entry is not None and entry.settings.get("door", "bf") != family:
        raise failures.WRONG_TYPE
    return entry


def existing_filter(client: ClientState, name: bytes, family: str) -> Entry:
    """Return the filter of a name; an error if there is none, or one of another family."""
    entry = filter_at(client, name, family)
    if entry is None:
        raise failures.NOT_FOUND
    return entry


def filter_if_any(client: ClientState, name: bytes, family: str) -> Entry | None:
    """Return the filter of a name; None if there is none of this family."""
    try:
        return filter_at(client, name, family)
    except Failure as failure:
        failure.with_traceback(None)  # see invoke.error_reply
        return None


def contains(client: ClientState, words: list[bytes], family: str) -> list[bool]:
    """Tell of each key whether it may have been added; a filter that is not there has none."""
    name, *keys = words
    if filter_if_any(client, name, family) is None:
        return [False] * len(keys)
    return [bool(answer) for answer in client.context.commands.contains(name, keys)]


def contains_many(client: ClientState, words: list[bytes], family: str) -> Any:
    """The same for any number of keys: many are asked for in slices, between which others have
    their turn."""
    if client.slices(words):
        return _contains_in_slices(client, words, family)
    return contains(client, words, family)


async def _contains_in_slices(client: ClientState, words: list[bytes], family: str) -> Raw:
    replies = ArrayReply(client.protocol)
    async for keys in batches(words[1:]):
        await client.context.aside.free(words[0])
        replies.extend(contains(client, [words[0], *keys], family))
    return replies.whole()

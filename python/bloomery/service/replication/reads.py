"""Asking Redis itself: for who wants `consistency=shared`, and while the copy is too old."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any, TypeVar

from bloomery import errors
from bloomery.integrations.redis.bits.strings import BitStrings
from bloomery.integrations.redis.naming import Keys
from bloomery.integrations.redis.wire.failures import checked
from bloomery.integrations.redis.wire.flow import Flow, command
from bloomery.service.commands import AddHere, Outcome
from bloomery.service.domain.operations import Op
from bloomery.service.policy.policy import limit_and_threshold
from bloomery.service.replication.catalogue import Catalogue
from bloomery.service.replication.node import Node
from bloomery.service.replication.shared import Shared

T = TypeVar("T")
_DAMAGED = "the filter is not whole in Redis: nodes restore it, try again in a moment"


class StoreReads:
    """The store as commands ask it (`commands.Store`)."""

    def __init__(self, node: Node) -> None:
        self._node = node

    @property
    def preferred(self) -> bool:
        """Is it to be asked, since this node's copy is too old?"""
        return self._node.aside

    async def contains(self, name: bytes, keys: Any, *, sure: bool) -> bytes:
        """Return a byte for each key, as `_contains`."""
        # A column of Arrow has scalars of its own, which are no keys.
        listed = keys if isinstance(keys, list) else keys.to_pylist()
        return await _contains(self._node, name, listed, sure=sure)

    async def add(self, name: bytes, keys: list[Any], add_here: AddHere) -> Outcome:
        """Add keys; new is what no node had added."""
        return await _exact_add(self._node, name, keys, add_here)

    async def discover(self, name: bytes) -> None:
        """Take in a filter of this name before the stream tells of it, if there is one."""
        node = self._node
        with contextlib.suppress(errors.BloomeryError):  # then this node knows of none
            listed = await _asked(node, node.catalogue.find(name))
            if listed is not None and not listed.is_over(time.time()):
                node.mirror.adopted(listed)


async def _contains(node: Node, name: bytes, keys: list[Any], *, sure: bool) -> bytes:
    """Return a byte for each key: 0 it was definitely not added by anybody, 1 maybe.

    What the copy knows Redis is not asked for. If Redis does not answer, who wants to be `sure` is
    told so: others may reach it, and have added keys. Else the copy answers.
    """
    shelf = node.engine.shelf
    entry = node.engine.find(name)
    if entry is None:
        return await _unknown(node, name, keys)
    known = shelf.contains(name, keys)
    missing = [at for at, answer in enumerate(known) if not answer]
    shared = node.filters.by_id.get(entry.id)
    if not missing or shared is None:
        return known
    hashes = shelf.hashes(name, [keys[at] for at in missing])
    try:
        node.require_link()
        found, held = await _asked(node, _both(node.catalogue, shared, hashes))
    except errors.StoreUnavailable as problem:
        node.lost(problem)
        if sure:
            raise
        return known
    if held is not None and not shared.listed.is_still(held):
        return await _unknown(node, name, keys)
    if held is None or found is None:
        node.vanished(shared.listed.uid) if held is None else node.damage()
        if sure:
            raise errors.StoreUnavailable(_DAMAGED)
        return known
    answers = bytearray(known)
    for at, answer in zip(missing, found, strict=True):
        answers[at] = min(answer, 1)
    return bytes(answers)


async def _unknown(node: Node, name: bytes, keys: list[Any]) -> bytes:
    """Ask for keys of a filter that this node has not heard of yet."""
    try:
        node.require_link()
        listed = await _asked(node, node.catalogue.find(name))
        if listed is None or listed.is_over(time.time()):
            raise errors.UnknownFilter("there is no filter of that name: make it first")
        strings = BitStrings(Keys(name), listed.strings)
        hashes, _ = strings.places.hashes(keys)
        found = await _asked(node, _whole(strings, hashes))
    except errors.StoreUnavailable as problem:
        node.lost(problem)
        raise
    if found is None:
        raise errors.StoreUnavailable(_DAMAGED)
    return bytes(min(answer, 1) for answer in found)


async def _asked(node: Node, flow: Flow[T]) -> T:
    def run() -> T:
        node.require_link()  # it may have waited for a thread, behind others that wait for Redis
        return node.link.run(flow)

    return await asyncio.to_thread(run)


def _both(
    catalogue: Catalogue, shared: Shared, hashes: bytes
) -> Flow[tuple[bytes | None, bytes | None]]:
    """Ask for keys; and what the catalogue has: the name may be another's by now, with another
    seed, say. In one round trip, unless there are many keys."""
    asking, name = _whole(shared.strings, hashes), shared.listed.name
    held: Any = None
    try:
        asks = next(asking)
        *replies, [held] = yield [*asks, command(catalogue.key, "HGET", catalogue.key, name)]
        while True:
            replies = yield asking.send(replies)
    except StopIteration as end:
        [held] = checked([held])
        return end.value, held


def _whole(strings: BitStrings, hashes: bytes) -> Flow[bytes | None]:
    """Ask for keys; None if a string is not whole."""
    try:
        return (yield from strings.contains_hashes(hashes))
    except errors.UnknownFilter:
        return None


async def _exact_add(
    node: Node,
    name: bytes,
    keys: list[Any],
    add_here: AddHere,
) -> Outcome:
    """Add keys; new is what no node had added, not only this one."""
    entry = node.engine.find(name)
    shared = None if entry is None else node.filters.by_id.get(entry.id)
    if entry is None or shared is None:
        raise errors.UnknownFilter("there is no filter of that name: make it first")
    node.require_link()
    if node.engine.problem is not None:
        raise node.engine.problem
    limit, _ = limit_and_threshold(entry)
    if limit is not None and entry.items + len(keys) > limit:
        # It is nearly full, by what this node knows: it refuses what is beyond.
        node.group_commit.join()
        outcome = add_here(name, keys)
        await node.group_commit.logged()
        return outcome
    hashes = node.engine.shelf.hashes(name, keys)
    answers: bytes = await node.group_commit.call(lambda: node.log.add(shared.listed.uid, hashes))
    if entry.id in node.engine.state.filters:
        node.engine.apply_remote(Op.ADD, entry.id, hashes)
    return answers, None

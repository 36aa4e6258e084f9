"""Asking Redis itself: for who wants `consistency=shared`, and while the copy is too old."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from bloomery import errors
from bloomery.integrations.redis.flows import Strings
from bloomery.integrations.redis.naming import Keys
from bloomery.integrations.redis.trips import Flow
from bloomery.storage.operations import Op

if TYPE_CHECKING:
    from bloomery.service.commands import Outcome
    from bloomery.service.store.catalogue import Listed
    from bloomery.service.store.node import Node

__all__ = ["contains", "exact_add"]

_DAMAGED = "the filter is not whole in Redis: nodes restore it, try again in a moment"


async def contains(node: Node, name: bytes, keys: list[Any], *, sure: bool) -> bytes:
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
        found = await asyncio.to_thread(node.link.run, _whole(shared.strings, hashes))
        now: Listed | None = None
        if found is None:  # has another one its name by now, or has Redis lost its strings?
            now = await asyncio.to_thread(node.link.run, node.catalogue.find(name))
    except errors.StoreUnavailable as problem:
        node.lost(problem)
        if sure:
            raise
        return known
    if now is not None and now.uid != shared.listed.uid:
        return await _unknown(node, name, keys)
    if found is None:
        node.damage()
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
        listed = await asyncio.to_thread(node.link.run, node.catalogue.find(name))
        if listed is None or listed.dropped_at is not None:
            raise errors.UnknownFilter("there is no filter of that name: make it first")
        strings = Strings(Keys(name), listed.strings)
        hashes, _ = strings.places.hashes(keys)
        found = await asyncio.to_thread(node.link.run, _whole(strings, hashes))
    except errors.StoreUnavailable as problem:
        node.lost(problem)
        raise
    if found is None:
        raise errors.StoreUnavailable(_DAMAGED)
    return bytes(min(answer, 1) for answer in found)


def _whole(strings: Strings, hashes: bytes) -> Flow[bytes | None]:
    """Ask for keys; None if a string is not whole."""
    try:
        return (yield from strings.contains_hashes(hashes))
    except errors.UnknownFilter:
        return None


async def exact_add(node: Node, name: bytes, keys: list[Any]) -> Outcome:
    """Add keys; new is what no node had added, not only this one."""
    entry = node.engine.find(name)
    shared = None if entry is None else node.filters.by_id.get(entry.id)
    if entry is None or shared is None:
        raise errors.UnknownFilter("there is no filter of that name: make it first")
    node.require_link()
    if node.engine.problem is not None:
        raise node.engine.problem
    hashes = node.engine.shelf.hashes(name, keys)
    answers: bytes = await node.server.turns.call(lambda: node.log.add(shared.listed.uid, hashes))
    if entry.id in node.engine.state.filters:
        node.engine.mirror(Op.ADD, entry.id, hashes)
    return answers, None

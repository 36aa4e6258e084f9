"""A filter of a server for asyncio; who waits for the answers is `aio`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from bloomery.client import calls, files
from bloomery.client.calls import FilterCalls, Name

if TYPE_CHECKING:
    from bloomery.client.aio import AsyncClient
    from bloomery.guard.answer import Answer
    from bloomery.types import Batch, Key, Mask, Nulls

__all__ = ["AsyncRemoteFilter"]


class AsyncRemoteFilter:
    """A filter of a server, for asyncio: what is asked of it is awaited."""

    def __init__(self, client: AsyncClient, name: Name) -> None:
        """Ask nothing of the server yet."""
        self._client = client
        self._calls = FilterCalls(name)

    @property
    def name(self) -> Name:
        """Its name: str, or bytes if it is no UTF-8."""
        return calls.shown(self._calls.name)

    def __repr__(self) -> str:
        """Show its name and its server."""
        return f"<{type(self).__name__} {self.name!r} of {self._client!r}>"

    # Keys.

    async def add(self, key: Key) -> bool:
        """Add the key; True if it is definitely new, False if it may have been there."""
        return await self._client._send(self._calls.one("add", key))

    async def contains(self, key: Key) -> bool:
        """False: definitely not there. True: maybe."""
        return await self._client._send(self._calls.one("contains", key))

    async def add_many(self, keys: Batch, *, nulls: Nulls = "error") -> Mask:
        """Add every key; a mask that is True where a key is definitely new."""
        return await self._client._send_all(self._calls.many("add", keys, nulls))

    async def contains_many(self, keys: Batch, *, nulls: Nulls = "error") -> Mask:
        """Ask for every key: False is certain, True is maybe."""
        return await self._client._send_all(self._calls.many("contains", keys, nulls))

    async def update(self, keys: Batch, *, nulls: Nulls = "error") -> None:
        """Add every key and say nothing about which were new; of any number, in one stream."""
        await self._client._send_all(self._calls.update(keys, nulls))

    async def remove(self, key: Key) -> bool:
        """Take one copy of the key out; KeyError if it is definitely not there.

        True: it was taken out. False: it may be there and cannot be.
        """
        removed = await self.discard(key)
        if not removed and not await self.contains(key):
            raise KeyError(key)
        return removed

    async def discard(self, key: Key) -> bool:
        """Take one copy of the key out if it is there; True if it was."""
        return await self._client._send(self._calls.one("remove", key))

    async def remove_many(self, keys: Batch, *, nulls: Nulls = "error") -> Mask:
        """Take one copy of each key out; a mask that is True where there was one."""
        return await self._client._send_all(self._calls.many("remove", keys, nulls))

    async def lookup(self, key: Key) -> Answer:
        """Is the key there, and what is its value? Of a filter that is bound to a source."""
        return await self._client._send(self._calls.lookup(key))

    async def lookup_many(self, keys: Batch) -> list[Answer]:
        """The same for many keys, 1,000 a request."""
        return await self._client._send_all(self._calls.lookups(keys))

    # The whole filter.

    async def info(self) -> dict[str, Any]:
        """All that the server knows about it: capacity, error_rate, fill_ratio, …"""
        return await self._client._send(self._calls.info())

    async def samples(self, **query: Any) -> list[dict[str, Any]]:
        """How it was over time; `query`: since, until, span and limit, as docs/http.md has them."""
        return await self._client._send(self._calls.samples(**query))

    async def change(self, **settings: Any) -> None:
        """Change its policy (on_full, …) or when it ends (expires_at, Unix time)."""
        await self._client._send(self._calls.change(**settings))

    async def rename(self, to: Name) -> None:
        """Give it another name, under which this object goes on."""
        renamed = FilterCalls(to)
        await self._client._send(self._calls.renamed(renamed))
        self._calls = renamed

    async def clear(self) -> None:
        """Forget every key."""
        await self._client._send(self._calls.act("clear"))

    async def rotate(self) -> None:
        """Begin a new generation now, in a filter that rotates."""
        await self._client._send(self._calls.act("rotate"))

    async def rebuild(self, **how: Any) -> None:
        """Begin to build it anew from the source that it is bound to (capacity, error_rate,
        settle); `info()["rebuild"]` says how far that is."""
        await self._client._send(self._calls.rebuild(**how))

    async def merge(self, *others: AsyncRemoteFilter | Name) -> None:
        """Add every key of other filters of the server, which must be made alike."""
        await self._client._send(self._calls.merge(others))

    async def drop(self) -> None:
        """Let the server forget it."""
        await self._client._send(self._calls.drop())

    # Its file.

    async def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file of this machine, which `bloomery.open` loads: all of it or nothing."""
        with files.replacing(path) as file:
            await self._client._download(self._calls.download(), file)

    async def load(self, source: Any) -> None:
        """Put a saved filter (a path), or a local one, in its place."""
        await self._client.load(self._calls.name, source, replace=True)

    async def copy_to_local(self) -> Any:
        """A local filter of the same kind with the same keys."""
        with files.temporary() as path:
            await self.save(path)
            return await files.in_thread(files.loaded, path)

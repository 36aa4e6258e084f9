"""The client for asyncio: a server's filters by name, and what each of them can do."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from bloomery.client import files
from bloomery.client.aiotransport import AsyncTransport
from bloomery.client.operations import KeyRequests, Name, name_of, path_of, readable_name
from bloomery.client.request import Request, ServerOptions, dumped, loaded, member, nothing
from bloomery.errors import UnknownFilter
from bloomery.names import printable, unprintable
from bloomery.sizing.limits import check_error_rate, check_order
from bloomery.suggestions import OtherNames

if TYPE_CHECKING:
    import ssl

    from typing_extensions import Self

    from bloomery.guard.answer import Answer
    from bloomery.types import Batch, Key, Mask, Nulls

_PAGE = "1000"  # names at a time


class AsyncClient:
    """The filters of a server, by name, for asyncio.

        async with AsyncClient("http://127.0.0.1:8100") as client:
            seen = await client.create("seen", capacity=1_000_000, error_rate=0.01)
            await seen.add("alice")
            await client["seen"].contains("alice")

    One client may be used by many tasks.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        user: str | None = None,
        password: str | None = None,
        timeout: float | None = 30.0,
        verify: bool | str | ssl.SSLContext = True,
    ) -> None:
        """Connect with the first request. `timeout`: seconds without a sign of the server.
        `verify`: whether, or by which file of certificates, its own is checked."""
        server = ServerOptions(url, token, user, password, timeout, verify)
        self.transport = AsyncTransport(server)

    async def __aenter__(self) -> Self:
        """Be closed at the end of the block."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close."""
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self.transport.close()

    def __repr__(self) -> str:
        """Show where the server is."""
        return f"<{type(self).__name__}({self.transport.url!r})>"

    # Filters.

    async def create(
        self,
        name: Name,
        capacity: int | None = None,
        error_rate: float | str | None = None,
        *,
        kind: str | None = None,
        on_full: str | None = None,
        **parameters: Any,
    ) -> AsyncRemoteFilter:
        """Make a filter; FilterExists if the name is taken. What is not given the server chooses;
        `parameters` are those of the kind, and of the policy."""
        check_order(capacity, error_rate)
        if isinstance(error_rate, str):  # "1%", as for a local filter
            error_rate = check_error_rate(error_rate)
        parameters |= {"capacity": capacity, "error_rate": error_rate, "kind": kind}
        parameters |= {"on_full": on_full}
        chosen = {key: value for key, value in parameters.items() if value is not None}
        body = dumped({"name": printable(name_of(name)), **chosen})
        await self.transport.send(Request("POST", "/filters", nothing, body))
        return AsyncRemoteFilter(self, name)

    def filter(self, name: Name) -> AsyncRemoteFilter:
        """The filter of that name; the server is not asked whether it is there."""
        return AsyncRemoteFilter(self, name)

    __getitem__ = filter

    async def has(self, name: Name) -> bool:
        """Whether there is a filter of that name."""
        try:
            await self.filter(name).info()
        except UnknownFilter:
            return False
        return True

    def __aiter__(self) -> AsyncIterator[Name]:
        """The names of all filters that one may read."""
        return self.names()

    async def names(self, pattern: Name = "*") -> AsyncIterator[Name]:
        """The names that match a pattern (* ? [a-z])."""
        text = pattern if isinstance(pattern, str) else pattern.decode("utf-8", "surrogateescape")
        query = {"pattern": text, "limit": _PAGE}
        while True:
            page = await self.transport.send(
                Request("GET", "/filters", loaded, query=query, repeatable=True)
            )
            for row in page["filters"]:
                yield readable_name(unprintable(row["name"]))
            if not page.get("cursor"):
                return
            query["cursor"] = str(page["cursor"])

    async def drop(self, name: Name) -> None:
        """Forget a filter; UnknownFilter if there is none."""
        await self.filter(name).drop()

    async def load(self, name: Name, source: Any, *, replace: bool = False) -> AsyncRemoteFilter:
        """Make a filter of a saved one (a path), or of a local one."""
        await self.transport.upload(path_of(name_of(name)), source, replace=replace)
        return AsyncRemoteFilter(self, name)

    async def snapshot(self) -> None:
        """Return when the server has made a snapshot of all filters."""
        await self.transport.send(Request("POST", "/snapshot", nothing))


class AsyncRemoteFilter(OtherNames):
    """A filter of a server, for asyncio. `contains` says False: definitely not; True: maybe."""

    def __init__(self, client: AsyncClient, name: Name) -> None:
        """Ask nothing of the server yet."""
        self._client, self._transport = client, client.transport
        self._use(name_of(name))

    def _use(self, name: bytes) -> None:
        self._name, self._path = name, path_of(name)
        self._requests = KeyRequests(self._path)

    @property
    def name(self) -> Name:
        """Its name: str, or bytes if it is no UTF-8."""
        return readable_name(self._name)

    def __repr__(self) -> str:
        """Show its name and its server."""
        return f"<{type(self).__name__} {self.name!r} of {self._client!r}>"

    # Keys.

    async def add(self, key: Key) -> bool:
        """Add the key; True if it is definitely new, False if it may have been there."""
        return await self._transport.send(self._requests.single("add", key))

    async def contains(self, key: Key) -> bool:
        """False: definitely not there. True: maybe."""
        return await self._transport.send(self._requests.single("contains", key))

    async def add_many(self, keys: Batch, *, nulls: Nulls = "error") -> Mask:
        """Add every key; a mask that is True where a key is definitely new."""
        return await self._transport.send_all(self._requests.many("add", keys, nulls))

    async def contains_many(self, keys: Batch, *, nulls: Nulls = "error") -> Mask:
        """Ask for every key: False is certain, True is maybe."""
        return await self._transport.send_all(self._requests.many("contains", keys, nulls))

    async def update(self, keys: Batch, *, nulls: Nulls = "error") -> None:
        """Add every key and say nothing about which were new; of any number, in one stream."""
        await self._transport.send_all(self._requests.update(keys, nulls))

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
        return await self._transport.send(self._requests.single("remove", key))

    async def remove_many(self, keys: Batch, *, nulls: Nulls = "error") -> Mask:
        """Take one copy of each key out; a mask that is True where there was one."""
        return await self._transport.send_all(self._requests.many("remove", keys, nulls))

    async def lookup(self, key: Key) -> Answer:
        """Is the key there, and what is its value? Of a filter that is bound to a source."""
        return await self._transport.send(self._requests.lookup(key))

    async def lookup_many(self, keys: Batch) -> list[Answer]:
        """The same for many keys, 1,000 a request."""
        return await self._transport.send_all(self._requests.lookups(keys))

    async def forget_many(self, keys: Batch) -> None:
        """Let these be looked up anew, 1,000 a request: the source has other answers now."""
        await self._transport.send_all(self._requests.forgets(keys))

    # The whole filter.

    async def info(self) -> dict[str, Any]:
        """All that the server knows about it: capacity, error_rate, fill_ratio, …"""
        info: dict[str, Any] = await self._transport.send(
            Request("GET", self._path, loaded, repeatable=True)
        )
        return info

    async def samples(self, **query: Any) -> list[dict[str, Any]]:
        """How it was over time; `query`: since, until, span and limit, as docs/http.md has them."""
        chosen = {key: str(value) for key, value in query.items() if value is not None}
        path, read = f"{self._path}/samples", member("samples")
        samples: list[dict[str, Any]] = await self._transport.send(
            Request("GET", path, read, query=chosen, repeatable=True)
        )
        return samples

    async def change(self, **settings: Any) -> None:
        """Change its policy (on_full, …) or when it ends (expires_at, Unix time)."""
        await self._transport.send(Request("PATCH", self._path, nothing, dumped(settings)))

    async def rename(self, to: Name) -> None:
        """Give it another name, under which this object goes on."""
        name = name_of(to)
        await self.change(name=printable(name))
        self._use(name)

    async def clear(self) -> None:
        """Forget every key."""
        await self._post("clear")

    async def rotate(self) -> None:
        """Begin a new generation now, in a filter that rotates."""
        await self._post("rotate")

    async def rebuild(self, **how: Any) -> None:
        """Begin to build it anew from the source that it is bound to (capacity, error_rate,
        settle); `info()["rebuild"]` says how far that is."""
        await self._post("rebuild", how)

    async def merge(self, *others: AsyncRemoteFilter | Name) -> None:
        """Add every key of other filters of the server, which must be made alike."""
        named = (other.name if isinstance(other, AsyncRemoteFilter) else other for other in others)
        names = [printable(name_of(name)) for name in named]
        await self._post("merge", {"sources": names})

    async def _post(self, what: str, body: dict[str, Any] | None = None) -> None:
        data = None if body is None else dumped(body)
        await self._transport.send(Request("POST", f"{self._path}/{what}", nothing, data))

    async def drop(self) -> None:
        """Let the server forget it."""
        await self._transport.send(Request("DELETE", self._path, nothing))

    # Its file.

    async def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file of this machine, which `bloomery.open` loads: all of it or nothing."""
        with files.replacing(path) as file:
            await self._transport.download(f"{self._path}/file", file)

    async def load(self, source: Any) -> None:
        """Put a saved filter (a path), or a local one, in its place."""
        await self._transport.upload(self._path, source, replace=True)

    async def copy_to_local(self) -> Any:
        """A local filter of the same kind with the same keys."""
        with files.temporary() as path:
            await self.save(path)
            return await files.in_thread(files.loaded, path)

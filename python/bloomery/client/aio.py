"""The client for asyncio: what `sync` has, awaited."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from bloomery.client import calls, files
from bloomery.client.aioremote import AsyncRemoteFilter
from bloomery.client.call import Call, Connection, ended_well, load_httpx, problem_of, telling
from bloomery.client.calls import FilterCalls, Many, Name
from bloomery.errors import UnknownFilter

if TYPE_CHECKING:
    import ssl

    from typing_extensions import Self


__all__ = ["AsyncClient"]

T = TypeVar("T")


class AsyncClient:
    """The filters of a server, by name, for asyncio.

    async with AsyncClient("http://127.0.0.1:8100") as client:
        seen = await client.create("seen", capacity=1_000_000, error_rate=0.01)
        await seen.add("alice")
        await client["seen"].contains("alice")
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
        """Connect with the first request; the arguments are `Client`'s."""
        connection = Connection(url, token, user, password, timeout, verify)
        self._http = load_httpx().AsyncClient(**connection.options())

    async def __aenter__(self) -> Self:
        """Be closed at the end of the block."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close."""
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    def __repr__(self) -> str:
        """Show where the server is."""
        return f"<{type(self).__name__}({str(self._http.base_url.copy_with(userinfo=b''))!r})>"

    # Filters.

    async def create(
        self,
        name: Name,
        capacity: int | None = None,
        error_rate: float | None = None,
        *,
        kind: str | None = None,
        on_full: str | None = None,
        **parameters: Any,
    ) -> AsyncRemoteFilter:
        """Make a filter, as `Client.create` does."""
        settings = {"capacity": capacity, "error_rate": error_rate, "kind": kind}
        await self._send(calls.create(name, {**settings, "on_full": on_full, **parameters}))
        return AsyncRemoteFilter(self, name)

    def filter(self, name: Name) -> AsyncRemoteFilter:
        """The filter of that name; the server is not asked whether it is there."""
        return AsyncRemoteFilter(self, name)

    __getitem__ = filter

    async def has(self, name: Name) -> bool:
        """Whether there is a filter of that name."""
        try:
            await self._send(FilterCalls(name).info())
        except UnknownFilter:
            return False
        return True

    def __aiter__(self) -> AsyncIterator[Name]:
        """The names of all filters that one may read."""
        return self.names()

    async def names(self, pattern: Name = "*") -> AsyncIterator[Name]:
        """The names that match a pattern (* ? [a-z])."""
        cursor, more = "", True
        while more:
            names, cursor = await self._send(calls.listing(pattern, cursor))
            for name in names:
                yield name
            more = bool(cursor)

    async def drop(self, name: Name) -> None:
        """Forget a filter; UnknownFilter if there is none."""
        await self._send(FilterCalls(name).drop())

    async def load(self, name: Name, source: Any, *, replace: bool = False) -> AsyncRemoteFilter:
        """Make a filter of a saved one (a path), or of a local one."""
        with contextlib.ExitStack() as stack:
            # A local filter is written to a file first: by a thread, for it may be large.
            file, nbytes = await files.in_thread(stack.enter_context, files.opened(source))
            body = files.chunks(file)
            await self._send(FilterCalls(name).upload(body, nbytes, replace=replace))
        return AsyncRemoteFilter(self, name)

    async def snapshot(self) -> None:
        """Return when the server has made a snapshot of all filters."""
        await self._send(calls.snapshot())

    # Sending.

    def _request(self, call: Call[Any]) -> Any:
        body = call.body
        content = body if body is None or isinstance(body, bytes) else _awaited(body)
        return self._http.build_request(
            call.method, call.path, content=content, headers=call.headers, params=call.query
        )

    async def _send(self, call: Call[T]) -> T:
        with telling(call, self._http):
            try:
                response = await self._http.send(self._request(call))
            except load_httpx().RemoteProtocolError:
                if not call.again:
                    raise
                response = await self._http.send(self._request(call))
        if not ended_well(response):
            raise problem_of(response)
        return call.read(response.content)

    async def _send_all(self, many: Many[T]) -> T:
        return many.join([await self._send(call) for call in many.calls])

    async def _download(self, call: Call[Any], file: Any) -> None:
        with telling(call, self._http):
            response = await self._http.send(self._request(call), stream=True)
            try:
                if not ended_well(response):
                    await response.aread()
                    raise problem_of(response)
                async for chunk in response.aiter_raw():
                    file.write(chunk)
            finally:
                await response.aclose()


async def _awaited(chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
    """A body's parts, each made in a thread: it may be read from a disk, or take a while."""
    while chunk := await files.in_thread(next, chunks, b""):
        yield chunk

"""What sends a client's requests on asyncio, and raises what the server or the network says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from bloomery.client import files
from bloomery.client.operations import FilterRequests, Name
from bloomery.client.request import ServerOptions, error_of, failures_as_errors, load_httpx

if TYPE_CHECKING:
    from collections.abc import Callable

    from bloomery.client.request import Request, Requests

__all__ = ["AsyncTransport"]

T = TypeVar("T")


class AsyncTransport:
    """The connections to one server."""

    def __init__(self, server: ServerOptions) -> None:
        self.http = load_httpx().AsyncClient(**server.httpx_options())

    async def close(self) -> None:
        """Close all connections."""
        await self.http.aclose()

    @property
    def url(self) -> str:
        """Where the server is, without user and password."""
        return str(self.http.base_url.copy_with(userinfo=b""))

    async def send(self, request: Request[T]) -> T:
        """Send a request and read its response."""
        with failures_as_errors(request, self.http):
            try:
                response = await self.http.send(self._built(request))
            except load_httpx().RemoteProtocolError:
                if not request.repeatable:
                    raise
                response = await self.http.send(self._built(request))
        if not response.is_success:
            raise error_of(response)
        return request.read(response.content)

    async def send_all(self, requests: Requests[T]) -> T:
        """Send requests one after the other; what their results come to."""
        return requests.join([await self.send(request) for request in requests.each])

    async def download(
        self, request: Request[Any], file: Any, begin: Callable[[int], None] | None = None
    ) -> None:
        """Write the body of the response to a file, as it comes; `begin` is told its length."""
        with failures_as_errors(request, self.http):
            response = await self.http.send(self._built(request), stream=True)
            try:
                if not response.is_success:
                    await response.aread()
                    raise error_of(response)
                if begin is not None:
                    begin(int(response.headers["content-length"]))
                async for chunk in response.aiter_raw():
                    file.write(chunk)
            finally:
                await response.aclose()

    async def upload(self, name: Name, source: Any, *, replace: bool) -> None:
        """Make a filter of a saved one (a path), or of a local one."""
        async with files.opened_in_thread(source) as (file, nbytes):
            body = files.chunks(file)
            await self.send(FilterRequests(name).upload(body, nbytes, replace=replace))

    def _built(self, request: Request[Any]) -> Any:
        return self.http.build_request(
            request.method,
            request.path,
            content=files.read_in_thread(request.body),
            headers=request.headers,
            params=request.query,
        )

"""What sends a client's requests on asyncio, and raises what the server or the network says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from bloomery.client import files
from bloomery.client.request import (
    Request,
    ServerOptions,
    error_of,
    failures_as_errors,
    load_httpx,
    nothing,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from bloomery.client.request import Requests

T = TypeVar("T")
_JSON = {"Content-Type": "application/json"}
_FILE = "application/octet-stream"


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
        self,
        path: str,
        file: Any,
        query: dict[str, Any] | None = None,
        begin: Callable[[int], None] | None = None,
    ) -> None:
        """Write the body of the response to a file, as it comes; `begin` is told its length."""
        request = Request("GET", path, nothing, headers={"Accept": _FILE}, query=query or {})
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

    async def upload(self, path: str, source: Any, *, replace: bool) -> None:
        """Make a filter of a saved one (a path), or of a local one."""
        async with files.opened_in_thread(source) as (file, nbytes):
            headers = {"Content-Type": _FILE, "Content-Length": str(nbytes)}
            query = {"replace": "true"} if replace else {}
            body = files.chunks(file)
            await self.send(Request("PUT", f"{path}/file", nothing, body, headers, query))

    def _built(self, request: Request[Any]) -> Any:
        return self.http.build_request(
            request.method,
            request.path,
            content=files.read_in_thread(request.body),
            headers={**_JSON, **request.headers} if request.body else request.headers,
            params=request.query,
        )

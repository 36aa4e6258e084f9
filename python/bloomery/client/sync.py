"""The client that waits: a server's filters by name, each used as a local one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from bloomery.client import calls, files
from bloomery.client.call import Call, Connection, ended_well, load_httpx, problem_of, telling
from bloomery.client.calls import FilterCalls, Many, Name
from bloomery.client.remote import RemoteFilter
from bloomery.errors import UnknownFilter

if TYPE_CHECKING:
    import ssl

    from typing_extensions import Self


__all__ = ["Client"]

T = TypeVar("T")


class Client:
    """The filters of a server, by name.

        with Client("http://127.0.0.1:8100") as client:
            seen = client.create("seen", capacity=1_000_000, error_rate=0.01)
            seen.add("alice")
            "alice" in client["seen"]

    One client may be used by many threads.
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
        connection = Connection(url, token, user, password, timeout, verify)
        self._http = load_httpx().Client(**connection.options())

    def __enter__(self) -> Self:
        """Be closed at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def __repr__(self) -> str:
        """Show where the server is."""
        return f"<{type(self).__name__}({str(self._http.base_url.copy_with(userinfo=b''))!r})>"

    # Filters.

    def create(
        self,
        name: Name,
        capacity: int | None = None,
        error_rate: float | None = None,
        *,
        kind: str | None = None,
        on_full: str | None = None,
        **parameters: Any,
    ) -> RemoteFilter:
        """Make a filter; FilterExists if the name is taken. What is not given the server chooses;
        `parameters` are those of the kind, and of the policy."""
        settings = {"capacity": capacity, "error_rate": error_rate, "kind": kind}
        self._send(calls.create(name, {**settings, "on_full": on_full, **parameters}))
        return RemoteFilter(self, name)

    def filter(self, name: Name) -> RemoteFilter:
        """The filter of that name; the server is not asked whether it is there."""
        return RemoteFilter(self, name)

    __getitem__ = filter

    def __contains__(self, name: Name) -> bool:
        """Whether there is a filter of that name."""
        try:
            self._send(FilterCalls(name).info())
        except UnknownFilter:
            return False
        return True

    def __iter__(self) -> Iterator[Name]:
        """The names of all filters that one may read."""
        return self.names()

    def names(self, pattern: Name = "*") -> Iterator[Name]:
        """The names that match a pattern (* ? [a-z])."""
        names, cursor = self._send(calls.listing(pattern, ""))
        yield from names
        while cursor:
            names, cursor = self._send(calls.listing(pattern, cursor))
            yield from names

    def drop(self, name: Name) -> None:
        """Forget a filter; UnknownFilter if there is none."""
        self._send(FilterCalls(name).drop())

    def load(self, name: Name, source: Any, *, replace: bool = False) -> RemoteFilter:
        """Make a filter of a saved one (a path), or of a local one."""
        with files.opened(source) as (file, nbytes):
            body = files.chunks(file)
            self._send(FilterCalls(name).upload(body, nbytes, replace=replace))
        return RemoteFilter(self, name)

    def snapshot(self) -> None:
        """Return when the server has made a snapshot of all filters."""
        self._send(calls.snapshot())

    # Sending.

    def _request(self, call: Call[Any]) -> Any:
        return self._http.build_request(
            call.method, call.path, content=call.body, headers=call.headers, params=call.query
        )

    def _send(self, call: Call[T]) -> T:
        with telling(call, self._http):
            try:
                response = self._http.send(self._request(call))
            except load_httpx().RemoteProtocolError:
                if not call.again:
                    raise
                response = self._http.send(self._request(call))
        if not ended_well(response):
            raise problem_of(response)
        return call.read(response.content)

    def _send_all(self, many: Many[T]) -> T:
        return many.join([self._send(call) for call in many.calls])

    def _download(self, call: Call[Any], file: Any) -> None:
        with telling(call, self._http):
            response = self._http.send(self._request(call), stream=True)
            try:
                if not ended_well(response):
                    response.read()
                    raise problem_of(response)
                for chunk in response.iter_raw():
                    file.write(chunk)
            finally:
                response.close()

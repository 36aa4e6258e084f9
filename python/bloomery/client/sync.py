"""The client that waits: a server's filters by name, each used as a local one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from bloomery.client import calls, files
from bloomery.client.call import Call, Connection, ended_well, load_httpx, problem_of, telling
from bloomery.client.calls import FilterCalls, Many, Name
from bloomery.errors import UnknownFilter

if TYPE_CHECKING:
    import ssl

    from typing_extensions import Self

    from bloomery.types import Batch, Key, Mask, Nulls

__all__ = ["Client", "RemoteFilter"]

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


class RemoteFilter:
    """A filter of a server: `key in filter` is False: definitely not there; True: maybe."""

    def __init__(self, client: Client, name: Name) -> None:
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

    def add(self, key: Key) -> bool:
        """Add the key; True if it is definitely new, False if it may have been there."""
        return self._client._send(self._calls.one("add", key))

    def __contains__(self, key: Key) -> bool:
        """False: definitely not there. True: maybe."""
        return self._client._send(self._calls.one("contains", key))

    def add_many(self, keys: Batch, *, nulls: Nulls = "error") -> Mask:
        """Add every key; a mask that is True where a key is definitely new."""
        return self._client._send_all(self._calls.many("add", keys, nulls))

    def contains_many(self, keys: Batch, *, nulls: Nulls = "error") -> Mask:
        """Ask for every key: False is certain, True is maybe."""
        return self._client._send_all(self._calls.many("contains", keys, nulls))

    def update(self, keys: Batch, *, nulls: Nulls = "error") -> None:
        """Add every key and say nothing about which were new; of any number, in one stream."""
        self._client._send_all(self._calls.update(keys, nulls))

    def remove(self, key: Key) -> bool:
        """Take one copy of the key out; KeyError if it is definitely not there.

        True: it was taken out. False: it may be there and cannot be.
        """
        removed = self.discard(key)
        if not removed and key not in self:
            raise KeyError(key)
        return removed

    def discard(self, key: Key) -> bool:
        """Take one copy of the key out if it is there; True if it was."""
        return self._client._send(self._calls.one("remove", key))

    def remove_many(self, keys: Batch, *, nulls: Nulls = "error") -> Mask:
        """Take one copy of each key out; a mask that is True where there was one."""
        return self._client._send_all(self._calls.many("remove", keys, nulls))

    # The whole filter.

    def info(self) -> dict[str, Any]:
        """All that the server knows about it."""
        return self._client._send(self._calls.info())

    @property
    def kind(self) -> str:
        """Its kind, as the server says now; so are all figures below."""
        return str(self.info()["kind"])

    @property
    def capacity(self) -> int:
        """How many distinct keys it is made for."""
        return int(self.info()["capacity"])

    @property
    def error_rate(self) -> float:
        """The share of absent keys that may be answered with a maybe."""
        return float(self.info()["error_rate"])

    @property
    def fill_ratio(self) -> float:
        """The share of its places that are taken."""
        return float(self.info()["fill_ratio"])

    @property
    def estimated_count(self) -> int:
        """How many distinct keys it holds, estimated where it is not known."""
        return int(self.info()["estimated_count"])

    @property
    def estimated_error_rate(self) -> float:
        """The share of absent keys answered with a maybe, as the filter stands now."""
        return float(self.info()["estimated_error_rate"])

    @property
    def nbytes(self) -> int:
        """Bytes of the server's memory."""
        return int(self.info()["nbytes"])

    def samples(self, **query: Any) -> list[dict[str, Any]]:
        """How it was over time; `query`: since, until, span and limit, as docs/http.md has them."""
        return self._client._send(self._calls.samples(**query))

    def change(self, **settings: Any) -> None:
        """Change its policy (on_full, …) or when it ends (expires_at, Unix time)."""
        self._client._send(self._calls.change(**settings))

    def rename(self, to: Name) -> None:
        """Give it another name, under which this object goes on."""
        renamed = FilterCalls(to)
        self._client._send(self._calls.renamed(renamed))
        self._calls = renamed

    def clear(self) -> None:
        """Forget every key."""
        self._client._send(self._calls.act("clear"))

    def rotate(self) -> None:
        """Begin a new generation now, in a filter that rotates."""
        self._client._send(self._calls.act("rotate"))

    def merge(self, *others: RemoteFilter | Name) -> None:
        """Add every key of other filters of the server, which must be made alike."""
        self._client._send(self._calls.merge(others))

    def __ior__(self, other: object) -> Self:
        """Add every key of another filter of the server."""
        if not isinstance(other, RemoteFilter):
            return NotImplemented
        self.merge(other)
        return self

    def drop(self) -> None:
        """Let the server forget it."""
        self._client._send(self._calls.drop())

    # Its file.

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file of this machine, which `bloomery.open` loads: all of it or nothing."""
        with files.replacing(path) as file:
            self._client._download(self._calls.download(), file)

    def load(self, source: Any) -> None:
        """Put a saved filter (a path), or a local one, in its place."""
        self._client.load(self._calls.name, source, replace=True)

    def copy_to_local(self) -> Any:
        """A local filter of the same kind with the same keys."""
        with files.temporary() as path:
            self.save(path)
            return files.loaded(path)

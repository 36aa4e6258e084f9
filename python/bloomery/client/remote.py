"""A filter of a server, used as a local one is; who waits for the answers is `sync`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from bloomery.client import calls, files
from bloomery.client.calls import FilterCalls, Name

if TYPE_CHECKING:
    from typing_extensions import Self

    from bloomery.client.sync import Client
    from bloomery.guard.answer import Answer
    from bloomery.types import Batch, Key, Mask, Nulls

__all__ = ["RemoteFilter"]


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

    def lookup(self, key: Key) -> Answer:
        """Is the key there, and what is its value? Of a filter that is bound to a source."""
        return self._client._send(self._calls.lookup(key))

    def lookup_many(self, keys: Batch) -> list[Answer]:
        """The same for many keys, 1,000 a request."""
        return self._client._send_all(self._calls.lookups(keys))

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

    def rebuild(self, **how: Any) -> None:
        """Begin to build it anew from the source that it is bound to (capacity, error_rate,
        settle); `info()["rebuild"]` says how far that is."""
        self._client._send(self._calls.rebuild(**how))

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

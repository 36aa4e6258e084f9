"""All filters of one server copied to another, by SCANDUMP and LOADCHUNK. Either is bloomery or a
Redis with RedisBloom.

A copy is loaded under a name of its own, which expires after an hour, and gets the filter's name
when it is complete. So a run that was interrupted continues with the first filter that the target
lacks. A filter that changed while it was read is read again: a key that the dump missed would be a
false negative.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from bloomery import names
from bloomery.errors import CorruptData, InvalidParameter, StoreRefused
from bloomery.integrations.redis.bf.filter import beside
from bloomery.integrations.redis.wire import failures
from bloomery.redis_client import redis_client

_FAMILIES = {"BF": "MBbloom--", "CF": "MBbloomCF"}  # with the TYPE of their filters
_HOUR = 3600 * 1000
_SCANNED = 1000
_ATTEMPTS = 3
_PORT = 6380  # of `bloomery serve`


@dataclass(frozen=True)
class FoundFilter:
    """A filter of the source."""

    name: bytes
    family: str  # BF or CF
    nbytes: int

    @property
    def text(self) -> str:
        """The name as people read it."""
        return names.printable(self.name)


class _Server:
    """A server of either side, which raises errors of bloomery's."""

    def __init__(self, url: str, timeout: float) -> None:
        self._redis = redis_client(
            _redis_url(url), "filter", for_asyncio=False, timeout=timeout, retries=0
        )
        self.place = self._redis.place
        self._client = self._redis.client

    def ask(self, *words: Any) -> Any:
        """Send a command once, and return its reply."""
        lost, error = failures.reply_failures()
        try:
            return self._client.execute_command(*words)
        except error as problem:
            raise failures.refused(problem) from None
        except lost as problem:
            raise failures.unavailable(problem, self.place) from None

    def has(self, command: str) -> bool:
        """Return whether the server has a command."""
        [known] = self.ask("COMMAND INFO", command)
        return known is not None

    def close(self) -> None:
        """Close the connection."""
        self._redis.close()


class Migration:
    """Copies filters from a source to a target."""

    def __init__(self, source: _Server, target: _Server) -> None:
        self._source, self._target = source, target
        for server, command in ((source, "BF.SCANDUMP"), (target, "BF.LOADCHUNK")):
            if not server.has(command):
                raise StoreRefused(_without(server, command))

    def find(self) -> list[FoundFilter]:
        """Return the filters of the source, by name."""
        found = {}
        for family, kind in _FAMILIES.items():
            cursor = None
            while cursor != 0:
                reply = self._source.ask("SCAN", cursor or 0, "COUNT", _SCANNED, "TYPE", kind)
                cursor = int(reply[0])
                for name in reply[1]:
                    about = self._about(family, name)
                    if about is not None:
                        found[name] = FoundFilter(name, family, about.get(b"Size", 0))
        return [found[name] for name in sorted(found)]

    def copy(self, filter: FoundFilter, *, replace: bool, advance: Callable[[int], None]) -> bool:
        """Copy a filter with its expiry; False if the target has one of that name, or the source no
        longer does. `advance` gets the bytes of each part."""
        if not replace and self._target.ask("EXISTS", filter.name):
            return False
        for _ in range(_ATTEMPTS):
            before = self._about(filter.family, filter.name)
            if before is None:
                return False
            coming = beside(filter.name, "migrate")
            try:
                self._load(filter, coming, advance)
            except (StoreRefused, CorruptData):
                self._target.ask("UNLINK", coming)
                if self._about(filter.family, filter.name) == before:
                    raise
                continue  # a dump of before and after a write
            if self._about(filter.family, filter.name) == before:
                return self._place(filter.name, coming, replace=replace)
            self._target.ask("UNLINK", coming)
        raise StoreRefused(
            f"clients write to filter {filter.text} while it is copied, so the copy would lack "
            "keys; stop these clients and run the same command again"
        )

    def _about(self, family: str, name: bytes) -> dict[Any, Any] | None:
        """Return INFO of a filter of the source; None if it was deleted."""
        if not self._source.ask("EXISTS", name):
            return None
        reply = self._source.ask(f"{family}.INFO", name)
        return dict(zip(reply[::2], reply[1::2], strict=True))

    def _load(self, filter: FoundFilter, coming: bytes, advance: Callable[[int], None]) -> None:
        for iterator, data in self._parts(filter):
            self._target.ask(f"{filter.family}.LOADCHUNK", coming, iterator, data)
            self._target.ask("PEXPIRE", coming, _HOUR)
            advance(len(data))

    def _parts(self, filter: FoundFilter) -> Iterator[tuple[int, bytes]]:
        iterator = 0
        while True:
            reply = self._source.ask(f"{filter.family}.SCANDUMP", filter.name, iterator)
            if not isinstance(reply, list) or len(reply) != 2 or not isinstance(reply[0], int):
                raise CorruptData(f"{self._source.place}: the reply is not a part of a dump")
            following, data = reply
            if following == 0:
                return
            if following <= iterator or not isinstance(data, bytes):
                raise CorruptData(f"{self._source.place}: the dump does not advance")
            iterator = following
            yield iterator, data

    def _place(self, name: bytes, coming: bytes, *, replace: bool) -> bool:
        """Give a complete copy the filter's expiry and name."""
        left = int(self._source.ask("PTTL", name))
        if left == -2:  # it expired or was deleted
            self._target.ask("UNLINK", coming)
            return False
        if left > 0:
            self._target.ask("PEXPIRE", coming, left)
        else:
            self._target.ask("PERSIST", coming)
        if replace:
            self._target.ask("RENAME", coming, name)
            return True
        if self._target.ask("RENAMENX", coming, name):
            return True
        self._target.ask("UNLINK", coming)
        return False


@contextmanager
def migration(source: str, target: str, timeout: float) -> Iterator[Migration]:
    """Connect to both servers; `timeout` is for each reply, in seconds."""
    one = _Server(source, timeout)
    try:
        other = _Server(target, timeout)
        try:
            yield Migration(one, other)
        finally:
            other.close()
    finally:
        one.close()


def _redis_url(url: str) -> str:
    """Return the URL for a client of Redis: bloomery:// is the Redis protocol of a server."""
    scheme, colon, rest = url.partition("://")
    if not colon or scheme not in ("bloomery", "bloomerys"):
        return url
    try:
        has_port = urlsplit(url).port is not None
    except ValueError:
        raise InvalidParameter(f"the port of {scheme}:// must be a number") from None
    place, slash, path = rest.partition("/")
    address = place if has_port else f"{place}:{_PORT}"
    return f"{'rediss' if scheme == 'bloomerys' else 'redis'}://{address}{slash}{path}"


def _without(server: _Server, command: str) -> str:
    if server.has("BF.ADD"):
        return (
            f"{server.place} has BF.ADD but not {command}, as valkey-bloom: its filters cannot be "
            "dumped; add the keys to new filters"
        )
    return (
        f"{server.place} has no {command}: it is a Redis without RedisBloom; give the URL of a "
        "RedisBloom or bloomery server"
    )

"""The users of nodes: one document for all of them, in the Redis that they share.

It is `users.json` of a server alone, with the time at which each name was last changed, or removed.
A node reads it again each second. If Redis has lost a change, a node that has it puts it back: of
each name, the latest change counts. A node notes the document in its folder, so that this holds
over restarts; and one that knew of users never starts without them.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bloomery import errors
from bloomery.redis_client import redis_client
from bloomery.service.access.users import UserFile, Users, encode, parse, users_file
from bloomery.service.config.settings import Settings
from bloomery.service.observe.logs import Say
from bloomery.storage import files

_MOST_BYTES = 16 << 20
_SWAP = """
local before = redis.call("GET", KEYS[1]) or ""
if before ~= ARGV[1] then return 0 end
redis.call("SET", KEYS[1], ARGV[2])
return 1
"""


class SharedUsers:
    """The users of all nodes of a store."""

    def __init__(self, url: str, prefix: str, data: str | os.PathLike[str] | None = None) -> None:
        """`data`: a node's folder, where it notes the users that it knows."""
        self._redis = redis_client(url, "users", for_asyncio=False, timeout=2.0, retries=1)
        self._key = f"{{{prefix}}}:users"
        self._marker = None if data is None else Path(data, "users.shared")
        self._known = b""  # as they were last read, with what Redis has lost since
        self.place = f"{self._key} in Redis at {self._redis.place}"

    def load(self) -> Users:
        """Read the users; CorruptData if they are damaged, or gone although there were some;
        StoreUnavailable if Redis does not answer."""
        raw = self._restored()
        if not raw:
            if self._marker is not None and self._marker.exists():
                raise errors.CorruptData(
                    f"{self.place}: gone, and there were users: add them again with `bloomery user "
                    f"add --store URL`, and remove {self._marker}"
                )
            return Users()
        return parse(raw, self.place)

    @contextlib.contextmanager
    def changing(self) -> Iterator[Users]:
        """Read the users and write what was changed, unless it raises, or others changed them
        meanwhile."""
        raw = self._read()
        users = parse(raw, self.place) if raw else Users()
        before = dict(users)
        yield users
        if users == before:
            return
        for name in users.keys() | before.keys():
            if users.get(name) != before.get(name):
                now = int(1000 * time.time())
                users.changed[name] = max(now, users.changed.get(name, 0) + 1)
        swapped = self._ask(lambda client: client.eval(_SWAP, 1, self._key, raw, encode(users)))
        if swapped != 1:
            raise errors.InvalidParameter(
                f"{self.place}: somebody else changed the users meanwhile: try again"
            )

    def stamp(self) -> object:
        """What is another once the users were changed; what it was if Redis does not answer."""
        try:
            return self._restored() or None
        except errors.StoreUnavailable:
            return self._known or None

    def _restored(self) -> bytes:
        """Read the document, after putting back what Redis has lost of it."""
        raw, known = self._read(), self._known
        if raw == known:
            return raw
        if raw and not known and self._marker is not None:
            with contextlib.suppress(OSError):
                known = self._marker.read_bytes()
        try:
            merged = _merged(raw, known, self.place) if raw and known else raw or known
        except errors.CorruptData:
            return raw  # who parses it says so
        if merged != raw:
            swapped = self._ask(lambda client: client.eval(_SWAP, 1, self._key, raw, merged))
            if swapped != 1:  # another node, or a user, was first: once more, later
                return raw
        self._note(merged)
        return merged

    def _note(self, raw: bytes) -> None:
        """Note what is known, also for the next start."""
        self._known = raw
        if raw and self._marker is not None:
            with contextlib.suppress(OSError):  # the audit log, in the same folder, says so
                self._marker.parent.mkdir(parents=True, exist_ok=True)
                with files.replacing(self._marker, mode=0o600) as file:
                    file.write(raw)

    def _read(self) -> bytes:
        raw: bytes = self._ask(lambda client: client.getrange(self._key, 0, _MOST_BYTES)) or b""
        if len(raw) > _MOST_BYTES:
            raise errors.CorruptData(f"{self.place}: more than {_MOST_BYTES:,} bytes")
        return raw

    def _ask(self, what: Any) -> Any:
        try:
            return what(self._redis.client)
        except self._redis.failures as problem:
            raise errors.StoreUnavailable(self._redis.describe(problem)) from None


def _merged(raw: bytes, known: bytes, place: str) -> bytes:
    """Return the users of Redis with what a node knows to have been changed later; `raw` itself if
    that is nothing."""
    users, ours = parse(raw, place), parse(known, place)
    later = [name for name, at in ours.changed.items() if at > users.changed.get(name, 0)]
    if not later:
        return raw
    for name in later:
        users.changed[name] = ours.changed[name]
        users.pop(name, None)
        if name in ours:
            users[name] = ours[name]
    return encode(users)


def user_source(settings: Settings, say: Say | None = None) -> UserFile | SharedUsers:
    """Return where the users of a server are; tell of a file that a node does not read."""
    if not settings.store:
        return UserFile(settings.data)
    path = users_file(settings.data)
    if say is not None and path.exists():
        say(
            f"{path}: not read, since this is a node: users of nodes are in their store: `bloomery "
            "user add NAME --store URL`; remove the file",
            level="warning",
        )
    return SharedUsers(settings.store, settings.store_prefix, settings.data)

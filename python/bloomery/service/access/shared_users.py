"""The users of nodes: one document for all of them, in the Redis that they share.

It is the same as `users.json` of a server alone. A node reads it again each second. If Redis has
lost it, a node that has it puts it back; and a node that knew of users never starts without them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bloomery import errors
from bloomery.redis_client import redis_client
from bloomery.service.access.users import UserFile, Users, encode, parse, private, users_file
from bloomery.service.config.settings import Settings
from bloomery.service.observe.logs import Say

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
        """`data`: a node's folder, where it notes that there are users."""
        self._redis = redis_client(url, "users", for_asyncio=False, timeout=2.0, retries=1)
        self._key = f"{{{prefix}}}:users"
        self._marker = None if data is None else Path(data, "users.shared")
        self._known = b""  # as they were last read
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
        users = parse(raw, self.place)
        self._known = raw
        if users and self._marker is not None and not self._marker.exists():
            self._marker.parent.mkdir(parents=True, exist_ok=True)
            with open(self._marker, "ab", opener=private):
                pass
        return users

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
        """Read the document, after putting it back if Redis has lost it."""
        raw = self._read()
        if not raw and self._known:
            self._ask(lambda client: client.set(self._key, self._known, nx=True))
            raw = self._read()
        return raw

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

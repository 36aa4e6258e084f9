"""Names of a filter's keys in Redis.

    {name}:config          what it is made like
    {name}:bits            its bits, where they are one string
    {name:3}:bits          those of its fourth shard: another hash tag, so another slot of a cluster

What is in braces decides the slot, and ends at the first closing brace: a brace in a name is
written %7B or %7D, and a percent sign %25. A name that ends like a shard's, with a colon and a
number, has %3A for that colon: filter "seen:3" is not the fourth shard of "seen".
"""

from __future__ import annotations

import re
from typing import Any

from bloomery.errors import InvalidParameter

_LONGEST = 1024
_LIKE_A_SHARD = re.compile(rb":(\d+)$")


class Keys:
    """The names of the keys in Redis that one filter has."""

    __slots__ = ("_tag", "config", "name")

    def __init__(self, name: Any) -> None:
        if not isinstance(name, (str, bytes)):
            raise InvalidParameter(f"the name is a {type(name).__name__}, must be text")
        try:
            plain = name.encode() if isinstance(name, str) else name
        except UnicodeEncodeError:
            raise InvalidParameter(f"the name {name[:40]!r} is no Unicode text") from None
        if not 0 < len(plain) <= _LONGEST:
            raise InvalidParameter(f"the name has {len(plain)} bytes, must have 1 to {_LONGEST}")
        self.name: str = (
            name if isinstance(name, str) else plain.decode("utf-8", "backslashreplace")
        )
        for brace, written in ((b"%", b"%25"), (b"{", b"%7B"), (b"}", b"%7D")):
            plain = plain.replace(brace, written)
        plain = _LIKE_A_SHARD.sub(rb"%3A\1", plain)
        self._tag = plain
        self.config = b"{%b}:config" % plain

    def bits(self, shards: int) -> list[bytes]:
        """Return the names of the strings, one a shard."""
        if shards == 1:
            return [b"{%b}:bits" % self._tag]
        return [b"{%b:%d}:bits" % (self._tag, shard) for shard in range(shards)]

    def beside(self, what: str) -> bytes:
        """Return another key in the slot of the configuration."""
        return b"{%b}:%b" % (self._tag, what.encode())

"""Telling nodes what is added: servers that have a copy of the filter (`bloomery serve --store`).

Their stream, in Redis, has an entry for what was added, once its bits are set:

    w   who wrote it: 8 random bytes
    d   records, one behind the other: uid (8 bytes) | operation (1) | length (4) | hashes

`service/replication` reads it. The configuration of such a filter says which stream, its number
there (uid), and how many entries are kept.
"""

from __future__ import annotations

import secrets
import struct
from collections.abc import Iterable
from typing import Any

from bloomery.errors import InvalidParameter
from bloomery.integrations.redis.wire.flow import Ask, command

HEAD = struct.Struct("<QBI")
ADD, RELOAD = 1, 9  # as operations of the service are numbered: added; merged
LEAST = 1000  # entries that the stream keeps in any case: nodes read so many at once
_MOST_BYTES = 512 << 20  # of the stream, if all entries were as long as the one that is appended
_WRITER = secrets.token_bytes(8)  # of this process


def told(stream: bytes, uid: int, most: int) -> dict[str, Any]:
    """Return the feed's entry in the configuration of a filter: stream, uid, length."""
    return {"stream": stream.decode("utf-8", "surrogateescape"), "uid": uid, "most": most}


def right(given: Any) -> bool:
    """Whether that entry of a configuration is valid; None, without a feed, is."""
    if given is None:
        return True
    kinds = {"stream": str, "uid": int, "most": int}
    if not isinstance(given, dict) or {n: type(v) for n, v in given.items()} != kinds:
        return False
    uid, most = int(given["uid"]), int(given["most"])
    return 0 <= uid < 1 << 64 and 0 < most < 1 << 63


def entry(
    stream: bytes, most: int, writer: bytes, records: Iterable[tuple[int, int, bytes]]
) -> tuple[bytes | str | int, ...]:
    """Return the command that appends records, and lets old entries go beyond so many."""
    data = b"".join(HEAD.pack(uid, op, len(data)) + data for uid, op, data in records)
    # Entries of 10,000 keys each would be 8 GB of Redis's memory before the usual number is there.
    most = min(most, max(LEAST, _MOST_BYTES // (len(data) or 1)))
    return ("XADD", stream, "MAXLEN", "~", most, "*", "w", writer, "d", data)


def asked(given: dict[str, Any], op: int, data: bytes = b"") -> Ask:
    """Return what is sent to tell the nodes of one filter."""
    stream = given["stream"].encode("utf-8", "surrogateescape")
    return command(stream, *entry(stream, given["most"], _WRITER, [(given["uid"], op, data)]))


def forbid(given: dict[str, Any] | None, name: str, what: str) -> None:
    """Raise unless a filter is nobody else's to change as a whole."""
    if given is not None:
        raise InvalidParameter(f"filter {name!r} is one of nodes, which have copies: {what}")

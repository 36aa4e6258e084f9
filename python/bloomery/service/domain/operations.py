"""What can be done to the filters of a server, as its log holds it: the number of a filter, what is
done to it, and bytes.

| operation | bytes |
|---|---|
| ADD, REMOVE, ADD_NEW | hashes: 8 little-endian bytes each, 16 for kind `redisbloom` |
| CREATE, RENAME, COPY, EXPIRE, MERGE, ADJUST | a JSON object (`fields`) |
| CHUNK | a position, a JSON object and a part of a saved filter (`chunk`) |
| DROP, CLEAR, COMPACT, TICK | none |
| ROTATE | none, or the time at which the generation began that is to be the last but one |
| FORGET | names of keys, each behind its length (`names`) |
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable
from enum import IntEnum
from typing import Any, TypeAlias

from bloomery import errors

Record: TypeAlias = tuple[int, int, bytes]  # the filter's number, the operation, its bytes
_CHUNK = struct.Struct("<QI")  # the position, how long the JSON is
_LENGTH = struct.Struct("<I")


class Op(IntEnum):
    """The operations, by the numbers that logs hold: never change one. Another one takes a new
    `folder.FORMAT`: who does not know it must not start on such a log."""

    ADD = 1
    REMOVE = 2
    CREATE = 3  # name, and the settings of a new filter
    DROP = 4
    RENAME = 5  # name
    COPY = 6  # the source's number, and the copy's name
    EXPIRE = 7  # at: Unix time, or null for never
    CLEAR = 8
    MERGE = 9  # the sources' numbers, and how: "union" or "intersection"
    ROTATE = 10
    CHUNK = 11
    COMPACT = 12
    TICK = 13  # time has come for a rotating filter to forget
    ADJUST = 14  # settings of the service's own, as they are from now on; null: the default
    ADD_NEW = 15  # those keys that are definitely not there; on nodes
    SUCCEED = 16  # successor: the number of the filter that this one is from now on; on nodes
    FORGET = 17  # what caches hold of these keys of the filter's source; on nodes


HASHES = frozenset({Op.ADD, Op.REMOVE, Op.ADD_NEW})
# Which version of nodes was the first to know an operation; 1 unless it is here. What needs more
# than some node has is refused on all.
SINCE: dict[int, int] = {}
MAKES = frozenset({Op.CREATE, Op.COPY, Op.CHUNK})  # a filter; of CHUNK the first one


def fields(**values: Any) -> bytes:
    """Return the bytes of an operation that has fields. Names are text: `text_of`."""
    return json.dumps(values, separators=(",", ":")).encode()


def read_fields(data: bytes) -> dict[str, Any]:
    """Return the fields of an operation's bytes; the inverse of `fields`."""
    try:
        fields = json.loads(data)
    except ValueError:
        fields = None
    if not isinstance(fields, dict):
        raise errors.CorruptData(f"an operation's {len(data)} bytes are no JSON object")
    return fields


def chunk(position: int, data: bytes, **values: Any) -> bytes:
    """Return the bytes of a CHUNK. The first, at position 1, has fields: name, format, settings."""
    head = fields(**values)
    return _CHUNK.pack(position, len(head)) + head + data


def read_chunk(data: bytes) -> tuple[int, dict[str, Any], bytes]:
    """Return position, fields and data of a CHUNK; the inverse of `chunk`."""
    if len(data) >= _CHUNK.size:
        position, length = _CHUNK.unpack_from(data)
        end = _CHUNK.size + length
        if end <= len(data):
            return position, read_fields(data[_CHUNK.size : end]), data[end:]
    raise errors.CorruptData(f"a chunk of {len(data)} bytes is cut off")


def names(given: Iterable[bytes]) -> bytes:
    """Return the bytes of a FORGET: keys as a cache names them."""
    return b"".join(_LENGTH.pack(len(name)) + name for name in given)


def read_names(data: bytes) -> list[bytes]:
    """Return the names that a FORGET has; the inverse of `names`."""
    listed, at = [], 0
    while at < len(data):
        start = at + _LENGTH.size
        at = start + _LENGTH.unpack_from(data, at)[0] if start <= len(data) else len(data) + 1
        if at > len(data):
            raise errors.CorruptData(f"names in {len(data)} bytes are cut off")
        listed.append(data[start:at])
    return listed


def text_of(name: bytes) -> str:
    """Return a name as JSON can hold it, whatever its bytes are."""
    return name.decode("utf-8", "surrogateescape")


def name_of(text: str) -> bytes:
    """Return the name of a text; the inverse of `text_of`."""
    return text.encode("utf-8", "surrogateescape")


def quoted(name: bytes) -> str:
    """Return a name for a message: in quotes, in ASCII, and not too long."""
    text = ascii(text_of(name))
    return text if len(text) <= 60 else text[:57] + "..."

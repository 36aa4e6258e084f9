"""The operations on the filters of a server, as its log has them: the number of a filter, what is
done, and bytes. The bytes start with the filter's name (`named`), so that a record states which
filter it was decided for. If another filter has that name by the time the record is applied, or the
filter has another name, nothing is done (`Conflict`) and the command runs again.

| operation | bytes after the name |
|---|---|
| ADD, REMOVE, ADD_NEW, … | hashes: 8 little-endian bytes each, 16 for `redisbloom` and `bank` |
| CREATE, RENAME, COPY, EXPIRE, MERGE, ADJUST, SUCCEED | a JSON object (`fields`) |
| CHUNK | a position, a JSON object and a part of a saved filter (`chunk`) |
| DROP, CLEAR, COMPACT, TICK | none |
| ROTATE | none, or the time at which the generation started that is to become the last but one |
| FORGET | names of keys, each after its length (`names`) |
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
_NAME = struct.Struct("<H")


LARGE = 4 << 20  # bytes: an operation on all of a larger filter takes milliseconds


class Op(IntEnum):
    """The operations, by the numbers that logs hold: never change one. A new one needs a new
    `folder.FORMAT`, because older versions cannot apply it."""

    ADD = 1
    REMOVE = 2
    CREATE = 3  # the settings of a new filter
    DROP = 4
    RENAME = 5  # to, and whether it may replace a filter; fields of ADJUST
    COPY = 6  # number and name of the source, and whether it may replace a filter; as ADJUST
    EXPIRE = 7  # at: Unix time, or null for never; the expiry that is expected now
    CLEAR = 8
    MERGE = 9  # numbers and names of the sources, and how: "union" or "intersection"
    ROTATE = 10
    CHUNK = 11  # the first one: format, settings, whether it may replace a filter, and its expiry
    COMPACT = 12
    TICK = 13  # generations of a rotating filter are due to expire
    ADJUST = 14  # settings of the service, null restores the default; expiry (at)
    ADD_NEW = 15  # adds the keys that are definitely new
    SUCCEED = 16  # successor: the number of the filter that replaces this one
    FORGET = 17  # keys of the filter's source that caches must read again
    ADD_IN_PLACE = 18  # as ADD, if the filter need not grow: memory was short
    ADD_NEW_IN_PLACE = 19  # as ADD_NEW, in the same way


class Conflict(errors.UnknownFilter):
    """Another command changed the filter or its name before the log reached this operation, which
    did nothing. The command runs again."""


class DamagedRecord(errors.CorruptData):
    """A record is not as the server writes it: the log is damaged, or lacks earlier records."""


class UnknownOperation(errors.UnsupportedVersion):
    """A newer version of bloomery wrote the record."""


IN_PLACE = {Op.ADD: Op.ADD_IN_PLACE, Op.ADD_NEW: Op.ADD_NEW_IN_PLACE}
HASHES = frozenset({Op.ADD, Op.REMOVE, Op.ADD_NEW, Op.ADD_IN_PLACE, Op.ADD_NEW_IN_PLACE})
# The first version of nodes that knows an operation; 1 unless listed. An operation that some node
# does not know is rejected.
SINCE: dict[int, int] = {}
CREATES = frozenset({Op.CREATE, Op.COPY, Op.CHUNK})  # a filter; only the first CHUNK does


def named(name: bytes, data: bytes = b"") -> bytes:
    """Return the bytes of a record: the filter's name, then the operation's own bytes."""
    return _NAME.pack(len(name)) + name + data


def split(data: bytes) -> tuple[bytes, bytes]:
    """Return the name and the operation's own bytes; the inverse of `named`."""
    start = _NAME.size
    end = start + _NAME.unpack_from(data)[0] if len(data) >= start else len(data) + 1
    if end > len(data):
        raise DamagedRecord(f"a record of {len(data)} bytes is truncated in its name")
    return data[start:end], data[end:]


def names_in(op: int, data: bytes) -> list[bytes]:
    """Return the names that a record is about, the first one its own."""
    name, body = split(data)
    listed = [name]
    if op == Op.RENAME:
        listed.append(name_of(read_fields(body)["to"]))
    elif op == Op.COPY:
        listed.append(name_of(read_fields(body)["of"]))
    elif op == Op.MERGE:
        listed += [name_of(text) for _, text in read_fields(body)["sources"]]
    return list(dict.fromkeys(listed))


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
        raise DamagedRecord(f"an operation's {len(data)} bytes are no JSON object")
    return fields


def chunk(position: int, data: bytes, **values: Any) -> bytes:
    """Return the bytes of a CHUNK. The first, at position 1, has fields."""
    head = fields(**values)
    return _CHUNK.pack(position, len(head)) + head + data


def read_chunk(data: bytes) -> tuple[int, dict[str, Any], bytes]:
    """Return position, fields and data of a CHUNK; the inverse of `chunk`."""
    if len(data) >= _CHUNK.size:
        position, length = _CHUNK.unpack_from(data)
        end = _CHUNK.size + length
        if end <= len(data):
            return position, read_fields(data[_CHUNK.size : end]), data[end:]
    raise DamagedRecord(f"a chunk of {len(data)} bytes is cut off")


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
            raise DamagedRecord(f"names in {len(data)} bytes are cut off")
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

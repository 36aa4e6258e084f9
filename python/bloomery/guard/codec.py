"""Values and keys as bytes, for caches in Redis and for queues: JSON, with tags for other types.

Not pickle: whoever can write into a cache could then run code here. The bytes to be read may be
hostile, and each way of being wrong is a ValueError that says which. A value comes back equal and
of the same type, but for subclasses, bytearray and memoryview, which come back as their plain type.
Entries and queues outlive a version: the bytes of a value never change. (Keys in requests have a
format of their own, `json_keys`: it has fewer types, and people write it.)
"""

from __future__ import annotations

import base64
import contextlib
import json
import math
import operator
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, NoReturn
from uuid import UUID

from bloomery.errors import InvalidParameter
from bloomery.guard.protocols import Item

_DEEPEST = 64
_PLAIN_INT = 2**63  # larger ones as hex: Python limits the digits that it reads


def encode(value: Any) -> bytes:
    """A value as bytes; InvalidParameter names the type that cannot be written."""
    text = json.dumps(_encode(value, 0), ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass")


def decode(data: bytes) -> Any:
    """The value that was written; ValueError for bytes that `encode` does not write."""
    try:
        parsed = json.loads(
            data.decode("utf-8", "surrogatepass"),
            object_pairs_hook=_pairs,
            parse_constant=_constant,
            parse_int=_int,
        )
        return _decode(parsed, 0)
    except RecursionError:
        raise ValueError(f"nested more than {_DEEPEST} deep") from None
    except (UnicodeDecodeError, json.JSONDecodeError):
        raise ValueError(f"{len(data)} bytes that are no JSON") from None


def read_item(what: Any, key: Any, value: Any, idempotency_key: Any, at: Any, id: Any) -> Item:
    """An item as a queue holds it; ValueError for one that nobody of us wrote."""
    if what not in ("look", "add", "remove"):
        raise ValueError("it is no look-up, add or remove")
    fields = (key, bytes), (value, bytes), (idempotency_key, str), (at, float)
    if not all(isinstance(field, kind) for field, kind in fields):
        raise ValueError("a part of it is missing, or of another type")
    return Item(what, decode(key), decode(value), idempotency_key, at, id)


def _encode(value: Any, depth: int) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if depth > _DEEPEST:
        raise InvalidParameter(f"a value is nested more than {_DEEPEST} deep")
    deeper = depth + 1
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"$float": str(float(value))}
    if isinstance(value, list):
        return [_encode(item, deeper) for item in value]
    if isinstance(value, tuple):
        return {"$tuple": [_encode(item, deeper) for item in value]}
    if isinstance(value, dict):
        if all(isinstance(key, str) and not key.startswith("$") for key in value):
            return {_text(key): _encode(item, deeper) for key, item in value.items()}
        pairs = value.items()
        return {"$dict": [[_encode(key, deeper), _encode(item, deeper)] for key, item in pairs]}
    for kinds, tag, encoder in _ENCODERS:
        if isinstance(value, kinds):
            return {tag: encoder(value)}
    with contextlib.suppress(TypeError):  # arrays have __index__ too
        number = operator.index(value)  # of int, and what stands for one
        return number if abs(number) < _PLAIN_INT else {"$int": f"{number:x}"}
    raise InvalidParameter(
        f"a {type(value).__name__} cannot be written: it must be None, bool, int, float, str, "
        "bytes, datetime, date, time, timedelta, Decimal or UUID, or a list, tuple or dict of these"
    )


# Not str(): of an enum of texts that is its name. The characters, as a plain str.
_text = str.__str__


def _decode(parsed: Any, depth: int) -> Any:
    if depth > _DEEPEST:
        raise ValueError(f"nested more than {_DEEPEST} deep")
    deeper = depth + 1
    if isinstance(parsed, list):
        return [_decode(item, deeper) for item in parsed]
    if not isinstance(parsed, dict):
        return parsed
    tag = next(iter(parsed), "")
    if not tag.startswith("$"):
        if any(key.startswith("$") for key in parsed):
            raise ValueError("a tag beside other names")
        return {key: _decode(item, deeper) for key, item in parsed.items()}
    content = parsed[tag]
    if len(parsed) > 1:
        raise ValueError("a tag beside other names")
    if tag == "$tuple" and isinstance(content, list):
        return tuple(_decode(item, deeper) for item in content)
    if tag == "$dict" and isinstance(content, list):
        return _decode_pairs(content, deeper)
    if tag not in _DECODERS:
        raise ValueError(f"an unknown tag of {len(tag)} characters")
    try:
        return _DECODERS[tag](content)
    except (ValueError, TypeError, ArithmeticError, AttributeError):
        raise ValueError(f"no {tag[1:]} behind its tag") from None


def _decode_pairs(pairs: list[Any], depth: int) -> dict[Any, Any]:
    if not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
        raise ValueError("no dict behind its tag")
    try:
        decoded = {_decode(key, depth): _decode(item, depth) for key, item in pairs}
    except TypeError:
        raise ValueError("a dict's key that cannot be one") from None
    if len(decoded) != len(pairs):
        raise ValueError("a name twice")
    return decoded


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = dict(pairs)
    if len(names) != len(pairs):
        raise ValueError("a name twice")
    return names


def _constant(_: str) -> NoReturn:
    raise ValueError("a number that JSON has not")


def _int(text: str) -> int:
    if len(text) > 20:
        raise ValueError(f"a number of {len(text)} digits without its tag")
    return int(text)


def _timedelta(parts: list[int]) -> timedelta:
    days, seconds, microseconds = parts
    return timedelta(days, seconds, microseconds)


def _float(text: str) -> float:
    number = float(text)
    if math.isfinite(number):
        raise ValueError
    return number


# datetime is a date: it comes first.
_ENCODERS: list[tuple[type | tuple[type, ...], str, Callable[[Any], Any]]] = [
    (
        (bytes, bytearray, memoryview),
        "$bytes",
        lambda value: base64.b64encode(bytes(value)).decode(),
    ),
    (datetime, "$datetime", datetime.isoformat),
    (date, "$date", date.isoformat),
    (time, "$time", time.isoformat),
    (timedelta, "$timedelta", lambda value: [value.days, value.seconds, value.microseconds]),
    (Decimal, "$decimal", str),
    (UUID, "$uuid", lambda value: value.hex),
]
_DECODERS: dict[str, Callable[[Any], Any]] = {
    "$bytes": lambda text: base64.b64decode(text, validate=True),
    "$datetime": datetime.fromisoformat,
    "$date": date.fromisoformat,
    "$time": time.fromisoformat,
    "$timedelta": _timedelta,
    "$decimal": lambda text: Decimal(text + ""),  # of a str alone
    "$uuid": lambda text: UUID(hex=text),
    "$int": lambda text: int(text, 16),
    "$float": _float,
}

"""Keys and values as bytes, and back as they were; no pickle, which runs what it reads."""

from __future__ import annotations

import json
from typing import Any

from bloomery.errors import CorruptData, InvalidParameter

__all__ = ["decode", "encode"]


def encode(value: Any) -> bytes:
    """A value as bytes."""
    return json.dumps(_plain(value), ensure_ascii=True, separators=(",", ":")).encode()


def decode(data: bytes) -> Any:
    """The value again."""
    try:
        return _rich(json.loads(data))
    except (ValueError, TypeError, KeyError) as problem:
        raise CorruptData(f"no encoded value: {problem}") from None


def _plain(value: Any) -> Any:
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"b": bytes(value).hex()}
    if type(value) is tuple:
        return {"t": [_plain(one) for one in value]}
    if type(value) is list:
        return [_plain(one) for one in value]
    if type(value) is dict:
        return {"d": [[_plain(key), _plain(one)] for key, one in value.items()]}
    raise InvalidParameter(f"a {type(value).__name__} cannot be kept: use str, bytes, numbers …")


def _rich(data: Any) -> Any:
    if isinstance(data, list):
        return [_rich(one) for one in data]
    if isinstance(data, dict):
        ((kind, inner),) = data.items()
        if kind == "b":
            return bytes.fromhex(inner)
        if kind == "t":
            return tuple(_rich(one) for one in inner)
        return {_rich(key): _rich(one) for key, one in inner}
    return data

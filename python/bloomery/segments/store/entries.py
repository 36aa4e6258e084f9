"""What can be a key and a value of a store: bytes, or a str, which is its UTF-8."""

from __future__ import annotations

from bloomery import errors

_MOST_KEY_BYTES = 64 << 10
_MOST_VALUE_BYTES = 512 << 20  # SQLite takes a billion, key and all


def as_bytes(value: object, what: str) -> bytes:
    """Return a key or a value as bytes."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError:
            raise errors.InvalidKey(
                f"a {what} has a lone surrogate, which UTF-8 cannot hold: encode it yourself"
            ) from None
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    raise errors.UnsupportedKey(
        f"a {what} is {type(value).__name__}, must be bytes or str: encode it, as in str(value)"
    )


def as_key(key: object) -> bytes:
    """Return a key as bytes, if it is one."""
    data = as_bytes(key, "key")
    if len(data) > _MOST_KEY_BYTES:
        raise errors.InvalidKey(
            f"a key has {len(data):,} bytes, must be {_MOST_KEY_BYTES:,} at most: use its hash"
        )
    return data


def as_value(value: object) -> bytes:
    """Return a value as bytes, if it is one."""
    data = as_bytes(value, "value")
    if len(data) > _MOST_VALUE_BYTES:
        raise errors.InvalidParameter(
            f"a value has {len(data):,} bytes, must be {_MOST_VALUE_BYTES:,} at most: keep it in a "
            "file, and its name here"
        )
    return data

"""Keys as a column has them. A client of the Redis protocol sends bytes, one of HTTP text or
numbers: the filter is asked for the key as it was given, the source for what its column holds."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,30}")


def _text(key: Any) -> str | None:
    """Return a key as text; None if it is none."""
    if isinstance(key, bytes):
        try:
            return key.decode()
        except UnicodeDecodeError:
            return None
    return key if isinstance(key, str) else None


def _as_text(key: Any) -> str | None:
    return str(key) if isinstance(key, (int, UUID)) else _text(key)


def _as_integer(key: Any) -> int | None:
    if isinstance(key, int):
        return key
    text = _text(key)
    return int(text) if text is not None and _NUMBER.fullmatch(text) else None


def _as_uuid(key: Any) -> UUID | None:
    if isinstance(key, UUID):
        return key
    try:
        return UUID(_text(key) or "")
    except ValueError:
        return None


def _as_bytes(key: Any) -> bytes | None:
    return key.encode() if isinstance(key, str) else key if isinstance(key, bytes) else None


# What can be no value of such a column becomes None: it cannot be there.
KEY_TYPES: dict[str, Callable[[Any], Any]] = {
    "text": _as_text,
    "integer": _as_integer,
    "uuid": _as_uuid,
    "bytes": _as_bytes,
}


def as_given(key: Any) -> Any:
    """A key that came as bytes, as the text that it is; others as they are."""
    text = _text(key) if isinstance(key, bytes) else None
    return key if text is None else text


def forms(key: Any) -> list[Any]:
    """A row's key in every form in which clients may have given it: a number as such, or as its
    digits; a UUID as such, or as text. Those who write it otherwise ask for another key."""
    if isinstance(key, (int, UUID)):
        return [key, str(key)]
    variants = [key]
    if isinstance(key, str):
        if _NUMBER.fullmatch(key):
            variants.append(int(key))
        elif len(key) == 36 and (uuid := _as_uuid(key)) is not None and str(uuid) == key:
            variants.append(uuid)
    return variants


class TypedSource:
    """A source that is asked for keys of one type, whatever it is that clients send."""

    def __init__(self, source: Any, key_type: str) -> None:
        self.source = source
        self.name = source.name
        self._of = KEY_TYPES[key_type]

    def get_many(self, keys: Sequence[Any]) -> Mapping[Any, Any]:
        """The values of those keys that are there, each by the key that was given."""
        given: dict[Any, list[Any]] = {}
        for key in keys:
            wanted = self._of(key)
            if wanted is not None:
                given.setdefault(wanted, []).append(key)
        values = self.source.get_many(list(given)) if given else {}
        return {key: value for wanted, value in values.items() for key in given[wanted]}

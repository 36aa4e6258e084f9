"""Keys in a database's words, and rows back to the keys that were asked for.

A key that the filter holds must be found, and one that it does not hold must not: str and bytes of
the same text are one key, 5 and "5" are two, and so are "Alice" and "alice", whatever the column's
collation says. What a column cannot hold is not there; what it compares by other rules is an error.
"""

from __future__ import annotations

import operator
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import cached_property
from typing import Any
from uuid import UUID

from bloomery import _native
from bloomery.errors import InvalidSource, UnsupportedKey

# PostgreSQL's types that can be a key: kind, and the array that keys are sent as.
_TYPES = {
    17: ("bytes", "bytea"),
    20: ("int", "bigint"),
    21: ("int", "bigint"),
    23: ("int", "bigint"),
    25: ("text", "text"),
    1042: ("text", "bpchar"),
    1043: ("text", "text"),
    1114: ("timestamp", "timestamp"),
    1184: ("timestamptz", "timestamptz"),
    1700: ("numeric", "numeric"),
    2950: ("uuid", "uuid"),
}


@dataclass(frozen=True)
class KeyColumn:
    """What the key column is: `any` where the database does not tell, or takes everything."""

    kind: str = "any"
    cast: str = ""  # the type of the array that keys are sent as
    type_name: str = ""  # its own type, for messages

    def all_words(self, keys: Sequence[Any], source: str) -> list[Any]:
        """The words of many keys."""
        if self.kind == "text" and all(type(key) is str for key in keys):  # 20 times as fast
            return [key for key in keys if "\0" not in key]
        return [word for key in keys for word in self.words(key, source)]

    def words(self, key: Any, source: str) -> list[Any]:
        """How a key may stand in the column; nothing if it cannot be there."""
        if isinstance(key, (str, bytes, bytearray, memoryview)):
            return self._text(key, source)
        if isinstance(key, UUID):
            if self.kind == "uuid":
                return [key]
            raise self._mismatch("a UUID", source)
        if isinstance(key, datetime):
            aware = key.utcoffset() is not None
            if self.kind == ("timestamptz" if aware else "timestamp"):
                return [key]
            raise self._mismatch(f"a datetime {'with' if aware else 'without'} time zone", source)
        if not hasattr(key, "__index__"):
            raise self._mismatch(f"a {type(key).__name__}", source)
        number = operator.index(key)
        if self.kind not in ("int", "numeric", "any"):
            raise self._mismatch("an int", source)
        return [number] if self.kind == "numeric" or -(2**63) <= number < 2**63 else []

    def _text(self, key: str | bytes | bytearray | memoryview, source: str) -> list[Any]:
        if self.kind not in ("text", "bytes", "any"):
            raise self._mismatch(f"a {type(key).__name__}", source)
        data = key.encode() if isinstance(key, str) else bytes(key)
        if self.kind == "bytes":
            return [data]
        try:
            text = data.decode()
        except UnicodeDecodeError:
            return [data] if self.kind == "any" else []
        if self.kind == "any":
            return [text, data]  # SQLite holds either in any column
        return [] if "\0" in text else [text]  # which PostgreSQL cannot hold

    def check_held(self, keys: Sequence[Any], source: str) -> None:
        """Raise if what the column holds are other keys than those that it will be asked for."""
        if self.cast == "bpchar" and any(key.endswith(" ") for key in keys):
            raise _padded(source)

    def _mismatch(self, what: str, source: str) -> InvalidSource:
        held = f"is of type {self.type_name}" if self.type_name else "cannot hold that"
        return InvalidSource(
            f"{source} was asked for {what}, and its key column {held}: ask with keys of the "
            "column's type, or give a query= that converts it; a source of a server has key-type"
        )


def postgresql_column(type_code: int, type_name: str, source: str) -> KeyColumn:
    """The key column by the number and the name of its type."""
    kind, cast = _TYPES.get(type_code, ("", ""))
    if not kind and type_name.rpartition(".")[2] == "citext":
        kind, cast = "text", type_name
    if not kind:
        raise InvalidSource(
            f"{source} has a key column of type {type_name}, must be text, bytea, an integer, "
            "numeric, uuid or a timestamp: give a query= that converts it, "
            "as in SELECT code::text, …"
        )
    return KeyColumn(kind, cast, type_name)


def key_of(held: Any) -> Any:
    """A row's key as a filter knows it."""
    if isinstance(held, Decimal) and held == held.to_integral_value():
        return int(held)
    return held


class Asked:
    """The keys of one question."""

    def __init__(self, keys: Sequence[Any], source: str) -> None:
        self._source = source
        self._given = keys
        # Keys of one type, str or int, are what they are; this spares most their canonical bytes.
        types = set(map(type, keys))
        self._plain = frozenset(keys) if types <= {str} or types <= {int} else frozenset()

    @cached_property
    def _keys(self) -> dict[bytes, list[Any]]:
        by_canonical: dict[bytes, list[Any]] = {}
        for key in self._given:
            by_canonical.setdefault(_native.canonical(key), []).append(key)
        return by_canonical

    def about(self, held: Any) -> Sequence[Any]:
        """The keys, as they were given, that a row's key is; none if only its column takes it for
        one of them, as a column without case does."""
        if type(held) in (str, int) and held in self._plain:
            return (held,)
        key = key_of(held)
        if key is None:
            return ()
        try:
            keys = self._keys.get(_native.canonical(key))
        except UnsupportedKey:
            raise InvalidSource(
                f"{self._source} has a {type(held).__name__} for a key, which no filter can hold"
            ) from None
        if keys is not None:
            return keys
        if not isinstance(key, (str, bytes)):
            raise InvalidSource(
                f"{self._source} answered with a key of type {type(key).__name__} that it was not "
                "asked for: its key column is of another type than the keys"
            )
        if isinstance(key, str):
            self._compare(key)
        return ()

    def _compare(self, text: str) -> None:
        """Raise if it came back for a key that it stands for, but is not; or for none at all."""
        if _native.canonical(text.rstrip(" ")) in self._keys:
            raise _padded(self._source)
        try:
            number = int(text)
        except ValueError:
            pass
        else:
            if _native.canonical(number) in self._keys:
                raise InvalidSource(
                    f"{self._source} was asked for an int, and its key column holds text: ask with "
                    "keys of the column's type"
                )
        if _folded(text) not in self._alike:
            raise InvalidSource(
                f"{self._source} answered with a key that it was not asked for: the first column "
                "of its query must be the key, as it is asked for"
            )

    @cached_property
    def _alike(self) -> set[str]:
        return {
            _folded(key if isinstance(key, str) else bytes(key).decode(errors="replace"))
            for key in self._given
            if isinstance(key, (str, bytes, bytearray, memoryview))
        }


def _padded(source: str) -> InvalidSource:
    return InvalidSource(
        f"{source} pads its keys with blanks, so that they are other keys: make the column text, "
        "or give a query= with rtrim(…)"
    )


def _folded(text: str) -> str:
    """The text as the loosest of collations compares it: without case, accents and blanks."""
    plain = unicodedata.normalize("NFKD", text.casefold())
    return "".join(c for c in plain if not (unicodedata.combining(c) or c.isspace()))

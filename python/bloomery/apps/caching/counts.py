"""What an admission cache counts, and how it is used as a mapping."""

from __future__ import annotations

import threading
from typing import Any

from bloomery import errors
from bloomery._native import canonical

_ABSENT = object()


def filter_key(key: Any) -> Any:
    """A cache's key as a filter takes it: itself, or its text where it cannot be a filter's key, as
    a float or what `@cached` makes of keyword arguments. Keys of one text share no more than the
    decision to be kept."""
    try:
        canonical(key)
    except (errors.UnsupportedKey, errors.InvalidKey):
        return repr(key)
    return key


class AdmissionCounts:
    """Counts of an admission cache; any thread may count."""

    def __init__(self) -> None:
        self._counting = threading.Lock()
        names = ("hits", "misses", "admitted", "passed_by", "put", "deleted")
        self._counts = dict.fromkeys((*names, "refused", "unavailable"), 0)

    def _count(self, name: str) -> None:
        with self._counting:
            self._counts[name] += 1

    def info(self) -> dict[str, Any]:
        """What happened so far, ready for JSON: hits, misses, values that were admitted at
        their second request, passed by at the first, put without asking, deleted, refused by the
        store, and calls for which the store was away."""
        with self._counting:
            counts = dict(self._counts)
        asked = counts["hits"] + counts["misses"]
        return {**counts, "hit_ratio": counts["hits"] / asked if asked else 0.0}


class MappingInterface:
    """An admission cache as a mapping, so that it stands where a dict or cachetools' cache did.

    To set a key is to offer it: the first time passes by.
    """

    def find(self, key: Any, default: Any = None) -> Any:
        """Return the value if it is in the cache."""
        raise NotImplementedError

    def offer(self, key: Any, value: Any) -> bool:
        """Take a value as a request for it."""
        raise NotImplementedError

    def delete(self, key: Any) -> None:
        """Take a value out."""
        raise NotImplementedError

    def __getitem__(self, key: Any) -> Any:
        value = self.find(key, _ABSENT)
        if value is _ABSENT:
            raise KeyError(key)
        return value

    def __setitem__(self, key: Any, value: Any) -> None:
        self.offer(key, value)

    def __delitem__(self, key: Any) -> None:
        self.delete(key)

    def __contains__(self, key: Any) -> bool:
        return self.find(key, _ABSENT) is not _ABSENT

    def setdefault(self, key: Any, value: Any) -> Any:
        """Return the value that is there, or this one, which is offered (`@cached` with a lock)."""
        there = self.find(key, _ABSENT)
        if there is not _ABSENT:
            return there
        self.offer(key, value)
        return value

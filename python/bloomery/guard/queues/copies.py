"""Copies of keys in a filter that counts them, because adds of them wait in the queue.

All adds of a key that wait need one copy, so that the filter does not deny it meanwhile; a copy
for each would fill a cuckoo filter, which holds few of a key. When the source has done the first of
them and says that the key was new, the copy is the source's, and those behind it get another; if it
was there before, so was its copy, and this one stays for those behind, or leaves with the last.

"Was it there?" is no proof where the same add was tried before, and nobody heard of it: then it may
have made the key itself. So each is known by its idempotency key, and whether it was tried. Whoever
calls is the only writer of that key (`writers`).
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["PendingCopies"]


class PendingCopies:
    """By canonical key: the adds that wait and share one copy, in order, and whether each was
    tried. Those that were there at the start have numbers."""

    def __init__(self) -> None:
        self._waiting: dict[bytes, dict[str | int, bool]] = {}
        self._shared: set[bytes] = set()  # whose copy is the source's too: there was no room

    def __len__(self) -> int:
        return sum(map(len, list(self._waiting.values())))

    def has(self, name: bytes) -> bool:
        """Is there a copy for those that wait?"""
        return name in self._waiting

    def wait(self, name: bytes, token: str, *, tried: bool = False) -> None:
        """This one waits, and there is a copy for it."""
        adds = self._waiting.setdefault(name, {})
        adds[token] = tried or adds.get(token, False)

    def adopt(self, names: Iterable[bytes]) -> None:
        """These waited before we came; of the first of each key nobody knows whether it was
        tried."""
        for name in names:
            adds = self._waiting.setdefault(name, {})
            adds[len(adds)] = not adds

    def done(self, name: bytes, token: str) -> bool:
        """It waits no more. True: if it found the key there, that was another's doing."""
        adds, found = self._find(name, token)
        if found is None:
            return False
        first = next(iter(adds)) == found
        tried = adds.pop(found)
        if not adds:
            self._waiting.pop(name, None)
        return first and not tried

    def doubt(self, name: bytes, token: str) -> None:
        """It was tried, and nobody knows what came of it."""
        adds, found = self._find(name, token)
        if found is not None:
            adds[found] = True

    def _find(self, name: bytes, token: str) -> tuple[dict[str | int, bool], str | int | None]:
        """One that waits; what is not known by its idempotency key is the next that has a number:
        they are done in order."""
        adds = self._waiting.get(name, {})
        if token in adds:
            return adds, token
        return adds, next((one for one in adds if isinstance(one, int)), None)

    def share(self, name: bytes) -> None:
        """The copy of those that wait is the source's too."""
        self._shared.add(name)

    def unshare(self, name: bytes) -> bool:
        """Was it? From now on it is not: the source has none, or none wait."""
        shared = name in self._shared
        self._shared.discard(name)
        return shared

    def clear(self) -> None:
        """None wait, or it is another filter; copies that are in one stay there."""
        self._waiting.clear()
        self._shared.clear()

"""Copies of keys that a counting filter holds for adds that wait in the queue.

All adds of a key that wait need one copy, so that the filter does not deny it meanwhile; a copy
for each would fill a cuckoo filter, which holds few of a key. When the source has done the first of
them and says that the key was new, the copy is the source's, and those behind it get another; if it
was there before, so was its copy, and this one stays for those behind, or leaves with the last.

"Was it there?" is no proof where the same add was tried before, and nobody heard of it: then it may
have made the key itself. So each is known by its idempotency key, and whether it was tried. Callers
hold the lock of the key (`core.writers`).
"""

from __future__ import annotations

from collections.abc import Iterable


class PendingCopies:
    """By canonical key: the adds that wait and share one copy, in order, and whether each was
    tried. Those that were there at the start have numbers."""

    def __init__(self) -> None:
        self._waiting: dict[bytes, dict[str | int, bool]] = {}
        self._shared: set[bytes] = set()  # whose copy is the source's too: there was no room

    def __len__(self) -> int:
        return sum(map(len, list(self._waiting.values())))

    def has(self, name: bytes) -> bool:
        """Whether there is a copy for adds that wait."""
        return name in self._waiting

    def wait(self, name: bytes, token: str, *, tried: bool = False) -> None:
        """Note that this add waits, and that there is a copy for it."""
        adds = self._waiting.setdefault(name, {})
        adds[token] = tried or adds.get(token, False)

    def adopt(self, names: Iterable[bytes]) -> None:
        """Note adds that waited before this process began; of the first of each key nobody knows
        whether it was tried."""
        for name in names:
            adds = self._waiting.setdefault(name, {})
            adds[len(adds)] = not adds

    def done(self, name: bytes, token: str) -> bool:
        """Forget an add that is done. True: it was not tried before, so if the source says that the
        key was there, another had added it."""
        adds, add = self._find(name, token)
        if add is None:
            return False
        first = next(iter(adds)) == add
        tried = adds.pop(add)
        if not adds:
            self._waiting.pop(name, None)
        return first and not tried

    def doubt(self, name: bytes, token: str) -> None:
        """Note that this add was tried, with an outcome that is not known."""
        adds, add = self._find(name, token)
        if add is not None:
            adds[add] = True

    def _find(self, name: bytes, token: str) -> tuple[dict[str | int, bool], str | int | None]:
        """The adds of a key that wait, and which of them this is. One that is not known by its
        idempotency key is the next that has a number: they are done in order."""
        adds = self._waiting.get(name, {})
        if token in adds:
            return adds, token
        return adds, next((add for add in adds if isinstance(add, int)), None)

    def share(self, name: bytes) -> None:
        """Note that one copy in the filter stands for the source's key and for adds that wait."""
        self._shared.add(name)

    def unshare(self, name: bytes) -> bool:
        """End what `share` noted, since the source lacks the key or no add waits; was it noted?"""
        shared = name in self._shared
        self._shared.discard(name)
        return shared

    def clear(self) -> None:
        """Forget all: none wait, or another filter answers. Copies in a filter stay there."""
        self._waiting.clear()
        self._shared.clear()

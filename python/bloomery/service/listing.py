"""Which filters there are: their names and numbers, as far as a user may know of them."""

from __future__ import annotations

import bisect
from collections import OrderedDict
from collections.abc import Iterator

from bloomery.service.access.cursors import Cursors
from bloomery.service.access.permissions import ANYBODY, User
from bloomery.service.domain.entry import Entry
from bloomery.service.engine import Engine

BUILT = b"\x00rebuild:"  # how names begin of filters that are built to take another's place
UPLOADED = b"\x00upload:"  # and of filters that are being uploaded
RESERVED = (BUILT, UPLOADED)  # no client may give a filter a name that starts so
_ITERATIONS = 16  # for as many different patterns: past that an iteration takes longer


class Listing:
    """The filters of a server, to be listed in one go or in steps (SCAN)."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.hidden: set[bytes] = set()  # names that are for no client: of filters that are built
        engine.on_change.subscribe(self._hide)
        engine.on_drop.subscribe(lambda entry: self.hidden.discard(entry.name))
        # Numbers of filters, in order, by patterns of names; some may be gone.
        self._numbers: OrderedDict[tuple[bytes, ...], list[int]] = OrderedDict()
        self._cursors = Cursors()

    def _hide(self, entry: Entry) -> None:
        """Hide filters that a rebuild creates, here or on another node."""
        if entry.name.startswith(BUILT):
            self.hidden.add(entry.name)

    def names(self) -> list[bytes]:
        """Return the names of all filters that clients may know of."""
        self._engine.begin()
        return self.visible(ANYBODY)

    def visible(self, user: User) -> list[bytes]:
        """Return all names that a user may know of. They are chosen before anything else is done
        with them: neither the result nor the time it takes then gives others' names away."""
        names, hidden = self._engine.state.names, self.hidden
        if not user.everything:
            return [name for name in names if user.covers(name) and name not in hidden]
        return [name for name in names if name not in hidden] if hidden else [*names]

    def number(self, user: User) -> int:
        """Return how many filters a user may know of."""
        if not user.everything:
            return len(self.visible(user))
        names = self._engine.state.names
        return len(names) - len(self.hidden & names.keys())

    def scan(self, cursor: int, count: int, user: User = ANYBODY) -> tuple[int, Iterator[Entry]]:
        """Return the next cursor and `count` filters of a user's own after this one; from 0 to 0 it
        meets every filter that is there all the while."""
        self._engine.begin()
        state, entries = self._engine.state, list[Entry]()
        if not user.everything:
            cursor = self._cursors.open(cursor, state.next_id)
        numbers = self._numbered(user, anew=cursor == 0)
        at = bisect.bisect_right(numbers, cursor)
        while at < len(numbers) and len(entries) < count:
            entry = state.filters.get(numbers[at])
            # Its name may be another one by now.
            if entry is not None and entry.name not in self.hidden and user.covers(entry.name):
                entries.append(entry)
            at += 1
        following = numbers[at - 1] if at < len(numbers) else 0
        return following if user.everything else self._cursors.seal(following), iter(entries)

    def _numbered(self, user: User, *, anew: bool) -> list[int]:
        """Return the numbers of a user's own filters, sorted once an iteration: it takes long."""
        patterns = (b"*",) if user.everything else user.patterns
        if anew or patterns not in self._numbers:
            names = self._engine.state.names
            self._numbers[patterns] = sorted(names[name].id for name in self.visible(user))
            self._numbers.move_to_end(patterns)
            while len(self._numbers) > _ITERATIONS:
                self._numbers.popitem(last=False)
        return self._numbers[patterns]

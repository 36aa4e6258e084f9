"""Each operation of the server, once. The doors (RESP, HTTP) only translate to and from these.

A name is bytes, a key is whatever the library takes as one. What is wrong is raised as one of
`bloomery.errors`. What changes a filter is noted for the log; it may be acknowledged once the
engine has committed the turn.
"""

from __future__ import annotations

import bisect
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from bloomery import errors
from bloomery.guard.answer import Answer
from bloomery.service.access.cursors import Cursors
from bloomery.service.access.glob import glob
from bloomery.service.access.permissions import ANYBODY, User
from bloomery.service.config.settings import Settings
from bloomery.service.domain import operations
from bloomery.service.domain.operations import Op
from bloomery.service.domain.state import Entry, Long
from bloomery.service.engine import Engine
from bloomery.service.lookup.lookups import Lookups
from bloomery.service.policy import policy
from bloomery.service.policy.policy import FilterPolicy
from bloomery.service.replication import reads
from bloomery.service.slices import batches
from bloomery.storage import files

if TYPE_CHECKING:
    from bloomery.service.background import Aside
    from bloomery.service.replication.node import Node

__all__ = ["Commands", "Outcome"]

_T = TypeVar("_T")
MAX_NAME_BYTES = 1024
NO_ROOM = 2
_ITERATIONS = 16  # for as many different patterns: past that an iteration takes longer
MAX_EXPORT_BYTES = 4 << 20  # of one chunk: it is copied several times, and all others wait

# A byte for each key: 0 or 1, or NO_ROOM if there was no memory for it; and the refusal (code,
# message) of one that was refused, and with it all behind it.
Outcome = tuple[bytes, tuple[str, str] | None]


def _no_sample(entry: Entry) -> dict[str, Any]:
    return {}


class Commands:
    """What can be done to the filters of a server."""

    def __init__(
        self,
        engine: Engine,
        settings: Settings,
        lookups: Lookups | None = None,
        *,
        node: Node | None = None,
        aside: Aside | None = None,
        sampled: Callable[[Entry], dict[str, Any]] = _no_sample,
    ) -> None:
        """`node`: with a store. `aside`: of a running server. `sampled` returns the last sample of
        a filter, empty if there is none."""
        self.engine = engine
        self.settings = settings
        self.lookups = lookups or Lookups(engine, settings)  # without sources
        self.node, self.aside, self._sampled = node, aside, sampled
        self.hidden: set[bytes] = set()  # names that nobody is told: they are not for clients
        # Numbers of filters, in order, by patterns of names; some may be gone.
        self._numbers: OrderedDict[tuple[bytes, ...], list[int]] = OrderedDict()
        self._cursors = Cursors()

    # Which filters there are.

    def find(self, name: bytes) -> Entry:
        """Return the entry of a name; UnknownFilter if there is none."""
        entry = self.engine.find(name)
        if entry is None:
            raise errors.UnknownFilter(f"there is no filter named {shown(name)}: make it first")
        return entry

    async def hear(self, *names: bytes) -> None:
        """With a store: have filters of these names that another node has just made."""
        if self.node is not None:
            for name in names:
                if name not in self.engine.state.names:
                    await reads.hear(self.node, name)

    def create(self, name: bytes, kind: str | None = None, **settings: Any) -> Entry:
        """Make an empty filter; FilterExists if the name is taken. Without a kind it is the one
        that the policy (`on_full`) asks for."""
        self._check_new(name)
        self._check_size(settings.get("capacity", 0))
        if settings.get("source") is not None:
            self.lookups.check(settings["source"])
        given = policy.chosen(kind, settings)
        fields = operations.fields(name=operations.text_of(name), settings=given)
        return self.engine.create(Op.CREATE, fields)

    def policy(self, name: bytes) -> FilterPolicy:
        """Return what happens when a filter is full."""
        return policy.policy_of(self._whole(name))

    def adjust(self, name: bytes, **given: Any) -> Entry:
        """Change a filter's policy, by the fields of `FilterPolicy`; None: back to the default."""
        entry = self._whole(name)
        changes = policy.adjusted(entry, given)
        self.engine.change(Op.ADJUST, entry.id, operations.fields(**changes))
        return entry

    def bind(self, name: bytes, source: str | None) -> Entry:
        """Let keys be looked up in a source of the configuration; None: in none."""
        entry = self.find(name)
        if source is not None:
            self.lookups.check(source)
        self.engine.change(Op.ADJUST, entry.id, operations.fields(source=source))
        return entry

    def drop(self, *names: bytes) -> int:
        """Forget filters; how many there were."""
        entries = {entry.id for name in names if (entry := self.engine.find(name)) is not None}
        for filter_id in entries:
            self.engine.change(Op.DROP, filter_id)
        return len(entries)

    def names(self, pattern: bytes = b"*", user: User = ANYBODY) -> list[bytes]:
        """Return the names of a user's own that match a pattern, as Redis has them (* ? [a-z] and
        backslash)."""
        self.engine.begin()
        names = self.visible(user)
        if pattern == b"*":
            return names
        match = glob(pattern)
        return [name for name in names if match(name)]

    def visible(self, user: User) -> list[bytes]:
        """Return all names that a user may know of. They are chosen before anything else is done
        with them: neither what it is nor how long it takes then tells of others."""
        names, hidden = self.engine.state.names, self.hidden
        if not user.everything:
            return [name for name in names if user.covers(name) and name not in hidden]
        return [name for name in names if name not in hidden] if hidden else [*names]

    def number(self, user: User) -> int:
        """Return how many filters a user may know of."""
        if not user.everything:
            return len(self.visible(user))
        names = self.engine.state.names
        return len(names) - len(self.hidden & names.keys())

    def scan(self, cursor: int, count: int, user: User = ANYBODY) -> tuple[int, Iterator[Entry]]:
        """Return the next cursor and `count` filters of a user's own after this one; from 0 to 0 it
        meets every filter that is there all the while."""
        self.engine.begin()
        state, some = self.engine.state, list[Entry]()
        if not user.everything:
            cursor = self._cursors.open(cursor, state.next_id)
        numbers = self._numbered(user, anew=cursor == 0)
        at = bisect.bisect_right(numbers, cursor)
        while at < len(numbers) and len(some) < count:
            entry = state.filters.get(numbers[at])
            # Its name may be another one by now.
            if entry is not None and entry.name not in self.hidden and user.covers(entry.name):
                some.append(entry)
            at += 1
        following = numbers[at - 1] if at < len(numbers) else 0
        return following if user.everything else self._cursors.seal(following), iter(some)

    def _numbered(self, user: User, *, anew: bool) -> list[int]:
        """The numbers of a user's own filters, made once for an iteration: it takes long."""
        patterns = (b"*",) if user.everything else user.patterns
        if anew or patterns not in self._numbers:
            names = self.engine.state.names
            self._numbers[patterns] = sorted(names[name].id for name in self.visible(user))
            self._numbers.move_to_end(patterns)
            while len(self._numbers) > _ITERATIONS:
                self._numbers.popitem(last=False)
        return self._numbers[patterns]

    def info(self, name: bytes, about: dict[str, Any] | None = None) -> dict[str, Any]:
        """All that is known about a filter, ready for JSON; `about` is what it said of itself, if
        it was asked elsewhere: to count the bits of a large one takes long."""
        entry = self.find(name)
        adds, checks, maybes = self.engine.figures(entry)
        if about is None:
            about = {} if entry.filter is None else entry.filter.info()
        return {
            "name": operations.text_of(entry.name),
            **about,
            "items": entry.items,
            "created_at": entry.created_at,
            "expires_at": entry.expires_at,
            "loading": entry.filter is None,
            "settings": dict(entry.settings),
            "policy": {} if entry.filter is None else policy.policy_of(entry).as_dict(),
            "adds": adds,
            "checks": checks,
            "maybes": maybes,
            "sample": self._sampled(entry) or None,
            "source": entry.settings.get("source"),
            "lookups": self.lookups.info(entry),
        }

    def rename(self, name: bytes, to: bytes) -> Entry:
        """Give a filter another name; a filter that had it is dropped."""
        entry = self.find(name)
        check_name(to)
        changed = self.engine.change(
            Op.RENAME, entry.id, operations.fields(name=operations.text_of(to))
        )
        assert changed is not None
        return changed

    def copy(self, name: bytes, to: bytes, *, replace: bool = False) -> Entry:
        """Make a copy under another name; FilterExists if that is taken and not to be replaced."""
        source = self._whole(name)
        if not replace or self.engine.find(to) is None:
            self._check_new(to)
        fields = operations.fields(source=source.id, name=operations.text_of(to))
        return self.engine.create(Op.COPY, fields)

    def expire(self, name: bytes, at: float | None) -> Entry:
        """Let a filter end at a Unix time; None: never."""
        entry = self.find(name)
        if at is not None and at <= self.engine.state.now:
            self.engine.change(Op.DROP, entry.id)
        else:
            self.engine.change(Op.EXPIRE, entry.id, operations.fields(at=at))
        return entry

    # Keys.

    def add(self, name: bytes, keys: list[Any], *, more: bool = False) -> Outcome:
        """Add keys: a byte for each, 1 where it is definitely new, NO_ROOM where it is not in.
        `more`: whether the filter may grow further was looked at before."""
        self._check_writable()
        entry, shelf = self._whole(name), self.engine.shelf
        if self.engine.state.hurried and shelf.needs_room(name, len(keys)):
            raise Long(partial(self._make_room, entry, len(keys)), grows=True)
        return shelf.add(name, keys, more)

    def _make_room(self, entry: Entry, keys: int) -> None:
        """Let a filter grow ahead; in a thread."""
        try:
            entry.filter._make_room(keys)
        except errors.BloomeryError:  # each key is told
            self.engine.shelf.starve(entry.name)

    def add_new(self, name: bytes, keys: list[Any]) -> Outcome:
        """Add those keys that are definitely not there: a byte for each, 1 added, 0 maybe there,
        NO_ROOM where there was no room."""
        self._check_writable()
        self._whole(name)
        return self.engine.shelf.add_new(name, keys)

    def explain(self, name: bytes, refused: tuple[str, str]) -> tuple[str, str]:
        """Return a refusal in words that say which policy refused. RESP has RedisBloom's,
        unless the policy was asked for."""
        entry = self._whole(name)
        limit, _ = policy.limit_and_mark(entry)
        if refused[0] != "filter-full" or limit is None or entry.items < limit:
            return refused
        return refused[0], f"{shown(name)} {policy.refusal(entry)}"

    def contains(self, name: bytes, keys: list[Any]) -> bytes:
        """Return a byte for each key: 0 it was definitely not added, 1 maybe."""
        self._whole(name)
        return self.engine.shelf.contains(name, keys)

    def wants_store(self, shared: bool | None) -> bool:
        """Does who asks want to know what Redis knows? None: as the server is set."""
        return self.settings.store_consistency == "shared" if shared is None else shared

    def asks_store(self, shared: bool | None) -> bool:
        """Is a question for Redis, and not for this node's copy?"""
        return self.node is not None and (self.wants_store(shared) or self.node.aside)

    async def contained(self, name: bytes, keys: list[Any], shared: bool | None) -> bytes:
        """As `contains`, by Redis if it is to be asked."""
        if self.node is not None and self.asks_store(shared):
            return await reads.contains(self.node, name, keys, sure=self.wants_store(shared))
        return self.contains(name, keys)

    async def added(self, name: bytes, keys: list[Any], shared: bool | None) -> Outcome:
        """As `add`; of a node that is to ask Redis, new is what no node had added."""
        if self.node is not None and self.asks_store(shared):
            return await reads.exact_add(self.node, name, keys, self.add)
        return self.add(name, keys)

    async def lookup(self, name: bytes, keys: list[Any]) -> list[Answer]:
        """Return an exact answer for each key: of the filter, or of the source it is bound to."""
        if self.node is not None and self.node.aside:
            raise errors.StoreUnavailable(
                "this node has not heard of the others for too long: ask again in a moment"
            )
        return await self.lookups.ask(self._whole(name), keys)

    def remove(self, name: bytes, keys: list[Any]) -> Outcome:
        """Take one copy of each key out: a byte for each, 1 where there was one."""
        self._check_writable()
        self._whole(name)
        return self.engine.shelf.remove(name, keys)

    # Many keys: in slices, between which others have their turn.

    async def add_all(self, name: bytes, keys: Sequence[Any]) -> Outcome:
        """As `add`."""
        return await self._all(name, keys, self.add)

    async def remove_all(self, name: bytes, keys: Sequence[Any]) -> Outcome:
        """As `remove`."""
        return await self._all(name, keys, self.remove)

    async def contains_all(self, name: bytes, keys: Sequence[Any]) -> bytes:
        """As `contains`."""
        asked = await self._all(name, keys, lambda name, some: (self.contains(name, some), None))
        return asked[0]

    async def apart(self, name: bytes, work: Callable[[], _T]) -> _T:
        """Do something to a filter; if it takes long, others are served meanwhile."""
        return work() if self.aside is None else await self.aside.whole([name], work)

    async def batches(self, name: bytes, keys: Sequence[Any]) -> AsyncIterator[Sequence[Any]]:
        """Keys for a filter, in batches; UnknownFilter if it is dropped before the last."""
        number = self.find(name).id
        async for some in batches(keys):
            if self.aside is not None:
                await self.aside.free(name)
            if self.find(name).id != number:
                raise errors.UnknownFilter(f"{shown(name)} was dropped before all keys were done")
            yield some

    async def _all(
        self, name: bytes, keys: Sequence[Any], work: Callable[[bytes, Any], Outcome]
    ) -> Outcome:
        done = bytearray()
        async for some in self.batches(name, keys):
            answers, refused = await self.apart(name, partial(work, name, some))
            done += answers
            if refused is not None:
                return bytes(done), refused
        return bytes(done), None

    def count(self, name: bytes, key: Any) -> int:
        """How often the key was added, at most."""
        self._whole(name)
        return self.engine.shelf.count(name, key)

    # Whole filters.

    def clear(self, name: bytes) -> None:
        """Forget every key of a filter."""
        self.engine.change(Op.CLEAR, self._whole(name).id)

    def merge(self, name: bytes, *sources: bytes) -> None:
        """Add every key of the others, which must be made alike, to a filter."""
        entry = self._whole(name)
        numbers = [self._whole(source).id for source in sources]
        self.engine.change(Op.MERGE, entry.id, operations.fields(sources=numbers, how="union"))

    def rotate(self, name: bytes) -> None:
        """Let a rotating filter begin a new generation now."""
        self.engine.change(Op.ROTATE, self._whole(name).id)

    def compact(self, name: bytes) -> None:
        """Use no more memory than the keys need, where the kind can."""
        self.engine.change(Op.COMPACT, self._whole(name).id)

    def export(self, name: bytes, start: int, most: int = MAX_EXPORT_BYTES) -> bytes:
        """Return up to `most` bytes of the filter's memory as it is saved, from an offset on; none
        at the end; from -1, the head. A filter that changes meanwhile will not load: export a copy
        of it."""
        entry = self._whole(name)
        if entry.filter.kind == "bank":
            raise errors.InvalidParameter(
                "a bank is not exported in parts: copy its file from a snapshot"
            )
        return files.head(entry.filter) if start < 0 else files.part(entry.filter, start, most)

    def load(self, name: bytes, position: int, data: bytes, *, form: str = "bloomery") -> Entry:
        """Take a part of a saved filter, the head (position 1) first, in order."""
        if position == 1:
            self._check_new(name)
            kind = files.expect(data[: files.HEADER_BYTES])[0].kind if form == "bloomery" else form
            settings = {"door": "cf"} if kind == "rediscuckoo" else {}
            text = operations.text_of(name)
            chunk = operations.chunk(1, data, name=text, format=form, settings=settings)
            return self.engine.create(Op.CHUNK, chunk)
        entry = self.find(name)
        changed = self.engine.change(Op.CHUNK, entry.id, operations.chunk(position, data))
        assert changed is not None
        return changed

    # What is checked first.

    def _whole(self, name: bytes) -> Entry:
        entry = self.find(name)
        if entry.filter is None:
            raise errors.InvalidParameter(f"{shown(name)} is still being loaded")
        return entry

    def _check_writable(self) -> None:
        if self.engine.problem is not None:
            raise self.engine.problem
        self.engine.begin()

    def _check_new(self, name: bytes) -> None:
        check_name(name)
        if self.engine.find(name) is not None:
            raise errors.FilterExists(f"there is a filter named {shown(name)} already")
        if len(self.engine.state.filters) >= self.settings.max_filters:
            raise errors.InvalidParameter(
                f"there are {self.settings.max_filters} filters already: drop some, or raise "
                "max-filters"
            )

    def _check_size(self, capacity: int) -> None:
        if capacity > self.settings.max_capacity:
            raise errors.InvalidParameter(
                f"capacity is {capacity}, must be at most {self.settings.max_capacity} "
                "(max-capacity)"
            )


def check_name(name: bytes) -> None:
    """Raise unless this can be the name of a filter."""
    if len(name) > MAX_NAME_BYTES:
        raise errors.InvalidParameter(
            f"a name of {len(name)} bytes, must have at most {MAX_NAME_BYTES}"
        )


def shown(name: bytes) -> str:
    """Return a name for a message."""
    text = ascii(operations.text_of(name))
    return text if len(text) <= 60 else text[:57] + "..."

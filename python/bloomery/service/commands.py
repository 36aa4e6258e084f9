"""Each operation of the server, once. RESP and HTTP only translate to and from these.

A name is bytes, a key is whatever the library takes as one. What is wrong is raised as one of
`bloomery.errors`. What changes a filter is noted for the log; it may be acknowledged once the turn
is committed (`group_commit`).
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

from bloomery import errors
from bloomery.filters import internals, saved
from bloomery.filters.creation import PARAMETERS
from bloomery.guard.answer import Answer
from bloomery.service.background import Background
from bloomery.service.config.settings import Settings
from bloomery.service.domain import operations
from bloomery.service.domain.deferral import LARGE, Deferred
from bloomery.service.domain.operations import Op, quoted
from bloomery.service.domain.state import Entry, FilterDropped
from bloomery.service.engine import NO_ROOM as NO_ROOM
from bloomery.service.engine import REFUSED, Engine, Outcome
from bloomery.service.listing import Listing
from bloomery.service.lookup.lookups import Lookups
from bloomery.service.policy import policy
from bloomery.service.policy.policy import FilterPolicy
from bloomery.service.slices import batches
from bloomery.storage import files

_T = TypeVar("_T")
MAX_NAME_BYTES = 1024
AT_ONCE = 4096  # keys: of fewer, in one go, it is a matter of a millisecond
# Of RedisBloom's cuckoo filter. When it grows nobody can tell before, and in a new layer each key
# meets a page that the kernel has yet to make: 1 µs, and 15 if a virtual machine's host has to.
_CUCKOO_AT_ONCE = 128
# Of one chunk: it is copied several times, each time into new memory, and all others wait. Of 1 MiB
# that was up to 18 ms, and no quicker as a whole.
MAX_EXPORT_BYTES = 256 << 10
_MOST_CHUNK = 16 << 20  # bytes, in an entry of a shared log
_TRIES = 16  # times that other nodes may drop a filter before an operation is done to it
# What is decided by which filters there are, and how they are (`permissions.OPERATIONS`).
_WHOLE = frozenset({"create", "import", "change", "clear", "drop", "forget"})


class Commands:
    """What can be done to the filters of a server."""

    def __init__(
        self,
        engine: Engine,
        settings: Settings,
        lookups: Lookups | None = None,
        background: Background | None = None,
        sample: Callable[[Entry], dict[str, Any]] = lambda entry: {},
    ) -> None:
        """`background` does in threads what takes long, in a running server. `sample` returns
        the last sample of a filter; empty: there is none."""
        self.engine = engine
        self.settings = settings
        self.lookups = lookups or Lookups(engine, settings)  # without sources
        self._background = background or Background(engine)
        self._sample = sample
        self.listing = Listing(engine)

    # What a client asks for is done by one of these two.

    def start(
        self,
        names: Iterable[bytes],
        operation: Callable[[], Any],
        now: bool = False,
        *,
        write: bool = True,
    ) -> Any:
        """Do what a client asked for to filters of these names, which are not locked: its value,
        or an awaitable of it if it waits or takes long (`Background.start`). On a node, do a
        `write` again if a filter was dropped before the log came to it: as if it had come after
        that."""
        if write and self.engine.shared is not None:
            operation = partial(_again, operation)
        return self._background.start(names, operation, now)

    async def run(self, names: Iterable[bytes], operation: Callable[[], Awaitable[_T]]) -> _T:
        """As `start`, when no thread works on these filters; wait for its value."""
        listed = [*names]
        await self._background.unlocked(*listed)
        started = self.start(listed, operation)
        value: _T = await started if isinstance(started, Awaitable) else started
        return value

    # Which filters there are.

    def find(self, name: bytes) -> Entry:
        """Return the entry of a name; UnknownFilter if there is none."""
        entry = self.engine.find(name)
        if entry is None:
            raise errors.UnknownFilter(f"there is no filter named {quoted(name)}: make it first")
        return entry

    async def discover(self, *names: bytes) -> None:
        """On a node: hear of filters of these names that another node has just made."""
        shared = self.engine.shared
        if shared is not None and any(name not in self.engine.state.names for name in names):
            with contextlib.suppress(errors.StoreUnavailable):  # then there is only this copy
                await shared.catch_up()

    async def prepare(self, operation: str, *names: bytes) -> None:
        """On a node: return when its copy is as recent as it must be to decide on a write. What is
        about whole filters (is the name taken?) needs all that was acknowledged before; what is
        about keys needs to know of the filter, and is done again if that is another by then."""
        if self.engine.shared is not None and operation in _WHOLE:
            await self.engine.shared.catch_up()
        else:
            await self.discover(*names)

    async def ensure(self, name: bytes, make: Callable[[], Awaitable[Any]]) -> None:
        """Have a filter of this name to add to, made now if there is none; on a node another may
        have made it, or make it at the same time."""
        await self.discover(name)
        if self.engine.find(name) is None:
            try:
                await make()
            except errors.FilterExists:
                if self.engine.shared is None:
                    raise

    async def create(self, name: bytes, kind: str | None = None, **settings: Any) -> Entry:
        """Make an empty filter; FilterExists if the name is taken. Without a kind it is the one
        that the policy (`on_full`) asks for, else one that grows."""
        self._check_new(name)
        self._check_size(settings.get("capacity", 0))
        if settings.get("source") is not None:
            self.lookups.check(settings["source"])
        chosen = policy.chosen(kind, settings)
        _check_parameters(chosen)
        if chosen["kind"] == "rediscuckoo":
            chosen["door"] = "cf"  # CF commands are for these
        fields = operations.fields(name=operations.text_of(name), settings=chosen)
        return await self.engine.make(Op.CREATE, fields)

    def policy(self, name: bytes) -> FilterPolicy:
        """Return what happens when a filter is full."""
        return policy.policy_of(self._loaded(name))

    async def adjust(self, name: bytes, **given: Any) -> Entry:
        """Change a filter's policy, by the fields of `FilterPolicy`; None: back to the default."""
        entry = self._loaded(name)
        changes = policy.adjusted(entry, given)
        await self.engine.perform(Op.ADJUST, entry.id, operations.fields(**changes))
        return entry

    async def bind(self, name: bytes, source: str | None) -> Entry:
        """Let keys be looked up in a source of the configuration; None: in none."""
        entry = self.find(name)
        if source is not None:
            self.lookups.check(source)
        await self.engine.perform(Op.ADJUST, entry.id, operations.fields(source=source))
        return entry

    async def drop(self, *names: bytes) -> int:
        """Forget filters; how many there were."""
        drops = [partial(self._drop, name) for name in dict.fromkeys(names)]
        if self.engine.shared is None:
            return sum([await drop() for drop in drops])
        return sum(await asyncio.gather(*map(_again, drops)))  # in one turn

    async def _drop(self, name: bytes) -> bool:
        entry = self.engine.find(name)
        if entry is not None:
            await self.engine.perform(Op.DROP, entry.id)
        return entry is not None

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
            "sample": self._sample(entry) or None,
            "source": entry.settings.get("source"),
            "lookups": self.lookups.info(entry),
        }

    async def rename(self, name: bytes, to: bytes) -> Entry:
        """Give a filter another name; a filter that had it is dropped."""
        entry = self.find(name)
        check_name(to)
        changed = await self.engine.perform(
            Op.RENAME, entry.id, operations.fields(name=operations.text_of(to))
        )
        assert changed is not None
        return changed

    async def copy(self, name: bytes, to: bytes, *, replace: bool = False) -> Entry:
        """Make a copy under another name; FilterExists if that is taken and not to be replaced."""
        source = self._loaded(name)
        if not replace or self.engine.find(to) is None:
            self._check_new(to)
        fields = operations.fields(source=source.id, name=operations.text_of(to))
        return await self.engine.make(Op.COPY, fields)

    async def expire(self, name: bytes, at: float | None) -> Entry:
        """Let a filter end at a Unix time; None: never."""
        entry = self.find(name)
        if at is not None and at <= self.engine.state.now:
            await self.engine.perform(Op.DROP, entry.id)
        else:
            await self.engine.perform(Op.EXPIRE, entry.id, operations.fields(at=at))
        return entry

    # Keys, of one batch: done here, and at once.

    async def add(
        self, name: bytes, keys: Any, *, only_new: bool = False, more: bool = False
    ) -> Outcome:
        """Add keys: a byte for each, 1 where it is definitely new, NO_ROOM where it is not in.

        `only_new`: a key that may be there is not added again. `more`: whether the filter may grow
        further was looked at before.
        """
        self._check_writable()
        entry, shelf = self._loaded(name), self.engine.shelf
        if self.engine.shared is not None:
            op = Op.ADD_NEW if only_new else Op.ADD
            return _cut(await self.engine.shared.submit_keys(name, op, keys))
        if only_new:
            return shelf.add_new(name, keys)
        if self.engine.state.deferral.allowed and shelf.needs_room(name, len(keys)):
            raise Deferred(partial(self._make_room, entry, len(keys)), grows=True)
        return shelf.add(name, keys, more)

    def _make_room(self, entry: Entry, keys: int) -> None:
        """Let a filter grow ahead; in a thread."""
        try:
            internals.make_room(entry.filter, keys)
        except errors.BloomeryError:  # each key is answered with NO_ROOM
            self.engine.shelf.starve(entry.name)

    def contains(self, name: bytes, keys: Any) -> bytes:
        """Return a byte for each key: 0 it was definitely not added, 1 maybe."""
        self._loaded(name)
        return self.engine.shelf.contains(name, keys)

    async def try_each(self, name: bytes, keys: Any, *, only_new: bool) -> Outcome:
        """As `add`, but those behind a key that was refused are tried too: REFUSED is the answer to
        that one. An error if the filter takes none at all."""
        if self.engine.shared is not None:
            self._check_writable()
            op = Op.ADD_NEW if only_new else Op.ADD
            return await self.engine.shared.submit_keys(name, op, keys)
        tried, first = b"", None
        while len(tried) < len(keys):
            done, refused = await self.add(name, keys[len(tried) :], only_new=only_new, more=True)
            tried += done
            if refused is None:
                break
            tried, first = tried + bytes([REFUSED]), first or refused
        return tried, first

    async def remove(self, name: bytes, keys: Any) -> Outcome:
        """Take one copy of each key out: a byte for each, 1 where there was one."""
        self._check_writable()
        self._loaded(name)
        if self.engine.shared is not None:
            return _cut(await self.engine.shared.submit_keys(name, Op.REMOVE, keys))
        return self.engine.shelf.remove(name, keys)

    def count(self, name: bytes, key: Any) -> int:
        """How often the key was added, at most."""
        self._loaded(name)
        return self.engine.shelf.count(name, key)

    def explain(self, name: bytes, refused: tuple[str, str]) -> tuple[str, str]:
        """Return a refusal in words that say which policy refused. RESP has RedisBloom's,
        unless the policy was asked for."""
        entry = self._loaded(name)
        limit, _ = policy.limit_and_threshold(entry)
        if refused[0] != "filter-full" or limit is None or entry.items < limit:
            return refused
        return refused[0], f"{quoted(name)} {policy.refusal(entry)}"

    # Any number of keys, and others have their turn.

    def is_strong(self, strong: bool | None) -> bool:
        """Must a read see all that any node acknowledged before it? `strong`: as the client wants
        it; None: as the server is set. On a server alone every read does."""
        wanted = self.settings.store_consistency == "strong" if strong is None else strong
        return wanted and self.engine.shared is not None

    async def current(self, strong: bool | None = None) -> None:
        """On a node: return when its copy is as recent as a read wants it. StoreUnavailable if it
        is too old, or not known to be recent enough, and Redis does not answer."""
        shared = self.engine.shared
        if shared is not None and (self.is_strong(strong) or not shared.may_answer):
            await shared.catch_up()

    async def read(self, name: bytes, keys: Any, strong: bool | None = None) -> bytes:
        """As `contains`. Each slice of the keys is answered by the filter that has the name by
        then."""
        await self.current(strong)
        await self._background.unlocked(name)
        if len(keys) <= AT_ONCE:
            return self.contains(name, keys)
        answers = bytearray()
        async for part in batches(keys, AT_ONCE):
            await self._background.unlocked(name)
            answers += self.contains(name, part)
        return bytes(answers)

    async def change(
        self, operation: Callable[[bytes, Any], Awaitable[Outcome]], name: bytes, keys: Any
    ) -> Outcome:
        """Do an operation (`add`, `remove`) with any number of keys; up to the first that is
        refused. To be done by `run`."""
        if len(keys) <= AT_ONCE:
            return await operation(name, keys)
        done = bytearray()
        async for part in self.batches(name, keys, AT_ONCE):
            write = partial(operation, name, part)
            answers, refused = await self._background.run([name], write)
            done += answers
            if refused is not None:
                return bytes(done), refused
        return bytes(done), None

    async def batches(
        self, name: bytes, keys: Sequence[Any], first: int = 4
    ) -> AsyncIterator[Sequence[Any]]:
        """Cut keys for a filter into batches (see `slices.batches`); UnknownFilter if the filter is
        dropped before the last."""
        entry = self.find(name)
        number, kind = entry.id, getattr(entry.filter, "kind", None)
        most = _CUCKOO_AT_ONCE if kind == "rediscuckoo" else AT_ONCE
        async for part in batches(keys, min(first, most), most):
            await self._background.unlocked(name)
            if self.find(name).id != number:
                raise errors.UnknownFilter(f"{quoted(name)} was dropped before all keys were done")
            yield part

    async def lookup(
        self, name: bytes, keys: list[Any], strong: bool | None = None
    ) -> list[Answer]:
        """Return an exact answer for each key: of the filter, or of the source it is bound to."""
        await self.current(strong)
        return await self.lookups.ask(self._loaded(name), keys)

    async def forget(self, name: bytes, keys: list[Any]) -> None:
        """Let what caches hold of these keys be asked for anew, on all nodes: the source has other
        answers. On a server alone it is not logged: it starts with an empty cache."""
        entry = self._loaded(name)
        names = self.lookups.cached_names(entry, keys)
        if self.engine.shared is not None:
            for group in _grouped(names):
                await self.engine.perform(Op.FORGET, entry.id, operations.names(group))
        await self.lookups.forget(entry, names)

    # Whole filters.

    async def clear(self, name: bytes) -> None:
        """Forget every key of a filter."""
        await self.engine.perform(Op.CLEAR, self._loaded(name).id)

    async def merge(self, name: bytes, *sources: bytes) -> None:
        """Add every key of the others, which must be made alike, to a filter."""
        entry = self._loaded(name)
        numbers = [self._loaded(source).id for source in sources]
        await self.engine.perform(
            Op.MERGE, entry.id, operations.fields(sources=numbers, how="union")
        )

    async def rotate(self, name: bytes) -> None:
        """Let a rotating filter begin a new generation now."""
        await self.engine.perform(Op.ROTATE, self._loaded(name).id)

    async def compact(self, name: bytes) -> None:
        """Use no more memory than the keys need, where the kind can."""
        await self.engine.perform(Op.COMPACT, self._loaded(name).id)

    def export(self, name: bytes, start: int) -> bytes:
        """Return a chunk of the filter's memory as it is saved, from an offset on; nothing at the
        end. A filter that changes meanwhile will not load: export a copy of it."""
        return saved.part(self._exported(name), start, MAX_EXPORT_BYTES)

    async def export_head(self, name: bytes) -> bytes:
        """Return what comes before that memory: its checksum is in it, which a thread makes if the
        filter is large."""
        filter = self._exported(name)
        if filter.nbytes > LARGE:
            return await asyncio.to_thread(saved.head, filter)
        return saved.head(filter)

    def _exported(self, name: bytes) -> Any:
        entry = self._loaded(name)
        if entry.filter.kind == "bank":
            raise errors.InvalidParameter(
                "a bank is not exported in parts: copy its file from a snapshot"
            )
        return entry.filter

    async def load(
        self, name: bytes, position: int, data: bytes, *, form: str = "bloomery"
    ) -> Entry:
        """Take a part of a saved filter, the head (position 1) first, in order."""
        if position == 1:
            self._check_new(name)
            kind = saved.expect(data[: files.HEADER_BYTES])[0].kind if form == "bloomery" else form
            settings = {"door": "cf"} if kind == "rediscuckoo" else {}
            text = operations.text_of(name)
            part = data[: self._most_chunk]
            chunk = operations.chunk(1, part, name=text, format=form, settings=settings)
            entry = await self.engine.make(Op.CHUNK, chunk)
            rest = data[len(part) :]
            return await self.load(name, 1 + len(part), rest) if rest else entry
        entry = self.find(name)
        # Our position of a part is where it starts; RedisBloom's, where it ends.
        ours = entry.loading is not None
        changed = None
        for at in range(0, max(1, len(data)), self._most_chunk):
            part = data[at : at + self._most_chunk]
            place = position + at if ours else position - len(data) + at + len(part)
            chunk = operations.chunk(place, part)
            changed = await self.engine.perform(Op.CHUNK, entry.id, chunk)
        assert changed is not None
        return changed

    @property
    def _most_chunk(self) -> int:
        """Bytes of a saved filter in one operation: an entry of a shared log has its limit."""
        return sys.maxsize if self.engine.shared is None else _MOST_CHUNK

    # What is checked first.

    def _loaded(self, name: bytes) -> Entry:
        """The filter of this name; an error if it is missing or only a part of it has come."""
        entry = self.find(name)
        if entry.filter is None:
            raise errors.InvalidParameter(f"{quoted(name)} is still being loaded")
        return entry

    def _check_writable(self) -> None:
        if self.engine.problem is not None:
            raise self.engine.problem
        self.engine.begin()

    def _check_new(self, name: bytes) -> None:
        check_name(name)
        if self.engine.find(name) is not None:
            raise errors.FilterExists(f"there is a filter named {quoted(name)} already")
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


async def _again(operation: Callable[[], Any]) -> Any:
    """Do an operation on filters by their names, again if one was dropped meanwhile."""
    for _ in range(_TRIES - 1):
        with contextlib.suppress(FilterDropped):
            return await _value(operation())
    return await _value(operation())


async def _value(value: Any) -> Any:
    return await value if isinstance(value, Awaitable) else value


def _check_parameters(chosen: dict[str, Any]) -> None:
    """Raise if a parameter means nothing to the kind: ignored, it would be another filter."""
    kind = chosen["kind"]
    for name in chosen.keys() - _ANY_KIND if kind in PARAMETERS else ():
        if name not in PARAMETERS[kind]:
            right = [other for other, names in PARAMETERS.items() if name in names]
            goes = f"it goes with kind {' or '.join(right)}" if right else "no kind has it"
            raise errors.InvalidParameter(f"a {kind} filter has no {name}: {goes}")


# What is no parameter of the filter itself.
_ANY_KIND = {"kind", "capacity", "expansion", "source", *policy.FIELDS}


def _grouped(names: list[bytes]) -> Iterator[list[bytes]]:
    """Names in groups that an entry of a shared log has room for."""
    group: list[bytes] = []
    size = 0
    for name in names:
        if group and size + len(name) > _MOST_CHUNK:
            yield group
            group, size = [], 0
        group.append(name)
        size += len(name)
    yield group


def _cut(outcome: Outcome) -> Outcome:
    """What became of keys up to the first that was refused."""
    answers, refusal = outcome
    return (answers, None) if refusal is None else (answers[: answers.index(REFUSED)], refusal)


def check_name(name: bytes) -> None:
    """Raise unless this can be the name of a filter."""
    if len(name) > MAX_NAME_BYTES:
        raise errors.InvalidParameter(
            f"a name of {len(name)} bytes, must have at most {MAX_NAME_BYTES}"
        )

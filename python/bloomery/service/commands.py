"""Each operation of the server, once. RESP and HTTP only translate to and from these.

A name is bytes; a key is anything the library accepts. Errors are those of `bloomery.errors`. An
operation that writes returns when the log has the write and it is applied.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, TypeVar

from bloomery import errors
from bloomery.filters import saved
from bloomery.filters.creation import PARAMETERS
from bloomery.filters.internals import check_chunk
from bloomery.guard.answer import Answer
from bloomery.service.config.settings import Settings
from bloomery.service.domain import operations, policy
from bloomery.service.domain.entry import INTERNAL, Entry
from bloomery.service.domain.operations import LARGE, Conflict, Op, quoted
from bloomery.service.domain.policy import FilterPolicy
from bloomery.service.engine import NO_ROOM as NO_ROOM
from bloomery.service.engine import REFUSED, Engine, Outcome
from bloomery.service.listing import RESERVED, Listing
from bloomery.service.lookup.lookups import Lookups
from bloomery.service.slices import Slice, batches
from bloomery.storage import files

_T = TypeVar("_T")
MAX_NAME_BYTES = 1024
AT_ONCE = 4096  # keys: of fewer, in one go, it is a matter of a millisecond
# Of one chunk: it is copied several times, each time into new memory, and all others wait. Of 1 MiB
# that was up to 18 ms, and no quicker as a whole.
MAX_EXPORT_BYTES = 256 << 10
_REDIS_KINDS = ("redisbloom", "rediscuckoo")
_MAX_CHUNK = 16 << 20  # bytes in one record of the log
_TRIES = 16  # conflicts with other commands before an operation fails
# What is decided by which filters there are, and how they are (`permissions.OPERATIONS`).
_WHOLE = frozenset({"create", "import", "change", "clear", "drop", "forget"})


class Commands:
    """What can be done to the filters of a server."""

    def __init__(
        self,
        engine: Engine,
        settings: Settings,
        lookups: Lookups | None = None,
        sample: Callable[[Entry], dict[str, Any]] = lambda entry: {},
    ) -> None:
        """`sample` returns the last sample of a filter, or an empty one."""
        self.engine = engine
        self.settings = settings
        self.lookups = lookups or Lookups(engine, settings)  # without sources
        self._sample = sample
        self.listing = Listing(engine)
        self._own_names: set[bytes] = set()  # reserved ones that the server is creating now

    async def run(self, names: Iterable[bytes], operation: Callable[[], Awaitable[_T]]) -> _T:
        """Run an operation on filters when no thread works on them, and again if another command
        changed one first."""
        await self.engine.locks.unlocked(*names)
        self.engine.begin()
        return await repeat(operation)

    # Which filters there are.

    def find(self, name: bytes) -> Entry:
        """Return the entry of a name; UnknownFilter if there is none."""
        entry = self.engine.find(name)
        if entry is None:
            raise errors.UnknownFilter(f"there is no filter named {quoted(name)}: make it first")
        return entry

    async def discover(self, *names: bytes) -> None:
        """Catch up with the log if a name is unknown: another node may have created the filter."""
        if any(name not in self.engine.state.names for name in names):
            with contextlib.suppress(errors.StoreUnavailable):  # then this copy has to do
                await self.engine.batches.catch_up()

    async def prepare(self, operation: str, *names: bytes) -> None:
        """Return when the filters are recent enough to decide on a write. An operation on whole
        filters (is the name free?) needs all acknowledged writes. An operation on keys needs the
        filter to be known, and is repeated if it is another by then."""
        if operation in _WHOLE:
            await self.engine.batches.catch_up()
        else:
            await self.discover(*names)

    @contextlib.contextmanager
    def own_name(self, name: bytes) -> Iterator[None]:
        """Let the server itself create a filter with a name that is reserved for it."""
        self._own_names.add(name)
        try:
            yield
        finally:
            self._own_names.discard(name)

    async def create(self, name: bytes, kind: str | None = None, **settings: Any) -> Entry:
        """Create an empty filter; FilterExists if the name is taken. Without a kind it is the one
        that the policy (`on_full`) asks for, else one that grows."""
        chosen = self._chosen(name, kind, settings)
        return await self.engine.make(Op.CREATE, name, operations.fields(settings=chosen))

    async def create_with(
        self, name: bytes, keys: Any, settings: Mapping[str, Any], *, only_new: bool = False
    ) -> Outcome:
        """Create a filter with its first keys, in one step; return a byte for each key. Conflict if
        another command creates it first."""
        given = dict(settings)
        chosen = self._chosen(name, given.pop("kind", None), given)
        op = Op.ADD_NEW if only_new else Op.ADD
        fields = operations.fields(settings=chosen)
        return await self.engine.make_with_keys(name, fields, op, keys)

    def _chosen(self, name: bytes, kind: str | None, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of a new filter; an error if it cannot be created."""
        self._check_new(name)
        self._check_size(settings.get("capacity", 0))
        if settings.get("source") is not None:
            self.lookups.check(settings["source"])
        chosen = policy.chosen(kind, settings)
        _check_parameters(chosen)
        if chosen["kind"] == "rediscuckoo":
            chosen["door"] = "cf"  # CF commands are for these
        return chosen

    def policy(self, name: bytes) -> FilterPolicy:
        """Return what happens when a filter is full."""
        return policy.policy_of(self._loaded(name))

    async def adjust(self, name: bytes, **given: Any) -> Entry:
        """Change a filter's policy, by the fields of `FilterPolicy`; None: back to the default."""
        entry = self._loaded(name)
        changes = policy.adjusted(entry, given)
        await self.engine.perform(Op.ADJUST, entry, operations.fields(settings=changes))
        return entry

    async def bind(self, name: bytes, source: str | None) -> Entry:
        """Let keys be looked up in a source of the configuration; None: in none."""
        entry = self.find(name)
        if source is not None:
            self.lookups.check(source)
        await self.engine.perform(Op.ADJUST, entry, operations.fields(settings={"source": source}))
        return entry

    async def amend(
        self,
        name: bytes,
        changes: Mapping[str, Any],
        to: bytes | None = None,
        *,
        replace: bool = False,
    ) -> Entry | None:
        """Change several things about a filter at once, or nothing: fields of its policy, `source`
        and `expires_at` (as `adjust`, `bind` and `expire` have them), and its name (as `rename`).
        Return the filter, or None if it is dropped, because its `expires_at` has passed."""
        entry = self.find(name)
        fields = {field: changes[field] for field in policy.FIELDS if field in changes}
        settings = policy.adjusted(self._loaded(name), fields) if fields else {}
        if "source" in changes:
            settings["source"] = changes["source"]
            if settings["source"] is not None:
                self.lookups.check(settings["source"])
        if to is not None:
            check_name(to)
            if to != name and not replace and self.engine.find(to) is not None:
                raise errors.FilterExists("there is a filter of the new name already")
        ends = changes.get("expires_at")
        if ends is not None and ends <= self.engine.now:
            await self.engine.perform(Op.DROP, entry)
            return None
        given: dict[str, Any] = {"settings": settings}
        if "expires_at" in changes:
            given["at"] = ends
        op = Op.ADJUST
        if to is not None and to != name:
            op = Op.RENAME
            given |= {"to": operations.text_of(to), "replace": replace}
        amended: Entry = await self.engine.perform(op, entry, operations.fields(**given))
        return amended

    async def drop(self, *names: bytes) -> int:
        """Drop filters; return how many existed."""
        drops = (repeat(partial(self._drop, name)) for name in dict.fromkeys(names))
        return sum(await asyncio.gather(*drops))  # in one batch

    async def _drop(self, name: bytes) -> bool:
        entry = self.engine.find(name)
        if entry is not None:
            await self.engine.perform(Op.DROP, entry)
        return entry is not None

    def info(self, entry: Entry, about: dict[str, Any] | None = None) -> dict[str, Any]:
        """All that is known about a filter, ready for JSON; `about` is what it said of itself, if
        it was asked elsewhere: to count the bits of a large one takes long."""
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
            "settings": {k: v for k, v in entry.settings.items() if k not in INTERNAL},
            "policy": {} if entry.filter is None else policy.policy_of(entry).as_dict(),
            "adds": adds,
            "checks": checks,
            "maybes": maybes,
            "sample": self._sample(entry) or None,
            "source": entry.settings.get("source"),
            "lookups": self.lookups.info(entry),
        }

    async def rename(self, name: bytes, to: bytes, *, replace: bool = True) -> Entry:
        """Rename a filter. A filter that has the new name is dropped, or FilterExists."""
        entry = self.find(name)
        check_name(to)
        fields = operations.fields(to=operations.text_of(to), replace=replace)
        renamed: Entry = await self.engine.perform(Op.RENAME, entry, fields)
        return renamed

    async def copy(self, name: bytes, to: bytes, *, replace: bool = False) -> Entry:
        """Copy a filter. A filter that has the new name is replaced, or FilterExists."""
        source = self._loaded(name)
        if not replace or self.engine.find(to) is None:
            self._check_new(to)
        text = operations.text_of(source.name)
        fields = operations.fields(source=source.id, of=text, replace=replace)
        return await self.engine.make(Op.COPY, to, fields)

    async def expire(self, name: bytes, at: float | None, *, check: bool = False) -> Entry:
        """Set a filter's expiry as a Unix time, or remove it with None. `check`: Conflict if
        another command changes the expiry first, on which the caller has decided."""
        entry = self.find(name)
        if at is not None and at <= self.engine.now:
            await self.engine.perform(Op.DROP, entry)
        else:
            expected = {"expected": entry.expires_at} if check else {}
            await self.engine.perform(Op.EXPIRE, entry, operations.fields(at=at, **expected))
        return entry

    # Keys of one batch.

    async def add(self, name: bytes, keys: Any, *, only_new: bool = False) -> Outcome:
        """Add keys up to the first that is refused: a byte for each, 1 where it is definitely new,
        NO_ROOM where there was no memory. `only_new`: add only keys that are definitely new."""
        return until_refused(await self.try_each(name, keys, only_new=only_new))

    def contains(self, name: bytes, keys: Any) -> bytes:
        """Return a byte for each key: 0 it was definitely not added, 1 maybe."""
        self._loaded(name)
        return self.engine.shelf.contains(name, keys)

    async def try_each(self, name: bytes, keys: Any, *, only_new: bool = False) -> Outcome:
        """As `add`, for all keys: REFUSED is the answer to each that is refused."""
        return await self._submit_keys(name, Op.ADD_NEW if only_new else Op.ADD, keys)

    async def remove(self, name: bytes, keys: Any) -> Outcome:
        """Remove one copy of each key: a byte for each, 1 where there was one."""
        return until_refused(await self._submit_keys(name, Op.REMOVE, keys))

    async def _submit_keys(self, name: bytes, op: Op, keys: Any) -> Outcome:
        self._loaded(name)
        return await self.engine.submit_keys(name, op, keys)

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

    # Any number of keys, in slices.

    def is_strong(self, strong: bool | None) -> bool:
        """Return whether a read must see all acknowledged writes of other nodes. `strong`: as the
        client chose; None: as the server is set."""
        chosen = self.settings.store_consistency == "strong" if strong is None else strong
        return chosen and not self.engine.batches.exclusive

    async def current(self, strong: bool | None = None) -> None:
        """Return when the filters are as recent as a read needs. StoreUnavailable if they are too
        old, or may be, and Redis does not answer."""
        if self.is_strong(strong) or not self.engine.batches.may_answer:
            await self.engine.batches.catch_up()

    async def read(self, name: bytes, keys: Any, strong: bool | None = None) -> bytes:
        """As `contains`, in slices. Each is answered by the filter that then has the name."""
        await self.current(strong)
        await self.engine.locks.unlocked(name)
        if len(keys) <= AT_ONCE:
            return self.contains(name, keys)
        answers = bytearray()
        async for part in batches(keys, AT_ONCE):
            await self.engine.locks.unlocked(name)
            answers += self.contains(name, part)
        return bytes(answers)

    async def change(
        self, operation: Callable[[bytes, Any], Awaitable[Outcome]], name: bytes, keys: Any
    ) -> Outcome:
        """Do an operation (`add`, `remove`) with any number of keys, up to the first refused."""
        if len(keys) <= AT_ONCE:
            return await operation(name, keys)
        done = bytearray()
        async for part in batches(keys, AT_ONCE):
            await self.engine.locks.unlocked(name)
            answers, refused = await repeat(partial(operation, name, part))
            done += answers
            if refused is not None:
                return bytes(done), refused
        return bytes(done), None

    async def lookup(
        self, name: bytes, keys: list[Any], strong: bool | None = None
    ) -> list[Answer]:
        """Return an exact answer for each key: of the filter, or of the source it is bound to."""
        await self.current(strong)
        return await self.lookups.ask(self._loaded(name), keys)

    async def forget(self, name: bytes, keys: list[Any]) -> None:
        """Remove keys from caches, on all nodes: the source has other answers."""
        entry = self._loaded(name)
        names = self.lookups.cached_names(entry, keys)
        for group in _grouped(names):
            await self.engine.perform(Op.FORGET, entry, operations.names(group))
        await self.lookups.forget(entry, names)

    # Whole filters.

    async def clear(self, name: bytes) -> Entry:
        """Remove every key of a filter."""
        return await self._perform_on_all(Op.CLEAR, name)

    async def merge(self, name: bytes, *sources: bytes) -> Entry:
        """Add every key of other filters, which must have the same parameters."""
        entry = self._loaded(name)
        listed, share = list[tuple[int, str]](), Slice()
        for other in dict.fromkeys(sources):
            listed.append((self._loaded(other).id, operations.text_of(other)))
            await share.rest()
        fields = operations.fields(sources=listed, how="union")
        merged: Entry = await self.engine.perform(Op.MERGE, entry, fields)
        return merged

    async def rotate(self, name: bytes) -> Entry:
        """Start a new generation of a rotating filter."""
        return await self._perform_on_all(Op.ROTATE, name)

    async def compact(self, name: bytes) -> None:
        """Use no more memory than the keys need, where the kind can."""
        await self._perform_on_all(Op.COMPACT, name)

    async def _perform_on_all(self, op: Op, name: bytes) -> Entry:
        entry: Entry = await self.engine.perform(op, self._loaded(name))
        return entry

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
        self,
        name: bytes,
        position: int,
        data: bytes,
        *,
        form: str = "bloomery",
        replace: bool = False,
        expires_at: float | None = None,
    ) -> Entry:
        """Take a part of a saved filter, the header (position 1) first, in order. The first part
        can replace a filter, and has the expiry of the new one."""
        if position == 1:
            return await self._load_first(
                name, data, form=form, replace=replace, expires_at=expires_at
            )
        entry = self.find(name)
        # A position of bloomery's is where a part starts; one of RedisBloom's, where it ends.
        starts = entry.loading is not None
        changed = entry
        if not starts and entry.filter is not None and entry.filter.kind in _REDIS_KINDS:
            check_chunk(entry.filter, position, len(data))
        for at in range(0, max(1, len(data)), _MAX_CHUNK):
            part = data[at : at + _MAX_CHUNK]
            place = position + at if starts else position - len(data) + at + len(part)
            changed = await self.engine.perform(Op.CHUNK, entry, operations.chunk(place, part))
        return changed

    async def _load_first(
        self, name: bytes, data: bytes, *, form: str, replace: bool, expires_at: float | None
    ) -> Entry:
        if not replace or self.engine.find(name) is None:
            self._check_new(name)
        kind = saved.expect(data[: files.HEADER_BYTES])[0].kind if form == "bloomery" else form
        settings = {"door": "cf"} if kind == "rediscuckoo" else {}
        part, rest = data[:_MAX_CHUNK], data[_MAX_CHUNK:]
        chunk = operations.chunk(
            1, part, format=form, settings=settings, replace=replace, expires_at=expires_at
        )
        entry = await self.engine.make(Op.CHUNK, name, chunk)
        return await self.load(name, 1 + len(part), rest) if rest else entry

    # What is checked first.

    def _loaded(self, name: bytes) -> Entry:
        """The filter of this name; an error if it is missing or only a part of it has come."""
        entry = self.find(name)
        if entry.filter is None:
            raise errors.InvalidParameter(f"{quoted(name)} is still being loaded")
        return entry

    def _check_new(self, name: bytes) -> None:
        if name not in self._own_names:
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


async def repeat(operation: Callable[[], Awaitable[_T]]) -> _T:
    """Run an operation, and again if another command changed its filter first."""
    for _ in range(_TRIES - 1):
        with contextlib.suppress(Conflict):
            return await operation()
    return await operation()


def _check_parameters(chosen: dict[str, Any]) -> None:
    """Raise if a parameter means nothing to the kind: ignored, it would be another filter."""
    kind = chosen["kind"]
    for name in chosen.keys() - _ANY_KIND if kind in PARAMETERS else ():
        if name not in PARAMETERS[kind]:
            right = [other for other, names in PARAMETERS.items() if name in names]
            goes = f"it goes with kind {' or '.join(right)}" if right else "no kind has it"
            raise errors.InvalidParameter(f"a {kind} filter has no {name}: {goes}")


# What is no parameter of the filter itself.
_ANY_KIND = {"kind", "capacity", "expansion", "tightening", "source", *policy.FIELDS}


def _grouped(names: list[bytes]) -> Iterator[list[bytes]]:
    """Return names in groups that fit into one record of the log."""
    group: list[bytes] = []
    size = 0
    for name in names:
        if group and size + len(name) > _MAX_CHUNK:
            yield group
            group, size = [], 0
        group.append(name)
        size += len(name)
    yield group


def until_refused(outcome: Outcome) -> Outcome:
    """Return the outcome of the keys before the first refused one."""
    answers, refusal = outcome
    return (answers, None) if refusal is None else (answers[: answers.index(REFUSED)], refusal)


def check_name(name: bytes) -> None:
    """Raise unless a client may give a filter this name."""
    if len(name) > MAX_NAME_BYTES:
        raise errors.InvalidParameter(
            f"a name of {len(name)} bytes, must have at most {MAX_NAME_BYTES}"
        )
    if name.startswith(RESERVED):
        raise errors.InvalidParameter(
            f"the name {quoted(name)} is reserved for the server: choose one that does not start"
            f" with {' or '.join(map(quoted, RESERVED))}"
        )

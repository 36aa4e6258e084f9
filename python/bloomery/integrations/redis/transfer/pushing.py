"""Pushing: a local filter becomes one in Redis, or is merged into the one that has its name.

While it is on its way the configuration says `loading`: the checksum of the local bits and an id.
Who pushes the same bits again goes on where it ended; other bits take the place of those that were
on their way, and who pushed these is told so.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from bloomery import _native
from bloomery.errors import FilterExists, IncompatibleFilters, InvalidParameter, StoreRefused
from bloomery.filters import BloomFilter, CountingBloomFilter, saved
from bloomery.filters.internals import changes, header, sections
from bloomery.integrations.redis.bits.counters import Counters
from bloomery.integrations.redis.bits.strings import BitStrings, create
from bloomery.integrations.redis.config import Config, shards_for
from bloomery.integrations.redis.store import milliseconds
from bloomery.integrations.redis.transfer.reading import Progress
from bloomery.integrations.redis.transfer.uploading import LIFE, StringUpload
from bloomery.integrations.redis.wire.flow import Flow, command, commands, replies_to, reply_to

if TYPE_CHECKING:
    from bloomery.integrations.redis.naming import Keys

_ATTEMPTS = 5

# Another configuration in the place of one: ARGV is that, the new one, and how long it lives.
_INSTEAD = """
local held = redis.call('GET', KEYS[1])
if held == ARGV[2] then return 1 end
if held ~= ARGV[1] then return 0 end
if ARGV[3] == '' then redis.call('SET', KEYS[1], ARGV[2])
else redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3]) end
return 1
"""


@dataclass(frozen=True)
class LocalFilter:
    """A local filter whose bytes are pushed."""

    filter: Any
    checksum: int
    changes: int

    @classmethod
    def of(cls, filter: Any, kind: str) -> LocalFilter:
        """Read it once, for the checksum of its bytes."""
        right: Any = BloomFilter if kind == "bloom" else CountingBloomFilter
        if not isinstance(filter, right):
            raise IncompatibleFilters(
                f"a {type(filter).__name__} cannot be pushed here, only a {right.__name__}"
            )
        before, checksum = changes(filter), 0
        for section in sections(filter):
            view = memoryview(section)
            for start in range(0, len(view), _native.CHUNK_BYTES):
                checksum = _native.checksum(view[start : start + _native.CHUNK_BYTES], checksum)
        return cls(filter, checksum, before)

    @property
    def header(self) -> bytes:
        """The header: its settings, without a checksum."""
        return header(self.filter, 0)

    def read(self, start: int, count: int) -> bytes:
        """Return some of its bytes."""
        data = saved.part(self.filter, start, count)
        # Bits that are set meanwhile do no harm. Counters may go down: half before, half after.
        if changes(self.filter) != self.changes:
            raise InvalidParameter(
                f"the {type(self.filter).__name__} was changed while it was pushed: push a copy()"
            )
        return data


def pushing(
    keys: Keys,
    source: LocalFilter,
    shards: int | Literal["auto"],
    ttl: float | None,
    progress: Progress | None = None,
) -> Flow[Config]:
    """Push all of it; return the configuration of the filter that holds it now."""
    kind, nbytes, _ = _native.read_header(source.header, None)
    life = milliseconds(ttl)
    wanted = Config(kind, source.header, shards_for(nbytes, shards))
    for attempt in range(_ATTEMPTS):
        config = yield from _claimed(keys, source, wanted, fixed=shards != "auto", take=not attempt)
        if config.loading is None and not config.made:
            config = yield from create(keys, config, ttl)  # its creator may have died
        if config.loading is None:
            if kind == "counting":
                raise FilterExists(
                    f"filter {keys.name!r} is there, and counters cannot be merged in Redis: push "
                    "under another name"
                )
            yield from merged(_strings(keys, config), source, progress)
            return config
        upload = StringUpload(_strings(keys, config), config.loading)
        if (yield from uploaded(upload, source, progress)):
            settled = yield from _settled(keys, upload, config, life)
            if settled is not None:
                return settled
    raise _forgotten(keys)


def merged(
    strings: BitStrings, source: LocalFilter, progress: Progress | None = None
) -> Flow[None]:
    """Merge a local filter into one that is there; called again, it goes on where it was."""
    upload = StringUpload(strings, f"{source.checksum:016x}")
    for _ in range(_ATTEMPTS):
        if (yield from uploaded(upload, source, progress)) and (yield from upload.merge()):
            yield from upload.forget()
            return
    raise _forgotten(strings.keys)


def uploaded(
    upload: StringUpload, source: LocalFilter, progress: Progress | None = None
) -> Flow[bool]:
    """Send what is missing; False if Redis has lost something of it meanwhile."""
    yield from upload.resume()
    if progress is not None:
        progress(upload.done, upload.total)
    config = upload.strings.keys.config
    loading = upload.strings.config.loading is not None
    while chunks := upload.wanted():
        contents = [source.read(*upload.strings.span(chunk)) for chunk in chunks]
        if not (yield from upload.put(chunks, contents)):
            return False
        if loading:
            yield [command(config, "PEXPIRE", config, LIFE)]
        if progress is not None:
            progress(upload.done, upload.total)
    return True


def _claimed(
    keys: Keys, source: LocalFilter, wanted: Config, *, fixed: bool, take: bool
) -> Flow[Config]:
    """Return the configuration that there is, or write one that says what is being loaded.

    `take`: from another that is on its way. Once only, or two would do so in turns for ever.
    """
    checksum = f"{source.checksum:016x}"
    ours = replace(wanted, loading=f"{checksum}.{secrets.token_hex(4)}")
    while True:
        first = commands(
            keys.config,
            ("SET", keys.config, ours.to_json(), "NX", "PX", LIFE),
            ("GET", keys.config),
        )
        [[_, stored]] = yield from replies_to([first])
        if stored is None:  # it ended between the two
            continue
        config = Config.from_json(keys.name, stored)
        if config.loading is not None:  # whatever it says: it comes out of Redis
            config = replace(config, loading=str(config.loading)[:64])
        config.require_same(keys.name, wanted if fixed else replace(wanted, shards=config.shards))
        if config.loading is None or config.loading.partition(".")[0] == checksum:
            return config
        if not take:
            raise FilterExists(
                f"another filter is being pushed as {keys.name!r} meanwhile: push to another name, "
                "or again to take its place"
            )
        ours = replace(ours, shards=config.shards)
        if (yield from _instead(keys, stored, ours.to_json(), LIFE)):
            # From now on the other finds nothing that it could put in place.
            yield from StringUpload(_strings(keys, config), config.loading).forget()
            return ours


def _strings(keys: Keys, config: Config) -> BitStrings:
    return (Counters if config.kind == "counting" else BitStrings)(keys, config)


def _settled(
    keys: Keys, upload: StringUpload, config: Config, life: int | None
) -> Flow[Config | None]:
    """Put everything in its place; None if something is missing, or another has taken it."""
    before = config.to_json()
    stored = yield from reply_to(keys.config, "GET", keys.config)
    if stored != before or not (yield from upload.place(life)):
        return None
    settled = replace(config, loading=None, made=True)
    if not (yield from _instead(keys, before, settled.to_json(), "" if life is None else life)):
        return None
    yield from upload.forget()
    return settled


def _instead(keys: Keys, before: bytes, after: bytes, life: int | str) -> Flow[bool]:
    words = ("EVAL", _INSTEAD, 1, keys.config, before, after, life)
    return bool((yield from reply_to(keys.config, *words)) == 1)


def _forgotten(keys: Keys) -> StoreRefused:
    return StoreRefused(
        f"Redis lost parts of filter {keys.name!r} while it was pushed, {_ATTEMPTS} times: see "
        "that it has the memory for it and evicts nothing"
    )

"""The flow of a look-up: filter, then cache, then source.

key ──> filter ──no──────────────────────────────────────> ABSENT, certain
           └─maybe─> cache ──fresh──────────────────────> by cache
                       └──> source ──answers──> cached ─> by source
                               └──down──> on_outage: raise, stale, queue, maybe
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import bloomery._native as _native
from bloomery.boottime import boottime
from bloomery.errors import SourceUnavailable
from bloomery.filters.bloom import BloomFilter
from bloomery.guard.answer import ABSENT, Answer
from bloomery.guard.core import Core
from bloomery.guard.driver import Call, Flow
from bloomery.guard.protocols import Cached, Item
from bloomery.guard.singleflight import Flight, LookupInterrupted, PartialAnswers

_JUDGE = BloomFilter(1)
_SOME_SECONDS = 10.0  # more than a source's timeout: for the cache, and for waiting in line


def look_up(core: Core, keys: Sequence[Any]) -> Flow[list[Answer]]:
    """Look up a batch: an answer for each key."""
    filter = core.filter
    mask = yield Call(filter.contains_many, (keys,), blocking=core.blocks(filter))
    maybes = [key for key, maybe in zip(keys, mask, strict=True) if maybe]
    if len(maybes) < len(keys):
        core.observed.nos([key for key, maybe in zip(keys, mask, strict=True) if not maybe])
    answers = (yield from confirm(core, maybes)) if maybes else []
    core.count(answers)
    confirmed = iter(answers)
    return [next(confirmed) if maybe else ABSENT for maybe in mask]


def listed(keys: Any) -> list[Any]:
    """Keys of any batch as Python's own objects."""
    if type(keys) is list:
        return keys
    method = next((name for name in ("tolist", "to_pylist") if hasattr(keys, name)), None)
    if method or isinstance(keys, (str, bytes, bytearray)) or not isinstance(keys, Iterable):
        _JUDGE.contains_many(keys)  # says what is wrong, as any filter does
    return list(getattr(keys, method)() if method else keys)


def confirm(core: Core, keys: Sequence[Any]) -> Flow[list[Answer]]:
    """Answers for keys that the filter let through; each is looked up once, whoever asks."""
    names = [_native.canonical(key) for key in keys]
    wanted = {
        name: key if type(key) is str else hashable(key)  # a call less, for nearly all
        for name, key in zip(names, keys, strict=True)
    }
    answers: dict[bytes, Answer] = {}
    left = wanted
    since = core.flights.begun
    while left:
        answers |= yield from _share(core, left, since)
        # What is left are keys of a look-up by another caller who was interrupted: Ctrl-C there, or
        # a task that was cancelled, is nothing to us. And what another had begun before we asked.
        left = {name: key for name, key in left.items() if name not in answers}
    return [answers[name] for name in names]


def _share(core: Core, wanted: dict[bytes, Any], since: int) -> Flow[dict[bytes, Answer]]:
    """Look up the keys that no other caller is looking up, and wait for the rest."""
    flight = core.flights.claim(wanted, since)
    answers: dict[bytes, Answer] = {}
    leads = iter(flight.leads)
    try:
        if flight.mine:
            try:
                answers = yield from _resolve(core, flight, flight.mine)
            except BaseException as problem:
                flight.crash(problem)
                raise
            flight.land(answers)
        for landed, following in leads:
            answers |= yield from _follow(core, landed, following)
    except BaseException:
        for _, following in leads:  # others wait for those, and now look them up themselves
            following.crash(LookupInterrupted())
        raise
    for landed, joined in flight.theirs.items():
        answers |= yield from _joined(core, landed, joined)
    return answers


def _follow(
    core: Core, landed: Future[Mapping[bytes, Any]], following: Flight
) -> Flow[dict[bytes, Answer]]:
    """Wait for a look-up that began before we asked, and then look up what it had."""
    try:
        heard = yield from _joined(core, landed, list(following.mine))
        # That the source is down holds for us too; what cache or source said before we asked may
        # be out of date.
        answers = {name: answer for name, answer in heard.items() if not answer.confirmed}
        left = following.begin([name for name in following.mine if name not in answers])
        if left:
            answers |= yield from _resolve(core, following, left)
    except BaseException as problem:
        following.crash(problem)
        raise
    following.land(answers)
    return answers


def _joined(
    core: Core, landed: Future[Mapping[bytes, Any]], wanted: Sequence[bytes]
) -> Flow[dict[bytes, Answer]]:
    """Wait for the answers of a look-up that another has begun; some are missing if it was
    interrupted."""
    timeout = core.options.timeout
    longest = None if timeout is None else timeout + _SOME_SECONDS
    answers: dict[bytes, Answer] = {}
    while True:
        try:
            theirs = yield Call(landed, timeout=longest)
        except LookupInterrupted:
            return answers
        except TimeoutError:
            for name in wanted:
                core.flights.spoil(name)  # the next one begins anew
            raise SourceUnavailable("the same look-up, begun by another, does not end") from None
        answers |= {name: theirs[name] for name in wanted if name in theirs}
        if not isinstance(theirs, PartialAnswers):
            return answers
        wanted = [name for name in wanted if name not in theirs]
        if not wanted:
            return answers
        landed = theirs.rest


def _resolve(core: Core, flight: Flight, wanted: dict[bytes, Any]) -> Flow[dict[bytes, Answer]]:
    cached: Mapping[bytes, Cached] = {}
    if core.cache is not None:
        cached = yield from core.cache.get(list(wanted))
    now = boottime()
    counting = core.observed.counting
    answers: dict[bytes, Answer] = {}
    left: dict[bytes, Any] = {}
    for name, key in wanted.items():
        entry = cached.get(name)
        if entry is None or entry.fresh_until <= now:
            left[name] = key
        else:
            answers[name] = Answer(entry.found, entry.value, "cache")
            if not entry.found:
                core.deny(key, counting)
    if left and answers:
        flight.land_some(answers)
    if left and core.queue is not None:
        # Writes to these wait in the queue: what the source says of them is out of date.
        pending = yield Call(core.queue.pending, (list(left),))
        if pending:
            answers |= yield from _queue_up(core, {name: left.pop(name) for name in pending})
    if left:
        tokens = yield from lease(core, left)
        try:
            values = yield from core.source.get(list(left.values()))
        except SourceUnavailable as problem:
            if counting:
                core.observed.unknown(left.values())
            return answers | (yield from _without_source(core, flight, left, cached, problem))
        answers |= yield from store(core, flight, left, values, tokens, counting)
    return answers


def lease(core: Core, asked: Iterable[bytes]) -> Flow[Mapping[bytes, Any] | None]:
    """Tokens of the cache, taken before the source is asked, with which `store` caches the
    answers; None: they are not cached."""
    return None if core.cache is None else (yield from core.cache.lease(list(asked)))


def store(
    core: Core,
    flight: Flight,
    asked: Mapping[bytes, Any],
    values: Mapping[Any, Any],
    tokens: Mapping[bytes, Any] | None,
    counting: bool,
) -> Flow[dict[bytes, Answer]]:
    """Make answers of what the source said, and cache them; but not those of keys that were
    written meanwhile."""
    answers: dict[bytes, Answer] = {}
    for name, key in asked.items():
        answers[name] = Answer(True, values[key], "source") if key in values else Answer(False)
        if not answers[name].found:
            core.deny(key, counting)
    core.observed.answered(values, [key for key in asked.values() if key not in values])
    if core.cache is not None and tokens is not None:
        clean = flight.store()
        entries = [
            (name, entry)
            for name, answer in answers.items()
            if name in clean
            and (entry := core.options.cached(answer.found, answer.value, tokens.get(name)))
        ]
        yield from core.cache.put(entries)
        # A write that failed did not wait for us: what it may have changed is deleted again.
        late = flight.spoiled.intersection(name for name, _ in entries)
        if late:
            yield from core.cache.delete(list(late))
    return answers


def _without_source(
    core: Core,
    flight: Flight,
    left: dict[bytes, Any],
    cached: Mapping[bytes, Cached],
    problem: SourceUnavailable,
) -> Flow[dict[bytes, Answer]]:
    """Answer by the policy for an outage: raise, stale, queue or maybe."""
    policy = core.options.on_outage
    if policy == "maybe":
        return dict.fromkeys(left, _MAYBE)
    if policy == "queue":
        return (yield from _queue_up(core, left))
    if policy == "stale":
        stale = {
            name: Answer(cached[name].found, cached[name].value, "stale")
            for name in left
            if name in cached
        }
        missing = len(left) - len(stale)
        if missing:
            flight.land_some(stale)
            raise SourceUnavailable(
                f"{problem}; {missing} of {len(left)} keys are not in the cache either"
            ) from problem
        return stale
    raise problem


def _queue_up(core: Core, left: Mapping[bytes, Any]) -> Flow[dict[bytes, Answer]]:
    """Put look-ups into the queue; until the source answers them, the answer is unconfirmed."""
    assert core.queue is not None
    now = time.time()
    # One queued look-up stands for all who ask for a key, until something is written: popular keys
    # would fill the queue. If it was answered meanwhile, and is about to leave, another is queued.
    for epoch in (core.queue_epoch, secrets.token_hex(8)):
        answering = core.answering
        items = {
            name: Item("look", key, None, _idempotency_key(epoch, name), now)
            for name, key in left.items()
        }
        yield Call(core.queue.put, (list(items.values()),))
        if core.answering == answering:
            break
    return {
        name: Answer(True, None, "unconfirmed", item.idempotency_key)
        for name, item in items.items()
    }


def _idempotency_key(epoch: str, name: bytes) -> str:
    return hashlib.blake2b(name, key=epoch.encode(), digest_size=16).hexdigest()


_MAYBE = Answer(True, None, "unconfirmed")


def hashable(key: Any) -> Any:
    """The key as a mapping can hold it: bytes for what changes."""
    if isinstance(key, (bytearray, memoryview)):
        return bytes(key)
    return tuple(map(hashable, key)) if type(key) is tuple else key

"""Bits between Redis and the memory of a node."""

from __future__ import annotations

import contextlib
import time
from functools import partial

from bloomery import BloomFilter, _native, errors
from bloomery.filters.internals import open_filter, or_bytes
from bloomery.integrations.redis.bits.strings import BitStrings, create
from bloomery.integrations.redis.naming import Keys
from bloomery.integrations.redis.transfer import pushing
from bloomery.integrations.redis.transfer.pushing import LocalFilter
from bloomery.integrations.redis.transfer.reading import copying, read_into
from bloomery.integrations.redis.wire.failures import checked
from bloomery.integrations.redis.wire.flow import Flow, command
from bloomery.integrations.redis.wire.link import Link
from bloomery.service.domain.operations import Op
from bloomery.service.replication.catalogue import Catalogue, Changed, Listed
from bloomery.service.replication.leftovers import taken_back, unsettled, was_dropped
from bloomery.service.replication.shared import Shared, strings_of
from bloomery.storage import memory


def empty(listed: Listed) -> BloomFilter:
    """Return a filter of ours that is made like one in Redis."""
    memory.check(listed.nbytes)
    return open_filter(BloomFilter, listed.header, _native.Memory(listed.nbytes))


def loaded(link: Link, listed: Listed) -> BloomFilter:
    """Return it with all its bits."""
    made: BloomFilter = link.run(copying(Shared.of(listed, 0).strings))
    return made


def merged(link: Link, shared: Shared, filter: BloomFilter) -> None:
    """Give a filter that is in use the bits that it lacks."""
    strings = shared.strings
    read_into(link, strings, partial(or_bytes, filter))


def restored(
    link: Link, catalogue: Catalogue, shared: Shared, filter: BloomFilter, every_bit: bool
) -> bool:
    """Give Redis back what it has lost of a filter; False if it is another's by now, or dropped.
    `every_bit`: strings that are there may have lost some."""
    listed = shared.listed
    found = link.run(catalogue.find(listed.name))
    if found is None:
        gone = link.run(was_dropped(catalogue, listed.uid))
    else:
        gone = not _is_there(found, listed)
    if gone:
        return False
    whole = link.run(_lengths(shared.strings))
    # Others may be at it, too.
    with contextlib.suppress(Changed, errors.UnknownFilter, errors.FilterExists):
        if not whole:
            _make_again(link, catalogue, listed)
        if every_bit or not whole:
            link.run(pushing.merged(shared.strings, LocalFilter.of(filter, "bloom")))
        if found is None:
            link.run(catalogue.change(listed.name, None, listed, [listed.record(Op.CREATE)]))
    # Somebody may have dropped it meanwhile, and had its strings deleted before these were made.
    now = link.run(catalogue.find(listed.name))
    if now is None and not link.run(was_dropped(catalogue, listed.uid)):
        raise errors.UnknownFilter(f"Redis lost {shared.strings.keys.name!r} while it was restored")
    if not _is_there(now, listed):
        link.run(taken_back(catalogue, listed))
        if now is not None and now.dropped_at is None:  # its string may have bits of this one
            link.run(strings_of(catalogue, now).tell_merged())
        return False
    if every_bit or not whole:
        # Who was started meanwhile has taken it for empty, or read strings of which half was there.
        link.run(strings_of(catalogue, listed).tell_merged())
    if listed.expires_at is not None:
        left = max(0.001, listed.expires_at - time.time()) + 60
        link.run(shared.strings.expire(left))
    return True


def _is_there(found: Listed | None, listed: Listed) -> bool:
    return found is not None and found.uid == listed.uid and found.dropped_at is None


def emptied(link: Link, catalogue: Catalogue, listed: Listed) -> BloomFilter:
    """Make a filter again of which Redis has lost bits, for who accepts that."""
    _make_again(link, catalogue, listed)
    return loaded(link, listed)


def _make_again(link: Link, catalogue: Catalogue, listed: Listed) -> None:
    # What says that the strings are made goes first. Strings that are there stay as they are.
    link.run(unsettled(catalogue, listed))
    link.run(create(Keys(listed.name), catalogue.config(listed), None))


def _lengths(strings: BitStrings) -> Flow[bool]:
    """Whether every string is as long as it must be."""
    replies = yield [command(name, "STRLEN", name) for name in strings.names]
    found = [checked(some)[0] for some in replies]
    return found == strings.lengths

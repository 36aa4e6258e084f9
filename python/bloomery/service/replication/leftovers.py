"""What may be left in Redis of a filter that was dropped, or never quite made.

The catalogue and a filter's strings are in different slots: no step can change both. Who was at
work on strings while another dropped their filter takes back what it made; who makes the next of
that name sweeps up what it finds.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable

from bloomery.integrations.redis.config import Config
from bloomery.integrations.redis.naming import Keys
from bloomery.integrations.redis.wire.failures import checked
from bloomery.integrations.redis.wire.flow import Flow, command
from bloomery.service.domain.operations import Op
from bloomery.service.replication.catalogue import Catalogue, Changed, Listed
from bloomery.service.replication.shared import Shared
from bloomery.service.replication.stream import Record, entries_in

_PAGE, _PAGES = 100, 20  # entries: what a node has not heard of yet is among so many
_SETTINGS = ("kind", "capacity", "error_rate", "layout", "hasher")
# KEYS: the configuration and what lies in its slot. One step, or another's strings might go, that
# were made since.
_UNLINK = """
if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then return 0 end
redis.call('UNLINK', unpack(KEYS))
return 1
"""


def was_dropped(catalogue: Catalogue, uid: int) -> Flow[bool]:
    """Whether the stream tells so of a filter that the catalogue does not have: else Redis has lost
    it, and its nodes bring it back."""
    stream, end = catalogue.stream, b"+"
    for _ in range(_PAGES):
        [some] = yield [command(stream, "XREVRANGE", stream, end, "-", "COUNT", _PAGE)]
        entries = entries_in([[stream, checked(some)[0]]], skip=True)
        if any((uid, Op.DROP) == one[:2] for entry in entries for one in entry.records):
            return True
        if len(entries) < _PAGE:
            break
        end = b"(" + entries[-1].id
    return False


def taken_back(catalogue: Catalogue, listed: Listed) -> Flow[None]:
    """Delete the strings of a filter that is not in the catalogue, unless another is made there."""
    found = yield from catalogue.find(listed.name)
    if found is not None and found.uid == listed.uid and found.dropped_at is None:
        return
    names = Shared.of(listed, 0).strings.names
    alone = len(names) == 1
    if (yield from unsettled(catalogue, listed, names if alone else [])) and not alone:
        yield [command(name, "UNLINK", name) for name in names]


def unsettled(catalogue: Catalogue, listed: Listed, names: Iterable[bytes] = ()) -> Flow[bool]:
    """Delete the configuration that says that a filter's strings are made, and strings in its slot;
    False if it is another's. (Where there is none, strings are nobody's.)"""
    keys = Keys(listed.name)
    [some] = yield [command(keys.config, "GET", keys.config)]
    [held] = checked(some)
    if held is not None and _uid(catalogue, Config.from_json(keys.name, held)) != listed.uid:
        return False
    both = [keys.config, *names]
    [some] = yield [command(keys.config, "EVAL", _UNLINK, len(both), *both, held or b"")]
    return bool(checked(some)[0])


def swept(catalogue: Catalogue, name: bytes) -> Flow[bool]:
    """Make room where strings are of a filter that was dropped; False if they are not.

    Strings of nodes that no stream tells the end of, and no catalogue has, were made by one that
    died before it listed them: they are listed now, so that people see the filter, and can drop it.
    """
    keys = Keys(name)
    [some] = yield [command(keys.config, "GET", keys.config)]
    [held] = checked(some)
    if held is None:
        return True
    config = Config.from_json(keys.name, held)
    uid = _uid(catalogue, config)
    if uid is None:
        return False
    settings = {one: value for one, value in config.fields().items() if one in _SETTINGS}
    listed = Listed(uid, name, config.header, config.shards, settings, time.time())
    if (yield from was_dropped(catalogue, uid)):
        yield from taken_back(catalogue, listed)
        return True
    with contextlib.suppress(Changed):  # whoever made them has just done it
        records = [listed.record(Op.CREATE), Record(uid, Op.MERGE, b"")]
        yield from catalogue.change(name, None, listed, records)
    return False


def _uid(catalogue: Catalogue, config: Config) -> int | None:
    """The number that programs tell which add to these strings; None if they are not of nodes."""
    told = config.told
    ours = told is not None and told["stream"].encode("utf-8", "surrogateescape")
    return told["uid"] if told is not None and ours == catalogue.stream else None

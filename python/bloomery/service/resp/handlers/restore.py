"""DUMP and RESTORE: a small filter in one reply, and back. Large ones, for which others would wait,
are for SCANDUMP."""

from __future__ import annotations

from typing import Any

from bloomery import errors
from bloomery.filters import SavedFilter
from bloomery.service.domain.operations import LARGE
from bloomery.service.resp import authorize
from bloomery.service.resp.arguments import integer, option, parse_integer
from bloomery.service.resp.client import ClientState
from bloomery.service.resp.replies import OK, Failure
from bloomery.service.resp.table import command

_BUSY = Failure("BUSYKEY Target key name already exists.")
_BAD_PAYLOAD = Failure("ERR DUMP payload version or checksum are wrong")


@command("DUMP", "key", group="generic", does="export")
async def dump(client: ClientState, words: list[bytes]) -> bytes | None:
    """Return a filter as a file of ours has it, for RESTORE; null if there is none."""
    entry = client.context.engine.find(words[0])
    if entry is None:
        return None
    if entry.filter is None:
        raise Failure("ERR this filter is still being loaded")
    if entry.filter.kind == "bank" or entry.filter.nbytes > LARGE:
        raise Failure(
            f"ERR DUMP takes filters of up to {LARGE:,} bytes, and no banks: use "
            "BF.SCANDUMP or CF.SCANDUMP"
        )
    authorize.check_export(client, words[0], "dump", entry.filter)
    dumped: bytes = entry.filter.to_bytes()
    return dumped


@command(
    "RESTORE",
    "key ttl serialized-value [REPLACE] [ABSTTL] [IDLETIME seconds] [FREQ frequency]",
    most=None,
    write=True,
    group="generic",
    does="import",
)
async def restore(client: ClientState, words: list[bytes]) -> str:
    """Make a filter of what DUMP gave; it ends in `ttl` milliseconds, 0: never."""
    commands, (name, word, payload) = client.context.commands, words[:3]
    options = _options(words[3:])
    ttl = parse_integer(word)
    if ttl < 0:
        raise Failure("ERR Invalid TTL value, must be >= 0")
    there = client.context.engine.find(name) is not None
    if there and "REPLACE" not in options:
        raise _BUSY
    try:
        checked = SavedFilter.from_bytes(payload)  # before anything is changed
    except errors.NotEnoughMemory:
        raise
    except errors.BloomeryError as problem:
        raise _BAD_PAYLOAD from problem
    _require_small(checked.nbytes)
    del checked  # its memory is for the one that is kept
    now = (
        0 if "ABSTTL" in options else int(client.context.engine.running * 1000)
    )  # as EXPIRE and TTL
    try:
        await commands.load(
            name,
            1,
            payload,
            replace="REPLACE" in options,
            expires_at=(now + ttl) / 1000 if ttl else None,
        )
    except errors.FilterExists:  # another client was faster
        raise _BUSY from None
    return OK


@command("BF.LOAD", "key data", write=True, does="import")
async def load(client: ClientState, words: list[bytes]) -> str:
    """Create a filter from what DUMP returned. Dumps of valkey-bloom have other hashes."""
    name, payload = words
    if client.context.engine.find(name) is not None:
        raise _BUSY
    try:
        checked = SavedFilter.from_bytes(payload)
    except errors.NotEnoughMemory:
        raise
    except errors.BloomeryError as problem:
        raise Failure(
            "ERR bloom object decoding failed. BF.LOAD takes what DUMP of a bloomery server returns"
        ) from problem
    _require_small(checked.nbytes)
    del checked  # its memory is for the one that is kept
    try:
        await client.context.commands.load(name, 1, payload)
    except errors.FilterExists:
        raise _BUSY from None
    return OK


def _require_small(nbytes: int) -> None:
    if nbytes > LARGE:
        raise Failure(
            f"ERR RESTORE and BF.LOAD take filters of up to {LARGE:,} bytes: use BF.LOADCHUNK or "
            "CF.LOADCHUNK"
        )


def _options(words: list[bytes]) -> set[str]:
    options: set[str] = set()
    at: Any = iter(words)
    for word in at:
        which = option(word)
        if which in ("IDLETIME", "FREQ"):
            value = integer(next(at, b""))
            if value is None or value < 0:
                raise Failure(f"ERR Invalid {which} value, must be >= 0")
        elif which not in ("REPLACE", "ABSTTL"):
            raise Failure("ERR syntax error")
        options.add(which)
    return options

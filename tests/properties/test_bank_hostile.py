"""Bytes that are no bank, or a damaged one: an error or an answer, and never a crash."""

from __future__ import annotations

import contextlib
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bloomery import FilterBank, _native
from bloomery.errors import CorruptData, UnsupportedVersion
from conftest import effort
from privates import verify
from properties.forgery import FIELDS, signed

PAGE_LINES, CELLS = (64, "<Q"), (72, "<Q")
LIVE = _native.LIVE.to_bytes(8, "little")


def saved() -> bytearray:
    """The bytes of a small bank whose users have several layers."""
    bank = FilterBank(0.01, 12)
    for n in range(600):
        bank.add(n % 5, n)
    return bytearray(bank.to_bytes())


def doors(folder: Path) -> dict[str, Callable[[bytes], FilterBank]]:
    """Every way in for a bank's bytes."""
    path = folder / "hostile.bank"

    def by_path(data: bytes, read: Callable[..., FilterBank], **how: Any) -> FilterBank:
        path.write_bytes(data)
        return read(path, **how)

    return {
        "from_bytes": FilterBank.from_bytes,
        "load": lambda data: by_path(data, FilterBank.load),
        "open": lambda data: by_path(data, FilterBank.open),
        "open to read": lambda data: by_path(data, FilterBank.open, mode="r"),
        "verify": lambda data: by_path(data, FilterBank.open, verify=True),
    }


def survives(door: Callable[[bytes], FilterBank], data: bytes) -> None:
    """Opened or refused; if opened, asked and changed in every way."""
    try:
        bank = door(data)
    except (CorruptData, MemoryError):
        return
    for act in (
        lambda: bank.contains_many(3, range(50)),
        lambda: bank.info(2),
        lambda: bank.update([n % 6 for n in range(80)], range(1000, 1080)),
        lambda: bank.drop(1),
        lambda: verify(bank),
        bank.to_bytes,
        bank.flush,
        bank.clear,
        bank.close,
    ):
        with contextlib.suppress(CorruptData, TypeError, KeyError, RuntimeError, MemoryError):
            act()


@pytest.mark.parametrize("live", [True, False])
def test_damage_anywhere(tmp_path: Path, live: bool) -> None:
    """Random bytes of the bank's own state and of its pages changed: no door breaks."""
    rng, raw = random.Random(5), saved()
    for _ in range(effort(60, 300, 20_000)):
        data = bytearray(raw)
        for _ in range(rng.randrange(1, 5)):
            at = rng.choice([rng.randrange(128, 360), rng.randrange(128, len(data) - 8)])
            value = rng.choice([0, 1, rng.randrange(400), 2**32 - 1, 2**63, rng.randrange(2**64)])
            struct.pack_into("<Q", data, at & ~7, value)
        if rng.random() < 0.2:
            del data[rng.randrange(128, len(data)) :]
        if live:
            data[120:128] = LIVE
        for door in doors(tmp_path).values():
            survives(door, signed(data, body=not live))


def test_what_is_damaged_does_not_load() -> None:
    """A saved bank is summed: one flipped bit anywhere behind the header is found."""
    raw = saved()
    for at in range(128, len(raw), 97):
        data = bytearray(raw)
        data[at] ^= 4
        with pytest.raises(CorruptData, match="checksum"):
            FilterBank.from_bytes(data)
    for length in (0, 7, 100, 128, 4000, len(raw) - 64):
        with pytest.raises(CorruptData):
            FilterBank.from_bytes(raw[:length])


@pytest.mark.parametrize(
    ("field", "value", "error", "says"),
    [
        (FIELDS["version"], 2, UnsupportedVersion, "version 2"),
        (FIELDS["kind"], 1, CorruptData, "bank"),
        (FIELDS["kind"], 200, UnsupportedVersion, "kind 200"),
        (FIELDS["layout"], 1, CorruptData, "not 0"),
        (FIELDS["num_bits"], 512, CorruptData, "not 0"),
        (FIELDS["capacity"], 0, CorruptData, "capacity is 0"),
        (FIELDS["error_rate"], 2.0, CorruptData, "error_rate is 2"),
        (PAGE_LINES, 0, CorruptData, "pages of 0 lines"),
        (PAGE_LINES, 33, CorruptData, "pages of 33 lines"),
        (CELLS, 0, CorruptData, "0 cells"),
        (CELLS, 2**61, CorruptData, "cells"),
        ((128, "<Q"), 2, CorruptData, "state 2"),
        ((144, "<Q"), 2**40, CorruptData, "flush number"),
        ((152, "<Q"), 0, CorruptData, "no directory"),
        ((176, "<Q"), 2**40, CorruptData, "users"),
        ((192, "<Q"), 2**40, CorruptData, "lines in use"),
    ],
)
def test_each_way_of_being_wrong_has_its_message(
    field: tuple[int, str], value: Any, error: type[CorruptData], says: str
) -> None:
    """A head that is signed but wrong is refused, naming the field and the value found."""
    raw = saved()
    struct.pack_into(field[1], raw, field[0], value)
    with pytest.raises(error, match=says):
        FilterBank.from_bytes(signed(raw, body=True))

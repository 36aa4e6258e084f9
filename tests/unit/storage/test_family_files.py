"""Filters of every kind as bytes and files: copied, mapped, named, damaged."""

from __future__ import annotations

import copy
import os
import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bloomery
from bloomery import RotatingBloomFilter, _native, errors
from bloomery.filters import COMMON_KINDS, Filter, RemovingFilter
from bloomery.filters.internals import header
from conftest import effort
from privates import open_filter
from properties.forgery import signed
from unit.kinds import KEYS, OPEN, every_kind, every_other, made


@every_other
def test_copies(kind: str, tmp_path: Path) -> None:
    """Copied, pickled, to bytes or a file and back: equal, of its class, and on its own."""
    filter = made(kind, hasher="siphash", seed=2**100)
    path = tmp_path / "f"
    filter.save(path)
    assert path.read_bytes() == filter.to_bytes()
    same = [filter.copy(), copy.copy(filter), copy.deepcopy(filter)]
    same += [pickle.loads(pickle.dumps(filter)), type(filter).from_bytes(filter.to_bytes())]
    same += [type(filter).load(path), bloomery.open(path), bloomery.open(path, mmap=True)]
    for one in same:
        assert type(one) is type(filter)
        assert one == filter
        assert all(one.contains_many(KEYS))
        assert (one.seed, one.info()["seed"]) == (2**100, "secret")
    if kind in OPEN:
        same[0].add("new")
        assert same[0] != filter
        assert "new" not in filter
        same[0].clear()
        assert not any(same[0].contains_many(KEYS))


@every_other
def test_a_mapped_filter_is_read_only(kind: str, tmp_path: Path) -> None:
    """A map answers and is never written: a ReadOnlyFilter says what to do, for every change."""
    path = tmp_path / "f"
    made(kind).save(path)
    before = path.read_bytes()
    mapped: Any = bloomery.open(path, mmap=True, verify=True)
    assert mapped.read_only
    assert all(mapped.contains_many(KEYS))
    changes: list[tuple[str, tuple[Any, ...]]] = [
        *(("add", ("x",)), ("add_many", (["x"],)), ("update", (np.arange(5000),)), ("clear", ())),
        ("add_lines", (b"x\n",)),
    ]
    if isinstance(mapped, RemovingFilter):
        changes += [("remove", (KEYS[0],)), ("discard", ("x",)), ("remove_many", (KEYS,))]
    for name, arguments in changes:
        with pytest.raises(errors.ReadOnlyFilter):
            getattr(mapped, name)(*arguments)
    assert path.read_bytes() == before
    assert not mapped.copy().read_only
    with pytest.raises(errors.InvalidParameter, match=r"writable.*two processes"):
        bloomery.open(path, mmap=True, writable=True)


@every_kind
def test_another_kind_is_named(kind: str, tmp_path: Path) -> None:
    """Loaded as what it is not, a file says what it is and what loads it."""
    path = tmp_path / "f"
    filter = made(kind)
    filter.save(path)
    assert type(bloomery.open(path)) is COMMON_KINDS[kind]
    for other in set(COMMON_KINDS) - {kind}:
        one = COMMON_KINDS[other]
        with pytest.raises(errors.IncompatibleFilters) as caught:
            one.load(path)
        assert str(caught.value).startswith(f"{path}: ")
        for word in (COMMON_KINDS[kind].__name__, one.__name__, "bloomery.open"):
            assert word in str(caught.value)
        with pytest.raises(errors.IncompatibleFilters):
            one.from_bytes(filter.to_bytes())


@every_other
def test_streams_are_read_once(kind: str, tmp_path: Path) -> None:
    """`bloomery.open` takes a pipe, which cannot be read twice."""
    filter, pipe = made(kind), tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(filter.to_bytes()))
    writer.start()
    assert bloomery.open(pipe) == filter
    writer.join()


@every_other
def test_damage_is_found(kind: str) -> None:
    """No flipped bit and no missing byte goes unseen."""
    data = made(kind).to_bytes()
    rng = np.random.default_rng(1)
    for at in [*range(128), *rng.integers(128, len(data), effort(50, 200, 2000))]:
        damaged = bytearray(data)
        damaged[at] ^= 1 << rng.integers(8)
        with pytest.raises(errors.CorruptData):
            COMMON_KINDS[kind].from_bytes(damaged)
    for size in (0, 7, 64, 127, 128, 129, len(data) - 1):
        with pytest.raises(errors.CorruptData):
            COMMON_KINDS[kind].from_bytes(data[:size])
    with pytest.raises(errors.CorruptData):
        COMMON_KINDS[kind].from_bytes(data + bytes(64))
    live = data[:120] + b"\xff" * 8 + data[128:]
    with pytest.raises(errors.CorruptData, match="no checksum"):
        COMMON_KINDS[kind].from_bytes(live)


@every_other
def test_any_body_is_survived(kind: str) -> None:
    """Bytes that are nonsense, but summed as they should be, give answers or an error: no crash."""
    filter = made(kind)
    rng = np.random.default_rng(2)
    for _ in range(effort(20, 100, 1000)):
        body = rng.bytes(filter.nbytes)
        data = header(filter, _native.checksum(body)) + body
        try:
            read: Any = COMMON_KINDS[kind].from_bytes(data)
        except errors.CorruptData:
            continue
        read.contains_many(KEYS)
        assert isinstance(read.info(), dict)
        if kind in OPEN:
            try:
                read.update(KEYS)
            except errors.FilterFull:
                continue
            assert all(read.contains_many(KEYS))


def test_there_is_no_other_way_in() -> None:
    """A filter cannot be had unmade or of the wrong kind, and memory belongs to one filter."""
    head, memory = header(made("cuckoo")), _native.Memory(made("cuckoo").nbytes)
    with pytest.raises(TypeError):
        Filter.__new__(Filter)  # type: ignore[call-arg]
    with pytest.raises(errors.IncompatibleFilters):
        open_filter(RotatingBloomFilter, head)
    _native.Family(head, memory)
    for wrong in (memory, b"", "text", 5, bytearray(100), np.zeros(128, "u1")[::2]):
        with pytest.raises((errors.InvalidParameter, errors.CorruptData)):
            _native.Family(head, wrong)  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidParameter):
        _native.Family(head, bytes(64), 2**63)
    with pytest.raises(errors.CorruptData):
        _native.Family(header(made("bloom")))
    for offset, data in ((0, b"x" * 65), (64, b"x"), (1, b"x"), (2**63, b"x"), (56, b"x" * 9)):
        with pytest.raises(errors.InvalidParameter):
            _native.Memory(64).write(offset, data)
    with pytest.raises(errors.NotEnoughMemory):
        _native.Memory(2**62)


@pytest.mark.parametrize(
    "wrong",
    [
        *({"kind": "ribbon"}, {"hasher": "md5"}, {"capacity": 0}, {"error_rate": 2.0}),
        *({"nbytes": 2**60}, {"extra": [0] * 7}, {"seed": 2**65}),
    ],
    ids=str,
)
def test_headers_are_checked_when_made(wrong: dict[str, Any]) -> None:
    """A header that could not be read is not made."""
    right = {"kind": "cuckoo", "capacity": 1, "error_rate": 0.5, "hasher": "xxh3", "seed": 0}
    with pytest.raises(errors.InvalidParameter):
        _native.make_header(**right | wrong)  # type: ignore[arg-type]


@every_other
def test_any_header_is_survived(kind: str) -> None:
    """A header that is nonsense, but signed, is refused or gives answers: no crash, no hang."""
    data = made(kind).to_bytes()
    rng = np.random.default_rng(3)
    for _ in range(effort(300, 2000, 50_000)):
        forged = bytearray(data)
        for at in rng.integers(11, 112, rng.integers(1, 4)):
            forged[at] = rng.choice(
                [0, 1, 255, rng.integers(256), forged[at] ^ 1 << rng.integers(8)]
            )
        try:
            read: Any = COMMON_KINDS[kind].from_bytes(signed(forged))
        except (errors.CorruptData, errors.NotEnoughMemory):
            continue
        read.contains_many(KEYS)
        assert isinstance(read.info(), dict)
        if kind in OPEN:
            try:
                read.update(KEYS)
            except (errors.FilterFull, errors.NotEnoughMemory):
                continue
            # A forged window may have passed since.
            assert kind == "rotating" or all(read.contains_many(KEYS))

"""Hostile dumps and files of RedisBloom's filters: an error of ours, or a filter that works."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bloomery.errors import BloomeryError, CorruptData
from bloomery.filters import RedisBloomFilter, RedisCuckooFilter
from conftest import effort
from properties.forgery import FIELDS, HEAD, doors, forged, signed

KEYS = [b"key %d" % n for n in range(150)]
BOTH = [RedisBloomFilter, RedisCuckooFilter]
both = pytest.mark.parametrize("one", BOTH)
DOORS = sorted(set(doors(Path())) - {"mmap-writable"})
MOST = 1 << 20  # bytes that a dump may ask for
# Field by field of a dump's header: where it is and how it is packed.
CHAIN = {
    **{name: (8 + 4 * i, "<I") for i, name in enumerate(["nfilters", "options", "growth"])},
    "size": (0, "<Q"),
    **{
        f"{name} {layer}": (20 + 53 * layer + at, form)
        for layer in range(2)
        for name, at, form in [
            *(("bytes", 0, "<Q"), ("bits", 8, "<Q"), ("size", 16, "<Q"), ("error", 24, "<d")),
            *(("bpe", 32, "<d"), ("hashes", 40, "<I"), ("entries", 44, "<Q"), ("n2", 52, "<B")),
        ]
    },
}
CUCKOO = {
    **{name: (8 * i, "<Q") for i, name in enumerate(["items", "buckets", "deletes", "filters"])},
    **{name: (32 + 2 * i, "<H") for i, name in enumerate(["size", "iterations", "expansion"])},
}
WORDS = [0, 1, 2, 3, 7, 8, 63, 64, 255, 256, 2**16, 2**31, 2**32 - 1, 2**45, 2**63, 2**64 - 1]
FLOATS = [0.0, 5e-324, 1e-9, 0.0025, 0.25, 0.5, 0.999, 1.0, -1.0, 1e300, float("inf"), float("nan")]


def sample(one: Any) -> Any:
    """A filter of two layers or more that holds KEYS."""
    filter = one(0.01, 60, 2) if one is RedisBloomFilter else one(64, 2, 20, 2)
    for key in KEYS:
        filter.add(key)
    assert filter.num_layers >= 2
    return filter


def exercise(filter: Any, most: int) -> None:
    """Do everything that a server may do with a doubtful filter."""
    assert filter.nbytes <= most + 65536
    info = filter.info()
    assert 0 <= info["fill_ratio"] <= 1
    assert 0 <= info["estimated_error_rate"] <= 1
    assert repr(filter)
    again = type(filter).from_bytes(filter.to_bytes())
    assert again == filter == filter.copy()
    iterator = 0
    for _ in range(100):
        iterator, _data = filter.chunk(iterator)
    if filter.read_only:
        return
    try:
        for key in KEYS[:20]:
            filter.add(key)
            assert key in filter
    except BloomeryError:
        pass  # full, or its next layer is too large
    if isinstance(filter, RedisCuckooFilter):
        for key in KEYS:
            filter.discard(key)
        filter.compact()
        assert filter.count(KEYS[0]) >= 0
    type(filter).from_bytes(filter.to_bytes())
    filter.clear()
    assert not any(key in filter for key in KEYS)


def survives(door: Callable[[bytes], Any], data: bytes) -> bool:
    """True if the bytes are a filter, which then works; False if refused with an error of ours."""
    try:
        filter = door(data)
    except BloomeryError:
        return False
    exercise(filter, max(MOST, len(data)))
    return True


def changed(raw: bytearray, fields: dict[str, tuple[int, str]], rng: random.Random) -> None:
    """Give some fields other values."""
    for _ in range(rng.choice([1, 1, 2, 3])):
        at, form = fields[rng.choice(list(fields))]
        width = struct.calcsize(form)
        number = int.from_bytes(raw[at : at + width], "little")
        match rng.randrange(4):
            case 0:
                number = rng.choice(WORDS)
            case 1:
                number = int.from_bytes(struct.pack("<d", rng.choice(FLOATS)), "little")
            case 2:
                number ^= 1 << rng.randrange(8 * width)
            case _:
                number += rng.choice([-1, 1, 8, 64])
        raw[at : at + width] = (number % 2 ** (8 * width)).to_bytes(width, "little")


@both
def test_mutated_headers(one: Any) -> None:
    """A dump's header with any fields changed is refused, or makes a filter within its limit."""
    header = sample(one).chunk(0)[1]
    fields, rng = (CHAIN if one is RedisBloomFilter else CUCKOO), random.Random(f"{one}")
    for _ in range(effort(2000, 10_000, 500_000)):
        raw = bytearray(header)
        changed(raw, fields, rng)
        survives(lambda data: one.from_dump(data, MOST), bytes(raw))


def test_every_field_of_a_chain_counts() -> None:
    """No bit of a chain's header can be changed alone, but for the last ones of a logarithm."""
    header = sample(RedisBloomFilter).chunk(0)[1]
    for name, (at, form) in CHAIN.items():
        for bit in range(8 * struct.calcsize(form)):
            raw = bytearray(header)
            raw[at + bit // 8] ^= 1 << bit % 8
            if name.startswith("bpe") and bit < 4:
                continue  # as another machine's logarithm may have it
            with pytest.raises(CorruptData):
                RedisBloomFilter.from_dump(bytes(raw), MOST)


@both
@given(data=st.binary(max_size=200))
def test_any_bytes_as_a_header(one: Any, data: bytes) -> None:
    """Any bytes at all, as a header."""
    survives(lambda header: one.from_dump(header, MOST), data)


@both
@given(data=st.data())
def test_any_truncation_of_a_header(one: Any, data: st.DataObject) -> None:
    """A header cut off, or with bytes too many, is refused."""
    header = sample(one).chunk(0)[1]
    size = data.draw(st.integers(0, len(header) - 1))
    for wrong in (header[:size], header + bytes(1 + size)):
        with pytest.raises(CorruptData):
            one.from_dump(wrong, MOST)


@both
@given(iterator=st.integers(-(2**63), 2**63 - 1) | st.integers(-5, 3000), data=st.binary())
def test_any_chunk_at_any_place(one: Any, iterator: int, data: bytes) -> None:
    """A chunk is refused, or lands where the iterator says and nowhere else."""
    filter = sample(one)
    before = filter.to_bytes()
    try:
        filter.load_chunk(iterator, data)
    except CorruptData:
        assert filter.to_bytes() == before
        return
    start = iterator - len(data)
    found = b""
    while len(found) < len(data):
        found += filter.chunk(start + len(found))[1]
    assert found[: len(data)] == data
    exercise(filter, MOST)


def mutations(one: Any, rounds: int, seed: int) -> Iterator[bytes]:
    """Saved filters with header, dump's header and layers changed; signed anew."""
    rng = random.Random(f"{one} {seed}")
    original = sample(one).to_bytes()
    inner = CHAIN if one is RedisBloomFilter else CUCKOO
    inner = {name: (HEAD + at, form) for name, (at, form) in inner.items()}
    outer = {name: FIELDS[name] for name in FIELDS if name not in ("magic", "version", "kind")}
    for _ in range(rounds):
        raw = bytearray(original)
        match rng.randrange(5):
            case 0:
                changed(raw, outer, rng)
            case 1:
                changed(raw, inner, rng)
            case 2:
                changed(raw, {**inner, **outer}, rng)
            case 3:
                raw[HEAD + 256 :] = rng.randbytes(len(raw) - HEAD - 256)
            case _:
                at = rng.randrange(HEAD, len(raw))
                raw[at : at + 8] = rng.randbytes(len(raw[at : at + 8]))
        yield signed(raw, body=True)


@both
@pytest.mark.parametrize("door", DOORS)
def test_mutated_files(one: Any, door: str, tmp_path: Path) -> None:
    """A file with anything changed and checksums that fit: an error, or a filter that works."""
    enter = doors(tmp_path, one)[door]
    for data in mutations(one, effort(100, 500, 20_000), 1):
        survives(enter, data)


@both
def test_the_header_of_a_file_tells_nothing_new(one: Any) -> None:
    """Every field of a file's header follows from the dump's: another value is refused."""
    raw = sample(one).to_bytes()
    for name, (_, form) in FIELDS.items():
        if name in ("magic", "version", "kind"):
            continue
        for value in (0, 1, 2, 3, 100):
            data = forged(raw, **{name: value / 1000 if form == "<d" else value})
            if data != raw:
                with pytest.raises(BloomeryError):
                    one.from_bytes(data)


@both
def test_every_truncation_and_flip_is_refused(one: Any) -> None:
    """A file cut off after any byte, or with a bit flipped, is CorruptData."""
    raw = sample(one).to_bytes()
    for size in range(0, len(raw), effort(29, 13, 1)):
        with pytest.raises(CorruptData):
            one.from_bytes(raw[:size])
    for at in range(0, 8 * len(raw), effort(97, 61, 1)):
        data = bytearray(raw)
        data[at // 8] ^= 1 << at % 8
        with pytest.raises(CorruptData):
            one.from_bytes(bytes(data))

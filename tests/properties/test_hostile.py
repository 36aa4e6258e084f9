"""Hostile bytes: whatever a file holds, the result is a bloomery error or a working filter."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bloomery import BloomFilter
from bloomery.errors import BloomeryError, CorruptData, NotEnoughMemory, UnsupportedVersion
from conftest import effort
from properties.forgery import FIELDS, HEAD, KEYS, doors, forged, saved, signed
from properties.strategies import LAYOUTS, shapes

DOORS = sorted(doors(Path()))


def exercise(filter: BloomFilter) -> None:
    """Do everything with a filter made from doubtful bytes that a program may do."""
    size = filter.nbytes
    assert size <= 4096, "more memory than there were bytes"
    info = filter.info()
    assert 0 <= info["fill_ratio"] <= 1
    assert 0 <= info["estimated_error_rate"] <= 1
    assert repr(filter)
    assert isinstance("key" in filter, bool)
    assert len(filter.contains_many(KEYS)) == len(KEYS)
    again = BloomFilter.from_bytes(filter.to_bytes())
    assert again == filter
    folded = filter.fold()
    assert folded.num_bits <= filter.num_bits
    if not filter.read_only:
        filter.add_many(KEYS)
        assert all(filter.contains_many(KEYS))


def survives(door: Callable[[bytes], BloomFilter], data: bytes) -> bool:
    """True if the bytes are a filter, which then works; False if refused with an error of ours."""
    try:
        filter = door(data)
    except BloomeryError:
        return False
    exercise(filter)
    return True


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_truncation_is_refused(tmp_path: Path, layout: Any, door: str) -> None:
    """A saved filter cut off after any byte is CorruptData; so is one with a byte too many."""
    raw, enter = bytes(saved(layout=layout)), doors(tmp_path)[door]
    # Every one in CI; on the way there every third, since writing so many files takes seconds.
    for size in range(0, len(raw), effort(3, 1, 1)):
        with pytest.raises(CorruptData):
            enter(raw[:size])
    with pytest.raises(CorruptData):
        enter(raw + b"\0")
    exercise(enter(raw))


@pytest.mark.parametrize("door", sorted(set(DOORS) - {"mmap", "mmap-writable"}))
def test_every_flipped_bit_is_noticed(tmp_path: Path, door: str) -> None:
    """One flipped bit anywhere in a saved filter is refused wherever the checksum is compared."""
    raw, enter = saved(), doors(tmp_path)[door]
    for at in range(0, len(raw) * 8, effort(11, 3, 1)):
        raw[at // 8] ^= 1 << at % 8
        with pytest.raises(CorruptData):
            enter(bytes(raw))
        raw[at // 8] ^= 1 << at % 8


def mutations(rounds: int, seed: int) -> Iterator[bytes]:
    """Saved filters with bytes changed, moved, cut and repeated at random; many signed anew."""
    rng = random.Random(seed)
    originals = [saved(rate, layout) for rate in (0.3, 0.01, 1e-5) for layout in LAYOUTS]
    special = [0, 1, 2, 0x7F, 0x80, 0xFF]
    for _ in range(rounds):
        raw = bytearray(rng.choice(originals))
        for _ in range(rng.randint(1, 6)):
            at = rng.randrange(HEAD if rng.random() < 0.8 else len(raw))
            width = rng.choice([1, 1, 2, 4, 8])
            raw[at : at + width] = bytes(
                rng.choice(special) if rng.random() < 0.6 else rng.randrange(256)
                for _ in range(width)
            )
        match rng.randrange(12):
            case 0:
                raw = raw[: rng.randrange(len(raw) + 1)]
            case 1:
                raw += raw[rng.randrange(len(raw)) :]
        raw[:10] = originals[0][:10] if rng.random() < 0.9 else raw[:10]
        yield signed(raw, body=rng.random() < 0.8) if len(raw) > HEAD else bytes(raw)


@pytest.mark.parametrize("door", ["from_bytes", "pickle"])
def test_random_mutations_in_memory(tmp_path: Path, door: str) -> None:
    """Thousands of random mutations, most with a checksum that fits: an error, or a filter."""
    enter = doors(tmp_path)[door]
    rounds = effort(2000, 5000, 200_000)
    accepted = sum(survives(enter, data) for data in mutations(rounds, 1))
    assert rounds // 50 < accepted < rounds, "the mutations are too harsh or too tame to tell"


@pytest.mark.parametrize("door", ["load", "mmap", "mmap-verify", "mmap-writable"])
def test_random_mutations_of_files(tmp_path: Path, door: str) -> None:
    """The same from a file, read or mapped."""
    enter = doors(tmp_path)[door]
    for data in mutations(effort(200, 1000, 50_000), 2):
        survives(enter, data)


@given(st.binary(max_size=400), shapes, st.data())
def test_any_header_at_all(raw: bytes, shape: dict[str, Any], data: st.DataObject) -> None:
    """Any field at any value, signed: an error, or a filter."""
    survives(BloomFilter.from_bytes, raw)
    filter = BloomFilter(50, **shape)
    sizes = {"<B": 8, "<H": 16, "<Q": 64}
    fields = {
        name: data.draw(st.floats() if form == "<d" else st.integers(0, 2 ** sizes[form] - 1))
        for name, (_, form) in FIELDS.items()
        if form != "<8s" and data.draw(st.integers(0, 4)) == 0
    }
    survives(BloomFilter.from_bytes, forged(filter.to_bytes(), **fields))


@pytest.mark.parametrize(
    ("fields", "error", "says"),
    [
        ({"magic": b"NOTBLOOM"}, CorruptData, "NOTBLOOM"),
        ({"version": 2}, UnsupportedVersion, "version 2"),
        ({"version": 0}, UnsupportedVersion, "version 0"),
        ({"kind": 99}, UnsupportedVersion, "kind 9"),
        ({"layout": 0}, UnsupportedVersion, "layout 0"),
        ({"layout": 3}, UnsupportedVersion, "layout 3"),
        ({"hasher": 0}, UnsupportedVersion, "hasher 0"),
        ({"hasher": 5}, UnsupportedVersion, "hasher 5"),
        ({"lines_per_key": 0}, CorruptData, "lines_per_key is 0"),
        ({"lines_per_key": 3}, CorruptData, "lines_per_key is 3"),
        ({"num_hashes": 0}, CorruptData, "num_hashes is 0"),
        ({"num_hashes": 17}, CorruptData, "num_hashes is 17"),
        ({"num_hashes": 65535}, CorruptData, "num_hashes is 65535"),
        ({"num_hashes": 18}, CorruptData, "num_hashes is 18"),
        ({"num_hashes": 5}, CorruptData, "num_hashes is 5"),
        ({"lines_per_key": 2, "num_hashes": 6}, CorruptData, "num_hashes is 6"),
        ({"layout": 2}, CorruptData, "lines_per_key is 1"),
        ({"layout": 2, "lines_per_key": 0, "num_hashes": 65}, CorruptData, "num_hashes is 65"),
        ({"num_bits": 0}, CorruptData, "num_bits is 0"),
        ({"num_bits": 1000}, CorruptData, "num_bits is 1000"),
        ({"num_bits": 2**64 - 1}, CorruptData, "num_bits is 18446744073709551615"),
        ({"num_bits": 2**48, "body": 2**45}, CorruptData, "bytes in all"),
        ({"num_bits": 2**63}, CorruptData, "num_bits is 9223372036854775808"),
        ({"num_bits": 512 * 2**20}, CorruptData, "expected 67108864"),
        ({"capacity": 0}, CorruptData, "capacity is 0"),
        ({"error_rate": 0.0}, CorruptData, "error_rate is 0"),
        ({"error_rate": 1.0}, CorruptData, "error_rate is 1"),
        ({"error_rate": -0.5}, CorruptData, "error_rate is -0.5"),
        ({"error_rate": float("nan")}, CorruptData, "error_rate is NaN"),
        ({"error_rate": float("inf")}, CorruptData, "error_rate is inf"),
        ({"body": 0}, CorruptData, "0 bytes of bits"),
        ({"body": 2**64 - 1}, CorruptData, "18446744073709551615 bytes of bits"),
    ],
    ids=str,
)
@pytest.mark.parametrize("door", DOORS)
def test_each_way_of_being_wrong_has_its_message(
    tmp_path: Path, door: str, fields: dict[str, Any], error: type[CorruptData], says: str
) -> None:
    """A header that is signed but wrong is refused, naming the field and the value found."""
    with pytest.raises(error) as caught:
        doors(tmp_path)[door](forged(saved(), **fields))
    assert says in str(caught.value)
    if door.startswith(("load", "mmap")):
        assert "hostile.bloom" in str(caught.value), "the message does not name the file"


def test_a_seed_the_hasher_cannot_take_is_refused() -> None:
    """A seed past 64 bits belongs to siphash: with xxh3 no filter of ours was saved so."""
    raw = forged(saved(), seed_high=7)
    with pytest.raises(CorruptData):
        BloomFilter.from_bytes(raw)


def test_bits_past_the_end_of_a_classic_filter_are_refused_or_ignored() -> None:
    """Bits set in the last line's padding cannot make a filter more than full."""
    raw = saved(layout="classic")
    raw[HEAD:] = b"\xff" * (len(raw) - HEAD)
    assert survives(BloomFilter.from_bytes, signed(raw, body=True)) in (True, False)


def test_a_huge_sparse_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    """A header and a hole of 8 TiB: too large to load, and mapped without reading it."""
    path, lines = tmp_path / "sparse.bloom", 2**37
    head = forged(saved(), num_bits=512 * lines, body=64 * lines)[:HEAD]
    with open(path, "wb") as file:
        file.write(head)
        try:
            file.truncate(HEAD + 64 * lines)
        except OSError:
            pytest.skip("this file system holds no sparse file of 8 TiB")
    with pytest.raises(NotEnoughMemory):
        BloomFilter.load(path)
    try:
        mapped = BloomFilter.load(path, mmap=True)
    except (OSError, NotEnoughMemory):
        return  # no such address space here
    assert 5 not in mapped

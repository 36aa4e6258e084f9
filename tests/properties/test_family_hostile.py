"""Hostile bytes for every kind: the result is a bloomery error or a filter that works."""

from __future__ import annotations

import contextlib
import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bloomery.errors import BloomeryError, CorruptData, UnsupportedVersion
from conftest import effort
from properties.family import CLASSES, NOW, holding
from properties.forgery import FIELDS, HEAD, KEYS, doors, forged, signed

# A small filter of every kind, and of what a kind may be besides; a new kind joins by itself.
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "counting": [{}, {"counter_bits": 8}],
    "cuckoo": [{}, {"grow": True}],
    "exact": [{"others": range(-500, 0)}, {"others": range(-9, 0)}],
    "rotating": [{}, {"window": None, "generations": 3}, {"generations": 254}],
}
SAMPLES = {
    f"{kind} {i}": (kind, options)
    for kind in CLASSES
    if kind != "bloom"
    for i, options in enumerate(OPTIONS.get(kind, [{}]))
}
RATES = (0.1, 1e-3, 1e-9)
DOORS = sorted(set(doors(Path())) - {"mmap-writable"})
every_sample = pytest.mark.parametrize("name", SAMPLES)


def saved(name: str, error_rate: float = 1e-3) -> bytearray:
    """The bytes of a small filter that holds KEYS."""
    kind, options = SAMPLES[name]
    return bytearray(holding(kind, KEYS, error_rate, **options).to_bytes())


def way_in(name: str, door: str, folder: Path) -> Callable[[bytes], Any]:
    """A door for the bytes of such a filter."""
    return doors(folder, CLASSES[SAMPLES[name][0]])[door]


def exercise(filter: Any, size: int) -> None:
    """Do everything that a program may do with a filter made from so many doubtful bytes."""
    assert filter.nbytes == size - HEAD
    if hasattr(filter, "set_clock"):
        filter.set_clock(lambda: NOW + 3600)
    info = filter.info()
    assert 0 <= info["fill_ratio"] <= 1
    assert 0 <= info["estimated_error_rate"] <= 1
    assert repr(filter)
    answers = [key in filter for key in KEYS]
    assert list(filter.contains_many(KEYS)) == answers
    for question in ("count", "removable", "generation_of"):
        if hasattr(filter, question):
            assert repr(getattr(filter, question)(KEYS[0]))
    again = type(filter).from_bytes(filter.to_bytes())
    assert again == filter == filter.copy()
    if not filter.read_only:
        change(filter)
        # Forged entries that know no bits double with every doubling, but that takes new keys.
        assert filter.nbytes <= 8 * size + 8192, "far more memory than there were bytes"
        type(filter).from_bytes(filter.to_bytes())


def change(filter: Any) -> None:
    """Add, remove, rotate and clear, as far as the kind can."""
    try:
        filter.add(KEYS[0])
        filter.update(KEYS)
        # A forged window may be over in no time, and a forged capacity may be of one key.
        assert filter.kind == "rotating" or all(filter.contains_many(KEYS))
    except BloomeryError:
        pass  # full, or of a kind that takes no keys
    if hasattr(filter, "remove"):
        for key in KEYS[:20]:
            filter.discard(key)
        filter.remove_many(KEYS)
    if hasattr(filter, "rotate"):
        filter.rotate()
    try:
        filter.clear()
    except BloomeryError:
        return
    assert not any(filter.contains_many(KEYS))


def survives(door: Callable[[bytes], Any], data: bytes) -> bool:
    """True if the bytes are a filter, which then works; False if refused with an error of ours."""
    try:
        filter = door(data)
    except BloomeryError:
        return False
    exercise(filter, len(data))
    return True


@every_sample
@pytest.mark.parametrize("door", DOORS)
def test_every_truncation_is_refused(tmp_path: Path, name: str, door: str) -> None:
    """A saved filter cut off after any byte is CorruptData; so is one with a byte too many."""
    raw, enter = bytes(saved(name)), way_in(name, door, tmp_path)
    for size in range(0, len(raw), effort(29, 13, 1)):
        with pytest.raises(CorruptData):
            enter(raw[:size])
    for more in (b"\0", bytes(64)):
        with pytest.raises(CorruptData):
            enter(raw + more)
    exercise(enter(raw), len(raw))


@every_sample
def test_every_flipped_bit_is_noticed(tmp_path: Path, name: str) -> None:
    """One flipped bit anywhere in a saved filter is refused wherever the checksum is compared."""
    raw = saved(name)
    for door in ("from_bytes", "load", "mmap-verify"):
        enter = way_in(name, door, tmp_path)
        for at in range(0, len(raw) * 8, effort(97, 61, 1)):
            raw[at // 8] ^= 1 << at % 8
            with pytest.raises(CorruptData):
                enter(bytes(raw))
            raw[at // 8] ^= 1 << at % 8


WORDS = [0, 1, 2, 7, 255, 2**31, 2**40, 2**63, 2**64 - 1]
FLOATS = [
    0.0,
    5e-324,
    1e-9,
    0.5,
    1.0,
    1.125,
    2.0,
    1e6,
    1e12,
    1e300,
    -1.0,
    float("inf"),
    float("nan"),
]


def mutations(name: str, rounds: int, seed: int) -> Iterator[bytes]:
    """Saved filters with fields and slots changed at random; nearly all signed anew."""
    rng = random.Random(f"{name} {seed}")
    originals = [saved(name, rate) for rate in RATES]
    fields = [name for name in FIELDS if name not in ("magic", "version", "kind")]
    for _ in range(rounds):
        raw = bytearray(rng.choice(originals))
        for _ in range(rng.choice([0, 1, 1, 2, 3])):
            at, form = FIELDS[rng.choice(fields)]
            old, width = raw[at : at + struct.calcsize(form)], struct.calcsize(form)
            number = int.from_bytes(old, "little")
            match rng.randrange(4):
                case 0:
                    raw[at : at + width] = (rng.choice(WORDS) % 2 ** (8 * width)).to_bytes(
                        width, "little"
                    )
                case 1:
                    raw[at : at + width] = struct.pack("<d", rng.choice(FLOATS))[:width]
                case 2:
                    number ^= 1 << rng.randrange(8 * width)
                    raw[at : at + width] = number.to_bytes(width, "little")
                case _:
                    number = (number + rng.choice([-1, 1, 64, -64])) % 2 ** (8 * width)
                    raw[at : at + width] = number.to_bytes(width, "little")
        match rng.randrange(6):
            case 0:
                raw[HEAD:] = rng.randbytes(len(raw) - HEAD)
            case 1:
                raw[HEAD:] = bytes([rng.choice([0, 1, 0x55, 0x80, 0xFF])]) * (len(raw) - HEAD)
            case 2:
                at = rng.randrange(HEAD, len(raw))
                raw[at : at + 8] = rng.randbytes(len(raw[at : at + 8]))
            case 3 if rng.random() < 0.2:
                raw = raw[: rng.randrange(len(raw) + 1)]
        yield signed(raw, body=True) if len(raw) > HEAD else bytes(raw)


@every_sample
def test_random_mutations_in_memory(tmp_path: Path, name: str) -> None:
    """Many random mutations with checksums that fit: an error, or a filter that works."""
    enter, rounds = way_in(name, "from_bytes", tmp_path), effort(300, 1000, 100_000)
    accepted = sum(survives(enter, data) for data in mutations(name, rounds, 1))
    assert rounds // 10 < accepted < rounds, "the mutations are too harsh or too tame to tell"


@every_sample
@pytest.mark.parametrize("door", ["pickle", "load", "mmap", "mmap-verify"])
def test_random_mutations_by_every_door(tmp_path: Path, name: str, door: str) -> None:
    """The same through pickle and from a file, read or mapped."""
    enter = way_in(name, door, tmp_path)
    for data in mutations(name, effort(40, 120, 20_000), 2):
        survives(enter, data)


@every_sample
@settings(max_examples=max(10, settings().max_examples // 3))
@given(data=st.data())
def test_any_header_at_all(name: str, data: st.DataObject) -> None:
    """Any field at any value, signed: an error, or a filter."""
    sizes = {"<B": 8, "<H": 16, "<Q": 64}
    fields = {
        field: data.draw(st.floats() if form == "<d" else st.integers(0, 2 ** sizes[form] - 1))
        for field, (_, form) in FIELDS.items()
        if form != "<8s" and data.draw(st.integers(0, 6)) == 0
    }
    survives(CLASSES[SAMPLES[name][0]].from_bytes, forged(saved(name), **fields))


@every_sample
@pytest.mark.parametrize(
    ("fields", "error", "says"),
    [
        ({"version": 2}, UnsupportedVersion, "version 2"),
        ({"kind": 99}, UnsupportedVersion, "kind 99"),
        ({"hasher": 9}, UnsupportedVersion, "hasher 9"),
        ({"capacity": 0}, CorruptData, "capacity is 0"),
        ({"error_rate": 1.5}, CorruptData, "error_rate is 1.5"),
        ({"seed_high": 7}, CorruptData, "seed"),
        ({"num_bits": 2**63}, CorruptData, "9223372036854775808"),
        ({"lines_per_key": 77}, CorruptData, ""),
        ({"num_hashes": 60000}, CorruptData, ""),
        ({"layout": 200}, CorruptData, ""),
        ({"body": 2**40}, CorruptData, "bytes in all"),
        ({"body": 2**64 - 64}, CorruptData, "bytes of bits"),
        ({"extra_0": 2**64 - 1}, CorruptData, ""),
        ({"extra_5": 2**64 - 1}, CorruptData, ""),
    ],
    ids=str,
)
def test_each_way_of_being_wrong_is_refused(
    tmp_path: Path, name: str, fields: dict[str, Any], error: type[CorruptData], says: str
) -> None:
    """A header that is signed but wrong is refused by every door, and the file is named."""
    for door in ("from_bytes", "load", "mmap"):
        with pytest.raises(error) as caught:
            way_in(name, door, tmp_path)(forged(saved(name), **fields))
        assert says in str(caught.value)
        assert door == "from_bytes" or "hostile.bloom" in str(caught.value)


@every_sample
def test_a_map_that_another_process_writes(tmp_path: Path, name: str) -> None:
    """Whatever becomes of the bytes under a map, questions are answered and nothing breaks."""
    rng, path = random.Random(4), tmp_path / "shared"
    path.write_bytes(saved(name))
    mapped: Any = CLASSES[SAMPLES[name][0]].load(path, mmap=True)
    with open(path, "r+b") as file:
        for _ in range(effort(20, 100, 2000)):
            file.seek(rng.randrange(HEAD, HEAD + mapped.nbytes))
            file.write(rng.randbytes(1))
            file.flush()
            assert len(mapped.contains_many(KEYS)) == len(KEYS)
            assert isinstance(mapped.info(), dict)
            with contextlib.suppress(CorruptData):  # bits where there must be none
                mapped.copy().to_bytes()

"""docs/format.md is exact: a reader written from it agrees with bloomery bit for bit."""

import contextlib
import re
from datetime import datetime, timezone
from pathlib import Path
from uuid import UUID

import pytest

from bloomery import BloomFilter, _native, errors
from bloomery.filters.files import key_type, save
from bloomery.filters.internals import header as header_of
from bloomery.filters.saved import KEY_TYPES
from bloomery.types import Hasher, Key, Layout
from docs import reader

PAGE = Path(__file__).resolve().parents[2] / "docs" / "format.md"
NAMES = {"UUID": UUID, "datetime": datetime, "timezone": timezone}
HASHERS: tuple[Hasher, ...] = ("xxh3", "murmur3", "fnv1a", "siphash")

# One line, two lines of one pattern and of two, classic.
SHAPES: list[tuple[Layout, float]] = [
    ("blocked", 0.5),
    ("blocked", 0.01),
    ("blocked", 0.001),
    ("blocked", 1e-5),
    ("blocked", 1e-9),
    ("classic", 0.3),
    ("classic", 0.01),
    ("classic", 1e-9),
]
MIXED: list[Key] = [
    b"",
    "a",
    "żelazo",
    "https://example.org/a/long/enough/path/for/several/blocks?of=murmur",
    b"\0" * 16,
    5,
    -1,
    2**63,
    -(2**63) - 1,
    10**40,
    (),
    ("ab", "c"),
    ("a", (1, b"x", ())),
    UUID(int=2**100 + 3),
    datetime(2024, 2, 29, 12, 30, 1, 7, tzinfo=timezone.utc),
    datetime(1950, 1, 1),
]
INTS: list[Key] = [*range(60), *(i << 40 for i in range(60)), -1, -2, 2**62]


def keys_for(hasher: Hasher) -> list[Key]:
    """Keys whose hash the plain reader can compute: for xxh3 those of eight bytes."""
    return INTS if hasher == "xxh3" else INTS + MIXED


@pytest.mark.parametrize("hasher", HASHERS)
@pytest.mark.parametrize(("layout", "error_rate"), SHAPES)
def test_every_bit_is_as_the_page_says(layout: Layout, error_rate: float, hasher: Hasher) -> None:
    """The bits of a saved filter are those, and only those, that the page derives."""
    seed = 0xFEDC_BA98_7654_3210_0123_4567_89AB_CDEF
    seed = seed if hasher == "siphash" else seed & reader.MASK
    keys = keys_for(hasher)
    made = BloomFilter(150, error_rate, layout=layout, hasher=hasher, seed=seed)
    made.update(keys)
    saved = reader.read(made.to_bytes())
    expected = bytearray(len(saved.bits))
    for key in keys:
        for p in saved.positions(reader.hash_key(key, hasher, seed)):
            expected[p >> 3] |= 1 << (p & 7)
    assert saved.bits == expected
    assert all(map(saved.might_contain, keys))


def test_shapes_cover_one_line_and_two() -> None:
    """The shapes above have one and two lines, and one and two patterns a line."""
    blocked = [BloomFilter(150, rate) for layout, rate in SHAPES if layout == "blocked"]
    assert {f.lines_per_key for f in blocked} == {1, 2}
    assert {-(-f.num_hashes // f.lines_per_key // 8) for f in blocked} == {1, 2}


@pytest.mark.parametrize("lines_per_key", [1, 2])
@pytest.mark.parametrize("each", range(2, 17, 2))
def test_every_number_of_hashes(lines_per_key: int, each: int) -> None:
    """All even numbers of bits a line, up to sixteen, are set where the page says."""
    hashes = each * lines_per_key
    made = _native.Bloom(10, 0.01, "blocked", 512 * 7, hashes, lines_per_key, "xxh3", 9)
    made.update(INTS[:20])
    header = reader.read(header_of(made) + bytes(memoryview(made)))
    expected = bytearray(made.nbytes)
    for key in INTS[:20]:
        for p in header.positions(reader.hash_key(key, "xxh3", 9)):
            expected[p >> 3] |= 1 << (p & 7)
    assert header.bits == expected


@pytest.mark.parametrize(("layout", "error_rate"), SHAPES)
def test_header_fields(layout: Layout, error_rate: float, tmp_path: Path) -> None:
    """Every field of a file's header stands where the page puts it."""
    made = BloomFilter(1000, error_rate, layout=layout, hasher="siphash", seed=2**127 + 5)
    made.save(tmp_path / "f")
    data = (tmp_path / "f").read_bytes()
    saved = reader.read(data)
    for field in ("layout", "hasher", "lines_per_key", "num_hashes", "num_bits", "capacity"):
        assert getattr(saved, field) == getattr(made, field), field
    assert (saved.error_rate, saved.seed) == (made.error_rate, made.seed)
    assert data[64:112] == bytes(48)
    assert saved.header_checksum == _native.checksum(data[:112])
    assert data == made.to_bytes()


def test_checksum_is_the_published_xxh3() -> None:
    """The checksum of one chunk is XXH3-64 with the seed given."""
    assert _native.checksum(b"a") == 0xE6C632B61E964E1F
    assert _native.checksum(bytes(range(8)), 77) == reader.xxh3(bytes(range(8)), 77)


def test_no_sum_is_live() -> None:
    """Bytes whose XXH3-64 is 2**64 - 1, which means LIVE, have the sum 2**64 - 2."""
    data = bytes.fromhex("cee42aed3809ee84")
    assert reader.xxh3(data, 0) == reader.LIVE
    assert _native.checksum(data) == reader.LIVE - 1


@pytest.mark.parametrize(
    ("layout", "shapes"),
    [
        ("blocked", {(k, r) for r in (1, 2) for k in range(2 * r, 16 * r + 1, 2 * r)}),
        ("classic", {(k, 0) for k in range(1, 65)}),
    ],
)
def test_shapes_that_are_refused(layout: Layout, shapes: set[tuple[int, int]]) -> None:
    """Of all numbers of hashes and lines those pass that the page lists, and no others."""
    passed = set()
    for k in range(70):
        for r in range(4):
            with contextlib.suppress(errors.InvalidParameter):
                _native.Bloom(10, 0.01, layout, 512, k, r, "xxh3", 0)
                passed.add((k, r))
    assert passed == shapes


def test_padding_must_be_clear(tmp_path: Path) -> None:
    """A bit set behind the last of a classic filter is refused, though the checksum is right."""
    made = BloomFilter(10, layout="classic")
    data = bytearray(made.to_bytes())
    data[reader.HEADER_BYTES + made.num_bits // 8] |= 1 << made.num_bits % 8
    data[120:128] = _native.checksum(data[128:]).to_bytes(8, "little")
    (tmp_path / "f").write_bytes(data)
    with pytest.raises(errors.CorruptData, match="padding"):
        BloomFilter.from_bytes(data)
    for mmap in (False, True):
        with pytest.raises(errors.CorruptData, match="padding"):
            BloomFilter.load(tmp_path / "f", mmap=mmap)


def test_bits_are_summed_in_a_chain_of_chunks() -> None:
    """Each mebibyte is summed with the sum before it as its seed."""
    made = BloomFilter(2_000_000)
    made.update(range(1000))
    saved = reader.read(made.to_bytes())
    assert len(saved.bits) > 2 << 20
    total = 0
    for start in range(0, len(saved.bits), 1 << 20):
        total = _native.checksum(saved.bits[start : start + (1 << 20)], total)
    assert total == saved.bits_checksum


def test_a_writer_maps_the_file_live(tmp_path: Path) -> None:
    """A file mapped for writing changes in its checksum field and its bits, nowhere else."""
    path = tmp_path / "f"
    BloomFilter(1000).save(path)
    before = path.read_bytes()
    mapped = BloomFilter.load(path, mmap=True, writable=True)
    mapped.add(5)
    after = path.read_bytes()
    assert after[:120] == before[:120]
    saved = reader.read(after)
    assert saved.bits_checksum == reader.LIVE
    assert saved.might_contain(5)
    BloomFilter.load(path).save(path)
    assert reader.read(path.read_bytes()).bits_checksum != reader.LIVE


@pytest.mark.parametrize(("layout", "error_rate"), SHAPES)
def test_redis_setbit_builds_the_same_string(layout: Layout, error_rate: float) -> None:
    """SETBIT at offset p ^ 7 for each bit p makes the string that the filter's bytes are."""
    made = BloomFilter(150, error_rate, layout=layout)
    made.update(INTS)
    saved = reader.read(made.to_bytes())
    string = bytearray(made.nbytes)

    def setbit(offset: int) -> None:  # as Redis does: bit 0 is the most significant of byte 0
        string[offset // 8] |= 128 >> offset % 8

    for key in INTS:
        for p in saved.positions(made.hash_of(key)):
            setbit(p ^ 7)
    assert string == bytes(memoryview(made))


def known_answers() -> list[tuple[str, list[str]]]:
    """The rows of the page's table of hashes: a key, and its hash under each hasher."""
    rows = re.findall(r"^\| `(.+?)` \|((?: `[0-9a-f]{16}` \|){4})$", PAGE.read_text("utf-8"), re.M)
    return [(key, re.findall(r"[0-9a-f]{16}", hashes)) for key, hashes in rows]


def test_known_answers() -> None:
    """The hashes printed on the page are bloomery's and the plain reader's."""
    rows = known_answers()
    assert len(rows) >= 14
    for text, hashes in rows:
        key = eval(text, NAMES)
        for hasher, expected in zip(HASHERS, hashes, strict=True):
            assert f"{BloomFilter(1, hasher=hasher).hash_of(key):016x}" == expected, (text, hasher)
            if hasher != "xxh3" or len(reader.canonical(key)[1]) == 8:
                assert f"{reader.hash_key(key, hasher, 0):016x}" == expected, (text, hasher)


@pytest.mark.parametrize("layout", ["blocked", "classic"])
def test_folding_as_the_page_says(layout: Layout) -> None:
    """A folded filter's bits are the old ones, each set in the one or two places it maps to."""
    large = BloomFilter(5000, layout=layout)
    large.update(range(300))
    small = large.fold()
    assert small.num_bits < large.num_bits
    unit = 512 if layout == "blocked" else 1
    old, new = large.num_bits // unit, small.num_bits // unit
    source = reader.read(large.to_bytes())
    expected = bytearray(small.nbytes)
    for p in filter(source.bit, range(large.num_bits)):
        place, rest = divmod(p, unit)
        for to in (place * new // old, ((place + 1) * new - 1) // old):
            q = to * unit + rest
            expected[q >> 3] |= 1 << (q & 7)
    assert bytes(memoryview(small)) == expected


@pytest.mark.parametrize("said", [*KEY_TYPES, None])
def test_what_the_keys_are(tmp_path: Path, said: str | None) -> None:
    """A file may say what all its keys are; readers of old find the same filter in it, and a file
    that was written on by way of a mapping says nothing."""
    made = BloomFilter(1000)
    made.add(5)
    path = tmp_path / "f.bloom"
    save(made, path, said)
    assert reader.read(path.read_bytes()).key_type == key_type(path) == said
    assert BloomFilter.load(path, verify=True) == made
    BloomFilter.load(path, mmap=True, writable=True)
    assert reader.read(path.read_bytes()).key_type is key_type(path) is None
    BloomFilter.load(path).save(path)
    assert path.read_bytes() == made.to_bytes()

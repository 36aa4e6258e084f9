"""A reader of the saved filters of every kind but the plain one, in plain Python, written from
docs/format.md and nothing else. Keys and hashes are `reader`'s."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

from docs.reader import HASHERS, HEADER_BYTES, LIVE, MASK, hash_key, mulhi, remix, rotl, second

HEADER = struct.Struct("<8sH4BHQQd16sQ6QQQ")
KINDS = {
    2: "scalable",
    3: "counting",
    4: "deletable",
    5: "cuckoo",
    6: "rotating",
    7: "static",
    8: "bank",
    12: "exact",
}
GOLDEN = 0x9E3779B97F4A7C15


S = TypeVar("S", bound="Saved")


def double(word: int) -> float:
    (value,) = struct.unpack("<d", struct.pack("<Q", word))
    return float(value)


def lines_of(nbytes: int) -> int:
    return -(-nbytes // 64)


@dataclass
class Saved:
    """What the header of a saved filter says, and its body."""

    kind: str
    layout: int
    hasher: str
    lines_per_key: int
    num_hashes: int
    num_bits: int
    capacity: int
    error_rate: float
    seed: int
    extra: tuple[int, ...]
    body: bytes

    def bits(self, start: int, count: int) -> int:
        """So many bits of the body, from one on."""
        first, last = start // 8, (start + count + 7) // 8
        whole = int.from_bytes(self.body[first:last], "little")
        return whole >> start % 8 & ((1 << count) - 1)

    def check(self) -> None:
        """What the page asks to be checked of this kind."""
        raise NotImplementedError

    def count(self, h: int) -> int:
        """How often the key with this hash was added, at most; 0: definitely not there."""
        raise NotImplementedError

    def count_of(self, key: object) -> int:
        return self.count(hash_key(key, self.hasher, self.seed))

    def might_contain(self, key: object) -> bool:
        """False: definitely not there. True: maybe."""
        return self.count_of(key) > 0


# ---- 5. Tables of fingerprints


class Table(Saved):
    """Slots of two buckets for each key."""

    def check(self) -> None:
        numbers = self.extra[0]
        self.buckets, self.tag_bits = numbers & (1 << 48) - 1, numbers >> 48 & 63
        self.stream_bits, self.mark_bits = numbers >> 54 & 31, numbers >> 59
        self.grows = self.layout != 8
        self.field_bits = self.stream_bits + 1 if self.grows else 0
        self.width = self.mark_bits + self.tag_bits + self.field_bits
        self.level = self.buckets.bit_length() - 1
        assert 8 <= self.layout <= 16
        assert 2 <= self.buckets <= 2**40
        assert self.buckets % 2 == 0
        assert self.width <= 56
        if self.grows:
            assert self.buckets == 1 << self.level > 1
            assert 4 <= self.tag_bits <= 28
            assert 1 <= self.stream_bits <= 24
        else:
            assert 2 <= self.tag_bits <= 50
            assert self.stream_bits == 0
        slots = -(-self.buckets // 2) * self.layout
        assert (self.lines_per_key, self.num_hashes) == (2, 2)
        assert self.num_bits == slots * self.width
        assert len(self.body) == lines_of(-(-self.num_bits // 8) + 8) * 64
        assert self.extra[1] == sum(self.slot(i) != 0 for i in range(slots))
        assert 0 <= double(self.extra[2]) < 1
        if self.kind == "scalable":
            assert self.grows
            assert 1.125 <= double(self.extra[4]) <= 2
            assert self.extra[5] == 0
        if self.kind == "cuckoo":
            assert self.extra[4:] == (0, 0)
        if self.kind != "rotating":
            assert self.mark_bits == 0
        else:
            self.generations, self.current = self.extra[5] & 255, self.extra[5] >> 8 & 255
            assert self.mark_bits == self.generations.bit_length()
            assert self.current < 1 << self.mark_bits

    def slot(self, number: int) -> int:
        return self.bits(number * self.width, self.width)

    def bucket(self, number: int) -> Iterator[int]:
        """What the slots of a bucket hold."""
        even = -(-self.layout // 2)
        first = number // 2 * self.layout + number % 2 * even
        count = self.layout - even if number % 2 else even
        return map(self.slot, range(first, first + count))

    def entries(self, h: int) -> Iterator[int]:
        """The slots that are the key's."""
        if not self.grows:
            tag = h >> (64 - self.tag_bits) or 1
            one = mulhi(rotl(h, self.tag_bits), self.buckets)
            both = mulhi(tag * GOLDEN & MASK, self.buckets) | 1
            for bucket in (one, (both - one) % self.buckets):
                yield from (value for value in self.bucket(bucket) if value == tag)
            return
        tag = h & (1 << self.tag_bits) - 1
        for stream in (h, h ^ ((tag + 1) * GOLDEN & MASK | 1 << 63)):
            rest = (stream << self.level & MASK) >> (64 - self.stream_bits)
            for value in self.bucket(stream >> (64 - self.level)):
                field = value & (1 << self.field_bits) - 1
                if field and value >> self.field_bits & (1 << self.tag_bits) - 1 == tag:
                    ends = (field & -field).bit_length()
                    if field >> ends == rest * 2 >> ends:
                        yield value

    def count(self, h: int) -> int:
        return sum(1 for _ in self.entries(h))

    def age(self, h: int) -> int | None:
        """How many generations ago the key was added."""
        marks = (value >> (self.width - self.mark_bits) for value in self.entries(h))
        ages = [(self.current - mark) % (1 << self.mark_bits) for mark in marks]
        return min(ages, default=None)


# ---- 6. Lines of cells


class Cells(Saved):
    """Counters, or bits in regions: one line or two of a key."""

    def check(self) -> None:
        self.lines = len(self.body) // 64
        assert self.layout == 0
        assert self.lines_per_key in (1, 2)
        assert self.num_hashes % self.lines_per_key == 0
        assert 1 <= self.num_hashes // self.lines_per_key <= 16
        assert self.num_bits == 8 * len(self.body) > 0
        assert not any(self.extra[1:])
        counting = self.kind == "counting"
        assert self.extra[0] in ((4, 8) if counting else (16, 32, 64, 128))
        self.width = self.extra[0] if counting else 1
        self.cells = 512 // self.width if counting else 512 - self.extra[0]

    def positions(self, h: int) -> set[int]:
        """The first bit of each of the key's cells, counted from the start of the body."""
        found = set()
        for x in (h, second(h))[: self.lines_per_key]:
            start = 512 * mulhi(x, self.lines)
            pattern = (x * 0xD6E8FEB86659FD93 + 0x9E6C63D0876A3F6B) & MASK
            for i in range(self.num_hashes // self.lines_per_key):
                if i and i % 4 == 0:
                    pattern = (pattern ^ pattern >> 32) * 0xA0761D6478BD642F & MASK
                cell = (pattern >> (48 - 16 * (i % 4)) & 0xFFFF) * self.cells >> 16
                if self.kind == "counting":
                    found.add(start + cell * self.width)
                else:
                    found.add(start + cell + cell // (512 // self.extra[0] - 1))
        return found

    def count(self, h: int) -> int:
        return min(self.bits(at, self.width) for at in self.positions(h))

    def flag_of(self, position: int) -> int:
        """The bit that is the flag of the region in which a bit is."""
        size = 512 // self.extra[0]
        return position // size * size + size - 1


# ---- 7. Static filters


class Fuse(Saved):
    """Three cells of a key."""

    def check(self) -> None:
        self.keys, self.attempt, self.width, self.reach = self.extra[:4]
        assert (self.layout, self.lines_per_key, self.num_hashes) == (0, 0, 3)
        assert 1 <= self.width <= 40
        assert self.reach.bit_count() == 1
        assert self.reach <= 2**18
        assert self.num_bits % self.width == 0
        self.starts = self.num_bits // self.width - 3 * self.reach
        assert self.starts >= 1
        assert len(self.body) == lines_of(self.num_bits // 8 + 8) * 64
        assert self.capacity == max(1, self.keys)
        assert self.keys <= self.num_bits // self.width
        assert self.extra[4:] == (0, 0)
        assert int.from_bytes(self.body, "little") >> self.num_bits == 0

    def count(self, h: int) -> int:
        if self.keys == 0:
            return 0
        x = remix(h ^ self.attempt) if self.attempt else h
        first = mulhi(x, self.starts)
        places = (
            first,
            first + self.reach + x % self.reach,
            first + 2 * self.reach + (x >> 18) % self.reach,
        )
        total = x ^ x >> 32
        for cell in places:
            total ^= self.bits(cell * self.width, self.width)
        return int(total & (1 << self.width) - 1 == 0)


# ---- 11. Exact sets


class Exact(Saved):
    """Two levels of three cells of a key."""

    def check(self) -> None:
        self.members, self.non_members, shape, attempt, second_attempt, cells = self.extra
        self.width, reach, second_reach, key_type = shape.to_bytes(8, "little")[:4]
        assert self.layout in (0, 1)
        assert (self.lines_per_key, self.num_hashes) == (0, 3)
        assert shape < 2**32
        assert key_type <= 5
        assert self.capacity == max(1, self.members)
        second_cells = self.num_bits - cells * self.width
        second_start = lines_of(cells * self.width // 8 + 8) * 64 if self.width else 0
        second_nbytes = lines_of(second_cells // 8 + 8) * 64
        assert len(self.body) == second_start + second_nbytes
        self.held = self.non_members if self.layout else self.members
        self.levels = [(8 * second_start, 1, second_cells, 2**second_reach, second_attempt)]
        if self.width:
            self.levels.insert(0, (0, self.width, cells, 2**reach, attempt))
        else:
            assert (reach, attempt, cells) == (0, 0, 0)
        for start, width, count, v, _ in self.levels:
            assert 1 <= width <= 40
            assert v <= 2**18
            assert count > 3 * v
            assert self.held <= count
            nbytes = lines_of(count * width // 8 + 8) * 64
            assert self.bits(start + count * width, 8 * nbytes - count * width) == 0

    def count(self, h: int) -> int:
        found = self.held > 0 and all(self.finds(h, *level) for level in self.levels)
        return int(found != (self.layout == 1))

    def finds(self, h: int, start: int, width: int, cells: int, v: int, attempt: int) -> bool:
        x = remix(h ^ attempt) if attempt else h
        first = mulhi(x, cells - 3 * v)
        total = x ^ x >> 32
        for cell in (first, first + v + x % v, first + 2 * v + (x >> 18) % v):
            total ^= self.bits(start + cell * width, width)
        return total & (1 << width) - 1 == 0


# ---- 4. Files


def take_apart(data: bytes, cls: type[S]) -> S:
    """A saved filter's fields and body, with the checks that all kinds share and need no XXH3."""
    assert data[:8] == b"BLOOMERY"
    assert len(data) >= HEADER_BYTES
    fields = HEADER.unpack_from(data)
    _, version, kind, layout, hasher, lines, hashes, num_bits, capacity, rate = fields[:10]
    seed, nbytes, *extra, _, checksum = fields[10:]
    assert version == 1
    assert HASHERS[hasher] == "siphash" or not any(seed[8:])
    assert capacity >= 1
    assert 0 < rate < 1
    if checksum != LIVE or KINDS[kind] != "bank":
        assert checksum != LIVE
        assert nbytes % 64 == 0
        assert len(data) == HEADER_BYTES + nbytes
    saved = cls(
        KINDS[kind],
        layout,
        HASHERS[hasher],
        lines,
        hashes,
        num_bits,
        capacity,
        rate,
        int.from_bytes(seed, "little"),
        tuple(extra),
        data[HEADER_BYTES:],
    )
    saved.check()
    return saved


def read(data: bytes) -> Table | Cells | Fuse | Exact:
    """Take a saved filter apart."""
    kind = KINDS[data[10]]
    if kind == "static":
        return take_apart(data, Fuse)
    if kind == "exact":
        return take_apart(data, Exact)
    if kind in ("counting", "deletable"):
        return take_apart(data, Cells)
    return take_apart(data, Table)

"""A reader of a saved bank in plain Python, written from docs/format.md and nothing else."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from docs.reader import HEADER_BYTES, MASK, hash_key, mulhi
from docs.reader_family import GOLDEN, Saved, take_apart


@dataclass(frozen=True)
class Geometry:
    """How a page is laid out: bits of a tag, buckets, and words of marks."""

    tag_bits: int
    buckets: int
    marks: int


@cache
def geometry(cells: int, words: int) -> Geometry:
    """Of a page of so many words, for a range of so many cells."""
    best, most = Geometry(0, 0, 0), 0
    for tag_bits in range(58):
        buckets = -(-cells // (1 << tag_bits))
        if buckets >= 64 * words:
            continue
        slots = (64 * words - buckets) // (tag_bits + 1)  # more bits than there are take too many
        while -(-(buckets + slots) // 64) + -(-slots * tag_bits // 64) > words:
            slots -= 1
        if slots > most:
            best, most = Geometry(tag_bits, buckets, -(-(buckets + slots) // 64)), slots
    return best


@dataclass
class Record:
    """One layer of a user."""

    user: int
    before: int
    pages: int
    layer: int
    keys: int
    roots: list[int]


class Bank(Saved):
    """Users, each with layers of pages of cells."""

    def check(self) -> None:
        self.page_lines, self.cells = self.extra[:2]
        assert (self.layout, self.lines_per_key, self.num_hashes, self.num_bits) == (0, 0, 0, 0)
        assert not any(self.extra[2:])
        assert 1 <= self.page_lines <= 32
        assert self.capacity <= self.cells <= 2**60
        assert self.word(16) == 0, "not closed"
        assert 64 <= self.word(24) <= (len(self.body) + HEADER_BYTES) // 64

    def word(self, number: int) -> int:
        """A word of the file."""
        start = 8 * number - HEADER_BYTES
        return int.from_bytes(self.body[start : start + 8], "little")

    def record(self, line: int) -> Record:
        words = [self.word(8 * line + i) for i in range(8)]
        roots = [half for word in words[3:] for half in (word & 0xFFFFFFFF, word >> 32)]
        pages, layer = words[1] >> 32 & 0xFFFFFF, words[1] >> 56
        return Record(words[0], words[1] & 0xFFFFFFFF, pages, layer, words[2] & 0xFFFFFFFF, roots)

    def layers(self, user: int) -> Iterator[Record]:
        """The layers of the user with this hash, the newest first."""
        first, slots = self.word(19) & 0xFFFFFFFF, (self.word(19) >> 32) * 4
        tag = user >> 32 or 1
        slot = tag * slots >> 32
        while found := self.word(8 * first + 2 * slot):
            line = found >> 32
            if found & 0xFFFFFFFF == tag and line and self.word(8 * line) == user:
                record = self.record(line)
                yield record
                while record.layer:
                    record = self.record(record.before)
                    yield record
                return
            slot = (slot + 1) % slots

    def page(self, record: Record, number: int) -> int:
        """The line of a page."""
        fan, span = 16 * self.page_lines, 1
        while 10 * span < record.pages:
            span *= fan
        line = record.roots[number // span]
        while span > 1:
            number %= span
            span //= fan
            at = number // span
            line = self.word(8 * line + at // 2) >> 32 * (at % 2) & 0xFFFFFFFF
        return line

    def holds(self, record: Record, cell: int) -> bool:
        """Is the cell in that layer?"""
        each = -(-self.cells * 20**record.layer // record.pages)
        shape = geometry(each, 8 * self.page_lines)
        bucket, tag = divmod(cell % each, 1 << shape.tag_bits)
        start = 512 * self.page(record, cell // each) - 8 * HEADER_BYTES
        marks = f"{self.bits(start, 64 * shape.marks):0{64 * shape.marks}b}"[::-1]
        buckets = marks.split("1")  # the zeros of each
        first = sum(map(len, buckets[:bucket]))
        tags = (
            self.bits(start + 64 * shape.marks + slot * shape.tag_bits, shape.tag_bits)
            for slot in range(first, first + len(buckets[bucket]))
        )
        return tag in tags

    def seen(self, user: object, key: object) -> bool:
        """False: definitely not added. True: maybe."""
        u, h = (hash_key(one, self.hasher, self.seed) for one in (user, key))
        x = (h ^ u) * GOLDEN & MASK
        return any(self.holds(one, mulhi(x, self.cells * 20**one.layer)) for one in self.layers(u))


def read(data: bytes) -> Bank:
    """Take a bank's file apart."""
    return take_apart(data, Bank)


def repaired(data: bytes, now: int) -> bytes:
    """A bank's file that was not closed, made whole; `now` is this start of the machine."""
    words = list(struct.unpack(f"<{len(data) // 8}Q", data))
    if words[17] == now != 0:
        if page := words[32]:
            count = 8 * words[8]  # extra begins with the lines of a page
            words[8 * page : 8 * page + count] = words[40 : 40 + count]
    else:
        if words[21] > words[18]:
            words[19] = words[20]
        first, lines = words[19] & 0xFFFFFFFF, words[19] >> 32
        for at in range(8 * first, 8 * (first + lines), 2):
            if words[at + 1] >> 32 > words[18]:
                words[at] = words[at] & 0xFFFFFFFF | (words[at + 1] & 0xFFFFFFFF) << 32
    words[16] = words[32] = 0
    return struct.pack(f"<{len(words)}Q", *words)

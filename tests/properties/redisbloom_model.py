"""RedisBloom's two filters in plain Python, written from the facts and not from our code."""

from __future__ import annotations

import math
import struct

MASK = 2**64 - 1
M = 0xC6A4A7935BD1E995


class Full(Exception):
    """There is no room, and the filter is not to grow."""


def murmur64a(data: bytes, seed: int) -> int:
    """MurmurHash64A."""
    h = seed ^ len(data) * M & MASK
    whole = len(data) // 8 * 8
    for (k,) in struct.iter_unpack("<Q", data[:whole]):
        k = k * M & MASK
        k = (k ^ k >> 47) * M & MASK
        h = (h ^ k) * M & MASK
    if data[whole:]:
        h = (h ^ int.from_bytes(data[whole:], "little")) * M & MASK
    h = (h ^ h >> 47) * M & MASK
    return h ^ h >> 47


class Link:
    """One Bloom filter of a chain."""

    def __init__(self, entries: int, error: float) -> None:
        self.entries, self.error, self.size = entries, error, 0
        self.bpe = -math.log(error) / 0.480453013918201
        self.bits = -(-max(1, int(entries * self.bpe)) // 64) * 64
        self.hashes = math.ceil(0.693147180559945 * self.bpe)
        self.data = bytearray(self.bits // 8)

    def places(self, a: int, b: int) -> list[int]:
        return [(a + i * b & MASK) % self.bits for i in range(self.hashes)]

    def contains(self, a: int, b: int) -> bool:
        return all(self.data[x >> 3] & 1 << (x & 7) for x in self.places(a, b))

    def set(self, a: int, b: int) -> None:
        for x in self.places(a, b):
            self.data[x >> 3] |= 1 << (x & 7)


class Bloom:
    """What BF keeps."""

    def __init__(
        self, error_rate: float, capacity: int, expansion: int, nonscaling: bool = False
    ) -> None:
        self.growth, self.nonscaling = expansion, nonscaling or expansion == 0
        error = min(error_rate, 0.25)
        self.links = [Link(capacity, error if self.nonscaling else error * 0.5)]

    def hashes(self, item: bytes) -> tuple[int, int]:
        a = murmur64a(item, M)
        return a, murmur64a(item, a)

    def contains(self, item: bytes) -> bool:
        hashes = self.hashes(item)
        return any(link.contains(*hashes) for link in self.links)

    def add(self, item: bytes) -> bool:
        if self.contains(item):
            return False
        last = self.links[-1]
        if last.size >= last.entries:
            if self.nonscaling:
                raise Full("non scaling filter is full")
            last = Link(last.entries * self.growth, last.error * 0.5)
            self.links.append(last)
        last.set(*self.hashes(item))
        last.size += 1
        return True

    @property
    def size(self) -> int:
        return 32 + sum(64 + len(link.data) for link in self.links)

    @property
    def items(self) -> int:
        return sum(link.size for link in self.links)

    def header(self) -> bytes:
        options = 13 if self.nonscaling else 5
        out = struct.pack("<QIII", self.items, len(self.links), options, self.growth)
        for link in self.links:
            numbers = (len(link.data), link.bits, link.size, link.error, link.bpe)
            out += struct.pack("<QQQddIQB", *numbers, link.hashes, link.entries, 0)
        return out

    def parts(self) -> list[bytes]:
        return [bytes(link.data) for link in self.links]


class Sub:
    """One table of a cuckoo filter."""

    def __init__(self, buckets: int, size: int) -> None:
        self.buckets, self.size = buckets, size
        self.data = bytearray(buckets * size)

    def find(self, h: int, what: int) -> int | None:
        """The slot of a bucket that holds this."""
        start = h % self.buckets * self.size
        at = self.data.find(what, start, start + self.size)
        return None if at < 0 else at

    def find_either(self, h1: int, h2: int, what: int) -> int | None:
        at = self.find(h1, what)
        return self.find(h2, what) if at is None else at


class Cuckoo:
    """What CF keeps."""

    def __init__(
        self, capacity: int, bucket_size: int, max_iterations: int, expansion: int
    ) -> None:
        self.size, self.iterations = bucket_size, max_iterations
        self.expansion = power_of_two(expansion) if expansion else 0
        self.buckets = power_of_two(max(1, capacity // bucket_size))
        self.items = self.deletes = 0
        self.subs = [Sub(self.buckets, bucket_size)]

    @staticmethod
    def other(fp: int, h: int) -> int:
        return h ^ fp * 0x5BD1E995

    def of(self, item: bytes) -> tuple[int, int, int]:
        h = murmur64a(item, 0)
        fp = h % 255 + 1
        return fp, h, self.other(fp, h)

    def contains(self, item: bytes) -> bool:
        return self.count(item) > 0

    def count(self, item: bytes) -> int:
        fp, *hashes = self.of(item)
        starts = [(sub, h % sub.buckets * self.size) for sub in self.subs for h in hashes]
        return sum(sub.data[at : at + self.size].count(fp) for sub, at in starts)

    def add(self, item: bytes) -> None:
        fp, h1, h2 = self.of(item)
        for sub in reversed(self.subs):
            at = sub.find_either(h1, h2, 0)
            if at is not None:
                sub.data[at] = fp
                self.items += 1
                return
        if self.kicked(fp, h1):
            self.items += 1
            return
        if self.expansion == 0:
            raise Full("Filter is full")
        self.subs.append(Sub(self.buckets * self.expansion ** len(self.subs), self.size))
        self.add(item)

    def kicked(self, fp: int, h1: int) -> bool:
        """Push others out of the newest table; False, with nothing changed, if that never ends."""
        sub = self.subs[-1]
        before = bytes(sub.data)
        bucket = h1 % sub.buckets
        for turn in range(self.iterations):
            at = bucket * self.size + turn % self.size
            fp, sub.data[at] = sub.data[at], fp
            bucket = self.other(fp, bucket) % sub.buckets
            free = sub.find(bucket, 0)
            if free is not None:
                sub.data[free] = fp
                return True
        sub.data[:] = before
        return False

    def remove(self, item: bytes) -> bool:
        fp, h1, h2 = self.of(item)
        for sub in reversed(self.subs):
            at = sub.find_either(h1, h2, fp)
            if at is not None:
                sub.data[at] = 0
                self.items -= 1
                self.deletes += 1
                if len(self.subs) > 1 and self.deletes > self.items * 0.10:
                    self.compact(everything=False)
                return True
        return False

    def compact(self, everything: bool = True) -> None:
        for number in range(len(self.subs) - 1, 0, -1):
            emptied = self.moved_down(number)
            if emptied and number == len(self.subs) - 1:
                self.subs.pop()
            if not emptied and not everything:
                break
        self.deletes = 0

    def moved_down(self, number: int) -> bool:
        """Move what a table holds to older ones; True if all of it went."""
        sub = self.subs[number]
        for at, fp in enumerate(bytes(sub.data)):
            if fp == 0:
                continue
            bucket = at // self.size
            for older in self.subs[:number]:
                free = older.find_either(bucket, self.other(fp, bucket), 0)
                if free is not None:
                    older.data[free], sub.data[at] = fp, 0
                    break
        return not any(sub.data)

    @property
    def info_size(self) -> int:
        return 40 + sum(16 + len(sub.data) for sub in self.subs)

    def header(self) -> bytes:
        numbers = (self.items, self.buckets, self.deletes, len(self.subs))
        return struct.pack("<QQQQHHH", *numbers, self.size, self.iterations, self.expansion)

    def parts(self) -> list[bytes]:
        return [bytes(sub.data) for sub in self.subs]


def power_of_two(n: int) -> int:
    return 1 << (n - 1).bit_length()

"""A reader of saved filters in plain Python, written from docs/format.md and nothing else.

It knows the canonical bytes of every kind of key, three of the four hashers whole, and xxh3 for
keys of eight bytes. What it does not do: XXH3 of other lengths (for that ask `hash_of`).
"""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from uuid import UUID

MASK = (1 << 64) - 1
HEADER = struct.Struct("<8sH4BHQQd16sQQ40xQQ")
HEADER_BYTES = 128
LIVE = MASK
LAYOUTS = {1: "blocked", 2: "classic"}
KEY_TYPES = {1: "str", 2: "int", 3: "tuple", 4: "uuid", 5: "datetime"}
HASHERS = {1: "xxh3", 2: "murmur3", 3: "fnv1a", 4: "siphash"}


def mulhi(a: int, b: int) -> int:
    return (a * b) >> 64


def rotl(x: int, by: int) -> int:
    return (x << by | x >> (64 - by)) & MASK


def remix(h: int) -> int:
    h = (h ^ h >> 33) * 0xFF51AFD7ED558CCD & MASK
    h = (h ^ h >> 33) * 0xC4CEB9FE1A85EC53 & MASK
    return h ^ h >> 33


def second(h: int) -> int:
    return remix(h ^ 0x9E6C63D0876A3F6B)


# ---- 1. Keys


def canonical(key: object) -> tuple[int, bytes]:
    """The key's domain and bytes."""
    if isinstance(key, str):
        return 0, key.encode()
    if isinstance(key, bytes | bytearray | memoryview):
        return 0, bytes(key)
    if isinstance(key, int):
        fits = -(2**63) <= key < 2**63
        return 1, int(key).to_bytes(8 if fits else key.bit_length() // 8 + 1, "little", signed=True)
    if isinstance(key, tuple):
        parts = [canonical(part) for part in key]
        return 2, b"".join(struct.pack("<BI", domain, len(b)) + b for domain, b in parts)
    if isinstance(key, UUID):
        return 3, key.bytes
    if isinstance(key, datetime):
        aware = key.utcoffset() is not None
        since = key - datetime(1970, 1, 1, tzinfo=timezone.utc if aware else None)
        micros = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
        return 4 if aware else 5, struct.pack("<q", micros)
    raise TypeError(type(key))


# ---- 2. Hashes


def xxh3(data: bytes, seed: int) -> int:
    if len(data) != 8:
        raise NotImplementedError("XXH3 of other than 8 bytes")
    seed ^= int.from_bytes((seed & 0xFFFFFFFF).to_bytes(4, "little"), "big") << 32
    flip = 0x1CAD21F72C81017C ^ 0xDB979083E96DD4DE
    h = rotl(int.from_bytes(data, "little"), 32) ^ (flip - seed & MASK)
    h ^= rotl(h, 49) ^ rotl(h, 24)
    h = h * 0x9FB21C651E98DF25 & MASK
    h ^= (h >> 35) + 8
    h = h * 0x9FB21C651E98DF25 & MASK
    return h ^ h >> 28


def murmur3(data: bytes, seed: int) -> int:
    c1, c2 = 0x87C37B91114253D5, 0x4CF5AD432745937F
    h1 = h2 = seed

    def mix1(k: int) -> int:
        return rotl(k * c1 & MASK, 31) * c2 & MASK

    def mix2(k: int) -> int:
        return rotl(k * c2 & MASK, 33) * c1 & MASK

    whole = len(data) // 16 * 16
    for k1, k2 in struct.iter_unpack("<QQ", data[:whole]):
        h1 = ((rotl(h1 ^ mix1(k1), 27) + h2) * 5 + 0x52DCE729) & MASK
        h2 = ((rotl(h2 ^ mix2(k2), 31) + h1) * 5 + 0x38495AB5) & MASK
    k1, k2 = struct.unpack("<QQ", data[whole:].ljust(16, b"\0"))
    h1 ^= mix1(k1) ^ len(data)
    h2 ^= mix2(k2) ^ len(data)
    h1 = (h1 + h2) & MASK
    h2 = (h2 + h1) & MASK
    return (remix(h1) + remix(h2)) & MASK


def fnv1a(data: bytes, seed: int) -> int:
    h = 0xCBF29CE484222325 ^ seed
    for byte in data:
        h = (h ^ byte) * 0x100000001B3 & MASK
    return remix(h)


def siphash13(data: bytes, k0: int, k1: int) -> int:
    a, b = k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D
    c, d = k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573

    def rounds(n: int) -> None:
        nonlocal a, b, c, d
        for _ in range(n):
            a, c = (a + b) & MASK, (c + d) & MASK
            b, d = rotl(b, 13) ^ a, rotl(d, 16) ^ c
            a, c = (rotl(a, 32) + d) & MASK, (c + b) & MASK
            b, d = rotl(b, 17) ^ c, rotl(d, 21) ^ a
            c = rotl(c, 32)

    padded = data.ljust(len(data) // 8 * 8 + 7, b"\0") + bytes([len(data) & 255])
    for (word,) in struct.iter_unpack("<Q", padded):
        d ^= word
        rounds(1)
        a ^= word
    c ^= 255
    rounds(3)
    return a ^ b ^ c ^ d


def hash_key(key: object, hasher: str, seed: int) -> int:
    """The key's 64-bit hash in a filter of this hasher and seed."""
    domain, data = canonical(key)
    low = (seed & MASK) ^ (domain * 0x9E3779B97F4A7C15 & MASK)
    if hasher == "siphash":
        return siphash13(data, low, seed >> 64)
    functions: dict[str, Callable[[bytes, int], int]]
    functions = {"xxh3": xxh3, "murmur3": murmur3, "fnv1a": fnv1a}
    return functions[hasher](data, low)


# ---- 3. Bits


def line_positions(h: int, lines: int, hashes: int) -> Iterator[int]:
    """A key's bits in one line of the blocked layout."""
    start = 512 * mulhi(h, lines)
    pattern = (h * 0xD6E8FEB86659FD93 + 0x9E6C63D0876A3F6B) & MASK
    for i in range(hashes // 2):
        if i == 4:
            pattern = (pattern ^ pattern >> 32) * 0xA0761D6478BD642F & MASK
        for half, number in ((0, 3 - i % 4), (1, 7 - i % 4)):
            byte = pattern >> 8 * number & 255
            yield start + 256 * half + 32 * (byte & 7) + (byte >> 3)


def classic_positions(h: int, num_bits: int, hashes: int) -> Iterator[int]:
    x, step = h, second(h) | 1
    for i in range(1, hashes + 1):
        yield mulhi(x, num_bits)
        x = (x + step) & MASK
        step = (step + i * 0x9E3779B97F4A7C14) & MASK


# ---- 4. Files


@dataclass(frozen=True)
class Saved:
    """What the header of a saved filter says, and its bits."""

    layout: str
    hasher: str
    lines_per_key: int
    num_hashes: int
    num_bits: int
    capacity: int
    error_rate: float
    seed: int
    key_type: str | None
    header_checksum: int
    bits_checksum: int
    bits: bytes

    def positions(self, h: int) -> list[int]:
        """Every bit of the key with this hash."""
        if self.layout == "classic":
            return list(classic_positions(h, self.num_bits, self.num_hashes))
        lines, each = self.num_bits // 512, self.num_hashes // self.lines_per_key
        hashes = (h, second(h))[: self.lines_per_key]
        return [p for one in hashes for p in line_positions(one, lines, each)]

    def bit(self, p: int) -> bool:
        return bool(self.bits[p >> 3] >> (p & 7) & 1)

    def might_contain(self, key: object) -> bool:
        """False: definitely not added. True: maybe."""
        return all(map(self.bit, self.positions(hash_key(key, self.hasher, self.seed))))


def read(data: bytes) -> Saved:
    """Take a saved filter apart, with the checks that need no XXH3."""
    assert data[:8] == b"BLOOMERY"
    assert len(data) >= HEADER_BYTES
    fields = HEADER.unpack_from(data)
    _, version, kind, layout, hasher, lines, hashes, num_bits, capacity, rate = fields[:10]
    seed, nbytes, key_type, header_checksum, bits_checksum = fields[10:]
    assert (version, kind) == (1, 1)
    assert nbytes == -(-num_bits // 512) * 64
    assert len(data) == HEADER_BYTES + nbytes
    assert HASHERS[hasher] == "siphash" or not any(seed[8:])
    if layout == 1:
        assert num_bits % 512 == 0
        assert lines in (1, 2)
        assert hashes % (2 * lines) == 0
        assert 0 < hashes // lines <= 16
    else:
        assert lines == 0
        assert 0 < hashes <= 64
    assert int.from_bytes(data[HEADER_BYTES:], "little") >> num_bits == 0
    return Saved(
        LAYOUTS[layout],
        HASHERS[hasher],
        lines,
        hashes,
        num_bits,
        capacity,
        rate,
        int.from_bytes(seed, "little"),
        KEY_TYPES.get(key_type) if bits_checksum != LIVE else None,
        header_checksum,
        bits_checksum,
        data[HEADER_BYTES:],
    )

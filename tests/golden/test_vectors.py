"""The hashes are the published ones: other programs can compute them."""

from __future__ import annotations

import ast
import os
import subprocess
import sys

import pytest

from bloomery import BloomFilter

MASK = 2**64 - 1


def test_published_vectors() -> None:
    """With seed 0 the hash of a str is the published XXH3, MurmurHash3 and remixed FNV-1a."""
    xxh3, murmur3 = BloomFilter(1).hash_of, BloomFilter(1, hasher="murmur3").hash_of
    assert xxh3("") == 0x2D06800538D394C2
    assert xxh3("a") == 0xE6C632B61E964E1F
    assert xxh3("abc") == 0x78AF5F94892F3950
    assert murmur3("") == 0
    assert murmur3("hello") == 0xCBD8A7B341BD9B02
    assert murmur3("The quick brown fox jumps over the lazy dog") == 0xE34BBC7BBC071B6C
    fnv1a = BloomFilter(1, hasher="fnv1a").hash_of
    for key in (b"", b"a", b"foobar", bytes(range(256))):
        h = 0xCBF29CE484222325
        for byte in key:
            h = (h ^ byte) * 0x100000001B3 & MASK
        assert fnv1a(key) == remix(h)
    assert fnv1a("foobar") == remix(0x85944171F73967E8)


def remix(h: int) -> int:
    """MurmurHash3's 64-bit finaliser, written down a second time."""
    h = (h ^ h >> 33) * 0xFF51AFD7ED558CCD & MASK
    h = (h ^ h >> 33) * 0xC4CEB9FE1A85EC53 & MASK
    return h ^ h >> 33


@pytest.mark.skipif(sys.hash_info.algorithm != "siphash13", reason="Python hashes otherwise here")
def test_siphash_is_pythons_own() -> None:
    """With an all-zero key our siphash is the SipHash-1-3 that Python itself uses for bytes."""
    keys = [bytes(range(n)) for n in range(1, 80)]
    script = "print([hash(bytes(range(n))) for n in range(1, 80)])"
    env = {**os.environ, "PYTHONHASHSEED": "0"}
    run = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, check=True)
    filter = BloomFilter(1, hasher="siphash")
    assert [filter.hash_of(key) for key in keys] == [
        h & MASK for h in ast.literal_eval(run.stdout.decode())
    ]

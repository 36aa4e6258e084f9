"""One adapter a peer: how each is made, asked, filled at once, weighed and saved.

An adapter only hands over the peer's own bound methods, so the timed loop holds no code of ours.
Peers are imported by name: one that is not installed is left out, and the report says so.
"""

from __future__ import annotations

import hashlib
import importlib
import io
import pickle
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.library.textbook import TextbookFilter, TextbookFilterMmh3
from benchmarks.settings import KINDS


@dataclass(frozen=True)
class Handle:
    """One filter of one peer, ready to be timed."""

    target: Any
    add: Callable[[Any], object]
    nbytes: Callable[[], int]
    update: Callable[[list[Any]], object] | None = None
    contains: Callable[[Any], object] | None = None
    """Set where the peer has no `in`; then the loop calls this instead."""
    contains_many: Callable[[list[Any]], Any] | None = None
    serialise: Callable[[], bytes] | None = None
    remove: Callable[[Any], object] | None = None
    remove_many: Callable[[list[Any]], Any] | None = None


@dataclass(frozen=True)
class Peer:
    """A peer, and how many keys of it one pass can afford (None: all)."""

    name: str
    module: str
    make: Callable[[int, float, str], Handle]
    cap: int | None = None
    note: str = ""
    takes: tuple[str, ...] = KINDS

    def available(self) -> bool:
        return installed(self.module)


def installed(module: str) -> bool:
    try:
        importlib.import_module(module)
    except ImportError:
        return False
    return True


def _bloomery(capacity: int, error_rate: float, kind: str) -> Handle:
    f = importlib.import_module("bloomery").BloomFilter(capacity, error_rate)
    return Handle(f, f.add, lambda: int(f.nbytes), f.update, None, f.contains_many, f.to_bytes)


def _abloom(serializable: bool) -> Callable[[int, float, str], Handle]:
    def make(capacity: int, error_rate: float, kind: str) -> Handle:
        f = importlib.import_module("abloom").BloomFilter(
            capacity, error_rate, serializable=serializable
        )
        return Handle(
            f,
            f.add,
            lambda: int(f.byte_count),
            f.update,
            serialise=f.to_bytes if serializable else None,
        )

    return make


def _rbloom(capacity: int, error_rate: float, kind: str) -> Handle:
    f = importlib.import_module("rbloom").Bloom(capacity, error_rate)
    return Handle(f, f.add, lambda: int(f.size_in_bits) // 8, f.update)


def _stable_hash(key: object) -> int:
    """The hash its README gives for filters that are to be saved."""
    return int.from_bytes(hashlib.sha256(pickle.dumps(key)).digest()[:16], "big", signed=True)


def _rbloom_saveable(capacity: int, error_rate: float, kind: str) -> Handle:
    f = importlib.import_module("rbloom").Bloom(capacity, error_rate, _stable_hash)
    return Handle(f, f.add, lambda: int(f.size_in_bits) // 8, f.update, serialise=f.save_bytes)


def _fastbloom(capacity: int, error_rate: float, kind: str) -> Handle:
    # The native class and its typed methods, without the Python wrapper around them.
    f = (
        importlib.import_module("fastbloom_rs")
        .PyFilterBuilder(capacity, error_rate)
        .build_bloom_filter()
    )
    return Handle(
        f,
        getattr(f, f"add_{kind}"),
        lambda: len(f.get_bytes()),
        getattr(f, f"add_{kind}_batch"),
        getattr(f, f"contains_{kind}"),
        getattr(f, f"contains_{kind}_batch"),
        lambda: bytes(f.get_bytes()),
    )


def _pybloomfiltermmap(capacity: int, error_rate: float, kind: str) -> Handle:
    f = importlib.import_module("pybloomfilter").BloomFilter(capacity, error_rate)
    return Handle(
        f, f.add, lambda: int(f.num_bits) // 8, f.update, serialise=lambda: bytes(f.data_array)
    )


def _pybloom_live(capacity: int, error_rate: float, kind: str) -> Handle:
    f = importlib.import_module("pybloom_live").BloomFilter(capacity, error_rate)

    def serialise() -> bytes:
        stream = io.BytesIO()
        f.tofile(stream)
        return stream.getvalue()

    return Handle(f, f.add, lambda: int(f.num_bits) // 8, serialise=serialise)


def _set(capacity: int, error_rate: float, kind: str) -> Handle:
    f: set[Any] = set()

    def nbytes() -> int:
        # A set holds its keys alive, so they count.
        return sys.getsizeof(f) + sum(map(sys.getsizeof, f))

    return Handle(f, f.add, nbytes, f.update, serialise=lambda: pickle.dumps(f))


def _textbook(capacity: int, error_rate: float, kind: str) -> Handle:
    f = TextbookFilter(capacity, error_rate)
    return Handle(f, f.add, lambda: len(f.bits), serialise=lambda: bytes(f.bits))


def _textbook_mmh3(capacity: int, error_rate: float, kind: str) -> Handle:
    f = TextbookFilterMmh3(capacity, error_rate)
    return Handle(f, f.add, lambda: len(f.bits) // 8, serialise=lambda: bytes(f.bits.tobytes()))


OURS = "bloomery"
RIVAL = "abloom serializable"

PEERS: tuple[Peer, ...] = (
    Peer(OURS, "bloomery", _bloomery),
    Peer(RIVAL, "abloom", _abloom(True), note="the yardstick: the fastest that can be saved"),
    Peer("abloom default", "abloom", _abloom(False), note="cannot be saved"),
    Peer("rbloom", "rbloom", _rbloom, note="cannot be saved"),
    Peer("rbloom saveable", "rbloom", _rbloom_saveable, cap=100_000, note="its README's own hash"),
    Peer("fastbloom-rs", "fastbloom_rs", _fastbloom, note="has no `in`: contains_<type>() called"),
    Peer("pybloomfiltermmap3", "pybloomfilter", _pybloomfiltermmap, note="in memory"),
    Peer("pybloom-live", "pybloom_live", _pybloom_live, cap=50_000),
    Peer("set", "builtins", _set, note="exact; bits a key count the keys it keeps"),
    Peer("textbook mmh3", "mmh3", _textbook_mmh3, cap=50_000, note="bitarray and k murmur3 a key"),
    Peer("textbook", "hashlib", _textbook, cap=10_000, note="pure Python, k SHA-256 a key"),
)
CONTENDERS = (OURS, RIVAL)

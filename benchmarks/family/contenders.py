"""Who runs for each kind: our filter, the plain one as the yardstick, and the peers.

Each peer is made for as many keys as it gets and for the rate asked for, where it can be told one.
"""

from __future__ import annotations

import gc
import importlib
import sys
import types
from collections.abc import Callable
from typing import Any

import bloomery
from benchmarks.library.adapters import Handle, Peer

Make = Callable[[int, float, str], Handle]
PLAIN = "BloomFilter"
GROWTH = 1000
"""How many times its first size a growing filter is filled."""

_SLOW = 10_000
_OPAQUE = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType)


def _deep_size(root: object) -> int:
    """Bytes of an object and of all that it holds, for peers that are Python objects inside."""
    seen: set[int] = set()
    waiting = [root]
    total = 0
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, _OPAQUE):
            continue
        seen.add(id(one))
        total += sys.getsizeof(one)
        waiting += gc.get_referents(one)
    return total


def _ours(make: Callable[[int, float], Any]) -> Make:
    def handle(capacity: int, error_rate: float, kind: str) -> Handle:
        f = make(capacity, error_rate)
        return Handle(
            f,
            f.add,
            lambda: int(f.nbytes),
            f.update,
            contains_many=f.contains_many,
            remove=getattr(f, "remove", None),
            remove_many=getattr(f, "remove_many", None),
        )

    return handle


def _growing(capacity: int, error_rate: float) -> Any:
    return bloomery.ScalableBloomFilter(max(1, capacity // GROWTH), error_rate)


def _by_time(capacity: int, error_rate: float) -> Any:
    return bloomery.RotatingBloomFilter(capacity, error_rate, window="7d", generations=8)


def _by_fill(capacity: int, error_rate: float) -> Any:
    return bloomery.RotatingBloomFilter(capacity, error_rate, window=None, generations=8)


def _pybloom_live(capacity: int, error_rate: float, kind: str) -> Handle:
    module = importlib.import_module("pybloom_live")
    f = module.ScalableBloomFilter(max(1, capacity // GROWTH), error_rate)
    return Handle(f, f.add, lambda: sum(int(layer.num_bits) for layer in f.filters) // 8)


def _expanding(capacity: int, error_rate: float, kind: str) -> Handle:
    # Its layers are all of one size. As many as it has from 1,000 keys on to 10,000.
    f = importlib.import_module("probables").ExpandingBloomFilter(capacity // 10, error_rate)
    return Handle(f, f.add, lambda: _deep_size(f))


def _rotating(capacity: int, error_rate: float, kind: str) -> Handle:
    module = importlib.import_module("probables")
    f = module.RotatingBloomFilter(capacity // 8, error_rate, max_queue_size=8)
    return Handle(f, f.add, lambda: _deep_size(f))


def _counting(capacity: int, error_rate: float, kind: str) -> Handle:
    f = importlib.import_module("probables").CountingBloomFilter(capacity, error_rate)
    return Handle(f, f.add, lambda: _deep_size(f), remove=f.remove)


def _fastbloom(capacity: int, error_rate: float, kind: str) -> Handle:
    # The native class and its typed methods, without the Python wrapper around them.
    builder = importlib.import_module("fastbloom_rs").PyFilterBuilder(capacity, error_rate)
    builder.enable_repeat_insert(True)  # copies of a key are counted, as ours are
    f = builder.build_counting_bloom_filter()
    return Handle(
        f,
        getattr(f, f"add_{kind}"),
        lambda: len(f.get_bytes()),
        getattr(f, f"add_{kind}_batch"),
        getattr(f, f"contains_{kind}"),
        getattr(f, f"contains_{kind}_batch"),
        remove=getattr(f, f"remove_{kind}"),
    )


def _buckets(capacity: int) -> int:
    """Buckets of four at a load of up to 95%. A power of two: others lose keys in both peers."""
    return 1 << max(0, int(capacity / (4 * 0.95))).bit_length()


def _fingerprint_bytes(error_rate: float) -> int:
    """The fewest bytes with 2 * 4 / 256**bytes <= error_rate."""
    return next(size for size in range(1, 9) if 8 / 256**size <= error_rate)


def _cuckoopy(capacity: int, error_rate: float, kind: str) -> Handle:
    f = importlib.import_module("cuckoopy").CuckooFilter(
        _buckets(capacity), fingerprint_size=_fingerprint_bytes(error_rate)
    )
    return Handle(f, f.insert, lambda: _deep_size(f), remove=f.delete)


def _cuckoofilter(capacity: int, error_rate: float, kind: str) -> Handle:
    f = importlib.import_module("cuckoofilter").CuckooFilter(
        4 * _buckets(capacity), fingerprint_size=_fingerprint_bytes(error_rate)
    )
    return Handle(f, f.insert, lambda: _deep_size(f), remove=f.delete)


def _probables_cuckoo(capacity: int, error_rate: float, kind: str) -> Handle:
    f = importlib.import_module("probables").CuckooFilter(_buckets(capacity))
    return Handle(f, f.add, lambda: _deep_size(f), remove=f.remove)


def _own(name: str, make: Callable[[int, float], Any], note: str = "") -> Peer:
    return Peer(name, "bloomery", _ours(make), note=note)


def _probables(make: Make, note: str = "") -> Peer:
    return Peer("pyprobables", "probables", make, _SLOW, note, ("str",))


CONTENDERS: dict[str, tuple[Peer, ...]] = {
    "plain": (_own(PLAIN, bloomery.BloomFilter),),
    "scalable": (
        _own("ScalableBloomFilter", _growing, f"filled to {GROWTH:,} times its first size"),
        Peer("pybloom-live", "pybloom_live", _pybloom_live, 5 * _SLOW, "grown as far as ours"),
        _probables(_expanding, "grown ten times only: its layers do not grow, and it asks all"),
    ),
    "counting": (
        _own("CountingBloomFilter", bloomery.CountingBloomFilter, "4 bits a counter"),
        Peer("fastbloom-rs", "fastbloom_rs", _fastbloom, note="has no `in` and removes one by one"),
        _probables(_counting, "32 bits a counter"),
    ),
    "deletable": (_own("DeletableBloomFilter", bloomery.DeletableBloomFilter),),
    "cuckoo": (
        _own("CuckooFilter", bloomery.CuckooFilter),
        Peer(
            "cuckoopy",
            "cuckoopy",
            _cuckoopy,
            _SLOW,
            "whole bytes; forgets what it evicts",
            ("str",),
        ),
        Peer("cuckoofilter", "cuckoofilter", _cuckoofilter, 5 * _SLOW, "whole bytes a fingerprint"),
        _probables(
            _probables_cuckoo,
            "4 bytes a fingerprint, its default: both places come from the fingerprint alone, so "
            "with the few bits that it takes for 1% it answers yes to every key",
        ),
    ),
    "rotating": (
        _own("RotatingBloomFilter", _by_fill, "window=None, 8 generations by fill"),
        _own("RotatingBloomFilter 7d", _by_time, "8 generations by time"),
        _probables(_rotating, "8 filters by fill; each has the whole error rate, so they add up"),
    ),
}
"""The kinds whose filters are filled key by key; ours stands first."""

"""Rarer keys beside plain ones: text that is not ASCII, UUIDs, tuples, columns with nulls; int64
arrays in the cache beside a C loop; and lists in a counting filter beside fastbloom-rs."""

from __future__ import annotations

import ctypes
import importlib
import random
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import bloomery
from benchmarks.keys import int64s
from benchmarks.limits.rows import Work, best, ready, row
from benchmarks.settings import Record, Settings
from benchmarks.timing import time_add, time_in

RATE = 0.01
REPEATS = 10
"""Passes over keys in the cache, so that one timing is milliseconds."""


def run(settings: Settings) -> Iterator[Record]:
    yield from _single(settings)
    yield from _nulls(settings)
    yield from _arrays(settings)
    yield from _counting(settings)


def _single(settings: Settings) -> Iterator[Record]:
    count = settings.size(100_000)
    draw = random.Random(1)
    names = [f"user-{i:08d}-abc" for i in range(count)]
    kinds: dict[str, tuple[list[Any], float, float]] = {
        "str of Latin-1": ([f"üser{name[4:]}" for name in names], 2, 1.3),
        "str of CJK": ([f"用户{name[4:]}" for name in names], 2, 1.3),
        "UUID": ([uuid.UUID(int=draw.getrandbits(128)) for _ in names], 2.5, 1.3),
        "tuple of two": ([(name, i) for i, name in enumerate(names)], 3, 1.3),
    }
    filter_ = bloomery.BloomFilter(count, RATE)
    loops: dict[str, Callable[[list[Any]], object]] = {
        "add": lambda keys: time_add(filter_.add, keys),
        "in": lambda keys: time_in(filter_, keys),
    }
    for name, loop in loops.items():
        lists = {"ASCII": names, **{kind: keys for kind, (keys, _, _) in kinds.items()}}
        works = {kind: ready(partial(loop, keys)) for kind, keys in lists.items()}
        seconds = best(settings, f"{name} of rarer keys", works)
        for kind, (_, must, aim) in kinds.items():
            yield row(
                f"{kind}, {name}, to an ASCII str",
                seconds[kind] / seconds["ASCII"],
                must,
                aim,
                f"{seconds[kind] / count * 1e9:.0f} and {seconds['ASCII'] / count * 1e9:.0f} ns",
            )


def _nulls(settings: Settings) -> Iterator[Record]:
    arrow = importlib.import_module("pyarrow")
    count = settings.size(1_000_000)
    null = np.random.default_rng(1).random(count) < 0.01
    values: dict[str, Any] = {
        "int64": int64s(0, count),
        "string": [f"user-{i:08d}" for i in range(count)],
    }
    for kind, keys in values.items():
        columns = {"whole": arrow.array(keys), "nulls": arrow.array(keys, mask=null)}
        for method in ("add_many", "contains_many"):
            filter_ = bloomery.BloomFilter(count, RATE)
            call = getattr(filter_, method)
            works = {
                name: ready(partial(call, column, nulls="skip")) for name, column in columns.items()
            }
            seconds = best(settings, f"{method} of {kind} columns", works)
            yield row(
                f"Arrow {kind} column with 1% nulls, {method}, to one without",
                seconds["nulls"] / seconds["whole"],
                1.5,
                1.2,
                " and ".join(f"{seconds[x] / count * 1e9:.1f}" for x in ("nulls", "whole")) + " ns",
            )


def _often(call: Callable[..., object], *arguments: Any) -> None:
    for _ in range(REPEATS):
        call(*arguments)


def _method(make: Callable[[], Any], name: str, keys: list[Any]) -> Callable[[], object]:
    return partial(getattr(make(), name), keys)


def _flip() -> int:
    """What the hash of an int starts from, with the seed 0 (docs/format.md)."""
    seed = 1 * 0x9E3779B97F4A7C15 % 2**64
    low = int.from_bytes((seed & 0xFFFFFFFF).to_bytes(4, "little"), "big")
    secret = 0x1CAD21F72C81017C ^ 0xDB979083E96DD4DE
    return int((secret - (seed ^ low << 32)) % 2**64)


def _arrays(settings: Settings) -> Iterator[Record]:
    count = settings.size(100_000)
    keys = int64s(0, count)
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "loop.so"
        source = Path(__file__).with_name("loop.c")
        flags = ["-O3", "-mavx2", "-mbmi", "-mbmi2", "-Wall", "-Wextra", "-Werror", "-fPIC"]
        subprocess.run(["cc", *flags, "-shared", "-o", str(target), str(source)], check=True)
        loaded = ctypes.CDLL(str(target))
        filter_ = bloomery.BloomFilter(count, RATE)
        nbytes = filter_.nbytes
        memory = np.zeros(nbytes + 64, dtype=np.uint8)
        start = -memory.ctypes.data % 64
        bits, answers = memory[start : start + nbytes], np.zeros(count, dtype=np.uint8)
        arguments = (
            ctypes.c_void_p(bits.ctypes.data),
            ctypes.c_uint64(nbytes // 64),
            ctypes.c_uint64(_flip()),
            ctypes.c_void_p(keys.ctypes.data),
            ctypes.c_size_t(count),
            ctypes.c_void_p(answers.ctypes.data),
        )
        loaded.loop_add(*arguments)
        new = filter_.add_many(keys)
        assert bytes(bits) == bytes(memoryview(filter_)), "the C loop sets other bits"
        assert np.array_equal(new, answers.astype(bool))
        for method, name in (("add_many", "loop_add"), ("contains_many", "loop_contains")):
            ours, theirs = getattr(filter_, method), getattr(loaded, name)
            works = {
                "ours": ready(partial(_often, ours, keys)),
                "C": ready(partial(_often, theirs, *arguments)),
            }
            seconds = best(settings, f"{method} beside a C loop", works)
            each = {who: value / REPEATS / count * 1e9 for who, value in seconds.items()}
            yield row(
                f"int64 array of {count:,} in the cache, {method}, to a C loop",
                seconds["ours"] / seconds["C"],
                1.5,
                1.2,
                f"{each['ours']:.1f} and {each['C']:.1f} ns",
            )


def _counting(settings: Settings) -> Iterator[Record]:
    count = settings.size(1_000_000)
    builder = importlib.import_module("fastbloom_rs").PyFilterBuilder(count, RATE)
    builder.enable_repeat_insert(True)  # copies of a key are counted, as ours are
    keys: dict[str, list[Any]] = {
        "str": [f"user-{i:08d}" for i in range(count)],
        "int": int64s(0, count).tolist(),
    }
    for kind, some in keys.items():
        theirs = builder.build_counting_bloom_filter()
        ours = bloomery.CountingBloomFilter(count, RATE)
        getattr(theirs, f"add_{kind}_batch")(some)
        ours.update(some)
        fresh = partial(bloomery.CountingBloomFilter, count, RATE)
        empty = builder.build_counting_bloom_filter
        calls: dict[str, tuple[Work, Work]] = {
            "update": (
                partial(_method, fresh, "update", some),
                partial(_method, empty, f"add_{kind}_batch", some),
            ),
            "contains_many": (
                ready(partial(ours.contains_many, some)),
                ready(partial(getattr(theirs, f"contains_{kind}_batch"), some)),
            ),
        }
        for name, (mine, other) in calls.items():
            works = {"ours": mine, "theirs": other}
            seconds = best(settings, f"counting, {name} of a list of {kind}", works)
            yield row(
                f"counting, {name} of a list of {kind}, to fastbloom-rs",
                seconds["theirs"] / seconds["ours"],
                5,
                None,
                f"{seconds['ours'] / count * 1e9:.1f} and {seconds['theirs'] / count * 1e9:.1f} ns",
                unit="x faster",
                better="more",
            )

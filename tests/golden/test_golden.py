"""Saved last year, loaded today: hashes, bytes and wrong answers are those of the golden files."""

from __future__ import annotations

import json
import pickle
from typing import Any

import numpy as np
import pytest

from bloomery import BloomFilter
from conftest import require
from golden.make import ABSENT, ANSWERS, FOLDER, HASHERS, KEYS, SEEDS, Case, cases, hashes

GOLDEN: dict[str, Any] = json.loads(ANSWERS.read_text("ascii"))
CASES = list(cases())
NAMES = [case.path.stem for case in CASES]


@pytest.mark.parametrize("hasher", HASHERS)
def test_hashes_are_frozen(hasher: Any) -> None:
    """The hash of every kind of key is the one it had when the format was frozen."""
    for seed in (0, SEEDS[hasher]):
        assert hashes(hasher, seed) == GOLDEN["hashes"][f"{hasher} {seed}"]


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_a_fresh_build_is_the_golden_file(case: Case) -> None:
    """The same keys in the same filter give the same file, byte for byte."""
    golden = case.path.read_bytes()
    assert case.build().to_bytes() == golden
    loaded = BloomFilter.load(case.path)
    assert loaded.to_bytes() == golden
    assert BloomFilter.load(case.path, mmap=True, verify=True).to_bytes() == golden


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_a_golden_file_answers_as_ever(case: Case) -> None:
    """A golden file holds its keys and errs on exactly the absent keys that it always erred on."""
    filter = BloomFilter.load(case.path)
    added = [*KEYS.values(), *range(case.capacity - len(KEYS))]
    assert all(filter.contains_many(added))
    assert np.asarray(filter.contains_many(np.arange(case.capacity - len(KEYS)))).all()
    known = GOLDEN["false_positives"][case.path.name]
    maybe = [i for i, key in enumerate(ABSENT) if key in filter]
    assert maybe[:40] == known
    assert len(known) > 10 or case.error_rate < 0.01
    column = require("pyarrow").array(ABSENT)
    assert np.flatnonzero(filter.contains_many(column)).tolist() == maybe


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_a_golden_file_knows_what_it_is(case: Case) -> None:
    """Layout, hasher, seed, capacity and error rate come back from the file."""
    filter = BloomFilter.load(case.path)
    assert filter.info() == case.build().info()
    assert (filter.layout, filter.hasher) == (case.layout, case.hasher)
    assert (filter.capacity, filter.error_rate) == (case.capacity, case.error_rate)
    assert filter.seed == SEEDS[case.hasher]
    assert pickle.loads(pickle.dumps(filter)) == filter


def test_the_header_is_as_documented() -> None:
    """A saved filter begins with the fields that docs/format.md lists, each in its place."""
    case = CASES[0]
    filter, raw = case.build(), case.path.read_bytes()
    assert raw[:8] == b"BLOOMERY"

    def number(at: int, size: int) -> int:
        return int.from_bytes(raw[at : at + size], "little")

    assert (number(8, 2), *raw[10:14]) == (1, 1, 1, 1, 1), "version, kind, layout, hasher, lines"
    assert number(14, 2) == filter.num_hashes
    assert number(16, 8) == filter.num_bits
    assert number(24, 8) == filter.capacity
    assert np.frombuffer(raw[32:40], "<f8")[0] == filter.error_rate
    assert number(40, 16) == filter.seed
    assert number(56, 8) == filter.nbytes == len(raw) - 128
    assert not any(raw[64:112])
    assert raw[128:] == bytes(memoryview(filter))
    # The checksums are plain XXH3, which another filter's hash_of gives as well.
    xxh3 = BloomFilter(1).hash_of
    assert number(112, 8) == xxh3(raw[:112])
    assert number(120, 8) == xxh3(raw[128:])


def test_the_golden_files_are_all_there_and_small() -> None:
    """Every golden file belongs to a case, and all of them together stay below 50 KiB."""
    files = set(FOLDER.glob("*.bloom"))
    assert files == {case.path for case in CASES}
    assert {(c.layout, BloomFilter.load(c.path).lines_per_key) for c in CASES} == {
        *(("blocked", 1), ("blocked", 2), ("classic", 0))
    }
    assert sum(path.stat().st_size for path in [*files, ANSWERS]) < 50 * 1024

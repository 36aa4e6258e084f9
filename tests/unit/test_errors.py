"""Errors: one catalogue, a stable code each, and a clear one for every absurd parameter."""

from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np
import pytest

from bloomery import BloomFilter, _native, errors
from bloomery.errors import BloomeryError, InvalidParameter, NotEnoughMemory

CATALOGUE = {
    "BloomeryError": ("error", Exception),
    "InvalidParameter": ("invalid-parameter", ValueError),
    "InvalidConfiguration": ("invalid-configuration", ValueError),
    "UnsupportedKey": ("unsupported-key", TypeError),
    "InvalidKey": ("invalid-key", ValueError),
    "NullKey": ("null-key", ValueError),
    "ConflictingKeys": ("conflicting-keys", ValueError),
    "UnsupportedBatch": ("unsupported-batch", TypeError),
    "IncompatibleFilters": ("incompatible-filters", ValueError),
    "CorruptData": ("corrupt-data", ValueError),
    "UnsupportedVersion": ("unsupported-version", ValueError),
    "ReadOnlyFilter": ("read-only-filter", TypeError),
    "FilterFull": ("filter-full", RuntimeError),
    "TooManyCopies": ("too-many-copies", RuntimeError),
    "NotEnoughMemory": ("not-enough-memory", MemoryError),
    "UnknownFilter": ("unknown-filter", KeyError),
    "FilterExists": ("filter-exists", ValueError),
    "LogUnavailable": ("log-unavailable", RuntimeError),
    "FolderInUse": ("folder-in-use", RuntimeError),
    "SnapshotFailed": ("snapshot-failed", RuntimeError),
    "RegistryUnavailable": ("registry-unavailable", OSError),
    "NotLoggedIn": ("not-logged-in", PermissionError),
    "NotAllowed": ("not-allowed", PermissionError),
    "InvalidRequest": ("invalid-request", ValueError),
    "RequestTooLarge": ("request-too-large", ValueError),
    "ServerUnavailable": ("server-unavailable", ConnectionError),
    "SourceUnavailable": ("source-unavailable", ConnectionError),
    "InvalidSource": ("invalid-source", ValueError),
    "CacheUnavailable": ("cache-unavailable", ConnectionError),
    "PoisonedCache": ("poisoned-cache", ValueError),
    "QueueUnavailable": ("queue-unavailable", OSError),
    "StoreUnavailable": ("store-unavailable", ConnectionError),
    "StoreRefused": ("store-refused", RuntimeError),
    "FeedRefused": ("feed-refused", ValueError),
    "FeedUnavailable": ("feed-unavailable", RuntimeError),
    "MissingExtra": ("missing-extra", ImportError),
}
CLASSES: dict[str, Any] = {n: c for n, c in vars(errors).items() if isinstance(c, type)}


def test_the_catalogue_is_whole() -> None:
    """Every error has the code that programs match on, and the built-in that callers expect."""
    assert CLASSES.keys() >= CATALOGUE.keys()
    for name, (code, builtin) in CATALOGUE.items():
        kind = CLASSES[name]
        assert (kind.code, kind.__doc__ is not None) == (code, True), name
        assert issubclass(kind, BloomeryError)
        assert issubclass(kind, builtin)


def test_every_code_is_its_own_and_drawn() -> None:
    """No two errors share a code, and each stands in the tree drawn on top of the module."""
    codes = [kind.code for kind in CLASSES.values()]
    assert len(set(codes)) == len(codes)
    for name, kind in CLASSES.items():
        assert issubclass(kind, BloomeryError)
        assert name in str(errors.__doc__)
        assert name == "BloomeryError" or kind.code in str(errors.__doc__)


def test_errors_can_be_pickled() -> None:
    """An error crosses to another process with its class, message and code."""
    for kind in CLASSES.values():
        back = pickle.loads(pickle.dumps(kind("what was wrong")))
        assert (type(back), str(back)) == (kind, "what was wrong")


NONSENSE: list[Any] = [0, -1, math.nan, math.inf, -math.inf, 1e30, "x", "10", None, True, [], 1j]
ABSURD: list[dict[str, Any]] = [
    {"capacity": v} for v in [*NONSENSE, 0.5, 1.5, 2**40 + 1, 10**5000, np.float64(-3)]
]
ABSURD += [
    {"error_rate": v}
    for v in [*NONSENSE, 0.0, 1, 1.0, 2, 0.51, 1e-10, 1e-300, -0.1, "x", "nan%", "60%"]
]
ABSURD += [{"layout": v} for v in ["Blocked", "ribbon", b"blocked", *NONSENSE]]
ABSURD += [{"hasher": v} for v in ["XXH3", "md5", b"xxh3", *NONSENSE]]
ABSURD += [{"seed": v} for v in [-1, 2**64, 10**5000, 1.0, 1.5, "0", None, True, math.nan, []]]
ABSURD += [{"hasher": "siphash", "seed": v} for v in [-1, 2**128, 1.5, "key", b"k" * 16, None]]


def shown(options: dict[str, Any]) -> str:
    """A name for the test; str() itself refuses an int of 5,001 digits."""
    huge = {name for name, v in options.items() if isinstance(v, int) and v > 2**999}
    return " ".join(f"{n}={'huge' if n in huge else v}" for n, v in options.items())


@pytest.mark.parametrize("options", ABSURD, ids=shown)
def test_absurd_parameters(options: dict[str, Any]) -> None:
    """A parameter out of its range is an InvalidParameter that names it and what would be right."""
    name = list(options)[-1]
    ways: list[tuple[Any, dict[str, Any]]] = [(BloomFilter, {"capacity": 10} | options)]
    if name != "capacity":
        ways.append((BloomFilter.from_keys, {"keys": [1]} | options))
    for make, arguments in ways:
        with pytest.raises(InvalidParameter) as caught:
            make(**arguments)
        message = str(caught.value)
        assert name in message
        assert "must be" in message
        assert len(message) < 300
        assert "kkkk" not in message, "a secret is shown"


@pytest.mark.parametrize(
    "options",
    [
        {"capacity": 1},
        {"capacity": 1e6},
        {"capacity": np.int64(5)},
        {"capacity": np.float64(5)},
        {"error_rate": 0.5},
        {"error_rate": 1e-9},
        {"error_rate": np.float32(0.25)},
        {"seed": 2**64 - 1},
        {"seed": np.uint64(2**64 - 1)},
        {"hasher": "siphash", "seed": 2**128 - 1},
    ],
    ids=str,
)
def test_the_ends_of_the_ranges(options: dict[str, Any]) -> None:
    """What is just within the range is taken, NumPy's numbers included."""
    filter = BloomFilter(**{"capacity": 10} | options)
    for name, value in options.items():
        assert getattr(filter, name) == value
    assert filter.add("key")
    assert "key" in filter
    assert BloomFilter.from_bytes(filter.to_bytes()).seed == filter.seed


def test_there_is_no_other_way_in() -> None:
    """A filter cannot be had unmade: its memory is always there before its methods are."""
    for trick in (
        lambda: object.__new__(BloomFilter),
        lambda: BloomFilter.__new__(BloomFilter),  # type: ignore[call-arg]
        lambda: _native.Bloom.__new__(BloomFilter),  # type: ignore[call-arg]
        lambda: BloomFilter.__new__(int, 5),  # type: ignore[type-var]
        lambda: BloomFilter.add(5, 5),  # type: ignore[arg-type]
        lambda: BloomFilter.add_many("x", [1]),  # type: ignore[arg-type]
    ):
        with pytest.raises((TypeError, AttributeError)):
            trick()
    filter = BloomFilter(10)
    filter.__init__(10**6)  # type: ignore[misc]
    assert filter.capacity == 10
    with pytest.raises(AttributeError):
        filter.capacity = 5  # type: ignore[misc]
    with pytest.raises(AttributeError):
        filter.note = "no such attribute"  # type: ignore[attr-defined]


native: Any = _native.Bloom
GOOD: tuple[Any, ...] = (10, 0.01, "blocked", 1024, 6, 1, "xxh3", 0)
ODD: list[tuple[int, Any]] = [
    *((2, "x"), (2, ""), (3, 0), (3, 1000), (3, 2**48 + 512), (3, 2**63), (4, 0), (4, 18)),
    *((4, 64), (4, 2**31), (5, 0), (5, 3), (5, 2**31), (6, "md5"), (6, "")),
]


@pytest.mark.parametrize(("at", "value"), ODD)
def test_the_native_class_checks_its_numbers(at: int, value: Any) -> None:
    """Even below the public class no number is believed: an InvalidParameter, and no crash."""
    parts = [*GOOD[:at], value, *GOOD[at + 1 :]]
    with pytest.raises(InvalidParameter):
        native(*parts)


def test_the_native_class_refuses_memory_that_does_not_fit() -> None:
    """Memory that is too short, too long, out of line or no memory is refused; huge is not had."""
    for memory, offset in (
        *((bytearray(127), 0), (bytearray(129), 0), (bytearray(128), 1), (bytearray(128), 2**63)),
        *(("text", 0), (5, 0), (np.zeros(256, "u1")[::2], 0), (b"", 0)),
    ):
        with pytest.raises((InvalidParameter, NotEnoughMemory)):
            native(*GOOD, memory, offset)
    aligned = np.zeros(256, "u1")
    start = -aligned.ctypes.data % 64
    taken = native(*GOOD, aligned[start : start + 128])
    assert taken.add("key")
    assert aligned.any()
    with pytest.raises((InvalidParameter, NotEnoughMemory)):
        native(*GOOD, aligned[start + 1 : start + 129])
    with pytest.raises(NotEnoughMemory):
        native(*GOOD[:3], 2**48, *GOOD[4:])


def test_private_methods_check_their_sizes() -> None:
    """Merging filters that do not fit, or reading any header, cannot crash."""
    filter, other = native(*GOOD), native(*GOOD[:3], 512 * 100, *GOOD[4:])
    other._or(filter)
    filter._and(other)
    assert filter._is_subset(other)
    for head, total in ((b"", 0), (b"BLOOMERY", 8), (b"x" * 200, 200), (b"", 2**64 - 1)):
        with pytest.raises(errors.CorruptData):
            _native.parse_header(head, total)

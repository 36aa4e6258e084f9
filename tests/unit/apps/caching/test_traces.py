"""A trace is replayed through caches with and without admission, by hand-checked rules."""

import io
from typing import Any, cast

import pytest

from bloomery import errors
from bloomery.apps.caching.traces import LruSizes, TraceComparison, TraceRequest, read_trace


def read(text: bytes, **options: Any) -> list[TraceRequest | str]:
    return list(read_trace(io.BytesIO(text), **options))


def replay(keys: str, cache_bytes: int, **options: Any) -> TraceComparison:
    """A request a second for each letter, all of one size."""
    comparison = TraceComparison([cache_bytes], **options)
    for time, key in enumerate(keys):
        comparison.ask(TraceRequest(float(time), key.encode(), 10))
    return comparison


def test_lines() -> None:
    """A line is a time, a key and a size; more fields, tabs, blank lines and comments are no
    trouble, and keys are bytes."""
    text = b"# a trace\n1.5 /a 10\n\n2\tb\xff\0 \t20 more of it\r\n3 c 0"
    assert read(text) == [(1.5, b"/a", 10), (2, b"b\xff\0", 20), (3, b"c", 0)]


@pytest.mark.parametrize(
    "line",
    [b"1 a", b"x a 5", b"1 a five", b"nan a 5", b"inf a 5", b"1 a -5", b"1 a 99999999999999999999"],
)
def test_lines_that_are_no_requests(line: bytes) -> None:
    """What is no request is a text that names its line, or an error if that was asked for."""
    first, second, third = read(b"1 a 5\n" + line + b"\n2 b 5\n")
    assert cast("str", second).startswith("line 2 is b'")
    assert isinstance(first, TraceRequest)
    assert isinstance(third, TraceRequest)
    with pytest.raises(errors.InvalidParameter, match=r"line 2 is .*; must be a time, a key"):
        read(b"1 a 5\n" + line + b"\n2 b 5\n", strict=True)


def test_a_line_without_end() -> None:
    """A line of megabytes is left out without being held, and the next one is read."""
    found = read(b"1 " + b"k" * 3_000_000 + b" 5\n2 b 5\n")
    assert "longer than 65,536 bytes" in cast("str", found[0])
    assert found[1:] == [(2, b"b", 5)]


def test_a_plain_cache_and_one_with_admission() -> None:
    """By hand: room for two objects; x, y and z come once and push nothing out with admission."""
    comparison = replay("ababxaybzab", 20)
    plain, admitted = comparison.outcomes()
    assert (plain.hits, plain.writes) == (2, 9)
    assert (admitted.hits, admitted.writes) == (4, 2)
    assert admitted.byte_hit_ratio == admitted.hit_ratio == pytest.approx(4 / 11)
    assert admitted.filter_bytes > 0
    assert comparison.one_hit_share == pytest.approx(3 / 5)
    assert comparison.as_dict()["objects"] == 5


def test_first_requests_fade_by_the_traces_time() -> None:
    """With a window, a second request that comes too late is a first."""
    options: dict[str, Any] = {"window": "4s", "capacity": 100}
    assert replay("abca", 100, **options).outcomes()[1].writes == 1
    assert replay("abcdefghijklma", 100, **options).outcomes()[1].writes == 0


def test_sizes_of_a_cache() -> None:
    """The least recently used goes first; what is larger than the cache is refused."""
    cache = LruSizes(20)
    cache[b"a"], cache[b"b"] = 10, 10
    assert cache[b"a"] == 10
    cache[b"c"] = 5
    assert (b"a" in cache, b"b" in cache, b"c" in cache) == (True, False, True)
    with pytest.raises(ValueError, match="too large"):
        cache[b"d"] = 21
    cache[b"a"] = 15  # another size of the same
    assert b"c" in cache
    cache[b"e"] = 20
    assert (b"a" in cache, b"c" in cache, cache.writes) == (False, False, 5)


@pytest.mark.parametrize("sizes", [[], [0], [10, -1]])
def test_sizes_are_above_0(sizes: list[int]) -> None:
    """A cache without room is refused."""
    with pytest.raises(errors.InvalidParameter, match="must be bytes above 0"):
        TraceComparison(sizes)

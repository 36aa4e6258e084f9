"""A guard's answers: who gives them, in which order, for how long, and what it refuses."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from bloomery import BloomFilter, FilterBank, errors
from bloomery.boottime import boottime
from bloomery.guard import AsyncGuard, CallSource, Guard, guarded
from bloomery.guard.options import Options
from conftest import require
from privates import core_of
from unit.guard.table import Coroutines, Line, Memory, Table

Made = Callable[..., Any]


def filter_of(*keys: Any) -> BloomFilter:
    """A filter that has these keys, and hardly errs."""
    filter = BloomFilter(1000, 1e-6)
    filter.update(keys)
    return filter


def test_a_no_asks_nobody_else(guard_of: Made) -> None:
    """The filter's no is the answer: neither cache nor source hear of it."""
    table, cache = Table({"a": 1}), Memory()
    guard = guard_of(filter_of("a"), table, cache=cache)
    assert (guard.get("b").by, guard.get("b").found, guard.get("b").confirmed) == (
        "filter",
        False,
        True,
    )
    assert [answer.by for answer in guard.get_many(["b", "c"])] == ["filter"] * 2
    assert (table.asked, cache.asked) == ([], 0)


def test_a_maybe_goes_to_the_cache_then_to_the_source(guard_of: Made) -> None:
    """The source is asked once; then the cache answers, for the absent key too."""
    table = Table({"a": 1})
    guard = guard_of(filter_of("a", "gone"), table, cache=Memory())
    assert (guard.get("a").value, guard.get("a").by) == (1, "cache")
    assert [(answer.found, answer.by) for answer in guard.get_many(["gone", "a", "no"])] == [
        (False, "source"),
        (True, "cache"),
        (False, "filter"),
    ]
    assert (guard.get("gone").found, guard.get("gone").by) == (False, "cache")
    assert table.asked == [["a"], ["gone"]]


def test_answers_stand_where_their_keys_stood(guard_of: Made) -> None:
    """A batch with repetitions has an answer for each, and one question for all of them."""
    table = Table({n: n * n for n in range(5)})
    guard = guard_of(filter_of(*range(5)), table)
    keys = [3, 99, 1, 3, 98, 1, 0]
    assert [answer.value for answer in guard.get_many(keys)] == [9, None, 1, 9, None, 1, 0]
    assert table.asked == [[3, 1, 0]]
    assert guard.get_many([]) == []
    assert [bool(answer) for answer in guard.contains_many(iter([1, 99]))] == [True, False]
    assert bool(guard.contains(1)) is True


def test_str_and_bytes_of_the_same_text_are_one_key(guard_of: Made) -> None:
    """They are for the filters, and so for the cache, for a batch and for a write."""
    asked = []

    def one(key: str | bytes) -> int:
        asked.append(key)
        return 1

    guard = guard_of(filter_of("a"), CallSource(one, add=lambda *_: True), cache=Memory())
    assert [answer.value for answer in guard.get_many(["a", b"a", bytearray(b"a")])] == [1, 1, 1]
    assert guard.get(memoryview(b"a")).by == "cache"
    assert len(asked) == 1
    guard.add(b"a", 2)
    assert guard.get("a").by == "source"


@pytest.mark.slow
def test_batches_of_arrays_and_columns(guard_of: Made) -> None:
    """NumPy and Arrow batches have Python's own keys for the source."""
    numpy, arrow = require("numpy"), require("pyarrow")
    table = Table({1: "one", "a": "A"})
    guard = guard_of(filter_of(1, "a"), table)
    assert [a.value for a in guard.get_many(numpy.array([1, 2], "int64"))] == ["one", None]
    assert [a.value for a in guard.get_many(numpy.array(["a", "b"]))] == ["A", None]
    assert [a.value for a in guard.get_many(arrow.array(["b", "a"]))] == [None, "A"]
    assert {type(key) for keys in table.asked for key in keys} == {int, str}


@pytest.mark.parametrize("batch", ["abc", b"abc", memoryview(b"abc"), 5, None, "times", "floats"])
def test_what_is_no_batch_is_refused(guard_of: Made, batch: Any) -> None:
    """The same things that a filter refuses, with the same error."""
    numpy = require("numpy")
    if batch == "times":
        batch = numpy.array(["2026-01-01"], "M8[ns]")
    elif batch == "floats":
        batch = numpy.array([1.5])
    guard = guard_of(filter_of("a"), Table())
    with pytest.raises(errors.UnsupportedBatch, match="is not a batch of keys"):
        guard.get_many(batch)


def test_what_is_no_key_is_refused(guard_of: Made) -> None:
    """One key or one of many: the error names what a key can be."""
    guard = guard_of(filter_of("a"), Table())
    for ask, given in ((guard.get, 1.5), (guard.get_many, ["a", 1.5]), (guard.add, [])):
        with pytest.raises(errors.UnsupportedKey, match="cannot be a key"):
            ask(given)
    assert core_of(guard).writers.under_way() == []


def test_a_cached_answer_is_served_for_its_ttl(guard_of: Made) -> None:
    """A value for `ttl`, an absent key for `negative_ttl`; then the source is asked again."""
    table, cache = Table({"a": 1}), Memory()
    guard = guard_of(filter_of("a", "gone"), table, cache=cache, ttl=60, negative_ttl=10, jitter=0)
    guard.get_many(["a", "gone"])
    cache.age(9)
    assert [answer.by for answer in guard.get_many(["a", "gone"])] == ["cache", "cache"]
    cache.age(2)
    assert [answer.by for answer in guard.get_many(["a", "gone"])] == ["cache", "source"]
    cache.age(51)
    assert guard.get("a").by == "source"


@pytest.mark.parametrize("option", ["ttl", "negative_ttl"])
def test_a_ttl_of_0_caches_nothing(guard_of: Made, option: str) -> None:
    """Values and absent keys each have their own."""
    cache = Memory()
    guard = guard_of(filter_of("a", "gone"), Table({"a": 1}), cache=cache, **{option: 0})
    guard.get_many(["a", "gone"])
    assert (cache.of("a") is None, cache.of("gone") is None) == (
        option == "ttl",
        option == "negative_ttl",
    )


def test_jitter_only_ever_shortens() -> None:
    """The ends of TTLs are spread over a tenth, none later than promised; stale ones are kept."""
    options, now = Options(ttl=100, jitter=0.1, on_outage="stale", stale_for=50), boottime()
    entries = [entry for _ in range(200) if (entry := options.cached(True, 1)) is not None]
    took = boottime() - now
    ends = [entry.fresh_until - now for entry in entries]
    assert 90 <= min(ends) < 92 + took
    assert 98 < max(ends) <= 100 + took
    assert all(entry.keep_until == entry.fresh_until + 50 for entry in entries)


def test_info_tells_who_answered(guard_of: Made) -> None:
    """Ready for JSON: a count for each who can answer, queries, and how the source is."""
    table, cache = Table({"a": 1}), Memory()
    guard = guard_of(filter_of("a", "gone"), table, cache=cache, on_outage="stale", failures=1)
    guard.get_many(["a", "gone", "no"])
    guard.get("a")
    guard.get("no")
    cache.age(1000)
    table.problem = ConnectionError("refused")
    assert guard.get("a").by == "stale"
    told = json.loads(json.dumps(guard.info()))
    assert told["answers"] == {"filter": 2, "cache": 1, "source": 2, "stale": 1, "unconfirmed": 0}
    assert (told["queries"], told["source_failures"], told["source"]) == (2, 1, "open")
    assert told["source_down_since"] > 1e9
    assert (told["false_positives"], told["true_negatives"]) == (1, 1)
    assert told["observed_low"] < told["observed_error_rate"] == 0.5 < told["observed_high"]
    assert (told["cache_failures"], told["on_outage"], told["rebuilding"]) == (0, "stale", False)


def test_a_decorated_function_is_called_as_before() -> None:
    """It is asked for what may be there, and not again while the cache knows; it keeps its name."""
    asked = []

    @guarded(filter_of("a"), cache=Memory(), ttl=60)
    def user(name: str) -> str | None:
        """Look up."""
        asked.append(name)
        return name.upper()

    assert [user("a"), user("a"), user("b")] == ["A", "A", None]
    assert asked == ["a"]
    assert (user.__name__, user.__doc__) == ("user", "Look up.")
    assert user.guard.info()["answers"]["cache"] == 1  # type: ignore[attr-defined]


def test_a_decorated_coroutine_is_awaited_as_before() -> None:
    """The same for asyncio."""
    asked = []

    @guarded(filter_of("a"), cache=Memory())
    async def user(name: str) -> str | None:
        asked.append(name)
        return name.upper()

    async def main() -> list[str | None]:
        return [await user("a"), await user("a"), await user("b")]

    assert asyncio.run(main()) == ["A", "A", None]
    assert asked == ["a"]


@pytest.mark.parametrize("policy", ["maybe", "queue"])
def test_a_decorated_function_cannot_answer_without_a_value(policy: Any) -> None:
    """A policy that has no value to return is refused."""
    with pytest.raises(errors.InvalidParameter, match=f"on_outage is '{policy}'"):
        guarded(filter_of(), on_outage=policy)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"filter": {"a"}}, "filter is a set, must have contains_many"),
        ({"filter": FilterBank()}, "filter is a FilterBank"),
        ({"source": 5}, "one is a int, must be a function"),
        ({"source": None}, "a source needs a function that looks up"),
        ({"cache": 5}, "cache is a int, must have get_many"),
        ({"queue": 5, "on_outage": "queue"}, "queue is a int, must have put"),
        ({"on_answer": 5}, "on_answer is a int, must be a function"),
        ({"on_outage": "queue"}, "needs a queue=…"),
        ({"queue": Line()}, "a queue is only used with on_outage='queue', not 'raise'"),
        ({"on_outage": "panic"}, "on_outage is 'panic', must be one of raise, stale, queue, maybe"),
        ({"ttl": -1}, "ttl is -1, must be a number from 0 up"),
        ({"ttl": float("nan")}, "ttl is nan"),
        ({"ttl": float("inf")}, "ttl is inf"),
        ({"ttl": True}, "ttl is True"),
        ({"negative_ttl": "1"}, "negative_ttl is '1'"),
        ({"jitter": 1}, "jitter is 1, must be at least 0 and below 1"),
        ({"timeout": 0}, "timeout is 0, must be a number from 0.001 up"),
        ({"failures": 0}, "failures is 0, must be a number from 1 up"),
        ({"failures": 1.5}, "failures is 1.5, must be a whole number"),
        ({"max_queries": 0}, "max_queries is 0"),
        ({"window": 0}, "window is 0"),
    ],
)
@pytest.mark.parametrize("made", [Guard, AsyncGuard])
def test_a_bad_parameter_is_one_clear_error(made: Any, options: Any, says: str) -> None:
    """What was given, and what is right."""
    with pytest.raises(errors.InvalidParameter) as raised:
        made(**{"filter": filter_of(), "source": Table(), **options})
    assert says in str(raised.value)


@pytest.mark.parametrize("part", ["source", "function", "cache"])
def test_what_is_for_asyncio_is_refused_by_a_guard_for_threads(part: str) -> None:
    """When it is made, and not when it is first used."""

    async def one(key: Any) -> None: ...

    slow: Any = Coroutines(Table())
    given: dict[str, Any] = {"source": Table(), "cache": Memory()}
    given |= {"source": one} if part == "function" else {part: slow}
    with pytest.raises(errors.InvalidParameter, match="is for asyncio: use AsyncGuard"):
        Guard(filter_of(), **given)


def test_plain_functions_serve_an_async_guard() -> None:
    """Of one key and of many; the event loop goes on while they are asked."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        seen = asyncio.Event()

        def many(keys: Sequence[str]) -> dict[str, str]:
            # Answered by the loop: it would wait for ever if it were asked on the loop.
            asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result(10)
            loop.call_soon_threadsafe(seen.set)
            return {key: key.upper() for key in keys}

        guard = AsyncGuard(filter_of("a", "b"), CallSource(many=many), cache=Memory())
        assert [answer.value for answer in await guard.get_many(["a", "b"])] == ["A", "B"]
        await seen.wait()

    asyncio.run(main())


def test_one_and_many_share_the_questions() -> None:
    """A single key goes to `one`, several to `many`."""
    source = CallSource(lambda key: "one", many=lambda keys: dict.fromkeys(keys, "many"))
    guard = Guard(filter_of("a", "b"), source)
    assert guard.get("a").value == "one"
    assert [answer.value for answer in guard.get_many(["a", "b"])] == ["many", "many"]

"""The cache in the process."""

import sys
import threading

import pytest

from bloomery.boottime import boottime
from bloomery.errors import InvalidParameter
from bloomery.guard import LocalCache
from bloomery.guard.caches import local
from bloomery.guard.protocols import Cached
from conftest import require

require("cachetools")


def held(value: object, seconds: float = 60.0) -> Cached:
    """An entry that is kept for so long."""
    return Cached(True, value, boottime() + seconds / 2, boottime() + seconds)


def test_it_returns_what_it_holds() -> None:
    """Each key gets its own entry, None where there is none, in the order asked."""
    cache, entry = LocalCache(), held({"name": "Alice"})
    nothing = Cached(False, None, boottime() + 9, boottime() + 9)
    cache.set_many([(b"a", entry), (b"b", nothing)])
    assert cache.get_many([b"b", b"x", b"a"]) == [nothing, None, entry]
    cache.delete_many([b"a", b"x"])
    assert cache.get_many([b"a", b"b"]) == [None, nothing]


def test_the_least_recently_asked_goes_first() -> None:
    """A full cache drops what was not asked for, and never holds more than its capacity."""
    cache = LocalCache(3)
    cache.set_many([(name, held(1)) for name in (b"a", b"b", b"c")])
    cache.get_many([b"a"])
    cache.set_many([(b"d", held(1))])
    assert [entry is not None for entry in cache.get_many([b"a", b"b", b"c", b"d"])] == [
        *(True, False, True, True)
    ]
    cache.set_many([(b"%d" % n, held(n)) for n in range(1000)])
    assert len(cache) == 3
    assert repr(cache) == "<LocalCache 3 of 3>"


def test_an_entry_ends_with_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is past its time is not returned, and no longer counts."""
    now = [1000.0]
    for module in (local, sys.modules[__name__]):
        monkeypatch.setattr(module, "boottime", lambda: now[0])
    cache = LocalCache()
    cache.set_many([(b"a", held(1, 10)), (b"b", held(1, 1000))])
    assert None not in cache.get_many([b"a", b"b"])
    now[0] += 10
    assert [entry is not None for entry in cache.get_many([b"a", b"b"])] == [False, True]
    assert len(cache) == 1


def test_an_expired_entry_replaces_a_held_one() -> None:
    """Setting what is over leaves nothing of what was there."""
    cache = LocalCache()
    cache.set_many([(b"a", held(1))])
    cache.set_many([(b"a", held(2, -1))])
    assert cache.get_many([b"a"]) == [None]


def test_threads_may_share_it() -> None:
    """Threads that read, write and delete at once meet no error, and the bound holds."""
    cache, problems = LocalCache(50), []

    def work(start: int) -> None:
        try:
            for number in range(start, start + 300):
                name = b"%d" % (number % 120)
                cache.set_many([(name, held(name))])
                for entry in cache.get_many([name, b"1", b"2"])[:1]:
                    assert entry is None or entry.value == name
                cache.delete_many([b"%d" % (number % 7)])
        except BaseException as problem:  # noqa: BLE001  # shown below
            problems.append(problem)

    threads = [threading.Thread(target=work, args=(start,)) for start in (0, 40, 80, 120)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
    assert len(cache) <= 50


@pytest.mark.parametrize("capacity", [0, -1, 1.5, True, "9", 10**10])
def test_a_capacity_must_be_a_number_of_entries(capacity: int) -> None:
    """A capacity that is none is refused."""
    with pytest.raises(InvalidParameter, match=r"capacity is .*, must be an int from 1"):
        LocalCache(capacity)


def test_what_is_cleared_does_not_come_back() -> None:
    """Nothing is held, and a token that was given before is good for nothing."""
    cache = LocalCache(10)
    (before,) = cache.lease_many([b"a"])
    held = Cached(True, 1, boottime() + 60, boottime() + 60)
    cache.set_many([(b"b", held)])
    cache.clear()
    cache.set_many([(b"a", Cached(True, 1, held.fresh_until, held.keep_until, before))])
    assert cache.get_many([b"a", b"b"]) == [None, None]
    (after,) = cache.lease_many([b"a"])
    cache.set_many([(b"a", Cached(True, 2, held.fresh_until, held.keep_until, after))])
    assert [one and one.value for one in cache.get_many([b"a", b"b"])] == [2, None]

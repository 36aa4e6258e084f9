"""Plans of every kind, beside filters that are made."""

from typing import Any

import pytest

from bloomery import (
    BloomFilter,
    CountingBloomFilter,
    CuckooFilter,
    DeletableBloomFilter,
    FilterBank,
    RotatingBloomFilter,
    ScalableBloomFilter,
    StaticFilter,
    sizing,
)
from bloomery.errors import InvalidParameter
from bloomery.filters import RedisBloomFilter, RedisCuckooFilter
from bloomery.sizing.family import KINDS, FamilyPlan, plan_kind, solve_kind

MAKE: dict[str, Any] = {
    "bloom": BloomFilter,
    "scalable": ScalableBloomFilter,
    "counting": CountingBloomFilter,
    "deletable": DeletableBloomFilter,
    "cuckoo": CuckooFilter,
    "rotating": RotatingBloomFilter,
}
OPTIONS: list[tuple[str, dict[str, Any]]] = [
    ("bloom", {}),
    ("bloom", {"layout": "classic"}),
    ("scalable", {}),
    ("counting", {}),
    ("counting", {"counter_bits": 8}),
    ("deletable", {}),
    ("cuckoo", {}),
    ("cuckoo", {"grow": True}),
    ("rotating", {}),
    ("rotating", {"generations": 30}),
]


@pytest.mark.parametrize(("kind", "options"), OPTIONS)
def test_a_plan_is_what_the_filter_takes(kind: str, options: dict[str, Any]) -> None:
    """Memory is that of the filter, and the error rate after some keys is what it estimates."""
    for capacity in (1, 7, 100, 2_500, 60_000):
        for rate in (0.2, 0.01, 1e-4):
            plan = plan_kind(kind, capacity, rate, **options)
            filter = MAKE[kind](capacity, rate, **options)
            assert filter.nbytes == plan.nbytes, (capacity, rate)
            assert plan.rate_at(0) == 0.0
            assert plan.rate_at(capacity) == plan.expected_error_rate
            assert plan.expected_error_rate <= rate * 1.05
            if capacity >= 2_500:
                filter.update(range(capacity // 2))
                expected = plan.rate_at(capacity // 2)
                assert filter.estimated_error_rate == pytest.approx(expected, rel=0.25, abs=1e-7)


@pytest.mark.parametrize("count", [1, 10, 5_000, 50_000])
def test_a_static_plan_is_what_it_takes(count: int) -> None:
    """A static filter takes what was planned, or 3% more if building it took more attempts."""
    for rate in (0.1, 0.01, 1e-5):
        plan = plan_kind("static", count, rate)
        nbytes = StaticFilter.build(range(count), rate).nbytes
        assert plan.nbytes <= nbytes <= plan.nbytes * 1.03 + 64


@pytest.mark.parametrize(("keys", "users"), [(20, 2000), (1_000, 50), (5_000, 20)])
def test_a_bank_takes_about_what_was_planned(keys: int, users: int) -> None:
    """A bank of users with as many keys as planned takes a tenth more or less."""
    bank = FilterBank(0.01, keys)
    for user in range(users):
        bank.update(user, range(user * keys, (user + 1) * keys))
    plan = plan_kind("bank", keys * users, 0.01, keys_per_filter=keys)
    assert plan.options["users"] == users
    assert bank.nbytes == pytest.approx(plan.nbytes, rel=0.1)


def test_a_bank_of_very_large_users() -> None:
    """Is planned at once, and takes about as many bits a key as one of smaller users."""
    plan = plan_kind("bank", 10**11, 0.01, keys_per_filter=10**9)
    assert plan.options["users"] == 100
    assert 8 < plan.bits_per_key < 14


def test_plans_of_redisbloom_are_its_own() -> None:
    """Hashes, memory but for the head, and the error rate are those of RedisBloom's filters."""
    for capacity in (100, 12_345, 200_000):
        for rate in (0.1, 0.01, 0.001):
            plan, made = plan_kind("redisbloom", capacity, rate), RedisBloomFilter(rate, capacity)
            [layer] = made.layers()
            assert (plan.num_hashes, plan.num_bits) == (layer["num_hashes"], layer["num_bits"])
            assert 0 <= made.nbytes - plan.nbytes <= 256
            assert plan.expected_error_rate <= rate
        cuckoo = RedisCuckooFilter(capacity)
        assert 0 <= cuckoo.nbytes - plan_kind("rediscuckoo", capacity, 0.02).nbytes <= 256
    with pytest.raises(InvalidParameter, match="fingerprints of 8 bits"):
        plan_kind("rediscuckoo", 1_000, 0.001)


@pytest.mark.parametrize("kind", KINDS)
def test_memory_gives_the_rest(kind: str) -> None:
    """With memory and one more, the plan fits, and a little more of the other does not."""
    memory, rate = 200_000, 0.05
    most = solve_kind(kind, memory=memory, error_rate=rate)
    assert most.nbytes <= memory
    if kind != "rotating":  # whose table has few sizes
        assert most.nbytes > 0.6 * memory
    more = plan_kind(kind, int(most.capacity * 1.01) + 64, rate)
    assert more.nbytes > memory
    lowest = solve_kind(kind, memory=memory, capacity=20_000)
    assert lowest.nbytes <= memory
    assert lowest.expected_error_rate <= lowest.error_rate * 1.05
    if lowest.error_rate > 1e-8 and kind != "rediscuckoo":
        assert plan_kind(kind, 20_000, lowest.error_rate / 2).nbytes > memory


def test_the_plain_filter_is_solved_as_ever() -> None:
    """What `solve` says of any two or three is what `solve_kind` says."""
    given: list[dict[str, Any]] = [
        {"capacity": 10_000, "error_rate": 0.01},
        {"capacity": 10_000, "memory": 20_000},
        {"memory": 20_000, "error_rate": 0.001},
        {"memory": 20_000, "num_hashes": 8},
        {"capacity": 10_000, "num_hashes": 4},
        {"capacity": 10_000, "error_rate": 1e-5, "num_hashes": 8},
        {"capacity": 10_000, "error_rate": 0.01, "memory": 64_000},
    ]
    for layout in ("blocked", "classic"):
        for each in given:
            solved = solve_kind("bloom", **each, layout=layout)
            plan = sizing.solve(**each, layout=layout)
            for name in ("capacity", "error_rate", "nbytes", "num_bits", "num_hashes"):
                assert getattr(solved, name) == getattr(plan, name)
            assert solved.bits_per_key == plan.bits_per_key
            assert _made(solved) == (plan.num_bits, plan.num_hashes, plan.lines_per_key)


def _made(plan: FamilyPlan) -> tuple[int, int, int]:
    layout = plan.options["layout"]
    if plan.by_shape:
        assert plan.num_hashes is not None
        shape = (plan.num_bits, plan.num_hashes, layout)
        made = BloomFilter.with_shape(
            *shape, lines_per_key=plan.lines_per_key, capacity=plan.capacity
        )
        assert made.capacity == plan.capacity
    else:
        made = BloomFilter(plan.capacity, plan.error_rate, layout=layout)
    return made.num_bits, made.num_hashes, made.lines_per_key


def test_hashes_of_a_counting_filter() -> None:
    """They can be given with a capacity, for which there is room, or with memory."""
    by_count = solve_kind("counting", capacity=10_000, num_hashes=5)
    assert by_count.capacity >= 10_000
    assert by_count.num_hashes == 5
    by_memory = solve_kind("counting", memory=by_count.nbytes, num_hashes=5)
    assert by_memory.as_dict() == by_count.as_dict()
    made = CountingBloomFilter.with_shape(by_count.num_bits, 5)
    assert (made.nbytes, made.capacity) == (by_count.nbytes, by_count.capacity)


@pytest.mark.parametrize(
    ("kind", "given", "message"),
    [
        ("tree", {}, "kind must be one of"),
        ("cuckoo", {"capacity": 10}, "too little"),
        ("cuckoo", {"memory": 1_000}, "too little"),
        ("cuckoo", {"capacity": 10, "num_hashes": 3}, "chooses its hashes itself"),
        ("counting", {"capacity": 10, "error_rate": 0.1, "num_hashes": 3}, "and no more"),
        ("cuckoo", {"capacity": 10, "error_rate": 0.1, "layout": "classic"}, "no option layout"),
        ("cuckoo", {"capacity": 10**6, "memory": 1_000}, "at any error_rate"),
        ("cuckoo", {"capacity": 10**6, "error_rate": 0.1, "memory": 1_000}, "that takes"),
        ("bank", {"memory": 64, "error_rate": 0.01}, "hold no key"),
        ("rotating", {"capacity": 10, "error_rate": 0.1, "generations": 0}, "generations must be"),
        ("cuckoo", {"capacity": 10, "memory": 3}, "memory must be"),
    ],
)
def test_what_cannot_be_planned(kind: str, given: dict[str, Any], message: str) -> None:
    """Says why not."""
    with pytest.raises(InvalidParameter, match=message):
        solve_kind(kind, **given)

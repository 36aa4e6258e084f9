"""A filter's memory made visible: the places that are shown are those that answer."""

import random
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
)
from bloomery.filters.redisbloom import RedisBloomFilter, RedisCuckooFilter
from bloomery.service.http.pages.anatomy import CELLS, anatomy, evidence

SHOWN = {
    "blocked": lambda: BloomFilter(300, 0.2),
    "classic": lambda: BloomFilter(300, 0.2, layout="classic", hasher="murmur3", seed=5),
    "siphash": lambda: BloomFilter(300, 0.2, hasher="siphash", seed=1 << 100),
    "counting": lambda: CountingBloomFilter(300, 0.2),
    "counting in bytes": lambda: CountingBloomFilter(300, 0.2, counter_bits=8),
    "deletable": lambda: DeletableBloomFilter(300, 0.2),
    "cuckoo": lambda: CuckooFilter(300, 0.2),
    "cuckoo that grows": lambda: CuckooFilter(50, 0.2, grow=True),
    "scalable": lambda: ScalableBloomFilter(20, 0.2),
    "rotating": lambda: RotatingBloomFilter(300, 0.2, window="1h"),
}


@pytest.mark.parametrize("make", SHOWN.values(), ids=SHOWN.keys())
def test_the_places_say_what_the_filter_says(make: Any) -> None:
    """A key is a maybe exactly if the places that are shown for it agree: added keys and others,
    false positives among them."""
    filter, numbers = make(), random.Random(1)
    for number in range(250):
        filter.add(f"key {number}")
    wrong = 0
    for key in [
        *(f"key {number}" for number in range(250)),
        *(numbers.random().hex() for _ in range(2000)),
        7,
        ("a", 1),
    ]:
        shown = evidence(filter, key)
        agree = [place["agrees"] for place in shown["places"]]
        assert agree
        assert (all(agree) if shown["all"] else any(agree)) is (key in filter), key
        wrong += key in filter
    assert wrong > 255  # there were false positives to explain


@pytest.mark.parametrize("make", SHOWN.values(), ids=SHOWN.keys())
def test_the_heat_map_is_as_full_as_the_filter(make: Any) -> None:
    """Cells are shares, whose mean is the fill ratio; an empty filter is cold."""
    filter = make()
    assert set(anatomy(filter)["cells"]) == {0.0}
    for number in range(200):
        filter.add(number)
    told = anatomy(filter)
    assert all(0 <= cell <= 1 for cell in told["cells"])
    assert len(told["cells"]) <= CELLS + 1
    mean = sum(told["cells"]) / len(told["cells"])
    assert mean == pytest.approx(filter.fill_ratio, abs=0.12)


def test_a_large_filter_is_sampled() -> None:
    """Of many bytes only some are looked at, and the mean is near the fill all the same."""
    filter = BloomFilter(1_000_000, 0.01)
    filter.add_many(range(500_000))
    told = anatomy(filter)
    assert told["sampled"] < 0.1
    assert len(told["cells"]) <= CELLS
    mean = sum(told["cells"]) / len(told["cells"])
    assert mean == pytest.approx(filter.fill_ratio, abs=0.02)


def test_generations_have_their_share_of_the_keys() -> None:
    """A rotating filter's generations are drawn with the share of the keys that came in each."""
    now = [1_000_000.0]
    filter = RotatingBloomFilter(1000, 0.01, window=60, generations=3, clock=lambda: now[0])
    filter.add_many(range(300))
    now[0] += 20
    filter.add_many(range(1000, 1100))
    told = anatomy(filter)
    assert told["named"] == "generations"
    shares = {part["name"]: part["share"] for part in told["parts"]}
    assert shares["current"] == pytest.approx(0.25, abs=0.01)
    assert shares["1 before"] == pytest.approx(0.75, abs=0.01)
    assert shares["3 before"] == 0


def test_layers_of_redisbloom() -> None:
    """RedisBloom's filters have a row for each layer; their single places are not shown."""
    for filter in (RedisBloomFilter(capacity=100), RedisCuckooFilter(capacity=100)):
        for number in range(500):
            filter.add(b"%d" % number)
        told = anatomy(filter)
        assert (told["named"], len(told["parts"])) == ("layers", filter.info()["num_layers"])
        assert sum(part["share"] for part in told["parts"]) == pytest.approx(1)
        assert evidence(filter, b"1")["places"] == []


def test_a_bank_has_no_map() -> None:
    """A bank has many memories, and shows none."""
    bank = FilterBank(keys_per_filter=100)
    assert anatomy(bank)["cells"] == anatomy(bank)["parts"] == []
    assert evidence(bank, "a\tb")["places"] == []

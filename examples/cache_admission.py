"""A cache that is not flushed by one-hit wonders: what is asked for once is not kept.

In many caches most objects are asked for only once. An `AdmissionCache` keeps an object at its
*second* request: the first only leaves a few bits in a filter that forgets by rotating. A wrong
maybe keeps one object too early, nothing worse.
"""

import random

from cachetools import LRUCache

from bloomery import RotatingBloomFilter
from bloomery.apps import AdmissionCache


def origin(key: int) -> bytes:
    """What is slow, or costs money."""
    return key.to_bytes(8, "little")


def main() -> None:
    rng = random.Random(7)
    # A quarter of the objects are popular, by Zipf's law; the others are asked for once.
    weights = [1 / (rank + 1) ** 0.9 for rank in range(5_000)]
    requests = rng.choices(range(5_000), weights, k=60_000) + list(range(10_000, 25_000))
    rng.shuffle(requests)

    plain: LRUCache[int, bytes] = LRUCache(1_000)
    misses = 0
    for key in requests:
        if key not in plain:
            misses += 1
            plain[key] = origin(key)
        assert plain[key] == origin(key)

    # The last 20,000 objects that were asked for once are remembered, in some 50 kB.
    cache = AdmissionCache(LRUCache(1_000), RotatingBloomFilter(20_000, window=None))
    for key in requests:
        assert cache.get(key, origin) == origin(key)

    counts = cache.info()
    assert counts["hit_ratio"] > 1 - misses / len(requests)
    assert counts["admitted"] < 0.8 * misses
    print(f"plain: {1 - misses / len(requests):.1%} from the cache, {misses:,} writes into it")
    print(
        f"with admission: {counts['hit_ratio']:.1%}, {counts['admitted']:,} writes; "
        f"{counts['passed_by']:,} first requests passed by; filter {cache.filter.nbytes:,} bytes"
    )


if __name__ == "__main__":
    main()

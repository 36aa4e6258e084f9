"""A cache that is not flushed by one-hit wonders: what is asked for once is not kept.

In many caches most objects are requested only once. Admit an object on its *second* request: the
first only leaves a few bits in a filter. A wrong maybe admits one object too early, nothing worse.
"""

import random
from collections import OrderedDict

from bloomery import BloomFilter


class Cache:
    """Least recently used, with an optional filter at the door."""

    def __init__(self, size: int, door: BloomFilter | None = None) -> None:
        self.size, self.door, self.hits, self.writes = size, door, 0, 0
        self.kept: OrderedDict[int, bytes] = OrderedDict()

    def get(self, key: int) -> bytes:
        """Return the object, from the cache if it is there."""
        if key in self.kept:
            self.hits += 1
            self.kept.move_to_end(key)
            return self.kept[key]
        body = key.to_bytes(8, "little")  # from the slow origin
        if self.door is not None and self.door.add(key):
            return body  # definitely the first request: serve it, do not keep it
        self.writes += 1
        self.kept[key] = body
        if len(self.kept) > self.size:
            self.kept.popitem(last=False)
        return body


def main() -> None:
    rng = random.Random(7)
    # A quarter of the requests are for 2,000 popular objects, the others for one never seen again.
    popular = [rng.randrange(2_000) for _ in range(25_000)]
    requests = popular + list(range(10_000, 85_000))
    rng.shuffle(requests)

    plain = Cache(2_000)
    guarded = Cache(2_000, BloomFilter(capacity=77_000, error_rate=0.01))
    for key in requests:
        assert plain.get(key) == guarded.get(key)

    assert guarded.hits > 1.5 * plain.hits
    assert guarded.writes < plain.writes / 10
    share = len(popular) / 100
    for name, cache in (("without a filter", plain), ("with one at the door", guarded)):
        rate = cache.hits / share
        print(f"{name}: {rate:.0f}% of popular requests from cache, {cache.writes:,} writes")


if __name__ == "__main__":
    main()

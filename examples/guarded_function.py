"""A function that asks somebody slow, guarded: what was never there is not asked for.

The decorator is the whole change. The function is called as before, and returns None for what is
not there. It needs pip install 'bloomery[guard]'.
"""

import time

from bloomery import BloomFilter
from bloomery.guard import LocalCache, guarded

NAMES = [f"user{number}" for number in range(10_000)]
known = BloomFilter(capacity=len(NAMES), error_rate=0.01)
known.update(NAMES)
directory = {name: name.title() for name in NAMES}


@guarded(known, cache=LocalCache(1_000), ttl=60)
def full_name(name: str) -> str | None:
    """Ask the directory, which takes its time."""
    time.sleep(0.002)
    return directory.get(name)


def main() -> None:
    began = time.perf_counter()
    asked = [NAMES[number % 50] for number in range(1_000)]
    asked += [f"stranger{number}" for number in range(1_000)]
    answers = [full_name(name) for name in asked]
    took = time.perf_counter() - began

    assert answers == [directory.get(name) for name in asked], "the answers are exact"
    info = full_name.guard.info()  # type: ignore[attr-defined]
    assert info["queries"] < 100
    print(
        f"{len(asked):,} calls took {took:.2f} s; the directory was asked {info['queries']} times"
    )
    print(", ".join(f"{count:,} by {who}" for who, count in info["answers"].items() if count))


if __name__ == "__main__":
    main()

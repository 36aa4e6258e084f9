"""Writes the golden files of RedisBloom's filters: `python tests/golden/make_redisbloom.py`.

They freeze what a server gives out: the parts of a dump, end to end, and the saved file.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from bloomery.filters import RedisBloomFilter, RedisCuckooFilter
from golden.make import FOLDER

HELD = [b"", b"a", bytes(range(256)), *(b"key %d" % n for n in range(200))]
GONE = [b"gone %d" % n for n in range(60)]


def filled(filter: Any) -> Any:
    """The filter with its keys; where that can be, some were removed again."""
    for key in HELD:
        filter.add(key)
    if hasattr(filter, "remove"):
        for key in GONE:
            filter.add(key)
        for key in GONE:
            filter.remove(key)
    return filter


BUILD: dict[str, Callable[[], Any]] = {
    "redisbloom": lambda: filled(RedisBloomFilter()),
    "redisbloom-nonscaling": lambda: filled(RedisBloomFilter(0.001, 300, nonscaling=True)),
    "rediscuckoo": lambda: filled(RedisCuckooFilter(64, 2, 20, 1)),
    "rediscuckoo-expanding": lambda: filled(RedisCuckooFilter(20, 3, 5, 4)),
}


def dump_of(filter: Any) -> bytes:
    """The parts of a dump, end to end."""
    whole, iterator = b"", 0
    while True:
        iterator, part = filter.chunk(iterator)
        if not iterator:
            return whole
        whole += part


def path_of(name: str, ending: str) -> Path:
    """Where a golden file is."""
    return FOLDER / "redisbloom" / f"{name}.{ending}"


def main() -> None:
    """Write all of them."""
    for name, build in BUILD.items():
        filter = build()
        filter.save(path_of(name, "bloom"))
        path_of(name, "dump").write_bytes(dump_of(filter))


if __name__ == "__main__":
    main()

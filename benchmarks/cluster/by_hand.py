"""What people write by hand: k SETBITs or GETBITs a key, in a pipeline of redis-py with hiredis.

Where the bits of a key are is computed before the clock starts:
whoever writes it by hand has to hash as well, so this flatters them.
"""

from __future__ import annotations

from collections.abc import Sequence

import redis

KEY = "by-hand"


def positions(keys: Sequence[str], num_bits: int, num_hashes: int) -> list[list[int]]:
    """Places of so many bits for each key."""
    found = []
    for key in keys:
        one = hash(key) & 0xFFFFFFFFFFFFFFFF
        two = hash((key, 1)) & 0xFFFFFFFFFFFFFFFF | 1
        found.append([(one + i * two) % num_bits for i in range(num_hashes)])
    return found


def added(client: redis.Redis, places: list[list[int]]) -> list[bool]:
    """Add keys; True where one is definitely new."""
    with client.pipeline(transaction=False) as pipeline:
        for some in places:
            for at in some:
                pipeline.setbit(KEY, at, 1)
        bits = pipeline.execute()
    each = len(places[0])
    return [not all(bits[i : i + each]) for i in range(0, len(bits), each)]


def found(client: redis.Redis, places: list[list[int]]) -> list[bool]:
    """Ask for keys."""
    with client.pipeline(transaction=False) as pipeline:
        for some in places:
            for at in some:
                pipeline.getbit(KEY, at)
        bits = pipeline.execute()
    each = len(places[0])
    return [all(bits[i : i + each]) for i in range(0, len(bits), each)]

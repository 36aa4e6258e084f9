"""Programs and nodes share filters: what a program adds, the nodes know."""

from pathlib import Path
from typing import Any

import pytest

from bloomery import BloomFilter
from bloomery.errors import InvalidParameter
from conftest import require
from integration.nodes.fleet import Fleet
from integration.servers import RedisServer, wait_until

require("redis")
from bloomery.integrations.redis import RedisFilter  # noqa: E402
from bloomery.integrations.redis.bf.create import planned_bf  # noqa: E402


def known(fleet: Fleet, keys: list[str]) -> bool:
    """Whether every node's own copy has all of them."""
    for number in range(len(fleet.nodes)):
        with fleet.client(number) as node:
            found: Any = node.execute_command("BF.MEXISTS", "seen", *keys)
            if not all(found):
                return False
    return True


def test_what_a_program_adds_or_merges_comes_to_the_nodes(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    """By hashes, or where there are none by loading the bits; but the whole filter is theirs."""
    with Fleet(tmp_path, redis_server.url, nodes=2) as fleet:
        with fleet.client(0) as node:
            node.execute_command("BF.RESERVE", "seen", 0.01, 10_000)
        with RedisFilter.open(redis_server.url, "seen") as filter:
            keys = [f"added-{number}" for number in range(500)]
            assert list(filter.add_many(keys)).count(True) > 490
            assert wait_until(lambda: known(fleet, keys))
            local = BloomFilter(10_000)
            local.update(f"merged-{number}" for number in range(500))
            filter.merge(local)
            merged = [f"merged-{number}" for number in range(500)]
            assert wait_until(lambda: known(fleet, merged))
            # What a node says to a dump: push it, onto one that nodes have made.
            local.add("pushed")
            RedisFilter.push(local, redis_server.url, "seen").close()
            assert wait_until(lambda: known(fleet, ["pushed"]))
            with RedisFilter.create(redis_server.url, "other", 10_000) as other:
                other.add("joined")
                filter.merge(other)
            assert wait_until(lambda: known(fleet, ["joined"]))
            for refused in (filter.delete, filter.clear, lambda: filter.expire(10)):
                with pytest.raises(InvalidParameter, match="one of nodes"):
                    refused()
        with redis_server.client() as client, fleet.client(1) as node:
            # One of a server's own has no bits that a node could load.
            client.set("{theirs}:config", planned_bf(10_000, 0.01, 1).settled().to_json())
            with pytest.raises(Exception, match="made by a program"):
                node.execute_command("BF.RESERVE", "theirs", 0.01, 10_000)
            with pytest.raises(Exception, match=r"'other' exists in this Redis, made by a program"):
                node.execute_command("BF.RESERVE", "other", 0.01, 10_000)
            assert not client.exists("{theirs}:bits")

"""What clients write at once may be more than an entry of the log has room for: it is several."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import pytest

from integration.nodes.fleet import client_at
from integration.servers import BloomeryServer, RedisServer, Serve

# As it is, with entries of 2,000 bytes instead of 4 MiB. A record of 900 keys is an entry alone.
SMALL = """
import functools, sys
from bloomery.service.replication import cuts, node
from bloomery.service.replication.redis_log import log
node.split_batch = functools.partial(cuts.split_batch, limit=2000)
log.MOST_ENTRY = 12000
from bloomery.cli import main
sys.exit(main(sys.argv[1:]))
"""


class SmallServer(BloomeryServer):
    """A node whose entries have little room."""

    fresh = True

    def command(self) -> list[str]:
        return [sys.executable, "-c", SMALL, *super().command()[3:]]


def commands(seed: int) -> list[tuple[Any, ...]]:
    """Adds and removals, of few keys and of many, in filters of several kinds; some are refused."""
    draw = random.Random(seed)
    made: list[tuple[Any, ...]] = [
        ("BF.RESERVE", "plain", 0.001, 10_000, "KIND", "bloom"),
        ("BF.RESERVE", "short", 0.001, 700, "KIND", "bloom", "ONFULL", "reject"),
        ("BF.RESERVE", "counts", 0.001, 10_000, "KIND", "counting"),
        ("CF.RESERVE", "cells", 4000),
    ]
    for _ in range(150):
        name = draw.choice(["plain", "short", "counts", "cells", "new"])
        door = "CF" if name == "cells" else "BF"
        keys = [f"{draw.randrange(5000)}" for _ in range(draw.choice([1, 5, 900]))]
        made += [
            (f"{door}.ADD", name, keys[0]),
            (f"{door}.MADD", name, *keys) if door == "BF" else (f"{door}.ADDNX", name, keys[0]),
            (f"{door}.DEL", name, keys[0]),
        ]
    return made


@pytest.mark.parametrize("seed", range(2))
def test_every_reply_is_that_of_a_server_alone(
    seed: int, serve: Serve, redis_server: RedisServer, tmp_path: Path
) -> None:
    """In one pipeline: reply for reply, whatever the entries were; and the filters are the same."""
    settings = (f"--set=store={redis_server.url}", "--set=store-bootstrap-seconds=0.1")
    node = SmallServer(tmp_path, *settings)
    node.start()
    told: list[list[Any]] = []
    try:
        for server in (serve(), node):
            with client_at(server.resp_port) as client:
                pipeline = client.pipeline(transaction=False)
                for words in commands(seed):
                    pipeline.execute_command(*words)
                for name in ("plain", "short", "counts", "new"):
                    pipeline.execute_command("BF.CARD", name)
                    pipeline.execute_command("BF.MEXISTS", name, *range(5000))
                told.append([_plain(one) for one in pipeline.execute(raise_on_error=False)])
    finally:
        node.kill()
    assert told[1] == told[0]
    assert any(isinstance(one, list) and isinstance(one[-1], str) for one in told[0])  # refused
    assert "Traceback" not in node.printed()


def _plain(reply: Any) -> Any:
    """A reply that can be compared."""
    if isinstance(reply, list):
        return [_plain(one) for one in reply]
    return str(reply).partition(" of pipeline")[0] if isinstance(reply, Exception) else reply

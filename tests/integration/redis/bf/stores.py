"""What tests of filters behind BF.* share."""

from typing import Any

import privates
from bloomery.integrations.redis import RedisFilter
from bloomery.integrations.redis.bf.filter import BfFilter
from bloomery.integrations.redis.bf.keys import MARK

# Distinct for filters, and some of them alike as text or as bytes.
ODD: list[Any] = [5, "5", (5,), ("5",), -5, 2**80, "", "\x00", b"\xff", MARK, MARK + b"\1\5", "ä"]


def store_of(filter: RedisFilter) -> BfFilter:
    """What does the work, which is BF.*."""
    store = privates.store_of(filter)
    assert isinstance(store, BfFilter)
    return store

"""What tests of filters behind BF.* share."""

from typing import Any

from bloomery.integrations.redis import RedisFilter
from bloomery.integrations.redis.bf.encoding import ESCAPE
from bloomery.integrations.redis.bf.filter import BfFilter

# Distinct for filters, and some of them alike as text or as bytes.
ODD: list[Any] = [
    5,
    "5",
    (5,),
    ("5",),
    -5,
    2**80,
    "",
    "\x00",
    b"\xff",
    ESCAPE,
    ESCAPE + b"\1\5",
    "ä",
]


def store_of(filter: RedisFilter) -> BfFilter:
    """What does the work, which is BF.*."""
    assert isinstance(filter.store, BfFilter)
    return filter.store

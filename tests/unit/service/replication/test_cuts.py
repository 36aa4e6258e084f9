"""A batch that is too large for one entry of the log goes into several, in the same order."""

from __future__ import annotations

import random

import pytest

from bloomery.service.domain.operations import Op, Record
from bloomery.service.replication.cuts import split_batch

LIMIT = 500


@pytest.mark.parametrize("seed", range(20))
def test_parts_are_the_records_in_order(seed: int) -> None:
    """Each record is in one part, whole: an entry is applied at once, and a record with it. A part
    is within the limit, or is a single record."""
    draw = random.Random(seed)
    records: list[Record] = [
        (number, draw.choice([Op.ADD, Op.CHUNK]), draw.randbytes(draw.randrange(2 * LIMIT)))
        for number in range(30)
    ]
    parts = split_batch(records, LIMIT)
    assert [record for part in parts for record in part] == records
    sizes = [sum(len(data) for _, _, data in part) for part in parts]
    assert all(size <= LIMIT or len(part) == 1 for size, part in zip(sizes, parts, strict=True))
    # No part is cut without need: the next record would not have fitted.
    for size, following in zip(sizes, parts[1:], strict=False):
        assert size + len(following[0][2]) > LIMIT


def test_a_batch_within_the_limit_is_one_entry() -> None:
    """So a batch of the usual size is applied as a whole."""
    records: list[Record] = [(1, Op.ADD, bytes(LIMIT // 2)), (2, Op.ADD, bytes(LIMIT // 2))]
    assert split_batch(records, LIMIT) == [records]

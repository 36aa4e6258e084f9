"""A turn that is too large for one entry is done in several, and comes to the same."""

from __future__ import annotations

import random
from typing import Any

import pytest

from bloomery import errors
from bloomery.service.domain.operations import Op, Record
from bloomery.service.replication.cuts import CutTurn


def done(cut: CutTurn, most: int) -> tuple[list[Record], list[Any]]:
    """Do all parts, each with an answer of its bytes: what was done, and what came of it."""
    seen: list[Record] = []
    while (part := cut.next()) is not None:
        assert sum(len(data) for _, _, data in part) <= most or len(part) == 1
        assert all(len(data) % 16 in (0, 8) for _, op, data in part if op == Op.ADD)
        seen += part
        cut.take([_answer(record) for record in part])
        assert cut.is_begun
    return seen, cut.results()


def _answer(record: Record) -> Any:
    number, op, data = record
    if op != Op.ADD:
        return (number, data)
    refused = ("filter-full", f"{data[0]}") if data and data[0] > 200 else None
    return data[::8], refused


@pytest.mark.parametrize("seed", range(20))
def test_what_comes_of_parts_is_what_comes_of_all(seed: int) -> None:
    """Records keep their order and their bytes; answers of a record's pieces are put together, with
    the first refusal."""
    draw = random.Random(seed)
    records: list[Record] = [
        (number, Op.ADD, draw.randbytes(8 * draw.randrange(200)))
        if draw.random() < 0.7
        else (number, Op.CHUNK, draw.randbytes(draw.randrange(2000)))
        for number in range(30)
    ]
    seen, results = done(CutTurn(records, 500), 500)
    joined: dict[int, bytes] = {}
    for number, _, data in seen:
        joined[number] = joined.get(number, b"") + data
    assert joined == {number: data for number, _, data in records}
    assert [number for number, _, _ in seen] == sorted(number for number, _, _ in seen)
    assert all(op == Op.ADD or data == records[number][2] for number, op, data in seen)
    assert len(seen) > len(records)
    for (number, op, data), result in zip(records, results, strict=True):
        if op == Op.CHUNK:
            assert result == (number, data)
        else:
            assert result[0] == data[::8]
            firsts = [data[at] for at in range(0, len(data), 496) if data[at] > 200]
            assert result[1] == (("filter-full", f"{firsts[0]}") if firsts else None)


def test_an_error_of_a_piece_is_that_of_the_record() -> None:
    """Its filter was dropped between two parts: the record is not done, whatever came of others."""
    cut = CutTurn([(1, Op.ADD, bytes(64)), (2, Op.ADD, bytes(8))], 32)
    gone = errors.UnknownFilter("gone")
    assert not cut.is_begun
    for answer in ([(bytes(4), None)], [gone], [(b"\1", None)]):
        assert cut.next() is not None
        cut.take(answer)
    assert cut.next() is None
    assert cut.results() == [gone, (b"\1", None)]

"""What a plan says of an index is what the index then does."""

from typing import Any

import numpy as np
import pytest

from bloomery.errors import InvalidParameter
from conftest import require

pa = require("pyarrow")
from bloomery.signatures import SignatureIndex, plan  # noqa: E402


def test_plan_is_what_happens() -> None:
    """Size, fill and false matches of one, two and three columns are as planned."""
    rng, rows = np.random.default_rng(3), 100_000
    distinct = {"a": 10**6, "b": 100, "c": 10**6, "d": 200}
    columns = {name: rng.integers(0, count, rows) for name, count in distinct.items()}
    index = SignatureIndex.build(pa.table(columns), length=32)
    expected = index.plan(distinct)
    assert expected.nbytes == index.nbytes
    assert index.fill_ratio == pytest.approx(expected.fill_ratio, rel=0.01)
    for names in (["b"], ["b", "d"], ["b", "d", "a"]):
        false = []
        for row in range(0, 4000, 25):
            asked = {name: columns[name][row].item() for name in names}
            equal = np.logical_and.reduce([columns[n] == v for n, v in asked.items()])
            false.append(len(index.candidates(asked)) - int(equal.sum()))
        assert np.mean(false) == pytest.approx(expected.false_matches[len(names)], rel=0.45)


def test_suggestion_lets_few_through() -> None:
    """With the suggested length and bits a question of two columns expects less than one row."""
    for rows in (1000, 10**6, 10**9):
        for columns in (2, 10, 32):
            best = plan(rows, columns)
            again = plan(rows, columns, length=best.suggested_length, bits=best.suggested_bits)
            assert again.false_matches[2] < 1


def test_plan_says_when_something_else_is_better() -> None:
    """One column of many values is for a B-tree, few bits for many rows no better than a scan."""
    assert "a B-tree" in str(plan(1000, 1))
    assert "a plain scan is as fast" in str(plan(10**7, 10, length=16))
    assert "scan" not in str(plan(10**7, {"a": None, "b": None}, length=64, bits=8))


@pytest.mark.parametrize(
    "wrong", [(-1, 2, {}), (1.5, 2, {}), (10, 0, {}), (10, "ab", {}), (10, 2, {"length": 5000})]
)
def test_wrong_plans_are_refused(wrong: tuple[Any, Any, dict[str, Any]]) -> None:
    """Numbers out of range are named."""
    rows, columns, options = wrong
    with pytest.raises(InvalidParameter, match="must be"):
        plan(rows, columns, **options)

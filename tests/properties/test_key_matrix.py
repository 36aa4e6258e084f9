"""Every type of key by every door: the key that the door's own library shows, or a refusal."""

from __future__ import annotations

from typing import Any

import pytest

from bloomery import BloomFilter, CountingBloomFilter, StaticFilter
from bloomery.errors import BloomeryError
from properties.doors import DOORS, KEYS, UUIDS

# pyarrow, pandas, Polars and DuckDB take their time to be imported.
pytestmark = pytest.mark.slow


def taken(filter: Any, batch: Any) -> Any:
    """The filter with the batch in it; None if the batch was refused."""
    try:
        filter.update(batch)
    except BloomeryError:
        return None
    return filter


def _new() -> BloomFilter:
    return BloomFilter(1000, 1e-9)


@pytest.mark.parametrize("name", DOORS)
# What a library says about keys that it would rather not hold is not ours to judge.
@pytest.mark.filterwarnings("ignore")
def test_a_row_is_the_key_that_its_library_shows(name: str) -> None:
    """A batch is refused, or has in it what its keys have one by one: never another key."""
    door = DOORS[name]
    for kind, keys in KEYS.items():
        try:
            batch = door.make(keys)
            shown = door.show(batch)
        except Exception:  # noqa: BLE001  (the library cannot hold such keys)
            assert kind not in door.takes, f"{kind} cannot be held"
            continue
        found, one_by_one = taken(_new(), batch), _new()
        try:
            for key in shown:
                one_by_one.add(key)
        except BloomeryError:
            assert found is None, f"{kind}: keys that are none were taken: {shown}"
            continue
        if kind in door.takes:
            assert found is not None, f"{kind} refused"
        if found is not None:
            assert found == one_by_one, f"{kind}: other keys than {shown}"
            assert all(found.contains_many(batch))
            assert all(key in found for key in shown)


@pytest.mark.parametrize(
    "name", ["pyarrow", "pandas objects", "polars objects", "pandas ArrowDtype"]
)
def test_every_kind_of_filter_has_the_same_rule(name: str) -> None:
    """Filters that need all hashes first, and those behind a gate, read columns in the same way."""
    batch = DOORS[name].make(UUIDS)
    counting = CountingBloomFilter(100, 1e-9)
    counting.update(batch)
    built = StaticFilter.build(batch, 1e-6)
    for filter in (counting, built):
        assert all(key in filter for key in UUIDS)
        assert not any(key.bytes in filter for key in UUIDS)

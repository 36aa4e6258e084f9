"""Which segments are merged, and into what."""

import pytest

from bloomery.segments.store.compaction import merge, next_tier

M = 1 << 20


@pytest.mark.parametrize(
    ("sizes", "tier"),
    [
        ([], None),
        ([5 * M] * 3, None),
        ([5 * M] * 4, range(4)),
        ([5 * M, 6 * M, 4 * M, 5 * M, 80 * M], range(4)),
        ([5 * M, 80 * M, 80 * M, 80 * M, 80 * M], range(1, 5)),
        ([5 * M, 80 * M, 5 * M, 80 * M, 5 * M, 80 * M, 5 * M], None),  # no neighbours
        ([1, 100, 10_000, M], range(4)),  # all are small
        ([20 * M, 80 * M, 320 * M, 1280 * M], None),
    ],
)
def test_neighbours_of_about_one_size_are_a_tier(sizes: list[int], tier: range | None) -> None:
    """Four of them are merged, and never one that lies elsewhere in age."""
    assert next_tier(sizes, 4) == tier


def test_the_newest_value_counts() -> None:
    """Each key comes once, in order."""
    new = [(b"a", b"new"), (b"b", None)]
    old = [(b"a", b"old"), (b"b", b"old"), (b"c", b"old")]
    assert list(merge([new, old], keep_deletions=False)) == [(b"a", b"new"), (b"c", b"old")]
    kept = [(b"a", b"new"), (b"b", None), (b"c", b"old")]
    assert list(merge([new, old], keep_deletions=True)) == kept

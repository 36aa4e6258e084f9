"""Words to try: fruit first, since a person reads those, and then as many as are wanted."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

_FRUIT = """
    kiwi mango fig lemon grape melon peach plum orange pear lime date quince papaya apricot avocado
    blackberry blueberry boysenberry cantaloupe clementine coconut cranberry currant damson
    dragonfruit elderberry gooseberry grapefruit guava jackfruit kumquat lychee mandarin mulberry
    nectarine olive passionfruit persimmon pineapple pomegranate pomelo raspberry redcurrant
    strawberry tamarind tangerine watermelon yuzu apple banana cherry
"""


def candidates(most: int) -> Iterator[str]:
    """So many words, all different."""
    return islice(_words(most), most)


def _words(most: int) -> Iterator[str]:
    yield from _FRUIT.split()
    for number in range(most):
        yield f"word {number}"

"""What is compared in a corpus, and what follows from it: keys, bands, error rates."""

from __future__ import annotations

import hashlib
import math
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, Literal, TypeAlias

from bloomery import _native
from bloomery.errors import IncompatibleFilters, InvalidParameter
from bloomery.filters import BloomFilter
from bloomery.sizing import MIN_ERROR_RATE, check_error_rate

By: TypeAlias = Literal["document", "paragraph", "ngram", "near"]
Unit: TypeAlias = Literal["document", "paragraph"]

BYS = ("document", "paragraph", "ngram", "near")
# A wrong maybe removes text that came once. Of n-grams most of a unit's must be wrong at once, and
# there are as many as words: 16 bits a word instead of 31.
ERROR_RATES = {"document": 1e-6, "paragraph": 1e-6, "ngram": 1e-3, "near": 1e-6}
WORDS = {"ngram": 13, "near": 5}
THRESHOLD = 0.8
PLACES = 128  # of a MinHash signature, unless bands and rows are given
_MOST_WORDS = 1000


@dataclass(frozen=True)
class Comparison:
    """By what two texts are the same."""

    by: By
    unit: Unit
    words: int = 0
    threshold: float = 1.0
    bands: int = 0
    rows: int = 0
    field: str = "text"

    def splitter(self) -> _native.CorpusSplitter:
        """Return the native half."""
        return _native.CorpusSplitter(
            self.field,
            paragraphs=self.unit == "paragraph",
            words=self.words,
            share=self.threshold,
            bands=self.bands,
            rows=self.rows,
        )

    def filter(self, capacity: int, error_rate: float) -> BloomFilter:
        """Return an empty filter for so many units (of n-grams: so many n-grams), of which a new
        one is taken for a duplicate at this rate."""
        keys = capacity * max(1, self.bands)
        return BloomFilter(keys, self.key_rate(error_rate), seed=self.seed)

    def key_rate(self, error_rate: float) -> float:
        """Return how often a key may err, so that a unit errs at this rate: any band can."""
        if not self.bands:
            return error_rate
        return max(MIN_ERROR_RATE, -math.expm1(math.log1p(-error_rate) / self.bands))

    @property
    def seed(self) -> int:
        """The seed of a filter for this comparison: by it a filter of another one is told apart,
        whose answers would mean nothing here."""
        facts = {**asdict(self), "field": "", "threshold": 0}  # these may differ from run to run
        text = repr(sorted(facts.items()))
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")

    def check(self, filter: BloomFilter, name: str) -> None:
        """Raise IncompatibleFilters unless the filter was made for this comparison."""
        if filter.seed != self.seed:
            raise IncompatibleFilters(
                f"{name} was not made for {self}: use the options that it was made with, or "
                "another filter"
            )

    def __str__(self) -> str:
        if self.by == "ngram":
            return f"n-grams of {self.words} words by {self.unit}"
        if self.by == "near":
            return f"near-duplicates by {self.bands} bands of {self.rows}, {self.words} words"
        return f"whole {self.by}s"


def comparison(
    by: By = "document",
    *,
    unit: Unit | None = None,
    words: int | None = None,
    threshold: float | None = None,
    bands: int | None = None,
    rows: int | None = None,
    field: str = "text",
) -> Comparison:
    """Check what was asked for, and fill in the rest."""
    if by not in BYS:
        raise InvalidParameter(f"by is {by!r}, must be one of {', '.join(BYS)}")
    given: dict[str, Any] = {"unit": unit, "words": words, "threshold": threshold}
    given |= {"bands": bands, "rows": rows}
    takes = {"ngram": ("unit", "words", "threshold"), "near": ("words", "threshold", *_BANDS)}
    for name, value in given.items():
        if value is not None and name not in takes.get(by, ()):
            raise InvalidParameter(f"{name} is {value!r}: by {by} has none, leave it out")
    if by in ("document", "paragraph"):
        return Comparison(by, "paragraph" if by == "paragraph" else "document", field=field)
    words = _within("words", WORDS[by] if words is None else words, 1, _MOST_WORDS)
    threshold = THRESHOLD if threshold is None else threshold
    if not 0.0 < threshold <= 1.0:
        raise InvalidParameter(f"threshold is {threshold}, must be above 0 and at most 1")
    if by == "ngram":
        if unit not in (None, "document", "paragraph"):
            raise InvalidParameter(f"unit is {unit!r}, must be 'document' or 'paragraph'")
        return Comparison(by, unit or "paragraph", words, threshold, field=field)
    if (bands is None) != (rows is None):
        raise InvalidParameter("bands and rows belong together: give both or neither")
    if bands is None or rows is None:
        bands, rows = best_bands(threshold)
    _within("bands", bands, 1, 1024)
    _within("rows", rows, 1, 64)
    return Comparison(by, "document", words, threshold, bands, rows, field)


_BANDS = ("bands", "rows")


def check_rate(by: By, error_rate: float | str | None) -> float:
    """Return the error rate, or the default of the comparison."""
    return ERROR_RATES[by] if error_rate is None else check_error_rate(error_rate)


def _within(name: str, value: int, least: int, most: int) -> int:
    if not least <= value <= most:
        raise InvalidParameter(f"{name} is {value}, must be from {least} to {most}")
    return value


@lru_cache(maxsize=64)
def best_bands(threshold: float, places: int = PLACES) -> tuple[int, int]:
    """Return how many bands of how many rows tell texts above the threshold best from those below.

    Two texts whose share of common shingles is s meet in one of b bands of r rows with probability
    1 - (1 - s^r)^b. The best b and r have the least area of wrong answers on both sides of the
    threshold.
    """
    steps = [(step + 0.5) / 100 for step in range(100)]

    def wrong(bands: int, rows: int) -> float:
        return sum(
            1.0 - missed if s < threshold else missed
            for s in steps
            for missed in ((1.0 - s**rows) ** bands,)
        )

    pairs = [(b, r) for b in range(1, places + 1) for r in range(1, min(64, places // b) + 1)]
    return min(pairs, key=lambda pair: wrong(*pair))

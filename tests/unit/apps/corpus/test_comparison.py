"""What is compared, and what follows from it."""

from __future__ import annotations

from typing import Any

import pytest

from bloomery import BloomFilter, errors
from bloomery.apps.corpus.comparison import best_bands, check_rate, comparison


def test_each_comparison_has_its_defaults() -> None:
    """As DCLM's bff has n-grams: 13 words, 0.8, by paragraph."""
    assert comparison("document").unit == "document"
    assert comparison("paragraph").unit == "paragraph"
    ngram = comparison("ngram")
    assert (ngram.words, ngram.threshold, ngram.unit) == (13, 0.8, "paragraph")
    near = comparison("near")
    assert (near.words, near.unit, near.bands, near.rows) == (5, "document", *best_bands(0.8))


def test_bands_turn_at_the_threshold() -> None:
    """The chance to meet is near a half there: the curve is steepest about that share."""
    for threshold in (0.5, 0.7, 0.8, 0.9):
        bands, rows = best_bands(threshold)
        assert bands * rows <= 128

        def met(share: float, bands: int = bands, rows: int = rows) -> float:
            return float(1 - (1 - share**rows) ** bands)

        assert met(threshold - 0.2) < 0.2
        assert met(threshold) > 0.25
        assert met(min(1.0, threshold + 0.15)) > 0.85


def test_the_bands_together_err_at_the_rate() -> None:
    """Any of them can be wrong, so each errs so much less."""
    near = comparison("near", bands=16, rows=8)
    rate = near.key_rate(1e-4)
    assert 1 - (1 - rate) ** 16 == pytest.approx(1e-4)
    assert comparison("paragraph").key_rate(1e-4) == 1e-4
    assert comparison("near").key_rate(1e-9) == 1e-9  # no filter errs less
    filter = near.filter(1000, 1e-4)
    assert filter.capacity == 16_000
    assert check_rate("ngram", None) == 1e-3
    assert check_rate("document", "1%") == 0.01


def test_a_filter_of_another_comparison_is_refused() -> None:
    """Its answers would mean nothing; a field or a threshold may differ from run to run."""
    paragraphs = comparison("paragraph").filter(1000, 0.01)
    comparison("paragraph", field="body").check(paragraphs, "it")
    seven = comparison("ngram", words=7).filter(1000, 0.01)
    comparison("ngram", words=7, threshold=0.5).check(seven, "it")
    others = [comparison("document"), comparison("ngram"), comparison("near")]
    others += [comparison("ngram", words=7, unit="document")]
    for other in others:
        with pytest.raises(errors.IncompatibleFilters, match="was not made for"):
            other.check(paragraphs, "it")
        with pytest.raises(errors.IncompatibleFilters, match="was not made for"):
            other.check(seven, "it")
    with pytest.raises(errors.IncompatibleFilters):
        others[0].check(BloomFilter(1000), "it")


@pytest.mark.parametrize(
    ("by", "given", "message"),
    [
        ("line", {}, "by is 'line'"),
        ("document", {"words": 3}, "words is 3: by document has none"),
        ("paragraph", {"threshold": 0.5}, "threshold is 0.5: by paragraph has none"),
        ("ngram", {"bands": 3}, "bands is 3: by ngram has none"),
        ("near", {"unit": "paragraph"}, "unit is 'paragraph': by near has none"),
        ("ngram", {"words": 0}, "words is 0, must be from 1"),
        ("ngram", {"unit": "word"}, "unit is 'word'"),
        ("ngram", {"threshold": 0.0}, "threshold is 0.0, must be above 0"),
        ("near", {"threshold": 1.1}, "threshold is 1.1"),
        ("near", {"bands": 3}, "bands and rows belong together"),
        ("near", {"bands": 0, "rows": 1}, "bands is 0"),
        ("near", {"bands": 1, "rows": 65}, "rows is 65"),
    ],
)
def test_what_cannot_be_is_refused(by: Any, given: dict[str, Any], message: str) -> None:
    """With what was given and what would be right."""
    with pytest.raises(errors.InvalidParameter, match=message):
        comparison(by, **given)

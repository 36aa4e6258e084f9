"""Texts in memory, told apart from those before: for a loop of one's own, or a worker's."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from bloomery.apps.corpus.comparison import By, Comparison, Unit, check_rate, comparison
from bloomery.errors import InvalidParameter
from bloomery.filters import BloomFilter

Span = tuple[int, int, float]


class TextDeduplicator:
    """Finds what of a text came before.

    >>> seen = TextDeduplicator(1_000_000, by="paragraph")
    >>> seen.spans(["A first text.\\nAll rights reserved.", "All rights reserved.\\nA second one."])
    [[], [(0, 21, 1.0)]]
    >>> seen.dedup(["A third text.\\nAll rights reserved.", "A first text."])
    ['A third text.', None]

    `capacity` is how many documents, paragraphs or (by n-grams) n-grams it is made for.
    """

    def __init__(
        self,
        capacity: int | None = None,
        *,
        by: By = "document",
        unit: Unit | None = None,
        words: int | None = None,
        threshold: float | None = None,
        bands: int | None = None,
        rows: int | None = None,
        error_rate: float | str | None = None,
        filter: BloomFilter | None = None,
    ) -> None:
        self.comparison = comparison(
            by, unit=unit, words=words, threshold=threshold, bands=bands, rows=rows
        )
        if (filter is None) == (capacity is None):
            raise InvalidParameter("give a capacity, or a filter that an earlier one had")
        if filter is None:
            assert capacity is not None
            filter = self.comparison.filter(capacity, check_rate(by, error_rate))
        self.comparison.check(filter, "the filter")
        self.filter = filter
        self._splitter = self.comparison.splitter()

    @classmethod
    def of(cls, compared: Comparison, filter: BloomFilter) -> TextDeduplicator:
        """Return one for a comparison that was made before, and a filter of it."""
        options: dict[str, Any] = {}
        if compared.by in ("ngram", "near"):
            options = {"words": compared.words, "threshold": compared.threshold}
        if compared.by == "ngram":
            options |= {"unit": compared.unit}
        if compared.by == "near":
            options |= {"bands": compared.bands, "rows": compared.rows}
        return cls(by=compared.by, filter=filter, **options)

    def spans(self, texts: Sequence[str], *, add: bool = True) -> list[list[Span]]:
        """Return for each text the spans of characters that came before, each with the newline
        behind it and the share of its keys that was seen; what is new goes in, unless it is not to
        `add`."""
        spans, _ = self._splitter.texts(self.filter, list(texts), add=add)
        return spans

    def dedup(self, texts: Sequence[str], *, add: bool = True) -> list[str | None]:
        """Return the texts without what came before; None where nothing but blanks is left."""
        duplicate_spans = self.spans(texts, add=add)
        return [
            _cut(text, spans) if spans else text
            for text, spans in zip(texts, duplicate_spans, strict=True)
        ]

    def signature(self, text: str) -> list[int]:
        """Return the MinHash signature of a text, for near-duplicates; empty if it has no words."""
        return self._splitter.signature(self.filter, text)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the filter, for `filter=BloomFilter.load(path)` or `bloomery corpus --filter`."""
        self.filter.save(path)


def _cut(text: str, spans: list[Span]) -> str | None:
    pieces = []
    at = 0
    for start, end, _ in spans:
        pieces.append(text[at:start])
        at = end
    left = "".join((*pieces, text[at:]))
    if not left.strip():
        return None
    # The newline in front of a last paragraph that goes goes with it.
    return left.removesuffix("\n") if at == len(text) else left

"""Texts in memory."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bloomery import BloomFilter, errors
from bloomery.apps.corpus import TextDeduplicator
from unit.apps.corpus.jsonl import without_seen_paragraphs

WORDS = st.text("ab \n\t\x00é😀", max_size=12)


@given(st.lists(WORDS, max_size=20))
def test_paragraphs_are_as_an_exact_set_has_them(texts: list[str]) -> None:
    """Whatever characters they have; what is left of a text is joined again."""
    seen = TextDeduplicator(10_000, by="paragraph", error_rate=1e-9)
    left = [text for text in seen.dedup(texts) if text is not None]
    assert left == without_seen_paragraphs(texts, set())


@given(st.lists(WORDS, max_size=20))
def test_documents_are_as_an_exact_set_has_them(texts: list[str]) -> None:
    """A text comes out the first time, one without anything in it too."""
    seen = TextDeduplicator(10_000, error_rate=1e-9)
    known: set[str] = set()
    for text, left in zip(texts, seen.dedup(texts), strict=True):
        assert left == (None if text in known else text)
        known.add(text)


def test_a_share_of_ngrams_is_enough() -> None:
    """Of ten 3-grams eight; without regard to case and punctuation."""
    seen = TextDeduplicator(10_000, by="ngram", words=3, unit="document")
    words = [f"w{n}" for n in range(15)]
    assert seen.spans([" ".join(words[:12])]) == [[]]
    changed = ", ".join(words[2:14]).upper()
    assert seen.spans([changed]) == [[(0, len(changed), 0.8)]]
    assert seen.spans([" ".join(words[3:])]) == [[]]


def test_near_duplicates_are_found_by_a_band() -> None:
    """A text with a few other words is found; one with many others is not."""
    rng = random.Random(4)
    words = [f"w{rng.randrange(10**6)}" for _ in range(400)]
    seen = TextDeduplicator(1000, by="near", threshold=0.7)
    assert seen.spans([" ".join(words)]) == [[]]
    for place in (50, 300):
        words[place] = "other"
    near = " ".join(words)
    assert [len(spans) for spans in seen.spans([near], add=False)] == [1]
    far = " ".join(word if n % 3 else "other" for n, word in enumerate(words))
    assert seen.spans([far]) == [[]]
    assert seen.spans(["", "...", "\n"]) == [[], [], []]
    same = [a == b for a, b in zip(*(map(seen.signature, (near, near.upper()))), strict=True)]
    assert len(same) == seen.comparison.bands * seen.comparison.rows
    assert all(same)
    assert seen.signature("--") == []


def test_asking_adds_nothing(tmp_path: Path) -> None:
    """And a filter that was saved goes on where it was."""
    seen = TextDeduplicator(1000, by="paragraph")
    assert seen.dedup(["a"], add=False) == ["a"]
    assert seen.dedup(["a"]) == ["a"]
    assert "a" in seen.filter  # its keys are the paragraphs themselves
    seen.save(tmp_path / "seen.bloom")
    again = TextDeduplicator(by="paragraph", filter=BloomFilter.load(tmp_path / "seen.bloom"))
    assert again.dedup(["b\na", "a"]) == ["b", None]


def test_what_is_wrong_is_said() -> None:
    """A text that is none, and a filter that is missing or of another comparison."""
    seen = TextDeduplicator(1000)
    with pytest.raises(errors.InvalidKey, match="surrogates not allowed"):
        seen.spans(["a", "\ud800"])
    with pytest.raises(TypeError):
        seen.spans([b"a"])  # type: ignore[list-item]
    with pytest.raises(errors.InvalidParameter, match="give a capacity"):
        TextDeduplicator()
    with pytest.raises(errors.IncompatibleFilters, match="was not made for whole paragraphs"):
        TextDeduplicator(by="paragraph", filter=seen.filter)

"""Real text as a corpus: Debian's documentation and Python's, with duplicates planted in it.

What must go is known from an exact model, written here from the page docs/corpus.md.
"""

from __future__ import annotations

import gzip
import importlib
import inspect
import pydoc
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bloomery.apps import corpus
from conftest import missing
from unit.apps.corpus.jsonl import read, texts, write

pytestmark = pytest.mark.slow

MOST = 4_000_000  # characters: a few seconds for the exact model
PAGES = ("copyright", "README*", "NEWS*", "changelog*")


def debian() -> Iterator[str]:
    """The pages of Debian's packages, packed or not."""
    for page in sorted(path for name in PAGES for path in Path("/usr/share/doc").glob(f"*/{name}")):
        if page.is_file():
            data = page.read_bytes()
            yield (gzip.decompress(data) if page.suffix == ".gz" else data).decode(
                "utf-8", "replace"
            )


MODULES = (
    "argparse asyncio collections datetime decimal email.message http.client json logging "
    "pathlib random shutil socket statistics string subprocess tarfile textwrap unittest zipfile"
)


PAGES_OF = ("json", "random", "shutil", "string")


def python() -> Iterator[str]:
    """The documentation of Python's own modules, as `pydoc` has it: of some the page, of all each
    class and function."""
    for name in MODULES.split():
        module = importlib.import_module(name)
        yield pydoc.getdoc(module)
        if name in PAGES_OF:  # to make one takes a while
            yield pydoc.plain(pydoc.render_doc(module))
        for _, thing in sorted(inspect.getmembers(module)):
            if inspect.isclass(thing) or inspect.isfunction(thing):
                yield pydoc.getdoc(thing)


@pytest.fixture(scope="module")
def pages() -> list[str]:
    """Real texts, each of them once."""
    if not Path("/usr/share/doc").is_dir():
        missing("/usr/share/doc")
    found: dict[str, None] = {}
    size = 0
    for page in (*python(), *debian()):
        if page.strip() and size < MOST:
            found[page] = None
            size += len(page)
    assert size > 500_000
    return list(found)


def shards(folder: Path, given: list[str], count: int = 5) -> list[Path]:
    """The texts in several files."""
    return [write(folder / f"{n}.jsonl.gz", given[n::count]) for n in range(count)]


def flagged(out: Path, inputs: list[Path]) -> list[list[tuple[int, int, float]]]:
    """The spans of each text, in the order in which one thread has read them."""
    return [
        [tuple(span) for span in line["attributes"]["duplicates"]]
        for path in inputs
        for line in read(out / path.name)
    ]


def wrong_at_most(rate: float, tried: int) -> int:
    """How many wrong maybes come up in so many questions at this rate, but for once in millions."""
    return int(tried * rate + 6 * (tried * rate) ** 0.5 + 3)


def test_planted_documents_are_found(tmp_path: Path, pages: list[str]) -> None:
    """All of them, and nothing else: at a millionth, no page of some thousands is lost."""
    rng = random.Random(1)
    planted = rng.sample(pages, 200)
    given = pages + planted
    rng.shuffle(given)
    inputs = shards(tmp_path / "in", given)
    report = corpus.dedup(inputs, tmp_path / "out")
    left = [text for path in inputs for text in texts(tmp_path / "out" / path.name)]
    assert sorted(left) == sorted(pages)
    assert report.total.documents_removed == 200


def model_of_paragraphs(given: list[str]) -> list[list[tuple[int, int]]]:
    """The spans of paragraphs that came before, by an exact set."""
    seen: set[str] = set()
    answers = []
    for text in given:
        at, spans = 0, []
        paragraphs = text.split("\n")
        for number, paragraph in enumerate(paragraphs):
            end = at + len(paragraph) + (number + 1 < len(paragraphs))
            key = paragraph.strip(" \t\r\n\x0c")
            if key and key in seen:
                spans.append((at, end))
            seen.add(key)
            at = end
        answers.append(spans)
    return answers


def test_paragraphs_are_found(tmp_path: Path, pages: list[str]) -> None:
    """Those that a set of all paragraphs finds, and nothing else beyond the rate."""
    inputs = shards(tmp_path / "in", pages)
    options: dict[str, Any] = {"by": "paragraph", "annotate": True, "threads": 1}
    report = corpus.dedup(inputs, tmp_path / "out", **options)
    expected = model_of_paragraphs([text for path in inputs for text in texts(path)])
    found = [[span[:2] for span in one] for one in flagged(tmp_path / "out", inputs)]
    missed = [1 for one, two in zip(expected, found, strict=True) if not set(one) <= set(two)]
    assert missed == []
    surplus = sum(map(len, found)) - sum(map(len, expected))
    assert surplus <= wrong_at_most(1e-6, report.total.units)
    assert sum(map(len, expected)) > 1000  # licences say the same again and again


def between(character: str) -> bool:
    """Whether a character stands between words (docs/corpus.md)."""
    code = ord(character)
    if code < 0x80:
        return not character.isalnum()
    signs = [(0x80, 0xBF), (0xD7, 0xD7), (0xF7, 0xF7), (0x2000, 0x206F), (0x3000, 0x303F)]
    signs.append((0xFF00, 0xFF0F))
    if any(low <= code <= high for low, high in signs):
        return not character.isalnum()
    return character.isspace()


def words_of(text: str) -> list[str]:
    """The words of a text, ASCII letters small."""
    small = "".join(c.lower() if c.isascii() else c for c in text)
    spaced = "".join(" " if between(c) else c for c in small)
    alone = ((0x3040, 0x30FF), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF))
    apart = "".join(
        f" {c} " if any(low <= ord(c) <= high for low, high in alone) else c for c in spaced
    )
    return [word for word in apart.split(" ") if word]


def test_ngrams_are_found(tmp_path: Path, pages: list[str]) -> None:
    """Pages go of which 0.8 of the 13-grams came before: as an exact set of them has it; planted
    ones with another beginning are among them."""
    pages = [page for page in pages if len(page) < 40_000][:900]
    rng = random.Random(3)
    planted = {page: f"Here is {n}: {page}" for n, page in enumerate(rng.sample(pages, 100))}
    given = [*pages, *planted.values()]
    inputs = shards(tmp_path / "in", given)
    options: dict[str, Any] = {"by": "ngram", "unit": "document", "annotate": True, "threads": 1}
    report = corpus.dedup(inputs, tmp_path / "out", **options)
    seen: set[tuple[str, ...]] = set()
    expected, ordered = [], [text for path in inputs for text in texts(path)]
    close = 0
    for text in ordered:
        words = words_of(text)
        n = min(13, len(words))
        grams = [tuple(words[at : at + n]) for at in range(len(words) - n + 1)] if words else []
        share = sum(gram in seen for gram in grams) / max(1, len(grams))
        expected.append(bool(grams) and share >= 0.8 - 1e-12)
        close += 0.78 <= share < 0.8  # a wrong maybe or two would do
        if not expected[-1]:
            seen.update(grams)
    found = [bool(spans) for spans in flagged(tmp_path / "out", inputs)]
    wrong = [1 for one, two in zip(expected, found, strict=True) if one and not two]
    assert wrong == []
    surplus = sum(found) - sum(expected)
    assert surplus <= close + wrong_at_most(1e-3, sum(len(words_of(t)) < 30 for t in ordered))
    gone = {text for text, one in zip(ordered, found, strict=True) if one}
    # Which of the two comes first depends on the shard; three words in front are three n-grams.
    left = [page for page, copy in planted.items() if gone.isdisjoint((page, copy))]
    assert [page for page in left if len(words_of(page)) > 40] == []
    assert report.total.keys > 100_000


def test_near_duplicates_are_found(tmp_path: Path, pages: list[str]) -> None:
    """Pages that share a band with one before go, as an exact index of the bands has it; copies of
    which one word in a hundred was changed are among them."""
    rng = random.Random(5)
    pages = [page for page in pages if 300 < len(page) < 20_000][:600]
    planted = {}
    for page in rng.sample(pages, 100):
        words = page.split()
        for place in range(40, len(words), 100):
            words[place] = "changed"
        planted[page] = " ".join(words)
    given = [*pages, *planted.values()]
    inputs = shards(tmp_path / "in", given)
    options: dict[str, Any] = {"by": "near", "threshold": 0.7}
    corpus.dedup(inputs, tmp_path / "out", annotate=True, threads=1, **options)
    sketch = corpus.TextDeduplicator(1000, **options)
    rows, bands = sketch.comparison.rows, sketch.comparison.bands
    index: set[tuple[int, ...]] = set()
    expected, ordered = [], [text for path in inputs for text in texts(path)]
    for text in ordered:
        places = sketch.signature(text)
        keys = [(n, *places[n * rows : (n + 1) * rows]) for n in range(bands if places else 0)]
        expected.append(not index.isdisjoint(keys))
        if not expected[-1]:
            index.update(keys)
    found = [bool(spans) for spans in flagged(tmp_path / "out", inputs)]
    wrong = [1 for one, two in zip(expected, found, strict=True) if one and not two]
    assert wrong == []
    assert sum(found) - sum(expected) <= wrong_at_most(1e-6, len(ordered))
    gone = {text for text, one in zip(ordered, found, strict=True) if one}
    left = [page for page, copy in planted.items() if gone.isdisjoint((page, copy))]
    # Five shingles in a hundred are others, so 0.9 are in common: hardly any pair meets in no band.
    assert len(left) <= 5

"""Runs over a corpus that end by kill -9, at every point at which something is done to a file."""

from __future__ import annotations

import random
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bloomery import BloomFilter
from bloomery.apps import corpus
from bloomery.apps.corpus import files
from unit.apps.corpus.jsonl import outputs, texts, write
from unit.kills import die, killed

# Whatever changes a file or a folder: a kill between two of them is like one at the second.
EVENTS = {"open", "os.rename", "os.remove", "os.mkdir"}
FILES = 4
PER_FILE = 30


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "CHUNK", 1024)


def corpus_of(folder: Path) -> Path:
    """Files that have paragraphs in common, with each other and each with itself."""
    for number in range(FILES):
        rng = random.Random(number)
        paragraphs = [f"paragraph {rng.randrange(150)}" for _ in range(PER_FILE * 4)]
        found = ["\n".join(paragraphs[at : at + 4]) for at in range(0, len(paragraphs), 4)]
        write(folder / f"{number}.jsonl.gz", found)
    return folder


def run(folder: Path, out: Path, progress: Any = None, **options: Any) -> corpus.CorpusReport:
    return corpus.dedup([folder], out, by="paragraph", removed=True, progress=progress, **options)


def kill_at(point: int, folder: Path, out: Path, **options: Any) -> None:
    """Run, and die at the given event: of a file, or behind a chunk."""
    left = point

    def count(*_: object) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            die()

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in EVENTS and str(out) in str(arguments[0]):
            count()

    sys.addaudithook(hook)
    run(folder, out, count, **options)
    Path(out.parent, "over").touch()  # there was no such point


@pytest.mark.slow
@pytest.mark.parametrize("every", [0.0, 1000.0])
def test_with_one_thread_nobody_can_tell(tmp_path: Path, every: float) -> None:
    """Killed anywhere and run again, the outputs are byte for byte those of a run undisturbed, and
    so is the filter that is kept."""
    folder = corpus_of(tmp_path / "in")
    options: dict[str, Any] = {"threads": 1, "every": every, "capacity": 10_000}
    whole = run(folder, tmp_path / "whole", filter=tmp_path / "whole.bloom", **options)
    expected = outputs(tmp_path / "whole")
    assert len(expected) == 2 * FILES
    point = 0
    while not (tmp_path / "over").exists():
        out, seen = tmp_path / f"out{point}", tmp_path / f"out{point}.bloom"
        killed(partial(kill_at, point, folder, out, filter=seen, **options))
        report = run(folder, out, filter=seen, **options)
        assert outputs(out) == expected, point
        assert report.total == whole.total, point
        assert report.keys == whole.keys
        assert BloomFilter.load(seen) == BloomFilter.load(tmp_path / "whole.bloom"), point
        assert not list(out.rglob("*.part")), point
        assert {one.name for one in (out / ".bloomery").iterdir()} == {"lock", "state.json"}, point
        point += 1
    assert point > 30  # there was something to kill


@pytest.mark.slow
def test_with_several_threads_nothing_is_lost_and_nothing_is_left_twice(tmp_path: Path) -> None:
    """Killed again and again, each paragraph comes out once."""
    folder = corpus_of(tmp_path / "in")
    known = {
        p for n in range(FILES) for t in texts(folder / f"{n}.jsonl.gz") for p in t.split("\n")
    }
    options: dict[str, Any] = {"threads": 3, "every": 0.0, "capacity": 10_000}
    rng = random.Random(2)
    for number in range(12):
        out = tmp_path / f"out{number}"
        for _ in range(3):
            point = rng.randrange(40)
            killed(partial(kill_at, point, folder, out, **options))
        report = run(folder, out, **options)
        left = Counter(
            paragraph
            for path in sorted(out.glob("*.jsonl.gz"))
            for text in texts(path)
            for paragraph in text.split("\n")
        )
        assert left == Counter(known), number
        assert report.total.documents == FILES * PER_FILE

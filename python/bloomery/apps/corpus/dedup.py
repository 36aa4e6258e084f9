"""`dedup`: the documents of JSONL files without what came before; its options, checked.

The design is in the room's `__init__.py`.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from bloomery import sizing
from bloomery.apps.corpus import files
from bloomery.apps.corpus.checkpoint import CorpusCheckpoint
from bloomery.apps.corpus.comparison import By, Unit, check_rate, comparison
from bloomery.apps.corpus.report import CorpusReport
from bloomery.apps.corpus.run import EVERY, CorpusRun, DedupOptions, DedupProgress
from bloomery.errors import InvalidParameter


def dedup(
    inputs: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    by: By = "document",
    unit: Unit | None = None,
    words: int | None = None,
    threshold: float | None = None,
    bands: int | None = None,
    rows: int | None = None,
    field: str = "text",
    error_rate: float | str | None = None,
    capacity: int | None = None,
    filter: str | os.PathLike[str] | None = None,
    against: Sequence[str | os.PathLike[str]] = (),
    keep_duplicates: bool = False,
    annotate: bool = False,
    removed: bool = False,
    skip_bad: bool = False,
    threads: int | None = None,
    level: int | None = None,
    restart: bool = False,
    every: float = EVERY,
    progress: Callable[[DedupProgress], None] | None = None,
    warn: Callable[[str], None] | None = None,
) -> CorpusReport:
    """Write the documents of JSONL files to a folder, without what came before.

    `by` says what is compared: whole documents, paragraphs (lines of the text), n-grams of `words`
    words, of which a `unit` with a `threshold` of seen ones goes, or MinHash signatures of
    documents (`near`). What is in the files of `against` counts as seen; with `keep_duplicates`
    nothing else does. `filter` is a file that is kept over runs. With `annotate` nothing is
    removed: spans are written instead; with `removed` they are written beside the output.

    A line that is no document is an InvalidSource with its place, or with `skip_bad` is left out
    and counted. Killed at any point, the same call goes on from the last checkpoint; `restart=True`
    begins anew. With one thread the outcome depends on the input alone.
    """
    compared = comparison(
        by, unit=unit, words=words, threshold=threshold, bands=bands, rows=rows, field=field
    )
    rate = check_rate(by, error_rate)
    if keep_duplicates and not against:
        raise InvalidParameter("keep_duplicates without against would remove nothing")
    if capacity is not None:
        sizing.check_capacity(capacity)
    if threads is not None and threads < 1:
        raise InvalidParameter(f"threads is {threads}, must be 1 or more")
    base, corpus = files.find(inputs)
    _, tests = files.find(against) if against else ("", [])
    target = Path(out)
    if os.path.realpath(target) == base or (
        target.exists()
        and any(
            os.path.realpath(file.path).startswith(os.path.realpath(target) + os.sep)
            for file in (*corpus, *tests)
        )
    ):
        raise InvalidParameter(f"{target} is where the inputs are: name another folder for out")
    files.check_level(level, corpus)
    identity = {
        **asdict(compared),
        "error_rate": rate,
        "capacity": capacity,
        "annotate": annotate,
        "removed": removed,
        "skip_bad": skip_bad,
        "keep_duplicates": keep_duplicates,
        "against": [[str(file), file.size] for file in tests],
        "filter": None if filter is None else os.path.abspath(filter),
    }
    point = CorpusCheckpoint(target, identity)
    with point.lock():
        if restart:
            point.clear()
        run = CorpusRun(target, compared, point, rate, corpus, warn or _warn)
        run.options = DedupOptions(not keep_duplicates, annotate, removed, skip_bad, level)
        kept_filter = None if filter is None else Path(filter)
        run.begin(base, kept_filter, capacity, tests)
        run.go(threads or _cores(), every, progress)
        return run.end(kept_filter)


def _warn(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=3)


def _cores() -> int:
    with contextlib.suppress(AttributeError):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1

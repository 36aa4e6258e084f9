"""One run over the files of a corpus: the filter, the threads, the checkpoints.

The design is in the room's `__init__.py`.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

from bloomery import _native, sizing
from bloomery.apps.corpus import estimate
from bloomery.apps.corpus.checkpoint import RESTART, CorpusCheckpoint, CorpusState
from bloomery.apps.corpus.comparison import Comparison
from bloomery.apps.corpus.files import CorpusFile, DocumentReader, Writer
from bloomery.apps.corpus.report import CorpusReport, FileCounts
from bloomery.errors import IncompatibleFilters, InvalidParameter, InvalidSource
from bloomery.filters import BloomFilter
from bloomery.filters.internals import add_hashes
from bloomery.storage.files import HEADER_BYTES, replacing

EVERY = 30.0
# Saving a large filter takes a while: no more than this share of the time.
_SHARE = 0.1
_POLL = 0.1
_RUNS = 4  # a kept filter has room for this many inputs like the first


@dataclass(frozen=True)
class DedupProgress:
    """How far a run is: bytes of the inputs, as they are on disk, and what was found in them."""

    position: int
    total: int
    documents: int
    units_removed: int


@dataclass(frozen=True)
class DedupOptions:
    """What is done to a document, beside comparing it."""

    add: bool
    annotate: bool
    removed: bool
    skip_bad: bool
    level: int | None


class _Stopped(Exception):
    """Another thread has failed."""


class CorpusRun:
    """From where the last run came to, to the end."""

    options: DedupOptions
    filter: BloomFilter

    def __init__(
        self,
        out: Path,
        compared: Comparison,
        point: CorpusCheckpoint,
        rate: float,
        corpus: list[CorpusFile],
        warn: Callable[[str], None],
    ) -> None:
        self._out, self._compared, self._point = out, compared, point
        self._rate, self._corpus, self._warn = rate, corpus, warn
        self._splitter = compared.splitter()
        self._state = CorpusState()
        self._pending: deque[CorpusFile] = deque()
        self._began = time.monotonic()
        # One lock for the filter, as threads must ask it one after another; one for all counts.
        self._asking, self._counting = threading.Lock(), threading.Lock()
        self._positions: dict[str, int] = {}
        self._seen = FileCounts()
        self._resumed = 0
        self._worked = True
        self._stop = False
        self._warned = False
        self._due = 0.0

    # -- the beginning

    def begin(
        self, base: str, kept: Path | None, capacity: int | None, tests: list[CorpusFile]
    ) -> None:
        """Go on from a checkpoint, or begin with a filter."""
        loaded = self._point.load()
        if loaded is None:
            self._fresh(base, kept, capacity, tests)
        else:
            filter, self._state = loaded
            self._resume(base, filter, kept)
        done = self._state.counts
        self._pending.extend(file for file in self._corpus if file.name not in done)
        self._resumed = len(self._corpus) - len(self._pending)
        self._began -= self._state.seconds
        for file in self._corpus:
            if file.name in done:
                self._positions[file.name] = file.size
                self._seen.add(done[file.name])
        if self._pending and self._state.complete and kept is None:
            raise InvalidParameter(
                f"{self._out} is done, and {self._pending[0]} is new: it cannot be compared with "
                f"the files before, of which no filter was kept (--filter keeps one); {RESTART}"
            )
        self._worked = bool(self._pending) or not self._state.complete
        self._state.complete = False

    def _fresh(
        self, base: str, kept: Path | None, capacity: int | None, tests: list[CorpusFile]
    ) -> None:
        state = self._state
        state.base = base
        if kept is not None and kept.exists():
            self.filter = self._load(kept)
            state.kept_filter = _head(kept)
            state.keys = self.filter.estimated_count
        else:
            if capacity is None:
                keys = estimate.keys((*self._corpus, *tests), self._splitter)
                keys *= 1 if kept is None else _RUNS
                key_rate = self._compared.key_rate(self._rate)
                self.filter = BloomFilter(keys, key_rate, seed=self._compared.seed)
            else:
                self.filter = self._compared.filter(capacity, self._rate)
            if kept is not None:
                # Saved while empty: a path that cannot be written fails now, not after hours.
                self.filter.save(kept)
                state.kept_filter = _head(kept)
        for file in tests:
            self._learn(file)

    def _resume(self, base: str, filter: BloomFilter | None, kept: Path | None) -> None:
        state = self._state
        if base != state.base:
            raise InvalidParameter(
                f"the folder that all inputs have in common was {state.base} and is {base}: the "
                f"outputs would have other names; name the same inputs and more beside them, or "
                f"{RESTART}"
            )
        for file in self._corpus:
            if state.sizes.get(file.name, file.size) != file.size:
                raise InvalidParameter(f"{file} has changed since it was done: {RESTART}")
            if file.name in state.counts and not (self._out / file.name).exists():
                raise InvalidParameter(f"{self._out / file.name} was done and is gone: {RESTART}")
        if filter is not None:
            self.filter = filter
        elif kept is not None:  # a run that is over: the filter has its keys, and maybe more
            self.filter = self._load(kept)
            state.kept_filter = _head(kept)
            state.keys = max(state.keys, self.filter.estimated_count)
        else:
            self.filter = self._compared.filter(1, self._rate)  # there is nothing to compare

    def _load(self, path: Path) -> BloomFilter:
        filter = BloomFilter.load(path)
        self._compared.check(filter, str(path))
        wanted = self._compared.key_rate(self._rate)
        if filter.error_rate > wanted * 1.001:
            raise IncompatibleFilters(
                f"{path} errs at {filter.error_rate:g} a key, and {wanted:g} is wanted: say an "
                "error rate that it can hold, or take another filter"
            )
        return filter

    def _learn(self, file: CorpusFile) -> None:
        """Have the filter know all of a file."""

        def learn(chunk: _native.CorpusChunk, _: int) -> None:
            self._state.keys += add_hashes(self.filter, chunk.keys())

        self._each_chunk(file, learn)

    # -- the middle

    def go(
        self, threads: int, every: float, progress: Callable[[DedupProgress], None] | None
    ) -> None:
        """Do all files, and keep how far it came now and then."""
        due = time.monotonic() + every
        while self._pending:
            self._due = due
            if threads == 1:
                self._work(lambda: self._tell(progress))
            else:
                self._together(threads, progress)
            self._tell(progress)
            started = time.monotonic()
            self._state.seconds = started - self._began
            self._point.save(self.filter, self._state)
            ended = time.monotonic()
            due = ended + max(every, (ended - started) / _SHARE)

    def _together(self, threads: int, progress: Callable[[DedupProgress], None] | None) -> None:
        """Do files in several threads, until a checkpoint is due and all have ended theirs."""
        with ThreadPoolExecutor(threads, "bloomery-corpus") as pool:
            try:
                working = {pool.submit(self._work, None) for _ in range(threads)}
                failures: list[BaseException] = []
                while working:
                    done, working = wait(working, _POLL)
                    for task in done:
                        failure = task.exception()
                        if failure is not None and not isinstance(failure, _Stopped):
                            failures.append(failure)
                    self._tell(progress)
            finally:
                self._stop = True  # an interrupt: the others need not go on
        if failures:
            raise failures[0]
        self._stop = False

    def _tell(self, progress: Callable[[DedupProgress], None] | None) -> None:
        if progress is not None:
            with self._counting:
                position = sum(self._positions.values())
                counted = self._seen.documents, self._seen.units_removed
            progress(DedupProgress(position, sum(file.size for file in self._corpus), *counted))

    def _work(self, tell: Callable[[], None] | None) -> None:
        """Do one file after another, until a checkpoint is due."""
        try:
            while True:
                with self._counting:
                    if not self._pending or self._stop:
                        return
                    file = self._pending.popleft()
                self._do(file, tell)
                if time.monotonic() >= self._due:
                    return
        except BaseException:
            self._stop = True
            raise

    def _do(self, file: CorpusFile, tell: Callable[[], None] | None) -> None:
        options, counts = self.options, FileCounts()
        path = self._out / file.name
        with contextlib.ExitStack() as stack:
            output = stack.enter_context(_written(path, options.level))
            beside = None
            if options.removed:
                place = self._out / "removed" / file.name
                beside = stack.enter_context(_written(place, options.level))

            def step(chunk: _native.CorpusChunk, lines: int) -> None:
                with self._asking:
                    self._state.keys += chunk.probe(self.filter, add=options.add)
                new_counts = FileCounts(*chunk.counts(), chunk.lines, len(chunk.faults))
                counts.add(new_counts)
                output.write(chunk.found(lines + 1, False) if options.annotate else chunk.kept())
                if beside is not None:
                    beside.write(chunk.found(lines + 1, True))
                with self._counting:
                    self._seen.add(new_counts)
                if tell is not None:
                    tell()
                self._check_room()

            self._each_chunk(file, step)
        with self._counting:
            self._state.counts[file.name] = counts
            self._state.sizes[file.name] = file.size

    def _each_chunk(
        self, file: CorpusFile, step: Callable[[_native.CorpusChunk, int], None]
    ) -> None:
        """Split a file chunk by chunk, and do the step with each, and how many lines are before it.

        A chunk lives in the reader's buffer, so it ends with the step.
        """
        lines = 0
        reader = DocumentReader(file.path)
        try:
            while not reader.final:
                if self._stop:
                    raise _Stopped
                try:
                    view = reader.fill()
                except InvalidSource as failure:
                    raise InvalidSource(f"{failure} (behind line {lines:,})") from None
                except OSError as failure:
                    raise OSError(
                        failure.errno, f"{failure.strerror} (behind line {lines:,})", str(file)
                    ) from None
                chunk = self._splitter.split(
                    self.filter, view, final=reader.final, skip_bad=self.options.skip_bad
                )
                try:
                    self._note_faults(file, chunk.faults, lines)
                    step(chunk, lines)
                finally:
                    chunk.release()
                    view.release()
                lines += chunk.lines
                reader.consumed(chunk.used)
                with self._counting:
                    self._positions[file.name] = reader.position
        finally:
            reader.close()

    def _note_faults(self, file: CorpusFile, faults: list[tuple[int, str]], lines: int) -> None:
        if not faults:
            return
        line, why = faults[0]
        place = f"{file}, line {lines + line + 1:,}: {why.replace('FIELD', repr(self._field))}"
        if not self.options.skip_bad:
            raise InvalidSource(f"{place}; mend or remove the line, or say --skip-bad")
        with self._counting:
            if self._state.first_bad_line is None:
                self._state.first_bad_line = place

    @property
    def _field(self) -> str:
        return self._compared.field

    def _check_room(self) -> None:
        if not self._warned and self._is_beyond():
            self._warned = True
            self._warn(
                f"more than the {self.filter.capacity:,} keys that the filter was made for: text "
                f"that came once is now removed more often than {self._rate:g}; begin anew with a "
                "larger --capacity (capacity=)"
            )

    def _is_beyond(self) -> bool:
        return sizing.is_beyond(self._state.keys, self.filter.capacity, 0.0)

    # -- the end

    def end(self, kept: Path | None) -> CorpusReport:
        """Save the filter that is kept over runs, and tell what was found."""
        state = self._state
        if self._worked:
            if kept is not None:
                self._keep(kept)
            state.seconds = round(time.monotonic() - self._began, 3)
            state.figures = {
                "capacity": self.filter.capacity,
                "saturated": self._is_beyond(),
                "estimated_key_error_rate": self.filter.estimated_error_rate,
                "memory_bytes": self.filter.nbytes,
            }
        state.complete = True
        self._point.save(None, state)
        total = FileCounts()
        for counts in state.counts.values():
            total.add(counts)
        named = {file.name: str(file) for file in self._corpus}
        report = CorpusReport(
            total=total,
            files={named.get(name, name): counts for name, counts in state.counts.items()},
            keys=round(state.keys),
            error_rate=self._rate,
            seconds=state.seconds,
            first_bad_line=state.first_bad_line,
            resumed=self._resumed,
            **state.figures,
        )
        with replacing(self._out / "report.json") as file:
            file.write(json.dumps(report.as_dict(), indent=1).encode())
        return report

    def _keep(self, path: Path) -> None:
        """Save the filter that is kept over runs, with what others have added to it meanwhile."""
        with _locked(path):
            if path.exists() and _head(path) != self._state.kept_filter:
                # Another run has, or this one before it was killed.
                self.filter |= self._load(path)
            self.filter.save(path)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Nobody else saves this file meanwhile; waits for whoever is about to."""
    try:
        import fcntl
    except ImportError:  # no such locks on this system
        yield
        return
    while True:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            # Whoever had it has put a new file in its place: lock that one.
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                yield
                return


@contextlib.contextmanager
def _written(path: Path, level: int | None) -> Iterator[Writer]:
    """A file that is there when all went well; else nothing is."""
    output = Writer(path, level)
    try:
        yield output
    except BaseException:
        output.abort()
        raise
    output.finish()


def _head(path: Path) -> str:
    """The head of a saved filter, in which is the checksum of its bits."""
    with path.open("rb") as file:
        return file.read(HEADER_BYTES).hex()

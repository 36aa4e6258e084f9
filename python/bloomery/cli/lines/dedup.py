"""`bloomery dedup`: lines in, first occurrences out, in the memory of a filter.

With `--filter FILE` the run continues where the last one ended. A line that came out but is not in
the saved filter comes out again next time; a line in the saved filter that did not come out is
lost. So the filter is saved after the output is written, and only if the two agree: a run that was
stopped between two chunks saves, one that failed to write its output leaves FILE as it was. With
`--exact` the file is one of SQLite (`bloomery.apps.DiskSet`), which commits after each chunk.
"""

import errno
import os
import stat
from contextlib import ExitStack
from typing import Annotated, Any

from bloomery._native import LineKey
from bloomery.cli import options
from bloomery.cli.files import state
from bloomery.cli.lines import estimate, fields
from bloomery.cli.lines.reading import Chunk, LineReader
from bloomery.cli.lines.seen import FilteredLines, GrowingLines, SeenLines
from bloomery.cli.parsing.declared import Argument, Option, bad_parameter
from bloomery.cli.progress import LineProgress
from bloomery.cli.pump import Interrupts, LinePump, SignalInterrupt
from bloomery.cli.terminal import STDIN, emit, note, say, with_step
from bloomery.errors import IncompatibleFilters, InvalidParameter
from bloomery.filters import AnyFilter, BloomFilter, RotatingBloomFilter
from bloomery.filters.files import key_type
from bloomery.filters.rotating import parse_window
from bloomery.storage.inputs import InputFile

EXAMPLE = "zcat -f logs/* | bloomery dedup > unique.txt; bloomery dedup --filter seen.bloom new.zst"
EXAMPLE += "; bloomery dedup --key .url --exact pages.jsonl; bloomery dedup -c email people.csv"

# A wrong maybe drops a line here, so the default is stricter than the library's 1%: at a millionth
# ten million lines lose about one. It costs 24 bits a line: 30 MB for ten million; 31 bits in a
# filter that is kept.
DEFAULT_ERROR_RATE = 1e-6
DEFAULT_CAPACITY = 10_000_000  # where the input's length is unknown: a pipe
# Room to spare: samples of a plain file err upwards, the first chunk of a packed one anywhere.
_SPARE_SAMPLED, _SPARE_GUESSED = 1.05, 1.25
_RUNS = 4  # a kept filter has room for this many inputs like the first


def dedup(
    files: Annotated[
        list[str] | None,
        Argument(
            metavar="[FILE]...",
            help="Plain, gzip or zstd; - or none: standard input.",
        ),
    ] = None,
    filter: Annotated[
        str | None,
        Option(
            "--filter",
            "--across-runs",
            "-f",
            metavar="FILE",
            help="Keep what was seen in FILE, from run to run.",
        ),
    ] = None,
    exact: Annotated[
        bool,
        Option(
            "--exact",
            help="Drop no line by a wrong maybe: all keys are kept on disk too (slower).",
        ),
    ] = False,
    window: Annotated[
        str | None,
        Option(
            "--window",
            metavar="TIME",
            help="Forget what came longer ago: 10min, 7d. For a stream, or with --filter.",
        ),
    ] = None,
    capacity: Annotated[
        int | None,
        options.capacity(
            "Distinct lines to expect: 10M, 1e9. Default: estimated from the files' size;"
            " 10M for a pipe.",
            None,
        ),
    ] = None,
    error_rate: Annotated[
        float | None,
        options.error_rate(
            "Chance that a new line is taken for a duplicate and dropped. Default: 1e-6.", None
        ),
    ] = None,
    key: fields.Key = None,
    column: fields.Column = None,
    delimiter: fields.Delimiter = None,
    no_header: fields.NoHeader = False,
    strict: fields.Strict = False,
    json: options.JsonSummary = False,
    quiet: options.NoProgress = False,
) -> int:
    """Print each line once, the first time it comes. The input is never held in memory.

    With --key or --column, lines are the same if that field of them is.
    """
    paths = files or ["-"]
    asked = fields.parse(key, column, delimiter, no_header, strict, paths)
    sizes = input_sizes(paths)
    progress = LineProgress(sum(sizes) if sizes else None, quiet)
    with ExitStack() as stack:
        stack.callback(progress.stop)
        interrupts = stack.enter_context(Interrupts())
        pump = LinePump(interrupts)
        source = stack.enter_context(InputFile(paths[0]))
        rate = DEFAULT_ERROR_RATE if error_rate is None else error_rate
        seen: SeenLines
        if exact:
            if error_rate is not None:
                raise bad_parameter("--exact errs never: leave --error-rate out")
            # Only here: SQLite takes a while to import, and a small run has little of it.
            from bloomery.cli.lines.exact import ExactLines

            seen = stack.enter_context(ExactLines(filter, window, capacity))
        elif filter is not None:
            if not os.path.exists(filter):
                room = capacity or room_for(paths, sizes, pump, source, kept=True)
                # Saved while empty: a path that cannot be written fails now, not after hours. If
                # another process has made it meanwhile, that one stays.
                state.save_new(_make(room, rate, window), filter, "nothing was read", "str")
            stack.enter_context(state.locked(filter))
            if _is_database(filter):
                raise bad_parameter(
                    f"{filter} was made with --exact: give that again, or name another file",
                    "--filter",
                )
            kept = state.load_any(filter)
            _check_same(kept, filter, capacity, error_rate, window)
            seen = FilteredLines(kept, filter, interrupts)
        else:
            estimated = capacity is None
            if capacity is None:
                capacity = room_for(paths, sizes, pump, source)
            if window is None and estimated:
                seen = GrowingLines(capacity, rate)
            else:
                seen = FilteredLines(_make(capacity, rate, window), None, interrupts)
        run = _DedupRun(seen, asked, progress, pump)
        run.through(source, paths[1:])
    if json:
        from json import dumps

        note(dumps(run.summary()))
    return 0


def _make(capacity: int, error_rate: float, window: str | None) -> AnyFilter:
    if window is None:
        return BloomFilter(capacity, error_rate)
    return RotatingBloomFilter(capacity, error_rate, window=window)


class _DedupRun:
    """One pass: adds, writes, and settles at the end what may be saved."""

    def __init__(
        self,
        seen: SeenLines,
        asked: fields.FieldOptions,
        progress: LineProgress,
        pump: LinePump,
    ) -> None:
        self._seen, self._progress = seen, progress
        self._reader = LineReader(pump, asked, progress, self._add, self._write)
        self._agree = True  # what is kept holds exactly what came out
        self._warned = False

    def through(self, first: InputFile, others: list[str]) -> None:
        try:
            self._reader.read(first)
            self._reader.read_all(others)
        except SignalInterrupt as stop:
            self._progress.stop()
            raise SignalInterrupt(stop.signum, "interrupted" + self._settle()) from None
        except BrokenPipeError:
            self._progress.stop()
            if self._seen.path is not None:
                say(f"the reader of the output went away{self._settle()}")
            raise
        except (OSError, InvalidParameter) as failure:
            if self._seen.path is not None:
                with_step(failure, self._settle().removeprefix("; "))
            raise
        self._settle()

    def summary(self) -> dict[str, Any]:
        """The figures of the run, for a program."""
        counts = self._reader
        return {
            "lines": counts.lines,
            "new": counts.chosen,
            "duplicates": counts.lines - counts.chosen - counts.missing,
            "without_key": counts.missing,
            **self._seen.facts(),
        }

    def _add(self, data: memoryview, final: bool, key: LineKey | None) -> Chunk:
        self._agree = False
        return self._seen.add_lines(data, final, key)

    def _write(self, lines: bytes) -> None:
        emit(lines)
        self._seen.written()
        self._agree = True
        if not self._warned and (warning := self._seen.full()):
            self._warned = True
            self._progress.stop()
            say(warning)

    def _settle(self) -> str:
        """Save if what is kept and the output agree; the end of a sentence for a run that stopped
        early."""
        if self._seen.path is None:
            return ""
        if not self._agree:
            return f"; {self._seen.path} {self._seen.unsaved}"
        self._seen.save()
        return f"; {self._seen.path} has the lines that came out"


def input_sizes(paths: list[str]) -> list[int] | None:
    """Bytes of each, if every input is a regular file. A missing one fails before any output."""
    sizes: list[int] = []
    regular = True
    for path in paths:
        status = os.fstat(STDIN) if path == "-" else os.stat(path)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, "is a directory; name the files in it", path)
        regular = regular and stat.S_ISREG(status.st_mode)
        sizes.append(status.st_size)
    return sizes if regular else None


def room_for(
    paths: list[str],
    sizes: list[int] | None,
    pump: LinePump,
    source: InputFile,
    *,
    kept: bool = False,
) -> int:
    """The capacity, where none was given."""
    if not sizes or not any(sizes):  # /proc and the like have files of no size and many lines
        return DEFAULT_CAPACITY
    lines, spare = estimate.from_samples(paths, sizes), _SPARE_SAMPLED
    if lines is None:
        lines = estimate.from_first_chunk(pump, source, sum(sizes))
        spare = _SPARE_GUESSED
    return max(DEFAULT_CAPACITY, lines * _RUNS) if kept else max(1000, int(lines * spare))


def _is_database(path: str) -> bool:
    """Whether it is a file of SQLite, as --exact makes it."""
    with open(path, "rb") as file:
        return file.read(16) == b"SQLite format 3\0"


def _check_same(
    seen: AnyFilter,
    path: str,
    capacity: int | None,
    error_rate: float | None,
    window: str | None,
) -> None:
    """A kept filter has its size already; the same options again are fine, others are not."""
    if not isinstance(seen, BloomFilter | RotatingBloomFilter):
        raise IncompatibleFilters(
            f"{path}: a {type(seen).__name__}, and dedup keeps a BloomFilter, or with --window a"
            " RotatingBloomFilter: name another file"
        )
    has_window = seen.window if isinstance(seen, RotatingBloomFilter) else None
    for name, given, has in (
        ("--capacity", capacity, seen.capacity),
        ("--error-rate", error_rate, seen.error_rate),
        ("--window", None if window is None else parse_window(window), has_window),
    ):
        if given is not None and given != has:
            raise bad_parameter(
                f"{path} was made with {has}, not {given}: leave {name} out, or name another file",
                name,
            )
    if (kind := key_type(path)) not in (None, "str"):
        raise IncompatibleFilters(f"{path}: its keys are of type {kind}, and lines are text")


COMMANDS = [("dedup", dedup, EXAMPLE)]

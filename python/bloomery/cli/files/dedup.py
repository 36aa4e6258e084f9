"""`bloomery dedup`: lines in, first occurrences out, in the memory of a filter.

With `--filter FILE` the run continues where the last one ended. A line that came out but is not in
the saved filter comes out again next time; a line in the saved filter that did not come out is
lost. So the filter is saved after the output is written, and only if the two agree: a run that was
stopped between two chunks saves, one that failed to write its output leaves FILE as it was.
"""

import errno
import os
import stat
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from bloomery import sizing
from bloomery.cli.amounts import parse_count, parse_rate, show_rate
from bloomery.cli.files import estimate, state
from bloomery.cli.progress import LineProgress
from bloomery.cli.pump import Interrupts, LinePump, SignalInterrupt
from bloomery.cli.terminal import STDIN, emit, say, with_step
from bloomery.errors import IncompatibleFilters
from bloomery.filters import BloomFilter
from bloomery.filters.files import key_type
from bloomery.storage.inputs import InputFile

EXAMPLE = "zcat -f logs/* | bloomery dedup > unique.txt; bloomery dedup --filter seen.bloom new.zst"

# A wrong maybe drops a line here, so the default is stricter than the library's 1%: at a millionth
# ten million lines lose about one. It costs 31 bits a line: 39 MB for ten million.
DEFAULT_ERROR_RATE = 1e-6
DEFAULT_CAPACITY = 10_000_000  # where the input's length is unknown: a pipe
# Room to spare: samples of a plain file err upwards, the first megabyte of a packed one anywhere.
_SPARE_SAMPLED, _SPARE_GUESSED = 1.05, 1.25
_RUNS = 4  # a kept filter has room for this many inputs like the first


def dedup(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE]...",
            help="Plain, gzip or zstd; - or none: standard input.",
        ),
    ] = None,
    filter: Annotated[
        str | None,
        typer.Option(
            "--filter", "-f", metavar="FILE", help="Keep what was seen in FILE, from run to run."
        ),
    ] = None,
    capacity: Annotated[
        int | None,
        typer.Option(
            "--capacity",
            "-n",
            parser=parse_count,
            metavar="N",
            help="Distinct lines to expect: 10M, 1e9. Default: estimated from the files' size;"
            " 10M for a pipe.",
        ),
    ] = None,
    error_rate: Annotated[
        float | None,
        typer.Option(
            "--error-rate",
            "-e",
            parser=parse_rate,
            metavar="RATE",
            help="Chance that a new line is taken for a duplicate and dropped. Default: 1e-6.",
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")] = False,
) -> int:
    """Print each line once, the first time it comes. The input is never held in memory."""
    paths = files or ["-"]
    sizes = _sizes(paths)
    progress = LineProgress(sum(sizes) if sizes else None, quiet)
    with ExitStack() as stack:
        stack.callback(progress.stop)
        interrupts = stack.enter_context(Interrupts())
        pump = LinePump(interrupts)
        source = stack.enter_context(InputFile(paths[0]))
        if filter is not None and Path(filter).exists():
            stack.enter_context(state.locked(filter))
            seen = state.load(filter)
            _check_same(seen, filter, capacity, error_rate)
        else:
            if capacity is None:
                capacity = _room(paths, sizes, pump, source, kept=filter is not None)
            seen = BloomFilter(capacity, DEFAULT_ERROR_RATE if error_rate is None else error_rate)
            if filter is not None:
                # Saved while empty: a path that cannot be written fails now, not after hours.
                state.save(seen, filter, "nothing was read", "str")
                stack.enter_context(state.locked(filter))
                seen = state.load(filter)
        run = _DedupRun(seen, filter, progress, interrupts)
        run.through(pump, source, paths[1:])
    return 0


class _DedupRun:
    """One pass: adds, writes, keeps count, and settles at the end what may be saved."""

    def __init__(
        self,
        seen: BloomFilter,
        path: str | None,
        progress: LineProgress,
        interrupts: Interrupts,
    ) -> None:
        self._seen, self._path = seen, path
        self._progress, self._interrupts = progress, interrupts
        # What was there before is estimated; what comes now is counted.
        self._held = seen.estimated_count if path is not None else 0.0
        shape = (seen.layout, seen.num_bits, seen.num_hashes, seen.lines_per_key)
        self._error = sizing.count_error(*shape, seen.capacity) if path is not None else 0.0
        self._key_type = key_type(path) if path is not None else None
        self._agree = True  # the filter holds exactly what came out
        self._warned = False
        self._before = 0  # encoded bytes of the sources already done

    def through(self, pump: LinePump, first: InputFile, others: list[str]) -> None:
        try:
            self._feed(pump, first)
            for path in others:
                with InputFile(path) as source:
                    self._feed(pump, source)
        except SignalInterrupt as stop:
            self._progress.stop()
            raise SignalInterrupt(stop.signum, "interrupted" + self._settle()) from None
        except BrokenPipeError:
            self._progress.stop()
            if self._path is not None:
                say(f"the reader of the output went away{self._settle()}")
            raise
        except OSError as failure:
            if self._path is not None:
                with_step(failure, self._settle().removeprefix("; "))
            raise
        self._settle()

    def _feed(self, pump: LinePump, source: InputFile) -> None:
        self._source = source
        pump.run(source, self._take)
        self._before += source.position

    def _take(self, data: memoryview, final: bool) -> int:
        self._agree = False
        new, consumed, lines, added = self._seen.add_lines(data, final=final)
        emit(new)
        self._agree = True
        self._held += added
        self._progress.advance(self._before + self._source.position, lines, added)
        beyond = sizing.is_beyond(self._held, self._seen.capacity, self._error)
        if beyond and not self._warned:
            self._warned = True
            self._progress.stop()
            say(self._full())
        return consumed

    def _full(self) -> str:
        again = "with another --filter and" if self._path is not None else "again with"
        return (
            f"warning: more than the {self._seen.capacity:,} distinct lines the filter was made"
            f" for; new lines are now dropped more often than {show_rate(self._seen.error_rate)}:"
            f" run {again} a larger --capacity"
        )

    def _settle(self) -> str:
        """Save if filter and output agree; the end of a sentence for a run that stopped early."""
        if self._path is None:
            return ""
        if not self._agree:
            return f"; {self._path} is as it was before, so this run's lines will come out again"
        with self._interrupts.held_off(last=True):
            consequence = "it is as it was, so this run's lines will come out again"
            state.save(self._seen, self._path, consequence, self._key_type)
        return f"; {self._path} has the lines that came out"


def _sizes(paths: list[str]) -> list[int] | None:
    """Bytes of each, if every input is a regular file. A missing one fails before any output."""
    sizes: list[int] = []
    regular = True
    for path in paths:
        status = os.fstat(STDIN) if path == "-" else Path(path).stat()
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, "is a directory; name the files in it", path)
        regular = regular and stat.S_ISREG(status.st_mode)
        sizes.append(status.st_size)
    return sizes if regular else None


def _room(
    paths: list[str], sizes: list[int] | None, pump: LinePump, source: InputFile, *, kept: bool
) -> int:
    """The capacity, where none was given."""
    if not sizes or not any(sizes):  # /proc and the like have files of no size and many lines
        return DEFAULT_CAPACITY
    lines, spare = estimate.from_samples(paths, sizes), _SPARE_SAMPLED
    if lines is None:
        lines = estimate.from_first_chunk(pump, source, sum(sizes))
        spare = _SPARE_GUESSED
    return max(DEFAULT_CAPACITY, lines * _RUNS) if kept else max(1000, int(lines * spare))


def _check_same(
    seen: BloomFilter, path: str, capacity: int | None, error_rate: float | None
) -> None:
    """A kept filter has its size already; the same options again are fine, others are not."""
    for name, given, has in (
        ("--capacity", capacity, seen.capacity),
        ("--error-rate", error_rate, seen.error_rate),
    ):
        if given is not None and given != has:
            raise typer.BadParameter(
                f"{path} was made with {has}, not {given}: leave {name} out, or name another file",
                param_hint=name,
            )
    if (kind := key_type(path)) not in (None, "str"):
        raise IncompatibleFilters(f"{path}: its keys are of type {kind}, and lines are text")


COMMANDS = [("dedup", dedup, EXAMPLE)]

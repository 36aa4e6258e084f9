"""`bloomery count`: how many distinct lines there are, in the memory of a filter."""

from contextlib import ExitStack
from typing import Annotated

from bloomery._native import LineKey
from bloomery.cli import options
from bloomery.cli.amounts import show_rate
from bloomery.cli.lines import fields
from bloomery.cli.lines.dedup import input_sizes
from bloomery.cli.lines.reading import Chunk, LineReader
from bloomery.cli.parsing.declared import Argument
from bloomery.cli.progress import LineProgress
from bloomery.cli.pump import Interrupts, LinePump
from bloomery.cli.terminal import emit_line
from bloomery.filters import ScalableBloomFilter

EXAMPLE = "bloomery count access.log; zcat -f logs/* | bloomery count; bloomery count -c id p.csv"
_ERROR_RATE = 0.001


def count(
    files: Annotated[
        list[str] | None,
        Argument(metavar="[FILE]...", help="Plain, gzip or zstd; none: standard input."),
    ] = None,
    error_rate: options.ErrorRate = _ERROR_RATE,
    key: fields.Key = None,
    column: fields.Column = None,
    delimiter: fields.Delimiter = None,
    no_header: fields.NoHeader = False,
    strict: fields.Strict = False,
    json: options.Json = False,
    quiet: options.NoProgress = False,
) -> int:
    """Count distinct lines, or distinct values of a field, without holding them in memory.

    A line that is taken for another is not counted, so the number is at most the --error-rate too
    small, and never too large.
    """
    paths = files or ["-"]
    asked = fields.parse(key, column, delimiter, no_header, strict, paths)
    sizes = input_sizes(paths)
    progress = LineProgress(sum(sizes) if sizes else None, quiet, "count")
    filter = ScalableBloomFilter(error_rate=error_rate)

    def add(data: memoryview, final: bool, key: LineKey | None) -> Chunk:
        return filter.add_lines(data, final=final, key=key)

    with ExitStack() as stack:
        stack.callback(progress.stop)
        pump = LinePump(stack.enter_context(Interrupts()))
        reader = LineReader(pump, asked, progress, add)
        reader.read_all(paths)
    if json:
        from json import dumps

        counts = {"lines": reader.lines, "distinct": reader.chosen, "without_key": reader.missing}
        emit_line(dumps({**counts, "error_rate": error_rate, "memory_bytes": filter.nbytes}))
    else:
        emit_line(
            f"{reader.chosen:,} distinct of {reader.lines:,} lines"
            f" (at most {show_rate(error_rate)} more)"
        )
    return 0


COMMANDS = [("count", count, EXAMPLE)]

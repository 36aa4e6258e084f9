"""`bloomery diff A B`: the lines of B that are not in A, without sorting either."""

from contextlib import ExitStack
from typing import Annotated

from bloomery._native import LineKey
from bloomery.cli import options
from bloomery.cli.amounts import show_rate
from bloomery.cli.files import state
from bloomery.cli.lines import fields
from bloomery.cli.lines.dedup import DEFAULT_ERROR_RATE, input_sizes, room_for
from bloomery.cli.lines.reading import Chunk, LineReader, Step
from bloomery.cli.lines.seen import GrowingLines
from bloomery.cli.parsing.declared import Argument, Option, bad_parameter
from bloomery.cli.progress import LineProgress
from bloomery.cli.pump import Interrupts, LinePump
from bloomery.cli.terminal import emit, note, say
from bloomery.errors import IncompatibleFilters
from bloomery.filters import AnyFilter
from bloomery.filters.files import key_type
from bloomery.storage.inputs import InputFile, is_filter

EXAMPLE = "bloomery diff yesterday.txt today.txt; bloomery diff --key .url old.jsonl new.jsonl; "
EXAMPLE += "bloomery diff seen.bloom today.txt"


def diff(
    a: Annotated[str, Argument(metavar="A", help="Lines, or a saved filter; - is a pipe.")],
    b: Annotated[str, Argument(metavar="B", help="The lines to print where A lacks them.")],
    exact: Annotated[
        bool,
        Option("--exact", help="Leave out no line by a wrong maybe: A's keys go to disk."),
    ] = False,
    capacity: Annotated[
        int | None,
        options.capacity("Distinct lines of A: 10M, 1e9. Default: estimated from its size.", None),
    ] = None,
    error_rate: options.ErrorRate = DEFAULT_ERROR_RATE,
    key: fields.Key = None,
    column: fields.Column = None,
    delimiter: fields.Delimiter = None,
    no_header: fields.NoHeader = False,
    strict: fields.Strict = False,
    json: options.JsonSummary = False,
    quiet: options.NoProgress = False,
) -> int:
    """Print the lines of B that are not in A, in their order, as often as they come.

    A is read first, into a filter; then B goes past it. Neither is sorted or held in memory. With
    --key or --column, lines are the same if that field of them is.
    """
    if a == b == "-":
        raise bad_parameter("only one of A and B can be standard input")
    asked = fields.parse(key, column, delimiter, no_header, strict, [b])
    sizes = input_sizes([a, b])
    progress = LineProgress(sum(sizes) if sizes else None, quiet, "diff")
    with ExitStack() as stack:
        stack.callback(progress.stop)
        pump = LinePump(stack.enter_context(Interrupts()))
        ask: Step
        if is_filter(a):
            saved = _saved(a, exact)
            ask, error_rate = _asking(saved), saved.estimated_error_rate
        elif exact:
            from bloomery.cli.lines.exact import ExactLines

            kept = stack.enter_context(ExactLines(None, None, None))
            LineReader(pump, asked, progress, kept.add_lines).read_all([a])
            ask = kept.absent_lines
        else:
            filled = _filled(a, asked, capacity, error_rate, pump, progress)
            ask, error_rate = filled.absent_lines, filled.facts()["error_rate"]
        reader = LineReader(pump, asked, progress, ask, emit)
        reader.read_all([b])
    if json:
        from json import dumps

        counts = {"lines": reader.lines, "absent": reader.chosen, "without_key": reader.missing}
        note(dumps({**counts, "exact": exact, "error_rate": 0 if exact else error_rate}))
    return 0


def _asking(filter: AnyFilter) -> Step:
    def ask(data: memoryview, final: bool, key: LineKey | None) -> Chunk:
        return filter.contains_lines(data, final=final, invert=True, key=key)

    return ask


def _saved(path: str, exact: bool) -> AnyFilter:
    if exact:
        raise IncompatibleFilters(f"{path} is a filter, and --exact needs the lines it was made of")
    if (kind := key_type(path)) not in (None, "str"):
        raise IncompatibleFilters(f"{path}: its keys are of type {kind}, and lines are text")
    filter = state.load_any(path, mmap=True)
    if filter.saturated:
        say(
            f"warning: {path} holds more keys than it was made for: a line that it lacks is left"
            f" out with a chance of {show_rate(filter.estimated_error_rate)}"
        )
    return filter


def _filled(
    path: str,
    asked: fields.FieldOptions,
    capacity: int | None,
    error_rate: float,
    pump: LinePump,
    progress: LineProgress,
) -> GrowingLines:
    sizes = input_sizes([path])
    with InputFile(path) as source:
        room = room_for([path], sizes, pump, source) if capacity is None else capacity
        kept = GrowingLines(room, error_rate)
        LineReader(pump, asked, progress, kept.add_lines).read(source)
    return kept


COMMANDS = [("diff", diff, EXAMPLE)]

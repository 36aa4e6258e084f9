"""`bloomery admission`: what cache admission would do for the requests of a trace."""

from typing import Annotated, Any

import typer

from bloomery.apps.caching.traces import Outcome, TraceComparison, TraceRequest, read_trace
from bloomery.cli import options
from bloomery.cli.amounts import parse_memory, show_memory
from bloomery.cli.progress import ByteProgress
from bloomery.cli.terminal import emit_line, render, say
from bloomery.errors import InvalidParameter
from bloomery.storage import inputs

EXAMPLE = "bloomery admission trace.gz --cache 1GB; bloomery admission - -c 1GB -c 10GB --window 1d"
_STEP = 4096  # requests between two looks at the clock


def admission(
    trace: Annotated[
        str, typer.Argument(metavar="TRACE", help="A file of lines `time key size`; - for stdin.")
    ],
    cache: Annotated[
        list[int],
        typer.Option(
            "--cache",
            "-c",
            parser=parse_memory,
            metavar="SIZE",
            help="Size of the cache: 100MB, 1GB. Several are compared.",
        ),
    ],
    capacity: Annotated[
        int, options.capacity("Keys asked for once that are remembered.", None)
    ] = 1_000_000,
    window: Annotated[
        str | None,
        typer.Option(
            "--window",
            metavar="TIME",
            help="How long a first request is remembered, by the trace's time: 12h, 7d.",
        ),
    ] = None,
    error_rate: Annotated[
        float, options.error_rate("Share of first requests that are cached by mistake.", None)
    ] = 0.01,
    strict: Annotated[
        bool, typer.Option("--strict", help="End at the first line that is no request.")
    ] = False,
    json: options.Json = False,
) -> int:
    """Replay a trace of requests through a cache (least recently used goes first), without
    admission and with it: hit ratio, byte hit ratio, writes.

    With admission an object is cached at its second request. A line is `time key size`: seconds,
    any text, bytes; what comes behind is not read. Plain, gzip or zstd.
    """
    comparison = TraceComparison(cache, capacity=capacity, window=window, error_rate=error_rate)
    bad, first = 0, ""
    with inputs.InputFile(trace) as source:
        bar = ByteProgress("admission", source.size)
        shown = 0
        try:
            for request in read_trace(inputs.reader(source), strict=strict):
                if isinstance(request, TraceRequest):
                    comparison.ask(request)
                else:
                    bad, first = bad + 1, first or request
                if not comparison.requests % _STEP:
                    bar.advance(source.position - shown)
                    shown = source.position
        finally:
            bar.stop()
    if not comparison.requests:
        raise InvalidParameter(f"{source.name} has no requests: {first or 'it is empty'}")
    if bad:
        say(f"{bad:,} line{' was' if bad == 1 else 's were'} left out; {first}")
    facts = comparison.as_dict()
    if json:
        from json import dumps

        emit_line(dumps({"trace": source.name, "lines_left_out": bad, **facts}, indent=2))
        return 0
    outcomes = comparison.outcomes()
    emit_line(_table(facts, outcomes))
    filter_bytes = max(each.filter_bytes for each in outcomes)
    emit_line(f"The filter takes {show_memory(filter_bytes)} beside the cache.")
    return 0


def _table(facts: dict[str, Any], outcomes: list[Outcome]) -> str:
    from rich.table import Table

    title = (
        f"{facts['requests']:,} requests for {facts['objects']:,} objects of "
        f"{show_memory(facts['object_bytes'])}; {facts['one_hit_share']:.0%} asked for once"
    )
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column("cache", justify="right")
    table.add_column("admission")
    for name in ("hit ratio", "byte hit ratio", "writes", "written"):
        table.add_column(name, justify="right")
    for each in outcomes:
        table.add_row(
            show_memory(each.cache_bytes),
            "2nd request" if each.admission else "none",
            f"{each.hit_ratio:.2%}",
            f"{each.byte_hit_ratio:.2%}",
            f"{each.writes:,}",
            show_memory(each.bytes_written),
        )
    return render(table)


COMMANDS = [("admission", admission, EXAMPLE)]

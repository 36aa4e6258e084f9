"""`bloomery plan --nodes`: how many nodes and masters, and where that ends."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bloomery.cli.amounts import parse_count, parse_memory, show_memory, show_rate
from bloomery.cli.terminal import emit_line, render
from bloomery.errors import InvalidParameter
from bloomery.sizing.cluster import ClusterPlan, Limit, plan_cluster
from bloomery.sizing.cluster_figures import FIGURES

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["show_nodes"]

_PANEL = "With --nodes"

Checks = Annotated[
    int | None,
    typer.Option(
        "--checks",
        parser=parse_count,
        metavar="N",
        help="Keys that are checked a second.",
        rich_help_panel=_PANEL,
    ),
]

Writes = Annotated[
    int | None,
    typer.Option(
        "--writes",
        parser=parse_count,
        metavar="N",
        help="Keys that are added a second.",
        rich_help_panel=_PANEL,
    ),
]

Batch = Annotated[
    int | None,
    typer.Option(
        "--batch",
        parser=parse_count,
        metavar="N",
        help="Keys a request, or that come at the same moment: 1.",
        rich_help_panel=_PANEL,
    ),
]

MemoryPerNode = Annotated[
    int | None,
    typer.Option(
        "--memory-per-node",
        parser=parse_memory,
        metavar="SIZE",
        help="Of a node's machine: 64GB.",
        rich_help_panel=_PANEL,
    ),
]

MemoryPerMaster = Annotated[
    int | None,
    typer.Option(
        "--memory-per-master",
        parser=parse_memory,
        metavar="SIZE",
        help="Of a master of Redis: 64GB.",
        rich_help_panel=_PANEL,
    ),
]

Network = Annotated[
    int | None,
    typer.Option(
        "--network",
        parser=parse_memory,
        metavar="SIZE",
        help="What a machine sends a second: 1.25GB, which is 10 Gbit.",
        rich_help_panel=_PANEL,
    ),
]

ChecksPerCore = Annotated[
    int | None,
    typer.Option(
        "--checks-per-core",
        parser=parse_count,
        metavar="N",
        help="Measured by you: keys a second that a node checks.",
        rich_help_panel=_PANEL,
    ),
]

WritesPerCore = Annotated[
    int | None,
    typer.Option(
        "--writes-per-core",
        parser=parse_count,
        metavar="N",
        help="Measured by you: keys a second that a node can follow.",
        rich_help_panel=_PANEL,
    ),
]

LoadRate = Annotated[
    int | None,
    typer.Option(
        "--load-rate",
        parser=parse_memory,
        metavar="SIZE",
        help="Measured by you: bits a second into a node, 500MB.",
        rich_help_panel=_PANEL,
    ),
]


# Options that are figures: what they replace, and by what.
_MEASURED: dict[str, Callable[[float], dict[str, float]]] = {
    "checks_per_core": lambda n: {"request_us": 0.0, "key_us": 1e6 / n},
    "writes_per_core": lambda n: {"follow_request_us": 0.0, "follow_key_us": 1e6 / n},
    "load_rate": lambda n: {"load_bytes_a_second": n},
}


def show_nodes(
    capacity: int, error_rate: float, layout: str, given: dict[str, int | None], *, json: bool
) -> int:
    """Print the plan; what is not given is the library's default."""
    said: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    figures = FIGURES
    for name, measured in _MEASURED.items():
        if name in said:
            value = said.pop(name)
            if value < 1:
                raise InvalidParameter(f"{name} must be 1 or more, not {value}")
            figures = replace(figures, **measured(value))
    made = plan_cluster(capacity, error_rate, layout=layout, figures=figures, **said)
    if json:
        from json import dumps

        emit_line(dumps(made.as_dict(), indent=2))
        return 0
    emit_line(_title(made))
    emit_line(render(_plan(made)))
    emit_line("Where it ends")
    emit_line(render(_limits(made.limits)))
    return 0


def _title(made: ClusterPlan) -> str:
    keys = "1 key a request" if made.batch == 1 else f"{made.batch:,} keys a request"
    return (
        f"{made.capacity:,} keys, wrong maybes at most {show_rate(made.error_rate)}; "
        f"{made.checks:,.0f} checks and {made.writes:,.0f} writes a second, {keys}"
    )


def _plan(made: ClusterPlan) -> "Table":
    from rich.table import Table

    many = made.groups > 1
    table = Table(show_header=False)
    table.add_row("bits", f"{show_memory(made.nbytes)}, and {_count(made.shards, 'shard', many)}")
    if many:
        each = f"each has {show_memory(made.group_nbytes)} of the bits"
        table.add_row("groups of nodes", f"[bold]{made.groups:,}[/bold], {each}")
    nodes = f"[bold]{made.all_nodes:,}[/bold] of a core each"
    spare = f"{made.nodes:,} a group, 1 of them to spare" if many else "1 of them to spare"
    table.add_row("nodes", f"{nodes}; {spare}")
    table.add_row("memory of a node", show_memory(made.node_nbytes))
    masters = f"{_count(made.all_masters, 'master')}; {show_memory(made.redis_nbytes)}"
    table.add_row("Redis", masters + (" a group" if many else ""))
    table.add_row("HAProxy", f"{made.balancer_cores:,.1f} cores")
    to_each, out = show_memory(made.stream_bytes_a_second), show_memory(made.stream_bytes_out)
    table.add_row("stream", f"{to_each}/s to each node, {out}/s to all" + (" of a group" * many))
    table.add_row("store-stream-entries", f"{made.stream_entries:,}")
    loads = f"{made.load_seconds:,.1f} s; all at once in {made.load_all_seconds:,.1f} s"
    table.add_row("a node loads in", loads)
    table.add_row("instead, all in Redis", _count(made.shared_masters, "master"))
    return table


def _count(count: int, what: str, each: bool = False) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}{' a group' if each else ''}"


def _limits(limits: tuple[Limit, ...]) -> "Table":
    from rich.table import Table

    table = Table()
    table.add_column("what runs out")
    table.add_column("used", justify="right")
    table.add_column("then")
    for limit in sorted(limits, key=lambda one: -one.share):
        table.add_row(limit.what, f"{limit.share:.1%}", limit.then)
    return table

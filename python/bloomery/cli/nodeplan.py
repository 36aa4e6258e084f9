"""`bloomery plan --nodes`: how many nodes and masters of Redis, and where that ends."""

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

_PANEL = "With --nodes"


def _count_option(help: str) -> Any:
    return typer.Option(parser=parse_count, metavar="N", help=help, rich_help_panel=_PANEL)


def _size_option(help: str) -> Any:
    return typer.Option(parser=parse_memory, metavar="SIZE", help=help, rich_help_panel=_PANEL)


Checks = Annotated[int | None, _count_option("Keys that are checked a second.")]
Writes = Annotated[int | None, _count_option("Keys that are added a second.")]
Batch = Annotated[int | None, _count_option("Keys a request, or that come at the same moment: 1.")]
MemoryPerNode = Annotated[int | None, _size_option("Of a node's machine: 64GB.")]
MemoryPerMaster = Annotated[int | None, _size_option("Of a Redis: 64GB.")]
Network = Annotated[
    int | None, _size_option("What a machine sends a second: 1.25GB, which is 10 Gbit.")
]
ChecksPerCore = Annotated[
    int | None, _count_option("Measured by you: keys a second that a node checks.")
]
WritesPerCore = Annotated[
    int | None, _count_option("Measured by you: keys a second that a node can follow.")
]
LoadRate = Annotated[
    int | None, _size_option("Measured by you: what a node loads a second, 500MB.")
]

# Options that are figures: what they replace, and by what.
_MEASURED: dict[str, Callable[[float], dict[str, float]]] = {
    "checks_per_core": lambda n: {"request_us": 0.0, "key_us": 1e6 / n},
    "writes_per_core": lambda n: {"follow_request_us": 0.0, "follow_key_us": 1e6 / n},
    "load_rate": lambda n: {"load_bytes_a_second": n},
}


def show_nodes(
    capacity: int, error_rate: float, layout: str, options: dict[str, int | None], *, json: bool
) -> int:
    """Print the plan; what is not given is the library's default."""
    wanted: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    figures = FIGURES
    for name, measured in _MEASURED.items():
        if name in wanted:
            value = wanted.pop(name)
            if value < 1:
                raise InvalidParameter(f"{name} must be 1 or more, not {value}")
            figures = replace(figures, **measured(value))
    plan = plan_cluster(capacity, error_rate, layout=layout, figures=figures, **wanted)
    if json:
        from json import dumps

        emit_line(dumps(plan.as_dict(), indent=2))
        return 0
    emit_line(_title(plan))
    emit_line(render(_plan_table(plan)))
    emit_line("Where it ends")
    emit_line(render(_limits_table(plan.limits)))
    return 0


def _title(plan: ClusterPlan) -> str:
    keys = "1 key a request" if plan.batch == 1 else f"{plan.batch:,} keys a request"
    return (
        f"{plan.capacity:,} keys, wrong maybes at most {show_rate(plan.error_rate)}; "
        f"{plan.checks:,.0f} checks and {plan.writes:,.0f} writes a second, {keys}"
    )


def _plan_table(plan: ClusterPlan) -> "Table":
    from rich.table import Table

    many = plan.groups > 1
    table = Table(show_header=False)
    table.add_row("bits", show_memory(plan.nbytes))
    if many:
        each = f"each has {show_memory(plan.group_nbytes)} of the bits"
        table.add_row("groups of nodes", f"[bold]{plan.groups:,}[/bold], {each}")
    nodes = f"[bold]{plan.all_nodes:,}[/bold] of a core each"
    spare = f"{plan.nodes:,} a group, 1 of them to spare" if many else "1 of them to spare"
    table.add_row("nodes", f"{nodes}; {spare}")
    table.add_row("memory of a node", show_memory(plan.node_nbytes))
    redis = f"{_count(plan.groups, 'master')}; {show_memory(plan.redis_nbytes)}"
    table.add_row("Redis", redis + (" each" if many else ""))
    table.add_row("HAProxy", f"{plan.balancer_cores:,.1f} cores")
    to_each, out = show_memory(plan.stream_bytes_a_second), show_memory(plan.stream_bytes_out)
    table.add_row("the log", f"{to_each}/s to each node, {out}/s to all" + (" of a group" * many))
    table.add_row("store-stream-bytes", f"{plan.stream_bytes:,}")
    loads = f"{plan.load_seconds:,.1f} s; all at once in {plan.load_all_seconds:,.1f} s"
    table.add_row("a node loads in", loads)
    table.add_row("instead, a RedisFilter", _count(plan.shared_masters, "master"))
    return table


def _count(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _limits_table(limits: tuple[Limit, ...]) -> "Table":
    from rich.table import Table

    table = Table()
    table.add_column("what runs out")
    table.add_column("used", justify="right")
    table.add_column("then")
    for limit in sorted(limits, key=lambda limit: -limit.share):
        table.add_row(limit.what, f"{limit.share:.1%}", limit.then)
    return table

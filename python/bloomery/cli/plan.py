"""`bloomery plan`: how much memory for how many keys, before anything is built."""

from typing import Annotated

import typer

from bloomery import sizing
from bloomery.cli import nodeplan, options
from bloomery.cli.amounts import parse_count, parse_memory, parse_rate, show_memory, show_rate
from bloomery.cli.terminal import emit_json, emit_line, render
from bloomery.errors import InvalidParameter

EXAMPLE = (
    "bloomery plan 1e9 1%; bloomery plan --memory 1GB -e 1%; bloomery plan 1e9 --nodes --checks 1M"
    "; bloomery plan 100k --non-members 10M"
)


def plan(
    capacity: Annotated[
        int | None,
        typer.Argument(
            parser=parse_count, metavar="[CAPACITY]", help="Distinct keys: 1e9, 10M, 1_000_000."
        ),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Argument(
            parser=parse_rate, metavar="[ERROR_RATE]", help="Allowed share of wrong maybes: 1%."
        ),
    ] = None,
    error_rate: Annotated[
        float | None,
        options.error_rate("The same as an option, for a plan without a capacity.", None),
    ] = None,
    memory: Annotated[
        int | None,
        typer.Option(
            "--memory", "-m", parser=parse_memory, metavar="SIZE", help="Memory: 64MB, 1.5GB, 1GiB."
        ),
    ] = None,
    hashes: Annotated[
        int | None,
        typer.Option(
            "--hashes", "-k", parser=parse_count, metavar="K", help="Bits that a key sets."
        ),
    ] = None,
    layout: Annotated[
        options.Layout | None,
        typer.Option("--layout", metavar="NAME", help="Only blocked, or only classic."),
    ] = None,
    non_members: Annotated[
        int | None,
        typer.Option(
            "--non-members",
            parser=parse_count,
            metavar="N",
            help="Plan an exact set instead: CAPACITY members, and so many known non-members.",
        ),
    ] = None,
    nodes: Annotated[
        bool,
        typer.Option("--nodes", help="Plan servers that share the filter by Redis instead."),
    ] = False,
    checks: nodeplan.Checks = None,
    writes: nodeplan.Writes = None,
    batch: nodeplan.Batch = None,
    memory_per_node: nodeplan.MemoryPerNode = None,
    memory_per_master: nodeplan.MemoryPerMaster = None,
    network: nodeplan.Network = None,
    checks_per_core: nodeplan.ChecksPerCore = None,
    writes_per_core: nodeplan.WritesPerCore = None,
    load_rate: nodeplan.LoadRate = None,
    json: options.Json = False,
) -> int:
    """Size a filter: from any two or three of capacity, error rate, memory and hashes, the rest;
    with --nodes, how many servers and how much Redis so many keys and requests take; with
    --non-members, an exact set."""
    if rate is not None and error_rate is not None:
        raise typer.BadParameter("the error rate is given twice", param_hint="--error-rate")
    wanted = rate if rate is not None else error_rate
    if non_members is not None:
        return _show_exact(capacity, non_members, wanted, memory or hashes or layout or nodes, json)
    if capacity is not None and wanted is None and memory is None and hashes is None:
        wanted = 0.01  # the library's default
    given = {
        "checks": checks,
        "writes": writes,
        "batch": batch,
        "memory_per_node": memory_per_node,
        "memory_per_master": memory_per_master,
        "network": network,
        "checks_per_core": checks_per_core,
        "writes_per_core": writes_per_core,
        "load_rate": load_rate,
    }
    if nodes:
        if memory is not None or hashes is not None:
            raise typer.BadParameter("cannot go with --memory or --hashes", param_hint="--nodes")
        if capacity is None:
            raise typer.BadParameter("needs a capacity: 1e9, say", param_hint="--nodes")
        rate = 0.01 if wanted is None else wanted
        if rate >= 1:  # as `bloomery cluster up --nodes 3` has it
            raise typer.BadParameter(
                f"takes no number (how many there must be is what comes out), and {rate:g} is no "
                "error rate",
                param_hint="--nodes",
            )
        return nodeplan.show_nodes(capacity, rate, layout or "blocked", given, json=json)
    for name, value in given.items():
        if value is not None:
            raise typer.BadParameter("needs --nodes", param_hint=f"--{name.replace('_', '-')}")
    plans: list[sizing.Plan] = []
    refused: dict[str, InvalidParameter] = {}
    for name in [layout] if layout else ["blocked", "classic"]:
        solved = _solve(capacity, wanted, memory, hashes, name)
        if isinstance(solved, InvalidParameter):
            refused[name] = solved
        else:
            plans.append(solved)
    if not plans:
        raise next(iter(refused.values()))
    if json:
        from json import dumps

        figures: dict[str, object] = {plan.layout: plan.as_dict() for plan in plans}
        figures.update({name: {"error": str(why)} for name, why in refused.items()})
        emit_line(dumps(figures[layout] if layout else figures, indent=2))
        return 0
    emit_line(_table(plans))
    for name, why in refused.items():
        emit_line(f"{name}: {why}")
    return 0


def _show_exact(
    members: int | None, non_members: int, rate: float | None, other: object, json: bool
) -> int:
    """The plan of an exact set."""
    if members is None or other:
        why = "goes with the number of members and an error rate, and nothing else"
        raise typer.BadParameter(why, param_hint="--non-members")
    plan = sizing.exact_plan(members, non_members, error_rate=rate)
    if json:
        emit_json(plan.as_dict(), indent=2)
        return 0
    from rich.table import Table

    title = f"{members:,} members, {non_members:,} non-members, no error about any of them"
    table = Table(title=title, title_justify="left", title_style="bold", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    bits = 8 * plan.nbytes
    held = "non-members" if plan.holds_non_members else "members"
    table.add_row("memory", f"[bold]{show_memory(plan.nbytes)}[/bold]")
    if plan.fingerprint_bits:
        what = f"first level: {plan.fingerprint_bits} bits for each of the {held}"
        table.add_row(what, show_memory(plan.first_nbytes))
    table.add_row(
        f"last level: a bit for each of about {plan.second_keys:,} keys left",
        show_memory(plan.second_nbytes),
    )
    fewer = min(members, non_members)
    if fewer:
        table.add_row("bits for each key of the smaller side", f"{bits / fewer:.2f}")
        table.add_row("the least that can tell them apart", f"{plan.least_bits / fewer:.2f}")
        table.add_row("a cascade of ideal filters", f"{plan.cascade_bits / fewer:.2f}")
    table.add_row("keys of neither side that are a yes", show_rate(plan.error_rate))
    emit_line(render(table))
    return 0


def _solve(
    capacity: int | None, rate: float | None, memory: int | None, hashes: int | None, layout: str
) -> sizing.Plan | InvalidParameter:
    """The plan, or why this layout has none (9 hashes do not fit the blocked one)."""
    try:
        return sizing.solve(
            capacity=capacity, error_rate=rate, memory=memory, num_hashes=hashes, layout=layout
        )
    except InvalidParameter as why:
        return why


def _table(plans: list[sizing.Plan]) -> str:
    from rich.table import Table

    table = Table(
        title=_title(plans), title_justify="left", title_style="bold", pad_edge=True, expand=False
    )
    table.add_column("layout")
    for plan in plans:
        table.add_column(plan.layout, justify="right")
    if len({(plan.capacity, plan.error_rate) for plan in plans}) > 1:
        table.add_row("capacity", *(f"{plan.capacity:,} keys" for plan in plans))
        table.add_row("error rate", *(show_rate(plan.error_rate) for plan in plans))
    table.add_row("memory", *(f"[bold]{show_memory(plan.nbytes)}[/bold]" for plan in plans))
    table.add_row("bits a key", *(f"{plan.bits_per_key:.2f}" for plan in plans))
    table.add_row("hashes", *(_hashes(plan) for plan in plans))
    expected = [show_rate(plan.expected_error_rate) for plan in plans]
    table.add_row("expected rate when full", *expected)
    table.add_row("above the textbook optimum", *(f"{plan.overhead:.1%}" for plan in plans))
    table.add_row("memory accesses a key", *(_accesses(plan) for plan in plans))
    return render(table)


def _title(plans: list[sizing.Plan]) -> str:
    first = plans[0]
    if len({(plan.capacity, plan.error_rate) for plan in plans}) > 1:
        return f"In {show_memory(max(plan.nbytes for plan in plans))}"
    return f"{first.capacity:,} keys, wrong maybes at most {show_rate(first.error_rate)}"


def _hashes(plan: sizing.Plan) -> str:
    if plan.lines_per_key == 2:
        return f"{plan.num_hashes} (2 x {plan.num_hashes // 2})"
    return str(plan.num_hashes)


def _accesses(plan: sizing.Plan) -> str:
    return str(plan.lines_per_key or f"up to {plan.num_hashes}")


COMMANDS = [("plan", plan, EXAMPLE)]

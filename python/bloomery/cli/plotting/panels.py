"""What `bloomery plot` draws: panels with lines, from a server's samples or from a filter file."""

import math
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from bloomery.cli.amounts import show_memory, show_rate
from bloomery.cli.files import state
from bloomery.errors import InvalidParameter
from bloomery.filters.files import holds_a_bank
from bloomery.sizing.family import FamilyPlan, plan_kind

Unit = Literal["rate", "share", "keys", "keys a second", "bytes"]
_POINTS = 81  # of a curve
_OVERFULL = 2.0  # times its capacity: how far a curve goes


@dataclass(frozen=True, slots=True)
class PlotLine:
    """Points of one figure, in order; nan where it is not known."""

    name: str
    xs: list[float]
    ys: list[float]


@dataclass(frozen=True, slots=True)
class Panel:
    """A chart of one unit. `limit` is drawn across, and `now` is a point to be marked."""

    title: str
    unit: Unit
    lines: list[PlotLine]
    limit: float | None = None
    now: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Drawing:
    """All panels of a filter; the axis below them is of times (Unix, seconds) or of keys."""

    title: str
    axis: Literal["time", "keys"]
    panels: list[Panel] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """All of it, ready for JSON: what is not known is null."""
        figures = asdict(self)
        for panel in figures["panels"]:
            for line in panel["lines"]:
                line["ys"] = [None if math.isnan(y) else y for y in line["ys"]]
        return figures


def show(value: float, unit: Unit) -> str:
    """A value with its unit, as an axis has it."""
    if unit == "rate":
        return show_rate(value)
    if unit == "share":
        return f"{value:.0%}"
    if unit == "bytes":
        return show_memory(value)
    for suffix, scale in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= scale:
            return f"{value / scale:.3g} {suffix}"
    return f"{value:.3g}"


# Of a server.


def of_samples(name: str, info: dict[str, Any], samples: list[dict[str, Any]]) -> Drawing:
    """How a server's filter was over time."""
    last = info.get("sample")  # which the server's tables may not have yet
    if last and (not samples or last["at"] > samples[-1]["at"]):
        samples = [*samples, last]
    if not samples:
        raise InvalidParameter(
            f"there is no sample of {name} yet: the server takes one every few seconds; try again"
        )
    times = [float(sample["at"]) for sample in samples]

    def line(label: str, figure: str) -> PlotLine:
        values = (sample.get(figure) for sample in samples)
        return PlotLine(label, times, [math.nan if v is None else float(v) for v in values])

    rate = info.get("error_rate")
    panels = [
        Panel(
            "wrong maybes",
            "rate",
            [line("estimated", "estimated_error_rate"), line("observed", "observed_error_rate")],
            limit=rate,
        ),
        Panel("places taken", "share", [line("places taken", "fill_ratio")]),
        Panel("keys", "keys", [line("keys", "items")], limit=info.get("capacity")),
        Panel(
            "traffic",
            "keys a second",
            [line("added", "adds_per_second"), line("asked for", "checks_per_second")],
        ),
        Panel("memory", "bytes", [line("memory", "nbytes")]),
    ]
    known = [panel for panel in panels if _is_known(panel)]
    return Drawing(f"{name}, a filter of kind {info['kind']}", "time", known)


def _is_known(panel: Panel) -> bool:
    return any(not math.isnan(y) for line in panel.lines for y in line.ys)


# Of a file.


def of_file(path: str) -> Drawing:
    """How often a filter in a file errs: as it fills, past its capacity, and now."""
    if holds_a_bank(path):
        raise InvalidParameter(
            f"{path}: a bank has a filter for each user, each of its own size: "
            f"`bloomery info {path}` has its figures"
        )
    facts = state.describe(path)
    kind, capacity = facts["kind"], max(1, facts["capacity"])
    rate, count = facts["error_rate"], facts["estimated_count"]
    plan = _plan(facts)
    most = _OVERFULL * max(capacity, count)
    xs = [most * step / (_POINTS - 1) for step in range(_POINTS)]
    rates = [plan.rate_after(x) for x in xs]
    ys = [math.nan if rate is None else rate for rate in rates]
    now = (float(count), float(facts["estimated_error_rate"]))
    panel = Panel("wrong maybes", "rate", [PlotLine("expected", xs, ys)], limit=rate, now=now)
    title = f"{path}, a filter of kind {kind} for {capacity:,} keys"
    return Drawing(title, "keys", [panel])


def _plan(facts: dict[str, Any]) -> FamilyPlan:
    kind, options = facts["kind"], {}
    if kind == "bloom":
        options = {"layout": facts["layout"]}
    elif kind == "counting":
        options = {"counter_bits": facts["counter_bits"]} if "counter_bits" in facts else {}
    elif kind == "cuckoo":
        options = {"grow": bool(facts["grow"])}
    elif kind == "rotating":
        options = {"generations": int(facts["generations"])}
    return plan_kind(kind, max(1, facts["capacity"]), facts["error_rate"], **options)

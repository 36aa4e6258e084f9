"""A drawing as a picture, PNG, SVG or PDF, by matplotlib."""

import math
from typing import Any

from bloomery import extras
from bloomery.cli.plotting.panels import Drawing, Panel, show

_INCHES, _DPI = (9.0, 2.6), 120  # of a panel
_LINES = ("#1f6f8b", "#c05c2c")
_LIMIT, _NOW = "#b3261e", "#222222"


def save(drawing: Drawing, file: Any, form: str) -> None:
    """Write the picture to a file that is open for bytes."""
    with extras.needed("matplotlib", "a picture", "plot"):
        from matplotlib.figure import Figure

    count = len(drawing.panels)
    figure = Figure(figsize=(_INCHES[0], _INCHES[1] * count + 0.9), layout="constrained")
    axes = figure.subplots(count, 1, sharex=True, squeeze=False)[:, 0]
    for panel, ax in zip(drawing.panels, axes, strict=True):
        _panel(panel, ax, drawing.axis)
    axes[-1].set_xlabel("time" if drawing.axis == "time" else "keys added")
    figure.suptitle(drawing.title.replace("$", r"\$"), x=0.01, ha="left", fontsize=12)
    figure.savefig(file, format=form, dpi=_DPI)


def _panel(panel: Panel, ax: Any, axis: str) -> None:
    from matplotlib import dates

    for line, colour in zip(panel.lines, _LINES, strict=False):
        if all(map(math.isnan, line.ys)):
            continue
        xs: list[Any] = line.xs if axis == "keys" else [_moment(x) for x in line.xs]
        ax.plot(xs, line.ys, color=colour, linewidth=1.6, label=line.name)
    if panel.limit is not None:
        label = f"limit {show(panel.limit, panel.unit)}"
        ax.axhline(panel.limit, color=_LIMIT, linewidth=1.2, linestyle="--", label=label)
    if panel.now is not None:
        label = f"now {show(panel.now[1], panel.unit)}"
        ax.plot(*panel.now, "o", color=_NOW, label=label)
    ax.set_title(panel.title, loc="left", fontsize=10)
    ax.set_ylim(bottom=0)
    ax.yaxis.set_major_formatter(lambda value, _: show(value, panel.unit))
    if axis == "keys":
        ax.xaxis.set_major_formatter(lambda value, _: show(value, "keys"))
    else:
        untyped: Any = dates
        locator = untyped.AutoDateLocator()
        ax.xaxis.set_major_locator(locator)
        ax.xaxis.set_major_formatter(untyped.ConciseDateFormatter(locator))
    ax.grid(alpha=0.25)
    ax.legend(loc="best", fontsize=8, frameon=False)


def _moment(seconds: float) -> Any:
    from datetime import datetime

    return datetime.fromtimestamp(seconds)  # in the zone of whoever looks, and matplotlib asks none

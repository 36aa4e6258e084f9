"""`bloomery plot` of files: in the terminal and as a picture."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bloomery import BloomFilter, CuckooFilter, FilterBank, ScalableBloomFilter, StaticFilter
from bloomery.cli.plotting.panels import Drawing, Panel, PlotLine, of_file, show
from bloomery.cli.plotting.text import draw
from conftest import require

Run = Callable[..., Any]
OneLine = Callable[[bytes], str]


def saved(path: Path, filter: Any, keys: int = 0) -> str:
    """A filter in a file, with so many keys."""
    if keys:
        filter.update(range(keys))
    filter.save(path)
    return str(path)


def test_a_file_is_drawn_in_the_terminal(run: Run, tmp_path: Path) -> None:
    """The curve, the rate that is allowed, and where the filter is now."""
    saved(tmp_path / "a.bloom", BloomFilter(1000), 700)
    lines = run("plot", "a.bloom", columns=80).stdout.decode().splitlines()
    assert lines[0] == "a.bloom, a filter of kind bloom for 1,000 keys"
    assert "limit 1%" in lines[2]
    assert any("●" in line for line in lines[3:])
    assert all(len(line) <= 80 for line in lines)
    assert lines[-1].endswith("2 k keys")


@pytest.mark.parametrize(
    "filter",
    [
        BloomFilter(500, 0.02, layout="classic"),
        CuckooFilter(500),
        CuckooFilter(500, grow=True),
        ScalableBloomFilter(500),
        StaticFilter.build(range(500)),
    ],
    ids=lambda filter: filter.kind,
)
def test_the_curve_goes_through_what_is(filter: Any, tmp_path: Path) -> None:
    """What a filter estimates of itself is on its curve, and at its capacity within the limit."""
    drawing = of_file(saved(tmp_path / "f", filter, 250 if filter.kind != "static" else 0))
    [panel] = drawing.panels
    [line] = panel.lines
    assert panel.now is not None
    count, estimated = panel.now
    nearest = min(zip(line.xs, line.ys, strict=True), key=lambda p: abs(p[0] - count))
    assert estimated == pytest.approx(nearest[1], rel=0.5, abs=2e-3)
    within = [y for x, y in zip(line.xs, line.ys, strict=True) if x <= 500]
    assert max(within) <= (panel.limit or 0) * 1.05
    if filter.kind == "cuckoo" and not filter.info()["grow"]:
        assert math.isnan(line.ys[-1])  # it is full: there is no such filter


def test_points_for_a_program(run: Run, tmp_path: Path) -> None:
    """The same as JSON; where a filter takes no more keys there is null, and not a number."""
    saved(tmp_path / "c.bloom", CuckooFilter(1000), 700)
    drawing = json.loads(run("plot", "c.bloom", "--json").stdout)
    [panel] = drawing["panels"]
    assert (drawing["axis"], panel["unit"], panel["limit"]) == ("keys", "rate", 0.01)
    assert panel["now"][0] == 700
    [line] = panel["lines"]
    assert line["ys"][0] == 0
    assert line["ys"][-1] is None


@pytest.mark.slow
def test_a_picture(run: Run, tmp_path: Path) -> None:
    """PNG, SVG and PDF, by the end of the name; a file that is there is replaced whole."""
    require("matplotlib")
    saved(tmp_path / "a.bloom", BloomFilter(1000), 700)
    for form, head in (("png", b"\x89PNG\r\n"), ("svg", b"<?xml"), ("pdf", b"%PDF-")):
        said = run("plot", "a.bloom", "--out", f"a.{form}").stdout.decode()
        assert said.startswith(f"a.{form}: a.bloom, a filter of kind bloom")
        assert (tmp_path / f"a.{form}").read_bytes().startswith(head)


def test_what_cannot_be_drawn(run: Run, one_line: OneLine, tmp_path: Path) -> None:
    """One line says why, and what to do."""
    saved(tmp_path / "a.bloom", BloomFilter(1000))
    FilterBank().save(tmp_path / "bank")
    for arguments, message in (
        (["a.bloom", "--out", "a.gif"], "must end in .png"),
        (["a.bloom", "--since", "1h"], "a file has no past"),
        (["bank"], "bloomery info bank"),
    ):
        assert message in one_line(run("plot", *arguments, code=2).stderr)


def test_asterisks_where_there_is_no_braille() -> None:
    """Only ASCII is drawn, gaps are gaps, and no line is wider than was asked for."""
    line = PlotLine("rate", [0.0, 1.0, 2.0, 3.0], [0.0, math.nan, 0.5, 1.0])
    drawing = Drawing("title", "keys", [Panel("rates", "rate", [line], limit=0.7, now=(2.0, 0.5))])
    text = draw(drawing, 60, 6, braille=False)
    drawn = text.partition("\n\n")[2].partition("\n")[2]
    assert drawn.isascii()
    assert {"*", "-", "o"} <= set(drawn)
    assert max(map(len, text.splitlines())) <= 70


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [(0.01, "rate", "1%"), (0.5, "share", "50%"), (2048, "bytes", "2.05 kB"), (0, "keys", "0")],
)
def test_values_have_units(value: float, unit: Any, shown: str) -> None:
    """As a person reads them."""
    assert show(value, unit) == shown

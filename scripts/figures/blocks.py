"""The marked blocks of the pages: a function makes each, and says which results files it needs."""

from __future__ import annotations

import re
from collections.abc import Callable

from benchmarks.markdown import paragraph
from benchmarks.parts import command_of
from scripts.figures.results import Unmeasured, source

Make = Callable[[], str]
BLOCKS: dict[str, Make] = {}
MARKED = re.compile(r"(<!-- figures: ([\w-]+) -->\n).*?(<!-- end of figures -->)", re.S)


def block(*parts: str) -> Callable[[Make], Make]:
    """Enter a block of the pages, by the name of its function; what it is made from stands below
    it. One of a part that was not measured says so."""

    def enter(make: Make) -> Make:
        def made() -> str:
            try:
                return make() + "\n" + source(*parts)
            except Unmeasured as problem:
                return paragraph(f"*Not measured yet: `{command_of(problem.part)}`.*")

        BLOCKS[make.__name__.replace("_", "-")] = made
        return make

    return enter


def filled(text: str) -> str:
    """A page with its blocks made anew."""
    return MARKED.sub(lambda found: f"{found[1]}\n{BLOCKS[found[2]]()}\n{found[3]}", text)


def rounded(value: float, digits: int = 3) -> str:
    """With so many digits, the others 0: no run says more."""
    text = f"{value:.{digits - 1}e}"
    value = float(text)
    places = max(0, digits - 1 - int(text.partition("e")[2]))
    return f"{value:,.{places}f}"


def many(value: float) -> str:
    """Of keys or requests, per second."""
    return f"{rounded(value / 1e6, 2)} M" if value >= 1e6 else rounded(value)

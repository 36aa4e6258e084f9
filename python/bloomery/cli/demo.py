"""`bloomery demo`: a crawler asks of every link "have I seen this?", and every answer is checked.

The crawl is made up (see crawl.py) but real in kind: the filter decides what is visited. An exact
set is kept beside it, only to count the wrong answers and to show what it would have cost.
"""

import sys
import time
from dataclasses import dataclass, field
from typing import Annotated, Any

from bloomery.cli import options
from bloomery.cli.amounts import show_memory, show_rate
from bloomery.cli.crawl import LINKS_ON_A_PAGE, Crawler
from bloomery.cli.terminal import STDOUT, emit_line, is_terminal, render
from bloomery.filters import BloomFilter

EXAMPLE = "bloomery demo --capacity 2M --error-rate 0.1%"

_BATCH = 20_000  # links to a native call: about 1.2 MB
_PROBE = 50_000
_PROBES = 1_000_000


@dataclass
class CrawlTally:
    """What has been counted so far."""

    started: float = field(default_factory=time.perf_counter)
    pages: int = 0
    links: int = 0
    distinct: int = 0  # by the exact set
    wrong_maybes: int = 0  # new links that the filter took for seen
    wrong_noes: int = 0  # the promise: none, ever
    asking: float = 0.0  # seconds inside the filter
    probes: int = 0
    wrong_probes: int = 0

    @property
    def rate(self) -> float:
        return self.links / self.asking if self.asking else 0.0


def demo(
    capacity: Annotated[int, options.capacity("Distinct URLs to crawl to.", None)] = 2_000_000,
    error_rate: options.ErrorRate = 0.01,
) -> int:
    """Crawl a made-up web for about ten seconds with a filter as its memory, checked by a set."""
    filter = BloomFilter(capacity, error_rate)
    tally = CrawlTally()
    exact: set[str] = set()
    crawler = Crawler()
    with _Display(filter, tally) as display:
        # Up to the last page that fits: what is promised is promised for the capacity.
        while (room := capacity - tally.distinct) >= LINKS_ON_A_PAGE:
            links = crawler.visit(min(_BATCH, room - LINKS_ON_A_PAGE + 1))
            if not links:
                break
            crawler.enqueue(_ask(filter, tally, exact, links))
            tally.pages = crawler.pages
            display.refresh()
        _check(filter, tally, exact, display)
    emit_line(render(_summary(filter, tally, exact)))
    return 1 if tally.wrong_noes else 0


def _ask(filter: BloomFilter, tally: CrawlTally, exact: set[str], links: list[str]) -> list[str]:
    """Add the links; those that were new, by the filter's word. The exact set counts its errors."""
    data = ("\n".join(links) + "\n").encode()
    begin = time.perf_counter()
    new, _, _, added = filter.add_lines(data)
    tally.asking += time.perf_counter() - begin
    known = len(exact)
    exact.update(links)
    tally.links += len(links)
    tally.distinct = len(exact)
    tally.wrong_maybes += len(exact) - known - added
    return new.decode().split("\n")[:-1]


def _check(filter: BloomFilter, tally: CrawlTally, exact: set[str], display: "_Display") -> None:
    """Ask for every URL that was added (all must be maybes) and for as many that never were."""
    everything = list(exact)
    for start in range(0, len(everything), _PROBE):
        data = "\n".join(everything[start : start + _PROBE]).encode()
        tally.wrong_noes += filter.contains_lines(data, final=True, invert=True)[3]
        display.refresh()
    for start in range(0, _PROBES, _PROBE):
        names = (f"https://never.example/{n}.html" for n in range(start, start + _PROBE))
        answers = filter.contains_lines("\n".join(names).encode(), final=True)
        tally.probes += _PROBE
        tally.wrong_probes += answers[3]
        display.refresh()


def _set_memory(exact: set[str]) -> int:
    return sys.getsizeof(exact) + sum(map(sys.getsizeof, exact))


def _observed(wrong: int, of: int) -> str:
    return f"{show_rate(wrong / of)} ({wrong:,} of {of:,})" if of else "-"


def _rows(filter: BloomFilter, tally: CrawlTally) -> list[tuple[str, str]]:
    fill = tally.distinct / filter.capacity
    return [
        ("pages visited", f"{tally.pages:,}"),
        ("links seen", f"{tally.links:,}"),
        ("distinct URLs", f"{tally.distinct:,} of {filter.capacity:,} ({fill:.0%})"),
        ("filter's rate", f"{tally.rate / 1e6:.1f} M URLs/s"),
        ("filter's memory", show_memory(filter.nbytes)),
        ("wrong maybes on the way", _observed(tally.wrong_maybes, tally.distinct)),
        ("wrong maybes when full", _observed(tally.wrong_probes, tally.probes)),
        ("allowed", show_rate(filter.error_rate)),
    ]


def _table(filter: BloomFilter, tally: CrawlTally) -> Any:
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    seconds = time.perf_counter() - tally.started
    table = Table(title=f"bloomery demo: a crawl, {seconds:.1f} s", show_header=False, min_width=64)
    table.title_justify, table.title_style = "left", "bold"
    table.add_column(style="cyan", min_width=24)
    table.add_column(justify="right", min_width=34)
    for name, text in _rows(filter, tally):
        table.add_row(name, text)
    table.add_row("", ProgressBar(filter.capacity, tally.distinct, width=34))
    return table


def _summary(filter: BloomFilter, tally: CrawlTally, exact: set[str]) -> Any:
    from rich.console import Group
    from rich.text import Text

    weight = _set_memory(exact)
    promise = "none" if not tally.wrong_noes else f"{tally.wrong_noes:,} (this is a bug)"
    lines = [
        f"A Python set of the same {len(exact):,} URLs takes {show_memory(weight)},"
        f" {weight / filter.nbytes:.0f} times the filter's {show_memory(filter.nbytes)}.",
        f"Wrong noes: {promise}. Every URL that was added is still answered maybe.",
    ]
    return Group(_table(filter, tally), *(Text(line) for line in lines))


class _Display:
    """The table, redrawn in place eight times a second on a terminal; nothing in a pipe."""

    def __init__(self, filter: BloomFilter, tally: CrawlTally) -> None:
        self._filter, self._tally = filter, tally
        self._live: Any = None
        self._next = 0.0

    def __enter__(self) -> "_Display":
        if is_terminal(STDOUT):
            from rich.live import Live

            self._live = Live(auto_refresh=False, transient=True)
            self._live.start()
        return self

    def refresh(self) -> None:
        now = time.perf_counter()
        if self._live is not None and now >= self._next:
            self._next = now + 0.125
            self._live.update(_table(self._filter, self._tally), refresh=True)

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()


COMMANDS = [("demo", demo, EXAMPLE)]

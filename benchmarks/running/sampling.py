"""What it costs to be seen: the time that 1,000 filters take on the processor, sampled or not."""

from __future__ import annotations

import time

from benchmarks.lines import Line, missing, word
from benchmarks.report import Column, table
from benchmarks.service import servers
from benchmarks.service.rates import QUIET
from benchmarks.service.servers import Running
from benchmarks.service.wire import key, packed
from benchmarks.settings import Record, Settings
from benchmarks.timing import progress

FILTERS = 1000
KINDS = ("scalable", "bloom", "counting", "cuckoo", "rotating")
MOST = 0.02  # of a core
EVERY = 2.5
"""Seconds between keys for every filter: one that nobody uses is hardly written."""
SERVERS = {"sampled": (), "not sampled": ("--set", "sample-seconds=0")}


def run(settings: Settings) -> list[Record]:
    filters, seconds = max(10, int(FILTERS * settings.scale)), settings.sampling_seconds
    with servers.scratch() as folder:
        sampled, plain = (
            servers.start(folder / name, *options, *QUIET)[0] for name, options in SERVERS.items()
        )
        try:
            for server in (sampled, plain):
                _make(server, filters)
            _use(sampled, plain, filters, 4 * EVERY)  # until a first round is over
            progress.step(f"service: {filters:,} filters, sampled and not, {seconds:g} s")
            before = [one.cpu_seconds() for one in (sampled, plain)]
            took = _use(sampled, plain, filters, seconds)
            spent = [
                one.cpu_seconds() - then for one, then in zip((sampled, plain), before, strict=True)
            ]
        finally:
            sampled.stop()
            plain.stop()
    return [
        {
            "table": "sampling",
            "filters": filters,
            "seconds": took,
            "sampled": spent[0] / took,
            "plain": spent[1] / took,
            "share": (spent[0] - spent[1]) / took,
        }
    ]


def _make(server: Running, filters: int) -> None:
    with server.wire() as wire:
        for number in range(filters):
            kind = KINDS[number % len(KINDS)]
            wire.call("BF.RESERVE", f"filter {number}", 0.01, 10_000, "KIND", kind)


def _use(one: Running, other: Running, filters: int, seconds: float) -> float:
    """Use every filter of both again and again; for how long it was."""
    with one.wire() as first, other.wire() as second:
        began, number = time.monotonic(), 0
        while time.monotonic() - began < seconds:
            due = began + (number + 1) * EVERY
            for wire in (first, second):
                words = [
                    packed((command, f"filter {at}", key(number)))
                    for at in range(filters)
                    for command in ("BF.ADD", "BF.EXISTS")
                ]
                wire.socket.sendall(b"".join(words))
                for _ in words:
                    wire.reply()
            number += 1
            time.sleep(max(0.0, due - time.monotonic()))
        return time.monotonic() - began


def render(records: list[Record]) -> str:
    titles = ("filters", "seconds", "sampled", "not sampled", "samples and canary")
    rows = [
        [
            f"{r['filters']:,}",
            f"{r['seconds']:.0f}",
            *(f"{r[name]:.2%}" for name in ("sampled", "plain", "share")),
        ]
        for r in records
    ]
    title = "Share of a core, each filter used every 2.5 s and sampled every 5 s or never"
    return table(title, [Column(t) for t in titles], rows)


def judge(records: list[Record]) -> Line:
    """The *must* of the issue."""
    what, must = f"sampler and canary for {FILTERS:,} filters", f"<= {MOST:.0%} of a core"
    found = [r for r in records if r["table"] == "sampling"]
    if not found:
        return missing(what, must)
    share = found[0]["share"]
    return Line(what, must, "-", f"{share:.2%}", word(share <= MOST))

"""The parts of the benchmarks: what each measures, how long it takes, and where it belongs."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from types import ModuleType


@dataclass(frozen=True)
class Part:
    """`seconds` is what a whole run of it may take on two quiet cores; `alone` names the command of
    one that `make bench` leaves out, and `module` where it is."""

    what: str
    seconds: int
    module: str
    alone: str = ""


JOBS = "make bench-jobs"
PARTS = {
    "library": Part("one million keys beside every peer", 100, "library"),
    "memory": Part("bits a key and the observed error rate", 10, "library.memory"),
    "threads": Part("two threads", 10, "library.threads"),
    "limits": Part(
        "the family, the worst moment and rarer keys, to the plain filter and a C loop",
        110,
        "limits",
    ),
    "family": Part("every other kind of filter beside its peers", 95, "family"),
    "exact": Part(
        "revoked keys among valid ones, without error; filters in a browser", 15, "jobs.exact"
    ),
    "feeds": Part("deltas of signed feeds, and what the check of a token costs", 15, "jobs.feeds"),
    "engines": Part("terms of Polars and DuckDB queries, filters in Parquet files", 45, "engines"),
    "service": Part("bloomery serve beside redis-server", 230, "service"),
    "running": Part("HTTP, samples and users of bloomery serve", 90, "running"),
    "guard": Part("exact answers in front of PostgreSQL", 90, "guard"),
    "cluster": Part("filters in Redis, nodes, HAProxy", 390, "cluster", "make bench-cluster"),
    "stalls": Part("how long a PING waits beside each request", 240, "service.stalling", "--only"),
    "shell": Part(
        "lines of JSON by a field, and what two files have not in common", 90, "jobs.shell", JOBS
    ),
    "hashing": Part("what a hash costs, by its length and by k", 40, "library.hashing", JOBS),
    "admission": Part(
        "caches that keep what is asked for twice, and edges", 25, "jobs.admission", JOBS
    ),
    "seen": Part("which articles each of many users had", 30, "jobs.seen", JOBS),
    "crawl": Part("Scrapy's dupefilters", 120, "jobs.crawl", JOBS),
    "segments": Part(
        "reads that filters spare, in a store and in a folder of files",
        60,
        "engines.segments",
        JOBS,
    ),
    "signatures": Part(
        "one index for ten columns beside Polars, DuckDB and PostgreSQL",
        60,
        "engines.signatures",
        JOBS,
    ),
    "peers": Part("`library` one key at a time, also at 10 M keys", 900, "library.peers", "--only"),
    "batch": Part("`library` in batches, also at 10 M keys", 240, "library.batch", "--only"),
    "large": Part("100 M keys beside a plain C loop", 60, "library.large", "--only"),
    "dedup": Part("the command beside awk", 120, "jobs.dedup", "--only"),
    "billion": Part("10^9 keys, and as many URLs", 90, "library.billion", "make bench-billion"),
    "compare": Part(
        "what else people use, for ten million URLs", 350, "jobs.compare", "make bench-compare"
    ),
    "corpus": Part(
        "text corpora beside Dolma's deduper and datasketch's index",
        240,
        "jobs.corpus",
        "make bench-corpus",
    ),
    "spark": Part("a join of Spark's with a filter before it", 230, "engines.spark", "--only"),
}

USUAL = [name for name, part in PARTS.items() if not part.alone]
"""What `make bench` runs."""

BETWEEN = 3
"""Seconds between two parts, in which the machine is looked at."""


def module_of(name: str) -> ModuleType:
    return import_module(f"benchmarks.{PARTS[name].module}")


def command_of(name: str) -> str:
    """How a part is run by itself."""
    alone = PARTS[name].alone
    return alone if alone.startswith("make") else f'make bench BENCH="--only {name}"'


def expected(names: list[str]) -> int:
    """Seconds of a run of these."""
    return sum(PARTS[name].seconds + BETWEEN for name in names)


def plan(names: list[str]) -> str:
    """What is about to run, with minutes."""
    lines = [f"plan      {len(names)} parts, some {expected(names) / 60:.0f} minutes:"]
    lines += [f"  {PARTS[n].seconds / 60:5.1f} min  {n}: {PARTS[n].what}" for n in names]
    return "\n".join([*lines, *left_out(names)])


def left_out(names: list[str]) -> list[str]:
    """The parts that a run of all others leaves out, by the command that runs them."""
    if names != USUAL:
        return []
    commands: dict[str, list[str]] = {}
    for name, part in PARTS.items():
        if part.alone:
            commands.setdefault(command_of(name), []).append(name)
    return [
        "  not in it, since they take long:",
        *(f"    {command}: {', '.join(parts)}" for command, parts in commands.items()),
    ]

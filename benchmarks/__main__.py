"""`python -m benchmarks [--all] [--quick] [--only NAME…]`: tables, and a results file a part.

A results file, `benchmarks/results/NAME.json`, is what scripts/figures.py makes the published
tables from. That of a quick run goes to a folder that git ignores, and so does one of a machine
that was too busy: its figures do not count. A whole run also leaves `report.txt`: all it printed.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime, timezone
from importlib import import_module
from pathlib import Path

from benchmarks import report, verdict
from benchmarks.lines import Line
from benchmarks.machine import BUSY, describe, others_at_work
from benchmarks.settings import Record, Settings
from benchmarks.timing import progress

RESULTS = Path(__file__).parent / "results"
PARTS = {
    "library": "README's figures of the library, beside every peer, in one run",
    "peers": "one key at a time and in bulk, every peer",
    "batch": "whole lists, int64 arrays and Arrow columns",
    "hashing": "what a hash costs, by its length and by k",
    "memory": "bits a key and the observed error rate",
    "large": "100 M keys beside a plain C loop",
    "threads": "two threads",
    "billion": "10^9 keys, and as many URLs",
    "limits": "the family, the worst moment and rarer keys, to the plain filter and a C loop",
    "dedup": "the command beside awk",
    "shell": "lines of JSON by a field, and what two files have not in common",
    "compare": "what else people use, for ten million URLs",
    "family": "every other kind of filter beside its peers",
    "exact": "revoked keys among valid ones, without error; filters in a browser",
    "segments": "reads that filters spare, in a store and in a folder of files",
    "service": "bloomery serve beside redis-server",
    "running": "HTTP, samples and users of bloomery serve",
    "guard": "exact answers in front of PostgreSQL",
    "admission": "caches that keep what is asked for twice, and edges",
    "seen": "which articles each of many users had",
    "feeds": "deltas of signed feeds, and what the check of a token costs",
    "cluster": "filters in Redis, nodes, HAProxy",
    "crawl": "Scrapy's dupefilters",
    "corpus": "text corpora beside Dolma's deduper and datasketch's index",
    "signatures": "one index for ten columns beside Polars, DuckDB and PostgreSQL",
    "engines": "terms of Polars and DuckDB queries, filters in Parquet files",
    "spark": "a join of Spark's with a filter before it",
}


USUAL = ("library", "memory", "threads", "limits")
"""What `make bench` runs: a quarter of an hour. `--all` takes over an hour."""


def arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="minutes, and smaller sizes")
    parser.add_argument(
        "--only",
        nargs="+",
        choices=PARTS,
        metavar="NAME",
        help="some parts alone: " + ", ".join(PARTS),
    )
    parser.add_argument("--all", action="store_true", help="every part, for over an hour")
    parser.add_argument("--results", type=Path, metavar="FOLDER", help="where results files go")
    parser.add_argument(
        "--scale",
        type=float,
        default=1.0,
        metavar="X",
        help="all sizes times X, to try the harness itself",
    )
    return parser.parse_args(argv)


def run_part(name: str, settings: Settings) -> tuple[list[Record], str]:
    """The records and the text of one part; a failure is told, and the other parts still run."""
    module = import_module(f"benchmarks.{name}")
    # What is imported stays: each of 500 collections before a pass would walk it in vain.
    gc.freeze()
    measure: Callable[[Settings], list[Record]] = module.run
    show: Callable[[list[Record]], str] = module.render
    try:
        records = measure(settings)
        return records, show(records)
    except Exception:  # noqa: BLE001 (an hour of other figures should not be lost to one part)
        return [], "FAILED\n" + traceback.format_exc()
    finally:
        progress.end()


def main(argv: list[str]) -> int:
    options = arguments(argv)
    settings = Settings(quick=options.quick, scale=options.scale)
    whole = not settings.quick and settings.scale == 1
    folder = options.results or (RESULTS if whole else RESULTS / "quick")
    machine = describe()
    told = [report.machine_lines(machine)]
    print(told[-1])
    judged: list[Line] = []
    failed: list[str] = []
    disturbed: list[str] = []
    began = time.monotonic()
    for name in options.only or (PARTS if options.all else USUAL):
        busy = others_at_work() if whole else 0.0  # nobody publishes a quick run
        started = datetime.now(timezone.utc)
        records, text = run_part(name, settings)
        seconds = round((datetime.now(timezone.utc) - started).total_seconds())
        busy = max(busy, others_at_work(10)) if whole else 0.0
        if busy > BUSY:
            disturbed.append(name)
            text = f"NOT PUBLISHED: {busy:g} cores were at work for others\n{text}"
        told.append(report.heading(f"{name}: {PARTS[name]}") + f"\n{text}")
        print(told[-1], flush=True)
        if not records or any("failure" in record for record in records):
            failed.append(name)
            continue
        lines = [x for x in verdict.judge({name: records}, settings) if x.measured != "-"]
        judged += lines
        report.write_json(
            (folder if busy <= BUSY else folder / "busy") / f"{name}.json",
            {
                "part": name,
                "started": f"{started:%Y-%m-%d %H:%M} UTC",
                "command": f"python -m benchmarks {' '.join(argv)}".strip(),
                "machine": machine,
                "settings": settings.as_record(),
                "seconds": seconds,
                "busy": busy,
                "records": records,
                "how_good": [asdict(line) for line in lines],
                "text": text.splitlines(),
            },
        )
    told.append(report.heading("verdict") + "\n" + verdict.render(judged, settings))
    told.append(f"\n{time.monotonic() - began:.0f} s in all; results: {folder}")
    print("\n".join(told[-2:]))
    if disturbed:
        print(
            "the machine was too busy, so these figures are not published, and went to "
            f"{folder / 'busy'}: {', '.join(disturbed)}",
            file=sys.stderr,
        )
    elif not options.only and not failed:
        (folder / "report.txt").write_text("\n".join(told) + "\n", "utf-8")
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed or disturbed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""`python -m benchmarks [--quick] [--only NAME…] [--json FILE]`: the table, and the JSON."""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict
from importlib import import_module
from pathlib import Path

from benchmarks import report, verdict
from benchmarks.machine import BUSY, describe
from benchmarks.settings import Record, Settings
from benchmarks.timing import progress

PARTS = {
    "peers": "one key at a time and in bulk, every peer",
    "batch": "whole lists, int64 arrays and Arrow columns",
    "memory": "bits a key and the observed error rate",
    "large": "100 M keys beside a plain C loop",
    "threads": "two threads",
    "billion": "10^9 keys",
    "dedup": "the command beside awk",
    "family": "every other kind of filter beside its peers",
    "service": "bloomery serve beside redis-server",
    "running": "HTTP, samples and users of bloomery serve",
    "guard": "exact answers in front of PostgreSQL",
    "cluster": "filters in Redis, nodes, HAProxy",
}


def arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="about 2 minutes, smaller sizes")
    parser.add_argument(
        "--only",
        nargs="+",
        choices=PARTS,
        metavar="NAME",
        help="some parts alone: " + ", ".join(PARTS),
    )
    parser.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        help="where the JSON goes",
        default=Path(__file__).parent / "results" / "latest.json",
    )
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
    machine = describe()
    print(report.machine_lines(machine))
    if machine["load_at_start"] > BUSY:
        print("NOTE      the machine is busy: times, ratios and verdicts below mean little")
    parts: dict[str, list[Record]] = {}
    seconds: dict[str, float] = {}
    failed: list[str] = []
    for name, title in PARTS.items():
        if options.only and name not in options.only:
            continue
        started = time.monotonic()
        parts[name], text = run_part(name, settings)
        seconds[name] = round(time.monotonic() - started, 1)
        if not parts[name] or any("failure" in record for record in parts[name]):
            failed.append(name)
        print(report.heading(f"{name}: {title}") + f"\n{text}", flush=True)
    machine["load_at_end"] = round(os.getloadavg()[0], 2)
    lines = verdict.judge(parts, settings)
    if options.only and not failed:
        lines = [line for line in lines if line.measured != "-"]  # those of the other parts
    print(report.heading("verdict") + "\n" + verdict.render(lines, settings))
    report.write_json(
        options.json,
        {
            "machine": machine,
            "settings": settings.as_record(),
            "seconds": seconds,
            "parts": parts,
            "how_good": [asdict(line) for line in lines],
        },
    )
    print(f"\n{sum(seconds.values()):.0f} s in all; JSON: {options.json.name}")
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

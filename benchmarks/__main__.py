"""`python -m benchmarks [--quick] [--only NAME…]`: tables, and a results file a part.

A results file, `benchmarks/results/NAME.json`, is what scripts/figures makes the published tables
from, and `benchmarks/results/summary.md` the report of them all. The files of a quick run go to a
folder that git ignores, and so does one of a machine that was too busy: its figures do not count.
"""

from __future__ import annotations

import argparse
import compileall
import gc
import os
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path

from benchmarks import busy, report, verdict
from benchmarks.lines import Line
from benchmarks.machine import describe
from benchmarks.parts import PARTS, USUAL, expected, module_of, plan
from benchmarks.settings import Record, Settings
from benchmarks.summary import summary
from benchmarks.timing import progress

RESULTS = Path(__file__).parent / "results"


def arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller sizes, not to be published")
    parser.add_argument(
        "--only",
        nargs="+",
        choices=PARTS,
        metavar="NAME",
        help="some parts alone: " + ", ".join(PARTS),
    )
    parser.add_argument(
        "--all", action="store_true", help="the long parts too: three quarters of an hour more"
    )
    parser.add_argument("--plan", action="store_true", help="say what would run, and for how long")
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
    module = module_of(name)
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
    names = options.only or (list(PARTS) if options.all else USUAL)
    if options.plan:
        print(plan(names))
        return 0
    settings = Settings(quick=options.quick, scale=options.scale)
    whole = not settings.quick and settings.scale == 1
    folder = options.results or (RESULTS if whole else RESULTS / "quick")
    about: Record = {
        "run": f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC",
        "command": f"python -m benchmarks {' '.join(argv)}".strip(),
        "machine": describe(),
        "settings": settings.as_record(),
    }
    print(report.machine_lines(about["machine"]))
    if whole:
        print(plan(names), flush=True)
    judged: list[Line] = []
    failed: list[str] = []
    disturbed: list[str] = []
    took: dict[str, int] = {}
    began = time.monotonic()
    for number, name in enumerate(names):
        before = expected(names[:number])
        progress.begin(name, before, PARTS[name].seconds, expected(names))
        others = busy.others_at_work() if whole else 0.0  # nobody publishes a quick run
        started, watch = datetime.now(timezone.utc), busy.Watch()
        records, text = run_part(name, settings)
        took[name] = round((datetime.now(timezone.utc) - started).total_seconds())
        others = max(others, watch.cores()) if whole else 0.0
        if others > busy.BUSY:
            disturbed.append(name)
            text = f"NOT PUBLISHED: {others:g} cores were at work for others\n{text}"
        print(report.heading(f"{name}: {PARTS[name].what}") + f"\n{text}", flush=True)
        if not records or any("failure" in record for record in records):
            failed.append(name)
            continue
        lines = [x for x in verdict.judge({name: records}, settings) if x.measured != "-"]
        judged += lines
        report.write_json(
            (folder if others <= busy.BUSY else folder / "busy") / f"{name}.json",
            {
                "part": name,
                "started": f"{started:%Y-%m-%d %H:%M} UTC",
                **about,
                "seconds": took[name],
                "busy": others,
                "records": records,
                "how_good": [asdict(line) for line in lines],
                "text": text.splitlines(),
            },
        )
    print(report.heading("verdict") + "\n" + verdict.render(judged, settings))
    print(report.minutes(took, {name: PARTS[name].seconds for name in took}))
    print(f"\n{(time.monotonic() - began) / 60:.1f} minutes in all; results: {folder}")
    if whole:
        (folder / "summary.md").write_text(summary(folder), "utf-8")
    for problem, parts in (
        (
            "the machine was too busy, so these figures are not published, and went to "
            f"{folder / 'busy'}",
            disturbed,
        ),
        ("failed", failed),
    ):
        if parts:
            print(f"{problem}: {', '.join(parts)}", file=sys.stderr)
    return 1 if failed or disturbed else 0


if __name__ == "__main__":
    # What is installed has its bytecode; a server that compiles all of itself starts 0.4 s later.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    compileall.compile_dir(Path(__file__).parents[1] / "python", quiet=1)
    busy.adopt()
    sys.exit(main(sys.argv[1:]))

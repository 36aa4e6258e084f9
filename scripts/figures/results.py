"""Results files, as the published figures are made from them."""

from __future__ import annotations

from pathlib import Path

from benchmarks.markdown import paragraph
from benchmarks.settings import Record
from benchmarks.summary import read

TREE = Path(__file__).resolve().parents[2]
RESULTS = TREE / "benchmarks" / "results"


class Unmeasured(Exception):
    """No results file has what is asked for."""

    def __init__(self, part: str) -> None:
        super().__init__(part)
        self.part = part


def result(part: str) -> Record:
    """What a part of the benchmarks found."""
    path = RESULTS / f"{part}.json"
    if not path.exists():
        raise Unmeasured(part)
    return read(path)


def records(part: str, **wanted: object) -> list[Record]:
    """The records of a part that have these values: at least one."""
    found = [r for r in result(part)["records"] if wanted.items() <= r.items()]
    if not found:
        raise Unmeasured(part)
    return found


def record(part: str, **wanted: object) -> Record:
    """The only one."""
    (found,) = records(part, **wanted)
    return found


def source(*parts: str) -> str:
    """Which results files a block is from, and which runs they are."""
    runs = []
    for part in parts:
        found = result(part)
        run = f"`{part}.json`: `{found['command']}`, {found['started'][:10]}"
        if (commit := found["machine"]["commit"]) != "unknown":
            run += f", commit {commit}"
        runs.append(f"{run}, **{found['caveat']}**" if "caveat" in found else run)
    return paragraph(f"({'; '.join(runs)}.)")

"""`shell`: `dedup --key` beside a loop over a set, and `diff` beside sort and comm."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from benchmarks.jobs.dedup import measure, write_lines
from benchmarks.keys import urls
from benchmarks.lines import Line, word
from benchmarks.report import Column, table
from benchmarks.settings import Record, Settings
from benchmarks.timing import progress

ROUNDS = 2
REPEATS = 0.05
SET_LOOP = """
import sys
import orjson
seen = set()
out = sys.stdout.buffer
for line in sys.stdin.buffer:
    url = orjson.loads(line)["url"]
    if url not in seen:
        seen.add(url)
        out.write(line)
"""
SORT = "sort {a} > {folder}/sorted-a && sort {b} | comm -13 {folder}/sorted-a -"


def run(settings: Settings) -> list[Record]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        return [*_dedup(folder, settings.json_lines), *_diff(folder, settings.diff_lines)]


def _dedup(folder: Path, lines: int) -> list[Record]:
    progress.step(f"shell: writing {lines:,} lines of JSON")
    plain, source = folder / "plain", folder / "pages.jsonl"
    distinct = write_lines(plain, lines, REPEATS)
    with plain.open() as given, source.open("w") as file:
        for number, url in enumerate(given):
            file.write(
                f'{{"id":{number},"fetched":"2026-11-17T07:{number % 60:02d}:00Z",'
                f'"url":"{url[:-1]}","status":200,"title":"Page {number} of many",'
                f'"tags":["news","local"],"bytes":{number % 90_000}}}\n'
            )
    plain.unlink()
    commands = {
        "bloomery dedup --key .url": [sys.executable, "-m", "bloomery", "dedup", "--key", ".url"],
        "a loop over a set, with orjson": [sys.executable, "-c", SET_LOOP],
    }
    return _race("dedup", commands, source, folder, {"lines": lines, "wanted": distinct})


def _diff(folder: Path, lines: int) -> list[Record]:
    progress.step(f"shell: writing two files of {lines:,} lines")
    a, b = folder / "a.txt", folder / "b.txt"
    for path, start in ((a, 0), (b, lines // 2)):  # half of the lines are in both
        with path.open("w") as file:
            for low in range(start, start + lines, 1_000_000):
                file.write(urls(low, min(1_000_000, start + lines - low)) + "\n")
    both = {"a": a, "b": b, "folder": folder}
    commands = {
        "bloomery diff": [sys.executable, "-m", "bloomery", "diff", str(a), str(b)],
        "sort and comm": ["sh", "-c", SORT.format(**both)],
    }
    return _race("diff", commands, a, folder, {"lines": lines, "wanted": lines // 2})


def _race(
    what: str, commands: dict[str, list[str]], source: Path, folder: Path, about: Record
) -> list[Record]:
    best: dict[str, Record] = {}
    for number in range(ROUNDS):
        for name, command in commands.items():
            progress.step(f"shell: {what}, round {number + 1}/{ROUNDS}: {name}")
            taken = measure(source, folder / "out", command)
            if name not in best or taken["seconds"] < best[name]["seconds"]:
                best[name] = taken
    for taken in best.values():
        if taken["exit_code"] != 0:
            raise RuntimeError(f"{what}: exit code {taken['exit_code']}")
    about["file_bytes"] = source.stat().st_size
    return [{"table": what, "command": name, **about, **r} for name, r in best.items()]


def judge(records: list[Record]) -> list[Line]:
    """Both lines of the table, with their musts."""
    judged = []
    for what, must_memory in (("dedup", 1 / 20), ("diff", None)):
        ours, theirs = (r for r in records if r["table"] == what)
        faster = theirs["seconds"] / ours["seconds"]
        share = ours["peak_bytes"] / theirs["peak_bytes"]
        good = faster >= 5 and (must_memory is None or share <= must_memory)
        must = ">= 5x" + ("" if must_memory is None else ", memory <= 1/20")
        measured = f"{faster:.1f}x, memory 1/{1 / share:.1f}"
        title = f"{ours['command']}, {ours['lines']:,} lines, to {theirs['command']}"
        judged.append(Line(title, must, "-", measured, word(good)))
    return judged


def render(records: list[Record]) -> str:
    rows = [
        [
            r["command"],
            f"{r['lines']:,}",
            f"{r['seconds']:.2f} s",
            f"{r['peak_bytes'] / 1e6:.0f} MB",
            f"{r['lines_out']:,}",
            f"{r['wanted'] - r['lines_out']:,}",
        ]
        for r in records
    ]
    columns = [
        Column("command", left=True),
        Column("lines"),
        Column("time"),
        Column("peak memory"),
        Column("lines out"),
        Column("lost"),
    ]
    return table(f"lines of JSON by a field, and two files; best of {ROUNDS}", columns, rows)

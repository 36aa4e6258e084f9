"""`dedup`: `bloomery dedup` beside `awk '!s[$0]++'` on files of URL lines, time and peak memory."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.keys import urls
from benchmarks.report import Column, table
from benchmarks.settings import Record, Settings
from benchmarks.timing import progress

MIXES = {"mostly unique": 0.05, "half repeats": 0.5}
"""The share of lines that repeat another one; repeats are spread evenly over the file."""

ROUNDS = 3
BLOCK = 1 << 20


def run(settings: Settings) -> list[Record]:
    awk = shutil.which("awk")
    commands = {"bloomery dedup": _our_command()}
    if awk is not None:
        commands["awk '!s[$0]++'"] = [awk, "!s[$0]++"]
    records: list[Record] = []
    with tempfile.TemporaryDirectory() as folder:
        for mix, share in MIXES.items():
            progress.step(f"dedup: writing {settings.dedup_lines:,} lines, {mix}")
            source = Path(folder) / "lines"
            distinct = write_lines(source, settings.dedup_lines, share)
            best: dict[str, Record] = {}
            for number in range(ROUNDS):
                for name, command in commands.items():
                    progress.step(f"dedup: {mix}, round {number + 1}/{ROUNDS}: {name}")
                    result = measure(source, Path(folder) / "out", command)
                    old = best.setdefault(name, result)
                    if result["seconds"] < old["seconds"]:
                        best[name] = result
            for name, result in best.items():
                records.append(
                    {
                        "command": name,
                        "mix": mix,
                        "repeats": share,
                        "awk": awk_version(),
                        "lines": settings.dedup_lines,
                        "distinct": distinct,
                        "file_bytes": source.stat().st_size,
                        **result,
                        "lost": distinct - result["lines_out"],
                    }
                )
    return records


def _our_command() -> list[str]:
    """The command beside this Python, as a person would call it; else the module."""
    script = Path(sys.executable).with_name("bloomery")
    start = [str(script)] if script.exists() else [sys.executable, "-m", "bloomery"]
    return [*start, "dedup"]


def awk_version() -> str:
    """Which awk `awk` is: they differ by a factor in speed and in memory."""
    for flag in ("--version", "-Wversion"):
        try:
            done = subprocess.run(
                ["awk", flag], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=10
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        words = (done.stdout or done.stderr).splitlines()
        if done.returncode == 0 and words:
            return words[0]
    return "unknown awk"


def write_lines(path: Path, count: int, repeats: float) -> int:
    """`count` URL lines, a share of them repeats, in an order fixed by a seed; how many differ."""
    distinct = count - int(count * repeats)
    lines = urls(0, distinct).encode().split(b"\n")
    random = np.random.default_rng(20240917)
    order = np.concatenate([np.arange(distinct), random.integers(0, distinct, count - distinct)])
    random.shuffle(order)
    with path.open("wb") as file:
        for low in range(0, count, BLOCK):
            file.write(b"".join([lines[i] + b"\n" for i in order[low : low + BLOCK].tolist()]))
    return distinct


def measure(source: Path, target: Path, command: list[str]) -> Record:
    """Time and peak memory of a command that makes one file of another, and how many lines it
    wrote."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.child", str(source), str(target), *command],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    result: Record = json.loads(done.stdout)
    with target.open("rb") as file:
        blocks = iter(lambda: file.read(BLOCK), b"")
        result["lines_out"] = sum(block.count(b"\n") for block in blocks)
    target.unlink()
    return result


def render(records: list[Record]) -> str:
    rows = []
    for r in records:
        failed = "" if r["exit_code"] == 0 else f" (exit code {r['exit_code']})"
        rows.append(
            [
                r["command"] + failed,
                f"{r['mix']} ({r['repeats']:.0%} repeats)",
                f"{r['seconds']:.2f} s",
                f"{r['lines'] / r['seconds'] / 1e6:.2f} M",
                f"{r['peak_bytes'] / 1e6:.0f} MB",
                f"{r['lines_out']:,}",
                f"{r['lost'] / r['distinct']:.3%}",
            ]
        )
    columns = [
        Column("command", left=True),
        Column("file", left=True),
        Column("time"),
        Column("lines/s"),
        Column("peak memory"),
        Column("lines out"),
        Column("lost"),
    ]
    size = records[0]["file_bytes"] / 1e6
    return table(
        f"{records[0]['lines']:,} URL lines ({size:.0f} MB), best of {ROUNDS}; awk is "
        f"{records[0]['awk']}; lost: first occurrences taken for repeats",
        columns,
        rows,
    )

"""The report of all results files: machine, versions, commit, minutes, musts, and what was printed.

It is `results/summary.md`, and is written after each run whose figures count.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from benchmarks import busy
from benchmarks.markdown import paragraph, table
from benchmarks.parts import PARTS, USUAL, command_of, expected
from benchmarks.settings import Record

MISSED = "MISSED"


class Unpublishable(Exception):
    """A results file whose figures must not be shown."""


def read(path: Path) -> Record:
    """What a part found; an error if it was found on a busy machine, or by a quick run."""
    found: Record = json.loads(path.read_text("utf-8"))
    settings = found["settings"]
    if "note" not in found:  # those before there were results files say what they are
        if found["busy"] > busy.BUSY:
            raise Unpublishable(f"{path.name}: {found['busy']:g} cores were at work for others")
        if settings["quick"] or settings["scale"] != 1:
            raise Unpublishable(f"{path.name}: from a quick run")
    return found


def summary(folder: Path) -> str:
    """The page of a folder of results files."""
    found = {path.stem: read(path) for path in sorted(folder.glob("*.json"))}
    order = [name for name in PARTS if name in found]
    results = {name: found[name] for name in order}
    text = "# What the benchmarks found\n\n" + paragraph(
        "Written by `python -m benchmarks` from the results files beside this page; README and the "
        "pages have their tables from the same files (`make figures`)."
    )
    text += "\n" + _runs(results) + "\n" + _parts(results) + _unmeasured(results)
    text += _musts(results) + _machines(results)
    return text + "".join(_part(name, results[name]) for name in order)


def _runs(results: dict[str, Record]) -> str:
    """Which runs these are from, and how long each took."""
    runs: dict[tuple[str, ...], list[Record]] = {}
    for found in results.values():
        began = found["run"] if "run" in found else found["started"]
        key = (found["command"], began, found["machine"]["commit"])
        runs.setdefault(key, []).append(found)
    rows = [
        (
            f"`{command}`",
            started,
            commit,
            str(len(parts)),
            f"{sum(found['seconds'] for found in parts) / 60:.1f}",
        )
        for (command, started, commit), parts in sorted(runs.items(), key=lambda run: run[0][1])
    ]
    head = ("run", "began", "commit", "parts", "minutes")
    whole = f"All that `make bench` runs may take {expected(USUAL) / 60:.1f} minutes."
    return table(head, rows) + "\n" + paragraph(whole)


def _parts(results: dict[str, Record]) -> str:
    rows = []
    for name, found in results.items():
        verdicts = [line["verdict"] for line in found["how_good"]]
        missed = sum(verdict == MISSED for verdict in verdicts)
        rows.append(
            (
                f"[{name}](#{name})",
                PARTS[name].what,
                f"{found['seconds'] / 60:.1f}",
                f"{PARTS[name].seconds / 60:.1f}",
                "unknown" if found.get("busy") is None else f"{found['busy']:.2f}",
                f"{len(verdicts) - missed}",
                f"**{missed}**" if missed else "0",
            )
        )
    head = ("part", "", "minutes", "may take", "cores of others", "musts met", "missed")
    return table(head, rows)


def _unmeasured(results: dict[str, Record]) -> str:
    names = [name for name in PARTS if name not in results]
    if not names:
        return ""
    told = ", ".join(f"{name} (`{command_of(name)}`)" for name in names)
    return "\n" + paragraph(f"Not measured yet, or not in a run that counts: {told}.")


def _musts(results: dict[str, Record]) -> str:
    rows = [
        (name, line["what"], line["must"], line["measured"])
        for name, found in results.items()
        for line in found["how_good"]
        if line["verdict"] == MISSED
    ]
    if not rows:
        return "\nEvery must was met.\n"
    return "\nMissed:\n\n" + table(("part", "what", "must", "measured"), rows)


def _machines(results: dict[str, Record]) -> str:
    """Each machine once, with its parts."""
    told: dict[str, list[str]] = {}
    for name, found in results.items():
        told.setdefault(_machine(found["machine"]), []).append(name)
    texts = (f"{machine} Parts: {', '.join(names)}." for machine, names in told.items())
    return "\n## Machine and versions\n" + "".join(f"\n{paragraph(text)}" for text in texts)


def _machine(machine: Record) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    return (
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']} GB, "
        f"{machine['system']}, Python {machine['python']}; {versions}."
    )


def _part(name: str, found: Record) -> str:
    note = found.get("note")
    text = f"\n## {name}\n\n" + paragraph(
        f"`{found['command']}`, {found['started']}, {found['seconds']} s, commit "
        f"{found['machine']['commit']}." + (f" Note: {note}." if note else "")
    )
    text += "\n```text\n" + "\n".join(found["text"]) + "\n```\n"
    return text + (("\n" + _lines(found["how_good"])) if found["how_good"] else "")


def _lines(lines: Iterable[Record]) -> str:
    head = ("what", "must", "aim", "measured", "verdict")
    return table(head, [tuple(line.values()) for line in lines])

"""Quarantine for damaged files: `damaged/TIME/` in the data folder has them as they were found, and
a report. Only a person removes it, and until then a server raises an alert."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from bloomery.storage import files

_REPORT = "report.json"


def damaged_folder(data: str | os.PathLike[str]) -> Path:
    """Return the folder of damaged files that were set aside."""
    return Path(data, "damaged")


@dataclass(frozen=True, slots=True)
class QuarantineReport:
    """What is known of the files that were set aside at one start."""

    folder: Path
    lost: bool  # is something that was acknowledged lost?
    problems: list[str]


def set_aside(
    data: str | os.PathLike[str], paths: Iterable[Path], problems: list[str], *, lost: bool
) -> Path:
    """Keep files and folders of a data folder, as they are now, with what is wrong with them.

    They are linked (copied where there are no links): whoever removes the originals removes
    nothing that is kept here, and a kill in between loses nothing.
    """
    above = damaged_folder(data)
    above.mkdir(mode=0o700, exist_ok=True)
    for left in above.glob(".*.tmp"):  # of a start that was killed
        shutil.rmtree(left)
    now = time.time()
    name = time.strftime("%Y%m%dT%H%M%S", time.gmtime(now)) + f".{int(now % 1 * 1e6):06}Z"
    temporary = above / f".{name}.tmp"
    temporary.mkdir(mode=0o700)
    for path in paths:
        target = temporary / path.relative_to(data)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            shutil.copytree(path, target, copy_function=_link)
        else:
            _link(path, target)
    report = {"at": now, "lost": lost, "problems": problems}
    with (temporary / _REPORT).open("w", encoding="utf-8") as file:
        json.dump(report, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(above / name)
    files.sync_folder(str(above))
    files.sync_folder(os.fspath(data))
    return above / name


def _link(source: str | Path, target: str | Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # no hard links here
        shutil.copy2(source, target)


def find(data: str | os.PathLike[str]) -> list[QuarantineReport]:
    """What has been set aside and is still there, the oldest first."""
    reports = []
    above = damaged_folder(data)
    names = sorted(os.listdir(above)) if above.is_dir() else []
    for folder in (above / name for name in names if not name.startswith(".")):
        lost, problems = True, [f"{folder / _REPORT} cannot be read"]
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            report = json.loads((folder / _REPORT).read_bytes())
            lost, problems = bool(report["lost"]), [str(problem) for problem in report["problems"]]
        reports.append(QuarantineReport(folder, lost, problems))
    return reports

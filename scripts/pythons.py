"""The CPythons of this machine that bloomery can be built for.

Looks at PYTHONS (paths, by spaces) or else at PATH and at pyenv's versions: one interpreter for
each minor version from 3.10 on, the free-threaded builds beside the ordinary ones.
"""

import os
import shutil
import subprocess
from pathlib import Path

ASK = (
    "import sys, sysconfig as s; print(sys.implementation.name, *sys.version_info[:2], "
    "int(bool(s.get_config_var('Py_GIL_DISABLED'))), sep=',')"
)


def candidates() -> list[Path]:
    """Every executable that may be an interpreter of ours, the most likely first."""
    if chosen := os.environ.get("PYTHONS"):
        return [Path(python) for python in chosen.split()]
    names = [f"python3.{minor}{kind}" for minor in range(10, 20) for kind in ("", "t")]
    found = [Path(path) for name in names if (path := shutil.which(name))]
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    return sorted(pyenv.glob("versions/*/bin/python3"), reverse=True) + found


def label_of(python: Path) -> str | None:
    """`3.12` or `3.14t` for an interpreter that can run bloomery; None for any other."""
    try:
        answer = subprocess.run([python, "-c", ASK], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if answer.returncode:  # a pyenv shim for a version that is not switched on
        return None
    name, major, minor, free_threaded = answer.stdout.strip().split(",")
    if name != "cpython" or (int(major), int(minor)) < (3, 10):
        return None
    return f"{major}.{minor}" + ("t" if free_threaded == "1" else "")


def interpreters() -> dict[str, Path]:
    """One interpreter for each version."""
    found: dict[str, Path] = {}
    for python in candidates():
        if label := label_of(python):
            found.setdefault(label, python)
    return found

"""Build the wheel for every other CPython on this machine, and run the tests on it there.

Looks at PYTHONS (paths, by spaces) or else at PATH and at pyenv's versions: one interpreter for
each minor version from 3.10 on, the free-threaded builds beside the ordinary ones. An ordinary one
gets all of requirements/dev.txt. A free-threaded one gets whatever of it has a wheel for it: the
tests that need the rest skip.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

TREE = Path(__file__).resolve().parent.parent
WORK = TREE / "target" / "pythons"
LOCK = TREE / "requirements" / "dev.txt"
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
    """One interpreter for each version, without the one that `make test` uses already."""
    mine = None if os.environ.get("PYTHONS") else label_of(Path(sys.executable))
    found: dict[str, Path] = {}
    for python in candidates():
        label = label_of(python)
        if label and label != mine:
            found.setdefault(label, python)
    return found


def check(label: str, python: Path) -> bool:
    """Build, install and test on one interpreter; say how it went."""
    work = WORK / label
    shutil.rmtree(work / "dist", ignore_errors=True)
    env = os.environ | {"CARGO_TARGET_DIR": str(work / "target"), "HYPOTHESIS_PROFILE": "fast"}
    env.pop("PYO3_PYTHON", None)  # ours; maturin sets the interpreter it builds for
    env.pop("CI", None)

    def run(*command: str | Path) -> bool:
        return subprocess.run(command, cwd=TREE, env=env).returncode == 0

    run(python, "-m", "venv", work / "venv")
    inside = work / "venv" / "bin" / "python"
    pip = (inside, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    maturin = Path(sys.executable).parent / "maturin"
    build = ("build", "--quiet", "--release", "--locked", "--interpreter", inside)
    if not run(maturin, *build, "--out", work / "dist"):
        return False
    (wheel,) = (work / "dist").glob("*.whl")
    env["BLOOMERY_WHEEL"] = str(wheel)
    if label.endswith("t"):
        only_wheels = ("--require-hashes", "--no-deps", "--only-binary=:all:", "--requirement")
        one = work / "one.txt"
        for entry in re.findall(r"^\w.*?(?=^\w|\Z)", LOCK.read_text("utf-8"), re.M | re.S):
            one.write_text(entry, "utf-8")
            subprocess.run([*pip, *only_wheels, one], cwd=TREE, env=env, capture_output=True)
        # What lacks a part that has no wheel (polars without its runtime) only half imports.
        broken = subprocess.run([inside, "-m", "pip", "check"], capture_output=True, text=True)
        if names := set(re.findall(r"^(\S+) .* which is not installed", broken.stdout, re.M)):
            run(inside, "-m", "pip", "uninstall", "--quiet", "--yes", *sorted(names))
        ready = True  # as far as it goes; without pytest the run below says so
    else:
        ready = run(*pip, "--require-hashes", "--requirement", LOCK)
    return (
        ready
        and run(*pip, "--no-deps", "--force-reinstall", wheel)
        and run(
            inside, "-m", "pytest", "-q", "-n", "auto", "-p", "no:cacheprovider", "-m", "not soak"
        )
    )


def main() -> int:
    found = interpreters()
    if not any(label.endswith("t") for label in found):
        print("test-pythons: no free-threaded interpreter (3.14t on; PYTHONS=path names one)")
    results = {}
    for label, python in found.items():
        print(f"test-pythons: {label} ({python})", flush=True)
        started = time.monotonic()
        passed = check(label, python)
        results[label] = f"{'passed' if passed else 'FAILED'} in {time.monotonic() - started:.0f} s"
    for label, result in results.items():
        print(f"test-pythons: {label:6} {result}")
    return 0 if found and all(r.startswith("passed") for r in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())

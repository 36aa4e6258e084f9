"""Build the wheel for every other CPython on this machine, and run the tests on it there.

An ordinary one gets all of requirements/dev.txt. A free-threaded one gets whatever of it has a
wheel for it: the tests that need the rest skip.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from scripts.pythons import interpreters, label_of

TREE = Path(__file__).resolve().parent.parent
WORK = TREE / "target" / "pythons"
LOCK = TREE / "requirements" / "dev.txt"


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
    if "PYTHONS" not in os.environ:  # `make test` uses that one already
        found.pop(str(label_of(Path(sys.executable))), None)
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

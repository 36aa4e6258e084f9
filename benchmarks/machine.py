"""What the figures were measured on: machine, versions, commit."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from benchmarks.settings import Record

PACKAGES = (
    "bloomery",
    "abloom",
    "rbloom",
    "fastbloom-rs",
    "pybloomfiltermmap3",
    "pybloom-live",
    "pyprobables",
    "cuckoopy",
    "cuckoofilter",
    "pyfusefilter",
    "pyxorfilter",
    "numpy",
    "pyarrow",
    "redis",
    "hiredis",
    "uvloop",
)


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _huge_pages() -> str:
    """Which setting of transparent huge pages is on: it moves random access by tens of percent."""
    try:
        text = Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text()
        return text[text.index("[") + 1 : text.index("]")]
    except (OSError, ValueError):
        return "unknown"


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        if package == "bloomery":  # on PYTHONPATH, not installed
            import bloomery

            return str(getattr(bloomery, "__version__", "not installed"))
        return "not installed"


def _output(*command: str) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, cwd=Path(__file__).parent
        )
        return done.stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def compiler() -> str:
    return (_output("cc", "--version").splitlines() or ["none"])[0]


def _redis() -> str:
    words = _output("redis-server", "--version").split()
    return next((word[2:] for word in words if word.startswith("v=")), "not installed")


def commit() -> str:
    """The commit, with a + when files differ from it, other than results of runs before."""
    name = _output("git", "rev-parse", "--short=12", "HEAD") or "unknown"
    others = (":/", ":(exclude,top)benchmarks/results")
    differ = _output("git", "status", "--porcelain", "--untracked-files=no", "--", *others)
    return name + ("+" if differ else "")


def describe() -> Record:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # macOS
        cores = os.cpu_count() or 1
    return {
        "cpu": _cpu_model(),
        "cores": cores,
        "memory_gb": round(memory / 1e9, 1),
        "huge_pages": _huge_pages(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "compiler": compiler(),
        "python": sys.version.split()[0],
        "versions": {package: _version(package) for package in PACKAGES}
        | {"redis-server": _redis()},
        "commit": commit(),
    }

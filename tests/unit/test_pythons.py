"""The script that finds the CPythons to build and test for, and the workflows that name them."""

import re
import sys
from pathlib import Path

import pytest
import yaml

from scripts.pythons import interpreters, label_of

TREE = Path(__file__).resolve().parents[2]


def workflow(name: str) -> dict[str, object]:
    """A workflow's jobs, by name."""
    text = (TREE / ".github" / "workflows" / f"{name}.yml").read_text("utf-8")
    found: dict[str, object] = yaml.safe_load(text)["jobs"]
    return found


def test_one_interpreter_for_each_version(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The first of each version that is named; what is no CPython of ours is left out."""
    old = tmp_path / "python"
    old.write_text("#!/bin/sh\necho cpython,3,9,0\n")
    old.chmod(0o755)
    free = tmp_path / "free-threaded"
    free.write_text("#!/bin/sh\necho cpython,3,14,1\n")
    free.chmod(0o755)
    here = Path(sys.executable)
    named = [tmp_path / "gone", old, Path("/bin/false"), here, here.resolve(), free]
    monkeypatch.setenv("PYTHONS", " ".join(map(str, named)))
    assert interpreters() == {str(label_of(here)): here, "3.14t": free}


def test_workflows_run_what_people_run() -> None:
    """CI and releases call `make test`, and Linux's wheels come from `make wheels`."""
    for name, job, command in (
        ("ci", "test", "make test"),
        ("release", "test", "make test"),
        ("wheels", "linux", "make wheels"),
    ):
        assert command in str(workflow(name)[job]), name


def test_workflows_build_for_every_python_that_is_claimed() -> None:
    """Each version of the classifiers has its wheel on every system."""
    claimed = re.findall(r"Python :: (3\.\d+)\"", (TREE / "pyproject.toml").read_text("utf-8"))
    wheels = workflow("wheels")
    assert len(claimed) >= 4
    assert all(f"'{version}'" in str(wheels["others"]) for version in claimed)
    linux = re.search(r"cp31\[(\d)-(\d)\]", str(wheels["linux"]))
    assert linux is not None
    assert all(int(linux[1]) <= int(version[3:]) <= int(linux[2]) for version in claimed)

"""What the tests of storage share."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import missing


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 1 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    try:
        subprocess.run(mount, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        missing("a small disk (only root can mount one)")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)

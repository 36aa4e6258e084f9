"""What the tests of storage share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import limits


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 1 MiB."""
    with limits.small_disk(tmp_path / "disk", 1 << 20) as folder:
        yield folder

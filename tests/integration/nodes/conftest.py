"""Fleets of nodes for the tests."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from integration.nodes.fleet import Fleet

StartFleet = Callable[..., Fleet]


@pytest.fixture
def start_fleet(tmp_path: Path) -> Iterator[StartFleet]:
    """Start nodes of the test's own: `start_fleet(url, nodes=2, store_max_lag_ms=1000)`."""
    with ExitStack() as ends:
        number = 0

        def start(store: str | Iterable[str], **options: Any) -> Fleet:
            nonlocal number
            number += 1
            folder = tmp_path / f"fleet-{number}"
            folder.mkdir()
            return ends.enter_context(Fleet(folder, store, **options))

        yield start

"""A publisher with a key, and a clock that tests set."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from bloomery import BloomFilter
from bloomery.feeds import Manifest, PrivateKey, Subscriber, publish
from conftest import require

require("cryptography")

NOW = 1_800_000_000.0


def bloom(keys: Iterable[Any], capacity: int = 10_000, rate: float = 0.001) -> BloomFilter:
    """A plain filter of these keys."""
    filter = BloomFilter(capacity, rate)
    filter.update(keys)
    return filter


class Feed:
    """A feed in a folder, its key, and the time."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.copy = folder / "feed", folder / "copy"
        self.key = PrivateKey.create(folder / "feed.key")
        self.now = NOW

    def clock(self) -> float:
        """The time that publisher and subscribers go by."""
        return self.now

    def later(self, days: float) -> Feed:
        """Let days pass."""
        self.now += 86400 * days
        return self

    def publish(self, filter: Any, **options: Any) -> Manifest:
        """Publish by the feed's own key, unless others are given."""
        keys = options.pop("keys", self.key)
        return publish(filter, self.folder, keys, clock=self.clock, **options)

    def subscriber(self, source: Any = "", **options: Any) -> Subscriber:
        """A subscriber to the folder, or to another source."""
        keys = options.pop("keys", self.key.public)
        place = self.folder if source == "" else source
        return Subscriber(place, options.pop("copy", self.copy), keys, clock=self.clock, **options)


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    """A feed that nothing was published in yet."""
    return Feed(tmp_path)

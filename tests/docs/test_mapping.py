"""What mapping a file can cost is said wherever it is offered, and what does not map is safe."""

from __future__ import annotations

import inspect
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import bloomery
from bloomery import BloomFilter, CuckooFilter, FilterBank
from bloomery.cli.files import info, membership
from bloomery.integrations.redis import AsyncRedisFilter, RedisFilter

ROOT = Path(__file__).resolve().parents[2]

OFFERS: list[Any] = [
    BloomFilter.load,
    CuckooFilter.load,
    FilterBank,
    FilterBank.open,
    FilterBank.load,
    bloomery.open,
    RedisFilter.load,
    AsyncRedisFilter.load,
    membership.contains,
    membership.add,
    info.info,
]
PAGES = ["README.md", *(f"docs/{page}.md" for page in ("tutorial", "family", "reference", "cli"))]


@pytest.mark.parametrize("offer", OFFERS, ids=lambda offer: offer.__qualname__)
def test_whoever_maps_says_what_it_can_cost(offer: Any) -> None:
    """The docstring, which is a command's help too, names the signal and what brings it."""
    text = " ".join((inspect.getdoc(offer) or "").split())
    assert "SIGBUS" in text
    assert "shorter" in text


@pytest.mark.parametrize("page", PAGES)
def test_pages_that_speak_of_mapping_say_it(page: str) -> None:
    """So do the pages."""
    assert "SIGBUS" in (ROOT / page).read_text(encoding="utf-8")


_SHORTENED = """
import os, sys
import bloomery
from bloomery import FilterBank
path, mmap = sys.argv[1], sys.argv[2] == "mmap"
found = bloomery.open(path, mmap=mmap)
os.truncate(path, 4096)
batch = ["ada", range(100_000)] if isinstance(found, FilterBank) else [range(100_000)]
assert all(found.contains_many(*batch))
"""


@pytest.mark.skipif(os.name != "posix", reason="no such signals here")
@pytest.mark.parametrize("kind", ["bloom", "bank"])
def test_what_is_read_is_safe_and_what_is_mapped_is_not(kind: str, tmp_path: Path) -> None:
    """A file made shorter by somebody else: read into memory it does not matter, mapped it does."""
    path = tmp_path / "seen"
    for how, expected in (("read", 0), ("mmap", -signal.SIGBUS)):
        if kind == "bloom":
            BloomFilter.from_keys(range(100_000)).save(path)
        else:
            bank = FilterBank(keys_per_filter=100_000)
            bank.update("ada", range(100_000))
            bank.save(path)
        done = subprocess.run(
            [sys.executable, "-c", _SHORTENED, str(path), how], capture_output=True, text=True
        )
        assert done.returncode == expected, done.stderr

"""A read through three SSTables, as RocksDB, Cassandra and others have them: sorted files, the
newest first, each with a filter that says whether it is worth opening."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from bloomery import BloomFilter
from bloomery.service.playground.words import candidates

_BITS, _HASHES = 16, 3


class SsTable(NamedTuple):
    """A sorted file and its filter."""

    name: str
    rows: dict[str, str]
    filter: BloomFilter


def _table(name: str, rows: dict[str, str]) -> SsTable:
    filter = BloomFilter.with_shape(_BITS, _HASHES)
    filter.update(list(rows))
    return SsTable(name, dict(sorted(rows.items())), filter)


TABLES = (
    _table("newest", {"apple": "red", "fig": "purple", "kiwi": "green"}),
    _table("older", {"apple": "green", "banana": "yellow", "plum": "blue"}),
    _table("oldest", {"cherry": "red", "lemon": "yellow", "mango": "orange"}),
)


def read(key: str) -> dict[str, Any]:
    """What happens to a read of this key: table by table until it is found, ready for JSON."""
    steps: list[dict[str, Any]] = []
    value: str | None = None
    for table in TABLES:
        places = list(dict.fromkeys(table.filter.positions(key)))
        step: dict[str, Any] = {"table": table.name, "places": places}
        if value is not None:
            step["outcome"] = "not asked"
        elif key not in table.filter:
            step["outcome"] = "skipped"
        elif key in table.rows:
            value = table.rows[key]
            step["outcome"] = "found"
        else:
            step["outcome"] = "read in vain"
        steps.append(step)
    reads = sum(step["outcome"] in ("found", "read in vain") for step in steps)
    return {"key": key, "steps": steps, "value": value, "reads": reads}


def tables() -> list[dict[str, Any]]:
    """The three tables as a page shows them."""
    return [
        {"name": table.name, "rows": table.rows, "cells": _cells(table.filter)} for table in TABLES
    ]


def _cells(filter: BloomFilter) -> list[int]:
    number = int.from_bytes(bytes(memoryview(filter)), "little")
    return [number >> at & 1 for at in range(filter.num_bits)]


@lru_cache(maxsize=1)
def examples() -> dict[str, str]:
    """A key for each thing that can happen: found in the newest and in the oldest, in none without
    a look, and in none after a look in vain."""
    absent = [word for word in candidates(2000) if not any(word in t.rows for t in TABLES)]
    examples = {"in the newest": "apple", "in the oldest": "cherry"}
    for word in absent:
        outcomes = [step["outcome"] for step in read(word)["steps"]]
        if set(outcomes) == {"skipped"}:
            examples.setdefault("nowhere, and no table is read", word)
        elif outcomes.count("read in vain") == 1:
            examples.setdefault("nowhere, but a filter errs", word)
    return examples

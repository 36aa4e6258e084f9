"""Keys that are written to a shelf as the log applies them."""

from __future__ import annotations

from typing import Any

from bloomery import _native
from bloomery.service.domain.operations import Op
from bloomery.service.engine import Outcome


def added(shelf: _native.Shelf, name: bytes, keys: Any) -> Outcome:
    """Add keys; return their outcome."""
    return _written(shelf, name, keys, Op.ADD)


def removed(shelf: _native.Shelf, name: bytes, keys: Any) -> Outcome:
    """Remove one copy of each key; return their outcome."""
    return _written(shelf, name, keys, Op.REMOVE)


def _written(shelf: _native.Shelf, name: bytes, keys: Any, op: Op) -> Outcome:
    shelf.note_keys(name, keys, op)
    ((number, noted, data),), _ = shelf.take_log()
    outcome = shelf.apply_one(number, noted, data)
    assert outcome is not None
    return outcome

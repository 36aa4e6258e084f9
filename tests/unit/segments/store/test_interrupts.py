"""A store that is interrupted, as by Ctrl-C, at every point of what it does."""

import contextlib
import itertools
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from bloomery.errors import InvalidParameter
from bloomery.segments import SegmentStore
from bloomery.segments.store import manifest, tree, wal
from bloomery.storage import files
from limits import files_no_larger

# An interrupt between the opening of a file and its `with` leaves it to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")
MODULES = tuple(module.__file__ for module in (tree, manifest, files, wal))


class Interrupt(BaseException):
    """What no test runner takes for its own end."""


def interrupted(act: Callable[[], object], at: int) -> bool:
    """Do something, and interrupt it after the given call in the store's code; whether there was
    one."""
    events = itertools.count()

    def profile(frame: FrameType, event: str, _: Any) -> None:
        if not event.endswith("return") or frame.f_code.co_filename not in MODULES:
            return
        if next(events) == at:
            raise Interrupt

    sys.setprofile(profile)
    try:
        act()
    except Interrupt:
        return True
    finally:
        sys.setprofile(None)
    return False


def flush(store: SegmentStore) -> None:
    """Flush what is in the memtable."""
    store.flush()


def compact(store: SegmentStore) -> None:
    """Merge two segments."""
    store.compact()


def change_chance(store: SegmentStore) -> None:
    """Replace the manifest alone."""
    store.fp_chance = 0.2


@pytest.mark.parametrize("act", [flush, compact, change_chance])
def test_an_interrupt_at_any_point_loses_nothing(
    tmp_path: Path, act: Callable[[SegmentStore], None]
) -> None:
    """All that was put is there, at once and when it is opened again; a put after the interrupt is
    kept too, or refused with what to do."""
    with SegmentStore(tmp_path / "s", compact_at=0) as store:
        store.put("flushed", "1")
        store.flush()
        store.put("put", "2")
        if act is compact:
            store.flush()
    for at in itertools.count():
        folder = tmp_path / str(at)
        shutil.copytree(tmp_path / "s", folder)
        expected = {b"flushed": b"1", b"put": b"2"}
        store = SegmentStore(folder, fsync=False, compact_at=0)
        hit = interrupted(partial(act, store), at)
        assert dict(store.scan()) == expected
        with contextlib.suppress(InvalidParameter):  # it is to be opened again first
            store.put("after", "3")
            expected[b"after"] = b"3"
        store.close()
        with SegmentStore(folder) as store:
            assert dict(store.scan()) == expected
        if not hit:
            assert at > 20
            return


def test_an_interrupted_put_does_not_cost_a_later_one(tmp_path: Path) -> None:
    """What is put after it is kept, also if the next write finds no room and is taken back."""
    for at in itertools.count():
        folder = tmp_path / str(at)
        store = SegmentStore(folder)
        store.put("before", "1")
        hit = interrupted(partial(store.put, "long" * 50, "x" * 200), at)
        store.put("after", "2")
        with files_no_larger(store.stats()["log_bytes"] + 500), pytest.raises(OSError, match="wal"):
            store.put("refused", "3" * 5000)
        store.close()
        with SegmentStore(folder) as store:
            assert (store.get("before"), store.get("after")) == (b"1", b"2")
            assert store.get("refused") is None
        if not hit:
            assert at > 5
            return

"""Reads ahead what a restart will need, while it is busy with something else: the filters of the
newest snapshot, while the server's code is imported.

Nothing is decided here. `recovery` takes a filter if its file is still the one that it would read
itself; whatever goes wrong here it will meet there, and say.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bloomery.filters.files import open as open_filter
from bloomery.service.durability import snapshots
from bloomery.service.durability.snapshots import SnapshotManifest

_LEAST = 1 << 20  # bytes of a file: smaller ones are read in no time

_Identity = tuple[int, int, int, int]


class Preload:
    """The large filters of a data folder, as a thread reads them. It ends with the `with` of who
    began it; what it has read belongs to who takes it."""

    def __init__(self, data: str | os.PathLike[str]) -> None:
        self._data = data
        self._read: dict[Path, tuple[_Identity, Any]] = {}
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="bloomery-preload")
        self._thread.start()

    def __enter__(self) -> Preload:
        return self

    def __exit__(self, *problem: object) -> None:
        """Read no more, and let go of what nobody took."""
        self._ended = True
        self._thread.join()
        self._read.clear()

    def take(self) -> Callable[[Path], Any]:
        """Hand over all filters, when they are read: by a function that returns the filter of a
        file, None if it was not read or is another file by now."""
        self._thread.join()
        read, self._read = self._read, {}

        def filter_of(path: Path) -> Any:
            identity, filter = read.pop(path, (None, None))
            return filter if identity == _identity(path) else None

        return filter_of

    def _run(self) -> None:
        with contextlib.suppress(Exception):
            number = snapshots.snapshot_numbers(self._data)[-1]
            manifest = SnapshotManifest.read(self._data, number)
            for saved in manifest.entries:
                large = saved.nbytes >= _LEAST and not saved.partial
                if large and saved.settings.get("kind") != "bank" and not self._ended:
                    path = snapshots.folder_of(self._data, number) / saved.file
                    identity = _identity(path)
                    self._read[path] = identity, open_filter(path)


def _identity(path: Path) -> _Identity:
    about = path.stat()
    return about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns

"""Lines that are remembered whole, on disk: what `--exact` is."""

import errno
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import compress
from pathlib import Path
from typing import Any

from bloomery._native import LineKey
from bloomery.apps import DiskSet
from bloomery.cli.files.keys import join_lines, split_lines
from bloomery.cli.lines.reading import Chunk
from bloomery.filters import RotatingBloomFilter
from bloomery.storage.files import is_head


class ExactLines:
    """Lines as keys of a set on disk, with a filter in front; in a temporary file if it has no
    path."""

    unsaved = "has the lines that came out before; the others will come out again"

    def __init__(self, path: str | None, window: str | None, capacity: int | None) -> None:
        self.path = path
        self._cleanup = ExitStack()
        if path is None:
            folder = tempfile.TemporaryDirectory(prefix="bloomery-dedup-")
            place = Path(self._cleanup.enter_context(folder)) / "seen"
        else:
            place = Path(path)
            if _is_filter(place):
                raise OSError(
                    errno.EINVAL,
                    "is a filter, and --exact needs the keys: name another file for --filter",
                    path,
                )
        front = None
        if window is not None:
            front = RotatingBloomFilter(capacity or 1_000_000, 0.01, window=window)
        self._set = DiskSet(place, front, fsync=path is not None, commit_every=1 << 62)

    def __enter__(self) -> "ExactLines":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # After a failure, what was not committed must not be: those lines did not come out.
        if kind is None or self.path is None:
            self._set.close()
        self._cleanup.close()

    def add_lines(self, data: memoryview, final: bool, key: LineKey | None) -> Chunk:
        return self._choose(self._set.add, data, final, key)

    def absent_lines(self, data: memoryview, final: bool, key: LineKey | None) -> Chunk:
        """As `add_lines`, but adds nothing: the lines that were never added."""
        return self._choose(lambda text: text not in self._set, data, final, key)

    def _choose(
        self, choose: Callable[[bytes], bool], data: memoryview, final: bool, key: LineKey | None
    ) -> Chunk:
        keys: Sequence[bytes | None]
        if key is None:
            lines, consumed = split_lines(data, final)
            keys = lines
        else:
            lines, keys, consumed = key.split(data, final=final)
        chosen = list(compress(lines, [text is None or choose(text) for text in keys]))
        return join_lines(chosen), consumed, len(lines), len(chosen)

    def written(self) -> None:
        self._set.commit()

    def full(self) -> str | None:
        return None

    def save(self) -> None:
        self._set.commit()

    def facts(self) -> dict[str, Any]:
        return {"exact": True, "wrong_maybes": self._set.wrong_maybes}


def _is_filter(path: Path) -> bool:
    return path.is_file() and is_head(path.open("rb").read(16))

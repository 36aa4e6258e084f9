"""Compiles and calls touch.c, the plain C loop that only touches the lines."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt

LINE = 64
Int64s = npt.NDArray[np.int64]


class Unbuildable(Exception):
    """There is no C compiler here, or it refused."""


@contextmanager
def library() -> Iterator[ctypes.CDLL]:
    """touch.c, built with `cc -O3` into a folder that goes away."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "touch.so"
        source = Path(__file__).with_name("touch.c")
        command = ["cc", "-O3", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared"]
        try:
            subprocess.run(
                [*command, "-o", str(target), str(source)],
                check=True,
                capture_output=True,
                text=True,
            )
        except (OSError, subprocess.CalledProcessError) as failure:
            raise Unbuildable(str(getattr(failure, "stderr", "") or failure)) from failure
        loaded = ctypes.CDLL(str(target))
        size, address = ctypes.c_size_t, ctypes.c_void_p
        loaded.touch_map.argtypes = [size]
        loaded.touch_map.restype = address
        loaded.touch_align.argtypes = [address, size, ctypes.c_int]
        loaded.touch_align.restype = address
        loaded.touch_unmap.argtypes = [address, size]
        for name in ("touch_write", "touch_read"):
            function = getattr(loaded, name)
            function.argtypes = [address, ctypes.c_uint64, address, size]
        loaded.touch_write.restype = None
        loaded.touch_read.restype = ctypes.c_uint64
        yield loaded


class Buffer:
    """As many lines as the filter has, in memory of its own, with huge pages or without."""

    def __init__(self, loaded: ctypes.CDLL, nbytes: int, huge: bool) -> None:
        self._library = loaded
        self._nbytes = nbytes
        self.lines = nbytes // LINE
        self._mapped = loaded.touch_map(nbytes)
        if not self._mapped:
            raise MemoryError(f"no {nbytes:,} bytes for the C loop")
        self._words = loaded.touch_align(self._mapped, nbytes, int(huge))

    def write(self, keys: Int64s) -> None:
        self._library.touch_write(self._words, self.lines, keys.ctypes.data, len(keys))

    def read(self, keys: Int64s) -> int:
        return int(self._library.touch_read(self._words, self.lines, keys.ctypes.data, len(keys)))

    def close(self) -> None:
        self._library.touch_unmap(self._mapped, self._nbytes)

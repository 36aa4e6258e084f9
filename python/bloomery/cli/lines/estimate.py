"""How many distinct lines there will be, before reading them: the capacity that nobody gave.

Files hold more duplicates than a glance shows, never fewer: a line that repeats within a sample
repeats in the whole. So the distinct lines of samples, scaled up by bytes, are an upper estimate,
as good as the samples are typical: sixteen of them, spread evenly, 4 MiB in all, about 20 ms.
"""

import os
from collections.abc import Iterator

from bloomery.cli.pump import LinePump
from bloomery.cli.terminal import STDIN
from bloomery.storage.inputs import InputFile, is_compressed

_SAMPLES = 16
_SAMPLE = 256 << 10


def from_samples(paths: list[str], sizes: list[int]) -> int | None:
    """Distinct lines in regular files; None if one is compressed and cannot be looked into."""
    used = distinct = 0
    for path, offsets in _places(paths, sizes):
        fd = STDIN if path == "-" else os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if is_compressed(os.pread(fd, 4, 0)):
                return None
            for offset in offsets:
                sample = _whole_lines(os.pread(fd, _SAMPLE, offset), first=offset == 0)
                used += len(sample)
                distinct += len(set(sample.split(b"\n")))
        finally:
            if path != "-":
                os.close(fd)
    return int(distinct * max(1.0, sum(sizes) / max(1, used)))


def _places(paths: list[str], sizes: list[int]) -> Iterator[tuple[str, list[int]]]:
    """Each path with the offsets to sample there, spread evenly over all files together."""
    step = max(_SAMPLE, sum(sizes) // _SAMPLES)
    start = 0  # of the file at hand, if the files were one
    for path, size in zip(paths, sizes, strict=True):
        first = -start % step
        yield path, list(range(first, size, step))
        start += size


def _whole_lines(sample: bytes, *, first: bool) -> bytes:
    """Without the cut lines at its ends; all of it where there is no line end to cut at."""
    begin = 0 if first else sample.find(b"\n") + 1
    end = sample.rfind(b"\n")
    return sample[begin:end] if end > begin else sample


def from_first_chunk(pump: LinePump, source: InputFile, total: int) -> int:
    """Lines, by the first chunk and the encoded bytes it took: all there is to go by in gzip.

    Those bytes may hold far more than one chunk, which is then not yet handed over.
    """
    first = bytes(pump.prime(source))
    lines = first.count(b"\n") + 1
    decoded = 1 + source.ahead / max(1, len(first))  # in chunks
    return int(lines * decoded * max(1.0, total / max(1, source.position)))

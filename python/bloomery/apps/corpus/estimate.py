"""How many keys a corpus will have, before it is read: the capacity that nobody gave.

The first 2 MiB of up to sixteen files, spread evenly over all bytes there are, are split as the run
will split them. Their distinct keys for each byte of the file, scaled up, are an estimate that is
as good as those beginnings are typical; a quarter is added.
"""

from __future__ import annotations

from collections.abc import Sequence

from bloomery import _native
from bloomery.apps.corpus.files import CorpusFile, DocumentReader

_SAMPLES = 16
_SAMPLE = 2 << 20
_SPARE = 1.25
_LEAST = 1000


def keys(files: Sequence[CorpusFile], splitter: _native.CorpusSplitter) -> int:
    """Return about how many distinct keys the files have, with room to spare."""
    total = sum(file.size for file in files)
    used, distinct_units = 0.0, 0
    for file in _spread(files, total):
        encoded, distinct = _sampled(file, splitter)
        used += encoded
        distinct_units += distinct
    return max(_LEAST, int(distinct_units * max(1.0, total / max(1.0, used)) * _SPARE))


def _spread(files: Sequence[CorpusFile], total: int) -> list[CorpusFile]:
    """Return the files that hold every sixteenth of all bytes."""
    chosen: list[CorpusFile] = []
    start, wanted = 0, 0.0
    for file in files:
        if start + file.size > wanted:
            chosen.append(file)
            wanted = max(wanted + total / _SAMPLES, start + file.size)
        start += file.size
    return chosen


def _sampled(file: CorpusFile, splitter: _native.CorpusSplitter) -> tuple[float, int]:
    """Return how many bytes of the file a sample is, and how many distinct keys it has."""
    reader = DocumentReader(file.path)
    sample = bytearray()
    try:
        while len(sample) < _SAMPLE and not reader.final:
            with reader.fill() as view:
                sample += view
                size = len(view)
            reader.consumed(size)
        position = reader.position if not reader.final else file.size
        # What is decoded already and not read yet took encoded bytes as well.
        encoded = position * len(sample) / max(1, len(sample) + reader.ahead)
    finally:
        reader.close()
    _, _, distinct, split = splitter.sample(bytes(sample), reader.final)
    return encoded * split / max(1, len(sample)), distinct

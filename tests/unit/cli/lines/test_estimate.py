"""The capacity that nobody gave: enough, and not much more."""

import gzip
import random
from pathlib import Path

import pytest

from bloomery.cli.lines import estimate
from bloomery.cli.pump import Interrupts, LinePump
from bloomery.storage.inputs import InputFile


def sampled(*paths: Path) -> int | None:
    """The estimate for these files."""
    return estimate.from_samples([str(p) for p in paths], [p.stat().st_size for p in paths])


@pytest.mark.parametrize("count", [1, 10, 50_000, 400_000])
def test_distinct_lines(tmp_path: Path, count: int) -> None:
    """Lines that are all different are estimated within a few percent, never far below."""
    (tmp_path / "lines").write_bytes(b"".join(b"https://h.example/%d\n" % n for n in range(count)))
    found = sampled(tmp_path / "lines")
    assert found is not None
    assert 0.97 * count <= found <= 1.1 * count + 3


@pytest.mark.slow
def test_duplicates_are_not_paid_for(tmp_path: Path) -> None:
    """Lines that repeat nearby are counted once a sample, and still at least once in all."""
    rng = random.Random(3)
    lines = [b"https://h.example/%d" % min(rng.randrange(1000), 50) for _ in range(400_000)]
    (tmp_path / "lines").write_bytes(b"\n".join(lines))
    found = sampled(tmp_path / "lines")
    assert found is not None
    assert 51 <= found < 5000


def test_unlike_halves(tmp_path: Path) -> None:
    """A file whose first half is all duplicates is not judged by its first half."""
    data = b"x" * 20 + b"\n"
    data = data * 200_000 + b"".join(b"%020d\n" % n for n in range(200_000))
    (tmp_path / "lines").write_bytes(data)
    found = sampled(tmp_path / "lines")
    assert found is not None
    assert found * 1.25 >= 200_000


@pytest.mark.slow
def test_many_small_files(tmp_path: Path) -> None:
    """The samples are spread over all files together."""
    paths = [tmp_path / f"{n}" for n in range(40)]
    for number, path in enumerate(paths):
        path.write_bytes(b"".join(b"%d/%d\n" % (number, n) for n in range(30_000)))
    found = sampled(*paths)
    assert found is not None
    assert 0.9 * 1_200_000 <= found <= 1.15 * 1_200_000


@pytest.mark.parametrize("data", [b"", b"\n", b"no end", b"x" * 3_000_000])
def test_odd_files(tmp_path: Path, data: bytes) -> None:
    """Empty files and files without a line end have an estimate too."""
    (tmp_path / "lines").write_bytes(data)
    found = sampled(tmp_path / "lines")
    assert found is not None
    assert 0 <= found <= 20


@pytest.mark.slow
def test_compressed_files(tmp_path: Path) -> None:
    """Gzip cannot be sampled; the first megabyte's ratio of lines to encoded bytes is scaled up."""
    path = tmp_path / "lines.gz"
    rng = random.Random(5)
    path.write_bytes(
        gzip.compress(b"".join(b"%016x\n" % rng.getrandbits(64) for _ in range(200_000)))
    )
    assert sampled(path) is None
    with Interrupts() as interrupts, InputFile(str(path)) as source:
        found = estimate.from_first_chunk(LinePump(interrupts), source, path.stat().st_size)
    assert 160_000 <= found <= 260_000


@pytest.mark.parametrize("members", [1, 800], ids=["one stream", "many members"])
def test_compressed_files_that_were_mostly_air(tmp_path: Path, members: int) -> None:
    """The first 8 KiB hold far more than a chunk, which counts though it is not read yet; and
    members behind the first chunk do not count as read."""
    path = tmp_path / "lines.gz"
    lines = [b"%s%d\n" % (b"-" * 400, number) for number in range(40_000)]
    each = len(lines) // members
    texts = [b"".join(lines[at : at + each]) for at in range(0, len(lines), each)]
    path.write_bytes(b"".join(map(gzip.compress, texts)))
    with Interrupts() as interrupts, InputFile(str(path)) as source:
        found = estimate.from_first_chunk(LinePump(interrupts), source, path.stat().st_size)
    assert 28_000 <= found <= 60_000

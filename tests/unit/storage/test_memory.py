"""Memory: asked for before it is taken, and never more than was asked."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from bloomery import BloomFilter, _native
from bloomery.errors import CorruptData, InvalidParameter, NotEnoughMemory
from bloomery.filters.files import Loading
from bloomery.storage import memory
from bloomery.storage.files import HEADER_BYTES
from conftest import missing


@pytest.mark.parametrize("layout", ["blocked", "classic"])
def test_too_large_a_filter(layout: Any) -> None:
    """A filter that no machine can hold is refused before anything is allocated."""
    with pytest.raises(NotEnoughMemory, match=r"needs .* are free") as caught:
        BloomFilter(2**40, 0.01, layout=layout)
    assert isinstance(caught.value, MemoryError)
    with pytest.raises(InvalidParameter, match="64-bit hashes"):
        BloomFilter(2**40, 1e-9, layout=layout)


def test_the_limit_is_what_is_free(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A filter is made if it fits into what is free; if not, it is refused in every way in."""
    large = BloomFilter(60_000_000)
    large.save(tmp_path / "large")
    assert large.nbytes > memory.ASK_FROM
    monkeypatch.setattr(memory, "available", lambda: large.nbytes - 1)
    ways: tuple[Callable[[], object], ...] = (
        lambda: BloomFilter(60_000_000),
        large.copy,
        lambda: large | large,
        lambda: BloomFilter.load(tmp_path / "large"),
        lambda: BloomFilter.from_bytes((tmp_path / "large").read_bytes()),
    )
    for way in ways:
        with pytest.raises(NotEnoughMemory, match=f"{large.nbytes - 1:,} are free"):
            way()
    assert "key" not in BloomFilter.load(tmp_path / "large", mmap=True)
    assert BloomFilter(1000).copy().nbytes < memory.ASK_FROM
    monkeypatch.setattr(memory, "available", lambda: large.nbytes)
    assert BloomFilter(60_000_000).nbytes == large.nbytes
    monkeypatch.setattr(memory, "available", lambda: None)
    assert large.copy().nbytes == large.nbytes


def test_what_is_free(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What is free is the least of the machine's and the cgroup's; None where neither says."""
    meminfo, limit, used = (tmp_path / name for name in ("meminfo", "limit", "used"))
    monkeypatch.setattr(memory, "_MEMINFO", meminfo)
    monkeypatch.setattr(memory, "_CGROUPS", ((limit, used),))
    assert memory.available() is None
    meminfo.write_text("MemTotal: 9000 kB\nMemAvailable:    2000 kB\n")
    assert memory.available() == 2000 << 10
    limit.write_text("max\n")
    used.write_text("5\n")
    assert memory.available() == 2000 << 10
    limit.write_text("1000000\n")
    used.write_text("400000\n")
    assert memory.available() == 600_000
    used.write_text("1000001\n")
    assert memory.available() == 0
    meminfo.write_text("nonsense\n")
    limit.write_text("nonsense\n")
    assert memory.available() is None


def limited(script: str, megabytes: int) -> str:
    """The output of a script that may use only so much address space more than it starts with."""
    head = f"""
import re, resource
import numpy as np
from bloomery import BloomFilter, errors
size = int(re.search(r"VmSize:\\s+(\\d+)", open("/proc/self/status").read())[1]) << 10
resource.setrlimit(resource.RLIMIT_AS, (size + ({megabytes} << 20),) * 2)
"""
    run = subprocess.run(
        [sys.executable, "-c", head + script],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-800:]
    return run.stdout


needs_proc = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="not Linux")


@needs_proc
def test_memory_that_cannot_be_had() -> None:
    """Where the machine has room but the process may not use it: an error, not a crash."""
    script = """
try:
    BloomFilter(500_000_000)
except errors.NotEnoughMemory as problem:
    print("refused", problem)
small = BloomFilter(1000)
small.update(range(1000))
print(all(small.contains_many(range(1000))))
"""
    assert limited(script, 300).splitlines()[0].startswith("refused")


@needs_proc
def test_hostile_bytes_allocate_nothing() -> None:
    """A header that promises a gigabyte is refused within a few megabytes."""
    script = """
import struct
from bloomery import _native
raw = bytearray(BloomFilter(10).to_bytes())
for bits in (2**33, 2**40, 2**48):
    struct.pack_into("<Q", raw, 16, bits)
    struct.pack_into("<Q", raw, 56, bits // 8)
    raw[112:120] = _native.checksum(bytes(raw[:112]), 0).to_bytes(8, "little")
    try:
        BloomFilter.from_bytes(bytes(raw))
    except errors.CorruptData:
        print("refused")
"""
    assert limited(script, 60) == "refused\n" * 3


def test_threads_that_cannot_be_started() -> None:
    """Where no more threads can be had a batch is done with fewer, or refused: it does not hang."""
    if not hasattr(os, "getuid") or os.getuid() != 0:
        missing("the right to become another user (root)")
    script = """
import os, resource
import numpy as np
from bloomery import BloomFilter, errors
filter, keys = BloomFilter(2_000_000), np.arange(64 * 17_000)
os.setuid(54_321)  # the limit does not hold for root
resource.setrlimit(resource.RLIMIT_NPROC, (8, 8))
for way in (filter.contains_many, filter.add_many):
    try:
        way(keys, threads=64)
    except errors.BloomeryError:
        pass
filter.update(keys[:1000])
print(filter.contains_many(keys[:1000]).all())
"""
    command = [sys.executable, "-c", script]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (run.returncode, run.stdout) == (0, "True\n"), run.stderr[-500:]


def test_the_bits_live_as_long_as_a_view() -> None:
    """A memoryview of the bits keeps them, after the filter itself is gone."""
    filter = BloomFilter(5_000_000)
    filter.update(range(1000))
    view, before = memoryview(filter), filter.to_bytes()[128:]
    del filter
    assert bytes(view) == before


def test_a_map_lives_as_long_as_its_filter(tmp_path: Path) -> None:
    """A mapped filter answers after its file was removed."""
    path = tmp_path / "filter"
    BloomFilter.from_keys(range(1000)).save(path)
    mapped = BloomFilter.load(path, mmap=True)
    path.unlink()
    assert all(mapped.contains_many(range(1000)))


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_touching_makes_the_memory_and_changes_nothing() -> None:
    """What is touched is there, as it was; the rest is not taken yet."""
    nbytes, part = 256 << 20, 64 << 20
    body = _native.Memory(nbytes)
    body.write(8, b"\xa5" * 4096)
    before = _resident()
    body.touch(0, part)
    assert part * 0.9 < _resident() - before < part * 1.2
    assert body.read(0, 8200) == bytes(8) + b"\xa5" * 4096 + bytes(4096)
    body.touch(nbytes - 100, 1 << 40)  # up to its end
    body.touch(nbytes, 1)
    body.touch(nbytes + 1, 1)


def test_a_filter_in_parts_takes_memory_as_its_parts_come() -> None:
    """A head alone takes none, however much it announces; what is asked of the kernel ahead is
    asked seldom, by few of the parts."""
    whole = BloomFilter(200_000_000)
    whole.add("x")
    data = memoryview(whole.to_bytes())
    loading, before = Loading(), _resident()
    head = bytes(data[:HEADER_BYTES])
    assert loading.nbytes_of(head) == whole.nbytes > 200 << 20
    assert loading.take(0, head) is None
    assert _resident() - before < 1 << 20
    costs, loaded, step = list[int](), None, 256 << 10
    for at in range(HEADER_BYTES, len(data), step):
        part = bytes(data[at : at + step])
        costs.append(loading.nbytes_of(part))
        loaded = loading.take(at, part)
        assert _resident() - before < at + (33 << 20)
    assert costs[-1] == whole.nbytes
    assert 10 < sum(map(bool, costs)) < len(costs) // 20
    assert loaded == whole
    assert Loading().nbytes_of(b"no head") == 0


FILLED = (9 << 20) + 72  # bytes, which several threads read; the last part is short


@pytest.fixture
def filled(tmp_path: Path) -> tuple[Path, bytes]:
    """A file of random bytes after a head, and those bytes."""
    path, content = tmp_path / "content", Random(1).randbytes(FILLED)
    path.write_bytes(b"head" + content)
    return path, content


def fill(path: Path, start: int = 0, before: int = 0) -> tuple[bytes, tuple[int, int]]:
    """Read a file into memory from an offset on; return the memory, and what `fill` returns."""
    body = _native.Memory(start + FILLED + 56)  # whole lines
    with path.open("rb") as file:
        done = body.fill(file.fileno(), 4, start, FILLED, before)
    return body.read(start, FILLED), done


@pytest.mark.parametrize("start", [0, 64, 1 << 20])
def test_file_is_read_by_threads_as_by_one(filled: tuple[Path, bytes], start: int) -> None:
    """Parts are summed in their order, whichever thread reads them."""
    path, content = filled
    for before in (0, 12345):
        assert fill(path, start, before) == (content, (FILLED, _native.checksum(content, before)))


@pytest.mark.parametrize("nbytes", [0, 1, 2 << 20, (2 << 20) + 1, (5 << 20) - 1, FILLED - 1])
def test_file_that_is_shorter_is_read_up_to_its_end(
    filled: tuple[Path, bytes], nbytes: int
) -> None:
    """Nothing after the end counts, and no thread waits for a part that is not there."""
    path, content = filled
    os.truncate(path, 4 + nbytes)
    assert fill(path)[1] == (nbytes, _native.checksum(content[:nbytes]))


def test_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    """By whichever thread it is read."""
    body = _native.Memory(FILLED + 56)
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(IsADirectoryError):
            body.fill(folder, 0, 0, FILLED, 0)
    finally:
        os.close(folder)


@pytest.mark.parametrize("part", range(5))
def test_damage_in_any_part_is_found(tmp_path: Path, part: int) -> None:
    """One flipped bit, in what each thread may have read."""
    path = tmp_path / "filter.bloom"
    made = BloomFilter(8_000_000)
    made.update(range(1000))
    made.save(path)
    assert BloomFilter.load(path) == made
    at = HEADER_BYTES + part * (2 << 20) + 7
    with path.open("r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 4]))
    with pytest.raises(CorruptData):
        BloomFilter.load(path)

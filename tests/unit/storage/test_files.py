"""Saving and loading: all or nothing, checked, mapped, and shared."""

from __future__ import annotations

import os
import pickle
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bloomery import BloomFilter
from bloomery.errors import CorruptData, InvalidParameter, ReadOnlyFilter
from conftest import first_fast
from privates import fold_from

LARGE = 2_500_000  # keys: three chunks of a megabyte, the last one not whole


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A saved filter that holds 0 to 999."""
    saved = tmp_path / "filter.bloom"
    BloomFilter.from_keys(range(1000), 1e-6).save(saved)
    return saved


def python(script: str, *args: Any, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a script in another process."""
    return subprocess.run(
        [sys.executable, "-c", script, *map(str, args)],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("layout", ["blocked", "classic"])
def test_a_file_of_several_chunks(tmp_path: Path, layout: Any) -> None:
    """A filter of several megabytes comes back bit for bit through every door, checksum and all."""
    filter = BloomFilter(LARGE, layout=layout, seed=9)
    filter.update(np.arange(LARGE))
    path = tmp_path / "large.bloom"
    filter.save(path)
    assert path.stat().st_size == filter.nbytes + 128
    assert path.read_bytes() == filter.to_bytes()
    for loaded in (
        BloomFilter.load(path),
        BloomFilter.load(path, verify=False),
        BloomFilter.load(path, mmap=True, verify=True),
        BloomFilter.from_bytes(path.read_bytes()),
        pickle.loads(pickle.dumps(filter)),
    ):
        assert loaded == filter
        assert (loaded.capacity, loaded.error_rate, loaded.seed) == (LARGE, 0.01, 9)


@pytest.mark.parametrize("seed", first_fast(["0", "1", "12345", "random"]))
def test_another_process_answers_the_same(tmp_path: Path, seed: str) -> None:
    """Saved here and loaded in a process with another PYTHONHASHSEED: the same answers."""
    keys: list[Any] = [*range(-50, 50), *map(str, range(100)), (1, "a"), ("b", (2, b"c")), 2**70]
    for hasher in ("xxh3", "murmur3", "fnv1a", "siphash"):
        filter = BloomFilter(250, 0.2, hasher=hasher)
        filter.update(keys)
        filter.save(tmp_path / f"{hasher}.bloom")
    script = """
import sys; from bloomery import BloomFilter
for hasher in ("xxh3", "murmur3", "fnv1a", "siphash"):
    f = BloomFilter.load(f"{sys.argv[1]}/{hasher}.bloom")
    print([i for i in range(2000) if f"absent {i}" in f], f.hash_of("é"), f.hash_of((1, "a")))
    keys = [*range(-50, 50), *map(str, range(100)), (1, "a"), ("b", (2, b"c")), 2**70]
    assert all(key in f for key in keys)
"""
    run = python(script, tmp_path, PYTHONHASHSEED=seed)
    assert run.returncode == 0, run.stderr
    for hasher, line in zip(
        ("xxh3", "murmur3", "fnv1a", "siphash"), run.stdout.splitlines(), strict=True
    ):
        f = BloomFilter.load(tmp_path / f"{hasher}.bloom")
        maybe = [i for i in range(2000) if f"absent {i}" in f]
        assert len(maybe) > 100
        assert line == f"{maybe} {f.hash_of('é')} {f.hash_of((1, 'a'))}"


MUTATORS: dict[str, Callable[[BloomFilter], object]] = {
    "add": lambda f: f.add(5000),
    "add of a key that is there": lambda f: f.add(5),
    "add_many of a list": lambda f: f.add_many([1]),
    "add_many of an array": lambda f: f.add_many(np.arange(3)),
    "add_many of a large array": lambda f: f.add_many(np.arange(100_000)),
    "add_many with threads": lambda f: f.add_many(np.arange(100_000), threads=2),
    "update": lambda f: f.update(iter([1])),
    "add_lines": lambda f: f.add_lines(b"a\nb\n"),
    "|=": lambda f: f.__ior__(f.copy()),
    "&=": lambda f: f.__iand__(f.copy()),
    "clear": lambda f: f.clear(),
    "_fold_from": lambda f: fold_from(f, f.copy()),
}


@pytest.mark.parametrize("name", MUTATORS)
def test_a_read_only_map_rejects_every_change(path: Path, name: str) -> None:
    """A filter mapped without writable answers, and refuses whatever would change it."""
    before = path.read_bytes()
    filter = BloomFilter.load(path, mmap=True)
    assert filter.read_only
    with pytest.raises(ReadOnlyFilter, match="writable=True"):
        MUTATORS[name](filter)
    assert path.read_bytes() == before
    assert all(filter.contains_many(range(1000)))
    assert not filter.copy().read_only
    assert (filter | filter.copy()).add("new") is True


def test_a_writable_map_is_the_file(path: Path) -> None:
    """What is added to a writable map is in the file, and in every other map of it, at once."""
    reader = BloomFilter.load(path, mmap=True)
    with pytest.raises(InvalidParameter, match="mmap=True"):
        BloomFilter.load(path, writable=True)
    writer = BloomFilter.load(path, mmap=True, writable=True)
    assert not writer.read_only
    assert writer.add("new")
    assert "new" in reader
    assert "new" in BloomFilter.load(path)
    writer.save(path)
    saved = BloomFilter.load(path, mmap=True, verify=True)
    assert saved == writer
    writer.add("too late")
    assert "too late" not in saved, "the old map still writes to the file that replaced it"


def test_damage_is_noticed_unless_told_otherwise(path: Path) -> None:
    """A damaged bit is CorruptData when read; a map looks only when asked; verify=False never."""
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 0x80
    path.write_bytes(raw)
    for how in ({}, {"verify": True}, {"mmap": True, "verify": True}):
        with pytest.raises(CorruptData, match=r"filter\.bloom: damaged bits: checksum"):
            BloomFilter.load(path, **how)
    for how in ({"verify": False}, {"mmap": True}, {"mmap": True, "writable": True}):
        assert 5 in BloomFilter.load(path, **how)


def test_missing_files_stay_oserrors(tmp_path: Path) -> None:
    """A file that is missing, or a folder, is the OSError that Python raises."""
    for how in ({}, {"mmap": True}, {"mmap": True, "writable": True}):
        with pytest.raises(FileNotFoundError):
            BloomFilter.load(tmp_path / "none", **how)
        with pytest.raises(IsADirectoryError):
            BloomFilter.load(tmp_path, **how)
    with pytest.raises(FileNotFoundError):
        BloomFilter(10).save(tmp_path / "none" / "filter")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FileNotFoundError) as caught:
        BloomFilter(10).save(tmp_path / "nowhere" / "seen.bloom")
    assert caught.value.filename == str(tmp_path / "nowhere" / "seen.bloom")


def test_permissions_and_links(tmp_path: Path) -> None:
    """A new file has the usual permissions; a replaced one keeps its own, behind a link too."""
    filter, path = BloomFilter(10), tmp_path / "filter"
    mask = os.umask(0o027)
    try:
        filter.save(path)
    finally:
        os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    path.chmod(0o604)
    link = tmp_path / "link"
    link.symlink_to(path.name)
    filter.add("new")
    filter.save(str(link))
    assert link.is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o604
    assert "new" in BloomFilter.load(path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["filter", "link"]


def test_a_failed_save_changes_nothing(path: Path) -> None:
    """When the disk is full the old file stays, no other is left behind, and an OSError says so."""
    before = path.read_bytes()
    script = """
import resource, sys; from bloomery import BloomFilter
filter = BloomFilter(1_000_000)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    filter.save(sys.argv[1])
except OSError as problem:
    print("refused", problem.errno)
"""
    run = python(script, path)
    assert run.stdout.startswith("refused"), run.stderr
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]


@pytest.mark.slow
def test_a_crash_while_saving(path: Path) -> None:
    """Killed at any moment of a save, the file is the old filter or the new one, whole."""
    script = """
import sys, numpy as np; from bloomery import BloomFilter
filter, n = BloomFilter(3_000_000), 0
filter.save(sys.argv[1])
print("ready", flush=True)
while True:
    filter.update(np.arange(n, n + 1000)); n += 1000
    filter.save(sys.argv[1])
"""
    for round in range(15):
        command = [sys.executable, "-c", script, str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            time.sleep(0.003 * round)
            process.send_signal(signal.SIGKILL)
        loaded = BloomFilter.load(path, verify=True)
        count = round_up(loaded.estimated_count)
        assert np.asarray(loaded.contains_many(np.arange(count))).all()


def round_up(count: int) -> int:
    """The thousands in an estimate that is a little off."""
    return round(count / 1000) * 1000 if count < 100_000 else 0


def test_a_pipe_can_be_loaded(tmp_path: Path, path: Path) -> None:
    """A filter comes through a named pipe as well, though a pipe has no size."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    thread = threading.Thread(target=lambda: pipe.write_bytes(path.read_bytes()))
    thread.start()
    assert BloomFilter.load(pipe) == BloomFilter.load(path)
    thread.join()


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no endless file here")
def test_an_endless_file_is_refused() -> None:
    """A device that never ends is CorruptData after its first bytes: it is not read for ever."""
    script = """
import resource; from bloomery import BloomFilter, errors
resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))
try:
    BloomFilter.load("/dev/zero")
except errors.CorruptData:
    print("refused")
"""
    assert python(script).stdout == "refused\n"

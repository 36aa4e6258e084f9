"""A process that writes a bank is killed at any moment: every key whose add returned is there."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from bloomery import FilterBank, errors
from conftest import effort
from privates import verify

# Adds without end, and writes the number of each key to the pipe once its add has returned.
_WRITER = """if True:
    import os, random, sys
    from bloomery import FilterBank
    path, start, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    rng = random.Random(seed)
    bank = FilterBank.open(path)
    number = start
    os.write(1, b"ready\\n")
    while True:
        if rng.random() < 0.01:
            bank.flush()
        if rng.random() < 0.1:
            count = rng.randrange(1, 60)
            keys = range(number, number + count)
            bank.add_many([key % 7 for key in keys], keys)
        else:
            count = 1
            bank.add(number % 7, number)
        number += count
        os.write(1, b"%d\\n" % number)
"""


@pytest.mark.slow
def test_killed_at_any_moment(tmp_path: Path) -> None:
    """Killed again and again, the bank is repaired each time and has lost nothing."""
    path, added, rng = tmp_path / "users.bank", 0, random.Random(1)
    # Small filters: most additions make something grow, move, or begin a layer.
    FilterBank(0.01, 10, path=path).close()
    for turn in range(effort(8, 15, 300)):
        command = [sys.executable, "-c", _WRITER, str(path), str(added), str(turn)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"ready\n"
            time.sleep(rng.random() * 0.05)
            writer.send_signal(signal.SIGKILL)
            told = writer.stdout.read().split(b"\n")[:-1]
        added = int(told[-1]) if told else added
        with pytest.raises(errors.CorruptData, match="not closed"):
            FilterBank.open(path, mode="r")
        with FilterBank.open(path, verify=True) as bank:
            numbers = np.arange(added)
            assert all(bank.contains_many(numbers % 7, numbers))
            assert len(bank) == min(added, 7)
    assert added > 500


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="no /proc here")
def test_a_copy_of_a_live_file_has_what_was_flushed(tmp_path: Path) -> None:
    """A file copied while it is written, as after a power cut, is taken back to its last flush."""
    path, other = tmp_path / "users.bank", tmp_path / "copy.bank"
    bank = FilterBank(0.01, 10, path=path)
    bank.update(np.arange(2000) % 9, np.arange(2000))
    bank.flush()
    bank.update(np.arange(3000) % 19, np.arange(3000))
    raw = bytearray(path.read_bytes())
    raw[17 * 8 : 18 * 8] = bytes([1] * 8)  # another start of the machine
    other.write_bytes(raw)
    for copy in (FilterBank.load(other), FilterBank.open(other)):
        assert len(copy) == 9
        assert all(copy.contains_many(np.arange(2000) % 9, np.arange(2000)))
        verify(copy)


def test_a_full_disk_is_an_error_and_harms_nothing(tmp_path: Path) -> None:
    """Where the file cannot grow, `add` raises OSError; what was added before is there."""
    resource = pytest.importorskip("resource")
    path = tmp_path / "users.bank"
    bank = FilterBank(0.01, 100, path=path)
    bank.update(1, range(100))

    def fill() -> None:
        for user in range(2, 5000):
            bank.update(user, range(100))

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size, hard))
        with pytest.raises(OSError):
            fill()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, ignored)
    verify(bank)
    for user in range(1, len(bank)):
        assert all(bank.contains_many(user, range(100)))
    bank.update(9999, range(100))
    bank.close()
    with FilterBank.open(path, verify=True) as bank:
        assert all(bank.contains_many(1, range(100)))
        assert all(bank.contains_many(9999, range(100)))

"""A bank in a file and what goes on around it: forks, signals, flushes, starts of the machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bloomery import BloomFilter, FilterBank
from bloomery.storage import bankfile

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")


def _run(script: str, path: Path, seconds: float = 60) -> None:
    """Run a script as a process of its own; one that hangs with the interpreter held is ended."""
    found = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, str(path)],
        timeout=seconds,
        capture_output=True,
        text=True,
    )
    assert found.returncode == 0, found.stderr


@pytest.mark.soak
def test_a_user_of_more_than_a_flush_waits_for(tmp_path: Path) -> None:
    """A user whose layer takes more than 16 MiB can be added to after a flush, and after the bank
    was opened again."""
    script = """if True:
        import sys
        import numpy as np
        from bloomery import FilterBank
        bank = FilterBank(1e-8, 8_000_000, path=sys.argv[1])
        bank.update("large", np.arange(3_800_000))
        assert bank.info("large")["nbytes"] > 16 << 20
        for _ in range(2):
            bank.flush()
            for _ in range(2000):  # 0.3 s for the first; if each copied all, ten minutes
                bank.add("large", bank.estimated_count)
            bank.close()
            bank = FilterBank.open(sys.argv[1])
        assert all(bank.contains_many("large", np.arange(3_800_000)))
    """
    _run(script, tmp_path / "users.bank", 120)


@forks
def test_close_lets_go_though_a_child_lives(tmp_path: Path) -> None:
    """A bank that is closed can be opened again, by others too, while a child of a fork goes on."""
    script = """if True:
        import os, sys
        from bloomery import FilterBank
        path = sys.argv[1]
        banks = [FilterBank(path=path + ".closed"), FilterBank(path=path + ".dropped")]
        theirs, mine = os.pipe()
        if (child := os.fork()) == 0:
            os.close(mine)
            os.read(theirs, 1)  # until the parent has done what it does
            os._exit(0)
        banks[0].close()
        del banks[1]
        for name in (".closed", ".dropped"):
            with FilterBank.open(path + name) as again:
                assert again.add("ada", 1)
        os.close(mine)
        assert os.waitpid(child, 0)[1] == 0
    """
    _run(script, tmp_path / "users.bank")


@forks
def test_a_killed_parent_lets_go_though_a_child_lives(tmp_path: Path) -> None:
    """A child of a fork does not keep the bank of a parent that was killed from being opened."""
    script = """if True:
        import os, signal, sys
        from bloomery import FilterBank
        path = sys.argv[1]
        told, tell = os.pipe()
        waits, held = os.pipe()
        if (parent := os.fork()) == 0:
            os.close(held)
            bank = FilterBank(path=path)
            bank.add("ada", 1)
            if os.fork() == 0:
                os.write(tell, b"x")
                os.read(waits, 1)
                os._exit(0)
            os.read(waits, 1)
        os.read(told, 1)
        os.kill(parent, signal.SIGKILL)
        os.waitpid(parent, 0)
        with FilterBank.open(path) as again:
            assert again.contains("ada", 1)
        os.close(held)
    """
    _run(script, tmp_path / "users.bank")


@forks
def test_a_child_gets_one_clear_error(tmp_path: Path) -> None:
    """Whatever a child of a fork asks of the parent's bank says whose it is; leaving a `with` block
    says nothing, the end of the child harms nothing, and its own banks work."""
    script = """if True:
        import os, sys
        from bloomery import FilterBank, errors
        path = sys.argv[1]
        FilterBank(path=path).close()
        for mode in ("r+", "r"):
            with FilterBank.open(path, mode=mode) as bank:
                if mode == "r+":
                    bank.add("ada", 1)
                if (child := os.fork()) == 0:
                    for ask in (
                        lambda: bank.add("ada", 2), lambda: bank.add_many("ada", [1]),
                        lambda: bank.contains("ada", 1), lambda: bank.contains_many("ada", [1]),
                        lambda: bank.unseen("ada", [1]), lambda: bank.count("ada"),
                        lambda: bank.drop("ada"), lambda: bank == FilterBank(), lambda: len(bank),
                        lambda: "ada" in bank, lambda: bank.save(path + ".copy"), bank.to_bytes,
                        bank.info, bank.flush, bank.clear, bank.close,
                    ):
                        try:
                            ask()
                        except errors.InvalidParameter as problem:
                            assert "open it here" in str(problem), problem
                        else:
                            os._exit(1)
                    assert bank.closed and "closed" in repr(bank)
                    with FilterBank(path=path + mode) as own:
                        own.add("ben", 1)
                    sys.exit(0)  # out of the block, and through all that an interpreter does last
                assert os.waitpid(child, 0)[1] == 0
                assert bank.contains("ada", 1)
                try:
                    FilterBank.open(path)
                except BlockingIOError:
                    pass  # the child has not let go of the parent's lock
                else:
                    sys.exit("the lock is gone")
    """
    _run(script, tmp_path / "users.bank")


@forks
def test_a_child_adds_beside_its_parent_to_a_mapped_filter(tmp_path: Path) -> None:
    """A BloomFilter mapped for writing may have several writers, and the child of a fork is one."""
    path = tmp_path / "shared.bloom"
    BloomFilter(200_000).save(path)
    script = """if True:
        import os, sys
        import numpy as np
        from bloomery import BloomFilter
        filter = BloomFilter.load(sys.argv[1], mmap=True, writable=True)
        child = os.fork()
        mine = np.arange(100_000) + (100_000 if child else 0)
        for part in np.split(mine, 1000):
            filter.update(part)
            filter.add(int(part[0]))
        if child:
            assert os.waitpid(child, 0)[1] == 0
    """
    _run(script, path)
    assert all(BloomFilter.load(path).contains_many(range(200_000)))


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers here")
def test_a_signal_handler_adds_while_the_bank_is_saved(tmp_path: Path) -> None:
    """A handler that uses the bank runs when `save` and `to_bytes` have ended, or between them: it
    never waits for the thread that it has interrupted."""
    script = """if True:
        import itertools, signal, sys
        import numpy as np
        from bloomery import FilterBank
        bank = FilterBank()
        bank.update(np.arange(400_000) % 400, np.arange(400_000))
        numbers = itertools.count()
        signal.signal(signal.SIGALRM, lambda *_: bank.add("handler", next(numbers)))
        signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
        for _ in range(30):
            bank.save(sys.argv[1])
            bank.to_bytes()
        signal.setitimer(signal.ITIMER_REAL, 0)
        added = next(numbers)
        assert added and all(bank.contains_many("handler", range(added)))
        FilterBank.load(sys.argv[1], verify=True)
    """
    _run(script, tmp_path / "users.bank")


@pytest.fixture
def unknown_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A system that has no file which names this start of the machine, as all but Linux."""
    monkeypatch.setattr(bankfile, "_BOOT_ID", tmp_path / "no boot_id")
    bankfile.boot.cache_clear()
    yield
    bankfile.boot.cache_clear()


def test_a_boot_by_sysctl(unknown_machine: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a command names this start of the machine, as on macOS, each start has its number."""
    found = set()
    for answer in ("6C1E1F2A-9D0B-4F4E-8A3F-0123456789AB", "6C1E1F2A-9D0B-4F4E-8A3F-0123456789AC"):
        monkeypatch.setattr(bankfile, "_SYSCTL", (sys.executable, "-c", f"print({answer!r})"))
        bankfile.boot.cache_clear()
        found.add(bankfile.boot())
    assert len(found - {0}) == 2


@pytest.mark.parametrize("command", [("/no such command",), (sys.executable, "-c", "print('?')")])
def test_where_no_boot_is_known_a_kill_is_a_power_cut(
    command: tuple[str, ...], unknown_machine: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The bank is taken back to its last flush: what that wrote is there, whatever happened."""
    monkeypatch.setattr(bankfile, "_SYSCTL", command)
    assert bankfile.boot() == 0
    path = tmp_path / "users.bank"
    with FilterBank(path=path) as bank:
        bank.update("ada", range(100))
        bank.flush()
        bank.update("ada", range(1000, 1100))
        (tmp_path / "killed.bank").write_bytes(path.read_bytes())
    with FilterBank.open(tmp_path / "killed.bank", verify=True) as bank:
        assert all(bank.contains_many("ada", range(100)))
        assert not any(bank.contains_many("ada", range(1000, 1100)))
    with FilterBank.open(path) as bank:  # which was closed
        assert all(bank.contains_many("ada", range(1000, 1100)))

"""A data folder damaged in every way and place: it starts with all that was acknowledged, or it is
refused with a reason. Never less."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bloomery import errors
from bloomery.service.domain.operations import Op
from bloomery.service.domain.state import State
from bloomery.service.durability import quarantine
from bloomery.service.durability.recovery import Recovery, recover
from conftest import effort
from unit.service.durability.damaging import frames
from unit.service.durability.serving import REMOVING, SETTINGS, Server, assert_same, hashes

Case = tuple[str, Callable[[Path], None]]  # what is done, and how
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # it syncs in no time


def started(data: Path) -> Recovery | str:
    """What comes back, or why not."""
    try:
        return recover(data)
    except (errors.CorruptData, errors.LogUnavailable) as problem:
        return str(problem)


class Fuzzed:
    """A data folder as a server left it, with all that was acknowledged."""

    def __init__(self, path: Path, state: State, work: Path) -> None:
        self.path, self.state, self.work = path, state, work
        self.numbers = itertools.count()
        self.files = sorted(one.relative_to(path) for one in path.rglob("*") if one.is_file())

    def copy(self) -> Path:
        """Another one like it: files are linked, and never written where they are."""
        data = self.work / str(next(self.numbers))
        shutil.copytree(self.path, data, copy_function=os.link)
        return data

    def check(self, case: Case) -> str:
        """Start on a damaged copy: all is there, or it is refused; "whole", "said" or "refused"."""
        what, damage = case
        data = self.copy()
        damage(data)
        try:
            found = started(data)
            again = started(data)
            if isinstance(found, str):
                assert str(data) in found
                assert again == found
                return "refused"
            assert not isinstance(again, str)
            assert again.problems == []
            for one in (found, again):
                assert_same(one.state, self.state)
            return "said" if found.problems else "whole"
        except AssertionError as problem:
            raise AssertionError(f"{what}: {found}") from problem
        finally:
            shutil.rmtree(data)

    def accept(self, case: Case) -> None:
        """Start on a damaged copy whatever is lost: it does, and the next start finds all well."""
        what, damage = case
        data = self.copy()
        damage(data)
        try:
            found = recover(data, accept_loss=True)
            again = recover(data)
            assert again.problems == []
            assert_same(again.state, found.state)
            for one in quarantine.find(data):
                assert one.problems
        except (AssertionError, errors.BloomeryError) as problem:
            raise AssertionError(what) from problem
        shutil.rmtree(data)


@pytest.fixture(scope="module", params=["killed", "closed"])
def fuzzed(request: pytest.FixtureRequest) -> Iterator[Fuzzed]:
    """A filter of every kind, two generations, and segments behind them; the last one is open when
    the server is killed."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        yield made(Path(folder), closed=request.param == "closed")


def made(above: Path, closed: bool) -> Fuzzed:
    """Such a folder."""
    server = Server(above / "live")
    numbers = [server.create(kind) for kind in SETTINGS]
    for round in range(5):
        for number, kind in zip(numbers, SETTINGS, strict=True):
            for part in range(3):
                server.do(Op.ADD, number, hashes(100 * round + part, 4, kind))
            if kind in REMOVING:
                server.do(Op.REMOVE, number, hashes(100 * round, 1, kind))
        server.wait(10)
        if round in (1, 2):
            server.snapshot()
        else:
            server.log.cut()
            server.log.sync()
    server.do(Op.ADD, numbers[0], hashes(9, 9))
    server.do(Op.ADD, numbers[1], hashes(9, 9))
    if closed:
        server.log.close()
    killed = server.killed(above / "killed")
    if not closed:
        server.log.close()
    return Fuzzed(killed, server.state, above)


def rewritten(data: Path, name: Path, raw: bytes) -> None:
    """Have other bytes in a file, which is a new one."""
    (data / name).unlink()
    (data / name).write_bytes(raw)


def flip(fuzzed: Fuzzed, name: Path, at: int, mask: int) -> Case:
    """Change one byte."""

    def damage(data: Path) -> None:
        raw = bytearray((data / name).read_bytes())
        raw[at] ^= mask
        rewritten(data, name, bytes(raw))

    return f"{name}: byte {at} ^ {mask}", damage


def cut(fuzzed: Fuzzed, name: Path, length: int) -> Case:
    """Lose the end."""
    return (
        f"{name}: {length} bytes left",
        lambda data: rewritten(data, name, (data / name).read_bytes()[:length]),
    )


def blank(fuzzed: Fuzzed, name: Path, at: int) -> Case:
    """Have zeros in a sector."""

    def damage(data: Path) -> None:
        raw = bytearray((data / name).read_bytes())
        raw[at : at + 512] = bytes(len(raw[at : at + 512]))
        rewritten(data, name, bytes(raw))

    return f"{name}: zeros at {at}", damage


def remove(path: Path) -> None:
    """Lose a file or a folder."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def swap(one: Path, other: Path) -> None:
    """Let two have each other's name."""
    aside = one.with_name("aside")
    one.rename(aside)
    other.rename(one)
    aside.rename(other)


def files_of(fuzzed: Fuzzed) -> Iterator[Case]:
    """Files and folders that are gone, doubled, swapped or one in another's place."""
    folders = {one for name in fuzzed.files for one in name.parents if one.parts}
    for name in [*fuzzed.files, *sorted(folders)]:
        yield f"{name}: removed", lambda data, name=name: remove(data / name)  # type: ignore[misc]
    alike: dict[tuple[Path, str], list[Path]] = {}
    for name in fuzzed.files:
        alike.setdefault((name.parent, name.suffix), []).append(name)
    for kind in SETTINGS:  # the same filter in both generations
        number = list(SETTINGS).index(kind) + 1
        both = [name for name in fuzzed.files if name.name == f"{number}.bloomery"]
        alike[Path(kind), ""] = both
    snapshots = sorted({name.parent for name in fuzzed.files if name.parts[0] == "snapshots"})
    alike[Path("snapshots"), ""] = snapshots
    for some in alike.values():
        for one, other in itertools.permutations(some, 2):
            if one < other:
                yield f"{one} swapped with {other}", _pair(swap, one, other)
            yield f"{one} in place of {other}", _pair(_put, one, other)
    for name in [*fuzzed.files, *snapshots]:
        digits = name.name[:8]
        if digits.isdecimal():
            for by in (1, 2, 3):
                later = name.with_name(f"{int(digits) + by:08}{name.name[8:]}")
                yield f"{name} again as {later}", _pair(_put, name, later)


def _pair(how: Callable[[Path, Path], None], one: Path, other: Path) -> Callable[[Path], None]:
    return lambda data: how(data / one, data / other)


def _put(one: Path, other: Path) -> None:
    remove(other)
    if one.is_dir():
        shutil.copytree(one, other)
    else:
        shutil.copyfile(one, other)


def lengths(fuzzed: Fuzzed, name: Path) -> list[int]:
    """Where to cut a file off: at sectors and frames, and a byte beside them."""
    size = (fuzzed.path / name).stat().st_size
    steps = {0, size, *range(0, size, 512)}
    if name.suffix == ".log":
        steps |= {*itertools.accumulate(map(len, frames(fuzzed.path / name)))}
    return sorted({at + by for at in steps for by in (-1, 0, 1) if 0 <= at + by < size})


def cases(fuzzed: Fuzzed, chance: random.Random, count: int) -> Iterator[Case]:
    """So many of each sort, by chance, every file as often as any other."""
    for number in range(count):
        name = fuzzed.files[number % len(fuzzed.files)]
        raw = (fuzzed.path / name).read_bytes()
        if raw:
            yield flip(fuzzed, name, chance.randrange(len(raw)), chance.randrange(1, 256))
            yield cut(fuzzed, name, chance.choice(lengths(fuzzed, name)))
            yield blank(fuzzed, name, chance.randrange(len(raw)) // 512 * 512)
    every = list(files_of(fuzzed))
    yield from chance.sample(every, min(count, len(every)))


@pytest.mark.slow
def test_all_or_refused(fuzzed: Fuzzed) -> None:
    """Bytes that changed, ends and sectors that are gone, files that are gone, doubled or swapped,
    by chance: all is there or it is refused, and of each there is some."""
    chance = random.Random(7) if not effort(0, 0, 1) else random.Random()
    found = [fuzzed.check(case) for case in cases(fuzzed, chance, effort(25, 80, 2000))]
    assert {*found} >= {"whole", "refused"}, found


@pytest.mark.slow
def test_whatever_is_accepted(fuzzed: Fuzzed) -> None:
    """Where a loss is accepted it starts on anything, and the next start finds nothing wrong."""
    chance = random.Random(8) if not effort(0, 0, 1) else random.Random()
    gone = [case for case in files_of(fuzzed) if case[0].endswith("removed")]
    for case in [*gone, *cases(fuzzed, chance, effort(10, 30, 1000))]:
        fuzzed.accept(case)


@pytest.mark.slow
@pytest.mark.parametrize("closed", [False, True])
def test_every_byte_of_a_small_log(tmp_path: Path, closed: bool) -> None:
    """Every byte of the log and of the control file flipped, and the log cut off at every byte: all
    is there or it is refused."""
    server = Server(tmp_path / "live")
    server.create("counting")
    server.log.cut()
    for part in range(3):
        server.do(Op.ADD, 1, hashes(part, 2))
    if closed:
        server.log.close()
    fuzzed = Fuzzed(server.killed(tmp_path / "killed"), server.state, tmp_path)
    found = set()
    for name in fuzzed.files:
        raw = (fuzzed.path / name).read_bytes()
        used = [at for at in range(len(raw)) if raw[at] or name.suffix == ".log"]
        found |= {(name.suffix, fuzzed.check(flip(fuzzed, name, at, 1 << at % 8))) for at in used}
        for length in range(len(raw)) if name.suffix == ".log" else ():
            assert fuzzed.check(cut(fuzzed, name, length)) == "refused"
    assert found == {(".log", "refused"), ("", "refused"), ("", "whole")}
    if not closed:
        server.log.close()


@pytest.mark.soak
@pytest.mark.timeout(6 * 3600)
def test_every_byte(fuzzed: Fuzzed) -> None:
    """Every byte flipped, every length, every file."""
    for case in files_of(fuzzed):
        fuzzed.check(case)
    for name in fuzzed.files:
        raw = (fuzzed.path / name).read_bytes()
        for length in lengths(fuzzed, name):
            fuzzed.check(cut(fuzzed, name, length))
        for at in range(len(raw)):
            fuzzed.check(flip(fuzzed, name, at, 1 << at % 8))

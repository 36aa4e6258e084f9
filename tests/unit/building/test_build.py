"""Building: sized, filled, stopped and gone on with, whatever the rows come from."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bloomery
from bloomery import building, errors
from bloomery.building.checkpoint import Checkpoint, Progress
from bloomery.building.rows import Batch

KEYS = [f"key-{number}" for number in range(1000)]


class Listed:
    """Rows of a list, ten at a time; a position is an index."""

    name = "a list"
    identity: dict[str, Any] = {"list": 1}  # noqa: RUF012
    unresumable = ""

    def __init__(self, keys: list[Any], count: int | None = None) -> None:
        self.keys, self.read = keys, 0
        self._count = len(keys) if count is None else count

    def count(self) -> int | None:
        return self._count

    def estimate(self) -> int | None:
        return self._count // 2

    def batches(self, after: Any = None) -> Any:
        for start in range(after or 0, len(self.keys), 10):
            keys = self.keys[start : start + 10]
            self.read += len(keys)
            kept = [key for key in keys if key is not None]
            yield Batch(kept, len(keys), len(keys) - len(kept), start + len(keys))

    def close(self) -> None:
        pass


class Stop(Exception):
    """Somebody stopped it."""


def stop_after(rows: int) -> Callable[[Progress], None]:
    """Stop a build once it has so many rows."""

    def check(progress: Progress) -> None:
        if progress.rows >= rows:
            raise Stop

    return check


def left(folder: Path) -> list[str]:
    """What is in a folder."""
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("kind", building.KINDS)
def test_a_build_that_was_stopped_goes_on(tmp_path: Path, kind: str) -> None:
    """Two stops and a finish give the same file as one run, read each row once, and leave nothing
    else behind."""
    rows, out = Listed(KEYS), tmp_path / "out"
    for stop in (300, 500):
        with pytest.raises(Stop):
            building.build(rows, out, kind=kind, on_batch=stop_after(stop))
        assert not out.exists()
    built = building.build(rows, out, kind=kind)
    assert (built.rows, rows.read) == (1000, 1000)
    assert left(tmp_path) == ["out"]
    whole = tmp_path / "whole"
    building.build(Listed(KEYS), whole, kind=kind)
    assert out.read_bytes() == whole.read_bytes()
    found: Any = bloomery.open(out)
    assert all(found.contains_many(KEYS))


def test_checkpoints_come_by_the_clock(tmp_path: Path) -> None:
    """With every=0 the first batch is kept, with an hour none is before it stops."""
    seen: list[list[str]] = []

    def look(progress: Progress) -> None:
        seen.append(left(tmp_path))

    building.build(Listed(KEYS[:20]), tmp_path / "out", every=0, on_batch=look)
    assert seen[:2] == [["out.lock"], ["out.lock", "out.part0", "out.resume"]]
    seen.clear()
    building.build(Listed(KEYS[:20]), tmp_path / "other", every=3600, on_batch=look)
    assert all(names == ["other.lock", "out"] for names in seen)


@pytest.mark.slow
def test_a_crash_at_any_step_of_a_checkpoint_leaves_a_pair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever rename or deletion is the last one done, the filter holds exactly the rows before
    the position."""
    for last in range(12):
        for path in tmp_path.iterdir():
            path.unlink()
        point = Checkpoint(tmp_path / "out", {})
        steps = 0

        def crash(real: Callable[..., None], last: int = last) -> Callable[..., None]:
            def call(*arguments: Any) -> None:
                nonlocal steps
                steps += 1
                if steps > last:
                    raise Stop
                real(*arguments)

            return call

        filter = bloomery.CountingBloomFilter(100)
        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", crash(os.replace))
            patch.setattr(os, "unlink", crash(os.unlink))
            try:
                for number in range(4):
                    filter.add(number)
                    point.save(filter, Progress(number + 1, number + 1))
            except Stop:
                pass
        found = Checkpoint(tmp_path / "out", {}).load()
        if found is None:
            assert last < 2
            continue
        kept: Any = found[0]
        progress = found[1]
        assert [kept.count(n) for n in range(4)] == [int(n < progress.rows) for n in range(4)]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"capacity": 5000}, "capacity"),
        ({"error_rate": 0.5}, "error_rate"),
        ({"kind": "scalable"}, "kind"),
        ({"nulls": "error"}, "nulls"),
        ({"seed": 7}, "seed"),
    ],
)
def test_other_arguments_do_not_go_on(tmp_path: Path, change: dict[str, Any], named: str) -> None:
    """What was begun with other arguments is refused by name; restart begins anew."""
    out = tmp_path / "out"
    with pytest.raises(Stop):
        building.build(Listed(KEYS), out, on_batch=stop_after(300))
    with pytest.raises(errors.InvalidParameter, match=rf"{named}.*--restart"):
        building.build(Listed(KEYS), out, **change)
    rows = Listed(KEYS)
    building.build(rows, out, restart=True, **change)
    assert rows.read == 1000
    assert left(tmp_path) == ["out"]


def test_a_secret_seed_is_not_written_down(tmp_path: Path) -> None:
    """The resume file does not hold siphash's key, and only its owner may read it."""
    with pytest.raises(Stop):
        building.build(
            Listed(KEYS), tmp_path / "out", hasher="siphash", seed=123456789, on_batch=stop_after(9)
        )
    resume = tmp_path / "out.resume"
    assert "123456789" not in resume.read_text()
    assert resume.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("text", ["", "{", "[]", "[" * 10**5, '{"version": 1}', '{"version": 9}'])
def test_a_damaged_resume_file_is_one_clear_error(tmp_path: Path, text: str) -> None:
    """It says how to begin anew."""
    (tmp_path / "out.resume").write_text(text)
    with pytest.raises(errors.CorruptData, match=r"out\.resume.*--restart"):
        building.build(Listed(KEYS), tmp_path / "out")


@pytest.mark.slow
def test_no_damage_to_a_resume_file_skips_rows(tmp_path: Path) -> None:
    """A position with another digit in it would leave keys out, which the filter then denies."""
    with pytest.raises(Stop):
        building.build(Listed(KEYS), tmp_path / "out", on_batch=stop_after(300))
    resume = tmp_path / "out.resume"
    whole = resume.read_bytes()
    for at in (at for at, byte in enumerate(whole) if byte in b"0123456789"):
        damaged = whole[:at] + (b"8" if whole[at] == 57 else b"9") + whole[at + 1 :]
        if json.loads(damaged) == json.loads(whole):
            continue  # a digit past what a float holds
        resume.write_bytes(damaged)
        with pytest.raises(errors.CorruptData, match=r"out\.resume.*--restart"):
            building.build(Listed(KEYS), tmp_path / "out")
    resume.write_bytes(whole)
    assert all(key in building.build(Listed(KEYS), tmp_path / "out").filter for key in KEYS)


def test_one_process_builds_a_file(tmp_path: Path) -> None:
    """A second build of the same file is refused while the first one runs."""

    def second(progress: Progress) -> None:
        with pytest.raises(errors.FolderInUse, match="another process"):
            building.build(Listed(KEYS), tmp_path / "out")

    building.build(Listed(KEYS[:10]), tmp_path / "out", on_batch=second)


def test_nulls_are_left_out_and_counted_or_refused(tmp_path: Path) -> None:
    """A NULL is no key."""
    keys = [*KEYS[:15], None, None]
    built = building.build(Listed(keys), tmp_path / "out")
    assert (built.rows, built.nulls) == (17, 2)
    with pytest.raises(errors.NullKey, match="a list has a NULL"):
        building.build(Listed(keys), tmp_path / "other", nulls="error")


def test_the_capacity_is_counted_estimated_or_given(tmp_path: Path) -> None:
    """Counted: exactly the rows; estimated: a quarter more; and never none."""
    rows, out = Listed(KEYS, count=8000), tmp_path / "out"
    assert building.build(rows, out).filter.capacity == 8000
    assert building.build(rows, out, estimate=True).filter.capacity == 5000
    assert building.build(rows, out, capacity=2000).filter.capacity == 2000
    assert building.build(Listed([]), out).filter.capacity == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [({"kind": "bank"}, "one of bloom"), ({"nulls": "keep"}, "must be skip or error")],
)
def test_wrong_options_are_refused(tmp_path: Path, options: dict[str, Any], said: str) -> None:
    """Nothing is read or written."""
    with pytest.raises(errors.InvalidParameter, match=said):
        building.build(Listed(KEYS), tmp_path / "out", **options)
    assert left(tmp_path) == []


def test_a_value_that_is_no_key_says_where_it_came_from(tmp_path: Path) -> None:
    """SQLite may have a float anywhere."""
    with pytest.raises(errors.InvalidSource, match="a list: float cannot be a key"):
        building.build(Listed([1, 1.5]), tmp_path / "out")

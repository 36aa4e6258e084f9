"""A loss that is accepted: what is left is taken, and the damaged files are set aside."""

from __future__ import annotations

from pathlib import Path

import pytest

from bloomery.service.durability import quarantine, snapshots
from bloomery.service.durability.recovery import recover
from unit.service.durability.damaging import (
    DAMAGES,
    Damage,
    change,
    contents,
    filled,
    without_anything,
)
from unit.service.durability.serving import Server, assert_same, hashes, missing


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_loss_that_is_accepted(tmp_path: Path, damage: Damage) -> None:
    """What is left is taken, the files as they were found are set aside, and the next start finds
    nothing wrong; they stay there, whatever is saved and pruned."""
    server = filled(tmp_path / "data")
    data = server.killed(tmp_path / "copy")
    damage(data)
    before = contents(data)
    brave = Server(data, accept_loss=True)
    assert brave.recovery.problems
    (aside,) = quarantine.find(data)
    assert aside.lost
    assert aside.problems == brave.recovery.problems
    kept = contents(aside.folder)
    del kept["report.json"]
    assert kept == before
    if damage is not without_anything:
        for number in (1, 2):  # what is in the older snapshot, at least
            assert missing(brave.state.filters[number].filter, hashes(5, 3)) == 0
    brave.create("bloom", "new")
    for _ in range(3):
        brave.snapshot()
    brave.log.close()
    again = recover(data)
    assert again.problems == []
    assert_same(again.state, brave.state)
    assert quarantine.find(data) == [aside]
    assert {name: raw for name, raw in contents(aside.folder).items() if name in kept} == before
    server.log.close()


def test_a_damaged_snapshot_is_set_aside(tmp_path: Path) -> None:
    """A snapshot that is damaged where nothing is lost is set aside alone, and is no base for
    another one."""
    server = filled(tmp_path / "data")
    data = server.killed(tmp_path / "copy")
    older, newer = snapshots.snapshot_numbers(data)
    change(snapshots.folder_of(data, newer) / "1.bloomery", 700)
    found = recover(data)
    assert_same(found.state, server.state)
    (aside,) = quarantine.find(data)
    assert not aside.lost
    assert f"snapshot {newer}" in aside.problems[0]
    files = {str(Path(name).parent) for name in contents(aside.folder)} - {"."}
    assert files == {f"snapshots/{newer:08}"}
    left = snapshots.snapshot_numbers(data)
    assert (left[0], len(left)) == (older, 2)
    again = recover(data)
    assert (again.problems, again.snapshot_number) == ([], left[1])
    assert_same(again.state, server.state)
    server.log.close()

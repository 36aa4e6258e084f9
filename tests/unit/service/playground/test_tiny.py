"""Tiny filters: what is shown of them is what real filters hold and answer."""

from typing import Any

import pytest

from bloomery import BloomFilter
from bloomery.errors import InvalidParameter
from bloomery.service.playground.sstables import TABLES, examples, read, tables
from bloomery.service.playground.tiny import MOST_STEPS, TinyStep, play

FRUIT = ("apple", "banana", "cherry")


def added(*keys: str) -> list[TinyStep]:
    """Steps that add these."""
    return [TinyStep("add", key) for key in keys]


def by_name(found: dict[str, Any]) -> dict[str, Any]:
    """The filters by their names."""
    return {each["name"]: each for each in found["filters"]}


def test_the_drawing_of_every_lecture() -> None:
    """Ten bits, three hashes, three words: the cells are those of the real filter."""
    filter = BloomFilter.with_shape(10, 3)
    filter.update(FRUIT)
    classic = by_name(play(added(*FRUIT), None))["classic"]
    set_bits = {at for key in FRUIT for at in filter.positions(key)}
    assert classic["cells"] == [int(at in set_bits) for at in range(10)]
    assert sum(classic["cells"]) / 10 == filter.fill_ratio
    assert [set(key["places"]) for key in classic["keys"]] == [
        set(filter.positions(key)) for key in FRUIT
    ]


def test_the_false_positive_is_real() -> None:
    """The word was not added, a filter made anew says maybe, and each of its bits has an owner."""
    for keys in (FRUIT, ("x",), ("one", "two", "three", "four")):
        found = play(added(*keys), None)["false_positive"]
        filter = BloomFilter.with_shape(10, 3)
        filter.update(keys)
        assert found["key"] not in keys
        assert found["key"] in filter
        assert set(found["places"]) == set(filter.positions(found["key"]))
        for at, owners in zip(found["places"], found["owners"], strict=True):
            assert owners
            assert all(at in filter.positions(owner) for owner in owners)
    assert play([], None)["false_positive"] is None
    assert play(added("lonely"), None, 128, 8)["false_positive"] is None


def test_answers_agree_with_the_cells() -> None:
    """A maybe exactly if none of the key's cells is 0, in all four; added keys are always one."""
    for asked in (*FRUIT, "kiwi", "grape", "ünïcode", "x" * 100):
        for each in play(added(*FRUIT), asked)["filters"]:
            answer = each["answer"]
            assert answer["maybe"] == all(answer["holds"])
            assert answer["holds"] == [each["cells"][at] for at in answer["places"]]
            assert answer["maybe"] or asked not in FRUIT


def test_removing() -> None:
    """A counting filter removes one copy, a deletable one what met nobody, the others nothing."""
    twice = [*added("apple", "apple", "banana"), TinyStep("remove", "apple")]
    found = by_name(play(twice, "apple"))
    assert found["counting"]["results"][-1] == "removed"
    assert found["counting"]["answer"]["maybe"]
    assert max(found["counting"]["cells"]) <= 2
    assert found["deletable"]["results"][-1] == "stuck"
    assert sum(found["deletable"]["flags"]) == 3
    for name in ("classic", "blocked"):
        assert found[name]["results"][-1] == "cannot"
        assert found[name]["answer"]["maybe"]
    once = by_name(play([*added("apple"), TinyStep("remove", "apple")], "apple"))
    for name in ("counting", "deletable"):
        assert once[name]["results"][-1] == "removed"
        assert not once[name]["answer"]["maybe"]
        assert not any(once[name]["cells"])
    assert by_name(play([TinyStep("remove", "kiwi")], None))["counting"]["results"] == ["absent"]


def test_keys_that_are_present() -> None:
    """Those added and not removed as often."""
    steps = [
        *added("apple", "apple", "fig"),
        TinyStep("remove", "fig"),
        TinyStep("remove", "apple"),
    ]
    assert play(steps, None)["present"] == ["apple"]


@pytest.mark.parametrize(
    ("steps", "asked", "bits", "hashes"),
    [
        (added("x" * 101), None, 10, 3),
        (added(*"a" * (MOST_STEPS + 1)), None, 10, 3),
        ([], "", 10, 3),
        ([], None, 3, 3),
        ([], None, 10, 9),
        ([], None, 129, 3),
    ],
)
def test_what_is_refused(steps: list[TinyStep], asked: str | None, bits: int, hashes: int) -> None:
    """Too much, or too large."""
    with pytest.raises(InvalidParameter):
        play(steps, asked, bits, hashes)


def test_a_read_finds_what_is_newest() -> None:
    """No row is ever missed, whatever the filters say, and the newest value is the answer."""
    rows: dict[str, str] = {}
    for table in reversed(TABLES):
        rows |= table.rows
    for key, value in rows.items():
        assert read(key)["value"] == value


def test_examples_are_what_they_say() -> None:
    """A skipped read, a read in vain, the newest and the oldest."""
    shown = examples()
    assert len(shown) == 4
    assert read(shown["in the newest"])["reads"] == 1
    assert read(shown["in the oldest"])["steps"][2]["outcome"] == "found"
    assert read(shown["nowhere, and no table is read"])["reads"] == 0
    vain = read(shown["nowhere, but a filter errs"])
    assert (vain["value"], vain["reads"]) == (None, 1)


def test_the_bits_of_the_tables() -> None:
    """Those that the real filters have set."""
    for shown, table in zip(tables(), TABLES, strict=True):
        assert sum(shown["cells"]) == round(16 * table.filter.fill_ratio)
        for key in table.rows:
            assert all(shown["cells"][at] for at in table.filter.positions(key))

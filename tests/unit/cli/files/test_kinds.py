"""`bloomery create --kind`, and every command on a file of any kind."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bloomery
from bloomery.filters import COMMON_KINDS, RedisBloomFilter, RemovingFilter
from conftest import first_fast

# Most of these start processes, or read and write many files.
pytestmark = pytest.mark.slow

Run = Callable[..., Any]
OneLine = Callable[[bytes], str]

# An option that only this kind takes.
OWN = {
    "bloom": ["--layout", "classic"],
    "scalable": ["--growth", "1.25"],
    "counting": ["--counter-bits", "8"],
    "deletable": ["--regions", "100"],
    "cuckoo": ["--grow"],
    "rotating": ["--window", "12h", "--generations", "4"],
}
BUILT = [kind for kind, one in COMMON_KINDS.items() if hasattr(one, "build")]
FILLED = [kind for kind in COMMON_KINDS if kind in OWN]
REMOVING = [kind for kind in FILLED if issubclass(COMMON_KINDS[kind], RemovingFilter)]
REFUSING = [kind for kind in FILLED if kind not in REMOVING]


def test_every_kind_is_tested() -> None:
    """A new kind needs a row here, or is made of all its keys at once."""
    assert set(FILLED) | set(BUILT) == set(COMMON_KINDS)


@pytest.mark.parametrize("kind", first_fast(FILLED[::-1]))
def test_create_add_contains_info(run: Run, tmp_path: Path, kind: str) -> None:
    """A file of any kind is made with its own options, filled, asked and described."""
    said = run("create", "f", "--kind", kind, "-n", "1k", "-e", "1e-6", *OWN[kind]).stdout
    assert said.startswith(b"f: room for 1,000 keys")
    assert run("add", "--new", "f", stdin=b"a\nb\na\n").stdout == b"a\nb\n"
    assert run("add", "--new", "f", "b", "c").stdout == b"c\n"
    assert run("contains", "f", "a", "c", "nope").stdout == b"a\nc\n"
    assert run("contains", "-v", "f", stdin=b"a\nnope\n").stdout == b"nope\n"
    facts = json.loads(run("info", "f", "--json").stdout)
    assert (facts["kind"], facts["capacity"]) == (kind, 1000)
    assert kind.encode() in run("info", "f").stdout
    assert type(bloomery.open(tmp_path / "f")) is COMMON_KINDS[kind]


@pytest.mark.parametrize("kind", BUILT)
def test_create_from_lines(run: Run, one_line: OneLine, kind: str) -> None:
    """A filter that is made of all its keys takes them from standard input, and no capacity."""
    run("create", "f", "--kind", kind, "-e", "1e-6", stdin=b"a\nb\n\na\nlast")
    assert run("contains", "f", stdin=b"a\nno\nlast\n\n").stdout == b"a\nlast\n\n"
    assert kind in one_line(run("add", "f", "x", code=2).stderr)
    message = one_line(run("create", "g", "--kind", kind, "-n", "10", code=2).stderr)
    assert "--capacity" in message


@pytest.mark.parametrize("kind", first_fast(REMOVING))
def test_remove(run: Run, kind: str) -> None:
    """Keys go out again, as arguments or lines; the exit code says whether there was one."""
    run("create", "f", "--kind", kind, "-n", "1k", "-e", "1e-6")
    run("add", "f", stdin=b"a\nb\nc\nd\n")
    assert run("remove", "f", "a", "nope").stdout == b""
    assert run("contains", "f", "a", "b", "c", "d").stdout == b"b\nc\nd\n"
    assert run("remove", "-v", "f", stdin=b"b\nnope\nc\n").stdout == b"b\nc\n"
    assert run("remove", "--verbose", "f", "d", "d").stdout == b"d\n"
    assert run("remove", "f", "a", code=1).stdout == b""
    run("remove", "f", stdin=b"a\nb\n", code=1)
    run("contains", "f", "a", "b", "c", "d", code=1)


@pytest.mark.parametrize("kind", first_fast(REFUSING))
def test_remove_from_a_kind_that_cannot(
    run: Run, one_line: OneLine, tmp_path: Path, kind: str
) -> None:
    """The message names the file, its kind and the kinds that can; the file is as it was."""
    run("create", "f", "--kind", kind, "-n", "10")
    before = (tmp_path / "f").read_bytes()
    message = one_line(run("remove", "f", "a", code=2).stderr)
    assert message.startswith("f: ")
    assert kind in message
    assert "cuckoo" in message
    assert (tmp_path / "f").read_bytes() == before


@pytest.mark.parametrize("kind", first_fast(FILLED))
def test_options_of_other_kinds(run: Run, one_line: OneLine, tmp_path: Path, kind: str) -> None:
    """An option that does not fit the kind is refused by name, and no file is made."""
    for other, (option, *rest) in OWN.items():
        if other != kind:
            made = run("create", "f", "--kind", kind, "-n", "10", option, *rest, code=2)
            message = one_line(made.stderr)
            assert option in message
            assert kind in message
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_kind(run: Run, one_line: OneLine) -> None:
    """The message lists the kinds there are."""
    message = one_line(run("create", "f", "--kind", "ribbon", "-n", "10", code=2).stderr)
    assert "'ribbon'" in message
    assert all(kind in message for kind in [*COMMON_KINDS, "bank"])


def test_a_full_filter_is_left_as_it_was(run: Run, one_line: OneLine, tmp_path: Path) -> None:
    """Keys that do not fit are one line on stderr, and the file has none of that run."""
    run("create", "f", "--kind", "cuckoo", "-n", "10", "--no-grow")
    before = (tmp_path / "f").read_bytes()
    lines = b"".join(b"%d\n" % n for n in range(1000))
    message = one_line(run("add", "f", stdin=lines, code=2).stderr)
    assert message.endswith("f is unchanged")
    assert (tmp_path / "f").read_bytes() == before
    run("create", "g", "--kind", "cuckoo", "-n", "10", "--grow")
    run("add", "g", stdin=lines)
    assert run("contains", "g", stdin=lines).stdout == lines


def test_time_passes_while_a_filter_lies_on_disk(run: Run, tmp_path: Path) -> None:
    """`contains` and `info` of a rotating filter know what has been forgotten since the save."""
    clock = [0.0]
    made = bloomery.RotatingBloomFilter(100, window="1h", clock=lambda: clock[0])
    made.add("long ago")
    made.save(tmp_path / "f")
    run("contains", "f", "long ago", code=1)
    assert json.loads(run("info", "f", "--json").stdout)["estimated_count"] == 0


def test_rotation_by_fill(run: Run) -> None:
    """`--window none` lets keys, not time, turn the generations over."""
    run("create", "f", "--kind", "rotating", "-n", "100", "--window", "none")
    assert json.loads(run("info", "f", "--json").stdout)["window"] is None


def test_dedup_keeps_to_the_plain_filter(run: Run, one_line: OneLine) -> None:
    """A kept filter of another kind is refused, by its name."""
    run("create", "f", "--kind", "cuckoo", "-n", "10")
    assert "CuckooFilter" in one_line(run("dedup", "--filter", "f", code=2).stderr)


def test_a_servers_filters_are_described(run: Run, one_line: OneLine, tmp_path: Path) -> None:
    """`info` takes a file of RedisBloom's kinds; what would change or ask it says whose it is."""
    RedisBloomFilter().save(tmp_path / "f")
    assert json.loads(run("info", "f", "--json").stdout)["kind"] == "redisbloom"
    for command in ("add", "contains", "remove"):
        assert "belongs to a server" in one_line(run(command, "f", "x", code=2).stderr)

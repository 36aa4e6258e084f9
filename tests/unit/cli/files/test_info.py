"""`bloomery create` and `bloomery info`."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conftest import first_fast

# Most of these start processes, or read and write many files.
pytestmark = pytest.mark.slow

Run = Callable[..., Any]
OneLine = Callable[[bytes], str]


def test_create_then_info(run: Run) -> None:
    """What create was given is what info shows."""
    options = ["--capacity", "1_000", "--error-rate", "0.1%", "--layout", "classic"]
    said = run("create", "f.bloom", *options, "--hasher", "murmur3", "--seed", "0x5eed").stdout
    assert said.startswith(b"f.bloom: room for 1,000 keys at 0.1%")
    facts = json.loads(run("info", "f.bloom", "--json").stdout)
    assert facts["file"] == "f.bloom"
    assert (facts["capacity"], facts["error_rate"]) == (1000, 0.001)
    assert (facts["layout"], facts["hasher"], facts["seed"]) == ("classic", "murmur3", 0x5EED)


def test_a_file_that_is_no_filter(run: Run, one_line: OneLine, tmp_path: Path) -> None:
    """Whoever names the keys in place of the filter is told how to make one of them."""
    (tmp_path / "l.txt").write_text("alice\nbob\n")
    for command in (["info", "l.txt"], ["contains", "l.txt", "alice"], ["add", "l.txt", "x"]):
        said = one_line(run(*command, code=2).stderr)
        assert "`bloomery build --from l.txt --out FILE`" in said
    assert run("create", "f.bloom", "--capacity", "10")
    data = bytearray((tmp_path / "f.bloom").read_bytes())
    data[70] ^= 1
    (tmp_path / "f.bloom").write_bytes(data)
    assert b"bloomery build" not in run("info", "f.bloom", code=2).stderr


def test_info_keeps_the_secret(run: Run) -> None:
    """The key of siphash is not shown, neither to a person nor to a program."""
    run("create", "f.bloom", "--capacity", "1000", "--hasher", "siphash", "--seed", "123456789")
    assert b"123456789" not in run("info", "f.bloom").stdout
    assert b"123456789" not in run("info", "f.bloom", "--json").stdout


def test_info_for_a_person(run: Run) -> None:
    """Without --json info is a table with the keys it holds and the rate by now."""
    run("create", "f.bloom", "--capacity", "1000")
    run("add", "f.bloom", "a", "b", "c")
    text = run("info", "f.bloom").stdout.decode()
    for word in ("capacity", "1,000", "estimated count", "estimated error rate", "saturated"):
        assert word in text


def test_info_is_about_the_file(run: Run) -> None:
    """That the command only reads it is nothing about the file; what its keys are is."""
    run("create", "f.bloom", "--capacity", "1000", "--type", "int")
    facts = json.loads(run("info", "f.bloom", "--json").stdout)
    assert "read_only" not in facts
    assert facts["key_type"] == "int"


def test_info_of_a_full_filter_says_so(run: Run) -> None:
    """A filter with more keys than it was made for is reported as such."""
    run("create", "f.bloom", "--capacity", "10")
    run("add", "f.bloom", stdin=b"".join(b"%d\n" % n for n in range(1000)))
    assert "more keys than it was made for" in run("info", "f.bloom").stdout.decode()


def test_create_does_not_overwrite(run: Run, one_line: OneLine, tmp_path: Path) -> None:
    """An existing file stays as it is, and the message says what would replace it."""
    run("create", "f.bloom", "--capacity", "1000")
    run("add", "f.bloom", "a")
    before = (tmp_path / "f.bloom").read_bytes()
    message = one_line(run("create", "f.bloom", "--capacity", "1000", code=2).stderr)
    assert "--force" in message
    assert (tmp_path / "f.bloom").read_bytes() == before


def test_force_starts_over(run: Run) -> None:
    """--force replaces the file by an empty filter."""
    run("create", "f.bloom", "--capacity", "1000")
    run("add", "f.bloom", "a")
    run("create", "f.bloom", "--capacity", "1000", "--force")
    run("contains", "f.bloom", "a", code=1)


@pytest.mark.parametrize(
    ("args", "message"),
    first_fast(
        [
            (["--capacity", "0"], "capacity must be"),
            (["--capacity", "10", "--error-rate", "1"], "error_rate must be"),
            (["--capacity", "10", "--layout", "square"], "'square'"),
            (["--capacity", "10", "--hasher", "md5"], "'md5'"),
            (["--capacity", "10", "--seed", "zz"], "'zz' is not a seed"),
            (["--capacity", "10", "--seed", "-1"], "seed"),
            ([], "--capacity"),
        ]
    ),
)
def test_nonsense_makes_no_file(
    run: Run, one_line: OneLine, tmp_path: Path, args: list[str], message: str
) -> None:
    """A filter that cannot be is one line on stderr, exit code 2 and no file."""
    assert message in one_line(run("create", "f.bloom", *args, code=2).stderr)
    assert list(tmp_path.iterdir()) == []


def test_create_in_a_missing_folder(run: Run, one_line: OneLine) -> None:
    """The message names the file that was asked for, not a temporary one."""
    message = one_line(run("create", "no/f.bloom", "--capacity", "10", code=2).stderr)
    assert message.startswith("no/f.bloom: No such file or directory")


@pytest.mark.parametrize("content", first_fast([b"hello\n", b"", b"\0" * 5000]))
def test_info_of_something_else(
    run: Run, one_line: OneLine, tmp_path: Path, content: bytes
) -> None:
    """A file that is no filter is one line on stderr and exit code 2."""
    (tmp_path / "f.bloom").write_bytes(content)
    one_line(run("info", "f.bloom", code=2).stderr)


def test_bits_and_hashes_that_are_given(run: Run, one_line: OneLine) -> None:
    """A filter of just this shape, for this capacity; other kinds, and halves of a shape, are
    refused."""
    shape = ["--num-bits", "30_720", "--num-hashes", "8", "--lines-per-key", "2"]
    made = run("create", "s.bloom", *shape, "--layout", "blocked", "-n", "1000", "--json").stdout
    facts = json.loads(made)
    assert (facts["num_bits"], facts["num_hashes"], facts["lines_per_key"]) == (30_720, 8, 2)
    assert facts["capacity"] == 1000
    counting = ["--kind", "counting", "--num-bits", "4k", "--num-hashes", "3"]
    assert json.loads(run("create", "c.bloom", *counting, "--json").stdout)["nbytes"] == 512
    for arguments, message in (
        (["--kind", "cuckoo", *shape], "is made for a capacity"),
        (["--num-bits", "1000"], "bits and hashes go together"),
        ([*counting, "-n", "10"], "no such option"),
        ([*shape[:4], "--layout", "classic", "--lines-per-key", "1"], "lines_per_key must be 0"),
    ):
        assert message in one_line(run("create", "x.bloom", *arguments, code=2).stderr)


def test_bars_show_how_full_it_is(run: Run) -> None:
    """Of places, of the capacity and of the error rate allowed; none where there is no such
    figure."""
    run("create", "b.bloom", "--capacity", "1000")
    run("add", "b.bloom", stdin=b"".join(b"%d\n" % n for n in range(1000)))
    rows = run("info", "b.bloom").stdout.decode().splitlines()
    drawn = [row for row in rows if "█" in row]
    assert [row.split("│")[1].strip() for row in drawn] == [
        "fill ratio",
        "estimated count",
        "estimated error rate",
    ]
    assert any("███████████████████" in row for row in drawn)

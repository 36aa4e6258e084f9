"""Plain, gzip and zstd input, recognised by its first bytes."""

import gzip
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conftest import first_fast, require

pytestmark = pytest.mark.slow

Run = Callable[..., Any]
OneLine = Callable[[bytes], str]

RNG = random.Random(11)
LINES = b"".join(b"%d %s\n" % (n, RNG.randbytes(6).hex().encode()) for n in range(60_000))


def compressed(kind: str, data: bytes) -> bytes:
    """The data as gzip or zstd."""
    return gzip.compress(data) if kind == "gzip" else require("zstandard").compress(data)


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
def test_compressed_input(run: Run, tmp_path: Path, kind: str) -> None:
    """Compressed files are read as their content, from a file and from a pipe."""
    data = compressed(kind, LINES)
    (tmp_path / "lines").write_bytes(data)
    assert run("dedup", "lines").stdout == LINES
    assert run("dedup", stdin=data).stdout == LINES
    assert run("dedup", "lines").stderr == b""


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
def test_several_members(run: Run, kind: str) -> None:
    """Files put one after the other (as log rotation does) are read to the end."""
    data = compressed(kind, b"a\nb\n") + compressed(kind, b"") + compressed(kind, b"b\nc\n")
    assert run("dedup", stdin=data).stdout == b"a\nb\nc\n"


def test_zero_padding_after_gzip(run: Run) -> None:
    """Zeros after the last member, as tapes leave them, are no error."""
    assert run("dedup", stdin=gzip.compress(b"a\n") + b"\0" * 20_000).stdout == b"a\n"


def test_skippable_zstd_frame_first(run: Run) -> None:
    """A zstd file that starts with a skippable frame (pzstd writes those) is recognised."""
    skip = b"\x50\x2a\x4d\x18\x04\x00\x00\x00abcd"
    assert run("dedup", stdin=skip + compressed("zstd", b"a\na\n")).stdout == b"a\n"


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
@pytest.mark.parametrize("share", first_fast([0.999, 0.1, 0.5]))
def test_cut_off_input_is_an_error(run: Run, one_line: OneLine, kind: str, share: float) -> None:
    """A truncated file is never taken for a complete one."""
    data = compressed(kind, LINES)
    done = run("dedup", stdin=data[: int(len(data) * share)], code=2)
    assert f"the {kind} data ends too early" in one_line(done.stderr)
    assert LINES.startswith(done.stdout)


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
def test_damaged_input_is_an_error(run: Run, one_line: OneLine, kind: str) -> None:
    """A flipped stretch inside is reported as damage."""
    data = bytearray(compressed(kind, LINES))
    data[len(data) // 2 : len(data) // 2 + 64] = bytes(64)
    done = run("dedup", stdin=bytes(data), code=2)
    assert kind in one_line(done.stderr)


@pytest.mark.parametrize("data", first_fast([b"\x28\xb5\x2f", b"\x1f", b"\x28", b"P\n", b"(\n(\n"]))
def test_almost_a_magic_number(run: Run, data: bytes) -> None:
    """A short or plain input that starts like a compressed one is plain text."""
    assert run("dedup", stdin=data).stdout.rstrip(b"\n") == data.split(b"\n")[0]


def test_plain_text_that_starts_like_magic_is_not_held_back(start: Callable[..., Any]) -> None:
    """A first line of one byte that could begin a magic number still comes out at once."""
    process = start("dedup")
    process.stdin.write(b"P\n")
    process.stdin.flush()
    assert process.stdout.readline() == b"P\n"
    process.communicate(timeout=60)


def test_highly_compressed_input_stays_small(run: Run) -> None:
    """20 MB of line ends in a few kilobytes is just read through."""
    data = compressed("zstd", b"\n" * 20_000_000)
    assert len(data) < 20_000
    assert run("dedup", stdin=data).stdout == b"\n"

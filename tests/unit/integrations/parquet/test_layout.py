"""Files that are damaged, encrypted or no Parquet files are one clear error, never a crash."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from io import FileIO
from pathlib import Path
from typing import Any

import pytest

import bloomery._native as _native
from bloomery.errors import BloomeryError, CorruptData, InvalidParameter
from bloomery.integrations.parquet import add_bloom, inspect, layout, might_contain, read
from conftest import effort
from unit.integrations.parquet.columns import pa, pq


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A file with filters for both of its columns."""
    path = tmp_path_factory.mktemp("parquet") / "a.parquet"
    table = pa.table({"id": list(range(300)), "name": [f"name {i}" for i in range(300)]})
    pq.write_table(table, path, row_group_size=100)
    add_bloom(path, ["id", "name"], out=path)
    return path.read_bytes()


def with_footer(whole: bytes, change: Callable[[Any], bytes]) -> bytes:
    """The file with another footer."""
    length = int.from_bytes(whole[-8:-4], "little")
    footer = change(_native.ParquetFooter(whole[-8 - length : -8]))
    return whole[: -8 - length] + footer + len(footer).to_bytes(4, "little") + b"PAR1"


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda whole: b"", "not a Parquet file"),
        (lambda whole: b"PAR1", "not a Parquet file"),
        (lambda whole: whole[:-1], "not a Parquet file: it ends with"),
        (lambda whole: whole[:-8] + b"\xff\xff\xff\xffPAR1", "bytes are claimed, at most"),
        (lambda whole: whole[:-8] + b"\3\0\0\0PAR1", "damaged"),
        (lambda whole: whole[:-8] + b"\0\0\0\0PAR1", "damaged footer"),
        (lambda whole: b"PAR1" + b"\x4c" * 100_000 + b"\xa0\x86\1\0PAR1", "deep"),
    ],
)
def test_damaged_footers(
    tmp_path: Path, whole: bytes, damage: Callable[[bytes], bytes], problem: str
) -> None:
    """What is no footer is refused, with the file's name."""
    (tmp_path / "a.parquet").write_bytes(damage(whole))
    for ask in (inspect, lambda path: might_contain(path, "id", 1)):
        with pytest.raises(CorruptData, match=rf"a\.parquet: .*{problem}"):
            ask(tmp_path / "a.parquet")
    with pytest.raises(CorruptData):
        add_bloom(tmp_path / "a.parquet", "id", out=tmp_path / "b.parquet")
    assert not (tmp_path / "b.parquet").exists()


@pytest.mark.parametrize("offset", [-1, 0, 3, 2**62, 10**6])
def test_filters_outside_the_file(tmp_path: Path, whole: bytes, offset: int) -> None:
    """A footer that says that a filter lies elsewhere is damaged, and not a no."""
    damaged = with_footer(whole, lambda footer: footer.with_filters([(1, 0, offset, 100)]))
    (tmp_path / "a.parquet").write_bytes(damaged)
    with pytest.raises(CorruptData, match=f"said to begin at {offset}"):
        might_contain(tmp_path / "a.parquet", "id", 1)
    assert might_contain(tmp_path / "a.parquet", "name", "name 1")[0]


@pytest.mark.parametrize("claimed", [0, -32, 33, 2**30, 2**31 - 1])
def test_sizes_of_filters(tmp_path: Path, whole: bytes, claimed: int) -> None:
    """A filter's header that claims what is not there is damaged; no memory is asked for."""
    header = _native.parquet_filter_header(claimed)
    start = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    longer = whole[:start] + header + bytes(64) + whole[start:]
    damaged = with_footer(longer, lambda footer: footer.with_filters([(0, 0, start, 2**31 - 1)]))
    (tmp_path / "a.parquet").write_bytes(damaged)
    with pytest.raises(CorruptData, match=rf"damaged filter header at {start}: {claimed} bytes"):
        inspect(tmp_path / "a.parquet")


def test_header_that_is_none(tmp_path: Path, whole: bytes) -> None:
    """Bytes that are no header are damaged."""
    damaged = with_footer(whole, lambda footer: footer.with_filters([(0, 0, 4, 100)]))
    (tmp_path / "a.parquet").write_bytes(damaged)
    with pytest.raises(CorruptData, match="filter header"):
        might_contain(tmp_path / "a.parquet", "id", 1)


def test_unknown_kinds_of_filters_are_a_maybe(tmp_path: Path, whole: bytes) -> None:
    """A filter of an algorithm that is not known tells nothing: a maybe, and not listed."""
    header = bytearray(_native.parquet_filter_header(32))
    header[header.index(0x1C) + 1] = 0x2C  # the second algorithm of the union
    start = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    longer = whole[:start] + bytes(header) + bytes(32) + whole[start:]
    changed = with_footer(longer, lambda footer: footer.with_filters([(2, 0, start, 60)]))
    (tmp_path / "a.parquet").write_bytes(changed)
    assert might_contain(tmp_path / "a.parquet", "id", 5) == [True, False, True]
    listed = [f.row_group for f in inspect(tmp_path / "a.parquet").filters if f.column == "id"]
    assert listed == [0, 1]


def test_any_byte_of_the_footer_changed(tmp_path: Path, whole: bytes) -> None:
    """Whatever is changed in the footer, there is an answer or one of our errors."""
    length, dice = int.from_bytes(whole[-8:-4], "little"), random.Random(7)
    path = tmp_path / "a.parquet"
    for _ in range(effort(60, 300, 20_000)):
        damaged = bytearray(whole)
        for _ in range(dice.choice([1, 1, 3])):
            damaged[-9 - dice.randrange(length)] = dice.randrange(256)
        path.write_bytes(damaged)
        try:
            answers = might_contain(path, "id", 5)
            assert all(isinstance(answer, bool) for answer in answers)
            inspect(path)
        except BloomeryError:
            pass


def test_names_that_are_no_text(tmp_path: Path, whole: bytes) -> None:
    """A column whose name is not UTF-8 is damage, and no error of Python's own."""
    head, footer = whole[: len(whole) // 2], whole[len(whole) // 2 :]
    (tmp_path / "a.parquet").write_bytes(head + footer.replace(b"\x04name", b"\x04\xff\xffme"))
    with pytest.raises(CorruptData, match="can't decode"):
        inspect(tmp_path / "a.parquet")


def test_sidecars_of_other_files(tmp_path: Path, whole: bytes) -> None:
    """A sidecar belongs to one file: another, or a new one of the same name, is refused."""
    first, second, side = tmp_path / "a.parquet", tmp_path / "b.parquet", tmp_path / "a.bloom"
    first.write_bytes(whole)
    pq.write_table(pa.table({"id": [1, 2]}), second)
    add_bloom(first, "id", sidecar=side)
    assert might_contain(first, "id", 5, sidecar=side) == [True, False, False]
    with pytest.raises(InvalidParameter, match="is the sidecar of another file"):
        might_contain(second, "id", 5, sidecar=side)
    with pytest.raises(CorruptData, match="not a sidecar"):
        might_contain(first, "id", 5, sidecar=second)
    side.write_bytes(side.read_bytes()[:-100])
    with pytest.raises(CorruptData, match=r"a\.bloom: not a Parquet file|damaged"):
        might_contain(first, "id", 5, sidecar=side)


def test_a_sidecar_of_other_values_behind_the_same_footer(tmp_path: Path) -> None:
    """Values between the same ends leave the footer as it was: the time of change tells them."""
    path, side = tmp_path / "a.parquet", tmp_path / "a.bloom"

    def write(middle: int) -> bytes:
        table = pa.table({"id": [0, middle, 9]})
        pq.write_table(table, path, compression="none", use_dictionary=False)
        return path.read_bytes()[-200:]

    footer = write(4)
    add_bloom(path, "id", sidecar=side)
    before = path.stat()
    kept = tmp_path / "kept.parquet"
    shutil.copy2(path, kept)
    assert might_contain(kept, "id", 4, sidecar=side) == [True]
    assert write(5) == footer
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1_000_000))
    for call in (might_contain, read):
        with pytest.raises(InvalidParameter, match="time of change"):
            call(path, "id", 5, sidecar=side)
    side.write_bytes(b"BLMPQ\0\0\1" + side.read_bytes()[8:])
    with pytest.raises(InvalidParameter, match="older bloomery"):
        might_contain(kept, "id", 4, sidecar=side)


class ShortReads(FileIO):
    """A file that gives less than was asked for, as those of some file systems do."""

    def read(self, size: int | None = -1, /) -> bytes:
        """At most seven bytes."""
        return super().read(7 if size is None or size < 0 else min(size, 7))


def test_reads_that_return_less(
    tmp_path: Path, whole: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest is read too, of footers, of filters and of sidecars."""
    file, sidecar = tmp_path / "a.parquet", tmp_path / "a.sidecar"
    file.write_bytes(whole)
    add_bloom(file, "id", sidecar=sidecar)
    expected = read(file, "id", 205)
    monkeypatch.setattr(layout, "open", lambda path, *_, **__: ShortReads(path), raising=False)
    for side in (None, sidecar):
        assert might_contain(file, "id", 205, sidecar=side) == [False, False, True]
        assert read(file, "id", 205, sidecar=side).equals(expected)


def test_missing_files(tmp_path: Path) -> None:
    """A file that is not there is Python's own error."""
    with pytest.raises(FileNotFoundError):
        might_contain(tmp_path / "nothing", "id", 5)


@pytest.mark.parametrize("plaintext_footer", [False, True])
def test_encrypted_files(tmp_path: Path, plaintext_footer: bool) -> None:
    """Encrypted and signed files are refused: their filters cannot be read, nor may they change."""
    encryption: Any = pytest.importorskip("pyarrow.parquet.encryption")

    class Keys(encryption.KmsClient):  # type: ignore[misc]
        """Keys that are kept nowhere."""

        def wrap_key(self, key: bytes, name: str) -> bytes:
            return key.hex().encode()

        def unwrap_key(self, key: bytes, name: str) -> bytes:
            return bytes.fromhex(key.decode())

    settings = encryption.EncryptionConfiguration(
        footer_key="f", column_keys={"c": ["id"]}, plaintext_footer=plaintext_footer
    )
    factory = encryption.CryptoFactory(lambda _: Keys())
    properties = factory.file_encryption_properties(encryption.KmsConnectionConfig(), settings)
    table = pa.table({"id": [1], "name": ["a"]})
    pq.write_table(table, tmp_path / "a.parquet", encryption_properties=properties)
    for ask in (
        lambda path: might_contain(path, "name", "a"),
        lambda path: read(path, "name", "a"),
        lambda path: add_bloom(path, "name", out=path),
    ):
        with pytest.raises(InvalidParameter, match=r"encrypted.*write it without encryption"):
            ask(tmp_path / "a.parquet")

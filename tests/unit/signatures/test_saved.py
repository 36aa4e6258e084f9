"""A signature index in a file: the same answers after it, and hostile bytes refused in one line."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bloomery
from bloomery import _native, errors
from conftest import effort, require

pa = require("pyarrow")
from bloomery.signatures import SignatureIndex  # noqa: E402
from unit.signatures.test_index import table  # noqa: E402

ASKED = {"a": 3, "b": "x7"}


@pytest.mark.parametrize("mmap", [False, True])
def test_loaded_index_answers_as_before(tmp_path: Path, mmap: bool) -> None:
    """Read or mapped, with or without its rows; what is appended to a mapped one is not in the
    file, until it is saved over it."""
    rows = table(40_000)
    index = SignatureIndex.build(rows, length=100, bits={"b": 3})
    path = tmp_path / "rows.sig"
    index.save(path)
    assert path.stat().st_size == index.nbytes + 4096
    alone = SignatureIndex.load(path, mmap=mmap)
    assert alone.candidates(ASKED).tolist() == index.candidates(ASKED).tolist()
    with pytest.raises(errors.InvalidParameter, match="rows=table"):
        alone.find(ASKED)
    loaded = SignatureIndex.load(path, rows, mmap=mmap, verify=True)
    assert loaded.find(ASKED) == index.find(ASKED)
    assert (loaded.length, loaded.bits, loaded.nbytes) == (100, index.bits, index.nbytes)
    saved = path.read_bytes()
    loaded.append(rows)
    assert loaded.find(ASKED).num_rows == 2 * index.find(ASKED).num_rows
    assert path.read_bytes() == saved
    loaded.save(path)
    twice = pa.concat_tables([rows, rows])
    assert SignatureIndex.load(path, twice).find(ASKED) == loaded.find(ASKED)


def test_empty_index_is_saved(tmp_path: Path) -> None:
    """An index of no rows comes back as one, and takes rows."""
    rows = table(100)
    SignatureIndex.build(rows.slice(0, 0)).save(tmp_path / "e.sig")
    loaded = SignatureIndex.load(tmp_path / "e.sig", rows.slice(0, 0))
    loaded.append(rows)
    assert loaded.find(ASKED) == SignatureIndex.build(rows).find(ASKED)


def test_other_rows_are_refused(tmp_path: Path) -> None:
    """A table of another length, of other types or of other rows is not taken for the index's."""
    rows, path = table(1000), tmp_path / "rows.sig"
    SignatureIndex.build(rows).save(path)
    wrong = [
        (rows.slice(1), "999 rows, the index 1000"),
        (rows.set_column(0, "a", rows.column("a").cast(pa.int32())), "other types"),
        (rows.take(list(range(999, -1, -1))), "is not the one that was indexed"),
        (rows.drop(["b"]), "no column 'b'"),
    ]
    for one, message in wrong:
        with pytest.raises(errors.InvalidParameter, match=message):
            SignatureIndex.load(path, one)


def test_filters_and_indexes_are_told_apart(tmp_path: Path) -> None:
    """An index is no filter to `bloomery.open`, nor a filter an index, and each says what it is."""
    SignatureIndex.build(table(10)).save(tmp_path / "i")
    bloomery.BloomFilter(10).save(tmp_path / "f")
    with pytest.raises(errors.IncompatibleFilters, match="this is a bloom filter"):
        SignatureIndex.load(tmp_path / "f")
    with pytest.raises(errors.IncompatibleFilters, match=r"SignatureIndex\.load"):
        bloomery.open(tmp_path / "i")


def forged(data: bytes, change: Callable[[dict[str, Any]], None], **words: int) -> bytes:
    """The file with another text about its rows and other words, and all sums right."""
    length = int.from_bytes(data[72:80], "little")
    about = json.loads(data[128 : 128 + length])
    change(about)
    text = json.dumps(about).encode().ljust(4096 - 128)
    assert len(text) == 4096 - 128
    body = text + data[4096:]
    head = bytearray(data[:112])
    head[72:80] = len(text.rstrip()).to_bytes(8, "little")
    for at, value in words.items():
        head[int(at[1:]) : int(at[1:]) + 8] = value.to_bytes(8, "little")
    sums = [_native.checksum(bytes(head)), _native.checksum(body)]
    return bytes(head) + b"".join(one.to_bytes(8, "little") for one in sums) + body


def test_forged_files_are_refused(tmp_path: Path) -> None:
    """Right sums over wrong contents: each is refused with what was found, and nothing is read
    beyond the file."""
    path = tmp_path / "rows.sig"
    SignatureIndex.build(table(1000)).save(path)
    good = path.read_bytes()
    path.write_bytes(forged(good, lambda about: None))
    SignatureIndex.load(path)

    def setting(name: str, value: Any) -> Callable[[dict[str, Any]], None]:
        return lambda about: about.update({name: value})

    cases: list[bytes] = [
        forged(good, setting("bits", bits))
        for bits in ([2, 2], [2, 2, 0], [2, 2, 81], [2, 2, 2**40], "abc", None, [2, 2, True])
    ]
    cases += [forged(good, setting("schema", text)) for text in ("", "!", "QUJD", 7, None)]
    wrong: list[Any] = [7, {}, {"files": [{}]}]
    cases += [forged(good, setting("rows", value)) for value in wrong]
    cases += [forged(good, lambda about: about.pop("bits"))]
    cases += [
        forged(good, lambda about: None, w64=rows) for rows in (0, 3, 999, 1025, 2**40, 2**64 - 1)
    ]
    cases += [forged(good, lambda about: None, w16=bits) for bits in (0, 79, 81, 4097, 2**64 - 1)]
    cases += [forged(good, lambda about: None, w72=size) for size in (2**63, 5, 5000)]
    cases += [forged(good, lambda about: None, w24=7), forged(good, lambda about: None, w104=1)]
    cases += [forged(good, lambda about: None, w40=1)]
    for number, case in enumerate(cases):
        path.write_bytes(case)
        for mmap in (False, True):
            with pytest.raises(errors.BloomeryError):
                pytest.fail(f"{number} was taken: {SignatureIndex.load(path, mmap=mmap)}")


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    """Flipped bits and cut ends anywhere in the file: never a crash, never another answer."""
    path = tmp_path / "rows.sig"
    SignatureIndex.build(table(1000)).save(path)
    good = path.read_bytes()
    rng = random.Random(7)
    for _ in range(effort(60, 200, 5000)):
        bad = bytearray(good)
        if rng.random() < 0.3:
            del bad[rng.randrange(len(bad)) :]
        else:
            bad[rng.randrange(len(bad))] ^= 1 << rng.randrange(8)
        path.write_bytes(bad)
        with pytest.raises(errors.CorruptData):
            SignatureIndex.load(path)
        with pytest.raises(errors.CorruptData):
            SignatureIndex.load(path, mmap=True, verify=True)

"""Runs over files of a corpus."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bloomery import BloomFilter, errors
from bloomery.apps import corpus
from bloomery.apps.corpus import files
from unit.apps.corpus.jsonl import (
    outputs,
    read,
    read_bytes,
    texts,
    without_seen_paragraphs,
    write,
    write_bytes,
)

SUFFIXES = ("jsonl", "jsonl.gz", "jsonl.zst")


def documents(seed: int, count: int = 60) -> list[str]:
    """Texts of a few paragraphs each, of which many come again."""
    rng = random.Random(seed)
    lines = ["", " ", "all rights reserved", *(f"line {rng.randrange(count)} é" for _ in range(99))]
    return ["\n".join(rng.choices(lines, k=rng.randint(1, 6))) for _ in range(count)]


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a small file has many, and lines that do not fit into one."""
    monkeypatch.setattr(files, "CHUNK", 256)


def test_paragraphs_of_several_files(tmp_path: Path) -> None:
    """Are removed as an exact set would, in the order of the files; each is packed as it was."""
    inputs = [
        write(tmp_path / f"in/{n}.{suffix}", documents(n)) for n, suffix in enumerate(SUFFIXES)
    ]
    report = corpus.dedup(inputs, tmp_path / "out", by="paragraph", threads=1, removed=True)
    seen: set[str] = set()
    for n, path in enumerate(inputs):
        left = without_seen_paragraphs(documents(n), seen)
        assert texts(tmp_path / "out" / path.name) == left
        assert report.files[str(path)].documents_removed == 60 - len(left)
        cut = []
        found = {one["id"]: one["attributes"] for one in read(tmp_path / "out/removed" / path.name)}
        for number, text in enumerate(documents(n)):
            spans = found.get(number, {"duplicates": []})["duplicates"]
            for start, end, _ in reversed(spans):
                text = text[:start] + text[end:]
            if text.strip() or not spans:
                cut.append(text.removesuffix("\n") if spans else text)
        assert [one.rstrip() for one in cut] == [one.rstrip() for one in left]
    total = report.total
    assert total.documents == total.lines == 180
    assert total.units == total.keys
    assert total.units - total.units_removed == report.keys == len(seen - {""})
    assert json.loads((tmp_path / "out/report.json").read_text()) == report.as_dict()


def test_documents_stay_as_they_are_written(tmp_path: Path) -> None:
    """Byte for byte: escapes, other members, spaces; but for what is cut out of a text."""
    lines = [
        b' {"x": [1, {"text": 2}], "text" : "a\\u00e9\\/\\n\\u000a b", "id":null}  ',
        '{"text":"aé/"}'.encode(),
        b'{"text":"aE\\nb","y":1e5}',
    ]
    path = write_bytes(tmp_path / "in.jsonl", b"\n".join([lines[0], b"", *lines[1:]]))
    corpus.dedup([path], tmp_path / "one")
    assert (tmp_path / "one/in.jsonl").read_bytes() == b"\n".join(lines) + b"\n"
    corpus.dedup([path], tmp_path / "two", by="paragraph")
    left = [lines[0], b'{"text":"aE","y":1e5}']
    assert (tmp_path / "two/in.jsonl").read_bytes() == b"\n".join(left) + b"\n"


def test_annotations_are_those_of_dolma(tmp_path: Path) -> None:
    """A line for each document: its id, and spans of characters with the newline behind them."""
    path = write(tmp_path / "in.jsonl.gz", ["é\nb", "x\né\nb", {"text": "b"}])
    corpus.dedup([path], tmp_path / "out", by="paragraph", annotate=True)
    found = read(tmp_path / "out/in.jsonl.gz")
    assert [line["attributes"]["duplicates"] for line in found] == [
        [],
        [[2, 4, 1.0], [4, 5, 1.0]],
        [[0, 1, 1.0]],
    ]
    assert [line["id"] for line in found] == [0, 1, None]
    assert [line["line"] for line in found] == [1, 2, 3]


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_threads_keep_one_of_equal_documents(tmp_path: Path, threads: int) -> None:
    """Whichever comes first; none is lost, and none is left twice."""
    inputs = [write(tmp_path / f"in/{n}.jsonl", documents(n % 3, 200)) for n in range(9)]
    known = Counter(text for n in range(9) for text in documents(n % 3, 200))
    report = corpus.dedup([tmp_path / "in"], tmp_path / "out", threads=threads, every=0)
    left = Counter(text for path in inputs for text in texts(tmp_path / "out" / path.name))
    assert left.keys() == known.keys()
    assert [text for text, count in left.items() if count > 1 and text.strip()] == []
    assert report.total.documents == 1800


def test_a_filter_is_kept_over_runs(tmp_path: Path) -> None:
    """What an earlier run let through, a later one removes; a run of other options may not."""
    first = write(tmp_path / "a/1.jsonl", ["one", "two"])
    second = write(tmp_path / "b/2.jsonl", ["two", "three"])
    seen = tmp_path / "seen.bloom"
    corpus.dedup([first], tmp_path / "out1", filter=seen)
    report = corpus.dedup([second], tmp_path / "out2", filter=seen)
    assert texts(tmp_path / "out2/2.jsonl") == ["three"]
    assert report.keys == 3
    filter = BloomFilter.load(seen)
    assert all(text in filter for text in ("one", "two", "three"))
    with pytest.raises(errors.IncompatibleFilters, match="was not made for whole paragraphs"):
        corpus.dedup([second], tmp_path / "out3", by="paragraph", filter=seen)
    with pytest.raises(errors.IncompatibleFilters, match="errs at"):
        corpus.dedup([second], tmp_path / "out3", error_rate=1e-9, filter=seen)


def test_two_runs_may_end_in_either_order(tmp_path: Path) -> None:
    """A filter that another run has added to meanwhile keeps what both have seen."""
    seen = tmp_path / "seen.bloom"
    corpus.dedup([write(tmp_path / "0.jsonl", ["zero"])], tmp_path / "out0", filter=seen)
    inner = write(tmp_path / "2.jsonl", ["two"])

    def meanwhile(now: object) -> None:
        if not (tmp_path / "out2").exists():
            corpus.dedup([inner], tmp_path / "out2", filter=seen)

    outer = write(tmp_path / "1.jsonl", ["one"])
    corpus.dedup([outer], tmp_path / "out1", filter=seen, progress=meanwhile, threads=1)
    assert all(text in BloomFilter.load(seen) for text in ("zero", "one", "two"))


def test_more_files_may_come_later(tmp_path: Path) -> None:
    """If the filter was kept; those that are done are not done again."""
    write(tmp_path / "in/1.jsonl", ["one", "two"])
    options: dict[str, Any] = {"filter": tmp_path / "seen.bloom"}
    corpus.dedup([tmp_path / "in"], tmp_path / "out", **options)
    corpus.dedup([tmp_path / "in"], tmp_path / "bare")
    done = (tmp_path / "out/1.jsonl").stat().st_mtime_ns
    write(tmp_path / "in/2.jsonl", ["two", "three"])
    report = corpus.dedup([tmp_path / "in"], tmp_path / "out", **options)
    assert texts(tmp_path / "out/2.jsonl") == ["three"]
    assert (report.resumed, report.total.documents) == (1, 4)
    assert (tmp_path / "out/1.jsonl").stat().st_mtime_ns == done
    with pytest.raises(errors.InvalidParameter, match=r"2\.jsonl is new: it cannot be compared"):
        corpus.dedup([tmp_path / "in"], tmp_path / "bare")
    assert corpus.dedup([tmp_path / "in"], tmp_path / "bare", restart=True).total.documents == 4


def test_a_run_that_is_over_says_the_same_again(tmp_path: Path) -> None:
    """And does nothing."""
    write(tmp_path / "in/1.jsonl", documents(1))
    first = corpus.dedup([tmp_path / "in"], tmp_path / "out", by="paragraph")
    again = corpus.dedup([tmp_path / "in"], tmp_path / "out", by="paragraph")
    first.resumed = 1
    assert again == first


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"by": "paragraph"}, "of another run: by, unit was different then"),
        ({"annotate": True}, "annotate was different"),
        ({"error_rate": 0.5}, "error_rate was different"),
    ],
)
def test_another_run_does_not_go_on_from_this_one(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    """Its filter would not be that of the outputs."""
    path = write(tmp_path / "in/1.jsonl", ["a"])
    corpus.dedup([path], tmp_path / "out")
    with pytest.raises(errors.InvalidParameter, match=message):
        corpus.dedup([path], tmp_path / "out", **change)


def test_inputs_and_outputs_that_are_not_those_of_before(tmp_path: Path) -> None:
    """An input that changed, an output that is gone, names that would be others."""
    path = write(tmp_path / "in/a/1.jsonl", ["a"])
    corpus.dedup([path], tmp_path / "out", filter=tmp_path / "f")
    other = write(tmp_path / "in/b/1.jsonl", ["b"])
    with pytest.raises(errors.InvalidParameter, match="outputs would have other names"):
        corpus.dedup([path, other], tmp_path / "out", filter=tmp_path / "f")
    (tmp_path / "out/1.jsonl").unlink()
    with pytest.raises(errors.InvalidParameter, match=r"1\.jsonl was done and is gone"):
        corpus.dedup([path], tmp_path / "out", filter=tmp_path / "f")
    write(path, ["a", "b"])
    with pytest.raises(errors.InvalidParameter, match=r"1\.jsonl has changed since it was done"):
        corpus.dedup([path], tmp_path / "out", filter=tmp_path / "f")
    (tmp_path / "out/.bloomery/state.json").write_text("{}")
    with pytest.raises(errors.CorruptData, match="restart"):
        corpus.dedup([path], tmp_path / "out", filter=tmp_path / "f")


def test_tests_are_kept_out_of_training(tmp_path: Path) -> None:
    """What is in `against` goes; what comes twice by itself may stay."""
    words = [f"w{n}" for n in range(40)]
    question = " ".join(words[:30])
    tests = write(tmp_path / "tests.jsonl", [question, "another question of more words " * 3])
    near = " ".join([*words[:28], "x", "y"])
    given = [question.upper(), near, " ".join(words[20:]), "twice the same", "twice the same"]
    path = write(tmp_path / "in.jsonl", given)
    options: dict[str, Any] = {"by": "ngram", "against": [tests]}
    corpus.dedup([path], tmp_path / "out", **options)
    assert texts(tmp_path / "out/in.jsonl") == given[2:4]
    report = corpus.dedup([path], tmp_path / "kept", keep_duplicates=True, **options)
    assert texts(tmp_path / "kept/in.jsonl") == given[2:]
    assert report.total.documents_removed == 2
    with pytest.raises(errors.InvalidParameter, match="keep_duplicates without against"):
        corpus.dedup([path], tmp_path / "x", keep_duplicates=True)


def test_a_filter_that_is_too_small_says_so(tmp_path: Path) -> None:
    """Once, and in the report; nothing stops."""
    path = write(tmp_path / "in.jsonl", [f"text {n}" for n in range(3000)])
    with pytest.warns(
        RuntimeWarning, match="more than the 1,000 keys .* larger --capacity"
    ) as said:
        report = corpus.dedup([path], tmp_path / "out", capacity=1000, threads=1)
    assert len(said) == 1
    assert report.saturated
    assert report.keys + report.total.units_removed == 3000
    assert not corpus.dedup([path], tmp_path / "two", capacity=3000).saturated


def test_sizes_are_estimated_from_a_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Close to what comes, whatever the packing and the comparison."""
    monkeypatch.setattr(files, "CHUNK", 1 << 20)
    rng = random.Random(1)
    lines = [" ".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=20)) for _ in range(60_000)]
    for n, suffix in enumerate(SUFFIXES):
        chosen = ["\n".join(lines[at : at + 10]) for at in range(n * 20_000, (n + 1) * 20_000, 10)]
        write(tmp_path / f"in/{n}.{suffix}", chosen)
    for by in ("document", "paragraph", "ngram", "near"):
        report = corpus.dedup([tmp_path / "in"], tmp_path / by, by=by)
        assert 1.1 < report.capacity / report.keys < 1.5, by
        assert not report.saturated


BAD = {
    b'{"text":"\xff"}': "is not UTF-8 at byte 10",
    b'{"text":"a\\ud800b"}': "has half of a surrogate pair in 'text'",
    b'{"texts":"a"}': "has no member 'text'",
    b'{"text":["a"]}': "has a member 'text' that is not a string",
    b'{"text":"a","text":"b"}': "has the member 'text' twice",
    b'{"text":"a"': "ends before its JSON does",
    b'{"text":"a"}}': "is not JSON from byte 13 on",
    b'{"text":"a\x00"}': "is not JSON from byte 11 on",
    b'"text"': "is JSON, but not an object",
    b'{"a":' + b"[" * 5000: "is JSON nested more than 256 levels",
    b"\x00" * 1000: "is not JSON from byte 1 on",
}


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("line", BAD, ids=lambda line: BAD[line][:20])
def test_a_hostile_line_is_one_clear_error(tmp_path: Path, line: bytes, suffix: str) -> None:
    """With its file and its number; or it is left out, and counted."""
    good = b'{"text":"good %d"}\n'
    before = b"".join(good % n for n in range(40)) + b"\n"
    data = before + line + b"\n" + good % 99
    path = write_bytes(tmp_path / f"in.{suffix}", data)
    with pytest.raises(errors.InvalidSource) as found:
        corpus.dedup([path], tmp_path / "out", threads=2, capacity=1000)
    assert f"{path}, line 42: {BAD[line]}" in str(found.value)
    assert len(str(found.value).splitlines()) == 1
    assert outputs(tmp_path / "out") == {}
    report = corpus.dedup([path], tmp_path / "skipped", skip_bad=True, capacity=1000)
    assert len(texts(tmp_path / f"skipped/in.{suffix}")) == 41
    assert report.total.bad_lines == 1
    assert report.first_bad_line is not None
    assert report.first_bad_line.startswith(f"{path}, line 42: ")


@pytest.mark.parametrize("suffix", ["jsonl.gz", "jsonl.zst"])
def test_a_file_that_is_cut_off_is_an_error(tmp_path: Path, suffix: str) -> None:
    """With how far it could be read; nothing is written for it."""
    path = write(tmp_path / f"in.{suffix}", [f"text {random.random()}" for _ in range(5000)])
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(OSError, match=r"ends too early; is it cut off\? \(behind line [\d,]+\)"):
        corpus.dedup([path], tmp_path / "out", capacity=10_000)
    assert outputs(tmp_path / "out") == {}
    assert list((tmp_path / "out").glob("*.part")) == []


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_one_of_equal_empty_documents_stays(tmp_path: Path, suffix: str) -> None:
    """In all files; by paragraph all blank documents are equal, by words none is compared."""
    blank = ["", " ", "\n", "", " \n\t", "\n", ""]
    inputs = [write(tmp_path / f"{name}.{suffix}", [*blank, f"{name} text"]) for name in "ab"]
    uncompared = [[*blank, "a text"], [*blank, "b text"]]
    expected: dict[Any, list[list[str]]] = {
        "document": [["", " ", "\n", " \n\t", "a text"], ["b text"]],
        "paragraph": [["", "a text"], ["b text"]],
        "ngram": uncompared,
        "near": uncompared,
    }
    for by, left in expected.items():
        report = corpus.dedup(inputs, tmp_path / by, by=by, threads=1)
        assert [texts(tmp_path / by / path.name) for path in inputs] == left
        assert report.total.documents_removed == 16 - sum(map(len, left))
        seen = corpus.TextDeduplicator(capacity=1000, by=by)
        kept = [seen.dedup([*blank, f"{name} text"]) for name in "ab"]
        assert [[text for text in file if text is not None] for file in kept] == left


def test_a_line_without_end_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not read into memory."""
    monkeypatch.setattr(files, "MAX_LINE", 1 << 16)
    long = b'{"text":"' + b"a" * 50_000 + b'"}\n'
    path = write_bytes(tmp_path / "in.jsonl", long + b'{"text":"' + b"a" * (1 << 20))
    with pytest.raises(
        errors.InvalidSource, match=r"in\.jsonl: a line is longer.* \(behind line 1\)"
    ):
        corpus.dedup([path], tmp_path / "out", capacity=10_000)
    fits = write_bytes(tmp_path / "fits.jsonl", long * 3)
    assert corpus.dedup([fits], tmp_path / "two").total.documents_removed == 2


def test_files_keep_their_places_below_the_common_folder(tmp_path: Path) -> None:
    """Shards of the same name in several folders do not meet."""
    write(tmp_path / "in/a/0.jsonl", ["one"])
    write(tmp_path / "in/b/deep/0.jsonl", ["two"])
    write_bytes(tmp_path / "in/b/notes.txt", b"no corpus")
    corpus.dedup([tmp_path / "in"], tmp_path / "out")
    assert set(outputs(tmp_path / "out")) == {"a/0.jsonl", "b/deep/0.jsonl"}
    assert read_bytes(tmp_path / "out/a/0.jsonl") == read_bytes(tmp_path / "in/a/0.jsonl")


def test_what_cannot_be_read_or_written_is_said_first(tmp_path: Path) -> None:
    """Before anything is done."""
    path = write(tmp_path / "in/1.jsonl.gz", ["a"])
    wrong: list[tuple[list[Path], dict[str, Any], str]] = [
        ([path, path], {}, "named twice"),
        ([tmp_path / "in", path], {}, "named twice"),
        ([], {}, "no files in an empty list"),
        ([path], {"threads": 0}, "threads is 0"),
        ([path], {"capacity": 0}, "capacity must be"),
        ([path], {"level": 10}, "level is 10, must be from 0 to 9"),
        ([path], {"error_rate": 2}, "error_rate must be"),
    ]
    for inputs, options, message in wrong:
        with pytest.raises(errors.InvalidParameter, match=message):
            corpus.dedup(inputs, tmp_path / "out", **options)
    for out in (tmp_path / "in", tmp_path):
        with pytest.raises(errors.InvalidParameter, match="where the inputs are"):
            corpus.dedup([path], out)
    with pytest.raises(FileNotFoundError):
        corpus.dedup([tmp_path / "none.jsonl"], tmp_path / "out")
    assert not (tmp_path / "out").exists()
    (tmp_path / "out").write_text("a file")
    with pytest.raises(OSError, match="out"):
        corpus.dedup([path], tmp_path / "out")


def test_one_run_at_a_time_writes_to_a_folder(tmp_path: Path) -> None:
    """The other is told who has it."""
    path = write(tmp_path / "in.jsonl", ["a"])
    refused: list[str] = []

    def meanwhile(now: object) -> None:
        with pytest.raises(errors.FolderInUse) as found:
            corpus.dedup([path], tmp_path / "out")
        refused.append(str(found.value))

    corpus.dedup([path], tmp_path / "out", progress=meanwhile, threads=1)
    assert "another run of `bloomery corpus`" in refused[0]

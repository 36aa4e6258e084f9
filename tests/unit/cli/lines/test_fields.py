"""`--key` and `--column`: lines that are known by a part of them."""

import csv
import io
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bloomery import BloomFilter
from bloomery._native import LineKey

Run = Callable[..., Any]


def kept(key: LineKey, data: bytes, chunk: int) -> list[bytes]:
    """What a filter lets through, fed so many bytes at a time as a pump would."""
    seen, out, rest = BloomFilter(10_000, 1e-6), b"", b""
    for at in range(0, len(data) + 1, chunk):
        rest += data[at : at + chunk]
        final = at + chunk > len(data)
        new, used, _, _ = seen.add_lines(rest, final=final, key=key)
        out, rest = out + new, rest[used:]
    assert rest == b""
    return out.splitlines()


def test_json_fields_are_the_values_that_json_reads() -> None:
    """For random objects, written in random ways, the key is what Python's own reader has."""
    rng = random.Random(5)
    names = ["a", "url", "x y", "é", 'q"', "b\\", "deep"]
    texts = ["", "plain", "é\n\t", '"quoted"', "back\\slash", "\U0001f600", "a,b}]{[:", "\x7f\x00"]

    def value(depth: int) -> Any:
        kind = rng.randrange(5 if depth else 3)
        if kind == 0:
            return rng.choice(texts)
        if kind == 1:
            return rng.randrange(-(10**20), 10**20)
        if kind == 2:
            return rng.choice([True, False])
        if kind == 3:
            return [value(depth - 1) for _ in range(rng.randrange(4))]
        return {name: value(depth - 1) for name in rng.sample(names, rng.randrange(5))}

    for _ in range(2_000):
        row = {name: value(2) for name in rng.sample(names, 4)}
        name = rng.choice(names)
        line = json.dumps(
            row,
            ensure_ascii=rng.random() < 0.5,
            separators=rng.choice([(",", ":"), (", ", ": "), (" ,\t", " : ")]),
        )
        _, [key], _ = LineKey.json([name]).split(line.encode(), final=True)
        wanted = row.get(name)
        if name not in row:
            assert key is None, line
        elif isinstance(wanted, str):
            assert key == wanted.encode(), line
        else:
            assert key is not None, line
            assert json.loads(key) == wanted, line


def test_no_cut_between_chunks_changes_the_answer() -> None:
    """JSON lines and CSV with line ends in quotes, handed over byte by byte or at once."""
    lines = [b'{"k": "%d", "n": %d}' % (n % 7, n) for n in range(40)] + [b"{}", b"", b'{"k":']
    data = b"\n".join(lines)
    whole = kept(LineKey.json(["k"]), data, 1 << 20)
    assert len(whole) == 7 + 3
    records = [b'%d,"a ""%d""\nb",x' % (n, n % 7) for n in range(40)] + [b"1", b'2,"open']
    table = b"\r\n".join(records)
    all_at_once = kept(LineKey.csv(1, b","), table, 1 << 20)
    for chunk in (1, 2, 3, 7, 50):
        assert kept(LineKey.json(["k"]), data, chunk) == whole
        assert kept(LineKey.csv(1, b","), table, chunk) == all_at_once


def test_lines_without_the_field_come_out_and_are_counted(run: Run) -> None:
    """What has no key is no duplicate of another; one line says how many and where."""
    data = b'{"u":1}\n{"v":1}\n{"u":null}\nnonsense\n\xff\x00\n{"u":"1"}\n{"v":1}\n'
    done = run("dedup", "--key", ".u", "--json", stdin=data)
    assert done.stdout == b'{"u":1}\n{"v":1}\n{"u":null}\nnonsense\n\xff\x00\n{"v":1}\n'
    said, summary = done.stderr.decode().splitlines()
    assert "5 of 7 lines have no .u" in said
    assert said.endswith("the first is line 2")
    counts = json.loads(summary)
    assert (counts["lines"], counts["new"], counts["duplicates"]) == (7, 1, 1)
    assert counts["without_key"] == 5


def test_quoted_empty_columns_have_no_key(run: Run, tmp_path: Path) -> None:
    """Writers that quote every field have them where others have nothing."""
    rows = [[str(n), mail] for n, mail in enumerate(["", "a@b", "", "a@b", ""])]
    for quoting in (csv.QUOTE_ALL, csv.QUOTE_MINIMAL):
        text = io.StringIO()
        csv.writer(text, quoting=quoting).writerows([["id", "mail"], *rows])
        (tmp_path / "a.csv").write_text(text.getvalue(), newline="")
        lines = text.getvalue().encode().splitlines(keepends=True)
        done = run("dedup", "--column", "mail", "a.csv")
        assert done.stdout.splitlines(keepends=True) == lines[:4] + lines[5:]
        assert b"3 of 5 lines have no" in done.stderr
        (tmp_path / "b.csv").write_bytes(b"".join(lines[:2]))
        done = run("diff", "--column", "mail", "b.csv", "a.csv")
        assert done.stdout.splitlines(keepends=True) == lines


def test_strict_stops_before_such_a_line(run: Run, one_line: Callable[[bytes], str]) -> None:
    """With --strict nothing of that chunk comes out, and the kept filter stays as it was."""
    run("dedup", "-f", "seen", "--key", ".u", stdin=b'{"u":1}\n')
    done = run("dedup", "-f", "seen", "--key", ".u", "--strict", stdin=b'{"u":2}\n{}\n', code=2)
    assert done.stdout == b""
    assert "line 2 has no .u" in one_line(done.stderr)
    assert run("dedup", "-f", "seen", "--key", ".u", stdin=b'{"u":2}\n').stdout == b'{"u":2}\n'


def test_a_header_comes_out_once(run: Run, tmp_path: Path) -> None:
    """Files of one table: their header is printed first and never taken for a record."""
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbfid,mail\r\n1,x@y\r\n2,z@y\r\n")
    (tmp_path / "b.csv").write_bytes(b"\xef\xbb\xbfid,mail\r\n3,x@y\r\n")
    for column in ("mail", "2"):
        done = run("dedup", "--column", column, "a.csv", "b.csv")
        assert done.stdout == b"\xef\xbb\xbfid,mail\r\n1,x@y\r\n2,z@y\r\n"
    assert run("dedup", "-c", "id", "a.csv").stdout.count(b"\n") == 3
    tabs = b"1\tx\n2\tx\n"
    done = run("dedup", "-c", "2", "-d", "tab", "--no-header", stdin=tabs)
    assert done.stdout == b"1\tx\n"
    assert run("count", "-c", "mail", "--json", "a.csv", "b.csv").stdout.startswith(
        b'{"lines": 3, "distinct": 2'
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--key", "url"], "did you mean .url?"),
        (["--key", ".a..b"], "is not a path"),
        (["--key", ".a", "-c", "b"], "give one of them"),
        (["--strict"], "goes with --key or --column"),
        (["-d", ","], "go with --column"),
        (["-c", "mail", "--no-header"], "have only numbers"),
        (["-c", "mail", "-d", "::"], "is not one character"),
        (["-c", "nail"], "no column 'nail' among id, mail"),
        (["-c", "9"], "no column '9'"),
        (["-c", "0", "--no-header"], "have only numbers"),
        (["-c", "9" * 30, "--no-header"], "have only numbers"),
        (["-c", "mail", "-d", "é"], "is not one character"),
        (["--exact", "-e", "1%"], "leave --error-rate out"),
    ],
)
def test_wrong_options_say_what_is_right(
    run: Run, one_line: Callable[[bytes], str], options: list[str], said: str
) -> None:
    """Each is one line, before anything comes out."""
    done = run("dedup", *options, stdin=b"id,mail\n1,x\n", code=2)
    assert said in one_line(done.stderr)
    assert done.stdout == b""


def test_records_that_cannot_be_told_apart_come_out(run: Run) -> None:
    """An open quote swallows what is behind it, and empty columns are no value: none is dropped."""
    done = run("dedup", "-c", "a", stdin=b'a,b\n1,x\n1,"open\n2,y\n1,z\n')
    assert done.stdout == b'a,b\n1,x\n1,"open\n2,y\n1,z\n'
    assert b"1 of 2 lines have no column a" in done.stderr
    done = run("dedup", "-c", "a", "--strict", stdin=b'a,b\n1,x\n1,"open\n', code=2)
    assert b"record 3 has no column a" in done.stderr
    done = run("dedup", "-c", "mail", stdin=b'id,mail\n1,\n2,\n3,""\n4,""\n')
    assert done.stdout == b'id,mail\n1,\n2,\n3,""\n4,""\n'


def test_another_header_is_refused(
    run: Run, tmp_path: Path, one_line: Callable[[bytes], str]
) -> None:
    """The same column of another table is not the same key."""
    (tmp_path / "a.csv").write_bytes(b"id,mail\n1,x\n")
    (tmp_path / "b.csv").write_bytes(b"mail,id\nx,1\n")
    done = run("dedup", "-c", "mail", "a.csv", "b.csv", code=2)
    assert "its header is not that of the first file" in one_line(done.stderr)


@pytest.mark.slow
def test_line_of_more_than_256_mib_is_an_error(run: Run, tmp_path: Path) -> None:
    """So is a record whose quote is never closed; it is the input that is at fault, not a limit."""
    (tmp_path / "a.csv").write_bytes(b"a,b\n1,2\n")
    with open(tmp_path / "long.csv", "wb") as file:
        file.write(b'a,b\n1,"')
        file.truncate((256 << 20) + 1024)
    for command in (
        ["dedup", "-c", "b", "long.csv"],
        ["dedup", "long.csv"],
        ["dedup", "--key", ".a", "long.csv"],
        ["dedup", "--exact", "long.csv"],
        ["count", "long.csv"],
        ["diff", "a.csv", "long.csv"],
        ["diff", "-c", "b", "long.csv", "a.csv"],
    ):
        done = run(*command, code=2)
        assert b"long.csv: a line is longer than 256 MiB" in done.stderr, command
        assert b"ulimit" not in done.stderr, command

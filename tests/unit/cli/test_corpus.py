"""`bloomery corpus dedup`: as people run it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from unit.apps.corpus.jsonl import read, texts, write, write_bytes
from unit.cli.conftest import COMMAND, environment

Run = Callable[..., Any]


def test_documents_are_written_once(run: Run, tmp_path: Path) -> None:
    """And it says how many were not; for a program as JSON."""
    write(tmp_path / "in/a.jsonl.zst", ["one", "two", "one"])
    printed = run("corpus", "dedup", "in/a.jsonl.zst", "--out", "out").stdout.decode()
    assert "3 documents in 1 files: 1 removed\n" in printed
    assert texts(tmp_path / "out/a.jsonl.zst") == ["one", "two"]
    again = run("corpus", "dedup", "in/a.jsonl.zst", "--out", "out", "--json")
    report = json.loads(again.stdout)
    assert (report["total"]["documents_removed"], report["resumed"]) == (1, 1)


@pytest.mark.slow
def test_options_reach_the_library(run: Run, tmp_path: Path) -> None:
    """Near-duplicates annotated, n-grams against tests, a filter kept over runs."""
    words = [f"w{n}" for n in range(60)]
    near = [*words[:30], "x", *words[31:]]
    write(tmp_path / "in/a.jsonl", [" ".join(words), " ".join(near), "else"])
    run("corpus", "dedup", "in", "-o", "near", "--near", "--threshold", "0.6", "--annotate")
    found = [one["attributes"]["duplicates"] for one in read(tmp_path / "near/a.jsonl")]
    assert [len(spans) for spans in found] == [0, 1, 0]
    write(tmp_path / "tests.jsonl", [" ".join(words)])
    against = ("--by", "ngram", "--against", "tests.jsonl", "--keep-duplicates", "--words", "2")
    run("corpus", "dedup", "in", "-o", "clean", *against, "--unit", "document", "--removed")
    assert texts(tmp_path / "clean/a.jsonl") == ["else"]
    assert len(read(tmp_path / "clean/removed/a.jsonl")) == 2
    for out, left in (("one", 3), ("two", 0)):
        run("corpus", "dedup", "in", "-o", out, "-f", "seen.bloom")
        assert len(texts(tmp_path / out / "a.jsonl")) == left


@pytest.mark.slow
def test_too_many_keys_are_a_warning_and_exit_code_1(run: Run, tmp_path: Path) -> None:
    """On one line."""
    write(tmp_path / "a.jsonl", [f"text {n}" for n in range(2000)])
    done = run("corpus", "dedup", "a.jsonl", "-o", "out", "--capacity", "1000", code=1)
    [line] = done.stderr.decode().splitlines()
    assert line.startswith("bloomery: warning: more than the 1,000 keys")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.jsonl"], "none.jsonl: No such file"),
        (["a.jsonl", "--near", "--by", "paragraph"], "not with --by"),
        (["a.jsonl", "--threshold", "0.5"], "threshold is 0.5: by document has none"),
        (["a.jsonl", "--by", "word"], "'word' is not one of"),
        (["bad.jsonl"], "bad.jsonl, line 2: has no member 'text'; mend or remove the line"),
        (["a.jsonl", "--field", "body"], "a.jsonl, line 1: has no member 'body'"),
    ],
)
def test_what_is_wrong_is_one_line(
    run: Run, tmp_path: Path, arguments: list[str], message: str
) -> None:
    """With the next step."""
    write(tmp_path / "a.jsonl", ["a"])
    write_bytes(tmp_path / "bad.jsonl", b'{"text":"a"}\n{}\n')
    done = run("corpus", "dedup", *arguments, "-o", "out", code=2)
    [line] = done.stderr.decode().splitlines()
    assert message in line


@pytest.mark.slow
def test_a_signal_stops_it_and_it_goes_on(run: Run, tmp_path: Path) -> None:
    """The second file waits for a pipe: there it is stopped; the first was kept by a checkpoint."""
    write(tmp_path / "in/a.jsonl", ["one"])
    os.mkfifo(tmp_path / "in/b.jsonl")
    words = ["corpus", "dedup", "in/a.jsonl", "in/b.jsonl", "-o", "out", "--checkpoint", "0"]
    words += ["--threads", "1", "--capacity", "1000"]
    with (
        subprocess.Popen(
            [*COMMAND, *words], cwd=tmp_path, env=environment(), stderr=subprocess.PIPE
        ) as process,
        (tmp_path / "in/b.jsonl").open("wb"),
    ):  # opened by it: the first file is done
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert b"interrupted; the same command goes on from the last checkpoint" in said
    (tmp_path / "in/b.jsonl").unlink()
    write(tmp_path / "in/b.jsonl", ["one", "two"])
    report = json.loads(run(*words, "--json").stdout)
    assert report["resumed"] == 1
    assert texts(tmp_path / "out/b.jsonl") == ["two"]

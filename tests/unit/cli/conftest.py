"""The command is tested as people run it: `python -m bloomery` in a process of its own, which for
most tests is forked from one that has imported it (tests/nursery.py)."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import nursery

COMMAND = [sys.executable, "-m", "bloomery"]
Run = Callable[..., subprocess.CompletedProcess[bytes]]


def environment(**extra: str) -> dict[str, str]:
    """Ours, without what would colour or wrap the output."""
    kept = {k: v for k, v in os.environ.items() if k not in {"FORCE_COLOR", "COLUMNS"}}
    return {**kept, "COLUMNS": "120", "NO_COLOR": "1", **extra}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run the command in an empty folder; stderr is never a traceback."""

    def call(
        *args: str | bytes, stdin: bytes | None = b"", code: int | None = 0, **options: Any
    ) -> subprocess.CompletedProcess[bytes]:
        if "stdin_file" in options:
            options["stdin"] = options.pop("stdin_file")
        elif stdin is not None:
            options["input"] = stdin
        options.setdefault("stdout", subprocess.PIPE)
        around = environment(COLUMNS=str(options.pop("columns", 120)))
        if options.keys() == {"input", "stdout"} and options["stdout"] == subprocess.PIPE:
            words = [*map(os.fsdecode, args)]
            done = nursery.run(words, options["input"], tmp_path, around, nursery.FILES)
        else:
            done = subprocess.run(
                [*COMMAND, *args],
                stderr=subprocess.PIPE,
                cwd=tmp_path,
                env=around,
                timeout=120,
                check=False,
                **options,
            )
        assert b"Traceback" not in done.stderr, done.stderr.decode()
        if code is not None:
            assert done.returncode == code, (done.returncode, done.stderr.decode())
        return done

    return call


@pytest.fixture
def start(tmp_path: Path) -> Callable[..., subprocess.Popen[bytes]]:
    """Start the command with pipes on all sides, for tests that meddle while it runs."""

    def call(*args: str, **options: Any) -> subprocess.Popen[bytes]:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(
            [*COMMAND, *args], cwd=tmp_path, env=environment(), **{**pipes, **options}
        )

    return call


@pytest.fixture
def one_line() -> Callable[[bytes], str]:
    """The message on stderr, after checking that it is one line of ours."""

    def check(stderr: bytes) -> str:
        text = stderr.decode()
        assert text.startswith("bloomery: "), text
        assert text.count("\n") == 1, text
        assert text.endswith("\n"), text
        return text.removeprefix("bloomery: ").rstrip("\n")

    return check

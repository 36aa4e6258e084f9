"""Columns made by hand, right and wrong: none crashes, hangs or aborts; right ones are right."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import effort, require

pytestmark = pytest.mark.slow

FUZZER = Path(__file__).with_name("column_fuzzer.py")


@pytest.mark.parametrize("seed", range(effort(1, 2, 8)))
def test_columns_made_by_hand(seed: int) -> None:
    """Every round ends with the keys that pyarrow reads, or with an error of bloomery's."""
    require("pyarrow")
    rounds = effort(1_000, 4_000, 200_000)
    new = int.from_bytes(os.urandom(4), "big") if effort(0, 0, 1) else seed
    run = subprocess.run(
        [sys.executable, str(FUZZER), str(new), str(rounds)],
        capture_output=True,
        text=True,
        timeout=effort(120, 240, 3600),
    )
    last = run.stdout.splitlines()[-1] if run.stdout else "nothing"
    how = signal.Signals(-run.returncode).name if run.returncode < 0 else run.returncode
    assert last == "done", f"{how} after {last}:\n{run.stderr[-3000:]}"

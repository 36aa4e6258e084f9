"""The bar, where there is no rich to draw it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bloomery import BloomFilter
from unit.cli.conftest import environment

# What the plain install lacks; and a bar is due at once.
PLAIN = """
import sys
for name in ("rich", "typer", "zstandard"):
    sys.modules[name] = None
from bloomery.cli import main, progress
progress._PATIENCE = 0.0
raise SystemExit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("command", ["dedup", "count", "diff"])
def test_a_long_run_of_the_plain_install(tmp_path: Path, command: str) -> None:
    """It has no bar, and comes to its end: every line comes out, and the filter is kept."""
    pty = pytest.importorskip("pty")
    lines = b"".join(b"line %d\n" % number for number in range(100_000))
    (tmp_path / "lines").write_bytes(lines * 2)
    (tmp_path / "none").touch()
    words, said = {
        "dedup": (["lines", "--filter", "seen.bloom"], lines),
        "count": (["lines", "--error-rate", "1e-9"], b"100,000 distinct of 200,000 lines"),
        "diff": (["none", "lines"], lines * 2),
    }[command]
    ours, theirs = pty.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-c", PLAIN, command, *words],
            cwd=tmp_path,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=theirs,
            timeout=60,
            check=False,
        )
        os.set_blocking(ours, False)
        assert done.returncode == 0, os.read(ours, 65_536)
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.stdout.startswith(said)
    if command == "dedup":
        assert BloomFilter.load(tmp_path / "seen.bloom").estimated_count > 90_000

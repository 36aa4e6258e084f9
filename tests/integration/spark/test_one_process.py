"""Under xdist: all tests of this folder in one process, so that one JVM is started for them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.long
@pytest.mark.timeout(900)
def test_spark_in_one_process() -> None:
    """The tests of this folder pass, one after another, in a process of their own."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "-p", "no:xdist", "-q", "--durations=5"]
    done = subprocess.run(
        [*command, str(Path(__file__).parent)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:]

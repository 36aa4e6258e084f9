"""The start of a server, from its command."""

import subprocess
import sys
from pathlib import Path

import pytest

_PROGRAM = """
import gc, os, signal, sys, threading
from bloomery.cli import main

seen = []
late = threading.Event()

def watch():
    while not gc.get_freeze_count():  # the filters are not yet loaded
        seen.append(gc.isenabled())
        late.wait(0.001)
    while not gc.isenabled():
        late.wait(0.001)
    print("collects again:", not seen[-1], flush=True)
    os.kill(os.getpid(), signal.SIGTERM)

threading.Thread(target=watch, daemon=True).start()
sys.exit(main(["serve", "--data", sys.argv[1], "--resp-port", "0", "--http-port", "0"]))
"""


@pytest.mark.slow
def test_garbage_is_collected_from_when_the_filters_are_loaded(tmp_path: Path) -> None:
    """While it starts it is not; a server that never did would take more memory each day."""
    command = [sys.executable, "-c", _PROGRAM, str(tmp_path / "data")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "collects again: True" in done.stdout

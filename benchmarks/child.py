"""Runs one command and reports its time and its own peak memory, as JSON.

A process of its own (`python -m benchmarks.child IN OUT COMMAND…`), kept small on purpose: Linux
counts into a child's ru_maxrss what its parent held at the moment of the exec, so a command started
from a benchmark that holds gigabytes would seem to have used them. From here the floor is the 10 MB
or so of this interpreter.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time


def main(source: str, target: str, command: list[str]) -> None:
    with open(source, "rb") as given, open(target, "wb") as taken:
        started = time.monotonic()
        child = subprocess.Popen(
            command, stdin=given, stdout=taken, env={**os.environ, "LC_ALL": "C"}
        )
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.monotonic() - started
    print(
        json.dumps(
            {
                "exit_code": os.waitstatus_to_exitcode(status),
                "seconds": seconds,
                "user_seconds": usage.ru_utime,
                "system_seconds": usage.ru_stime,
                "peak_bytes": usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024),
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])

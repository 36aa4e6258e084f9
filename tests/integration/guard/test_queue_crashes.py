"""A guard's process killed (`kill -9`) while the database is down, and in the midst of draining:
who comes after it does the rest."""

import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from bloomery.guard import Answer
from conftest import require
from integration.guard import doomed
from integration.guard.changes import changes, log_changes
from integration.servers import PostgresServer, RedisServer, wait_until

require("sqlalchemy")
require("psycopg")


class Doomed:
    """That process, and what it printed."""

    def __init__(self, log: Path, *arguments: object) -> None:
        self.log = log
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, doomed.__file__, *map(str, arguments)], stdout=out
            )

    def said(self, word: str) -> list[list[str]]:
        """Its whole lines that begin with that word, without it."""
        lines = [line for line in self.log.read_text().splitlines(True) if line.endswith("\n")]
        return [line.split()[1:] for line in lines if line.split()[0] == word]

    def kill_when(self, ready: Callable[[], bool]) -> int:
        """Let it work until then; the number of its last write that is known to be done."""
        try:
            assert wait_until(lambda: self.process.poll() is not None or ready(), 60)
            assert self.process.poll() is None, "it ended by itself"
        finally:
            self.process.kill()
            self.process.wait()
        return int(self.said("wrote")[-1][0])


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
def test_what_was_acknowledged_survives_its_process(
    postgres: PostgresServer,
    postgres_url: str,
    redis_server: RedisServer,
    tmp_path: Path,
    kind: str,
) -> None:
    """Every write is in the database once and in order, and every look-up that waited is told."""
    postgres.run(
        "CREATE TABLE doomed (k text PRIMARY KEY, v int);"
        f"INSERT INTO doomed SELECT 'row' || n, n FROM generate_series(0, {doomed.ROWS - 1}) n;"
    )
    log_changes(postgres, "doomed")
    redis = f"redis://127.0.0.1:{redis_server.port}"
    where = redis if kind == "redis" else str(tmp_path / "queue")
    postgres.kill()
    first = Doomed(tmp_path / "first", postgres_url, where, 0, 10_000)
    last = first.kill_when(lambda: len(first.said("wrote")) >= 300)
    second = Doomed(tmp_path / "second", postgres_url, where, last + 1, 300)
    try:
        assert wait_until(lambda: len(second.said("wrote")) >= 100)
        postgres.start()
    finally:
        last = second.kill_when(lambda: len(second.said("told")) > 0)
    done = len(changes(postgres, "doomed"))
    answers: list[Answer] = []
    with (
        closing(doomed.table(postgres_url)) as source,
        doomed.made(source, where, lambda key, answer: answers.append(answer)) as guard,
    ):
        assert guard.info()["queued"] > 0
        assert wait_until(lambda: not guard.info()["queued"], 60)
        assert guard.info()["parked"] == 0
    changed = changes(postgres, "doomed")
    assert last < len(changed)
    assert done < len(changed)
    assert changed == [doomed.written(number) for number in range(len(changed))]
    told = {(answer.queued, answer.value) for answer in answers}
    told |= {(token, int(value)) for one in (first, second) for token, value in one.said("told")}
    asked = {(token, int(row)) for one in (first, second) for token, row in one.said("asked")}
    assert len(asked) > 300
    assert asked <= told

"""Users of nodes: one document in their Redis, whichever node is asked."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import redis

from integration.nodes.fleet import Fleet
from integration.servers import StartRedis, wait_until


def _user(*words: str, text: str = "") -> str:
    done = subprocess.run(
        [sys.executable, "-m", "bloomery", "user", *words],
        input=text,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_users_of_all_nodes(tmp_path: Path, start_redis: StartRedis) -> None:
    """A user that is added to the store may use every node, within a second; one that is removed,
    none; and what Redis loses of them the nodes put back."""
    store = start_redis()
    url = store.url
    _user("add", "ann", "--role", "admin", "--password-stdin", "--store", url, text="long enough")
    token = _user("token", "ann", "--store", url)
    with Fleet(tmp_path, url, nodes=2) as fleet:
        for at in range(2):
            with fleet.client(at) as nobody, pytest.raises(redis.AuthenticationError):
                nobody.execute_command("BF.ADD", "f", "a")
            with fleet.client(at, username="ann", password=token) as ann:
                assert ann.execute_command("BF.ADD", "f", f"a{at}") == 1
        store.run("DEL", "{bloomery}:users")
        assert wait_until(lambda: store.run("EXISTS", "{bloomery}:users") == 1)
        _user("remove", "ann", "--force", "--store", url)
        for at in range(2):
            assert wait_until(lambda at=at: _is_refused(fleet, at, token))  # type: ignore[misc]


def _is_refused(fleet: Fleet, at: int, token: str) -> bool:
    try:
        with fleet.client(at, username="ann", password=token) as ann:
            ann.ping()
    except (redis.AuthenticationError, redis.ConnectionError):  # of before: it is closed
        return True
    return False

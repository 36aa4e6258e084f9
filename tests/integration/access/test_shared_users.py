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


def test_a_removed_user_stays_removed(tmp_path: Path, start_redis: StartRedis) -> None:
    """Redis loses the removal of an administrator, while nodes run or while none does: they remove
    it again, and keep what others changed since."""
    store = start_redis()
    url, key = store.url, "{bloomery}:users"
    for name in ("ann", "eve"):
        _user(
            "add", name, "--role", "admin", "--password-stdin", "--store", url, text="long enough"
        )
    token = _user("token", "eve", "--store", url)
    with Fleet(tmp_path, url, nodes=2) as fleet:
        earlier = store.run("GET", key)
        _user("remove", "eve", "--force", "--store", url)
        for at in range(2):
            assert wait_until(lambda at=at: _is_refused(fleet, at, token, "eve"))  # type: ignore[misc]
        removed = store.run("GET", key)
        store.run("SET", key, earlier)
        assert wait_until(lambda: store.run("GET", key) == removed)
        for node in fleet.nodes:
            node.kill()
        store.run("SET", key, earlier)
        _user(
            "add", "bob", "--role", "read", "--password-stdin", "--store", url, text="long enough"
        )
        for node in fleet.nodes:
            node.spawn()
        fleet.wait_ready()
        for at in range(2):
            assert _is_refused(fleet, at, token, "eve")
            with fleet.client(at, username="bob", password="long enough") as bob:
                assert bob.ping()
        listed = _user("list", "--store", url)
        assert "eve" not in listed
        assert "ann" in listed
        _user(
            "add", "eve", "--role", "read", "--password-stdin", "--store", url, text="long enough"
        )
        with fleet.client(0, username="eve", password="long enough") as eve:
            assert wait_until(lambda: _may(eve))


def _may(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.AuthenticationError:
        return False


def _is_refused(fleet: Fleet, at: int, token: str, name: str = "ann") -> bool:
    try:
        with fleet.client(at, username=name, password=token) as user:
            user.ping()
    except (redis.AuthenticationError, redis.ConnectionError):  # of before: it is closed
        return True
    return False

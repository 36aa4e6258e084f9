"""What the server writes and tells has no key and no secret in it, and says who did what."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from bloomery.service.access.audit import audit_file
from integration.access.conftest import PASSWORD, Guarded, add_users
from integration.resp.wire import Wire, request
from integration.servers import BloomeryServer, Serve, wait_until

KEY = "alice@example.org-is-a-key"
GUESS = "a-guess-that-was-wrong"
TYPED_AS_NAME = "a-password-typed-as-the-name"
REGISTRY_SECRET = "unguessable-value-of-a-setting"


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Guarded:
    """A server that was used in every way that has a secret in it, and stopped."""
    folder = tmp_path_factory.mktemp("used")
    users = add_users(folder / "data")
    server = BloomeryServer(folder, "--set", "log-format=json")
    server.start()
    used = Guarded(server, users)
    try:
        told = _use(used)
    finally:
        assert server.stop() == 0
    (folder / "told").write_bytes(told)
    return used


def _use(used: Guarded) -> bytes:
    """Use it; all that it answered to questions about itself."""
    told = b""
    with Wire(used.server.resp_port) as wire:
        wire.send(request("AUTH", "admin-all", GUESS) + request("AUTH", TYPED_AS_NAME, "x"))
        assert wire.reply().startswith(b"-WRONGPASS")
        assert wire.reply().startswith(b"-WRONGPASS")
        assert wire.ask("AUTH", "admin-all", PASSWORD) == b"+OK\r\n"
        wire.ask("BF.ADD", "mine:a", KEY)
        wire.ask("BF.INSERT", "mine:a", "NOSUCH", "ITEMS", KEY)
        wire.ask("BF.EXISTS", "mine:a", KEY)
        wire.ask("BF.RESERVE", "mine:b", KEY, KEY)
        wire.ask("BF.RESERVE", "mine:c", "0.01", "100")
        wire.ask("CONFIG", "SET", "timeout", "1234567")
        wire.ask("CONFIG", "SET", "bf-layout", REGISTRY_SECRET)
        wire.ask("CONFIG", "SET", "timeout", "0")
        wire.ask("DEL", "mine:c", "mine:none")
        wire.ask(KEY, GUESS)
        for words in (["INFO", "everything"], ["CONFIG", "GET", "*"], ["CLIENT", "LIST"]):
            told += wire.ask(*words)
    with Wire(used.server.resp_port) as wire:
        assert wire.ask("AUTH", used.token("read-all")) == b"+OK\r\n"
        for _ in range(3):
            assert wire.ask("FLUSHALL").startswith(b"-NOPERM")
        told += wire.ask("ACL", "WHOAMI") + wire.ask("INFO")
    url = f"http://127.0.0.1:{used.server.http_port}"
    with httpx.Client(base_url=url, timeout=60, trust_env=False) as client:
        header = {"Authorization": f"Bearer {used.token('admin-all')}"}
        client.get("/filters", auth=("admin-all", GUESS))
        for body in ({"key": KEY}, {"keys": [KEY], "encoding": KEY}, {"key": {KEY: KEY}}):
            told += client.post("/filters/mine:a/add", json=body, headers=header).content
        client.get(f"/nothing/{KEY}?key={KEY}", headers=header)
        client.post("/filters/mine:a/clear", headers=header)
        client.post(
            "/filters/mine:a/clear", headers={"Authorization": f"Bearer {used.token('read-all')}"}
        )
        told += client.get("/metrics", headers=header).content
        told += client.get("/filters/mine:a", headers=header).content
    return told


def test_no_key_and_no_secret_is_written_or_told(used: Guarded) -> None:
    """Neither the folder of the data, nor the server's own log, nor its answers about itself have a
    key, a password, a token or a guess at one."""
    folder = used.server.folder
    secrets = {KEY, GUESS, PASSWORD, TYPED_AS_NAME, REGISTRY_SECRET}
    secrets |= {part for one in used.users if one.token for part in (one.token.split("_")[2],)}
    looked_at = [path for path in folder.rglob("*") if path.is_file()]
    assert {"log", "told", "users.json", "audit.log"} <= {path.name for path in looked_at}
    for path in looked_at:
        raw = path.read_bytes()
        assert [one for one in secrets if one.encode() in raw] == [], path


def test_who_did_what_is_noted(used: Guarded) -> None:
    """The audit log has logins, what was made, dropped, set and cleared, and what was refused."""
    lines = [json.loads(line) for line in audit_file(used.server.data).read_text().splitlines()]

    def found(**wanted: Any) -> list[dict[str, Any]]:
        return [one for one in lines if all(one.get(key) == wanted[key] for key in wanted)]

    assert (lines[0]["operation"], lines[-1]["operation"]) == ("start", "stop")
    login = {"operation": "login", "door": "resp", "address": "127.0.0.1"}
    assert found(**login, user="admin-all", outcome="refused")
    assert found(**login, user=None, outcome="refused")
    assert found(**login, user="admin-all", outcome="done")
    assert found(operation="login", door="http", user="admin-all", outcome="refused")
    by_admin = {"user": "admin-all", "address": "127.0.0.1", "door": "resp"}
    assert found(**by_admin, command="bf.reserve", names=["mine:c"], outcome="done")
    assert found(**by_admin, command="bf.reserve", names=["mine:b"], outcome="failed")
    assert found(**by_admin, command="del", names=["mine:c", "mine:none"], outcome="done")
    assert found(**by_admin, command="config|set", settings=["timeout"], outcome="done")
    assert found(**by_admin, command="config|set", settings=["bf-layout"], outcome="failed")
    assert "1234567" not in json.dumps(lines)
    refused = found(user="read-all", command="flushall", outcome="refused")
    assert [one.get("note") for one in refused] == [None, "2 more times in a minute"]
    cleared = {"door": "http", "operation": "clear", "names": ["mine:a"]}
    assert found(**cleared, user="admin-all", outcome="done")
    assert found(**cleared, user="read-all", outcome="refused")
    assert not found(operation="add")


def test_problems_are_told_to_those_who_see_all(used: Guarded) -> None:
    """What recovery found, which may name filters, is not told to a user of some filters."""
    (used.server.data / "id").unlink()
    used.server.start()
    try:
        told = {}
        for name in ("read-all", "read-some"):
            with Wire(used.server.resp_port) as wire:
                wire.ask("AUTH", used.token(name))
                told[name] = wire.ask("INFO")
    finally:
        used.server.kill()
    assert b"recovery_problems:1\r\n" in told["read-some"]
    assert b"recovery_problem_1:" in told["read-all"]
    assert b"recovery_problem_1:" not in told["read-some"]


def test_a_full_disk_stops_nothing(serve: Serve, tmp_path: Path) -> None:
    """Where the audit log cannot be written the server says so and goes on; later it is written."""
    data = tmp_path / "data"
    add_users(data)
    audit_file(data).mkdir()
    server = serve(data=data)
    with Wire(server.resp_port) as wire:
        assert wire.ask("AUTH", "admin-all", PASSWORD) == b"+OK\r\n"
        assert wait_until(lambda: "audit log cannot be written" in server.printed())
        assert wire.ask("BF.RESERVE", "a", "0.01", "100") == b"+OK\r\n"
        audit_file(data).rmdir()
        assert wait_until(lambda: "audit log can be written again" in server.printed())
        assert wait_until(lambda: "bf.reserve" in audit_file(data).read_text())

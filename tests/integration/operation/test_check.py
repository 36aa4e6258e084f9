"""`bloomery serve --check`: what is effective and from where, and all that is wrong."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from bloomery.cli import main
from bloomery.service.config.settings import Settings
from bloomery.service.durability import quarantine
from bloomery.service.durability.control import control_file
from bloomery.service.durability.recovery import recover
from docs.pages import TREE
from integration.servers import RedisServer, Serve
from unit.service.certificates import Pairs

FREE = ("--resp-port", "0", "--http-port", "0")


def run(*arguments: str, **around: str) -> subprocess.CompletedProcess[str]:
    """Run `bloomery serve` with these."""
    return subprocess.run(
        [sys.executable, "-m", "bloomery", "serve", *arguments],
        env={**os.environ, "COLUMNS": "120", **around},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


Check = Callable[..., dict[str, Any]]


@pytest.fixture
def check(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Check:
    """What --check --json says; its exit code fits what it says. In this process, which is quicker
    by a second."""

    def asked(*arguments: str, **around: str) -> dict[str, Any]:
        with monkeypatch.context() as patched:
            for name, value in around.items():
                patched.setenv(name, value)
            code = main(["serve", *arguments, "--check", "--json"])
        printed = capfd.readouterr()
        assert printed.err == ""
        found: dict[str, Any] = json.loads(printed.out)
        assert code == (0 if found["ok"] else 2)
        assert found["ok"] == (not found["problems"])
        return found

    return asked


def test_what_is_effective_and_from_where(tmp_path: Path, check: Check) -> None:
    """Every setting is shown with its value and its place, for people and for programs; the exit
    code is 0; and no folder was made."""
    config = tmp_path / "bloomery.toml"
    config.write_text('maxmemory = "1gb"\ntimeout = 5\n')
    data = tmp_path / "data"
    given = ("--config", str(config), "--data", str(data), *FREE)
    around = {"BLOOMERY_TIMEOUT": "7", "BLOOMERY_REGISTRY": "postgresql://u:hunter22@h/d"}
    found = check(*given, **around)
    assert found["problems"] == found["warnings"] == []
    assert found["settings"].keys() == set(Settings().names())
    expected = {
        "data": (str(data), "--data"),
        "maxmemory": ("1073741824", f"{config}:1"),
        "timeout": ("7", "BLOOMERY_TIMEOUT"),
        "registry": ("***", "BLOOMERY_REGISTRY"),
        "fsync": ("everysec", "default"),
    }
    for name, (value, place) in expected.items():
        assert found["settings"][name] == {"value": value, "from": place}
    done = run(*given, "--check", **around)
    assert done.returncode == 0
    for name, (value, _) in expected.items():
        (row,) = [line for line in done.stdout.splitlines() if f"│ {name} " in line]
        assert value[:8] in row
    assert "hunter22" not in done.stdout + done.stderr
    assert not data.exists()


def test_all_that_is_wrong_at_once(tmp_path: Path) -> None:
    """A line for each problem, the table beside them, and exit code 2; and a start with the same is
    refused with the same lines."""
    config = tmp_path / "bloomery.toml"
    config.write_text("maxmemroy = 1\n")
    given = ("--config", str(config), "--set", "timeout=x", "--set", "nonsense", "--fsync", "maybe")
    checked, started = run(*given, "--check"), run(*given)
    assert checked.returncode == started.returncode == 2
    assert checked.stderr == started.stderr
    lines = checked.stderr.splitlines()
    assert len(lines) == 5
    assert all(line.startswith("bloomery: ") for line in lines)
    for said in ("did you mean maxmemory?", "timeout is 'x'", "NAME=VALUE", "fsync is 'maybe'"):
        assert said in checked.stderr
    assert "maxclients" in checked.stdout
    assert started.stdout == ""


def test_ports(tmp_path: Path, serve: Serve, check: Check) -> None:
    """A port that another program has is a problem; one that the server which runs on this folder
    has is none, and that it runs is told."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        found = check("--data", str(tmp_path), "--resp-port", port, "--http-port", "0")
        assert [one for one in found["problems"] if f"resp-port is {port}" in one]
    server = serve()
    ports = ("--resp-port", str(server.resp_port), "--http-port", str(server.http_port))
    found = check("--data", str(server.data), *ports)
    assert found["problems"] == []
    assert "a server is running on this folder" in found["warnings"][0]


def test_the_data_folder(tmp_path: Path, check: Check) -> None:
    """A folder that cannot be written, or is none, is a problem; one that can be made is not."""
    assert check("--data", str(tmp_path / "a" / "b"), *FREE)["ok"]
    (tmp_path / "file").write_bytes(b"")
    for wrong in (tmp_path / "file", tmp_path / "file" / "data", Path("/proc/data")):
        found = check("--data", str(wrong), *FREE)
        assert f"data is {wrong}, must be a folder that can be written" in found["problems"][0]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]


def test_the_registry_and_the_users(tmp_path: Path, check: Check) -> None:
    """A registry's URL that cannot be right, and a damaged file of users, are problems without a
    secret in them."""
    found = check("--data", str(tmp_path), *FREE, BLOOMERY_REGISTRY="mysql://u:hunter22@h/d")
    assert "the registry's URL begins with 'mysql'" in found["problems"][0]
    assert "hunter22" not in str(found)
    (tmp_path / "users.json").write_text("{}")
    found = check("--data", str(tmp_path), *FREE)
    assert "users.json" in found["problems"][0]


def test_certificates(tmp_path: Path, pairs: Pairs, check: Check) -> None:
    """One that fits and is valid is right; one that does not fit, has expired or expires soon is
    told, as is a key that others can read."""
    now, day = datetime.now(timezone.utc), timedelta(days=1)

    def asked(cert: str, key: str) -> dict[str, Any]:
        return check("--data", str(tmp_path), *FREE, "--tls-cert", cert, "--tls-key", key)

    good = pairs.make("good")
    assert asked(*good)["warnings"] == []
    old = asked(*pairs.make("old", not_before=now - 9 * day, not_after=now - day))
    assert "has expired" in old["problems"][0]
    assert "is not the key of" in asked(good[0], pairs.make("other")[1])["problems"][0]
    soon = pairs.make("soon", not_after=now + 5.5 * day)
    Path(soon[1]).chmod(0o644)
    found = asked(*soon)
    assert found["ok"]
    assert "expires in 5 days" in found["warnings"][0]
    assert "others can read" in found["warnings"][1]


def test_the_example(tmp_path: Path, check: Check) -> None:
    """deploy/bloomery.toml is right."""
    example = str(TREE / "deploy" / "bloomery.toml")
    found = check("--config", example, "--data", str(tmp_path), *FREE)
    assert found["problems"] == []
    text = Path(example).read_text("utf-8").splitlines()
    line = text.index('log-format = "json"') + 1
    assert found["settings"]["log-format"] == {"value": "json", "from": f"{example}:{line}"}


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_others_can_reach_it(tmp_path: Path, host: str, check: Check) -> None:
    """An address that others can reach, without users and TLS, is two problems."""
    problems = check("--data", str(tmp_path), *FREE, "--host", host)["problems"]
    assert ["no users" in one for one in problems] == [True, False]
    assert ["no TLS" in one for one in problems] == [False, True]


def test_json_without_check() -> None:
    """--json belongs to --check, and says so elsewhere."""
    done = run("--json")
    assert done.returncode == 2
    assert "--log-format json" in done.stderr


def test_the_store(tmp_path: Path, check: Check, redis_server: RedisServer) -> None:
    """A Redis that can be asked is right; one that is away, a URL that is none and a prefix that
    would part the keys of a cluster are problems, without a secret in them. Nor does a server start
    with such a URL."""
    data = ("--data", str(tmp_path / "data"), *FREE, "--set", "store-timeout-ms=100")
    assert check(*data, BLOOMERY_STORE=redis_server.url)["ok"]
    for url, why in (
        ("redis://u:hunter22@127.0.0.1:1", "cannot be reached"),
        (
            "http://u:hunter22@127.0.0.1",
            "store: the URL of Redis begins with 'http', must be redis://",
        ),
    ):
        found = check(*data, BLOOMERY_STORE=url)
        assert why in found["problems"][0]
        assert "hunter22" not in str(found)
    for prefix in ("a}b", "{", ""):
        found = check(*data, "--set", f"store-prefix={prefix}")
        assert "without braces" in found["problems"][0], prefix
    refused = run(*data, BLOOMERY_STORE="http://u:hunter22@127.0.0.1")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "the URL of Redis begins with" in refused.stderr
    assert "hunter22" not in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_a_data_folder_that_would_be_refused(check: Check, tmp_path: Path) -> None:
    """A damaged control file is a problem, and files that were set aside are a warning."""
    recover(tmp_path).log().close()
    quarantine.set_aside(tmp_path, [control_file(tmp_path)], ["why"], lost=True)
    found = check("--data", str(tmp_path), *FREE)
    assert found["ok"]
    assert any("set aside" in warning for warning in found["warnings"])
    control_file(tmp_path).write_bytes(b"short")
    assert any("control" in one for one in check("--data", str(tmp_path), *FREE)["problems"])

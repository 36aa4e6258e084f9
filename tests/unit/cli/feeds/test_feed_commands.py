"""`bloomery feed-key`, `publish` and `fetch`, as people run them."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conftest import require
from unit.feeds.site import site
from waiting import wait_until

require("typer")
require("cryptography")

Run = Callable[..., Any]
Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def published(run: Run, tmp_path: Path) -> Callable[[int], str]:
    """Publishes a filter of so many lines; what the command printed."""
    run("feed-key", "feed.key")
    run("create", "list.bloom", "-n", "10k")

    def publish(count: int) -> str:
        lines = b"".join(b"%d\n" % n for n in range(count))
        run("add", "list.bloom", stdin=lines)
        printed: bytes = run("publish", "list.bloom", "www", "--key", "feed.key").stdout
        return printed.decode()

    return publish


def test_a_key_is_made_once(run: Run, tmp_path: Path) -> None:
    """The private half is a file of mode 600, the public half is printed and in FILE.pub."""
    printed = run("feed-key", "feed.key").stdout.decode()
    assert printed == (tmp_path / "feed.key.pub").read_text()
    assert printed.startswith("ed25519:")
    assert (tmp_path / "feed.key").stat().st_mode & 0o777 == 0o600
    assert b"feed.key: File exists" in run("feed-key", "feed.key", code=2).stderr
    told = json.loads(run("feed-key", "other.key", "--json").stdout)
    assert told.keys() == {"file", "public", "id"}


def test_from_a_filter_file_to_a_copy(
    run: Run, published: Callable[[int], str], tmp_path: Path
) -> None:
    """Published, fetched over HTTP, published again, fetched by a delta, and asked."""
    assert published(9000).startswith("www: version 1, 12.5 kB, no delta; expires 20")
    with site(tmp_path / "www") as served:
        fetch = ["fetch", served.url, "copy", "--trust", "feed.key.pub"]
        assert run(*fetch).stdout.startswith(b"www: version 1, 12.5 kB fetched; expires 20")
        assert ", the newest delta " in published(9090)
        told = json.loads(run(*fetch, "--json").stdout)
        assert (told["version"], told["by"], told["stale"]) == (2, "deltas", False)
        assert told["fetched"] < told["size"] / 20
        assert b"nothing new" in run(*fetch).stdout
    assert run("contains", "copy/current", "9089").stdout == b"9089\n"
    run("contains", "copy/current", "no such line", code=1)


def test_what_is_refused_is_one_line(
    run: Run, published: Callable[[int], str], tmp_path: Path
) -> None:
    """The reason, and that the copy goes on answering; the exit code is 2."""
    published(10)
    fetch = ["fetch", "www", "copy", "--trust", (tmp_path / "feed.key.pub").read_text().strip()]
    missing = run("fetch", "nowhere", "copy", "--trust", "feed.key.pub", code=2).stderr
    assert b"there is no copy yet" in missing
    run(*fetch)
    manifest = tmp_path / "www" / "feed.manifest"
    manifest.write_bytes(manifest.read_bytes().replace(b'"version": 1', b'"version": 2'))
    (line,) = run(*fetch, code=2).stderr.decode().splitlines()
    assert "was forged, or damaged; the copy, version 1, goes on answering until 20" in line
    run("feed-key", "other.key")
    wrong = run("publish", "list.bloom", "www", "--key", "other.key", code=2).stderr
    assert b"cannot be continued" in wrong
    (tmp_path / "feed.key").chmod(0o644)
    open_key = run("publish", "list.bloom", "www2", "--key", "feed.key", code=2).stderr
    assert b"chmod 600" in open_key
    assert b"is not a public key" in run(*fetch[:-1], "ed25519:x", code=2).stderr


def test_options_reach_the_feed(run: Run, published: Callable[[int], str], tmp_path: Path) -> None:
    """Name, expiry, version and limits."""
    published(10)
    options = ["--name", "revoked", "--expires", "12h", "--version", "7", "--grace", "0"]
    args = ["list.bloom", "other", "--key", "feed.key", "--deltas", "0", *options, "--json"]
    told = json.loads(run("publish", *args).stdout)
    assert (told["feed"], told["version"], told["deltas"]) == ("revoked", 7, [])
    fetch = ["fetch", "other", "copy", "--trust", "feed.key.pub"]
    assert b"max_bytes" in run(*fetch, "--max-size", "1kB", code=2).stderr
    assert b"'nobody' was expected" in run(*fetch, "--name", "nobody", code=2).stderr
    assert b"version 7" in run(*fetch, "--timeout", "5s").stdout
    assert b"must be seconds" in run(*fetch, "--timeout", "soon", code=2).stderr


@pytest.mark.slow
def test_watching(start: Start, run: Run, published: Callable[[int], str], tmp_path: Path) -> None:
    """With --watch it goes on: through a new version, and through a feed that is refused."""
    published(10)
    arguments = ("fetch", "www", "copy", "--trust", "feed.key.pub", "--watch", "0.05s")
    process = start(*arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    copy, manifest = tmp_path / "copy" / "feed.manifest", tmp_path / "www" / "feed.manifest"
    try:
        assert wait_until(copy.exists)
        kept = manifest.read_bytes()
        manifest.write_bytes(b"nonsense")
        assert process.stderr is not None
        assert b"no manifest of a feed" in process.stderr.readline()
        manifest.write_bytes(kept)
        published(20)
        assert wait_until(lambda: b'"version": 2' in copy.read_bytes())
    finally:
        process.terminate()
        process.communicate()

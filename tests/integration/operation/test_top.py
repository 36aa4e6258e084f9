"""`bloomery top` and `bloomery plot` beside a server that runs."""

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

from bloomery import Client
from integration.servers import BloomeryServer, Serve, wait_until

BLOOMERY = [sys.executable, "-m", "bloomery"]


def run(*arguments: str, code: int = 0, **environment: str) -> str:
    """What the command prints; what it says on stderr if it fails."""
    done = subprocess.run(
        [*BLOOMERY, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "NO_COLOR": "1", **environment},
    )
    assert done.returncode == code, done.stderr
    return done.stderr if code else done.stdout


def test_once(server: BloomeryServer, client: Client) -> None:
    """A table of the filters whose names match, or JSON; a dumb terminal will do."""
    name = "top once [brackets]"
    client.create(name, capacity=1000, kind="bloom").update(range(500))
    client.create("top other", capacity=10)
    arguments = ["top", "--once", "--interval", "0.3", "--url", server.url]
    shown = run(*arguments, "--match", "top once*", TERM="dumb")
    assert name in shown
    assert "top other" not in shown
    assert re.search(r"50%.*healthy|healthy.*50%", shown)
    rows = json.loads(run(*arguments, "--match", "top*", "--sort", "name", "--json"))["filters"]
    assert [row["name"] for row in rows] == [name, "top other"]
    info = client[name].info()
    assert (rows[0]["keys"], rows[0]["nbytes"]) == (info["items"], info["nbytes"])
    assert rows[0]["kind"] == "bloom"
    limited = json.loads(run(*arguments, "--match", "top*", "--limit", "1", "--json"))["filters"]
    assert len(limited) == 1


def test_live_until_ctrl_c(serve: Serve) -> None:
    """In a terminal the table is drawn again; a server that went away is waited for, and the table
    goes on when it is back."""
    server = serve()
    server.arguments = ("--http-port", str(server.http_port))  # the same when it comes back
    with Client(server.url) as client:
        client.create("live-one", capacity=1000)
    ours, theirs = pty.openpty()
    arguments = ["top", "--interval", "0.2", "--url", server.url]
    top = subprocess.Popen(
        [*BLOOMERY, *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "30"},
    )
    os.close(theirs)
    os.set_blocking(ours, False)
    seen = bytearray()

    def shows(word: bytes) -> bool:
        try:
            while chunk := os.read(ours, 65536):
                seen.extend(chunk)
        except OSError:  # nothing more for now, or for ever
            pass
        return word in seen

    try:
        assert wait_until(lambda: shows(b"live-one"))
        server.kill()
        assert wait_until(lambda: shows(b"waiting for it"))
        server.start()
        with Client(server.url) as client:
            client.create("live-two", capacity=1000)
        assert wait_until(lambda: shows(b"live-two"))
        top.send_signal(2)
        assert wait_until(lambda: shows(b"nothing more") or top.poll() is not None)
        assert top.returncode == 0
    finally:
        if top.poll() is None:
            top.kill()
        top.wait()
        os.close(ours)


def test_plot_of_a_servers_filter(serve: Serve) -> None:
    """What the server sampled, in the terminal; errors say what to do."""
    server = serve("--set", "sample-seconds=1")
    with Client(server.url) as client:
        filter = client.create("plotted", capacity=1000)
        filter.update(range(600))
        assert wait_until(lambda: (filter.info()["sample"] or {}).get("items") == 600)
    shown = run("plot", "plotted", "--url", server.url)
    for title in ("wrong maybes", "places taken", "keys; limit 1 k", "memory"):
        assert title in shown
    assert "bloomery top" in run("plot", "nobody", "--url", server.url, code=2)
    server.kill()
    for arguments in (["plot", "plotted", "--url", server.url], ["top", "--url", server.url]):
        message = run(*arguments, code=2)
        assert "is `bloomery serve` running" in message
        assert message.count("\n") == 1


def test_a_token_is_needed_where_there_are_users(serve: Serve, tmp_path: Path) -> None:
    """Without one it says so in one line; with one it works."""
    # Before the server starts: while it runs, it may read the users before the token is there.
    folder = tmp_path / "data"
    data = ["--data", str(folder)]
    run("user", "add", "ann", "--role", "admin", "--no-password", *data)
    token = run("user", "token", "ann", *data).strip().splitlines()[-1]
    server = serve(data=folder)
    arguments = ["top", "--once", "--interval", "0.2", "--url", server.url]
    assert "log in" in run(*arguments, code=2)
    with Client(server.url, token=token) as client:
        client.create("anything", capacity=10)
    assert "anything" in run(*arguments, BLOOMERY_TOKEN=token)

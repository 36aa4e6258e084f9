"""SIGHUP and CONFIG REWRITE: a configuration file that is read again, and written."""

import signal
import sqlite3
from pathlib import Path

import pytest

from integration.resp.wire import Connection, Refused
from integration.servers import BloomeryServer, Serve, wait_until
from unit.service.policy.receiver import Receiver

FILE = """\
# Of the operator's.
timeout = 5  # mine
max_filters = 10
bf-error-rate = 0.02

[sources.books]
url = "sqlite:///books.db"
table = "old"
key = "isbn"
"""


class Configured:
    """A server with a configuration file."""

    def __init__(self, serve: Serve, folder: Path) -> None:
        self.file = folder / "bloomery.toml"
        self.file.write_text(FILE)
        with sqlite3.connect(folder / "books.db") as database:
            for table in ("old", "new"):
                database.execute(f"CREATE TABLE {table} (isbn TEXT PRIMARY KEY)")
            database.execute("INSERT INTO new VALUES ('b')")
        self.server: BloomeryServer = serve("--config", str(self.file), "--set", "maxclients=500")

    def reload(self, said: str, *changes: tuple[str, str]) -> str:
        """Change the file's text and send SIGHUP; what was printed, when it has this in it."""
        text, before = self.file.read_text(), self.server.printed()
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        self.file.write_text(text)
        assert self.server.process is not None
        self.server.process.send_signal(signal.SIGHUP)
        assert wait_until(lambda: said in self.server.printed()[len(before) :]), (
            self.server.printed()
        )
        return self.server.printed()[len(before) :]


@pytest.fixture
def configured(serve: Serve, tmp_path: Path) -> Configured:
    """A server with a configuration file of the test's own."""
    return Configured(serve, tmp_path)


def test_settings_are_read_again(configured: Configured) -> None:
    """What can be changed while the server runs is, with a line for each; what cannot be is named;
    a flag stays stronger than the file."""
    configured.reload("read again: nothing has changed")
    said = configured.reload(
        "log-format needs a restart",
        ("timeout = 5", "timeout = 6\nmaxclients = 100\nlog-format = 'json'"),
        ("max_filters = 10", ""),
    )
    assert "has changed: timeout is 6, was 5 origin=" in said
    assert f"origin={configured.file}:2" in said
    assert "max-filters is 1000000, was 10 origin=default" in said
    assert "maxclients" not in said
    with Connection(configured.server.resp_port) as connection:
        assert connection.ask("CONFIG", "GET", "timeout") == [b"timeout", b"6"]
        assert connection.ask("CONFIG", "GET", "maxclients") == [b"maxclients", b"500"]
        assert connection.ask("CONFIG", "GET", "log-format") == [b"log-format", b"text"]
        connection.ask("CONFIG", "SET", "timeout", 7)
    assert "timeout is 6, was 7" in configured.reload("timeout is 6")


def test_a_broken_file_changes_nothing(configured: Configured) -> None:
    """All that is wrong is said, and everything stays as it was."""
    for change, why in (
        (("timeout = 5", "timeout = 9\nmax-filtres = 3"), "toml:3: there is no setting named"),
        (("timeout = 5", "timeout = 9 9"), "not TOML"),
        (("timeout = 5", "timeout = 9\ncf-initial-size = 1"), "cf-initial-size"),
        (("sqlite:///books.db", "nosuch://host/books"), "sources.books: "),
    ):
        configured.file.write_text(FILE)
        said = configured.reload("the configuration stays as it was", change)
        assert why in said
        assert "has changed" not in said
    with Connection(configured.server.resp_port) as connection:
        assert connection.ask("CONFIG", "GET", "timeout") == [b"timeout", b"5"]
        connection.ask("BF.RESERVE", "f", 0.01, 10)
        connection.ask("BF.BIND", "f", "books")
        connection.ask("BF.ADD", "f", "b")
        connection.ask("BF.LOOKUP", "f", "b")


def test_sources_are_read_again(configured: Configured) -> None:
    """A source that is another one answers at once; a filter whose source is gone says so."""
    with Connection(configured.server.resp_port) as connection:
        connection.ask("BF.RESERVE", "f", 0.01, 10)
        connection.ask("BF.BIND", "f", "books")
        connection.ask("BF.ADD", "f", "b")
        before = connection.ask("BF.LOOKUP", "f", "b")
        configured.reload("the source books is another", ('table = "old"', 'table = "new"'))
        assert connection.ask("BF.LOOKUP", "f", "b") != before
        configured.reload("the source more is new", ("[sources.books]", "[sources.more]"))
        assert "the source books was removed" in configured.server.printed()
        assert "no source books, to which filters are bound" in configured.server.printed()
        with pytest.raises(Refused, match="books"):
            connection.ask("BF.LOOKUP", "f", "b")
        connection.ask("BF.BIND", "f", "more")
        assert connection.ask("BF.LOOKUP", "f", "b") != before


def test_the_webhook_is_read_again(configured: Configured, tmp_path: Path) -> None:
    """Alerts go to another webhook; its URL is never shown, and no client can set it."""
    first, second = Receiver(), Receiver()
    try:
        (tmp_path / "secret").write_text("nobody knows this one")
        added = f'webhook-url = "http://127.0.0.1:{first.port}/token-1"\n'
        added += 'webhook-secret-file = "secret"\n'
        configured.reload("webhook-url is ***", ("timeout = 5", f"{added}timeout = 5"))
        with Connection(configured.server.resp_port) as connection:
            for receiver, name in ((first, "a"), (second, "b")):
                connection.ask("BF.RESERVE", name, 0.01, 10, "KIND", "bloom", "ONFULL", "alert")
                connection.ask("BF.MADD", name, *range(50))
                assert receiver.wait(1)
                assert {one.alert["filter"] for one in receiver.requests} == {name}
                if receiver is first:
                    ports = (f":{first.port}/token-1", f":{second.port}/token-2")
                    configured.reload("webhook-url is ***", ports)
            with pytest.raises(Refused, match="can only be set in the configuration"):
                connection.ask("CONFIG", "SET", "webhook-url", "http://127.0.0.1:1/")
        assert "token-" not in configured.server.printed()
    finally:
        first.close()
        second.close()


def test_what_was_set_is_written(configured: Configured) -> None:
    """CONFIG REWRITE puts what CONFIG SET changed into the file: in its place, by the name that it
    has there, with comments and sections as they were; a flag that is stronger is named."""
    with Connection(configured.server.resp_port) as connection:
        assert connection.ask("CONFIG", "REWRITE") == b"OK"
        assert configured.file.read_text() == FILE
        connection.ask("CONFIG", "SET", "timeout", 6, "max-filters", 12, "maxclients", 600)
        connection.ask("CONFIG", "SET", "bf-error-rate", 0.005, "log-level", "debug")
        configured.file.chmod(0o640)
        assert connection.ask("CONFIG", "REWRITE") == b"OK"
        assert configured.file.read_text() == (
            FILE.replace("timeout = 5 ", "timeout = 6 ")
            .replace("max_filters = 10", "max_filters = 12")
            .replace(
                "bf-error-rate = 0.02\n",
                'bf-error-rate = 0.005\nlog-level = "debug"\nmaxclients = 600\n',
            )
        )
        assert configured.file.stat().st_mode & 0o777 == 0o640
        assert "--set maxclients is stronger than the file" in configured.server.printed()
        # Read again, it says the same but for the flag.
        assert "maxclients is 500, was 600" in configured.reload("maxclients is 500")
        connection.ask("CONFIG", "SET", "timeout", 8)
        configured.file.write_text("no TOML")
        with pytest.raises(Refused, match=r"^ERR Rewriting config file: .*not TOML"):
            connection.ask("CONFIG", "REWRITE")
        configured.file.unlink()
        with pytest.raises(Refused, match=r"^ERR Rewriting config file: .*No such file"):
            connection.ask("CONFIG", "REWRITE")
        assert not configured.file.exists()

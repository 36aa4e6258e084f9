"""The source goes down and comes back, under each policy; bindings outlive a crash."""

from pathlib import Path

import httpx
import pytest

from bloomery import Client, errors
from bloomery.guard import Answer
from integration.lookup.places import PLAIN, configuration, server, url
from integration.resp.wire import Wire
from integration.servers import BloomeryServer, PostgresServer, wait_until

POLICIES = ("raise", "stale", "queue", "maybe")


def started(folder: Path, config: Path) -> BloomeryServer:
    one = server(folder, config)
    one.fresh = True  # its line in the process list is looked at
    one.start()
    return one


def test_outages_and_crashes(table: PostgresServer, tmp_path: Path) -> None:
    """Each policy answers as it says while the source is down; the alert begins and ends; what was
    queued is asked later, also by a server that was killed in between; no secret is shown."""
    sections = {name: f'{PLAIN}on-outage = "{name}"\nttl = 0.2\n' for name in POLICIES}
    sections["queue"] = sections["queue"].replace("ttl = 0.2", 'ttl = "1h"')
    config = configuration(tmp_path, table, **sections, gone=PLAIN)
    one = started(tmp_path, config)
    try:
        with Client(one.url) as client:
            for name in (*POLICIES, "gone"):
                client.create(name, 100, source=name).update([url(1), url(2), url(3)])
            for name in POLICIES:
                assert client[name].lookup(url(1)) == Answer(True, "title 1", "source")
            table.stop()
            _down(client)
            assert wait_until(lambda: len(_alerts(one)) == len(POLICIES))
            assert 'bloomery_source_up{source="raise"} 0.0' in _metrics(one)
            assert wait_until(lambda: 'source_queued{source="queue"} 1.0' in _metrics(one))
            _check_secret(one, table)
        one.kill()
        table.start()
        config.write_text(config.read_text().replace("[sources.gone]", "[sources.other]"))
        one.start()
        assert "no source gone, to which filters are bound" in one.printed()
        with Client(one.url) as client:
            # Nobody asked for it since: what waited in the queue was.
            assert wait_until(lambda: client["queue"].lookup(url(2)).by == "cache")
            assert client["raise"].lookup(url(2)) == Answer(True, "title 2", "source")
            with pytest.raises(errors.InvalidParameter, match="bind it to another"):
                client["gone"].lookup(url(1))
            assert client["gone"].info()["source"] == "gone"
            table.stop()
            for _ in range(3):
                with pytest.raises(errors.SourceUnavailable):
                    client["raise"].lookup(url(3))
            assert wait_until(lambda: _alerts(one) == ["raise"])
            table.start()
            assert wait_until(lambda: bool(_answered(client)))
            assert wait_until(lambda: _alerts(one) == [])
    finally:
        one.kill()


def _down(client: Client) -> None:
    """What each says while its source is down, asked until that is known."""
    assert wait_until(lambda: client["stale"].lookup(url(1)).by == "stale")  # after its TTL
    for _ in range(3):
        with pytest.raises(errors.SourceUnavailable):
            client["raise"].lookup(url(2))
        assert client["maybe"].lookup(url(2)) == Answer(True, None, "unconfirmed")
        assert client["stale"].lookup(url(1)) == Answer(True, "title 1", "stale")
        with pytest.raises(errors.SourceUnavailable, match="not in the cache either"):
            client["stale"].lookup(url(2))
        assert client["raise"].lookup("absent").by == "filter"
    assert client["queue"].lookup(url(2)) == Answer(True, None, "unconfirmed")


def _get(one: BloomeryServer, path: str) -> httpx.Response:
    return httpx.get(f"{one.url}{path}", timeout=30)


def _alerts(one: BloomeryServer) -> list[str]:
    """Which sources are told to be down."""
    found = _get(one, "/alerts").json()["alerts"]
    return [one["source"] for one in found if one["kind"] == "source-unavailable"]


def _metrics(one: BloomeryServer) -> str:
    return _get(one, "/metrics").text


def _answered(client: Client) -> Answer | None:
    try:
        return client["raise"].lookup(url(3))
    except errors.SourceUnavailable:
        return None


def _check_secret(one: BloomeryServer, table: PostgresServer) -> None:
    """The password is in nothing that anybody can ask for, nor in the log or the process list."""
    with Wire(one.resp_port) as wire:
        replies = [wire.ask("CONFIG", "GET", "*"), wire.ask("INFO"), wire.ask("BF.INFO", "raise")]
        replies += [wire.ask("BF.DEBUG", "raise"), wire.ask("BF.LOOKUP", "raise", url(1))]
    told = [_get(one, path).text for path in ("/metrics", "/alerts", "/filters/raise")]
    shown = Path(f"/proc/{one.pid}/cmdline").read_bytes()
    told += [one.printed(), *(part.decode("latin-1") for part in [*replies, shown])]
    assert [text for text in told if table.password in text] == []
    for file in one.data.rglob("*"):
        assert not file.is_file() or table.password.encode() not in file.read_bytes(), file

"""Names that the server uses itself cannot be created by clients, over either protocol."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from bloomery import BloomFilter
from integration.resp.wire import Connection, Refused, Word
from integration.servers import BloomeryServer

RESERVED = [b"\x00rebuild:", b"\x00rebuild:mine", b"\x00upload:0123456789abcdef"]
ERROR = "reserved for the server"


@pytest.fixture
def client(server: BloomeryServer) -> Iterator[Connection]:
    """A client; its server has filters of both kinds."""
    with Connection(server.resp_port) as opened:
        opened.ask("FLUSHALL")
        opened.ask("BF.ADD", "seen", "a key")
        opened.ask("CF.ADD", "cuckoo", "a key")
        yield opened


@pytest.mark.parametrize("name", RESERVED)
def test_reserved_name_is_refused_over_resp(client: Connection, name: bytes) -> None:
    """Each command that could create it gets the same error, and creates nothing."""
    number, head = client.ask("BF.SCANDUMP", "seen", 0)
    cuckoo_number, cuckoo_head = client.ask("CF.SCANDUMP", "cuckoo", 0)
    commands: list[tuple[Word, ...]] = [
        ("BF.RESERVE", name, 0.01, 100),
        ("BF.ADD", name, "k"),
        ("BF.MADD", name, "k", "l"),
        ("BF.INSERT", name, "ITEMS", "k"),
        ("BF.LOADCHUNK", name, number, head),
        ("CF.RESERVE", name, 100),
        ("CF.ADD", name, "k"),
        ("CF.ADDNX", name, "k"),
        ("CF.INSERT", name, "ITEMS", "k"),
        ("CF.INSERTNX", name, "ITEMS", "k"),
        ("CF.LOADCHUNK", name, cuckoo_number, cuckoo_head),
        ("COPY", "seen", name),
        ("COPY", "seen", name, "REPLACE"),
        ("RENAME", "seen", name),
        ("RENAMENX", "seen", name),
        ("RESTORE", name, 0, client.ask("DUMP", "seen")),
    ]
    replies = dict(zip(map(str, commands), client.ask_all(commands), strict=True))
    assert {text: reply for text, reply in replies.items() if ERROR not in str(reply)} == {}
    assert sorted(client.ask("KEYS", "*")) == [b"cuckoo", b"seen"]


@pytest.mark.parametrize("name", RESERVED)
def test_reserved_name_is_refused_over_http(
    client: Connection, server: BloomeryServer, name: bytes, tmp_path: Path
) -> None:
    """As over RESP: 422, with the same words."""
    shown = "".join(f"\\x{byte:02x}" if byte < 32 else chr(byte) for byte in name)
    at = f"/filters/{quote(name, safe='')}"
    BloomFilter(10).save(tmp_path / "file")
    octets = {"Content-Type": "application/octet-stream"}
    with httpx.Client(base_url=server.url, timeout=30) as http:
        for response in (
            http.post("/filters", json={"name": shown, "capacity": 10}),
            http.patch("/filters/seen", json={"name": shown}),
            http.put(f"{at}/file", content=(tmp_path / "file").read_bytes(), headers=octets),
        ):
            assert response.status_code == 422, response.text
            assert ERROR in response.json()["detail"]
    assert sorted(client.ask("KEYS", "*")) == [b"cuckoo", b"seen"]


def test_names_near_a_reserved_one_stay_usable(client: Connection) -> None:
    """Any other name is a client's own."""
    for name in (b"\x00", b"\x00rebuild", b"rebuild:", b"a\x00rebuild:", b"\x00Rebuild:x"):
        assert client.ask("BF.RESERVE", name, 0.01, 100) == b"OK"
        assert client.ask("BF.ADD", name, "k") == 1
    with pytest.raises(Refused, match=ERROR):
        client.ask("RENAME", b"\x00", b"\x00upload:")

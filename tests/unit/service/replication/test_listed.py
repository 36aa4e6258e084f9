"""What the catalogue has of a filter: read as it was written, and nothing else."""

import json
from typing import Any

import pytest

from bloomery.errors import CorruptData
from bloomery.integrations.redis.config import planned
from bloomery.integrations.redis.wire import change_feed
from bloomery.service.replication.catalogue import Listed

WANTED = planned(1000, 0.01, "blocked", "xxh3", 0, "auto")
LISTED = Listed(2**63, b"\xff {}", WANTED.header, WANTED.shards, {"kind": "bloom"}, 5.5, None)


def test_read_as_written() -> None:
    """Also a name that is no text. Whether it is still the same filter is told by its number."""
    assert Listed.from_json(LISTED.to_json()) == LISTED
    assert LISTED.is_still(LISTED.to_json())
    fields = json.loads(LISTED.to_json())
    assert LISTED.is_still(json.dumps(fields | {"expires_at": 7}).encode())
    assert not LISTED.is_still(json.dumps(fields | {"dropped_at": 7}).encode())
    assert not LISTED.is_still(json.dumps(fields | {"uid": 7}).encode())
    assert not LISTED.is_still(None)


@pytest.mark.parametrize(
    "change",
    [
        {"uid": -1},
        {"uid": 1 << 64},
        {"uid": "7"},
        {"name": ""},
        {"name": "a" * 1025},
        {"shards": 0},
        {"shards": "1"},
        {"settings": []},
        {"created_at": "now"},
        {"expires_at": "soon"},
        {"dropped_at": 1e999},
        {"header": "00"},
        {"header": 5},
        {"more": 1},
    ],
    ids=str,
)
def test_what_none_of_us_wrote(change: dict[str, Any]) -> None:
    """Is refused as a whole: a node does nothing by halves."""
    data = json.dumps(json.loads(LISTED.to_json()) | change).encode()
    with pytest.raises(CorruptData, match="cannot be read"):
        Listed.from_json(data)


@pytest.mark.parametrize("data", [b"", b"junk", b"[]", b"[" * 10**5, b"\xff", b"1" * 10**4])
def test_other_bytes(data: bytes) -> None:
    """Nor what is no such text."""
    with pytest.raises(CorruptData, match="cannot be read"):
        Listed.from_json(data)


def test_whom_to_tell() -> None:
    """A configuration's number that no record can have is none."""
    told = change_feed.told(b"{a}:stream", 2**64 - 1, 1000)
    assert change_feed.right(told)
    for change in ({"uid": 2**64}, {"uid": -1}, {"most": 0}, {"most": True}, {"stream": 5}):
        assert not change_feed.right(told | change), change

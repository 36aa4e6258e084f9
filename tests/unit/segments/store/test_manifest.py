"""The manifest: what is no manifest is refused, whatever its checksum says."""

import json
import zlib
from pathlib import Path
from typing import Any

import pytest

from bloomery.errors import CorruptData, UnsupportedVersion
from bloomery.segments.store.manifest import Manifest, SegmentEntry, load

ENTRY = SegmentEntry(
    number=2,
    keys=3,
    deletions=1,
    nbytes=8192,
    checksum=5,
    fp_chance=0.01,
    filter_bytes=128,
    filter_checksum=7,
)
WHOLE = Manifest(fp_chance=0.01, log=3, next=4, segments=(ENTRY,))


def forged(folder: Path, state: Any) -> Path:
    """A folder with this in the place of a manifest, its checksum right."""
    body = state if isinstance(state, bytes) else json.dumps(state).encode()
    (folder / "MANIFEST").write_bytes(b"%s\n%08x\n" % (body, zlib.crc32(body)))
    return folder


def saved(folder: Path) -> dict[str, Any]:
    """What a manifest says."""
    WHOLE.save(folder)
    state: dict[str, Any] = json.loads((folder / "MANIFEST").read_bytes().partition(b"\n")[0])
    return state


def test_it_is_read_as_it_was_saved(tmp_path: Path) -> None:
    """All of it; a folder without one has none."""
    assert load(tmp_path) is None
    WHOLE.save(tmp_path)
    assert load(tmp_path) == WHOLE


@pytest.mark.parametrize("body", [b"[]", b"{}", b"null", b"x", b"\xff", b"[" * 100_000])
def test_what_is_no_manifest_is_refused(tmp_path: Path, body: bytes) -> None:
    """JSON of something else, and no JSON."""
    with pytest.raises(CorruptData, match="no manifest"):
        load(forged(tmp_path, body))


@pytest.mark.parametrize("value", [None, -1, "../../x", [], {}, True, float("nan")])
def test_values_of_other_types_are_refused(tmp_path: Path, value: object) -> None:
    """Numbers become names of files: a text there could lead out of the folder."""
    state = saved(tmp_path)
    forgeries: list[dict[str, Any]] = [{**state, name: value} for name in state if name != "format"]
    (entry,) = state["segments"]
    forgeries += [{**state, "segments": [{**entry, name: value}]} for name in entry]
    forgeries += [{**state, "segments": [value]}, {**state, "more": value}]
    for forgery in forgeries:
        if forgery["segments"] in ([], {}):  # a store may have none
            continue
        with pytest.raises(CorruptData, match="no manifest"):
            load(forged(tmp_path, forgery))


def test_a_newer_version_is_named_as_such(tmp_path: Path) -> None:
    """Whatever else it holds."""
    with pytest.raises(UnsupportedVersion, match="newer"):
        load(forged(tmp_path, {"format": 2, "levels": []}))

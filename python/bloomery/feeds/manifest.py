"""The manifest of a feed: its version, its files, until when it holds; signed (docs/feeds.md)."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from bloomery.errors import FeedRefused, InvalidParameter
from bloomery.feeds.keys import PrivateKey, PublicKey

NAME = "feed.manifest"
MAX_BYTES = 1 << 20
MAX_DELTAS = 64
_FORMAT = "bloomery-feed/1"
_FIRST_LINE = b"bloomery-feed 1"
MAX_SIGNATURES = 8
_SIGNATURE = re.compile(rb"signature ([0-9a-f]{16}) ([A-Za-z0-9+/]{86}==)")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class FeedFile:
    """A file that a manifest names."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class DeltaFile(FeedFile):
    """A delta: it makes the file with the hash `result` of the one with the hash `base`."""

    base: str
    result: str
    result_size: int


@dataclass(frozen=True)
class Manifest:
    """What a feed is at a version: the full file, deltas that lead to it, and until when it holds.

    Times are seconds since 1970. `body` is what was signed, byte for byte.
    """

    feed: str
    version: int
    published: int
    expires: int
    kind: str
    full: FeedFile
    deltas: tuple[DeltaFile, ...]
    body: bytes = field(repr=False, compare=False)

    def deltas_from(self, sha256: str) -> tuple[DeltaFile, ...]:
        """The deltas from a file to the full one, in order, if they are smaller than that; else
        none."""
        for start in reversed(range(len(self.deltas))):
            if self.deltas[start].base == sha256:
                chain = self.deltas[start:]
                return chain if sum(delta.size for delta in chain) < self.full.size else ()
        return ()

    def files(self) -> set[str]:
        """The names of all files that it needs."""
        return {self.full.name, *(delta.name for delta in self.deltas)}


def compose(
    feed: str,
    version: int,
    published: int,
    expires: int,
    kind: str,
    full: FeedFile,
    deltas: Sequence[DeltaFile],
) -> Manifest:
    """Make a manifest and its body."""
    members = {
        "format": _FORMAT,
        "feed": feed,
        "version": version,
        "published": published,
        "expires": expires,
        "kind": kind,
        "full": asdict(full),
        "deltas": [asdict(delta) for delta in deltas],
    }
    return _parse(json.dumps(members, indent=1).encode("ascii") + b"\n")


def seal(manifest: Manifest, keys: Sequence[PrivateKey]) -> bytes:
    """Sign a manifest by every key: the bytes of its file."""
    lines = [_FIRST_LINE]
    for key in keys:
        signature = base64.b64encode(key.sign(manifest.body))
        lines.append(b"signature %s %s" % (key.public.id.encode("ascii"), signature))
    return b"\n".join([*lines, b"", manifest.body])


def unseal(data: bytes, keys: Sequence[PublicKey]) -> Manifest:
    """Read the bytes of a manifest's file, if one of these keys has signed it; else FeedRefused."""
    if len(data) > MAX_BYTES:
        raise FeedRefused(f"the manifest has more than {MAX_BYTES:,} bytes", "too-large")
    head, empty_line, body = data.partition(b"\n\n")
    first, *lines = head.split(b"\n")
    if first != _FIRST_LINE or not empty_line or not 1 <= len(lines) <= MAX_SIGNATURES:
        raise FeedRefused(
            f"no manifest of a feed: it begins with {data[:32]!r}, must begin with "
            f"{_FIRST_LINE.decode()!r}, 1 to {MAX_SIGNATURES} signatures and an empty line"
        )
    signers = []
    for line in lines:
        match = _SIGNATURE.fullmatch(line)
        if match is None:
            raise FeedRefused(f"a line of the manifest is no signature: {line[:32]!r}")
        signers.append(match[1].decode("ascii"))
        for key in keys:
            if key.id == signers[-1] and key.verifies(_decoded(match[2]), body):
                return _parse(body)
    known = sorted({key.id for key in keys} & set(signers))
    if known:
        raise FeedRefused(
            f"the signature of key {known[0]} does not fit: the manifest was forged, or damaged",
            "signature",
        )
    raise FeedRefused(
        f"signed by {', '.join(signers)}, none of which is trusted here "
        f"({', '.join(key.id for key in keys)})",
        "signature",
    )


def is_name(text: object) -> bool:
    """True if a feed, or a file of one, may be called so."""
    return isinstance(text, str) and _PLAIN_NAME.fullmatch(text) is not None


def check_name(text: str) -> str:
    """Raise InvalidParameter unless a feed may be called so."""
    if not is_name(text):
        raise InvalidParameter(
            f"the feed's name is {text[:60]!r}, must be 1 to 128 letters, digits, dots, dashes and "
            "underscores, the first a letter or digit"
        )
    return text


def _decoded(text: bytes) -> bytes:
    """A signature from base64; nothing if that has bits to spare that are set."""
    data = base64.b64decode(text)
    return data if base64.b64encode(data) == text else b""


def _parse(body: bytes) -> Manifest:
    """Read a body, every member of which is checked."""
    try:
        members = json.loads(body, object_pairs_hook=_once, parse_constant=_no_constant)
    except (ValueError, RecursionError) as problem:
        raise FeedRefused(f"the manifest's body is not JSON: {str(problem)[:100]}") from None
    if not isinstance(members, dict) or members.get("format") != _FORMAT:
        named = members.get("format") if isinstance(members, dict) else members
        raise FeedRefused(f"the manifest's format is {str(named)[:60]!r}, must be {_FORMAT!r}")
    deltas = members.get("deltas")
    if not isinstance(deltas, list) or len(deltas) > MAX_DELTAS:
        raise FeedRefused(f"the manifest's deltas must be an array of at most {MAX_DELTAS}")
    manifest = Manifest(
        feed=_name(members, "feed"),
        version=_integer(members, "version"),
        published=_integer(members, "published", 0),
        expires=_integer(members, "expires"),
        kind=_name(members, "kind"),
        full=_file(members.get("full"), FeedFile),
        deltas=tuple(_file(delta, DeltaFile) for delta in deltas),
        body=body,
    )
    if manifest.expires <= manifest.published:
        raise FeedRefused("the manifest expires before it was published")
    results = [delta.result for delta in manifest.deltas]
    bases = [delta.base for delta in manifest.deltas[1:]]
    if results != bases + [manifest.full.sha256] * bool(results):
        raise FeedRefused("the manifest's deltas do not lead to the full file")
    return manifest


def _file(members: Any, kind: Any) -> Any:
    """A file of the manifest, or a delta."""
    if not isinstance(members, dict):
        raise FeedRefused("a file of the manifest is no object")
    values: dict[str, Any] = {"name": _name(members, "name"), "size": _integer(members, "size")}
    values["sha256"] = _sha256(members, "sha256")
    if kind is DeltaFile:
        values |= {name: _sha256(members, name) for name in ("base", "result")}
        values["result_size"] = _integer(members, "result_size")
    return kind(**values)


def _name(members: dict[str, Any], member: str) -> str:
    value = members.get(member)
    if not is_name(value):
        raise FeedRefused(f"the manifest's {member} is {str(value)[:60]!r}, must be a plain name")
    return str(value)


def _integer(members: dict[str, Any], member: str, least: int = 1) -> int:
    value = members.get(member)
    if type(value) is not int or not least <= value < 1 << 53:
        raise FeedRefused(
            f"the manifest's {member} is {str(value)[:60]!r}, must be an integer from {least} on"
        )
    return value


def _sha256(members: dict[str, Any], member: str) -> str:
    value = members.get(member)
    if not isinstance(value, str) or not _SHA256.fullmatch(value):
        raise FeedRefused(f"the manifest's {member} is no SHA-256 in hexadecimal")
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a member is there twice")
    return members


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is no number")

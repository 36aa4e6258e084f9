"""Publishing: a new version of a feed, in a folder that a web server or a bucket serves.

Files first, the manifest last, each replaced in one step and synced: a publisher that is killed
leaves the feed as it was, and perhaps files that the next one removes.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import bloomery._native as _native
from bloomery import errors
from bloomery.feeds import delta, manifest
from bloomery.feeds.incoming import (
    FEED,
    delta_name,
    digest,
    full_name,
    incoming,
    is_whole,
    refuse_other_use,
    remove_old,
    settle,
)
from bloomery.feeds.keys import PrivateKey, PublicKey, trusted
from bloomery.feeds.manifest import DeltaFile, FeedFile, Manifest
from bloomery.feeds.times import seconds
from bloomery.filters import files as saved_filters
from bloomery.storage import files
from bloomery.storage.files import HEADER_BYTES
from bloomery.storage.locking import lock_folder

if TYPE_CHECKING:
    from datetime import timedelta

_CHUNK = 1 << 20


def publish(
    filter: Any,
    folder: str | os.PathLike[str],
    keys: PrivateKey | Sequence[PrivateKey],
    *,
    name: str | None = None,
    expires_in: float | str | timedelta = "7d",
    max_deltas: int = 8,
    grace: float | str | timedelta = "1d",
    version: int | None = None,
    trust: Sequence[PublicKey | str] = (),
    clock: Callable[[], float] = time.time,
) -> Manifest:
    """Publish a filter, or a saved one by its path, as the next version of a feed.

    The manifest is signed by every key: for a while by the old and the new, when a key is replaced.
    `name` is the feed's (default: the folder's, or as it was). After `expires_in`, subscribers hold
    their copies for stale, so publish again before, also if nothing has changed. They may be up to
    `max_deltas` versions late to be served by deltas; files that are no longer named are kept for
    `grace`. `version` continues a feed whose folder was lost; `trust` has keys of others who
    publish here.
    """
    signing = [keys] if isinstance(keys, PrivateKey) else list(keys)
    if not 1 <= len(signing) <= manifest.MAX_SIGNATURES:
        raise errors.InvalidParameter(
            f"keys has {len(signing)} keys, must have 1 to {manifest.MAX_SIGNATURES} to sign with"
        )
    if not 0 <= max_deltas <= manifest.MAX_DELTAS:
        raise errors.InvalidParameter(
            f"max_deltas is {max_deltas}, must be from 0 to {manifest.MAX_DELTAS}"
        )
    lifetime, keep = seconds("expires_in", expires_in), seconds("grace", grace)
    if lifetime < 1:
        raise errors.InvalidParameter(f"expires_in is {lifetime:g}, must be at least a second")
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    refuse_other_use(place, here=FEED)
    with lock_folder(place, "publisher"):
        before = _current(place, [*(key.public for key in signing), *trusted_or_none(trust)])
        number = _next_version(before, version)
        feed = name or (before.feed if before else place.resolve().name)
        if before and feed != before.feed:
            raise errors.InvalidParameter(
                f"name is {feed!r}, but {place} has the feed {before.feed!r}: use another folder"
            )
        manifest.check_name(feed)
        full, kind = _write_full(place, filter, number, before)
        deltas = _deltas(place, before, full, number, max_deltas)
        now = int(clock())
        published = manifest.compose(feed, number, now, now + int(lifetime), kind, full, deltas)
        if before:
            _touch(place, before, clock())
        with files.replacing(place / manifest.NAME) as file:
            file.write(manifest.seal(published, signing))
        remove_old(place, published.files(), clock() - keep)
    return published


def trusted_or_none(keys: Sequence[PublicKey | str]) -> list[PublicKey]:
    """The public keys that somebody named, which may be none."""
    return trusted(keys) if keys else []


def _current(folder: Path, keys: Sequence[PublicKey]) -> Manifest | None:
    """What the folder has published last; FeedRefused if none of these keys signed it."""
    try:
        data = (folder / manifest.NAME).read_bytes()
    except FileNotFoundError:
        return None
    try:
        return manifest.unseal(data, keys)
    except errors.FeedRefused as why:
        raise errors.FeedRefused(
            f"{folder} has a feed that cannot be continued: {why}; name its public key, or use "
            "another folder",
            why.reason,
        ) from None


def _next_version(before: Manifest | None, wanted: int | None) -> int:
    least = before.version + 1 if before else 1
    if wanted is None:
        return least
    if not least <= wanted < 1 << 53:
        raise errors.InvalidParameter(
            f"version is {wanted}, must be at least {least}: subscribers refuse a lower one"
        )
    return wanted


def _write_full(
    folder: Path, filter: Any, version: int, before: Manifest | None
) -> tuple[FeedFile, str]:
    """Write the full file, unless it is the same as before, and return its kind too."""
    with incoming(folder) as path:
        if isinstance(filter, str | os.PathLike):
            with files.naming(filter):
                kind = _take(filter, path)
        else:
            filter.save(path)
            kind = filter.kind
        sha256, size = digest(path)
        if (
            before
            and before.full.sha256 == sha256
            and is_whole(folder / before.full.name, before.full)
        ):
            return before.full, kind
        full = FeedFile(full_name(version, sha256), size, sha256)
        settle(path, folder / full.name)
    return full, kind


def _take(source: str | os.PathLike[str], path: Path) -> str:
    """Copy a saved filter, check the copy, and return its kind."""
    with open(source, "rb") as file, path.open("xb") as copy:
        shutil.copyfileobj(file, copy, _CHUNK)
    filter = saved_filters.open(path, mmap=True, verify=True)
    with path.open("rb") as file:
        _, _, checksum = _native.read_header(file.read(HEADER_BYTES), None)
    if checksum == _native.LIVE:  # others may have been writing to it: a checksum is made here
        filter = saved_filters.open(path)
        filter.save(path)
    return filter.kind


def _deltas(
    folder: Path, before: Manifest | None, full: FeedFile, version: int, most: int
) -> list[DeltaFile]:
    """The deltas that lead to the full file: those of before, and one from the last version."""
    if before is None or most == 0:
        return []
    deltas = list(before.deltas)
    if before.full.sha256 != full.sha256:
        new = _delta(folder, before, full, version)
        deltas = [*deltas, new] if new else []
    deltas = deltas[-most:]
    # Whoever is so late that the full file is less to fetch is served by that.
    while sum(delta.size for delta in deltas) >= full.size:
        del deltas[0]
    return deltas


def _delta(folder: Path, before: Manifest, full: FeedFile, version: int) -> DeltaFile | None:
    """Write the delta from the last version, if there is a base and it is worth it."""
    if not is_whole(folder / before.full.name, before.full):
        return None
    with _mapped(folder / before.full.name) as base, _mapped(folder / full.name) as result:
        data = delta.encode(base, result)
    if data is None or len(data) >= full.size // 2:
        return None
    sha256 = hashlib.sha256(data).hexdigest()
    name = delta_name(before.version, version, sha256)
    with files.replacing(folder / name) as file:
        file.write(data)
    return DeltaFile(name, len(data), sha256, before.full.sha256, full.sha256, full.size)


@contextlib.contextmanager
def _mapped(path: Path) -> Iterator[mmap.mmap]:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        yield mapped


def _touch(folder: Path, before: Manifest, now: float) -> None:
    """Let the grace of the files that are named until now begin now."""
    for name in before.files():
        with contextlib.suppress(FileNotFoundError):
            os.utime(folder / name, (now, now))

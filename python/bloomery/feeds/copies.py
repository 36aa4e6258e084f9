"""A subscriber's own copy of a feed: a folder with the filter's file and the manifest it is of.

The manifest is replaced last, in one step, and names the file: a kill leaves the old copy or the
new one. `seen.json` has the highest version that was ever accepted, from before its files are
fetched: not even a restart makes an older one acceptable. `current` is a link to the file, for
commands. Whoever changes the folder holds its lock; whoever reads needs none.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bloomery import errors
from bloomery.feeds import manifest
from bloomery.feeds.incoming import COPY, SEEN, local_name, refuse_other_use, remove_old
from bloomery.feeds.keys import PublicKey
from bloomery.feeds.manifest import Manifest
from bloomery.storage import files
from bloomery.storage.locking import lock_folder

CURRENT = "current"
_TAG = "etag.json"
_POLL = 0.05


@dataclass(frozen=True)
class SeenVersion:
    """The highest version of which a manifest was accepted, and the SHA-256 of its body."""

    feed: str
    version: int
    body: str


class Copy:
    """The folder of a subscriber."""

    def __init__(self, folder: str | os.PathLike[str], keys: Sequence[PublicKey]) -> None:
        self.folder, self._keys = Path(folder), keys

    @contextlib.contextmanager
    def locked(self, timeout: float) -> Iterator[None]:
        """Have the folder to oneself; wait for another fetcher until the timeout."""
        refuse_other_use(self.folder, here=COPY)
        end = time.monotonic() + timeout
        while True:
            try:
                lock = lock_folder(self.folder, "fetcher")
                break
            except errors.FolderInUse:
                if time.monotonic() > end:
                    raise
                time.sleep(_POLL)
        with lock:
            yield

    def stamp(self) -> tuple[int, int] | None:
        """Changes when the copy is replaced; None without one."""
        try:
            status = os.stat(self.folder / manifest.NAME)
        except FileNotFoundError:
            return None
        return status.st_mtime_ns, status.st_ino

    def path(self, of: Manifest) -> Path:
        """Where the file of a manifest is."""
        return self.folder / local_name(of.full.sha256)

    def manifest(self) -> Manifest | None:
        """The manifest of the copy; None if there is none, FeedRefused if it is not to be trusted:
        its key is no longer, say."""
        try:
            data = (self.folder / manifest.NAME).read_bytes()
        except FileNotFoundError:
            return None
        return manifest.unseal(data, self._keys)

    def seen(self) -> SeenVersion | None:
        """The highest version that was ever accepted."""
        path = self.folder / SEEN
        try:
            members = json.loads(path.read_bytes())
            return SeenVersion(str(members["feed"]), int(members["version"]), str(members["body"]))
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError):
            raise errors.CorruptData(
                f"{path}: damaged, and it says which versions are too old: remove the folder to "
                "begin anew, if you are sure of the source"
            ) from None

    def remember(self, accepted: Manifest) -> None:
        """Keep on disk that this version was accepted."""
        seen = seen_of(accepted)
        if self.seen() != seen:
            with files.replacing(self.folder / SEEN) as file:
                file.write(json.dumps(asdict(seen)).encode("ascii"))

    def etag(self, source: str) -> str | None:
        """The tag that the source gave the manifest of the copy, if it is the same source."""
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            members = json.loads((self.folder / _TAG).read_bytes())
            if members["source"] == source and members["body"] == self._body():
                return str(members["etag"])
        return None

    def commit(self, new: Manifest, data: bytes, source: str, etag: str | None) -> None:
        """Make a manifest that of the copy; its file is there by now."""
        with files.replacing(self.folder / manifest.NAME) as file:
            file.write(data)
        if etag:
            with files.replacing(self.folder / _TAG) as file:
                tag = {"source": source, "etag": etag, "body": self._body()}
                file.write(json.dumps(tag).encode("ascii"))

    def tidy(self, held: Manifest) -> None:
        """Let `current` lead to the file of the copy, and remove all others: those of before, and
        what a kill left. Whoever has one open or mapped keeps it."""
        name = local_name(held.full.sha256)
        link = self.folder / CURRENT
        if not link.is_symlink() or os.readlink(link) != name:
            temporary = self.folder / f".{CURRENT}.{os.urandom(8).hex()}.tmp"
            temporary.symlink_to(name)
            temporary.replace(link)
        remove_old(self.folder, {name}, float("inf"))

    def _body(self) -> str:
        """SHA-256 of the manifest's file, which a tag belongs to."""
        return hashlib.sha256((self.folder / manifest.NAME).read_bytes()).hexdigest()


def seen_of(accepted: Manifest) -> SeenVersion:
    """What is remembered of a manifest."""
    body = hashlib.sha256(accepted.body).hexdigest()
    return SeenVersion(accepted.feed, accepted.version, body)

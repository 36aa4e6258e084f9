"""A subscriber: a copy of a feed that is kept current, and answers from memory, offline too."""

from __future__ import annotations

import mmap
import os
import random
import shutil
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from bloomery import errors
from bloomery.errors import FeedRefused
from bloomery.feeds import manifest
from bloomery.feeds.copies import Copy, seen_of
from bloomery.feeds.delta import Delta
from bloomery.feeds.incoming import incoming, is_whole, settle
from bloomery.feeds.keys import PublicKey, trusted
from bloomery.feeds.manifest import DeltaFile, FeedFile, Manifest
from bloomery.feeds.sources import FeedSource, Progress, source_of
from bloomery.feeds.times import seconds, show_span
from bloomery.feeds.urls import url_expressions
from bloomery.filters import files as saved_filters

if TYPE_CHECKING:
    from datetime import timedelta

    from typing_extensions import Self

    from bloomery.types import Batch, Key, Mask


class Update(NamedTuple):
    """What an update did: which version there is now, how it came, and the bytes fetched for it
    beside the manifest's."""

    version: int
    by: Literal["nothing", "manifest", "deltas", "full"]
    fetched: int


class Subscriber:
    """A feed's filter, from a local copy that `update` keeps current.

        feed = Subscriber("https://example.org/revoked/", "revoked-copy", "ed25519:…")
        feed.update()  # or feed.start("5min"), in the background
        "token-17" in feed  # False: definitely not on the feed

    `source` is a URL of http or https, or a folder; None only follows a copy that another process
    keeps current (`bloomery fetch --watch`). `keys` are the publisher's public keys, one or more.
    A feed that is forged, damaged, expired or older than one that was seen is refused with a
    FeedRefused, and the copy that is there goes on answering; `stale` says whether it is past its
    time. Files larger than `max_bytes` are not fetched. `name` is the feed's; without it, the first
    that is fetched into the folder decides.
    """

    def __init__(
        self,
        source: str | os.PathLike[str] | None,
        folder: str | os.PathLike[str],
        keys: PublicKey | str | Iterable[PublicKey | str],
        *,
        name: str | None = None,
        max_bytes: int = 1 << 30,
        timeout: float | str | timedelta = 30.0,
        mmap: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._timeout = seconds("timeout", timeout)
        self._keys = trusted(keys)
        self._place = None if source is None else os.fspath(source)
        self._source: FeedSource | None = None
        if source is not None:
            self._source = source_of(source, self._timeout)
        self._copy = Copy(folder, self._keys)
        self._name = None if name is None else manifest.check_name(name)
        self._max_bytes, self._mmap, self._clock = max_bytes, mmap, clock
        self._updating = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._held: tuple[Manifest, Any] | None = None  # replaced as one
        self._stamp: tuple[int, int] | None = None
        self.problem: Exception | None = None
        """Why the last update, or the copy that was found at first, was refused; None if it was
        not."""
        try:
            self.refresh()
        except (FeedRefused, errors.CorruptData) as why:
            self.problem = why  # a damaged copy is fetched anew

    # What it answers

    def __contains__(self, key: Key) -> bool:
        return key in self.filter

    def contains(self, key: Key) -> bool:
        """True if the key may be on the feed; False if it definitely is not."""
        return key in self.filter

    def contains_many(self, keys: Batch) -> Mask:
        """The same for many keys at once, as the filter's own `contains_many`."""
        mask: Mask = self.filter.contains_many(keys)
        return mask

    def check_url(self, url: str | bytes) -> list[str]:
        """The expressions of a URL that may be on the feed, as Safe Browsing looks it up: its host
        and up to four parents, with its path and up to four folders above. None: definitely not."""
        filter = self.filter
        return [expression for expression in url_expressions(url) if expression in filter]

    @property
    def filter(self) -> Any:
        """The filter of the copy; FeedUnavailable if there is no copy yet. Do not change it."""
        held = self._held
        if held is None:
            raise errors.FeedUnavailable(
                f"{self._copy.folder} has no copy of the feed yet: update() fetches it"
            )
        return held[1]

    @property
    def manifest(self) -> Manifest | None:
        """The manifest of the copy that answers; None if there is none."""
        return None if self._held is None else self._held[0]

    @property
    def stale(self) -> bool:
        """True if there is no copy, or it is past the time for which its publisher signed it."""
        held = self._held
        return held is None or self._clock() >= held[0].expires

    def info(self) -> dict[str, Any]:
        """The copy in figures."""
        held = self.manifest
        about = {} if held is None else {"feed": held.feed, "version": held.version}
        if held is not None:
            about |= {"kind": held.kind, "size": held.full.size}
            about |= {"published": held.published, "expires": held.expires}
        problem = None if self.problem is None else str(self.problem)
        return {**about, "stale": self.stale, "problem": problem}

    # How it is kept current

    def refresh(self) -> bool:
        """Take up the copy on disk if another process has replaced it; True if so."""
        with self._updating:
            return self._refresh()

    def _refresh(self) -> bool:
        stamp = self._copy.stamp()
        if stamp is None or stamp == self._stamp:
            return False
        for last in (False, True):
            manifest = self._copy.manifest()
            if manifest is None:
                return False
            self._check_name(manifest, None)
            if self._held is not None and self._held[0].full == manifest.full:
                self._held = manifest, self._held[1]
                break
            try:
                self._held = manifest, self._load(self._copy.path(manifest), manifest.full)
                break
            except FileNotFoundError:  # replaced in between: once more
                if last:
                    raise FeedRefused(
                        f"{self._copy.path(manifest)} is missing", "damaged"
                    ) from None
        self._stamp = stamp
        return True

    def update(self, progress: Callable[[int, int], object] | None = None) -> Update:
        """Fetch what is new. Raises FeedRefused if what is there must not be used, and
        ServerUnavailable or OSError if it cannot be reached; the copy stays as it was.

        `progress` is called with the bytes that came, and how many there are in all.
        """
        with self._updating:
            try:
                done = self._update(progress)
            except (errors.BloomeryError, OSError) as why:
                self.problem = why
                raise
            self.problem = None
            return done

    def _update(self, progress: Callable[[int, int], object] | None) -> Update:
        if self._source is None or self._place is None:
            self._refresh()
            held = self._held
            if held is None:
                raise errors.FeedUnavailable(f"{self._copy.folder} has no copy of the feed")
            self._check_expiry(held[0])
            return Update(held[0].version, "nothing", 0)
        with self._copy.locked(self._timeout):
            current, done = self._follow(self._source, self._place, progress)
            self._copy.tidy(current)
            return done

    def _follow(
        self, source: FeedSource, place: str, progress: Callable[[int, int], object] | None
    ) -> tuple[Manifest, Update]:
        """Make the copy what the source has, if that may be; the folder is locked."""
        local = self._local()
        known = None if local is None else self._copy.etag(place)
        data, etag = source.manifest(known)
        if data is None:
            assert local is not None
            self._check_expiry(local)
            return local, Update(local.version, "nothing", 0)
        new = manifest.unseal(data, self._keys)
        self._check(new)
        self._copy.remember(new)
        if local is not None and local.body == new.body:
            return local, Update(new.version, "nothing", 0)
        by, fetched, filter = self._fetch(source, new, local, progress)
        self._copy.commit(new, data, place, etag)
        self._held, self._stamp = (new, filter), self._copy.stamp()
        return new, Update(new.version, by, fetched)

    def _local(self) -> Manifest | None:
        """The copy that is there, taken up if another process has replaced it; None if there is
        none that can be used."""
        try:
            self._refresh()
        except (FeedRefused, errors.CorruptData):
            return None
        held = self.manifest
        # What answers from memory stays, but its file may be gone or damaged.
        if held is not None and self._copy.path(held).is_file():
            return held
        return None

    def _check(self, new: Manifest) -> None:
        """Refuse a manifest that is of another feed, expired, too large or older than another."""
        seen = self._copy.seen()
        self._check_name(new, seen.feed if seen else None)
        self._check_expiry(new)
        if seen and new.version < seen.version:
            raise FeedRefused(
                f"rolled back: version {new.version}, though {seen.version} was seen before",
                "rolled-back",
            )
        if seen and new.version == seen.version and seen_of(new) != seen:
            raise FeedRefused(
                f"forked: another version {new.version} was seen before: two publishers?", "forked"
            )
        largest = max([new.full.size, *(delta.result_size for delta in new.deltas)])
        if largest > self._max_bytes:
            raise FeedRefused(
                f"a file of {largest:,} bytes, more than max_bytes ({self._max_bytes:,})",
                "too-large",
            )

    def _check_name(self, new: Manifest, before: str | None) -> None:
        expected = self._name or before or (self._held[0].feed if self._held else None)
        if expected is not None and new.feed != expected:
            raise FeedRefused(
                f"this is the feed {new.feed!r}, {expected!r} was expected", "other-feed"
            )

    def _check_expiry(self, new: Manifest) -> None:
        late = self._clock() - new.expires
        if late >= 0:
            raise FeedRefused(
                f"expired: version {new.version} was to be replaced {show_span(late)} ago",
                "expired",
            )

    def _fetch(
        self,
        source: FeedSource,
        new: Manifest,
        local: Manifest | None,
        progress: Callable[[int, int], object] | None,
    ) -> tuple[Literal["manifest", "deltas", "full"], int, Any]:
        """Have the new file in the folder, and the filter in it: by deltas if that works."""
        path = self._copy.path(new)
        if is_whole(path, new.full):  # only signed anew; or a kill came just before the commit
            held = self._held
            same = held is not None and held[0].full.sha256 == new.full.sha256
            return "manifest", 0, self.filter if same else self._load(path, new.full)
        chain = new.deltas_from(local.full.sha256) if local is not None else ()
        if chain:
            assert local is not None
            total = sum(delta.size for delta in chain)
            with incoming(self._copy.folder) as result:
                try:
                    base = self._copy.path(local)
                    self._apply(source, chain, base, result, _of(progress, total))
                    filter = self._load(result, new.full)
                except (FeedRefused, errors.CorruptData, FileNotFoundError):
                    filter = None  # a base that is damaged, say: then the full file
                if filter is not None:
                    settle(result, path)
                    return "deltas", total, filter
        with incoming(self._copy.folder) as result:
            source.file(new.full, result, _of(progress, new.full.size))
            filter = self._load(result, new.full)
            settle(result, path)
        return "full", new.full.size, filter

    def _apply(
        self,
        source: FeedSource,
        chain: tuple[DeltaFile, ...],
        base: Path,
        result: Path,
        progress: Progress,
    ) -> None:
        """Make the result of the base and the deltas, one after another."""
        shutil.copyfile(base, result)
        for file in chain:
            with incoming(self._copy.folder) as path:
                source.file(file, path, progress)
                if not is_whole(path, file):
                    raise FeedRefused(f"{file.name}: not the bytes that were signed", "damaged")
                delta = Delta(path.read_bytes())
            if delta.result_size != file.result_size or delta.base_size != result.stat().st_size:
                raise FeedRefused(f"{file.name} is not for this file", "damaged")
            os.truncate(result, delta.result_size)
            with result.open("r+b") as opened, mmap.mmap(opened.fileno(), 0) as mapped:
                delta.flip(mapped)

    def _load(self, path: Path, file: FeedFile) -> Any:
        """The filter in a file, whose bytes are those that were signed."""
        if not is_whole(path, file):
            path.stat()  # FileNotFoundError
            raise FeedRefused(f"{file.name}: not the bytes that were signed", "damaged")
        try:
            # What is mapped forgets nothing: a filter that is to forget is read.
            rotates = saved_filters.kind_of(path) == "rotating"
            return saved_filters.open(path, mmap=self._mmap and not rotates)
        except (errors.CorruptData, errors.IncompatibleFilters) as problem:
            raise FeedRefused(f"{file.name}: {problem}", "damaged") from None

    # In the background

    def start(
        self,
        interval: float | str | timedelta = "5min",
        on_update: Callable[[Update | Exception], object] | None = None,
    ) -> Self:
        """Update now and then each interval, in a thread of its own; `on_update` gets what each
        did, or why it failed. After a fork, a child begins its own."""
        pause = seconds("interval", interval)
        if self._thread is not None and self._thread.is_alive():
            raise errors.InvalidParameter("the subscriber was started already")
        self._stop.clear()
        self._thread = threading.Thread(
            target=self._run, args=(pause, on_update), name="bloomery-feed", daemon=True
        )
        self._thread.start()
        return self

    def _run(self, pause: float, on_update: Callable[[Update | Exception], object] | None) -> None:
        while True:
            done: Update | Exception
            try:
                done = self.update()
            except (errors.BloomeryError, OSError, MemoryError) as why:
                done = why
            if on_update is not None:
                on_update(done)
            # Not all at the same second, however many were started together.
            if self._stop.wait(pause * random.uniform(0.9, 1.1)):
                return

    def close(self) -> None:
        """End the thread, if there is one; the copy goes on answering."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()


def _of(progress: Callable[[int, int], object] | None, total: int) -> Progress:
    """What is told how many bytes came, of so many."""
    return (lambda _: None) if progress is None else (lambda count: progress(count, total))

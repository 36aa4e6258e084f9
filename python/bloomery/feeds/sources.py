"""Where a feed is fetched from: a web server or a bucket over HTTP(S), or a folder."""

from __future__ import annotations

import contextlib
import http.client
import os
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import bloomery._native as _native
from bloomery import errors
from bloomery.feeds import manifest
from bloomery.feeds.manifest import FeedFile

_CHUNK = 1 << 18
Progress = Callable[[int], object]


class Readable(Protocol):
    """What bytes are read from."""

    def read1(self, size: int, /) -> bytes:
        """Up to so many bytes, as they come; none at the end."""


class FetchedFile(NamedTuple):
    """A manifest as a source gave it: no bytes if it is the one that the tag is of."""

    data: bytes | None
    etag: str | None


class FeedSource(Protocol):
    """What a feed is fetched from. A file that is not there is a FileNotFoundError."""

    def manifest(self, etag: str | None) -> FetchedFile:
        """The manifest; nothing of it if it still is the one with this tag."""

    def file(self, file: FeedFile, target: Path, progress: Progress) -> None:
        """Write a file to a path: as many bytes as the manifest says, and no more."""


def source_of(place: str | os.PathLike[str], timeout: float) -> FeedSource:
    """The source for a URL or a folder."""
    text = os.fspath(place)
    if "://" not in text:
        return FolderSource(text)
    parts = urllib.parse.urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise errors.InvalidParameter(
            f"{text!r} is not where a feed can be, must be a folder, or a URL of http or https "
            "without a query"
        )
    return HttpSource(text, timeout)


class FolderSource:
    """A feed in a folder, of this machine or mounted."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def manifest(self, etag: str | None) -> FetchedFile:
        """The manifest, always."""
        with (self._folder / manifest.NAME).open("rb") as file:
            return FetchedFile(file.read(manifest.MAX_BYTES + 1), None)

    def file(self, file: FeedFile, target: Path, progress: Progress) -> None:
        """Copy a file."""
        with (self._folder / file.name).open("rb") as opened:
            _copy(opened, file, target, progress, lambda: None)


class HttpSource:
    """A feed behind a web server. `timeout` is for each wait and, at a hundred kilobytes a second
    or more, for the whole of a file: a server that sends a byte now and then is left."""

    def __init__(self, url: str, timeout: float) -> None:
        self._url = url if url.endswith("/") else f"{url}/"
        self._timeout = timeout
        opener = urllib.request.OpenerDirector()  # no ftp:, no file:, whatever a redirect says
        for handler in (
            urllib.request.ProxyHandler(),
            urllib.request.HTTPHandler(),
            urllib.request.HTTPSHandler(),
            urllib.request.HTTPDefaultErrorHandler(),
            urllib.request.HTTPErrorProcessor(),
            _Redirects(),
        ):
            opener.add_handler(handler)
        self._opener = opener

    def manifest(self, etag: str | None) -> FetchedFile:
        """The manifest; nothing if the server says that it has not changed."""
        headers = {"If-None-Match": etag} if etag else {}
        try:
            with self._get(manifest.NAME, headers) as response:
                late = self._deadline(0)
                data = b""
                while len(data) <= manifest.MAX_BYTES and (chunk := response.read1(_CHUNK)):
                    data += chunk
                    late()
                if response.length and len(data) <= manifest.MAX_BYTES:
                    raise errors.ServerUnavailable(f"{self._url}: the server hung up")
                return FetchedFile(data, response.headers.get("ETag"))
        except _NotModified:
            if not etag:
                raise errors.ServerUnavailable(
                    f"{self._url}: 304 without having been asked for it"
                ) from None
            return FetchedFile(None, etag)

    def file(self, file: FeedFile, target: Path, progress: Progress) -> None:
        """Download a file."""
        with self._get(file.name, {}) as response:
            _copy(response, file, target, progress, self._deadline(file.size))

    def _deadline(self, size: int) -> Callable[[], None]:
        end = time.monotonic() + self._timeout + size / 100_000

        def check() -> None:
            if time.monotonic() > end:
                raise errors.ServerUnavailable(f"{self._url}: too slow, given up")

        return check

    @contextlib.contextmanager
    def _get(self, name: str, headers: dict[str, str]) -> Iterator[Any]:
        """A response of 200; whatever else happens is an error of ours."""
        url = self._url + name
        # Bytes as they are: what is hashed must not depend on who compressed it on the way.
        asked = {
            "User-Agent": f"bloomery/{_native.__version__}",
            "Accept-Encoding": "identity",
            **headers,
        }
        request = urllib.request.Request(url, headers=asked)
        try:
            with self._opener.open(request, timeout=self._timeout) as response:
                yield response
        except urllib.error.HTTPError as failure:
            failure.close()
            if failure.code == 304:
                raise _NotModified from None
            if failure.code in (404, 410):
                raise FileNotFoundError(2, f"{failure.code} {failure.reason}", url) from None
            raise errors.ServerUnavailable(f"{url}: {failure.code} {failure.reason}") from None
        except (
            urllib.error.URLError,
            http.client.HTTPException,
            ConnectionError,
            TimeoutError,
        ) as why:
            reason = getattr(why, "reason", None) or why
            raise errors.ServerUnavailable(f"{url}: {reason or type(why).__name__}") from None


class _NotModified(Exception):
    """The server said 304."""


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Redirects are followed, but never from https to http."""

    def redirect_request(
        self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        wanted = ("https",) if req.type == "https" else ("http", "https")
        if urllib.parse.urlsplit(newurl).scheme not in wanted:
            raise errors.ServerUnavailable(f"{req.full_url}: redirects to {newurl[:100]}, refused")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _copy(
    source: Readable, file: FeedFile, target: Path, progress: Progress, late: Callable[[], None]
) -> None:
    """Write what comes to a new file, but no more than the manifest says."""
    left = file.size
    with target.open("xb") as out:
        while chunk := source.read1(min(_CHUNK, left + 1)):
            left -= len(chunk)
            if left < 0:
                raise errors.FeedRefused(
                    f"{file.name} is longer than {file.size:,} bytes, which the manifest says",
                    "damaged",
                )
            out.write(chunk)
            progress(len(chunk))
            late()
    if left:
        raise errors.FeedRefused(
            f"{file.name} ends after {file.size - left:,} of {file.size:,} bytes", "damaged"
        )

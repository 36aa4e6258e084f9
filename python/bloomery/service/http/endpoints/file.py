"""A filter as its saved file: taken out, and put in.

Out: the file is written beside the data first, by a thread, and sent from there: its checksum
stands in its head, and a client that is slow holds up nobody. A key that was acknowledged before
the request is in it; one that comes meanwhile may be.

In: what comes is loaded under a name of its own, in chunks that are each in the log before the next
is read, and takes its place when it is whole and its checksum holds. Whoever stops before that
leaves nothing behind: if the server itself is killed, what it had so far ends by its time.
"""

from __future__ import annotations

import asyncio
import secrets
import shutil
import tempfile
from collections.abc import AsyncIterator
from typing import IO, Any
from urllib.parse import quote

from fastapi import Query, Request, Response
from starlette.responses import StreamingResponse

from bloomery import _native, errors
from bloomery.filters import files
from bloomery.service.access.permissions import exporting
from bloomery.service.commands import check_name
from bloomery.service.domain.entry import Entry
from bloomery.service.http import models, problems
from bloomery.service.http.body import bodies
from bloomery.service.http.endpoints.filters import filter_info
from bloomery.service.http.limits import MAX_EXPORTS
from bloomery.service.http.login import reauthorize
from bloomery.service.http.route import (
    ApiResponse,
    Name,
    authorize_as,
    commands_of,
    context_of,
    does,
    routes,
)
from bloomery.service.listing import UPLOADED
from bloomery.service.network.input_budget import Charge
from bloomery.service.parts import Parts

MEDIA = "application/octet-stream"
_READ = 1 << 20
_LOADED = 4 << 20  # bytes that are taken in at once: 2 ms, for which all others wait
_IN_MEMORY = 4 << 20  # bytes of a file that need no disk
_UNFINISHED = 3600.0  # seconds without a chunk, after which what came so far is forgotten

router = routes()
_BINARY = {"content": {MEDIA: {"schema": {"type": "string", "format": "binary"}}}}


@router.get(
    "/filters/{name}/file",
    response_class=Response,
    openapi_extra=does("export"),
    responses={
        200: {"description": "a saved filter: `bloomery.open` loads it", **_BINARY},
        **problems.describe(*problems.ANY, "unknown-filter", "invalid-parameter"),
    },
)
async def export(request: Request, name: Name) -> Response:
    """Take a filter out, as the file that `save` would write."""
    context = context_of(request)
    entry = commands_of(request).find(name)
    if entry.filter is None:
        raise errors.InvalidParameter("this filter is still being loaded")
    authorize_as(request, exporting(entry.filter), name)
    exports = request.app.state.exports  # files that are sent
    if sum(not file.closed for file in exports) >= MAX_EXPORTS:
        raise errors.ServerUnavailable("too many filters are taken out at once: try again soon")
    _check_disk(context, entry.filter.nbytes)
    file: Any = tempfile.SpooledTemporaryFile(_IN_MEMORY, dir=str(context.data))  # noqa: SIM115
    exports.add(file)
    nbytes = await asyncio.to_thread(_written, entry.filter, file)
    quoted = quote(name[:100], safe="")
    headers = {
        "Content-Length": str(nbytes),
        "Content-Disposition": f"attachment; filename*=UTF-8''{quoted}.bloom",
    }
    return StreamingResponse(_read(file), headers=headers, media_type=MEDIA)


def _check_disk(context: Parts, nbytes: int) -> None:
    """Raise unless the disk keeps room for the log, and for a snapshot of all filters, when a file
    of so many bytes is written to it."""
    kept = 2 * context.settings.snapshot_log_bytes + _native.memory_used()
    if nbytes > _IN_MEMORY and shutil.disk_usage(context.data).free < nbytes + kept:
        raise errors.ServerUnavailable(
            f"the server's disk has no room for a file of {nbytes:,} bytes: it keeps "
            f"{kept:,} for its log and a snapshot"
        )


def _written(filter: Any, file: Any) -> int:
    """Write the filter to a temporary file; return its length."""
    try:
        files.write(filter, file)
        file.seek(0, 2)
        nbytes: int = file.tell()
        file.seek(0)
    except OSError as problem:
        file.close()
        raise errors.ServerUnavailable(
            f"the file to be sent cannot be written: {problem.strerror or problem}"
        ) from problem
    except BaseException:
        file.close()
        raise
    return nbytes


async def _read(file: IO[bytes]) -> AsyncIterator[bytes]:
    with file:
        while chunk := await asyncio.to_thread(file.read, _READ):
            yield chunk


@router.put(
    "/filters/{name}/file",
    status_code=201,
    response_model=models.FilterInfo,
    openapi_extra={**does("import"), "requestBody": {"required": True, **_BINARY}},
    responses={
        200: {"description": "it took the place of another", "model": models.FilterInfo},
        **problems.describe(
            *problems.ANY,
            *("filter-exists", "corrupt-data", "unsupported-version", "invalid-parameter"),
            *("not-enough-memory", "log-unavailable"),
            statuses=(408, 415),
        ),
    },
)
async def put(
    request: Request,
    name: Name,
    replace: bool = Query(False, description="Take the place of a filter of that name."),
) -> Response:
    """Make a filter of a saved one."""
    if bodies.media_type(request.scope) != MEDIA:
        raise problems.Refused(f"the body must be a saved filter: Content-Type: {MEDIA}", 415)
    context = context_of(request)
    there = _check(context, name, replace)
    upload = _FilterUpload(context)
    try:
        with Charge(context.input_budget) as charge:
            async for data in bodies.parts(request.receive):
                reauthorize(context, request.scope, "import", name)
                await upload.take(data)
                charge.weigh(upload.pending)
            await upload.end()
        await context.engine.locks.unlocked(name)
        there = _check(context, name, replace)
        changes: dict[str, Any] = {"expires_at": None}
        source = context.commands.find(name).settings.get("source") if there else None
        if source in context.commands.lookups.sources:  # lookups stay the same
            changes["source"] = source
        entry = await context.commands.amend(upload.name, changes, name, replace=replace)
        assert entry is not None
    except BaseException:
        await upload.forget()
        raise
    return ApiResponse(await filter_info(context, entry), 200 if there else 201)


def _check(context: Parts, name: bytes, replace: bool) -> bool:
    """Whether there is a filter of that name; FilterExists if there must not be."""
    context.sequencer.join()
    check_name(name)
    there = context.engine.find(name) is not None
    if there and not replace:
        raise errors.FilterExists(
            "there is a filter of that name already; to replace it: replace=true"
        )
    return there


class _FilterUpload:
    """A saved filter that is being uploaded, under a secret name until it is whole."""

    def __init__(self, context: Parts) -> None:
        self._context = context
        self.name = UPLOADED + secrets.token_hex(8).encode()
        self._entry: Entry | None = None
        self._buffer = bytearray()
        self._loaded = 0

    @property
    def pending(self) -> int:
        """Bytes that are buffered until more comes."""
        return len(self._buffer)

    async def take(self, data: bytes) -> None:
        """Take some bytes of the file."""
        self._buffer += data
        if len(self._buffer) >= _LOADED:
            await self._load()

    async def end(self) -> None:
        """Load the last bytes; CorruptData if something is missing."""
        if self._buffer or self._entry is None:
            await self._load()
        if self._entry is None or self._entry.filter is None:
            raise errors.CorruptData(
                f"the saved filter is cut off after {self._loaded} bytes: send all of the file"
            )

    async def _load(self) -> None:
        data = bytes(self._buffer)
        self._buffer.clear()
        if self._entry is None and files.is_bank(data):
            raise errors.InvalidParameter(
                "a bank cannot be put in by way of HTTP: create one and add its keys"
            )
        commands, position = self._context.commands, self._loaded + 1
        with commands.own_name(self.name):
            self._entry = await commands.load(self.name, position, data)
        self._loaded += len(data)
        await commands.expire(self.name, self._context.engine.now + _UNFINISHED)

    async def forget(self) -> None:
        """Drop what was loaded so far."""
        if self._entry is not None and self._context.engine.problem is None:
            self._context.sequencer.join()
            await self._context.commands.drop(self.name)

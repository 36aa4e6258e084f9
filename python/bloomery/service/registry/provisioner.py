"""Makes the filters that rows of the registry wish for: rows that somebody inserted.

INSERT ──> claimed by one server (registry's thread) ──> made (event loop) ──> the row is the
                                                          │                    filter's own
                                                          └─> refused: the row says why
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from bloomery import errors, names, sizing
from bloomery.filters.creation import PARAMETERS, class_of
from bloomery.service.access.audit import Audit
from bloomery.service.commands import Commands
from bloomery.service.observe import logs
from bloomery.service.registry.publisher import row_of
from bloomery.service.registry.writer import RegistryWriter

# What the columns are called where filters are made. Every row has the first two, though a kind may
# have no use for the second; m_bits and k_hashes follow from them.
_PARAMETERS = {
    "expected_elements": "capacity",
    "fp_rate": "error_rate",
    "window_seconds": "window",
    **{name: name for name in ("layout", "hasher", "seed", "counter_bits", "expansion")},
}


class Provisioner:
    """Looks for rows that somebody inserted, and makes their filters one after the other."""

    def __init__(
        self,
        commands: Commands,
        writer: RegistryWriter,
        audit: Audit,
    ) -> None:
        self._commands, self._writer, self._audit = commands, writer, audit
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        self._made: set[int] = set()  # rows: an id is never used again
        writer.on_inserted.subscribe(self._inserted)

    def check(self) -> None:
        """Look for rows, each second, unless some are being worked on."""
        if self._task is None or self._task.done():
            self._writer.claim_soon()

    def _inserted(self, rows: list[dict[str, Any]]) -> None:
        """Hand rows over from the registry's thread."""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._begin, rows)

    def _begin(self, rows: list[dict[str, Any]]) -> None:
        # Those that came by an earlier look are left out: they come again, if they are no filters.
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._make_all(rows))

    async def _make_all(self, rows: list[dict[str, Any]]) -> None:
        for row in rows:
            if row["id"] not in self._made:
                problem = await self._try(row)
                if problem is None:
                    self._made.add(row["id"])
                else:
                    self._writer.note_problems({row["id"]: problem})
                await asyncio.sleep(0)  # others have their turn

    async def _try(self, row: Mapping[str, Any]) -> str | None:
        """Make the filter that a row asks for; return why it could not be made, or None."""
        try:
            await self._make(row)
        except errors.BloomeryError as problem:
            return str(problem)
        except MemoryError:
            return "there is no memory for that"
        except Exception as problem:  # noqa: BLE001  # a row may have anything; others wait
            logs.tell("a row of the registry failed", level="error", problem=problem)
            return f"an error of the server, which has printed more: {type(problem).__name__}"
        return None

    async def _make(self, row: Mapping[str, Any]) -> None:
        name, settings = _name_of(row), _settings_of(row)
        await self._commands.discover(name)
        create = partial(self._commands.create, name, **settings)
        try:
            await self._commands.run([name], create)
        except errors.FilterExists as problem:
            entry = self._commands.engine.find(name)
            if entry is None or entry.filter is None:
                raise  # another node's, which this one has yet to hear of; or it is loading
            self._writer.put([row_of(entry)])
            raise errors.FilterExists(f"{problem}: this row now shows it as it is") from None
        self._audit.note(None, "", "registry", "create", "done", names=[name])


def _name_of(row: Mapping[str, Any]) -> bytes:
    # As the registry would write it: else the filter had another row than this.
    return names.unprintable(_typed(row, "name"))


def _settings_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of the filter that a row asks for."""
    kind = _typed(row, "kind")
    class_of(kind)  # or it is none
    if row["expires"]:
        raise errors.InvalidParameter(
            "expires_at is given, must be left out: let the filter end with EXPIRE or over HTTP"
        )
    settings = {"kind": kind}
    for column, parameter in _PARAMETERS.items():
        if row[column] is None or (column, kind) == ("fp_rate", "rediscuckoo"):
            continue
        if parameter not in (*PARAMETERS.get(kind, ()), "capacity", "error_rate"):
            raise errors.InvalidParameter(
                f"{column} is {sizing.show(row[column])}, must be left out for the kind {kind}"
            )
        settings[parameter] = _typed(row, column)
    if "seed" in settings:
        if not re.fullmatch(r"[0-9]{1,20}", settings["seed"]):
            raise errors.InvalidParameter(
                f"seed is {sizing.show(settings['seed'])}, must be a whole number"
            )
        settings["seed"] = int(settings["seed"])
    return settings


def _typed(row: Mapping[str, Any], column: str) -> Any:
    """The value of a column, which in SQLite may be of any type."""
    from bloomery.service.registry.tables import CONFIG  # not at the start: it needs SQLAlchemy

    value, wanted = row[column], CONFIG.c[column].type.python_type
    if isinstance(value, (int, float) if wanted is float else wanted):
        return value
    what = {str: "text", int: "a whole number", float: "a number"}[wanted]
    raise errors.InvalidParameter(f"{column} is {sizing.show(value)}, must be {what}")

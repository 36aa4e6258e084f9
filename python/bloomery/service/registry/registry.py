"""The registry: the filters of servers and their samples in SQL tables, for people and dashboards.

It is a projection of the server's state, which never depends on it: whatever happens to the
database, `replace` makes the tables right again. A row that somebody inserted is a wish for a
filter: `claim` gives it to one server, and `put` makes it the row of the filter of its name. If the
database does not answer, or refuses, that is RegistryUnavailable, with no password in the message.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from importlib import import_module
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from time import monotonic, time
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError

from bloomery.errors import RegistryUnavailable
from bloomery.service.registry.database import Database
from bloomery.service.registry.rows import RegistryRow, moment, seconds_of
from bloomery.service.registry.tables import CONFIG, METADATA, STATS
from bloomery.service.sampling.sample import RAW, SPANS, Sample, columns_as_dict

if find_spec("alembic") is None:  # imported when the tables are made; missing, it is said now
    raise ModuleNotFoundError("No module named 'alembic'", name="alembic")

_T = TypeVar("_T")
_BATCH = 500  # rows in one statement
_SAMPLES = 100  # the same of samples: while they are made ready, a millisecond, nobody is served
_KEY = ("server", "number")
_MIGRATING = 7_236_281_904  # an advisory lock's number: two servers that start at once take turns
# Samples that one call removes: a million at once took PostgreSQL longer than a statement may.
MOST_PRUNED = 50_000
_MOST_CLAIMED = 100
# Seconds until a row with a problem is tried again: a name may be free, or memory.
TRY_AGAIN = 60.0
_LONGEST_PROBLEM = 1000
# What a row says about the filter that it wishes for.
_WISH = [
    *(CONFIG.c.id, CONFIG.c.name, CONFIG.c.kind, CONFIG.c.expected_elements, CONFIG.c.fp_rate),
    *(CONFIG.c.layout, CONFIG.c.hasher, CONFIG.c.seed, CONFIG.c.window_seconds),
    *(CONFIG.c.counter_bits, CONFIG.c.expansion),
    CONFIG.c.expires_at.is_not(None).label("expires"),  # not itself: a time may be any text
]


class Registry(Database):
    """The tables at a URL, and in them one server's rows."""

    def __init__(self, url: str | Path, server: str) -> None:
        """Connects to nothing yet, as every `Database`."""
        super().__init__(url)
        self.server = server
        # One of the two: PostgreSQL's takes 40 ms to import, for which a restart would wait.
        upsert: Any = import_module(f"sqlalchemy.dialects.{self._engine.dialect.name}").insert
        insert = upsert(CONFIG)
        kept = {c.name for c in CONFIG.c} - {"id", "problem", *_KEY}
        self._upsert = insert.on_conflict_do_update(
            index_elements=_KEY, set_={name: insert.excluded[name] for name in kept}
        )

        self._looked: tuple[float, list[tuple[int, int]]] = (0.0, [])  # when, and the files then
        # For the driver itself: SQLAlchemy took half of the time that a sample takes to be written.
        dialect = self._engine.dialect
        self._insert = str(_insert_of_samples().compile(dialect=dialect))
        self._as_time = STATS.c.sampled_at.type.dialect_impl(dialect).bind_processor(dialect)

    def __repr__(self) -> str:
        return f"<Registry at {self._place()}, server {self.server}>"

    def migrate(self, revision: str = "head") -> None:
        """Make the tables, those too that were dropped, or bring older ones to this schema."""
        # Imported here, in the thread that writes the tables: a restart does not wait for it.
        from alembic import command
        from alembic.config import Config
        from alembic.util import CommandError

        config = Config()
        folder = str(Path(__file__).parent / "migrations")
        config.set_main_option("script_location", folder.replace("%", "%%"))
        with self._transaction() as connection:
            if self.is_postgresql:
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_MIGRATING)))
            config.attributes["connection"] = connection
            try:
                command.upgrade(config, revision)
            except CommandError as failure:
                raise RegistryUnavailable(
                    f"the registry at {self._place()} has a schema that this bloomery does not "
                    f"know ({failure}): a newer one made it; run that, or give another database"
                ) from None
            if revision == "head":  # a table that somebody dropped: no revision makes it again
                # By name, in small letters: PostgreSQL folds those that stand without quotes.
                there = {name.lower() for name in sa.inspect(connection).get_table_names()}
                gone = [
                    table for table in METADATA.sorted_tables if table.name.lower() not in there
                ]
                METADATA.create_all(connection, gone, checkfirst=False)

    def replace(self, rows: Iterable[RegistryRow]) -> dict[int, str]:
        """Make these the only rows of this server; return those that were refused, as `put`.

        Samples of filters that stay are kept. Another server's rows are never touched.
        """
        with self._transaction() as connection:
            refused: dict[int, str] = {}
            given: set[int] = set()
            for batch in _batches(rows):
                given.update(row.id for row in batch)
                refused |= self._put(connection, batch)
            there = sa.select(CONFIG.c.number).where(CONFIG.c.server == self.server)
            gone = set(connection.scalars(there.where(CONFIG.c.number.is_not(None)))) - given
            self._drop(connection, gone)
        return refused

    def put(self, rows: Iterable[RegistryRow]) -> dict[int, str]:
        """Write rows; return the ids that were refused, and why: another server has the name."""
        with self._transaction() as connection:
            refused: dict[int, str] = {}
            for batch in _batches(rows):
                refused |= self._put(connection, batch)
            return refused

    def claim(self) -> list[dict[str, Any]]:
        """Take rows that somebody inserted: no other server has them from now on. Return what they
        say, those that were taken before and are still no filters among them."""
        if self._is_unchanged():
            return []
        unmade = CONFIG.c.number.is_(None)
        ours = sa.or_(CONFIG.c.server.is_(None), CONFIG.c.server == self.server)
        again = CONFIG.c.updated_at < moment(time() - TRY_AGAIN)
        wanted = sa.select(CONFIG.c.id).where(
            unmade, ours, sa.or_(CONFIG.c.problem.is_(None), again)
        )
        with self._transaction(reading=True) as connection:
            oldest = wanted.order_by(CONFIG.c.updated_at).limit(_MOST_CLAIMED)
            ids = connection.scalars(oldest).all()
        if not ids:
            return []
        these = sa.and_(CONFIG.c.id.in_(ids), unmade)
        with self._transaction() as connection:
            untaken = sa.update(CONFIG).where(these, CONFIG.c.server.is_(None))
            connection.execute(untaken.values(server=self.server))
            wishes = sa.select(*_WISH).where(these, CONFIG.c.server == self.server)
            return [dict(row) for row in connection.execute(wishes).mappings()]

    def _is_unchanged(self) -> bool:
        """Has nobody written to SQLite's files since `claim` looked last, and not long ago? To look
        takes 2 ms of Python's lock, which the server's own thread may wait for; this, 10 us."""
        if self.is_postgresql:
            return False
        stamps = [_stamp(f"{self._engine.url.database}{end}") for end in ("", "-wal")]
        looked, stamps_then = self._looked
        if stamps == stamps_then and monotonic() < looked + TRY_AGAIN:
            return True
        self._looked = (monotonic(), stamps)
        return False

    def note_problems(self, problems: Mapping[int, str]) -> None:
        """Write into rows (by their ids) that this server has taken why they are no filters."""
        with self._transaction() as connection:
            for row_id, why in problems.items():
                shown = why.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")
                connection.execute(
                    sa.update(CONFIG)
                    .where(CONFIG.c.id == row_id, CONFIG.c.server == self.server)
                    .values(problem=shown[:_LONGEST_PROBLEM], updated_at=moment(time()))
                )

    def drop(self, ids: Iterable[int]) -> None:
        """Remove filters, with their samples."""
        with self._transaction() as connection:
            self._drop(connection, ids)

    def add_samples(self, rows: Iterable[Sample]) -> None:
        """Write samples; those of filters that are not there are left out."""
        with self._transaction() as connection:
            for batch in _batches(rows, _SAMPLES):
                connection.exec_driver_sql(self._insert, [self._sample(row) for row in batch])

    def prune(self, before: Mapping[int, float]) -> None:
        """Remove this server's samples from before a time (an epoch), for each span its own; the
        oldest first, and no more than MOST_PRUNED of a span at once."""
        own = sa.select(CONFIG.c.id).where(CONFIG.c.server == self.server)
        with self._transaction() as connection:
            for span, until in before.items():
                old = sa.select(STATS.c.id).where(
                    STATS.c.span == span,
                    STATS.c.sampled_at < moment(until),
                    STATS.c.filter_id.in_(own),
                )
                oldest = old.order_by(STATS.c.sampled_at).limit(MOST_PRUNED)
                connection.execute(sa.delete(STATS).where(STATS.c.id.in_(oldest)))

    def samples(
        self, number: int, *, since: float, until: float, span: int = RAW, limit: int = 1000
    ) -> list[dict[str, Any]]:
        """The samples of a filter (the server's number for it) from `since` on and before `until`,
        ready for JSON, oldest first; if there are more than `limit`, the latest of them."""
        names = [column for column in STATS.c if column.name not in ("id", "filter_id")]
        query = (
            sa.select(*names)
            .join(CONFIG, CONFIG.c.id == STATS.c.filter_id)
            .where(CONFIG.c.server == self.server, CONFIG.c.number == number)
            .where(STATS.c.span == span)
            .where(STATS.c.sampled_at >= moment(since), STATS.c.sampled_at < moment(until))
            .order_by(STATS.c.sampled_at.desc())
            .limit(limit)
        )
        with self._transaction(reading=True) as connection:
            rows = connection.execute(query).mappings().all()
        return [
            columns_as_dict({**row, "sampled_at": seconds_of(row["sampled_at"])})
            for row in reversed(rows)
        ]

    def newest(self) -> float | None:
        """When the newest sample was taken, of whichever server; None if there is none."""
        latest = sa.select(sa.func.max(STATS.c.sampled_at))  # of a span: the index has it
        with self._transaction(reading=True) as connection:
            times: list[datetime | None] = [
                connection.scalar(latest.where(STATS.c.span == span)) for span in SPANS
            ]
        return max((seconds_of(at) for at in times if at is not None), default=None)

    def _sample(self, row: Sample) -> dict[str, Any]:
        values = row.values()
        values["of_server"] = self.server
        if self._as_time is not None:
            values["sampled_at"] = self._as_time(values["sampled_at"])
        return values

    # ---- inside a transaction

    def _put(self, connection: sa.Connection, rows: Sequence[RegistryRow]) -> dict[int, str]:
        written = {"server": self.server, "updated_at": moment(time())}
        values = [row.values() | written for row in rows]
        self._make_way(connection, {value["name"]: value["number"] for value in values})
        try:
            with connection.begin_nested():
                connection.execute(self._upsert, values)
            return {}
        except (IntegrityError, DataError):  # of which row it does not say
            pass
        refused = {}
        for value in values:
            try:
                with connection.begin_nested():
                    connection.execute(self._upsert, value)
            except (IntegrityError, DataError) as failure:
                refused[value["number"]] = self._why(connection, value["name"], failure)
        self._drop(connection, refused)  # what it was before is no longer true
        return refused

    def _make_way(self, connection: sa.Connection, names: dict[str, int]) -> None:
        """Take from this server's other filters the names that these have now; and make rows that
        somebody inserted those of the filters that have their names.

        Two filters may have changed names, and a row is written at a time; the other one's new
        name comes later. Until then it has one that `printable` gives to nobody.
        """
        # By name alone: with the server in the question too PostgreSQL, before its first ANALYZE,
        # went through all rows of the server for each batch.
        asked = sa.select(CONFIG.c.id, CONFIG.c.name, CONFIG.c.server, CONFIG.c.number)
        rows = connection.execute(asked.where(CONFIG.c.name.in_(names))).all()
        for row_id, name, server, number in rows:
            if number is None and server in (None, self.server):
                self._hand_over(connection, row_id, names[name])
            elif server == self.server and number != names[name]:
                connection.execute(
                    sa.update(CONFIG)
                    .where(CONFIG.c.server == self.server, CONFIG.c.number == number)
                    .values(name=f"\\renamed {self.server} {number}")
                )

    def _hand_over(self, connection: sa.Connection, row_id: int, number: int) -> None:
        """Let a row that somebody inserted be that of a filter; if that has one with samples, under
        the name it had before, the filter keeps it instead."""
        mine = sa.and_(CONFIG.c.server == self.server, CONFIG.c.number == number)
        row = CONFIG.c.id == row_id
        if connection.scalar(sa.select(CONFIG.c.id).where(mine)) is not None:
            connection.execute(sa.delete(CONFIG).where(row))
        else:
            taken = {"server": self.server, "number": number, "problem": None}
            connection.execute(sa.update(CONFIG).where(row).values(taken))

    def _why(self, connection: sa.Connection, name: str, failure: DBAPIError) -> str:
        holder = connection.scalar(sa.select(CONFIG.c.server).where(CONFIG.c.name == name))
        if holder is None:
            return f"filter {name}: {self._describe(failure)}"
        return f"filter {name} of server {self.server} is left out: server {holder} has that name"

    def _drop(self, connection: sa.Connection, ids: Iterable[int]) -> None:
        for batch in _batches(ids):
            these = CONFIG.c.number.in_(batch)
            connection.execute(sa.delete(CONFIG).where(CONFIG.c.server == self.server, these))


def _stamp(path: str) -> tuple[int, int]:
    """Return a file's time of change and size: both stay while nobody writes to it."""
    try:
        status = os.stat(path)
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_size


def _insert_of_samples() -> sa.Insert:
    """The INSERT of samples, by filter number; samples of unknown filters insert nothing."""
    values = [column for column in STATS.c if column.name not in ("id", "filter_id")]
    of_filter = sa.select(
        CONFIG.c.id, *(sa.bindparam(column.name, type_=column.type) for column in values)
    ).where(
        CONFIG.c.server == sa.bindparam("of_server"),
        CONFIG.c.number == sa.bindparam("of_number"),
    )
    return sa.insert(STATS).from_select(
        ["filter_id", *(column.name for column in values)], of_filter
    )


def _batches(rows: Iterable[_T], most: int = _BATCH) -> Iterator[list[_T]]:
    rows = iter(rows)
    while batch := list(islice(rows, most)):
        yield batch

"""A filter as a function of DuckDB: after `register(con, "seen", filter)`, `WHERE seen(id)`.

A function of DuckDB has parameters of one type, and a column of another would be refused or, worse,
cast to it: the text of a number is another key than the number. So the name that users call is a
macro, which chooses by the type of its argument, while the query is planned, one of a few
functions, and is an error where the rows are no keys. It is temporary: no database file keeps it.

These functions are native where that is possible: importing this module gives them to every
database that is opened in this process afterwards (`crates/python/src/duckdb.rs`). Elsewhere they
are Python's, which get their rows as Arrow, 2,048 at a time: no Python object a row, but a call
that costs more than the filter does.
"""

from __future__ import annotations

import itertools
from importlib.util import find_spec
from typing import Any, Literal

from bloomery._native import DuckDBFilter, offer_to_duckdb
from bloomery.extras import needed
from bloomery.types import ContainsMany

with needed("duckdb", "bloomery.integrations.duckdb"):
    import duckdb
with needed("pyarrow", "bloomery.integrations.duckdb", "duckdb"):
    import pyarrow as pa

# Its enum is in another module of DuckDB from version to version; all of them take the word.
_ARROW: Any = "arrow"

# Of each function: the type of its parameter, and which types of DuckDB it is for, as a condition
# on `type`. To Python UUIDs come as their 16 bytes: as Arrow they would be text unless the
# connection was told otherwise.
_KINDS = {
    "int": (
        "BIGINT",
        "type IN ('TINYINT', 'SMALLINT', 'INTEGER', 'BIGINT', 'UTINYINT', 'USMALLINT', 'UINTEGER')",
    ),
    "uint": ("UBIGINT", "type = 'UBIGINT'"),
    "text": ("VARCHAR", "type IN ('VARCHAR', 'JSON') OR starts_with(type, 'ENUM(')"),
    "blob": ("BLOB", "type = 'BLOB'"),
    "uuid": ("BLOB", "type = 'UUID'"),
}
_NATIVE_PARAMETERS = {kind: parameter for kind, (parameter, _) in _KINDS.items()} | {"uuid": "UUID"}
_UUID = pa.schema([pa.field("key", pa.binary(16), metadata={"ARROW:extension:name": "arrow.uuid"})])
# All connections of a database share its functions, and each has macros of its own: so functions
# have a number in their names, another one for each registration in the process.
_NUMBERS = itertools.count(1)


def _offered() -> bool:
    """Does DuckDB take our functions? Before 2.0 there is no such module, and no way to offer."""
    module = find_spec("_duckdb")
    return module is not None and module.origin is not None and offer_to_duckdb(module.origin)


_OFFERED = _offered()


def register(
    con: duckdb.DuckDBPyConnection, name: str, filter: ContainsMany
) -> Literal["native", "python"]:
    """Make `name(column)` a function of this connection: true where the filter may contain the
    row's key, false where it definitely does not, NULL where the row is NULL.

    Columns of ints, text, enums, blobs and UUIDs are keys, the same as in the library; others are
    an error that names the type. Registering a name again puts another filter in its place.
    A cursor of the connection is another one, and is registered with by itself.

    Returns who asks the filter: "native" code, which is some times as fast, or "python". It is
    Python for a database that was opened before this module was imported, for filters that are in
    Redis, behind a server or rotate, for classes with a `contains_many` of their own, and for
    DuckDB before 2.0.
    """
    unregister(con, name)
    number = next(_NUMBERS)
    con.execute(f"CREATE TEMP MACRO {_quoted(_record(name))}() AS {number}")
    # Where an object answers by itself, and not by its class, only Python can ask it.
    by_class = hasattr(type(filter), "contains_many") and "contains_many" not in _own(filter)
    native = DuckDBFilter.of(filter) if by_class and _has_native(con) else None
    cases: list[str] = []
    for kind, (parameter, condition) in _KINDS.items():
        helper = _helper(number, kind)
        # One is there for a native filter too, and never called: it keeps the filter for as long as
        # the connection is there.
        if not native or not cases:
            answering = _answering(filter, kind, native)
            con.create_function(helper, answering, [parameter], "BOOLEAN", type=_ARROW)
        # Only the branch of the argument's type is left when the query runs; the others must be
        # castable in principle, which is what TRY_CAST says.
        call = f"{helper}(TRY_CAST(key AS {parameter}))"
        if native:
            key = f"TRY_CAST(key AS {_NATIVE_PARAMETERS[kind]})"
            call = f"bloomery_{kind}({native.number}::UINTEGER, {key})"
        cases.append(f"WHEN {condition.replace('type', 'typeof(key)')} THEN {call}")
    refusal = _text(
        f"{name}() takes ints, text, blobs and UUIDs: cast the column to the type of the keys that "
        "were added; it is of type "
    )
    con.execute(
        f"CREATE OR REPLACE TEMP MACRO {_quoted(name)}(key) AS CASE {' '.join(cases)} "
        f"WHEN typeof(key) = '\"NULL\"' THEN NULL ELSE error({refusal} || typeof(key)) END"
    )
    return "native" if native else "python"


def unregister(con: duckdb.DuckDBPyConnection, name: str) -> None:
    """Take the function away, and let go of its filter; nothing happens if there is none."""
    record = _record(name)
    known = con.execute(
        "SELECT macro_definition FROM duckdb_functions() "
        "WHERE database_name = 'temp' AND lower(function_name) = lower(?)",
        [record],
    ).fetchone()
    for macro in (name, record):
        con.execute(f"DROP MACRO IF EXISTS temp.{_quoted(macro)}")
    if known is None:
        return
    for kind in _KINDS:
        try:
            con.remove_function(_helper(int(known[0]), kind))
        except duckdb.InvalidInputException:
            return  # they come and go together, and of a native filter there is one


def _own(filter: object) -> dict[str, Any]:
    return getattr(filter, "__dict__", {})


def _has_native(con: duckdb.DuckDBPyConnection) -> bool:
    """Was the database opened after the native functions were offered?"""
    if not _OFFERED:
        return False
    try:
        # By a cursor, whose transaction is its own: the error would end one of the connection's.
        with con.cursor() as asking:
            asking.execute("SELECT bloomery_int(NULL, NULL)")
    except duckdb.CatalogException:
        return False
    return True


def _answering(filter: ContainsMany, kind: str, native: DuckDBFilter | None) -> Any:
    """The function that DuckDB calls with a column of this kind; it leaves NULLs out itself."""
    held = filter, native

    def answer(keys: Any) -> Any:
        # One vector is one chunk, which is handed over at half the price of a stream of them.
        keys = keys.chunk(0) if keys.num_chunks == 1 else keys
        if kind == "uuid":
            keys = pa.record_batch([keys.cast(pa.binary(16))], schema=_UUID)
        return pa.array(held[0].contains_many(keys), pa.bool_())

    return answer


def _helper(number: int, kind: str) -> str:
    return f"bloomery_{number}_{kind}"


def _record(name: str) -> str:
    """The macro that says by which number the helpers of a function are called."""
    return f"bloomery number of {name}"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"

"""A filter as a function of DuckDB: after `register(con, "seen", filter)`, `WHERE seen(id)`.

DuckDB gives a function in Python its rows as Arrow, 2,048 at a time: no Python object a row. Such a
function has parameters of one type, and a column of another would be refused or, worse, cast to it:
the text of a number is another key than the number. So the name that users call is a macro, which
chooses by the type of its argument, while the query is planned, one of a few functions, and is an
error where the rows are no keys. It is temporary: no database file keeps it.
"""

from __future__ import annotations

from typing import Any

from bloomery.extras import needed
from bloomery.types import ContainsMany

with needed("duckdb", "bloomery.integrations.duckdb"):
    import duckdb
with needed("pyarrow", "bloomery.integrations.duckdb", "duckdb"):
    import pyarrow as pa

# Its enum is in another module of DuckDB from version to version; all of them take the word.
_ARROW: Any = "arrow"

# Of each function of Python: the type of its parameter, and which types of DuckDB it is for, as a
# condition on `type`. UUIDs come as their 16 bytes: as Arrow they would be text unless the
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
_UUID = pa.schema([pa.field("key", pa.binary(16), metadata={"ARROW:extension:name": "arrow.uuid"})])


def register(con: duckdb.DuckDBPyConnection, name: str, filter: ContainsMany) -> None:
    """Make `name(column)` a function of this connection: true where the filter may contain the
    row's key, false where it definitely does not, NULL where the row is NULL.

    Columns of ints, text, enums, blobs and UUIDs are keys, the same as in the library; others are
    an error that names the type. Registering a name again puts another filter in its place.
    A cursor of the connection is another one, and is registered with by itself.
    """
    unregister(con, name)
    cases = []
    for kind, (parameter, condition) in _KINDS.items():
        con.create_function(
            _helper(name, kind), _answering(filter, kind), [parameter], "BOOLEAN", type=_ARROW
        )
        # Only the branch of the argument's type is left when the query runs; the others must be
        # castable in principle, which is what TRY_CAST says.
        call = f"{_quoted(_helper(name, kind))}(TRY_CAST(key AS {parameter}))"
        cases.append(f"WHEN {condition.replace('type', 'typeof(key)')} THEN {call}")
    refusal = _text(
        f"{name}() takes ints, text, blobs and UUIDs: cast the column to the type of the keys that "
        "were added; it is of type "
    )
    con.execute(
        f"CREATE OR REPLACE TEMP MACRO {_quoted(name)}(key) AS CASE {' '.join(cases)} "
        f"WHEN typeof(key) = '\"NULL\"' THEN NULL ELSE error({refusal} || typeof(key)) END"
    )


def unregister(con: duckdb.DuckDBPyConnection, name: str) -> None:
    """Take the function away, and let go of its filter; nothing happens if there is none."""
    con.execute(f"DROP MACRO IF EXISTS temp.{_quoted(name)}")
    for kind in _KINDS:
        try:
            con.remove_function(_helper(name, kind))
        except duckdb.InvalidInputException:
            return  # they come and go together


def _answering(filter: ContainsMany, kind: str) -> Any:
    """The function that DuckDB calls with a column of this kind; it leaves NULLs out itself."""

    def answer(keys: Any) -> Any:
        # One vector is one chunk, which is handed over at half the price of a stream of them.
        keys = keys.chunk(0) if keys.num_chunks == 1 else keys
        if kind == "uuid":
            keys = pa.record_batch([keys.cast(pa.binary(16))], schema=_UUID)
        return pa.array(filter.contains_many(keys), pa.bool_())

    return answer


def _helper(name: str, kind: str) -> str:
    return f"bloomery_{name}_{kind}"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"

"""The doors that a batch can come through, and keys of every type to bring."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np

from conftest import require

UUIDS = [UUID(int=5), UUID(int=2**128 - 1), UUID("12345678-1234-5678-1234-567812345678")]
KEYS: dict[str, list[Any]] = {
    "int": [0, -1, 1, 127, 2**63 - 1, -(2**63)],
    "uint64": [5, 2**63, 2**64 - 1],
    "large int": [2**64, -(2**70), 2**200],
    "bool": [True, False],
    "str": ["", "a", "é", "a string of more than twelve bytes", "a\0", "a\0b", "\0a"],
    "bytes": [b"", b"a", b"\xff\0", b"\0a", b"0123456789abcdef", b"more than twelve bytes"],
    "16 bytes": [one.bytes for one in UUIDS],
    "uuid": UUIDS,
    "uuid text": [str(one) for one in UUIDS],
    "datetime": [datetime(2026, 1, 31, 12), datetime(1960, 1, 1, 0, 0, 0, 7)],
    "instant": [datetime(2026, 1, 31, 12, tzinfo=timezone.utc)],
    "tuple": [(1, "a"), ("a", (2, b"b"))],
    "mixed": [1, "a", b"\xff", UUIDS[0], (1, 2)],
    "float": [1.5, 2.0],
    "date": [date(2026, 1, 31)],
    "decimal": [Decimal(1), Decimal("1.5")],
}

NO_KEYS = {"float", "date", "decimal"}


class Door:
    """How keys become a batch, how the batch's library shows them, and what must be taken."""

    def __init__(
        self, make: Callable[[list[Any]], Any], show: Callable[[Any], list[Any]], takes: str = ""
    ) -> None:
        self.make, self.show = make, show
        self.takes = {one.strip() for one in takes.split(",")} - {""}


def _python() -> Iterator[tuple[str, Door]]:
    most = "int, uint64, large int, bool, str, bytes, 16 bytes, uuid, uuid text"
    every = f"{most}, datetime, instant, tuple, mixed"
    yield "list", Door(list, list, every)
    yield "tuple", Door(tuple, list, every)
    yield "iterable", Door(lambda keys: dict.fromkeys(keys), list, every)


def _numpy() -> Iterator[tuple[str, Door]]:
    def objects(keys: list[Any]) -> Any:
        array = np.empty(len(keys), object)
        array[:] = keys
        return array

    def shown(array: Any) -> list[Any]:
        return list(array.tolist())

    every = ", ".join(set(KEYS) - NO_KEYS)
    yield "numpy", Door(np.array, shown, "int, bool, str, bytes, 16 bytes, uuid")
    yield "numpy objects", Door(objects, shown, every)
    yield "numpy strided", Door(lambda keys: np.array(keys)[::-2], shown, "int, str, bytes")
    if hasattr(np.dtypes, "StringDType"):
        string = np.dtypes.StringDType
        yield "numpy StringDType", Door(lambda keys: np.array(keys, string()), shown, "str")


def _arrow() -> Iterator[tuple[str, Door]]:
    pa = require("pyarrow")

    def array(keys: list[Any]) -> Any:
        types: dict[type, Any] = {UUID: pa.uuid()}
        if _ints(keys) and max(keys) > 2**63:
            types[int] = pa.uint64()
        return pa.array(keys, types.get(type(keys[0])))

    def shown(batch: Any) -> list[Any]:
        return list(batch.to_pylist())

    def first(batch: Any) -> list[Any]:
        return list(batch.column(0).to_pylist())

    def as_type(name: str) -> Callable[[list[Any]], Any]:
        return lambda keys: pa.array(keys, getattr(pa, name)())

    def other(keys: list[Any]) -> Any:
        kind = type("Other", (pa.ExtensionType,), {"__arrow_ext_serialize__": lambda _: b""})
        storage = array(keys)
        return pa.ExtensionArray.from_storage(kind(storage.type, "bloomery.other"), storage)

    def ends(batch: Any) -> Any:
        return pa.RunEndEncodedArray.from_arrays(range(1, len(batch) + 1), batch)

    def coded(keys: list[Any]) -> Any:
        return pa.DictionaryArray.from_arrays(pa.array(range(len(keys)), pa.int8()), array(keys))

    plain = "int, uint64, str, bytes, 16 bytes, uuid, uuid text"
    yield "pyarrow", Door(array, shown, plain)
    yield "pyarrow sliced", Door(lambda keys: array(keys)[1:], shown, plain)
    yield "pyarrow chunked", Door(lambda keys: pa.chunked_array([array(keys)] * 2), shown, plain)
    yield "pyarrow table", Door(lambda keys: pa.table({"key": array(keys)}), first, plain)
    yield "pyarrow batch", Door(lambda keys: pa.record_batch({"key": array(keys)}), first, plain)
    yield "pyarrow dictionary", Door(coded, shown, plain)
    yield "pyarrow run-end", Door(lambda keys: ends(array(keys)), shown)
    yield "pyarrow list", Door(lambda keys: pa.array([[key] for key in keys]), shown)
    nested = lambda keys: pa.table({"key": pa.array([{"a": key} for key in keys])})  # noqa: E731
    yield "pyarrow nested struct", Door(nested, first)
    for name in ("large_string", "string_view", "large_binary", "binary_view", "json_", "bool8"):
        takes = "str, uuid text" if "string" in name or name == "json_" else "bytes, 16 bytes"
        yield f"pyarrow {name}", Door(as_type(name), shown, takes if name != "bool8" else "")
    fixed = lambda keys: pa.array(keys, pa.binary(16))  # noqa: E731
    yield "pyarrow fixed", Door(fixed, shown, "16 bytes")
    yield "pyarrow other extension", Door(other, shown)


def _ints(keys: list[Any]) -> bool:
    return all(type(key) is int for key in keys)


def _pandas() -> Iterator[tuple[str, Door]]:
    pa, pd = require("pyarrow"), require("pandas")
    arrow = dict(_arrow())["pyarrow"].make

    def shown(column: Any) -> list[Any]:
        return list(column.tolist())

    def only(frame: Any) -> list[Any]:
        return list(frame.iloc[:, 0].tolist())

    def made(keys: list[Any]) -> Any:
        return pd.arrays.ArrowExtensionArray(pa.chunked_array([arrow(keys)]))

    every = ", ".join(set(KEYS) - NO_KEYS)
    some = "int, uint64, large int, bool, str, bytes, uuid, tuple, mixed"
    objects = lambda keys: pd.Series(keys, dtype=object)  # noqa: E731
    yield "pandas", Door(pd.Series, shown, some)
    yield "pandas objects", Door(objects, shown, every)
    yield "pandas frame", Door(lambda keys: pd.DataFrame({"key": pd.Series(keys)}), only, some)
    yield "pandas index", Door(pd.Index, shown, "int, str, bytes, uuid")
    yield "pandas index of objects", Door(lambda keys: pd.Index(keys, dtype=object), shown, every)
    category = lambda keys: pd.Series(keys).astype("category")  # noqa: E731
    yield "pandas category", Door(category, shown, "int, str, bytes, uuid, mixed")
    yield "pandas Categorical", Door(pd.Categorical, shown, "int, str, bytes, uuid")
    yield "pandas nullable", Door(lambda keys: pd.Series(keys).convert_dtypes(), shown, "int, str")
    yield "pandas array", Door(pd.array, shown, "int, str")
    yield "pandas string", Door(lambda keys: pd.Series(keys, dtype="string"), shown, "str")
    yield "pandas ArrowDtype", Door(lambda keys: pd.Series(made(keys)), shown, "int, str, uuid")
    yield "pandas ArrowDtype index", Door(lambda k: pd.Index(made(k)), shown, "int, str, uuid")
    yield "pandas ArrowDtype array", Door(made, shown, "int, str, uuid")
    sparse = lambda keys: pd.Series(pd.arrays.SparseArray(keys))  # noqa: E731
    yield "pandas sparse", Door(sparse, shown, "int")
    periods = lambda keys: pd.Series(pd.to_datetime(keys).to_period("D"))  # noqa: E731
    yield "pandas period", Door(periods, shown)
    yield "pandas multi-index", Door(pd.MultiIndex.from_tuples, shown, "tuple")


def _polars() -> Iterator[tuple[str, Door]]:
    pl = require("polars")

    def shown(column: Any) -> list[Any]:
        return list(column.to_list())

    def of(dtype: Any) -> Callable[[list[Any]], Any]:
        return lambda keys: pl.Series(keys, dtype=dtype)

    def frame(keys: list[Any]) -> Any:
        return pl.DataFrame({"key": pl.Series(keys)})

    def only(given: Any) -> list[Any]:
        return list(given.to_series().to_list())

    every = ", ".join(set(KEYS) - NO_KEYS)
    yield "polars", Door(pl.Series, shown, "int, str, bytes, uuid, uuid text")
    yield "polars objects", Door(of(pl.Object), shown, every)
    yield "polars frame", Door(frame, only, "int, str, bytes, uuid")
    yield "polars category", Door(of(pl.Categorical), shown, "str")
    yield "polars enum", Door(lambda keys: pl.Series(keys, dtype=pl.Enum(keys)), shown, "str")
    yield "polars Int128", Door(of(pl.Int128), shown)


def _duckdb() -> Iterator[tuple[str, Door]]:
    duckdb = require("duckdb")
    columns = {
        "int": "BIGINT",
        "uint64": "UBIGINT",
        "large int": "HUGEINT",
        "bool": "BOOLEAN",
        "str": "VARCHAR",
        "bytes": "BLOB",
        "uuid": "UUID",
        "enum": "ENUM('a', 'b')",
        "json": "JSON",
        "bit": "BIT",
        "datetime": "TIMESTAMP",
        "bignum": "BIGNUM",
    }

    def door(kind: str, lossless: bool) -> Callable[[list[Any]], Any]:
        def make(keys: list[Any]) -> Any:
            database = duckdb.connect()
            database.execute(f"SET arrow_lossless_conversion = {lossless}")
            database.execute(f"CREATE TABLE given (key {kind})")
            database.executemany("INSERT INTO given VALUES (?)", [[key] for key in keys])
            return database.table("given")

        return make

    def shown(relation: Any) -> list[Any]:
        return [row[0] for row in relation.fetchall()]

    for name, kind in columns.items():
        takes = {"str": "str, uuid text", "int": "int", "bytes": "bytes, 16 bytes"}.get(name, "")
        yield f"duckdb {name}", Door(door(kind, False), shown, takes)
        takes = "uuid" if name == "uuid" else takes
        yield f"duckdb {name} lossless", Door(door(kind, True), shown, takes)


def doors() -> dict[str, Door]:
    """All of them, by name."""
    parts = (_python(), _numpy(), _arrow(), _pandas(), _polars(), _duckdb())
    return {name: door for part in parts for name, door in part}


DOORS = doors()

"""Rows of Arrow tables as Python objects."""

import datetime

from bloomery.storage.arrow_tables import python_rows
from conftest import require

pa = require("pyarrow")


def test_times_that_python_does_not_have_are_numbers() -> None:
    """Within lists, structs, maps and dictionaries too; the other rows stay what they are."""
    times = pa.array([0, 2**62, None], pa.int64()).cast(pa.timestamp("us"))
    days = pa.array([0, 2**30, None], pa.int32()).cast(pa.date32())
    lists = pa.ListArray.from_arrays([0, 1, 3, 3], times)
    table = pa.table(
        {
            "time": times,
            "day": days,
            "list": lists,
            "struct": pa.StructArray.from_arrays([times, days], ["time", "day"]),
            "map": pa.MapArray.from_arrays([0, 1, 2, 2], ["a", "b", "c"], times),
            "dictionary": pa.DictionaryArray.from_arrays([0, 1, None], times),
            "text": ["x", "y", None],
        }
    )
    time, day = datetime.datetime(1970, 1, 1), datetime.date(1970, 1, 1)
    first, second, third = python_rows(table)
    assert first == {
        "time": time,
        "day": day,
        "list": [time],
        "struct": {"time": time, "day": day},
        "map": [("a", time)],
        "dictionary": time,
        "text": "x",
    }
    assert second == {
        "time": 2**62,
        "day": 2**30,
        "list": [2**62, None],
        "struct": {"time": 2**62, "day": 2**30},
        "map": [("b", 2**62)],
        "dictionary": 2**62,
        "text": "y",
    }
    assert third["time"] is third["day"] is third["dictionary"] is third["text"] is None

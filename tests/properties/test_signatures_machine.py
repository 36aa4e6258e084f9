"""A signature index beside a list of rows: whatever is done to both, the same rows are found."""

from __future__ import annotations

import datetime as dt
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from conftest import effort, require

pa = require("pyarrow")
from bloomery.signatures import SignatureIndex  # noqa: E402

TYPES = {
    "n": pa.int16(),
    "s": pa.string(),
    "d": pa.date32(),
    "f": pa.float64(),
    "c": pa.dictionary(pa.int8(), pa.string()),
}
# Few values, so that questions have rows, and some of each kind that is easily confused.
VALUES: dict[str, Any] = {
    "n": st.sampled_from([0, 1, -1, 32767, -32768]),
    "s": st.sampled_from(["", "0", "a", "\0", "ż"]),
    "d": st.sampled_from([dt.date(1970, 1, 1), dt.date(1970, 1, 2), dt.date(1, 1, 1)]),
    "f": st.sampled_from([0.0, -0.0, 1.0, 1e300]),
    "c": st.sampled_from(["", "0", "a"]),
}
rows_of = st.lists(
    st.fixed_dictionaries({name: st.none() | values for name, values in VALUES.items()}),
    max_size=70,
)
questions = st.fixed_dictionaries({}, optional=VALUES).filter(bool)


def table(rows: list[dict[str, Any]]) -> Any:
    """Rows as Arrow has them."""
    return pa.table({name: pa.array([r[name] for r in rows], t) for name, t in TYPES.items()})


class IndexBesideRows(RuleBasedStateMachine):
    """Every rule does the same to the index and to the list it is measured against."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="bloomery-signatures-"))
        self.rows: list[dict[str, Any]] = []
        self.index = SignatureIndex.build(table([]))

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    @initialize(
        rows=rows_of, length=st.sampled_from([4, 16, 80, 600]), bits=st.sampled_from([1, 2, 4])
    )
    def build(self, rows: list[dict[str, Any]], length: int, bits: int) -> None:
        self.rows = list(rows)
        self.index = SignatureIndex.build(table(rows), length=length, bits=bits)

    @rule(rows=rows_of, copies=st.sampled_from([1, 1, 40, 900]))
    @precondition(lambda self: len(self.rows) < 40_000)
    def append(self, rows: list[dict[str, Any]], copies: int) -> None:
        more = rows * copies
        assert self.index.append(table(more)) == len(more)
        self.rows += more

    @rule(rows=rows_of)
    def append_fails(self, rows: list[dict[str, Any]]) -> None:
        def stop(_: int) -> None:
            raise InterruptedError

        try:
            self.index.append(table(rows), progress=stop)
        except InterruptedError:
            pass
        else:
            assert not rows

    @rule(mmap=st.booleans())
    def save_and_load(self, mmap: bool) -> None:
        path = self.folder / "index.sig"
        self.index.save(path)
        self.index = SignatureIndex.load(path, table(self.rows), mmap=mmap, verify=True)

    @rule(asked=questions)
    def ask(self, asked: dict[str, Any]) -> None:
        expected = [
            number
            for number, row in enumerate(self.rows)
            if all(row[name] == value for name, value in asked.items())
        ]
        candidates = self.index.candidates(asked).tolist()
        assert candidates == sorted(set(candidates))
        assert set(expected) <= set(candidates)
        assert all(number < len(self.rows) for number in candidates)
        assert self.index.find(asked).to_pylist() == [self.rows[number] for number in expected]

    @invariant()
    def size(self) -> None:
        assert self.index.num_rows == len(self.rows)
        assert self.index.nbytes == -(-len(self.rows) // 512) * 64 * self.index.length


TestIndexBesideRows = IndexBesideRows.TestCase
TestIndexBesideRows.settings = settings(
    settings.default, max_examples=effort(10, 25, 1000), stateful_step_count=12
)

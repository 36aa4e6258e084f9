"""One index for many columns: a small signature a row, as PostgreSQL's bloom index has it.

A row's signature is a Bloom filter of its values: 80 bits, of which each column sets 2, unless said
otherwise. It is stored bit by bit, one bitmap over all rows for each (`crates/core/signatures.rs`):
a question ANDs the bitmaps of its bits and reads no others. What is left, the candidates, compare
themselves: `find` returns rows that are equal, and never misses one.

    columns.py    values as keys, and their equality
    rows.py       rows in tables; parquet.py: in files
    index.py      the index
    saved.py      the index as a file
    plan.py       what it weighs and lets through
    advice.py     length and bits for PostgreSQL's own index; postgres.py reads a table's statistics
"""

from typing import TYPE_CHECKING, Any

from bloomery import extras
from bloomery.signatures.plan import SignaturePlan, plan

if TYPE_CHECKING:
    from bloomery.signatures.index import SignatureIndex

__all__ = ["SignatureIndex", "SignaturePlan", "plan"]


def __getattr__(name: str) -> Any:
    """The index with its first use: plans and advice need no pyarrow."""
    if name != "SignatureIndex":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with extras.needed("pyarrow", "SignatureIndex"):
        import pyarrow  # noqa: F401
    from bloomery.signatures.index import SignatureIndex

    return SignatureIndex

"""A filter file out of a database's rows or a file's, in constant memory, resumable."""

from bloomery.building.build import KINDS, Built, build
from bloomery.building.exact import BuiltExact, build_exact
from bloomery.building.opening import key_batches, open_rows
from bloomery.building.rows import Batch, Rows

__all__ = [
    "KINDS",
    "Batch",
    "Built",
    "BuiltExact",
    "Rows",
    "build",
    "build_exact",
    "key_batches",
    "open_rows",
]

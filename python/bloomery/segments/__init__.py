"""Segment skipping: a filter in front of each part of the data, so that most parts are not read.

`SegmentStore` is what an LSM tree does: a memtable with a write-ahead log, flushed to immutable
sorted segments, each with a filter, read from the newest to the oldest.

    put ─> log ─> memtable ─flush─> segment 3, segment 2, segment 1
    get ─> memtable ─> filters of all segments, in one native call ─> segments that may have it

    MANIFEST          names the log and the segments; replaced as a whole
    wal-NNNNNN.log    what the memtable holds; replayed when the store is opened
    segment-*.sqlite  keys and values in order; never changed
    segment-*.filter  a saved filter; made anew if it is damaged

What the manifest does not name is removed when the store is opened: a crash leaves the store as it
was before a flush or a compaction, or as it was after it. Segments and logs that are damaged are
refused, for nobody can say what they held.

`SegmentIndex` does the same for files that are there already: one filter for each row group of a
Parquet file, or each part of a CSV or JSONL file, and each column.
"""

from bloomery.segments.index.index import Candidate, SegmentIndex, Verification
from bloomery.segments.index.indexing import IndexChanges
from bloomery.segments.store.explanation import Explanation, Step
from bloomery.segments.store.store import SegmentStore

__all__ = [
    "Candidate",
    "Explanation",
    "IndexChanges",
    "SegmentIndex",
    "SegmentStore",
    "Step",
    "Verification",
]

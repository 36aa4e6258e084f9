"""An LSM tree in small: a read asks the filters of twenty segments, and opens hardly any.

The same at two rates, as Cassandra's `bloom_filter_fp_chance` sets them for a table: what the
filters take in memory, and how many segments a question for an absent key still reads.
"""

import tempfile
from pathlib import Path

from bloomery.segments import SegmentStore

SEGMENTS, KEYS, QUESTIONS = 20, 2_000, 5_000


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        reads = {}
        for chance in (0.01, 0.1):
            path = Path(folder) / f"at-{chance}"
            with SegmentStore(path, fp_chance=chance, compact_at=0, fsync=False) as store:
                for day in range(SEGMENTS):
                    store.put_many((f"{day}:user:{n}", "seen") for n in range(KEYS))
                    store.flush()  # each day a segment
                assert store.get("7:user:123") == b"seen"
                for number in range(QUESTIONS):
                    assert store.get(f"nobody:{number}") is None
                stats = store.stats()
            reads[chance] = stats["segments_read_in_vain"] / QUESTIONS
            print(
                f"fp_chance {chance}: {stats['filter_bytes']:,} bytes of filters, "
                f"{reads[chance]:.2f} of {SEGMENTS} segments read a question"
            )
        assert reads[0.01] < 0.25 < reads[0.1]

        with SegmentStore(path) as store:
            print(str(store.explain("7:user:123")).splitlines()[-1])
            store.compact()
            print(f"compacted: {store.stats()['segments']} segment")


if __name__ == "__main__":
    main()

"""One user's rows out of a Parquet file that is not sorted by user: most of it is never read.

Filters are added to the file as it is; pages of data are copied, not written again. Needs numpy and
pyarrow.
"""

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bloomery.integrations.parquet import add_bloom, might_contain, read


def main() -> None:
    users = np.random.default_rng(7).integers(0, 10**9, 200_000)
    visits = pa.table({"user": users, "page": np.arange(200_000)})
    with tempfile.TemporaryDirectory() as folder:
        file, filtered = Path(folder, "visits.parquet"), Path(folder, "filtered.parquet")
        pq.write_table(visits, file, row_group_size=10_000)

        added = add_bloom(file, "user", error_rate=0.01, out=filtered)
        growth = filtered.stat().st_size - file.stat().st_size
        print(f"{len(added)} filters, {growth:,} bytes more")

        wanted = int(users[123_456])
        maybe = might_contain(filtered, "user", wanted)
        rows = read(filtered, "user", wanted)
        assert maybe[123_456 // 10_000], "a no is certain"
        assert 123_456 in rows["page"].to_pylist()
        print(f"{sum(maybe)} of {len(maybe)} row groups read, {rows.num_rows} row found")
        assert pq.read_table(filtered).equals(visits), "the data is as it was"


if __name__ == "__main__":
    main()

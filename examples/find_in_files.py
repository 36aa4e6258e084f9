"""Which of many log files has this request id? Filters beside files that stay as they are.

A week of compressed JSON lines, a file an hour. The index reads each file once, when it is new; a
question opens the one file that has the id, and now and then one that the filters let by.
"""

import gzip
import json
import tempfile
from pathlib import Path

from bloomery.segments import SegmentIndex

HOURS, LINES = 7 * 24, 200


def request_id(hour: int, line: int) -> str:
    return f"req-{hour * 7919 + line * 104_729:08x}"


def write_hour(folder: Path, hour: int) -> None:
    path = folder / f"day-{hour // 24}" / f"{hour % 24:02}.jsonl.gz"
    path.parent.mkdir(exist_ok=True)
    with gzip.open(path, "wt") as file:
        for line in range(LINES):
            row = {"request": request_id(hour, line), "user": line % 10, "hour": hour}
            file.write(json.dumps(row) + "\n")


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for hour in range(HOURS - 1):
            write_hour(folder, hour)
        with SegmentIndex.build(folder, ["request"], fp_chance=0.01) as index:
            write_hour(folder, HOURS - 1)  # not indexed yet: it is searched all the same
            late = index.find({"request": request_id(HOURS - 1, 5)})
            assert late.column("hour").to_pylist() == [HOURS - 1]
            assert index.update().added == 1

            asked = range(0, HOURS, 5)
            for hour in asked:
                rows = index.find({"request": request_id(hour, 17)})
                assert rows.column("hour").to_pylist() == [hour]
            stats = index.stats()
            read = stats["parts_read"] - 2  # by the question above: its file, and perhaps one more
            assert read < 4 * len(asked)
            print(f"{len(asked)} questions read {read} of {HOURS * len(asked):,} files")
            print(f"{stats['keys']:,} ids in {stats['filter_bytes']:,} bytes of filters")


if __name__ == "__main__":
    main()

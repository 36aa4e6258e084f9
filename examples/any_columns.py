"""Any combination of columns: one index answers all of them, where a B-tree would serve one.

A table of customers, and questions on whatever columns a person picked in a form. Each row has a
signature of 80 bits; the rows that may be equal compare themselves. Needs pyarrow and numpy.
"""

import time
from itertools import combinations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bloomery.signatures import SignatureIndex

ROWS = 500_000
VALUES = {"city": 3_000, "plan": 40, "age": 90, "shop": 500, "agent": 800}


def main() -> None:
    rng = np.random.default_rng(5)
    table = pa.table({name: rng.integers(0, count, ROWS) for name, count in VALUES.items()})
    index = SignatureIndex.build(table)

    row = table.slice(1234, 1).to_pylist()[0]
    candidates = found = questions = 0
    indexed = scanned = 0.0
    for size in (2, 3):
        for names in combinations(VALUES, size):
            asked = {name: row[name] for name in names}
            began = time.perf_counter()
            rows = index.find(asked)
            indexed += time.perf_counter() - began

            began = time.perf_counter()
            equal = [pc.equal(table[name], value) for name, value in asked.items()]
            exact = table.filter(equal[0])
            for name in names[1:]:
                exact = exact.filter(pc.equal(exact[name], asked[name]))
            scanned += time.perf_counter() - began

            assert rows.equals(exact), "the same rows, in the same order"
            candidates += len(index.candidates(asked))
            found, questions = found + rows.num_rows, questions + 1

    print(f"{questions} questions on {ROWS:,} rows: {found:,} rows of {candidates:,} candidates")
    print(f"{index.nbytes / 1e6:.1f} MB of signatures; the table has {table.nbytes / 1e6:.1f} MB")
    print(f"{indexed / questions * 1e3:.2f} ms a question; a scan {scanned / questions * 1e3:.2f}")


if __name__ == "__main__":
    main()

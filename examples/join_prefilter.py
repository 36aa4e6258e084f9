"""Before a join: drop the rows of the large side that have no partner, without moving them.

The keys of the small side become a filter of a few bits each, cheap to send to whoever holds the
large side. A no is certain, so no row of the result is lost; the few wrong maybes fall out in the
join itself. Needs numpy and pyarrow.
"""

import numpy as np
import pyarrow as pa

from bloomery import BloomFilter


def main() -> None:
    rng = np.random.default_rng(7)
    customers = pa.table({"customer": rng.choice(1_000_000, 5_000, replace=False)})
    orders = pa.table(
        {
            "customer": rng.integers(0, 1_000_000, 300_000),
            "amount": rng.integers(1, 100, 300_000),
        }
    )

    # The small side, as bytes for the wire.
    wire = BloomFilter.from_keys(customers["customer"], error_rate=0.01).to_bytes()

    # Where the large side lies: one pass over the Arrow column, no Python object for a row.
    maybe = BloomFilter.from_bytes(wire).contains_many(orders["customer"])
    fewer = orders.filter(pa.array(maybe))

    joined = fewer.join(customers, "customer", join_type="inner")
    exact = orders.join(customers, "customer", join_type="inner")
    assert joined.num_rows == exact.num_rows, "no row of the result is lost"
    wrong = fewer.num_rows - joined.num_rows
    assert wrong < 0.012 * orders.num_rows
    print(f"{len(wire):,} bytes sent; {fewer.num_rows:,} of {orders.num_rows:,} rows go on")
    print(f"{wrong:,} of them had no partner; result {joined.num_rows:,} rows")


if __name__ == "__main__":
    main()

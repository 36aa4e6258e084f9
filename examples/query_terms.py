"""A filter inside queries: the rows of a large table that may be of known customers.

The same filter is an expression of Polars and a function of DuckDB. A no is certain, so the queries
lose no row; the join behind them takes the few wrong maybes out. Needs numpy, polars and duckdb.
"""

import duckdb
import numpy as np
import polars as pl

from bloomery import BloomFilter
from bloomery.integrations.duckdb import register
from bloomery.integrations.polars import contains


def main() -> None:
    rng = np.random.default_rng(7)
    customers = pl.DataFrame({"customer": rng.choice(1_000_000, 5_000, replace=False)})
    orders = pl.DataFrame({"customer": rng.integers(0, 1_000_000, 300_000)})
    known = BloomFilter.from_keys(customers["customer"], error_rate=0.01)

    # Polars: lazy, streaming, no Python object a row.
    kept = orders.lazy().filter(contains("customer", known)).collect(engine="streaming")
    joined = kept.join(customers, on="customer")
    assert joined.height == orders.join(customers, on="customer").height, "no row is lost"
    print(f"Polars: {kept.height:,} of {orders.height:,} rows go on, {joined.height:,} match")

    # DuckDB: the same filter, as a function.
    with duckdb.connect() as con:
        con.execute("CREATE TABLE orders AS SELECT * FROM orders")
        register(con, "known", known)
        row = con.execute("SELECT count(*) FROM orders WHERE known(customer)").fetchone()
        assert row is not None
        assert row[0] == kept.height
        print(f"DuckDB: {row[0]:,} rows go on")


if __name__ == "__main__":
    main()

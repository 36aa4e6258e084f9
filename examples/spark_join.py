"""Spark: drop the rows of the large side that have no partner before they are shuffled.

`bloom_join` has the rows of the plain join, and says how it did it; a filter that is built of a
column is asked in a query, and by plain Python. Needs PySpark and Java: pip install
'bloomery[spark]'.
"""

import os
import sys

from pyspark.sql import SparkSession

from bloomery.integrations.spark import build, contains, plan_join


def main() -> None:
    # Spark's workers are to be this Python, which has bloomery.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.getOrCreate()

    customers = spark.range(0, 100_000, 20).selectExpr("id customer", "concat('name ', id) name")
    orders = spark.range(200_000).selectExpr("id % 100000 customer", "id amount")

    # So few customers would be broadcast, which is better still; here they are too many for that.
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    plan = plan_join(orders, customers, "customer")
    found = plan.frame.count()
    assert found == orders.join(customers, "customer").count(), "no row of the result is lost"
    print(f"{found:,} orders joined; {plan.strategy}: {plan.reason}")
    spark.conf.unset("spark.sql.autoBroadcastJoinThreshold")

    # The same filter for whoever asks: in a query, and here.
    known = build(customers, "customer", error_rate=0.01)
    strangers = orders.where(~contains("customer", known)).count()
    assert 0.93 * 200_000 < strangers <= 190_000, "the rest is maybe known"
    assert 40 in known
    print(f"{strangers:,} orders are of nobody we know; the filter has {known.nbytes:,} bytes")


if __name__ == "__main__":
    main()

"""With Spark Connect, where no JVM can be reached, the same by Arrow UDFs, from another process."""

import os
import subprocess
import sys

import pytest

from integration.spark.conftest import HAS_CONNECT

CLIENT = """
import sys
from pyspark.sql import SparkSession
from bloomery.integrations.spark import build, contains, plan_join

spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
large = spark.range(20_000).withColumnRenamed("id", "key")
small = spark.range(0, 20_000, 20).selectExpr("cast(id as int) key", "id * 2 other")
filter = build(small, "key", 0.01)
assert filter.contains_many(list(range(0, 20_000, 20))).count(True) == 1000
kept = large.where(contains("key", filter)).count()
assert 1000 <= kept < 1500, kept
assert plan_join(large, small, "key").strategy == "spark"  # which broadcasts it
spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
plan = plan_join(large, small, "key")
assert plan.strategy == "arrow", plan.reason
assert plan.frame.count() == large.join(small, "key").count() == 1000
print(plan.reason)
"""


@pytest.mark.skipif(not HAS_CONNECT, reason="pyspark[connect] is not installed")
def test_a_client_of_spark_connect(spark: object, connect_port: int) -> None:
    """Filters are built, asked and joined by, and no row is lost."""
    done = subprocess.run(
        [sys.executable, "-c", CLIENT, f"sc://127.0.0.1:{connect_port}"],
        env={**os.environ, "SPARK_REMOTE": f"sc://127.0.0.1:{connect_port}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Spark Connect reaches no JVM" in done.stdout

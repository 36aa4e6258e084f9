"""Filters of Spark's columns: built by partition, asked in a query, and in front of a join.

    filter      Spark's own filter, `SparkBloomFilter`: its bytes read and written, without Spark
    building    one of our filters out of a column: one for each partition, merged in a tree
    membership  a filter as a term of a query
    join        a join whose large side is filtered before it is shuffled, and why so or not
    texts       a column of texts without duplicates
    columns     which columns can be keys, and how many distinct ones they hold
    catalyst    Spark's own classes inside its JVM, where they can be reached
    worker      what runs in Spark's Python workers

In classic mode the filter of a join is made and asked inside the JVM; with Spark Connect, where
nothing of the JVM can be reached, by an Arrow UDF.
"""

from bloomery.integrations.spark.building import build
from bloomery.integrations.spark.filter import SparkBloomFilter
from bloomery.integrations.spark.join import JoinPlan, bloom_join, plan_join
from bloomery.integrations.spark.membership import contains
from bloomery.integrations.spark.texts import dedup_texts

__all__ = [
    "JoinPlan",
    "SparkBloomFilter",
    "bloom_join",
    "build",
    "contains",
    "dedup_texts",
    "plan_join",
]

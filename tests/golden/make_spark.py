"""Writes tests/golden/spark/: filters that Spark itself made, in both of its versions.

Needs PySpark and Java: `python tests/golden/make_spark.py`.
"""

from pathlib import Path

from privates import jvm_of

FOLDER = Path(__file__).parent / "spark"
LONGS = [0, 1, -1, 42, 2**31, -(2**31) - 1, 2**63 - 1, -(2**63)]
TEXTS = ["", "a", "ab", "abc", "abcd", "abcde", "K\u00fcche", "\u65e5\u672c\u8a9e", "x" * 40]


def main() -> None:
    from pyspark.sql import SparkSession

    jvm = jvm_of(SparkSession.builder.master("local[1]").getOrCreate())
    sketch = jvm.org.apache.spark.util.sketch
    for version, seed in ((1, 0), (2, 0), (2, -7)):
        kind = getattr(sketch, "BloomFilter$Version").valueOf(f"V{version}")
        filter = sketch.BloomFilter.create(kind, 20, 192, seed)
        for key in LONGS:
            filter.putLong(key)
        for text in TEXTS:
            filter.putString(text)
        out = jvm.java.io.ByteArrayOutputStream()
        filter.writeTo(out)
        name = f"v{version}-seed{seed}.bloom"
        (FOLDER / name).write_bytes(bytes(out.toByteArray()))


if __name__ == "__main__":
    main()

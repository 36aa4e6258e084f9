"""Our reader and writer of Spark's filters agree with Spark's own, key by key, inside its JVM."""

from typing import Any

import pytest

from bloomery.integrations.spark import SparkBloomFilter
from privates import java_frame_of, jvm_of

LONGS = [*range(-40, 40), *(sign * 2**n for n in range(7, 64, 3) for sign in (1, -1))]
LONGS += [2**63 - 1, -(2**63), 2**31, -(2**31) - 1]
TEXTS = ["x" * length for length in range(41)]
TEXTS += [f"k\u00fcche {n}" for n in range(20)] + [
    "\u65e5\u672c\u8a9e",
    "\U0001f980",
    "a\0b",
    "\x7f\x80",
]
ABSENT_LONGS = range(10_000, 10_400)
ABSENT_TEXTS = [f"absent {n}" for n in range(400)]
VERSIONS = [(1, 0), (2, 0), (2, -7)]


class Jvm:
    """Spark's own class."""

    def __init__(self, spark: Any) -> None:
        self.jvm = jvm_of(spark)
        self.sketch = self.jvm.org.apache.spark.util.sketch

    def make(self, version: int, capacity: int, num_bits: int, seed: int) -> Any:
        """An empty filter of a version."""
        version_of = getattr(self.sketch, "BloomFilter$Version").valueOf(f"V{version}")
        return self.sketch.BloomFilter.create(version_of, capacity, num_bits, seed)

    def written(self, filter: Any) -> bytes:
        """What it writes."""
        out = self.jvm.java.io.ByteArrayOutputStream()
        filter.writeTo(out)
        return bytes(out.toByteArray())


@pytest.fixture(scope="module")
def jvm(spark: Any) -> Jvm:
    """Spark's classes, which need no job."""
    return Jvm(spark)


@pytest.mark.parametrize(("version", "seed"), VERSIONS)
def test_the_same_keys_are_the_same_bytes(jvm: Jvm, version: int, seed: int) -> None:
    """Longs and strings put in there and here give equal bytes, and each new one is new to both."""
    ours = SparkBloomFilter(500, 0.01, version=version, seed=seed)
    theirs = jvm.make(version, 500, int(500 * 9.585), seed)
    for key in LONGS:
        assert ours.add(key) == theirs.putLong(key), key
    for text in TEXTS:
        assert ours.add(text) == theirs.putString(text), text
    assert ours.to_bytes() == jvm.written(theirs)


@pytest.mark.parametrize(("version", "seed"), VERSIONS)
def test_answers_agree_key_by_key(jvm: Jvm, version: int, seed: int) -> None:
    """Of a filter that errs often, both give the same answer for every key, there and absent,
    whoever wrote the bytes."""
    theirs = jvm.make(version, 100, 300, seed)
    for key in LONGS[::2]:
        theirs.putLong(key)
    for text in TEXTS[::2]:
        theirs.putString(text)
    ours = SparkBloomFilter.from_bytes(jvm.written(theirs))
    back = jvm.sketch.BloomFilter.readFrom(ours.to_bytes())
    wrong = 0
    for key in (*LONGS, *ABSENT_LONGS):
        answer = key in ours
        assert answer == theirs.mightContainLong(key) == back.mightContainLong(key), key
        wrong += answer and key in ABSENT_LONGS
    for text in (*TEXTS, *ABSENT_TEXTS):
        answer = text in ours
        assert answer == theirs.mightContainString(text), text
        assert answer == (text.encode() in ours)
        wrong += answer and text in ABSENT_TEXTS
    assert wrong > 20, "agreement on wrong maybes was tried"
    assert ours.estimated_error_rate == pytest.approx(theirs.expectedFpp())


@pytest.mark.parametrize("capacity", [1, 7, 1000, 123_457])
@pytest.mark.parametrize("rate", [0.5, 0.03, 0.01, 1e-6])
def test_sizes_are_sparks(jvm: Jvm, capacity: int, rate: float) -> None:
    """An empty filter has the bytes of the one that Spark makes for so many keys and that rate."""
    ours = SparkBloomFilter(capacity, rate)
    assert ours.to_bytes() == jvm.written(jvm.sketch.BloomFilter.create(capacity, rate))


def test_a_filter_of_a_column(spark: Any, jvm: Jvm) -> None:
    """The filter that Spark makes of a column is the one that `add_many` makes of its keys."""
    theirs = java_frame_of(spark.range(-500, 500)).stat().bloomFilter("id", 1000, 0.01)
    ours = SparkBloomFilter(1000, 0.01)
    ours.update(range(-500, 500))
    assert ours.to_bytes() == jvm.written(theirs)

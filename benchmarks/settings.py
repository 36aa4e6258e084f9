"""How much to measure: the full run and the quick one."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

Record = dict[str, Any]
"""One measurement, as it stands in the JSON; every part returns a list of these."""

KINDS = ("str", "int", "bytes")


@dataclass(frozen=True)
class Settings:
    """Sizes and rounds of one run; `scale` shrinks all sizes, to try the harness itself."""

    quick: bool = False
    scale: float = 1.0

    def size(self, keys: int) -> int:
        return max(1000, int(keys * self.scale))

    @property
    def rounds(self) -> int:
        return 3 if self.quick else 5

    @property
    def few_rounds(self) -> int:
        """For the slow peers, and all that no *must* is held against."""
        return 1 if self.quick else 2

    @property
    def three_rounds(self) -> int:
        """Where ratios are large, or in many rows."""
        return min(3, self.rounds)

    def rounds_at(self, error_rate: float) -> int:
        """Of batches."""
        return self.rounds

    @property
    def kinds_of_all(self) -> tuple[str, ...]:
        """Kinds of keys that every peer is timed with; the others are for the contenders."""
        return KINDS

    @property
    def capacities(self) -> list[int]:
        sizes = [1_000_000] if self.quick else [1_000_000, 10_000_000]
        return [self.size(keys) for keys in sizes]

    @property
    def many(self) -> int:
        """From this capacity on, only the contenders run every round and every rate."""
        return self.size(10_000_000)

    @property
    def error_rates(self) -> list[float]:
        return [0.01] if self.quick else [0.01, 0.001]

    @property
    def ask_cap(self) -> int:
        """Single-key questions timed in one pass: at 10 M keys 2 M of them say what 10 M would."""
        return self.size(2_000_000)

    @property
    def hash_keys(self) -> int:
        """At 1% in 124 kB, which the processor's cache holds."""
        return self.size(20_000 if self.quick else 100_000)

    @property
    def hash_large(self) -> int:
        """At 1% in 99 MB, which no cache holds."""
        return self.size(80_000_000)

    @property
    def hash_paced(self) -> int:
        """Inserts at 100,000 a second."""
        return self.size(50_000 if self.quick else 100_000)

    @property
    def memory_keys(self) -> int:
        return self.size(10_000_000)

    @property
    def memory_absent(self) -> int:
        """At 0.1%, 50 M absent keys give 50,000 errors: one deviation is 0.4% of the rate."""
        return self.size(20_000_000 if self.quick else 50_000_000)

    @property
    def large_keys(self) -> int:
        return self.size(20_000_000 if self.quick else 100_000_000)

    @property
    def thread_keys(self) -> list[int]:
        sizes = [5_000_000] if self.quick else [10_000_000]
        return [self.size(keys) for keys in sizes]

    @property
    def billion_keys(self) -> int:
        return self.size(50_000_000 if self.quick else 1_000_000_000)

    @property
    def billion_absent(self) -> int:
        return self.size(10_000_000 if self.quick else 100_000_000)

    @property
    def billion_chunk(self) -> int:
        return self.size(10_000_000)

    @property
    def crawl_timed(self) -> int:
        """Requests whose cost is measured, one by one."""
        return self.size(20_000 if self.quick else 100_000)

    @property
    def crawl_requests(self) -> int:
        """Fingerprints whose memory is measured."""
        return self.size(1_000_000 if self.quick else 10_000_000)

    @property
    def dedup_lines(self) -> int:
        return self.size(1_000_000 if self.quick else 10_000_000)

    @property
    def diff_lines(self) -> int:
        """Of each of two files."""
        return self.size(1_000_000 if self.quick else 4_000_000)

    @property
    def corpus_characters(self) -> int:
        """Of text, in JSONL files."""
        return self.size(40_000_000 if self.quick else 181_000_000)

    @property
    def corpus_documents(self) -> int:
        """Of 200 words each, for near-duplicates."""
        return self.size(4_000 if self.quick else 40_000)

    @property
    def json_lines(self) -> int:
        return self.size(500_000 if self.quick else 5_000_000)

    @property
    def compare_keys(self) -> int:
        return self.size(200_000 if self.quick else 10_000_000)

    @property
    def compare_asked(self) -> int:
        return max(2_000, self.size(20_000 if self.quick else 1_000_000))

    @property
    def family_keys(self) -> int:
        return self.size(1_000_000)

    @property
    def family_rounds(self) -> int:
        return 2

    @property
    def family_timed(self) -> int:
        """Keys of the kinds and their peers, where they are timed."""
        return self.size(200_000)

    @property
    def family_absent(self) -> int:
        """At 1%, 4 M absent keys give 40,000 errors: one deviation is 0.5% of the rate."""
        return self.size(1_000_000 if self.quick else 4_000_000)

    @property
    def bank_users(self) -> int:
        """With 5,000 keys each."""
        return self.size(5_000 if self.quick else 10_000)

    @property
    def bank_many(self) -> int:
        """Users with 200 keys each."""
        return self.size(20_000 if self.quick else 100_000)

    @property
    def service_keys(self) -> int:
        """Of the filters that redis-benchmark asks."""
        return self.size(1_000_000)

    @property
    def service_rounds(self) -> int:
        return 3 if self.quick else 5

    @property
    def few_service_rounds(self) -> int:
        """Of what takes long."""
        return min(3, self.service_rounds)

    @property
    def sampling_seconds(self) -> float:
        """Two rounds of samples, or one."""
        return 12.0 if self.scale >= 1 else 6.0

    @property
    def arrow_keys(self) -> int:
        """Of the stream into a filter."""
        return self.size(5_000_000 if self.quick else 10_000_000)

    def service_requests(self, pipeline: int) -> int:
        """Half a second of them or more for Redis; twice as many for ours."""
        requests = {1: 30_000, 16: 250_000}.get(pipeline, 500_000)
        return max(50 * pipeline, int(requests * self.scale * (0.3 if self.quick else 1)))

    @property
    def guard_keys(self) -> int:
        """Rows of the table; there are as many absent keys."""
        return self.size(100_000)

    @property
    def guard_reads(self) -> int:
        """After the warm-up."""
        return self.size(30_000)

    @property
    def guard_rounds(self) -> int:
        return 5 if self.scale >= 1 else 1

    @property
    def guard_chunks(self) -> int:
        """Of 1,000 keys each."""
        return 90 if self.quick else 300

    @property
    def snapshot_capacity(self) -> int:
        """A plain filter of 1 GB."""
        return self.size(85_000_000 if self.quick else 850_000_000)

    @property
    def pause_bytes(self) -> int:
        """Of the filters to all of which something is done while others are served."""
        return max(1 << 23, int((1 << (27 if self.quick else 30)) * min(1.0, self.scale)))

    @property
    def restart_capacity(self) -> int:
        """A plain filter of 1.24 GB."""
        return self.size(100_000_000 if self.quick else 1_000_000_000)

    @property
    def logged_keys(self) -> int:
        return self.size(1_000_000 if self.quick else 10_000_000)

    @property
    def client_keys(self) -> int:
        """By redis-py: a slow client needs no more to be timed."""
        return self.size(20_000)

    @property
    def cluster_rounds(self) -> int:
        return (5 if self.quick else 9) if self.scale >= 1 else 1

    @property
    def cluster_load_bytes(self) -> int:
        """Of the bits that a node loads."""
        return max(1 << 22, int((1 << (27 if self.quick else 30)) * min(1.0, self.scale)))

    @property
    def cluster_loads(self) -> int:
        return (2 if self.quick else 3) if self.scale >= 1 else 1

    @property
    def cluster_seconds(self) -> float:
        """Of the writes under which the lag is measured."""
        return (8.0 if self.quick else 15.0) if self.scale >= 1 else 2.0

    @property
    def cluster_check_rounds(self) -> int:
        return (1 if self.quick else 3) if self.scale >= 1 else 1

    @property
    def cluster_check_seconds(self) -> float:
        return 1.0 if self.scale >= 1 else 0.2

    @property
    def cluster_keys(self) -> int:
        """Of the filter for which Redis's memory is measured."""
        return self.size(10_000_000 if self.quick else 100_000_000)

    @property
    def admission_objects(self) -> int:
        """Distinct objects of the trace; there are six requests for each."""
        return self.size(20_000 if self.quick else 60_000)

    @property
    def admission_calls(self) -> int:
        return self.size(20_000 if self.quick else 50_000)

    @property
    def feed_keys(self) -> int:
        return self.size(100_000 if self.quick else 500_000)

    @property
    def seen_stores(self) -> list[tuple[int, int]]:
        """Users of a store, and articles of each."""
        many, more = (5_000, 20_000) if self.quick else (20_000, 100_000)
        return [(self.size(many), 5_000), (self.size(more), 500)]

    @property
    def seen_sets(self) -> int:
        """Users whose sets are weighed, with 5,000 articles each."""
        return 20 if self.quick else 100

    @property
    def signature_rows(self) -> int:
        return self.size(1_000_000 if self.quick else 10_000_000)

    @property
    def spark_rows(self) -> int:
        """Of the large side of a join."""
        return self.size(2_000_000 if self.quick else 20_000_000)

    @property
    def spark_keys(self) -> int:
        """Of its small side."""
        return self.size(10_000 if self.quick else 100_000)

    @property
    def spark_rounds(self) -> int:
        return (2 if self.quick else 5) if self.scale >= 1 else 1

    @property
    def segment_keys(self) -> int:
        """Of the store, in 20 segments."""
        return self.size(1_000_000 if self.quick else 2_000_000)

    @property
    def segment_gets(self) -> int:
        return self.size(50_000 if self.quick else 100_000)

    @property
    def segment_rows(self) -> int:
        """Of each of 1,000 row groups."""
        return max(20, int((2_000 if self.quick else 10_000) * min(1.0, self.scale)))

    def as_record(self) -> Record:
        """What the JSON says about how the figures were made."""
        return {**asdict(self), "rounds": self.rounds, "few_rounds": self.few_rounds}

//! A histogram of durations for /metrics, which the hot path updates without a lock.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Upper bounds of the buckets in microseconds. One more bucket has the longer durations.
const BOUNDS: [u64; 16] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 5_000_000, 10_000_000,
];

#[derive(Default)]
pub struct Histogram {
    counts: [AtomicU64; BOUNDS.len() + 1],
    nanoseconds: AtomicU64,
}

impl Histogram {
    pub fn add(&self, took: Duration, times: u64) {
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let bucket = BOUNDS.partition_point(|&bound| bound * 1_000 < nanoseconds);
        self.counts[bucket].fetch_add(times, Relaxed);
        self.nanoseconds.fetch_add(nanoseconds.saturating_mul(times), Relaxed);
    }

    /// Returns the upper bound of each bucket but the last in seconds, the count of each bucket, and
    /// the sum of all durations in seconds.
    pub fn read(&self) -> (Vec<f64>, Vec<u64>, f64) {
        let bounds = BOUNDS.iter().map(|&bound| bound as f64 / 1e6).collect();
        let counts = self.counts.iter().map(|count| count.load(Relaxed)).collect();
        (bounds, counts, self.nanoseconds.load(Relaxed) as f64 / 1e9)
    }
}

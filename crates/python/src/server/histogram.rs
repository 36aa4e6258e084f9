//! A histogram of times, for /metrics: counted on the hot path without a lock.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use pyo3::prelude::*;

/// Upper ends of the buckets, in microseconds; one more bucket has what took longer.
const BOUNDS: [u64; 16] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 5_000_000, 10_000_000,
];

#[pyclass(frozen, module = "bloomery._native")]
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
}

#[pymethods]
impl Histogram {
    #[new]
    fn new() -> Self {
        Histogram::default()
    }

    /// Counts something that took so many seconds.
    fn observe(&self, seconds: f64) {
        self.add(Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX), 1);
    }

    /// The upper end of each bucket but the last, in seconds; how many there are in each bucket; and
    /// the sum of all, in seconds.
    fn read(&self) -> (Vec<f64>, Vec<u64>, f64) {
        let bounds = BOUNDS.iter().map(|&bound| bound as f64 / 1e6).collect();
        let counts = self.counts.iter().map(|count| count.load(Relaxed)).collect();
        (bounds, counts, self.nanoseconds.load(Relaxed) as f64 / 1e9)
    }
}

//! A histogram of durations as Python has it.

use std::sync::Arc;
use std::time::Duration;

use bloomery_server::histogram;
use bloomery_server::keyspace::Keyspace;
use pyo3::prelude::*;

#[pyclass(frozen, module = "bloomery._native")]
pub struct Histogram(Of);

enum Of {
    Own(histogram::Histogram),
    /// The latency of a server's commands.
    Commands(Arc<Keyspace>),
    /// The latency of a server's batches.
    Batches(Arc<Keyspace>),
}

impl Histogram {
    pub fn of_commands(keyspace: Arc<Keyspace>) -> Self {
        Histogram(Of::Commands(keyspace))
    }

    pub fn of_batches(keyspace: Arc<Keyspace>) -> Self {
        Histogram(Of::Batches(keyspace))
    }

    fn get(&self) -> &histogram::Histogram {
        match &self.0 {
            Of::Own(own) => own,
            Of::Commands(keyspace) => &keyspace.latency,
            Of::Batches(keyspace) => &keyspace.batch_latency,
        }
    }
}

#[pymethods]
impl Histogram {
    #[new]
    fn new() -> Self {
        Histogram(Of::Own(histogram::Histogram::default()))
    }

    /// Counts something that took so many seconds.
    fn observe(&self, seconds: f64) {
        let took = Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX);
        self.get().add(took, 1);
    }

    /// The upper bound of each bucket but the last in seconds, the count of each bucket, and the sum
    /// of all durations in seconds.
    fn read(&self) -> (Vec<f64>, Vec<u64>, f64) {
        self.get().read()
    }
}

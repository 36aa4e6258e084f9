//! A time that Python sets and native code reads: the time of the last record that a server applied.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use pyo3::prelude::*;

/// Seconds since 1970. Called as a function, it returns them, as a clock of a filter does.
#[pyclass(frozen, module = "bloomery._native")]
#[derive(Default)]
pub struct Time(AtomicU64);

#[pymethods]
impl Time {
    #[new]
    fn new() -> Self {
        Time::default()
    }

    #[getter]
    pub fn seconds(&self) -> f64 {
        f64::from_bits(self.0.load(Relaxed))
    }

    #[setter]
    fn set_seconds(&self, seconds: f64) {
        self.0.store(seconds.to_bits(), Relaxed);
    }

    fn __call__(&self) -> f64 {
        self.seconds()
    }
}

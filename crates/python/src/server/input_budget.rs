//! The budget of unprocessed input (`bloomery_server::input_budget`) as Python calls it.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bloomery_server::input_budget;
use pyo3::prelude::*;

#[pyclass(frozen, module = "bloomery._native")]
pub struct InputBudget(pub Arc<input_budget::InputBudget>);

#[pymethods]
impl InputBudget {
    #[new]
    fn new(limit: u64) -> Self {
        InputBudget(Arc::new(input_budget::InputBudget::new(limit)))
    }

    /// Charges `after` bytes instead of `before`; False, without an effect, if the limit is
    /// exceeded.
    fn charge(&self, before: u64, after: u64) -> bool {
        self.0.charge(before, after)
    }

    /// Bytes that all connections may use together.
    #[getter]
    fn limit(&self) -> u64 {
        self.0.limit.load(Relaxed)
    }

    #[setter]
    fn set_limit(&self, limit: u64) {
        self.0.limit.store(limit, Relaxed);
    }

    /// Bytes that are charged.
    #[getter]
    fn used(&self) -> u64 {
        self.0.used()
    }

    /// Requests that exceeded the limit.
    #[getter]
    fn refused(&self) -> u64 {
        self.0.refused()
    }
}

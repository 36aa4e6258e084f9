//! The outcomes of the records of a batch, from Python and back.

use std::sync::Arc;

use bloomery_server::apply::{Applied, Outcome};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

/// The outcomes of a batch, with which sessions answer their writes.
#[pyclass(frozen, module = "bloomery._native")]
pub struct Outcomes(pub Arc<Vec<Outcome>>);

#[pymethods]
impl Outcomes {
    /// A result for each record: as `Shelf.apply` appends it, an error reply in bytes, or None if
    /// another command changed the name first. Anything else: a thread still applies the record.
    #[new]
    fn new(results: &Bound<'_, PyList>) -> PyResult<Self> {
        let outcomes = results.iter().map(|result| outcome(&result)).collect::<PyResult<_>>()?;
        Ok(Outcomes(Arc::new(outcomes)))
    }
}

fn outcome(result: &Bound<'_, PyAny>) -> PyResult<Outcome> {
    if result.is_none() {
        return Ok(Outcome::Conflict);
    }
    if let Ok(error) = result.cast::<PyBytes>() {
        return Ok(Outcome::Error(error.as_bytes().to_vec()));
    }
    let Ok(result) = result.cast::<PyTuple>() else { return Ok(Outcome::Unfinished) };
    let (answers, refusal): Answers<'_> = result.extract()?;
    Ok(Outcome::Keys(Applied { answers: answers.as_bytes().to_vec(), refusal }))
}

/// The outcome of the keys of a record: answers, and the first refusal.
pub type Answers<'py> = (Bound<'py, PyBytes>, Option<(String, String)>);

pub fn answers(py: Python<'_>, applied: Applied) -> Answers<'_> {
    (PyBytes::new(py, &applied.answers), applied.refusal)
}

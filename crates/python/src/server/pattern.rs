//! Text that clients send, looked through without Python: patterns of names, and long JSON.

use bloomery_core::glob::Glob;
use bloomery_core::json;
use pyo3::prelude::*;

/// A pattern of names, as Redis's KEYS has them.
#[pyclass(frozen, module = "bloomery._native")]
pub struct Pattern(Glob);

#[pymethods]
impl Pattern {
    #[new]
    fn new(pattern: &[u8]) -> Self {
        Pattern(Glob::new(pattern))
    }

    fn matches(&self, name: &[u8]) -> bool {
        self.0.matches(name)
    }
}

/// How deep the arrays and objects of a text of JSON are nested.
#[pyfunction]
pub fn json_depth(py: Python<'_>, text: &[u8]) -> usize {
    py.detach(|| json::depth(text))
}

type Slices = (usize, usize, usize, Vec<(usize, usize)>);

/// Where the array that is this member of JSON's outermost object begins and ends, how many elements
/// it has, and those in slices of about so many bytes; None if there is none.
#[pyfunction]
pub fn cut_json(py: Python<'_>, text: &[u8], member: &[u8], nbytes: usize) -> Option<Slices> {
    let found = py.detach(|| json::cut(text, member, nbytes))?;
    let slices = found.slices.into_iter().map(|slice| (slice.start, slice.end)).collect();
    Some((found.array.start, found.array.end, found.count, slices))
}

//! Many saved filters that are asked for a key at once.

use bloomery_core::pack;
use pyo3::prelude::*;

use crate::errors;
use crate::filters::family::borrow;
use crate::keys::hashes::hashes;
use crate::keys::key::hash_key;

/// Saved filters in a buffer, a mapped file's, at these offsets; `verify` reads all of them.
#[pyclass(frozen, module = "bloomery._native")]
pub struct Pack(pack::Pack);

#[pymethods]
impl Pack {
    #[new]
    fn new(
        py: Python<'_>,
        memory: &Bound<'_, PyAny>,
        offsets: Vec<u64>,
        verify: bool,
    ) -> PyResult<Pack> {
        let bits = borrow(py, memory, 0, false)?;
        let opened = py.detach(|| pack::Pack::open(&bits, &offsets, verify));
        opened.map(Pack).map_err(|problem| errors::format(py, problem))
    }

    /// One pack of the filters of all of these.
    #[staticmethod]
    fn join(py: Python<'_>, packs: Vec<PyRef<'_, Pack>>) -> PyResult<Pack> {
        let joined = pack::Pack::join(packs.iter().map(|pack| &pack.0));
        joined.map(Pack).map_err(|problem| errors::format(py, problem))
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    /// The numbers of the filters that may hold the key; the others definitely do not.
    fn maybes(&self, key: &Bound<'_, PyAny>) -> PyResult<Vec<usize>> {
        let Some(hasher) = self.0.hasher() else { return Ok(Vec::new()) };
        Ok(self.0.maybes(hash_key(key.as_borrowed(), hasher)?))
    }

    /// The same for each key of a batch.
    fn maybes_many(&self, py: Python<'_>, keys: &Bound<'_, PyAny>) -> PyResult<Vec<Vec<usize>>> {
        let Some(hasher) = self.0.hasher() else { return Ok(vec![Vec::new(); keys.len()?]) };
        let (hashes, _) = hashes(keys, *hasher, false)?;
        Ok(py.detach(|| hashes.iter().map(|hash| self.0.maybes(*hash)).collect()))
    }
}

//! `StaticFilter.build`: all keys are hashed, then the filter is made of the hashes.

use bloomery_core::fuse;
use bloomery_core::hash::{HashKind, KeyHasher};
use bloomery_core::kind::Kind;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::{invalid, refused};
use crate::filters::memory::Memory;
use crate::keys::batch::{Options, Threads};
use crate::keys::hashes::hashes;

/// The head and the memory of a static filter of these keys.
#[pyfunction]
pub fn build_static<'py>(
    keys: &Bound<'py, PyAny>,
    error_rate: f64,
    hasher: &str,
    seed: u128,
    nulls: &str,
) -> PyResult<(Bound<'py, PyBytes>, Memory)> {
    let py = keys.py();
    let kind = HashKind::from_name(hasher)
        .ok_or_else(|| invalid(py, format!("hasher is {hasher:?}, which is not known")))?;
    let hasher = KeyHasher { kind, seed };
    let options = Options::new(py, nulls, Threads(1))?;
    let (found, _) = hashes(keys, hasher, options.skip_nulls)?;
    let built = py.detach(|| fuse::build(found, error_rate, hasher));
    let built = built.map_err(|refusal| refused(py, refusal))?;
    let head = PyBytes::new(py, &built.header().encode());
    // One section: the cells, which nobody else has.
    let memory = built.sections().pop().map(Memory::new);
    let memory = memory.ok_or_else(|| invalid(py, "a static filter has memory".into()))?;
    Ok((head, memory))
}

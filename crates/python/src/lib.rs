//! `bloomery._native`: Python objects in, the core's work with the interpreter lock released,
//! Python objects and errors out. No algorithms.

mod arrow;
mod batch;
mod bloom;
mod buffer;
mod column;
mod errors;
mod key;
mod lines;
mod mask;
mod slots;

use bloomery_core::format::{self, HEADER_BYTES, Header};
use bloomery_core::shape::Shape;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::bloom::Bloom;
use crate::buffer::Held;
use crate::errors::invalid;

/// (capacity, error_rate, layout, num_bits, num_hashes, lines_per_key, hasher, seed), the arguments
/// of `Bloom`, and the checksum.
type Parsed = (u64, f64, &'static str, u64, u32, u32, &'static str, u128, u64);

/// Reads and checks the head of a saved filter of `total` bytes, if that is known.
#[pyfunction]
fn parse_header(py: Python<'_>, head: &[u8], total: Option<u64>) -> PyResult<Parsed> {
    let read = || {
        let header = Header::parse(&head[..head.len().min(HEADER_BYTES)])?;
        let shape = Shape::of(&header)?;
        total.map_or(Ok(()), |total| header.check_total(total))?;
        Ok((header, shape))
    };
    let (header, shape) = read().map_err(|problem| errors::format(py, problem))?;
    let hasher = header.hasher;
    Ok((
        header.capacity,
        header.error_rate,
        shape.layout.name(),
        shape.num_bits,
        shape.num_hashes,
        shape.lines_per_key,
        hasher.kind.name(),
        hasher.seed,
        header.checksum,
    ))
}

/// The checksum of one more piece of a filter's bits (whole chunks, but for the last).
#[pyfunction]
#[pyo3(signature = (data, before=0))]
fn checksum(py: Python<'_>, data: &Bound<'_, PyAny>, before: u64) -> PyResult<u64> {
    let held = Held::get(data, ffi::PyBUF_SIMPLE)
        .ok_or_else(|| invalid(py, "data must be a contiguous buffer".into()))?;
    // SAFETY: contiguous; the caller hands the buffer over for the time of the call.
    Ok(py.detach(|| format::checksum(unsafe { held.bytes() }, before)))
}

#[pymodule(gil_used = false)]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Bloom>()?;
    slots::install::<Bloom>(module.py())?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("HEADER_BYTES", HEADER_BYTES)?;
    module.add("CHUNK_BYTES", format::CHUNK_BYTES)?;
    module.add("LIVE", format::LIVE)?;
    module.add_function(wrap_pyfunction!(parse_header, module)?)?;
    module.add_function(wrap_pyfunction!(checksum, module)?)
}

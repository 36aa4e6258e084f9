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

use bloomery_core::format::{self, HEADER_BYTES, Header};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::bloom::Bloom;
use crate::buffer::Held;
use crate::errors::invalid;

/// (capacity, error_rate, layout, num_bits, num_hashes, lines_per_key, hasher, seed), the arguments
/// of `Bloom`, and the checksum.
type Parsed = (u64, f64, &'static str, u64, u32, u32, &'static str, u128, u64);

/// Reads and checks the head of a saved filter of `total` bytes, if that is known.
#[pyfunction]
fn parse_header(py: Python<'_>, head: &[u8], total: Option<u64>) -> PyResult<Parsed> {
    let header = Header::parse(&head[..head.len().min(HEADER_BYTES)], total)
        .map_err(|problem| errors::format(py, problem))?;
    let (shape, hasher) = (header.shape, header.hasher);
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

/// Puts `add` on the class as a one-argument method of the fastest kind there is.
fn install_add(class: &Bound<'_, PyType>) -> PyResult<()> {
    // A method definition must outlive the class, which is never freed.
    let definition = Box::leak(Box::new(ffi::PyMethodDef {
        ml_name: c"add".as_ptr(),
        ml_meth: ffi::PyMethodDefPointer { PyCFunction: bloom::add_one },
        ml_flags: ffi::METH_O,
        ml_doc: c"add($self, key, /)\n--\n\nAdd the key; True if it is definitely new.".as_ptr(),
    }));
    // SAFETY: the class is a live type object and the definition lives for ever.
    let method = unsafe {
        let made = ffi::PyDescr_NewMethod(class.as_type_ptr(), &raw mut *definition);
        Bound::from_owned_ptr_or_err(class.py(), made)?
    };
    class.setattr("add", method)
}

/// Puts `in` on the class without PyO3's trampoline.
fn install_contains(class: &Bound<'_, PyType>) -> PyResult<()> {
    let wrapper = class.getattr("__contains__")?;
    // SAFETY: a slot's wrapper is a PyWrapperDescrObject; both places hold an objobjproc, and the
    // new one has the same contract. Subclasses, made later, copy it from the wrapper.
    unsafe {
        let contains: ffi::objobjproc = bloom::contains_one;
        (*wrapper.as_ptr().cast::<ffi::PyWrapperDescrObject>()).d_wrapped = contains as *mut _;
        (*(*class.as_type_ptr()).tp_as_sequence).sq_contains = Some(contains);
    }
    Ok(())
}

#[pymodule(gil_used = false)]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Bloom>()?;
    install_add(&module.py().get_type::<Bloom>())?;
    install_contains(&module.py().get_type::<Bloom>())?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("HEADER_BYTES", HEADER_BYTES)?;
    module.add("CHUNK_BYTES", format::CHUNK_BYTES)?;
    module.add("LIVE", format::LIVE)?;
    module.add_function(wrap_pyfunction!(parse_header, module)?)?;
    module.add_function(wrap_pyfunction!(checksum, module)?)
}

//! `bloomery._native`: Python objects in, the core's work with the interpreter lock released,
//! Python objects and errors out. No algorithms.

mod any_filter;
mod arrow;
mod arrow_rows;
mod arrow_type;
mod bank;
mod batch;
mod bloom;
mod buffer;
mod column;
mod column_check;
mod errors;
mod family;
mod family_batch;
mod fuse;
mod gate;
mod hashes;
mod header;
mod key;
mod lines;
mod mapped;
mod mask;
mod memory;
mod names;
mod output;
mod pattern;
mod permits;
mod redisbloom;
mod remote;
mod replay;
mod run;
mod sections;
mod session;
mod shelf;
mod sliced;
mod slots;
mod source;
mod tables;
mod usual;

use bloomery_core::format::{CHUNK_BYTES, HEADER_BYTES, LIVE, MAGIC};
use bloomery_core::hash::HashKind;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::bank::Bank;
use crate::bloom::Bloom;
use crate::family::Family;
use crate::memory::{Memory, Section};
use crate::pattern::Pattern;
use crate::redisbloom::{Chain, Cuckoo};
use crate::remote::{Commands, Places};
use crate::session::Session;
use crate::shelf::Shelf;

#[pymodule(gil_used = false)]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add_class::<Bank>()?;
    module.add_class::<Bloom>()?;
    module.add_class::<Chain>()?;
    module.add_class::<Commands>()?;
    module.add_class::<Cuckoo>()?;
    module.add_class::<Family>()?;
    module.add_class::<Memory>()?;
    module.add_class::<Pattern>()?;
    module.add_class::<Places>()?;
    module.add_class::<Section>()?;
    module.add_class::<Session>()?;
    module.add_class::<Shelf>()?;
    sections::register(module)?;
    slots::install::<Bloom>(py)?;
    slots::install::<Family>(py)?;
    slots::install_remove::<Family>(py)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("HEADER_BYTES", HEADER_BYTES)?;
    module.add("CHUNK_BYTES", CHUNK_BYTES)?;
    module.add("LIVE", LIVE)?;
    module.add("MAGIC", PyBytes::new(py, &MAGIC))?;
    module.add("HASHERS", PyTuple::new(py, HashKind::ALL.map(|(_, name)| name))?)?;
    module.add_function(wrap_pyfunction!(arrow::check_arrow_type, module)?)?;
    module.add_function(wrap_pyfunction!(bank::bank_pages, module)?)?;
    module.add_function(wrap_pyfunction!(header::make_header, module)?)?;
    module.add_function(wrap_pyfunction!(header::read_header, module)?)?;
    module.add_function(wrap_pyfunction!(header::parse_header, module)?)?;
    module.add_function(wrap_pyfunction!(header::checksum, module)?)?;
    module.add_function(wrap_pyfunction!(key::canonical, module)?)?;
    module.add_function(wrap_pyfunction!(memory::memory_used, module)?)?;
    module.add_function(wrap_pyfunction!(memory::set_memory_limit, module)?)?;
    module.add_function(wrap_pyfunction!(memory::unmap_aside, module)?)?;
    module.add_function(wrap_pyfunction!(pattern::cut_json, module)?)?;
    module.add_function(wrap_pyfunction!(remote::mask, module)?)?;
    module.add_function(wrap_pyfunction!(replay::lost_frames, module)?)?;
    module.add_function(wrap_pyfunction!(fuse::build_static, module)?)?;
    module.add_function(wrap_pyfunction!(source::checked_arrow, module)?)?;
    module.add_function(wrap_pyfunction!(source::column_objects, module)?)?;
    module.add_function(wrap_pyfunction!(tables::growing_table, module)?)?;
    module.add_function(wrap_pyfunction!(tables::fixed_table, module)?)?;
    module.add_function(wrap_pyfunction!(tables::rotating_table, module)?)
}
